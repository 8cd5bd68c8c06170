"""Random bits."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import RandomGeneratorType as _GeneratorType
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

__all__ = ["RandomGenerator"]

_UINT32 = (TensorDataType.UINT32,)
_STATE_WORDS = 6


@_c.constraint("state_sizes", "the last size must be 6 (four words of counter and two of key) and every other 1")
def _state_sizes(desc: RandomGenerator) -> _s.Violation | None:
    state = desc.tensor("input_state_tensor")
    good = state.sizes[-1] == state.element_count == _STATE_WORDS
    return None if good else _s.Violation("input_state_tensor", state.sizes)


class RandomGenerator(
    _s.OperatorDesc, constraints=(_state_sizes, _c.same_sizes("input_state_tensor", "output_state_tensor"))
):
    """Uniformly distributed random bits, a pure function of the input state: Philox4x32-10 (Salmon et al., 2011).

    The state is a counter of 128 bits and a key of 64, each from its least significant word on, as in the algorithm's
    own library. Philox turns a counter and a key into a block of four words: elements 4 i to 4 i + 3, in the order of
    coordinates whatever the strides, are the words of the block of counter + i. The output state has the same key and
    counter + ceil(elements / 4), modulo 2^128. (The specification leaves both orders open.)

    generator_type is the struct's Type; ``type`` is what kind of operator a desc describes.
    """

    input_state_tensor: TensorDesc | None = _s.input_tensor(_UINT32)
    output_tensor: TensorDesc | None = _s.output_tensor(_UINT32)
    output_state_tensor: TensorDesc | None = _s.output_tensor(_UINT32, optional=True)
    generator_type: _GeneratorType = _s.enumeration(_GeneratorType, _GeneratorType.PHILOX_4X32_10, dml_name="Type")

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error("output_tensor", "must be given, because nothing else has its sizes", None)
