"""Translate every SPIR-V module to Metal's shading language with SPIRV-Cross, as MoltenVK does on a Mac.

    python tools/translate_msl.py [--spirv-cross PROGRAM] [--write FOLDER] [KERNEL]...

A module is expected to be translated if and only if the profile "moltenvk" (src/dmlvk/devices/profiles.py) has every
feature that its manifest row names; kernels that are trimmed to the operators of a pipeline are translated in that form as
well. Exit status 1 where it is otherwise, with the module and SPIRV-Cross's words. What comes out is text: no Metal compiler
reads it here.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from dmlvk.devices.profiles import PROFILES
from dmlvk.kernels.common.kernel import KernelSpec, Variant, module_name
from dmlvk.kernels.common.library import pipeline_spirv, spirv
from dmlvk.kernels.common.plan import KernelVariant
from dmlvk.kernels.manifest import KERNELS

METAL_FEATURES: Final = PROFILES["moltenvk"].capabilities.features
MSL_VERSION: Final = "30000"
"""Metal 3.0, of macOS 13: the least whose atomics MoltenVK reports as ``atomic_float``."""


class KnownGap(NamedTuple):
    """What an old SPIRV-Cross cannot translate, and the one inside MoltenVK can.

    Attributes:
        feature: The feature that the modules use.
        message: The translator's message.
        reason: Since when it can.
    """

    feature: str
    message: str
    reason: str


KNOWN_GAPS: Final = (
    KnownGap(
        "integer_dot_product",
        "Cannot resolve expression type.",
        "SPIRV-Cross translates SPV_KHR_integer_dot_product to Metal since January 2024 (commit 6c24be19), Debian 12's is a "
        "year older; the one in MoltenVK as of August 2026 (6c09849f) translates all of these",
    ),
)
"""A module may fail with the message of a gap whose feature it needs; with a newer SPIRV-Cross it does not."""


class Translation(NamedTuple):
    """The outcome of a module's translation.

    Attributes:
        name: The module's, with "(trimmed)" where it has the cases of one pipeline only.
        needs: The features that its row names.
        text: The module in Metal's language, "" if it could not be translated.
        message: SPIRV-Cross's, where it could not.
    """

    name: str
    needs: frozenset[str]
    text: str
    message: str

    def gap(self) -> KnownGap | None:
        """Why a SPIRV-Cross that is old may fail on it, where that is what happened."""
        return next((gap for gap in KNOWN_GAPS if gap.feature in self.needs and self.message.endswith(gap.message)), None)

    def problem(self, features: Collection[str] = METAL_FEATURES) -> str:
        """What is not as expected of a device with these features, as a line; "" where all is."""
        missing = sorted(self.needs.difference(features))
        if missing and self.text:
            return f"{self.name}: is translated, though its row needs {' '.join(missing)}, which the profile lacks"
        if missing or self.text or self.gap():
            return ""
        return f"{self.name}: {self.message}"


def find_program() -> str:
    """SPIRV-Cross's.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which("spirv-cross")
    if found is None:
        raise FileNotFoundError("spirv-cross is not on the PATH: it is Debian's package of that name")
    return found


def translate_all(kernels: Sequence[KernelSpec], program: str) -> list[Translation]:
    """Every module of some kernels, in the manifest's order, as many at a time as there are processors."""

    def translate(item: tuple[str, KernelSpec, Variant, bytes]) -> Translation:
        name, spec, variant, module = item
        command = [program, "-", "--msl", "--msl-version", MSL_VERSION]
        done = subprocess.run(command, input=module, capture_output=True)
        text, message = done.stdout.decode(), done.stderr.decode().strip()
        if done.returncode == 0 and "kernel void main0(" not in text:
            message = "SPIRV-Cross ended well and wrote no kernel"
        elif re.search(r"\bdouble\b", text):  # it refuses those of buffers, and writes others
            message = "SPIRV-Cross wrote double, a type that Metal does not have"
        return Translation(name, frozenset(spec.required_features(variant)), "" if message else text, message)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(translate, modules(kernels)))


def modules(kernels: Sequence[KernelSpec]) -> Iterator[tuple[str, KernelSpec, Variant, bytes]]:
    """(name, row, variant, SPIR-V) of what is packed, and of what pipelines of trimmed kernels are made of."""
    for spec in kernels:
        for variant in spec.combinations():
            name = module_name(spec.name, variant)
            yield name, spec, variant, spirv(spec.name, variant)
            if spec.selectors:
                yield f"{name} (trimmed)", spec, variant, pipeline_spirv(KernelVariant(spec.name, variant))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="default: all")
    parser.add_argument("--spirv-cross", metavar="PROGRAM", help="default: the one on the PATH")
    parser.add_argument("--write", metavar="FOLDER", type=pathlib.Path, help="where to leave the translations, as .metal")
    options = parser.parse_args()
    if unknown := set(options.kernels) - KERNELS.keys():
        parser.error(f"there is no kernel {', '.join(sorted(unknown))}")
    try:
        program = options.spirv_cross or find_program()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    found = translate_all([KERNELS[name] for name in options.kernels] or list(KERNELS.values()), program)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for item in found:
            if item.text:
                (options.write / f"{item.name}.metal").write_text(item.text)
    problems = [problem for item in found if (problem := item.problem())]
    print("\n".join(problems))
    lacking = Counter(feature for item in found for feature in item.needs - METAL_FEATURES)
    gaps = Counter(gap.reason for item in found if not item.text and (gap := item.gap()))
    for feature, count in lacking.items():
        print(f"{count} not for Metal: they need {feature}, which the profile moltenvk lacks")
    for reason, count in gaps.items():
        print(f"{count} not by this SPIRV-Cross: {reason}")
    translated = sum(bool(item.text) for item in found)
    print(f"{len(found)} modules, {translated} translated to MSL {MSL_VERSION}, {len(problems)} not as expected")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
