"""A row of our own: rotary embedding, which language models turn queries and keys with."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_INPUT, _COSINES, _POSITIONS = "input_tensor", "cosines_tensor", "positions_tensor"


@_c.constraint("tables", "must be {batch, positions, pairs} for a batch of 1 or the input's, and pairs that a head has")
def _tables(desc: RotaryEmbedding) -> _s.Violation | None:
    batch, rows, _, size = desc.tensor(_INPUT).sizes
    tables, places, pairs = desc.tensor(_COSINES).sizes
    good = tables in (1, batch) and 2 * pairs <= size and (desc.positions_tensor is not None or places == rows)
    return None if good else _s.Violation(_COSINES, (tables, places, pairs))


@_c.constraint("positions", "must be {batch, rows}")
def _positions(desc: RotaryEmbedding) -> _s.Violation | None:
    wanted = desc.tensor(_INPUT).sizes[:2]
    found = wanted if desc.positions_tensor is None else desc.positions_tensor.sizes
    return None if found == wanted else _s.Violation(_POSITIONS, found, wanted)


class RotaryEmbedding(
    _s.OperatorDesc,
    internal=True,
    traits=_s.Traits(strided=True),
    constraints=(
        _c.same_data_type(_INPUT, _COSINES, "sines_tensor", "output_tensor"),
        _c.same_sizes(_INPUT, "output_tensor"),
        _c.same_sizes(_COSINES, "sines_tensor"),
        _tables,
        _positions,
    ),
):
    """The elements of each head turned by pairs: (a, b) becomes (a cos - b sin, a sin + b cos).

    input_tensor: {batch, rows, heads, head size}.
    cosines_tensor, sines_tensor: {1 or batch, positions, pairs}. What a head has more than these pairs stays as it is.
    positions_tensor: {batch, rows}: a row's place in the tables, the nearest that they have; its own number without.
    interleaved: Whether a pair's elements are neighbours. Else the second stands as far behind the first as there are pairs.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    cosines_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 3))
    sines_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 3))
    positions_tensor: TensorDesc | None = _s.input_tensor(
        (TensorDataType.INT32, TensorDataType.INT64), (2, 2), optional=True
    )
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    interleaved: bool = _s.boolean(False)

    def cuts(self) -> Sequence[_s.Cut]:
        """By batch entries and by heads."""
        shared = self.tensor(_COSINES).sizes[0] == 1
        tables = () if shared else (_COSINES, "sines_tensor")
        return [
            _s.Cut(dict.fromkeys((_INPUT, *tables, _POSITIONS, "output_tensor"), 0)),
            _s.Cut(dict.fromkeys((_INPUT, "output_tensor"), 2)),
        ]
