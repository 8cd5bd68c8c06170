"""What a backward pass says where PyTorch cannot run it on the device, or beside it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NoReturn

import pytest
import torch

import dmlvk.torch  # noqa: F401  # makes the device
from dmlvk.spec.errors import StateError
from dmlvk.torch.backward import explained

IMPORTED_LATE = """
import torch
torch.ones(3, requires_grad=True).sum().backward()
import dmlvk.torch
from dmlvk.spec.errors import StateError
x = torch.ones(3).requires_grad_()
torch.compile(lambda x: x * 2, backend=dmlvk.torch.backend)(x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0]
y = torch.ones(3).to("dmlvk").requires_grad_()
try:
    (y * 2).sum().backward()
except StateError as error:
    assert torch.cuda.is_available() or "before dmlvk.torch was imported" in str(error)
    print(type(error).__name__)
assert y.detach().cpu().tolist() == [1.0, 1.0, 1.0]
"""


def test_a_late_import_is_told_and_leaves_tensors_of_the_processor_their_gradients() -> None:
    """Where PyTorch has a GPU of its own, its engine has started what the device needs."""
    ended = subprocess.run([sys.executable, "-c", IMPORTED_LATE], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (0, "" if torch.cuda.is_available() else "StateError\n"), ended.stderr


def test_other_errors_are_pytorchs_own() -> None:
    def fail(*args: Any, **options: Any) -> NoReturn:
        raise RuntimeError(*args)

    with pytest.raises(RuntimeError, match="element 0 has no grad") as caught:
        explained(fail)("element 0 has no grad")
    assert type(caught.value) is RuntimeError
    with pytest.raises(StateError, match="train on CUDA in another process"):
        explained(fail)("opt_ready_stream && opt_parent_stream INTERNAL ASSERT FAILED at engine.cpp")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA")
def test_cuda_has_no_backward_pass_beside_the_device() -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(StateError, match="train on CUDA in another process"):
        (x * 2).sum().backward()
    y = torch.ones(3).to("dmlvk").requires_grad_()
    (y * 2).sum().backward()
    assert y.grad is not None
    assert y.grad.cpu().tolist() == [2.0, 2.0, 2.0]
