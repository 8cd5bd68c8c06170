"""Run a small model through ONNX Runtime with dmlvk's provider for long, and see whether anything is left behind.

    DMLVK_VALIDATION=1 python tools/soak_provider.py [--runs N] [--sessions N]

Four threads share a session whose sizes change, on the host's arrays and on arrays that stay on the device; then sessions
are opened, run and closed. It prints what the process and the device take on the way. Exit status 1 where a result is wrong,
where the device's memory grows, where the process grows by more than 200 bytes a run, or where the validation layer, if it
is on, says anything. The layer itself takes more with each submit: with it the process may grow.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import dmlvk
import dmlvk.ort
from dmlvk.runtime.device import validation_messages

SIZE = 32
THREADS = 4
MOST_A_RUN = 200
"""Bytes that the process may grow by with each run."""
KEPT = 1 << 14
"""Bytes of the device that freed tensors of several threads may be kept in: how many there are at a time is chance."""


def model() -> bytes:
    """Two products with a part of ONNX Runtime's between them, so that values cross its border both ways."""
    weight = np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32) / SIZE
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["text"], to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "soak",
        [value("x", TensorProto.FLOAT, ["n", SIZE])],
        [value("y", TensorProto.FLOAT, ["n", SIZE])],
        [numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def opened(source: bytes, device: object) -> onnxruntime.InferenceSession:
    """A session with the provider."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_provider_for_devices([device], {})
    return onnxruntime.InferenceSession(source, options)


def resident_bytes() -> int:
    """What the process has in memory; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0


def live_bytes() -> dict[str, int]:
    """The device's memory, by purpose."""
    gc.collect()
    memory = dmlvk.default_device().memory()
    return {key: memory[key] for key in ("live", "weights", "temporary", "parameters")}


def run_for_long(source: bytes, device: object, runs: int) -> list[str]:
    """The problems of so many runs by several threads."""
    session = opened(source, device)
    weight = numpy_helper.to_array(onnx.ModelProto.FromString(source).graph.initializer[0])
    place = dmlvk.ort.memory_of(device)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((rows, SIZE), np.float32) for rows in (1, 2, 3)]
    wanted = [x @ weight @ weight for x in inputs]

    def work(count: int) -> int:
        wrong = 0
        binding = session.io_binding()
        for number in range(count):
            x, right = inputs[number % 3], wanted[number % 3]
            if number % 2:
                (found,) = session.run(None, {"x": x})
            else:
                binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x, *place))
                dmlvk.ort.bind_output(binding, "y", device)
                session.run_with_iobinding(binding)
                found = binding.get_outputs()[0].numpy()
            wrong += not np.allclose(found, right, rtol=1e-3, atol=1e-4)
        return wrong

    problems = []
    share = runs // 10 // THREADS
    with ThreadPoolExecutor(THREADS) as pool:
        sum(pool.map(work, [share] * THREADS))  # what is kept for good is there then
        first = resident_bytes(), live_bytes()
        for tenth in range(1, 10):
            if wrong := sum(pool.map(work, [share] * THREADS)):
                problems.append(f"{wrong} wrong results")
            print(f"{(tenth + 1) * runs // 10} runs: {resident_bytes() / 1e6:.1f} MB, device {live_bytes()}", flush=True)
    grown = (resident_bytes() - first[0]) / (9 * share * THREADS)
    print(f"the process grew by {grown:.0f} bytes a run")
    if grown > MOST_A_RUN and os.environ.get("DMLVK_VALIDATION") != "1":
        problems.append(f"the process grew by {grown:.0f} bytes a run")
    last = live_bytes()
    if any(last[key] > first[1][key] + (KEPT if key == "live" else 0) for key in last):
        problems.append(f"the device's memory went from {first[1]} to {last}")
    return problems


def open_and_close(source: bytes, device: object, sessions: int) -> list[str]:
    """The problems of so many sessions that are opened, run and closed."""
    x = np.ones((2, SIZE), np.float32)
    taken = []
    for number in range(sessions):
        opened(source, device).run(None, {"x": x})
        taken.append((resident_bytes(), live_bytes()))
        if number % (sessions // 10) == 0 or number == sessions - 1:
            print(f"session {number + 1}: {taken[-1][0] / 1e6:.1f} MB, device {taken[-1][1]}", flush=True)
    settled = sessions // 10
    return [] if taken[settled][1] == taken[-1][1] else ["sessions leave memory of the device behind"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=200)
    arguments = parser.parse_args()
    dmlvk.ort.register()
    device = dmlvk.ort.get_devices()[0]
    print(f"{device.ep_metadata['device_name']}, ONNX Runtime {onnxruntime.__version__}")
    source = model()
    problems = run_for_long(source, device, arguments.runs) + open_and_close(source, device, arguments.sessions)
    said = validation_messages()
    problems += [f"the validation layer: {message}" for message in said[:5]]
    print("\n".join(problems) if problems else "nothing is left behind")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
