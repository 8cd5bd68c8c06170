"""Products of one tensor with several constants become one product: as queries, keys and values are, or a gate and what it
gates."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.graph.passes.copies import PLACE_ALIGNMENT, windows_of
from dmlvk.graph.passes.match import operand, row_of_c
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import View
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.ops.block_quantized import BlockQuantizedGemm, NormalizedBlockGemm
from dmlvk.spec.ops.matmul import GemmGate, NormalizedGemm
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_MOST_BYTES: Final = 2**24
"""The most bytes of a constant that is joined with others on the host: a product with a larger one fills a device by itself,
and the host would keep a second copy of much."""
MOST_BOUND: Final = 2**27
"""The most bytes of weights that are joined on the device, or with a normalization: as many as every device binds."""
_BLOCKS: Final = ("weight_tensor", "scales_tensor", "zero_points_tensor")


def join_products(graph: StepGraph) -> None:
    """Products of one tensor with constants, and with constant rows that are added, become one whose output their readers
    see in part.

    Only where all readers can read a part of a row where it lies, or copy it themselves. Weights in blocks, and constants of
    GEMMs whose rows are their columns, come one after the other on the device; other constants are joined on the host, once
    for all sizes.
    """
    of_source: dict[Storage, list[Step]] = {}
    for step in graph.steps:
        if _is_joinable(graph, step):
            source = step.inputs[0]
            assert source is not None, "a product has its first factor"
            of_source.setdefault(source, []).append(step)
    for waiting in of_source.values():
        while waiting:
            first, *others = waiting
            alike = [first]
            for other in others:
                if are_alike([*alike, other]):
                    alike.append(other)
            waiting = [other for other in others if other not in alike]
            if len(alike) > 1:
                graph.replace(alike, *joined(graph, alike), early=True)  # so that all readers come later


_MOST_NORMALIZED: Final = 31
"""The most rows that are normalized by a product with weights in blocks: of more, tiles have parts of rows."""
_MOST_OF_GEMM: Final = 4
"""The most that are by another product: its kernel for few rows reads them as a whole."""
_NORM_FIELDS: Final = {
    "input_tensor": "input_tensor",
    "norm_addend_tensor": "addend_tensor",
    "norm_scale_tensor": "scale_tensor",
    "sum_tensor": "sum_tensor",
}
"""The fields of a product with a normalization, and those of the normalization."""
_FIELDS_OF_GEMM: Final = {"c_tensor": "bias_tensor"}
"""The fields of a GEMM that are called otherwise in a product with a normalization."""
_NOT_KEPT: Final = ("a_tensor", "input_tensor", "addend_tensor")
"""The fields of a product that a product with a normalization does not have of it."""


def fuse_normalizations(graph: StepGraph) -> None:
    """A normalization by the root mean square of a few rows, which only one product reads, becomes a part of that."""
    place = {step: index for index, step in enumerate(graph.steps)}
    for step in graph.steps:
        norm = graph.writer(step.inputs[0]) if step.inputs else None
        if norm is None or not isinstance(norm.desc, RootMeanSquare):
            continue
        total = norm.storage("sum_tensor")
        is_early = total is not None and any(place[reader] < place[step] for reader in graph.readers(total))
        if is_early or graph.only_reader(norm.outputs[0]) is not step:
            continue
        desc = _normalized(norm.desc, step.desc)
        if desc is not None:
            storages = {
                _FIELDS_OF_GEMM.get(name, name): own for name, own in step.storages().items() if name not in _NOT_KEPT
            }
            storages |= {name: norm.storage(own) for name, own in _NORM_FIELDS.items()}
            fused = Step.of(step.origin, desc, storages)
            graph.replace((norm, step), fused)
            place[fused] = place[step]


def _normalized(norm: RootMeanSquare, product: OperatorDesc) -> OperatorDesc | None:
    """The product with the normalization of what it is of; None where there is none."""
    fields: dict[str, Any] | None = None
    most = _MOST_OF_GEMM
    row: type[OperatorDesc] = NormalizedGemm
    match product:
        case BlockQuantizedGemm(addend_tensor=None):
            row, most, rows = NormalizedBlockGemm, _MOST_NORMALIZED, product.tensor("input_tensor")
            own = (*_BLOCKS, "bias_tensor", "output_tensor", "format", "block_size", "gate", "half_factors")
            fields = {name: getattr(product, name) for name in own}
        case ops.Gemm() | GemmGate():
            rows, fields = product.tensor("a_tensor"), _fields_of_gemm(product)
    if fields is None or norm.scale_tensor is None or rows.sizes[-2] > most:
        return None
    parts = (norm.input_tensor, norm.addend_tensor, norm.output_tensor, norm.sum_tensor, rows)
    if norm.tensor("output_tensor").sizes[-1] != rows.sizes[-1] or not all(map(_is_packed, parts)):
        return None
    for name in ("input_tensor", "norm_addend_tensor", "sum_tensor"):
        tensor: TensorDesc | None = getattr(norm, _NORM_FIELDS[name])
        fields[name] = tensor and TensorDesc(tensor.data_type, rows.sizes[-2:])
    return row(**fields, norm_scale_tensor=norm.scale_tensor, epsilon=norm.epsilon)


def _fields_of_gemm(product: ops.Gemm | GemmGate) -> dict[str, Any] | None:
    """What a product with a normalization has of a product of one matrix, which does nothing else than add a row, and whose
    second factor every device binds: only a GEMM by itself is cut into parts of its columns. None of another."""
    if any(size != 1 for size in product.tensor("output_tensor").sizes[:-2]) or product.trans_a is MatrixTransform.TRANSPOSE:
        return None
    if product.tensor("b_tensor").total_tensor_size_in_bytes > MOST_BOUND:
        return None
    fields: dict[str, Any] = {name: _matrix_of(product.tensor(name)) for name in ("b_tensor", "output_tensor")}
    fields["trans_b"] = product.trans_b
    if isinstance(product, GemmGate):
        return fields | {"gate": product.gate}
    bias = row_of_c(product)
    is_plain = type(product) is ops.Gemm and product.fused_activation is None and product.alpha == 1.0
    if not is_plain or (product.c_tensor is not None and (product.beta != 1.0 or bias is None)):
        return None
    return fields | {"bias_tensor": bias}


def _matrix_of(tensor: TensorDesc) -> TensorDesc:
    """A tensor of one matrix, without leading dimensions."""
    return TensorDesc(tensor.data_type, tensor.sizes[-2:], tensor.strides and tensor.strides[-2:], flags=tensor.flags)


def _is_packed(tensor: TensorDesc | None) -> bool:
    return tensor is None or View(tensor.sizes, tensor.effective_strides).is_packed


def _is_joinable(graph: StepGraph, step: Step) -> bool:
    """Whether a step is a product with one constant matrix, whose output is read where it lies or copied."""
    match step.desc:
        case ops.Gemm() | BlockQuantizedGemm():
            good = is_joinable(graph, step)
        case _:
            return False
    storage = step.outputs[0]
    return good and storage is not None and storage not in graph.outputs and all(map(_reads_parts, graph.readers(storage)))


def is_joinable(graph: StepGraph, step: Step) -> bool:
    """Whether a product's weights, and what is added to it, are constants that others may join."""
    return _is_joinable_gemm(graph, step, step.desc) if isinstance(step.desc, ops.Gemm) else _is_joinable_blocks(graph, step)


def _is_stackable(graph: StepGraph, step: Step) -> bool:
    """Whether the constant matrix of a GEMM is what the device joins: its rows, which are columns of the product, one after
    the other, and all that the constant has."""
    desc = step.desc
    assert isinstance(desc, ops.Gemm)
    weights = desc.tensor("b_tensor")
    plain = TensorDesc(weights.data_type, weights.sizes).effective_strides == weights.effective_strides
    is_turned = desc.trans_b is MatrixTransform.TRANSPOSE
    return is_turned and plain and _is_all_of_a_constant(graph, step.storage("b_tensor"), weights)


def _is_joinable_gemm(graph: StepGraph, step: Step, desc: ops.Gemm) -> bool:
    output, weights = desc.tensor("output_tensor"), desc.tensor("b_tensor")
    if desc.fused_activation is not None or any(size != 1 for size in output.sizes[:-2]) or output.strides is not None:
        return False
    if graph.constant(*operand(step, "b_tensor")) is None:
        return False
    if weights.total_tensor_size_in_bytes > _MOST_BYTES and not _is_stackable(graph, step):
        return False
    row = row_of_c(desc)
    return desc.c_tensor is None or (desc.beta == 1.0 and graph.constant(step.storage("c_tensor"), row) is not None)


def _is_joinable_blocks(graph: StepGraph, step: Step) -> bool:
    """Whether a step is a product with constant weights in blocks that makes whole words of a row, so that parts of a row
    lie as tensors do."""
    desc = step.desc
    if not isinstance(desc, BlockQuantizedGemm) or desc.gate or desc.addend_tensor is not None:
        return False
    output, bias = desc.tensor("output_tensor"), desc.bias_tensor
    if output.strides is not None:
        return False
    if output.sizes[1] * element_bits(output.data_type) // 8 % PLACE_ALIGNMENT:
        return False
    if bias is not None and graph.constant(step.storage("bias_tensor"), bias) is None:
        return False
    return all(_is_all_of_a_constant(graph, step.storage(name), getattr(desc, name)) for name in _BLOCKS)


def _is_all_of_a_constant(graph: StepGraph, storage: Storage | None, tensor: TensorDesc | None) -> bool:
    """Whether a tensor is absent, or each byte of a constant in its order."""
    if storage is None or tensor is None:
        return True
    nbytes = tensor.element_count * element_bits(tensor.data_type) // 8
    is_constant = storage.constant is not None and not graph.outlives_a_run(storage)
    return is_constant and sum(array.nbytes for array in storage.content()) == nbytes


def _reads_parts(reader: Step) -> bool:
    return reader.desc.traits.pointwise or reader.desc.traits.strided or windows_of(reader) is not None


def are_alike(products: list[Step]) -> bool:
    """Whether products of one storage see it alike, and do the same with it; and whether their weights may be joined, for
    all that they take."""
    one, *others = products
    if any(type(other.desc) is not type(one.desc) or other.inputs[0] is not one.inputs[0] for other in others):
        return False
    is_of_blocks = isinstance(one.desc, BlockQuantizedGemm)
    names = ("input_tensor", "format", "block_size") if is_of_blocks else ("a_tensor", "trans_a", "trans_b", "alpha")
    if any(getattr(one.desc, name) != getattr(other.desc, name) for name in names for other in others):
        return False
    weights = [step.desc.tensor("weight_tensor" if is_of_blocks else "b_tensor") for step in products]
    if sum(tensor.total_tensor_size_in_bytes for tensor in weights) > MOST_BOUND:
        return False
    return not is_of_blocks or all(_type(one.desc, name) is _type(other.desc, name) for name in _BLOCKS for other in others)


def _type(desc: OperatorDesc, name: str) -> object:
    tensor: TensorDesc | None = getattr(desc, name)
    return None if tensor is None else tensor.data_type


def joined(graph: StepGraph, products: list[Step]) -> tuple[Step, Step]:
    """The product with all weights, and the split of what it makes."""
    return (_joined_blocks if isinstance(products[0].desc, BlockQuantizedGemm) else _joined_gemms)(graph, products)


def _joined_blocks(graph: StepGraph, products: list[Step]) -> tuple[Step, Step]:
    first = products[0]
    pieces = tuple(product.desc.tensor("output_tensor") for product in products)
    rows, _ = pieces[0].sizes
    width = sum(piece.sizes[1] for piece in pieces)
    whole = TensorDesc(pieces[0].data_type, (rows, width))
    storages: dict[str, Storage | None] = {"input_tensor": first.storage("input_tensor")}
    changes: dict[str, Any] = {}
    for name in _BLOCKS:
        sources = [source for product in products if (source := product.storage(name)) is not None]
        if sources:
            storages[name] = graph.joined(sources)
            tensors = [product.desc.tensor(name) for product in products]
            sizes = (sum(tensor.sizes[0] for tensor in tensors), *tensors[0].sizes[1:])
            changes[name] = TensorDesc(tensors[0].data_type, sizes)
    biases = [product.desc.bias_tensor for product in products if isinstance(product.desc, BlockQuantizedGemm)]
    if any(bias is not None for bias in biases):
        storages["bias_tensor"] = _joined_rows(graph, [own.storage("bias_tensor") for own in products], biases, pieces)
        changes["bias_tensor"] = TensorDesc(whole.data_type, (width,))
    return _and_split(first, first.desc.replace(**changes, output_tensor=whole), storages, pieces, products)


def _joined_rows(
    graph: StepGraph, sources: list[Storage | None], rows: list[TensorDesc | None], pieces: tuple[TensorDesc, ...]
) -> Storage:
    """Rows that are added to pieces of an output, one after the other; zeros where there are none."""

    def new_row() -> npt.NDArray[Any]:
        known = zip(map(graph.constant, sources, rows), pieces, strict=True)
        return np.concatenate([np.zeros(piece.sizes[-1]) if row is None else row for row, piece in known])

    return graph.derived(f"joined rows: {rows}", sources, pieces[0].data_type, new_row)


def _and_split(
    first: Step,
    desc: OperatorDesc,
    storages: dict[str, Storage | None],
    pieces: tuple[TensorDesc, ...],
    products: list[Step],
) -> tuple[Step, Step]:
    """The joined product as a step, and the split of its output into those of all products."""
    whole = desc.tensor("output_tensor")
    storages["output_tensor"] = Storage(whole.total_tensor_size_in_bytes)
    joined = Step.of(first.origin, desc, storages)
    split = ops.Split(input_tensor=whole, output_tensors=pieces, axis=whole.dimension_count - 1)
    return joined, Step(first.origin, split, joined.outputs, tuple(product.outputs[0] for product in products))


def _joined_gemms(graph: StepGraph, products: list[Step]) -> tuple[Step, Step]:
    first = products[0]
    descs = [product.desc for product in products if isinstance(product.desc, ops.Gemm)]
    output, along = descs[0].tensor("output_tensor"), -1 if descs[0].trans_b is MatrixTransform.NONE else -2
    matrices = [product.desc.tensor("b_tensor") for product in products]
    sources = [product.storage("b_tensor") for product in products]
    pieces = tuple(desc.tensor("output_tensor") for desc in descs)
    width = sum(piece.sizes[-1] for piece in pieces)
    sizes = list(matrices[0].sizes)
    sizes[along] = width

    def new_weights() -> npt.NDArray[Any]:
        known = [graph.constant(source, matrix) for source, matrix in zip(sources, matrices, strict=True)]
        return np.concatenate([matrix for matrix in known if matrix is not None], axis=along)

    storages = {"a_tensor": first.storage("a_tensor")}
    if all(_is_stackable(graph, product) for product in products):
        storages["b_tensor"] = graph.joined([source for source in sources if source is not None])
    else:
        storages["b_tensor"] = graph.derived(f"joined along {along}: {matrices}", sources, output.data_type, new_weights)
    changes: dict[str, Any] = {"b_tensor": TensorDesc(output.data_type, tuple(sizes))}
    if any(desc.c_tensor is not None for desc in descs):
        rows = [row_of_c(desc) for desc in descs]
        storages["c_tensor"] = _joined_rows(graph, [product.storage("c_tensor") for product in products], rows, pieces)
        repeated = (0,) * (output.dimension_count - 1)
        changes |= {"c_tensor": TensorDesc(output.data_type, (*output.sizes[:-1], width), (*repeated, 1)), "beta": 1.0}
    whole = TensorDesc(output.data_type, (*output.sizes[:-1], width))
    return _and_split(first, descs[0].replace(output_tensor=whole, **changes), storages, pieces, products)
