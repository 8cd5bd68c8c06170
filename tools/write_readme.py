"""Draws the figures of README.md and of the documentation from ``bench/results/h200.json`` into ``docs/images``.

python tools/write_readme.py [--check]

``--check`` writes nothing; its status is 1 where a figure was drawn from other results, or by other code. What a figure was
drawn from is in the file, as a digest, because another release of Matplotlib writes the same drawing in other words.
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import sys

from dmlvk.verify.html import figure, palette
from dmlvk_bench import figures, results

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/h200.json"
IMAGES = ROOT / "docs/images"
NAMES = ("roofline", "copy-shares", "ratios")


def drawings(found: results.Results) -> tuple[str, ...]:
    """The figures, in the order of their names."""
    return (
        figures.roofline(found, alone=True),
        figures.copy_shares(found, alone=True),
        figures.ratios(found, "torch", alone=True),
    )


def digest() -> str:
    """A digest of the results and of the code that draws them."""
    total = hashlib.sha256(RESULTS.read_bytes())
    for module in (figures, figure, palette):
        total.update(pathlib.Path(str(module.__file__)).read_bytes())
    return total.hexdigest()[:16]


def main(arguments: list[str] | None = None) -> int:
    """Draws, or checks; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a figure is stale")
    options = parser.parse_args(arguments)
    note = f"<!-- drawn from {digest()} -->\n"
    if options.check:
        paths = [IMAGES / f"{name}.svg" for name in NAMES]
        stale = [path.name for path in paths if not path.exists() or not path.read_text(encoding="utf-8").endswith(note)]
        if stale:
            print(f"stale: {', '.join(stale)}; python tools/write_readme.py draws them anew", file=sys.stderr)
        return bool(stale)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, drawing in zip(NAMES, drawings(results.read(RESULTS)), strict=True):
        (IMAGES / f"{name}.svg").write_text(drawing + note, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
