"""Attention of tensors on the device: one operator with one gradient, and not PyTorch's products and sums."""

from __future__ import annotations

from typing import Any

import torch


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``scaled_dot_product_attention``, by the operator that PyTorch has for processors, which has a converter."""
    parts = (query, key, value)
    is_plain = all(own.dim() == 4 and own.shape[-1] == query.shape[-1] and own.numel() for own in parts) and not dropout_p
    has_batch = is_plain and key.shape[0] == value.shape[0] == query.shape[0]
    # one head for all queries is what broadcasting says, too
    has_heads = is_plain and (enable_gqa or (key.shape[1] == value.shape[1] and key.shape[1] in (1, query.shape[1])))
    takes_mask = attn_mask is None or not (attn_mask.requires_grad or is_causal or attn_mask.dim() not in (2, 4))
    if has_batch and has_heads and takes_mask:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        return flash(query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]
    if attn_mask is not None and attn_mask.dtype is torch.bool:  # the operator below adds its mask
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(attn_mask.logical_not(), -torch.inf)
    plain = torch.ops.aten._scaled_dot_product_attention_math.default
    return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
