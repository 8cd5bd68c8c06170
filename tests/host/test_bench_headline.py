"""The headline judges every target by what a run found, and names only what there is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dmlvk.verify.machine import Machine
from dmlvk_bench import headline
from dmlvk_bench.headline import HEADLINE, MET, MISSED, NOT_JUDGED, NOT_MEASURED, Beside, HeadlineRow
from dmlvk_bench.launches import TORCH_GRAPH
from dmlvk_bench.models.networks import NETWORKS
from dmlvk_bench.problems import all_problems
from dmlvk_bench.problems.scale import FULL
from dmlvk_bench.results import Ceilings, ProblemRow, Results, RivalTime

MACHINE = Machine(*("NVIDIA H200", "", "", "discrete", "1.4.0", "", "", "", "", "", ""))
ADD, SOFTMAX, LAYER_NORM = "add FLOAT32 268435456", "softmax FLOAT32 16384x8192", "layer norm, last axis FLOAT32 16384x8192"
ROI_ALIGN = "ROI align FLOAT16 1000 of 4x256x200x304 to 7x7"


def problem(name: str, us: float, rival_us: float = 0.0, **more: Any) -> ProblemRow:
    """A row of so many bytes that 1 us is 1000 GB/s."""
    empty: dict[str, Any] = {
        field.name: {"int": 0, "float": 0.0, "str": ""}.get(str(field.type)) for field in dataclasses.fields(ProblemRow)
    }
    rivals = {"torch": RivalTime(rival_us, 0.0, rival_us / us, 0.0, agrees=True)} if rival_us else {}
    given: dict[str, Any] = {"problem": name, "us": us, "agrees": True, "bytes_moved": 10**9, "rivals": rivals}
    return ProblemRow(**(empty | given | more))


def results(**parts: Any) -> Results:
    given: dict[str, Any] = {"machine": MACHINE, "scale": "full", **parts}
    return Results(**given)


def row_of(found: Results, what: str) -> HeadlineRow:
    """The one row whose words hold these."""
    (row,) = (row for row in headline.rows(found) if what in row.what)
    return row


def test_everything_that_is_named_is_there() -> None:
    known = {problem.name: problem for problem in all_problems(FULL)}
    assert set(headline.problems()) <= set(known)
    assert headline.models() == tuple(network.name for network in NETWORKS)
    for target in HEADLINE:
        if isinstance(target, Beside):
            assert known[target.problem].target == pytest.approx(target.least), target.what


def test_nothing_is_judged_that_was_not_measured() -> None:
    found = headline.rows(results())
    assert len(found) == len(HEADLINE) == 107
    assert {row.verdict for row in found} == {NOT_MEASURED}
    assert all(row.ratio is None for row in found)


@pytest.mark.parametrize(("rival_us", "verdict"), [(201.0, MET), (199.0, MISSED), (0.0, NOT_MEASURED)])
def test_a_ratio_is_judged_on_every_machine(rival_us: float, verdict: str) -> None:
    machine = dataclasses.replace(MACHINE, device="another")
    row = row_of(results(machine=machine, problems=[problem(SOFTMAX, 100.0, rival_us)]), "softmax 16384x8192, float32")
    assert (row.verdict, row.target) == (verdict, "at least 2 x PyTorch")
    assert row.ratio == (rival_us / 100 if rival_us else None)
    assert row.figure.startswith("10000 GB/s")


def test_a_share_of_the_time_is_the_inverse_of_a_ratio() -> None:
    met = row_of(results(problems=[problem(ROI_ALIGN, 69.0, 100.0)]), "7x7, float16")
    missed = row_of(results(problems=[problem(ROI_ALIGN, 71.0, 100.0)]), "7x7, float16")
    assert (met.verdict, missed.verdict) == (MET, MISSED)
    assert met.target == "at most 0.7 x PyTorch's time" and met.figure == "69 us, PyTorch 100 us"


def test_a_wrong_output_misses_and_a_wrong_rival_is_no_measure() -> None:
    wrong = row_of(
        results(problems=[problem(SOFTMAX, 100.0, 300.0, agrees=False, difference=0.5)]), "softmax 16384x8192, float32"
    )
    assert wrong.verdict == MISSED and "off by 5.0e-01" in wrong.note
    rival = {"torch": RivalTime(300.0, 0.0, 3.0, 0.25, agrees=False)}
    row = row_of(results(problems=[problem(SOFTMAX, 100.0, rivals=rival)]), "softmax 16384x8192, float32")
    assert (row.verdict, row.ratio) == (NOT_JUDGED, None) and "off by 2.5e-01" in row.note


def test_why_the_rival_is_missing_is_said() -> None:
    row = row_of(results(problems=[problem(SOFTMAX, 100.0)], missing={"torch": "no CUDA"}), "softmax 16384x8192, float32")
    assert (row.verdict, row.note) == (NOT_MEASURED, "no CUDA")


def test_ceilings_have_some_slack() -> None:
    found = results(ceilings=Ceilings(copy_gb_per_s=4100.0, upload_gb_per_s=30.0), problems=[problem(LAYER_NORM, 0.25)])
    assert row_of(found, "copy, read").verdict == MET
    assert row_of(found, "host to device").verdict == MISSED
    assert row_of(found, "device to host").verdict == NOT_MEASURED
    assert row_of(found, "rows of 8192").verdict == MET
    elsewhere = dataclasses.replace(found, machine=dataclasses.replace(MACHINE, device="another"))
    assert row_of(elsewhere, "copy, read").verdict == NOT_JUDGED


def test_a_least_rate_has_no_slack() -> None:
    halves, rows = "GEMM depth 8192 FLOAT16 8192x8192", "GEMM depth 16384 FLOAT16 16x16384"

    def verdicts(rate: float, share: float) -> list[tuple[str, str]]:
        found = results(problems=[problem(halves, 1e6, operations=rate * 1e12), problem(rows, 1.0, share=share)])
        return [(row.target, row.verdict) for name in (halves, rows) for row in [row_of(found, name)]]

    targets = ["at least 420 TFLOP/s", "at least 0.95 of the copy bandwidth"]
    assert verdicts(421.0, 0.951) == [(target, MET) for target in targets]
    assert verdicts(419.0, 0.949) == [(target, MISSED) for target in targets]


def test_launches_count_from_the_first_dispatch() -> None:
    found = results(
        launches={"1 dependent": 15.0, "1000 dependent": 15 + 999 * 1.8, "100 dependent": 190.0, TORCH_GRAPH: 95.0}
    )
    further = row_of(found, "behind a barrier")
    assert (further.figure, further.verdict) == ("1.8 us", MET)
    assert row_of(found, "further dispatch, without").verdict == NOT_MEASURED
    hundred = row_of(found, "100 dependent")
    assert (hundred.figure, hundred.ratio, hundred.verdict) == ("190 us, PyTorch 95 us", 0.5, MET)
    assert row_of(results(launches={"100 dependent": 201.0}), "100 dependent").verdict == MISSED


def test_models_are_judged_by_their_milliseconds() -> None:
    rivals = {
        "PyTorch eager": {"ms": 1.0, "agrees": False},
        "PyTorch graph": {"ms": 3.0, "agrees": True},
        "WebGPU": {"error": "no"},
    }
    name = "ResNet-50 float32 batch 1"
    met = row_of(results(models=[{"model": name, "ms": 2.0, "rivals": rivals}]), name)
    assert (met.verdict, met.ratio, met.figure) == (MET, 1.5, "2.00 ms, PyTorch graph 3.00 ms")
    alone = row_of(results(models=[{"model": name, "ms": 2.3}]), name)
    assert alone.verdict == MISSED and alone.ratio == pytest.approx(2.2 / 2.3)
    failed = row_of(results(models=[{"model": name, "error": "no memory", "rivals": {}}]), name)
    assert (failed.verdict, failed.note) == (MISSED, "no memory")
    wrong = row_of(results(models=[{"model": name, "ms": 1.0, "rivals": {"WebGPU": {"ms": 3.0, "agrees": False}}}]), name)
    assert wrong.verdict == MISSED and "WebGPU" in wrong.note


def test_tables_show_every_row_and_count_the_verdicts() -> None:
    found = headline.rows(results(problems=[problem(ADD, 0.1, 0.2), problem(SOFTMAX, 1.0, 1.5)]))
    text, page = headline.table(found), headline.markdown(found)
    assert text.splitlines()[-1] == "2 met, 1 missed, 0 not judged, 104 not measured" == headline.summary(found)
    assert all(row.what in text and row.what in page for row in found)
    assert page.count("**missed**") == 1 and len({line.count("|") for line in page.splitlines()}) == 1
