"""``torch.autocast("dmlvk")``: which operators compute in the type it names, in float32, or in their arguments' widest.

The lists are those that PyTorch documents for CUDA ("Autocast Op Reference"), by the operators' names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from dmlvk.torch.memory import DEVICE, is_on_device

_KEY: Final = "AutocastPrivateUse1"
_LOWER: Final = (
    *("_convolution", "conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding", "conv_tbc"),
    *("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv"),
    *("addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul"),
    *("linalg_multi_dot", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention"),
)
"""Those that compute in the type that autocast names."""
_FLOAT32: Final = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm"),
    *("rms_norm", "group_norm", "norm.Scalar", "norm.ScalarOpt_dim", "cosine_similarity", "poisson_nll_loss"),
    *("cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss"),
    *("huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss"),
    *("triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist"),
    *("renorm", "logsumexp", "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum"),
    *("linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList"),
)
"""Those that compute in float32."""
_WIDEST: Final = ("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add")
"""Those whose arguments need one type."""


def _is_cast(leaf: Any) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and is_on_device(leaf)
        and leaf.is_floating_point()
        and leaf.dtype is not torch.float64
    )


def _widest(leaves: list[Any]) -> torch.dtype:
    wide = any(leaf.dtype is torch.float32 for leaf in leaves if _is_cast(leaf))
    return torch.float32 if wide else torch.get_autocast_dtype(DEVICE)


def _kernel(operator: Any, dtype_of: Callable[[list[Any]], torch.dtype]) -> Callable[..., Any]:
    excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def run(*args: Any, **options: Any) -> Any:
        leaves, tree = pytree.tree_flatten((args, options))
        dtype = dtype_of(leaves)
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            cast = [leaf.to(dtype) if _is_cast(leaf) and leaf.dtype is not dtype else leaf for leaf in leaves]
            given, named = pytree.tree_unflatten(cast, tree)
            return operator(*given, **named)

    return run


def install() -> tuple[torch.library.Library, ...]:
    """Has PyTorch's autocast know the device; the libraries are to be kept."""
    own, rest = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, _KEY)
    kinds: tuple[tuple[tuple[str, ...], Callable[[list[Any]], torch.dtype]], ...] = (
        (_LOWER, lambda _: torch.get_autocast_dtype(DEVICE)),
        (_FLOAT32, lambda _: torch.float32),
        (_WIDEST, _widest),
    )
    for names, dtype_of in kinds:
        for name in names:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            own.impl(name, _kernel(operator, dtype_of), _KEY)
    return own, rest
