"""Stand-ins for the native module, so that execution's rules are tested where there is no GPU."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.plan import Dispatch, KernelVariant
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.memory import Buffer, ParameterBlock


@dataclass
class NativeList:
    """Keeps what was recorded and counts submissions."""

    commands: list[tuple[Any, ...]] = field(default_factory=list)
    submissions: int = 0

    def dispatch(self, *arguments: Any) -> None:
        self.commands.append(("dispatch", *arguments))

    def launch(self, launches: Any, order: Any, values: Any, blocks: Any, resources: Any) -> tuple[int, ...]:
        """As the native list's, which appends each as ``dispatch`` and ``copy`` do."""
        alignment, own = launches
        own = own if order is None else [own[place] for place in order]
        left_out = []
        for index, ((kernel, writes, places, _), (_, grid, ranges)) in enumerate(zip(own, values, strict=True)):
            buffers, remainders = [], []
            for (resource, slot), (*_, start, nbytes) in zip(places, ranges, strict=True):
                whole = resources[resource] if resource in (2, 3) else resources[resource][slot]
                remainder = (whole.offset + start) % alignment if kernel else 0
                length = (nbytes or whole.nbytes - start) + remainder
                buffers.append((whole.buffer.native, whole.offset + start - remainder, length))
                remainders.append(remainder)
            if kernel:
                push = struct.pack(f"<{len(remainders)}I", *remainders)
                self.dispatch(kernel, buffers, writes, blocks[index], push, grid)
            elif buffers[0] == buffers[1]:
                left_out.append(index)
            else:
                (source, at, nbytes), (target, to, _) = buffers
                self.copy(source, at, target, to, nbytes)
        return tuple(left_out)

    def copy(self, *arguments: Any) -> None:
        self.commands.append(("copy", *arguments))

    def submit(self, *, defer: bool = False) -> None:
        self.submissions += 1

    def wait(self, timeout: float | None) -> bool:
        return True


class FakeDevice:
    """What execution uses of a device."""

    def __init__(self) -> None:
        self.info = SimpleNamespace(name="fake")
        self.capabilities = Capabilities()
        self.storage_alignment = 64
        self.lists: list[NativeList] = []
        self.native = SimpleNamespace(
            command_list=self._command_list, launches=lambda alignment, launches: (alignment, launches)
        )

    def _command_list(self, *, timestamps: bool) -> NativeList:
        self.lists.append(NativeList())
        return self.lists[-1]

    def require_alive(self) -> None:
        pass

    def pipeline(self, launch: Dispatch) -> KernelVariant:
        return launch.pipeline(self.storage_alignment)

    def kernel(self, variant: KernelVariant) -> str:
        return variant.kernel

    def place_parameters(self, blocks: list[bytes]) -> list[ParameterBlock]:
        return [ParameterBlock(None, 0, len(block)) for block in blocks]  # type: ignore[arg-type]

    def create_buffer(self, size: int) -> Buffer:
        return Buffer(self, SimpleNamespace(size=size))  # type: ignore[arg-type]


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], FakeDevice]:
    """Makes devices without Vulkan, which know a kernel named "fake" of two buffers, the second one written."""
    monkeypatch.setitem(KERNELS, "fake", KernelSpec("fake", "fake.comp", buffers=("x", "y:w")))
    return FakeDevice
