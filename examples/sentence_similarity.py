"""Say how much sentences mean the same with MiniLM, every layer of it on the Vulkan device.

    python examples/sentence_similarity.py [SENTENCE]... [--device DEVICE] [--model PATH] [--tokenizer PATH]

The network, paraphrase-MiniLM-L3-v2, turns a sentence into 384 numbers; the cosine of the angle between two of them is 1
where the sentences mean the same and about 0 where they have nothing to do with each other. Prints each pair of the
SENTENCEs, or of four given here, the most similar first; then where the network's nodes ran:

    0.669  The cat sat on the mat. / A kitten rests on the rug.
    0.604  The stock market crashed. / Stock markets fell sharply today.
    0.101  A kitten rests on the rug. / Stock markets fell sharply today.

Text reaches a BERT as numbers of pieces of words. A word is cut into the longest piece of the vocabulary that it starts
with, then the longest that goes on from there, and so on ("kittenish": kitten ##ish). That is what ``tokenize`` does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from models import account, model

from dmlvk.onnx import InferenceSession

Array = npt.NDArray[Any]

SENTENCES = (
    "The cat sat on the mat.",
    "A kitten rests on the rug.",
    "The stock market crashed.",
    "Stock markets fell sharply today.",
)


def pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The numbers of a word's pieces; that of [UNK] where the vocabulary cannot spell it."""
    found: list[int] = []
    start = 0
    while start < len(word):
        candidates = ((end, ("##" if start else "") + word[start:end]) for end in range(len(word), start, -1))
        end, piece = next(((end, piece) for end, piece in candidates if piece in vocabulary), (len(word), None))
        if piece is None:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[piece])
        start = end
    return found


def tokenize(sentence: str, vocabulary: Mapping[str, int]) -> list[int]:
    """A sentence as the numbers that BERT (uncased) wants: no capitals, no accents, each mark of punctuation a word."""
    plain = "".join(c for c in unicodedata.normalize("NFD", sentence.lower()) if unicodedata.category(c) != "Mn")
    words = re.findall(r"[^\W_]+|[^\w\s]|_", plain)
    numbers = itertools.chain.from_iterable(pieces(word, vocabulary) for word in words)
    return [vocabulary["[CLS]"], *numbers, vocabulary["[SEP]"]]


def embed(session: Any, sentences: Sequence[str], vocabulary: Mapping[str, int]) -> Array:
    """A vector of length 1 for each sentence, {n, 384}; all in one run, short sentences filled up and masked."""
    tokens = [tokenize(sentence, vocabulary) for sentence in sentences]
    ids = np.zeros((len(tokens), max(map(len, tokens))), np.int64)
    mask = np.zeros_like(ids)
    for row, numbers in enumerate(tokens):
        ids[row, : len(numbers)] = numbers
        mask[row, : len(numbers)] = 1
    *_, vectors = session.run(None, {"input_ids": ids, "attention_mask": mask})
    directions: Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return directions


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE")
    parser.add_argument("--device", help="index, UUID or part of the name; python -m dmlvk devices lists them")
    parser.add_argument("--model", type=Path, help="another file than the one that tools/fetch_models.py fetches")
    parser.add_argument("--tokenizer", type=Path, help="the same of its vocabulary, a tokenizer.json")
    options = parser.parse_args(arguments)
    sentences = options.sentences or SENTENCES
    vocabulary = json.loads((options.tokenizer or model("tokenizer.json")).read_text())["model"]["vocab"]
    session = InferenceSession(options.model or model("paraphrase-MiniLM-L3-v2.onnx"), options.device)
    vectors = embed(session, sentences, vocabulary)
    pairs = itertools.combinations(range(len(sentences)), 2)
    for similarity, first, second in sorted(((float(vectors[i] @ vectors[j]), i, j) for i, j in pairs), reverse=True):
        print(f"{similarity:6.3f}  {sentences[first]} / {sentences[second]}")
    print(account(session))


if __name__ == "__main__":
    main()
