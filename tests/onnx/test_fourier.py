"""Fourier transforms of other lengths, axes and kinds than ONNX's node cases have, those in two steps among them; against
numpy in double precision. Windows, frames and mel bands against onnxruntime's CPU and ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32


@pytest.fixture
def run(make_model: Any, make_session: Any) -> Callable[..., np.ndarray]:
    def run(op_type: str, opset: int, inputs: dict[str, Any], fed: tuple[str, ...], **attributes: Any) -> np.ndarray:
        """Inputs by name, None for one left out; those that are not fed are constants."""
        arrays = {name: array for name, array in inputs.items() if array is not None}
        feeds = {name: arrays[name] for name in fed}
        model = make_model(
            helper.make_node(op_type, [name if name in arrays else "" for name in inputs], ["y"], **attributes),
            {name: (array.dtype, array.shape) for name, array in feeds.items()},
            constants={name: np.asarray(array) for name, array in arrays.items() if name not in fed},
            opset=opset,
            output_types={"y": feeds[fed[0]].dtype},
        )
        session = make_session(model)
        (found,) = session.run(None, feeds)
        assert [record.op_type for record in session.report().gpu_nodes] == [op_type]
        return found

    return run


def _near(found: np.ndarray, wanted: np.ndarray) -> None:
    """Sums of 2048 products in float32 are off by up to 2e-6 of the largest number, over all lengths here."""
    parts = np.stack([wanted.real, wanted.imag], axis=-1)
    assert found.shape == parts.shape
    np.testing.assert_allclose(found, parts, rtol=0, atol=3e-6 * np.abs(parts).max())


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 7, 64, 1023, 1031, 1200, 4096, 5000])
def test_lengths(length: int, parts: int, inverse: int, run: Callable[..., np.ndarray]) -> None:
    """1031 is a prime: one product; from 1200 on there are two steps."""
    x = np.random.default_rng(length).standard_normal((2, length, parts)).astype(f32)
    found = run("DFT", 20, {"x": x, "n": None, "a": None}, ("x",), inverse=inverse)
    numbers = x[..., 0] + 1j * (x[..., 1] if parts == 2 else 0)
    _near(found, (np.fft.ifft if inverse else np.fft.fft)(numbers.astype(np.complex128)))


@pytest.mark.parametrize("length", [5, 12, 20, 2000])
@pytest.mark.parametrize("axis", [0, 1, -3])
def test_axes_and_given_lengths(axis: int, length: int, run: Callable[..., np.ndarray]) -> None:
    """Elements are left out, or zeros added."""
    x = np.random.default_rng(axis + 9).standard_normal((12, 3, 4, 1)).astype(f32)
    inputs = {"x": x, "n": np.array(length, np.int64), "a": np.array(axis, np.int64)}
    wanted = np.fft.fft(x[..., 0].astype(np.float64), n=length, axis=axis if axis >= 0 else axis + 1)
    _near(run("DFT", 20, inputs, ("x",)), wanted)
    _near(run("DFT", 17, {"x": x, "n": inputs["n"]}, ("x",), axis=axis), wanted)


@pytest.mark.parametrize("length", [9, 10, 1500])
def test_half_of_a_spectrum(length: int, run: Callable[..., np.ndarray]) -> None:
    x = np.random.default_rng(length).standard_normal((3, length, 1)).astype(f32)
    found = run("DFT", 20, {"x": x, "n": None, "a": None}, ("x",), onesided=1)
    _near(found, np.fft.rfft(x[..., 0].astype(np.float64)))


@pytest.mark.parametrize("length", [9, 10, 1500])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_real_signal_of_half_of_its_spectrum(length: int, axis: int, run: Callable[..., np.ndarray]) -> None:
    """Without a length it is even; what the half has beyond a length does not count."""
    x = (
        np.random.default_rng(length)
        .standard_normal((length // 2 + 1, 3, 2) if axis == 0 else (3, length // 2 + 1, 2))
        .astype(f32)
    )
    half = x[..., 0] + 1j * x[..., 1].astype(np.float64)
    for given in (None, length, length // 2):
        n, a = (None if number is None else np.array(number, np.int64) for number in (given, axis))
        found = run("DFT", 20, {"x": x, "n": n, "a": a}, ("x",), onesided=1, inverse=1)
        wanted = np.fft.irfft(half, n=given, axis=axis)
        assert found.shape == (*wanted.shape, 1)
        np.testing.assert_allclose(found[..., 0], wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


def test_too_long_for_a_matrix(run: Callable[..., np.ndarray]) -> None:
    with pytest.raises(dmlvk.UnsupportedError, match="a transform of 10007 elements at once"):
        run("DFT", 20, {"x": np.zeros((1, 10007, 1), f32), "n": None, "a": None}, ("x",))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("length", "step"), [(16, 5), (16, 16), (1100, 300)])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_transform(length: int, step: int, onesided: int, known: bool, run: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(step)
    x = rng.standard_normal((2, 3 * length + 7, 1)).astype(f32)
    window = rng.uniform(0.1, 1, length).astype(f32)
    inputs = {"x": x, "s": np.array(step, np.int64), "w": window, "n": np.array(length, np.int64)}
    found = run("STFT", 17, inputs, ("x",) if known else ("x", "w"), onesided=onesided)
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], length, axis=1)[:, ::step]
    wanted = np.fft.fft(frames.astype(np.float64) * window)
    _near(found, wanted[..., : length // 2 + 1] if onesided else wanted)


def test_short_time_transform_of_a_signal_of_two_dimensions(run: Callable[..., np.ndarray]) -> None:
    """Without the last dimension of size 1: what exporters write and ONNX Runtime takes."""
    x = np.random.default_rng(3).standard_normal((2, 30)).astype(f32)
    inputs = {"x": x, "s": np.array(4, np.int64), "w": None, "n": np.array(10, np.int64)}
    frames = np.lib.stride_tricks.sliding_window_view(x, 10, axis=1)[:, ::4]
    _near(run("STFT", 17, inputs, ("x",)), np.fft.rfft(frames))


def test_short_time_transform_of_complex_numbers(run: Callable[..., np.ndarray]) -> None:
    x = np.random.default_rng(8).standard_normal((1, 30, 2)).astype(f32)
    inputs = {"x": x, "s": np.array(4, np.int64), "w": None, "n": np.array(10, np.int64)}
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0] + 1j * x[..., 1], 10, axis=1)[:, ::4]
    _near(run("STFT", 17, inputs, ("x",), onesided=0), np.fft.fft(frames))


def test_refused(run: Callable[..., np.ndarray]) -> None:
    x = np.zeros((1, 8, 1), f32)
    with pytest.raises(dmlvk.ModelError, match="the last size must be 1 or 2"):
        run("DFT", 20, {"x": np.zeros((1, 8, 3), f32), "n": None, "a": None}, ("x",))
    with pytest.raises(dmlvk.ModelError, match="at least 1 element; got 0"):
        run("DFT", 20, {"x": x, "n": np.array(0, np.int64), "a": None}, ("x",))
    with pytest.raises(dmlvk.ModelError, match="a frame at most as many as the signal"):
        run("STFT", 17, {"x": x, "s": np.array(1, np.int64), "w": None, "n": np.array(9, np.int64)}, ("x",))


@pytest.mark.parametrize("settings", [(8, 16, 8192, 0.0, 4096.0), (40, 512, 16000, 20.0, 7600.0)], ids=str)
def test_mel_weights(
    settings: tuple[Any, ...], make_model: Any, make_session: Any, reference: Any, assert_close: Any
) -> None:
    """The settings are fed: each of them has a plan of its own, and the weights are a constant of it."""
    arrays = [np.array(value, f32 if isinstance(value, float) else np.int64) for value in settings]
    feeds = dict(zip("abcde", arrays, strict=True))
    node = helper.make_node("MelWeightMatrix", list(feeds), ["m"])
    times = helper.make_node("MatMul", ["x", "m"], ["y"])
    feeds["x"] = np.random.default_rng(9).standard_normal((3, settings[1] // 2 + 1)).astype(f32)
    model = make_model([node, times], {name: (array.dtype, array.shape) for name, array in feeds.items()}, opset=17)
    (found,) = make_session(model).run(None, feeds)
    for runtime in ("onnxruntime", "onnx"):
        assert_close(found, reference(model, feeds, runtime)[0].astype(f32))
