"""Plans for recurrent networks.

The input's products of all steps do not depend on each other: one matrix product makes them, in float32, with a bias
added later. What remains of a step is the product of the state with the recurrence matrix, the gates and the new state,
in one dispatch (two for a GRU whose reset gate comes before its product), or all steps in one dispatch where the network
is small. States are float32 in temporary memory. What the steps read many times is staged there as well, as packed rows
of float32, unless it lies in memory like that already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LAUNCHES, LOOP_ROUNDS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Repetition, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import (
    WORD_BITS,
    check_rounds,
    linear_grid,
    most_invocations,
    part_starts,
    power_of_two,
)
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.matmul.lowering import products_of_halves
from dmlvk.kernels.recurrent.manifest import MOST_ENTRIES, Cell
from dmlvk.kernels.recurrent.rules import (
    RECURRENT,
    STEP_ALIGNMENT,
    RecurrentProblem,
    block_shape,
    most_lanes,
    most_steps,
    projected_steps,
    resident_shape,
    step_tile,
)
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, RecurrentNetworkDirection, TensorDataType
from dmlvk.spec.size import is_symbolic
from dmlvk.spec.tensor import TensorDesc, element_bits

Recurrent = ops.Rnn | ops.Lstm | ops.Gru

_MANY_WORKGROUPS: Final = 4
"""Workgroups of 128 invocations for each processor: on an H200 64 sequences of 512 units take 1.57 ms with larger ones and
1.79 without; 16 sequences take 0.88 with them and 0.78 without."""


_HALVES: Final = WORD_BITS // 16
"""Elements of FLOAT16 in a word."""
_BOUNDED: Final = (ops.ActivationHardSigmoid, ops.ActivationSigmoid, ops.ActivationSoftsign, ops.ActivationTanh)
"""Functions whose results are no larger than 1."""


class _Work:
    """A plan being made.

    Attributes:
        caps: The device.
        temporary, persistent: Its memory.
        launches, initialize: The launches of an execution and of the initialisation.
    """

    def __init__(self, caps: Capabilities) -> None:
        self.caps = caps
        self.temporary = Resource(Source.TEMPORARY)
        self.persistent = Resource(Source.PERSISTENT)
        self.launches: list[Launch] = []
        self.initialize: list[Launch] = []
        self._repetition: Repetition | None = None

    def launch_steps(self, steps: int, turn: Callable[[int], Sequence[Dispatch]]) -> None:
        """Launches so many steps, of which every second one differs in its number alone.

        Args:
            steps: The steps. Of a symbolic number there are the first two, which come again.
            turn: The launches of a step.
        """
        if not is_symbolic(steps):
            self.launches += [launch for step in range(steps) for launch in turn(step)]
            return
        turns = (*turn(0), *turn(1))
        each = len(turns) // 2
        first, counter = len(self.launches), KERNELS[turns[0].kernel.kernel].place_of("step")
        self._repetition = Repetition(first, first + 2 * each, steps * each, each, counter)
        self.launches += turns

    def plan(self) -> Plan:
        """The plan of the launches so far, with the bytes of both resources."""
        return Plan(
            tuple(self.launches),
            temporary_bytes=self.temporary.end,
            persistent_bytes=self.persistent.end,
            initialize=tuple(self.initialize),
            repetition=self._repetition,
        )


class _States(NamedTuple):
    """The places of the sets of states, in elements of one range: two that take turns, the cells (or update gates), and the
    input of a GRU's second product."""

    range: Range
    row: int
    hidden: tuple[int, int]
    cell: int
    reset: int


def _slot(desc: Recurrent, name: str) -> Range:
    names = [slot.field.name for slot in desc.input_slots()]
    return input_range(names.index(name))


def _tensor(desc: Recurrent, name: str) -> TensorDesc | None:
    tensor = getattr(desc, name, None)
    assert tensor is None or isinstance(tensor, TensorDesc), f"{name} is a tensor"
    return tensor


def _problem(desc: Recurrent) -> RecurrentProblem:
    _, steps, batch, inputs = desc.tensor("input_tensor").sizes
    _, directions, rows, hidden = desc.tensor("recurrence_tensor").sizes
    products = 2 if isinstance(desc, ops.Gru) and not desc.linear_before_reset else 1
    recurrence = desc.tensor("recurrence_tensor")
    _, plane, row, element = recurrence.effective_strides
    is_half = recurrence.data_type == TensorDataType.FLOAT16
    return RecurrentProblem(
        rows // hidden,
        products,
        directions,
        steps,
        batch,
        inputs,
        hidden,
        _is_divisible(desc),
        halves=is_half and element == 1 and not (hidden | plane | row) % _HALVES,
        bounded=all(isinstance(activation, _BOUNDED) for activation in desc.activation_descs),
    )


def _is_divisible(desc: Recurrent) -> bool:
    """Not where sequences of their own lengths are reversed: they read any element at a step. Nor where the second
    direction's weights start between two words."""
    if desc.direction == RecurrentNetworkDirection.FORWARD:
        return True
    weights = desc.tensor("weight_tensor")
    is_half = weights.data_type != TensorDataType.FLOAT32
    plane = math.prod(weights.sizes[2:]) if is_half else weights.effective_strides[1]
    starts_on_words = plane % 4 == 0 or weights.sizes[1] == 1
    return desc.sequence_lengths_tensor is None and starts_on_words


def _cells(desc: Recurrent) -> tuple[int, ...]:
    """The constant CELL of each dispatch of a step."""
    if isinstance(desc, ops.Rnn):
        return (Cell.RNN,)
    if isinstance(desc, ops.Lstm):
        return (Cell.LSTM,)
    return (Cell.GRU,) if desc.linear_before_reset else (Cell.GRU_RESET, Cell.GRU_STATE)


# -- staging


def _stage(x: TensorDesc, source: Range, target: Range, row: int, rows: int, given: int, caps: Capabilities) -> Dispatch:
    """Writes ``rows`` rows of ``row`` float32 numbers: the first ``given`` are the tensor's, the rest 0."""
    local = min(128, caps.workgroup_invocations)
    return make_dispatch(
        "recurrent_stage",
        (source, target),
        linear_grid(-(-rows * row // local), caps),
        variant={"T": x.data_type.name},
        constants={"LOCAL_SIZE_X": local},
        count=rows * row,
        given=given,
        columns=x.sizes[3],
        row=row,
        rows=x.sizes[1:3],
        strides=x.effective_strides,
    )


def _states(desc: Recurrent, problem: RecurrentProblem, work: _Work) -> _States:
    """Room for the states, and what writes the first ones. Padding is 0 in every set that a product reads."""
    row = 4 * problem.quads
    rows = problem.directions * problem.batch
    has_cell = isinstance(desc, ops.Lstm)
    # In the order in which one dispatch can write them: the initial states, then zeros.
    sets = 1 + problem.products
    hidden = work.temporary.take(4 * sets * rows * row)
    cell = work.temporary.take(4 * rows * row) if has_cell or problem.products == 2 else hidden
    firsts = [("hidden_init_tensor", hidden, sets * rows)] + [("cell_mem_init_tensor", cell, rows)] * has_cell
    for name, target, count in firsts:
        given = _tensor(desc, name)
        source = _slot(desc, name) if given is not None else input_range(0)
        tensor = given if given is not None else desc.tensor("input_tensor")
        work.launches.append(_stage(tensor, source, target, row, count, rows if given is not None else 0, work.caps))
    return _States(
        hidden._replace(nbytes=work.temporary.end - hidden.offset),
        row,
        (0, rows * row),
        (cell.offset - hidden.offset) // 4,
        2 * rows * row if problem.products == 2 else 0,
    )


def _staged(desc: Recurrent, name: str, row: int, work: _Work) -> tuple[Range, int, int]:
    """An input as packed rows of float32, each padded to ``row`` elements: the range, and the steps of its planes and rows
    in elements. One that is OWNED_BY_DML is staged at initialisation."""
    tensor = desc.tensor(name)
    rows = math.prod(tensor.sizes[:3])
    target = (work.persistent if tensor.owned_by_dml else work.temporary).take(4 * rows * row)
    launch = _stage(tensor, _slot(desc, name), target, row, rows, rows, work.caps)
    (work.initialize if tensor.owned_by_dml else work.launches).append(launch)
    return target, tensor.sizes[2] * row, row


# -- the input's products


def _row_step(tensor: TensorDesc) -> int | None:
    """The distance in memory of the rows of both dimensions before the last; None if one number does not say it."""
    _, planes, rows, _ = tensor.sizes
    _, plane, step, _ = tensor.effective_strides
    if rows == 1:
        return plane
    return step if planes == 1 or plane == step * rows else None


class _Factor(NamedTuple):
    """A tensor that is multiplied: where it lies, and its strides in elements."""

    range: Range
    strides: tuple[int, ...]


def _weights(desc: Recurrent, problem: RecurrentProblem, work: _Work) -> _Factor:
    """W in float32, with its strides of directions, rows and columns."""
    if desc.tensor("input_tensor").data_type == TensorDataType.FLOAT32:
        return _Factor(_slot(desc, "weight_tensor"), desc.tensor("weight_tensor").effective_strides[1:])
    w_range, plane, row = _staged(desc, "weight_tensor", problem.inputs, work)
    return _Factor(w_range, (plane, row, 1))


def _inputs(desc: Recurrent, problem: RecurrentProblem, work: _Work, first: int, count: int) -> _Factor:
    """So many steps of x in float32, with the strides of rows, which are sequences of steps, and columns."""
    x = desc.tensor("input_tensor")
    _, _, batch, columns = x.sizes
    x_step = _row_step(x)
    x_range = _slot(desc, "input_tensor")
    if count < problem.steps:
        start = first * x.effective_strides[1] * element_bits(x.data_type) // 8
        x = TensorDesc(x.data_type, (1, count, batch, columns), x.effective_strides)
        x_range = x_range._replace(offset=start, nbytes=x.total_tensor_size_in_bytes)
    if x.data_type == TensorDataType.FLOAT32 and x_step is not None:
        return _Factor(x_range, (x_step, x.effective_strides[3]))
    target = work.temporary.take(4 * count * batch * columns)
    work.launches.append(_stage(x, x_range, target, columns, count * batch, count * batch, work.caps))
    return _Factor(target, (columns, 1))


class _Products(NamedTuple):
    """x[t] W^T in float32, as [direction, step, sequence, gate, unit].

    Attributes:
        range: Where they lie.
        steps: The steps of a direction.
        firsts: The position in the sequence of the first of them, for both directions.
    """

    range: Range
    steps: int
    firsts: tuple[int, int]


def _projection(desc: Recurrent, problem: RecurrentProblem, work: _Work) -> _Products:
    """The products of all steps: of float16 by matrices where the device has them, else of what is staged in float32."""
    output = work.temporary.take(problem.projection_bytes)
    x, w = desc.tensor("input_tensor"), desc.tensor("weight_tensor")
    x_step = _row_step(x)
    has_matrices = cooperative_matrix(work.caps, "float16", "float32") is not None and matrices_pay(work.caps, "float16")
    if x.data_type == TensorDataType.FLOAT16 and x_step is not None and has_matrices:
        given = _Factor(_slot(desc, "input_tensor"), (x_step, x.effective_strides[3]))
        weights = _Factor(_slot(desc, "weight_tensor"), w.effective_strides[1:])
        _multiply(problem, work, (given, weights), output, problem.steps, problem.directions, x.data_type)
    else:
        weights = _weights(desc, problem, work)
        given = _inputs(desc, problem, work, 0, problem.steps)
        _multiply(problem, work, (given, weights), output, problem.steps, problem.directions)
    return _Products(output, problem.steps, (0, 0))


def _projection_of_part(
    desc: Recurrent, problem: RecurrentProblem, work: _Work, w: _Factor, first: int, last: int
) -> _Products:
    """The products of the positions that steps from ``first`` to ``last`` read."""
    steps, directions = problem.steps, problem.directions
    turned = steps - last - (steps - last) % STEP_ALIGNMENT
    is_backward = desc.direction == RecurrentNetworkDirection.BACKWARD
    spans = [(turned, steps - first) if is_backward else (first, last), (turned, steps - first)][:directions]
    longest = max(end - start for start, end in spans)
    most = -(-longest // STEP_ALIGNMENT) * STEP_ALIGNMENT
    output = work.temporary.take(most * problem.step_bytes)
    part_bytes = most * problem.step_bytes // directions
    for direction, (start, end) in enumerate(spans):
        x = _inputs(desc, problem, work, start, end - start)
        offset = direction * w.strides[0] * 4
        own = _Factor(w.range._replace(offset=w.range.offset + offset), (0, *w.strides[1:]))
        part = output._replace(offset=output.offset + direction * part_bytes, nbytes=part_bytes)
        _multiply(problem, work, (x, own), part, end - start, 1)
    return _Products(output, most, (spans[0][0], spans[-1][0]))


def _multiply(
    problem: RecurrentProblem,
    work: _Work,
    factors: tuple[_Factor, _Factor],
    output: Range,
    steps: int,
    directions: int,
    data_type: TensorDataType = TensorDataType.FLOAT32,
) -> None:
    """Launches the product of so many steps of x and the weights of so many directions, factors of a type."""
    x, w = factors
    rows, columns = steps * problem.batch, problem.gates * problem.hidden
    a = TensorDesc(data_type, (1, directions, rows, problem.inputs), (0, 0, *x.strides))
    b = TensorDesc(data_type, (1, directions, columns, problem.inputs), (0, *w.strides))
    y = TensorDesc(TensorDataType.FLOAT32, (1, directions, rows, columns))
    if data_type == TensorDataType.FLOAT32:
        product = ops.Gemm(a_tensor=a, b_tensor=b, output_tensor=y, trans_b=MatrixTransform.TRANSPOSE)
        plan = chosen_plan(product, work.caps)
    else:
        plan = products_of_halves(a, b, y, work.caps)
    scratch = work.temporary.take(plan.temporary_bytes)
    work.launches += placed(plan, inputs=(x.range, w.range), outputs=(output,), temporary=scratch.offset)


# -- the steps


def _activations(desc: Recurrent) -> tuple[dict[str, int], tuple[float, ...]]:
    """The constants ACTIVATION_F, _G, _H of both directions, and all their parameters."""
    directions = 2 if desc.direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1
    functions = len(desc.activation_descs) // directions
    constants: dict[str, int] = {}
    parameters = [0.0] * 12
    for direction in range(2):
        # One direction alone has both sets, so that the shader's choice between them folds away.
        first = functions * direction % len(desc.activation_descs)
        for index, activation in enumerate(desc.activation_descs[first : first + functions]):
            arguments = fused(activation)
            constants["ACTIVATION_" + "FGH"[index] + "1" * direction] = arguments.id
            at = 6 * direction + 2 * index
            parameters[at : at + 2] = [arguments.param0, arguments.param1]
    return constants, tuple(parameters)


class _Cell(NamedTuple):
    """The arguments of every kernel that advances states: constants, parameters and the ranges of its shared buffers."""

    constants: dict[str, int]
    params: dict[str, int | float | tuple[int, ...] | tuple[float, ...]]
    bindings: tuple[Range, ...]


def _cell(desc: Recurrent, problem: RecurrentProblem, states: _States) -> _Cell:
    constants, parameters = _activations(desc)
    outputs = {slot.field.name: index for index, slot in enumerate(desc.output_slots()) if slot.tensor is not None}

    def strides(name: str, first: int) -> tuple[int, ...]:
        tensor = _tensor(desc, name)
        return (0,) if tensor is None else tensor.effective_strides[first:]

    def bound(name: str) -> Range:
        """The tensor's range; of an absent one any that the kernel may read, or write."""
        if name.startswith("output"):
            return output_range(outputs[name]) if name in outputs else states.range
        return input_range(0) if _tensor(desc, name) is None else _slot(desc, name)

    clip = float(desc.clip_threshold) if isinstance(desc, ops.Lstm) and desc.use_clip_threshold else None
    constants |= {
        "HAS_CELL": int(isinstance(desc, ops.Lstm) or problem.products == 2),
        "HAS_BIAS": int(desc.bias_tensor is not None),
        "HAS_PEEPHOLE": int(_tensor(desc, "peephole_tensor") is not None),
        "HAS_LENGTHS": int(desc.sequence_lengths_tensor is not None),
        "HAS_SEQUENCE": int("output_sequence_tensor" in outputs),
        "HAS_SINGLE": int("output_single_tensor" in outputs),
        "HAS_CELL_SINGLE": int("output_cell_single_tensor" in outputs),
        "CLIPPED": int(clip is not None),
        "COUPLED": int(isinstance(desc, ops.Lstm) and desc.couple_input_forget),
    }
    params: dict[str, int | float | tuple[int, ...] | tuple[float, ...]] = {
        "steps": problem.steps,
        "batch": problem.batch,
        "hidden": problem.hidden,
        "row": states.row,
        "first_reversed": 0 if desc.direction == RecurrentNetworkDirection.BACKWARD else 1,
        "previous": states.hidden[0],
        "cell": states.cell,
        "bias_strides": strides("bias_tensor", 2),
        "peephole_strides": strides("peephole_tensor", 2),
        "lengths_stride": strides("sequence_lengths_tensor", 3)[0],
        "sequence_strides": strides("output_sequence_tensor", 0),
        "single_strides": strides("output_single_tensor", 1),
        "cell_single_strides": strides("output_cell_single_tensor", 1),
        "clip": clip or 0.0,
        "activation_params": parameters,
    }
    names = ("bias_tensor", "peephole_tensor", "sequence_lengths_tensor")
    outs = ("output_sequence_tensor", "output_single_tensor", "output_cell_single_tensor")
    return _Cell(constants, params, (*map(bound, names), states.range, *map(bound, outs)))


def _step_params(states: _States, step: int, cell: int) -> dict[str, int | tuple[int, ...]]:
    """The parameters of a dispatch of a step, the states taking turns."""
    previous, following = states.hidden[step % 2], states.hidden[1 - step % 2]
    return {
        "step": step,
        "previous": previous,
        "next": states.reset if cell == Cell.GRU_RESET else following,
        "vector": states.reset if cell == Cell.GRU_STATE else previous,
    }


def _dispatch(
    desc: Recurrent,
    kernel: str,
    cell: _Cell,
    bindings: Iterable[Range],
    constants: dict[str, int],
    params: dict[str, int | tuple[int, ...]],
    grid: tuple[int, int, int],
    subgroup_size: int = 0,
) -> Dispatch:
    return make_dispatch(
        kernel,
        (*bindings, *cell.bindings),
        grid,
        subgroup_size,
        variant={"T": desc.tensor("input_tensor").data_type.name},
        constants=cell.constants | constants,
        **cell.params | params,
    )


def _check_launches(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities, each: int = 1) -> None:
    """That the launches are not too many, where each takes so many steps."""
    launches = -(-problem.step_launches // each)
    if launches > caps.max_launches:
        found = f"{problem.steps} steps take {launches} launches; Device(max_launches=...) allows {caps.max_launches}"
        raise LAUNCHES.error(found, desc.dml_name)


def _naive(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities) -> Plan:
    check_rounds(problem.gates * (problem.inputs + problem.hidden), caps, desc.dml_name)
    _check_launches(desc, problem, caps)
    work = _Work(caps)
    states = _states(desc, problem, work)
    cell = _cell(desc, problem, states)
    local = min(128, caps.workgroup_invocations)
    count = problem.directions * problem.batch * problem.hidden
    names = ("input_tensor", "weight_tensor", "recurrence_tensor")
    x, w, r = (desc.tensor(name).effective_strides[1:] for name in names)
    own: dict[str, int | tuple[int, ...]] = {"count": count, "inputs": problem.inputs}
    own |= {"x_strides": x, "w_strides": w, "r_strides": r}

    def turn(step: int) -> list[Dispatch]:
        bindings, grid = [_slot(desc, name) for name in names], linear_grid(-(-count // local), caps)
        return [
            _dispatch(
                desc,
                "recurrent_naive",
                cell,
                bindings,
                {"LOCAL_SIZE_X": local, "CELL": kind},
                own | _step_params(states, step, kind),
                grid,
            )
            for kind in _cells(desc)
        ]

    work.launch_steps(problem.steps, turn)
    return work.plan()


class _Shape(NamedTuple):
    """The division of the units' products among invocations; see ``glsl/recurrent_step.comp``."""

    local: int
    lanes: int
    entries: int
    in_flight: int

    @property
    def constants(self) -> dict[str, int]:
        """The specialisation constants of the kernel of a step."""
        return {"LOCAL_SIZE_X": self.local, "LANES": self.lanes, "ENTRIES": self.entries, "IN_FLIGHT": self.in_flight}


def step_shape(problem: RecurrentProblem, caps: Capabilities) -> _Shape:
    """The shape with as many sequences for each read of the recurrence matrix as shared memory and registers hold, and
    enough of it in flight. Many workgroups hide each other's waiting; then larger ones with less in flight share more."""
    lanes = most_lanes(problem, caps)
    entries = min(power_of_two(problem.batch), MOST_ENTRIES, lanes)
    local = min(128, most_invocations(caps))
    workgroups = problem.directions * problem.hidden * lanes // local * -(-problem.batch // entries)
    many = workgroups >= caps.model.workgroups(_MANY_WORKGROUPS) and caps.workgroup_invocations >= 2 * local
    in_flight = min(2 if many else 4, power_of_two(-(-problem.quads // lanes)))
    room = caps.shared_memory_bytes // (16 * lanes * in_flight)
    return _Shape(2 * local if many else local, lanes, min(entries, 1 << (room.bit_length() - 1)), in_flight)


def _recurrence(desc: Recurrent, problem: RecurrentProblem, work: _Work) -> tuple[Range, dict[str, int | tuple[int, ...]]]:
    """The range of R and the parameters of its rows."""
    recurrence = desc.tensor("recurrence_tensor")
    _, plane, row, element = recurrence.effective_strides
    if recurrence.data_type == TensorDataType.FLOAT32 and element == 1 and not (problem.hidden | plane | row) % 4:
        r = _slot(desc, "recurrence_tensor")
    else:
        r, plane, row = _staged(desc, "recurrence_tensor", 4 * problem.quads, work)
    return r, {"quads": problem.quads, "r_strides": (plane // 4, row // 4)}


def _recurrence_of_halves(desc: Recurrent, problem: RecurrentProblem) -> tuple[Range, dict[str, int | tuple[int, ...]]]:
    """The same of an R whose rows consist of aligned words of FLOAT16."""
    _, plane, row, _ = desc.tensor("recurrence_tensor").effective_strides
    strides = plane // _HALVES, row // _HALVES
    return _slot(desc, "recurrence_tensor"), {"quads": problem.hidden // _HALVES, "r_strides": strides}


class _StepKernel(NamedTuple):
    """A kernel that takes a step.

    Attributes:
        name, constants: The kernel's row, and its constants beside the cell's.
        units, entries: The units and the sequences that a workgroup covers.
        subgroup_size: The subgroup size that it requires, 0 for the device's choice.
    """

    name: str
    constants: dict[str, int]
    units: int
    entries: int
    subgroup_size: int = 0


def _step(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities) -> Plan:
    work, shape = _Work(caps), step_shape(problem, caps)
    kernel = _StepKernel("recurrent_step", shape.constants, shape.local // shape.lanes, shape.entries)
    return _step_by_step(desc, problem, work, _recurrence(desc, problem, work), kernel)


def _cooperative(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities) -> Plan:
    found = step_tile(problem, caps)
    assert found is not None, "the rule saw to it"
    tile, matrix = found
    constants = {
        "LOCAL_SIZE_X": tile.subgroups * caps.subgroup_size,
        "SUBGROUP": caps.subgroup_size,
        "MAT_M": matrix.m,
        "MAT_N": matrix.n,
        "MAT_K": matrix.k,
        "ENTRIES": tile.entries,
        "UNITS": tile.units,
        "DEPTH": tile.depth,
    }
    kernel = _StepKernel("recurrent_cooperative", constants, tile.units, tile.entries, caps.subgroup_size)
    return _step_by_step(desc, problem, _Work(caps), _recurrence_of_halves(desc, problem), kernel)


def _step_by_step(
    desc: Recurrent,
    problem: RecurrentProblem,
    work: _Work,
    recurrence: tuple[Range, dict[str, int | tuple[int, ...]]],
    kernel: _StepKernel,
) -> Plan:
    """A dispatch or two a step, with what ``_recurrence`` says of R."""
    _check_launches(desc, problem, work.caps)
    r, product = recurrence
    states = _states(desc, problem, work)
    xw = _projection(desc, problem, work)
    cell = _cell(desc, problem, states)
    grid = (-(-problem.hidden // kernel.units), -(-problem.batch // kernel.entries), problem.directions)

    def turn(step: int) -> list[Dispatch]:
        return [
            _dispatch(
                desc,
                kernel.name,
                cell,
                (xw.range, r),
                {**kernel.constants, "CELL": kind},
                product | _step_params(states, step, kind),
                grid,
                kernel.subgroup_size,
            )
            for kind in _cells(desc)
        ]

    work.launch_steps(problem.steps, turn)
    return work.plan()


def _whole(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities) -> Plan:
    shape = resident_shape(problem, caps)
    assert shape is not None, "the rule saw to it"
    constants = {
        "LOCAL_SIZE_X": shape.local,
        "LANES": shape.lanes,
        "SHARE": shape.share,
        "CAPACITY": power_of_two(max(problem.quads, shape.lanes * shape.share)),
    }
    return _in_blocks(desc, problem, caps, "recurrent_whole", constants, most_steps(problem, caps, resident=True))


def _block(desc: Recurrent, problem: RecurrentProblem, caps: Capabilities) -> Plan:
    shape = block_shape(problem, caps)
    constants = {"LOCAL_SIZE_X": shape.local, "LANES": shape.lanes, "CAPACITY": problem.quads}
    return _in_blocks(desc, problem, caps, "recurrent_block", constants, most_steps(problem, caps, resident=False))


def _in_blocks(
    desc: Recurrent, problem: RecurrentProblem, caps: Capabilities, kernel: str, constants: dict[str, int], each: int
) -> Plan:
    """A dispatch for each block of so many steps. The input's products are made once, or for each block of those that a
    binding holds."""
    projected = projected_steps(problem, caps)
    each = min(each, projected)
    _check_launches(desc, problem, caps, each)
    work = _Work(caps)
    r, product = _recurrence(desc, problem, work)
    states = _states(desc, problem, work)
    cell = _cell(desc, problem, states)
    grid = (problem.batch, problem.directions, 1)
    at_once = problem.steps if projected == problem.steps else projected // STEP_ALIGNMENT * STEP_ALIGNMENT
    weights = None if at_once == problem.steps else _weights(desc, problem, work)
    before = work.temporary.end
    for start in part_starts(problem.steps, at_once):
        end = min(start + at_once, problem.steps)
        kept, work.temporary.end = work.temporary.end, before  # one block after the other has the same memory
        if weights is None:
            xw = _projection(desc, problem, work)
        else:
            xw = _projection_of_part(desc, problem, work, weights, start, end)
        work.temporary.end = max(work.temporary.end, kept)
        for first in (start + own for own in part_starts(end - start, each)):
            params = {**product, "first": first, "last": min(first + each, end)}
            params |= {"xw_steps": xw.steps, "xw_first": xw.firsts}
            work.launches.append(
                _dispatch(desc, kernel, cell, (xw.range, r), {**constants, "CELL": _cells(desc)[0]}, params, grid)
            )
    return work.plan()


register(
    ops.Rnn,
    ops.Lstm,
    ops.Gru,
    problem=_problem,
    rules=RECURRENT,
    schedules={"whole": _whole, "cooperative": _cooperative, "step": _step, "block": _block, "naive": _naive},
    limitations=(LOOP_ROUNDS,),
)
