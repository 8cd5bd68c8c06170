"""Numbers of BFLOAT16, which casts have widened or rounded: products read and write their bits, and copies come before
roundings."""

from __future__ import annotations

from typing import Any, Final

from dmlvk.graph.passes.copies import windows_of
from dmlvk.graph.passes.layout import elsewhere
from dmlvk.graph.passes.match import Operand, operand
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.matmul import FormatGemm
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.tensor import TensorDesc

_OWN: Final = ("output_tensor", "trans_a", "trans_b", "alpha", "beta")


def round_behind_copies(graph: StepGraph) -> None:
    """A copy of what is rounded to BFLOAT16 for it alone comes first, so that it stands where it does without roundings:
    behind the products of an attention, whose heads it brings together."""
    for cast in graph.steps:
        copy = graph.only_reader(cast.outputs[0]) if _is_cast(cast) else None
        windows = None if copy is None or not isinstance(copy.desc, ops.ElementWiseIdentity) else windows_of(copy)
        if copy is None or windows is None:
            continue
        source, between = (operand(cast, name) for name in ("input_tensor", "output_tensor"))
        if source.tensor.data_type is not between.tensor.data_type:
            continue
        view = elsewhere(windows[0].tensor, between.tensor, source.tensor)
        if view is not None:
            copied = copy.desc.tensor("output_tensor")
            moved = Storage(copied.total_tensor_size_in_bytes)
            rounding = cast.desc.replace(input_tensor=copied, output_tensor=copied)
            graph.replace(
                (cast, copy),
                Step(copy.origin, copy.desc.replace(input_tensor=view), (source.storage,), (moved,)),
                Step(cast.origin, rounding, (moved,), copy.outputs),
            )


def multiply_bits(graph: StepGraph) -> None:
    """A product of FLOAT32 becomes a ``FormatGemm`` where both factors are what a FormatCast makes of BFLOAT16, or copies of
    that: it reads the bits that were widened, or those that a cast makes of what was rounded. Where a cast to bits alone
    reads what it makes, it makes these."""
    homes = _Homes(graph)
    products = []
    for step in graph.steps:
        if type(step.desc) is not ops.Gemm or step.desc.fused_activation is not None:
            continue
        a, b = homes.of(operand(step, "a_tensor")), homes.of(operand(step, "b_tensor"))
        if a is not None and b is not None:
            own: dict[str, Any] = {name: getattr(step.desc, name) for name in _OWN}
            parts: dict[str, Operand] = {"a_tensor": a, "b_tensor": b}
            if step.desc.c_tensor is not None:
                c = operand(step, "c_tensor")
                parts["c_tensor"] = homes.given(c) or c
            desc = FormatGemm(**own | {name: part.tensor for name, part in parts.items()})
            storages = {**step.storages(), **{name: part.storage for name, part in parts.items()}}
            products.append(Step.of(step.origin, desc, storages))
            graph.replace((step,), products[-1])
    graph.remove_dead_steps()
    for product in products:
        _write_bits(graph, product)


def _write_bits(graph: StepGraph, product: Step) -> None:
    """A product does what a cast behind it does, if it adds nothing or bits."""
    cast = graph.only_reader(product.storage("output_tensor"))
    c: TensorDesc | None = getattr(product.desc, "c_tensor", None)
    if cast is None or not _makes_bits(cast) or (c is not None and c.data_type is not TensorDataType.UINT16):
        return
    before, after = (operand(cast, name).tensor for name in ("input_tensor", "output_tensor"))
    made = _retyped(product.desc.tensor("output_tensor"), after.data_type)
    output = elsewhere(made, _retyped(before, after.data_type), after)
    if output is not None:
        storages = {**product.storages(), "output_tensor": cast.storage("output_tensor")}
        graph.replace((product, cast), Step.of(product.origin, product.desc.replace(output_tensor=output), storages))


class _Homes:
    """The bits of numbers that FLOAT32 tensors hold.

    Args:
        graph: The steps, which a cast joins where something needs bits that nothing has made.
    """

    def __init__(self, graph: StepGraph) -> None:
        self._graph = graph
        self._made: dict[Storage, Storage] = {}

    def given(self, part: Operand) -> Operand | None:
        """The bits of an operand that were widened: where they are, and how they lie; None
        where there are none, or no neighbours in rows or columns."""
        if part.storage is None or part.storage.part_of is not None:
            return None
        bits = self._seen_through(part, TensorDataType.UINT16)
        return bits if bits is not None and 1 in bits.tensor.effective_strides[-2:] else None

    def of(self, part: Operand) -> Operand | None:
        """The bits of an operand, if its numbers are known to be BFLOAT16's: those that were given, or made of it."""
        if part.storage is None or not self._is_known(part.storage):
            return None
        if (bits := self.given(part)) is not None:
            return bits
        if part.storage not in self._made:
            self._made[part.storage] = self._narrowed(part.storage)
        return Operand(self._made[part.storage], _retyped(part.tensor, TensorDataType.UINT16))

    def _is_known(self, storage: Storage) -> bool:
        """Whether a cast makes a tensor, or what only copies what one makes."""
        writer = self._graph.writer(storage)
        if writer is None or storage.part_of is not None:
            return False
        windows = windows_of(writer)
        return _is_cast(writer) if windows is None else self._is_known(windows[0].place.storage)

    def _seen_through(self, part: Operand, data_type: TensorDataType) -> Operand | None:
        """The operand of a cast that an operand is made of, as it is seen there through copies; None where strides cannot
        say it, or the cast reads another type."""
        writer = self._graph.writer(part.storage)
        if writer is None or len(writer.outputs) != 1:
            return None
        windows = windows_of(writer)
        if windows is None:
            source = operand(writer, "input_tensor") if _is_cast(writer) else None
        else:
            source = Operand(windows[0].place.storage, windows[0].tensor) if windows[0].place.offset == 0 else None
        written = writer.desc.output_slots()[0].tensor
        if source is None or written is None:
            return None
        own = source.tensor.data_type
        view = elsewhere(_retyped(part.tensor, own), _retyped(written, own), source.tensor)
        if view is None:
            return None
        found = Operand(source.storage, view)
        if windows is not None:
            return self._seen_through(found, data_type)
        return found if own is data_type else None

    def _narrowed(self, storage: Storage) -> Storage:
        """The bits of a tensor, which lie as it does, made of what was rounded for it."""
        writer = self._graph.writer(storage)
        assert writer is not None, "a cast or a copy"
        place = writer.outputs.index(storage)
        tensor = writer.desc.output_slots()[place].tensor
        assert tensor is not None, "it is written"
        whole = Operand(storage, tensor)
        source = self._seen_through(whole, TensorDataType.FLOAT32) or whole
        bits = _retyped(tensor, TensorDataType.UINT16)
        desc = FormatCast(input_tensor=source.tensor, output_tensor=bits, format=NumberFormat.BFLOAT16)
        made = Storage(bits.total_tensor_size_in_bytes)
        self._graph.replace((writer,), writer, Step(writer.origin, desc, (source.storage,), (made,)))
        return made


def _is_cast(step: Step) -> bool:
    """Whether a step widens bits of BFLOAT16, or rounds to it."""
    desc = step.desc
    is_own = isinstance(desc, FormatCast) and desc.format is NumberFormat.BFLOAT16
    return is_own and desc.tensor("output_tensor").data_type is TensorDataType.FLOAT32


def _makes_bits(step: Step) -> bool:
    desc = step.desc
    is_own = isinstance(desc, FormatCast) and desc.format is NumberFormat.BFLOAT16
    return is_own and desc.tensor("output_tensor").data_type is TensorDataType.UINT16


def _retyped(tensor: TensorDesc, data_type: TensorDataType) -> TensorDesc:
    """A tensor of another type that lies as this one does."""
    return TensorDesc(data_type, tensor.sizes, tensor.strides)
