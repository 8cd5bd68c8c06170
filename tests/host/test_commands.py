"""The command line: every command's help, examples and refusals, the words that a shell is offered, and log messages."""

from __future__ import annotations

import importlib.metadata
import logging
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

import dmlvk
from dmlvk import cli
from dmlvk.cli.completion import VARIABLE

ROOT = pathlib.Path(__file__).parent.parent.parent
GREETER = """
import click

@click.command()
@click.argument("name")
def greet(name):
    print(f"hello {name}")
    return 7
"""
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def benchmark() -> importlib.metadata.EntryPoint:
    """The command of the benchmark as its distribution declares it, installed or not."""
    project = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(project["entry-points"]) == [cli.COMMANDS]
    (entry,) = (importlib.metadata.EntryPoint(*item, cli.COMMANDS) for item in project["entry-points"][cli.COMMANDS].items())
    return entry


@pytest.fixture
def with_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark is installed, and nothing else that adds commands."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [benchmark()])


def commands(command: click.Command = cli.program, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, and the words that lead to it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield (*before, name), found
            yield from commands(found, *before, name)


ALL = [*((name,) for name in cli.OWN), ("bench",), *(("bench", name) for name in ("compare", "report", "zoo"))]


def command_of(words: tuple[str, ...]) -> click.Command:
    return dict(commands())[words]


@pytest.mark.usefixtures("with_benchmark")
def test_there_is_no_other_command() -> None:
    assert [words for words, _ in commands()] == ALL


@pytest.fixture
def greeter(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a distribution that is installed and adds the command "greet"."""
    (tmp_path / "greeter_of_a_test.py").write_text(GREETER)
    information = tmp_path / "greeter-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: greeter\nVersion: 1\nSummary: Greets whom you name\n")
    (information / "entry_points.txt").write_text(f"[{cli.COMMANDS}]\ngreet = greeter_of_a_test:greet\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "greeter_of_a_test", raising=False)
    return "greeter_of_a_test"


def test_an_entry_point_adds_a_command(greeter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["greet", "Ada"]) == 7
    assert capsys.readouterr().out == "hello Ada\n"


def test_it_stands_among_the_commands_and_is_imported_when_it_is_asked_for(
    greeter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--help"]) == 0
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
        f"dmlvk: MissingPackageError: there is no command {name!r}, only devices, doctor, ops, explain, verify, run, "
        "dispatch, chat, serve, completion; a distribution adds bench: pip install dmlvk-bench"
    )


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_the_help_of_each_command_has_examples_that_parse(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _, command in commands():
        monkeypatch.setattr(command, "callback", lambda *_, **__: 0)
    (tmp_path / "exported").mkdir()
    for name in ("before.json", "after.json", "r.json", "model.onnx", "model.gguf"):
        (tmp_path / name).touch()
    assert cli.main([*words, "--help"], "python -m dmlvk") == 0
    text, _, examples = capsys.readouterr().out.partition("Examples:\n")
    assert text.split("\n\n")[1].endswith("."), "a sentence says what it does"
    lines = [shlex.split(line.removeprefix("  python -m dmlvk ")) for line in examples.splitlines()]
    assert lines
    for example in lines:
        assert not words or tuple(example[: len(words)]) == words
        assert cli.main(example) == 0


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize("words", [(), *ALL], ids=" ".join)
def test_unknown_options_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--nosuch"]) == 2
    out, err = capsys.readouterr()
    assert not out and "No such option" in err and "--nosuch" in err


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_takes_the_same_json(words: tuple[str, ...]) -> None:
    places = [item for item in command_of(words).params if "--json" in item.opts]
    assert len(places) == (words not in {("completion",), ("serve",), ("bench", "report")}), (
        "these have nothing to say in JSON"
    )
    assert all(item.metavar == "[FILE]" and item.flag_value == "-" for item in places)


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_ctrl_c_is_status_130(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    command = command_of(words)
    monkeypatch.setattr(command, "params", [])
    monkeypatch.setattr(command, "callback", interrupted)
    assert cli.main(words) == 130
    assert capsys.readouterr().err == "dmlvk: interrupted\n"


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "m.onnx", "--size", "N=1", "--input", "x.npz"], "--size cannot be used with --input"),
        (["verify", "--quick", "--full"], "--quick cannot be used with --full"),
        (["verify", "--full", "--only", "strided"], "--full cannot be used with --only"),
        (["verify", "--html", "/no/such/folder/card.html"], "must be a file in a folder that exists"),
        (["bench", "--sweep", "--against", "all"], "--against cannot be used with --sweep"),
        (["bench", "--commit", "abc"], "--commit has no effect without --json or --html"),
        (["bench", "--quick", "report", "r.json"], "--quick has no effect on report"),
        (["bench", "--json", "r.json", "report", "r.json"], "--json has no effect on report"),
        (["bench", "--suite", "ops,nosuch"], "must be one or more of ops, matmul"),
        (["bench", "zoo", "--folder", ".", "--jobs", "0"], "0 is not in the range"),
        (["doctor", "more"], "unexpected extra argument"),
        (["run", "model.onnx", "more"], "unexpected extra argument"),
        (["completion", "tcsh"], "tcsh"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_would_have_no_effect_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert not out and said in err


@pytest.mark.usefixtures("with_benchmark")
def test_options_of_bench_are_handed_down(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    told: dict[str, object] = {}
    monkeypatch.setattr(command_of(("bench", "zoo")), "callback", lambda **given: told.update(given) or 0)
    file, other = tmp_path / "zoo.json", tmp_path / "other.json"
    assert (
        cli.main(["bench", "--json", str(file), "--device", "1", "zoo", "--folder", str(tmp_path), "--stages", "time"]) == 0
    )
    assert (told["out"].file, told["device"], told["stages"]) == (file, "1", ("time",))
    assert cli.main(["bench", "--json", str(file), "zoo", "--folder", str(tmp_path), "--json", str(other)]) == 0
    assert (told["out"].file, told["device"], told["stages"]) == (other, None, ("export", "check"))


def offered(words: str) -> set[str]:
    """What a shell offers for the last of the words."""
    *before, begun = words.split(" ")
    return {item.value for item in ShellComplete(cli.program, {}, "dmlvk", VARIABLE).get_completions(before, begun)}


@pytest.mark.usefixtures("with_benchmark")
def test_a_shell_is_offered_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("d") == {"devices", "dispatch", "doctor"}
    assert offered("bench ") == {"compare", "zoo", "report"}
    assert offered("run --pro") == {"--profile"}
    assert offered("explain ElementWiseAd") == {"ElementWiseAd", "ElementWiseAdd", "ElementWiseAdd1"}, "the first is a file"
    assert offered("verify Gemm TopK") == {"TopK", "TopK1"}
    assert offered("bench --suite ops,m") == {"ops,matmul", "ops,models"}
    assert offered("completion ") == {"bash", "zsh", "fish"}
    items = ShellComplete(cli.program, {}, "dmlvk", VARIABLE).get_completions(["run"], "mod")
    assert [item.type for item in items] == ["file"]

    here = [types.SimpleNamespace(index=0, name="llvmpipe"), types.SimpleNamespace(index=1, name="NVIDIA H200")]
    monkeypatch.setattr("dmlvk.runtime.device.devices", lambda: here)
    assert offered("run --device ") == {"0", "1"} and offered("run --device h2") == {"1"}

    def nothing() -> None:
        raise dmlvk.NoDeviceError("there is none")

    monkeypatch.setattr("dmlvk.runtime.device.devices", nothing)
    assert offered("run --device ") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["completion", shell], "python -m dmlvk") == 0
    script = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in script and "python" not in script, "it is about the program dmlvk"
    monkeypatch.setenv(VARIABLE, f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "dmlvk ver")
    monkeypatch.setenv("COMP_CWORD", "ver" if shell == "fish" else "1")
    assert cli.main([]) == 0
    assert "verify" in capsys.readouterr().out


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """dmlvk's logger, which is as it was afterwards."""
    found = logging.getLogger("dmlvk")
    handlers, level = found.handlers[:], found.level
    yield found
    found.handlers[:], found.level = handlers, level


def test_log_messages_are_shown_when_asked_for(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def speak(**_: object) -> int:
        logging.getLogger("dmlvk.onnx").info("a plan is made")
        logging.getLogger("dmlvk.onnx").debug("of two dispatches")
        return 0

    monkeypatch.setattr(command_of(("doctor",)), "callback", speak)
    for words, messages in (
        (["doctor"], []),
        (["doctor", "-v"], ["a plan is made"]),
        (["-v", "doctor"], ["a plan is made"]),
        (["doctor", "-vv"], ["a plan is made", "of two dispatches"]),
    ):
        logger.handlers[:], logger.level = [], logging.NOTSET
        assert cli.main(words) == 0
        err = capsys.readouterr().err
        assert re.findall(r"dmlvk\.onnx: (.+)", err) == messages and bool(err) == bool(messages)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_imports_neither_numpy_nor_the_native_module(words: list[str]) -> None:
    code = "import sys; from dmlvk.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True, text=True)
    imported = set(done.stderr.split())
    assert "click" in imported and not imported & {
        "numpy",
        "onnx",
        "dmlvk.runtime.device",
        "dmlvk.kernels",
        "dmlvk.engine.run",
    }


@pytest.mark.usefixtures("with_benchmark")
def test_the_quick_start_lists_each_command() -> None:
    table = re.findall(r"^\| `python -m dmlvk (\w+)", QUICKSTART, re.MULTILINE)
    assert {words[0] for words in ALL} == set(table)


PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = sorted(
    {
        command.strip()
        for page in PAGES
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if not kind
        for command in re.findall(r"python -m dmlvk ([^#\n]+)", block)
    }
    | {*re.findall(r"^\| `python -m dmlvk ([^`]+)`", QUICKSTART, re.MULTILINE)}
)


@pytest.mark.usefixtures("with_benchmark")
@pytest.mark.parametrize("command", SHOWN)
def test_the_documentation_shows_commands_that_there_are(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, found in commands():
        monkeypatch.setattr(found, "callback", lambda *_, **__: 0)
    assert cli.main(shlex.split(command)) == 0


def test_the_documentation_shows_commands() -> None:
    assert {"doctor", "run model.onnx", "verify", "bench --quick"} <= set(SHOWN)


def test_readme_installs_what_the_set_up_does() -> None:
    (line,) = re.findall(r"^sudo apt-get install (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    script = (ROOT / "tools" / "setup_debian.sh").read_text(encoding="utf-8")
    assert all(re.search(rf"[ (]{re.escape(package)}[ )]", script) for package in line.split())


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dmlvk {dmlvk.__version__}\n"


def test_both_distributions_have_one_version() -> None:
    own, bench = (tomllib.loads((ROOT / name).read_text())["project"] for name in ("pyproject.toml", "bench/pyproject.toml"))
    assert bench["version"] == own["version"]
    assert f"dmlvk[report]=={own['version']}" in bench["dependencies"]
