"""PyTorch's own samples of its operators, and their gradients: none is wrong. They need the package expecttest."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import torch

import dmlvk.torch

pytest.importorskip("expecttest")
samples = pytest.importorskip("torch_operators")
torch_page = pytest.importorskip("torch_page")

FEW = ("cummax", "scatter_reduce (prod)", "nn.functional.bilinear", "topk")
"""Operators that stand for families: running extremes, scatters, sums of products, open places."""


@functools.cache
def known() -> dict[str, Any]:
    """PyTorch's descriptions by title."""
    return {samples.title(op): op for op in samples.operators()}


@pytest.mark.parametrize("derived", [False, True], ids=["results", "gradients"])
@pytest.mark.parametrize("name", FEW)
def test_samples_of_a_few_operators_are_right(name: str, derived: bool) -> None:
    made = samples.row(known()[name], 3, (torch.float32,), derived)
    assert set(made["counts"]) == {"right"}, made["reasons"]


@pytest.mark.full
@pytest.mark.parametrize("derived", [False, True], ids=["results", "gradients"])
def test_no_sample_is_wrong(derived: bool) -> None:
    found = {}
    for name, op in known().items():
        if derived and not op.supports_autograd:
            continue
        made = samples.row(op, 3, (torch.float32,) if derived else samples.DTYPES, derived)
        found |= {f"{name}, {kind}": why for kind, why in made["reasons"].items() if kind.split()[0] in ("wrong", "failed")}
    assert not found


def test_places_of_equal_elements_are_open_and_others_are_not() -> None:
    (sample,) = samples.samples(known()["argsort"], torch.uint8, 1)
    sample.input, sample.args, sample.kwargs = torch.tensor([3, 1, 3, 2]), (), {"dim": 0}
    wanted = torch.tensor([1, 3, 0, 2])
    assert not samples.misplaced(sample, torch.tensor([1, 3, 2, 0]), wanted)
    assert samples.misplaced(sample, torch.tensor([1, 3, 0, 0]), wanted) == "a place twice"
    assert samples.misplaced(sample, torch.tensor([3, 1, 0, 2]), wanted).startswith("places of other elements")
    assert samples.misplaced(sample, torch.tensor([1, 3, 0, 4]), wanted) == "places outside of the dimension"


@pytest.mark.parametrize("run", ["operators", "others", "gradients"])
def test_the_committed_results_have_none_that_is_wrong_or_failed(run: str) -> None:
    rows = json.loads(torch_page.RESULTS.read_text())[run]
    assert len(rows) > 500
    assert not [row["name"] for row in rows if {"wrong", "failed"} & row["counts"].keys()]
    assert all(row["reasons"] for row in rows if "refused" in row["counts"])


def test_a_picture_of_whole_numbers_is_rounded_to_the_nearest() -> None:
    x = [torch.tensor([10, 11], dtype=torch.uint8)]

    def halves(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 0.75]

    assert samples.is_rounded(halves, x, 0, torch.tensor([8, 8], dtype=torch.uint8))
    assert not samples.is_rounded(halves, x, 0, torch.tensor([7, 9], dtype=torch.uint8))


def test_distances_between_stacks_of_different_sizes_have_gradients() -> None:
    a, b = torch.rand(1, 3, 2, requires_grad=True), torch.rand(4, 5, 2)
    wanted, found = (
        run(lambda a, b: [torch.cdist(a, b)], [a, b]) for run in (samples.gradients, samples.gradients_on_device)
    )
    torch.testing.assert_close(found[0], wanted[0])


def test_gradients_that_are_wrong_are_found() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * x

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return 3 * gradient

    x = [torch.linspace(-1, 1, 5, requires_grad=True)]
    right = samples.gradients(lambda x: [x * x], x)
    assert not samples.difference(samples.gradients_on_device(lambda x: [x * x], x)[0], right[0], None)
    assert samples.difference(samples.gradients(lambda x: [Wrong.apply(x)], x)[0], right[0], None)


def test_functions_of_numbers_are_good_far_out_too() -> None:
    x = torch.tensor([-30.5, -2.25, 1e-20, 0.5, 3.0, 9.0, 50.0, 1e6])
    for name, function in (("digamma", torch.digamma), ("lgamma", torch.lgamma), ("erfc", torch.erfc)):
        torch.compiler.reset()
        found = torch.compile(function, backend=dmlvk.torch.backend)(x)
        exact = function(x.double())
        assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-6), name
