"""Writes what README shows of the measured results: the table of what else there is, between two marks, and its picture in
``docs/images``.

python tools/write_readme.py [--check]

``--check`` writes nothing; its status is 1 where one of them is stale: of other results, or by other code. The picture's
file has a digest of what it was drawn from, because another release of Matplotlib writes the same drawing in other words.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

import performance_page
import zoo_page

from dmlvk.html import palette
from dmlvk.verify.html import figure
from dmlvk_bench import figures
from dmlvk_bench.results import LanguageRow, Results, read
from dmlvk_bench.rivals.llama_server import NAME as LLAMA
from dmlvk_bench.zoo.command import Speed, counts, speed

README = performance_page.ROOT / "README.md"
PICTURE = performance_page.ROOT / "docs/images/networks.svg"
MARKS = ("<!-- python tools/write_readme.py writes this -->\n", "<!-- up to here -->\n")
LANGUAGE = performance_page.ROOT / "bench/results/h200-llm.json"
HALVES = ("GEMM depth 4096 FLOAT16 4096x4096", "GEMM depth 8192 FLOAT16 8192x8192")
ATTENTION = "attention FLOAT16 b8 h32 q4096 k4096 d128"

TABLE = """\
| | runs on | has | lacks | time of a run beside ours, on an H200 |
| --- | --- | --- | --- | --- |
| **dmlvk** | any GPU with a driver for Vulkan 1.3 (tried: NVIDIA H200 and H100, and drivers \
for processors) | ONNX, numpy, DirectML's calls and [language models](docs/language-models.md) of GGUF files; \
177 operators with [measured errors](docs/accuracy.md); the same bits in every run | \
a model on several GPUs. In float16 [matrix products reach {least:.2f} to {most:.2f} of \
PyTorch's speed, attention {attention:.2f}]({headline}) | 1. [{right.right_architectures} of {right.architectures} \
architectures]({zoo}) of torchvision and transformers are right, in {right.right_files} of {right.files} files |
| ONNX Runtime, WebGPU | any GPU, and browsers | ONNX; the processor for nodes without a kernel | \
DirectML's operators and calls | {webgpu} |
| PyTorch, CUDA | NVIDIA's GPUs | Python programs, training, the vendor's libraries | \
other makers' GPUs in the same package | eager: {eager}. As a CUDA graph: {graph}; \
[later]({later}): {later_graph} |
| ncnn | processors and Vulkan GPUs, phones too | a small C++ library, networks in its own format | \
ONNX files as they are | not measured there; `python -m dmlvk bench --against ncnn` does on your device |
| llama.cpp | processors and most GPUs | language models as GGUF files, weights of few bits, a server | \
other networks | [language models]({language}) of 1 and 8 billion random weights: {llama} |
"""


def _words(found: Speed | None) -> str:
    if found is None:
        return "not in the kept results"
    faster = f"faster than we are on {found.faster or 'none'}"
    return f"**{found.mean:.2f}**, geometric mean of {found.models} of those, {faster}"


def beside_llama(rows: Sequence[LanguageRow]) -> str:
    """How long llama.cpp takes for one sequence's prompts and answers, beside us."""
    alone = [row for row in rows if row.batch == 1 and LLAMA in row.rivals]
    if not alone:
        return "not in the kept results"
    means = [
        geometric_mean(getattr(row, speed) / row.rivals[LLAMA][speed] for row in alone)
        for speed in ("prompt_per_s", "new_per_s")
    ]
    return f"prompts **{means[0]:.2f}**, answers **{means[1]:.2f}**, geometric means of {len(alone)}"


def _path(results: pathlib.Path) -> str:
    return results.relative_to(performance_page.ROOT).as_posix()


def table(targets: Results, rows: list[dict[str, Any]], later: list[dict[str, Any]], language: Sequence[LanguageRow]) -> str:
    """The table.

    Args:
        targets: The results of the project's targets.
        rows: Those of the exported architectures.
        later: Those of the later run.
        language: Those of language models.
    """
    ratios = {row.problem: row.ratio for row in targets.problems if row.ratio is not None}
    halves = [ratios[name] for name in HALVES]
    return TABLE.format(
        least=min(halves),
        most=max(halves),
        attention=ratios[ATTENTION],
        headline=_path(performance_page.HEADLINE),
        zoo=_path(zoo_page.RESULTS),
        later=_path(zoo_page.LATER),
        later_graph=_words(speed(later, "graph")),
        language=_path(LANGUAGE),
        llama=beside_llama(language),
        right=counts(rows),
        **{rival: _words(speed(rows, rival)) for rival in ("eager", "graph", "webgpu")},
    )


def readme() -> str:
    """README with its part written anew."""
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    rows, later = (json.loads(file.read_text(encoding="utf-8"))["rows"] for file in (zoo_page.RESULTS, zoo_page.LATER))
    written = table(read(performance_page.HEADLINE), rows, later, read(LANGUAGE).language)
    return before + MARKS[0] + written + MARKS[1] + after


def note() -> str:
    """The end of the picture's file: a digest of the results and of the code that draws them."""
    total = hashlib.sha256(performance_page.RESULTS.read_bytes())
    for module in (figures, figure, palette):
        total.update(pathlib.Path(str(module.__file__)).read_bytes())
    return f"<!-- drawn from {total.hexdigest()[:16]} -->\n"


def main(arguments: list[str] | None = None) -> int:
    """Writes, or checks; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where something is stale")
    options = parser.parse_args(arguments)
    text = readme()
    if options.check:
        stale = [PICTURE.name] * (not PICTURE.read_text(encoding="utf-8").endswith(note()))
        stale += [README.name] * (README.read_text(encoding="utf-8") != text)
        if stale:
            print(f"stale: {', '.join(stale)}; python tools/write_readme.py writes them anew", file=sys.stderr)
        return bool(stale)
    README.write_text(text, encoding="utf-8")
    PICTURE.write_text(figures.networks(read(performance_page.RESULTS), alone=True) + note(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
