"""ONNX models by the open inference protocol, the second version of KServe's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import dmlvk
from dmlvk.serving.batches import Batches, Results
from dmlvk.serving.frame import Frame, body_of, while_connected
from dmlvk.serving.limits import Limits
from dmlvk.serving.metrics import Metrics
from dmlvk.serving.refusals import Refusal
from dmlvk.serving.tensors import LENGTH_HEADER, NAMES, Inference
from dmlvk.spec.errors import UnsupportedError

if TYPE_CHECKING:
    from dmlvk.onnx.model import ValueInfo
    from dmlvk.onnx.session import InferenceSession

_LARGE_BODY: Final = 64 * 2**20


class ServedModel:
    """An ONNX model that is served.

    Args:
        session: The model, which nothing else uses meanwhile.
        most_rows, most_waiting: As of ``Batches``.

    Raises:
        InvalidArgumentError: as of ``Batches``.
        UnsupportedError: an input or output that is no tensor of numbers.
    """

    def __init__(self, session: InferenceSession, *, most_rows: int = 1, most_waiting: int = 256) -> None:
        self.inputs: Sequence[ValueInfo] = session.get_inputs()
        self.outputs: Sequence[ValueInfo] = session.get_outputs()
        for info in (*self.inputs, *self.outputs):
            if not info.is_tensor or info.dtype not in NAMES:
                raise UnsupportedError(f"{info.name!r} is of the type {info.type}: only tensors of numbers can be served")
        self.batches = Batches(session, most_rows=most_rows, most_waiting=most_waiting)


def model_application(models: Mapping[str, ServedModel], *, limits: Limits | None = None) -> Starlette:
    """ONNX models behind ``/v2/models/NAME/infer``, and what else the open inference protocol asks for, with ``/health``,
    ``/ready`` and ``/metrics`` beside it.

    Args:
        models: The models, by the names that clients call them.
        limits: What they may ask for; 64 MiB a request where None.
    """
    return _ModelServer(models, limits or Limits(body_bytes=_LARGE_BODY)).frame.application()


def _error(refusal: Refusal) -> dict[str, str]:
    """An error as the protocol has it."""
    return {"error": str(refusal)}


class _ModelServer:
    """The endpoints."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits) -> None:
        self._models, self._limits = models, limits
        self._metrics = Metrics(
            {
                "requests_waiting": (
                    "Requests that wait for a model",
                    lambda: sum(model.batches.waiting for model in models.values()),
                )
            },
            {},
            {},
        )
        paths = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
        self.frame = Frame(
            {
                ("GET", "/v2"): self.server,
                ("GET", "/v2/health/live"): self.live,
                ("GET", "/v2/health/ready"): self.all_ready,
                **{("GET", path): self.metadata for path in paths},
                **{("GET", f"{path}/ready"): self.ready for path in paths},
                **{("POST", f"{path}/infer"): self.infer for path in paths},
            },
            limits=limits,
            metrics=self._metrics,
            failure=self._failure,
            is_ready=lambda: self._failure() is None,
            close=self._close,
            body_of=_error,
        )

    def _failure(self) -> Exception | None:
        return next((error for model in self._models.values() if (error := model.batches.failure) is not None), None)

    def _close(self) -> None:
        for model in self._models.values():
            model.batches.close()

    async def server(self, request: Request) -> Response:
        """What the server is."""
        return JSONResponse({"name": "dmlvk", "version": dmlvk.__version__, "extensions": ["binary_tensor_data"]})

    async def live(self, request: Request) -> Response:
        """Whether the server works."""
        return JSONResponse({"live": True})

    async def all_ready(self, request: Request) -> Response:
        """Whether all models are there."""
        return self._readiness(self._failure())

    async def ready(self, request: Request) -> Response:
        """Whether a model is there."""
        return self._readiness(self._model(request)[1].batches.failure)

    def _readiness(self, failure: Exception | None) -> Response:
        return JSONResponse({"ready": failure is None}, 200 if failure is None else 503)

    async def metadata(self, request: Request) -> Response:
        """A model's inputs and outputs; sizes that are open are -1."""
        name, model = self._model(request)
        described = {"inputs": map(_described, model.inputs), "outputs": map(_described, model.outputs)}
        lists = {key: list(items) for key, items in described.items()}
        return JSONResponse({"name": name, "versions": ["1"], "platform": "onnx_dmlvk", **lists})

    async def infer(self, request: Request) -> Response:
        """Runs a model."""
        name, model = self._model(request)
        said = request.headers.get(LENGTH_HEADER)
        if said is not None and not (said.isdecimal() and len(said) < 20):
            raise Refusal(400, f"{LENGTH_HEADER}: must be a number of bytes", field=LENGTH_HEADER, code="invalid_value")
        body = await body_of(request, self._limits)
        asked = await asyncio.to_thread(Inference, body, None if said is None else int(said))
        wanted = asked.outputs or [info.name for info in model.outputs]
        _check(model, asked, wanted)
        results = await while_connected(request, self._results(model, asked, wanted))
        arrays = dict(zip(wanted, results, strict=True))
        content, json_bytes = await asyncio.to_thread(asked.written, name, arrays)
        if json_bytes is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={LENGTH_HEADER: str(json_bytes)})

    async def _results(self, model: ServedModel, asked: Inference, wanted: Sequence[str]) -> Results:
        async with asyncio.timeout(self._limits.seconds):
            return await asyncio.wrap_future(model.batches.submit(asked.inputs, wanted))

    def _model(self, request: Request) -> tuple[str, ServedModel]:
        name = request.path_params["name"]
        model = self._models.get(name)
        if model is None or request.path_params.get("version", "1") != "1":
            raise Refusal(404, f"there is no model {name[:200]!r}, or not of this version", code="model_not_found")
        return name, model


def _check(model: ServedModel, asked: Inference, wanted: Sequence[str]) -> None:
    """Raises Refusal where the tensors are not those of the model."""
    expected = {info.name: info for info in model.inputs}
    if asked.inputs.keys() != expected.keys():
        raise Refusal(422, f"inputs: must be {', '.join(expected)}", field="inputs", code="invalid_value")
    for name, array in asked.inputs.items():
        info = expected[name]
        open_shape = [size if isinstance(size, int) else -1 for size in info.shape or array.shape]
        fits = len(open_shape) == array.ndim and all(a in (-1, b) for a, b in zip(open_shape, array.shape, strict=True))
        if array.dtype != info.dtype or not fits:
            rule = f"must be {_described(info)}, -1 for sizes that are open"
            raise Refusal(422, f"inputs: {name!r} {rule}", field="inputs", code="invalid_value")
    known = {info.name for info in model.outputs}
    if not known.issuperset(wanted) or len(set(wanted)) != len(wanted):
        raise Refusal(422, f"outputs: must be some of {', '.join(sorted(known))}", field="outputs", code="invalid_value")


def _described(info: ValueInfo) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in info.shape or ()]
    return {"name": info.name, "datatype": NAMES.get(info.dtype, "BYTES"), "shape": shape}
