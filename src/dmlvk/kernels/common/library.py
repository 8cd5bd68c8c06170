"""The SPIR-V pack: every compiled module, opened once and read on demand."""

from __future__ import annotations

import functools
import importlib.resources
import io
import threading
import zipfile

from dmlvk.kernels.common.kernel import module_name
from dmlvk.kernels.common.plan import KernelVariant
from dmlvk.kernels.common.portable_matrices import with_portable_reductions
from dmlvk.kernels.common.trim import with_cases
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.errors import DmlvkError

_lock = threading.Lock()


@functools.cache
def _pack() -> zipfile.ZipFile:
    path = importlib.resources.files("dmlvk.kernels") / "kernels.zip"
    if not path.is_file():
        raise DmlvkError(f"the kernels are not built: {path} is missing (python tools/build_kernels.py)")
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


@functools.cache
def spirv(kernel: str, variant: tuple[tuple[str, str], ...]) -> bytes:
    """The SPIR-V of one variant of a kernel."""
    with _lock:  # the first of several threads opens the pack for all
        return _pack().read(module_name(kernel, variant))


def pipeline_spirv(kernel: KernelVariant, *, portable_reductions: bool = False) -> bytes:
    """The SPIR-V to make a pipeline of: of the operators in a kernel's ``selectors`` it has no others.

    Args:
        kernel: The kernel.
        portable_reductions: Whether the device reduces matrices by ``VK_EXT_cooperative_matrix_maintenance1``.
    """
    module = spirv(kernel.kernel, kernel.variant)
    spec = KERNELS[kernel.kernel]
    if portable_reductions and "matrix_reductions" in spec.required_features(kernel.variant):
        module = with_portable_reductions(module)
    if not spec.selectors:
        return module
    values = dict(spec.constants) | dict(kernel.constants)
    return with_cases(module, {int(values[name]) for name in spec.selectors})


def module_names() -> list[str]:
    """Names of all modules in the pack."""
    return _pack().namelist()
