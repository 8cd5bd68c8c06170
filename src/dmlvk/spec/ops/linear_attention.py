"""A row of our own: attention by a state that each row of keys and values changes."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.tensor import TensorDesc

_STATES = ("past_state_tensor", "present_state_tensor")


@_c.constraint("sizes", "must have the sizes that queries, keys and values imply; query heads are a multiple of the others")
def _sizes(desc: LinearAttention) -> _s.Violation | None:
    batch, rows, heads, size = desc.tensor("key_tensor").sizes
    value_size = desc.tensor("value_tensor").sizes[3]
    query_heads = desc.tensor("query_tensor").sizes[2]
    state = (batch, heads, size, value_size)
    wanted = {
        "query_tensor": (batch, rows, query_heads, size),
        "value_tensor": (batch, rows, heads, value_size),
        "decay_tensor": (batch, rows, heads, size),
        "rate_tensor": (batch, rows, heads),
        "output_tensor": (batch, rows, query_heads, value_size),
        **dict.fromkeys(_STATES, state),
    }
    if query_heads % heads:
        return _s.Violation("query_tensor", desc.tensor("query_tensor").sizes)
    for name, sizes in wanted.items():
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and tensor.sizes != sizes:
            return _s.Violation(name, tensor.sizes, sizes)
    return None


class LinearAttention(
    _s.OperatorDesc,
    internal=True,
    constraints=(
        _c.same_data_type("query_tensor", "key_tensor", "value_tensor", "decay_tensor", "rate_tensor", "output_tensor"),
        _c.same_data_type(*_STATES),
        _sizes,
    ),
):
    """For each row in turn, state = exp(decay) state + k (v - read)^T, and the output is scale * q^T state.

    Without decay the state keeps its size. With a rate, k changes what the state holds of it: v - read is
    rate * (v - (exp(decay) state)^T k); without one it is v. Sums are float32, and so is the state from row to row.

    query_tensor: {batch, rows, query heads, key size}; the query heads are shared out in order among those of the keys.
    key_tensor, value_tensor: {batch, rows, heads, key size}, {batch, rows, heads, value size}.
    past_state_tensor, present_state_tensor: {batch, heads, key size, value size}, before the first and after the last row;
        without a past, zeros come first.
    decay_tensor: {batch, rows, heads, key size}.
    rate_tensor: {batch, rows, heads}.
    """

    query_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    past_state_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    decay_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    rate_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 3), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    present_state_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    scale: float = _s.floating(1.0)
