"""Images made larger and smaller: one operator, with one gradient, for all sizes."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate

import dmlvk.torch
from dmlvk.torch.whole import kept_whole

WAYS = {
    "nearest, whole factor": ({"scale_factor": 2, "mode": "nearest"}, 1),
    "nearest": ({"scale_factor": 2.5, "mode": "nearest"}, 2),
    "nearest, smaller": ({"scale_factor": 0.4, "mode": "nearest"}, 2),
    "nearest-exact": ({"size": (5, 13), "mode": "nearest-exact"}, 2),
    "bilinear": ({"scale_factor": (2.5, 1.3), "mode": "bilinear"}, 1),
    "bilinear, sizes": ({"size": (3, 21), "mode": "bilinear"}, 1),
    "bilinear, recomputed": ({"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True}, 1),
    "bilinear, corners": ({"size": (11, 1), "mode": "bilinear", "align_corners": True}, 1),
    "bicubic": ({"scale_factor": 2, "mode": "bicubic"}, 4),
    "bicubic, corners": ({"size": (1, 9), "mode": "bicubic", "align_corners": True}, 4),
}
"""By name: PyTorch's arguments, and the most dispatches that images in the usual order may take."""

ALLOWED = {torch.float16: 0.25, torch.bfloat16: 2, torch.float64: 1e-12, torch.uint8: 1}
"""How far sums of numbers up to 256 may be off: of halves two units of the last place, of whole numbers a rounding."""


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("name", WAYS)
def test_images_and_their_gradients_are_pytorchs(name: str, dynamic: bool) -> None:
    options, most = WAYS[name]

    def resized(x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, **options)

    torch.compiler.reset()
    compiled = torch.compile(resized, backend=dmlvk.torch.backend, dynamic=dynamic)
    shapes = [
        ((2, 3, 8, 9), torch.channels_last),
        ((1, 3, 7, 11), torch.contiguous_format),
        ((3, 2, 10, 6), torch.channels_last),
    ]
    for sizes, order in shapes if dynamic else shapes[:1]:
        x = torch.randn(sizes, generator=torch.manual_seed(0)).to(memory_format=order).requires_grad_()
        own = x.detach().to("dmlvk").requires_grad_()
        wanted, found = resized(x), compiled(own)
        weights = torch.linspace(-1, 1, wanted.numel()).reshape(wanted.shape)
        (wanted * weights).sum().backward()  # type: ignore[no-untyped-call]
        (found * weights.to("dmlvk")).sum().backward()
        torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)
        assert x.grad is not None
        assert own.grad is not None
        torch.testing.assert_close(own.grad.cpu(), x.grad, rtol=1e-5, atol=1e-5)
    if not dynamic:
        torch.compiler.reset()
        with torch.no_grad():
            torch.compile(resized, backend=dmlvk.torch.backend)(torch.ones(1, 2, 8, 9).to("dmlvk"))
        assert dmlvk.torch.report().graphs[-1].dispatches <= most


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_lines_and_volumes_are_one_operator_too(mode: str, rank: int) -> None:
    own = {"nearest": "nearest", "linear": {1: "linear", 3: "trilinear"}[rank]}[mode]
    x = torch.randn(2, 3, *(4, 5, 6)[:rank], generator=torch.manual_seed(0))
    found = torch.compile(lambda x: interpolate(x, scale_factor=2, mode=own), backend=dmlvk.torch.backend)(x)
    torch.testing.assert_close(found, interpolate(x, scale_factor=2, mode=own), rtol=1e-5, atol=1e-5)
    assert dmlvk.torch.report().graphs[-1].dispatches == 1


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        *itertools.product(["nearest", "bilinear", "bicubic"], [torch.float16, torch.bfloat16, torch.float64]),
        ("nearest", torch.uint8),
        ("bilinear", torch.uint8),
    ],
)
def test_other_types(mode: str, dtype: torch.dtype) -> None:
    x = torch.randint(0, 200, (2, 3, 6, 7), generator=torch.manual_seed(0)).to(dtype)

    def resized(x: torch.Tensor) -> torch.Tensor:
        return interpolate(x, size=(13, 5), mode=mode)

    torch.compiler.reset()
    compiled = torch.compile(resized, backend=dmlvk.torch.backend)
    exact = (
        resized(x.double()) if dtype.is_floating_point else resized(x).double()
    )  # PyTorch rounds its sums of halves oftener
    allowed = 0 if mode == "nearest" else ALLOWED[dtype]
    assert (compiled(x).double() - exact).abs().max() <= allowed


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_the_gradient_of_an_image_is_one_operator(mode: str) -> None:
    """And no products with matrices, whose work grows with the square of a side."""
    torch.compiler.reset()
    x = torch.randn(1, 2, 4, 4, generator=torch.manual_seed(0)).to("dmlvk").requires_grad_()
    y = torch.compile(lambda x: interpolate(x, scale_factor=2, mode=mode), backend=dmlvk.torch.backend)(x)
    y.backward(torch.randn(1, 2, 8, 8).to("dmlvk"))
    newest = dmlvk.torch.report().graphs[-1]
    assert (newest.kind, newest.dispatches) == ("backward", 1)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_no_images_are_none_afterwards(mode: str) -> None:
    compiled = torch.compile(lambda x: interpolate(x, scale_factor=2, mode=mode), backend=dmlvk.torch.backend)
    assert compiled(torch.ones(0, 3, 4, 4)).shape == (0, 3, 8, 8)


def test_without_a_graph_an_image_is_one_operator_as_well() -> None:
    x = torch.randn(1, 2, 4, 4, generator=torch.manual_seed(0), requires_grad=True)
    own = x.detach().to("dmlvk").requires_grad_()
    (wanted, found) = (interpolate(item, scale_factor=2, mode="bilinear") for item in (x, own))
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)
    for made in (wanted, found):
        made.square().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert own.grad is not None
    torch.testing.assert_close(own.grad.cpu(), x.grad, rtol=1e-5, atol=1e-5)


def test_pytorchs_own_functions_are_back_afterwards() -> None:
    operators: list[Any] = [torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.upsample_nearest2d.default]
    before = [dict(own.py_kernels) for own in operators]
    assert all(before)

    def trace() -> None:
        with kept_whole():
            pass

    with pytest.raises(ZeroDivisionError), kept_whole():
        other = threading.Thread(target=trace, daemon=True)
        other.start()
        other.join(30)
        assert not other.is_alive(), "a backward pass of a trace runs in another thread, for which the first one waits"
        assert [dict(own.py_kernels) for own in operators] != before, "somebody still traces"
        raise ZeroDivisionError
    assert [dict(own.py_kernels) for own in operators] == before
