"""Scatters: a copy of a tensor in which some elements, rows or blocks are replaced, where a tensor of indices says.

What the operators share, where the specification is silent or leaves it open:

- Elements are copied bit for bit.
- A negative index of a signed type counts from the end of its dimension.
- An update with an index out of range is dropped.
- Of several updates of one place the last one counts, in the row-major order of the indices: the same bits every time.
"""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["ScatterElements", "ScatterNd"]

_ALL = (_Type.FLOAT64, *_s.NUMERIC)
_INDICES = (_Type.INT64, _Type.INT32, _Type.UINT64, _Type.UINT32)
_INPUT, _INDEX, _UPDATES, _OUTPUT = "input_tensor", "indices_tensor", "updates_tensor", "output_tensor"


class ScatterElements(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(_INPUT, _UPDATES, _OUTPUT),
        _c.same_dimension_count(),
        _c.valid_axis(),
        _c.sizes_off_axis(_INDEX),
        _c.same_sizes(_INDEX, _UPDATES),
        _c.output_sizes_match(),
    ),
    traits=_s.Traits(separable=_s.off_axes),
):
    """y = x, but y[i, j, ..] with indices[i, j, ..] in the place of the coordinate along axis is updates[i, j, ..]: an
    index an element.

    An update with an index out of range is dropped; of several for one element the last along axis counts.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    updates_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()


@_c.constraint("tuple_size", "the last size, an index for each dimension, must be at most input_dimension_count")
def _tuple_size(desc: ScatterNd) -> _s.Violation | None:
    sizes = desc.tensor(_INDEX).sizes
    return None if sizes[-1] <= desc.input_dimension_count else _s.Violation(_INDEX, sizes)


@_c.constraint(
    "updates_sizes",
    "must have the sizes of the indices without the tuple, then those of the input after the dimensions that the tuple "
    "is for, after leading ones",
)
def _updates_sizes(desc: ScatterNd) -> _s.Violation | None:
    inputs, indices, updates = (desc.tensor(name).sizes for name in (_INPUT, _INDEX, _UPDATES))
    *array, length = indices[len(indices) - desc.indices_dimension_count :]
    wanted = (*array, *inputs[len(inputs) - desc.input_dimension_count + length :])
    good = (*(1,) * (len(updates) - len(wanted)), *wanted) == updates
    return None if good else _s.Violation(_UPDATES, updates, wanted)


class ScatterNd(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(_INPUT, _UPDATES, _OUTPUT),
        _c.same_dimension_count(),
        _c.count_of_dimensions("input_dimension_count", _INPUT),
        _c.count_of_dimensions("indices_dimension_count", _INDEX),
        _c.leading_ones(_INPUT, "input_dimension_count"),
        _c.leading_ones(_INDEX, "indices_dimension_count"),
        _tuple_size,
        _updates_sizes,
        _c.output_sizes_match(),
    ),
):
    """y = x, but y[indices[i.., :], ..] = updates[i.., ..]: the last dimension of the indices is a tuple, which chooses a
    block of the output by its coordinates in the first dimensions.

    InputDimensionCount and IndicesDimensionCount say how many trailing dimensions of a tensor are meant; those before
    them are 1. The sizes of the updates are those of the indices without the tuple, then those of the input after as many
    dimensions as the tuple is long, after leading ones. (The specification's formula counts the input's dimensions from
    another end than its example; this is what that shows.) An update with an index out of range is dropped; of several
    for one block the last counts.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES)
    updates_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    input_dimension_count: int = _s.uint()
    indices_dimension_count: int = _s.uint()
