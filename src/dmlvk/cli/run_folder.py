"""``python -m dmlvk run MODEL --folder INPUTS``: all files of a folder, on all devices."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dmlvk.cli.output import INTERRUPTED, Output

if TYPE_CHECKING:
    from dmlvk.onnx.folder import FolderRun, PictureScale
    from dmlvk.onnx.session import InferenceSession

_MOST_LISTED: Final = 20


def run_folder(
    model: Path,
    folder: Path,
    results: Path,
    out: Output,
    *,
    batch: int | None,
    workers: int | None,
    device: str | None,
    cluster: str | None,
    scale: PictureScale,
) -> int:
    """Runs all files that have no results yet.

    Args:
        model, folder, results: The model, the folder of its inputs, and that of what it makes of them.
        out: Where it is told.
        batch: Files that are run together, where the model leaves their number open.
        workers: Copies of the model; None for one on each device.
        device: The only device; None for the one that DMLVK_DEVICE names, else for all.
        cluster: The address of a Ray cluster; None for this machine.
        scale: Of pictures.

    Returns:
        0, 1 where files could not be run, or 130 after Ctrl-C.
    """
    from dmlvk.engine.progress import ProgressBar, UntilInterrupted
    from dmlvk.onnx.folder import USUAL_BATCH, files_in, result_of

    names = files_in(folder)
    todo = [name for name in names if not result_of(results, name).exists()]
    together = USUAL_BATCH if batch is None else batch
    started = time.perf_counter()
    failed: dict[str, str] = {}
    count = 0
    with (
        contextlib.closing(
            _here(model, folder, results, todo, together, workers, device, scale)
            if cluster is None
            else _on_cluster(model, folder, results, todo, together, workers, cluster, scale)
        ) as found,
        ProgressBar(len(todo)) as bar,
    ):
        done = UntilInterrupted(found if todo else ())
        for name, error in done:
            count += 1
            if error:
                failed[name] = error
            bar.update(count, name)
    seconds = time.perf_counter() - started
    summary = {
        "files": len(names),
        "had_results": len(names) - len(todo),
        "done": count - len(failed),
        "failed": failed,
        "left": len(todo) - count,
        "seconds": seconds,
    }
    out.write(summary)
    for name in list(failed)[:_MOST_LISTED]:
        out.say(f"{name}: {failed[name]}")
    if len(failed) > _MOST_LISTED:
        out.say(f"... and {len(failed) - _MOST_LISTED} more")
    left = f", {summary['left']} left for the next run" if summary["left"] else ""
    out.say(
        f"{len(names)} files: {summary['had_results']} had results, {summary['done']} done in {seconds:.1f} s, "
        f"{len(failed)} failed{left}"
    )
    if done.interrupted:
        return INTERRUPTED
    return 1 if failed else 0


def _here(
    model: Path,
    folder: Path,
    results: Path,
    names: Sequence[str],
    batch: int,
    workers: int | None,
    device: str | None,
    scale: PictureScale,
) -> Generator[tuple[str, str], None, None]:
    """Runs files in this process. Twice as many threads as copies of the model, so that some read and write meanwhile."""
    from dmlvk.onnx.folder import FolderRun
    from dmlvk.onnx.session import InferenceSession
    from dmlvk.onnx.side_by_side import in_order
    from dmlvk.runtime.device import choose_device, devices, worthy

    wanted = device or os.environ.get("DMLVK_DEVICE")
    chosen = [choose_device(wanted)] if wanted else worthy(devices())
    count = workers or len(chosen)
    session = InferenceSession(model, devices=[chosen[number % len(chosen)].uuid for number in range(count)])
    run = FolderRun(session, folder, results, batch=batch, scale=scale)
    groups = [names[start : start + run.batch] for start in range(0, len(names), run.batch)]
    for found in in_order(lambda group: _with_another_try(run, session, group), groups, 2 * count):
        yield from found


def _with_another_try(run: FolderRun, session: InferenceSession, names: Sequence[str]) -> list[tuple[str, str]]:
    """Runs files, and once more with the device opened anew where it was lost."""
    from dmlvk.spec.errors import DeviceLostError

    try:
        return run(names)
    except DeviceLostError:
        session.recover()
        return run(names)


def _on_cluster(
    model: Path,
    folder: Path,
    results: Path,
    names: Sequence[str],
    batch: int,
    workers: int | None,
    address: str,
    scale: PictureScale,
) -> Generator[tuple[str, str], None, None]:
    import ray
    import ray.data

    from dmlvk.ray.folder import run_folder as run_on_nodes

    ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield from run_on_nodes(model, folder, results, names, batch=batch, scale=scale, workers=workers)
    finally:
        ray.shutdown()
