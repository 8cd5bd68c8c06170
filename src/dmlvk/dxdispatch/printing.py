"""Values and times as DxDispatch prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def values_text(values: npt.NDArray[Any], *, verbose: bool) -> str:
    """The elements of a flat array: in one line, or with ``verbose`` each in a line with its index and its bits."""
    spelled = [f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values.tolist()]
    if not verbose:
        return ", ".join(spelled)
    bits = values.view(f"u{values.itemsize}").tolist()
    index, digits = len(str(len(spelled))), 2 * values.itemsize
    lines = (f"[{at:{index}}] {text} (0x{bits[at]:{digits}X})\n" for at, text in enumerate(spelled))
    return "".join(lines)


def times_text(name: str, cpu: Sequence[float], gpu: Sequence[float], warmup: int, verbosity: int) -> Iterator[str]:
    """The lines on the times of a dispatch command.

    Args:
        name: The dispatchable.
        cpu: Milliseconds of each iteration, at least one.
        gpu: Milliseconds on the device of the first iterations; () where none were taken.
        warmup: The most iterations at the beginning that count as cold; one is always hot.
        verbosity: 0, 1 or 2.
    """
    cold = min(len(cpu) - 1, warmup)
    kinds = [(kind, samples) for kind, samples in (("CPU", cpu), ("GPU", gpu)) if samples]
    if verbosity == 0:
        digits = {"CPU": 4, "GPU": 6}
        medians = (f"{_median(samples[cold:] or samples):.{digits[kind]}f} ms median ({kind})" for kind, samples in kinds)
        yield f"Dispatch '{name}': {len(cpu)} iterations, {', '.join(medians)}"
        return
    yield f"Dispatch '{name}': {len(cpu)} iterations"
    for state, part in (("(Cold) ", slice(0, cold)), ("(Hot)  ", slice(cold, None))):
        for kind, samples in kinds:
            if chosen := samples[part]:
                yield (
                    f"{kind} Timings {state}: {len(chosen)} samples, {np.mean(chosen):.4f} ms average, "
                    f"{min(chosen):.4f} ms min, {_median(chosen):.4f} ms median, {max(chosen):.4f} ms max"
                )
    if verbosity > 1:
        yield "The timings of each iteration: "
        for index, sample in enumerate(cpu):
            on_device = f", {gpu[index]:.4f} ms (GPU)" if index < len(gpu) else ""
            yield f"iteration {index}: {sample:.4f} ms (CPU){on_device}"


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]
