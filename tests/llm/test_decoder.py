"""Decoders of tiny models beside a reference in float32: logits, choices, and what they do with their caches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from language_models import VOCABULARY, Reference, write_model

import dmlvk
from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import GENERIC_GPU, H200, DeviceModel
from dmlvk.llm.config import Weights
from dmlvk.llm.decoder import Decoder, _Costs, _pieces
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.sampling import Sampling
from dmlvk.runtime.memory import Buffer
from dmlvk.runtime.recorder import Recording

GREEDY = Sampling()
ROUNDING = 2e-5
"""The difference of logits of a few units that the order of float32's sums may make."""
PROMPT = np.random.default_rng(5).integers(0, VOCABULARY, 43).tolist()


def full(*values: str) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.full) for value in values]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return load_gguf(write_model(tmp_path_factory.mktemp("models") / "llama.gguf", "llama"))


def greedy(reference: Reference, token: int, count: int) -> list[int]:
    """The tokens that a model chooses after one."""
    chosen = []
    for _ in range(count):
        token = int(reference.feed([token])[-1].argmax())
        chosen.append(token)
    return chosen


@pytest.mark.parametrize("name", ["llama", "gemma2", *full("qwen2", "qwen3", "gemma3", "phi3")])
def test_a_model_gives_what_the_reference_gives(device: dmlvk.Device, tmp_path: Path, name: str) -> None:
    weights = load_gguf(write_model(tmp_path / "model.gguf", name))
    decoder, reference = Decoder(device, weights, capacity=64), Reference(weights)
    (logits,) = decoder.feed([PROMPT], all_logits=True)
    np.testing.assert_allclose(logits, reference.feed(PROMPT), atol=ROUNDING)
    tokens = [int(decoder.step([GREEDY], [PROMPT[0]] if index == 0 else None)[0]) for index in range(6)]
    assert tokens == greedy(reference, PROMPT[0], 6)
    assert decoder.lengths == [len(PROMPT) + 6]


@pytest.mark.parametrize("kind", ["Q4_K", *full("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q5_K", "Q6_K")])
def test_weights_of_each_type(device: dmlvk.Device, tmp_path: Path, kind: str) -> None:
    wide = {"embedding_length": 256, "feed_forward_length": 256, "block_count": 1}
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama", kind, **wide))
    decoder, reference = Decoder(device, weights, capacity=32), Reference(weights)
    (logits,) = decoder.feed([PROMPT[:21]])
    expected = reference.feed(PROMPT[:21])[-1]
    np.testing.assert_allclose(logits[0], expected, atol=1e-5 * np.abs(expected).max())
    assert decoder.step([GREEDY], [3])[0] == greedy(reference, 3, 1)[0]


def test_sequences_of_different_lengths(device: dmlvk.Device, llama: Weights) -> None:
    parts = [PROMPT[:11], PROMPT[11:14], []]
    decoder, references = Decoder(device, llama, capacity=32, sequences=3), [Reference(llama) for _ in parts]
    found = decoder.feed(parts)
    assert [len(logits) for logits in found] == [1, 1, 0]
    for reference, part, logits in zip(references[:2], parts, found, strict=False):
        np.testing.assert_allclose(logits[0], reference.feed(part)[-1], atol=ROUNDING)
    assert decoder.step([GREEDY, None, GREEDY], [1, 2, 3])[[0, 2]].tolist() == [
        greedy(references[0], 1, 1)[0],
        greedy(references[2], 3, 1)[0],
    ]
    assert decoder.lengths == [12, 3, 1]
    assert decoder.step([None, GREEDY, None], [1, 2, 3])[1] == greedy(references[1], 2, 1)[0]


def test_a_sequence_is_cut_back_and_shared(device: dmlvk.Device, llama: Weights) -> None:
    decoder = Decoder(device, llama, capacity=32, sequences=2)
    decoder.feed([PROMPT[:20], PROMPT[30:35]])
    decoder.truncate(0, 9)
    decoder.share(0, 1, 7)
    assert decoder.lengths == [9, 7]
    first, second = decoder.feed([PROMPT[20:23], PROMPT[7:11]])
    np.testing.assert_allclose(first[0], Reference(llama).feed(PROMPT[:9] + PROMPT[20:23])[-1], atol=ROUNDING)
    np.testing.assert_allclose(second[0], Reference(llama).feed(PROMPT[:11])[-1], atol=ROUNDING)


def pieces_of(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], int]]:
    """The sequences and rows of the pieces that a decoder takes from now on."""
    taken: list[tuple[tuple[int, ...], int]] = []
    submit = decoder._submit_piece

    def noted(piece: Any, wanted: Any) -> Any:
        taken.append((tuple(piece.places), piece.size))
        return submit(piece, wanted)

    monkeypatch.setattr(decoder, "_submit_piece", noted)
    return taken


@pytest.mark.parametrize("every", [False, True])
def test_long_prompts_of_several_sequences_come_in_pieces(
    device: dmlvk.Device, llama: Weights, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What costs least: as much as the second has of all together, here, then the rest of each alone."""
    parts = [(PROMPT * 3)[:70], PROMPT[:9], PROMPT[:33]]
    monkeypatch.setattr("dmlvk.llm.decoder._PIECES", (8, 32))
    decoder = Decoder(device, llama, capacity=71, sequences=3)
    decoder._costs = {1: _Costs({8: 5, 32: 8}), 3: _Costs({8: 6, 32: 24})}
    taken = pieces_of(decoder, monkeypatch)
    for part, logits in zip(parts, decoder.feed(parts, all_logits=every), strict=True):
        np.testing.assert_allclose(logits, Reference(llama).feed(part)[0 if every else -1 :], atol=ROUNDING)
    assert decoder.lengths == [70, 9, 33]
    assert taken == [((0, 1, 2), 8), ((0, 1, 2), 8), ((0,), 32), ((0,), 32), ((2,), 32)]


def test_a_prompt_alone_costs_its_own_rows(device: dmlvk.Device, llama: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sequences there are; and those that have something keep it."""
    decoder, reference = Decoder(device, llama, capacity=64, sequences=5), Reference(llama)
    taken = pieces_of(decoder, monkeypatch)
    for sequence in (3, 1, 4):
        decoder.extend([PROMPT[:20] if place == sequence else [] for place in range(5)], 8)
    decoder.extend([[], [], [], PROMPT[20:30], []])
    assert taken[:9] == [((sequence,), 8) for sequence in (3, 1, 4) for _ in range(3)]
    assert {places for places, _ in taken[9:]} == {(3,)}
    assert decoder.lengths == [0, 20, 0, 30, 20]
    reference.feed(PROMPT[:30])
    logits = decoder.feed([[], [PROMPT[20]], [], [PROMPT[30]], [PROMPT[20]]])
    np.testing.assert_allclose(logits[3], reference.feed([PROMPT[30]]), atol=ROUNDING)
    np.testing.assert_allclose(logits[1], Reference(llama).feed(PROMPT[:21])[-1:], atol=ROUNDING)
    np.testing.assert_array_equal(logits[4], logits[1])


def test_pieces_cost_least() -> None:
    costs = _Costs({8: 3.0, 32: 4.0, 128: 15.0})
    assert [costs.of(count) for count in (0, 8, 9, 32, 33, 40, 41, 128, 129)] == [0, 3, 4, 4, 7, 7, 8, 15, 18]
    assert [costs.first(count) for count in (1, 8, 9, 40, 120, 128, 500)] == [8, 8, 32, 32, 128, 128, 128]
    assert costs.usual == 32


def test_tokens_of_the_history_are_chosen_less_often(device: dmlvk.Device, llama: Weights) -> None:
    decoder, reference = Decoder(device, llama, capacity=64, sequences=2), Reference(llama)
    decoder.feed([PROMPT[:20], []])
    decoder.share(0, 1, 15)
    decoder.truncate(0, 0)
    history = PROMPT[:15]
    reference.feed(history)
    wary = Sampling(repetition_penalty=4.0)
    token = 7
    for index in range(9):
        chosen = decoder.step([None, wary], None if index else [0, token])[1]
        history.append(token)
        logits = reference.feed(history[-1:])[-1]
        logits[history] = np.where(logits[history] > 0, logits[history] / 4, logits[history] * 4)
        token = int(logits.argmax())
        assert chosen == token
    assert decoder.lengths == [0, 24]


def test_how_probable_chosen_tokens_were(device: dmlvk.Device, llama: Weights) -> None:
    plain, told = (Decoder(device, llama, capacity=32, sequences=2) for _ in range(2))
    reference = Reference(llama)
    warm = Sampling(temperature=2.0, seed=4, frequency_penalty=1.5, answer_start=6)
    history = [*PROMPT[:6]]
    for decoder in (plain, told):
        decoder.extend([[], PROMPT[:5]])
    reference.feed(PROMPT[:5])
    for index in range(5):
        given = None if index else [0, PROMPT[5]]
        chosen, how = told.step_told([None, warm], given)
        assert chosen[1] == plain.step([None, warm], given)[1]
        logits = reference.feed(history[-1:])[-1].astype(np.float64)
        logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        np.testing.assert_allclose(how.logprobs[1], logprobs[chosen[1]], atol=ROUNDING)
        best = how.top_tokens[1]
        assert best.tolist() == np.argsort(-logits, kind="stable")[:20].tolist()
        np.testing.assert_allclose(how.top_logprobs[1], logprobs[best], atol=ROUNDING)
        history.append(int(chosen[1]))
    assert told.lengths == plain.lengths == [0, 10]


def test_tokens_of_an_answer_are_chosen_less_often_the_more_it_has_them(device: dmlvk.Device, llama: Weights) -> None:
    decoder, reference = Decoder(device, llama, capacity=64), Reference(llama)
    decoder.extend([PROMPT[:20]])
    reference.feed(PROMPT[:20])
    wary, token, counts = Sampling(presence_penalty=0.5, frequency_penalty=0.3, answer_start=21), 7, np.zeros(VOCABULARY)
    for index in range(20):
        chosen = decoder.step([wary], None if index else [token])[0]
        logits = reference.feed([token])[-1] - 0.3 * counts - 0.5 * (counts > 0)
        token = int(logits.argmax())
        assert chosen == token
        counts[token] += 1
    assert counts.max() > 1, "a penalty, and no ban"


def test_a_full_cache_is_a_typed_error_and_changes_nothing(device: dmlvk.Device, llama: Weights) -> None:
    decoder, reference = Decoder(device, llama, capacity=12), Reference(llama)
    decoder.feed([PROMPT[:11]])
    with pytest.raises(dmlvk.InvalidArgumentError, match="1 rows that sequence 0 has left of the capacity of 12"):
        decoder.feed([PROMPT[:2]])
    reference.feed(PROMPT[:11])
    assert decoder.step([GREEDY], [4])[0] == greedy(reference, 4, 1)[0]
    with pytest.raises(dmlvk.InvalidArgumentError, match="0 rows"):
        decoder.step([GREEDY])
    with pytest.raises(dmlvk.InvalidArgumentError, match="must be 0 to 95; got 96"):
        decoder.feed([[VOCABULARY]])


def test_padding_does_not_reach_rows_that_count(device: dmlvk.Device, llama: Weights) -> None:
    decoder, reference = Decoder(device, llama, capacity=35, sequences=2), Reference(llama)
    decoder.feed([PROMPT[:34], []])
    decoder.feed([[], PROMPT[:20]])  # a piece of padding at the end of the first one's cache
    reference.feed(PROMPT[:34])
    assert decoder.step([GREEDY, None], [4, 0])[0] == greedy(reference, 4, 1)[0]
    decoder.feed([[], PROMPT[20:25]])
    decoder.truncate(0, 30)
    (logits, _) = decoder.feed([PROMPT[30:33], []])
    again = Reference(llama)
    np.testing.assert_allclose(logits[0], again.feed(PROMPT[:33])[-1], atol=ROUNDING)


@pytest.mark.parametrize("first", ["a prompt", "a step"])
def test_memory_is_what_was_announced(tmp_path: Path, first: str) -> None:
    """Weights are there once, embeddings too that are the logits' matrix as well, whichever graph needs them first."""
    device, weights = dmlvk.Device(0), load_gguf(write_model(tmp_path / "model.gguf", "llama", "Q8_0"))
    shared = {name: tensor for name, tensor in weights.tensors.items() if name != "output.weight"}
    decoder = Decoder(device, dataclasses.replace(weights, tensors=shared), capacity=32, sequences=2)
    if first == "a step":
        decoder.step([None, None], [0, 0])
    decoder.feed([PROMPT[:32], PROMPT[:3]])
    decoder.step([None, GREEDY], [0, 1])
    memory = device.memory()
    assert memory["live"] - memory["parameters"] == decoder.nbytes


def test_errors_come_before_memory_is_taken(llama: Weights) -> None:
    device = dmlvk.Device(0, max_memory_bytes=100_000)
    with pytest.raises(dmlvk.InvalidArgumentError, match="must be 1 to 128, the model's context; got 129"):
        Decoder(device, llama, capacity=129)
    with pytest.raises(dmlvk.OutOfDeviceMemoryError, match="bytes of the device, which has 100000 left"):
        Decoder(device, llama, capacity=64)
    assert device.memory()["peak"] == 0


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_activations_of_float16(device: dmlvk.Device, tmp_path: Path, name: str) -> None:
    weights = load_gguf(write_model(tmp_path / "model.gguf", name, "Q8_0"))
    decoder = Decoder(device, weights, capacity=64, data_type=dmlvk.TensorDataType.FLOAT16)
    (logits,), expected = decoder.feed([PROMPT], all_logits=True), Reference(weights).feed(PROMPT)
    np.testing.assert_allclose(logits, expected, atol=1e-2 * np.abs(expected).max())
    assert decoder.step([GREEDY], [PROMPT[0]]).shape == (1,)


@pytest.mark.parametrize("name", ["llama", *full("gemma2")])
def test_weights_and_activations_of_float16(device: dmlvk.Device, tmp_path: Path, name: str) -> None:
    """The host sees logits of FLOAT32; a step chooses by those that there are, and casts only what it embeds."""
    weights = load_gguf(write_model(tmp_path / "model.gguf", name, "F16"))
    fed, stepped, told = (Decoder(device, weights, capacity=64, data_type=dmlvk.TensorDataType.FLOAT16) for _ in range(3))
    (logits,) = fed.feed([[*PROMPT, 7]])
    assert logits.dtype == np.float32
    for decoder in (stepped, told):
        decoder.extend([PROMPT])
    token = int(stepped.step([GREEDY], [7])[0])
    assert logits[-1, token] >= logits[-1].max() - 1e-2 * np.abs(logits).max()
    (again,), how = told.step_told([GREEDY], [7])
    assert again == token == how.top_tokens[0, 0] and how.logprobs[0, 0] == how.top_logprobs[0, 0]
    labels = stepped._graphs.recorded(stepped._ready(stepped._network.step)).labels
    if name == "llama":  # gemma2's logits are capped in FLOAT32
        assert [operator for operator, _ in labels].count("DML_OPERATOR_CAST") == 1


def test_steps_without_the_host_are_steps(device: dmlvk.Device, llama: Weights) -> None:
    """Of two sequences that go on and one that stays, more of them than the recordings before, and by chance too."""
    one, many = (Decoder(device, llama, capacity=32, sequences=3) for _ in range(2))
    warm = Sampling(temperature=2.0, seed=4, repetition_penalty=1.2)
    expected, found = [], []
    for decoder in (one, many):
        (decoder.feed if decoder is one else decoder.extend)([PROMPT[:4], PROMPT[:9], PROMPT[:2]])
        decoder.step([GREEDY, warm, None], [1, 2, 3])
    for count in (2, 5, 3):
        expected += [one.step([GREEDY, warm, None])[:2].tolist() for _ in range(count)]
        found += many.begin_steps([GREEDY, warm, None], count).tokens()[:, :2].tolist()
    assert found == expected and one.lengths == many.lengths == [15, 20, 2]
    with pytest.raises(dmlvk.InvalidArgumentError, match="12 rows"):
        many.begin_steps([GREEDY, warm, None], 13).tokens()
    assert many.lengths == one.lengths


def test_steps_may_be_begun_before_those_before_have_come(
    device: dmlvk.Device, llama: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens come late and in any order, those of far places by themselves, and of what nobody waits for none."""
    one, many = (Decoder(device, llama, capacity=64, sequences=3) for _ in range(2))
    warm = Sampling(temperature=2.0, seed=4, repetition_penalty=1.2)
    for decoder in (one, many):
        decoder.extend([PROMPT[:4], PROMPT[:9], PROMPT[:2]])
        decoder.step([GREEDY, warm, None], [1, 2, 3])
    counts = (2, 5, 3, 4, 1)
    expected = [one.begin_steps([GREEDY, warm, None], count).tokens()[:, :2].tolist() for count in counts]
    begun = []
    for number, count in enumerate(counts):
        monkeypatch.setattr("dmlvk.llm.decoder._MOST_READ", 0 if number == 3 else 1000)
        begun.append(many.begin_steps([GREEDY, warm, None], count))
    assert [steps.tokens()[:, :2].tolist() for steps in reversed(begun)] == expected[::-1]
    assert begun[0].tokens()[:, :2].tolist() == expected[0] and many.lengths == one.lengths
    del begun
    many.begin_steps([GREEDY, warm, None], 3)
    del many, decoder
    assert one.begin_steps([GREEDY, warm, None], 3).tokens().shape == (3, 3)


def test_after_steps_that_failed_everything_works(
    device: dmlvk.Device, llama: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder(device, llama, capacity=32)
    decoder.extend([PROMPT[:4]])
    with pytest.raises(dmlvk.StateError, match="needs tokens"):
        decoder.begin_steps([GREEDY], 2).tokens()
    (first,) = decoder.step([GREEDY], [1])
    expected = decoder.begin_steps([GREEDY], 4).tokens().tolist()
    decoder.truncate(0, 5)
    submit, left = Recording.submit, iter((True, True, False))

    def failing(recording: Recording, **options: bool) -> None:
        if not next(left, True):
            raise dmlvk.OutOfDeviceMemoryError("a step in the middle")
        submit(recording, **options)

    decoder.step([None])
    with monkeypatch.context() as patched:
        patched.setattr(Recording, "submit", failing)
        with pytest.raises(dmlvk.OutOfDeviceMemoryError):
            decoder.begin_steps([GREEDY], 4).tokens()
    assert decoder.lengths == [5]
    with pytest.raises(dmlvk.StateError, match="needs tokens"):
        decoder.step([GREEDY])
    found = [decoder.step([GREEDY], [first])[0], *decoder.begin_steps([GREEDY], 3).tokens()[:, 0]]
    assert found == [token for (token,) in expected]


def test_a_step_that_is_interrupted_leaves_no_tokens(
    device: dmlvk.Device, llama: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens that it was given are none that a step has chosen."""
    decoder = Decoder(device, llama, capacity=32)
    (first,) = decoder.step([GREEDY], [1])
    write = Buffer.write

    def interrupted(buffer: Buffer, *given: Any) -> None:
        write(buffer, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Buffer, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.step([GREEDY], [2])
    with pytest.raises(dmlvk.StateError, match="needs tokens"):
        decoder.step([GREEDY])
    assert decoder.lengths == [1]
    again = Decoder(device, llama, capacity=32)
    again.step([GREEDY], [1])
    assert decoder.step([GREEDY], [first]) == again.step([GREEDY])


def test_a_beginning_that_is_shared_counts_once_it_is_there(
    device: dmlvk.Device, llama: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an interrupt leaves of the sequence that gets it is neither the old one nor the new."""
    decoder = Decoder(device, llama, capacity=32, sequences=2)
    decoder.extend([PROMPT[:6], PROMPT[2:9]])
    submit = Recording.submit

    def interrupted(recording: Recording, **options: bool) -> None:
        submit(recording, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Recording, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.share(0, 1, 4)
    assert decoder.lengths == [6, 0]
    decoder.share(0, 1, 4)
    assert decoder.lengths == [6, 4]


@pytest.mark.parametrize(
    ("model", "capacity", "sequences", "pieces"),
    [
        (H200, 640, 1, [8, 32, 128, 512, 2048]),
        (H200, 640, 16, [8, 32, 128]),
        (H200, 512, 1, [8, 32, 128, 512]),
        (GENERIC_GPU, 640, 1, [8, 32, 128, 512]),
        (GENERIC_GPU, 640, 16, [8, 32]),
        (GENERIC_GPU, 20, 100, [8]),
    ],
)
def test_pieces_are_larger_where_matrices_are_fast(
    model: DeviceModel, capacity: int, sequences: int, pieces: list[int]
) -> None:
    device: Any = SimpleNamespace(capabilities=Capabilities(model=model))
    assert _pieces(device, capacity, sequences) == pieces
