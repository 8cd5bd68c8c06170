"""Measures dmlvk on a device, and PyTorch's CUDA kernels beside it in the same process, on the same numbers.

    python -m bench.run [--device CHOICE] [--against torch] [--only WORD] [--rules] [--json FILE]

First the machine's own copy bandwidth and the launch times, then every problem of ``bench/problems/``: host time of 50
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
from bench.problems import all_problems
from bench.problems.model import Problem
from bench.table import missed
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

    def output(self, slot: int = 0) -> np.ndarray[Any, Any]:
        """The bytes of an output that the operator has."""
        buffer = self.outputs[slot]
        assert buffer is not None
        return buffer.read()


def _buffer(device: dmlvk.Device, slot: Slot) -> dmlvk.Buffer | None:
    return None if slot.tensor is None else device.create_buffer(slot.tensor.total_tensor_size_in_bytes)


def _bindings(buffers: list[dmlvk.Buffer | None]) -> list[BufferBinding | None]:
    return [None if buffer is None else BufferBinding(buffer) for buffer in buffers]


def copy_bandwidth(device: dmlvk.Device, count: int = 0) -> float:
    """Bytes read and written a second by an identity kernel over so many float32 numbers: 1 GiB (64 MiB on a CPU) without
    a count."""
    count = count or 1 << (24 if device.info.type == "cpu" else 28)
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
        kinds = {np.float32: torch.float32, np.float16: torch.float16}
        kinds |= {np.int64: torch.int64, np.uint32: torch.int32, np.uint8: torch.uint8}
        self.kinds = {np.dtype(own): kind for own, kind in kinds.items()}

    def inputs(self, problem: Problem) -> list[Any]:
        """A tensor for each input slot in use, of the slot's strides."""
        torch = self.torch
        torch.manual_seed(0)
        found = []
        for slot in problem.desc.input_slots():
            if slot.tensor is not None:
                kind = self.kinds[NUMPY_TYPES[slot.tensor.data_type]]
                steps = slot.tensor.effective_strides
                span = 1 + sum((size - 1) * step for size, step in zip(slot.tensor.sizes, steps, strict=True))
                sizes = slot.tensor.sizes if slot.tensor.strides is None else (span,)
                fill = problem.fill.get(slot.field.name)
                if fill is not None:
                    memory = fill(torch, sizes, kind)
                elif kind.is_floating_point:
                    memory = torch.randn(sizes, device="cuda", dtype=kind)
                else:
                    memory = torch.randint(0, 100, sizes, device="cuda", dtype=kind)
                found.append(torch.as_strided(memory, slot.tensor.sizes, steps))
        return found

    def memory(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The elements of a tensor's memory, in order."""
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        return np.asarray(tensor.as_strided((count,), (1,)).cpu().numpy())

    def from_memory(self, data: np.ndarray[Any, Any], slot: Slot) -> Any:
        """A tensor of a slot's type and strides from the bytes of its memory."""
        assert slot.tensor is not None
        kind = NUMPY_TYPES[slot.tensor.data_type]
        kind = np.dtype(np.int32) if kind == np.uint32 else kind  # as the inputs are: torch has little for unsigned words
        flat = self.torch.from_numpy(data[: data.size // kind.itemsize * kind.itemsize].view(kind)).cuda()
        return self.torch.as_strided(flat, slot.tensor.sizes, slot.tensor.effective_strides)

    def difference(self, actual: Any, expected: Any) -> float:
        """The largest difference of two tensors; infinite where only one of them is NaN, or infinite."""
        torch = self.torch
        same = (actual == expected) | (actual.isnan() & expected.isnan())
        apart = torch.where(same, 0.0, (actual - expected).abs())
        return float(torch.where(apart.isnan(), torch.inf, apart).max())

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second by a copy of 1 GiB."""
        source = self.torch.ones(1 << 28, device="cuda")
        target = self.torch.empty_like(source)
        return 2.0**31 / statistics.median(self.time(lambda: target.copy_(source)))

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


def measure(
    device: dmlvk.Device, problem: Problem, rival: Torch, copy_gb_per_s: float, *, all_rules: bool
) -> list[dict[str, Any]]:
    """One row for the chosen rule, and with ``all_rules`` one for each other that is possible."""
    torch = rival.torch
    inputs = rival.inputs(problem)
    rival_times = rival.time(lambda: problem.rival(torch, *inputs))
    expected, scale, rival_difference = None, 1.0, 0.0
    if problem.check is None:
        wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
        expected = problem.rival(torch, *wide).float()
        wide.clear()
        scale = float(expected.abs().nan_to_num().max())
        rival_difference = rival.difference(problem.rival(torch, *inputs).float(), expected) / scale
    arrays = [rival.memory(tensor) for tensor in inputs]
    inputs.clear()
    torch.cuda.empty_cache()
    # The same kernel moves as many bytes as the problem: what starting and draining a dispatch costs is in both.
    small_copy = copy_bandwidth(device, problem.bytes_moved // 8) * 1e-9 if problem.bytes_moved < 2**30 else copy_gb_per_s
    chosen = next(rule.name for rule, holds in explain(problem.desc, device.capabilities) if holds)
    rows = []
    for rule in possible_rules(problem.desc, device.capabilities) if all_rules else [chosen]:
        measured = Measured(device, problem, arrays, rule)
        times = measured.run()
        slots = problem.desc.output_slots()
        if problem.check is None:
            difference = rival.difference(rival.from_memory(measured.output(), slots[0]).float(), expected) / scale
        else:
            present = [(at, slot) for at, slot in enumerate(slots) if slot.tensor is not None]
            outputs = [rival.from_memory(measured.output(at), slot) for at, slot in present]
            difference = problem.check(torch, arrays, outputs)
        ours, theirs = statistics.median(times), statistics.median(rival_times)
        rows.append(
            {
                "problem": problem.name,
                "rule": rule,
                "chosen": rule == chosen,
                "us": ours * 1e6,
                "spread": (max(times) - min(times)) / ours,
                "gb_per_s": problem.bytes_moved / ours * 1e-9,
                "copy_share": problem.bytes_moved / ours * 1e-9 / copy_gb_per_s,
                "copy_target": problem.copy_target,
                "same_size_copy_share": problem.bytes_moved / ours * 1e-9 / small_copy,
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
    parser.add_argument("--only", default="", help="only problems of this family, or whose name contains this")
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
        results["rival_copy_gb_per_s"] = rival.copy_bandwidth() * 1e-9
        copy = max(results["copy_gb_per_s"], results["rival_copy_gb_per_s"])
        print(f"torch's copy {results['rival_copy_gb_per_s']:.0f} GB/s; shares are of the better one")
        for problem in all_problems(options.only):
            for row in measure(device, problem, rival, copy, all_rules=options.rules):
                results["problems"].append(row)
                print(
                    f"{row['problem']:56} {row['rule']:>13}{'*' if row['chosen'] else ' '} {row['us']:8.1f} us "
                    f"{row['gb_per_s']:5.0f} GB/s {row['copy_share']:.3f} (target {row['copy_target']:.2f}, "
                    f"{row['same_size_copy_share']:.3f} of as many bytes), "
                    f"torch {row['rival_gb_per_s']:5.0f} x{row['ratio']:.2f} (target {row['target']:.2f}), "
                    f"off {row['difference']:.0e} ({row['rival_difference']:.0e}){'' if row['agrees'] else ' DIFFERS'}",
                    flush=True,
                )
        below = [row for row in results["problems"] if row["chosen"] and missed(row)]
        print(f"{sum(row['chosen'] for row in results['problems'])} problems, {len(below)} below their target")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(not all(row["agrees"] for row in results["problems"]))


def _commit() -> str:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
