"""Adam's update of parameters and moments, beside PyTorch's fused one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import constant, uniform
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_RATE, _BETA1, _BETA2, _EPSILON, _STEP = 0.01, 0.9, 0.999, 1e-8, 10


def _adam(scale: Scale, data_type: TensorDataType, sizes: Sizes, copy_target: float = 0.0) -> Problem:
    sizes = scale.fit(sizes, *range(len(sizes)))
    tensor, step = TensorDesc(data_type, sizes), TensorDesc(TensorDataType.UINT32, (1, 1, 1, 1))
    fields = [field.name for field in dmlvk.AdamOptimizer.fields if field.kind.is_tensor]

    def prepare(torch: Any, x: Any, m: Any, v: Any, gradient: Any, step: Any) -> Sequence[Any]:
        """The rival's own copies of the tensors that it updates in place: our inputs are filled from the originals."""
        return [x.clone(), m.clone(), v.clone(), gradient, step.float().reshape(())]

    def rival(torch: Any, x: Any, m: Any, v: Any, gradient: Any, step: Any) -> Any:
        rates = {"lr": _RATE, "beta1": _BETA1, "beta2": _BETA2, "eps": _EPSILON}
        plain = {"weight_decay": 0.0, "amsgrad": False, "maximize": False}
        torch._fused_adam_([x], [gradient], [m], [v], [], [step], **rates, **plain)
        return x

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
        domains={"input_second_moment_tensor": tiled(uniform(0.5, 1.5)), "training_step_tensor": constant(_STEP)},
        tolerance=1e-6 if data_type is FLOAT32 else 1e-3,
        prepare=prepare,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report: large parameters, and those of a convolution."""
    return [
        _adam(scale, FLOAT32, (1, 1, 8192, 8192), 0.9),
        _adam(scale, FLOAT16, (1, 1, 16384, 8192), 0.9),
        _adam(scale, FLOAT32, (512, 512, 3, 3)),
        _adam(scale, FLOAT16, (512, 512, 3, 3)),
    ]
