"""Properties of matrix products, convolutions, integer products, attention and recurrent networks over random sizes, types,
strides, offsets, options and rules, on the device as it is and as if it were another: the result equals the oracle's and
nothing else is touched.

The problems are those that the families' case files make of given sizes; here the sizes and options are drawn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from drawing import Draw, draw_activation, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType
from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.mask import GROUPS
from dmlvk.directml.ready_operator import initialize
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.plan import Dispatch, KernelVariant
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec import ops
from dmlvk.spec.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    ExecutionFlags,
    MultiheadAttentionMaskType,
    RecurrentNetworkDirection,
)
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases, attention, convolution, integer, matmul, recurrent
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import Outcome, check_problem

T = TensorDataType
Sizes = tuple[int, ...]

EDGES = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 37])
FAR_EDGES = st.sampled_from([63, 64, 65, 96, 127, 128, 129, 131, 160])
"""Around tiles; one of a problem's sizes is among them now and then."""
BYTES = st.sampled_from([T.INT8, T.UINT8])

FAST = frozenset({"float16", "int8", "int16", "integer_dot_product", *GROUPS["cooperative"]})
"""Features that no data type of these families needs."""


def least(caps: Capabilities) -> Capabilities:
    """The device as if it were a GPU of the least limits and features, but for its subgroups."""
    return dataclasses.replace(
        caps,
        features=caps.features - FAST,
        shared_memory_bytes=16384,
        workgroup_invocations=128,
        cooperative_matrices=(),
        is_cpu=False,
    )


MASKS: dict[str, Callable[[Capabilities], Capabilities]] = {
    "as it is": lambda caps: caps,
    "as a GPU": lambda caps: dataclasses.replace(caps, is_cpu=False),
    "least": least,
}


def draw_matrix(draw: Draw) -> tuple[int, int, int]:
    """Rows, depth and columns of a product."""
    sizes = [draw(EDGES) for _ in range(3)]
    if draw(st.booleans()):
        sizes[draw(st.integers(0, 2))] = draw(FAR_EDGES)
    return sizes[0], sizes[1], sizes[2]


def draw_batch(draw: Draw) -> Sizes:
    return tuple(draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2))))


def gemm(draw: Draw) -> Case:
    rows, depth, columns = draw_matrix(draw)
    attributes: dict[str, Any] = {"alpha": draw(st.sampled_from([1.0, 0.5, -2.0]))}
    activation = draw(st.sampled_from([None, ops.ActivationSoftmax(), ops.ElementWiseClip(min=-1.0, max=0.5)]))
    return matmul._case(
        "drawn",
        rows,
        depth,
        columns,
        batch=draw_batch(draw),
        c=draw(st.booleans()),
        a_transposed=draw(st.booleans()),
        b_transposed=draw(st.booleans()),
        beta=draw(st.sampled_from([1.0, 0.0, -0.75])),
        fused_activation=activation or draw_activation(draw),
        **attributes,
    )


class Window:
    """Sizes and attributes of a convolution: any padding, windows wholly in it, strides that skip input.

    Args:
        draw: Hypothesis's.
        dimensions: Most spatial ones.
    """

    def __init__(self, draw: Draw, dimensions: int) -> None:
        count = min(draw(st.sampled_from([1, 2, 2, 2, 3])), dimensions)
        each, more = draw(st.sampled_from([(1, 1), (1, 2), (3, 5), (4, 8), (8, 4), (16, 17), (17, 33)]))
        self.groups = draw(st.sampled_from([1, 1, 2, 3, 8]))
        self.batch = draw(st.integers(1, 3))
        self.channels, self.filters = self.groups * each, self.groups * more
        self.image = tuple(draw(st.sampled_from([1, 2, 3, 5, 8, 9, 13, 16])) for _ in range(count))
        if math.prod(self.image) > 250:
            self.image = (3,) * count
        self.taps = tuple(draw(st.sampled_from([1, 1, 2, 3, 3, 5])) for _ in range(count))
        self.strides = tuple(draw(st.sampled_from([1, 1, 2, 3, 7])) for _ in range(count))
        self.dilations = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(count))
        self.start = tuple(draw(st.sampled_from([0, 0, 1, 2, 6])) for _ in range(count))
        self.end = tuple(draw(st.sampled_from([0, 0, 1, 2, 6])) for _ in range(count))

    @property
    def reach(self) -> Sizes:
        """The sizes that a dilated window covers."""
        return tuple((taps - 1) * step + 1 for taps, step in zip(self.taps, self.dilations, strict=True))

    def fitting(self) -> dict[str, Any]:
        """The attributes; at the end the padding makes room for one window at least."""
        rooms = zip(self.image, self.start, self.end, self.reach, strict=True)
        end = tuple(max(last, reach - size - first) for size, first, last, reach in rooms)
        fixed = {"strides": self.strides, "dilations": self.dilations, "group_count": self.groups}
        return {**fixed, "start_padding": self.start, "end_padding": end}


def convolve(draw: Draw) -> Case:
    window = Window(draw, 3)
    x = (window.batch, window.channels, *window.image)
    attributes = window.fitting()
    outputs: dict[str, Any] = {}
    filters: Sizes = (window.filters, window.channels // window.groups, *window.taps)
    if draw(st.booleans()):
        filters = (window.channels, window.filters // window.groups, *window.taps)
        attributes["direction"] = ConvolutionDirection.BACKWARD
        outputs["output"] = _backward_output(draw, window, attributes)
    padding = tuple(draw(st.sampled_from([0, 0, 0, 2])) for _ in window.image)
    if "output" in outputs:
        padded = zip(outputs["output"][2:], padding, strict=True)
        outputs["output"] = (window.batch, window.filters, *(size + more for size, more in padded))
    return convolution._case(
        "drawn",
        x,
        filters,
        bias=window.filters * draw(st.booleans()),
        mode=draw(st.sampled_from(list(ConvolutionMode))),
        fused_activation=draw(st.sampled_from([None, ops.ElementWiseClip(min=0.0, max=6.0)])) or draw_activation(draw),
        output_padding=padding,
        **attributes,
        **outputs,
    )


def _backward_output(draw: Draw, window: Window, attributes: dict[str, Any]) -> Sizes:
    """A size that a forward convolution takes to the image; the padding takes no more than there is."""
    spatial, start, end = [], [], []
    for at, size in enumerate(window.image):
        full = (size - 1) * window.strides[at] + window.reach[at] + draw(st.integers(0, window.strides[at] - 1))
        start.append(min(window.start[at], full - 1))
        end.append(min(window.end[at], full - 1 - start[at]))
        spatial.append(full - start[at] - end[at])
    attributes |= {"start_padding": tuple(start), "end_padding": tuple(end)}
    return (window.batch, window.filters, *spatial)


KINDS = st.sampled_from(["", "one", "each"])


def multiply_integers(draw: Draw, output: T, **more: Any) -> Case:
    row = ("drawn", *draw_matrix(draw), draw_batch(draw), draw(KINDS), draw(KINDS))
    return integer._product(row, (draw(BYTES), draw(BYTES)), output=output, **more)


def quantized_product(draw: Draw) -> Case:
    return multiply_integers(draw, draw(BYTES), scale=T.FLOAT32, output_parameters=draw(KINDS))


def product_to_float(draw: Draw) -> Case:
    output = draw(st.sampled_from([T.FLOAT32, T.FLOAT16]))
    return multiply_integers(draw, output, scale=output, bias=draw(st.booleans()), rank=draw(st.sampled_from([2, 4])))


def convolve_integers(draw: Draw, output: T, **more: Any) -> Case:
    window = Window(draw, 2)
    x = (window.batch, window.channels, *window.image)
    filters = (window.filters, window.channels // window.groups, *window.taps)
    row = ("drawn", x, filters, draw(st.sampled_from(["", "one"])), draw(KINDS), window.fitting())
    return integer._convolution(row, (draw(BYTES), draw(BYTES)), output=output, **more)


def quantized_convolution(draw: Draw) -> Case:
    parameters = draw(st.sampled_from(["", "one"]))
    return convolve_integers(draw, draw(BYTES), scale=T.FLOAT32, bias=draw(st.booleans()), output_parameters=parameters)


def attend(draw: Draw) -> Case:
    source = draw(
        st.sampled_from(["separate", "separate", "stacked_query_key", "stacked_key_value", "stacked_query_key_value"])
    )
    mask = draw(st.sampled_from(list(MultiheadAttentionMaskType)))
    unpadded = mask is MultiheadAttentionMaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END
    queries, keys = draw(EDGES), draw(st.one_of(EDGES, FAR_EDGES))
    if source in ("stacked_query_key", "stacked_query_key_value"):
        keys = queries
    key_heads = draw(st.integers(1, 3))
    shared = draw(st.sampled_from([1, 1, 2, 3])) if source in ("separate", "stacked_key_value") else 1
    past = None if unpadded else draw(st.sampled_from([None, None, 1, 8, 17]))
    own_values = source in ("separate", "stacked_query_key")
    return attention._case(
        "drawn",
        draw(st.integers(1, 3)),
        queries,
        keys,
        (key_heads * shared, key_heads),
        draw(st.sampled_from([1, 4, 5, 8, 16, 24, 32, 64, 65])),
        value_size=draw(st.sampled_from([0, 0, 3, 16, 40])) if own_values else 0,
        source=source,
        bias=draw(st.booleans()),
        relative=draw(st.booleans()),
        mask=mask,
        past=past,
        lengths=T.INT32 if past is not None and draw(st.booleans()) else None,
        present=draw(st.booleans()),
        dims=draw(st.sampled_from([3, 3, 5])),
    )


def recur(row: type[OperatorDesc], letters: str, outputs: str) -> Callable[[Draw], Case]:
    def drawn(draw: Draw) -> Case:
        steps, batch = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 5, 17]))
        lengths = tuple(draw(st.integers(0, steps + 1)) for _ in range(batch)) if draw(st.booleans()) else ()
        switches: dict[str, Any] = {}
        if row is ops.Lstm:
            switches["couple_input_forget"] = draw(st.booleans())
            switches |= {"clip_threshold": 0.75, "use_clip_threshold": True} if draw(st.booleans()) else {}
        if row is ops.Gru:
            switches["linear_before_reset"] = draw(st.booleans())
        return recurrent._case(
            "drawn",
            row,
            steps,
            batch,
            draw(EDGES),
            draw(st.sampled_from([1, 3, 4, 8, 13, 16, 33, 64, 65])),
            direction=draw(st.sampled_from(list(RecurrentNetworkDirection))),
            given="".join(letter for letter in letters if draw(st.booleans())),
            lengths=lengths,
            outputs="".join(letter for letter in outputs if draw(st.booleans())),
            **switches,
        )

    return drawn


DRAWN: dict[type[OperatorDesc], Callable[[Draw], Case]] = {
    ops.Gemm: gemm,
    ops.Convolution: convolve,
    ops.MatrixMultiplyInteger: lambda draw: multiply_integers(draw, T.INT32),
    ops.QuantizedLinearMatrixMultiply: quantized_product,
    ops.MatrixMultiplyIntegerToFloat: product_to_float,
    ops.ConvolutionInteger: lambda draw: convolve_integers(draw, T.INT32),
    ops.QuantizedLinearConvolution: quantized_convolution,
    ops.MultiheadAttention1: attend,
    ops.Rnn: recur(ops.Rnn, "bh", "sh"),
    ops.Lstm: recur(ops.Lstm, "bhcp", "shc"),
    ops.Gru: recur(ops.Gru, "bh", "sh"),
}
OPERATORS = pytest.mark.parametrize("operator", DRAWN, ids=lambda operator: operator.__name__)


def drawn_problem(draw: Draw, operator: type[OperatorDesc]) -> tuple[Variation, Problem]:
    """A valid problem with its variation."""
    case = DRAWN[operator](draw)
    # Other values than another example has.
    case = dataclasses.replace(case, name=f"{case.name} #{draw(st.integers(0, 2**32 - 1))}")
    data_type = draw(st.sampled_from(case.only or all_cases()[operator].crossed_types))

    def place(kind: T, sizes: Sizes, layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        rank = len(sizes)
        # Images with channels innermost, as often as any other order.
        channels_last = rank in (4, 5) and draw(st.integers(0, 2)) == 0
        order = (1, *range(rank - 1, 1, -1), 0) if channels_last else ()
        # Along broadcast heads all products of a score are equal, and so are their rounding errors, which a softmax of such
        # large scores shows: 14 ULP of 64 terms, where random ones give 2.
        whole = is_output or operator is ops.MultiheadAttention1
        return draw_tensor(draw, kind, sizes, is_output=whole, order=order)

    variation = Variation(case, data_type, "drawn")
    return variation, build(operator, variation, place)


def assert_passed(outcome: Outcome, desc: OperatorDesc) -> None:
    assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{desc}"
    assert not outcome.unsupported, "the CI's device can do everything"


@pytest.mark.parametrize(
    "operator",
    # Attention is several pipelines an example; tests/device/test_attention.py has it against other oracles.
    [pytest.param(own, marks=[pytest.mark.full] if own is dmlvk.MultiheadAttention1 else []) for own in DRAWN],
    ids=lambda operator: operator.__name__,
)
@examples(3)
@given(data=st.data())
def test_what_is_valid_equals_the_oracle(device: dmlvk.Device, operator: type[OperatorDesc], data: st.DataObject) -> None:
    variation, problem = drawn_problem(data.draw, operator)
    with pytest.MonkeyPatch.context() as patch:
        mask = data.draw(st.sampled_from(sorted(MASKS)))
        patch.setattr(device, "capabilities", MASKS[mask](device.capabilities))
        rule = data.draw(st.sampled_from(["", *possible_rules(problem.desc, device.capabilities)]))
        outcome = check_problem(device, all_cases()[operator], dataclasses.replace(variation, rule=rule), problem)
    assert_passed(outcome, problem.desc)


@pytest.mark.slow
@pytest.mark.parametrize(
    "operator",
    (
        *(ops.Gemm, ops.Convolution, ops.MultiheadAttention1),
        *(ops.QuantizedLinearMatrixMultiply, ops.QuantizedLinearConvolution),  # for all that multiply integers
    ),
    ids=lambda operator: operator.__name__,
)
def test_a_device_of_the_least_limits_gets_right_kernels(
    device: dmlvk.Device, operator: type[OperatorDesc], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever makes a quick case launch pipelines that only the limits ask for, each of these once, with one type; of other
    cases that is seen in their plans (tests/host/test_lowering_limits.py), and some are drawn above."""
    entry, own = all_cases()[operator], device.capabilities
    cases = [case for case in entry.cases if case.quick]
    variations = [Variation(case, kind, "packed") for case in cases for kind in case.only or entry.crossed_types]
    problems = [build(operator, variation) for variation in variations]
    seen: set[KernelVariant] = set()
    for caps in (own, dataclasses.replace(own, is_cpu=False)):
        seen.update(*(pipelines for problem in problems for _, pipelines in planned(problem.desc, caps)))
    monkeypatch.setattr(device, "capabilities", least(own))
    met: set[tuple[str, tuple[tuple[str, int], ...]]] = set()
    for variation, problem in zip(variations, problems, strict=True):
        for rule, pipelines in planned(problem.desc, device.capabilities):
            of_any_type = {(pipeline.kernel, pipeline.constants) for pipeline in pipelines - seen}
            if of_any_type - met:
                met |= of_any_type
                outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
                assert_passed(outcome, problem.desc)


def planned(desc: OperatorDesc, caps: Capabilities) -> Iterator[tuple[str, set[KernelVariant]]]:
    """Each possible rule with the pipelines that it launches."""
    for rule in possible_rules(desc, caps):
        launches = lower(desc, caps, force=rule).dispatches
        yield rule, {launch.kernel for launch in launches if isinstance(launch, Dispatch)}


def test_half_precision_only_where_it_is_allowed(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the flag the product is float32's; with it, it may be that of the factors rounded to float16, and is where the
    device multiplies those."""
    monkeypatch.setattr(device, "capabilities", MASKS["as a GPU"](device.capabilities))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64), np.float32) for _ in range(2))
    tensor = dmlvk.TensorDesc(T.FLOAT32, (64, 64))
    operator = device.create_operator(ops.Gemm(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor))

    def product(flags: ExecutionFlags) -> NDArray[np.float32]:
        compiled = device.compile_operator(operator, flags)
        initialize(device, compiled)
        buffers = [device.create_buffer(a.nbytes) for _ in range(3)]
        for buffer, array in zip(buffers, (a, b), strict=False):
            buffer.write(array)
        table = device.create_binding_table(compiled)
        table.bind_inputs([BufferBinding(buffers[0]), BufferBinding(buffers[1]), None])
        table.bind_outputs([BufferBinding(buffers[2])])
        if size := compiled.get_binding_properties().temporary_resource_size:
            table.bind_temporary_resource(BufferBinding(device.create_buffer(size)))
        commands = device.create_command_list()
        device.create_command_recorder().record_dispatch(commands, compiled, table)
        device.execute(commands)
        return buffers[2].read().view(np.float32).reshape(64, 64)

    exact, halves = (a.astype(np.float64) @ b for a, b in ((a, b), (a.astype(np.float16), b.astype(np.float16))))
    limit = 1e-6 * (np.abs(a) @ np.abs(b)).max()
    np.testing.assert_allclose(product(ExecutionFlags.NONE), exact, rtol=0, atol=limit)
    allowed = product(ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION)
    multiplies_halves = cooperative_matrix(device.capabilities, "float16", "float32") is not None
    np.testing.assert_allclose(allowed, halves if multiplies_halves else exact, rtol=0, atol=limit)
    assert np.abs(exact - halves).max() > 4 * limit, "the two are told apart"
