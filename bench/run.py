"""Measures dmlvk on a device, and PyTorch's CUDA kernels beside it in the same process, on the same numbers.

    python -m bench.run [--device CHOICE] [--against torch] [--only WORD] [--rules] [--json FILE]

First the machine's own copy bandwidth and the launch times, then every problem of ``bench/problems.py``: host time of 50
executions in one submission, median after a warm-up of at least 0.2 s, the outputs compared with the rival's in float32
before a time is believed. With ``--rules`` every rule that could run a problem is timed, not only the chosen one.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dmlvk
from bench.problems import Problem, problems
from dmlvk.cases.model import NUMPY_TYPES
from dmlvk.execution.binding import BufferBinding
from dmlvk.execution.direct import ReadyOperator
from dmlvk.kernels.lowering import explain, possible_rules
from dmlvk.schema import Slot

REPEATS = 50
"""Executions in one submission: its 15 microseconds are then below 0.2 % of what is measured."""
WARM_UP_SECONDS = 0.2


class Measured:
    """A compiled problem with its buffers, recorded ``REPEATS`` times into one list.

    The list is timed as a whole: timestamps between dispatches would keep them from following each other closely.
    """

    def __init__(self, device: dmlvk.Device, problem: Problem, inputs: list[np.ndarray[Any, Any]], rule: str) -> None:
        self.operator = ReadyOperator(device, problem.desc, rule)
        self.inputs = [_buffer(device, slot) for slot in problem.desc.input_slots()]
        for buffer, values in zip((b for b in self.inputs if b is not None), inputs, strict=True):
            buffer.write(values)
        self.outputs = [_buffer(device, slot) for slot in problem.desc.output_slots()]
        self.list = device.create_command_list()
        for _ in range(REPEATS):
            self.operator.record(self.list, _bindings(self.inputs), _bindings(self.outputs))

    def run(self) -> list[float]:
        """Seconds of a repeat, from several submissions after the warm-up."""
        end = time.perf_counter() + WARM_UP_SECONDS
        times: list[float] = []
        while time.perf_counter() < end or len(times) < 9:
            started = time.perf_counter()
            self.list.submit()
            self.list.wait()
            times.append((time.perf_counter() - started) / REPEATS)
        return times[len(times) // 2 :]

    def output(self, problem: Problem) -> np.ndarray[Any, Any]:
        """The first output as an array."""
        slot = problem.desc.output_slots()[0]
        assert slot.tensor is not None and self.outputs[0] is not None
        return self.outputs[0].read().view(NUMPY_TYPES[slot.tensor.data_type]).reshape(slot.tensor.sizes)


def _buffer(device: dmlvk.Device, slot: Slot) -> dmlvk.Buffer | None:
    return None if slot.tensor is None else device.create_buffer(slot.tensor.total_tensor_size_in_bytes)


def _bindings(buffers: list[dmlvk.Buffer | None]) -> list[BufferBinding | None]:
    return [None if buffer is None else BufferBinding(buffer) for buffer in buffers]


def copy_bandwidth(device: dmlvk.Device) -> float:
    """Bytes read and written a second by an identity kernel over 1 GiB (256 MiB on a CPU)."""
    count = 1 << (24 if device.info.type == "cpu" else 28)
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (count,))
    desc = dmlvk.ElementWiseIdentity(input_tensor=tensor, output_tensor=tensor)
    problem = Problem("copy", desc, lambda *_: None, 1, 8 * count)
    measured = Measured(device, problem, [np.ones(count, np.float32)], "")
    return problem.bytes_moved / statistics.median(measured.run())


def launch_times(device: dmlvk.Device) -> dict[str, float]:
    """Microseconds, host time from submit to seen done, of replayed lists of tiny dispatches."""
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (64,))
    desc = dmlvk.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    operator = ReadyOperator(device, desc)
    found = {}
    for kind in ("dependent", "independent"):
        for count in (1, 10, 100, 1000):
            commands = device.create_command_list()
            shared = device.create_buffer(256)
            shared.write(np.zeros(64, np.float32))
            keep = []
            for _ in range(count):
                target = shared if kind == "dependent" else device.create_buffer(256)
                target.write(np.zeros(64, np.float32))
                keep.append(target)
                binding = BufferBinding(target)
                operator.record(commands, [binding, binding], [binding])
            times = []
            end = time.perf_counter() + WARM_UP_SECONDS
            while time.perf_counter() < end or len(times) < 50:
                started = time.perf_counter()
                commands.submit()
                commands.wait()
                times.append(time.perf_counter() - started)
            found[f"{count} {kind}"] = statistics.median(times[len(times) // 2 :]) * 1e6
    return found


class Torch:
    """PyTorch on CUDA as the rival."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.kinds = {np.float32: torch.float32, np.float16: torch.float16, np.uint32: torch.int32}

    def inputs(self, problem: Problem) -> list[Any]:
        self.torch.manual_seed(0)
        found = []
        for slot in problem.desc.input_slots():
            if slot.tensor is not None:
                kind = self.kinds[NUMPY_TYPES[slot.tensor.data_type].type]
                fill = problem.fill.get(slot.field.name)
                if fill is not None:
                    found.append(fill(self.torch, slot.tensor.sizes, kind))
                else:
                    found.append(self.torch.randn(slot.tensor.sizes, device="cuda", dtype=kind))
        return found

    def time(self, run: Callable[[], Any]) -> list[float]:
        torch = self.torch
        end = time.perf_counter() + WARM_UP_SECONDS
        while time.perf_counter() < end:
            run()
            torch.cuda.synchronize()
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
        for start, stop in events:
            start.record()
            run()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) * 1e-3 for start, stop in events]


def measure(device: dmlvk.Device, problem: Problem, rival: Torch, *, all_rules: bool) -> list[dict[str, Any]]:
    """One row for the chosen rule, and with ``all_rules`` one for each other that is possible."""
    inputs = rival.inputs(problem)
    rival_times = rival.time(lambda: problem.rival(rival.torch, *inputs))
    wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
    reference = problem.rival(rival.torch, *wide)
    scale = float(reference.abs().nan_to_num().max())
    rival_difference = float((problem.rival(rival.torch, *inputs).float() - reference).abs().nan_to_num().max()) / scale
    expected = reference.cpu().numpy()
    del wide, reference
    arrays = [np.ascontiguousarray(tensor.cpu().numpy()) for tensor in inputs]
    inputs.clear()
    rival.torch.cuda.empty_cache()
    chosen = next(rule.name for rule, holds in explain(problem.desc, device.capabilities) if holds)
    rows = []
    for rule in possible_rules(problem.desc, device.capabilities) if all_rules else [chosen]:
        measured = Measured(device, problem, arrays, rule)
        times = measured.run()
        actual = measured.output(problem).astype(np.float32)
        difference = _difference(actual, expected) / scale
        ours, theirs = statistics.median(times), statistics.median(rival_times)
        rows.append(
            {
                "problem": problem.name,
                "rule": rule,
                "chosen": rule == chosen,
                "us": ours * 1e6,
                "spread": (max(times) - min(times)) / ours,
                "gb_per_s": problem.bytes_moved / ours * 1e-9,
                "rival_us": theirs * 1e6,
                "rival_gb_per_s": problem.bytes_moved / theirs * 1e-9,
                "ratio": theirs / ours,
                "target": problem.target,
                "difference": difference,
                "rival_difference": rival_difference,
                "agrees": bool(difference <= problem.tolerance),
            }
        )
        del measured
    return rows


def main() -> int:
    """Measures and prints; exit status 1 when an output differs from the rival's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--against", choices=["torch"], help="the rival to measure the problems beside")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    parser.add_argument("--rules", action="store_true", help="time every possible rule")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit", help="what was built, for the results; default: this checkout's HEAD")
    options = parser.parse_args()
    device = dmlvk.Device(options.device)
    results: dict[str, Any] = {
        "device": device.info.name,
        "driver": device.info.driver,
        "uuid": device.info.uuid,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or _commit(),
        "dmlvk": dmlvk.__version__,
        "python": platform.python_version(),
        "copy_gb_per_s": copy_bandwidth(device) * 1e-9,
        "launch_us": launch_times(device),
        "problems": [],
    }
    print(f"{device.info.name}, {device.info.driver}\ncopy {results['copy_gb_per_s']:.0f} GB/s")
    for name, microseconds in results["launch_us"].items():
        print(f"{name:>16} dispatches {microseconds:9.1f} us, {microseconds / int(name.split()[0]):7.2f} us each")
    if options.against:
        rival = Torch()
        for problem in problems():
            if options.only in problem.name:
                for row in measure(device, problem, rival, all_rules=options.rules):
                    results["problems"].append(row)
                    print(
                        f"{row['problem']:56} {row['rule']:>20}{'*' if row['chosen'] else ' '} {row['us']:9.1f} us "
                        f"{row['gb_per_s']:6.0f} GB/s, torch {row['rival_us']:9.1f} us {row['rival_gb_per_s']:6.0f}, "
                        f"x{row['ratio']:.2f} (target {row['target']:.2f}), off by {row['difference']:.1e} "
                        f"(torch {row['rival_difference']:.1e}){'' if row['agrees'] else ' DIFFERS'}",
                        flush=True,
                    )
        missed = [row for row in results["problems"] if row["chosen"] and row["ratio"] < row["target"]]
        print(f"{sum(row['chosen'] for row in results['problems'])} problems, {len(missed)} below their target")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(not all(row["agrees"] for row in results["problems"]))


def _difference(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference of two arrays; infinite where only one of them is NaN."""
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(actual - expected))
    return float(np.where(np.isnan(apart), np.inf, apart).max())


def _commit() -> str:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
