"""Cases of the convolution, and of a row of our own that adds to one."""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode, TensorDataType
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.verify.cases.model import Case, OperatorCases, Tolerance

_FORWARD_1: Mapping[str, tuple[int, ...]] = {
    "strides": (1,),
    "dilations": (1,),
    "start_padding": (0,),
    "end_padding": (0,),
    "output_padding": (0,),
}
_FORWARD_2: Mapping[str, object] = {name: (*value, *value) for name, value in _FORWARD_1.items()}
_FORWARD_3: Mapping[str, object] = {name: (*value, *value, *value) for name, value in _FORWARD_1.items()}
_BACKWARD = ConvolutionDirection.BACKWARD


def _case(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    bias: int = 0,
    output: tuple[int, ...] = (),
    addend: tuple[int, ...] = (),
    quick: bool = False,
    layouts: bool = True,
    **attributes: object,
) -> Case:
    """``bias`` is its channel count, 0 for none; ``output`` the sizes where they are not inferred; ``addend`` those of what
    is added."""
    inputs = {"input_tensor": x, "filter_tensor": w}
    if bias:
        inputs["bias_tensor"] = (1, bias) + (1,) * (len(x) - 2)
    if addend:
        inputs["addend_tensor"] = addend
    common = {3: _FORWARD_1, 4: _FORWARD_2, 5: _FORWARD_3}[len(x)]
    outputs = {"output_tensor": output} if output else {}
    return Case(name, inputs, {**common, **attributes}, outputs, quick=quick, layouts=layouts)


# At the magnitude of the summed terms. Adding n products in float32 errs by at most n / 2 ULP of it, and by about
# sqrt(n) / 2 of the partial sums where rounding errors are of either sign: under 4 for the few hundred terms of these cases.
# FLOAT16 sums in float32 too, so only the final rounding shows.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(8), TensorDataType.FLOAT16: Tolerance(1)}
# Winograd makes the 4x4 outputs of a block of the same numbers, so that errors are at the magnitude of its largest, also
# where few inputs are under the window: one of those was off by 32 of its own ULP, and by 2 of its block's. 8.4 shown of 17
# channels; of many channels the errors are those of plain sums.
_RULE_TOLERANCE = {"winograd": {TensorDataType.FLOAT32: Tolerance(12, block=4)}}

CASES = (
    OperatorCases(
        ops.Convolution,
        _TOLERANCE,
        (
            _case("3x3", (2, 3, 7, 11), (5, 3, 3, 3), bias=5, quick=True, start_padding=(1, 1), end_padding=(1, 1)),
            _case("1x1", (2, 17, 5, 13), (33, 17, 1, 1), bias=33),
            _case("1x1, one pixel of three images", (3, 37, 1, 1), (19, 37, 1, 1), bias=19),
            _case("1x1 with stride", (1, 9, 9, 8), (16, 9, 1, 1), strides=(2, 3)),
            _case(
                "stem, stride 2",
                (1, 3, 17, 18),
                (16, 3, 3, 3),
                strides=(2, 2),
                start_padding=(1, 1),
                end_padding=(1, 1),
            ),
            _case(
                "everything differs by dimension",
                (2, 4, 13, 11),
                (6, 2, 2, 4),
                bias=6,
                strides=(3, 2),
                dilations=(2, 1),
                start_padding=(2, 0),
                end_padding=(1, 3),
                group_count=2,
            ),
            _case("larger than a tile", (1, 19, 11, 13), (67, 19, 2, 2), bias=67, layouts=False),
            _case(
                "3x3, one past blocks of 4x4",
                (2, 17, 9, 13),
                (19, 17, 3, 3),
                bias=19,
                start_padding=(1, 1),
                end_padding=(1, 1),
                fused_activation=ops.ActivationRelu(),
            ),
            _case(
                "3x3, whole quads, groups, taps reversed",
                (1, 32, 7, 10),
                (40, 16, 3, 3),
                start_padding=(1, 1),
                end_padding=(0, 1),
                group_count=2,
                mode=ConvolutionMode.CONVOLUTION,
            ),
            _case(
                "64 channels, stride 2",
                (1, 64, 9, 8),
                (24, 64, 3, 2),
                bias=24,
                strides=(2, 1),
                start_padding=(1, 0),
                end_padding=(1, 1),
            ),
            _case("padding larger than the window", (1, 16, 2, 3), (4, 16, 3, 3), start_padding=(4, 5), end_padding=(3, 1)),
            _case("window as large as the input", (2, 5, 4, 3), (7, 5, 4, 3), bias=7),
            _case("windows wholly in the padding", (1, 2, 3, 3), (3, 2, 2, 2), start_padding=(3, 4), end_padding=(4, 3)),
            _case(
                "depthwise 3x3",
                (2, 6, 9, 10),
                (6, 1, 3, 3),
                bias=6,
                group_count=6,
                start_padding=(1, 1),
                end_padding=(1, 1),
            ),
            _case(
                "depthwise 3x3, rows of whole groups",
                (2, 8, 9, 16),
                (8, 1, 3, 3),
                bias=8,
                group_count=8,
                start_padding=(1, 1),
                end_padding=(1, 1),
                fused_activation=ops.ElementWiseClip(min=0.0, max=6.0),
            ),
            _case(
                "depthwise 5x5, stride 2, rows of whole groups",
                (1, 8, 11, 32),
                (8, 1, 5, 5),
                strides=(2, 2),
                start_padding=(2, 2),
                end_padding=(2, 2),
                group_count=8,
            ),
            _case(
                "depthwise, padding larger than the window",
                (1, 4, 3, 4),
                (4, 1, 2, 3),
                bias=4,
                start_padding=(3, 5),
                end_padding=(4, 7),
                group_count=4,
            ),
            _case(
                "depthwise, steps beyond the window",
                (1, 8, 11, 24),
                (8, 1, 2, 3),
                strides=(3, 4),
                group_count=8,
            ),
            _case(
                "depthwise 5x5, stride 2",
                (1, 4, 11, 13),
                (4, 1, 5, 5),
                strides=(2, 2),
                start_padding=(2, 2),
                end_padding=(2, 2),
                group_count=4,
            ),
            _case("depthwise, dilated, two outputs a channel", (1, 3, 9, 9), (6, 1, 3, 2), dilations=(2, 3), group_count=3),
            _case(
                "depthwise, taps reversed",
                (1, 3, 6, 7),
                (3, 1, 3, 2),
                bias=3,
                mode=ConvolutionMode.CONVOLUTION,
                group_count=3,
            ),
            _case("taps reversed", (1, 3, 6, 7), (4, 3, 3, 2), mode=ConvolutionMode.CONVOLUTION, start_padding=(0, 1)),
            _case("output padding is zeros", (1, 2, 5, 4), (3, 2, 2, 2), bias=3, output_padding=(2, 1)),
            _case(
                "output padding escapes the activation",
                (1, 2, 5, 4),
                (3, 2, 2, 2),
                output_padding=(1, 1),
                fused_activation=ops.ActivationSigmoid(),
            ),
            _case("fused relu", (1, 4, 5, 5), (9, 4, 3, 3), bias=9, fused_activation=ops.ActivationRelu()),
            _case(
                "fused clip",
                (1, 4, 5, 5),
                (9, 4, 3, 3),
                bias=9,
                fused_activation=ops.ElementWiseClip(min=-0.5, max=2.0),
            ),
            _case(
                "fused leaky relu, depthwise",
                (1, 4, 5, 5),
                (4, 1, 3, 3),
                group_count=4,
                fused_activation=ops.ActivationLeakyRelu(alpha=0.25),
            ),
            _case("1-D", (2, 5, 23), (4, 5, 3), bias=4, strides=(2,), dilations=(3,), start_padding=(1,), end_padding=(2,)),
            _case("1-D depthwise", (1, 5, 23), (5, 1, 4), group_count=5, quick=True),
            _case(
                "3-D",
                (1, 3, 5, 6, 7),
                (4, 3, 2, 3, 2),
                bias=4,
                strides=(2, 1, 2),
                dilations=(1, 2, 1),
                start_padding=(1, 0, 1),
                end_padding=(0, 2, 1),
            ),
            _case("3-D depthwise", (1, 3, 5, 4, 7), (3, 1, 3, 2, 3), group_count=3, start_padding=(1, 1, 1)),
            _case("backward", (2, 5, 4, 6), (5, 3, 3, 3), bias=3, quick=True, direction=_BACKWARD),
            _case(
                "backward with stride and padding",
                (1, 4, 5, 3),
                (4, 6, 4, 3),
                strides=(2, 3),
                start_padding=(1, 0),
                direction=_BACKWARD,
            ),
            _case(
                "backward, output larger than the least",
                (1, 3, 4, 4),
                (3, 2, 2, 3),
                bias=2,
                strides=(3, 2),
                end_padding=(0, 1),
                output=(1, 2, 13, 9),
                direction=_BACKWARD,
            ),
            _case(
                "backward, groups, dilated, reversed, padded output",
                (2, 6, 3, 5),
                (6, 2, 3, 2),
                bias=4,
                strides=(2, 1),
                dilations=(1, 3),
                start_padding=(1, 2),
                end_padding=(1, 0),
                output_padding=(1, 2),
                group_count=2,
                mode=ConvolutionMode.CONVOLUTION,
                direction=_BACKWARD,
            ),
            _case("backward depthwise", (1, 4, 5, 5), (4, 1, 3, 3), group_count=4, strides=(2, 2), direction=_BACKWARD),
            _case(
                "backward, whole words of channels, stride beyond the window",
                (2, 16, 5, 4),
                (16, 24, 4, 2),
                bias=24,
                strides=(2, 3),
                start_padding=(1, 0),
                end_padding=(1, 0),
                direction=_BACKWARD,
                fused_activation=ops.ActivationRelu(),
            ),
            _case(
                "3-D, whole words of channels",
                (1, 16, 4, 5, 6),
                (24, 16, 3, 2, 3),
                bias=24,
                strides=(1, 2, 1),
                dilations=(1, 1, 2),
                start_padding=(1, 0, 2),
                end_padding=(1, 1, 2),
            ),
            _case(
                "1x1, whole words of channels and of planes",
                (3, 24, 4, 8),
                (40, 24, 1, 1),
                bias=40,
                fused_activation=ops.ActivationRelu(),
            ),
            _case("1x1, whole words of channels, planes of quads, groups", (3, 32, 6, 6), (36, 16, 1, 1), group_count=2),
            _case(
                "7x7 stem, stride 2",
                (2, 3, 18, 23),
                (24, 3, 7, 7),
                bias=24,
                strides=(2, 2),
                start_padding=(3, 3),
                end_padding=(3, 3),
            ),
            _case(
                "3x3, sums of many terms",
                (1, 64, 4, 6),
                (40, 64, 3, 3),
                bias=40,
                start_padding=(1, 1),
                end_padding=(1, 1),
                fused_activation=ops.ActivationRelu(),
            ),
            _case("windows side by side", (2, 3, 9, 8), (8, 3, 4, 4), bias=8, quick=True, strides=(4, 4)),
            _case(
                "windows side by side, words",
                (2, 8, 6, 8),
                (24, 8, 2, 2),
                strides=(2, 2),
                fused_activation=ops.ActivationRelu(),
            ),
            _case("one window", (3, 5, 4, 3), (6, 5, 4, 3), bias=6),
            _case("windows side by side, 3-D", (1, 3, 4, 4, 6), (16, 3, 2, 4, 3), bias=16, strides=(2, 4, 3)),
            _case(
                *("backward, windows side by side, biased", (2, 8, 3, 5), (8, 6, 4, 4)),
                bias=6,
                quick=True,
                strides=(4, 4),
                direction=_BACKWARD,
                fused_activation=ops.ActivationRelu(),
            ),
            _case(
                "backward, windows side by side, words", (1, 16, 3, 4), (16, 8, 2, 2), strides=(2, 2), direction=_BACKWARD
            ),
            _case(
                *("backward, windows side by side, 3-D", (1, 3, 2, 3, 2), (3, 5, 2, 1, 3)),
                bias=5,
                strides=(2, 1, 3),
                direction=_BACKWARD,
            ),
            _case("backward 1-D", (1, 3, 7), (3, 2, 4), strides=(3,), direction=_BACKWARD),
            _case("backward 3-D", (1, 2, 3, 2, 3), (2, 3, 2, 2, 3), strides=(2, 1, 2), direction=_BACKWARD),
        ),
        rule_tolerance=_RULE_TOLERANCE,
    ),
    OperatorCases(
        ConvolutionAdd,
        _TOLERANCE,
        (
            _case("1x1", (2, 17, 5, 13), (33, 17, 1, 1), bias=33, addend=(2, 33, 5, 13), quick=True, layouts=False),
            _case("1x1, whole words of planes", (2, 24, 4, 8), (40, 24, 1, 1), bias=40, addend=(2, 40, 4, 8), layouts=False),
            _case(
                "3x3, fused relu",
                (1, 32, 9, 8),
                (34, 32, 3, 3),
                bias=34,
                addend=(1, 34, 9, 8),
                start_padding=(1, 1),
                end_padding=(1, 1),
                fused_activation=ops.ActivationRelu(),
                layouts=False,
            ),
            _case(
                *("windows side by side", (2, 3, 8, 12), (16, 3, 4, 4)),
                bias=16,
                addend=(2, 16, 2, 3),
                strides=(4, 4),
                layouts=False,
            ),
            _case(
                "groups, stride 2",
                (1, 32, 9, 9),
                (48, 16, 3, 3),
                addend=(1, 48, 4, 4),
                strides=(2, 2),
                group_count=2,
                layouts=False,
            ),
        ),
        every_rule=False,
        rule_tolerance=_RULE_TOLERANCE,
    ),
)
