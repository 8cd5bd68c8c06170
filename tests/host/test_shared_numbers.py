"""Numbers that shaders and host share: the manifest says them, and no GLSL says them again."""

from __future__ import annotations

import enum
import pathlib
import re

import pytest

from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.manifest import KERNELS

GLSL = pathlib.Path(__file__).parent.parent.parent / "glsl"
HOST = GLSL.parent / "src" / "dmlvk" / "kernels"
SHARING = [spec for spec in KERNELS.values() if spec.shared]
FIXED = re.compile(r"^\s*(?:#define (\w+) (\d+)u?|const uint (\w+) = (\d+)u?;)", re.MULTILINE)


def text_of(spec: KernelSpec) -> str:
    """A kernel's source with all that it includes."""
    found, waiting = "", [GLSL / spec.source]
    while waiting:
        text = waiting.pop().read_text()
        names = re.findall(r'#include "([^"]+)"', text)
        found += text
        waiting += [GLSL / "include" / name for name in dict.fromkeys(names) if f"//@{name}\n" not in found]
        found += "".join(f"//@{name}\n" for name in names)
    return found


def fixed_numbers(text: str) -> dict[str, int]:
    """The numbers that a text of GLSL fixes by name."""
    return {name or constant: int(value or number) for name, value, constant, number in FIXED.findall(text)}


@pytest.mark.parametrize("spec", SHARING, ids=lambda spec: spec.name)
def test_a_shared_number_is_used_and_said_once(spec: KernelSpec) -> None:
    text = text_of(spec)
    for name, value in spec.shared:
        used = [own for own in spec.numbers if own.startswith(name) and re.search(rf"\b{own}\b", text)]
        assert used, f"{spec.name} has {name}, which nothing in {spec.source} reads"
        assert isinstance(value, int) or issubclass(value, enum.IntEnum)
    assert not set(spec.numbers) & set(fixed_numbers(text)), f"{spec.source} says again what its row says"


def test_the_modes_of_lanes_are_the_hosts() -> None:
    for path in sorted(GLSL.rglob("*")):
        if path.is_file():
            again = {f"MODE_{mode.name}" for mode in Access} & set(fixed_numbers(path.read_text()))
            assert not again, f"{path.name} says {again} again"


def test_no_number_of_the_host_stands_in_glsl_under_its_name() -> None:
    """A number that a family's Python has under the name that a shader gives it belongs into ``shared``."""
    said: dict[tuple[str, int], str] = {}
    for path in sorted(HOST.rglob("*.py")):
        for name, value in re.findall(r"^_?([A-Z][A-Z0-9_]+)(?:: Final)? = (\d+)$", path.read_text(), re.MULTILINE):
            said[name, int(value)] = path.relative_to(HOST).as_posix()
    for path in sorted(GLSL.rglob("*")):
        if path.is_file():
            for name, number in fixed_numbers(path.read_text()).items():
                other = said.get((name, number))
                assert other is None, f"{path.name} and {other} both say {name} = {number}"
