"""The options of sessions and runs: dmlvk's own, and those of ONNX Runtime under its names."""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

import numpy as np

from dmlvk.onnx.limits import LIMITS, Limits
from dmlvk.onnx.names import NAMES, Standing, standing_of
from dmlvk.onnx.notices import tell_without_effect
from dmlvk.onnx.ort_value import OrtValue
from dmlvk.onnx.refusals import with_refused_methods
from dmlvk.spec.errors import InvalidArgumentError, StateError, UnsupportedError


class GraphOptimizationLevel(enum.IntEnum):
    """ONNX Runtime's levels. ``ORT_DISABLE_ALL`` leaves every pass out; the others mean all passes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether ONNX Runtime runs nodes side by side. A device's graph decides that by what reads what."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """The order in which ONNX Runtime runs nodes."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Checked:
    """An object whose attributes keep the type of their defaults, as those of ONNX Runtime's objects do."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        kind = _TYPES.get(name)
        if kind is bool and isinstance(value, int | np.bool_):
            value = bool(value)
        elif kind is int and isinstance(value, np.integer):
            value = int(value)
        if kind is not None and not isinstance(value, kind):
            raise TypeError(f"{type(self).__name__}.{name} must be of type {kind.__name__}; got {value!r}")
        object.__setattr__(self, name, value)


@with_refused_methods
@dataclass(slots=True)
class SessionOptions(_Checked):
    """The options of a session: those of dmlvk come first, then ONNX Runtime's. Those of the latter that mean nothing here
    are named once in a line of the logger ``dmlvk.onnx``; the page on ONNX Runtime's names lists them all.

    Attributes:
        plan_cache_size: Plans kept, each for one set of input shapes; the one unused longest goes first.
        without_passes: Names of passes that shall not change the graph, "all" for every one; ``dmlvk.graph.passes.PASSES``
            lists them.
        float64_as_float32: Whether arithmetic with 64-bit floats is done in 32 bits, with their precision and range. Devices
            compute with 64 more slowly, and some not at all: these refuse a model that asks for it.
        max_loop_rounds: Rounds of all loops together that the host drives in a run, after which a loop is taken for one
            that does not end, and the run for failed.
        max_sequence_length: Tensors of a sequence, and elements along the axis of a Scan that the host drives.
        max_host_elements: Elements that nodes may make on the host before a run, all in all, of constants and shapes.
        max_function_nodes: Nodes that the calls of the model's own functions may stand for.
        map_files: Whether large weights stay in the model's files, which are mapped: all processes of a machine then have
            one copy in memory. The files may not change while the session lives; one that is cut short ends the process.
        on_unsupported: What becomes of nodes that no device can do, such as those of text, trees of ``ai.onnx.ml`` and
            operators without a converter: "error" refuses the model, "host" has ONNX Runtime run them on the host, where
            the package is installed; the report names each with the bytes that it moved.
        graph_optimization_level: ``ORT_DISABLE_ALL`` is ``without_passes=("all",)``.
        enable_profiling: Whether every run is timed, for ``InferenceSession.end_profiling``. A timed run waits for the
            device after each graph.
        profile_file_prefix: The start of the name of the file that it writes.
    """

    plan_cache_size: int = 8
    without_passes: tuple[str, ...] = ()
    float64_as_float32: bool = False
    max_loop_rounds: int = LIMITS.max_loop_rounds
    max_sequence_length: int = LIMITS.max_sequence_length
    max_host_elements: int = LIMITS.max_host_elements
    max_function_nodes: int = LIMITS.max_function_nodes
    map_files: bool = False
    on_unsupported: Literal["error", "host"] = "error"
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    optimized_model_filepath: str = ""
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    _config: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _initializers: dict[str, OrtValue] = field(default_factory=dict, init=False, repr=False)
    _providers: dict[str, dict[str, str]] = field(default_factory=dict, init=False, repr=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none changes how a session runs."""
        self._config[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added.

        Raises:
            StateError: there is none.
        """
        return _entry(self._config, key, "SessionOptions")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes the size that the model's inputs and outputs call by a name, so that plans are made ahead."""
        self._sizes[name] = int(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Has sessions use this tensor in place of the model's initializer of the name, read when a session is made."""
        self._initializers[name] = value

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """As ``providers`` of ``InferenceSession``, where the session is given none."""
        self._providers[name] = {str(key): str(value) for key, value in options.items()}

    def has_providers(self) -> bool:
        """Whether ``add_provider`` was called."""
        return bool(self._providers)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """No effect: loading goes on to its end."""
        if value:
            tell_without_effect("SessionOptions", "set_load_cancellation_flag")

    # -- for the session

    @property
    def sizes(self) -> Mapping[str, int]:
        """Symbolic sizes that are fixed, by name."""
        return self._sizes

    @property
    def initializers(self) -> Mapping[str, OrtValue]:
        """Tensors in place of the model's, by name."""
        return self._initializers

    @property
    def providers(self) -> Mapping[str, dict[str, str]]:
        """The providers that were added, with their options."""
        return self._providers

    @property
    def limits(self) -> Limits:
        """What the model may cost the host."""
        return Limits(*(getattr(self, name) for name in LIMITS._fields))

    @property
    def passes_left_out(self) -> tuple[str, ...]:
        """The names of the passes that shall not change the graph."""
        is_off = self.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
        return ("all",) if is_off else self.without_passes

    def checked(self) -> SessionOptions:
        """A copy that later changes leave alone; logs what has no effect.

        Raises:
            InvalidArgumentError: a number is too small, or a word unknown.
            UnsupportedError: an optimized model shall be written.
        """
        for option in ("plan_cache_size", *LIMITS._fields):
            number = getattr(self, option)
            if not isinstance(number, int) or number < 1:
                raise InvalidArgumentError("must be a whole number of at least 1", field=option, value=number)
        if self.on_unsupported not in ("error", "host"):
            raise InvalidArgumentError('must be "error" or "host"', field="on_unsupported", value=self.on_unsupported)
        if self.optimized_model_filepath:
            _, reason = standing_of("SessionOptions", "optimized_model_filepath")
            raise UnsupportedError(f"SessionOptions.optimized_model_filepath: {reason}")
        _tell_of(self, "SessionOptions")
        if self._config:
            tell_without_effect("SessionOptions", "add_session_config_entry", *self._config)
        copied = copy.copy(self)
        for name in ("_config", "_sizes", "_initializers", "_providers"):
            setattr(copied, name, dict(getattr(self, name)))
        return copied


@with_refused_methods
@dataclass(slots=True)
class RunOptions(_Checked):
    """The options of a run, after ONNX Runtime's.

    Attributes:
        terminate: Refuses runs that begin while it is set; one that has begun ends by itself.
    """

    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    _config: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none changes a run."""
        self._config[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added.

        Raises:
            StateError: there is none.
        """
        return _entry(self._config, key, "RunOptions")

    def check(self) -> None:
        """Logs what has no effect.

        Raises:
            StateError: ``terminate`` is set.
        """
        if self.terminate:
            raise StateError("the run is not begun, because RunOptions.terminate is set")
        _tell_of(self, "RunOptions")
        if self._config:
            tell_without_effect("RunOptions", "add_run_config_entry", *self._config)


def check_run_options(options: object) -> None:
    """Checks what a run is given as its options.

    Raises:
        InvalidArgumentError: neither None nor ``RunOptions``.
        StateError: its ``terminate`` is set.
    """
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise InvalidArgumentError("must be RunOptions or None", field="run_options", value=type(options))
    options.check()


def _types(*classes: type[Any]) -> dict[str, type]:
    defaults = {item.name: item.default for cls in classes for item in fields(cls)}
    kinds = (bool, enum.IntEnum, int, str)
    return {name: type(value) for name, value in defaults.items() if isinstance(value, kinds) and name not in _OWN}


_OWN: Final = ("plan_cache_size", *LIMITS._fields, "float64_as_float32", "on_unsupported")
"""dmlvk's own fields, which are checked when a session is made."""
_TYPES: Final = _types(SessionOptions, RunOptions)


def _entry(config: Mapping[str, str], key: str, owner: str) -> str:
    if key not in config:
        raise StateError(f"{owner} has no entry {key!r}; it has {', '.join(sorted(config)) or 'none'}")
    return config[key]


def _tell_of(options: SessionOptions | RunOptions, owner: str) -> None:
    """Logs the fields that are set and mean nothing here."""
    for item in fields(options):
        row = NAMES[owner].get(item.name)  # dmlvk's own have none
        if row and row.standing is Standing.ACCEPTED and getattr(options, item.name) != item.default:
            tell_without_effect(owner, item.name)
