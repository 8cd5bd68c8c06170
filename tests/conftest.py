"""What every test shares: the device, the validation layer's verdict after each test, dispatch counts, models, and the
account of every skip."""

from __future__ import annotations

import gc
import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from fetch_models import FetchError, fetch

if TYPE_CHECKING:
    import dmlvk

VALIDATED = os.environ.get("DMLVK_VALIDATION") == "1"

MARKERS = {
    "host": "needs no device; set on every test in tests/host",
    "quick": "part of the short runs: of make check, on the second driver, as a lesser device",
    "slow": "takes several seconds, and make check does without",
    "network": "runs whole networks, whose kernels take longer to run than to compile",
    "full": "of the whole cross only, which make test-full runs",
    "torch": "compares with PyTorch; set on every test that uses the fixture of that name",
}


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether nothing of a file would be chosen by ``-m``, as its text tells: what a file imports takes seconds."""
    chosen = str(config.option.markexpr)
    of_networks = chosen.startswith("network")
    if collection_path.suffix != ".py" or not ("not slow" in chosen or of_networks):
        return None
    text = collection_path.read_text(encoding="utf-8")
    if of_networks:
        return None if "mark.network" in text else True
    lacks_quick = "quick" in chosen and "mark.quick" not in text and collection_path.parent.name in ("device", "onnx")
    return True if "\npytestmark = pytest.mark.slow" in text or lacks_quick else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    host = Path(__file__).parent / "host"
    for item in items:
        if host in item.path.parents:
            item.add_marker("host")
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker("torch")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there for all tests is not looked through again and again by the garbage collector."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Under DMLVK_PROFILE or DMLVK_DISABLE a test ends, with a skip that says so, where it asks for what they took."""
    from dmlvk.spec.errors import UnsupportedError

    try:
        return (yield)
    except UnsupportedError as error:
        from dmlvk.devices.mask import Mask

        if error.features and all(map(Mask.from_environment().takes, error.features)):
            pytest.skip(f"the mask takes {' '.join(sorted(error.features))}")
        raise


@pytest.fixture(scope="module")
def device() -> dmlvk.Device:
    """The device under test: the one that DMLVK_DEVICE names, else the most capable one.

    One a file, because a software device keeps the machine code of every pipeline, a gigabyte for a thousand of them.
    """
    import dmlvk  # here, so that the tests in host/ need neither a device nor the native module

    return dmlvk.Device()


@pytest.fixture(autouse=True)
def no_validation_messages() -> Iterator[None]:
    """Under DMLVK_VALIDATION=1, fail the test during which the validation layer said anything."""
    yield
    if VALIDATED:
        from dmlvk.runtime.device import validation_messages

        if messages := validation_messages():
            pytest.fail("the validation layer says:\n" + "\n".join(messages), pytrace=False)


@dataclass
class DispatchCount:
    """The work that a device was given inside a ``count_dispatches`` block; both are 0 until it ends."""

    dispatches: int = 0
    submissions: int = 0


@pytest.fixture
def count_dispatches(device: dmlvk.Device) -> Callable[[], AbstractContextManager[DispatchCount]]:
    """``with count_dispatches() as count: ...``, then assert on ``count``: the proof that the device did the work."""

    @contextmanager
    def counting() -> Iterator[DispatchCount]:
        count = DispatchCount()
        dispatches, submissions = device.dispatches, device.native.submissions
        yield count
        count.dispatches = device.dispatches - dispatches
        count.submissions = device.native.submissions - submissions

    return counting


@pytest.fixture(scope="session")
def model_path() -> Callable[[str], Path]:
    """A function from a name in tests/data/models.json or companions.json to the file, fetched at need.

    One that cannot be fetched skips the test with the reason.
    """

    def fetch_or_skip(name: str) -> Path:
        try:
            return fetch(name)
        except FetchError as reason:
            pytest.skip(str(reason))

    return fetch_or_skip


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the second oracle of some tests."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        pytest.skip("no PyTorch here: tools/setup_venv.py --torch installs its CPU build where pip offers one")


def pytest_report_header() -> str:
    try:
        from dmlvk.runtime.device import choose_device

        info = choose_device()
        found = f"{info.name}, {info.driver}"
    except Exception as error:  # whatever is wrong with the set-up, the tests that need a device fail with it
        found = f"no device ({error})"
    return f"vulkan: {found}; validation layer {'on' if VALIDATED else 'off'}"


def skip_reasons(reporter: pytest.TerminalReporter) -> Counter[str]:
    """How many tests were skipped for each reason; the empty reason is among them."""
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []):
        _, _, text = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
        reasons[re.sub("^(Skipped)?:? *(unconditional skip)?", "", text)] += 1
    return reasons


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and "" in skip_reasons(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every skip, with its reason, so that none is silent."""
    if reasons := skip_reasons(terminalreporter):
        terminalreporter.section("skipped tests, by reason")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:6}  {reason or 'NO REASON GIVEN: the session fails'}")
