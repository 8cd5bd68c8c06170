"""Items in batches as a model takes them: what there is is cut, filled up, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dmlvk.onnx.model import Array, ValueInfo
from dmlvk.spec.errors import InvalidArgumentError, ModelError, OutOfDeviceMemoryError, UnsupportedError, broken_rule


def of_type(info: ValueInfo, array: Array) -> Array:
    """Numbers for an input as ones of its type: files and tables often have more bits than a model.

    Raises:
        ModelError: they are of another kind.
    """
    if array.dtype != info.dtype and not np.can_cast(array.dtype, info.dtype, "same_kind"):
        raise ModelError(broken_rule(f"input {info.name!r} must be {info.dtype}", array.dtype))
    return array.astype(info.dtype, copy=False)


class Batches:
    """How many items a model takes at once: the first axis of its inputs and outputs.

    Args:
        inputs, outputs: The model's, as ``InferenceSession`` gives them; the outputs are those that are wanted.
        most: The most items of a batch, where the model leaves their number open; None for any number.

    Attributes:
        size: The number of items that each batch must have, which the rest is filled up to; None where it is open.
        most: The most items of a batch. It becomes less where a batch did not fit the device's memory.

    Raises:
        UnsupportedError: an input has no axis of items, or they say different numbers of them.
        InvalidArgumentError: ``most`` is less than 1.
    """

    def __init__(self, inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo], most: int | None = None) -> None:
        if most is not None and most < 1:
            raise InvalidArgumentError("must be at least 1, or None", field="most", value=most)
        for info in inputs:
            if not info.is_tensor or info.shape == []:
                what = f"input {info.name!r} is a {info.type} of shape {info.shape}"
                raise UnsupportedError(f"{what}: it has no axis of items")
        counts = {info.shape[0] if info.shape else None for info in inputs}
        fixed = {count for count in counts if isinstance(count, int)}
        if len(fixed) > 1 or (fixed and len(counts) > 1):
            shapes = ", ".join(f"{info.name!r} {info.shape}" for info in inputs)
            raise UnsupportedError(f"the inputs must have as many items each, along their first axis; they are {shapes}")
        self.size: int | None = next(iter(fixed), None)
        self.most = most if self.size is None else self.size
        self._outputs = [info.name for info in outputs]

    def run(self, run: Callable[[Mapping[str, Array]], Sequence[Array]], feeds: Mapping[str, Array]) -> list[Array]:
        """What a model makes of any number of items.

        Args:
            run: Runs the model on one batch, and gives the wanted outputs.
            feeds: The items of each input, at least one.

        Returns:
            Of each output the items, in order.

        Raises:
            InvalidArgumentError: the inputs have different numbers of items, or none.
            UnsupportedError: an output has no item for each item fed, or items of different sizes in different batches.
            And what ``run`` raises.
        """
        counts = {name: len(items) for name, items in feeds.items()}
        count = next(iter(counts.values()), 0)
        if not count or len(set(counts.values())) > 1:
            raise InvalidArgumentError("must have the same number of items each, at least 1", field="feeds", value=counts)
        made: list[Sequence[Array]] = []
        start = 0
        while start < count:
            rows = min(self.most or count, count - start)
            try:
                made.append(self._batch(run, {name: items[start : start + rows] for name, items in feeds.items()}, rows))
            except OutOfDeviceMemoryError:
                if self.size is not None or rows == 1:
                    raise
                self.most = rows // 2
                continue
            start += rows
        return [self._joined(index, [batch[index] for batch in made]) for index in range(len(self._outputs))]

    def _batch(
        self, run: Callable[[Mapping[str, Array]], Sequence[Array]], feeds: Mapping[str, Array], rows: int
    ) -> list[Array]:
        missing = 0 if self.size is None else self.size - rows
        if missing:  # with an item that there is: of made-up numbers a model may make NaN, or a loop that does not end
            feeds = {name: np.concatenate([items, np.repeat(items[-1:], missing, axis=0)]) for name, items in feeds.items()}
        made = run(feeds)
        for name, output in zip(self._outputs, made, strict=True):
            shape = getattr(output, "shape", None)
            if not shape or shape[0] != rows + missing:
                what = f"output {name!r} is of shape {shape} for {rows + missing} items"
                raise UnsupportedError(f"{what}: its first axis must be one of items")
        return [output[:rows] for output in made]

    def _joined(self, index: int, parts: list[Array]) -> Array:
        shapes = sorted({part.shape[1:] for part in parts})
        if len(shapes) > 1:
            what = f"output {self._outputs[index]!r}"
            raise UnsupportedError(f"{what} has items of different sizes in different batches: {shapes}")
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
