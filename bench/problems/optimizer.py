"""Adam's update of parameters and moments, beside PyTorch's fused one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk import TensorDataType, TensorDesc

_RATE, _BETA1, _BETA2, _EPSILON, _STEP = 0.01, 0.9, 0.999, 1e-8, 10


def _adam(data_type: TensorDataType, sizes: tuple[int, ...], copy_target: float = 0.0) -> Problem:
    tensor, step = TensorDesc(data_type, sizes), TensorDesc(TensorDataType.UINT32, (1, 1, 1, 1))
    fields = [field.name for field in dmlvk.AdamOptimizer.fields if field.kind.is_tensor]

    def prepare(torch: Any, x: Any, m: Any, v: Any, gradient: Any, step: Any) -> Sequence[Any]:
        """Of its own, because it is updated in place: whoever fills our inputs from them must not find them changed."""
        return [x.clone(), m.clone(), v.clone(), gradient, step.float().reshape(())]

    def rival(torch: Any, x: Any, m: Any, v: Any, gradient: Any, step: Any) -> Any:
        rates = {"lr": _RATE, "beta1": _BETA1, "beta2": _BETA2, "eps": _EPSILON}
        plain = {"weight_decay": 0.0, "amsgrad": False, "maximize": False}
        torch._fused_adam_([x], [gradient], [m], [v], [], [step], **rates, **plain)
        return x

    def check(torch: Any, arrays: Sequence[Any], outputs: Sequence[Any]) -> float:
        """The largest difference from the update in float64, relative to the largest number of each output."""
        x, m, v, gradient = (torch.from_numpy(array).to(outputs[0].device).double().reshape(sizes) for array in arrays[:4])
        m = _BETA1 * m + (1 - _BETA1) * gradient
        v = _BETA2 * v + (1 - _BETA2) * gradient * gradient
        alpha = (1 - _BETA2**_STEP) ** 0.5 / (1 - _BETA1**_STEP)
        x = x - _RATE * alpha * m / (v.sqrt() + _EPSILON)
        pairs = zip(outputs, (x, m, v), strict=True)
        return max(float((found.double() - wanted).abs().max() / wanted.abs().max()) for found, wanted in pairs)

    return Problem(
        f"Adam {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.AdamOptimizer(
            **{name: step if "step" in name else tensor for name in fields},
            learning_rate=_RATE,
            beta1=_BETA1,
            beta2=_BETA2,
            epsilon=_EPSILON,
        ),
        rival,
        0.0,
        nbytes(*[tensor] * 7, step),
        copy_target,
        fill={
            "input_second_moment_tensor": lambda torch, sizes, kind: torch.rand(sizes, dtype=kind) + 0.5,
            "training_step_tensor": lambda torch, sizes, kind: torch.full(sizes, _STEP, dtype=kind),
        },
        tolerance=1e-6 if data_type is FLOAT32 else 1e-3,
        prepare=prepare,
        check=check,
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report: large parameters, and those of a convolution."""
    return [
        _adam(FLOAT32, (1, 1, 8192, 8192), 0.9),
        _adam(FLOAT16, (1, 1, 16384, 8192), 0.9),
        _adam(FLOAT32, (512, 512, 3, 3)),
        _adam(FLOAT16, (512, 512, 3, 3)),
    ]
