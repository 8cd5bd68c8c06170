"""``bench compare`` names what moved beyond the noise, and nothing else."""

from __future__ import annotations

import dataclasses
import pathlib

import page_samples
import pytest

from dmlvk.spec.errors import InvalidArgumentError
from dmlvk_bench.compare import compare
from dmlvk_bench.results import Ceilings, HostRow, ProblemRow, Results, read

MACHINE = dataclasses.replace(page_samples.MACHINE, device="A GPU", driver="1.0", type="discrete", mask="")


def row(name: str, us: float, *, spread: float = 0.01, agrees: bool = True, share: float = 0.9) -> ProblemRow:
    return page_samples.row(name, us, spread=spread, agrees=agrees, share=share, rivals={})


def results(*rows: ProblemRow, **more: object) -> Results:
    return dataclasses.replace(Results(MACHINE, "full", ceilings=Ceilings(100.0), problems=list(rows)), **more)


def test_a_slowdown_beyond_the_noise_is_named_and_the_worst_comes_first() -> None:
    before = results(row("add", 100), row("relu", 100), row("sum", 100), row("copy", 100))
    after = results(row("add", 103), row("relu", 130), row("sum", 210), row("copy", 50))
    found = compare(before, after)
    assert [change.name for change in found.slower] == ["sum", "relu"]
    assert [change.name for change in found.faster] == ["copy"]
    assert not found.good
    text = "\n".join(found.lines())
    assert "sum: 2.10 x as slow, 100 -> 210 us" in text and "copy: 2.00 x as fast" in text
    assert "4 figures in both runs: 2 slower, 1 faster, 1 within the noise" in text


def test_a_change_within_both_spreads_is_noise() -> None:
    before, after = results(row("add", 100, spread=0.2)), results(row("add", 135, spread=0.2))
    assert compare(before, after).good
    assert not compare(before, results(row("add", 145, spread=0.2))).good


def test_what_became_wrong_is_named_though_it_has_no_time() -> None:
    before, after = results(row("add", 100), row("sum", 9)), results(row("add", 0, agrees=False), row("sum", 9))
    found = compare(before, after)
    assert found.wrong == ("add",) and not found.good and len(found.changes) == 1
    assert "WRONG now:\n  add" in "\n".join(found.lines())


def test_on_a_cpu_shares_of_the_runs_own_limits_count() -> None:
    machine = dataclasses.replace(MACHINE, type="cpu")
    before = results(row("add", 100, share=0.8), row("sum", 100, share=0.8), machine=machine, launches={"1 dependent": 1.0})
    after = results(row("add", 200, share=0.78), row("sum", 200, share=0.4), machine=machine, launches={"1 dependent": 9.0})
    found = compare(before, after)
    assert [change.name for change in found.slower] == ["sum"], "the machine is half as fast, and only one problem slower"
    assert "compared by shares" in "\n".join(found.notes)


def test_another_device_is_said_and_compared_by_shares() -> None:
    other = dataclasses.replace(MACHINE, device="Another GPU", driver="2.0")
    found = compare(results(row("add", 100)), results(row("add", 900), machine=other))
    assert found.good
    assert any("device differs: 'A GPU' and 'Another GPU'" in note for note in found.notes)
    assert any("driver differs" in note for note in found.notes)


def test_launches_and_models_are_figures_too() -> None:
    model = {"model": "net", "ms": 2.0, "spread": 0.01}
    before = results(launches={"1 dependent": 40.0}, models=[model])
    after = results(launches={"1 dependent": 80.0}, models=[{**model, "ms": 1.0}, {"model": "other", "error": "x"}])
    found = compare(before, after)
    assert [change.name for change in found.slower] == ["launch, 1 dependent"]
    assert [change.name for change in found.faster] == ["net"]


def test_a_call_that_costs_the_host_more_is_slower_beyond_its_noise() -> None:
    before = results(host=[HostRow("calm", 300, 100.0, 0.01), HostRow("noisy", 300, 100.0, 0.3)])
    after = results(host=[HostRow("noisy", 300, 130.0, 0.1), HostRow("calm", 300, 130.0, 0.01)])
    found = compare(before, after)
    assert [change.name for change in found.slower] == ["host, calm"]
    assert not found.faster


def test_what_only_one_run_has_is_listed() -> None:
    found = compare(results(row("a", 1), row("b", 1)), results(row("b", 1), *(row(f"c{at}", 1) for at in range(10))))
    assert found.gone == ("a",) and len(found.new) == 10
    text = "\n".join(found.lines())
    assert "only in the first: a" in text and "and 2 more" in text


def test_runs_with_nothing_in_common_are_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="in common"):
        compare(results(row("a", 1)), results(row("b", 1)))


def test_a_file_is_read_as_it_was_written(tmp_path: pathlib.Path) -> None:
    written = results(row("a", 1), launches={"1 dependent": 2.0}, host=[HostRow("a call", 3, 2.0, 0.1)])
    written.write(tmp_path / "r.json")
    assert read(tmp_path / "r.json") == written
    (tmp_path / "r.json").write_text('{"format": 0}')
    with pytest.raises(InvalidArgumentError, match="format 1"):
        read(tmp_path / "r.json")
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(InvalidArgumentError, match="format 1"):
        read(tmp_path / "r.json")
