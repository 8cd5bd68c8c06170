"""List the machine code that NVIDIA's driver made of pipelines, out of a pipeline cache that dmlvk kept.

    pip install zstandard
    DMLVK_CACHE_DIR=FOLDER python -m dmlvk verify Gemm --only "rule cooperative"
    python tools/machine_code.py FOLDER/pipelines-*.bin [--nvdisasm PROGRAM] [--architecture SM90] [--write FOLDER]

The driver tells the registers and the bytes of a pipeline (``dmlvk explain --compiled``), and no instruction. Its cache has
them: entries that Zstandard compressed, one a pipeline, without names, so that a cache of few pipelines is easiest to read.
NVIDIA describes none of this; seen with driver 580. ``nvdisasm`` is part of the CUDA toolkit and of Triton's wheel.

The listings that ``--write`` makes say before each instruction what the processor does for it. A load raises one of six
counters, which falls when its value is there; ``>5 ..2... 4`` is an instruction that raises counter 5, waits until counter
2 is 0, and keeps the next one waiting for 4 cycles. ``<0`` raises it until what the instruction reads has been read.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

_FRAME = b"\x28\xb5\x2f\xfd"
"""How what Zstandard compressed begins."""
_ENTRY, _CONTAINER = b"NVDANVVM", b"NVuc"
_SECTIONS, _SECTION_BYTES, _MOST_SECTIONS, _CODE = 32, 32, 16, 1
"""Where the table of sections begins in a container, the bytes of a row, how many rows are read, and the code's kind."""
_COUNTERS = 6
_PLACE = re.compile(r"^ +/\*([0-9a-f]{4,})\*/ +")
"""What a line of a listing begins with: where the instruction is."""
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


def entries(cache: bytes, decompressed: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The entries of a cache, in order.

    Args:
        cache: The file.
        decompressed: Decompresses what begins with a frame, and leaves alone what follows it; gives nothing where bytes
            within a frame only look like the beginning of one.
    """
    for found in re.finditer(re.escape(_FRAME), cache):
        entry = decompressed(cache[found.start() :])
        if entry.startswith(_ENTRY):
            yield entry


def code_of(entry: bytes) -> bytes:
    """The instructions of an entry, of 16 bytes each; none where its table has no code."""
    start = entry.find(_CONTAINER)
    for row in range(_MOST_SECTIONS):
        kind, nbytes, place = struct.unpack_from("<3I", entry, start + _SECTIONS + row * _SECTION_BYTES)
        if kind == _CODE:
            return entry[start + place : start + place + nbytes]
    return b""


def listing(code: bytes, nvdisasm: str, architecture: str) -> str:
    """The instructions as text."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        command = [nvdisasm, "--binary", architecture, "--print-code", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def waits(instruction: bytes) -> str:
    """What an instruction of 16 bytes raises, waits for, and keeps the next one waiting."""
    bits = int.from_bytes(instruction, "little") >> 105
    stall, written, read, waited = bits & 15, bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    raised = (f"{sign}{counter}" if counter < _COUNTERS else "  " for sign, counter in ((">", written), ("<", read)))
    awaited = (str(counter) if waited >> counter & 1 else "." for counter in range(_COUNTERS))
    return f"{''.join(raised)} {''.join(awaited)} {stall:2}"


def with_waits(text: str, code: bytes) -> str:
    """A listing of some code, with ``waits`` before each instruction."""

    def waited(line: str) -> str:
        place = _PLACE.match(line)
        if place is None:
            return line
        at = int(place[1], 16)
        return f"{place[1]:>6} {waits(code[at : at + 16])}  {line[place.end() :]}"

    return "\n".join(map(waited, text.splitlines())) + "\n"


def main() -> int:
    """Prints a line for each pipeline: its bytes, and its most frequent instructions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path, nargs="+")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--architecture", default="SM90", help="Of the GPU, as nvdisasm names it.")
    parser.add_argument("--write", type=pathlib.Path, help="A folder for the listings.")
    options = parser.parse_args()
    zstandard = importlib.import_module("zstandard")

    def decompressed(data: bytes) -> bytes:
        try:
            whole: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        except zstandard.ZstdError:
            return b""
        return whole

    for path in options.cache:
        for number, entry in enumerate(entries(path.read_bytes(), decompressed)):
            code = code_of(entry)
            text = listing(code, options.nvdisasm, options.architecture)
            often = collections.Counter(_INSTRUCTION.findall(text)).most_common(8)
            print(f"{path.stem}.{number}: {len(code):,} bytes: {', '.join(f'{count} {name}' for name, count in often)}")
            if options.write:
                options.write.mkdir(parents=True, exist_ok=True)
                (options.write / f"{path.stem}.{number}.txt").write_text(with_waits(text, code))
    return 0


if __name__ == "__main__":
    sys.exit(main())
