"""PyTorch's operators that it does not take apart itself, as others that have converters.

Each function has its operator's schema and gives what PyTorch documents. The functions of numbers at the end are computed
in float32, to a few units of its last place of the result or of 1; of float64 there is no such formula here, so those are
refused like any operator without a converter. Formulas without a source are the definitions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

_aten: Final = torch.ops.aten
_COMPOSITES: Final[dict[Any, Callable[..., Any]]] = {}


def composites() -> dict[Any, Callable[..., Any]]:
    """The functions by operator."""
    return dict(_COMPOSITES)


def _composite(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            _COMPOSITES[operator] = function
        return function

    return register


# -- arithmetic


@_composite(_aten.lerp.Scalar)
def _lerp(x: Tensor, end: Tensor, weight: float) -> Tensor:
    """PyTorch's own decomposition makes a tensor of the number, and asks it on the device which formula to take."""
    return x + (end - x) * weight if abs(weight) < 0.5 else end - (end - x) * (1 - weight)


for _shift, _by in (
    (_aten.__lshift__, torch.bitwise_left_shift),
    (_aten.__rshift__, torch.bitwise_right_shift),
    (_aten.__ilshift__, torch.bitwise_left_shift),
    (_aten.__irshift__, torch.bitwise_right_shift),
):
    _composite(_shift.Scalar, _shift.Tensor)(_by)


# -- views and places in memory


def _places(sizes: Sequence[int], strides: Sequence[int], offset: int, device: torch.device) -> Tensor:
    """Where the elements of a view lie in the memory below it."""
    places = torch.full((1,) * len(sizes), offset, dtype=torch.int64, device=device)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        line = torch.arange(size, dtype=torch.int64, device=device) * stride
        places = places + line.reshape([-1 if at == axis else 1 for at in range(len(sizes))])
    return places


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor's elements are all that its memory holds, in order."""
    return bool(x.is_contiguous() and x.storage_offset() == 0)


@_composite(_aten.as_strided.default)
def _as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    if not _is_plain(x):
        return NotImplemented
    return x.reshape(-1)[_places(size, stride, storage_offset or 0, x.device).reshape(-1)].reshape(size)


@_composite(_aten.as_strided_scatter.default)
def _as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    if not _is_plain(x):
        return NotImplemented
    places = _places(size, stride, storage_offset or 0, x.device).reshape(-1)
    return x.reshape(-1).index_put((places,), source.reshape(-1)).reshape(x.shape)


@_composite(_aten.put.default)
def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    return x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(x.shape)


@_composite(_aten._index_put_impl.default)
def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    return x.index_put(indices, values, accumulate)


@_composite(_aten.index_reduce.default)
def _index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    if not x.dim():
        whole = x.reshape(1).scatter_reduce(0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self)
        return whole.reshape(())
    shape = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    places = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)


@_composite(_aten.masked_scatter_backward.default)
def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients of the elements that a mask took, one after the other; of those that it did not need, 0."""
    count = math.prod(sizes)
    chosen = mask.expand(gradient.shape).reshape(-1)
    turns = torch.where(chosen, (chosen.to(torch.int64).cumsum(0) - 1).clamp(0, count), count)
    return gradient.new_zeros(count + 1).scatter_add(0, turns, gradient.reshape(-1))[:count].reshape(sizes)


# -- orders


def _line(x: Tensor) -> Tensor:
    return x if x.dim() else x.reshape(1)


def _at(values: Tensor, places: Tensor, rank: Tensor, dim: int, keepdim: bool, like: Tensor) -> tuple[Tensor, Tensor]:
    """The elements and places that stand at a rank of an order."""
    found = [item.gather(dim, rank) for item in (values, places)]
    if not like.dim():
        return found[0].reshape(()), found[1].reshape(())
    value, place = found if keepdim else [item.squeeze(dim) for item in found]
    return value, place


@_composite(_aten.kthvalue.default)
def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = _line(x).sort(stable=True, dim=dim)
    return _at(values, places, torch.full_like(places.narrow(dim, 0, 1), k - 1), dim, keepdim, x)


def _median(x: Tensor, dim: int, keepdim: bool, skips: bool) -> tuple[Tensor, Tensor]:
    """The lower of the two middle elements. NaN is one wherever there is one, unless it is skipped."""
    values, places = _line(x).sort(stable=True, dim=dim)
    count = values.shape[dim]
    nans = values.isnan().to(torch.int64).sum(dim, keepdim=True)
    if skips:
        rank = torch.div(count - nans - 1, 2, rounding_mode="floor").clamp(min=0)
    else:
        rank = torch.where(nans > 0, count - nans, (count - 1) // 2)
    return _at(values, places, rank, dim, keepdim, x)


@_composite(_aten.median.dim)
def _median_along(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _median(x, dim, keepdim, skips=False)


@_composite(_aten.nanmedian.dim)
def _nanmedian_along(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _median(x, dim, keepdim, skips=True)


@_composite(_aten.median.default)
def _median_of_all(x: Tensor) -> Any:
    return _median(x.reshape(-1), 0, False, skips=False)[0] if x.numel() else NotImplemented


@_composite(_aten.nanmedian.default)
def _nanmedian_of_all(x: Tensor) -> Any:
    return _median(x.reshape(-1), 0, False, skips=True)[0] if x.numel() else NotImplemented


@_composite(_aten.searchsorted.Tensor)
def _searchsorted(
    ordered: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """By halves: each round reads one element of the order for each number."""
    ordered = ordered if sorter is None else ordered.gather(-1, sorter)
    count = ordered.shape[-1]
    low = torch.zeros(x.shape, dtype=torch.int64, device=x.device)
    high = torch.full_like(low, count)
    is_right = right or side == "right"
    for _ in range(count.bit_length()):
        middle = torch.div(low + high, 2, rounding_mode="floor")
        place = middle.clamp(max=count - 1)
        found = ordered[place] if ordered.dim() == 1 else ordered.gather(-1, place)
        is_behind = ~(found > x if is_right else found >= x) & (low < high)
        low, high = torch.where(is_behind, middle + 1, low), torch.where(is_behind, high, middle)
    return low.to(torch.int32) if out_int32 else low


@_composite(_aten.searchsorted.Scalar)
def _searchsorted_number(ordered: Tensor, number: float, **options: Any) -> Any:
    x = torch.full((1,), number, device=ordered.device)
    return _searchsorted(ordered, x, **options).reshape(()) if ordered.dim() == 1 else NotImplemented


@_composite(_aten.histc.default)
def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of some parts of a range, whose end belongs to the last."""
    x = x.reshape(-1)
    low, high = torch.full_like(x[:0].sum(), min), torch.full_like(x[:0].sum(), max)
    if min == max and x.numel():
        low, high = x.amin(), x.amax()
    is_point = low == high
    low, high = torch.where(is_point, low - 1, low), torch.where(is_point, high + 1, high)
    place = ((x - low) * (bins / (high - low))).clamp(0, bins - 1).to(torch.int64)
    is_inside = ((x >= low) & (x <= high)).to(x.dtype)
    return x.new_zeros(bins).scatter_add(0, torch.where(is_inside > 0, place, 0), is_inside)


# -- running extremes and sums


def _shifted(x: Tensor, dim: int, distance: int, filler: float) -> Tensor:
    """Each element's predecessor at a distance along a dimension."""
    start = torch.full_like(x.narrow(dim, 0, distance), filler)
    return torch.cat((start, x.narrow(dim, 0, x.shape[dim] - distance)), dim)


def _running(x: Tensor, dim: int, row: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The extremes so far and their places, of equal ones the last: each round looks twice as far back."""
    values = _line(x)
    count = values.shape[dim]
    shape = [-1 if axis == dim % values.dim() else 1 for axis in range(values.dim())]
    places = torch.arange(count, device=x.device).reshape(shape).expand(values.shape)
    numbers = places
    distance = 1
    while distance < count:
        before, place = _shifted(values, dim, distance, 0), _shifted(places, dim, distance, 0)
        keeps = (numbers < distance) | row(values, before)
        if x.dtype.is_floating_point:
            keeps = (numbers < distance) | values.isnan() | (~before.isnan() & row(values, before))
        values, places = torch.where(keeps, values, before), torch.where(keeps, places, place)
        distance *= 2
    return values.reshape(x.shape), places.reshape(x.shape).contiguous()


@_composite(_aten.cummax.default)
def _cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(x, dim, torch.ge)


@_composite(_aten.cummin.default)
def _cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(x, dim, torch.le)


@_composite(_aten.logcumsumexp.default)
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Each round adds twice as many; sums stay logarithms, so that none is too large or too small."""
    values = _line(x)
    values = values.float() if x.dtype in (torch.float16, torch.bfloat16) else values
    distance = 1
    while distance < values.shape[dim]:
        values = torch.logaddexp(values, _shifted(values, dim, distance, -math.inf))
        distance *= 2
    return values.reshape(x.shape).to(x.dtype)


# -- sums of products


@_composite(_aten._trilinear.default)
def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    for dim in expand1:
        a = a.unsqueeze(dim)
    for dim in expand2:
        b = b.unsqueeze(dim)
    for dim in expand3:
        c = c.unsqueeze(dim)
    product = a * b * c
    return product.sum(sumdim).to(product.dtype) if sumdim else product


@_composite(_aten._cdist_backward.default)
def _cdist_backward(gradient: Tensor, a: Tensor, b: Tensor, p: float, distances: Tensor) -> Tensor:
    """The gradient by the first points of distances between all points, where a distance of 0 has none."""
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    gradient, distances = gradient.unsqueeze(-1), distances.unsqueeze(-1)
    size = apart.abs()
    if p == 0:
        return torch.zeros_like(a)
    if p == 1:
        parts = gradient * apart.sign()
    elif p == math.inf:
        parts = gradient * apart.sign() * (size == distances)
    else:
        safe = torch.where(distances == 0, 1, distances)
        share = apart / safe if p == 2 else apart.sign() * (size / safe) ** (p - 1)
        parts = torch.where((distances == 0) | (size == 0), 0, gradient * share)
    return parts.sum(-2).sum_to_size(a.shape)


# -- windows: what is done along each dimension by itself is a product with a matrix


def _along(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """x with the elements along a dimension replaced by the matrix times them."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return torch.matmul(wide.movedim(axis, -1), matrix.to(wide.dtype).t()).movedim(-1, axis).to(x.dtype)


def _numbers(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, dtype=torch.int64, device=like.device)


def _within(starts: Tensor, ends: Tensor, size: int) -> Tensor:
    """A row for each window, with 1 at the elements in it."""
    place = _numbers(size, starts)
    return ((place >= starts.unsqueeze(1)) & (place < ends.unsqueeze(1))).to(torch.float32)


@_composite(_aten._adaptive_avg_pool3d_backward.default)
def _adaptive_average_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    for axis in (-3, -2, -1):
        size, count = x.shape[axis], gradient.shape[axis]
        index = _numbers(count, x)
        starts = torch.div(index * size, count, rounding_mode="floor")
        ends = torch.div((index + 1) * size + count - 1, count, rounding_mode="floor")
        shares = _within(starts, ends, size) / (ends - starts).unsqueeze(1)
        gradient = _along(gradient, axis, shares.t())
    return gradient


@_composite(_aten.avg_pool3d_backward.default)
def _average_gradient(
    gradient: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    kernel, steps, pads = (
        tuple(given) * 3 if len(given) == 1 else tuple(given) for given in (kernel_size, stride or kernel_size, padding)
    )
    for axis, window, step, pad in zip((-3, -2, -1), kernel, steps, pads, strict=True):
        size = x.shape[axis]
        starts = _numbers(gradient.shape[axis], x) * step - pad
        ends = (starts + window).clamp(max=size + pad)
        padded = ends - starts
        inside = ends.clamp(max=size) - starts.clamp(min=0)
        shares = _within(starts, ends, size)
        if divisor_override is None:
            shares = shares / (padded if count_include_pad else inside).unsqueeze(1)
        gradient = _along(gradient, axis, shares.t())
    return gradient if divisor_override is None else gradient / divisor_override


def _scattered_back(gradient: Tensor, x: Tensor, places: Tensor, dimensions: int) -> Tensor:
    """The gradient of elements that were chosen by their places among those of the last dimensions."""
    outer = x.shape[: x.dim() - dimensions]
    count = math.prod(x.shape[x.dim() - dimensions :])
    flat = [item.reshape(*outer, -1) for item in (places, gradient)]
    return gradient.new_zeros((*outer, count)).scatter_add(-1, *flat).reshape(x.shape)


@_composite(_aten.max_pool3d_with_indices_backward.default)
def _max_gradient(gradient: Tensor, x: Tensor, *window: Any) -> Tensor:
    return _scattered_back(gradient, x, window[-1], 3)


@_composite(_aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_gradient(gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return _scattered_back(gradient, x, indices, 3)


@_composite(_aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_gradient2(gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    return _scattered_back(gradient, x, indices, 2)


@_composite(_aten.adaptive_max_pool2d.default, _aten.adaptive_max_pool3d.default)
def _adaptive_max(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest elements of windows, and their places among those of the last dimensions. A window that is smaller than
    the others has its last element several times, of which the first counts."""
    rank = len(output_size)
    sizes = x.shape[x.dim() - rank :]
    chosen, place = [], torch.zeros((), dtype=torch.int64, device=x.device)
    for axis, (size, count) in enumerate(zip(sizes, output_size, strict=True)):
        index = _numbers(count, x)
        starts = torch.div(index * size, count, rounding_mode="floor")
        ends = torch.div((index + 1) * size + count - 1, count, rounding_mode="floor")
        most = -(-size // count) + (1 if size % count else 0)
        own = torch.minimum(starts.unsqueeze(1) + _numbers(most, x), ends.unsqueeze(1) - 1)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = count, most
        chosen.append(own.reshape(shape))
        place = place * size + chosen[-1]
    windows = x[(..., *chosen)].flatten(-rank)
    values, first = windows.max(-1)
    places = place.flatten(-rank).expand(windows.shape).gather(-1, first.unsqueeze(-1)).squeeze(-1)
    return values, places


@_composite(
    _aten.replication_pad1d_backward.default,
    _aten.replication_pad2d_backward.default,
    _aten.replication_pad3d_backward.default,
)
def _replication_gradient(gradient: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    for number, before in enumerate(padding[::2]):
        axis = -1 - number
        size, count = x.shape[axis], gradient.shape[axis]
        places = (_numbers(count, x) - before).clamp(0, size - 1)
        gradient = _along(gradient, axis, (places == _numbers(size, x).unsqueeze(1)).to(torch.float32))
    return gradient


def _filter(size: int, count: int, scale: float | None, align: bool, width: int, like: Tensor) -> Tensor:
    """The shares of elements in each of fewer, or more, that lie evenly over them: a filter as wide as the steps."""
    step = (size - 1) / (count - 1) if align and count > 1 else 0.0 if align else size / count if not scale else 1 / scale
    stretch = max(step, 1.0)
    middle = (_numbers(count, like).to(torch.float32) + 0.5) * step
    reach = width / 2 * stretch
    starts = (middle - reach + 0.5).to(torch.int64).clamp(min=0)
    ends = (middle + reach + 0.5).to(torch.int64).clamp(max=size)
    distance = ((_numbers(size, like) + 0.5 - middle.unsqueeze(1)) / stretch).abs()
    if width == 2:
        shares = (1 - distance).clamp(min=0)
    else:  # Keys' cubic convolution with a = -1/2
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        shares = torch.where(distance < 1, near, torch.where(distance < 2, far, 0))
    shares = shares * _within(starts, ends, size)
    return shares / shares.sum(1, keepdim=True)


def _smoothed(x: Tensor, sizes: Sequence[int], align: bool, scales: Sequence[Any], width: int) -> Tensor:
    for axis, count, scale in zip((-1, -2), reversed(sizes), reversed(scales), strict=True):
        x = _along(x, axis, _filter(x.shape[axis], count, scale, align, width, x))
    return x


def _smoothed_back(
    gradient: Tensor,
    output_size: Any,
    input_size: Sequence[int],
    align: bool,
    high: Any = None,
    wide: Any = None,
    *,
    width: int,
) -> Tensor:
    for axis, scale in ((-1, wide), (-2, high)):
        matrix = _filter(input_size[axis], gradient.shape[axis], scale, align, width, gradient)
        gradient = _along(gradient, axis, matrix.t())
    return gradient


for _name, _width in (("bilinear", 2), ("bicubic", 4)):

    def _resized(
        x: Tensor, output_size: Sequence[int], align: bool, high: Any = None, wide: Any = None, *, width: int = _width
    ) -> Any:
        return _smoothed(x, output_size, align, (high, wide), width) if x.dtype.is_floating_point else NotImplemented

    _composite(getattr(_aten, f"_upsample_{_name}2d_aa").default)(_resized)
    _composite(getattr(_aten, f"_upsample_{_name}2d_aa_backward").default)(functools.partial(_smoothed_back, width=_width))


# -- layers of transformers, as PyTorch's modules call them where nothing asks for gradients


def _open(mask: Tensor | None, kind: int | None, sizes: Sequence[int]) -> Tensor | None:
    """What each query may look at, of a mask that says what it may not: one for all (0), one of keys for each sequence (1),
    or one for each head (2)."""
    if mask is None:
        return None
    rest = ~mask.to(torch.bool)
    if kind == 1:
        return rest.reshape(sizes[0], 1, 1, -1)
    return rest.reshape(sizes[0], -1, *rest.shape[-2:]) if rest.dim() == 3 else rest


def _heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, x.shape[-1] // count)).transpose(1, 2)


@_composite(_aten._native_multi_head_attention.default)
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    linear = torch.nn.functional.linear
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (_heads(linear(*own), num_head) for own in parts)
    rest = _open(mask, mask_type, query.shape)
    if not need_weights:
        made = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=rest)
        return linear(made.transpose(1, 2).flatten(-2), proj_weight, proj_bias), None
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    shares = (scores if rest is None else scores.masked_fill(~rest, -math.inf)).softmax(-1)
    made = linear((shares @ v).transpose(1, 2).flatten(-2), proj_weight, proj_bias)
    return made, shares.mean(1) if average_attn_weights else shares


@_composite(_aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(
    x: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    linear = torch.nn.functional.linear

    def normal(y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(y, (embed_dim,), weight, bias, eps)

    def attended(y: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        made: Tensor = _attention(y, y, y, embed_dim, num_heads, *weights, mask, False, mask_type=mask_type)[0]
        return made

    def fed(y: Tensor) -> Tensor:
        y = linear(y, ffn_weight_1, ffn_bias_1)
        return linear(torch.nn.functional.gelu(y) if use_gelu else torch.relu(y), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = x + attended(normal(x, norm_weight_1, norm_bias_1))
        return x + fed(normal(x, norm_weight_2, norm_bias_2))
    x = normal(x + attended(x), norm_weight_1, norm_bias_1)
    return normal(x + fed(x), norm_weight_2, norm_bias_2)


# -- weights that are scaled, and gradients that are


@_composite(_aten._weight_norm_interface_backward.default)
def _weight_norm_gradient(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of w = v g / |v|, where the norm goes over all dimensions but one."""
    rest = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    sizes = [v.shape[axis] if axis not in rest else 1 for axis in range(v.dim())]
    norms = norms.reshape(sizes).to(g.dtype)
    along = (gradient * v).sum(rest, keepdim=True)
    return g / norms * (gradient - v * (along / (norms * norms))), along / norms


@_composite(_aten._amp_foreach_non_finite_check_and_unscale.default)
def _unscaled(gradients: Sequence[Tensor], found: Tensor, inverse: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients without the factor of the loss, and 1 where one of them is not finite."""
    for own in gradients:
        found = torch.maximum(found, (~own.isfinite()).any().to(found.dtype))
    return [
        own * inverse.to(own.dtype) if own.dtype != torch.float16 else (own.float() * inverse).half() for own in gradients
    ], found


@_composite(_aten._amp_update_scale.default)
def _updated_scale(
    scale: Tensor, tracker: Tensor, found: Tensor, growth_factor: float, backoff_factor: float, interval: int
) -> tuple[Tensor, Tensor]:
    """The factor of the loss after a step: less where a gradient was not finite, more after so many good steps."""
    steps = tracker + 1
    grown = scale * growth_factor
    grows = (steps == interval) & grown.isfinite()
    better = torch.where(grows, grown, scale)
    made = torch.where(found > 0, scale * backoff_factor, better)
    return made, torch.where((found > 0) | (steps == interval), torch.zeros_like(tracker), steps)


@_composite(_aten.embedding_renorm.default)
def _renormed(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are used, no longer than a length."""
    rows = torch.zeros(weight.shape[0], dtype=torch.bool, device=weight.device)
    rows = rows.index_fill(0, indices.reshape(-1), True)
    norms = torch.linalg.vector_norm(weight, norm_type, 1)
    return weight * torch.where(rows & (norms > max_norm), max_norm / (norms + 1e-7), 1).unsqueeze(1)


# -- random choices


@_composite(_aten.multinomial.default)
def _multinomial(x: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Any:
    """The places whose share over an exponential number is the largest: such a place comes as often as its share says."""
    if generator is not None:
        return NotImplemented
    shares = x.float()
    if not replacement:
        return (shares / -torch.log1p(-torch.rand_like(shares))).topk(num_samples, -1)[1]
    draws = torch.rand((*x.shape[:-1], num_samples, x.shape[-1]), device=x.device)
    return (shares.unsqueeze(-2) / -torch.log1p(-draws)).argmax(-1)


@_composite(_aten.rrelu_with_noise_functional.default)
def _random_leaks(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    if generator is not None:
        return NotImplemented
    if not training:
        return torch.where(x <= 0, x * ((lower + upper) / 2), x), noise
    slopes = torch.where(x <= 0, torch.rand_like(x) * (upper - lower) + lower, torch.ones_like(x))
    return x * slopes, slopes


# -- functions of numbers


def _floats(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()


def _function(operator: Any) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Registers a function of float32 for floats of 32 bits and fewer, and for whole numbers."""

    def register(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def composed(x: Tensor) -> Any:
            return NotImplemented if _floats(x) == torch.float64 else function(x.float()).to(_floats(x))

        _composite(operator)(composed)
        return function

    return register


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of coefficients times powers, the highest first."""
    found = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        found = found * x + coefficient
    return found


# Numerical Recipes, section 6.2: a Chebyshev fit of log(erfc(x) exp(x^2) (1 + x / 2)) in t = 1 / (1 + x / 2).
_COMPLEMENT: Final = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)


@_function(_aten.special_erfcx.default)
def _scaled_complement(x: Tensor) -> Tensor:
    """erfc(x) exp(x^2)."""
    t = 1 / (1 + 0.5 * x.abs())
    y = t * _polynomial(t, _COMPLEMENT).exp()
    return torch.where(x < 0, 2 * (x * x).exp() - y, y)


@_function(_aten.erfc.default)
def _complement(x: Tensor) -> Tensor:
    """1 - erf(x), from 0.5 on by itself, so that small results are as good as large ones."""
    return torch.where(x < 0.5, 1 - torch.erf(x), _scaled_complement(x) * (-x * x).exp())


# M. Giles, "Approximating the erfinv function" (2010), single precision.
_CENTRAL: Final = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL: Final = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


@_function(_aten.erfinv.default)
def _inverse_error(x: Tensor) -> Tensor:
    w = -((1 - x) * (1 + x)).log()
    y = x * torch.where(w < 5, _polynomial(w - 2.5, _CENTRAL), _polynomial(w.clamp(min=0).sqrt() - 3, _TAIL))
    return torch.where(x.abs() == 1, x * math.inf, y)


_SHIFT: Final = 6
"""From here on the first terms of Stirling's series are enough."""


@_function(_aten.digamma.default)
def _digamma(x: Tensor) -> Tensor:
    """Stirling's series after a shift upward; below 0 by reflection. At 0 it is infinite, and NaN at -1, -2, ..."""
    y = torch.where(x < 0.5, 1 - x, x)
    below = torch.zeros_like(y)
    moved = y
    for _ in range(_SHIFT):
        is_small = moved < _SHIFT
        below = below + torch.where(is_small, 1 / moved, 0)
        moved = torch.where(is_small, moved + 1, moved)
    inverse = 1 / (moved * moved)
    series = inverse * _polynomial(inverse, (1 / 240, -1 / 252, 1 / 120, -1 / 12))
    found = moved.log() - 0.5 / moved + series - below
    rest = x - x.round()
    reflected = found - math.pi / (math.pi * rest).tan()
    is_pole = (rest == 0) & (x < 0)
    made = torch.where(is_pole, math.nan, torch.where(x < 0.5, reflected, found))
    return torch.where(x == 0, torch.copysign(torch.full_like(x, math.inf), -x), made)


@_function(_aten.lgamma.default)
def _log_gamma(x: Tensor) -> Tensor:
    """log |gamma(x)|: Stirling's series after a shift upward; below 1/2 by reflection."""
    y = torch.where(x < 0.5, 1 - x, x)
    product = torch.ones_like(y)
    moved = y
    for _ in range(_SHIFT):
        is_small = moved < _SHIFT
        product = torch.where(is_small, product * moved, product)
        moved = torch.where(is_small, moved + 1, moved)
    series = _polynomial(1 / (moved * moved), (1 / 1260, -1 / 360, 1 / 12)) / moved
    found = (moved - 0.5) * (moved.log() - 1) + (0.5 * math.log(2 * math.pi) - 0.5) + series - product.log()
    found = torch.where(y.isinf(), math.inf, found)
    reflected = math.log(math.pi) - (math.pi * (x - x.round())).sin().abs().log() - found
    return torch.where(x < 0.5, reflected, found)


def _trigamma(x: Tensor) -> Tensor:
    """The derivative of digamma, in the same way."""
    y = torch.where(x < 0.5, 1 - x, x)
    below = torch.zeros_like(y)
    moved = y
    for _ in range(_SHIFT):
        is_small = moved < _SHIFT
        below = below + torch.where(is_small, 1 / (moved * moved), 0)
        moved = torch.where(is_small, moved + 1, moved)
    inverse = 1 / (moved * moved)
    series = (1 + 0.5 / moved + inverse * _polynomial(inverse, (-1 / 30, 1 / 42, -1 / 30, 1 / 6))) / moved
    found = series + below
    sine = (math.pi * (x - x.round())).sin()
    return torch.where(x < 0.5, (math.pi / sine) ** 2 - found, found)


@_composite(_aten.polygamma.default)
def _polygamma(n: int, x: Tensor) -> Any:
    if n > 1 or _floats(x) == torch.float64:
        return NotImplemented
    return (_trigamma if n else _digamma)(x.float()).to(_floats(x))


@_composite(_aten.copysign.Tensor)
def _copysign(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.result_type(a, b)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = a.to(dtype).abs()
    return torch.where(torch.signbit(b), -size, size)


@_composite(_aten.hypot.default)
def _hypotenuse(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(a^2 + b^2), without squares that are too large or too small."""
    dtype = torch.result_type(a, b)
    kind = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    a, b = a.to(kind).abs(), b.to(kind).abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    share = small / torch.where(large == 0, 1, large)
    found = large * (1 + share * share).sqrt()
    return torch.where(a.isinf() | b.isinf(), math.inf, found).to(dtype)


# -- bags of rows


def _bags(offsets: Tensor, count: int, last: bool) -> Tensor:
    """The bag of each index."""
    starts = offsets[:-1] if last else offsets
    return (_numbers(count, offsets).unsqueeze(1) >= starts.unsqueeze(0)).to(torch.int64).sum(1) - 1


@_composite(_aten._embedding_bag.default, _aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums, means or largest elements of the rows of each bag: 0 of an empty one."""
    count = offsets.shape[0] - (1 if include_last_offset else 0)
    bag = _bags(offsets, indices.shape[0], include_last_offset)
    counts = (indices != padding_idx).to(torch.int64)
    sizes = offsets.new_zeros(count).scatter_add(0, bag.to(offsets.dtype), counts.to(offsets.dtype))
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    wide = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
    places = bag.unsqueeze(1).expand(rows.shape)
    empty = wide.new_zeros((count, weight.shape[1]))
    if mode == 2:
        wide = torch.where((counts > 0).unsqueeze(1), wide, -math.inf)
        found = torch.full_like(empty, -math.inf).scatter_reduce(0, places, wide, "amax")
        found = torch.where((sizes > 0).unsqueeze(1), found, 0)
        holds = (wide == found[bag]) & (counts > 0).unsqueeze(1)
        largest = torch.where(holds, indices.to(torch.int64).unsqueeze(1), -1)
        places_of = torch.full_like(places[:1].expand(count, -1), -1).scatter_reduce(0, places, largest, "amax")
    else:
        found = empty.scatter_add(0, places, wide * counts.unsqueeze(1))
        found = found / sizes.clamp(min=1).unsqueeze(1) if mode == 1 else found
        places_of = sizes
    return found.to(rows.dtype), bag.to(offsets.dtype), sizes, places_of.to(offsets.dtype)


def _shares_of(rows: Tensor, weights: Tensor | None) -> Tensor:
    return rows if weights is None else rows * weights.unsqueeze(1)


@_composite(_aten._embedding_bag_backward.default)
def _embedding_bag_gradient(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """Each bag's gradient in the rows that it has, or of the largest elements in those that they come from."""
    if sparse:
        return NotImplemented
    made = gradient.new_zeros((num_weights, gradient.shape[1]), dtype=torch.float32)
    wide = gradient.float()
    if mode == 2:
        places = maximum_indices.to(torch.int64)
        return made.scatter_add(0, places.clamp(min=0), torch.where(places >= 0, wide, 0)).to(gradient.dtype)
    bags = offset2bag.to(torch.int64)
    if mode == 1:
        wide = wide / bag_size.clamp(min=1).unsqueeze(1)
    rows = _shares_of(wide[bags], per_sample_weights) * (indices != padding_idx).unsqueeze(1)
    if scale_grad_by_freq:
        counts = wide.new_zeros(num_weights).index_put((indices,), torch.ones_like(rows[:, 0]), accumulate=True)
        rows = rows / counts[indices].unsqueeze(1)
    return made.index_put((indices,), rows, accumulate=True).to(gradient.dtype)


@_composite(_aten._embedding_bag_per_sample_weights_backward.default)
def _bag_weights_gradient(
    gradient: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    found = (gradient[offset2bag.to(torch.int64)] * weight[indices]).sum(1)
    return torch.where(indices != padding_idx, found, 0)
