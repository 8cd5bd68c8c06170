"""``python -m dmlvk bench`` end to end: what it measures, keeps and refuses, and what it says of a wrong result."""

from __future__ import annotations

import cProfile
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.directml.ready_operator import ReadyOperator, initialize
from dmlvk.onnx.repeats import Repeats
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.errors import StateError, UnsupportedError
from dmlvk_bench import command, host, measure, rivals, timing
from dmlvk_bench.cli import main
from dmlvk_bench.measure import CopyCurve, Loaded
from dmlvk_bench.problems import all_problems
from dmlvk_bench.problems.scale import MEDIUM, QUICK
from dmlvk_bench.results import Ceilings, ProblemRow, Results, read
from dmlvk_bench.sweep import SweepRow

GEMM = "GEMM depth 64 FLOAT32"


def bench(tmp_path: pathlib.Path, *arguments: str) -> tuple[int, Results]:
    """The exit status, and the file."""
    path = tmp_path / "results.json"
    status = main(["--quick", "--json", str(path), *arguments])
    return status, read(path)


class FakeRival:
    """A rival that takes a second; its results are as far off as one says."""

    name, version = "torch", "0 of a test"

    def __init__(self, off: float = 0.0) -> None:
        self.off = off
        self.failures: dict[str, str] = {}
        self.prepared, self.closed = 0, 0

    def prepare(self, problem: Any, inputs: Sequence[Any]) -> FakeRival:
        self.prepared += 1
        return self

    def compare(self, ours: Sequence[Any]) -> tuple[float, float]:
        return 0.0, self.off

    def time(self) -> list[float]:
        return [0.9, 1.0, 1.1]

    def close(self) -> None:
        self.closed += 1


def beside(monkeypatch: pytest.MonkeyPatch, rival: FakeRival) -> None:
    monkeypatch.setattr(rivals, "find", lambda *_, **__: ({rival.name: rival}, {"ncnn": "it is not installed"}))


def test_a_run_is_kept_and_read_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, results = bench(tmp_path, "--suite", "matmul,launch", "--only", GEMM, "--commit", "abc")
    assert status == 0
    assert results.complete and results.clock == "device"
    assert (results.scale, results.machine.commit, results.rivals) == ("quick", "abc", {})
    assert results.ceilings.copy_gb_per_s > 0
    assert results.launches["1 dependent"] > 0
    (row,) = results.problems
    assert row.problem.startswith(GEMM) and (row.suite, row.family, row.operator) == ("matmul", "matmul", "Gemm")
    assert row.agrees and row.checked == "oracle" and 0 < row.difference < 1e-5
    assert 0 < row.us <= row.host_us
    assert (row.limit, row.target) == ("float32_tflop_per_s", 0)
    assert row.share == pytest.approx(row.tflop_per_s / results.ceilings.float32_tflop_per_s)
    assert row.same_size_copy_share > 0
    printed = capsys.readouterr().out
    assert row.problem in printed and row.rule in printed and "all right" in printed


def test_the_host_s_part_of_a_call_is_measured_at_both_doors(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, results = bench(tmp_path, "--suite", "host")
    assert status == 0 and not results.problems and not results.launches
    assert [row.name for row in results.host] == [host.GRAPH, host.SESSION, host.GRAPH_OF_NUMPY, host.SESSION_OF_NUMPY]
    assert all(row.dispatches == 300 and row.us > 0 for row in results.host)
    assert str(results.host[0]) in capsys.readouterr().out


def test_a_call_of_a_graph_costs_the_host_no_more_than_one_of_a_session(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than one that is no repetition: those with arrays of the host are one submission in a session, copies and all, while a
    graph returns before its result is asked for."""
    monkeypatch.setattr(Repeats, "key", lambda *_: None)
    for kind in host.calls(device):
        counts = []
        for call in kind.values():
            for _ in range(4):  # fills caches
                call()
            with cProfile.Profile() as profile:
                call()
            counts.append(sum(entry.callcount for entry in profile.getstats()))  # type: ignore[attr-defined]
        graph, session = counts
        assert graph <= 1.1 * session


def test_the_host_s_time_ends_where_the_call_returns(device: dmlvk.Device) -> None:
    kept = dmlvk.DeviceArray.from_numpy(np.ones(4, np.float32), device)
    waited = []

    class Waits:
        def numpy(self) -> Any:
            time.sleep(0.1)
            return waited.append(kept.numpy())

    calls = {"quick to call": lambda: Waits()}
    (row,) = host.timed(calls, 2, timing.QUICK)  # type: ignore[arg-type]
    assert row.us < 90_000 and len(waited) >= 3


def test_new_sizes_are_measured_beside_seen_ones(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, results = bench(tmp_path, "--suite", "shapes")
    (row,) = results.shapes
    assert status == 0 and row.model == "decoder" and row.dispatches > 30
    assert row.new_ms > row.planning_ms >= row.least_planning_ms > 0
    assert row.seen_ms > 0  # noisy machines: which is longer is not asserted
    assert {"trace", "passes", "lower", "place", "record"} == row.shares.keys()
    assert all(0 <= share < 1 for share in row.shares.values())  # filled sizes are placed without a Placement
    assert str(row) in capsys.readouterr().out


def test_without_timestamps_the_results_say_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(choice: Any) -> dmlvk.Device:
        device = dmlvk.Device(choice)
        device.has_timestamps = False
        return device

    monkeypatch.setattr(command, "Device", without)
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM)
    assert (status, results.clock) == (0, "host")
    (row,) = results.problems
    assert row.us == pytest.approx(row.host_us)
    assert "times are the host's" in capsys.readouterr().out


@pytest.fixture
def wrong_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix product is a thousandth too large."""

    def off(device: dmlvk.Device, desc: Any, *rest: Any) -> ReadyOperator:
        return ReadyOperator(device, desc.replace(alpha=1.001) if isinstance(desc, dmlvk.Gemm) else desc, *rest)

    monkeypatch.setattr(measure, "ReadyOperator", off)


@pytest.mark.usefixtures("wrong_products")
def test_a_wrong_result_is_not_timed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(monkeypatch, rival := FakeRival())
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM)
    assert status == 1
    (row,) = results.problems
    assert not row.agrees and row.difference == pytest.approx(1e-3, rel=0.01)
    assert (row.us, row.host_us, row.share, row.rivals) == (0, 0, 0, {})
    assert rival.closed == rival.prepared == 1
    assert results.missed(row)
    assert "WRONG" in capsys.readouterr().out


def test_a_rival_stands_beside_us(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(monkeypatch, rival := FakeRival(off=0.5))
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM, "--against", "torch,ncnn")
    assert status == 0, "a rival that is wrong is none of ours"
    assert (results.rivals, results.missing) == ({"torch": "0 of a test"}, {"ncnn": "it is not installed"})
    (row,) = results.problems
    (time,) = row.rivals.values()
    assert (time.us, time.spread, time.ratio) == pytest.approx((1e6, 0.1, 1e6 / row.us))
    assert (time.difference, time.agrees) == (0.5, False)
    assert rival.closed == rival.prepared == 1
    printed = capsys.readouterr().out
    assert "(WRONG)" in printed and "not there: ncnn: it is not installed" in printed


@pytest.mark.parametrize("step", ["prepare", "compare", "time"])
def test_a_rival_that_breaks_takes_nothing_with_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("out of its memory")

    beside(monkeypatch, rival := FakeRival())
    monkeypatch.setattr(rival, step, broken)
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM, "--against", "torch")
    assert status == 0
    (row,) = results.problems
    assert row.agrees and row.us > 0 and row.rivals == {}
    assert results.failures == {"torch": {row.problem: "MemoryError: out of its memory"}}
    assert rival.closed == rival.prepared
    assert f"torch failed at {row.problem}" in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: measure.Bench, problem: Any) -> ProblemRow:
        if problem.name.startswith("GEMM B"):
            raise KeyboardInterrupt
        return original(self, problem)

    original = measure.Bench.measure
    monkeypatch.setattr(measure.Bench, "measure", interrupted)
    status, results = bench(tmp_path, "--suite", "matmul", "--only", "depth 256 FLOAT32 1x512")
    assert status == command.INTERRUPTED
    assert not results.complete
    assert [row.problem for row in results.problems] == ["GEMM depth 256 FLOAT32 1x512"]
    assert "1 problems" in capsys.readouterr().out


def test_what_the_device_cannot_run_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any) -> None:
        raise UnsupportedError("needs the device feature of a test")

    monkeypatch.setattr(measure, "ReadyOperator", refused)
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM)
    assert status == 0
    assert results.problems == []
    assert [why for name, why in results.skipped.items() if name.startswith(GEMM)] == ["needs the device feature of a test"]
    assert "not run" in capsys.readouterr().out


def test_json_on_standard_output_is_alone_there(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert main(["--quick", "--suite", "matmul", "--only", GEMM, "--json"]) == 0
    out, err = capsys.readouterr()
    (tmp_path / "results.json").write_text(out)
    assert all(row.problem.startswith(GEMM) for row in read(tmp_path / "results.json").problems) and GEMM in err


def test_a_sweep_times_every_rule(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--sweep", "--only", GEMM, "--json", str(tmp_path / "sweep.json")]) == 0
    printed = capsys.readouterr().out
    assert "* " in printed and "naive  " in printed and "choices are more than 5% slower" in printed
    assert '"rule": "naive"' in (tmp_path / "sweep.json").read_text()


def test_ctrl_c_keeps_what_was_swept(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    swept: list[str] = []

    def interrupted(device: dmlvk.Device, problem: Any, pace: timing.Pace) -> list[SweepRow]:
        swept.append(problem.name)
        if len(swept) == 2:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(command, "sweep", interrupted)
    file = tmp_path / "sweep.json"
    assert main(["--quick", "--sweep", "--suite", "matmul", "--json", str(file)]) == command.INTERRUPTED
    assert command.KEPT in capsys.readouterr().out and file.read_text() == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--suite", "matmul,nothing"], "ops, matmul, conv, models, launch, ladder, host, shapes"),
        (["--against", "cuda"], "torch, onnxruntime, ncnn"),
        (["--suite", "matmul", "--only", "no such problem"], "only"),
        (["--json", "/no/such/folder/results.json"], "folder that exists"),
        (["--sweep", "--against", "torch"], "--against cannot be used with --sweep"),
        (["--sweep", "--html", "page.html"], "--html cannot be used with --sweep"),
        (["--headline", "--quick"], "--headline cannot be used with --quick"),
        (["--headline"], "must be on a GPU"),
        (["--suite", "launch", "--only", "GEMM"], "must come with a suite that uses it"),
        (["--suite", "matmul", "--folder", "."], "must come with a suite that uses it"),
        (["--quick", "compare", "a.json", "b.json"], "--quick has no effect on compare"),
        (["compare", "/no/such/file.json", "/no/such/file.json"], "does not exist"),
    ],
)
def test_bad_arguments_end_with_the_choices(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.full  # a quarter of a minute; host tests compare made-up results
def test_a_planted_slowdown_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    words = ["--quick", "--suite", "ops", "--only", "softmax FLOAT", "--json"]
    assert main([*words, str(before)]) == 0
    assert main(["compare", str(before), str(before)]) == 0
    assert "0 slower, 0 faster" in capsys.readouterr().out
    planted = read(before).problems[0].problem
    record = Loaded.record

    def slowly(self: Loaded, commands: dmlvk.CommandList) -> None:
        for _ in range(20 if self.problem.name == planted else 1):
            record(self, commands)

    monkeypatch.setattr(Loaded, "record", slowly)
    assert main([*words, str(after)]) == 0, "what is slow is right"
    capsys.readouterr()
    assert main(["compare", str(before), str(after)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert planted in said[said.index("slower:") + 1], "the worst comes first"


@pytest.mark.parametrize(
    ("name", "others", "checked"),
    [
        (GEMM, {"torch": FakeRival()}, "torch"),
        (GEMM, {"ncnn": FakeRival()}, "oracle, quick size"),
        ("nonzero of 1x80x200", {}, "check"),
        ("nonzero of 1x80x200", {"torch": FakeRival()}, "check"),
    ],
)
def test_large_problems_are_checked_too(
    device: dmlvk.Device, name: str, others: dict[str, rivals.Rival], checked: str
) -> None:
    problem = all_problems(QUICK, name)[0]
    row = measure.Bench(device, MEDIUM, timing.QUICK, Ceilings(copy_gb_per_s=1.0), others).measure(problem)
    assert row.agrees and row.checked == checked


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_wrong_and_the_file_is_json(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    outputs = Loaded.outputs

    def broken(self: Loaded) -> list[Any]:
        (found,) = outputs(self)
        found.view(np.float32)[3] = value
        return [found]

    monkeypatch.setattr(Loaded, "outputs", broken)
    status, results = bench(tmp_path, "--suite", "matmul", "--only", GEMM)
    assert status == 1 and not results.problems[0].agrees
    assert "Infinity" not in (tmp_path / "results.json").read_text()


@pytest.mark.usefixtures("wrong_products")
def test_a_wrong_kernel_of_a_large_problem_is_found_by_its_small_twin(device: dmlvk.Device) -> None:
    row = measure.Bench(device, MEDIUM, timing.QUICK, Ceilings(), {}).measure(all_problems(QUICK, GEMM)[0])
    assert not row.agrees and row.us == 0


# -- timing


def test_the_device_takes_its_own_time(device: dmlvk.Device) -> None:
    problem = next(problem for problem in all_problems(QUICK, GEMM))
    loaded = Loaded(device, problem, problem.inputs())
    one = timing.sample(timing.recorded(device, loaded.record))
    assert 0 < one.device <= one.host
    several = timing.time_executions(device, loaded.record, timing.QUICK)
    assert several.by_device and several.samples >= 3
    assert 0 < several.seconds <= several.host_seconds


def test_without_timestamps_the_host_s_clock_counts(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(problem for problem in all_problems(QUICK, GEMM))
    loaded = Loaded(device, problem, problem.inputs())
    monkeypatch.setattr(device, "has_timestamps", False)
    found = timing.time_executions(device, loaded.record, timing.QUICK)
    assert not found.by_device
    assert found.seconds == pytest.approx(found.host_seconds)
    with pytest.raises(UnsupportedError, match="writes no timestamps"):
        device.create_command_list().timestamp()


def test_timestamps_lie_in_order(device: dmlvk.Device) -> None:
    """Also over the parts of a list, which the dispatch of a DESCRIPTORS_VOLATILE operator divides."""
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType.FLOAT32, (1000,))
    desc = dmlvk.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    operator = device.compile_operator(device.create_operator(desc), dmlvk.ExecutionFlags.DESCRIPTORS_VOLATILE)
    buffer = device.create_buffer(4000)
    buffer.write(np.zeros(1000, np.float32))
    initialize(device, operator)
    table = device.create_binding_table(operator)
    recorder, commands = device.create_command_recorder(), device.create_command_list()
    table.bind_inputs([BufferBinding(buffer)] * 2)
    table.bind_outputs([BufferBinding(buffer)])
    for _ in range(20):  # more than one pool of queries
        commands.timestamp()
    recorder.record_dispatch(commands, operator, table)
    commands.timestamp()
    with pytest.raises(StateError, match="not been submitted"):
        commands.timestamps()
    for _ in range(2):
        device.execute(commands)
        taken = commands.timestamps()
        assert len(taken) == 21
        assert taken[0] == 0 and taken == sorted(taken) and 0 < taken[-1] < 60e9
    with pytest.raises(StateError, match="closed"):
        commands.timestamp()
    empty = device.create_command_list()
    empty.submit()
    assert empty.timestamps() == []


def test_ticks_wrap_around(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_timestamp_bits", 36)
    monkeypatch.setattr(device, "_timestamp_period", 2.0)
    assert device.nanoseconds(2**36 - 10, 5) == 30


def test_copies_of_many_sizes_are_few(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def copy_seconds(device: dmlvk.Device, nbytes: int, pace: timing.Pace) -> float:
        measured.append(nbytes)
        return 1e-6 + nbytes / 1e12  # a microsecond to start, a terabyte a second

    monkeypatch.setattr(measure, "copy_seconds", copy_seconds)
    curve = CopyCurve(device, timing.QUICK, 1234.0)
    for nbytes in range(100_000, 200_000, 1000):
        assert curve.gb_per_s(nbytes) == pytest.approx(nbytes / (1e-6 + nbytes / 1e12) * 1e-9)
    assert len(measured) == 4 == len(set(measured))
    assert curve.gb_per_s(3) > 0
    assert curve.gb_per_s(1 << 31) == 1234
    assert min(measured) >= 8
