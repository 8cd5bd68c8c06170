"""RoiAlign's largest weighted element, over regions that leave the image and images other than the first; against
onnxruntime's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32, f16 = np.float32, np.float16
ROIS = np.array([[0, 0, 6, 8], [-9, 1.5, 3, 7], [2, 2, 2.5, 2.5], [4, 5, 30, 20], [-40, -40, -30, -30]])
INDICES = np.array([1, 0, 2, 1, 1])


def _model(make_model: Any, dtype: Any, opset: int, **attributes: Any) -> tuple[Any, dict[str, np.ndarray]]:
    feeds = {
        "x": np.random.default_rng(1).standard_normal((3, 5, 9, 7)).astype(dtype),
        "r": ROIS.astype(dtype),
        "i": INDICES,
    }
    node = helper.make_node("RoiAlign", list(feeds), ["y"], mode="max", **attributes)
    inputs = {name: (array.dtype, array.shape) for name, array in feeds.items()}
    return make_model(node, inputs, opset=opset, output_types={"y": dtype}), feeds


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_largest(
    scale: float, samples: int, opset: int, make_model: Any, make_session: Any, reference: Any, assert_close: Any
) -> None:
    settings = {"output_height": 3, "output_width": 2, "sampling_ratio": samples, "spatial_scale": scale}
    model, feeds = _model(make_model, f32, opset, **settings)
    session = make_session(model)
    assert_close(session.run(None, feeds)[0], reference(model, feeds, "onnxruntime")[0])
    assert [record.op_type for record in session.report().gpu_nodes] == ["RoiAlign"]


def test_half_precision(make_model: Any, make_session: Any, assert_close: Any) -> None:
    """Weighed in float32: within float16's rounding of the same regions in float32."""
    settings = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    half, feeds = _model(make_model, f16, 16, **settings)
    full, _ = _model(make_model, f32, 16, **settings)
    wanted = make_session(full).run(
        None, {name: array.astype(f32) if name != "i" else array for name, array in feeds.items()}
    )
    assert_close(make_session(half).run(None, feeds)[0], wanted[0].astype(f16), 2**-10)


def test_refused(make_model: Any, make_session: Any) -> None:
    model, feeds = _model(make_model, f32, 16)
    with pytest.raises(dmlvk.UnsupportedError, match="sampling_ratio 0"):
        make_session(model).run(None, feeds)
