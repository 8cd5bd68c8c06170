"""Einsum: products, traces, diagonals, broadcasting and implicit outputs; against numpy's einsum in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32


@pytest.fixture
def run(make_model: Any, make_session: Any) -> Callable[..., tuple[np.ndarray, int]]:
    def run(equation: str, *arrays: np.ndarray) -> tuple[np.ndarray, int]:
        feeds = {f"x{index}": array for index, array in enumerate(arrays)}
        node = helper.make_node("Einsum", list(feeds), ["y"], equation=equation)
        inputs = {name: (array.dtype, array.shape) for name, array in feeds.items()}
        session = make_session(make_model(node, inputs, opset=12, output_types={"y": arrays[0].dtype}))
        return session.run(None, feeds)[0], session.report().dispatches

    return run


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)], 1),
    ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)], 1),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], None),
    ("bhij,bhjd->bihd", [(2, 3, 4, 6), (2, 3, 6, 5)], None),
    ("bchw,bkc->bkhw", [(2, 3, 4, 5), (2, 6, 3)], None),
    ("ij,kj->ki", [(3, 4), (5, 4)], None),
    ("i,j->ij", [(3,), (4,)], 1),
    ("i,i", [(7,), (7,)], 1),
    ("ij->ji", [(3, 4)], 1),
    ("ij", [(3, 4)], 0),
    ("ba", [(3, 4)], 1),
    ("ij->", [(3, 4)], 1),
    ("ijk->j", [(3, 4, 5)], 1),
    ("ii->i", [(5, 5)], 1),
    ("ii", [(5, 5)], 1),
    ("bii->b", [(2, 5, 5)], 1),
    ("iji,jk->ik", [(3, 4, 3), (4, 2)], None),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 6)], None),
    ("...ij,...jk", [(2, 3, 4), (4, 6)], None),
    ("i...->...i", [(2, 3, 4)], 1),
    ("...,...", [(2, 3), (2, 3)], 1),
    ("i...->...", [(2, 3, 4)], 1),
    ("ij,ij->ij", [(3, 4), (3, 4)], 1),
    ("ij,j->i", [(3, 4), (4,)], None),
    ("ab,cd->abcd", [(2, 3), (4, 5)], 1),
    ("ab,cd->ac", [(2, 3), (4, 5)], None),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], None),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)], None),
    ("abc,cd,def->abef", [(2, 3, 4), (4, 5), (5, 2, 3)], None),
    ("aij,ajk->aik", [(1, 3, 4), (5, 4, 2)], None),
]


@pytest.mark.parametrize(("equation", "sizes", "dispatches"), EQUATIONS, ids=[row[0] for row in EQUATIONS])
def test_equation(
    equation: str, sizes: list[tuple[int, ...]], dispatches: int | None, run: Callable[..., Any], assert_close: Any
) -> None:
    rng = np.random.default_rng(len(equation))
    arrays = [rng.standard_normal(size).astype(f32) for size in sizes]
    found, count = run(equation, *arrays)
    assert_close(found, np.asarray(np.einsum(equation, *(array.astype(np.float64) for array in arrays))).astype(f32))
    assert count == dispatches or (dispatches is None and count > 0)


def test_integers(run: Callable[..., Any]) -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4) - 5
    np.testing.assert_array_equal(run("ij,jk->ik", a, b)[0], a @ b)


def test_nothing_to_sum(run: Callable[..., Any]) -> None:
    found, _ = run("ij,jk->ik", np.zeros((2, 0), f32), np.zeros((0, 3), f32))
    np.testing.assert_array_equal(found, np.zeros((2, 3), f32))


@pytest.mark.parametrize("equation", ["ij,jk->iik", "ij,jk->il", "ij->ij", "ijk,jk->i", "i1,jk->ik", "...i...,jk->k"])
def test_broken_equations(equation: str, run: Callable[..., Any]) -> None:
    with pytest.raises(dmlvk.ModelError):
        run(equation, np.zeros((2, 3), f32), np.zeros((3, 4), f32))


def test_sizes_that_do_not_meet(run: Callable[..., Any]) -> None:
    with pytest.raises(dmlvk.ModelError, match="dimension 'j' must have one size in all inputs; expected 3, got 4"):
        run("ij,jk->ik", np.zeros((2, 3), f32), np.zeros((4, 5), f32))
