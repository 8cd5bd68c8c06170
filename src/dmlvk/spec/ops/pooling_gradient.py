"""Gradients of pooling: dx, the gradient of the forward input, from dy, the gradient of the forward output."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.ops.pooling import AveragePooling1 as _AveragePooling1
from dmlvk.spec.ops.pooling import MaxPooling2 as _MaxPooling2
from dmlvk.spec.ops.pooling import _output_sizes, _spatial_arrays, _steps
from dmlvk.spec.tensor import TensorDesc

__all__ = ["AveragePoolingGrad", "MaxPoolingGrad"]

_OWN_NAMES = {"input_tensor": "output_gradient_tensor", "output_tensor": "input_gradient_tensor"}
"""The forward operator's tensors, each with the gradient that has the same sizes."""


def _of_forward(forward: _s.Constraint, rule: str) -> _s.Constraint:
    """A rule of the forward operator, in the gradient's names."""

    def check(desc: AveragePoolingGrad | MaxPoolingGrad) -> _s.Violation | None:
        found = forward.check(desc.forward())
        return None if found is None else _s.Violation(_OWN_NAMES.get(found.field, found.field), found.value)

    return _s.Constraint(forward.label, rule, check)


_CONSTRAINTS = (
    _of_forward(_spatial_arrays, _spatial_arrays.rule),
    _of_forward(_steps, _steps.rule),
    _of_forward(
        _output_sizes,
        "must have OutputGradientTensor's N and C, and spatial sizes (size + start + end - dilated window) / stride, "
        "rounded down or up, + 1",
    ),
)


class AveragePoolingGrad(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _c.same_dimension_count(), *_CONSTRAINTS),
    traits=_s.Traits(separable=_s.along(0, 1)),
):
    """dx = the sum, over the windows that hold an element, of dy / divisor: the gradient of ``AveragePooling``, whose
    windows and divisors these are.

    InputGradientTensor is dy, {N, C, [D,] H, W} of the forward output; OutputGradientTensor is dx, of the forward input,
    whose sizes only the caller knows. An element in no window has the gradient 0.

    Where the specification is silent:

    - Sizes of dy may also be rounded up, as ``AveragePooling1``'s.
    - dy of a window without any element counted, whose mean is 0, goes nowhere.
    """

    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    include_padding: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error("output_gradient_tensor", "must be given, because only the caller knows its sizes", None)

    def forward(self) -> _AveragePooling1:
        """The operator whose gradient this is: from a tensor as dx to one as dy."""
        return _AveragePooling1(
            input_tensor=self.output_gradient_tensor,
            output_tensor=self.input_gradient_tensor,
            strides=self.strides,
            window_size=self.window_size,
            start_padding=self.start_padding,
            end_padding=self.end_padding,
            dilations=(1,) * len(self.window_size),
            include_padding=self.include_padding,
        )


class MaxPoolingGrad(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_gradient_tensor"),
        *_CONSTRAINTS,
    ),
    traits=_s.Traits(separable=_s.along(0, 1)),
):
    """dx = the sum of dy over the windows whose largest element is this one, else 0: the gradient of ``MaxPooling2``.

    InputTensor is the forward input x, {N, C, [D,] H, W}; InputGradientTensor is dy, of the forward output, and
    OutputGradientTensor dx, of x's sizes. Of equal elements of a window the first counts, row-major.

    Where the specification is silent, all is as in ``MaxPooling2``, whose indices these are:

    - NaN is larger than every number, and the first NaN counts; -0 equals 0.
    - dy of a window without any element inside the input goes nowhere.
    - Sizes of dy may also be rounded up.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()

    def forward(self) -> _MaxPooling2:
        """The operator whose gradient this is: from a tensor as dx to one as dy."""
        return _MaxPooling2(
            input_tensor=self.output_gradient_tensor,
            output_tensor=self.input_gradient_tensor,
            strides=self.strides,
            window_size=self.window_size,
            start_padding=self.start_padding,
            end_padding=self.end_padding,
            dilations=self.dilations,
        )
