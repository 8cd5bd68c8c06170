"""ONNX models by the open inference protocol, without a socket and without a device."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from asgi_client import LONG, Answer, Client
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlvk
from dmlvk.onnx.model import ValueInfo
from dmlvk.serving.batches import Batches
from dmlvk.serving.limits import Limits
from dmlvk.serving.models import ServedModel, model_application
from dmlvk.serving.tensors import DATA_TYPES

INFER = "/v2/models/twice/infer"


class Session:
    """What it gives is twice its inputs, and the sum of each row; runs wait until they may."""

    def __init__(self, *, held: bool = False) -> None:
        self.rows: list[int] = []
        self.may_run, self.begun = threading.Semaphore(0 if held else 10**6), threading.Semaphore(0)
        self.failures: list[Exception] = []
        self.recoveries = 0

    def get_inputs(self) -> list[ValueInfo]:
        return [ValueInfo("x", ["n", "width"], "tensor(float)", np.dtype(np.float32))]

    def get_outputs(self) -> list[ValueInfo]:
        kind = np.dtype(np.float32)
        return [ValueInfo("y", ["n", "width"], "tensor(float)", kind), ValueInfo("sum", ["n"], "tensor(float)", kind)]

    def run(self, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        self.begun.release()
        assert self.may_run.acquire(timeout=LONG)
        (x,) = feeds.values()
        self.rows.append(len(x))
        if self.failures:
            raise self.failures.pop(0)
        if np.any(x == 99):
            raise dmlvk.InvalidArgumentError("must not be 99", field="x", value=99)
        return [{"y": 2 * x, "sum": x.sum(1)}[name] for name in names]

    def recover(self) -> None:
        self.recoveries += 1
        if self.recoveries > 1:
            raise dmlvk.NoDeviceError("gone")


def served(session: Session, **options: Any) -> ServedModel:
    return ServedModel(session, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    model = served(Session(), most_rows=4)
    with Client(model_application({"twice": model}, limits=Limits(body_bytes=4000))) as own:
        yield own
    model.batches.close()


def asked(rows: Any, **more: Any) -> dict[str, Any]:
    array = np.array(rows, np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": list(array.shape), "data": array.tolist()}
    return {"inputs": [tensor], **more}


def test_numbers_of_json(client: Client) -> None:
    found = client.post(INFER, asked([[1, 2], [3, 4]], id="a")).json
    assert found == {
        "model_name": "twice",
        "id": "a",
        "outputs": [
            {"name": "y", "shape": [2, 2], "datatype": "FP32", "data": [2.0, 4.0, 6.0, 8.0]},
            {"name": "sum", "shape": [2], "datatype": "FP32", "data": [3.0, 7.0]},
        ],
    }
    flat = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1e300]}
    (only,) = client.post("/v2/models/twice/versions/1/infer", {"inputs": [flat], "outputs": [{"name": "sum"}]}).json[
        "outputs"
    ]
    assert only["data"] == [None], "what is no number is none of JSON"


@pytest.mark.parametrize("binary", [{"parameters": {"binary_data_output": True}}, {}])
def test_tensors_behind_the_json(client: Client, binary: dict[str, Any]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}}
    outputs = [{"name": "sum"}, {"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs, **binary}).encode()
    answer = client.post(INFER, head + x.tobytes(), {"Inference-Header-Content-Length": str(len(head))})
    length = int(answer.headers["inference-header-content-length"])
    first, second = json.loads(answer.body[:length])["outputs"]
    rest = answer.body[length:]
    if binary:
        assert first["parameters"] == {"binary_data_size": 8}
        assert rest[:8] == x.sum(1).tobytes()
        rest = rest[8:]
    else:
        assert first["data"] == [3.0, 12.0]
    assert second["parameters"] == {"binary_data_size": 24} and rest == (2 * x).tobytes()


def test_what_the_server_says_of_itself(client: Client) -> None:
    assert client.get("/v2").json["name"] == "dmlvk"
    assert client.get("/v2/health/live").json == {"live": True}
    assert client.get("/v2/health/ready").json == client.get("/v2/models/twice/ready").json == {"ready": True}
    said = client.get("/v2/models/twice").json
    assert said["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}] and said["versions"] == ["1"]
    missing = client.get("/v2/models/thrice")
    assert missing.status == 404 and missing.json.keys() == {"error"}
    assert client.post("/v2/models/twice/versions/2/infer", asked([[1]])).status == 404
    assert "dmlvk_requests_total" in client.get("/metrics").body.decode()


def changed(**fields: Any) -> dict[str, Any]:
    body = asked([[1, 2]])
    body["inputs"][0].update(fields)
    return body


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {}),
        (400, {"inputs": [1]}),
        (400, {"inputs": asked([[1]])["inputs"] * 2}),
        (400, changed(name=1)),
        (400, changed(datatype="BYTES")),
        (400, changed(datatype=[])),
        (400, changed(shape=[-1, 2])),
        (400, changed(shape=[1, 2**40])),
        (400, changed(shape=[1] * 40)),
        (400, changed(shape=[2, 2])),
        (400, changed(data=[1, "2"])),
        (400, changed(data=[1, True])),
        (400, changed(data=[1, 2, 3])),
        (400, changed(data=[1, 10**400])),
        (400, changed(datatype="UINT8", data=[1, -1])),
        (400, changed(datatype="INT32", data=[1, 1.5])),
        (400, changed(parameters=1)),
        (400, changed(parameters={"binary_data_size": 8})),
        (400, asked([[1]], outputs=1)),
        (400, asked([[1]], id=1)),
        (422, changed(name="z")),
        (422, changed(shape=[2])),
        (422, changed(datatype="FP64")),
        (422, asked([[1]], outputs=[{"name": "z"}])),
        (422, asked([[1]], outputs=[{"name": "y"}, {"name": "y"}])),
        (400, asked([[99]])),
    ],
)
def test_what_is_refused(client: Client, status: int, body: dict[str, Any]) -> None:
    answer = client.post(INFER, body)
    assert answer.status == status and answer.json.keys() == {"error"}


def test_headers_that_are_refused(client: Client) -> None:
    body = json.dumps(asked([[1]])).encode()
    for length in ("x", "-1", "9" * 30, str(len(body) + 1), str(len(body) - 1)):
        assert client.post(INFER, body, {"Inference-Header-Content-Length": length}).status == 400
    assert client.post(INFER, body + b" ", {"Inference-Header-Content-Length": str(len(body))}).status == 400
    assert client.post(INFER, b" " * 4001).status == 413


def test_requests_that_wait_together_run_together() -> None:
    session = Session(held=True)
    batches = Batches(session, most_rows=4, most_waiting=5)  # type: ignore[arg-type]

    def feeds(rows: int, width: int, value: int) -> dict[str, Any]:
        return {"x": np.full((rows, width), value, np.float32)}

    first = batches.submit(feeds(1, 2, 1), ["y"])
    assert session.begun.acquire(timeout=LONG)
    waiting = [
        batches.submit(feeds(2, 2, 2), ["y"]),
        batches.submit(feeds(1, 3, 3), ["y"]),
        batches.submit(feeds(1, 2, 4), ["y"]),
        batches.submit(feeds(2, 2, 5), ["y"]),
        batches.submit(feeds(1, 2, 6), ["sum"]),
    ]
    with pytest.raises(dmlvk.QueueFullError):
        batches.submit(feeds(1, 2, 7), ["y"])
    waiting[3].cancel()
    session.may_run.release(10)
    assert first.result(LONG)[0].tolist() == [[2, 2]]
    found = [future.result(LONG)[0].tolist() for future in waiting if not future.cancelled()]
    assert found == [[[4, 4], [4, 4]], [[6, 6, 6]], [[8, 8]], [12]]
    assert session.rows == [1, 3, 1, 1], "who comes first runs first, and takes along who fits"
    batches.close()
    with pytest.raises(dmlvk.StateError):
        batches.submit(feeds(1, 2, 1), ["y"])


def test_only_who_is_to_blame_fails() -> None:
    session = Session(held=True)
    batches = Batches(session, most_rows=8)  # type: ignore[arg-type]
    first = batches.submit({"x": np.zeros((1, 1), np.float32)}, ["y"])
    assert session.begun.acquire(timeout=LONG)
    good, bad = (batches.submit({"x": np.full((1, 1), value, np.float32)}, ["y"]) for value in (1, 99))
    session.may_run.release(10)
    first.result(LONG)
    assert good.result(LONG)[0].tolist() == [[2]]
    assert isinstance(bad.exception(LONG), dmlvk.InvalidArgumentError)
    assert session.rows == [1, 2, 1, 1]
    batches.close()


def test_a_lost_device_is_replaced_once_and_then_the_server_says_so() -> None:
    session = Session()
    session.failures = [dmlvk.OutOfDeviceMemoryError("full"), dmlvk.DeviceLostError("lost")]
    model = served(session)
    with Client(model_application({"twice": model})) as client:
        assert [client.post(INFER, asked([[1]])).status for _ in range(3)] == [503, 503, 200]
        assert client.get("/health").status == 200 and session.recoveries == 1
        session.failures = [dmlvk.DeviceLostError("lost")]
        assert client.post(INFER, asked([[1]])).status == 503
        assert (client.get("/health").status, client.get("/v2/health/ready").status) == (503, 503)
        assert client.post(INFER, asked([[1]])).status == 503
    model.batches.close()


def test_a_time_that_is_over_and_a_client_that_leaves() -> None:
    session = Session(held=True)
    model = served(session, most_waiting=1)
    with Client(model_application({"twice": model}, limits=Limits(seconds=0.001))) as client:
        assert client.post(INFER, asked([[1]])).status == 504
    with Client(model_application({"twice": model})) as client:

        async def several() -> tuple[Answer, Answer]:
            gone = await client.ask("POST", INFER, json.dumps(asked([[2]])).encode(), leaves_after=0)
            session.may_run.release(10)
            for _ in range(200):  # what waits is taken by another thread, until when there is no room
                answer = await client.ask("POST", INFER, json.dumps(asked([[3]])).encode())
                if answer.status != 429:
                    break
                await asyncio.sleep(0.01)
            return gone, answer

        gone, answer = client.run(several())
        assert gone.status in (499, 429) and answer.status == 200
    model.batches.close()


def test_models_that_cannot_be_joined_or_served(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session()
    for shape in ([3, 2], []):
        info = ValueInfo("x", shape, "tensor(float)", np.dtype(np.float32))
        monkeypatch.setattr(session, "get_inputs", lambda info=info: [info])
        with pytest.raises(dmlvk.InvalidArgumentError, match="the first dimension of 'x' is not open"):
            Batches(session, most_rows=2)
    text = ValueInfo("x", ["n"], "tensor(string)", np.dtype(object))
    monkeypatch.setattr(session, "get_inputs", lambda: [text])
    with pytest.raises(dmlvk.UnsupportedError, match="only tensors of numbers"):
        ServedModel(session)


VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4)
TENSOR = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | VALUES,
        "datatype": st.sampled_from([*DATA_TYPES, "BYTES"]) | VALUES,
        "shape": st.lists(st.integers(-1, 5), max_size=3) | VALUES,
        "data": st.lists(VALUES | st.lists(VALUES, max_size=3), max_size=4) | VALUES,
        "parameters": st.dictionaries(st.sampled_from(["binary_data_size", "other"]), VALUES, max_size=2) | VALUES,
    },
)


@settings(deadline=None, max_examples=60)
@given(
    tensors=st.lists(TENSOR, max_size=2),
    rest=st.binary(max_size=12),
    length=st.none() | st.integers(-2, 400),
    cut=st.none() | st.integers(0, 300),
)
def test_no_request_brings_it_down(
    client: Client, tensors: list[Any], rest: bytes, length: int | None, cut: int | None
) -> None:
    body = json.dumps({"inputs": tensors}).encode() + rest
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}
    answer = client.post(INFER, body[:cut], headers)
    assert answer.status in (200, 400, 422)
    assert client.post(INFER, asked([[1]])).status == 200
