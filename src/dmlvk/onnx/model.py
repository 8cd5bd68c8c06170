"""An ONNX file as the session uses it: nodes with their operator versions, constants as arrays, inputs and outputs."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import google.protobuf.message  # type: ignore[import-untyped]  # comes with onnx
import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.inliner
import onnx.numpy_helper

from dmlvk.graph.collector import collector_waits
from dmlvk.onnx.external import is_external, nodes_within, read_external, tensors
from dmlvk.onnx.precision import in_float32
from dmlvk.onnx.saved_by_runtime import completed
from dmlvk.onnx.types import infer_types, type_name
from dmlvk.onnx.versions import CHECKED, is_beyond_onnx
from dmlvk.onnx.weights import SplitModel, Weights, with_data, with_weights, without_stand_ins, without_weights
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, ModelError, NoSuchFileError, UnsupportedError, UnsupportedNodeError
from dmlvk.spec.formats import NumberFormat

Array = npt.NDArray[Any]
Source = str | os.PathLike[str] | bytes | onnx.ModelProto | SplitModel


ElementKind = TensorDataType | NumberFormat
"""The kind of a tensor's elements on the device. Of a format that no tensor has, the bits are there: only conversions to and
from other types know what they mean."""


def _formats() -> Iterator[tuple[int, tuple[np.dtype[Any], ElementKind]]]:
    """The types that numpy lacks, as far as onnx knows them, with its own for them. onnx before 1.19 reads some as float32:
    they are named integers then, and those of less than a byte are left out."""
    codes = dict(onnx.TensorProto.DataType.items())
    for kind in NumberFormat:
        if kind.name in codes:
            code = codes[kind.name]
            dtype: np.dtype[Any] = onnx.numpy_helper.to_array(onnx.TensorProto(data_type=code, dims=[0])).dtype
            if dtype.itemsize == 4 and kind.layout.bits >= 8:
                bits = np.dtype(f"u{kind.layout.bits // 8}")
                dtype = np.dtype((bits, {kind.name.lower().removeprefix("float8"): (bits, 0)}))
            if dtype.itemsize < 4:
                yield code, (dtype, _AS_TENSORS.get(kind, kind))


_AS_TENSORS: Final[dict[NumberFormat, TensorDataType]] = {
    NumberFormat.INT4: TensorDataType.INT4,
    NumberFormat.UINT4: TensorDataType.UINT4,
}
"""Formats that DirectML's tensors have after all."""

_ELEMENT_TYPES: Final[dict[int, tuple[np.dtype[Any], ElementKind]]] = {
    onnx.TensorProto.FLOAT: (np.dtype(np.float32), TensorDataType.FLOAT32),
    onnx.TensorProto.FLOAT16: (np.dtype(np.float16), TensorDataType.FLOAT16),
    onnx.TensorProto.DOUBLE: (np.dtype(np.float64), TensorDataType.FLOAT64),
    onnx.TensorProto.INT64: (np.dtype(np.int64), TensorDataType.INT64),
    onnx.TensorProto.INT32: (np.dtype(np.int32), TensorDataType.INT32),
    onnx.TensorProto.INT16: (np.dtype(np.int16), TensorDataType.INT16),
    onnx.TensorProto.INT8: (np.dtype(np.int8), TensorDataType.INT8),
    onnx.TensorProto.UINT64: (np.dtype(np.uint64), TensorDataType.UINT64),
    onnx.TensorProto.UINT32: (np.dtype(np.uint32), TensorDataType.UINT32),
    onnx.TensorProto.UINT16: (np.dtype(np.uint16), TensorDataType.UINT16),
    onnx.TensorProto.UINT8: (np.dtype(np.uint8), TensorDataType.UINT8),
    onnx.TensorProto.BOOL: (np.dtype(np.bool_), TensorDataType.UINT8),
    **dict(_formats()),
}
"""The element types a device tensor can have. A bool is a byte of 0 or 1, as numpy and DirectML both store it."""

TEXT: Final = np.dtype(object)
"""numpy's type for text, which stays on the host."""

FOUR_BITS: Final = (TensorDataType.INT4, TensorDataType.UINT4)
FORMATS: Final = tuple(kind for kind in NumberFormat if kind not in _AS_TENSORS)
"""The kinds whose tensors hold bits."""

_FORMATS_OF_TENSORS: Final[Mapping[ElementKind | None, NumberFormat]] = {
    data_type: kind for kind, data_type in _AS_TENSORS.items()
}

# Looked up by hash: onnx 1.17's type for INT4 equals numpy's int8, but its hash is another.
_KINDS: Final = dict(_ELEMENT_TYPES.values())
_CODES: Final = {dtype: code for code, (dtype, _) in _ELEMENT_TYPES.items()}


def kind_of(dtype: np.dtype[Any]) -> ElementKind | None:
    """The kind of elements of a numpy type; None where no device tensor can hold them."""
    return _KINDS.get(np.dtype(dtype))


def format_of(dtype: np.dtype[Any]) -> NumberFormat | None:
    """The format of a numpy type's numbers; None where operators compute with them as they are."""
    kind = kind_of(dtype)
    return kind if isinstance(kind, NumberFormat) else _FORMATS_OF_TENSORS.get(kind)


def data_type_of(dtype: np.dtype[Any]) -> TensorDataType | None:
    """DirectML's data type for a numpy type, of a format that of its bits; None where there is none."""
    kind = kind_of(dtype)
    return kind.carrier if isinstance(kind, NumberFormat) else kind


def element_kind(code: int) -> ElementKind | None:
    """The kind of elements of a type by ONNX's number; None for one that no device tensor can have."""
    return _ELEMENT_TYPES.get(code, (None, None))[1]


def element_code(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a numpy type; 0 where no device tensor can hold it."""
    return _CODES.get(dtype, 0)


def element_type(code: int) -> tuple[str, np.dtype[Any] | None]:
    """The name of an element type by ONNX's number, and numpy's type; None for one that no device tensor can have."""
    known = code in onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(code).lower() if known else f"unknown type {code}"
    return name, _ELEMENT_TYPES.get(code, (None, None))[0]


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of a model.

    Attributes:
        name: Its name.
        shape: Sizes, a list; a string is a symbolic size, None an unnamed one. None where the model says nothing of the
            shape.
        type: ONNX's name of its type, such as "tensor(float)", "seq(tensor(int64))" or "optional(seq(tensor(float)))".
        dtype: The numpy type, of a sequence that of its tensors; ``object`` for text, and for an output of no tensors.
    """

    name: str
    shape: list[int | str | None] | None
    type: str
    dtype: np.dtype[Any] = field(repr=False)

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor that a device can hold: no sequence, nothing optional and no text."""
        return self.type.startswith("tensor(") and self.dtype != TEXT


@dataclass(frozen=True)
class ModelMetadata:
    """The model's description of itself; the names are those of onnxruntime."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: Mapping[str, str]
    graph_description: str = ""


@dataclass(frozen=True, eq=False)
class Node:
    """One node.

    Attributes:
        name: Its name, or its first output's where it has none.
        op_type, domain: The operator; the domain of ONNX's own operators is "".
        version: Since-version of the operator's definition that the model's opset means; the opset itself where onnx
            does not know the operator or the opset.
        opsets: Domain -> version, for the operators of the graphs in its attributes.
        inputs, outputs: Names of values, "" where an optional one is absent.
        attributes: The attributes by name: numbers, strings, lists of them, arrays.
        proto: The node as the file has it.
        whole: The node that this one is part of, where it is none of the file's.
    """

    name: str
    op_type: str
    domain: str
    version: int
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto
    whole: Node | None = None

    @property
    def has_subgraph(self) -> bool:
        """Whether an attribute holds a graph (If, Loop, Scan)."""
        return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in self.proto.attribute)


@dataclass(frozen=True)
class Model:
    """A model, checked.

    Attributes:
        nodes: The nodes in an order in which each comes after what it reads.
        initializers: Constants by name.
        inputs: The inputs that a caller feeds; inputs with an initializer are constants.
        overridable: The inputs with an initializer, where the file's version of the format says that they may have others.
        outputs: The outputs that a caller gets.
        opsets: Domain -> version.
        types: ONNX's number of the element type by value, as far as type inference knows it.
        metadata: The model's description of itself.
    """

    nodes: tuple[Node, ...]
    initializers: Mapping[str, Array]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    opsets: Mapping[str, int]
    types: Mapping[str, int]
    metadata: ModelMetadata
    overridable: tuple[ValueInfo, ...] = ()


MOST_FUNCTION_NODES: Final = 1 << 16


@collector_waits
def load_model(
    source: Source,
    *,
    float64_as_float32: bool = False,
    hosts: bool = False,
    max_function_nodes: int = MOST_FUNCTION_NODES,
    maps: bool = False,
) -> Model:
    """Reads and checks a model.

    Args:
        source: A path, the file's bytes, a ModelProto, or a model with its weights apart.
        float64_as_float32: Whether 64-bit floats become 32-bit ones, but for those that are fed and given back.
        hosts: Whether the model may take text, and make text and what is no tensor.
        max_function_nodes: The most nodes that the calls of its own functions may stand for.
        maps: Whether the bytes of large weights stay in the files, which are mapped and must not change.

    Raises:
        ModelError: there is no such file, it is no ONNX model, or ONNX's checker refuses it.
        UnsupportedError: an input, output or initializer is no dense tensor of a type that the device can hold, or the
            model needs what the installed onnx does not know yet.
    """
    try:
        proto, weights = _read(source, maps)
        return _model(_checked(completed(proto), weights, max_function_nodes), weights, float64_as_float32, hosts)
    except UnicodeDecodeError as error:  # a name, an attribute, or the checker's message about one
        raise ModelError(f"the model is broken: it has text that is not UTF-8: {error}") from error
    except google.protobuf.message.Error as error:  # graphs in graphs, too deep to be written or read
        raise ModelError(f"the model is broken: {error}") from error


def _model(proto: onnx.ModelProto, weights: Weights, float64_as_float32: bool, hosts: bool) -> Model:
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    if float64_as_float32:
        proto, weights = in_float32(with_weights(proto, weights)), {}
    graph = proto.graph
    opsets = {_domain(item.domain): item.version for item in proto.opset_import}
    if opsets.get("", 0) > CHECKED and is_beyond_onnx(opsets[""], ""):
        raise _too_new(opsets[""])
    if graph.sparse_initializer:
        raise UnsupportedError(f"initializer {graph.sparse_initializer[0].values.name!r} is sparse")
    initializers = {item.name: read_initializer(item, weights.get(item.name)) for item in graph.initializer}
    return Model(
        nodes=tuple(read_node(item, opsets) for item in graph.node),
        initializers=initializers,
        inputs=tuple(_value_info(item, text=hosts) for item in graph.input if item.name not in initializers),
        outputs=tuple(_value_info(item, text=hosts, opaque=hosts) for item in graph.output),
        opsets=opsets,
        types=_inferred_types(graph, opsets),
        metadata=ModelMetadata(
            producer_name=proto.producer_name,
            graph_name=graph.name,
            domain=proto.domain,
            description=proto.doc_string,
            version=proto.model_version,
            custom_metadata_map={item.key: item.value for item in proto.metadata_props},
            graph_description=graph.doc_string,
        ),
        overridable=tuple(
            _value_info(item, text=hosts)
            for item in graph.input
            if item.name in initializers and proto.ir_version >= _OVERRIDABLE_SINCE
        ),
    )


_OVERRIDABLE_SINCE: Final = 4
"""The version of the format from which an input with an initializer has a default, and not a constant."""


def _read(source: Source, maps: bool) -> tuple[onnx.ModelProto, Weights]:
    """The model, and apart from it the bytes of its large initializers."""
    if isinstance(source, SplitModel):
        return source
    if not isinstance(source, (str, bytes, os.PathLike, onnx.ModelProto)):
        raise InvalidArgumentError("must be a path, bytes or a ModelProto", field="model", value=type(source))
    if isinstance(source, onnx.ModelProto):
        try:
            written: bytes = source.SerializeToString()
        except (google.protobuf.message.EncodeError, ValueError):  # too large
            return source, {}
        source = written
    try:
        file = source if isinstance(source, bytes) else _content(Path(os.fsdecode(source)), maps)
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        kind = NoSuchFileError if isinstance(error, FileNotFoundError) else ModelError
        raise kind(f"{os.fspath(source)!r} cannot be read: {reason}") from error
    light, weights = without_weights(file)
    try:
        proto = onnx.ModelProto.FromString(light)
    except google.protobuf.message.DecodeError as error:
        what = "the bytes are" if isinstance(source, bytes) else f"{os.fspath(source)} is"
        raise ModelError(f"the model is broken: {what} no ONNX model: {error}") from error
    if isinstance(source, bytes):
        return proto, weights
    return proto, {**weights, **read_external(proto, Path(os.fsdecode(source)).parent, maps)}


def _content(path: Path, maps: bool) -> memoryview:
    with path.open("rb") as file:
        if maps and os.fstat(file.fileno()).st_size:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        # Not read(): numpy's large arrays are of large pages, and it is touching pages that takes the time.
        content = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        length = file.readinto(content.data)
        rest = file.read()  # of what is no plain file, or has grown
    return content.data[:length] if not rest else memoryview(content[:length].tobytes() + rest)


def _checked(proto: onnx.ModelProto, weights: Weights, most_nodes: int) -> onnx.ModelProto:
    if not proto.HasField("graph"):
        raise ModelError("the file is no ONNX model: it has no graph")
    _check_functions(proto, most_nodes)
    outside = next((tensor for tensor in tensors(proto) if is_external(tensor)), None)
    if outside is not None:
        raise ModelError(f"the data of tensor {outside.name!r} are in another file: the model has to be given as a path")
    # The checker wants a shape for every output. Exporters leave it out, and every runtime takes that.
    shapeless = [
        item.type.tensor_type
        for item in (*proto.graph.input, *proto.graph.output)
        if item.type.HasField("tensor_type") and not item.type.tensor_type.HasField("shape")
    ]
    for tensor in shapeless:
        tensor.shape.SetInParent()
    # Nor does it take a newer version of the file's format, which only adds what an older reader passes over.
    format_version = proto.ir_version
    proto.ir_version = min(format_version, onnx.IR_VERSION)
    opset = next((item.version for item in proto.opset_import if _domain(item.domain) == ""), 0)
    try:
        if proto.ByteSize() <= onnx.checker.MAXIMUM_PROTOBUF:  # the checker reads larger ones from a path only
            onnx.checker.check_model(without_stand_ins(proto, weights))
    except onnx.checker.ValidationError as error:
        raise _too_new(opset, error) if is_beyond_onnx(opset, "") else ModelError(f"the model is broken: {error}") from error
    finally:
        proto.ir_version = format_version
        for tensor in shapeless:
            tensor.ClearField("shape")
    _check_names(proto.graph)
    return proto


def _too_new(opset: int, error: Exception | None = None) -> UnsupportedError:
    known = f"the model has opset {opset}; the installed onnx knows {onnx.defs.onnx_opset_version()}"
    return UnsupportedError(f"{known}: install a newer one" + (f", or the model is broken: {error}" if error else ""))


def _check_functions(proto: onnx.ModelProto, most: int) -> None:
    """Refuses functions that call themselves, and those that stand for too many nodes, before native code follows them.
    Each call has the function's nodes put in its place, so that thirty functions that call the next one twice would be a
    thousand million nodes."""
    functions = {(item.domain, item.name): item for item in proto.functions}
    counts: dict[tuple[str, str], int] = {}  # of a function's nodes, 0 while they are counted
    waiting = list(functions)
    while waiting:
        key = waiting[-1]
        called = [(node.domain, node.op_type) for node in nodes_within(functions[key].node)]
        called = [other for other in called if other in functions]
        unknown = [other for other in called if not counts.get(other)]
        if key in counts or not unknown:
            if unknown:
                raise ModelError(f"the model is broken: its function {key[1]!r} calls itself")
            counts[key] = min(1 + len(functions[key].node) + sum(counts[other] for other in called), most + 1)
            waiting.pop()
        else:
            counts[key] = 0
            waiting += unknown
    calls = ((node.domain, node.op_type) for node in nodes_within(proto.graph.node))
    if sum(counts.get(key, 0) for key in calls) > most:
        raise ModelError(f"the model's functions stand for more nodes than SessionOptions.max_function_nodes allows, {most}")


def _check_names(graph: onnx.GraphProto) -> None:
    """Each value is made once, and before it is read: onnx's checker misses some of that, and all of a model past 2 GiB."""
    made: dict[str, str] = {}

    def note(name: str, maker: str) -> None:
        if name in made:
            raise ModelError(f"the model is broken: {name!r} is {made[name]} and {maker}")
        made[name] = maker

    for item in graph.input:
        note(item.name, "an input")
    for tensor in graph.initializer:
        if made.get(tensor.name) != "an input":  # an input may have its initializer
            note(tensor.name, "an initializer")
        made[tensor.name] = "an initializer"
    for sparse in graph.sparse_initializer:
        note(sparse.values.name, "a sparse initializer")
    for node in graph.node:
        where = node.name or next((name for name in node.output if name), "")
        for name in node.input:
            if name and name not in made:
                raise ModelError(f"the model is broken: node {where!r} ({node.op_type}) reads {name!r} before it is made")
        for name in node.output:
            if name:
                note(name, f"made by node {where!r} ({node.op_type})")
    for item in graph.output:
        if item.name not in made:
            raise ModelError(f"the model is broken: nothing makes its output {item.name!r}")


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def read_node(proto: onnx.NodeProto, opsets: Mapping[str, int]) -> Node:
    """A node as the session uses it; ``opsets`` are the model's, domain -> version."""
    domain = _domain(proto.domain)
    version = opsets.get(domain, 0)
    if not is_beyond_onnx(version, domain):
        with contextlib.suppress(onnx.defs.SchemaError):  # an operator that onnx does not define: the registry decides
            version = onnx.defs.get_schema(proto.op_type, version, domain).since_version
    return Node(
        name=proto.name or next((name for name in proto.output if name), ""),
        op_type=proto.op_type,
        domain=domain,
        version=version,
        opsets=opsets,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={item.name: _attribute(item) for item in proto.attribute},
        proto=_detached(proto),
    )


def _detached(proto: onnx.NodeProto) -> onnx.NodeProto:
    """A copy: a part of a message keeps the whole of it in memory, the weights included."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    return copy


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(proto)
    if proto.type == onnx.AttributeProto.STRING:
        return value.decode()
    if proto.type == onnx.AttributeProto.STRINGS:
        return [item.decode() for item in value]
    if proto.type == onnx.AttributeProto.TENSOR:
        with _reading(value, f"attribute {proto.name!r}"):
            return _elements(value, None)
    return list(value) if isinstance(value, Sequence) else value


def read_initializer(proto: onnx.TensorProto, data: memoryview | None = None) -> Array:
    """The array of a constant tensor; ``data`` is its raw data where they are not in the message."""
    with _reading(proto, f"initializer {proto.name!r}"):
        return _elements(proto, data)


def _elements(proto: onnx.TensorProto, data: memoryview | None) -> Array:
    dtype, kind = _ELEMENT_TYPES.get(proto.data_type, (None, None))
    is_whole = kind is not None and kind not in FOUR_BITS and not (isinstance(kind, NumberFormat) and kind.layout.bits < 8)
    if dtype is not None and is_whole:
        if data is not None:
            return _of_bits(data, dtype, proto.dims)
        if isinstance(kind, NumberFormat):
            given = proto.raw_data or np.array(proto.int32_data, np.int32).astype(f"<u{dtype.itemsize}").tobytes()
            return _of_bits(given, dtype, proto.dims)
    array: Array = onnx.numpy_helper.to_array(proto if data is None else with_data(proto, data))
    return array


def _of_bits(data: bytes | memoryview, dtype: np.dtype[Any], sizes: Iterable[int]) -> Array:
    """The elements of a tensor, from its bytes in a file."""
    if dtype.isbuiltin == 1:
        return np.frombuffer(data, dtype.newbyteorder("<")).reshape(tuple(sizes))
    return np.frombuffer(data, f"<u{dtype.itemsize}").view(dtype).reshape(tuple(sizes))


def constant_of(node: Node) -> Array:
    """The value of a Constant node.

    Raises:
        ModelError: there is none, or more than one.
        UnsupportedNodeError: it is sparse.
    """
    values = [item for item in node.proto.attribute if item.name in _CONSTANTS]
    if len(values) != 1:
        raise ModelError(f"node {node.name!r} (Constant) has {len(values)} values")
    name, dtype = values[0].name, _CONSTANTS[values[0].name]
    if name == "sparse_value":
        raise UnsupportedNodeError(node.name, node.op_type, node.domain, node.version, "its value is sparse")
    return read_initializer(values[0].t) if name == "value" else np.array(node.attributes[name], dtype)


_CONSTANTS: Final[Mapping[str, Any]] = {
    "value": None,
    "sparse_value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": TEXT,
    "value_strings": TEXT,
}
"""The attributes of a Constant, one of which has its value, with numpy's type of those that are no tensors."""


@contextlib.contextmanager
def _reading(proto: onnx.TensorProto, what: str) -> Iterator[None]:
    """Refuses a tensor whose sizes do not fit its data; numpy would take one size of -1 for a request to work it out."""
    if any(size < 0 for size in proto.dims):
        raise ModelError(f"{what} has the sizes {list(proto.dims)}, a negative one among them")
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
        raise ModelError(f"{what} cannot be read: {error}") from error


def _value_info(proto: onnx.ValueInfoProto, *, text: bool, opaque: bool = False) -> ValueInfo:
    kind, inner = "{}", proto.type
    while inner.WhichOneof("value") in ("optional_type", "sequence_type"):
        is_sequence = inner.WhichOneof("value") == "sequence_type"
        kind = kind.format("seq({})" if is_sequence else "optional({})")
        inner = inner.sequence_type.elem_type if is_sequence else inner.optional_type.elem_type
    if inner.WhichOneof("value") != "tensor_type" or kind not in _KINDS_OF_VALUES:
        if opaque and (name := type_name(proto.type)):
            return ValueInfo(proto.name, None, name, TEXT)
        raise UnsupportedError(
            f"{proto.name!r} is a {kind.format(inner.WhichOneof('value'))}; a model takes and makes tensors, sequences "
            "of them, and either as optional values"
        )
    tensor = inner.tensor_type
    name, dtype = element_type(tensor.elem_type)
    if text and tensor.elem_type == onnx.TensorProto.STRING:
        dtype = TEXT
    if dtype is None:
        raise UnsupportedError(f"{proto.name!r} has elements of type {name}, which no device tensor can hold")
    shape: list[int | str | None] | None = None
    if tensor.HasField("shape") and kind == "{}":
        shape = [_dimension(item) for item in tensor.shape.dim]
    return ValueInfo(proto.name, shape, kind.format(f"tensor({name})"), dtype)


_KINDS_OF_VALUES: Final = ("{}", "seq({})", "optional({})", "optional(seq({}))")


def _dimension(proto: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if proto.HasField("dim_value") and proto.dim_value >= 0:
        return proto.dim_value
    return proto.dim_param or None


def _inferred_types(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> dict[str, int]:
    """The types of the graph's values; where onnx's definitions leave one open, the file's."""
    codes = {item.name: item.data_type for item in graph.initializer}
    codes |= {item.name: item.type.tensor_type.elem_type for item in graph.input if item.name not in codes}
    infer_types(graph.node, opsets, codes)
    for item in (*graph.value_info, *graph.output):
        codes.setdefault(item.name, item.type.tensor_type.elem_type)
    return {name: code for name, code in codes.items() if code}
