"""``python -m dmlvk run``."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.cli.parameters import NewFile, device_option, json_option, size_option

if TYPE_CHECKING:
    from dmlvk.onnx.session import InferenceSession


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(map(float, text.split(",")))
    if len(numbers) not in (1, 3, 4):
        raise ValueError("must be one number, or one for each channel, with commas between")
    return numbers


@click.command(
    "run",
    cls=Command,
    examples=(
        "model.onnx",
        "model.onnx --size batch=8 --repeat 20",
        "model.onnx --profile trace.json --html report.html",
        "model.onnx --folder pictures --out results --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
        "model.onnx --folder arrays --out results --ray auto",
    ),
)
@click.argument("model", type=click.Path(path_type=pathlib.Path))
@option(
    "--input",
    type=click.Path(path_type=pathlib.Path),
    metavar="FILE",
    help="An .npz file with the inputs; default: random numbers, seed 0.",
)
@size_option(excludes=("--input",))
@option("--output", type=NewFile(), metavar="FILE", help="Write the outputs to this .npz file.")
@option("--repeat", type=click.IntRange(min=0), default=1, help="Runs after the first, for the time; default: 1.")
@option(
    "--profile",
    type=NewFile(),
    metavar="FILE",
    help="Time every kernel in two more runs, list them and write a Chrome trace, which Perfetto opens.",
)
@option(
    "--html",
    type=NewFile(),
    metavar="FILE",
    help="Time every kernel in two more runs, and write what each node became and took as a page.",
)
@option(
    "--folder",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    metavar="FOLDER",
    needs=("--out",),
    excludes=("--input", "--output", "--size", "--repeat", "--profile", "--html"),
    help="Run each .npy, .npz or picture in this folder, on all devices. Those that have results already are left out.",
)
@option(
    "--out",
    "results",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    metavar="FOLDER",
    needs=("--folder",),
    help="Write an .npz file of the outputs here for each file.",
)
@option(
    "--batch",
    type=click.IntRange(min=1),
    needs=("--folder",),
    help="Files that are run together where the model leaves the number open; default: 8.",
)
@option(
    "--workers", type=click.IntRange(min=1), needs=("--folder",), help="Copies of the model; default: one on each device."
)
@option(
    "--mean",
    type=_numbers,
    needs=("--folder",),
    metavar="NUMBERS",
    help="Of a picture, whose numbers are 0 to 1: taken away.",
)
@option(
    "--std",
    type=_numbers,
    needs=("--folder",),
    metavar="NUMBERS",
    help="What pictures are divided by then. One, or one a channel.",
)
@option(
    "--ray",
    "cluster",
    metavar="ADDRESS",
    needs=("--folder",),
    excludes=("--device",),
    help="Run on the devices of this Ray cluster, whose nodes all have both folders; auto: the one that runs here.",
)
@device_option
@json_option
def command(
    model: pathlib.Path,
    input: pathlib.Path | None,
    sizes: tuple[tuple[str, int], ...],
    output: pathlib.Path | None,
    repeat: int,
    profile: pathlib.Path | None,
    html: pathlib.Path | None,
    folder: pathlib.Path | None,
    results: pathlib.Path | None,
    batch: int | None,
    workers: int | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    cluster: str | None,
    device: str | None,
    out: Output,
) -> int:
    """Run an ONNX model, once or on all files of a folder.

    Ctrl-C ends the repetitions, with the report of the runs that were; of a folder, a second run does what is left. The
    status is 1 where files of a folder could not be run.
    """
    if folder is not None:
        from dmlvk.cli.run_folder import run_folder
        from dmlvk.onnx.folder import PictureScale

        assert results is not None, "it goes with the folder"
        scale = PictureScale(mean or (0.0,), std or (1.0,))
        return run_folder(
            model, folder, results, out, batch=batch, workers=workers, device=device, cluster=cluster, scale=scale
        )
    import numpy as np

    from dmlvk.engine.progress import UntilInterrupted
    from dmlvk.onnx.command_line import loaded, random_feeds, read_feeds

    started = time.perf_counter()
    session = loaded(str(model), device)
    load_seconds = time.perf_counter() - started
    feeds = random_feeds(session, dict(sizes)) if input is None else read_feeds(input)
    started = time.perf_counter()
    outputs = session.run(None, feeds)
    first_seconds = time.perf_counter() - started
    repeated = UntilInterrupted(_times(session, feeds, repeat))
    times = sorted(repeated) or [first_seconds]
    timed = bool(profile or html) and not repeated.interrupted
    report = session.profile(feeds) if timed else session.report()
    if profile is not None and timed:
        profile.write_text(report.chrome_trace(), encoding="utf-8")
    if html is not None:
        report.save_html(html)
    arrays: dict[str, Any] = {}
    for info, found in zip(session.get_outputs(), outputs, strict=True):
        if isinstance(found, list):  # a sequence
            arrays.update((f"{info.name}.{index}", item) for index, item in enumerate(found))
        elif found is not None:
            arrays[info.name] = found
    if output is not None:
        np.savez(output, **arrays)
    summary: dict[str, Any] = {
        "device": session.device.info.name,
        "load_seconds": load_seconds,
        "first_run_seconds": first_seconds,
        "run_seconds": times[len(times) // 2],
        "outputs": {
            name: {"shape": list(value.shape), "type": str(value.dtype), "mean": float(np.mean(value.astype(float)))}
            for name, value in arrays.items()
        },
        "report": report.to_dict(),
    }
    out.write(summary)
    out.say(report)
    if profile is not None and timed:
        out.say(report.table())
    for name, item in summary["outputs"].items():
        out.say(f"{name}: {item['type']}{item['shape']}, mean {item['mean']:.6g}")
    out.say(
        f"load {load_seconds * 1e3:.1f} ms, first run {first_seconds * 1e3:.1f} ms, "
        f"then {summary['run_seconds'] * 1e3:.2f} ms (median of {len(times)})"
    )
    return INTERRUPTED if repeated.interrupted else 0


def _times(session: InferenceSession, feeds: dict[str, Any], count: int) -> Iterator[float]:
    """The seconds of so many runs."""
    for _ in range(count):
        started = time.perf_counter()
        session.run(None, feeds)
        yield time.perf_counter() - started
