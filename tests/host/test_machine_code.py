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


def test_what_an_instruction_waits_for_comes_before_it() -> None:
    """As the fields lie: the cycles from bit 105, counters raised from 110 and 113, those waited for from 116."""
    load = (4 << 105 | 5 << 110 | 7 << 113 | 0b000100 << 116).to_bytes(16, "little")
    store = (15 << 105 | 7 << 110 | 0 << 113 | 0b100011 << 116).to_bytes(16, "little")
    listing = "\t.headerflags\n        /*0000*/                   LDG R0, [R2] ;\n        /*0010*/    @P0 STS [R1], R0 ;\n"
    assert machine_code.with_waits(listing, load + store) == (
        "\t.headerflags\n  0000 >5   ..2...  4  LDG R0, [R2] ;\n  0010   <0 01...5 15  @P0 STS [R1], R0 ;\n"
    )
