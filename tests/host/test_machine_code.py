"""How machine code is found in the pipeline cache of NVIDIA's driver."""

from __future__ import annotations

import struct
import zlib

import machine_code

FRAME = b"\x28\xb5\x2f\xfd"
CODE = bytes(range(48))


def entry(sections: list[tuple[int, int, int]]) -> bytes:
    """A container with a table of these kinds, bytes and places, and behind it the code."""
    table = b"".join(struct.pack("<8I", *section, 0, 0, 0, 0, 0) for section in sections).ljust(16 * 32, b"\0")
    return b"NVDANVVM" + b"NVuc".ljust(32, b"\1") + table + CODE


def decompressed(data: bytes) -> bytes:
    """Another compression in frames that begin alike: what follows the stream is left alone."""
    try:
        return zlib.decompressobj().decompress(data.removeprefix(FRAME))
    except zlib.error:
        return b""


def test_entries_are_the_frames_with_a_container() -> None:
    frames = [FRAME + zlib.compress(data) for data in (entry([]), b"other bytes")]
    cache = b"header" + frames[0] + FRAME + b"no stream" + frames[1] + frames[0] + b"end"
    assert list(machine_code.entries(cache, decompressed)) == [entry([]), entry([])]


def test_the_code_is_the_section_of_its_kind() -> None:
    place = 32 + 16 * 32
    assert machine_code.code_of(entry([(3, 8, 0), (1, len(CODE) - 16, place), (0x45, 8, 0)])) == CODE[:-16]
    assert machine_code.code_of(entry([(3, 8, 0)])) == b""
