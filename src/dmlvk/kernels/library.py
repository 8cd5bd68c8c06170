"""The SPIR-V pack: every compiled module, opened once and read on demand."""

from __future__ import annotations

import functools
import importlib.resources
import io
import zipfile

from dmlvk.errors import DmlvkError
from dmlvk.kernels.spec import module_name


@functools.cache
def _pack() -> zipfile.ZipFile:
    path = importlib.resources.files("dmlvk.kernels") / "kernels.zip"
    if not path.is_file():
        raise DmlvkError(f"the kernels are not built: {path} is missing (python tools/build_kernels.py)")
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


@functools.cache
def spirv(kernel: str, variant: tuple[tuple[str, str], ...]) -> bytes:
    """The SPIR-V of one variant of a kernel."""
    return _pack().read(module_name(kernel, variant))


def module_names() -> list[str]:
    """Names of all modules in the pack."""
    return _pack().namelist()
