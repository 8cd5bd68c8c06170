"""Numbers that shaders and host share: the manifest's rows say them, and no GLSL says them again."""

from __future__ import annotations

import enum
import pathlib
import re
from collections.abc import Iterator

from build_kernels import SHARED_NUMBERS, prelude
from together import together

from dmlvk.kernels.common import shapes
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.manifest import KERNELS

GLSL = pathlib.Path(__file__).parent.parent.parent / "glsl"
SOURCES = sorted(path for path in GLSL.rglob("*") if path.is_file())
SHARING = [spec for spec in KERNELS.values() if spec.shared]
FIXED = re.compile(r"^\s*(?:#define (\w+)|const u?int (\w+) =) \(?(\d+)u?\)?;? *(?://.*)?$", re.MULTILINE)
COMPARED = re.compile(r"\b([A-Z][A-Z0-9_]+) [!=]= (\d+)u?\b")
SHARED_ARRAY = re.compile(r"^\s*shared [^;]*;", re.MULTILINE)


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


def own_numbers(text: str) -> Iterator[str]:
    """The numbers of GLSL that belong into a manifest row: a number above 1 that has a name, and the size of an array in
    shared memory. The bytes and bits of a type are GLSL's own, and a flag is 0 or 1."""
    for macro, constant, number in FIXED.findall(text):
        name = macro or constant
        if int(number) > 1 and not name.endswith(("_BYTES", "_BITS")):
            yield f"{name} = {number}"
    for array in SHARED_ARRAY.findall(text):
        yield from (f"{array}: {number}" for number in re.findall(r"\b(\d+)u?\b", array) if int(number) > 32)


@together(SHARING, lambda spec: spec.name)
def test_a_shared_number_is_used_and_said_once(spec: KernelSpec) -> None:
    text = text_of(spec)
    for name, value in spec.shared:
        used = [own for own in spec.numbers if own.startswith(name) and re.search(rf"\b{own}\b", text)]
        assert used, f"{spec.name} has {name}, which nothing in {spec.source} reads"
        assert isinstance(value, int) or issubclass(value, enum.IntEnum)
    said = {macro or constant for macro, constant, _ in FIXED.findall(text)}
    assert not said & {*spec.numbers, *(f"MODE_{mode.name}" for mode in Access)}, (
        f"{spec.source} says again what its row says"
    )


@together(SOURCES, lambda path: path.name)
def test_no_shader_has_a_number_of_its_own(path: pathlib.Path) -> None:
    assert not list(own_numbers(path.read_text()))


def test_a_number_of_a_shader_is_found_whatever_its_name_and_form() -> None:
    found = own_numbers("#define MOST_PARTS 12\nconst uint READS = 4u;\n  #define HELD (2)\nshared uint bins[2][64];\n")
    assert [number.split()[0] for number in found] == ["MOST_PARTS", "READS", "HELD", "shared"]
    assert not list(
        own_numbers("const float HALF = 0.5;\n#define UNIT_BYTES 16\nconst uint FIRST = 0u;\nshared uint bins[BINS];\n")
    )


@together(KERNELS.values(), lambda spec: spec.name)
def test_the_cases_of_a_constant_have_names(spec: KernelSpec) -> None:
    """A constant that is 0 by default is a flag, or a choice between cases, whose names are in the row (``shared``). Any
    other is a count, which may be compared with numbers."""
    choices = {name for name, default in spec.constants if default == 0} & {
        name for name, number in COMPARED.findall(text_of(spec)) if int(number) > 1
    }
    counts = {name for name in choices if name.endswith("_WORDS")}  # 0 where there are none
    assert not choices - counts, f"{spec.source} compares {sorted(choices - counts)} with numbers"


def test_every_shader_is_told_what_the_host_knows() -> None:
    known = {name: getattr(shapes, name) for name in ("MOST_ITEMS", "LEAST_SUBGROUP", "MOST_INVOCATIONS")}
    assert known | {"WORD_BYTES": shapes.WORD_BITS // 8} == SHARED_NUMBERS
    for spec in KERNELS.values():
        lines = prelude(spec, next(iter(spec.combinations()))).splitlines()
        numbers = SHARED_NUMBERS | spec.numbers
        assert {f"#define {name} {value}" for name, value in numbers.items()} <= {*lines}, spec.name
