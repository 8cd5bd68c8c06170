"""A model that people use, with its own tokenizer and template: answers that make sense, the same ones every time."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dmlvk
from dmlvk import cli
from dmlvk.llm import Model, load

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]

full = pytest.mark.full  # a minute on a processor; the example alone takes some seconds


@pytest.fixture(scope="module")
def model(device: dmlvk.Device, model_path: Callable[[str], Path]) -> Iterator[Model]:
    yield load(model_path(FILE), device, capacity=256, sequences=2)


@pytest.mark.network
def test_the_example(device: dmlvk.Device, model_path: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    model_path(FILE)
    importlib.import_module("chat").main(["What is the capital of France?", "--device", device.info.uuid])
    question, answer, account = capsys.readouterr().out.splitlines()
    assert question == "> What is the capital of France?"
    assert answer == "The capital of France is Paris."
    assert account == "[37 tokens read, 8 written]"


@full
def test_the_command(device: dmlvk.Device, model_path: Callable[[str], Path], tmp_path: Path) -> None:
    words = ["chat", str(model_path(FILE)), "--prompt", QUESTION[0]["content"], "--temperature", "0", "--max-tokens", "4"]
    assert cli.main([*words, "--capacity", "64", "--device", device.info.uuid, "--json", str(tmp_path / "o.json")]) == 0
    found = json.loads((tmp_path / "o.json").read_text())
    assert (found["answer"], found["prompt_tokens"], found["new_tokens"]) == ("The capital of France", 37, 4)


@full
def test_the_same_seed_gives_the_same_text_alone_and_in_a_batch(model: Model) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.1, "seed": 11}
    prompts = ["Once upon a time", "The best way to learn"]
    alone = ["".join(model.generate(prompt, 12, **options)) for prompt in prompts]
    together = ["", ""]
    for index, piece in model.generate_batch(prompts, 12, **options):
        together[index] += str(piece)
    assert together == alone
    assert "".join(model.generate(prompts[0], 12, **{**options, "seed": 12})) != alone[0]


@full
def test_a_conversation_goes_on_where_it_was(model: Model) -> None:
    first = "".join(model.chat(QUESTION, 12))
    assert first == "The capital of France is Paris."
    more = [*QUESTION, {"role": "assistant", "content": first}, {"role": "user", "content": "And of Italy?"}]
    answer = "".join(model.chat(more, 12))
    assert model.usage.reused_tokens >= 37, "only the new question is computed"
    model.logits("forget")
    assert answer == "".join(model.chat(more, 12)), "a cache that is kept changes nothing"
