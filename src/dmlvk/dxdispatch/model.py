"""A DxDispatch model: resources, dispatchables and commands, read from JSON and checked before anything runs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dmlvk.dxdispatch.document import Place, read_document
from dmlvk.dxdispatch.operators import read_operator
from dmlvk.dxdispatch.resources import BufferDesc, found_file, read_buffer
from dmlvk.spec.enums import ExecutionFlags
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import OperatorDesc

_COMPILE_TYPES: Final = ("DmlCompileOp", "DmlCompileGraph")


@dataclass(frozen=True)
class BindingSource:
    """A range of a resource.

    Attributes:
        place: Where the file names it.
        resource: The resource's name.
        element_size, element_offset: Bytes of an element, 0 for those of the resource's initial values, and the elements
            before the range.
        shape: The sizes of an ONNX model's tensor; () for those that the model says.
    """

    place: Place = field(compare=False, repr=False)
    resource: str
    element_size: int = 0
    element_offset: int = 0
    shape: tuple[int, ...] = ()


Bindings = Mapping[str, tuple[BindingSource, ...]]
"""The resources at each bind point."""


@dataclass(frozen=True)
class OperatorDispatchable:
    """A DirectML operator.

    Attributes:
        place: Where the file has it.
        desc: The operator.
        flags: The flags that it is compiled with.
        as_graph: Whether it is compiled as a graph of one node.
        bindings: The resources that its initialisation reads.
    """

    place: Place = field(compare=False, repr=False)
    desc: OperatorDesc
    flags: ExecutionFlags
    as_graph: bool
    bindings: Bindings


@dataclass(frozen=True)
class GraphDispatchable:
    """A serialised DirectML graph; its constants lie in files beside it."""

    place: Place = field(compare=False, repr=False)
    path: pathlib.Path
    flags: ExecutionFlags


@dataclass(frozen=True)
class OnnxDispatchable:
    """An ONNX model.

    Attributes:
        place: Where the file names it.
        path: The model.
        sizes: Symbolic sizes that are fixed, by name.
        denoted_sizes: Sizes that are fixed, by what the model says that they denote.
        config: Entries for the session's options.
        optimization_level: ONNX Runtime's: 0, 1, 2 or 99.
        logging_level: From 0 for everything to 4.
    """

    place: Place = field(compare=False, repr=False)
    path: pathlib.Path
    sizes: Mapping[str, int] = field(default_factory=dict)
    denoted_sizes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    optimization_level: int = 99
    logging_level: int = 2


Dispatchable = OperatorDispatchable | GraphDispatchable | OnnxDispatchable


@dataclass(frozen=True)
class DispatchCommand:
    """Runs a dispatchable with the resources that the file has at ``bindings_place``."""

    place: Place = field(compare=False, repr=False)
    bindings_place: Place = field(compare=False, repr=False)
    dispatchable: str
    bindings: Bindings


@dataclass(frozen=True)
class PrintCommand:
    """Prints a resource; ``verbose`` gives each element a line, with its bits."""

    place: Place = field(compare=False, repr=False)
    resource: str
    verbose: bool


@dataclass(frozen=True)
class WriteFileCommand:
    """Writes a resource to a file; ``dimensions`` are those of an array or a picture, () for one row."""

    place: Place = field(compare=False, repr=False)
    resource: str
    target: str
    dimensions: tuple[int, ...]


Command = DispatchCommand | PrintCommand | WriteFileCommand


@dataclass(frozen=True)
class Model:
    """What a file describes.

    Attributes:
        resources, dispatchables: Its parts, by name.
        commands: What is to be done, in order.
        notices: Sentences about members that mean nothing.
    """

    resources: Mapping[str, BufferDesc]
    dispatchables: Mapping[str, Dispatchable]
    commands: tuple[Command, ...]
    notices: tuple[str, ...] = ()


def read_model(path: pathlib.Path, folder: pathlib.Path | None = None) -> Model:
    """The model of a file: of JSON, an ONNX model, or a serialised graph (any other suffix). The last two stand for a model
    with one dispatch that has no bindings.

    Args:
        path: The file.
        folder: The folder of the files that it names; its own where None.

    Raises:
        InvalidArgumentError: a rule of the format is broken; names the JSON path.
        UnsupportedError: a dispatchable is HLSL.
        OSError: the file cannot be read.
    """
    if path.suffix.lower() == ".json":
        return parse_model(path.read_bytes(), folder or path.parent)
    here = Place(None, path.name)
    found: Dispatchable
    if path.suffix.lower() == ".onnx":
        found = OnnxDispatchable(here, path)
    else:
        found = GraphDispatchable(here, path, ExecutionFlags.NONE)
    return Model({}, {path.name: found}, (DispatchCommand(here, here, path.name, {}),))


def parse_model(data: bytes, folder: pathlib.Path) -> Model:
    """The model that a text of JSON describes; see ``read_model``."""
    root = read_document(data)
    root.note_unknown("resources", "dispatchables", "commands")
    resources = {name: read_buffer(place, folder) for name, place in root.member("resources").members()}
    dispatchables = {name: _dispatchable(place, folder) for name, place in root.member("dispatchables").members()}
    commands = tuple(map(_command, root.member("commands").items()))
    for place, name in _uses(dispatchables, commands):
        if name not in resources:
            place.refuse("must be a resource of the model", name)
    for command in commands:
        if isinstance(command, DispatchCommand) and command.dispatchable not in dispatchables:
            command.place.member("dispatchable").refuse("must be a dispatchable of the model")
    return Model(resources, dispatchables, commands, tuple(root.notices))


def _uses(dispatchables: Mapping[str, Dispatchable], commands: tuple[Command, ...]) -> Iterator[tuple[Place, str]]:
    """Every resource that is named, and where."""
    bound = [item.bindings for item in dispatchables.values() if isinstance(item, OperatorDispatchable)]
    for command in commands:
        if isinstance(command, DispatchCommand):
            bound.append(command.bindings)
        else:
            yield command.place.member("resource"), command.resource
    for bindings in bound:
        for sources in bindings.values():
            for source in sources:
                yield source.place, source.resource


# -- dispatchables


def _dispatchable(place: Place, folder: pathlib.Path) -> Dispatchable:
    kind = place.member("type", "Type").text().lower()
    if kind == "hlsl":
        raise UnsupportedError(
            f"{place.path} is a shader in HLSL, which takes Direct3D's compiler; operators, graphs and ONNX models run"
        )
    if kind == "onnx":
        return _onnx(place, folder)
    if kind == "dmlserializedgraph":
        # ``bindings`` are read and have no effect in DxDispatch too: constants are the graph's own.
        place.note_unknown("type", "sourcePath", "executionFlags")
        return GraphDispatchable(place, found_file(place.member("sourcePath"), folder), _flags(place))
    compiled = place.get("dmlCompileType")
    if compiled is not None and compiled.text() not in _COMPILE_TYPES:
        compiled.refuse(f"must be {' or '.join(_COMPILE_TYPES)}")
    as_graph = compiled is not None and compiled.text() == _COMPILE_TYPES[1]
    desc = read_operator(place)
    bindings = place.get("bindings")
    return OperatorDispatchable(place, desc, _flags(place), as_graph, {} if bindings is None else _bindings(bindings))


def _flags(place: Place) -> ExecutionFlags:
    flags = place.get("executionFlags")
    return ExecutionFlags.NONE if flags is None else flags.flags(ExecutionFlags)


def _onnx(place: Place, folder: pathlib.Path) -> OnnxDispatchable:
    names = ("freeDimensionNameOverrides", "freeDimensionDenotationOverrides", "sessionOptionsConfigEntries")
    levels = ("graphOptimizationLevel", "loggingLevel")
    place.note_unknown("type", "sourcePath", *names, *levels)
    sizes, denoted, config = (place.get(name) for name in names)
    optimization, logging = (place.get(name) for name in levels)
    return OnnxDispatchable(
        place,
        found_file(place.member("sourcePath"), folder),
        {} if sizes is None else {name: item.whole(1) for name, item in sizes.members()},
        {} if denoted is None else {name: item.whole(1) for name, item in denoted.members()},
        {} if config is None else {name: item.text() for name, item in config.members()},
        99 if optimization is None else optimization.whole(),
        2 if logging is None else logging.whole(0, 5),
    )


# -- commands


def _command(place: Place) -> Command:
    kind = place.member("type")
    match kind.text().lower():
        case "dispatch":
            place.note_unknown("type", "dispatchable", "bindings", "threadGroupCount")  # the last one is HLSL's
            bound = place.member("bindings")
            return DispatchCommand(place, bound, place.member("dispatchable").text(), _bindings(bound))
        case "print":
            place.note_unknown("type", "resource", "verbose")
            verbose = place.get("verbose")
            return PrintCommand(place, place.member("resource").text(), verbose is not None and verbose.boolean())
        case "writefile":
            place.note_unknown("type", "resource", "targetPath", "dimensions")
            dimensions = place.get("dimensions")
            return WriteFileCommand(
                place,
                place.member("resource").text(),
                place.member("targetPath").text(),
                () if dimensions is None else dimensions.wholes(1),
            )
    raise kind.error("must be dispatch, print or writeFile")


def _bindings(place: Place) -> Bindings:
    found: dict[str, tuple[BindingSource, ...]] = {}
    for name, member in place.members():
        sources = member.items() if isinstance(member.value, list) else [member]
        found[name] = tuple(map(_source, sources))
    return found


def _source(place: Place) -> BindingSource:
    if isinstance(place.value, str):
        return BindingSource(place, place.value)
    # An element count and a format are for the views of shaders: operators are bound from the offset on.
    place.note_unknown("name", "elementSizeInBytes", "elementStride", "elementOffset", "elementCount", "format", "shape")
    size, offset, shape = place.get("elementSizeInBytes", "elementStride"), place.get("elementOffset"), place.get("shape")
    if place.get("counter") is not None:
        raise UnsupportedError(f"{place.path}.counter: counters belong to shaders in HLSL")
    return BindingSource(
        place,
        place.member("name").text(),
        0 if size is None else size.whole(0, 2**64),
        0 if offset is None else offset.whole(0, 2**64),
        () if shape is None else shape.wholes(0),
    )
