"""Attention, as its kernels see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionProblem:
    """Attention, as its kernels see it.

    Attributes:
        bits: The bits of an element.
        batch: Batch entries, or sequences without padding.
        queries: Query rows of an entry.
        keys: Most keys that a query sees.
        key_heads: Heads of keys and values.
        group: Query heads that share one of them.
        head_size, value_size: Elements of a row of a head: of queries and keys, and of values.
        quads: Whether all rows that a kernel reads and writes consist of aligned groups of four elements.
        words: Whether they all consist of aligned 16-byte words, and nothing is added to them.
        unpadded: Whether sequences have starts of their own.
        plain: Whether all that is done to scores is to scale them and to add a tensor, and all keys count, so that products
            and a softmax say it.
        causal: Whether a query sees no key behind its own.
        scale: What products of queries and keys are multiplied by.
        bias: Whether a number is added to each score.
        bias_words: Whether rows of these numbers consist of aligned 16-byte words.
        bias_bytes: What they take in memory.
    """

    bits: int
    batch: int
    queries: int
    keys: int
    key_heads: int
    group: int
    head_size: int
    value_size: int
    quads: bool
    words: bool
    unpadded: bool
    plain: bool
    causal: bool
    scale: float
    bias: bool
    bias_words: bool
    bias_bytes: int

    @property
    def rows(self) -> int:
        """Rows of queries that meet one head of keys."""
        return self.queries * self.group

    @property
    def heads(self) -> int:
        """Heads of keys, of all entries."""
        return self.batch * self.key_heads
