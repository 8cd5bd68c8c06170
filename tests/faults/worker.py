"""A process that puts faults into scenarios, one a line of its input, and answers each with a line.

sweep.py starts it, so that a crash or a hang is an outcome like any other.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import json
import pathlib
import sys
import threading
import time
import traceback
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import registry
from layer import Layer
from scenarios import SCENARIOS, Scenario

import dmlvk
from dmlvk.runtime.device import validation_messages
from dmlvk.spec.errors import DeviceLostError, DmlvkError

LOST = "VK_ERROR_DEVICE_LOST"
NOT_THERE = ("vkCreateDevice", "vkDeviceWaitIdle")
"""Functions of a device that is not there yet, and of one that goes."""
PATIENCE = 5.0
WAIT_TIMEOUT = 0.2
"""Seconds that a wait may take where one never ends."""
unexpected: list[str] = []
"""What threads and finalisers raised."""


def digest(arrays: list[Any]) -> str:
    """Of the bits of arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def counted(layer: Layer, kind: type[Scenario]) -> dict[str, Any]:
    """What a scenario gives when nothing fails: bits, calls and memory."""
    scenario = kind()
    layer.count()
    work = digest(scenario.work())
    calls = layer.calls()
    calls[registry.ALLOCATION.name] -= kind.last_allocations
    again = digest(scenario.again())
    gc.collect()
    return {"work": work, "again": again, "calls": calls, "live_bytes": scenario.live_bytes()}


def problems_after(scenario: Scenario, wanted: dict[str, Any]) -> list[str]:
    try:
        return [] if digest(scenario.again()) == wanted["again"] else ["wrong bits afterwards"]
    except BaseException as error:
        return [f"afterwards {type(error).__name__}: {error} at {place(error)}"]


def place(error: BaseException) -> str:
    """The innermost places of a traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{pathlib.Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


def outcome(
    scenario: Scenario, wanted: dict[str, Any], errors: tuple[type[BaseException], ...]
) -> tuple[str, BaseException | None, list[str]]:
    """How the work ends: the error's class, or "absorbed"; the error, kept alive; and what is wrong with it, such as that it
    is none of ``errors``."""
    try:
        found = digest(scenario.work())
    except errors as error:
        return type(error).__name__, error, []
    except BaseException as error:
        name = type(error).__name__
        return name, error, [f"bare {name}: {error} at {place(error)}"]
    return "absorbed", None, [] if found == wanted["work"] else ["wrong bits"]


def try_fault(layer: Layer, kind: type[Scenario], fault: dict[str, Any]) -> dict[str, Any]:
    if fault["result"] == LOST:
        kind.forget_device()
    elif kind.keeps_device:
        kind.kept_device()
    wanted, before, misused = fault["wanted"], layer.live(), layer.misused
    name, fired, problems = faulty(layer, kind, wanted, fault)
    if fault["result"] == LOST:
        kind.forget_device()  # with it all goes that was on it
    problems += [f"leaks {amount} {kind}" for kind, amount in leaks(layer, before).items()]
    problems += ["submits a command buffer that could not be ended"] * (layer.misused > misused)
    # The loader says through the same channel that it could not make a device, which is the fault itself.
    said = [message for message in validation_messages() if not message.startswith("Loader Message")]
    problems += [f"validation: {message}" for message in said]
    problems += unexpected
    unexpected.clear()
    return {"outcome": name if fired else "not reached", "fired": fired, "problems": problems}


def leaks(layer: Layer, before: dict[str, int]) -> dict[str, int]:
    """Objects and bytes that are there beyond those of before, by kind, and do not go. A thread that creates pipelines, and
    a device on which work went on for more than a second, go a little later."""
    end = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        live = {kind: amount - before.get(kind, 0) for kind, amount in layer.live().items() if kind != "VkInstance"}
        found = {kind: amount for kind, amount in live.items() if amount > 0}
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)
        dmlvk.Device()  # which destroys those on which nothing runs any more


def faulty(layer: Layer, kind: type[Scenario], wanted: dict[str, Any], fault: dict[str, Any]) -> tuple[str, int, list[str]]:
    """The outcome of a fault, how many calls failed, and what is wrong while error, scenario and its successor live."""
    scenario = kind()
    if endless := fault["result"] == "VK_TIMEOUT" and scenario.device is not None:
        scenario.device.wait_timeout = WAIT_TIMEOUT
    layer.plan(fault["function"], fault["first"], fault["times"], fault["result"])
    errors = (DmlvkError, MemoryError) if fault["function"] == registry.ALLOCATION.name else (DmlvkError,)
    name, error, problems = outcome(scenario, wanted, errors)
    fired = layer.fired
    layer.count()
    if endless and scenario.device is not None:
        scenario.device.wait_timeout = None
    after = scenario
    if fault["result"] == LOST and fired and fault["function"] not in NOT_THERE:
        if scenario.device is not None:
            problems += problems_of_lost(scenario)
        after = scenario.recovered()
    problems += problems_after(after, wanted)
    del error
    gc.collect()
    if (leaked := after.live_bytes() - wanted["live_bytes"]) > 0:
        problems.append(f"{leaked} bytes of buffers leak")
    return name, fired, problems


def problems_of_lost(scenario: Scenario) -> list[str]:
    try:
        scenario.on_lost_device()
    except DeviceLostError:
        return []
    except BaseException as error:
        return [f"on the lost device {type(error).__name__}: {error} at {place(error)}"]
    return ["the lost device works"]


def watch() -> None:
    """Notes what threads and finalisers raise from now on, and says where the process crashes."""
    faulthandler.enable()
    sys.unraisablehook = lambda given: unexpected.append(f"ignored {given.exc_type.__name__}: {given.exc_value}")
    threading.excepthook = lambda given: unexpected.append(f"in a thread {given.exc_type.__name__}: {given.exc_value}")


def main() -> None:
    watch()
    layer = Layer()
    gc.freeze()  # so that a collection looks at what a scenario made, not at every module
    for line in sys.stdin:
        request = json.loads(line)
        kind = SCENARIOS[request["scenario"]]
        answer = try_fault(layer, kind, request) if "function" in request else counted(layer, kind)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
