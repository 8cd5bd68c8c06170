"""The compile phase: an operator with kernels for each step of a trace, the weights, and a place for every storage."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from dmlvk.devices.capabilities import Capabilities
from dmlvk.engine.explanation import OperatorExplanation, explain_operator
from dmlvk.engine.operator import PreparedOperator, keep_owned_inputs, lowered, owned_inputs
from dmlvk.engine.profile import RunStep
from dmlvk.engine.progress import COMPILING, UPLOADING, Count, Progress, silent
from dmlvk.engine.recipe import JointRecipes, Recipe, Recipes
from dmlvk.engine.trace import Trace
from dmlvk.engine.weights import Target, Weights
from dmlvk.graph.assemble import constant_slots, disowning, owning
from dmlvk.graph.connected import connected
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.kernels.common.plan import BlockCopy, KernelVariant, Plan, Source
from dmlvk.kernels.lowering import lower_piece, pieces
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.memory import Buffer, Purpose
from dmlvk.runtime.recorder import BoundRange, Command, Recording
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.log import logger
from dmlvk.spec.mould import Mould
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import Size

_OperatorKey = OperatorDesc | Recipe
_Work = tuple[_OperatorKey, tuple[Storage, ...]]
"""The key of an operator: its desc, or the recipe of symbolic sizes, and the constants that are OWNED_BY_DML in it."""
_Initialization = tuple[Hashable, ...]
"""The key of what initialisation leaves: its launches, their results' places and bytes, and the constants that it reads."""


def _desc_of(key: _OperatorKey) -> OperatorDesc:
    return key.desc if isinstance(key, Recipe) else key


class Placed(Protocol):
    """Where the storages of a graph lie in the arena.

    Attributes:
        nbytes: Length of the arena.
        live_bytes: The bytes in use before the first step, at each step and after the last, scratch included.
        scratch: Offset of each step's scratch.
    """

    @property
    def nbytes(self) -> int: ...

    @property
    def live_bytes(self) -> Sequence[int]: ...

    @property
    def scratch(self) -> Sequence[int]: ...

    def start(self, whole: Storage) -> int | None:
        """The offset in the arena of a storage that is part of no other; None of one that lies elsewhere."""

    def extent(self, storage: Storage) -> tuple[Storage, int, int]:
        """The storage that is part of no other in which one lies, its offset there, and its bytes."""


class CompiledGraph:
    """A trace with an operator for each step and a place for each storage.

    Attributes:
        trace: The trace.
        operators: One for each step.
        placement: Where everything lies in the arena but what is outside, given or made once.
        recording: The commands, once they are recorded.
        key: The key of the cache that it is in.
        exact: Makes the graph of a trace of these sizes; None if this is it. The steps of others say other sizes.
        seconds: The time that it took to make.
        dispatches: Kernel launches of a run.
    """

    def __init__(self, trace: Trace, operators: Sequence[PreparedOperator], placement: Placed) -> None:
        self.trace = trace
        self.operators = operators
        self.placement = placement
        self.recording: Recording | None = None
        self.key: Any = None
        self.exact: Callable[[], CompiledGraph] | None = None
        self.seconds = 0.0
        self.dispatches = sum(
            operator.launches for step, operator in zip(trace.steps, operators, strict=True) if not step.runs_once
        )

    def runs(self) -> Iterator[RunStep]:
        """Its steps with all that a report says of them."""
        runs = zip(self.trace.steps, self.operators, self.placement.live_bytes[1:-1], strict=True)
        return itertools.starmap(RunStep, runs)

    @staticmethod
    def of(trace: Trace, operators: Sequence[PreparedOperator]) -> CompiledGraph:
        """The graph of a trace of plain sizes."""
        placement = _placement(trace, [operator.temporary_bytes for operator in operators])
        return CompiledGraph(trace, operators, placement)


def _placement(trace: Trace, temporary_bytes: Sequence[int]) -> Placement:
    """The places of a trace of plain sizes whose steps need so much scratch."""
    pairs = zip(trace.steps, temporary_bytes, strict=True)
    scratch = [0 if step.runs_once else nbytes for step, nbytes in pairs]
    inputs = [value.storage for value in trace.inputs.values()]
    return Placement(trace.steps, inputs, trace.results(), scratch, apart=elsewhere(trace))


def elsewhere(trace: Trace) -> set[Storage]:
    """The storages of a trace that do not lie in the arena, though they hold no constant: made once, given or outside."""
    made_once = (storage for step in trace.steps if step.runs_once for storage in step.written())
    return {*made_once, *trace.given, *trace.outside}


class _Prepared(NamedTuple):
    """Operators of a trace, before their weights are there.

    Attributes:
        trace: The trace.
        works: The key of each step's operator.
        operators: One for each step.
        uploading: The count of the bytes that go to the device.
    """

    trace: Trace
    works: Sequence[_Work]
    operators: Sequence[PreparedOperator]
    uploading: Count

    def bound(self) -> list[Storage]:
        """The storages that commands of a run name."""
        steps = zip(self.trace.steps, self.works, strict=True)
        return [item for step, (key, _) in steps if not step.runs_once for item in _bound(step, _desc_of(key))]


class Compiler:
    """Makes compiled graphs of traces; operators of equal descs with the same weights are one, in all graphs.

    Args:
        device: The device that runs them.
        refusal: The error to raise for an operator that the device cannot run.
        progress: Told how far the making of a graph is.
        caps: The capabilities that kernels may rely on, the device's where None.

    Attributes:
        weights: The constants on the device, for all graphs.
    """

    def __init__(
        self,
        device: ComputeDevice,
        refusal: Callable[[Origin, UnsupportedError], UnsupportedError],
        progress: Progress = silent,
        caps: Capabilities | None = None,
    ) -> None:
        self._device = device
        self._refusal = refusal
        self._progress = progress
        self._caps = caps or device.capabilities
        # Graphs keep alive what they use: with the last of them go its operators and its own constants.
        self._operators: weakref.WeakValueDictionary[_Work, PreparedOperator] = weakref.WeakValueDictionary()
        self._initialized: weakref.WeakValueDictionary[_Initialization, PreparedOperator] = weakref.WeakValueDictionary()
        self._recipes: weakref.WeakValueDictionary[Hashable, Recipes] = weakref.WeakValueDictionary()
        self._joint_recipes: weakref.WeakValueDictionary[Hashable, JointRecipes] = weakref.WeakValueDictionary()
        self.weights = Weights(device)

    def check(self, trace: Trace) -> None:
        """Sees whether the operators of a trace have kernels.

        Raises:
            UnsupportedError: one has not.
        """
        for step in trace.steps:
            self._lowered(step, step.desc, {})

    def needed_bytes(self, traces: Iterable[Trace]) -> int:
        """Bytes on the device that the graphs of some traces take together in the end: weights, and the arena in which they
        take turns. Takes none of them.

        Raises:
            UnsupportedError: as ``refusal`` makes it.
        """
        kept: dict[Hashable, int] = {}
        arena = 0
        for trace in traces:
            plans: dict[_OperatorKey, Plan] = {}
            works = [self._work(step, trace.given, plans, None) for step in trace.steps]
            own = [self._lowered(step, key, plans) for step, (key, _) in zip(trace.steps, works, strict=True)]
            arena = max(arena, _placement(trace, [plan.temporary_bytes for plan in own]).nbytes)
            apart = elsewhere(trace) - trace.outside
            for step, (key, owned), plan in zip(trace.steps, works, own, strict=True):
                if not step.runs_once:
                    kept[_initialization(plan, owned)] = plan.persistent_bytes
                    bound = _bound(step, _desc_of(key))
                    kept.update((item, item.nbytes) for item in bound if item.constant is not None or item in apart)
        return arena + sum(kept.values())

    def compiled(self, trace: Trace) -> CompiledGraph:
        """The graph of a trace, weights and all."""
        prepared = self.prepared(trace)
        self.bring_weights(prepared)
        return CompiledGraph.of(trace, prepared.operators)

    def recipes(self, step: Step, given: Collection[Storage]) -> tuple[Recipes | JointRecipes, tuple[Size, ...]]:
        """The recipes of a step whose sizes are symbolic, and the symbols whose values they are filled for."""
        desc = disowning(step.desc)
        parts = pieces(desc)
        if parts:
            moulds = [Mould(piece) for piece in parts]
            key: Hashable = (type(desc), *(mould.key for mould in moulds))
            symbols = tuple(symbol for mould in moulds for symbol in mould.symbols)
            joint = self._joint_recipes.get(key)
            if joint is None:
                own = [(self._piece_recipes(desc, mould), len(mould.symbols)) for mould in moulds]
                joint = self._joint_recipes[key] = JointRecipes(desc, own)
            return joint, symbols
        constants = constant_slots(step, given)
        mould = Mould(desc)
        key = mould.key, constants
        recipes = self._recipes.get(key)
        if recipes is None:

            def lower(desc: OperatorDesc) -> tuple[OperatorDesc, Plan]:
                desc, plan = self._owning(desc, constants, functools.partial(lowered, self._device, caps=self._caps))
                return desc, keep_owned_inputs([slot.tensor for slot in desc.input_slots()], plan)

            recipes = self._recipes[key] = Recipes(mould, lower)
        return recipes, mould.symbols

    def _piece_recipes(self, desc: OperatorDesc, mould: Mould) -> Recipes:
        key = type(desc), mould.key
        recipes = self._recipes.get(key)
        if recipes is None:
            caps = self._caps
            recipes = self._recipes[key] = Recipes(mould, lambda piece: (desc, lower_piece(desc, piece, caps)))
        return recipes

    def prepared(self, trace: Trace, recipes: Mapping[Step, Recipe] = MappingProxyType({})) -> _Prepared:
        """An operator for each step.

        Args:
            trace: The steps.
            recipes: What is known of steps whose sizes are symbolic: the recipe of each.

        Raises:
            UnsupportedError: as ``refusal`` makes it.
        """
        known: dict[_Work, PreparedOperator] = dict(self._operators)
        plans: dict[_OperatorKey, Plan] = {recipe: recipe.plan for recipe in recipes.values()}
        works = []
        missing: dict[_Work, Step] = {}
        creating: set[KernelVariant] = set()
        for step in trace.steps:
            work = self._work(step, trace.given, plans, recipes.get(step))
            if work not in known:
                missing.setdefault(work, step)
                creating.update(self._device.prepare_kernels(self._pipelines(self._lowered(step, work[0], plans))))
            works.append(work)
        bound = [item for step, (key, _) in zip(trace.steps, works, strict=True) for item in _bound(step, _desc_of(key))]
        everything = {*bound, *(item for _, owned in works for item in owned)}
        uploading = Count(self._progress, UPLOADING, self.weights.missing_bytes(everything))
        if not any(step.runs_once for step in trace.steps) and not any(owned for _, owned in missing):
            self.weights.upload(bound, uploading)  # while pipelines are created
        wanted = frozenset(creating)
        compiling = Count(self._progress, COMPILING, len(wanted))
        fresh = {}
        for work, step in missing.items():
            plan = plans[work[0]]
            try:
                fresh[work] = PreparedOperator(self._device, _desc_of(work[0]), plan)
            except UnsupportedError as error:
                raise self._refusal(step.origin, error) from error
            ready = creating.intersection(self._pipelines(plan))
            creating -= ready
            if ready:
                compiling(len(ready))
        self._operators.update(fresh)
        logger("engine").info(
            "a plan of %d operators, %d of them new, %d new pipelines", len(works), len(fresh), len(wanted)
        )
        return _Prepared(trace, works, [fresh.get(work) or known[work] for work in works], uploading)

    def _pipelines(self, plan: Plan) -> list[KernelVariant]:
        """The pipelines of what a plan launches, those of its initialisation first."""
        launches = (launch for launch in plan.initialize + plan.dispatches if not isinstance(launch, BlockCopy))
        return [self._device.pipeline(launch) for launch in launches]

    def bring_weights(self, prepared: _Prepared) -> None:
        """Uploads what is missing, initialises operators and computes what is the same in every run."""
        trace, works, operators, uploading = prepared
        targets = [Target(operator, owned) for operator, (_, owned) in zip(operators, works, strict=True)]
        later = dict.fromkeys(
            target
            for step, target in zip(trace.steps, targets, strict=True)
            if not step.runs_once and not target.operator.initialized
        )
        self._share_initializations(later)
        bound = prepared.bound()
        # What is twice on the device for a moment comes first.
        fresh = self._first_initializations(later)
        self.weights.initialize(fresh, uploading, self.weights.missing_bytes({*bound}))
        self._share_initializations(later)
        if any(step.runs_once for step in trace.steps):
            self._run_once(trace, targets, uploading)
        self.weights.upload(bound, uploading)

    def renewed(self, prepared: _Prepared) -> _Prepared:
        """The same operators, none of them initialised and none to be given what others have made: for weights that come
        again, after a failure, and may be others."""
        self._initialized = weakref.WeakValueDictionary()
        made = {operator: operator.uninitialized() for operator in prepared.operators}
        return prepared._replace(operators=[made[operator] for operator in prepared.operators])

    def _share_initializations(self, targets: Iterable[Target]) -> None:
        """Gives operators what others have made of the same weights by the same launches: a graph of further sizes repacks
        nothing again."""
        for target in targets:
            plan = target.operator.plan
            if plan.persistent_bytes:
                other = self._initialized.setdefault(_initialization(plan, target.owned), target.operator)
                if other is not target.operator and other.initialized:
                    self.weights.share(other, target.operator)

    def _first_initializations(self, targets: Iterable[Target]) -> list[Target]:
        """Of the operators that nobody has initialised one for each result: the others are given what it leaves, as a table
        of which a graph reads rows and with which it multiplies."""
        found, keys = list[Target](), set[_Initialization]()
        for target in targets:
            plan = target.operator.plan
            key = _initialization(plan, target.owned)
            if target.operator.initialized or key in keys:
                continue
            found.append(target)
            if plan.persistent_bytes:
                keys.add(key)
                self._initialized[key] = target.operator
        return found

    def _work(self, step: Step, given: Collection[Storage], plans: dict[_OperatorKey, Plan], recipe: Recipe | None) -> _Work:
        """The step's desc, or its recipe, with those constants OWNED_BY_DML that its initialisation would repack."""
        if recipe is None:
            desc = disowning(step.desc)
            constants = constant_slots(step, given)
            if constants:
                desc, _ = self._owning(desc, constants, lambda owned: self._lowered(step, owned, plans))
        else:
            desc = recipe.desc
        slots = owned_inputs([slot.tensor for slot in desc.input_slots()])
        return recipe or desc, tuple(storage for slot in slots if (storage := step.inputs[slot]))

    @staticmethod
    def _owning(
        desc: OperatorDesc, constants: Set[int], lowered: Callable[[OperatorDesc], Plan]
    ) -> tuple[OperatorDesc, Plan]:
        """A desc with those constants OWNED_BY_DML that its initialisation would repack, and its plan."""
        owned = owning(desc, constants)
        plan = lowered(owned)
        repacked = {part.slot for launch in plan.initialize for part in launch.bindings if part.source is Source.INPUT}
        if repacked == set(constants):
            return owned, plan
        owned = owning(desc, repacked)
        return owned, lowered(owned)

    def _lowered(self, step: Step, key: _OperatorKey, plans: dict[_OperatorKey, Plan]) -> Plan:
        """The plan of an operator, made once for those of equal descs."""
        if key not in plans:
            try:
                plans[key] = lowered(self._device, _desc_of(key), self._caps)
            except UnsupportedError as error:
                raise self._refusal(step.origin, error) from error
        return plans[key]

    def _run_once(self, trace: Trace, targets: Sequence[Target], uploading: Count) -> None:
        """Computes what is the same in every run, into memory that lives as long as the graph. What is of no use afterwards
        is freed: in batches, which take no more for that than the weights that are still to come, but where a batch is a
        single chain of steps."""
        others = [step for step in trace.steps if not step.runs_once]
        kept = {item.place.storage for step in others for item in (*step.read(), *step.written())}
        kept.update(storage.place.storage for storage in trace.results())
        owners = dict(zip(trace.steps, targets, strict=True))
        chains = _chains(step for step in trace.steps if step.runs_once)
        made = {step: [item for item in step.written() if item in kept] for chain in chains for step in chain}
        to_come = self.weights.missing_bytes(kept) + sum(item.nbytes for own in made.values() for item in own)
        batch: list[Step] = []
        taken = 0
        for chain in chains:
            passing = {item for step in chain for item in (*step.read(), *step.written())} - kept
            nbytes = sum(item.nbytes for item in passing)
            to_come -= sum(item.nbytes for step in chain for item in made[step])
            if batch and taken + nbytes > to_come:
                self._run_batch(batch, owners, kept, uploading)
                batch, taken = [], 0
            batch += chain
            taken += nbytes
        self._run_batch(batch, owners, kept, uploading)

    def _run_batch(self, steps: Sequence[Step], owners: Mapping[Step, Target], kept: Set[Storage], uploading: Count) -> None:
        """Runs steps that read no more than constants and what others of them make, which is freed unless it is kept."""
        targets = {step: owners[step] for step in steps}
        for step in steps:
            self.weights.upload(step.read(), uploading)
        made = {item: self.weights.reserved(item) for step in steps for item in step.written() if item in kept}
        fresh = dict.fromkeys(target for target in targets.values() if not target.operator.initialized)
        self.weights.initialize(list(fresh), uploading)
        scratch = [target.operator.temporary_bytes for target in targets.values()]
        apart = {item for step in steps for item in step.read() if self.weights.holds(item)}
        placement = Placement(steps, (), (), scratch, apart=made.keys() | apart)
        nbytes = placement.nbytes
        arena = self._device.create_buffer(nbytes, purpose=Purpose.TEMPORARY) if nbytes else None
        outputs = {storage: BoundRange(buffer, 0, storage.nbytes) for storage, buffer in made.items()}
        places = Places(self.weights, placement, arena, outputs)
        recording = Recording(self._device, timestamps=False)
        for step, offset in zip(steps, placement.scratch, strict=True):
            recording.add(places.commands(step, targets[step].operator, offset))
        recording.submit()
        self.weights.keep(made)
        recording.wait()
        self.weights.release(item for step in steps for item in step.read() if item not in kept)

    def explained(self, operator: PreparedOperator, *, compiled: bool = False) -> OperatorExplanation:
        """Why an operator of a graph runs as it does, and with ``compiled`` what the driver made of its kernels."""
        return explain_operator(operator.desc, operator.plan, self._caps, self._device.programs if compiled else None)


class Places:
    """The ranges of a graph's storages.

    Args:
        weights: The constants on the device.
        placement: The places of everything in the arena.
        arena: The memory, None where nothing lies in it.
        outside: Ranges of storages that lie elsewhere.
    """

    def __init__(
        self,
        weights: Weights,
        placement: Placed,
        arena: Buffer | None,
        outside: Mapping[Storage, BoundRange] | None = None,
    ) -> None:
        self._weights, self._placement, self._arena = weights, placement, arena
        self._outside = outside or {}
        self._located: dict[Storage, BoundRange] = {}

    def locate(self, storage: Storage) -> BoundRange:
        """The bytes of a storage; a constant is uploaded when it is first asked for."""
        found = self._located.get(storage)
        if found is None:
            found = self._located[storage] = self._found(storage)
        return found

    def _found(self, storage: Storage) -> BoundRange:
        whole, offset, nbytes = self._placement.extent(storage)
        start = self._placement.start(whole)
        if start is not None:
            assert self._arena is not None, "a graph with tensors has an arena"
            return BoundRange(self._arena, start + offset, nbytes)
        elsewhere = self._outside.get(whole)
        if elsewhere is not None:
            return BoundRange(elsewhere.buffer, elsewhere.offset + offset, nbytes)
        buffer = self._weights.known(whole)
        assert buffer is not None, "what does not lie in the arena has memory of its own"
        return BoundRange(buffer, offset, nbytes)

    def commands(self, step: Step, operator: PreparedOperator, scratch: int) -> list[Command]:
        """The commands of a step's operator, with its scratch at an offset of the arena."""
        owned = operator.owned_inputs
        inputs = [
            None if storage is None or slot in owned else self.locate(storage) for slot, storage in enumerate(step.inputs)
        ]
        outputs = [None if storage is None else self.locate(storage) for storage in step.outputs]
        temporary = None
        if operator.temporary_bytes:
            assert self._arena is not None, "scratch lies in the arena"
            temporary = BoundRange(self._arena, scratch, operator.temporary_bytes)
        return operator.commands(inputs, outputs, temporary)


def _initialization(plan: Plan, owned: tuple[Storage, ...]) -> _Initialization:
    return (plan.initialize, plan.persistent_bytes, plan.persistent_inputs, owned)


def _chains(steps: Iterable[Step]) -> list[list[Step]]:
    """The steps in chains that have no storages in common, those with the most bytes first."""
    chains = connected((step, [*step.read(), *step.written()]) for step in steps)
    return sorted(
        chains,
        key=lambda chain: -sum(item.nbytes for item in {item for step in chain for item in (*step.read(), *step.written())}),
    )


def _bound(step: Step, desc: OperatorDesc) -> list[Storage]:
    """The storages that a step's commands name once it has this desc, whose OWNED_BY_DML tensors they do not."""
    slots = zip(step.inputs, desc.input_slots(), strict=True)
    inputs = [storage for storage, slot in slots if slot.tensor is not None and not slot.tensor.owned_by_dml]
    return [storage.place.storage for storage in (*inputs, *step.outputs) if storage is not None]
