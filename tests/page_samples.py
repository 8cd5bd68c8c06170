"""Results, cards and reports that were not measured, with everything that a page may have to show; and a reader of pages."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import tempfile
from html.parser import HTMLParser
from typing import Any

from dmlvk.engine.profile import KernelTime, StepReport
from dmlvk.engine.trace import Label
from dmlvk.onnx.report import SessionReport
from dmlvk.verify.card import Card, Entry, Failure
from dmlvk.verify.machine import Machine
from dmlvk_bench.results import Ceilings, ProblemRow, Results, RivalTime

MACHINE = Machine(
    device='A <b>card</b> & "more" with a rather long name, (LLVM 15.0.6, 256 bits)',
    uuid="12e686ea-9b94-fee6-551e-001dc9f8b03e",
    driver="A driver 1.2.3",
    type="DISCRETE_GPU",
    api_version="1.3.250",
    mask="float16",
    system="Linux x86_64, 2 processors",
    python="3.11.7",
    dmlvk="0.1.0",
    commit="abc1234",
    date="2026-11-22T11:37:58+00:00",
)
_VOID = {"meta", "link", "input", "br", "hr", "img"}

NETWORK = "ResNet-50 float32 batch 1"
CEILINGS = Ceilings(
    copy_gb_per_s=4000.0,
    float32_tflop_per_s=50.0,
    float16_tflop_per_s=60.0,
    int8_top_per_s=61.0,
    matrix_float16_tflop_per_s=600.0,
    upload_gb_per_s=20.0,
)


def row(name: str, us: float, ratio: float = 2.0, **fields: Any) -> ProblemRow:
    """A problem's row: 1 GB that moves, and PyTorch beside it."""
    defaults: dict[str, Any] = {
        "suite": "ops",
        "family": "pointwise",
        "operator": "ElementWiseAdd",
        "data_type": "FLOAT32",
        "rule": "groups",
        "host_us": us + 2,
        "spread": 0.01,
        "bytes_moved": 10**9,
        "operations": 0,
        "limit": "copy_gb_per_s",
        "share": 250 / us if us else 0.0,
        "same_size_copy_share": 0.9,
        "target": 1.0,
        "copy_target": 0.9,
        "group": "",
        "group_target": 0.0,
        "checked": "torch",
        "difference": 0.0,
        "agrees": True,
        "rivals": {"torch": RivalTime(us * ratio, 0.02, ratio, 0.0, True)} if us else {},
    }
    return ProblemRow(problem=name, us=us, **{**defaults, **fields})


def results() -> Results:
    """Results with problems near and below their targets, wrong ones, and models."""
    product = {"suite": "matmul", "family": "matmul", "operator": "Gemm", "limit": "float32_tflop_per_s", "copy_target": 0.0}
    wrong_rival = {"torch": RivalTime(300.0, 0.0, 1.2, 0.5, False), "ncnn": RivalTime(400.0, 0.0, 1.6, 0.0, True)}
    rows = [
        row("fast FLOAT32 1x2", 255.0),
        row("far from a copy <i>&", 1000.0),
        row("behind its rival", 260.0, 0.5, family="normalization_gradient"),
        row("its rival is wrong", 250.0, rivals=wrong_rival),
        row("ours is wrong", 0.0, agrees=False, difference=0.25, rivals={}),
        row("GEMM 4096", 4000.0, 1.5, operations=137_438_953_472, bytes_moved=3 * 4 * 4096**2, **product, group="products"),
        row(
            "GEMM 64",
            3.0,
            0.8,
            operations=2 * 64**3,
            bytes_moved=3 * 4 * 64**2,
            **product,
            group="products",
            group_target=1.2,
        ),
        row("convolution", 90.0, suite="conv", family="convolution", operations=10**9, bytes_moved=10**7, copy_target=0.0),
    ]
    figures = {"first_s": 1.0, "spread": 0.01, "runs": 20}
    torch = {"PyTorch graph NCHW": {**figures, "ms": 2.5, "difference": 1e-6, "agrees": True}}
    webgpu = {"WebGPU": {**figures, "ms": 9.0, "difference": 0.5, "agrees": False}, "ncnn": {"error": "no <such> layer"}}
    models = [
        {
            "model": NETWORK,
            "random_weights": True,
            "target_ms": 2.2,
            **figures,
            "ms": 1.3,
            "gpu_ms": 1.2,
            "dispatches": 98,
        }
        | {"rivals": torch | webgpu},
        {
            "model": "slow.onnx",
            "random_weights": False,
            "target_ms": 1.0,
            **figures,
            "ms": 3.0,
            "gpu_ms": 1.2,
            "dispatches": 9,
        }
        | {"rivals": torch},
        {"model": "broken.onnx", "random_weights": False, "target_ms": None, "error": "node 'a' cannot run", "rivals": {}},
    ]
    return Results(
        MACHINE,
        "full",
        rivals={"torch": "2.11 on CUDA", "ncnn": "1.0"},
        missing={"onnxruntime": "it is not installed"},
        ceilings=CEILINGS,
        launches={"1 dependent": 20.0, "100 dependent": 300.0, "1 independent": 20.0, "torch graph 100 dependent": 140.0},
        problems=rows,
        models=models,
        starts=[{"total": 2.0, "run": 0.1}, {"total": 1.0, "run": 0.1}],
        skipped={"needs <int64>": "no int64"},
        failures={"ncnn": {"convolution": "it gave up"}},
        complete=False,
    )


def entry(operator: str, data_type: str, max_ulp: float, **fields: Any) -> Entry:
    """An operator's entry."""
    defaults: dict[str, Any] = {
        "family": "activation",
        "exact": False,
        "typical_ulp": max_ulp / 4,
        "high_ulp": max_ulp / 2,
        "bound_ulp": 8.0,
        "same_bits": True,
        "passed": True,
        "runs": 8,
        "dispatches": 8,
        "elements": 4096,
        "rules": ("groups", "elements"),
    }
    return Entry(operator=operator, data_type=data_type, max_ulp=max_ulp, **{**defaults, **fields})


def card() -> Card:
    """A card with an entry of every class."""
    failure = Failure(
        case="rows <&>",
        layout="strided",
        in_place="",
        rule="groups",
        desc="input_tensor=FLOAT32[64,8192]",
        what="wrong elements",
        output="output_tensor",
        index=(3, 17),
        actual="1.5",
        expected="1.0",
        ulp=math.inf,
        bound_ulp=8.0,
        wrong=12,
        elements=4096,
        only="rows",
    )
    entries = [
        entry("ActivationElu", "FLOAT32", 0.4),
        entry("ActivationElu", "FLOAT16", 0.9),
        entry("ActivationGelu", "FLOAT32", 1.7),
        entry("ActivationGelu", "FLOAT16", 3.1),
        entry("ActivationTanh", "FLOAT32", 4.5, partly="2 runs: no strides"),
        entry("ActivationTanh", "FLOAT16", math.inf, passed=False, same_bits=False, failure=failure),
        entry("ElementWiseAddWithALongNameForAPhone", "INT32", 0.0, exact=True, bound_ulp=0.0, family="elementwise"),
        entry("ElementWiseAddWithALongNameForAPhone", "UINT64", 0.0, runs=0, unsupported="no int64", family="elementwise"),
    ]
    capabilities = {"features": ["int8"], "switched_off": ["float16"], "missing": [], "subgroup_size": 32, "is_cpu": False}
    return Card(MACHINE, "default", capabilities, 163.2, 720, entries)


def passing() -> Card:
    """The card without its failure."""
    return dataclasses.replace(card(), entries=[item for item in card().entries if item.passed])


def step(node: str, op_type: str, start: float, seconds: float, **fields: Any) -> StepReport:
    """A step of one kernel, which runs for so long from a time on."""
    time = KernelTime(f"{op_type.lower()}_kernel", start, start + seconds)
    defaults: dict[str, Any] = {"operator": f"{op_type}Operator", "kernels": (time.kernel,), "bytes": 4096, "flops": None}
    return StepReport(node=node, op_type=op_type, times=(time,), **{**defaults, **fields})


def run_report(**fields: Any) -> SessionReport:
    """A profile of nodes that ran in every place there is."""
    hostile = "</script><script>alert(1)</script>"
    steps = (
        step("once", "Transpose", 0.0, 0.0, runs_once=True, live_bytes=7),
        step("conv", "Conv", 0.0, 3e-3, merged=("batch<b>", hostile), live_bytes=3 << 20, flops=1 << 30),
        step("gelu", "Gelu", 3e-3, 1e-3, live_bytes=5 << 20),
        step("inside a function", "Mul", 4e-3, 5e-4, live_bytes=1 << 20),
    )
    defaults: dict[str, Any] = {
        "device": MACHINE.device,
        "model": '<model> & "more".onnx',
        "input_shapes": {"<x>": (1, 3, 224, 224)},
        "gpu_nodes": (Label("once", "Transpose"), Label("conv", "Conv"), Label("gelu", "Gelu"), Label("function", "Own")),
        "host_nodes": (Label("shape", "Shape", "shape arithmetic"), Label("text", "<T>", "in ONNX Runtime: text", 10, 2048)),
        "removed_nodes": (
            Label("batch<b>", "BatchNormalization", "part of another node's operator"),
            Label(hostile, "Relu", "part of another node's operator"),
            Label("view", "Reshape", "a view of its input"),
        ),
        "host_reads": 2,
        "dispatches": 3,
        "weights_bytes": 100 << 20,
        "activation_bytes": 6 << 20,
        "largest_live_bytes": 5 << 20,
        "peak_device_bytes": 120 << 20,
        "staging_bytes": 1 << 20,
        "plans": 1,
        "planning_seconds": 0.25,
        "steps": steps,
    }
    return SessionReport(**{**defaults, **fields})


def run_page(**fields: Any) -> str:
    """The page of such a report."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.html"
        run_report(**fields).save_html(path)
        return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """What a page consists of; fails where an element is not closed or an id is there twice."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                assert value not in self.ids, f"the id {value} is there twice"
                self.ids.add(str(value))
            self.attributes.append((name, value or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"{tag} ends inside {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data
