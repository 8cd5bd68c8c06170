"""The work into which faults are put. A scenario is made, which prepares it, then does ``work``, whose calls may fail.

``again`` is the work once more, and whatever was done before it: what must still go, with the same bits, after a fault.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import pathlib
import re
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from layer import Layer
from onnx import TensorProto, helper, numpy_helper

import dmlvk
import dmlvk.onnx
import dmlvk.ort
from dmlvk.engine import default_device
from dmlvk.llm.config import Weights
from dmlvk.llm.decoder import Decoder
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.sampling import Sampling

_RNG: Final = np.random.default_rng(7)


def _numbers(*sizes: int) -> np.ndarray:
    return _RNG.standard_normal(sizes).astype(np.float32)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray],
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "faults",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


_LAYERS: Final = (
    helper.make_node("Mul", ["x", "first"], ["a"]),
    helper.make_node("Gather", ["a", "places"], ["b"], axis=1),
    helper.make_node("Add", ["b", "second"], ["c"]),
    helper.make_node("Concat", ["c", "b"], ["y"], axis=1),
)
_WEIGHTS: Final = {"first": _numbers(8), "second": _numbers(3), "places": np.array([5, 0, 2])}

LAYERS: Final = _model(_LAYERS, {"x": ["rows", 8]}, ["y"], _WEIGHTS)
"""A network of any number of rows. Its kernels, as those of all scenarios, are such as a driver compiles in little time."""

FIXED: Final = _model(_LAYERS, {"x": [3, 8]}, ["y"], _WEIGHTS)
"""The same of three rows, of which the plan is made while it is loaded."""

LOOP: Final = _model(
    [
        helper.make_node("Mul", ["x", "w"], ["start"]),
        helper.make_node(
            "Loop",
            ["", "yes", "start"],
            ["y"],
            body=helper.make_graph(
                [
                    helper.make_node("Mul", ["v", "two"], ["doubled"]),
                    helper.make_node("GatherND", ["doubled", "corner"], ["most"]),
                    helper.make_node("Less", ["most", "hundred"], ["more"]),
                ],
                "body",
                [
                    helper.make_tensor_value_info("i", TensorProto.INT64, []),
                    helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
                ],
                [
                    helper.make_tensor_value_info("more", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("doubled", TensorProto.FLOAT, None),
                ],
                [
                    numpy_helper.from_array(np.array(2, np.float32), "two"),
                    numpy_helper.from_array(np.array(100, np.float32), "hundred"),
                    numpy_helper.from_array(np.array([0, 0]), "corner"),
                ],
            ),
        ),
    ],
    {"x": ["rows", 4]},
    ["y"],
    {"w": np.abs(_numbers(4)) + 1, "yes": np.array(True)},
)
"""A loop that ends by what it computes."""

STEP: Final = _model(
    [
        helper.make_node("Mul", ["x", "w"], ["key"]),
        helper.make_node("Concat", ["past", "key"], ["present"], axis=0),
        helper.make_node("Gather", ["present", "places"], ["some"], axis=0),
        helper.make_node("Add", ["some", "x"], ["y"]),
    ],
    {"x": [1, 8], "past": ["length", 8]},
    ["y", "present"],
    {"w": _numbers(8), "places": np.array([0, 3, -1])},
)
"""A step of a decoder, whose cache grows by one."""

ROWS: Final = {rows: _numbers(rows, 8) for rows in (1, 2, 3, 4, 5)}
FOURS: Final = {rows: np.abs(_numbers(rows, 4)) + 1 for rows in (2, 3)}


class Scenario:
    """Work on a device: a new one, if it is given none.

    Attributes:
        fresh: Whether it needs a process that has not used Vulkan yet.
        own_device: Whether it makes its devices itself.
        keeps_device: Whether all of the class in a process work on one device, until it is lost. A fault is cheap then:
            nearly all of the time goes into pipelines. It finds what the ones before have left there. Faults in the
            making of devices and pipelines are the other scenarios'.
        last_allocations: How many allocations at its end are not ours, and may not fail.
    """

    fresh = False
    own_device = False
    keeps_device = False
    last_allocations = 0
    _kept: ClassVar[dict[type[Scenario], dmlvk.Device]] = {}

    def __init__(self, device: dmlvk.Device | None = None) -> None:
        self.device: dmlvk.Device | None = device or (self.kept_device() if self.keeps_device else dmlvk.Device())
        self.prepare()

    @classmethod
    def kept_device(cls) -> dmlvk.Device:
        """The device that is kept, on which the work has been done before, with the staging memory of a read that an error
        holds while there is another."""
        kept = cls._kept.get(cls)
        if kept is None or kept.get_device_removed_reason() is not None:
            kept = cls._kept[cls] = dmlvk.Device()
            cls(kept).again()
            buffer = kept.create_buffer(4)
            for read in [buffer.begin_read(4), buffer.begin_read(4)]:
                read.result()
        return kept

    @classmethod
    def forget_device(cls) -> None:
        cls._kept.pop(cls, None)

    def prepare(self) -> None:
        """What comes before the faults."""

    def work(self) -> list[np.ndarray]:
        """Into which the faults come."""
        raise NotImplementedError

    def again(self) -> list[np.ndarray]:
        return self.work()

    def on_lost_device(self) -> list[np.ndarray]:
        """What a lost device refuses."""
        return self.work()

    def recovered(self) -> Scenario:
        """A scenario after its device was lost: on a new one."""
        return type(self)()

    def live_bytes(self) -> int:
        """Bytes of buffers that are alive on the device, without parameters where it is kept: when they need another chunk
        depends on what was there before."""
        memory = {} if self.device is None else self.device.memory()
        return memory.get("live", 0) - (memory.get("parameters", 0) if self.keeps_device else 0)


class OpenInstance(Scenario):
    """What a process does once, before its first device."""

    fresh = own_device = True
    last_allocations = 1  # nanobind's table of objects: where there is no memory for it, the process ends

    def __init__(self) -> None:
        self.device = None

    def work(self) -> list[np.ndarray]:
        dmlvk.devices()
        return []

    def again(self) -> list[np.ndarray]:
        self.work()
        self.device = dmlvk.Device()
        return [dmlvk.eager.element_wise_add(ROWS[2], ROWS[2], device=self.device)]


class OpenDevice(Scenario):
    own_device = True
    last_allocations = 2  # nanobind's holder of the device, and its note of it

    def __init__(self) -> None:
        self.device = None

    def work(self) -> list[np.ndarray]:
        self.device = None
        self.device = dmlvk.Device()
        return []

    def again(self) -> list[np.ndarray]:
        self.work()
        return [dmlvk.eager.element_wise_add(ROWS[2], ROWS[2], device=self.device)]


class CloseDevice(Scenario):
    """With pipelines that the cache's file lacks."""

    own_device = True

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        with mock.patch.dict(os.environ, DMLVK_CACHE_DIR=self._folder.name):
            super().__init__()

    def prepare(self) -> None:
        dmlvk.eager.element_wise_add(ROWS[2], ROWS[2], device=self.device)

    def work(self) -> list[np.ndarray]:
        self.device = None
        return []

    def again(self) -> list[np.ndarray]:
        self.device = dmlvk.Device()
        return [dmlvk.eager.element_wise_add(ROWS[2], ROWS[2], device=self.device)]


class EagerCall(Scenario):
    def work(self) -> list[np.ndarray]:
        return [dmlvk.eager.element_wise_multiply(ROWS[2], ROWS[2], device=self.device)]


class DeviceArrays(Scenario):
    """To the device and back: small ones, and one of more than a chunk of the staging ring."""

    keeps_device = True
    large = np.arange(3 << 20, dtype=np.float32)

    def work(self) -> list[np.ndarray]:
        assert self.device is not None
        arrays = [dmlvk.DeviceArray.from_numpy(array, self.device) for array in (ROWS[2], self.large, ROWS[5].T)]
        return [array.numpy() for array in arrays]


class CompileGraph(Scenario):
    def work(self) -> list[np.ndarray]:
        graph = dmlvk.Graph(self.device)
        x, y = graph.input((5, 8)), graph.input((8,), owned_by_dml=True)
        function = graph.compile(graph.join([x * y, x], axis=1) + np.float32(1))
        function.initialize({y: ROWS[1][0]})
        return [function(ROWS[5]).numpy()]


class CallGraph(Scenario):
    """Calls whose results are read: native code repeats the last of them, and brings the results to the host."""

    def prepare(self) -> None:
        graph = dmlvk.Graph(self.device)
        x = graph.input((5, 8))
        self.function = graph.compile(x * x + np.float32(1))
        # As much memory as the function keeps: a failure may hold a result.
        for result in [self.function(ROWS[5]) for _ in range(2)]:
            result.numpy()

    def work(self) -> list[np.ndarray]:
        return [self.function(ROWS[5]).numpy() for _ in range(4)]


class LoadSession(Scenario):
    def work(self) -> list[np.ndarray]:
        self.session = dmlvk.onnx.InferenceSession(FIXED, device=self.device)
        return []

    def again(self) -> list[np.ndarray]:
        self.work()
        return self.session.run(None, {"x": ROWS[3]})


class SessionScenario(Scenario):
    """After a loss its session moves to a new device."""

    session: dmlvk.onnx.InferenceSession

    def recovered(self) -> Scenario:
        self.session.recover()
        self.device = self.session.device
        return self


class FirstRun(SessionScenario):
    model = LAYERS

    def prepare(self) -> None:
        self.session = dmlvk.onnx.InferenceSession(self.model, device=self.device)

    def work(self) -> list[np.ndarray]:
        return self.session.run(None, {"x": ROWS[3]})

    def again(self) -> list[np.ndarray]:
        return [*self.work(), *self.session.run(None, {"x": ROWS[2]}), *self.work()]


class SecondShape(FirstRun):
    keeps_device = True

    def prepare(self) -> None:
        super().prepare()
        self.session.run(None, {"x": ROWS[2]})

    def again(self) -> list[np.ndarray]:
        return [*self.session.run(None, {"x": ROWS[2]}), *self.work(), *self.session.run(None, {"x": ROWS[2]})]


class FourthShape(SecondShape):
    """From the third on sizes are symbols; only two plans are kept, so that one has to go."""

    def prepare(self) -> None:
        options = dmlvk.onnx.SessionOptions(plan_cache_size=2)
        self.session = dmlvk.onnx.InferenceSession(self.model, device=self.device, options=options)
        for rows in (5, 4, 2):
            self.session.run(None, {"x": ROWS[rows]})


class LoopModel(SessionScenario):
    keeps_device = True

    def prepare(self) -> None:
        self.session = dmlvk.onnx.InferenceSession(LOOP, device=self.device)

    def work(self) -> list[np.ndarray]:
        return self.session.run(None, {"x": FOURS[3]})

    def again(self) -> list[np.ndarray]:
        return [*self.work(), *self.session.run(None, {"x": FOURS[2]})]


class DecoderStep(SessionScenario):
    """The cache stays on the device and is the next step's input."""

    keeps_device = True

    def prepare(self) -> None:
        self.session = dmlvk.onnx.InferenceSession(STEP, device=self.device)
        self.past = dmlvk.DeviceArray.from_numpy(ROWS[4], self.device)

    def recovered(self) -> Scenario:
        super().recovered()
        self.past = dmlvk.DeviceArray.from_numpy(ROWS[4], self.device)
        return self

    def work(self) -> list[np.ndarray]:
        past = self.past
        found = []
        for _ in range(4):
            y, past = self.session.run_with_device_arrays(["y", "present"], {"x": ROWS[1], "past": past})
            found.append(y.numpy())
        return [*found, past.numpy()]


class IOBinding(SessionScenario):
    """A run, then one with other arrays bound, for which the copies are recorded anew."""

    keeps_device = True

    def prepare(self) -> None:
        self.session = dmlvk.onnx.InferenceSession(LAYERS, device=self.device)
        self.binding = self.session.io_binding()
        self.bound: tuple[dmlvk.DeviceArray, dmlvk.DeviceArray] | None = None

    def recovered(self) -> Scenario:
        super().recovered()
        self.binding, self.bound = self.session.io_binding(), None
        return self

    def work(self) -> list[np.ndarray]:
        found = []
        for scale in (1, 2):
            assert self.device is not None
            rows = dmlvk.DeviceArray.from_numpy(ROWS[3] * np.float32(scale), self.device)
            target = dmlvk.DeviceArray.from_numpy(np.zeros((3, 6), np.float32), self.device)
            self.bound = None
            self.binding.bind_input("x", rows)
            self.binding.bind_output("y", target)
            self.bound = rows, target
            self.session.run_with_iobinding(self.binding)
            found.append(target.numpy())
        return found

    def again(self) -> list[np.ndarray]:
        """As it is bound, if the work came to that, and then anew."""
        same = True
        if self.bound is not None:
            rows, target = self.bound
            self.session.run_with_iobinding(self.binding)
            same = np.array_equal(target.numpy(), self.session.run(None, {"x": rows})[0])
        found = [np.array(same), *self.work(), *self.work()]
        self.bound = None
        self.binding.clear_binding_inputs()
        self.binding.clear_binding_outputs()
        return found


class ProfiledRun(SessionScenario):
    keeps_device = True

    def prepare(self) -> None:
        self.session = dmlvk.onnx.InferenceSession(FIXED, device=self.device)

    def work(self) -> list[np.ndarray]:
        self.session.profile({"x": ROWS[3]})
        return self.session.run(None, {"x": ROWS[3]})


@functools.cache
def _weights() -> Weights:
    """Of a tiny language model."""
    sys.path.append(str(pathlib.Path(__file__).parents[1]))
    from language_models import write_model

    sizes = {"block_count": 1, "embedding_length": 32, "feed_forward_length": 32}
    with tempfile.TemporaryDirectory() as folder:
        return load_gguf(write_model(pathlib.Path(folder, "model.gguf"), "llama", **sizes))


class LoadDecoder(Scenario):
    """The weights and the cache of a language model come to the device."""

    def work(self) -> list[np.ndarray]:
        assert self.device is not None
        self.decoder = Decoder(self.device, _weights(), capacity=12)
        return []

    def again(self) -> list[np.ndarray]:
        self.work()
        return self.decoder.feed([[3, 1, 4]])


class StepDecoder(Scenario):
    """A prompt, and steps that choose tokens on the device."""

    keeps_device = True

    def prepare(self) -> None:
        assert self.device is not None
        self.decoder = Decoder(self.device, _weights(), capacity=12)

    def work(self) -> list[np.ndarray]:
        decoder, greedy = self.decoder, [Sampling()]
        (logits,) = decoder.feed([[3, 1, 4]])
        return [logits, decoder.step(greedy, [5]), decoder.step(greedy), decoder.begin_steps(greedy, 2).tokens()]

    def again(self) -> list[np.ndarray]:
        """From an empty cache, and from where a prompt has ended."""
        self.decoder.truncate(0, 0)
        found = self.work()
        self.decoder.truncate(0, 3)
        return [*found, self.decoder.step([Sampling()], [5])]


class ProviderRun(Scenario):
    """A session of ONNX Runtime's is made with the provider, and run."""

    def prepare(self) -> None:
        self.session: onnxruntime.InferenceSession | None = None
        dmlvk.ort.register()
        Layer().watch_allocations(dmlvk.ort._plugin)
        assert self.device is not None
        # The provider runs on the process's device, which never goes: this scenario's is it, without being held. It stays
        # after the work, because sessions ask for memory whenever they run.
        vars(dmlvk.ort.provider)["default_device"] = weakref.ref(self.device)

    def work(self) -> list[np.ndarray]:
        self.session = None
        with self._errors():
            self.session = self._opened()
            return list(self.session.run(None, {"x": ROWS[3]}))

    @staticmethod
    def _opened() -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.add_provider_for_devices(dmlvk.ort.get_devices()[:1], {})
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return onnxruntime.InferenceSession(LAYERS, options, enable_fallback=0)

    def again(self) -> list[np.ndarray]:
        """In the session that there is, and in a new one."""
        before = self.session
        found = [*self.work(), *self.work()]
        if before is not None and not np.array_equal(before.run(None, {"x": ROWS[3]})[0], found[0]):
            return []
        return found

    @staticmethod
    @contextlib.contextmanager
    def _errors() -> Iterator[None]:
        """Raises the error of dmlvk's that ONNX Runtime's names, in its place."""
        try:
            yield
        except Exception as error:
            found = re.search(r"\b(\w+Error|KeyboardInterrupt): |std::(bad_alloc)", str(error))
            name = "MemoryError" if found and found[2] else found[1] if found else ""
            if kind := {**vars(builtins), **vars(dmlvk)}.get(name):
                raise kind.__new__(kind, str(error)) from error  # whatever else it is made of
            raise


class PreparedProviderRun(ProviderRun):
    """Runs of sizes that a session has met, which need no Python: of the host's arrays, and of the device's."""

    keeps_device = True

    def prepare(self) -> None:
        super().prepare()
        self.session = self._opened()
        place = dmlvk.ort.memory_of(dmlvk.ort.get_devices()[0])
        rows, target = ROWS[3], np.zeros((3, 6), np.float32)
        self.values = [onnxruntime.OrtValue.ortvalue_from_numpy(array, *place) for array in (rows, target)]
        for _ in range(2):
            self.session.run(None, {"x": rows})

    def work(self) -> list[np.ndarray]:
        assert self.session is not None
        found = []
        with self._errors():
            for _ in range(2):
                found += self.session.run(None, {"x": ROWS[3]})
                binding = self.session.io_binding()
                binding.bind_ortvalue_input("x", self.values[0])
                binding.bind_ortvalue_output("y", self.values[1])
                self.session.run_with_iobinding(binding)
                found.append(self.values[1].numpy())
        return found

    def again(self) -> list[np.ndarray]:
        """In the session that there is, and with other sizes between."""
        assert self.session is not None
        return [*self.work(), *self.session.run(None, {"x": ROWS[2]}), *self.work()]


class TrainingStep(Scenario):
    """Steps of a network on PyTorch's device: compiled forward and backward, and an optimiser by single operators.

    PyTorch's device is the process's own. What PyTorch has compiled stays, on whichever that is.
    """

    own_device = keeps_device = True

    @classmethod
    def kept_device(cls) -> dmlvk.Device:
        """Whoever fails has tensors of a step, and its error keeps them: graphs then have other memory for theirs, from then
        on. So that this is no leak, it has come to that before."""
        if cls._kept.get(cls) is not dmlvk.default_device():
            kept = cls._kept[cls] = dmlvk.default_device()
            held = [cls(kept) for _ in range(5)]
            for scenario in held:
                scenario.again()
                scenario.held.append(scenario.loss(scenario.batch, *scenario.weights))  # with what its backward would read
        return cls._kept[cls]

    @classmethod
    def forget_device(cls) -> None:
        """With all that PyTorch has compiled for it, which holds it."""
        super().forget_device()
        _loss.cache_clear()
        if "torch" in sys.modules:
            sys.modules["torch"].compiler.reset()
            sys.modules["dmlvk.torch.device"]._operators.clear()
        default_device._opened.clear()

    def prepare(self) -> None:
        """Numbers of the network, as they are before the first step."""
        torch, self.loss = _loss()
        numbers = [torch.from_numpy(array.copy()).to("dmlvk") for array in (ROWS[1][0], FOURS[2], ROWS[3])]
        *weights, self.batch = numbers
        self.weights = [weight.requires_grad_() for weight in weights]
        self.held: list[Any] = []

    def work(self) -> list[np.ndarray]:
        self.prepare()  # a step that failed may have changed one number and not the other
        return self.on_lost_device()

    def on_lost_device(self) -> list[np.ndarray]:
        """Steps with the tensors that there are."""
        found = []
        for _ in range(2):
            loss = self.loss(self.batch, *self.weights)
            loss.backward()
            self.held += [loss, *(weight.grad for weight in self.weights)]
            for weight in self.weights:
                weight.data.add_(weight.grad, alpha=-0.125)
                weight.grad = None
            found.append(loss.detach().cpu().numpy())
        return [*found, *(weight.detach().cpu().numpy() for weight in self.weights)]


@functools.cache
def _loss() -> tuple[Any, Any]:
    """PyTorch, which takes seconds to import, and a compiled function of a batch and two numbers of a network."""
    import torch

    import dmlvk.torch

    def loss(x: Any, scale: Any, table: Any) -> Any:
        return (torch.relu(x * scale)[:2, :4] * table).sum()

    return torch, torch.compile(loss, backend=dmlvk.torch.backend)


class Recovery(FirstRun):
    """A session whose device is lost moves to a new one."""

    own_device = True

    def prepare(self) -> None:
        super().prepare()
        faults = Layer()
        faults.plan("vkQueueSubmit", 1, 1, "VK_ERROR_DEVICE_LOST")
        with contextlib.suppress(dmlvk.DeviceLostError):
            self.session.run(None, {"x": ROWS[3]})
        faults.count()

    def work(self) -> list[np.ndarray]:
        self.session.recover()
        self.device = self.session.device
        return super().work()

    def on_lost_device(self) -> list[np.ndarray]:
        return super().work()


SCENARIOS: Final[dict[str, type[Scenario]]] = {
    "instance": OpenInstance,
    "device": OpenDevice,
    "eager call": EagerCall,
    "device arrays": DeviceArrays,
    "graph compile": CompileGraph,
    "graph call": CallGraph,
    "session load": LoadSession,
    "first run": FirstRun,
    "second shape": SecondShape,
    "fourth shape": FourthShape,
    "loop model": LoopModel,
    "decoder step": DecoderStep,
    "io-binding": IOBinding,
    "profiled run": ProfiledRun,
    "llm load": LoadDecoder,
    "llm step": StepDecoder,
    "provider run": ProviderRun,
    "prepared run": PreparedProviderRun,
    "training step": TrainingStep,
    "recovery": Recovery,
    "close": CloseDevice,
}
