"""Every Vulkan function and allocation made to fail, and SIGINT at any moment; docs/faults.md says what is asked for."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from faults.layer import missing

FAULTS = Path(__file__).parents[1] / "faults"
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "the layer can be built")


def run(script: str, *arguments: str) -> str:
    """What a script says; it must find nothing wrong. Of its own, because the Vulkan loader loads layers once."""
    done = subprocess.run([sys.executable, str(FAULTS / script), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_some_faults() -> None:
    """One of each error of each function, in scenarios with few pipelines."""
    runs = ("first run", "profiled run", "provider run", "prepared run")
    scenarios = ("device", "eager call", "device arrays", "graph call", *runs)
    said = run("sweep.py", "--short", *itertools.chain(*(("--only", name) for name in scenarios)))
    for function in (
        "vkAllocateMemory",
        "vkCreateComputePipelines",
        "vkEndCommandBuffer",
        "vkQueueSubmit",
        "vkWaitSemaphores",
        "operator new",
    ):
        assert f"| `{function}` |" in said


@pytest.mark.slow
def test_an_interrupt_at_every_place_where_a_device_closes() -> None:
    run("interrupts.py", "--steps", "1000", "--only", "close")


@pytest.mark.slow
def test_what_the_provider_keeps_goes() -> None:
    """A device and 80 MiB stayed with freed memory that nobody would want again."""
    run("interrupts.py", "--runs", "6", "--only", "provider run")


@pytest.mark.slow
def test_the_provider_hands_an_interrupt_on() -> None:
    """ONNX Runtime's error came in its place."""
    run("interrupts.py", "--steps", "4", "--only", "provider run")


@pytest.mark.full
def test_every_kind_of_call() -> None:
    run("sweep.py", "--places", "3", "--jobs", "2")


@pytest.mark.full
def test_interrupts() -> None:
    run("interrupts.py", "--runs", "300")
    run("interrupts.py", "--steps", "20")
