"""PyTorch's device ``dmlvk``: tensors that live on a device, their views, and what runs of them eagerly."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from faults.layer import environment as layer_environment
from faults.layer import missing

import dmlvk
import dmlvk.torch
from dmlvk.engine import run
from dmlvk.spec.errors import UnsupportedError

X = torch.arange(6.0).reshape(2, 3)


def test_tensors_go_to_the_device_and_come_back() -> None:
    t = X.t().to("dmlvk")
    assert (t.device.type, tuple(t.shape)) == ("dmlvk", (3, 2))
    assert torch.equal(t.cpu(), X.t())
    assert t[1, 1].item() == X.t()[1, 1]


def test_synchronize_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(type(dmlvk.default_device()), "wait_idle", lambda device: waited.append(device))
    torch.dmlvk.synchronize()
    assert waited == [dmlvk.default_device()]


def test_a_graph_reads_parameters_and_buffers_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []
    made = run.Copy
    monkeypatch.setattr(run, "Copy", lambda *given: copied.append(given) or made(*given))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).eval().to("dmlvk")
    compiled = torch.compile(model, backend="dmlvk")
    with torch.no_grad():
        for _ in range(3):
            copied.clear()
            compiled(X.to("dmlvk"))
        assert len(copied) == 1  # the input


def test_a_graph_sees_a_parameter_that_has_other_memory() -> None:
    model = torch.nn.Linear(3, 2).to("dmlvk")
    compiled = torch.compile(model, backend="dmlvk")
    x = X.to("dmlvk")
    with torch.no_grad():
        compiled(x), compiled(x)
        other = torch.arange(6.0).reshape(2, 3)
        model.weight.data = other.to("dmlvk")
        assert torch.equal((compiled(x) - model.bias).cpu(), X @ other.t())
        model.weight.mul_(2)
        assert torch.equal((compiled(x) - model.bias).cpu(), X @ (2 * other.t()))
        model.weight.data = other.t().contiguous().to("dmlvk").t()
        assert torch.equal((compiled(x) - model.bias).cpu(), X @ other.t())


def test_views_share_memory() -> None:
    t, own = X.to("dmlvk"), X.clone()
    for tensor in (t, own):
        tensor[1:].add_(10)
        tensor[:, 1:].mul_(2)
    assert torch.equal(t.cpu(), own)
    assert torch.equal(t.view(3, 2).cpu(), own.view(3, 2))
    assert torch.equal(t.detach().t().cpu(), own.t())


def test_gradients_are_on_the_device() -> None:
    w = torch.nn.Parameter(X.to("dmlvk"))
    y = w * 3 + w
    y.backward(torch.relu(y.detach()))
    assert w.grad is not None and w.grad.device.type == "dmlvk"
    assert torch.equal(w.grad.cpu(), 4 * torch.relu(X * 3 + X))


def test_device_arrays_and_tensors_share_memory() -> None:
    array = dmlvk.DeviceArray.from_numpy(X.numpy())
    t = dmlvk.torch.tensor_of(array, torch.float32)
    t.add_(1)
    assert torch.equal(torch.from_dlpack(array), X + 1)  # by the host, as DLPack has it for other libraries
    assert dmlvk.torch.array_of(t).buffer is array.buffer


def test_memory_is_freed_with_the_last_tensor() -> None:
    t = X.to("dmlvk")
    view = t[0]
    buffer = dmlvk.torch.array_of(t).buffer
    references = len(gc.get_referrers(buffer))
    assert references > 0
    del t, view
    gc.collect()
    assert len(gc.get_referrers(buffer)) < references


def test_an_operator_without_a_converter_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"prims\.bessel_j0\.default"):
        torch.special.bessel_j0(X.to("dmlvk"))


WHEN_LOST = """
import torch
import dmlvk, dmlvk.torch
from faults.layer import Layer


def refused(call):
    try:
        call()
    except Exception as error:
        found = getattr(error, "inner_exception", error)
        assert isinstance(found, dmlvk.DeviceLostError), repr(error)
    else:
        raise AssertionError("the lost device works")


def placed():
    return torch.linspace(-2, 2, 12).reshape(3, 4).to("dmlvk").requires_grad_()


def by_operators(x):
    return (x * x).sigmoid()


def step(x):
    loss = compiled(x).sum()
    loss.backward()
    return x.grad.cpu()


compiled = torch.compile(lambda x: torch.relu(x) * x, backend="dmlvk")
named = torch.compile(lambda x: torch.relu(x) + x, backend="dmlvk", options={"device": 0})
host = torch.linspace(-2, 2, 12)
x = placed()
wanted = by_operators(x).cpu(), step(x), named(host)
before = dmlvk.default_device()
layer = Layer()
layer.plan("vkQueueSubmit", 1, 1, "VK_ERROR_DEVICE_LOST")
refused(lambda: by_operators(x).cpu())
assert layer.fired == 1
layer.count()
refused(lambda: by_operators(x).cpu())
refused(lambda: step(x))
refused(x.detach().cpu)
for _ in range(2):
    new = placed()
    assert dmlvk.default_device() is not before
    assert torch.equal(by_operators(new).cpu(), wanted[0])
    assert torch.equal(step(new), wanted[1])
    refused(lambda: by_operators(x).cpu())
    refused(lambda: step(x))
layer.plan("vkQueueSubmit", 1, 1, "VK_ERROR_DEVICE_LOST")
refused(lambda: named(host))
layer.count()
assert torch.equal(named(host), wanted[2])
assert torch.equal(by_operators(new).cpu(), wanted[0])
print("the end")
"""


@pytest.mark.slow
def test_a_lost_device_is_left_behind() -> None:
    """What was on it says so. New tensors are on a new device, where compiled functions run without being compiled anew."""
    if why := missing():
        pytest.skip(why)
    folder = str(Path(__file__).parents[1])
    environment = {**os.environ, **layer_environment()}
    environment["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [environment.get("PYTHONPATH")])])
    program = [sys.executable, "-c", WHEN_LOST]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr
