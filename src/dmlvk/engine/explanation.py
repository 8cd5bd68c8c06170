"""Why an operator runs as it does: the rules that were asked, and what the chosen one launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Plan
from dmlvk.kernels.lowering import explain, newest
from dmlvk.runtime.program import Executable
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides


@dataclass(frozen=True)
class RuleAnswer:
    """One rule of the choice of kernels.

    Attributes:
        rule: Its name.
        holds: Whether it is possible and its condition holds; the first that does is chosen.
        because: The condition in words, and the measurement behind it.
    """

    rule: str
    holds: bool
    because: str


@dataclass(frozen=True)
class LaunchExplanation:
    """One launch of an operator.

    Attributes:
        kernel: Its name, that of the device's own command for a copy.
        variant: Macros of its SPIR-V.
        constants: Specialisation constants that differ from the kernel's defaults.
        workgroups: The number of workgroups in x, y and z; () for a copy.
        programs: What the driver made of the kernel, where that was asked for.
    """

    kernel: str
    variant: dict[str, str]
    constants: dict[str, int]
    workgroups: tuple[int, ...]
    programs: tuple[Executable, ...] = ()


@dataclass(frozen=True)
class OperatorExplanation:
    """The reasons why an operator runs as it does, and what it launches.

    Attributes:
        operator: Its class.
        fields: A text for each field of the desc that is given.
        lowered_as: The newest re-issue, which has the kernels.
        model: The model of the device that the rules read, each number with its source.
        rules: The rules of its family, in order.
        dispatches: The launches of an execution.
        initialization: The launches of the initialisation.
        temporary_bytes: Scratch.
        persistent_bytes: The bytes that initialisation leaves for executions.
    """

    operator: str
    fields: dict[str, str]
    lowered_as: str
    model: str
    rules: tuple[RuleAnswer, ...]
    dispatches: tuple[LaunchExplanation, ...]
    initialization: tuple[LaunchExplanation, ...]
    temporary_bytes: int
    persistent_bytes: int

    @property
    def chosen(self) -> str:
        """The rule that was chosen."""
        return next(answer.rule for answer in self.rules if answer.holds)

    def lines(self) -> list[str]:
        """The explanation as lines of text, indented by two spaces."""
        lines = [f"  model   {self.model}"]
        for answer in self.rules:
            mark = "chosen" if answer.rule == self.chosen else "yes" if answer.holds else "no"
            lines.append(f"  {mark:6}  {answer.rule}: {answer.because}")
        for what, launches in (("initialise", self.initialization), ("dispatch", self.dispatches)):
            for launch in launches:
                about = (("variant", launch.variant), ("constants", launch.constants), ("workgroups", launch.workgroups))
                lines.append(" ".join([f"  {what} {launch.kernel}", *(f"{name} {value}" for name, value in about if value)]))
                lines += (f"    {program}" for program in launch.programs)
        return [*lines, f"  temporary {self.temporary_bytes:,} bytes, persistent {self.persistent_bytes:,} bytes"]


Inspect = Callable[[Dispatch], tuple[Executable, ...]]
"""Tells what the driver makes of a launch's kernel."""


def explain_operator(
    desc: OperatorDesc, plan: Plan, caps: Capabilities, inspect: Inspect | None = None
) -> OperatorExplanation:
    """Explains how an operator runs on a device.

    Args:
        desc: A validated desc.
        plan: The plan of the desc.
        caps: The device.
        inspect: Asked about each kernel that is launched.

    Raises:
        UnsupportedError: it has no kernel.
    """
    return OperatorExplanation(
        operator=type(desc).__name__,
        fields={spec.name: _text(value) for spec in desc.fields if (value := getattr(desc, spec.name)) is not None},
        lowered_as=type(newest(desc)).__name__,
        model=str(caps.model),
        rules=tuple(RuleAnswer(rule.name, holds, rule.because) for rule, holds in explain(desc, caps)),
        dispatches=tuple(_launch(launch, inspect) for launch in plan.dispatches),
        initialization=tuple(_launch(launch, inspect) for launch in plan.initialize),
        temporary_bytes=plan.temporary_bytes,
        persistent_bytes=plan.persistent_bytes,
    )


def _launch(launch: Launch, inspect: Inspect | None) -> LaunchExplanation:
    if isinstance(launch, BlockCopy):
        return LaunchExplanation(launch.name, {}, {}, ())
    kernel = launch.kernel
    programs = () if inspect is None else inspect(launch)
    return LaunchExplanation(kernel.kernel, dict(kernel.variant), dict(kernel.constants), launch.grid, programs)


def _text(value: object) -> str:
    """A field as the command line spells it: ``FLOAT32[2,3]@3,1`` for a tensor."""
    if isinstance(value, TensorDesc):
        sizes = ",".join(map(str, value.sizes))
        is_packed = value.effective_strides == packed_strides(value.sizes)
        strides = "" if is_packed else "@" + ",".join(map(str, value.effective_strides))
        return f"{value.data_type.name}[{sizes}]{strides}{', OWNED_BY_DML' if value.owned_by_dml else ''}"
    if isinstance(value, OperatorDesc):
        given = {spec.name: getattr(value, spec.name) for spec in value.fields if not spec.kind.is_tensor}
        return f"{type(value).__name__}({', '.join(f'{name}={_text(item)}' for name, item in given.items())})"
    if type(value) is tuple:
        return ", ".join(map(_text, value))
    return str(getattr(value, "name", value))


def words(desc: OperatorDesc) -> list[str]:
    """The desc's fields as the command line takes them, ``name=value`` of each that is given."""
    return [f"{spec.name}={_word(value)}" for spec in desc.fields if (value := getattr(desc, spec.name)) is not None]


def _word(value: object) -> str:
    if isinstance(value, OperatorDesc):
        return ":".join((type(value).__name__, *words(value)))
    if isinstance(value, tuple):
        of_parts = bool(value) and isinstance(value[0], TensorDesc | OperatorDesc)
        return ("+" if of_parts else ",").join(map(_word, value))
    return str(value).lower() if isinstance(value, bool) else _text(value)
