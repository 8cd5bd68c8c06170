"""``python -m dmlvk serve``."""

from __future__ import annotations

import pathlib
from typing import Any

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.parameters import device_option


@click.command(
    "serve",
    cls=Command,
    examples=("model.gguf", "model.gguf --sequences 16 --capacity 8192 --port 8080", "model.onnx --max-rows 32"),
)
@click.argument("model", type=click.Path(path_type=pathlib.Path))
@option("--host", default="127.0.0.1", help="The address to listen at, 0.0.0.0 for all; default: this machine alone.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="Default: 8000.")
@option("--name", help="What clients call the model; default: the file's name without its ending.")
@option("--sequences", type=click.IntRange(min=1), default=8, help="Texts that are written at once; default: 8.")
@option("--capacity", type=click.IntRange(min=1), help="Tokens of each, prompt and answer; default: at most 4096.")
@option(
    "--piece",
    type=click.IntRange(min=1),
    help="Tokens of prompts that are read between steps; default: as the device likes it.",
)
@option("--max-rows", type=click.IntRange(min=1), default=1, help="Rows of a batch of an ONNX model; default: 1.")
@option("--queue", type=click.IntRange(min=1), default=256, help="Requests that wait, at most; default: 256.")
@option("--max-body", type=click.IntRange(min=1), help="Bytes of a request; default: 4 MiB, 64 MiB of an ONNX model.")
@option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, help="Seconds of a request; default: 600.")
@device_option
def command(
    model: pathlib.Path,
    host: str,
    port: int,
    name: str | None,
    sequences: int,
    capacity: int | None,
    piece: int | None,
    max_rows: int,
    queue: int,
    max_body: int | None,
    timeout: float,
    device: str | None,
) -> int:
    """Serve a model over HTTP.

    A GGUF file, or a folder of onnxruntime-genai, gets OpenAI's interface: /v1/completions and /v1/chat/completions. An
    ONNX file gets the open inference protocol: /v2/models/NAME/infer. Both have /health, /ready and /metrics.
    """
    from dmlvk.directml.device import Device
    from dmlvk.serving.limits import Limits
    from dmlvk.serving.opening import is_language_model, models_of, text_of
    from dmlvk.serving.run import run

    def device_of() -> Device | None:
        return None if device is None else Device(device)

    is_text = is_language_model(model)
    limits = Limits(body_bytes=max_body or (4 if is_text else 64) * 2**20, seconds=timeout)
    shared: dict[str, Any] = {"most_waiting": queue, "limits": limits}
    if is_text:
        application = text_of(model, device_of, name=name, capacity=capacity, sequences=sequences, piece=piece, **shared)
    else:
        application = models_of({name or model.stem: model}, device_of, most_rows=max_rows, **shared)
    click.echo(f"{model.name} at http://{host}:{port}")
    run(application, host, port)
    return 0
