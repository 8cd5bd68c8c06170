"""PyTorch's own samples of each operator (its OpInfo database), run on a device and compared with PyTorch on the CPU.

    python tools/torch_operators.py --out results.jsonl            # all operators, resumes where it was stopped
    python tools/torch_operators.py --only "nn.functional.conv*"   # some
    python tools/torch_operators.py --gradients                    # what the backward graphs give

A sample is right, wrong, or refused: an operator that has no converter, or a type or a case that a converter says no to,
before anything runs. It needs PyTorch's test requirements, expecttest and hypothesis.

With gradients a sample's function is differentiated: AOTAutograd's forward and backward graphs run on the device, and the
gradient of each input that has one is compared. Results are weighted with numbers of both signs, the same on both sides.

Where PyTorch leaves open which of several equal elements comes first, as in a sort that is not asked to be stable, places
are right if they are different ones along the dimension, and the elements at them those at PyTorch's places. The
gradients of such places are not compared, as PyTorch's own follow from its choice.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import functools
import json
import multiprocessing
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
_RANDOM = (
    "bernoulli",
    "cauchy",
    "dropout",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "pca_lowrank",
    "rand",
    "rrelu",
    "svd_lowrank",
    "uniform",
)
_OPEN_PLACES = ("argsort", "sort", "topk", "kthvalue", "median", "nanmedian", "mode")
"""Operators that give places, and do not promise which of equal elements these are of."""
_PICTURES = ("nn.functional.interpolate", "nn.functional.upsample")
"""Operators of which PyTorch rounds pictures of uint8 after each dimension: right is what is rounded once, too."""
_UNIT = 1e-4
"""How far from the middle between two whole numbers a float32 result may be and be rounded to the other one."""
_UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
_SLACK = 4.0
"""How many times as far from the exact numbers as PyTorch's CPU results ours may be, where they are not close to these."""


def wants(name: str) -> bool:
    """Whether an operator gives the same each time, so that results can be compared."""
    last = name.rsplit(".", 1)[-1]
    return last not in _UNDEFINED and not any(part in last for part in _RANDOM)


def operators() -> list[Any]:
    """PyTorch's descriptions of its operators."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if wants(op.name)]


class Refused(Exception):
    """A sample that dmlvk does not run."""


def run_on_device(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """What a function of tensors returns, by the door's compiler without TorchDynamo."""
    with _refusing(), torch.no_grad():
        return list(_made(function)(*tensors))


def gradients_on_device(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of a function of tensors, by forward and backward graphs on the device."""
    with _refusing():
        return gradients(_made(function), tensors)


def _made(function: Callable[..., Any]) -> Callable[..., Any]:
    from dmlvk.torch.backend import Options, compiled

    def compile_graph(module: Any, inputs: Any) -> Any:
        return compiled(module, inputs, options=Options(), kind="inference")

    made: Callable[..., Any] = aot_function(
        function,
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_graph,
        decompositions=_table(),
    )
    return made


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    from dmlvk.spec.errors import UnsupportedError

    try:
        yield
    except UnsupportedError as error:
        raise Refused(str(error)) from error


def gradients(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients of a function's results, weighted, by its tensors that want some; of one that takes no part, zeros."""
    wanted = [item for item in tensors if item.requires_grad]
    made = [item for item in function(*tensors) if item.requires_grad]
    weights = [_weights(item) for item in made]
    found = torch.autograd.grad(made, wanted, weights, allow_unused=True)
    return [torch.zeros_like(item) if own is None else own for item, own in zip(wanted, found, strict=True)]


def _weights(like: torch.Tensor) -> torch.Tensor:
    """Numbers between -1 and 1 of a tensor's sizes, which a quarter of float16's bits hold: the same ones each time."""
    places = torch.arange(like.numel(), dtype=torch.int64)
    return (((places * 37 + 11) % 61 - 30) / 32).to(like.dtype).reshape(like.shape)


@functools.cache
def _table() -> Any:
    from dmlvk.torch.decompositions import decompositions

    return decompositions()


def flattened(op: Any, sample: Any, derived: bool = False) -> tuple[Callable[..., list[torch.Tensor]], list[torch.Tensor]]:
    """A sample as a function of its tensors, which returns a list of tensors: where it is to be derived, of those results
    whose gradients are defined."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        given, args, kwargs = pytree.tree_unflatten(filled, spec)
        made = op(given, *args, **kwargs)
        found = pytree.tree_flatten(sample.output_process_fn_grad(made) if derived else made)[0]
        return [item for item in found if isinstance(item, torch.Tensor)]

    return function, [leaves[place] for place in places]


def difference(found: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor | None) -> str:
    """What is wrong with a result; "" for nothing."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{tuple(found.shape)} {found.dtype} instead of {tuple(wanted.shape)} {wanted.dtype}"
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True)
        return ""
    except AssertionError as error:
        text = " ".join(str(error).split())
    if exact is None or not wanted.dtype.is_floating_point or exact.shape != wanted.shape:
        return text
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    ours, theirs = (torch.where(same, 0, (item.double() - exact).abs()) for item in (found, wanted))
    scale = exact[exact.isfinite()].abs().max().item() if exact.isfinite().any() else 0.0
    unit = torch.finfo(wanted.dtype).eps * scale
    limit = _SLACK * max(theirs[theirs.isfinite()].max().item() if theirs.isfinite().any() else 0.0, unit)
    return "" if bool((ours <= limit).all()) else text


def _inputs(tensors: Sequence[torch.Tensor], exact: bool = False) -> list[torch.Tensor]:
    """Tensors of their own, of float64 where results are to be exact, that want gradients where the others do."""
    made = [(item.double() if exact and item.is_floating_point() else item).detach().clone() for item in tensors]
    return [own.requires_grad_(item.requires_grad) for own, item in zip(made, tensors, strict=True)]


Run = Callable[[Callable[..., Any], Sequence[torch.Tensor]], list[torch.Tensor]]


def _plain(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = function(*tensors)
    return found


def exactly(run: Run, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """The results in float64."""
    try:
        return run(function, _inputs(tensors, exact=True))
    except Exception:
        return None


def open_places(op: Any, sample: Any) -> bool:
    """Whether a sample asks for places of which PyTorch leaves open whose they are."""
    return op.name in _OPEN_PLACES and not sample.kwargs.get("stable", False)


def misplaced(sample: Any, found: torch.Tensor, wanted: torch.Tensor) -> str:
    """What is wrong with places along a dimension, where elements that are equal may stand for each other."""
    given = sample.input.reshape(-1) if not sample.input.dim() else sample.input
    own, theirs = (item.reshape(-1) if not item.dim() else item for item in (found, wanted))
    dim = (
        next((axis for axis in range(given.dim()) if given.shape[axis] != own.shape[axis]), None)
        if (given.dim() == own.dim())
        else None
    )
    named = sample.kwargs.get("dim", next((item for item in reversed(sample.args) if type(item) is int), -1))
    dim = named if dim is None else dim
    if given.dim() != own.dim():
        own, theirs = own.unsqueeze(dim), theirs.unsqueeze(dim)
    if int(own.min()) < 0 or int(own.max()) >= given.shape[dim]:
        return "places outside of the dimension"
    ordered = own.sort(dim).values
    if bool((ordered.diff(dim=dim) == 0).any()):
        return "a place twice"
    same = torch.testing.assert_close
    try:
        same(given.gather(dim, own), given.gather(dim, theirs), rtol=0, atol=0, equal_nan=True)
    except AssertionError as error:
        return f"places of other elements: {' '.join(str(error).split())}"
    return ""


def tried(op: Any, sample: Any, derived: bool = False) -> tuple[str, str]:
    """What became of a sample, or of its gradients: "right", "wrong", "refused" or "failed", and why."""
    run, on_device = (gradients, gradients_on_device) if derived else (_plain, run_on_device)
    try:
        function, tensors = flattened(op, sample, derived)
        made = function(*_inputs(tensors))
        wanted = run(function, _inputs(tensors))
    except Exception:
        return "skipped", "PyTorch does not run it"
    if any(item.is_complex() or item.layout != torch.strided or item.is_quantized for item in (*tensors, *made, *wanted)):
        return "refused", "complex, sparse or quantized tensors"
    try:
        found = on_device(function, _inputs(tensors))
    except Refused as error:
        return "refused", str(error)
    except Exception as error:
        kind = type(error).__name__
        if "DynamicOutputShape" in kind or "DataDependent" in kind or "data-dependent" in str(error):
            return "refused", "sizes or values that follow from numbers on the device"
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", f"{kind}: {' '.join(str(error).split())[:300]} ({Path(where.filename).name}:{where.lineno})"
    exact = exactly(run, function, tensors)
    if len(found) != len(wanted):
        return "wrong", f"{len(found)} results instead of {len(wanted)}"
    for index, (own, theirs) in enumerate(zip(found, wanted, strict=True)):
        text = difference(own, theirs, None if exact is None else exact[index])
        if text and not derived and own.dtype == torch.int64 and own.shape == theirs.shape and open_places(op, sample):
            is_place = op.name == "argsort" or index == 1
            text = misplaced(sample, own, theirs) if is_place else text
        if text and op.name.startswith(_PICTURES) and own.dtype == torch.uint8 and own.shape == theirs.shape:
            text = "" if is_rounded(function, tensors, index, own) else text
        if text:
            return "wrong", text
    return "right", ""


def is_rounded(function: Callable[..., Any], tensors: Sequence[torch.Tensor], index: int, found: torch.Tensor) -> bool:
    """Whether a result of whole numbers is the nearest to what PyTorch gives of the same numbers in float32."""
    wanted = function(*(item.float() for item in tensors))[index]
    return bool(((found.float() - wanted).abs() <= 0.5 + _UNIT).all())


def samples(op: Any, dtype: torch.dtype, most: int, derived: bool = False) -> Iterator[Any]:
    """PyTorch's samples of an operator, evenly chosen where there are more than the most."""
    torch.manual_seed(0)
    try:
        found = list(op.sample_inputs("cpu", dtype, requires_grad=derived))
    except Exception:
        return
    step = max(len(found) / most, 1.0) if most else 1.0
    for number in range(len(found) if not most else min(most, len(found))):
        yield found[int(number * step)]


def row(op: Any, most: int, dtypes: Sequence[torch.dtype], derived: bool = False) -> dict[str, Any]:
    """The counts of an operator, or of its gradients."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for dtype in dtypes:
        if dtype not in (op.supported_backward_dtypes("cpu") if derived else op.supported_dtypes("cpu")):
            continue
        for number, sample in enumerate(samples(op, dtype, most, derived)):
            what, why = tried(op, sample, derived)
            counts[what] += 1
            if what != "right":
                reasons.setdefault(f"{what} {str(dtype)[6:]}", f"sample {number}: {why[:500]}")
    return {"name": title(op), "counts": dict(counts), "reasons": reasons}


def title(op: Any) -> str:
    """The name of a description, with its variant."""
    return f"{op.name} ({op.variant_test_name})" if op.variant_test_name else str(op.name)


def _work(names: Sequence[str], most: int, dtypes: Sequence[torch.dtype], pipe: Any, limit: int, derived: bool) -> None:
    torch.set_num_threads(1)
    known = {title(op): op for op in operators()}

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    for name in names:
        pipe.send(("begin", name))
        signal.alarm(limit)
        try:
            made = row(known[name], most, dtypes, derived)
        except TimeoutError:
            made = {"name": name, "counts": {"failed": 1}, "reasons": {"failed": f"more than {limit} s"}}
        signal.alarm(0)
        pipe.send(("row", made))
    pipe.send(("end", ""))


def run(
    names: Sequence[str], most: int, dtypes: Sequence[torch.dtype], limit: int, derived: bool = False
) -> Iterator[dict[str, Any]]:
    """Rows of operators, made in a process of its own, which is begun anew where one ends it."""
    rest = list(names)
    context = multiprocessing.get_context("spawn")
    while rest:
        here, there = context.Pipe()
        worker = context.Process(target=_work, args=(rest, most, dtypes, there, limit, derived))
        worker.start()
        there.close()
        begun = rest[0]
        try:
            while True:
                if not here.poll(2 * limit + 120):
                    worker.kill()
                    raise EOFError
                kind, what = here.recv()
                if kind == "begin":
                    begun = what
                elif kind == "row":
                    rest.remove(what["name"])
                    yield what
                else:
                    break
        except EOFError:
            rest.remove(begun)
            yield {"name": begun, "counts": {"failed": 1}, "reasons": {"failed": "the process ended"}}
        worker.join(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="names, with wildcards, and commas between them")
    parser.add_argument("--out", type=Path, help="rows, one a line; names in it are not run again")
    parser.add_argument("--samples", type=int, default=0, help="the most for each operator and type; all where 0")
    parser.add_argument("--types", default="", help="PyTorch's types, with commas between them")
    parser.add_argument("--gradients", action="store_true", help="the gradients of float32, or of the types given")
    parser.add_argument("--limit", type=int, default=300, help="seconds an operator")
    given = parser.parse_args()
    dtypes = tuple(getattr(torch, name) for name in given.types.split(",")) if given.types else DTYPES
    dtypes = (torch.float32,) if given.gradients and not given.types else dtypes
    done = set()
    if given.out is not None and given.out.exists():
        done = {json.loads(line)["name"] for line in given.out.read_text().splitlines()}
    known = [op for op in operators() if op.supports_autograd or not given.gradients]
    names = [title(op) for op in known if any(fnmatch.fnmatch(title(op), own) for own in given.only.split(","))]
    total: Counter[str] = Counter()
    for made in run([name for name in names if name not in done], given.samples, dtypes, given.limit, given.gradients):
        total.update(made["counts"])
        print(made["name"], made["counts"], *(f"\n    {kind}: {why}" for kind, why in made["reasons"].items()), flush=True)
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps(made, sort_keys=True) + "\n")
    print(dict(total), file=sys.stderr)


if __name__ == "__main__":
    main()
