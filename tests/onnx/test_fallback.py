"""``SessionOptions.on_unsupported``: what no device can do is refused, or ONNX Runtime runs it on the host; against ONNX
Runtime alone, which runs all of these models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import dmlvk
from dmlvk.onnx import InferenceSession, SessionOptions, SessionReport
from dmlvk.onnx.fallback import HostGroup

HOST = SessionOptions(on_unsupported="host")
HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'
IMAGE = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)

NETWORK = """
network (float[1,3,8,8] x, float[4,3,3,3] w, float[4,4,3,3] v) => (float[1,4,8,8] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = MIDDLE (b)
    d = Conv <pads = [1, 1, 1, 1]> (c, v)
    y = Relu (d)
}"""
FILTERS = {
    "w": np.ones((4, 3, 3, 3), np.float32) / 9,
    "v": np.eye(4, dtype=np.float32)[..., None, None] * np.ones((3, 3), "f"),
}
WORDS = """
words (string[N] text) => (float[N,2] y, string[N] upper) <float[3,2] table = {1, 2, 3, 4, 5, 6}> {
    upper = StringNormalizer <case_change_action = "UPPER", locale = "C.UTF-8"> (text)
    places = ai.onnx.ml.LabelEncoder <keys_strings = ["A", "B"], values_int64s = [1, 2], default_int64 = 0> (upper)
    rows = Gather (table, places)
    y = Mul (rows, rows)
}"""
TEXT = np.array(["a", "c", "b", "b"])


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def _expected(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made: list[Any] = session.run(None, dict(feeds))
    return made


def _groups(session: InferenceSession) -> list[HostGroup]:
    return [part for part, _ in session._loaded.network.program.parts if isinstance(part, HostGroup)]


@pytest.fixture
def agrees(device: dmlvk.Device) -> Callable[..., InferenceSession]:
    """Runs a model with what cannot run on the device on the host, and compares with ONNX Runtime alone."""

    def check(text: str, feeds: Mapping[str, Any]) -> InferenceSession:
        model = _model(text)
        session = InferenceSession(model, device, HOST)
        for found, wanted in zip(session.run(None, feeds), _expected(model, feeds), strict=True):
            if isinstance(wanted, np.ndarray) and wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, 1e-5)
            else:
                np.testing.assert_equal(found, wanted)
        return session

    return check


def _hosted(report: SessionReport) -> dict[str, tuple[str, int, int]]:
    """Name -> operator and bytes from the device and to it, of the nodes that ONNX Runtime ran."""
    return {
        label.name: (label.op_type, label.from_device, label.to_device)
        for label in report.host_nodes
        if label.reason.startswith("in ONNX Runtime: ")
    }


def test_a_node_in_the_middle_of_a_network(agrees: Callable[..., InferenceSession], device: dmlvk.Device) -> None:
    feeds = {"x": IMAGE, **FILTERS}
    session = agrees(NETWORK.replace("MIDDLE", "ai.onnx.ml.Binarizer <threshold = 0.2>"), feeds)
    report = session.report()
    nbytes = 4 * 8 * 8 * 4
    assert _hosted(report) == {"c": ("Binarizer", nbytes, nbytes)}
    assert f"c (Binarizer) in ONNX Runtime: the operator has no converter; {nbytes / 1024} KiB from the device" in str(
        report
    )
    on_device = InferenceSession(_model(NETWORK.replace("MIDDLE", "Identity")), device)
    on_device.run(None, feeds)
    assert report.dispatches == on_device.report().dispatches == 2


def test_text_and_what_follows_from_it(agrees: Callable[..., InferenceSession]) -> None:
    session = agrees(WORDS, {"text": TEXT})
    assert _hosted(session.report()) == {"upper": ("StringNormalizer", 0, 0), "places": ("LabelEncoder", 0, TEXT.size * 8)}
    assert len(_groups(session)) == 1
    with pytest.raises(dmlvk.UnsupportedError, match=r"'upper' is a tensor\(string\), and only tensors of numbers"):
        session.run_with_device_arrays(None, {"text": TEXT})
    with pytest.raises(dmlvk.ModelError, match="'text' is a tensor"):
        session.run(None, {"text": np.zeros(3)})


def test_each_run_counts_its_own_bytes(agrees: Callable[..., InferenceSession]) -> None:
    session = agrees(WORDS, {"text": TEXT})
    session.run(None, {"text": TEXT[:1]})
    assert _hosted(session.report())["places"] == ("LabelEncoder", 0, 8)


def test_a_node_that_reads_nothing_of_the_device_does_not_cut_it(agrees: Callable[..., InferenceSession]) -> None:
    text = """
    apart (float[2] x, string[2] s) => (float[2] y) {
        a = Exp (x)
        n = ai.onnx.ml.LabelEncoder <keys_strings = ["a"], values_floats = [2.0]> (s)
        b = Add (a, n)
        m = ai.onnx.ml.LabelEncoder <keys_strings = ["b"], values_floats = [3.0]> (s)
        c = Mul (b, a)
        y = Sub (c, m)
    }"""
    session = agrees(text, {"x": IMAGE[0, 0, 0, :2], "s": TEXT[:2]})
    network = session._loaded.network
    assert (len(network.program.parts), len(_groups(session)), network.region_count) == (2, 1, 1)


BODIES = {
    "Loop": """
    loop (int64 n, float[1,2] x) => (float[1,2] y, string[K,1,2] texts) {
        y, texts = Loop (n, , x) <body = round (int64 i, bool goes_on, float[1,2] z)
            => (bool more, float[1,2] w, string[1,2] t) {
            more = Identity (goes_on)
            h = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (z)
            w = Neg (h)
            t = Cast <to = 8> (z)
        }>
    }""",
    "If": """
    branch (bool c, float[1,2] x) => (float[1,2] y) {
        r = If (c) <then_branch = yes () => (float[1,2] p) { p = ai.onnx.ml.Normalizer <norm = "L1"> (x) },
                    else_branch = no () => (float[1,2] q) { q = Neg (x) }>
        y = Neg (r)
    }""",
    "Scan": """
    scan (float[2] s, float[3,2] x) => (float[2] y, float[3,2] z) {
        y, z = Scan (s, x) <num_scan_inputs = 1, body = round (float[2] a, float[2] b) => (float[2] d, float[2] e) {
            h = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (b)
            d = Add (a, h)
            e = Identity (h)
        }>
    }""",
}


@pytest.mark.parametrize(("name", "feeds"), [
    ("Loop", {"n": np.array(3)}),
    ("If", {"c": np.array(True)}),
    ("If", {"c": np.array(False)}),
    ("Scan", {"s": np.zeros(2, np.float32), "x": IMAGE[0, 0, :3, :2]}),
])  # fmt: skip
def test_inside_of_others(agrees: Callable[..., InferenceSession], name: str, feeds: dict[str, Any]) -> None:
    session = agrees(BODIES[name], {"x": IMAGE[0, 0, :1, :2], **feeds})
    rounds = {"Loop": 3, "Scan": 3}.get(name, int(feeds.get("c", 0)))
    operator = "Normalizer" if name == "If" else "Scaler"
    assert [found[2] for found in _hosted(session.report()).values() if found[0] == operator] == [8 * rounds] * bool(rounds)


@pytest.mark.skipif(sys.platform != "linux", reason="the locale of another system is its own")
def test_text_of_no_locale(device: dmlvk.Device) -> None:
    """ONNX Runtime's own default is a locale that this machine may lack."""
    session = InferenceSession(_model(WORDS.replace(', locale = "C.UTF-8"', "")), device, HOST)
    (upper,) = session.run(["upper"], {"text": np.array(["fa\u00e7ade"])})
    assert upper.tolist() == ["FA\u00c7ADE"]


def test_sequences_and_constants_of_text(agrees: Callable[..., InferenceSession]) -> None:
    agrees(
        """
    lists (string[2] x) => (string[4] y, string[2] z, string[2] c, int64[1] n) {
        c = Constant <value_strings = ["p", "q"]> ()
        s = SequenceConstruct (x, c)
        y = ConcatFromSequence <axis = 0> (s)
        one = Constant <value_int = 1> ()
        at = SequenceAt (s, one)
        z = StringNormalizer <case_change_action = "UPPER", locale = "C.UTF-8"> (at)
        n = Shape (at)
    }""",
        {"x": TEXT[:2]},
    )


def test_what_is_no_tensor_is_passed_on(agrees: Callable[..., InferenceSession]) -> None:
    agrees(
        """
    maps (float[2,2] x) => (seq(map(string, float)) y) {
        p = Neg (x)
        y = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (p)
    }""",
        {"x": IMAGE[0, 0, :2, :2]},
    )


def test_an_error_by_default(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.UnsupportedError, match="'text' has elements of type string"):
        InferenceSession(_model(WORDS), device)
    with pytest.raises(dmlvk.UnsupportedNodeError, match=r"Binarizer, opset 1.*: the operator has no converter$"):
        InferenceSession(_model(NETWORK.replace("MIDDLE", "ai.onnx.ml.Binarizer")), device)
    with pytest.raises(dmlvk.InvalidArgumentError, match='on_unsupported: must be "error" or "host"; got \'cpu\''):
        InferenceSession(_model(WORDS), device, SessionOptions(on_unsupported="cpu"))  # type: ignore[arg-type]


def test_what_onnx_runtime_cannot_run_either(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model("images (uint8[N] x) => (uint8[H,W,3] y) { y = ImageDecoder (x) }")
    model.opset_import[0].version = 20
    with pytest.raises(dmlvk.UnsupportedNodeError, match=r"no converter; ONNX Runtime cannot run it either: .*ImageDecoder"):
        InferenceSession(model, device, HOST)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(dmlvk.UnsupportedNodeError, match="on the host, is not installed: pip install onnxruntime"):
        InferenceSession(_model(WORDS), device, HOST)


def test_a_run_that_fails_there_leaves_the_session_usable(device: dmlvk.Device) -> None:
    model = _model("""
    numbers (string[N] x) => (float[N] y) {
        a = Cast <to = 1> (x)
        y = Neg (a)
    }""")
    session = InferenceSession(model, device, HOST)
    with pytest.raises(dmlvk.ModelError, match="ONNX Runtime cannot run 'a': "):
        session.run(None, {"x": np.array(["one"])})
    np.testing.assert_array_equal(session.run(None, {"x": np.array(["1", "2.5"])})[0], [-1, -2.5])
