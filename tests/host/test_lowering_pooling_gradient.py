"""The gradients of pooling without a device: rows and plans, and our oracles as transposes of the forward ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import Dispatch, Source, input_range, output_range
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.pooling_gradient.lanes import tiles
from dmlvk.kernels.pooling_gradient.rules import GRADIENT_TILE_WORDS
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.ops.pooling_gradient import AveragePoolingGrad, MaxPoolingGrad
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.oracle.pooling import average_pooling1, max_pooling2
from dmlvk.verify.oracle.pooling_gradient import average_pooling_grad, max_pooling_grad

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
GPU = Capabilities(
    frozenset({*SUBGROUPS, "storage16"}),
    workgroup_invocations=1024,
    shared_memory_bytes=49152,
    storage_buffer_bytes=2**32 - 1,
)
CPU = Capabilities(is_cpu=True)


def gradient(
    row: type[AveragePoolingGrad] | type[MaxPoolingGrad],
    sizes: tuple[int, ...],
    window: tuple[int, ...],
    step: int = 1,
    padding: int = 0,
    data_type: TensorDataType = FLOAT32,
    layout: str = "",
    **more: Any,
) -> AveragePoolingGrad | MaxPoolingGrad:
    dilations = more.pop("dilations", (1,) * len(window))
    counts = tuple(
        (size + 2 * padding - (taps - 1) * gap - 1) // step + 1
        for size, taps, gap in zip(sizes[2:], window, dilations, strict=True)
    )
    if row is MaxPoolingGrad:
        more["dilations"] = dilations

    def tensor(sizes: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(data_type, sizes, calculate_strides(layout, sizes) if layout else None)

    fields: dict[str, Any] = {
        "input_gradient_tensor": tensor((*sizes[:2], *counts)),
        "output_gradient_tensor": tensor(sizes),
        "window_size": window,
        "strides": (step,) * len(window),
        "start_padding": (padding,) * len(window),
        "end_padding": (padding,) * len(window),
    }
    if row is MaxPoolingGrad:
        fields["input_tensor"] = tensor(sizes)
    desc = row(**{**fields, **more})
    desc.validate()
    return desc


def rule(desc: AveragePoolingGrad | MaxPoolingGrad, caps: Capabilities = GPU) -> str:
    lowering = LOWERINGS[type(desc)]
    return choose(lowering.rules, lowering.problem(desc), caps).name


@pytest.mark.parametrize("row", [AveragePoolingGrad, MaxPoolingGrad])
@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"strides": (1,)}, "Strides", "one entry for each spatial dimension"),
        ({"window_size": (0, 1)}, "WindowSize", "no entry may be 0"),
        ({"input_gradient_tensor": TensorDesc(FLOAT32, (1, 2, 4, 3))}, "InputGradientTensor", "rounded down or up"),
        ({"input_gradient_tensor": TensorDesc(FLOAT32, (2, 2, 4, 4))}, "InputGradientTensor", "N and C"),
        ({"input_gradient_tensor": TensorDesc(FLOAT16, (1, 2, 4, 4))}, "", "same data type"),
    ],
)
def test_forward_rules_are_named_in_the_gradients_terms(
    row: type[MaxPoolingGrad], changes: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text) as caught:
        gradient(row, (1, 2, 5, 5), (2, 2), **changes)
    assert field in ("", caught.value.field)


def test_only_the_caller_knows_the_sizes_of_an_averages_gradient() -> None:
    desc = gradient(AveragePoolingGrad, (1, 2, 5, 5), (2, 2))
    with pytest.raises(InvalidArgumentError, match="only the caller knows"):
        desc.inferred_output_sizes()
    assert gradient(MaxPoolingGrad, (1, 2, 5, 5), (2, 2)).inferred_output_sizes() == ((1, 2, 5, 5),)


@pytest.mark.parametrize("layout", ["", "NHWC"])
def test_small_windows_are_taken_in_groups_and_others_not(layout: str) -> None:
    for window, step, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0), (2, 4, 0)):
        sizes, windows = (2, 8, 56, 56), (window, window)
        assert rule(gradient(AveragePoolingGrad, sizes, windows, step, padding, layout=layout)) == "lanes"
        assert rule(gradient(MaxPoolingGrad, sizes, windows, step, padding, layout=layout)) == "lanes"
    assert rule(gradient(AveragePoolingGrad, (2, 8, 56, 56), (25, 25), layout=layout)) == "elements"
    assert rule(gradient(MaxPoolingGrad, (2, 8, 56, 56), (17, 17), layout=layout)) == "indices"


def test_volumes_and_dilated_windows_are_taken_one_by_one() -> None:
    assert rule(gradient(AveragePoolingGrad, (2, 8, 8, 56, 56), (1, 2, 2))) == "elements"
    assert rule(gradient(MaxPoolingGrad, (1, 2, 9, 9), (2, 2), dilations=(2, 1))) == "indices"
    assert rule(gradient(MaxPoolingGrad, (1, 2, 9, 9), (1, 2), dilations=(2, 1))) == "lanes"


@pytest.mark.parametrize(
    ("data_type", "width", "step", "lanes", "mode"),
    [
        (FLOAT32, 56, 1, 4, 1),
        (FLOAT32, 14, 1, 2, 1),
        (FLOAT32, 13, 1, 1, 1),
        (FLOAT32, 13, 2, 2, 0),
        (FLOAT32, 57, 3, 3, 0),  # a step that is no part of a group
        (FLOAT16, 56, 1, 8, 1),
        (FLOAT16, 28, 2, 4, 1),
        (FLOAT16, 14, 2, 2, 1),
        (FLOAT16, 55, 2, 2, 0),
    ],
)
def test_lanes_are_the_most_that_rows_are_whole_groups_of(
    data_type: TensorDataType, width: int, step: int, lanes: int, mode: int
) -> None:
    (dispatch,) = lower(gradient(MaxPoolingGrad, (64, 64, 28, width), (3, 3), step, 1, data_type), GPU).dispatches
    assert isinstance(dispatch, Dispatch)
    found = dict(dispatch.kernel.constants)
    assert (found["LANES"], found["INPUT_MODE"], found["OUTPUT_MODE"]) == (lanes, mode, mode)
    assert found["COLUMNS"] % lanes == 0


@pytest.mark.parametrize("include_padding", [False, True])
def test_whole_planes_are_broadcast(include_padding: bool) -> None:
    desc = gradient(AveragePoolingGrad, (8, 32, 7, 7), (7, 7), include_padding=include_padding)
    assert possible_rules(desc, GPU)[0] == "broadcast"
    (dispatch,) = lower(desc, GPU).dispatches
    assert isinstance(dispatch, Dispatch)
    assert dispatch.kernel.kernel == "elementwise_unary"
    assert possible_rules(gradient(AveragePoolingGrad, (8, 32, 7, 7), (6, 7)), GPU)[0] != "broadcast"


def test_indices_are_temporary_and_the_maxima_beside_them() -> None:
    desc = gradient(MaxPoolingGrad, (1, 2, 40, 40), (17, 17))
    plan = lower(desc, GPU, force="indices")
    search, gather = plan.dispatches
    count = 2 * 24 * 24
    assert plan.temporary_bytes == -(-4 * count // 256) * 256 + 4 * count
    assert [place.source for place in search.bindings] == [Source.INPUT, Source.TEMPORARY, Source.TEMPORARY]
    assert gather.bindings == (input_range(1), search.bindings[2], output_range())


@pytest.mark.parametrize(
    ("data_type", "layout", "window", "step", "padding", "wanted"),
    [
        (FLOAT32, "", 2, 2, 0, {"LANES": 4, "WINDOWS_W": 2, "FIRST_W": 0, "LEAD_W": 0, "GRADIENT_MODE": 1}),
        # A row of 4: the windows that start 2 before it to those that end 2 behind it.
        (FLOAT32, "", 3, 1, 1, {"LANES": 4, "WINDOWS_W": 6, "FIRST_W": 2**32 - 1, "LEAD_W": 2, "INPUT_MODE": 1}),
        (FLOAT32, "", 3, 2, 1, {"LANES": 4, "WINDOWS_W": 3, "FIRST_W": 0, "LEAD_W": 1, "COLUMNS_WHOLE": 1}),
        # 28 elements of dy are whole groups of 4, half of 8.
        (FLOAT16, "", 3, 2, 1, {"LANES": 8, "WINDOWS_W": 5, "FIRST_W": 0, "GRADIENT_MODE": 1, "OUTPUT_MODE": 1}),
        (FLOAT32, "NHWC", 2, 2, 0, {"CHANNELS": 1, "LANES": 4, "INPUT_MODE": 1, "GRADIENT_MODE": 1}),
    ],
)
def test_tiles_by_hand(
    data_type: TensorDataType, layout: str, window: int, step: int, padding: int, wanted: dict[str, int]
) -> None:
    desc = gradient(MaxPoolingGrad, (32, 256, 56, 56), (window, window), step, padding, data_type, layout)
    (dispatch,) = lower(desc, GPU).dispatches
    assert isinstance(dispatch, Dispatch)
    found = dict(dispatch.kernel.constants)
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("row", [AveragePoolingGrad, MaxPoolingGrad])
@pytest.mark.parametrize("caps", [GPU, CPU])
def test_tiles_fit_the_registers(row: type[MaxPoolingGrad], caps: Capabilities) -> None:
    for window in range(1, 6):
        for step in range(1, 5):
            for layout in ("", "NHWC"):
                desc = gradient(row, (64, 64, 24, 24), (window, window), step, window // 2, layout=layout)
                words = [tile.words for tile in tiles(desc)]
                possible = possible_rules(desc, caps)
                assert ("lanes" in possible) == (min(words) <= GRADIENT_TILE_WORDS)
                lower(desc, caps)


def test_planes_of_any_size_share_a_pipeline() -> None:
    kernels = {
        lower(gradient(MaxPoolingGrad, (64, 64, size, size), (3, 3), 2, 1), GPU).dispatches[0].kernel  # type: ignore[union-attr]
        for size in (24, 32, 48, 56)
    }
    assert len(kernels) == 1


def test_loops_that_a_cpu_would_leave_are_refused() -> None:
    desc = gradient(AveragePoolingGrad, (1, 1, 600, 600), (300, 300))
    lower(desc, GPU)
    with pytest.raises(UnsupportedError, match="rounds"):
        lower(desc, CPU)


GEOMETRIES = (
    ((2, 3, 9, 10), (3, 2), 2, 1, {}),
    ((1, 2, 4, 5, 6), (2, 3, 2), 1, 1, {}),
    ((1, 2, 9, 8), (2, 3), 1, 1, {"dilations": (3, 2)}),
)


@pytest.mark.parametrize("include_padding", [False, True])
@pytest.mark.parametrize(("sizes", "window", "step", "padding", "more"), GEOMETRIES[:2])
def test_an_averages_gradient_is_its_transpose(
    sizes: tuple[int, ...], window: tuple[int, ...], step: int, padding: int, more: dict[str, Any], include_padding: bool
) -> None:
    """The forward operator is linear: sum(dy * A x) = sum(dx * x) for every x."""
    desc = gradient(AveragePoolingGrad, sizes, window, step, padding, include_padding=include_padding, **more)
    assert isinstance(desc, AveragePoolingGrad)
    rng = np.random.default_rng(0)
    dy = rng.standard_normal(desc.tensor("input_gradient_tensor").sizes)
    dx = average_pooling_grad(desc, dy).value
    for _ in range(5):
        x = rng.standard_normal(sizes)
        assert np.sum(dy * average_pooling1(desc.forward(), x).value) == pytest.approx(np.sum(dx * x), rel=1e-12)


@pytest.mark.parametrize(("sizes", "window", "step", "padding", "more"), GEOMETRIES)
def test_a_maximums_gradient_is_the_slope_of_its_forward(
    sizes: tuple[int, ...], window: tuple[int, ...], step: int, padding: int, more: dict[str, Any]
) -> None:
    """Central differences of sum(dy * max(x)) along random directions: x is smooth where no two numbers are closer than
    the step."""
    desc = gradient(MaxPoolingGrad, sizes, window, step, padding, **more)
    assert isinstance(desc, MaxPoolingGrad)
    rng = np.random.default_rng(1)
    x = rng.permutation(int(np.prod(sizes))).reshape(sizes).astype(np.float64)
    dy = rng.standard_normal(desc.tensor("input_gradient_tensor").sizes)
    dx = max_pooling_grad(desc, x, dy).value
    for _ in range(5):
        direction = rng.uniform(-0.25, 0.25, sizes)
        up, down = (np.sum(dy * max_pooling2(desc.forward(), x + sign * direction)[0]) for sign in (1, -1))
        assert (up - down) / 2 == pytest.approx(np.sum(dx * direction), rel=1e-9)
