"""``python -m fuzz WHAT``: a long run of a fuzzer, with a line for each kind of fault."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys
import time
import warnings

from fuzz.campaign import Account, limit_memory, run

WHAT = ("descs", "answers", "eager", "graphs", "models", "files", "orders")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first attempt: where an earlier run ended")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the time after which no attempt begins")
    options = parser.parse_args()
    limit_memory()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    attempt = importlib.import_module(f"fuzz.{options.what}").attempt
    numbers = range(options.first, options.first + options.count)
    account, last, said = Account(), options.first - 1, time.monotonic()
    known: set[str] = set()
    for last, account in run(attempt, options.seed, numbers, options.seconds):
        for kind in account.faults.keys() - known:
            print(f"FAULT {last}: {kind}\n    {account.faults[kind][1]}", flush=True)
        known.update(account.faults)
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(f"  ... {last}: {account}", file=sys.stderr, flush=True)
    for kind, (found, _) in account.faults.items():
        print(f"{len(found)} times: {kind}")
    print(f"{account}; go on with --first {last + 1}")
    return bool(account.faults)


if __name__ == "__main__":
    sys.exit(main())
