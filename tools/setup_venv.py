"""Create .venv and install dmlvk into it; a second run whose inputs have not changed does nothing.

    python3 tools/setup_venv.py [--extra NAME]... [--with REQUIREMENT]... [--torch] [--bench] [--sources]

The build requirements stay in the environment and the compiled objects in build/, so a change in Python alone
reinstalls without compiling C++. With --sources it installs nothing anew: the sources then run from src and bench/src, with
the compiled parts of the installed package beside them.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "dmlvk-stamp.json"

#: Everything that the installed packages are made from.
INPUTS = ("pyproject.toml", "CMakeLists.txt", "README.md", "native", "glsl", "src/dmlvk", "tools/build_kernels.py")
BENCH_INPUTS = ("bench/pyproject.toml", "bench/README.md", "bench/src")

#: Of those, what is compiled or declared: the native module, the SPIR-V pack (beside the manifest), requirements, commands.
COMPILED_INPUTS = ("pyproject.toml", "bench/pyproject.toml", "CMakeLists.txt", "native", "glsl", "tools/build_kernels.py")

#: scikit-build-core takes both from these wheels, so that no Debian package of either is needed.
BUILD_PROGRAMS = ("cmake", "ninja")

#: The second oracle of some tests. Only a build without CUDA is worth its download; this local version marks one.
TORCH = "2.13.0+cpu"


def say(message: str) -> None:
    print(f"[set-up] {message}", file=sys.stderr, flush=True)


def pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def input_files(names: Iterable[str]) -> Iterator[Path]:
    """The files under these, without what a build in place leaves among them."""
    for name in names:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in (".pyc", ".so", ".zip"):
                yield file


def digest(parts: Iterable[str | Path]) -> str:
    """SHA-256 over strings and over files (their names and contents)."""
    total = hashlib.sha256()
    for part in parts:
        total.update(str(part).encode() + b"\0")
        if isinstance(part, Path):
            total.update(hashlib.sha256(part.read_bytes()).digest())
    return total.hexdigest()


def build_requirements() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared: list[str] = tomllib.load(file)["build-system"]["requires"]
    return [*declared, *(p for p in BUILD_PROGRAMS if not any(d.startswith(p) for d in declared))]


def compiled_digest() -> str:
    """SHA-256 over what the native module and the SPIR-V pack are made from."""
    command = [str(PYTHON), "tools/build_kernels.py", "--print-key"]
    rows = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    return digest([rows, *input_files(COMPILED_INPUTS)])


def copy_compiled() -> None:
    """Put the installed package's native modules and SPIR-V pack beside the sources, where others or none are there."""
    (package,) = ENVIRONMENT.glob("lib/python3*/site-packages/dmlvk")
    native = (*package.glob("runtime/_native*.so"), *package.glob("ort/_plugin*.so"))
    for file in (*native, package / "kernels" / "kernels.zip"):
        place = ROOT / "src" / "dmlvk" / file.relative_to(package)
        if not place.exists() or not filecmp.cmp(place, file, shallow=False):
            place.unlink(missing_ok=True)  # a process that has the old one loaded keeps it
            shutil.copy2(file, place)


def install_torch() -> str:
    """Install PyTorch's CPU build if pip can find one; returns the outcome as a sentence."""
    offer = subprocess.run([str(PYTHON), "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True)
    if TORCH not in offer.stdout.replace(",", " ").split():
        return f"no: pip offers no torch {TORCH}, and the default build brings gigabytes of CUDA"
    pip("install", "-q", f"torch=={TORCH}")
    return "yes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", action="append", default=[], help="an extra of pyproject.toml to install")
    parser.add_argument("--with", action="append", default=[], dest="requirements", help="one more requirement")
    parser.add_argument("--torch", action="store_true", help="install PyTorch's CPU build where pip can find one")
    parser.add_argument("--bench", action="store_true", help="install dmlvk-bench as well")
    parser.add_argument("--sources", action="store_true", help="install only if what is compiled changed; run from src")
    wanted = parser.parse_args()

    # A checkout that was moved, or a Python that went away, leaves an environment that does not start.
    if not PYTHON.exists() or subprocess.run([str(PYTHON), "-c", ""], stderr=subprocess.DEVNULL).returncode:
        say(f"creating {ENVIRONMENT.name} with Python {sys.version.split()[0]}")
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
    stamp: dict[str, Any] = json.loads(STAMP.read_text()) if STAMP.exists() else {}

    def done(**facts: Any) -> None:
        stamp.update(facts)
        STAMP.write_text(json.dumps(stamp, indent=1))

    requirements = build_requirements()
    if stamp.get("build") != (key := digest(requirements)):
        say(f"installing what the build needs: {', '.join(requirements)}")
        pip("install", "-q", *requirements)
        done(build=key)

    if wanted.requirements and (lacking := set(wanted.requirements) - set(stamp.get("requirements", []))):
        say(f"installing {', '.join(sorted(lacking))}")
        pip("install", "-q", *lacking)
        done(requirements=sorted(lacking | set(stamp.get("requirements", []))))

    if wanted.torch and "torch" not in stamp:
        say("looking for PyTorch's CPU build, which some tests compare with")
        done(torch=install_torch())
        say(f"PyTorch: {stamp['torch']}")

    extras = sorted({*wanted.extra, *stamp.get("extras", [])})
    compiled = compiled_digest()
    same = wanted.sources and stamp.get("compiled") == compiled
    key = digest(input_files(INPUTS))
    if extras != stamp.get("extras") or (stamp.get("project") != key and not same):
        say(f"building and installing dmlvk with extras {', '.join(extras)} (the first time, some minutes)")
        pip("install", "-q", "--no-build-isolation", f"{ROOT}[{','.join(extras)}]")
        done(project=key, extras=extras, compiled=compiled)

    key = digest(input_files(BENCH_INPUTS))
    if wanted.bench and stamp.get("bench") != key and not (same and "bench" in stamp):
        say("installing dmlvk-bench")
        pip("install", "-q", "--no-build-isolation", f"{ROOT / 'bench'}")
        done(bench=key)

    if wanted.sources:
        copy_compiled()
        subprocess.run([str(PYTHON), "tools/generate_stubs.py", "src/dmlvk"], check=True, cwd=ROOT)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"[set-up] this failed, with what is said above: {' '.join(error.cmd)}")
