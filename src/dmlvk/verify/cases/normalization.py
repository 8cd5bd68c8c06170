"""Cases of the normalizations: every way that reduced and kept dimensions can lie, and every way to hold a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance, normal, uniform

_TOLERANCE = {
    # At the magnitude of scale * (deviation + spread) + bias: what remains are the roundings of the square root, the
    # division, the products and the sum, and (for FLOAT16) the one of the result.
    TensorDataType.FLOAT32: Tolerance(4),
    TensorDataType.FLOAT16: Tolerance(1),
}


def _few_special(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> NDArray[Any]:
    """Normal values but for an infinity, a NaN and both infinities in one row each of the first dimension."""
    values = normal(rng, sizes, data_type)
    values[0, ..., 1] = np.inf
    values[1, ..., 2] = np.nan
    values[2, ..., 0], values[2, ..., -1] = np.inf, -np.inf
    return values


def _mvn(
    name: str,
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    side: tuple[int, ...] | None = None,
    *,
    scale: bool = True,
    bias: bool = True,
    quick: bool = False,
    layouts: bool = True,
    domain: Any = normal,
    **attributes: object,
) -> Case:
    """A case with a scale and a bias of the sizes ``side``, or without either."""
    inputs = {"input_tensor": sizes}
    if side is not None:
        inputs |= {"scale_tensor": side} if scale else {}
        inputs |= {"bias_tensor": side} if bias else {}
    domains = {"input_tensor": domain}
    return Case(name, inputs, {"axes": axes, **attributes}, domains=domains, layouts=layouts, quick=quick)


_MEAN_VARIANCE = (
    _mvn("instance", (2, 3, 5, 7), (2, 3), (1, 3, 1, 1), quick=True),
    _mvn("instance of whole words", (3, 5, 4, 8), (2, 3), (1, 5, 1, 1)),
    _mvn("instance, side by image", (3, 5, 4, 8), (2, 3), (3, 5, 1, 1)),
    _mvn("layer", (3, 5, 64), (2,), (1, 1, 64), quick=True),
    _mvn("layer of an odd length", (7, 131), (1,), (1, 131)),
    _mvn("layer, side of the first rows", (2, 3, 40), (2,), (1, 3, 40), layouts=False),
    _mvn("layer over two axes", (5, 6, 8), (1, 2), (1, 6, 8)),
    _mvn("layer of several words a lane", (3, 8200), (1,), (1, 8200), layouts=False),
    _mvn("layer of many lanes", (2, 16392), (1,), layouts=False),
    _mvn("many short rows", (4099, 8), (1,), (1, 8), layouts=False),
    _mvn("rows of one word", (67, 8), (1,), layouts=False),
    _mvn("groups, side a channel", (2, 3, 4, 2, 8), (2, 3, 4), (1, 3, 4, 1, 1)),
    _mvn("groups, side a channel, odd", (2, 3, 5, 3, 3), (2, 3, 4), (1, 3, 5, 1, 1)),
    _mvn("whole image", (3, 4, 6, 8), (1, 2, 3), (1, 4, 6, 8)),
    _mvn("channels side by side", (2, 7, 3, 11), (1,), (1, 7, 1, 1), quick=True),
    _mvn("rows side by side", (150, 37), (0,), (150, 1)),
    _mvn("rows side by side in words", (9, 16, 24), (1,), (9, 1, 24)),
    _mvn("rows side by side in words, side along them", (37, 16), (0,), (37, 16), layouts=False),
    _mvn("rows side by side, side a column", (23, 70), (0,), (1, 70)),
    _mvn("long rows side by side", (1031, 3), (0,)),
    _mvn("longer rows side by side in words", (1100, 24), (0,), (1, 24), layouts=False),
    _mvn("batch and space", (3, 5, 4, 8), (0, 2, 3), (1, 5, 1, 1)),
    _mvn("batch and space, odd", (3, 5, 3, 7), (3, 0, 2), (1, 5, 1, 1)),
    _mvn("every other axis", (2, 3, 2, 3, 4), (0, 2, 4), (2, 1, 2, 1, 4), layouts=False),
    _mvn("every axis", (3, 5, 8), (0, 1, 2), (1, 1, 1)),
    _mvn("no axis", (3, 5), (), (3, 5)),
    _mvn("one element", (1,), (0,), (1,), layouts=False),
    _mvn("one dimension", (37,), (0,), (37,)),
    _mvn("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (1, 3, 5, 7), (1, 1, 3, 2, 1, 1, 1, 2)),
    _mvn("scale alone", (3, 24), (1,), (1, 24), bias=False, layouts=False),
    _mvn("bias alone", (3, 24), (1,), (3, 1), scale=False, layouts=False),
    _mvn("mean alone", (3, 24), (1,), (1, 24), use_variance=False, layouts=False),
    _mvn("epsilon", (3, 24), (1,), epsilon=0.25, domain=uniform(-0.5, 0.5), layouts=False),
    _mvn("far from 0", (5, 136), (1,), (1, 136), domain=uniform(1000, 1010), layouts=False),
    _mvn("far from 0, side by side", (23, 70), (0,), (1, 70), domain=uniform(1000, 1010), layouts=False),
    _mvn("constant", (5, 24), (1,), domain=uniform(3, 3), layouts=False),
    _mvn("infinities and NaN", (5, 3, 16), (1, 2), (1, 3, 1), domain=_few_special, layouts=False),
    _mvn("infinities and NaN without variance", (5, 16), (1,), use_variance=False, domain=_few_special, layouts=False),
    _mvn("long rows in chunks", (3, 40008), (1,), (1, 40008), layouts=False),
    _mvn("long rows in chunks, far from 0", (2, 40008), (1,), domain=uniform(1000, 1010), layouts=False),
    _mvn("long rows in chunks of elements", (2, 33001), (1,), (2, 1)),
    _mvn("long rows with infinities and NaN", (5, 35000), (1,), use_variance=False, domain=_few_special, layouts=False),
    _mvn("fused relu", (3, 5, 24), (2,), (1, 5, 1), fused_activation=ops.ActivationRelu(), quick=True),
    _mvn(
        "fused scaled tanh",
        (5, 24),
        (1,),
        (1, 24),
        fused_activation=ops.ActivationScaledTanh(alpha=1.5, beta=0.5),
        layouts=False,
    ),
    _mvn("fused gelu", (24, 5), (0,), (1, 5), fused_activation=ops.ActivationGelu(), layouts=False),
    _mvn("fused sigmoid in chunks", (2, 40008), (1,), layouts=False, fused_activation=ops.ActivationSigmoid()),
    _mvn("root mean square", (3, 5, 64), (2,), (1, 1, 64), use_mean=False, layouts=False, quick=True),
    _mvn("root mean square of few", (3, 5, 64), (2,), (1, 1, 64), use_mean=False, domain=_few_special, layouts=False),
    _mvn("root mean square, side by side", (23, 16), (0,), use_mean=False, layouts=False),
    _mvn("root mean square, longer side by side", (1100, 8), (0,), (1, 8), use_mean=False, layouts=False),
    _mvn("root mean square in chunks", (2, 33001), (1,), (2, 1), use_mean=False, layouts=False),
    _mvn("neither", (5, 24), (1,), (1, 24), use_mean=False, use_variance=False, layouts=False),
)


def _batch(
    name: str,
    sizes: tuple[int, ...],
    given: tuple[int, ...] | dict[str, tuple[int, ...]],
    *,
    quick: bool = False,
    domain: Any = normal,
    **attributes: object,
) -> Case:
    """A case whose four given tensors have one size, or their own."""
    names = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")
    own = given if isinstance(given, dict) else dict.fromkeys(names, given)
    domains = {"input_tensor": domain, "variance_tensor": uniform(0.25, 4)}
    return Case(name, {"input_tensor": sizes, **own}, attributes, domains=domains, quick=quick)


_BATCH = (
    _batch("channels", (2, 3, 5, 7), (1, 3, 1, 1), quick=True),
    _batch("channels of whole words", (3, 5, 4, 8), (1, 5, 1, 1), quick=True),
    _batch("channels of odd lengths", (3, 8, 5, 7), (1, 8, 1, 1)),
    _batch("channels last", (5, 24), (1, 24)),
    _batch("each element", (3, 5, 8), (3, 5, 8)),
    _batch("one for all", (3, 5, 8), (1, 1, 1)),
    _batch(
        "each tensor of its own sizes",
        (3, 5, 8),
        {
            "mean_tensor": (1, 5, 1),
            "variance_tensor": (3, 1, 8),
            "scale_tensor": (1, 1, 8),
            "bias_tensor": (1, 1, 1),
        },
    ),
    _batch("one dimension", (37,), (1,)),
    _batch("eight dimensions", (2, 1, 3, 2, 1, 2, 3, 2), (1, 1, 3, 1, 1, 2, 1, 2)),
    _batch("one past a workgroup", (3, 257), (3, 1)),
    _batch("epsilon", (3, 24), (1, 24), epsilon=0.5),
    _batch("not spatial", (3, 4, 2, 4), (1, 4, 2, 4), spatial=False),
    _batch("infinities and NaN", (5, 3, 16), (1, 3, 1), domain=_few_special),
    _batch("fused relu", (2, 3, 4, 4), (1, 3, 1, 1), fused_activation=ops.ActivationRelu()),
    _batch("fused leaky relu", (7, 11), (1, 11), fused_activation=ops.ActivationLeakyRelu(alpha=0.125)),
)


def _training(
    name: str,
    sizes: tuple[int, ...],
    own: tuple[int, ...],
    *,
    add: bool = False,
    quick: bool = False,
    layouts: bool = True,
    domain: Any = normal,
    **attributes: object,
) -> Case:
    """A case whose scale, bias and statistics have the sizes ``own``."""
    inputs = {"input_tensor": sizes, "scale_tensor": own, "bias_tensor": own}
    inputs |= {"fused_add_tensor": sizes} if add else {}
    return Case(name, inputs, attributes, domains={"input_tensor": domain}, layouts=layouts, quick=quick)


_TRAINING = (
    _training("channels", (3, 5, 3, 7), (1, 5, 1, 1), quick=True),
    _training("channels of whole words", (3, 5, 4, 8), (1, 5, 1, 1), add=True),
    _training("channels last", (37, 24), (1, 24), add=True, quick=True),
    _training("channels last, long", (1100, 16), (1, 16), add=True),
    _training("channels in chunks", (3, 2, 12000), (1, 2, 1), add=True, layouts=False),
    _training("every other dimension", (3, 4, 5, 6), (3, 1, 5, 1), add=True),
    _training("each image", (3, 5, 4, 8), (3, 5, 1, 1), add=True, epsilon=0.5, layouts=False),
    _training("one for all", (3, 5, 8), (1, 1, 1), add=True, layouts=False),
    _training("each element", (3, 5), (3, 5), add=True, layouts=False),
    _training("far from 0", (37, 24), (1, 24), add=True, domain=uniform(1000, 1010), layouts=False),
    _training("infinities and NaN", (5, 3, 16), (5, 1, 1), add=True, domain=_few_special, layouts=False),
    _training("fused relu", (2, 3, 4, 4), (1, 3, 1, 1), add=True, fused_activation=ops.ActivationRelu()),
)

_LOCAL_TOLERANCE = {
    # The sum of up to 25 squares, two roundings, the power's ULP and the division, which Vulkan lets be off by 2.5: 4.1 on
    # an H200, 3.2 on lavapipe.
    TensorDataType.FLOAT32: Tolerance(5),
    TensorDataType.FLOAT16: Tolerance(1),
}


def local_response(
    name: str,
    sizes: tuple[int, ...],
    size: int,
    *,
    quick: bool = False,
    layouts: bool = True,
    domain: Any = normal,
    **more: Any,
) -> Case:
    """A case with an alpha that makes the sum matter."""
    attributes = {"local_size": size, "alpha": 0.5, **more}
    return Case(name, {"input_tensor": sizes}, attributes, domains={"input_tensor": domain}, layouts=layouts, quick=quick)


LOCAL_RESPONSES = (
    local_response("channels", (2, 11, 5, 7), 5, quick=True),
    local_response("channels of whole words", (2, 19, 4, 8), 3),
    local_response("even", (2, 7, 3, 5), 4, layouts=False),
    local_response("more than there are", (1, 5, 2, 8), 13, layouts=False),
    local_response("one", (2, 3, 2, 4), 1, layouts=False),
    local_response("space", (2, 3, 7, 11), 5, cross_channel=False, quick=True),
    local_response("even space", (2, 2, 6, 8), 4, cross_channel=False),
    local_response("more space than there is", (1, 2, 3, 4), 9, cross_channel=False, layouts=False),
    local_response("ONNX's defaults", (1, 9, 4, 4), 3, alpha=1e-4, layouts=False),
    local_response("another power", (2, 5, 4, 4), 3, beta=1.375, bias=0.25, layouts=False),
    local_response("negative power", (2, 5, 3, 3), 3, beta=-2.0, layouts=False),
    local_response("power 0.5", (2, 5, 3, 3), 3, beta=0.5, layouts=False),
    local_response("negative base", (2, 5, 3, 3), 3, alpha=-4.0, layouts=False),
    local_response("infinities and NaN", (5, 7, 3, 5), 3, domain=_few_special, layouts=False),
    local_response("infinities and NaN in space", (5, 3, 4, 5), 3, domain=_few_special, cross_channel=False, layouts=False),
)

CASES = (
    OperatorCases(ops.MeanVarianceNormalization2, _TOLERANCE, _MEAN_VARIANCE),
    OperatorCases(
        ops.MeanVarianceNormalization1,
        _TOLERANCE,
        (
            _mvn("layer", (3, 5, 64), (2,), (1, 1, 64), quick=True),
            _mvn("mean alone, fused", (3, 24), (1,), normalize_variance=False, fused_activation=ops.ActivationRelu()),
        ),
    ),
    OperatorCases(
        ops.MeanVarianceNormalization,
        _TOLERANCE,
        (
            Case(
                "image",
                {"input_tensor": (2, 3, 4, 6), "scale_tensor": (1, 3, 1, 1), "bias_tensor": (1, 3, 1, 1)},
                {"cross_channel": False},
                quick=True,
            ),
            Case("cross channel", {"input_tensor": (2, 3, 5, 3)}, {"cross_channel": True, "normalize_variance": True}),
            Case(
                "mean alone, fused",
                {"input_tensor": (3, 2, 4, 4), "scale_tensor": (1, 2, 1, 1)},
                {
                    "cross_channel": True,
                    "normalize_variance": False,
                    "epsilon": 0.125,
                    "fused_activation": ops.ActivationRelu(),
                },
            ),
        ),
    ),
    OperatorCases(ops.BatchNormalization, _TOLERANCE, _BATCH),
    OperatorCases(ops.BatchNormalizationTraining, _TOLERANCE, _TRAINING),
    OperatorCases(ops.LocalResponseNormalization, _LOCAL_TOLERANCE, LOCAL_RESPONSES),
)
