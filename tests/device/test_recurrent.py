"""Recurrent networks against PyTorch and ONNX Runtime, and what must hold exactly: directions, lengths, carried states."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dmlvk
from dmlvk import RecurrentNetworkDirection, TensorDesc, TensorFlags
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.recurrent import rules
from dmlvk.kernels.recurrent.rules import STEP_TILES, StepTile
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.schema import OperatorDesc

Array = NDArray[Any]
FORWARD, BACKWARD, BOTH = RecurrentNetworkDirection
GATES = {dmlvk.Rnn: 1, dmlvk.Lstm: 4, dmlvk.Gru: 3}
SIGMOID, TANH = dmlvk.ActivationSigmoid(), dmlvk.ActivationTanh()
FUNCTIONS: dict[Any, tuple[OperatorDesc, ...]] = {
    dmlvk.Rnn: (TANH,),
    dmlvk.Lstm: (SIGMOID, TANH, TANH),
    dmlvk.Gru: (SIGMOID, TANH),
}
CELLS = [(dmlvk.Rnn, {}), (dmlvk.Lstm, {}), (dmlvk.Gru, {}), (dmlvk.Gru, {"linear_before_reset": True})]
CELL_NAMES = ["rnn", "lstm", "gru", "gru-linear"]
RULES = ["whole", "step", "block", "naive"]
WORDS = 136
"""Units whose rows of the recurrence matrix consist of words of FLOAT16, and no whole rounds or workgroups."""


def arrays_for(row: Any, steps: int, batch: int, inputs: int, hidden: int, directions: int = 1) -> dict[str, Array]:
    """Every input but lengths and peepholes, in the sizes of the struct."""
    rng = np.random.default_rng([steps, batch, inputs, hidden])
    rows = GATES[row] * hidden
    sizes = {
        "input_tensor": (1, steps, batch, inputs),
        "weight_tensor": (1, directions, rows, inputs),
        "recurrence_tensor": (1, directions, rows, hidden),
        "bias_tensor": (1, 1, directions, 2 * rows),
        "hidden_init_tensor": (1, directions, batch, hidden),
    }
    if row is dmlvk.Lstm:
        sizes["cell_mem_init_tensor"] = sizes["hidden_init_tensor"]
    return {name: (rng.standard_normal(size) * 0.4).astype(np.float32) for name, size in sizes.items()}


def run(
    device: dmlvk.Device,
    row: Any,
    arrays: dict[str, Array],
    direction: RecurrentNetworkDirection = FORWARD,
    rule: str = "",
    owned: tuple[str, ...] = (),
    **attributes: Any,
) -> list[Array]:
    """All outputs, by a rule of the caller's choice; ``owned`` names inputs that are OWNED_BY_DML."""
    functions = attributes.pop("activation_descs", FUNCTIONS[row] * (2 if direction == BOTH else 1))
    tensors = {
        name: TensorDesc(data_type_of(array.dtype), array.shape, flags=TensorFlags(name in owned))
        for name, array in arrays.items()
    }
    desc = row(**tensors, activation_descs=functions, direction=direction, **attributes)
    data_type = desc.input_tensor.data_type
    names = [slot.field.name for slot in desc.output_slots()]
    sizes = dict(zip(names, desc.inferred_output_sizes(), strict=True))
    desc = desc.replace(**{name: TensorDesc(data_type, size) for name, size in sizes.items()})
    desc.validate()
    assert not rule or rule in possible_rules(desc, device.capabilities)
    inputs: list[BufferBinding | None] = []
    for slot in desc.input_slots():
        array = arrays.get(slot.field.name)
        if array is None:
            inputs.append(None)
            continue
        buffer = device.create_buffer(-(-array.nbytes // 4) * 4)
        buffer.write(np.ascontiguousarray(array))
        inputs.append(BufferBinding(buffer))
    outputs = [device.create_buffer(slot.tensor.total_tensor_size_in_bytes) for slot in desc.output_slots() if slot.tensor]
    operator = ReadyOperator(device, desc, rule, inputs)
    commands = device.create_command_list()
    operator.record(commands, inputs, list(map(BufferBinding, outputs)))
    device.execute(commands)
    kind = arrays["input_tensor"].dtype
    return [
        buffer.read()[: int(np.prod(sizes[name])) * kind.itemsize].view(kind).reshape(sizes[name])
        for name, buffer in zip(names, outputs, strict=True)
    ]


def equal(found: list[Array], wanted: list[Array]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


# -- second oracles

TORCH_GATES = {dmlvk.Rnn: (0,), dmlvk.Lstm: (0, 2, 3, 1), dmlvk.Gru: (1, 0, 2)}


@pytest.mark.parametrize("row", [dmlvk.Rnn, dmlvk.Lstm, dmlvk.Gru], ids=lambda row: row.__name__)
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, row: Any) -> None:
    """Both directions of a batch of sequences of different lengths. torch's GRU is the one that is linear before reset."""
    steps, batch, hidden, lengths = 9, 4, 21, [9, 1, 5, 7]
    arrays = arrays_for(row, steps, batch, 13, hidden, 2)
    layer = {dmlvk.Rnn: torch.nn.RNN, dmlvk.Lstm: torch.nn.LSTM, dmlvk.Gru: torch.nn.GRU}[row]
    module = layer(13, hidden, bidirectional=True)
    with torch.no_grad():
        for direction, suffix in enumerate(("", "_reverse")):
            biases = arrays["bias_tensor"][0, 0, direction].reshape(2, -1)
            parts = {"weight_ih": arrays["weight_tensor"][0, direction], "bias_ih": biases[0]}
            parts |= {"weight_hh": arrays["recurrence_tensor"][0, direction], "bias_hh": biases[1]}
            for name, values in parts.items():
                blocks = values.reshape(GATES[row], hidden, -1)[list(TORCH_GATES[row])]
                target = getattr(module, f"{name}_l0{suffix}")
                target.copy_(torch.from_numpy(blocks).reshape(target.shape))
        states = [torch.from_numpy(arrays[name][0]) for name in arrays if "init" in name]
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            torch.from_numpy(arrays["input_tensor"][0]), torch.tensor(lengths), enforce_sorted=False
        )
        result, last = module(packed, tuple(states) if len(states) == 2 else states[0])
        sequence, _ = torch.nn.utils.rnn.pad_packed_sequence(result, total_length=steps)
    expected = [sequence.reshape(steps, batch, 2, hidden).transpose(1, 2).numpy()]
    expected += [state.numpy()[None] for state in (last if isinstance(last, tuple) else (last,))]
    arrays["sequence_lengths_tensor"] = np.array(lengths, np.uint32).reshape(1, 1, 1, batch)
    more: dict[str, Any] = {"linear_before_reset": True} if row is dmlvk.Gru else {}
    for mine, theirs in zip(run(device, row, arrays, BOTH, **more), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("row", "attributes", "own"),
    [
        (dmlvk.Rnn, {}, {}),
        (dmlvk.Gru, {}, {}),
        (dmlvk.Gru, {"linear_before_reset": 1}, {"linear_before_reset": True}),
        (dmlvk.Lstm, {}, {}),
        (dmlvk.Lstm, {"input_forget": 1}, {"couple_input_forget": True}),
        (dmlvk.Lstm, {"clip": 0.25}, {"clip_threshold": 0.25, "use_clip_threshold": True}),
    ],
    ids=["rnn", "gru", "gru-linear", "lstm", "lstm-coupled", "lstm-clipped"],
)
def test_agrees_with_onnxruntime(device: dmlvk.Device, row: Any, attributes: dict[str, Any], own: dict[str, Any]) -> None:
    """Every optional input, an empty sequence and one that is said to be longer than it is among them."""
    steps, batch, hidden = 6, 4, 11
    arrays = arrays_for(row, steps, batch, 7, hidden, 2)
    lengths = np.array([3, 0, 6, 1], np.int32)
    given = [arrays["input_tensor"][0], arrays["weight_tensor"][0], arrays["recurrence_tensor"][0]]
    given += [arrays["bias_tensor"][0, 0], lengths, arrays["hidden_init_tensor"][0]]
    names = ["output_sequence_tensor", "output_single_tensor"]
    if row is dmlvk.Lstm:
        arrays["peephole_tensor"] = np.random.default_rng(1).standard_normal((1, 1, 2, 3 * hidden)).astype(np.float32)
        given += [arrays["cell_mem_init_tensor"][0], arrays["peephole_tensor"][0, 0]]
        names.append("output_cell_single_tensor")
    feeds = {f"x{index}": np.ascontiguousarray(array) for index, array in enumerate(given)}
    node = helper.make_node(
        row.__name__.upper(), list(feeds), names, hidden_size=hidden, direction="bidirectional", **attributes
    )
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    graph = helper.make_graph([node], "one", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    sequence, *last = session.run(None, feeds)
    arrays["sequence_lengths_tensor"] = np.where(lengths == steps, 1000, lengths).astype(np.uint32).reshape(1, 1, 1, batch)
    for rule in RULES:
        found = run(device, row, arrays, BOTH, rule, **own)
        for mine, theirs in zip(found, [sequence, *(state[None] for state in last)], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)


# -- what holds to the last bit


@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
@pytest.mark.parametrize("rule", RULES)
def test_backward_is_forward_on_each_reversed_sequence(device: dmlvk.Device, row: Any, more: Any, rule: str) -> None:
    steps, lengths = 6, [6, 2, 5]
    arrays = arrays_for(row, steps, 3, 5, 9)
    arrays["sequence_lengths_tensor"] = np.array(lengths, np.uint32).reshape(1, 1, 1, 3)
    turned = dict(arrays, input_tensor=arrays["input_tensor"].copy())
    for entry, length in enumerate(lengths):
        turned["input_tensor"][0, :length, entry] = arrays["input_tensor"][0, :length, entry][::-1]
    sequence, *last = run(device, row, arrays, BACKWARD, rule, **more)
    wanted, *wanted_last = run(device, row, turned, FORWARD, rule, **more)
    equal(last, wanted_last)
    for entry, length in enumerate(lengths):
        np.testing.assert_array_equal(sequence[:length, 0, entry], wanted[:length, 0, entry][::-1])
        np.testing.assert_array_equal(sequence[length:, 0, entry], 0)
        np.testing.assert_array_equal(last[0][0, 0, entry], sequence[0, 0, entry])


@pytest.mark.parametrize(
    ("cell", "rule"), crossed(CELLS, RULES, name=lambda item: item if item in RULES else CELL_NAMES[CELLS.index(item)])
)
def test_both_directions_are_each_alone(device: dmlvk.Device, cell: tuple[Any, Any], rule: str) -> None:
    row, more = cell
    arrays = arrays_for(row, 4, 2, 6, 10, 2)
    others: tuple[OperatorDesc, ...] = (dmlvk.ActivationHardSigmoid(), dmlvk.ActivationSoftsign(), SIGMOID)
    functions = others[: len(FUNCTIONS[row])] + FUNCTIONS[row]
    both = run(device, row, arrays, BOTH, rule, activation_descs=functions, **more)
    for index, direction in enumerate((FORWARD, BACKWARD)):
        own = {
            name: array[:, index : index + 1]
            for name, array in arrays.items()
            if name not in ("input_tensor", "bias_tensor")
        }
        own |= {"input_tensor": arrays["input_tensor"], "bias_tensor": arrays["bias_tensor"][:, :, index : index + 1]}
        count = len(FUNCTIONS[row])
        half = functions[index * count : (index + 1) * count]
        equal(
            [array[:, index : index + 1] for array in both],
            run(device, row, own, direction, rule, activation_descs=half, **more),
        )


@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
@pytest.mark.parametrize("rule", RULES)
def test_a_carried_state_continues_a_sequence(device: dmlvk.Device, row: Any, more: Any, rule: str) -> None:
    arrays = arrays_for(row, 7, 2, 5, 12)
    whole = run(device, row, arrays, rule=rule, **more)
    first = run(device, row, arrays | {"input_tensor": arrays["input_tensor"][:, :4]}, rule=rule, **more)
    states = dict(zip(("hidden_init_tensor", "cell_mem_init_tensor"), first[1:], strict=False))
    second = run(device, row, arrays | states | {"input_tensor": arrays["input_tensor"][:, 4:]}, rule=rule, **more)
    equal([np.concatenate([first[0], second[0]]), *second[1:]], whole)


@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
@pytest.mark.parametrize("rule", RULES)
def test_sequences_of_a_batch_do_not_touch(device: dmlvk.Device, row: Any, more: Any, rule: str) -> None:
    """A sequence of NaNs in the middle, and NaN past the end of another, leave all others as they are."""
    arrays = arrays_for(row, 3, 5, 6, 11)
    arrays["sequence_lengths_tensor"] = np.array([3, 3, 3, 2, 3], np.uint32).reshape(1, 1, 1, 5)
    clean = run(device, row, arrays, rule=rule, **more)
    spoilt = dict(arrays, input_tensor=arrays["input_tensor"].copy())
    spoilt["input_tensor"][0, :, 2] = np.nan
    spoilt["input_tensor"][0, 2, 3] = np.nan
    found = run(device, row, spoilt, rule=rule, **more)
    others = [0, 1, 3, 4]
    equal([array[:, :, others] for array in found], [array[:, :, others] for array in clean])
    assert np.isnan(found[0][:, :, 2]).all()


def matrices(device: dmlvk.Device) -> None:
    if cooperative_matrix(device.capabilities, "float16", "float32") is None:
        pytest.skip("the device has no cooperative matrices")


def halves(row: Any, steps: int, batch: int, hidden: int, directions: int = 1) -> dict[str, Array]:
    arrays = arrays_for(row, steps, batch, 24, hidden, directions)
    return {name: (array / (3 if "recurrence" in name else 1)).astype(np.float16) for name, array in arrays.items()}


@pytest.mark.parametrize("tile", STEP_TILES, ids=lambda tile: f"{tile.entries}x{tile.units}")
@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
def test_every_tile_of_matrices_gives_what_float32_gives(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, row: Any, more: Any, tile: StepTile
) -> None:
    """But for what is rounded the other way, and to the same bits when run twice."""
    matrices(device)
    monkeypatch.setattr(rules, "STEP_TILES", (tile,))
    arrays = halves(row, 4, 35, WORDS, 2)
    arrays["sequence_lengths_tensor"] = np.resize(np.array([4, 0, 3], np.uint32), (1, 1, 1, 35))
    found = run(device, row, arrays, BOTH, "cooperative", **more)
    equal(run(device, row, arrays, BOTH, "cooperative", **more), found)
    for mine, wanted in zip(found, run(device, row, arrays, BOTH, "naive", **more), strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), wanted.astype(np.float32), rtol=2**-10, atol=2**-20)
        assert (mine == wanted).mean() > 0.98


@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
def test_infinite_states_and_weights_are_multiplied_as_they_are(device: dmlvk.Device, row: Any, more: Any) -> None:
    """An infinite state leaves no rest, and an infinite weight is multiplied by none."""
    matrices(device)
    arrays = halves(row, 1, 17, WORDS)
    arrays["hidden_init_tensor"][0, 0, 3, 5] = np.inf
    arrays["hidden_init_tensor"][0, 0, 16, 7] = -np.inf
    arrays["recurrence_tensor"][0, 0, 9, WORDS - 1] = np.inf
    found = run(device, row, arrays, rule="cooperative", **more)
    wanted = run(device, row, arrays, rule="naive", **more)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), theirs.astype(np.float32), rtol=0, atol=1e-3)


@pytest.mark.parametrize(("row", "more"), CELLS, ids=CELL_NAMES)
def test_matrices_keep_sequences_apart(device: dmlvk.Device, row: Any, more: Any) -> None:
    matrices(device)
    arrays = halves(row, 5, 18, WORDS)
    whole = run(device, row, arrays, rule="cooperative", **more)
    spoilt = dict(arrays, input_tensor=arrays["input_tensor"].copy())
    spoilt["input_tensor"][0, :, 2] = np.nan
    found = run(device, row, spoilt, rule="cooperative", **more)
    others = [entry for entry in range(18) if entry != 2]
    equal([array[:, :, others] for array in found], [array[:, :, others] for array in whole])
    assert np.isnan(found[0][:, :, 2]).all()


@pytest.mark.full  # a quarter of a minute
def test_a_recurrence_matrix_that_is_no_multiple_of_16_bytes(device: dmlvk.Device) -> None:
    """Each hidden size around a group of 4 by every rule that is possible, the others checked against the simplest one."""
    for hidden in (1, 2, 3, 4, 5, 31, 32, 33):
        arrays = arrays_for(dmlvk.Gru, 2, 3, 4, hidden)
        wanted = run(device, dmlvk.Gru, arrays, rule="naive")
        for rule in ("whole", "step", "block"):
            for mine, theirs in zip(run(device, dmlvk.Gru, arrays, rule=rule), wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", ["whole", "step", "block"])
def test_owned_weights_give_the_same(device: dmlvk.Device, rule: str) -> None:
    arrays = {name: array.astype(np.float16) for name, array in arrays_for(dmlvk.Lstm, 3, 2, 5, 11).items()}
    owned = ("weight_tensor", "recurrence_tensor", "bias_tensor")
    equal(run(device, dmlvk.Lstm, arrays, rule=rule, owned=owned), run(device, dmlvk.Lstm, arrays, rule=rule))


def test_a_step_is_one_dispatch(device: dmlvk.Device) -> None:
    """Two for a GRU whose reset gate comes first; and what is made before the steps does not grow with them."""
    for row, more, each in [(dmlvk.Lstm, {}, 1), (dmlvk.Gru, {"linear_before_reset": True}, 1), (dmlvk.Gru, {}, 2)]:
        counts = []
        for steps in (10, 30):
            tensors = {
                name: TensorDesc(data_type_of(array.dtype), array.shape)
                for name, array in arrays_for(row, steps, 2, 8, 16).items()
            }
            single = TensorDesc(dmlvk.TensorDataType.FLOAT32, (1, 1, 2, 16))
            desc = row(**tensors, output_single_tensor=single, activation_descs=FUNCTIONS[row], **more)
            counts.append(len(lower(desc, device.capabilities, force="step").dispatches))
        assert counts[1] - counts[0] == 20 * each
        assert counts[0] - 10 * each <= 5
