"""The ladder of a matrix product: the rates of its loop with more and more of what it does, up to the operator itself.

From the matrices in registers, which is what the device multiplies at most with this tile, each rung adds a part of the
product of ``dmlvk.kernels.peak.ladder``; the last is the operator Gemm, which also writes its output. What a part costs is
the rate that is lost from the rung before.

Where a driver brings tiles through shared memory itself, the top is no higher. Matrices of a whole workgroup
(``VK_NV_cooperative_matrix2``), in a kernel that only loads, multiplies and stores, reached 341 TFLOP/s of 4096 rows,
columns and terms and 350 of 8192, on an H100 (driver 580, 2026-11-26) with the best of some 40 tiles: 160 x 128, 64 deep,
128 invocations. 128 x 128 had 320; 256 invocations at most 297; more than 160 sums an invocation 50 to 310. Gemm has 335 and
347 there. On an H200 (2026-11-28), where Gemm has 325, they had 187 to 256 with words of the next tile asked for ahead, and
26 to 54 with its matrices loaded before the products of this one. Gemm with factors that are coherent or volatile, so that
loads might pass the first cache by, is as long a program and as fast.

Without shared memory it is higher. Where factors lie in memory as the matrices of a subgroup have them, an invocation
loads its elements as words of 16 bytes, and there are no barriers: 384 and 411 TFLOP/s in tiles of 128 x 128 of 2 x 2
subgroups, a step of 16 terms ahead, and 500 out of the first cache (the same device, 2026-11-27, a probe in raw Vulkan that
is not kept). Two steps ahead spill
(141), larger blocks wait (4 x 6 matrices: 314 at most, out of the first cache 536), and asking for the cache ahead takes
the loads' place (362 to 391). To lay out both factors is to read and write them once more, by the bandwidth 45 us at 4096
and 180 at 8192, so 340 and 384 would be left of it. Rows of the factors as they are, 8 at a time in 64 bytes, meet in
banks of that cache: 287 out of it.

On an H200 (driver 580, 2026-11-28, Gemm's kernel changed), both factors so reached 345 at 4096 in tiles of 64 x 256, and 337
to 342 in those of 128 x 128, however matrices followed each other; at 8192 355. One factor so, and the other through shared
memory as now, was slower: 337 in tiles of 64 x 256, whose subgroups share no columns, 192 to 275 in those of 128 x 256 and
128 x 128, where each barrier seems to wait for the matrices of the next step, too.

There (2026-11-30), at 4096, Gemm with a part of its loop left out, so that its numbers are wrong, reached 409 without loads
from memory, 385 without tiles written to shared memory and 380 without barriers, where it had 340 whole. Rounds of 32 terms
with two tiles in turn and one barrier reached 252 to 309; both need 61 KB of shared memory, and lay one over the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.operator import Signature, TensorSlot
from dmlvk.directml.ready_operator import ReadyOperator, initialize
from dmlvk.kernels.lowering import possible_rules
from dmlvk.kernels.peak.ladder import Rung, rungs
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.matmul import Gemm
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import Array, generator
from dmlvk_bench.problems.data import ordinary
from dmlvk_bench.timing import QUICK, THOROUGH, recorded, sample, time_executions

WHOLE: Final = "and the output: Gemm"
"""The rung that is the operator."""
_RULE: Final = "cooperative"
_FLOAT16: Final = TensorDataType.FLOAT16


def measure(device: Device, *, quick: bool = False) -> dict[str, float]:
    """TFLOP/s by rung, in their order; none where the device multiplies no matrices of float16 with float32 sums.

    Args:
        device: The device to measure.
        quick: A few executions of each, to see that everything works.
    """
    every = rungs(device.capabilities)
    if not every:
        return {}
    values = factors(every[-1].size)
    both = _written(device, values)
    records = {rung.name: prepared(device, rung, both, device.create_buffer(rung.output_bytes)) for rung in every}
    tensor = TensorDesc(_FLOAT16, values.shape[1:])
    desc = Gemm(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    if _RULE in possible_rules(desc, device.capabilities):
        operator = ReadyOperator(device, desc, _RULE)
        nbytes = values.nbytes // 2
        inputs = [BufferBinding(both, 0, nbytes), BufferBinding(both, nbytes, nbytes), None]
        outputs = [BufferBinding(device.create_buffer(nbytes))]
        records[WHOLE] = partial(operator.record, inputs=inputs, outputs=outputs)
    pace = QUICK if quick else THOROUGH
    operations = every[-1].operations
    return {name: operations / time_executions(device, record, pace).seconds * 1e-12 for name, record in records.items()}


def factors(size: int) -> Array:
    """The factors of a product, {2, size, size}: standard normal numbers, with which hardware takes its usual power."""
    return ordinary(generator("ladder"), (2, size, size), _FLOAT16)


def sums(device: Device, rung: Rung, values: Array) -> Array:
    """What a rung writes for these factors, float32: for each subgroup of each tile, one after the other, the sum of its
    matrices."""
    output = device.create_buffer(rung.output_bytes)
    sample(recorded(device, prepared(device, rung, _written(device, values), output)))
    return output.read().view(np.float32)


def prepared(device: Device, rung: Rung, both: Buffer, output: Buffer) -> Callable[[CommandList], None]:
    """Returns the function that records a rung in a command list; ``both`` holds the factors."""
    x, y = TensorDesc(_FLOAT16, (2, rung.size, rung.size)), TensorDesc(TensorDataType.FLOAT32, (rung.output_bytes // 4,))
    signature = Signature("ladder", (TensorSlot("X", x),), (TensorSlot("Y", y),), frozenset())
    compiled = device.compile_plan(signature, rung.plan)
    initialize(device, compiled)
    table = device.create_binding_table(compiled)
    table.bind_inputs([BufferBinding(both)])
    table.bind_outputs([BufferBinding(output)])
    recorder = device.create_command_recorder()
    return partial(recorder.record_dispatch, dispatchable=compiled, binding_table=table)


def _written(device: Device, values: Array) -> Buffer:
    buffer = device.create_buffer(values.nbytes)
    buffer.write(values)
    return buffer
