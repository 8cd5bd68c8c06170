"""Optimizers: what a training step makes of parameters and their gradients."""

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.tensor import TensorDesc

_INPUTS = ("input_parameters_tensor", "input_first_moment_tensor", "input_second_moment_tensor", "gradient_tensor")
_OUTPUTS = ("output_parameters_tensor", "output_first_moment_tensor", "output_second_moment_tensor")


@_c.constraint("scalar_step", "training_step_tensor must have only sizes of 1")
def _scalar_step(desc: "AdamOptimizer") -> _s.Violation | None:
    sizes = desc.tensor("training_step_tensor").sizes
    return None if set(sizes) == {1} else _s.Violation("training_step_tensor", sizes)


def _decay_rate(name: str) -> _s.Constraint:
    rule = f"{name} must be at least 0, and below 1 as a FLOAT32"

    def check(desc: "AdamOptimizer") -> _s.Violation | None:
        value = getattr(desc, name)
        return None if 0 <= value < 1 - 2**-25 else _s.Violation(name, value)  # half a unit below 1 is rounded to 1

    return _s.Constraint(name, rule, check, needs_tensors=False)


class AdamOptimizer(
    _s.OperatorDesc,
    in_place=_INPUTS,
    constraints=(
        _c.same_data_type(*_INPUTS, *_OUTPUTS),
        _c.same_sizes(*_INPUTS, *_OUTPUTS),
        _scalar_step,
        _c.finite("learning_rate"),
        _decay_rate("beta1"),
        _decay_rate("beta2"),
        _c.finite("epsilon"),
    ),
    traits=_s.Traits(separable=_s.everywhere),
):
    """One step of Adam: parameters x and the moments m and v of their gradient g become

    - m' = beta1 * m + (1 - beta1) * g
    - v' = beta2 * v + (1 - beta2) * g * g
    - x' = x - learning rate * alpha * m' / (sqrt(v') + epsilon), alpha = sqrt(1 - beta2^T) / (1 - beta1^T)

    T is the number in TrainingStepTensor, read when the operator runs; whoever trains increments it. Frameworks that divide
    sqrt(v') by sqrt(1 - beta2^T) before they add epsilon have an epsilon that is smaller by this factor.

    Where the specification is silent or contradicts itself:

    - At T = 0, where counting starts, alpha would be 0 / 0. It is 1, as ONNX's Adam has it, which is otherwise the same.
    - T is UINT32, as the text has it, and not of the parameters' type, as the table does.
    - x' is made of m' and v' as they are before they are rounded to the data type: FLOAT16 is computed in float32.
    - beta1 and beta2 are below 1 after rounding to FLOAT32, for alpha divides by 1 - beta1^T.
    - Two outputs never share memory; each may have that of any input of its layout but T, whichever it is.
    """

    input_parameters_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    input_first_moment_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    input_second_moment_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    training_step_tensor: TensorDesc | None = _s.input_tensor((_T.UINT32,), (4, 4))
    output_parameters_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    output_first_moment_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    output_second_moment_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    learning_rate: float = _s.floating()
    beta1: float = _s.floating(0.9)
    beta2: float = _s.floating(0.999)
    epsilon: float = _s.floating(1e-8)
