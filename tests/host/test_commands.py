"""Commands that another distribution adds to ``python -m dmlvk``."""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys
import tomllib

import pytest

import dmlvk
from dmlvk import cli

ROOT = pathlib.Path(__file__).parent.parent.parent
GREETER = """
def add_arguments(parser):
    parser.add_argument("name")
    parser.set_defaults(function=lambda options: print(f"hello {options.name}") or 7)
"""


def benchmark() -> importlib.metadata.EntryPoint:
    """The command of the benchmark as its distribution declares it, installed or not."""
    project = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(project["entry-points"]) == [cli.COMMANDS]
    (entry,) = (importlib.metadata.EntryPoint(*item, cli.COMMANDS) for item in project["entry-points"][cli.COMMANDS].items())
    return entry


@pytest.fixture
def greeter(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a distribution that is installed and adds the command "greet"."""
    (tmp_path / "greeter_of_a_test.py").write_text(GREETER)
    information = tmp_path / "greeter-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: greeter\nVersion: 1\nSummary: Greets whom you name\n")
    (information / "entry_points.txt").write_text(f"[{cli.COMMANDS}]\ngreet = greeter_of_a_test:add_arguments\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "greeter_of_a_test", raising=False)
    return "greeter_of_a_test"


def test_an_entry_point_adds_a_command(greeter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["greet", "Ada"]) == 7
    assert capsys.readouterr().out == "hello Ada\n"


def test_it_stands_among_the_commands_and_is_imported_when_it_is_asked_for(
    greeter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "Greets whom you name" in capsys.readouterr().out
    assert greeter not in sys.modules


@pytest.mark.parametrize("name", ["bench", "verfy"])
def test_a_command_that_is_not_there_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert cli.main([name, "--quick"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"dmlvk: MissingPackageError: there is no command {name!r}, only devices, doctor, ops, explain, verify, run; "
        "a distribution adds bench: pip install dmlvk-bench"
    )


@pytest.mark.parametrize("command", ["devices", "doctor", "ops", "explain", "verify", "run", "bench"])
def test_the_help_of_each_command_has_examples_that_parse(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [benchmark()])
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    _, _, examples = capsys.readouterr().out.partition("examples:\n")
    lines = [line.removeprefix("  python -m dmlvk ").split() for line in examples.splitlines()]
    assert lines
    for words in lines:
        assert words[0] == command
        cli._parser(words).parse_args(words)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"dmlvk {dmlvk.__version__}\n"


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["devices", "--nosuch"], ["doctor", "more"], ["run", "model.onnx", "more"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_the_benchmark_declares_its_command() -> None:
    entry = benchmark()
    assert entry.name == "bench" and callable(entry.load())


def test_both_distributions_have_one_version() -> None:
    own, bench = (tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", "bench/pyproject.toml"))
    assert bench["version"] == own["version"]
    assert f"dmlvk[report]=={own['version']}" in bench["dependencies"]
