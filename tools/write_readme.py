"""Writes what README shows of the measured results: the table of the targets, between two marks, and the figures in
``docs/images``.

python tools/write_readme.py [--check]

``--check`` writes nothing; its status is 1 where one of them is stale: of other results, or by other code. A figure's file
has a digest of what it was drawn from, because another release of Matplotlib writes the same drawing in other words.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import pathlib
import sys
from collections.abc import Callable

import performance_models
import performance_page

from dmlvk.verify.html import figure, palette
from dmlvk_bench import figures
from dmlvk_bench.results import Results, read

README = performance_page.ROOT / "README.md"
IMAGES = performance_page.ROOT / "docs/images"
FIGURES: dict[str, Callable[..., str]] = {
    "copy-shares.svg": figures.copy_shares,
    "ratios.svg": functools.partial(figures.ratios, rival="torch"),
}
"""The functions that draw the figures of results, by the figures' files."""
MARKS = ("<!-- python tools/write_readme.py writes this -->\n", "<!-- up to here -->\n")


def readme(results: Results) -> str:
    """README with its part written anew."""
    before, rest = README.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    missed = sum(map(results.missed, results.problems))
    sentence = f"{len(results.problems)} problems in all, {missed} below a target."
    lines = [performance_page.headlines(), "", sentence, *performance_models.headlines(results), ""]
    return before + MARKS[0] + "\n".join(lines) + MARKS[1] + after


def note() -> str:
    """The end of a figure's file: a digest of the results and of the code that draws them."""
    total = hashlib.sha256(performance_page.RESULTS.read_bytes())
    for module in (figures, figure, palette):
        total.update(pathlib.Path(str(module.__file__)).read_bytes())
    return f"<!-- drawn from {total.hexdigest()[:16]} -->\n"


def main(arguments: list[str] | None = None) -> int:
    """Writes, or checks; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where something is stale")
    options = parser.parse_args(arguments)
    results = read(performance_page.RESULTS)
    text = readme(results)
    if options.check:
        stale = [name for name in FIGURES if not (IMAGES / name).read_text(encoding="utf-8").endswith(note())]
        stale += [README.name] * (README.read_text(encoding="utf-8") != text)
        if stale:
            print(f"stale: {', '.join(stale)}; python tools/write_readme.py writes them anew", file=sys.stderr)
        return bool(stale)
    README.write_text(text, encoding="utf-8")
    for name, draw in FIGURES.items():
        (IMAGES / name).write_text(draw(results, alone=True) + note(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
