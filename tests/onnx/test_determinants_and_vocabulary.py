"""Determinants, and counts of n-grams, beyond ONNX's node cases; against numpy, and onnxruntime's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32


def _determinants(x: np.ndarray, make_model: Any, make_session: Any) -> np.ndarray:
    model = make_model(helper.make_node("Det", ["x"], ["y"]), {"x": (x.dtype, x.shape)}, opset=22)
    (found,) = make_session(model).run(None, {"x": x})
    return found


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (5, 5), (3, 2, 4, 4), (20, 20)], ids=str)
def test_determinant(sizes: tuple[int, ...], make_model: Any, make_session: Any) -> None:
    x = np.random.default_rng(len(sizes)).standard_normal(sizes).astype(f32)
    found = _determinants(x, make_model, make_session)
    wanted = np.linalg.det(x.astype(np.float64))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5)


def test_determinant_of_special_matrices(make_model: Any, make_session: Any) -> None:
    """Singular ones, whose pivot is 0, and permutations, of which each exchange turns the sign."""
    x = np.stack([np.zeros((3, 3)), np.ones((3, 3)), np.eye(3), np.eye(3)[[1, 0, 2]], np.eye(3)[[1, 2, 0]]]).astype(f32)
    np.testing.assert_array_equal(_determinants(x, make_model, make_session), [0, 0, 1, -1, 1])


def test_determinant_refuses(make_model: Any, make_session: Any) -> None:
    with pytest.raises(dmlvk.ModelError, match="must be a stack of square matrices"):
        _determinants(np.zeros((2, 3), f32), make_model, make_session)
    with pytest.raises(dmlvk.UnsupportedError, match="matrices of 257 rows"):
        _determinants(np.zeros((257, 257), f32), make_model, make_session)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("least", "most", "skip"), [(1, 1, 0), (1, 3, 0), (2, 3, 2), (2, 2, 9), (3, 3, 1)])
@pytest.mark.parametrize("sizes", [(17,), (3, 11)], ids=str)
def test_n_grams(
    sizes: tuple[int, ...],
    least: int,
    most: int,
    skip: int,
    dtype: Any,
    mode: str,
    make_model: Any,
    make_session: Any,
    reference: Any,
    assert_close: Any,
) -> None:
    rng = np.random.default_rng(skip)
    x = rng.integers(0, 3, sizes).astype(dtype)
    attributes = {
        "mode": mode,
        "min_gram_length": least,
        "max_gram_length": most,
        "max_skip_count": skip,
        "ngram_counts": [0, 2, 8],
        "ngram_indexes": [3, 0, 1, 5, 2, 4, 7],
        "pool_int64s": [2, 0, 0, 1, 1, 2, 0, 0, 1, 0, 2, 2, 2, 2],
        "weights": rng.uniform(0.5, 2, 7).astype(f32).tolist(),
    }
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)
    model = make_model(node, {"x": (dtype, sizes)}, opset=17)
    session = make_session(model)
    (found,) = session.run(None, {"x": x})
    assert_close(found, reference(model, {"x": x}, "onnxruntime")[0])
    assert [record.op_type for record in session.report().gpu_nodes] == ["TfIdfVectorizer"]


def test_n_grams_refused(make_model: Any, make_session: Any) -> None:
    def run(**attributes: Any) -> None:
        given = {
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 1,
            "max_skip_count": 0,
            "ngram_counts": [0],
            "ngram_indexes": [0, 1],
            "pool_int64s": [4, 5],
        }
        node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **(given | attributes))
        make_session(make_model(node, {"x": (np.int64, (3,))}, opset=17)).run(None, {"x": np.zeros(3, np.int64)})

    with pytest.raises(dmlvk.ModelError, match=r"mode must be 'TF'.*got .'IF'"):
        run(mode="IF")
    with pytest.raises(dmlvk.ModelError, match="pool of 2 numbers"):
        run(ngram_counts=[0, 1])
    with pytest.raises(dmlvk.UnsupportedError, match="share a place"):
        run(ngram_indexes=[1, 1])
