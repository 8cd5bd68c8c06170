"""Passes make a graph cheaper without changing what it computes: THE list of passes, in the order in which they run.

Each can be switched off by its name. A pass is a function that rewrites a ``StepGraph``; what it may do is said where it is
defined. What it leaves without a reader is removed behind it. Results agree with those of the graph as it was within the
tolerances of the operators: a value that is no longer rounded in between is the only difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from dmlvk.graph.passes.activation import fuse_activations, recognise_swish
from dmlvk.graph.passes.attention import recognise_attention
from dmlvk.graph.passes.bfloat16 import multiply_bits, round_behind_copies
from dmlvk.graph.passes.bias import fuse_additions, fuse_operand_scales, fuse_residuals, fuse_scales
from dmlvk.graph.passes.chain import merge_chains
from dmlvk.graph.passes.constants import run_constants_once
from dmlvk.graph.passes.copies import remove_identities, share_ranges
from dmlvk.graph.passes.gate import fuse_gates
from dmlvk.graph.passes.gelu import recognise_gelu
from dmlvk.graph.passes.images import lay_channels_last
from dmlvk.graph.passes.join import join_in_place
from dmlvk.graph.passes.layout import avoid_layout_copies
from dmlvk.graph.passes.normalization import (
    fold_batch_normalization,
    fold_column_scales,
    recognise_layer_normalization,
    recognise_root_mean_square,
)
from dmlvk.graph.passes.product_rows import normalize_products
from dmlvk.graph.passes.products import fuse_normalizations, join_products
from dmlvk.graph.passes.rotary import recognise_rotary
from dmlvk.graph.passes.softmax import recognise_softmax_or_zero
from dmlvk.graph.passes.tensors import join_tensors
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import DerivedConstants, StepGraph
from dmlvk.spec.errors import InvalidArgumentError


class Pass(NamedTuple):
    """One rewriting.

    Attributes:
        name: The name that ``without`` takes to switch it off.
        saves: The cost that it saves, as a phrase.
        run: The function that rewrites a graph.
    """

    name: str
    saves: str
    run: Callable[[StepGraph], None]


PASSES: Final = (
    Pass("dead", "steps whose results nobody reads", StepGraph.remove_dead_steps),
    Pass("identity", "a read and a write of what is copied as it is", remove_identities),
    Pass("layer_normalization", "eight reads and writes of the tensor of two", recognise_layer_normalization),
    Pass(
        "root_mean_square",
        "a read and a write of the tensor of two, and three dispatches of four",
        recognise_root_mean_square,
    ),
    Pass("gelu", "four reads and writes of the tensor of five", recognise_gelu),
    Pass("rotary", "four reads and writes of the tensor of five", recognise_rotary),
    Pass("operand_scale", "a read and a write of a product's factor", fuse_operand_scales),
    Pass("softmax_or_zero", "two reads and a write of the tensor", recognise_softmax_or_zero),
    Pass("rounding", "what the next pass saves where a rounding to BFLOAT16 is in its way", round_behind_copies),
    Pass("attention", "the scores: they never reach memory", recognise_attention),
    Pass("swish", "a read and a write of the tensor", recognise_swish),
    Pass("batch_normalization", "a read and a write of a convolution's output", fold_batch_normalization),
    Pass("scale", "a read and a write of a product's output", fuse_scales),
    Pass("addition", "a read and a write of a product's output", fuse_additions),
    Pass("column_scale", "a read and a write of a product's output, where a layer scales it", fold_column_scales),
    Pass("gate", "the launches of a product and of its gate, and a write and a read of what both make", fuse_gates),
    Pass(
        "bfloat16",
        "half of the bytes that a product of such numbers reads, and most of its time on a device with matrices of them",
        multiply_bits,
    ),
    Pass("products", "the launches of several products of one tensor but those of one", join_products),
    Pass("residual", "a read and a write of a product's output", fuse_residuals),
    Pass("activation", "a read and a write of the tensor", fuse_activations),
    Pass(
        "rows_of_products",
        "a launch, and a write and a read of a product's output, where a product is in parts",
        normalize_products,
    ),
    Pass("channels_last", "a copy of what each FLOAT16 convolution reads", lay_channels_last),
    Pass("normalized_products", "the launch of a normalization before a product of a few rows", fuse_normalizations),
    Pass("constants", "what would be the same in every run", run_constants_once),
    Pass("chain", "what lies between pointwise operators: a write and a read of each", merge_chains),
    Pass("tensors", "the launches of one chain for several tensors but one, as in an optimiser's step", join_tensors),
    Pass("layout", "a read and a write of what lies otherwise", avoid_layout_copies),
    Pass("split", "a read and a write of each piece", share_ranges),
    Pass("join", "a read and a write of each piece", join_in_place),
)


def optimized(
    steps: Iterable[Step],
    outputs: Iterable[Storage],
    *,
    without: Collection[str] = (),
    memory: DerivedConstants | None = None,
) -> tuple[Step, ...]:
    """The steps after all passes.

    Args:
        steps: Steps in an order in which each comes after what it reads.
        outputs: Storages that are read after the last of them.
        without: Names of passes to leave out; "all" leaves out every one.
        memory: Constants derived before, and where new ones are kept.

    Raises:
        InvalidArgumentError: ``without`` names no pass.
    """
    known = {item.name for item in PASSES}
    for name in without:
        if name not in known and name != "all":
            raise InvalidArgumentError(
                f"must name passes, which are {', '.join(sorted(known))}, or all", field="without", value=name
            )
    chosen = [item for item in PASSES if item.name not in without and "all" not in without]
    graph = StepGraph(steps, outputs, memory, keeps_dead_steps="dead" not in {item.name for item in chosen})
    for item in chosen:
        item.run(graph)
        graph.remove_dead_steps()
    return graph.finished()
