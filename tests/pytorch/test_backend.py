"""``torch.compile(backend="dmlvk")``: what it finds, what it runs, what it refuses."""

from __future__ import annotations

import copy
import gc
import importlib
import itertools
import pathlib
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import torch

import dmlvk
import dmlvk.torch
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.trace import Region
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Step
from dmlvk.runtime.memory import Buffer
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.torch.memory import Copies

ROOT = pathlib.Path(__file__).parents[2]


class Scaled(torch.nn.Module):
    """relu(x w + 1.5) - x + n, where n counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(4, 3))
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1.0)
        return torch.relu(x * self.w + 1.5) - x + self.n


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def test_the_entry_point_of_the_backend_is_the_backend() -> None:
    """An installed package is found by its entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["torch_dynamo_backends"]["dmlvk"].split(":")
    assert getattr(importlib.import_module(module), name) is dmlvk.torch.backend


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, dmlvk; dmlvk.Device, dmlvk.Graph; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_runs_on_the_device_and_changes_its_buffers() -> None:
    gc.collect()
    earlier = len(dmlvk.torch.report().graphs)  # of other tests, whose functions PyTorch's compiler keeps
    module, reference, x = Scaled(), Scaled(), torch.linspace(-3, 3, 12).reshape(4, 3)
    compiled = torch.compile(module, backend=dmlvk.torch.backend)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(compiled(x), reference(x))
    assert torch.equal(module.n, reference.n)
    (graph,) = dmlvk.torch.report().graphs[earlier:]
    assert (graph.kind, graph.runs) == ("inference", 2)
    assert {label.op_type for label in graph.device_nodes} <= {"aten.add.Tensor", "aten.relu.default", "aten.sub.Tensor"}


def test_a_changed_parameter_is_read_anew() -> None:
    module, x = Scaled(), torch.ones(4, 3)
    compiled = torch.compile(module, backend=dmlvk.torch.backend)
    with torch.no_grad():
        before = compiled(x)
        module.w.add_(1.0)
        assert torch.equal(compiled(x), before + 2.0)  # the product grows by 1, and so does n


def test_all_operators_without_a_converter_are_named() -> None:
    def lacking(x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + torch.special.airy_ai(x)

    with pytest.raises(Exception, match=r"aten\.special_airy_ai\.default, prims\.bessel_j0\.default") as caught:
        torch.compile(lacking, backend=dmlvk.torch.backend)(torch.ones(3))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), UnsupportedError)


def test_a_changed_size_compiles_nothing_anew_where_sizes_are_dynamic() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + x.shape[0]).view(-1)

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, backend=dmlvk.torch.backend, dynamic=True)
    for rows in (3, 4, 5, 6):
        x = torch.linspace(-9, 9, rows * 5).reshape(rows, 5)
        assert torch.equal(compiled(x), function(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_what_has_no_converter_runs_in_pytorch_where_that_is_allowed() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x * 2 + 1)
        z = torch.special.bessel_j0(y)
        return torch.relu(z * 3) - y, z

    name = "prims.bessel_j0.default"
    before = dmlvk.torch.report().fallbacks.get(name, 0)
    x = torch.linspace(-1, 1, 12)
    compiled = torch.compile(function, backend=dmlvk.torch.backend, options={"allow_fallback": True})
    assert all(map(torch.equal, compiled(x), function(x)))
    assert dmlvk.torch.report().fallbacks[name] == before + 1


def test_elements_that_no_device_has_are_computed_in_pytorch_where_that_is_allowed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x * 2).abs() + 1

    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    compiled = torch.compile(function, backend=dmlvk.torch.backend, options={"allow_fallback": True})
    torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_an_input_is_changed_by_what_pytorch_computes(where: str) -> None:
    def function(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return torch.special.bessel_j0(total)  # the last of the graph, where inputs are changed

    x, total = torch.linspace(-1, 1, 4), torch.arange(4.0)
    compiled = torch.compile(function, backend=dmlvk.torch.backend, options={"allow_fallback": True})
    own = total.clone().to(where)
    found, wanted = compiled(x.to(where), own), function(x, total)
    torch.testing.assert_close(found.cpu(), wanted)
    torch.testing.assert_close(own.cpu(), total)


def test_a_complex_number_is_refused_by_the_operator_that_makes_it() -> None:
    x = torch.ones(3)
    with pytest.raises(Exception, match=r"aten\.complex\.default") as caught:
        torch.compile(lambda x: torch.complex(x, x).abs(), backend=dmlvk.torch.backend)(x)
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), UnsupportedError)


def test_sizes_that_follow_from_elements_are_refused_in_a_graph() -> None:
    x = torch.tensor([1.0, 0.0, 2.0])
    compiled = torch.compile(lambda x: (x * 2)[x > 0] + 1, backend=dmlvk.torch.backend, fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.raises(Exception) as caught:
        compiled(x)
    error = getattr(caught.value, "inner_exception", caught.value)
    assert isinstance(error, UnsupportedError)
    assert "follow" in str(error) or "aten.nonzero.default" in str(error)


def test_a_session_takes_no_other_type_and_no_other_sizes() -> None:
    session = dmlvk.torch.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    for other in (torch.ones(5, 3), torch.ones(4, 3, dtype=torch.float64), torch.ones(3)):
        with pytest.raises(InvalidArgumentError, match="sizes of the model's input") as caught:
            session.run(None, {"input": other.numpy()})
        assert caught.value.field == "input"


def test_a_model_on_the_device_is_exported() -> None:
    model = torch.nn.Linear(3, 2)
    wanted = model(torch.ones(4, 3))
    session = dmlvk.torch.export(model.to("dmlvk"), (torch.ones(4, 3).to("dmlvk"),))
    (found,) = session.run(None, {session.inputs[0]: torch.ones(4, 3).numpy()})
    torch.testing.assert_close(torch.from_numpy(found), wanted.detach())


def test_a_model_is_exported_to_a_session_that_keeps_its_buffers() -> None:
    module, reference, x = Scaled(), Scaled(), torch.linspace(-3, 3, 12).reshape(4, 3)
    session = dmlvk.torch.export(module, (x,))
    assert session.inputs == ("x",)
    for _ in range(2):
        (y,) = session.run(None, {"x": x.numpy()})
        assert torch.equal(torch.from_numpy(y), reference(x))
    assert torch.equal(module.n, torch.zeros(3))  # the session has its own


def test_bfloat16_is_rounded_as_pytorch_rounds_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 1.7) + x

    x = torch.linspace(-4, 4, 35).bfloat16()
    assert torch.equal(torch.compile(function, backend=dmlvk.torch.backend)(x), function(x))


class Layer(torch.nn.Module):
    """Self-attention of four heads and what feeds forward."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.back = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)
        self.wide, self.narrow = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.back(y)
        return x + self.narrow(torch.nn.functional.gelu(self.wide(x)))


def test_a_layer_of_bfloat16_multiplies_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is one operator, because its output is rounded after its heads are brought together."""
    torch.manual_seed(0)
    layer, x = Layer().bfloat16().eval(), torch.randn(2, 24, 64).bfloat16()
    ran: list[str] = []

    def noted(*arguments: Any, **fields: Any) -> tuple[Step, ...]:
        steps = optimized(*arguments, **fields)
        ran.extend(type(step.desc).__name__ for step in steps)
        return steps

    monkeypatch.setattr(dmlvk.torch.network, "optimized", noted)
    (found,) = dmlvk.torch.export(layer, (x,)).run(None, {"x": x})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), layer(x).float(), rtol=0, atol=2**-6)
    counts = [ran.count(name) for name in ("FormatGemm", "MultiheadAttention1", "Gemm", "ElementWiseIdentity")]
    assert counts == [4, 1, 0, 0]


def test_dropout_follows_pytorchs_seed() -> None:
    compiled = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend=dmlvk.torch.backend)
    x, runs = torch.ones(1000), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs += [compiled(x), compiled(x)]
    assert torch.equal(runs[0], runs[2]) and torch.equal(runs[1], runs[3])
    assert not torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[4])
    assert set(runs[0].tolist()) == {0.0, 2.0}
    assert 400 < int((runs[0] == 0).sum()) < 600  # 6 deviations on either side of half


def test_a_run_that_is_interrupted_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module's buffer is the CPU's: what the device has made of it counts once all of it has come."""
    module, reference, x = Scaled(), Scaled(), torch.linspace(-3, 3, 12).reshape(4, 3)
    compiled = torch.compile(module, backend=dmlvk.torch.backend)
    read, reads = Buffer.read_into, itertools.count()

    def interrupted(buffer: Buffer, *given: Any) -> None:
        read(buffer, *given)
        if next(reads) == 1:  # after the result
            raise KeyboardInterrupt

    with torch.no_grad():
        compiled(x), reference(x)
        with monkeypatch.context() as patched:
            patched.setattr(Buffer, "read_into", interrupted)
            with pytest.raises(KeyboardInterrupt):
                compiled(x)
        assert torch.equal(module.n, reference.n)
        for _ in range(2):
            assert torch.equal(compiled(x), reference(x))
        assert torch.equal(module.n, reference.n)


def test_a_copy_that_is_half_written_is_written_again(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that has its old memory back is not taken for the copy of it."""
    copies, first, second = Copies(), torch.arange(4.0), -torch.arange(4.0)
    tensor = torch.nn.Parameter(first)
    copies.of(tensor, device)
    write = Buffer.write

    def interrupted(buffer: Buffer, *given: Any) -> None:
        write(buffer, *given)
        raise KeyboardInterrupt

    tensor.data = second
    with monkeypatch.context() as patched:
        patched.setattr(Buffer, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            copies.of(tensor, device)
    tensor.data = first
    assert copies.of(tensor, device).numpy().tolist() == first.tolist()


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_a_run_with_other_inputs_of_the_same_sizes_looks_up_no_graph(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters lie where they lay, and an input that lies elsewhere is copied."""
    reference = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    model = copy.deepcopy(reference).to(where)
    compiled = torch.compile(model, backend=dmlvk.torch.backend)
    asked: list[object] = []
    get = CompiledGraphs.get

    def counted(self: CompiledGraphs, region: Region, *args: Any, **options: Any) -> Any:
        asked.append(region)
        return get(self, region, *args, **options)

    with torch.no_grad():
        compiled(torch.ones(5, 4).to(where))
        monkeypatch.setattr(CompiledGraphs, "get", counted)
        inputs = [torch.randn(5, 4) for _ in range(4)]
        kept = [compiled(x.to(where)) for x in inputs]
        for x, y in zip(inputs, kept, strict=True):
            torch.testing.assert_close(y.cpu(), reference(x), rtol=1e-6, atol=1e-6)
        assert not asked
        model[0].weight.add_(1.0)
        reference[0].weight.add_(1.0)
        torch.testing.assert_close(compiled(inputs[0].to(where)).cpu(), reference(inputs[0]), rtol=1e-6, atol=1e-6)
