"""Prints the perplexity of a GGUF model on a text, for each type of weights that there are kernels for: a table.

    python tools/perplexity.py model.gguf [--tokens 2048] [--types F16 Q8_0 Q4_K] [--numpy]

The text is scikit-learn's description of its data sets. The model's own types come first; the others are made of the numbers
that those stand for, so none can be better than what the file has lost already. Matrices whose rows are no whole groups of a
K type have another type instead, as llama.cpp's quantizer gives them. ``--numpy`` does not ask the device, but computes on
the processor, in float32, what the tests compare it with.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pathlib
import sys

import gguf
import numpy as np
import numpy.typing as npt
import sklearn.datasets
from k_quants import quantized

import dmlvk
from dmlvk.llm.config import Weights, WeightTensor
from dmlvk.llm.decoder import Decoder
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.tokenizer import Tokenizer

GROUP = 256
"""Weights of which rows of a K type have a multiple."""
INSTEAD = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""The types of matrices whose rows do not: llama.cpp's quantizer takes the same."""
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--types", nargs="*", default=TYPES, choices=TYPES)
    parser.add_argument("--numpy", action="store_true")
    options = parser.parse_args()
    weights = load_gguf(options.model)
    text = "\n".join(getattr(sklearn.datasets, f"load_{name}")().DESCR for name in ("wine", "diabetes", "breast_cancer"))
    tokens = Tokenizer.of_metadata(weights.metadata).encode(text)[: options.tokens]
    print(f"{len(tokens)} tokens of {options.model}\n\n| weights | bytes of weights | perplexity |\n| --- | --- | --- |")
    for kind in ("as in the file", *options.types):
        own = weights if kind == "as in the file" else of_type(weights, kind)
        nbytes = sum(tensor.data.nbytes for tensor in own.tensors.values())
        print(f"| {kind} | {nbytes:,} | {perplexity(own, tokens, on_device=not options.numpy):.3f} |", flush=True)


def perplexity(weights: Weights, tokens: list[int], *, on_device: bool) -> float:
    """How many tokens a model is in doubt about, as a geometric mean over all tokens but the first."""
    if on_device:
        (logits,) = Decoder(dmlvk.default_device(), weights, capacity=len(tokens)).feed([tokens], all_logits=True)
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
        logits = importlib.import_module("language_models").Reference(weights, len(tokens)).feed(tokens)
    exact = logits[:-1].astype(np.float64)
    most = exact.max(-1)
    chosen = exact[np.arange(len(exact)), tokens[1:]]
    return float(np.exp(np.mean(np.log(np.exp(exact - most[:, None]).sum(-1)) + most - chosen)))


def of_type(weights: Weights, kind: str) -> Weights:
    """The same model with its matrices in another format."""

    def changed(tensor: WeightTensor) -> WeightTensor:
        if len(tensor.sizes) < 2:
            return tensor
        own, fitting = numbers(tensor), INSTEAD[kind] if kind in INSTEAD and tensor.sizes[1] % GROUP else kind
        data = quantized(own, fitting) if fitting in INSTEAD else gguf.quantize(own, gguf.GGMLQuantizationType[fitting])
        return WeightTensor(fitting, tensor.sizes, data.reshape(-1).view(np.uint8))

    return dataclasses.replace(weights, tensors={name: changed(tensor) for name, tensor in weights.tensors.items()})


def numbers(tensor: WeightTensor) -> npt.NDArray[np.float32]:
    """What a matrix stands for."""
    kind = gguf.GGMLQuantizationType[tensor.type]
    plain = {"F32": np.float32, "F16": np.float16}.get(tensor.type)
    data = tensor.data.reshape(tensor.sizes[0], -1)
    return gguf.dequantize(data if plain is None else data.view(plain), kind).reshape(tensor.sizes).astype(np.float32)


if __name__ == "__main__":
    main()
