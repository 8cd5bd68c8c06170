"""Gathers: elements, rows or blocks of a tensor, chosen by a tensor of indices.

What the operators share:

- Elements are copied bit for bit.
- A negative index of a signed type counts from the end of its dimension.
- An index out of range is clamped to the nearest valid one: below, it is the first element, above, the last. DirectML
  only says that reads are clamped and leaves the value undefined.
- Dimension counts (IndexDimensions, InputDimensionCount, IndicesDimensionCount) say how many trailing dimensions of a
  tensor are meant; those before them are 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple as _NamedTuple

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Gather", "GatherElements", "GatherNd", "GatherNd1"]

_ALL = (_Type.FLOAT64, *_s.NUMERIC)
_INDICES = (_Type.INT64, _Type.INT32, _Type.UINT64, _Type.UINT32)
_INPUT, _INDEX, _OUTPUT = "input_tensor", "indices_tensor", "output_tensor"


def _require(desc: _s.OperatorDesc, rules: tuple[_s.Constraint, ...]) -> None:
    """Raises what the first broken rule says: sizes are inferred before anything is validated."""
    for rule in rules:
        violation = rule.check(desc)
        if violation is not None:
            raise desc.broken(rule, violation)


# -- Gather


def _joined(desc: Gather) -> tuple[int, ...]:
    """The output's sizes before leading ones are cropped."""
    sizes, indices = desc.tensor(_INPUT).sizes, desc.tensor(_INDEX).sizes
    meant = indices[len(indices) - desc.index_dimensions :]
    return (*sizes[: desc.axis], *meant, *sizes[desc.axis + 1 :])


@_c.constraint(
    "cropped_ones",
    "the input's sizes with those of the indices in place of axis must fit its dimension count, not counting ones",
)
def _cropped_ones(desc: Gather) -> _s.Violation | None:
    sizes = _joined(desc)
    cropped = sizes[: max(len(sizes) - desc.tensor(_INPUT).dimension_count, 0)]
    return None if all(size == 1 for size in cropped) else _s.Violation("index_dimensions", sizes)


_GATHER = (
    _c.same_data_type(_INPUT, _OUTPUT),
    _c.same_dimension_count(),
    _c.valid_axis(),
    _c.count_of_dimensions("index_dimensions", _INDEX, 0),
    _c.leading_ones(_INDEX, "index_dimensions"),
    _cropped_ones,
)


class Gather(_s.OperatorDesc, constraints=(*_GATHER, _c.output_sizes_match())):
    """y[.., i.., ..] = x[.., indices[i..], ..]: the indices stand in the place of axis.

    The output's sizes are the input's before axis, those of the indices, and the input's after axis; aligned at the last
    dimension, so that leading ones are added where there are too few (IndexDimensions 0, a single index) and cropped
    where there are too many. An index out of range is clamped.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()
    index_dimensions: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        _require(self, _GATHER)
        sizes, count = _joined(self), self.tensor(_INPUT).dimension_count
        return ((*(1,) * (count - len(sizes)), *sizes[max(len(sizes) - count, 0) :]),)

    def cuts(self) -> Sequence[_s.Cut]:
        """By indices, and along the dimensions that they are not for."""
        count = self.tensor(_INPUT).dimension_count
        before = count - len(_joined(self))
        first = self.tensor(_INDEX).dimension_count - self.index_dimensions
        ways = [({_INDEX: first + place}, self.axis + place) for place in range(self.index_dimensions)]
        ways += [({_INPUT: place}, place) for place in range(self.axis)]
        ways += [({_INPUT: place}, place - 1 + self.index_dimensions) for place in range(self.axis + 1, count)]
        return [_s.Cut({**own, _OUTPUT: before + place}) for own, place in ways if before + place >= 0]


# -- GatherElements


_GATHER_ELEMENTS = (
    _c.same_data_type(_INPUT, _OUTPUT),
    _c.same_dimension_count(),
    _c.valid_axis(),
    _c.sizes_off_axis(_INDEX),
)


class GatherElements(
    _s.OperatorDesc, constraints=(*_GATHER_ELEMENTS, _c.output_sizes_match()), traits=_s.Traits(separable=_s.off_axes)
):
    """y[i, j, ..] = x[i, j, ..] with indices[i, j, ..] in the place of the coordinate along axis: an index an element.

    An index out of range is clamped.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        _require(self, _GATHER_ELEMENTS)
        return (self.tensor(_INDEX).sizes,)


# -- GatherNd


class _NdSizes(_NamedTuple):
    """The sizes that a GatherNd's counts are about: batches come first in ``indices``, which ends with the tuple, and in
    ``inputs``."""

    inputs: tuple[int, ...]
    indices: tuple[int, ...]
    batches: int

    @property
    def output(self) -> tuple[int, ...]:
        """Without leading ones: the array of tuples, then the block that each chooses."""
        *array, length = self.indices
        return (*array, *self.inputs[self.batches + length :])


def _nd_sizes(desc: GatherNd | GatherNd1) -> _NdSizes:
    inputs, indices = desc.tensor(_INPUT).sizes, desc.tensor(_INDEX).sizes
    return _NdSizes(
        inputs[len(inputs) - desc.input_dimension_count :],
        indices[len(indices) - desc.indices_dimension_count :],
        desc.batch_dimension_count if isinstance(desc, GatherNd1) else 0,
    )


@_c.constraint("batch_dimension_count", "batch_dimension_count must be below indices_dimension_count")
def _batch_count(desc: GatherNd1) -> _s.Violation | None:
    count = desc.batch_dimension_count
    return None if count < desc.indices_dimension_count else _s.Violation("batch_dimension_count", count)


@_c.constraint(
    "tuple_size", "the last size, an index for each dimension, must be at most the input's dimensions after the batches"
)
def _tuple_size(desc: GatherNd | GatherNd1) -> _s.Violation | None:
    sizes = _nd_sizes(desc)
    return None if sizes.batches + sizes.indices[-1] <= len(sizes.inputs) else _s.Violation(_INDEX, sizes.indices)


@_c.constraint("same_batches", "the batch dimensions must have the input's sizes")
def _same_batches(desc: GatherNd1) -> _s.Violation | None:
    sizes = _nd_sizes(desc)
    good = sizes.indices[: sizes.batches] == sizes.inputs[: sizes.batches]
    return None if good else _s.Violation(_INDEX, sizes.indices)


@_c.constraint("output_fits", "the output must have at most as many dimensions as the other tensors")
def _output_fits(desc: GatherNd | GatherNd1) -> _s.Violation | None:
    sizes = _nd_sizes(desc).output
    return None if len(sizes) <= desc.tensor(_INPUT).dimension_count else _s.Violation("indices_dimension_count", sizes)


def _inferred_nd(desc: GatherNd | GatherNd1, rules: tuple[_s.Constraint, ...]) -> tuple[tuple[int, ...], ...]:
    _require(desc, rules)
    sizes = _nd_sizes(desc).output
    return ((*(1,) * (desc.tensor(_INPUT).dimension_count - len(sizes)), *sizes),)


_COUNTS = (
    _c.same_data_type(_INPUT, _OUTPUT),
    _c.same_dimension_count(),
    _c.count_of_dimensions("input_dimension_count", _INPUT),
    _c.count_of_dimensions("indices_dimension_count", _INDEX),
    _c.leading_ones(_INPUT, "input_dimension_count"),
    _c.leading_ones(_INDEX, "indices_dimension_count"),
)
_GATHER_ND = (*_COUNTS, _tuple_size, _output_fits)
_GATHER_ND1 = (*_COUNTS, _batch_count, _tuple_size, _same_batches, _output_fits)


class GatherNd(_s.OperatorDesc, constraints=(*_GATHER_ND, _c.output_sizes_match())):
    """``GatherNd1`` of one batch."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    input_dimension_count: int = _s.uint()
    indices_dimension_count: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred_nd(self, _GATHER_ND)

    def upgrade(self) -> GatherNd1:
        return GatherNd1(**{spec.name: getattr(self, spec.name) for spec in self.fields}, batch_dimension_count=0)


class GatherNd1(_s.OperatorDesc, constraints=(*_GATHER_ND1, _c.output_sizes_match())):
    """y[b.., i.., ..] = x[b.., indices[b.., i.., :], ..]: the last dimension of the indices is a tuple, which chooses a
    block of the input by its coordinates in the dimensions after the batches.

    The output's sizes are those of the indices without the tuple, then the input's after the batches and as many
    dimensions as the tuple is long; leading ones are added up to the dimension count of all. (The specification's
    formula counts the input's dimensions from another end than its examples; this is what those show.) An index out of
    range is clamped.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    input_dimension_count: int = _s.uint()
    indices_dimension_count: int = _s.uint()
    batch_dimension_count: int = _s.uint(0)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred_nd(self, _GATHER_ND1)

    def cuts(self) -> Sequence[_s.Cut]:
        """By tuples, and along the dimensions that they are not for."""
        sizes = _nd_sizes(self)
        x, indices, output = (self.tensor(name).dimension_count for name in (_INPUT, _INDEX, _OUTPUT))
        first_x, first, before = x - len(sizes.inputs), indices - len(sizes.indices), output - len(sizes.output)
        array = len(sizes.indices) - 1
        shared = [{_INPUT: first_x + place, _INDEX: first + place} for place in range(sizes.batches)]
        tuples = [{_INDEX: first + place} for place in range(sizes.batches, array)]
        blocks = [{_INPUT: x - (len(sizes.output) - place)} for place in range(array, len(sizes.output))]
        return [_s.Cut({**own, _OUTPUT: before + place}) for place, own in enumerate([*shared, *tuples, *blocks])]
