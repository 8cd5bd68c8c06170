"""Run the samples that Microsoft published with PyDirectML, unchanged, and compare them with ONNX Runtime's CPU.

    python tools/run_pydirectml.py CHECKOUT [--write] [NAME]...

CHECKOUT is one of github.com/microsoft/DirectML. Each script runs twice in a process of its own: as
``python -m dmlvk.pydirectml`` runs it, and over ONNX Runtime (pydirectml_in_onnx.py). It is right where both print the same,
the numbers that devices compute differ by at most 1e-4 of the largest, and shown pictures by at most one of 256 steps.
A file of weights that the checkout lacks is replaced, in a copy of the samples, by seeded random numbers of the sizes below.

``--write`` writes the lines of these scripts into the table of docs/from-pydirectml.md. Exit status 1 where a script did not
run, or was not right.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Final

import numpy as np

SCRIPTS: Final = {
    "mnist.py": ("mnist.py",),
    "squeezenet.py": ("squeezenet.py",),
    "mobilenet.py": ("mobilenet.py",),
    "superres.py": ("superres.py",),
    "candy.py": ("candy.py",),
    **{
        f"candy.py, {style}": ("candy.py", "DefaultImage.jpg", f"{style}_tensor_data")
        for style in ("la_muse", "mosaic", "udnie")
    },
}
"""What is run, and the words of the command."""

WEIGHTS: Final = {"mobile_net_data/mobilenetv20_output_pred_weight.npy": (1000, 1280, 1, 1)}
"""Files that a checkout may lack, because they are large, and their sizes."""

PAGE: Final = pathlib.Path(__file__).parents[1] / "docs" / "from-pydirectml.md"
TOLERANCE: Final = 1e-4


def run(words: list[str], backend: str, results: str) -> int:
    """Runs a script in this process, and keeps what devices compute and what is shown; returns its exit status."""
    from PIL import Image

    import dmlvk
    from dmlvk.pydirectml import __main__ as program

    if backend == "onnxruntime":
        dmlvk.pydirectml = importlib.import_module("pydirectml_in_onnx")
    module: Any = dmlvk.pydirectml
    shown: Any = Image.Image
    kept: list[Any] = []
    compute = module.Device.compute

    def computed(*args: Any) -> Any:
        made = compute(*args)
        kept.extend(np.array(item) for item in made)
        return made

    module.Device.compute = computed
    shown.show = lambda self, *_, **__: kept.append(np.array(self))
    status = program.main(words)
    np.savez(results, *kept)
    return status


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of a script."""

    name: str
    runs: bool
    right: bool
    said: str

    def line(self) -> str:
        return f"| `{self.name}` | {'yes' if self.runs else 'no'} | {'yes' if self.right else 'no'} | {self.said} |\n"


def compared(name: str, samples: pathlib.Path, replaced: set[str]) -> Row:
    """Runs a script both ways."""
    outputs, arrays = [], []
    for backend in ("dmlvk", "onnxruntime"):
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            command = [sys.executable, __file__, "--child", backend, file.name, *SCRIPTS[name]]
            ended = subprocess.run(command, cwd=samples, capture_output=True, text=True)
            if ended.returncode:
                return Row(name, backend != "dmlvk", False, ended.stderr.strip().splitlines()[-1])
            outputs.append(ended.stdout)
            with np.load(file.name) as kept:
                arrays.append([kept[key] for key in kept.files])
    ours, theirs = arrays
    assert ours and len(ours) == len(theirs)
    numbers = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.dtype != np.uint8]
    pictures = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.dtype == np.uint8]
    error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in numbers)
    steps = max((int(np.minimum(a - b, b - a).max()) for a, b in pictures), default=0)  # a script may let 256 be 0
    said = "; ".join(line for line in outputs[0].splitlines() if line)
    for picture, _ in pictures:
        said = f"a picture of {picture.shape[1]} x {picture.shape[0]}, at most {steps} of 256 steps from ONNX Runtime's"
    words = [said, f"numbers within {error:.0e} of the largest"]
    if any(path.split("/")[0] in pathlib.Path(samples / SCRIPTS[name][0]).read_text() for path in replaced):
        words.append("the last layer's weights are random numbers, since the checkout lacks the file")
    return Row(name, True, outputs[0] == outputs[1] and error <= TOLERANCE and steps <= 1, "; ".join(words))


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return run(sys.argv[4:], sys.argv[2], sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"all of {', '.join(SCRIPTS)} where none is given")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder) / "samples"
        shutil.copytree(options.checkout / "Python" / "samples", samples)
        replaced = {path for path in WEIGHTS if not (samples / path).exists()}
        for path in replaced:
            np.save(samples / path, np.random.default_rng(0).normal(0, 0.05, WEIGHTS[path]).astype(np.float32))
        rows = []
        for name in options.names or SCRIPTS:
            rows.append(compared(name, samples, replaced))
            print(rows[-1].line(), end="", flush=True)
    if options.write:
        made = {row.name: row.line() for row in rows}
        PAGE.write_text(
            re.sub(r"^\| `(.*?)` \|.*\n", lambda line: made.get(line[1], line[0]), PAGE.read_text(), flags=re.MULTILINE)
        )
    return 0 if all(row.runs and row.right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
