"""Attention as frameworks export it, in up to six operators, becomes MultiheadAttention1."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from dmlvk.graph.passes.copies import same_steps, windows_of
from dmlvk.graph.passes.layout import elsewhere, moved, seeing, takes_strides
from dmlvk.graph.passes.match import Operand, computed_by, operand, pairs, product
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.schema import fits_float32
from dmlvk.spec.tensor import TensorDesc

_MOST_HEADS: Final = 65535
"""The most heads, of all entries, for which any device has workgroups along its second dimension; products need none."""


def recognise_attention(graph: StepGraph) -> None:
    """softmax(scale * Q K^T + bias) V, and the copy that puts its heads side by side again, if they are not.

    The softmax may have 0 in place of NaN: attention gives 0 where all of a row is left out, too. (Where a score is infinite
    that choice gives 0 and attention NaN, as PyTorch's does.) The bias may be the sum of two constants, of positions and of
    a mask.

    Q, K and V are views {batch, heads, rows, head size} of tensors in which the heads of a row lie side by side, or can be
    made to: by a step that takes any strides, as the turning of positions does. Products may know one axis alone for entries
    and heads, as torch.bmm does. Where a copy repeats heads of K and V for several of Q, the operator is told so instead.
    Which kernels compute it, products among them, is a matter of its rules.
    """
    for step in graph.steps:
        if isinstance(step.desc, ops.ActivationSoftmax1):
            found = _attention(graph, step)
            if found is not None:
                for writer, other in found.moved:
                    graph.replace((writer,), other)
                graph.replace((found.last,), *found.attention)


class _Found(NamedTuple):
    """The pattern around a softmax.

    Attributes:
        last: Its last step.
        attention: What does the work of all of it.
        moved: Steps that are to write the heads of a row side by side, or to read them so, each with what it is then.
    """

    last: Step
    attention: tuple[Step, ...]
    moved: tuple[tuple[Step, Step], ...]


class _Rows(NamedTuple):
    """Queries, keys or values.

    Attributes:
        storage: Where they are.
        tensor: {batch, rows, heads * head size}.
        heads: The number of heads.
        moved: The step that is to write them so, and its other readers, with what they are then; nothing where they lie so.
    """

    storage: Storage | None
    tensor: TensorDesc
    heads: int
    moved: tuple[tuple[Step, Step], ...]


def _attention(graph: StepGraph, softmax: Step) -> _Found | None:
    """The pattern around a softmax."""
    assert isinstance(softmax.desc, ops.ActivationSoftmax1), "the caller looks for one"
    probabilities = softmax.desc.tensor("output_tensor")
    weighted = graph.only_reader(softmax.outputs[0])
    if softmax.desc.axes != (probabilities.dimension_count - 1,):
        return None
    if weighted is None or not _is_plain_product(weighted, probabilities):
        return None
    after = graph.only_reader(weighted.outputs[0])
    gathered = after if after is not None and _is_copy(after) else None
    found = (_attention_of(graph, softmax, weighted, gathered, *heads) for heads in _heads(graph, softmax, gathered))
    return next((own for own in found if own is not None), None)


def _heads(graph: StepGraph, softmax: Step, gathered: Step | None) -> list[tuple[int, int]]:
    """What the axes before rows and keys may be: batch entries, and heads of each. Where there is one axis for both, as of
    products that know no more, they are one batch of heads, what a tensor before or behind the softmax says, or entries of
    one head each."""
    leading = softmax.desc.tensor("output_tensor").sizes[:-2]
    if len(leading) == 2:
        return [(leading[0], leading[1])]
    count = math.prod(leading)
    before = _written(graph, softmax.storage("input_tensor"))
    behind = None if gathered is None else gathered.desc.tensor("input_tensor")
    said = [view.sizes for view in (behind, before) if view is not None and len(view.sizes) == 4]
    pairs_of = (pair for sizes in said for pair in itertools.combinations(sizes[:3], 2))
    splits = [(batch, heads) for batch, heads in pairs_of if batch * heads == count]
    return list(dict.fromkeys([(1, count), *splits, (count, 1)]))


def _attention_of(
    graph: StepGraph, softmax: Step, weighted: Step, gathered: Step | None, batch: int, heads: int
) -> _Found | None:
    """The pattern around a softmax, of so many batch entries and heads."""

    def of_heads(tensor: TensorDesc) -> TensorDesc | None:
        return seen_as(tensor, (batch, heads, *tensor.sizes[-2:]))

    scores, weights_of = operand(softmax, "input_tensor"), of_heads(weighted.desc.tensor("output_tensor"))
    whole = of_heads(scores.tensor)
    if whole is None or weights_of is None or batch * heads > _MOST_HEADS:
        return None
    last = weighted if gathered is None else gathered
    result = _side_by_side(weights_of) if gathered is None else _gathered(gathered, weights_of)
    summed = _summed(graph, Operand(scores.storage, whole), 2)
    if result is None or result.effective_strides[-1] != 1 or summed is None or not fits_float32(summed.scale):
        return None
    first = summed.product
    sums: tuple[Step, ...] = ()
    bias: Operand | None = None
    if len(summed.added) > 1:
        if not all(_is_constant(graph, own) for own in summed.added):
            return None
        step, bias = _sum(softmax, whole, summed.added)
        sums = (step,)
    elif summed.added:
        (bias,) = summed.added
    parts = (operand(first, "a_tensor"), operand(first, "b_tensor"), operand(weighted, "b_tensor"))
    tensors = [of_heads(part.tensor) for part in parts]
    if first.desc.trans_b == MatrixTransform.NONE and tensors[1] is not None:  # type: ignore[attr-defined]  # a Gemm
        tensors[1] = _transposed(tensors[1], (0, 1, 3, 2))
    found: list[_Rows] = []
    for part, tensor, reader in zip(parts, tensors, (first, first, weighted), strict=True):
        taken = {first, weighted, *(step for own in found for step, _ in own.moved)}
        rows = None if tensor is None else _rows(graph, Operand(part.storage, tensor), reader, taken)
        if rows is None:
            return None
        found.append(rows)
    queries, keys, values = found
    if queries.heads != heads or keys.heads != values.heads:
        return None
    desc = ops.MultiheadAttention1(
        query_tensor=queries.tensor,
        key_tensor=keys.tensor,
        value_tensor=values.tensor,
        relative_position_bias_tensor=None if bias is None else bias.tensor,
        output_tensor=result,
        scale=summed.scale,
        query_head_count=heads,
        key_value_head_count=keys.heads,
    )
    storages = {
        "query_tensor": queries.storage,
        "key_tensor": keys.storage,
        "value_tensor": values.storage,
        "relative_position_bias_tensor": None if bias is None else bias.storage,
        "output_tensor": last.outputs[0],
    }
    others = (*queries.moved, *keys.moved, *values.moved)
    return _Found(last, (*sums, Step.of(weighted.origin, desc, storages)), others)


def _rows(graph: StepGraph, part: Operand, reader: Step, taken: Set[Step]) -> _Rows | None:
    """A product's operand {batch, heads, rows, head size} as rows with their heads side by side; None where it cannot be.
    ``taken``: steps that cannot change, because they go or do change."""
    tensor = _side_by_side(part.tensor)
    if tensor is None or tensor.effective_strides[-1] != 1:
        made = _made_rows(graph, part, reader, taken)
        if made is not None:
            return made
    return None if tensor is None else _Rows(part.storage, tensor, part.tensor.sizes[1], ())


def _made_rows(graph: StepGraph, part: Operand, reader: Step, taken: Set[Step]) -> _Rows | None:
    """An operand as its writer makes it with heads side by side. What other products read is moved for them, too, as PyTorch
    scales and turns keys once for several. H200 (driver 580, 2026-11-30), 16 heads of 1024 rows of 128 elements, us with
    such keys as they were and with others: 384 and 74."""
    batch, heads, rows, size = part.tensor.sizes
    writer = graph.writer(part.storage)
    if writer is None or part.storage is None or part.storage in graph.outputs:
        return None
    others = [other for other in graph.readers(part.storage) if other is not reader]
    shared = None if others else _shared_heads(writer, part.tensor)
    if shared is not None:
        return _rows(graph, shared, writer, taken)
    if not takes_strides(writer) and windows_of(writer) is None:
        return None
    if len(writer.outputs) != 1 or any(map(graph.outlives_a_run, writer.read())):
        return None
    if reader.inputs.count(part.storage) > 1 or not taken.isdisjoint((writer, *others)):
        return None
    together = TensorDesc(part.tensor.data_type, part.tensor.sizes, (rows * heads * size, size, heads * size, 1))
    before = writer.desc.tensor("output_tensor")
    # A pointwise operator takes elements in the order in which they lie.
    after = (elsewhere if writer.desc.traits.pointwise else moved)(before, part.tensor, together)
    if after is None:
        return None
    changes = [(writer, dataclasses.replace(writer, desc=writer.desc.replace(output_tensor=after)))]
    for other in others:
        is_product = isinstance(other.desc, ops.Gemm) and part.storage in other.inputs
        desc = seeing(other, part.storage, lambda tensor: elsewhere(tensor, before, after)) if is_product else None
        if desc is None:
            return None
        changes.append((other, dataclasses.replace(other, desc=desc)))
    return _Rows(part.storage, TensorDesc(together.data_type, (batch, rows, heads * size)), heads, tuple(changes))


def _shared_heads(copy: Step, copied: TensorDesc) -> Operand | None:
    """The source of a copy that repeats each head for several, {batch, heads, rows, head size} without the repetition."""
    if not _is_copy(copy):
        return None
    source, whole = copy.desc.tensor("input_tensor"), seen_as(copy.desc.tensor("output_tensor"), copied.sizes)
    if len(source.sizes) != 5 or whole is None or not same_steps(whole, copied, copied.sizes):
        return None
    batch, heads, times, rows, size = source.sizes
    strides = source.effective_strides
    if (batch, heads * times, rows, size) != copied.sizes or strides[2] != 0:
        return None
    return Operand(
        copy.storage("input_tensor"),
        TensorDesc(source.data_type, (batch, heads, rows, size), (strides[0], strides[1], *strides[3:])),
    )


class _Summed(NamedTuple):
    """Scores.

    Attributes:
        product: The GEMM of queries and keys.
        scale: What its sums are multiplied by.
        added: What is added to them then, in the sizes of the scores.
    """

    product: Step
    scale: float
    added: tuple[Operand, ...]


def _summed(graph: StepGraph, scores: Operand, most: int) -> _Summed | None:
    """The product and the additions, at most so many, that make scores: of positions, and of a mask."""
    inner = _product_of(graph, scores)
    if inner is not None:
        return _Summed(*inner, ())
    addition = graph.writer(scores.storage)
    if not most or addition is None or not isinstance(addition.desc, ops.ElementWiseAdd):
        return None
    sizes = scores.tensor.sizes
    if not same_elements(addition.desc.tensor("output_tensor"), scores.tensor):
        return None
    for pair in pairs(addition):
        own, other = (seen_as(part.tensor, sizes) for part in pair)
        found = None if own is None or other is None else _summed(graph, Operand(pair[0].storage, own), most - 1)
        if found is not None and other is not None:
            return found._replace(added=(*found.added, Operand(pair[1].storage, other)))
    return None


def _is_constant(graph: StepGraph, part: Operand) -> bool:
    return part.storage is not None and part.storage.constant is not None and not graph.outlives_a_run(part.storage)


def _sum(softmax: Step, scores: TensorDesc, parts: tuple[Operand, ...]) -> tuple[Step, Operand]:
    """The sum of two constants that are added to scores; it runs once."""
    one, two = parts
    whole = Operand(Storage(scores.total_tensor_size_in_bytes), TensorDesc(scores.data_type, scores.sizes))
    desc = ops.ElementWiseAdd(a_tensor=one.tensor, b_tensor=two.tensor, output_tensor=whole.tensor)
    storages = {"a_tensor": one.storage, "b_tensor": two.storage, "output_tensor": whole.storage}
    return Step.of(softmax.origin, desc, storages), whole


def _written(graph: StepGraph, storage: Storage | None) -> TensorDesc | None:
    """A storage as the step that writes it, and nothing else, sees it."""
    writer = graph.writer(storage)
    return writer.desc.output_slots()[0].tensor if writer is not None and len(writer.outputs) == 1 else None


def _product_of(graph: StepGraph, scores: Operand) -> tuple[Step, float] | None:
    """The GEMM whose output, times a number, an operand is, whatever its sizes; and what its sums are multiplied by."""
    written = _written(graph, scores.storage)
    if written is None or not same_elements(written, scores.tensor):
        return None
    scaled = product(graph, Operand(scores.storage, written))
    gemm = computed_by(graph, scaled.operands[0]) if len(scaled.operands) == 1 else None
    if gemm is None or not isinstance(gemm.desc, ops.Gemm) or gemm.desc.tensor("a_tensor").dimension_count < 3:
        return None
    if gemm.desc.trans_a != MatrixTransform.NONE or gemm.desc.c_tensor is not None or gemm.desc.fused_activation is not None:
        return None
    return gemm, scaled.number * gemm.desc.alpha


def _is_plain_product(step: Step, left: TensorDesc) -> bool:
    """Whether a step multiplies a tensor's matrices by others and does nothing else."""
    desc = step.desc
    if not isinstance(desc, ops.Gemm):
        return False
    a = desc.tensor("a_tensor")
    return (
        a.dimension_count > 2
        and a.sizes[-2:] == left.sizes[-2:]
        and same_elements(a, left)
        and desc.trans_a == desc.trans_b == MatrixTransform.NONE
        and desc.alpha == 1.0
        and desc.c_tensor is None
        and desc.fused_activation is None
    )


def _is_copy(step: Step) -> bool:
    return isinstance(step.desc, ops.ElementWiseIdentity) and step.desc.scale_bias is None


def _gathered(copy: Step, heads_first: TensorDesc) -> TensorDesc | None:
    """What a copy makes of {batch, heads, rows, head size}, as {batch, rows, heads * head size}; None where heads of a row
    do not come to lie side by side. Rows may come before the batch, as PyTorch's own module has it."""
    whole, made = copy.desc.tensor("input_tensor"), copy.desc.tensor("output_tensor")
    copied = elsewhere(heads_first, whole, made) if whole.data_type is made.data_type else None
    return None if copied is None else _side_by_side(copied)


def _side_by_side(heads_first: TensorDesc) -> TensorDesc | None:
    """{batch, heads, rows, head size} as {batch, rows, heads * head size}; None where the heads of a row lie apart."""
    batch, heads, rows, size = heads_first.sizes
    return seen_as(_transposed(heads_first, (0, 2, 1, 3)), (batch, rows, heads * size))


def _transposed(tensor: TensorDesc, order: Sequence[int]) -> TensorDesc:
    sizes, strides = tensor.sizes, tensor.effective_strides
    return TensorDesc(tensor.data_type, tuple(sizes[axis] for axis in order), tuple(strides[axis] for axis in order))
