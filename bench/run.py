"""Measures dmlvk on a device, and a rival beside it in the same process, on the same numbers.

    python -m bench.run [--device CHOICE] [--against torch|webgpu | --sweep] [--only WORD] [--json FILE]

First the machine's own copy bandwidth and the launch times. Then, beside PyTorch's CUDA kernels, every problem of
``bench/problems/``: host time of up to 50 executions in one submission, median after a warm-up of at least 0.2 s, the
outputs compared with the rival's in float32 before a time is believed. Beside ONNX Runtime's WebGPU provider, the models
of ``bench/webgpu.py``.

With ``--sweep`` no rival: every rule that could run a problem is timed, and at the end stands where the table of rules
chooses one that is more than 5 % slower than the best.
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
from bench.table import arithmetic, geometric_means, missed
from dmlvk.cases.model import NUMPY_TYPES
from dmlvk.execution.binding import BufferBinding
from dmlvk.execution.direct import ReadyOperator
from dmlvk.kernels.lowering import explain, possible_rules
from dmlvk.schema import Slot

REPEATS = 50
"""Executions in one submission: its 15 microseconds are then below 0.2 % of what is measured."""
SUBMISSION_SECONDS = 0.1
"""What takes longer is executed less often in one submission."""
WARM_UP_SECONDS = 0.2
SLACK = 1.05
"""The chosen rule may take so many times as long as the best one before a sweep reports it."""
HOPELESS = 4
"""A rule whose single execution takes so many times as long as the best one's is not timed further in a sweep."""


class Measured:
    """A compiled problem with its buffers, recorded up to ``REPEATS`` times into one list.

    The list is timed as a whole: timestamps between dispatches would keep them from following each other closely.

    Attributes:
        single: Seconds of one execution, submission included.
        repeats: Executions in the list.
    """

    def __init__(self, device: dmlvk.Device, problem: Problem, inputs: list[np.ndarray[Any, Any]], rule: str) -> None:
        self.inputs = [_buffer(device, slot) for slot in problem.desc.input_slots()]
        for buffer, values in zip((b for b in self.inputs if b is not None), inputs, strict=True):
            buffer.write(values)
        self.operator = ReadyOperator(device, problem.desc, rule, _bindings(self.inputs))
        self.outputs = [_buffer(device, slot) for slot in problem.desc.output_slots()]
        once = self._recorded(device, 1)
        _seconds(once)  # the driver may compile at the first execution
        self.single = _seconds(once)
        self.repeats = max(1, min(REPEATS, int(SUBMISSION_SECONDS / self.single)))
        self.list = self._recorded(device, self.repeats)

    def _recorded(self, device: dmlvk.Device, repeats: int) -> dmlvk.CommandList:
        commands = device.create_command_list()
        for _ in range(repeats):
            self.operator.record(commands, _bindings(self.inputs), _bindings(self.outputs))
        return commands

    def run(self) -> list[float]:
        """Seconds of a repeat, from several submissions after the warm-up."""
        end = time.perf_counter() + WARM_UP_SECONDS
        times: list[float] = []
        while time.perf_counter() < end or len(times) < 9:
            times.append(_seconds(self.list) / self.repeats)
        return times[len(times) // 2 :]

    def output(self, slot: int = 0) -> np.ndarray[Any, Any]:
        """The bytes of an output that the operator has."""
        buffer = self.outputs[slot]
        assert buffer is not None
        return buffer.read()


def _seconds(commands: dmlvk.CommandList) -> float:
    """Host time from submit to seen done."""
    started = time.perf_counter()
    commands.submit()
    commands.wait()
    return time.perf_counter() - started


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
            times: list[float] = []
            end = time.perf_counter() + WARM_UP_SECONDS
            while time.perf_counter() < end or len(times) < 50:
                times.append(_seconds(commands))
            found[f"{count} {kind}"] = statistics.median(times[len(times) // 2 :]) * 1e6
    return found


class Torch:
    """PyTorch on CUDA as the rival; on a machine without, it fills inputs and is no rival."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        # float32 is float32, as it is here; and cuDNN takes the algorithm that it measures to be the fastest.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        kinds: dict[Any, Any] = {np.float32: torch.float32, np.float16: torch.float16}
        kinds |= {np.int64: torch.int64, np.int32: torch.int32, np.uint32: torch.int32}
        kinds |= {np.int8: torch.int8, np.uint8: torch.uint8}
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
                with torch.device(self.device):
                    if fill is not None:
                        memory = fill(torch, sizes, kind)
                    elif kind.is_floating_point:
                        memory = torch.randn(sizes, dtype=kind)
                    else:
                        memory = torch.randint(0, 100, sizes, dtype=kind)
                found.append(torch.as_strided(memory, slot.tensor.sizes, steps))
        return found

    def prepared(self, problem: Problem, inputs: list[Any]) -> list[Any]:
        """What the problem's rival is given for these inputs."""
        return inputs if problem.prepare is None else list(problem.prepare(self.torch, *inputs))

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


def measure(device: dmlvk.Device, problem: Problem, rival: Torch, copy_gb_per_s: float) -> dict[str, Any]:
    """A problem's row of the results."""
    torch = rival.torch
    inputs = rival.inputs(problem)
    given = rival.prepared(problem, inputs)
    rival_times = rival.time(lambda: problem.rival(torch, *given))
    expected, scale, rival_difference = None, 1.0, 0.0
    if problem.check is None:
        wide = rival.prepared(problem, [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs])
        expected = problem.rival(torch, *wide).float()
        del wide
        scale = float(expected.abs().nan_to_num().max())
        rival_difference = rival.difference(problem.rival(torch, *given).float(), expected) / scale
    arrays = [rival.memory(tensor) for tensor in inputs]
    inputs.clear()
    given.clear()
    torch.cuda.empty_cache()
    # The same kernel moves as many bytes as the problem: what starting and draining a dispatch costs is in both.
    small_copy = copy_bandwidth(device, problem.bytes_moved // 8) * 1e-9 if problem.bytes_moved < 2**30 else copy_gb_per_s
    measured = Measured(device, problem, arrays, "")
    times = measured.run()
    slots = problem.desc.output_slots()
    if problem.check is None:
        difference = rival.difference(rival.from_memory(measured.output(), slots[0]).float(), expected) / scale
    else:
        present = [(at, slot) for at, slot in enumerate(slots) if slot.tensor is not None]
        outputs = [rival.from_memory(measured.output(at), slot) for at, slot in present]
        difference = problem.check(torch, arrays, outputs)
    ours, theirs = statistics.median(times), statistics.median(rival_times)
    return {
        "problem": problem.name,
        "rule": _chosen(device, problem),
        "chosen": True,
        "us": ours * 1e6,
        "spread": (max(times) - min(times)) / ours,
        "gb_per_s": problem.bytes_moved / ours * 1e-9,
        "copy_share": problem.bytes_moved / ours * 1e-9 / copy_gb_per_s,
        "copy_target": problem.copy_target,
        "same_size_copy_share": problem.bytes_moved / ours * 1e-9 / small_copy,
        "operations": problem.operations,
        "tflop_per_s": problem.operations / ours * 1e-12,
        "rival_us": theirs * 1e6,
        "rival_gb_per_s": problem.bytes_moved / theirs * 1e-9,
        "rival_tflop_per_s": problem.operations / theirs * 1e-12,
        "ratio": theirs / ours,
        "target": problem.target,
        "group": None if problem.group is None else problem.group.name,
        "group_target": 0.0 if problem.group is None else problem.group.target,
        "difference": difference,
        "rival_difference": rival_difference,
        "agrees": bool(difference <= problem.tolerance),
    }


def sweep(device: dmlvk.Device, problem: Problem, arrays: list[np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    """A row for each rule that could run a problem, the chosen one first.

    A rule that is far from the best after a single execution keeps the time of that.

    Args:
        arrays: The inputs' memory.
    """
    chosen = _chosen(device, problem)
    rules = possible_rules(problem.desc, device.capabilities)
    rows: list[dict[str, Any]] = []
    for rule in sorted(rules, key=lambda rule: rule != chosen):
        measured = Measured(device, problem, arrays, rule)
        best = min((row["us"] for row in rows), default=measured.single * 1e6)
        hopeless = measured.single * 1e6 > HOPELESS * best + 100  # a single one's submission takes some microseconds, too
        seconds = measured.single if hopeless else statistics.median(measured.run())
        rows.append(
            {
                "problem": problem.name,
                "rule": rule,
                "chosen": rule == chosen,
                "us": seconds * 1e6,
                "gb_per_s": problem.bytes_moved / seconds * 1e-9,
                "tflop_per_s": problem.operations / seconds * 1e-12,
            }
        )
        del measured
    return rows


def slower_than_possible(rows: list[dict[str, Any]]) -> list[str]:
    """What to say of each problem of a sweep whose chosen rule is more than 5 % slower than the best."""
    lines = []
    for chosen in (row for row in rows if row["chosen"]):
        best = min((row for row in rows if row["problem"] == chosen["problem"]), key=lambda row: float(row["us"]))
        if chosen["us"] > SLACK * best["us"]:
            lines.append(
                f"{chosen['problem']}: {chosen['rule']} is chosen and takes {chosen['us']:.1f} us, "
                f"{chosen['us'] / best['us']:.2f} times the {best['us']:.1f} us of {best['rule']}"
            )
    return lines


def _chosen(device: dmlvk.Device, problem: Problem) -> str:
    """The name of the rule that runs a problem."""
    return next(rule.name for rule, holds in explain(problem.desc, device.capabilities) if holds)


def main() -> int:
    """Measures and prints; exit status 1 when an output differs from the rival's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--against", choices=["torch", "webgpu"], help="the rival to measure beside")
    what.add_argument("--sweep", action="store_true", help="time every rule that could run a problem")
    parser.add_argument("--only", default="", help="only problems of this family, or whose name contains this")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit", help="what was built, for the results; default: this checkout's HEAD")
    options = parser.parse_args()
    device = dmlvk.Device(options.device)
    results: dict[str, Any] = {
        "device": device.info.name,
        "driver": device.info.driver,
        "uuid": device.info.uuid,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": options.commit or built_commit(),
        "dmlvk": dmlvk.__version__,
        "python": platform.python_version(),
        "copy_gb_per_s": copy_bandwidth(device) * 1e-9,
        "launch_us": launch_times(device),
        "problems": [],
    }
    print(f"{device.info.name}, {device.info.driver}\ncopy {results['copy_gb_per_s']:.0f} GB/s")
    for name, microseconds in results["launch_us"].items():
        print(f"{name:>16} dispatches {microseconds:9.1f} us, {microseconds / int(name.split()[0]):7.2f} us each")
    if options.against == "torch":
        _beside_torch(device, options.only, results)
    elif options.against == "webgpu":
        from bench import webgpu

        results["onnxruntime"] = webgpu.VERSION
        results["models"] = webgpu.measure_all(device, options.only)
    elif options.sweep:
        _sweep(device, options.only, results)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(not all(row.get("agrees", True) for row in results["problems"] + results.get("models", [])))


def _beside_torch(device: dmlvk.Device, only: str, results: dict[str, Any]) -> None:
    """Measures the problems beside PyTorch, prints them and adds them to the results."""
    rival = Torch()
    results["rival_copy_gb_per_s"] = rival.copy_bandwidth() * 1e-9
    copy = max(results["copy_gb_per_s"], results["rival_copy_gb_per_s"])
    print(f"torch's copy {results['rival_copy_gb_per_s']:.0f} GB/s; shares are of the better one")
    for problem in all_problems(only):
        row = measure(device, problem, rival, copy)
        results["problems"].append(row)
        print(_line(row), flush=True)
    for name, (count, mean, target) in geometric_means(results["problems"]).items():
        print(f"geometric mean of {count} problems of {name}: x{mean:.2f} (target {target:.2f})")
    print(f"{len(results['problems'])} problems, {sum(map(missed, results['problems']))} below their target")


def _line(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    if arithmetic(row):
        speed = f"{row['tflop_per_s']:6.2f} TFLOP/s, {row['gb_per_s']:5.0f} GB/s, torch {row['rival_tflop_per_s']:6.2f}"
    else:
        speed = (
            f"{row['gb_per_s']:5.0f} GB/s {row['copy_share']:.3f} (target {row['copy_target']:.2f}, "
            f"{row['same_size_copy_share']:.3f} of as many bytes), torch {row['rival_gb_per_s']:5.0f}"
        )
    goal = f" (target {row['target']:.2f})" if row["target"] else ""
    return (
        f"{row['problem']:56} {row['rule']:>13} {row['us']:8.1f} us {speed} x{row['ratio']:.2f}{goal}, "
        f"off {row['difference']:.0e} ({row['rival_difference']:.0e}){'' if row['agrees'] else ' DIFFERS'}"
    )


def _sweep(device: dmlvk.Device, only: str, results: dict[str, Any]) -> None:
    """Times every rule of the problems, prints them and adds them to the results."""
    rival = Torch()
    for problem in all_problems(only):
        rows = sweep(device, problem, [rival.memory(tensor) for tensor in rival.inputs(problem)])
        results["problems"] += rows
        for row in rows:
            mark = "*" if row["chosen"] else " "
            speed = f"{row['tflop_per_s']:7.2f} TFLOP/s" if problem.operations else f"{row['gb_per_s']:6.0f} GB/s"
            print(f"{row['problem']:56} {row['rule']:>20}{mark} {row['us']:9.1f} us {speed}", flush=True)
    lines = slower_than_possible(results["problems"])
    print("\n".join([*lines, f"{len(lines)} choices are more than {SLACK - 1:.0%} slower than the best rule"]))


def built_commit() -> str:
    """This checkout's HEAD."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
