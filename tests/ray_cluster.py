"""A Ray cluster of this machine with logical nodes on one device, and the certainty that nothing of it stays.

It is run as a program of its own (see ``run_on_cluster``): Ray leaves threads and handlers in the process that starts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dmlvk

_PR_SET_CHILD_SUBREAPER = 36


def run_on_cluster(code: str, *arguments: str, seconds: float = 900) -> str:
    """What a program prints that makes a ``cluster``; with all its processes it is gone then. The time is for a program that
    hangs, and no measure of anything."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_prestart_worker_first_driver": "0"}
    home = str(Path(dmlvk.__file__).parents[1])  # first: tools that tests import put the sources in front
    environment["PYTHONPATH"] = os.pathsep.join([home, *filter(None, sys.path)])
    with _no_process_left():
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=seconds
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-20_000:]}"
    return done.stdout


@contextlib.contextmanager
def cluster(nodes: int = 2, copies: int = 1, cpus: float = 1) -> Iterator[Any]:
    """Logical nodes, each of which announces the device, with this process as their driver."""
    import ray
    from ray.cluster_utils import Cluster

    import dmlvk.ray

    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a short path: names of sockets have 107 bytes
    Path("/tmp/ray").mkdir(exist_ok=True)  # where Ray's cluster of tests writes its address, whatever its own folder is
    made = Cluster()
    try:
        for index in range(nodes):
            head = {"include_dashboard": False, "no_monitor": True, "temp_dir": folder} if index == 0 else {}
            made.add_node(
                num_cpus=cpus,
                object_store_memory=80 << 20,
                resources=dmlvk.ray.resources(copies=copies),
                include_log_monitor=False,  # each is a process more
                **head,
            )
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _no_process_left() -> Iterator[None]:
    """Ends what is started inside and has not ended by itself: all that descends from this process."""
    prctl = ctypes.CDLL(None).prctl
    before = set(_descendants(os.getpid()))
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whose parent ends becomes a child of this process
    try:
        yield
    finally:
        while left := [pid for pid in _descendants(os.getpid()) if pid not in before]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.05)
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]
