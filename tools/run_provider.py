"""Run the ONNX models of tests/data/models.json through ONNX Runtime with dmlvk's provider, and compare with its CPU's.

    python tools/run_provider.py [--alone] [NAME]...

For each model it prints how many nodes, of those that ONNX Runtime makes of it, the provider takes and in how many parts. A
model fails that cannot be opened or run, or that differs from ONNX Runtime's CPU as ``run_models.py`` says. ``--alone``
leaves nothing to the processor. Exit status 1 where a model failed.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime
from fetch_models import FetchError, fetch_package, is_present, target
from models_page import listed, name_of
from run_models import MismatchError, compare, feeds_of, reference_of

import dmlvk.ort
from dmlvk.onnx.model import load_model


class Share(logging.Handler):
    """Hears what the provider takes of each graph."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.taken = self.nodes = self.parts = 0
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if found := re.search(r"(\d+) of (\d+) nodes in (\d+) parts", message):
            taken, nodes, parts = map(int, found.groups())
            self.taken, self.nodes, self.parts = self.taken + taken, self.nodes + nodes, self.parts + parts
        elif "runs elsewhere" in message:
            self.reasons.append(message)


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


def run_model(row: dict[str, Any], alone: bool) -> str:
    """Runs a model that is there; what there is to say of it.

    Raises:
        MismatchError: it differs from ONNX Runtime's CPU, or nothing of it runs on the provider.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if alone:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(dmlvk.ort.get_devices()[:1], {})
    start = time.perf_counter()
    with heard() as share:
        session = onnxruntime.InferenceSession(str(target(row)), options)
    feeds = feeds_of(row, load_model(target(row), hosts=True).inputs)
    outputs = [np.asarray(output) for output in session.run(None, feeds)]
    seconds = time.perf_counter() - start
    if not share.taken:
        raise MismatchError("the provider takes no node: " + "; ".join(share.reasons[:2]))
    difference = compare(row, outputs, reference_of(row, feeds))
    left = f"; {share.reasons[0]}" if share.reasons else ""
    where = f"{share.taken} of {share.nodes} nodes in {share.parts} parts"
    return f"{where}, {difference:.2g} of what it may differ, {seconds:.1f} s{left}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    dmlvk.ort.register()
    failed = 0
    rows = [row for name, row in listed().items() if not arguments.names or name in arguments.names]
    for row in rows:
        try:
            if not is_present(row):
                fetch_package([row])
            print(f"{name_of(row)}: {run_model(row, arguments.alone)}", flush=True)
        except FetchError as error:
            print(f"{name_of(row)}: NOT HERE: {error}", flush=True)
            failed += 1
        except Exception as error:  # ONNX Runtime's own classes have no common base
            print(f"{name_of(row)}: FAILED: {str(error)[:600]}", flush=True)
            failed += 1
    print(f"{len(rows) - failed} of {len(rows)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
