"""Tensors of the device in copies of objects, in files, and in modules that move."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import dmlvk.torch  # noqa: F401  # makes the device

X = torch.arange(6.0).reshape(2, 3)


def _read(thing: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


def _on_device(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "dmlvk")


def test_a_deep_copy_has_memory_of_its_own() -> None:
    x = X.to("dmlvk")
    y = copy.deepcopy(x)
    y.add_(1)
    assert _on_device(y)
    assert torch.equal(x.cpu(), X)
    assert torch.equal(y.cpu(), X + 1)


def test_a_deep_copy_of_a_model_has_its_parameters_and_buffers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("dmlvk")
    other = copy.deepcopy(model)
    for own, made in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert _on_device(made)
        assert torch.equal(own.cpu(), made.cpu())
    assert all(made.requires_grad for made in other.parameters())
    other[1].running_mean.add_(1)
    assert not torch.equal(model[1].running_mean.cpu(), other[1].running_mean.cpu())


def test_a_deep_copy_has_the_gradient() -> None:
    x = X.to("dmlvk").requires_grad_()
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad is not None and y.grad is not x.grad
    assert y.grad.cpu().tolist() == [[3.0] * 3] * 2


def test_a_deep_copy_has_one_tensor_where_the_object_has_one() -> None:
    x = X.to("dmlvk")
    first, second = copy.deepcopy([x, x])
    assert first is second


def test_a_deep_copy_of_a_result_is_refused_as_pytorch_refuses_it() -> None:
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(X.to("dmlvk").requires_grad_() * 2)


def test_files_have_tensors_of_the_device() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("dmlvk")
    for options, kind in (({}, "dmlvk"), ({"map_location": "cpu"}, "cpu")):
        found = _read(model.state_dict(), **options)
        for name, own in model.state_dict().items():
            assert found[name].device.type == kind
            assert torch.equal(found[name].cpu(), own.cpu())
    assert torch.equal(pickle.loads(pickle.dumps(X.to("dmlvk"))).cpu(), X)
    shared, part = _read([whole := torch.arange(3.0), whole[1:]])
    shared.add_(1)
    assert part.tolist() == [2.0, 3.0]  # tensors of the processor share storages in files, as before


def test_tied_weights_stay_tied_where_a_model_moves() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5))
    model[1].weight = model[0].weight
    for where in ("dmlvk", "cpu"):
        model.to(where)
        assert model[1].weight is model[0].weight
        assert model[0].weight.device.type == where
    assert len([*model.parameters()]) == 2
