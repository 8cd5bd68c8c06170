"""Matrix products against numpy, ONNX Runtime's semantics being numpy's, and PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from types import ModuleType
from typing import Any

import choices
import numpy as np
import onnx.reference
import pytest
from compiled import assert_in_registers
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import MatrixTransform, TensorDataType, TensorDesc, TensorFlags, eager
from dmlvk.directml.operator import Signature, TensorSlot
from dmlvk.directml.ready_operator import ReadyOperator, initialize
from dmlvk.kernels.common.plan import Dispatch, Plan, input_range, output_range
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.matmul import lowering as matmul
from dmlvk.kernels.matmul import streams
from dmlvk.kernels.matmul.tiles import ProductTile, Tiles
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import GemmAdd, GemmGate
from dmlvk.verify.oracle.matmul import gemm_gate

Array = NDArray[Any]
NONE, TRANSPOSE = MatrixTransform


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def describe(a: Array, b: Array, **attributes: Any) -> dmlvk.Gemm:
    """The product of two arrays as they lie."""
    kind = TensorDataType[a.dtype.name.upper()]
    tensors = [TensorDesc(kind, x.shape, tuple(step // x.itemsize for step in x.strides)) for x in (a, b)]
    desc = dmlvk.Gemm(a_tensor=tensors[0], b_tensor=tensors[1], **attributes)
    return desc.replace(output_tensor=TensorDesc(kind, desc.inferred_output_sizes()[0]))


def run(
    device: dmlvk.Device,
    a: Array,
    b: Array,
    rule: str,
    *,
    kept: bool = False,
    added: tuple[Array, Array] | None = None,
    **attributes: Any,
) -> Array:
    """The product by one of the rules. ``kept``: the second factor is OWNED_BY_DML. ``added``: C and an addend."""
    desc = describe(a, b, **attributes)
    inputs = [memory(device, a), memory(device, b), None]
    if added is not None:
        kind = desc.tensor("output_tensor").data_type
        c, addend = (TensorDesc(kind, x.shape, tuple(step // x.itemsize for step in x.strides)) for x in added)
        fields = {spec.name: getattr(desc, spec.name) for spec in desc.fields}
        desc = GemmAdd(**{**fields, "c_tensor": c}, addend_tensor=addend)
        inputs = [*inputs[:2], *(memory(device, x) for x in added)]
    if kept:
        desc = desc.replace(b_tensor=dataclasses.replace(desc.tensor("b_tensor"), flags=TensorFlags.OWNED_BY_DML))
    operator = ReadyOperator(device, desc, rule, owned=inputs)
    output = BufferBinding(device.create_buffer(desc.tensor("output_tensor").total_tensor_size_in_bytes))
    commands = device.create_command_list()
    operator.record(commands, inputs, [output])
    commands.submit()
    commands.wait()
    sizes = desc.tensor("output_tensor").sizes
    return output.buffer.read().view(a.dtype)[: int(np.prod(sizes))].reshape(sizes)


def run_streamed(device: dmlvk.Device, a: Array, b: Array, *, kept: bool, **attributes: Any) -> Array:
    """The product by the rule streamed, its second factor packed at initialisation or each time: the same bits twice."""
    before = device.dispatches
    found = [run(device, a, b, "streamed", kept=kept, **attributes) for _ in range(2)]
    assert device.dispatches >= before + 2
    np.testing.assert_array_equal(*found)
    return found[0]


def memory(device: dmlvk.Device, array: Array) -> BufferBinding:
    """A buffer with all of the memory that an array views, to the last byte of its last row."""
    whole = array if array.base is None else array.base
    assert isinstance(whole, np.ndarray)
    buffer = device.create_buffer(-(-whole.nbytes // 4) * 4)
    buffer.write(np.ascontiguousarray(whole))
    return BufferBinding(buffer)


def assert_close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


@pytest.mark.parametrize("trans_a", [NONE, TRANSPOSE])
@pytest.mark.parametrize("trans_b", [NONE, TRANSPOSE])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, trans_a: MatrixTransform, trans_b: MatrixTransform) -> None:
    a, b, c = random(*((19, 33) if trans_a else (33, 19))), random(*((27, 19) if trans_b else (19, 27))), random(27)
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=0.5, beta=2.0, transA=int(trans_a), transB=int(trans_b))
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"a": a, "b": b, "c": c})
    expected = results[0]
    found = eager.gemm(
        a,
        b,
        np.broadcast_to(c, expected.shape),
        trans_a=trans_a,
        trans_b=trans_b,
        alpha=0.5,
        beta=2.0,
        device=device,
    )
    assert_close(found, expected)


@pytest.mark.parametrize("rows", [1, 4, 5, 70])
@pytest.mark.parametrize("columns", [1, 3, 65])
def test_batches_agree_with_torch(device: dmlvk.Device, torch: ModuleType, rows: int, columns: int) -> None:
    a, b = random(2, 3, rows, 21), random(2, 3, 21, columns)
    expected = torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert_close(eager.gemm(a, b, device=device), expected)


TILES = (
    Tiles(ProductTile(8, 4, 12, 8), 8, 1, 1),  # large blocks; what lies along the depth is turned in registers
    Tiles(ProductTile(16, 2, 4, 4), 8, 1, 1),  # two invocations along the rows; fewer accesses of A than invocations
    Tiles(ProductTile(16, 8, 4, 4), 16, 1, 1),  # rounds one after the other, where those of the others overlap (STEADY)
    Tiles(ProductTile(8, 4, 4, 4), 4, 4, 1),  # slices that share the rounds evenly, and such whose last one has none
    Tiles(ProductTile(8, 4, 4, 4), 4, 2, 3),  # slices of parts
)
"""Tiles that a CPU is not given by itself."""


TILED_PRODUCTS = (
    ((37, 45, 67), NONE, np.float32),
    ((36, 44, 68), NONE, np.float32),
    ((37, 48, 67), NONE, np.float32),  # whole rounds
    ((36, 44, 68), TRANSPOSE, np.float32),
    ((36, 48, 68), TRANSPOSE, np.float32),
    ((36, 44, 68), TRANSPOSE, np.float16),
)
"""Rows, columns and depth, the second operand's transform, and the type."""


@pytest.mark.parametrize(("product", "tiles"), crossed(TILED_PRODUCTS, TILES))
def test_tiles_of_other_shapes_give_the_same_product(
    device: dmlvk.Device,
    monkeypatch: pytest.MonkeyPatch,
    product: tuple[tuple[int, int, int], MatrixTransform, type[np.floating]],
    tiles: Tiles,
) -> None:
    (rows, depth, columns), transform, dtype = product
    monkeypatch.setattr(matmul, "fastest_tiles", lambda *_, **__: tiles)
    a, b = random(rows, depth).astype(dtype), random(depth, columns).astype(dtype)
    given = [np.ascontiguousarray(x.T) if transform else x for x in (a, b)]
    found = run(device, *given, "tiled", trans_a=transform, trans_b=transform)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=(4e-6 if dtype == np.float32 else 1e-3) * abs(expected).max())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_long_sums_of_few_rows_meet_in_temporary_memory(device: dmlvk.Device, rows: int, transposed: bool) -> None:
    a, b = random(rows, 40_001), random(40_001, 18)
    given = np.ascontiguousarray(b.T) if transposed else b
    desc = describe(a, given, trans_b=MatrixTransform(int(transposed)))
    # A GPU's workgroup is wide enough for a whole column that lies in a row.
    in_one = transposed and not device.capabilities.is_cpu
    assert len(lower(desc, device.capabilities, force="vector").dispatches) == (1 if in_one else 2)
    assert_close(run(device, a, given, "vector", trans_b=MatrixTransform(int(transposed))), a.astype(np.float64) @ b)


STAGED_SHAPES = (
    matmul._StagedShape(2, 8, 2, 1),  # two blocks on their way, lanes for more than one subgroup
    matmul._StagedShape(4, 4, 1, 3),  # parts, the last one shorter
)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((8, 129, 36), np.float32),  # depths behind the last turn
        ((5, 64, 70), np.float32),  # whole turns; a last quad of columns with two
        ((300, 77, 6), np.float32),  # few columns
        ((7, 140, 36), np.float16),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", STAGED_SHAPES)
def test_rows_pass_through_shared_memory(
    device: dmlvk.Device,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int],
    dtype: type[np.floating],
    transposed: bool,
    shape: Any,
) -> None:
    """Behind what is multiplied there are NaN."""
    rows, depth, columns = sizes
    monkeypatch.setattr(matmul, "_staged_shape", lambda *_: shape)
    a = np.full((2, rows, depth + 3), np.nan, dtype)[..., :depth]
    wide = np.full((2, columns, depth + 4) if transposed else (2, depth, columns + 4), np.nan, dtype)
    b = wide[..., :depth].transpose(0, 2, 1) if transposed else wide[..., :columns]
    a[...], b[...] = random(2, rows, depth), random(2, depth, columns)
    found, expected = run(device, a, b, "staged"), a.astype(np.float64) @ b
    np.testing.assert_allclose(found, expected, rtol=0, atol=(4e-6 if dtype == np.float32 else 1e-3) * abs(expected).max())


@pytest.mark.parametrize(
    ("sizes", "dtype", "transposed", "lines"),
    [
        ((17, 22, 30), np.float32, False, "rows"),
        ((40, 24, 68), np.float32, False, "columns"),
        ((40, 24, 68), np.float32, True, "none"),
        ((33, 9, 7), np.float32, True, "all"),
        ((40, 24, 68), np.float16, False, "rows"),
        ((17, 22, 30), np.float16, True, "columns"),
    ],
)
def test_any_number_of_rows_of_an_invocation_gives_the_same_bits(
    device: dmlvk.Device,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int],
    dtype: type[np.floating],
    transposed: bool,
    lines: str,
) -> None:
    """C is one number a row, one a column, or another one everywhere. Some rows and columns are behind the last one."""
    rows, depth, columns = sizes
    a, b = random(2, rows, depth).astype(dtype), random(2, depth, columns).astype(dtype)
    given = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1) if transposed else b
    desc, inputs, expected = describe(a, given), [a, given], a.astype(np.float64) @ b
    if lines != "none":
        c = random(*{"rows": (rows, 1), "columns": (1, columns), "all": (rows, columns)}[lines]).astype(dtype)
        whole = np.broadcast_to(c, expected.shape)
        strides = tuple(step // c.itemsize for step in whole.strides)
        desc = desc.replace(c_tensor=TensorDesc(desc.a_tensor.data_type, whole.shape, strides))
        inputs, expected = [*inputs, c], expected + whole
    found = []
    for most in (8, 16, 32):
        monkeypatch.setattr(matmul, "_ROWS_BY_WORK", ((0, most),))
        operator = ReadyOperator(device, desc, "rows")
        (launch,) = operator.compiled.plan.dispatches
        assert isinstance(launch, Dispatch) and dict(launch.kernel.constants)["ROWS"] == most
        output = BufferBinding(device.create_buffer(desc.tensor("output_tensor").total_tensor_size_in_bytes))
        commands = device.create_command_list()
        operator.record(commands, [*(memory(device, x) for x in inputs), *[None] * (3 - len(inputs))], [output])
        commands.submit()
        commands.wait()
        found.append(output.buffer.read().view(dtype)[: expected.size].reshape(expected.shape))
    np.testing.assert_allclose(
        found[0], expected, rtol=0, atol=(4e-6 if dtype == np.float32 else 1e-3) * abs(expected).max()
    )
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_sums_too_long_for_a_cpus_other_kernels(device: dmlvk.Device) -> None:
    a, b = random(3, 140_000), random(140_000, 5)
    # Half a unit in the last place of what the magnitudes of all terms add up to.
    limit = 2.0**-24 * (np.abs(a) @ np.abs(b)).max()
    np.testing.assert_allclose(eager.gemm(a, b, device=device), a.astype(np.float64) @ b, rtol=0, atol=limit)


@pytest.mark.parametrize("rows", [3, 70])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("lies", ["as the output", "transposed", "as one row"])
def test_an_addend_is_added_by_every_rule(device: dmlvk.Device, rows: int, alpha: float, lies: str) -> None:
    a, b, c = random(2, rows, 68), random(2, 68, 20), np.broadcast_to(random(20), (2, rows, 20))
    addend = {
        "as the output": random(2, rows, 20),
        "transposed": random(20, rows, 2).transpose(2, 1, 0),
        "as one row": np.broadcast_to(random(1, 1, 20), (2, rows, 20)),
    }[lies]
    plain = describe(a, b, alpha=alpha, c_tensor=TensorDesc(TensorDataType.FLOAT32, c.shape, (0, 0, 1)))
    fields = {spec.name: getattr(plain, spec.name) for spec in plain.fields}
    view = TensorDesc(TensorDataType.FLOAT32, addend.shape, tuple(step // 4 for step in addend.strides))
    adding = GemmAdd(**{**fields, "fused_activation": dmlvk.ActivationRelu()}, addend_tensor=view)
    inputs = [memory(device, array) for array in (a, b, c, addend)]
    output = BufferBinding(device.create_buffer(4 * addend.size))
    rules = possible_rules(adding, device.capabilities)
    assert (
        {"tiled", "naive", "vector" if rows == 3 else "split"}
        <= set(rules)
        == set(possible_rules(plain, device.capabilities))
    )
    for rule in rules:
        found = []
        for desc in (plain, adding):
            commands = device.create_command_list()
            ReadyOperator(device, desc, rule).record(commands, inputs[: len(desc.input_slots())], [output])
            commands.submit()
            found.append(output.buffer.read().view(np.float32).reshape(addend.shape))
        expected = np.maximum(found[0] + addend, 0)
        if rule == "tiled" and alpha == 1.0:  # whose sums begin with it
            assert_close(found[1], expected)
        else:
            np.testing.assert_array_equal(found[1], expected, err_msg=rule)


@pytest.mark.parametrize("rule", ["tiled", "split", "vector", "staged", "rows", "naive"])
def test_what_lies_past_the_edges_counts_nothing(device: dmlvk.Device, rule: str) -> None:
    """Rows are padded by infinities, which an access of four elements reads, too: none of them may reach a sum."""
    wide_a, wide_b, long_b = (
        np.full((rows, 60), filler, np.float32) for rows, filler in ((3, np.inf), (45, np.nan), (18, np.nan))
    )
    a, b, transposed = wide_a[:, :45], wide_b[:, :18], long_b[:, :45].T
    a[...], b[...] = random(3, 45), random(45, 18)
    transposed[...] = b
    for given in (b, transposed):
        assert_close(run(device, a, given, rule), a.astype(np.float64) @ b)


@pytest.mark.parametrize("pitches", [(0, 0), (3, 0), (0, 5), (1, 1), (4, 2)], ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("sizes", [(16, 8, 9), (70, 45, 66), (130, 203, 197), (300, 517, 261)], ids=str)
def test_lines_of_matrices_start_anywhere(
    device: dmlvk.Device, sizes: tuple[int, int, int], turned: tuple[bool, bool], pitches: tuple[int, int]
) -> None:
    """Behind each there are so many NaN. What is stored may be a ULP of float16 off."""
    rows, depth, columns = sizes
    factors = []
    for lines, width, is_turned, pitch in zip((rows, depth), (depth, columns), turned, pitches, strict=True):
        wide = np.full((width, lines + pitch) if is_turned else (lines, width + pitch), np.nan, np.float16)
        factor = wide[:, :lines].T if is_turned else wide[:, :width]
        factor[...] = random(lines, width)
        factors.append(factor)
    a, b = factors
    if "cooperative" not in possible_rules(describe(a, b), device.capabilities):
        pytest.skip("the device has no cooperative matrices")
    expected = a.astype(np.float64) @ b
    found = run(device, a, b, "cooperative")
    np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-20 * depth**0.5)


STREAMED = [kind.tile for kind in streams._KINDS]


@pytest.fixture
def streaming(device: dmlvk.Device) -> dmlvk.Device:
    """A device that has the rule streamed."""
    a, b = np.ones((16, 128), np.float16), np.ones((128, 16), np.float16)
    if "streamed" not in possible_rules(describe(a, b), device.capabilities):
        pytest.skip("the device has no matrices whose elements lie where streams fill them")
    return device


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "packed each time"])
@pytest.mark.parametrize("tile", STREAMED, ids=str)
def test_factors_stream_by_every_tile(
    streaming: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tile: streams.StreamedTile, kept: bool
) -> None:
    """What is stored may be a ULP of float16 off, and sums are as good as those of float32."""
    for rows, depth, columns in ((70, 512, 90), (48, 768, 256), (5, 264, 16), (130, 1000, 301)):
        # Of 264 terms a round of 256 would reach past what is packed.
        own = STREAMED[3] if -(-depth // streams.PACKED_DEPTH) * streams.PACKED_DEPTH % tile.depth else tile
        a, turned = random(rows, depth).astype(np.float16), random(columns, depth).astype(np.float16)
        expected = a.astype(np.float64) @ turned.T
        allowed = 2.0**-10 * np.abs(expected) + 2.0**-21 * (np.abs(a).astype(np.float64) @ np.abs(turned.T))
        for parts, b in itertools.product((1, 2), (turned.T, np.ascontiguousarray(turned.T))):
            monkeypatch.setattr(matmul, "streamed_parts", lambda *sizes, merged, chosen=(own, parts): chosen)
            assert (np.abs(run_streamed(streaming, a, b, kept=kept) - expected) <= allowed).all()


def test_streams_of_a_batch_share_their_factor(streaming: dmlvk.Device) -> None:
    a, b = random(2, 3, 33, 136).astype(np.float16), random(136, 50).astype(np.float16)
    found = run_streamed(streaming, a, np.broadcast_to(b, (2, 3, 136, 50)), kept=True)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=2.0**-10, atol=2.0**-16)


def test_streams_end_with_a_factor_and_an_activation(streaming: dmlvk.Device) -> None:
    """As by the rule cooperative, whose sums are the same."""
    a, b = random(77, 256).astype(np.float16), random(256, 64).astype(np.float16)
    relu = {"alpha": 0.5, "fused_activation": dmlvk.ActivationRelu()}
    found = run_streamed(streaming, a, b, kept=True, **relu)
    np.testing.assert_array_equal(found, run(streaming, a, b, "cooperative", **relu))


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("lies", ["as the output", "transposed", "as one row"])
@pytest.mark.parametrize("tile", STREAMED, ids=str)
def test_streams_add_a_tensor_beside_c(
    streaming: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tile: streams.StreamedTile, lies: str, alpha: float
) -> None:
    """Sums may begin with it; in two parts it is added where they are."""
    for rows, depth, columns in ((70, 512, 96), (197, 768, 301)):
        a, b, bias = (random(*sizes).astype(np.float16) for sizes in ((rows, depth), (depth, columns), (columns,)))
        addend = {
            "as the output": random(rows, columns).astype(np.float16),
            "transposed": random(columns, rows).astype(np.float16).T,
            "as one row": np.broadcast_to(random(columns, 1)[:, 0].astype(np.float16), (rows, columns)),
        }[lies]
        added = np.broadcast_to(bias, (rows, columns)), addend
        expected = np.maximum(alpha * (a.astype(np.float64) @ b) + bias + addend, 0)
        magnitudes = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias) + np.abs(addend)
        for parts in (1, 2):
            monkeypatch.setattr(matmul, "streamed_parts", lambda *sizes, merged, chosen=(tile, parts): chosen)
            ends = {"alpha": alpha, "fused_activation": dmlvk.ActivationRelu()}
            found = run_streamed(streaming, a, b, kept=True, added=added, **ends)
            assert (np.abs(found - expected) <= 2.0**-10 * expected + 2.0**-21 * magnitudes).all()


def test_nothing_past_the_depth_streams(streaming: dmlvk.Device) -> None:
    """Behind rows there are NaN, and an infinity in the last word of one stays in its row."""
    wide = np.full((20, 272), np.nan, np.float16)
    a, b = wide[:, :264], random(264, 24).astype(np.float16)
    a[...] = random(20, 264)
    a[3, 263], b[263, 5] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    found = run_streamed(streaming, a, b, kept=True)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("columns", "depth"), [(16, 128), (40, 24), (5, 264)])
def test_packed_factors_lie_as_invocations_have_them(device: dmlvk.Device, columns: int, depth: int, turned: bool) -> None:
    """Of 16 columns and 16 terms, one after the other, invocation i has columns i / 4 and 8 more, of each the terms
    2 (i % 4), one more, and both 8 further on."""
    b = np.arange(1, columns * depth + 1, dtype=np.uint16).reshape(depth, columns).view(np.float16)
    b = np.ascontiguousarray(b.T).T if turned else b
    dispatch = lower(describe(np.ones((16, depth), np.float16), b), choices.DEVICES["h200"], force="streamed").dispatches[0]
    assert isinstance(dispatch, Dispatch) and dispatch.kernel.kernel == "gemm_pack"
    nbytes = streams.packed_bytes(columns, depth)
    kind = TensorDataType.UINT16
    signature = Signature(
        "pack",
        (TensorSlot("B", TensorDesc(kind, (b.size,))),),
        (TensorSlot("Y", TensorDesc(kind, (nbytes // 2,))),),
        frozenset(),
    )
    compiled = device.compile_plan(
        signature, Plan((dataclasses.replace(dispatch, bindings=(input_range(0), output_range())),))
    )
    initialize(device, compiled)
    output = BufferBinding(device.create_buffer(nbytes))
    table = device.create_binding_table(compiled)
    table.bind_inputs([memory(device, b)])
    table.bind_outputs([output])
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, compiled, table)
    commands.submit()
    found = output.buffer.read().view(np.uint16).reshape(-(-columns // 16), -1, 32, 2, 2, 2)
    block, step, lane, line, pair, one = np.indices(found.shape)
    column, term = 16 * block + lane // 4 + 8 * line, 16 * step + lane % 4 * 2 + 8 * pair + one
    padded = np.zeros((term.max() + 1, column.max() + 1), np.uint16)
    padded[:depth, :columns] = b.view(np.uint16)
    np.testing.assert_array_equal(found, padded[term, column])


@pytest.mark.parametrize("rule", ["tiled", "split", "vector", "staged", "naive"])
def test_infinities_and_nan_stay_in_their_rows(device: dmlvk.Device, rule: str) -> None:
    a, b = random(4, 70), random(70, 9)
    a[1, 69], a[2, 3], b[40, 4] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    found = run(device, a, b, rule)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


def test_a_matrix_shared_by_the_batch_is_a_zero_stride(device: dmlvk.Device) -> None:
    a, b = random(3, 9, 12), random(12, 10)
    found = eager.gemm(a, np.broadcast_to(b, (3, 12, 10)), device=device)
    assert_close(found, a @ b)


def test_float16_sums_in_float32(device: dmlvk.Device) -> None:
    """2048 + 1 is 2048 in float16: a sum kept there would stop growing."""
    a, b = np.ones((2, 4096), np.float16), np.ones((4096, 3), np.float16)
    np.testing.assert_array_equal(eager.gemm(a, b, device=device), np.full((2, 3), 4096, np.float16))


def test_a_fused_softmax_is_the_softmax(device: dmlvk.Device) -> None:
    a, b = random(7, 16), random(16, 33)
    plain = eager.gemm(a, b, device=device)
    fused = eager.gemm(a, b, fused_activation=dmlvk.ActivationSoftmax(), device=device)
    np.testing.assert_array_equal(fused, eager.activation_softmax(plain, device=device))


@pytest.mark.parametrize("gate", [Gate.SILU, Gate.GELU])
@pytest.mark.parametrize("lies", ["along the depth", "across it"])
@pytest.mark.parametrize("rows", [3, pytest.param(11, marks=pytest.mark.full)])
def test_a_gate_is_of_every_rule(device: dmlvk.Device, rows: int, lies: str, gate: Gate) -> None:
    """Of two matrices, whose depth is no multiple of what is read at once."""
    is_turned = lies == "along the depth"
    a, b = random(2, rows, 70), random(2, *((48, 70) if is_turned else (70, 48)))
    tensors = [TensorDesc(TensorDataType.FLOAT32, sizes) for sizes in (a.shape, b.shape, (2, rows, 24))]
    fields = dict(zip(("a_tensor", "b_tensor", "output_tensor"), tensors, strict=True))
    desc = GemmGate(**fields, trans_b=MatrixTransform(int(is_turned)), gate=gate)
    desc.validate()
    expected = gemm_gate(desc, a, b)
    rules = possible_rules(desc, device.capabilities)
    assert set(rules) == ({"vector", "apart"} if rows == 3 else {"apart"})
    inputs = [memory(device, array) for array in (a, b)]
    output = BufferBinding(device.create_buffer(tensors[2].total_tensor_size_in_bytes))
    for rule in rules:
        commands = device.create_command_list()
        ReadyOperator(device, desc, rule).record(commands, inputs, [output])
        commands.submit()
        found = output.buffer.read().view(np.float32).reshape(2, rows, 24)
        error = np.abs(found - expected.value)
        assert (error <= 2.0**-21 * expected.magnitude).all(), (rule, (error / expected.magnitude).max())


OF_MATRICES = [
    *[(512, 2048, 4096, True), (4096, 4096, 4096, False), (4096, 4096, 4096, True), (128, 768, 768, False)],
    *[
        (4096, 4100, 4100, False),
        (2048, 4097, 1024, True),
        (512, 768, 50257, False),
        (197, 770, 770, False),
        (16, 770, 770, True),
    ],
]
"""Rows, depth and columns of products, and whether the second factor is transposed: in whole words and not."""


@pytest.mark.parametrize("rows, depth, columns, transposed", OF_MATRICES)
def test_tiles_of_matrices_keep_their_sums_in_registers(
    device: dmlvk.Device, rows: int, depth: int, columns: int, transposed: bool
) -> None:
    """On an H200 sums in local memory take ten times as long."""
    matrices = (rows, depth), (columns, depth) if transposed else (depth, columns), (rows, columns)
    tensors = (TensorDesc(TensorDataType.FLOAT16, sizes) for sizes in matrices)
    fields = dict(zip(("a_tensor", "b_tensor", "output_tensor"), tensors, strict=True))
    desc = dmlvk.Gemm(**fields, trans_b=TRANSPOSE if transposed else NONE)
    assert_in_registers(device, desc, "cooperative", "gemm_cooperative")


@pytest.mark.parametrize("tile", STREAMED, ids=str)
def test_streamed_tiles_keep_their_sums_in_registers(
    streaming: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tile: streams.StreamedTile
) -> None:
    monkeypatch.setattr(matmul, "streamed_parts", lambda *sizes, merged: (tile, 1))
    desc = describe(np.zeros((197, 768), np.float16), np.zeros((768, 768), np.float16))
    assert_in_registers(streaming, desc, "streamed", "gemm_streamed")
