"""Run the ONNX models of tests/data/models.json through ONNX Runtime with dmlvk's provider, and compare with its CPU's.

    python tools/run_provider.py [--alone] [--write] [--timeout SECONDS] [NAME]...

For each model it prints how many nodes, of those that ONNX Runtime makes of it, the provider takes and in how many parts. A
model fails that cannot be opened or run, of which the provider takes nothing, or that differs from ONNX Runtime's CPU as
``run_models.py`` says. Each runs in a process of its own; smaller ones come first. ``--alone`` leaves nothing to the
processor. ``--write`` puts the outcomes into the record, beside those of models that did not run. Exit status 1 where a
model failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime
from fetch_models import target
from models_page import ProviderOutcome, ProviderRecord, listed, name_of
from run_models import MismatchError, compare, feeds_of, fetched, reference_of

import dmlvk.ort
from dmlvk.onnx.model import load_model
from dmlvk.verify import machine


class Share(logging.Handler):
    """Hears what the provider takes of each graph."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.taken = self.nodes = self.parts = 0
        self.reasons: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if found := re.search(r"(\d+) of (\d+) nodes in (\d+) parts", message):
            taken, nodes, parts = map(int, found.groups())
            self.taken, self.nodes, self.parts = self.taken + taken, self.nodes + nodes, self.parts + parts
        elif found := re.search(r"\((\S+)\) runs elsewhere: (.*)", message, re.DOTALL):
            self.reasons[f"{found[1]}: {found[2]}"] += 1


@contextmanager
def heard() -> Iterator[Share]:
    """What the provider says meanwhile."""
    share, log = Share(), logging.getLogger("dmlvk.ort")
    log.setLevel(logging.INFO)
    log.addHandler(share)
    try:
        yield share
    finally:
        log.removeHandler(share)


def run_model(row: dict[str, Any], alone: bool) -> ProviderOutcome:
    """Runs a model that is there.

    Raises:
        MismatchError: it differs from ONNX Runtime's CPU, or nothing of it runs on the provider.
    """
    dmlvk.ort.register()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if alone:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(dmlvk.ort.get_devices()[:1], {})
    with heard() as share:
        session = onnxruntime.InferenceSession(str(target(row)), options)
    feeds = feeds_of(row, load_model(target(row), hosts=True).inputs)
    outputs = [np.asarray(output) for output in session.run(None, feeds)]
    if not share.taken:
        raise MismatchError("the provider takes no node: " + "; ".join([*share.reasons][:2]))
    difference = compare(row, outputs, reference_of(row, feeds))
    return ProviderOutcome(share.taken, share.nodes, share.parts, float(f"{difference:.2g}"), dict(share.reasons))


def run_apart(row: dict[str, Any], alone: bool, timeout: float) -> ProviderOutcome:
    """``run_model`` in a process of its own.

    Raises:
        MismatchError: whatever went wrong there.
    """
    command = [sys.executable, __file__, "--child", *["--alone"] * alone, name_of(row)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise MismatchError(f"takes longer than {timeout:.0f} s") from None
    if done.returncode:
        *_, reason = ["no reason given", *done.stderr.strip().splitlines()]
        raise MismatchError(reason if done.returncode > 0 else f"the process died of signal {-done.returncode}: {reason}")
    return ProviderOutcome(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--alone", action="store_true", help="leave nothing to the processor")
    parser.add_argument("--write", action="store_true", help="put the models into the record")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="for each model (900)")
    parser.add_argument("--child", action="store_true", help="run one model in this process, and print its outcome as JSON")
    arguments = parser.parse_args()
    rows = [row for row in listed().values() if not arguments.names or {row["file"], name_of(row)} & {*arguments.names}]
    if not rows:
        parser.error("no such model")
    if arguments.child:
        print(json.dumps(dataclasses.asdict(run_model(rows[0], arguments.alone))))
        return 0
    here = machine.describe(dmlvk.Device())
    record, passed = ProviderRecord.read(), 0
    for row in sorted(fetched(rows), key=lambda row: int(row["size"])):
        name = name_of(row)
        record.outcomes.pop(name, None)
        try:
            outcome = run_apart(row, arguments.alone, arguments.timeout)
        except MismatchError as error:
            print(f"{name}: FAILED: {str(error)[:600]}", flush=True)
        else:
            where = f"{outcome.taken} of {outcome.nodes} nodes in {outcome.parts} parts"
            left = "".join(f"; {count} x {reason}" for reason, count in outcome.left.items())
            print(f"{name}: {where}, {outcome.difference:.2g} of what it may differ{left}", flush=True)
            record.outcomes[name] = outcome
            passed += 1
        if arguments.write:
            record.device, record.driver = here.device, here.driver
            record.onnxruntime, record.commit, record.date = onnxruntime.__version__, here.commit, here.date
            record.write()
    print(f"{passed} of {len(rows)} models")
    return int(passed < len(rows))


if __name__ == "__main__":
    sys.exit(main())
