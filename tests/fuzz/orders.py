"""Work in any order: sessions, eager calls, functions, bindings and views of arrays that are kept and dropped, on several
devices and from several threads, with calls among it that fail. Every number that is read is the right one, to the bit.

All numbers are small and whole, so that numpy says exactly what must come. A view of a device array is followed by the same
view of a numpy array, so that what is written to one shows in the other.
"""

from __future__ import annotations

import functools
import gc
import random
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dmlvk
import dmlvk.onnx
from dmlvk import DeviceArray, eager
from dmlvk.spec.errors import DmlvkError
from fuzz.answers import shared_device
from fuzz.campaign import Fault, Overtime

Array = NDArray[Any]
_WEIGHTS: Final = np.array([[1, -1, 0, 2], [0, 2, -1, 1], [-2, 0, 1, 0], [1, 1, -1, -1]], np.float32)
_ACTIONS: Final = 30


class Kept(NamedTuple):
    """An array on a device, and what it must hold."""

    array: DeviceArray
    wanted: Array


class Model(NamedTuple):
    """A small model of an input "x" of (n, 4) numbers, and what its output "y" must be."""

    data: bytes
    wanted: Callable[[Array], Array]


def _model(
    nodes: list[onnx.NodeProto], wanted: Callable[[Array], Array], data_type: int = TensorProto.FLOAT, **more: Array
) -> Model:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", data_type, None)
    graph = helper.make_graph(nodes, "fuzzed", [x], [y], [numpy_helper.from_array(_WEIGHTS, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Model(model.SerializeToString(), wanted)


@functools.cache
def models() -> tuple[Model, ...]:
    """One region; one with a value that the host reads; a loop that the host drives."""
    node = helper.make_node
    body = helper.make_graph(
        [node("Add", ["before", "x"], ["after"]), node("Identity", ["on"], ["still"])],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
        ],
    )
    count = [node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["rounds"], to=TensorProto.INT64)]
    return (
        _model(
            [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["r"]), node("Add", ["x", "r"], ["y"])],
            lambda x: x + np.maximum(x @ _WEIGHTS, 0),
        ),
        _model([node("NonZero", ["x"], ["y"])], lambda x: np.array(np.nonzero(x), np.int64), TensorProto.INT64),
        _model(
            [*count, node("Loop", ["rounds", "", "x"], ["y"], body=body)],
            lambda x: x * (1 + max(int(x.max()), 0)),
        ),
    )


class Work:
    """What an attempt has at hand.

    Attributes:
        log: What it did, a line each.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[str] = []
        self.devices = [shared_device()]
        self.kept: list[Kept] = []
        self.read: list[tuple[Array, Array]] = []
        self.errors: list[DmlvkError] = []
        self.sessions: list[tuple[Model, dmlvk.onnx.InferenceSession]] = []
        self.bindings: list[tuple[Model, dmlvk.onnx.InferenceSession, Any, Array]] = []
        self.functions: list[Any] = []

    def act(self) -> None:
        """Does one thing."""
        action = self.rng.choice(_EVERY)
        self.log.append(action.__name__)
        action(self)

    def close(self) -> None:
        """Reads all that is left."""
        for kept in self.kept:
            self.compare(kept.array.numpy(), kept.wanted)
        for found, copy in self.read:
            self.compare(found, copy)

    def compare(self, found: Array, wanted: Array) -> None:
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, (
            f"{found.dtype} {found.shape}, not {wanted.shape}"
        )
        np.testing.assert_array_equal(found, wanted)

    def device(self) -> dmlvk.Device:
        return self.rng.choice(self.devices)

    def numbers(self, rows: int | None = None) -> Array:
        rows = self.rng.choice((1, 2, 3, 5, 8, 64)) if rows is None else rows
        return np.array([self.rng.randrange(-3, 4) for _ in range(rows * 4)], np.float32).reshape(rows, 4)

    def some(self, device: dmlvk.Device | None = None, *, packed: bool = False) -> Kept:
        """A kept array of (n, 4) floats, perhaps a new one."""
        fit = [
            kept
            for kept in self.kept
            if kept.wanted.dtype == np.float32
            and kept.wanted.ndim == 2
            and kept.wanted.shape[1] == 4
            and np.abs(kept.wanted).max(initial=0) < 1000
            and (device is None or kept.array.device is device)
            and (kept.array.is_packed or not packed)
        ]
        if fit and self.rng.random() < 0.8:
            return self.rng.choice(fit)
        source = self.numbers()
        kept = Kept(DeviceArray.from_numpy(source, self.device() if device is None else device), source.copy())
        source[...] = 99  # it is the caller's again
        self.kept.append(kept)
        return kept

    def session(self) -> tuple[Model, dmlvk.onnx.InferenceSession]:
        if not self.sessions or self.rng.random() < 0.15:
            model = self.rng.choice(models())
            self.sessions.append((model, dmlvk.onnx.InferenceSession(model.data, device=self.device())))
        return self.rng.choice(self.sessions)


# -- what may be done


def _upload(work: Work) -> None:
    work.some()


def _sum(work: Work) -> None:
    a = work.some()
    fit = [kept for kept in work.kept if kept.wanted.shape == a.wanted.shape and kept.array.device is a.array.device]
    b = work.rng.choice([kept for kept in fit if kept.wanted.dtype == a.wanted.dtype])
    function, numpys = work.rng.choice(((eager.element_wise_add, np.add), (eager.element_wise_subtract, np.subtract)))
    work.kept.append(Kept(function(a.array, b.array), numpys(a.wanted, b.wanted)))


def _product(work: Work) -> None:
    a = work.some()
    product = eager.gemm(a.array[None, None], _WEIGHTS[None, None])
    work.kept.append(Kept(product, (a.wanted @ _WEIGHTS)[None, None]))


def _view(work: Work) -> None:
    kept = work.rng.choice(work.kept or [work.some()])
    if kept.wanted.ndim == 2 and work.rng.random() < 0.5:
        first, step = work.rng.randrange(max(kept.wanted.shape[0], 1)), work.rng.choice((1, 2))
        work.kept.append(Kept(kept.array[first::step], kept.wanted[first::step]))
    else:
        work.kept.append(Kept(kept.array.T, kept.wanted.T))


def _read(work: Work) -> None:
    kept = work.rng.choice(work.kept or [work.some()])
    work.compare(kept.array.numpy(), kept.wanted)


def _drop(work: Work) -> None:
    lists: tuple[list[Any], ...] = (work.kept, work.sessions, work.bindings, work.functions)
    for items in lists:
        if items and work.rng.random() < 0.5:
            del items[work.rng.randrange(len(items))]
    if work.rng.random() < 0.3:
        gc.collect()


def _run(work: Work) -> None:
    model, session = work.session()
    x = work.numbers()
    wanted = model.wanted(x)
    (found,) = session.run(None, {"x": x})
    x[...] = 99
    work.compare(found, wanted)
    work.read.append((found, wanted))


def _run_on_device(work: Work) -> None:
    model, session = work.session()
    x = work.some(session.device)
    (found,) = session.run_with_device_arrays(None, {"x": x.array})
    work.kept.append(Kept(found, model.wanted(x.wanted)))


def _bind(work: Work) -> None:
    model, session = work.session()
    binding = session.io_binding()
    x = work.some(session.device)
    wanted = x.wanted
    if work.rng.random() < 0.5:
        binding.bind_input("x", x.array)
    else:
        wanted = work.numbers()
        binding.bind_cpu_input("x", wanted.copy())
    binding.bind_output("y")
    work.bindings.append((model, session, binding, wanted))


def _run_binding(work: Work) -> None:
    if not work.bindings:
        _bind(work)
    model, session, binding, x = work.rng.choice(work.bindings)
    wanted = model.wanted(x)
    target = None
    if work.rng.random() < 0.4 and wanted.dtype == np.float32:
        fit = [
            kept
            for kept in work.kept
            if kept.wanted.shape == wanted.shape and kept.array.is_packed and kept.array.device is session.device
        ]
        fit = [kept for kept in fit if kept.wanted.dtype == np.float32 and not np.shares_memory(kept.wanted, x)]
        target = work.rng.choice(fit) if fit else None
    binding.bind_output("y", None if target is None else target.array)
    session.run_with_iobinding(binding)
    if target is not None:
        target.wanted[...] = wanted
    else:
        work.kept.append(Kept(binding.get_outputs()[0], wanted))


def _call_function(work: Work) -> None:
    if not work.functions or work.rng.random() < 0.3:
        device = work.device()
        graph = dmlvk.Graph(device)
        x = graph.input((3, 4))
        work.functions.append((device, graph.compile(x @ _WEIGHTS + x)))
    device, function = work.rng.choice(work.functions)
    x = work.numbers(3)
    argument = DeviceArray.from_numpy(x, device) if work.rng.random() < 0.5 else x
    work.kept.append(Kept(function(argument), x @ _WEIGHTS + x))


def _fail(work: Work) -> None:
    """A call that must fail; the error is kept, as a notebook does."""
    _, session = work.session()
    a = work.some()
    calls: tuple[Callable[[], object], ...] = (
        lambda: session.run(None, {"x": np.zeros((2, 5), np.float32)}),
        lambda: session.run(["none"], {"x": work.numbers()}),
        lambda: session.run_with_iobinding(session.io_binding()),
        lambda: eager.element_wise_add(a.array, np.zeros((7, 9), np.float32)),
        lambda: eager.gemm(a.array, a.array),
    )
    try:
        work.rng.choice(calls)()
    except DmlvkError as error:
        work.errors.append(error)
    else:
        raise AssertionError("a wrong call went through")


def _open(work: Work) -> None:
    if len(work.devices) < 2 and work.rng.random() < 0.3:
        work.devices.append(dmlvk.Device())


def _threads(work: Work) -> None:
    """The same sessions and functions from several threads."""
    model, session = work.session()
    failures: list[BaseException] = []
    device = session.device

    def turn(seed: int) -> None:
        own = Work(random.Random(seed))
        try:
            for _ in range(4):
                x = own.numbers()
                if own.rng.random() < 0.5:
                    own.compare(session.run(None, {"x": x})[0], model.wanted(x))
                else:
                    array = DeviceArray.from_numpy(x, device)
                    own.compare(eager.element_wise_add(array, array).numpy(), x + x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=turn, args=(work.rng.random(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


_EVERY: Final[tuple[Callable[[Work], None], ...]] = (
    *(_upload, _sum, _sum, _product, _view, _read, _read, _drop, _run, _run, _run_on_device, _run_on_device),
    *(_bind, _run_binding, _run_binding, _call_function, _fail, _open, _threads),
)


def attempt(rng: random.Random) -> tuple[str, str]:
    """Does some things in a random order, and reads what is left."""
    work = Work(rng)
    try:
        for _ in range(rng.randrange(3, _ACTIONS)):
            work.act()
        work.close()
    except (Exception, Overtime) as error:
        raise Fault(" ".join(work.log), f"{type(error).__name__}: {error}") from error
    return " ".join(work.log), "right"
