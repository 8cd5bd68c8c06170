"""A filled recipe equals a lowered desc, byte for byte, or it refuses: for every operator's cases, for several devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import choices
import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.engine.recipe import FilledLaunch, FilledPlan, JointRecipes, Recipe, Recipes
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Plan
from dmlvk.kernels.common.registry import has_kernels
from dmlvk.kernels.lowering import lower, lower_piece, pieces
from dmlvk.spec import ops
from dmlvk.spec.enums import (
    AxisDirection,
    InterpolationMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    PaddingMode,
    RecurrentNetworkDirection,
    ReduceFunction,
    TensorDataType,
    TensorFlags,
)
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.mould import Mould
from dmlvk.spec.ops.matmul import GemmNormalization
from dmlvk.spec.ops.resample import ResampleWeights
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import SizeTrace, value_of
from dmlvk.spec.size_function import function_of, guards_of
from dmlvk.spec.tensor import TensorDesc, packed_strides
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import Case
from dmlvk.verify.cases.problem import fields_of, tensor_names

STORAGE = SUBGROUPS | {"storage8", "storage16", "int8", "int16", "int64", "float64", "float16", "integer_dot_product"}

DEVICES = {
    "CPU": Capabilities(
        features=STORAGE,
        subgroup_size=8,
        minimum_subgroup_size=8,
        maximum_subgroup_size=8,
        workgroup_invocations=1024,
        shared_memory_bytes=32768,
        is_cpu=True,
    ),
    "large": Capabilities(
        features=STORAGE
        | {"subgroup_size_control", "full_subgroups", "cooperative_matrix", "vulkan_memory_model"}
        | {"matrix_reductions"},
        workgroup_invocations=1024,
        shared_memory_bytes=49152,
        storage_buffer_bytes=2**32 - 1,
        workgroup_counts=(2**31 - 1, 65535, 65535),
        cooperative_matrices=(
            CooperativeMatrix(16, 16, 16, "float16", "float16"),
            CooperativeMatrix(16, 16, 16, "float16", "float32"),
            CooperativeMatrix(16, 16, 32, "int8", "int32"),
        ),
        matrix_fragments=True,
    ),
    "small": Capabilities(features=STORAGE, subgroup_size=16, minimum_subgroup_size=16, maximum_subgroup_size=16),
}

Resized = Callable[[int], int]
"""What a size of a case becomes."""


class Trial(NamedTuple):
    """A case with one type; strided where its rows are longer than what they hold."""

    operator: type[OperatorDesc]
    case: Case
    data_type: TensorDataType
    strided: bool


def desc_of(trial: Trial, resized: Resized) -> OperatorDesc:
    """The case's desc with other sizes."""
    operator, case, data_type, strided = trial

    def tensor(name: str, sizes: tuple[int, ...]) -> TensorDesc:
        strides = packed_strides((*sizes[:-1], sizes[-1] + 8)) if strided else None
        return TensorDesc(case.data_types.get(name, data_type), sizes, strides)

    def tensors(given: Mapping[str, tuple[int, ...]], *, outputs: bool) -> dict[str, TensorDesc]:
        names = tensor_names(operator, given, outputs=outputs)
        return {name: tensor(name, tuple(map(resized, given[name]))) for name in names if name in given}

    inputs = tensors(case.inputs, outputs=False)
    if case.outputs:
        outputs = tensors(case.outputs, outputs=True)
    else:
        inferred = operator(**fields_of(inputs), **case.attributes).inferred_output_sizes()
        names = tensor_names(operator, case.outputs, outputs=True)
        outputs = {name: tensor(name, sizes) for name, sizes in zip(names, inferred, strict=True)}
    desc = operator(**fields_of(inputs | outputs), **case.attributes)
    desc.validate()
    return desc


def shown(plan: Plan) -> FilledPlan:
    """A plan of plain sizes, as a recipe fills it."""

    def launch(item: Launch) -> FilledLaunch:
        params, grid = (item.params, item.grid) if isinstance(item, Dispatch) else (None, None)
        return FilledLaunch(params, grid, item.bindings)

    dispatches, initialize = tuple(map(launch, plan.dispatches)), tuple(map(launch, plan.initialize))
    return FilledPlan(dispatches, initialize, plan.temporary_bytes, plan.persistent_bytes, plan.persistent_inputs)


def kernels(plan: Plan, launches: int | None = None) -> list[object]:
    """The pipelines of a plan, without what alone may differ: sums of an open length are never known to be whole rounds.
    Where some dispatches come again, as those of so many launches in all."""

    def kernel(item: Dispatch) -> object:
        constants = tuple((name, value) for name, value in item.kernel.constants if name != "WHOLE_ROUNDS")
        return item.kernel._replace(constants=constants)

    order = list(range(len(plan.dispatches)))
    if plan.repetition is not None and launches is not None:
        again = plan.repetition.end - plan.repetition.first
        order = plan.repetition.order(len(order), launches - len(order) + again)
    chosen = (*plan.initialize, *(plan.dispatches[index] for index in order))
    return [None if isinstance(item, BlockCopy) else kernel(item) for item in chosen]


class Outcome(NamedTuple):
    """The result for sizes beside a case's own: the number that were filled, and that of those with the same pipelines."""

    filled: int
    same: int


class Sized:
    """An operator of one size, as the engine lowers it: the size is a symbol of one trace, and what its sizes are made
    of are symbols of another.

    Args:
        build: The desc of a size.
        size: The size that it is lowered with.
        caps: The device.
    """

    def __init__(self, build: Callable[[int], OperatorDesc], size: int, caps: Capabilities) -> None:
        outer, self.trace = SizeTrace(), SizeTrace()
        mould = Mould(build(outer.symbol("n", size)))
        self._symbols = function_of(outer, mould.symbols)
        desc = mould.cast(self.trace, map(value_of, mould.symbols))
        self.plan = lower(desc, caps)
        self._recipe = Recipe(self.trace, desc, self.plan)

    def filled(self, number: int) -> FilledPlan | None:
        """The plan of another size, None where a guard refuses it."""
        symbols = self._symbols(number)
        return None if symbols is None else self._recipe.fill(symbols)


def outcome(trial: Trial, size: int, caps: Capabilities) -> Outcome:
    """Lowers a case with every size of a number symbolic, and holds what is filled against what other numbers lower to."""

    def desc(number: int) -> OperatorDesc:
        return desc_of(trial, lambda own: number if own == size else own)

    def lowered(number: int) -> Plan | None:
        try:
            return lower(desc(number), caps)
        except (InvalidArgumentError, UnsupportedError):
            return None

    try:
        sized = Sized(desc, size, caps)
    except (InvalidArgumentError, UnsupportedError):
        assert lowered(size) is None, "what runs has a recipe"
        return Outcome(0, 0)
    plan = sized.plan
    filled = same = 0
    for number in (size, size + 1, size + 2, size - 1, size + 4, size * 2, size + 64):
        found, wanted = sized.filled(number), lowered(number)
        assert found is None or wanted is not None, f"{size} -> {number}: a size that is refused was filled"
        if found is not None and wanted is not None:
            assert kernels(wanted) == kernels(plan, len(wanted.dispatches)), f"{size} -> {number}"
            assert found == shown(wanted), f"{size} -> {number}"
        if number == size:
            assert found is not None, "a recipe takes the sizes that it was made with"
        elif wanted is not None and kernels(wanted) == kernels(plan, len(wanted.dispatches)):
            same, filled = same + 1, filled + (found is not None)
    return Outcome(filled, same)


def check(trials: Iterable[Trial], most_sizes: int, devices: Iterable[str]) -> None:
    for trial in trials:
        sizes = sorted({size for tensor in trial.case.inputs.values() for size in tensor if size > 1})
        for size, device in itertools.product(sizes[-most_sizes:], devices):
            try:
                outcome(trial, size, DEVICES[device])
            except Exception as error:
                error.add_note(f"{device}: size {size} of {trial}")
                raise


OPERATORS = pytest.mark.parametrize(
    "operator", [row for row in all_cases() if has_kernels(row)], ids=lambda row: row.__name__
)


@OPERATORS
def test_a_filled_plan_is_the_lowered_one(operator: type[OperatorDesc]) -> None:
    entry = all_cases()[operator]
    chosen = [case for case in entry.cases if case.quick][:2] or entry.cases[:2]
    types = [(case, (case.only or entry.crossed_types)[0]) for case in chosen]
    check(
        (Trial(operator, *pair, strided) for pair, strided in zip(types, (False, True), strict=False)), 2, ("CPU", "large")
    )


@pytest.mark.full
@OPERATORS
def test_every_filled_plan_is_the_lowered_one(operator: type[OperatorDesc]) -> None:
    entry = all_cases()[operator]
    types = ((case, data_type) for case in entry.cases for data_type in case.only or entry.crossed_types)
    check((Trial(operator, *pair, strided) for pair in types for strided in (False, True)), 8, DEVICES)


def tensor(*sizes: int, strides: tuple[int, ...] | None = None, of: TensorDataType = TensorDataType.FLOAT32) -> TensorDesc:
    return TensorDesc(of, sizes, strides)


def product(a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...], *, transposed: bool = False) -> OperatorDesc:
    trans = MatrixTransform.TRANSPOSE if transposed else MatrixTransform.NONE
    return ops.Gemm(a_tensor=tensor(*a), b_tensor=tensor(*b), output_tensor=tensor(*y), trans_b=trans)


def convolution(width: int, height: int = 12, *, kernel: int = 3, groups: int = 1) -> OperatorDesc:
    return ops.Convolution(
        input_tensor=tensor(1, 64, height, width),
        filter_tensor=tensor(64, 64 // groups, kernel, kernel),
        output_tensor=tensor(1, 64, height, width),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(kernel // 2, kernel // 2),
        end_padding=(kernel // 2, kernel // 2),
        output_padding=(0, 0),
        group_count=groups,
    )


def attention(queries: int, keys: int) -> OperatorDesc:
    return ops.MultiheadAttention(
        query_tensor=tensor(1, queries, 768),
        key_tensor=tensor(1, keys, 768),
        value_tensor=tensor(1, keys, 768),
        output_tensor=tensor(1, queries, 768),
        scale=0.125,
        mask_filter_value=-1e9,
        head_count=12,
        mask_type=MultiheadAttentionMaskType.NONE,
    )


def normalized(rows: int) -> OperatorDesc:
    line = tensor(1, 1, rows, 768, strides=(0, 0, 0, 1))
    y = tensor(1, 1, rows, 768)
    return ops.MeanVarianceNormalization1(
        input_tensor=y,
        scale_tensor=line,
        bias_tensor=line,
        output_tensor=y,
        axes=(3,),
        normalize_variance=True,
        epsilon=1e-5,
    )


def sliced(rows: int) -> OperatorDesc:
    return ops.Slice1(
        input_tensor=tensor(1, 12, rows + 5, 64),
        output_tensor=tensor(1, 12, rows, 64),
        input_window_offsets=(0, 0, 5, 0),
        input_window_sizes=(1, 12, rows, 64),
        input_window_strides=(1, 1, 1, 1),
    )


def gathered(count: int) -> OperatorDesc:
    return ops.Gather(
        input_tensor=tensor(1, 1, 5000, 64),
        indices_tensor=tensor(1, 1, 1, count, of=TensorDataType.INT64),
        output_tensor=tensor(1, 1, count, 64),
        axis=2,
        index_dimensions=1,
    )


def pooled(width: int) -> OperatorDesc:
    return ops.AveragePooling1(
        input_tensor=tensor(1, 64, 24, width),
        output_tensor=tensor(1, 64, 12, width // 2),
        strides=(2, 2),
        dilations=(1, 1),
        window_size=(2, 2),
        start_padding=(0, 0),
        end_padding=(0, 0),
        include_padding=False,
    )


def padded(width: int) -> OperatorDesc:
    return ops.Padding(
        input_tensor=tensor(1, 64, 24, width),
        output_tensor=tensor(1, 64, 26, width + 2),
        padding_mode=PaddingMode.CONSTANT,
        padding_value=0.0,
        start_padding=(0, 0, 1, 1),
        end_padding=(0, 0, 1, 1),
    )


def enlarged(width: int) -> OperatorDesc:
    return ops.Resample1(
        input_tensor=tensor(1, 64, 12, width),
        output_tensor=tensor(1, 64, 24, width * 2),
        interpolation_mode=InterpolationMode.LINEAR,
        scales=(1.0, 1.0, 2.0, 2.0),
        input_pixel_offsets=(0.5,) * 4,
        output_pixel_offsets=(-0.5,) * 4,
    )


def resized(height: int, mode: InterpolationMode, *, rounds_up: bool = True, antialiased: bool = False) -> OperatorDesc:
    """A map brought to any height, and to a width that is no multiple: the scales follow from the sizes."""
    width = height * 3 + 1
    return ops.Resample3(
        input_tensor=tensor(1, 5, 28, 31),
        output_tensor=tensor(1, 5, height, width),
        interpolation_mode=mode,
        scales=(1.0, 1.0, height / 28, width / 31),
        input_pixel_offsets=(0.0, 0.0, 0.5, 0.5),
        output_pixel_offsets=(0.0, 0.0, -0.5, -0.5),
        rounding_direction=AxisDirection.INCREASING if rounds_up else AxisDirection.DECREASING,
        antialiased=antialiased,
    )


def unpooled(width: int) -> OperatorDesc:
    return ops.MaxUnpooling(
        input_tensor=tensor(1, 4, 9, width),
        indices_tensor=tensor(1, 4, 9, width, of=TensorDataType.UINT64),
        output_tensor=tensor(1, 4, 18, 2 * width),
    )


def scattered(rows: int, columns: int) -> OperatorDesc:
    return ops.ScatterNd(
        input_tensor=tensor(rows, columns),
        indices_tensor=tensor(5, 1, of=TensorDataType.INT64),
        updates_tensor=tensor(5, columns),
        output_tensor=tensor(rows, columns),
        input_dimension_count=2,
        indices_dimension_count=2,
    )


def weights(outputs: int, *, widened: bool) -> OperatorDesc:
    """The weights of a cubic filter for any number of outputs."""
    scale = outputs / 56
    return ResampleWeights(
        output_tensor=tensor(outputs, 56),
        scale=scale,
        input_pixel_offset=0.5,
        output_pixel_offset=-0.5,
        filter_scale=min(scale, 1.0) if widened else 1.0,
        cubic=True,
        coefficient=-0.75,
        inside_only=False,
        normalized=widened,
    )


def rows(count: int, of: TensorDataType = TensorDataType.FLOAT32) -> TensorDesc:
    return tensor(1, 1, count, 768, of=of)


def added(count: int, *, line: bool) -> OperatorDesc:
    b = tensor(1, 1, count, 768, strides=(0, 0, 0, 1)) if line else rows(count)
    return ops.ElementWiseAdd(a_tensor=rows(count), b_tensor=b, output_tensor=rows(count))


def cast(count: int) -> OperatorDesc:
    return ops.Cast(input_tensor=rows(count), output_tensor=rows(count, TensorDataType.FLOAT16))


def mean(count: int) -> OperatorDesc:
    y = tensor(1, 1, count, 1)
    return ops.Reduce(function=ReduceFunction.AVERAGE, input_tensor=rows(count), output_tensor=y, axes=(3,))


def softmax(count: int) -> OperatorDesc:
    scores = tensor(1, 12, count, count)
    return ops.ActivationSoftmax1(input_tensor=scores, output_tensor=scores, axes=(3,))


def joined(count: int) -> OperatorDesc:
    past, new = tensor(1, 12, count, 64), tensor(1, 12, 1, 64)
    return ops.Join(input_tensors=(past, new), output_tensor=tensor(1, 12, count + 1, 64), axis=2)


def heads(count: int) -> OperatorDesc:
    x = tensor(1, 12, count, 64, strides=(count * 768, 64, 768, 1))
    return ops.ElementWiseIdentity(input_tensor=x, output_tensor=tensor(1, 12, count, 64))


SYMBOLIC: dict[str, tuple[Callable[[int], OperatorDesc], int, int]] = {
    "sum": (lambda n: added(n, line=False), 37, 1),
    "sum with a line": (lambda n: added(n, line=True), 37, 1),
    "cast": (cast, 37, 1),
    "rows of a product": (lambda n: product((1, 1, n, 768), (1, 1, 768, 3072), (1, 1, n, 3072)), 37, 1),
    "columns of a product": (lambda n: product((1, 12, 1, 64), (1, 12, n, 64), (1, 12, 1, n), transposed=True), 37, 1),
    "depth of a product": (lambda n: product((1, 12, 1, n), (1, 12, n, 64), (1, 12, 1, 64)), 37, 1),
    "scores": (lambda n: product((1, 12, n, 64), (1, 12, n, 64), (1, 12, n, n), transposed=True), 37, 1),
    "softmax": (softmax, 37, 1),
    "layer norm": (normalized, 37, 1),
    "attention, one query": (lambda n: attention(1, n), 37, 1),
    "attention": (lambda n: attention(n, n), 37, 1),
    "join": (joined, 37, 1),
    "slice": (sliced, 37, 1),
    "heads": (heads, 37, 1),
    "gather": (gathered, 37, 1),
    "mean": (mean, 37, 1),
    "convolution": (convolution, 320, 8),
    "convolution, 1x1": (lambda n: convolution(n, kernel=1), 320, 8),
    "convolution, depthwise": (lambda n: convolution(n, groups=64), 320, 8),
    "convolution, wide or high": (lambda n: convolution(n, 480 - n), 200, 8),
    "pooling": (pooled, 320, 8),
    "padding": (padded, 320, 8),
    "resampling": (enlarged, 320, 8),
    "resizing": (lambda n: resized(n, InterpolationMode.LINEAR), 37, 1),
    "resizing, nearest": (lambda n: resized(n, InterpolationMode.NEAREST_NEIGHBOR), 37, 1),
    "resizing, nearest, down": (lambda n: resized(n, InterpolationMode.NEAREST_NEIGHBOR, rounds_up=False), 37, 1),
    "unpooling": (unpooled, 37, 1),
    "scatter, rows": (lambda n: scattered(n, 8), 37, 1),
    "scatter, columns": (lambda n: scattered(40, n), 36, 4),
    "weights": (lambda n: weights(n, widened=False), 61, 1),
    "weights, widened": (lambda n: weights(n, widened=True), 21, 1),
    "resizing, antialiased": (lambda n: resized(n, InterpolationMode.LINEAR, antialiased=True), 11, 1),
}
"""What stays symbolic: by name, the desc of a size, a size and a step to its neighbours."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_neighbouring_sizes_are_filled(name: str, device: str) -> None:
    """All neighbouring sizes with the same pipelines are filled, with what they lower to."""
    build, size, step = SYMBOLIC[name]
    caps = DEVICES[device]
    sized = Sized(build, size, caps)
    lowered = {number: lower(build(number), caps) for number in range(size + step, size + 17 * step, step)}
    for number, plan in lowered.items():
        if kernels(plan) == kernels(sized.plan):
            assert sized.filled(number) == shown(plan), (number, guards_of(sized.trace))


def beside(width: int, *, split: bool) -> OperatorDesc:
    """Rows of three parts, whose widths have nothing in common."""
    whole = tensor(40, 500)
    parts = tuple(tensor(40, own) for own in (width, 3 * width + 1, 499 - 4 * width))
    if split:
        return ops.Split(input_tensor=whole, output_tensors=parts, axis=1)
    return ops.Join(input_tensors=parts, output_tensor=whole, axis=1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("split", [True, False], ids=["split", "join"])
def test_pieces_have_recipes_of_their_own(split: bool, device: str) -> None:
    """All choices of all pieces take as many recipes as a piece has choices."""
    caps = DEVICES[device]
    outer = SizeTrace()
    desc = beside(outer.symbol("width", 41), split=split)
    moulds = [Mould(piece) for piece in pieces(desc)]
    lowered = []

    def lower_one(piece: Any) -> tuple[OperatorDesc, Plan]:
        lowered.append(piece)
        return desc, lower_piece(desc, piece, caps)

    joint = JointRecipes(desc, [(Recipes(mould, lower_one), len(mould.symbols)) for mould in moulds])
    symbols = function_of(outer, tuple(symbol for mould in moulds for symbol in mould.symbols))
    for width in range(2, 120, 3):
        wanted = lower(beside(width, split=split), caps)
        recipe, filled = joint.filled(symbols(width))
        assert filled == shown(wanted) and recipe.fill(symbols(width)) == filled, width
        assert kernels(recipe.plan) == kernels(wanted) and recipe in joint, width
    assert len(lowered) < 40, "of three pieces, each with at most so many choices"


def lstm(steps: int, batch: int, hidden: int = 32) -> OperatorDesc:
    return ops.Lstm(
        input_tensor=tensor(1, steps, batch, 8),
        weight_tensor=tensor(1, 1, 4 * hidden, 8),
        recurrence_tensor=tensor(1, 1, 4 * hidden, hidden),
        output_sequence_tensor=tensor(steps, 1, batch, hidden),
        activation_descs=(ops.ActivationTanh(),) * 3,
    )


def test_a_long_sequence_of_another_length_has_the_same_recipe() -> None:
    """So many steps that launches take blocks of them: lengths of as many blocks differ in numbers alone."""
    caps = DEVICES["small"]
    sized = Sized(lambda steps: lstm(steps, 1), 100_000, caps)
    assert 3 < len(sized.plan.dispatches) < 10
    assert sized.filled(100_123) == shown(lower(lstm(100_123, 1), caps))
    assert sized.filled(200_000) is None


def gru(steps: int, direction: RecurrentNetworkDirection, *, before: bool) -> OperatorDesc:
    """A network with one dispatch a step, or two."""
    directions = 2 if direction == RecurrentNetworkDirection.BIDIRECTIONAL else 1
    return ops.Gru(
        input_tensor=tensor(1, steps, 3, 8),
        weight_tensor=tensor(1, directions, 3 * 700, 8),
        recurrence_tensor=tensor(1, directions, 3 * 700, 700),
        output_sequence_tensor=tensor(steps, directions, 3, 700),
        output_single_tensor=tensor(1, directions, 3, 700),
        activation_descs=(ops.ActivationTanh(),) * 2 * directions,
        direction=direction,
        linear_before_reset=before,
    )


STEPS: dict[str, Callable[[int], OperatorDesc]] = {
    "LSTM": lambda steps: lstm(steps, 3, hidden=700),
    "GRU": lambda steps: gru(steps, RecurrentNetworkDirection.BACKWARD, before=True),
    "GRU, two dispatches": lambda steps: gru(steps, RecurrentNetworkDirection.BIDIRECTIONAL, before=False),
}


@pytest.mark.parametrize(
    "caps", [DEVICES["CPU"], Capabilities(features=frozenset(), max_launches=100)], ids=["step", "naive"]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_dispatch_a_step_is_made_for_any_number_of_steps(name: str, caps: Capabilities) -> None:
    """The launches of two steps come again, with no more in the plan, whatever the number."""
    build = STEPS[name]
    sized = Sized(build, 20, caps)
    again = sized.plan.repetition
    assert again is not None
    for steps in (9, 10, 19, 20, 23):
        wanted = lower(build(steps), caps)
        filled = sized.filled(steps)
        assert filled == shown(wanted), (steps, guards_of(sized.trace))
        order = again.order(len(sized.plan.dispatches), steps * again.each)
        prepared = kernels(sized.plan)
        assert [prepared[place] for place in order] == kernels(wanted), steps


def test_steps_of_a_network_that_is_cut_are_those_of_each_part() -> None:
    """A plan of other plans has each launch once: another number of steps is lowered anew."""
    caps = Capabilities(storage_buffer_bytes=2**12)

    def build(steps: int) -> OperatorDesc:
        return ops.Rnn(
            input_tensor=tensor(1, steps, 64, 8),
            weight_tensor=tensor(1, 1, 8, 8),
            recurrence_tensor=tensor(1, 1, 8, 8),
            output_sequence_tensor=tensor(steps, 1, 64, 8),
            activation_descs=(ops.ActivationTanh(),),
        )

    sized = Sized(build, 5, caps)
    assert sized.plan.repetition is None and sized.filled(6) is None
    assert sized.filled(5) == shown(lower(build(5), caps))
    assert len({item.params for item in lower(build(5), caps).dispatches if isinstance(item, Dispatch)}) > 5


def test_a_number_that_is_pinned_each_time_is_no_symbol() -> None:
    """Each number of rows has a recipe of its own, all of which take any number of columns that kernels may."""
    outer = SizeTrace()
    caps = DEVICES["CPU"]
    mould = Mould(product((1, 1, outer.symbol("rows", 5), 64), (1, 1, 64, outer.symbol("n", 33)), (1, 1, 5, 33)))
    symbols = function_of(outer, mould.symbols)
    plain = []

    def desc_with(rows: int, columns: int) -> OperatorDesc:
        return product((1, 1, rows, 64), (1, 1, 64, columns), (1, 1, rows, columns))

    def lower_one(desc: OperatorDesc) -> tuple[OperatorDesc, Plan]:
        rows, columns = desc.tensor("a_tensor").sizes[2], desc.tensor("b_tensor").sizes[3]
        plain.append(type(rows) is int)
        assert type(columns) is not int
        own = desc_with(len(range(rows)), columns)  # a loop that only a plain number can end
        return own, lower(own, caps)

    recipes = Recipes(mould, lower_one)
    for rows in range(5, 15):
        for columns in (33, 35):
            recipe, filled = recipes.filled(symbols(rows, columns))
            wanted = lower(desc_with(rows, columns), caps)
            assert filled == shown(wanted) and kernels(recipe.plan) == kernels(wanted), (rows, columns)
    assert plain == [False, False, True, False, True, True, True, False, True, True]


def test_an_operator_keeps_sixteen_recipes() -> None:
    """Each number has one of its own. What was not used for longest goes first, and is made again when asked for."""
    outer = SizeTrace()
    mould = Mould(tensor(1, 1, outer.symbol("rows", 1), 64))
    symbols = function_of(outer, mould.symbols)

    def lower_one(own: TensorDesc) -> tuple[OperatorDesc, Plan]:
        count = len(range(own.sizes[2]))  # a loop that only a plain number can end
        return product((1, 1, count, 64), (1, 1, 64, 8), (1, 1, count, 8)), Plan(())

    recipes = Recipes(mould, lower_one)
    made = [recipes.filled(symbols(rows))[0] for rows in range(1, 17)]
    assert [recipes.filled(symbols(rows))[0] for rows in range(1, 17)] == made
    recipes.filled(symbols(1))
    recipes.filled(symbols(17))
    assert made[0] in recipes and made[1] not in recipes and all(recipe in recipes for recipe in made[2:])
    again, _ = recipes.filled(symbols(2))
    assert again is not made[1] and again in recipes


def test_operators_in_pieces_keep_64_choices_of_recipes() -> None:
    """A choice is one recipe a piece. What was not used for longest goes first, and is made again when asked for."""

    class Piece:
        plan = Plan(())

    class Alternatives:
        """A piece that has a recipe of its own for each number."""

        def __init__(self) -> None:
            self._made: dict[int, Any] = {}

        def filled(self, values: tuple[int, ...]) -> tuple[Any, FilledPlan]:
            (number,) = values
            plan = FilledPlan((), (), 0, 0, ())
            return self._made.setdefault(number, Piece()), plan

    parts: Any = [(Alternatives(), 1), (Alternatives(), 1)]
    joint = JointRecipes(beside(41, split=True), parts)
    choices = list(itertools.product(range(8), range(8)))
    made = [joint.filled(choice)[0] for choice in choices]
    assert [joint.filled(choice)[0] for choice in choices] == made
    joint.filled(choices[0])
    joint.filled((8, 8))
    assert made[0] in joint and made[1] not in joint and all(recipe in joint for recipe in made[2:])
    again, _ = joint.filled(choices[1])
    assert again is not made[1] and again in joint


@pytest.mark.parametrize("normalizes", [False, True], ids=["alone", "normalized"])
def test_weights_that_stream_are_packed_alike_for_all_rows(normalizes: bool) -> None:
    """So that graphs of many sizes keep them once."""
    caps = choices.DEVICES["h200"]
    half = TensorDataType.FLOAT16

    def build(rows: int) -> OperatorDesc:
        columns, depth = (768, 3072) if normalizes else (3072, 768)
        fields = {
            "a_tensor": tensor(1, 1, rows, depth, of=half),
            "b_tensor": TensorDesc(half, (1, 1, depth, columns), flags=TensorFlags.OWNED_BY_DML),
            "output_tensor": tensor(1, 1, rows, columns, of=half),
        }
        return GemmNormalization(**fields, epsilon=1e-5) if normalizes else ops.Gemm(**fields)

    sized = Sized(build, 197, caps)
    initialization = lower(build(197), caps).initialize
    assert initialization
    filled = 0
    for rows in (197, 190, 199, 128, 300, 1):
        found, wanted = sized.filled(rows), lower(build(rows), caps)
        assert wanted.initialize == (initialization if rows > 1 else ())
        if found is not None:
            filled += 1
            assert found == shown(wanted), rows
    assert filled > 2


@pytest.mark.parametrize(
    ("heads", "queries", "keys"),
    [
        (12, lambda n: n, lambda n: n),
        (8, lambda n: 64, lambda n: n),
        (16, lambda n: n, lambda n: 77),
        (32, lambda n: 1, lambda n: n),
    ],
    ids=["of itself", "of 64 rows", "of 77 keys", "of one row"],
)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_tiles_of_attention_are_those_of_the_size_that_is_filled(
    heads: int, queries: Callable[[int], int], keys: Callable[[int], int], bias: bool
) -> None:
    """Which tile of matrices it is, and into how many parts the keys are shared out."""
    caps = choices.DEVICES["h200"]
    half = TensorDataType.FLOAT16

    def build(n: int) -> OperatorDesc:
        rows, seen = queries(n), keys(n)
        return ops.MultiheadAttention1(
            query_tensor=tensor(1, rows, 64 * heads, of=half),
            key_tensor=tensor(1, seen, 64 * heads, of=half),
            value_tensor=tensor(1, seen, 64 * heads, of=half),
            relative_position_bias_tensor=tensor(1, heads, rows, seen, of=half) if bias else None,
            output_tensor=tensor(1, rows, 64 * heads, of=half),
            scale=0.125,
            query_head_count=heads,
            key_value_head_count=heads,
        )

    sizes = (512, 513, 520, 640, 768, 1024, 4096, 96, 17)
    filled = 0
    for first in (512, 1024):
        sized = Sized(build, first, caps)
        for n in sizes:
            found = sized.filled(n)
            if found is not None:
                filled += 1
                assert found == shown(lower(build(n), caps)), (first, n)
    assert filled > 2
