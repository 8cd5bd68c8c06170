"""Make decoders by onnxruntime-genai's model builder, for DirectML, and compare their logits with ONNX Runtime's CPU.

    pip install --target PACKAGES onnxruntime-genai==0.11.4 transformers==4.57.6 onnx_ir tokenizers torch
    python tools/run_builder_models.py PACKAGES [--folder FOLDER] [--write] [NAME]...

Each architecture is a small model with random weights, which the builder turns into float16 and int4. What it makes is run
unmodified, with one buffer for past and present: a prompt, then one token after the other. A model is right whose logits
differ by at most 1e-2 of the largest. FOLDER keeps the models, which are made once. ``--write`` writes the lines of these
models into the table of docs/language-models.md. Exit status 1 where a model could not be made or run, or was not right.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

VOCABULARY: Final = 256
SIZES: Final = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GEMMA: Final = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32}
ARCHITECTURES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "Qwen 2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "Qwen 3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 32}),
    "Phi 3": ("Phi3Config", "Phi3ForCausalLM", {"sliding_window": 8, "original_max_position_embeddings": 256}),
    "Gemma 2": ("Gemma2Config", "Gemma2ForCausalLM", _GEMMA),
    "Gemma 3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**_GEMMA, "sliding_window_pattern": 2}),
}
"""What transformers calls the numbers and the model, and the numbers that are its own."""
PRECISIONS: Final = ("fp16", "int4")
PROMPT, STEPS, CAPACITY = 7, 50, 64
TOLERANCE: Final = 1e-2
PAGE: Final = pathlib.Path(__file__).parents[1] / "docs" / "language-models.md"


def make(name: str, precision: str, folder: pathlib.Path) -> None:
    """Makes a model: runs in a process that has the builder's packages."""
    import tokenizers
    import torch
    import transformers
    from onnxruntime_genai.models.builder import create_model

    config, network, own = ARCHITECTURES[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as source:
        model = getattr(transformers, network)(getattr(transformers, config)(**SIZES, **own))
        model.half().float().save_pretrained(source)
        words = tokenizers.models.WordLevel({f"t{number}": number for number in range(VOCABULARY)}, unk_token="t0")
        special = {"unk_token": "t0", "bos_token": "t1", "eos_token": "t2", "pad_token": "t0"}
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), **special)
        tokenizer.save_pretrained(source)
        create_model(None, source, str(folder), precision, "dml", str(folder / "cache"))


class Found(NamedTuple):
    """What came of a model.

    Attributes:
        difference: The largest one of logits, of the largest logit.
        plans: Plans that were made, of a prompt and all steps.
        dispatches: Those of a step.
    """

    difference: float
    plans: int
    dispatches: int


def compared(folder: pathlib.Path) -> Found:
    """Runs a prompt and steps on the device and on the processor."""
    import dmlvk
    from dmlvk.llm.onnx_decoder import FolderConfig, OnnxDecoder

    tokens = np.random.default_rng(0).integers(3, VOCABULARY, PROMPT + STEPS).tolist()
    config = FolderConfig.read(folder)
    decoder = OnnxDecoder(dmlvk.default_device(), folder, config, capacity=CAPACITY)
    found = decoder.feed([tokens[:PROMPT]], all_logits=True)
    found += [logits for token in tokens[PROMPT:] for logits in decoder.feed([[token]])]
    expected = reference(folder / config.decoder["filename"], tokens, int(config.decoder["head_size"]))
    difference = float(np.abs(np.concatenate(found) - expected).max() / np.abs(expected).max())
    report = decoder._session.report()
    return Found(difference, report.plans, report.dispatches)


def reference(path: pathlib.Path, tokens: list[int], head_size: int) -> npt.NDArray[np.float32]:
    """ONNX Runtime's logits on the processor, of the prompt and of each token behind it: (tokens, vocabulary)."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(int64)": np.int64}
    inputs = {item.name: kinds[item.type] for item in session.get_inputs()}
    outputs = [item.name for item in session.get_outputs()]
    empty = (1, SIZES["num_key_value_heads"], 0, head_size)
    caches = {name: np.zeros(empty, kind) for name, kind in inputs.items() if name.startswith("past_key_values")}
    found = []
    for start, end in ((0, PROMPT), *((at, at + 1) for at in range(PROMPT, len(tokens)))):
        known = {
            "input_ids": np.array([tokens[start:end]]),
            "attention_mask": np.ones((1, end)),
            "position_ids": np.arange(start, end)[None],
        }
        feeds = {name: array.astype(inputs[name]) for name, array in known.items() if name in inputs}
        results = dict(zip(outputs, session.run(None, {**feeds, **caches}), strict=True))
        caches = {name: results[name.replace("past_key_values", "present")] for name in caches}
        found.append(results["logits"][0].astype(np.float32))
    return np.concatenate(found)


def line(name: str, precision: str, packages: pathlib.Path, folder: pathlib.Path) -> tuple[str, bool]:
    """The line of a model in the table, and whether it is right."""
    own = folder / f"{name.lower().replace(' ', '')}-{precision}"
    if not (own / "genai_config.json").exists():
        environment = {**os.environ, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
        words = [sys.executable, __file__, "--child", name, precision, str(own)]
        ended = subprocess.run(words, env=environment, capture_output=True, text=True)
        if ended.returncode:
            return f"| {name}, {precision} | not made: {ended.stderr.strip().splitlines()[-1]} | | |\n", False
    found = compared(own)
    right = found.difference <= TOLERANCE
    return f"| {name}, {precision} | {found.difference:.1e} | {found.plans} | {found.dispatches} |\n", right


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        make(sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all of {', '.join(ARCHITECTURES)} where none is given")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows, failed = {}, 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.names or ARCHITECTURES:
            for precision in PRECISIONS:
                row, right = line(name, precision, options.packages, options.folder or pathlib.Path(temporary))
                print(row, end="", flush=True)
                rows[row.split("|")[1]] = row
                failed += not right
    if options.write:
        table = re.sub(r"^\|(.*?)\|.*\n", lambda old: rows.get(old[1], old[0]), PAGE.read_text(), flags=re.MULTILINE)
        PAGE.write_text(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
