"""Weights in blocks as the kernels read them: planes in one buffer, or in several where no binding holds them all, made once
of a file's bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.block_quantized.manifest import CHUNK
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Resource, Source, aligned, input_range
from dmlvk.kernels.common.shapes import WORD_BITS, linear_grid, part_starts
from dmlvk.spec.block_formats import BlockLayout, OffsetKind, ScaleKind
from dmlvk.spec.ops.block_quantized import WithBlocks, layout_of
from dmlvk.spec.tensor import TensorDesc, element_bits

Build = Callable[["Sequence[PackedPart]", int], Plan]

_WORD = WORD_BITS // 8
_WEIGHT, _SCALES, _ZERO_POINTS = range(1, 4)
"""The slots, which are the same in all rows: so they share what initialisation leaves."""
_STEP = 64
"""Columns of which a part has a multiple: then all that is of a part starts on whole words."""
_SCALE_BYTES = {ScaleKind.FLOAT32: 4, ScaleKind.FLOAT16: 2, ScaleKind.BFLOAT16: 2, ScaleKind.SIXES: 1, ScaleKind.BYTES: 1}


class PackedWeights(NamedTuple):
    """Weights in the planes of ``glsl/include/block_codes.glsl``.

    Attributes:
        layout: The format.
        columns: The columns of a product, or the rows of a table.
        depth: The codes of each.
    """

    layout: BlockLayout
    columns: int
    depth: int

    @staticmethod
    def of(desc: WithBlocks) -> PackedWeights:
        """Those of an operator."""
        return PackedWeights(layout_of(desc), desc.tensor("weight_tensor").sizes[0], desc.depth)

    @property
    def chunks(self) -> int:
        """The chunks of a column."""
        return -(-self.depth // CHUNK)

    @property
    def blocks(self) -> int:
        """The blocks of a column."""
        return -(-self.depth // self.layout.block)

    @property
    def groups(self) -> int:
        """The groups of a column whose scales have a factor in common; 0 where there are none."""
        return -(-self.depth // self.layout.group) if self.layout.scale.grouped else 0

    @property
    def _planes(self) -> tuple[int, ...]:
        """The bytes of codes' low bits, of their further ones, of scales, of offsets and of factors."""
        bits, _, _, _, _, _, _, _, _, scale, offset, _ = self.layout
        quads = -(-self.columns // 4)
        scales = 4 * quads * self.blocks * _SCALE_BYTES[scale]
        offsets = {OffsetKind.NONE: 0, OffsetKind.ZERO_POINT: 4 * quads * self.blocks}.get(offset, scales)
        low = self.columns * self.chunks * _WORD
        return low, low * (bits - 4) // 4, scales, offsets, quads * self.groups * _WORD

    @property
    def nbytes(self) -> int:
        """The bytes of all planes."""
        return sum(-(-plane // _WORD) * _WORD for plane in self._planes)

    @property
    def params(self) -> dict[str, int]:
        """The parameters of every kernel of the family."""
        starts, end = [], 0
        for plane in self._planes:
            starts.append(end // 4)
            end += -(-plane // _WORD) * _WORD
        names = ("high_start", "scale_start", "offset_start", "factor_start")
        counts = {"chunks": self.chunks, "blocks": self.blocks, "groups": self.groups}
        return {**counts, **dict(zip(names, starts[1:], strict=True))}

    @property
    def constants(self) -> dict[str, int]:
        """The constants of every kernel of the family."""
        own = self.layout
        return {"BITS": own.bits, "BLOCK": own.block, "GROUP": own.group, "SCALE": own.scale, "OFFSET": own.offset}


class PackedPart(NamedTuple):
    """Weights of neighbouring columns, packed.

    Attributes:
        first: The first column.
        weights: The planes of these columns.
        home: Where they lie.
    """

    first: int
    weights: PackedWeights
    home: Range


def with_packed(desc: WithBlocks, caps: Capabilities, build: Build) -> Plan:
    """The plan of a product or a gather, and before it the packing: at initialisation where the tensors are OWNED_BY_DML.

    Args:
        desc: The operator.
        caps: The device.
        build: Makes the plan, given the parts that the weights are in, and the bytes of temporary memory that are taken.
    """
    weights, tensors = PackedWeights.of(desc), _tensors(desc)
    once = all(tensor.owned_by_dml for tensor in tensors.values())
    resource = Resource(Source.PERSISTENT if once else Source.TEMPORARY)
    starts = _starts(weights, tensors, caps)
    parts = []
    for first, end in zip(starts, (*starts[1:], weights.columns), strict=True):
        own = weights._replace(columns=end - first)
        parts.append(PackedPart(first, own, resource.take(own.nbytes)))
    packing = tuple(_packing(desc, part, caps) for part in parts)
    taken = 0 if once else aligned(resource.end)
    plan = build(parts, taken)
    if once:
        return Plan(plan.dispatches, plan.temporary_bytes, aligned(resource.end), packing)
    return Plan((*packing, *plan.dispatches), max(plan.temporary_bytes, taken))


def _tensors(desc: WithBlocks) -> dict[int, TensorDesc]:
    """The tensors that weights come in, by slot."""
    slots = desc.input_slots()
    found = {slot: slots[slot].tensor for slot in (_WEIGHT, _SCALES, _ZERO_POINTS)}
    return {slot: tensor for slot, tensor in found.items() if tensor is not None}


def _row_bytes(tensor: TensorDesc) -> int:
    return tensor.sizes[1] * element_bits(tensor.data_type) // 8


def _starts(weights: PackedWeights, tensors: dict[int, TensorDesc], caps: Capabilities) -> list[int]:
    """The first columns of parts that bindings hold, as they come and as they are packed."""
    most = caps.storage_buffer_bytes
    if max(weights.nbytes, *(weights.columns * _row_bytes(tensor) for tensor in tensors.values())) <= most:
        return [0]
    packed = weights._replace(columns=_STEP).nbytes  # with what fills planes up, which larger parts have once
    raw = _STEP * max(map(_row_bytes, tensors.values()))
    return part_starts(weights.columns, max(most // max(packed, raw), 1) * _STEP)


def _packing(desc: WithBlocks, part: PackedPart, caps: Capabilities) -> Dispatch:
    weights, points, tensors = part.weights, desc.zero_points_tensor, _tensors(desc)
    columns = desc.tensor("weight_tensor").sizes[0]
    own = weights.layout
    local = min(128, caps.workgroup_invocations)
    count = -(-weights.columns // 4) * weights.chunks

    def rows(slot: int) -> Range:
        if slot not in tensors or weights.columns == columns:
            return input_range(slot if slot in tensors else _WEIGHT)
        each = _row_bytes(tensors[slot])
        return Range(Source.INPUT, slot, part.first * each, -(-weights.columns * each // 4) * 4)

    return make_dispatch(
        "block_pack",
        (*map(rows, (_WEIGHT, _SCALES, _ZERO_POINTS)), part.home),
        linear_grid(-(-count // local), caps),
        variant={},
        constants={
            "LOCAL_SIZE_X": local,
            **weights.constants,
            "GROUP_BYTES": own.nbytes,
            "ORDER": own.order,
            "CODES": own.codes,
            "HIGH": own.high,
            "SCALES": own.scales,
            "FACTORS": own.factors,
            "SIGNED": own.signed,
            "APART": desc.format.is_apart,
        },
        columns=weights.columns,
        depth=weights.depth,
        row_bytes=desc.tensor("weight_tensor").sizes[1],
        point_bytes=0 if points is None else points.sizes[1],
        **weights.params,
    )
