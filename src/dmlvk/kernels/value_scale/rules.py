"""The rule of ValueScale2D."""

from __future__ import annotations

from dmlvk.kernels.common.rule import Rule, always

VALUE_SCALE_2D = (
    Rule("channels", when=always, possible=always, because="a launch a channel, each as a unary operator with its own bias"),
)
