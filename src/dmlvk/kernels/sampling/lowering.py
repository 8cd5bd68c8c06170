"""Plans for the choice of tokens."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import linear_grid, most_invocations
from dmlvk.kernels.sampling.manifest import BIN_WORDS, BINS, CHUNK
from dmlvk.kernels.sampling.rules import SAMPLING, SamplingProblem
from dmlvk.spec.ops.sample_token import SampleToken

_LOGITS, _CONTROLS, _HISTORY, _LENGTHS = map(input_range, range(4))
_PREPARING, _CHOOSING, _CPU_CHOOSING = 256, 1024, 128
"""Invocations of a workgroup that prepares a chunk, and of one that counts it, of which the last chooses. A CPU's driver
takes time for each invocation, also where a workgroup leaves at once."""
_AT_ONCE, _CPU_AT_ONCE = 8, 1
"""Tokens that an invocation loads at a time. A CPU's driver takes longer to compile several: lavapipe (Mesa 25) 9 s for one,
12 for 8."""


def _problem(desc: SampleToken) -> SamplingProblem:
    return SamplingProblem(*desc.tensor("logits_tensor").sizes)


def _histograms(desc: SampleToken, problem: SamplingProblem, caps: Capabilities) -> Plan:
    sequences = problem.sequences
    chunks = -(-problem.vocabulary // CHUNK)
    temporary = Resource(Source.TEMPORARY)
    values = temporary.take(4 * sequences * chunks * CHUNK)
    bests = temporary.take(8 * sequences * chunks)
    bins = temporary.take(4 * sequences * (BINS * BIN_WORDS + 1))  # and a counter
    sizes = {"sequences": sequences, "vocabulary": problem.vocabulary, "chunks": chunks}
    counted = {"room": desc.tensor("history_tensor").sizes[1], "pending": desc.pending}
    most = most_invocations(caps)
    has_history, has_lengths = desc.output_history_tensor is not None, desc.output_lengths_tensor is not None
    tokens = output_range()
    prepare = make_dispatch(
        "sample_prepare",
        (_LOGITS, _CONTROLS, _HISTORY, _LENGTHS, values, bests, bins),
        linear_grid(sequences * chunks, caps),
        variant={"T": desc.tensor("logits_tensor").data_type.name},
        constants={"LOCAL_SIZE_X": min(_PREPARING, most)},
        **sizes,
        **counted,
    )
    choose = make_dispatch(
        "sample_choose",
        (
            *(_CONTROLS, _LENGTHS, values, bests, bins, tokens),
            output_range(1) if has_history else tokens,
            output_range(2) if has_lengths else tokens,
        ),
        linear_grid(sequences * chunks, caps),
        variant={"T": "FLOAT32"},
        constants={
            "LOCAL_SIZE_X": min(_CPU_CHOOSING if caps.is_cpu else _CHOOSING, most),
            "HAS_HISTORY": has_history,
            "HAS_LENGTHS": has_lengths,
            "AT_ONCE": _CPU_AT_ONCE if caps.is_cpu else _AT_ONCE,
        },
        **sizes,
        **counted,
    )
    return Plan((prepare, choose), temporary_bytes=temporary.end)


register(SampleToken, problem=_problem, rules=SAMPLING, schedules={"histograms": _histograms})
