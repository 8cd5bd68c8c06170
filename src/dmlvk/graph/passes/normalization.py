"""Normalizations: those whose statistics are constants go into the weights before them, and those that are spelled out in
elementwise arithmetic become one operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.graph.passes.match import Operand, computed_by, operand, pairs, plus_number, row_of_c
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.graph.views import same_elements, seen_as
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, MatrixTransform, ReduceFunction, TensorDataType
from dmlvk.spec.schema import OperatorDesc, fits_float32
from dmlvk.spec.tensor import TensorDesc

_BATCH = ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor")


def fold_batch_normalization(graph: StepGraph) -> None:
    """A BatchNormalization with constant statistics behind a convolution or a GEMM with constant weights goes into these:
    weights and bias of each output channel are scaled on the host, in float64, when the graph is compiled."""
    for step in graph.steps:
        if not isinstance(step.desc, ops.BatchNormalization):
            continue
        before = graph.writer(step.storage("input_tensor"))
        if before is None or graph.only_reader(before.outputs[0]) is not step:
            continue
        fold = _folded_product if isinstance(before.desc, ops.Gemm) else _folded
        folded = fold(graph, before, step)
        if folded is not None:
            graph.replace((before, step), folded)


def _folded(graph: StepGraph, convolution: Step, batch: Step) -> Step | None:
    desc, batch_desc = convolution.desc, batch.desc
    assert isinstance(batch_desc, ops.BatchNormalization), "the caller looks for one"
    if not isinstance(desc, ops.Convolution) or desc.fused_activation is not None or any(desc.output_padding):
        return None
    output = desc.tensor("output_tensor")
    result = seen_as(batch.desc.tensor("output_tensor"), output.sizes)
    if result is None or not same_elements(output, batch.desc.tensor("input_tensor")):
        return None
    affine = _affine(graph, batch)
    weights = graph.constant(*operand(convolution, "filter_tensor"))
    bias = graph.constant(convolution.storage("bias_tensor"), desc.bias_tensor)
    if affine is None or weights is None or (bias is None and desc.bias_tensor is not None):
        return None
    factors, mean, shift = affine
    filter_tensor = TensorDesc(output.data_type, weights.shape)
    bias_tensor = TensorDesc(output.data_type, (1, factors.size, *(1,) * (weights.ndim - 2)))
    sources = [convolution.storage(field) for field in ("filter_tensor", "bias_tensor")]
    sources += [batch.storage(field) for field in _BATCH]
    backward = desc.direction == ConvolutionDirection.BACKWARD

    def new_filter() -> npt.NDArray[Any]:
        return _scaled_filter(weights, factors, desc.group_count if backward else 0)

    def new_bias() -> npt.NDArray[Any]:
        before = 0.0 if bias is None else bias.astype(np.float64).reshape(-1)
        folded: npt.NDArray[Any] = (before - mean) * factors + shift
        return folded

    name = f"batch normalization, epsilon {batch_desc.epsilon!r}, {desc.direction.name} in {desc.group_count} groups"
    storages = {
        **convolution.storages(),
        "filter_tensor": graph.derived(f"filter of {name}", sources, output.data_type, new_filter),
        "bias_tensor": graph.derived(f"bias of {name}", sources, output.data_type, new_bias),
        "output_tensor": batch.outputs[0],
    }
    folded = desc.replace(
        filter_tensor=filter_tensor,
        bias_tensor=bias_tensor,
        output_tensor=result,
        fused_activation=batch_desc.fused_activation,
    )
    return Step.of(convolution.origin, folded, storages)


def _folded_product(graph: StepGraph, gemm: Step, batch: Step) -> Step | None:
    desc, batch_desc = gemm.desc, batch.desc
    assert isinstance(desc, ops.Gemm) and isinstance(batch_desc, ops.BatchNormalization), "the caller looks for them"
    output, columns = desc.tensor("output_tensor"), desc.tensor("output_tensor").sizes[-1]
    result, seen = seen_as(batch.desc.tensor("output_tensor"), output.sizes), batch.desc.tensor("input_tensor")
    of_columns = seen.sizes[1] == columns and all(size == 1 for size in seen.sizes[2:])
    affine = _affine(graph, batch)
    weights = graph.constant(*operand(gemm, "b_tensor"))
    if result is None or affine is None or weights is None or not of_columns or not same_elements(output, seen):
        return None
    if desc.fused_activation is not None or any(size != 1 for size in weights.shape[:-2]):
        return None
    factors, mean, shift = affine
    row = row_of_c(desc)
    bias = graph.constant(gemm.storage("c_tensor"), row)
    if desc.c_tensor is not None and bias is None:
        return None
    is_transposed = desc.trans_b is MatrixTransform.TRANSPOSE
    sources = [gemm.storage(field) for field in ("b_tensor", "c_tensor")] + [batch.storage(field) for field in _BATCH]

    def new_weights() -> npt.NDArray[Any]:
        scaled: npt.NDArray[Any] = weights * (factors[:, np.newaxis] if is_transposed else factors)
        return scaled

    def new_row() -> npt.NDArray[Any]:
        before = 0.0 if bias is None else desc.beta * bias.astype(np.float64)
        folded: npt.NDArray[Any] = (before - mean) * factors + shift
        return folded

    name = f"batch normalization, epsilon {batch_desc.epsilon!r}, of a product with {desc.tensor('b_tensor')} and {row}"
    storages = {
        **gemm.storages(),
        "b_tensor": graph.derived(f"{name}: matrix, {desc.trans_b.name}", sources, output.data_type, new_weights),
        "c_tensor": graph.derived(f"{name}: row, beta {desc.beta!r}", sources, output.data_type, new_row),
        "output_tensor": batch.outputs[0],
    }
    repeated = (*(0 for _ in output.sizes[:-1]), 1)
    folded = desc.replace(
        b_tensor=TensorDesc(output.data_type, weights.shape),
        c_tensor=TensorDesc(output.data_type, output.sizes, repeated),
        beta=1.0,
        output_tensor=result,
        fused_activation=batch_desc.fused_activation,
    )
    return Step.of(gemm.origin, folded, storages)


def fold_column_scales(graph: StepGraph) -> None:
    """Constants that the columns of a GEMM with constant weights are multiplied with go into these: the scale of a layer
    that is added to what goes round it. What transposes columns at the same time is left as a copy, or is a part of that
    addition.

    Weights of FLOAT16 are scaled by a power of two, which goes into alpha, so that the largest of them stay near 1. Where a
    column would be so small that it lost digits, or overflow, nothing is done.
    """
    for step in graph.steps:
        if isinstance(step.desc, ops.ElementWiseMultiply):
            for own, other in pairs(step):
                gemm = graph.writer(own.storage)
                if gemm is not None and type(gemm.desc) is ops.Gemm and graph.only_reader(own.storage) is step:
                    scaled = _scaled_product(graph, gemm, own, other)
                    if scaled is not None:
                        _put_in_place(graph, (gemm, step), scaled, own.tensor)
                        break


def _put_in_place(graph: StepGraph, old: tuple[Step, Step], product: Step, seen: TensorDesc) -> None:
    """Puts a product in the place of one and of a step that scales a view of it. Where that made something that lies
    otherwise, an addition that alone reads it sees the view, or a copy makes it."""
    _, step = old
    output, made = product.desc.tensor("output_tensor"), step.desc.tensor("output_tensor")
    result = seen_as(made, output.sizes)
    if result is not None and same_elements(output, seen):
        storages = {**product.storages(), "output_tensor": step.outputs[0]}
        graph.replace(old, Step.of(product.origin, product.desc.replace(output_tensor=result), storages))
        return
    reader = graph.only_reader(step.outputs[0])
    if reader is not None and isinstance(reader.desc, ops.ElementWiseAdd):
        fields = [own for own, storage in reader.storages().items() if storage is step.outputs[0]]
        if reader.desc.tensor(fields[0]) == made:
            desc = reader.desc.replace(**{fields[0]: seen})
            storages = {**reader.storages(), fields[0]: product.outputs[0]}
            graph.replace((*old, reader), product, Step.of(reader.origin, desc, storages))
            return
    copy = ops.ElementWiseIdentity(input_tensor=seen, output_tensor=made)
    graph.replace(old, product, Step(step.origin, copy, product.outputs, step.outputs))


_LEAST_HALF, _LEAST, _LARGEST = 2.0**-13, 2.0**-100, 2.0**100
"""What the largest weight of a column must be at least, of FLOAT16, where the spacing of numbers near 0 is 2^-11 of it then;
at least and at most, of other types."""


def _scaled_product(graph: StepGraph, gemm: Step, own: Operand, other: Operand) -> Step | None:
    """The product whose columns are multiplied with constants."""
    desc = gemm.desc
    assert isinstance(desc, ops.Gemm), "the caller looks for one"
    factors = _of_columns(graph, desc.tensor("output_tensor"), own.tensor, other)
    weights, row = graph.constant(*operand(gemm, "b_tensor")), row_of_c(desc)
    bias = graph.constant(gemm.storage("c_tensor"), row)
    if factors is None or weights is None or desc.fused_activation is not None or any(n != 1 for n in weights.shape[:-2]):
        return None
    if (desc.c_tensor is not None and bias is None) or not np.isfinite(factors).all():
        return None
    is_turned = desc.trans_b is MatrixTransform.TRANSPOSE
    data_type = own.tensor.data_type
    over = (*range(weights.ndim - 2), -1 if is_turned else -2)
    largest = np.abs(weights).astype(np.float64).max(axis=over) * np.abs(factors)
    if not 0 < largest.max() <= _LARGEST:
        return None
    is_half = data_type is TensorDataType.FLOAT16
    unit = 2.0 ** np.floor(np.log2(largest.max())) if is_half else 1.0
    least = _LEAST_HALF if is_half else _LEAST
    if ((largest > 0) & (largest / unit < least)).any() or not fits_float32(desc.alpha * unit):
        return None
    sources = [gemm.storage("b_tensor"), gemm.storage("c_tensor"), other.storage]
    name = f"columns of {desc.tensor('b_tensor')}, {desc.trans_b.name}, and {row}, multiplied with {other.tensor}"

    def new_weights() -> npt.NDArray[Any]:
        scale = factors / unit
        scaled: npt.NDArray[Any] = weights.astype(np.float64) * (scale[:, np.newaxis] if is_turned else scale)
        return scaled

    def new_row() -> npt.NDArray[Any]:
        assert bias is not None, "there is a row"
        scaled: npt.NDArray[Any] = bias.astype(np.float64) * factors
        return scaled

    storages = {**gemm.storages(), "b_tensor": graph.derived(name, sources, data_type, new_weights)}
    output = desc.tensor("output_tensor")
    fields: dict[str, Any] = {"b_tensor": TensorDesc(data_type, weights.shape), "alpha": desc.alpha * unit}
    if bias is not None:
        storages["c_tensor"] = graph.derived(f"{name}: row", sources, data_type, new_row)
        fields["c_tensor"] = TensorDesc(data_type, output.sizes, (*(0 for _ in output.sizes[:-1]), 1))
    return Step.of(gemm.origin, desc.replace(**fields), storages)


def _of_columns(graph: StepGraph, output: TensorDesc, seen: TensorDesc, other: Operand) -> npt.NDArray[np.float64] | None:
    """Constants, one for each column of a packed product, with which a view of it is multiplied; None where they are others.

    Args:
        graph: The steps.
        output: The product.
        seen: The view, of any order of dimensions.
        other: What it is multiplied with, in the view's sizes.
    """
    columns = output.sizes[-1]
    strides = seen.effective_strides
    inner = [axis for axis, size in enumerate(seen.sizes) if size == columns and strides[axis] == 1]
    known = graph.constant(*other)
    if output.strides is not None or known is None or len(inner) != 1 or columns == 1:
        return None
    (axis,) = inner
    others = [place for place, size in enumerate(seen.sizes) if size > 1 and place != axis]
    if any(strides[place] % columns or other.tensor.effective_strides[place] for place in others):
        return None
    return known[tuple(slice(None) if place == axis else 0 for place in range(known.ndim))].astype(np.float64)


def _affine(graph: StepGraph, batch: Step) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None:
    """What a batch normalization multiplies each channel with after it has subtracted the second, and what it adds then, in
    float64; None where they are no constants of a channel."""
    assert isinstance(batch.desc, ops.BatchNormalization), "the caller looks for one"
    per_channel = []
    for field in _BATCH:
        values = graph.constant(*operand(batch, field))
        channels = None if values is None else _per_channel(values, batch.desc.tensor("input_tensor").sizes)
        if channels is None:
            return None
        per_channel.append(channels)
    mean, variance, scale, shift = per_channel
    return scale / np.sqrt(variance + batch.desc.epsilon), mean, shift


def _per_channel(values: npt.NDArray[Any], sizes: tuple[int, ...]) -> npt.NDArray[np.float64] | None:
    """A statistic of a batch normalization as one number a channel; None where it has more."""
    channels = sizes[1]
    if any(size != 1 for axis, size in enumerate(values.shape) if axis != 1):
        return None
    return np.broadcast_to(values.reshape(-1), (channels,)).astype(np.float64)


def _scaled_filter(weights: npt.NDArray[Any], factors: npt.NDArray[Any], backward_groups: int) -> npt.NDArray[Any]:
    """A filter with each output channel scaled: {OutC, InC / groups, ...}, or {InC, OutC / groups, ...} of a backward
    convolution, whose input channels are in as many runs as there are groups. Computed in the factors' type, and of the
    weights' type: no large array of float64 is made in between."""
    window = (1,) * (weights.ndim - 2)
    if backward_groups:
        groups = factors.reshape(backward_groups, 1, -1)
        of_inputs = np.repeat(groups, weights.shape[0] // backward_groups, axis=1).reshape(weights.shape[:2])
        scales = of_inputs.reshape(*weights.shape[:2], *window)
    else:
        scales = factors.reshape(-1, 1, *window)
    scaled = np.empty(weights.shape, weights.dtype)
    np.multiply(weights, scales, out=scaled, dtype=factors.dtype, casting="same_kind")
    return scaled


def recognise_layer_normalization(graph: StepGraph) -> None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) over some axes, and what scales and shifts that, becomes one
    MeanVarianceNormalization1."""
    for step in graph.steps:
        if step not in graph or not isinstance(step.desc, ops.ElementWiseDivide):
            continue
        found = _normalized(graph, step)
        if found is None:
            continue
        x, axes, epsilon = found
        plain = ops.MeanVarianceNormalization1(axes=axes, normalize_variance=True, epsilon=epsilon)
        _replace_with_scale_and_bias(graph, step, x, plain)


def recognise_root_mean_square(graph: StepGraph) -> None:
    """x / sqrt(mean(x^2) + epsilon) over some axes, and what scales and shifts that, becomes one
    MeanVarianceNormalization2."""
    for step in graph.steps:
        found = _over_root_mean_square(graph, step) if step in graph else None
        if found is not None:
            x, axes, epsilon = found
            plain = ops.MeanVarianceNormalization2(axes=axes, use_mean=False, use_variance=True, epsilon=epsilon)
            _replace_with_scale_and_bias(graph, step, x, plain)


def _replace_with_scale_and_bias(graph: StepGraph, step: Step, x: Operand, plain: OperatorDesc) -> None:
    """Puts a normalization of x in the place of its last step and of what scales and shifts that.

    Args:
        graph: The steps.
        step: The last step of the normalization alone.
        x: What is normalized.
        plain: The normalization, without tensors.
    """
    last = step
    scale = bias = None
    scaled = _combined(graph, last, ops.ElementWiseMultiply)
    if scaled is not None:
        last, scale = scaled
        shifted = _combined(graph, last, ops.ElementWiseAdd)
        if shifted is not None:
            last, bias = shifted
    desc = plain.replace(
        input_tensor=x.tensor,
        scale_tensor=None if scale is None else scale.tensor,
        bias_tensor=None if bias is None else bias.tensor,
        output_tensor=last.desc.tensor("output_tensor"),
    )
    storages = {
        "input_tensor": x.storage,
        "scale_tensor": None if scale is None else scale.storage,
        "bias_tensor": None if bias is None else bias.storage,
        "output_tensor": last.outputs[0],
    }
    graph.replace((last,), Step.of(step.origin, desc, storages))


def _over_root_mean_square(graph: StepGraph, step: Step) -> tuple[Operand, tuple[int, ...], float] | None:
    """The operand that a step divides by the root of its mean square, or multiplies with one over that, the axes and the
    epsilon; None if it does not."""
    if isinstance(step.desc, ops.ElementWiseDivide):
        return _of_root(graph, operand(step, "a_tensor"), operand(step, "b_tensor"), step.storage("b_tensor"))
    if isinstance(step.desc, ops.ElementWiseMultiply):
        for x, other in pairs(step):
            inverse = graph.writer(other.storage)
            storage = None if inverse is None else _inverted(graph, inverse)
            found = None if storage is None else _of_root(graph, x, other, storage)
            if found is not None:
                return found
    return None


def _inverted(graph: StepGraph, step: Step) -> Storage | None:
    """The storage whose elements a step divides 1 by; None if it does not."""
    if isinstance(step.desc, ops.ElementWiseRecip) and step.desc.scale_bias is None:
        part = operand(step, "input_tensor")
    elif isinstance(step.desc, ops.ElementWiseDivide) and graph.number(*operand(step, "a_tensor")) == 1.0:
        part = operand(step, "b_tensor")
    else:
        return None
    return part.storage if same_elements(part.tensor, step.desc.tensor("output_tensor")) else None


def _of_root(
    graph: StepGraph, x: Operand, repeated: Operand, storage: Storage | None
) -> tuple[Operand, tuple[int, ...], float] | None:
    """An operand, the axes and the epsilon, if what is repeated along it comes of the root of its mean square, in a
    storage."""
    root = graph.writer(storage)
    if root is None or not isinstance(root.desc, ops.ElementWiseSqrt) or root.desc.scale_bias is not None:
        return None
    inner = plus_number(graph, operand(root, "input_tensor"))
    axes = None if inner is None else _squares(graph, inner[0], x)
    if inner is None or axes is None or not _repeats(repeated.tensor, root.desc.tensor("output_tensor"), axes):
        return None
    return x, axes, inner[1]


def _normalized(graph: StepGraph, divide: Step) -> tuple[Operand, tuple[int, ...], float] | None:
    """The operand that a division normalizes, the axes and the epsilon; None if it is no normalization."""
    centred = operand(divide, "a_tensor")
    subtract = computed_by(graph, centred)
    root = graph.writer(divide.storage("b_tensor"))
    if subtract is None or not isinstance(subtract.desc, ops.ElementWiseSubtract):
        return None
    if root is None or not isinstance(root.desc, ops.ElementWiseSqrt) or root.desc.scale_bias is not None:
        return None
    x = operand(subtract, "a_tensor")
    axes = _axes_of_mean(graph, operand(subtract, "b_tensor"), x)
    inner = plus_number(graph, operand(root, "input_tensor"))
    if axes is None or inner is None:
        return None
    variance, epsilon = inner
    squares = _squares(graph, variance, centred)
    if squares is None or not _repeats(operand(divide, "b_tensor").tensor, root.desc.tensor("output_tensor"), axes):
        return None
    return (x, axes, epsilon) if squares == axes else None


def _axes_of_mean(graph: StepGraph, part: Operand, x: Operand) -> tuple[int, ...] | None:
    """The axes over which an operand is the mean of another, repeated along them; None where it is none."""
    reduce = graph.writer(part.storage)
    if reduce is None or not isinstance(reduce.desc, ops.Reduce) or reduce.desc.function != ReduceFunction.AVERAGE:
        return None
    axes = tuple(sorted(reduce.desc.axes))
    if operand(reduce, "input_tensor") != x or not _repeats(part.tensor, reduce.desc.tensor("output_tensor"), axes):
        return None
    return axes


def _repeats(tensor: TensorDesc, reduced: TensorDesc, axes: tuple[int, ...]) -> bool:
    """Whether a tensor is what a reduction over axes made, repeated along them."""
    if tensor.dimension_count != reduced.dimension_count:
        return False
    steps = zip(tensor.sizes, tensor.effective_strides, reduced.effective_strides, strict=True)
    return all(size == 1 or step == (0 if axis in axes else own) for axis, (size, step, own) in enumerate(steps))


def _squares(graph: StepGraph, mean: Operand, centred: Operand) -> tuple[int, ...] | None:
    """The axes over which an operand is the mean of another's squares."""
    reduce = computed_by(graph, mean)
    if reduce is None or not isinstance(reduce.desc, ops.Reduce) or reduce.desc.function != ReduceFunction.AVERAGE:
        return None
    square = computed_by(graph, operand(reduce, "input_tensor"))
    if square is None:
        return None
    if isinstance(square.desc, ops.ElementWiseConstantPow):
        is_square = square.desc.exponent == 2.0 and operand(square, "input_tensor") == centred
        is_square = is_square and square.desc.scale_bias is None
    else:
        is_square = isinstance(square.desc, ops.ElementWiseMultiply) and all(
            pair == (centred, centred) for pair in pairs(square)
        )
    return tuple(sorted(reduce.desc.axes)) if is_square else None


def _combined(graph: StepGraph, step: Step, row: type[OperatorDesc]) -> tuple[Step, Operand] | None:
    """The step that multiplies or adds something to what another computes, which nothing else reads; with that something,
    its repeated dimensions of size 1."""
    reader = graph.only_reader(step.outputs[0])
    if reader is None or not isinstance(reader.desc, row):
        return None
    for own, other in pairs(reader):
        if own == operand(step, "output_tensor"):
            sizes = tuple(
                1 if own_step == 0 else size
                for size, own_step in zip(other.tensor.sizes, other.tensor.effective_strides, strict=True)
            )
            strides = other.tensor.effective_strides
            return reader, Operand(other.storage, TensorDesc(other.tensor.data_type, sizes, strides))
    return None
