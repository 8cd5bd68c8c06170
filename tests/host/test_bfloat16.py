"""Products of BFLOAT16: which read bits, from where, and which write them; and copies that come before roundings."""

from __future__ import annotations

import dataclasses

import pytest

from dmlvk.devices.capabilities import FEATURE_NAMES, Capabilities, CooperativeMatrix
from dmlvk.devices.model import H200
from dmlvk.graph.passes import PASSES, optimized
from dmlvk.graph.step import Step, Storage
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.lowering import explain, lower
from dmlvk.kernels.matmul.manifest import OperandC
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.matmul import FormatGemm
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

F32, U16 = TensorDataType.FLOAT32, TensorDataType.UINT16
BF16, BYTES = NumberFormat.BFLOAT16, NumberFormat.FLOAT8E5M2
ROWS, DEPTH, COLUMNS = 24, 32, 48


def storage(tensor: TensorDesc) -> Storage:
    return Storage(tensor.total_tensor_size_in_bytes)


class Graph:
    """Steps, by what they write."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.tensors: dict[Storage, TensorDesc] = {}

    def given(self, tensor: TensorDesc) -> Storage:
        """A tensor that comes from outside."""
        found = storage(tensor)
        self.tensors[found] = tensor
        return found

    def add(self, desc: OperatorDesc, *inputs: Storage | None) -> Storage:
        """The output of a step."""
        desc.validate()
        output = self.given(desc.tensor("output_tensor"))
        self.steps.append(Step("", desc, inputs, (output,)))
        return output

    def cast(
        self, x: Storage, to: TensorDataType = F32, seen: TensorDesc | None = None, format_: NumberFormat = BF16
    ) -> Storage:
        """A cast, of a view where one is given."""
        x_tensor = seen or self.tensors[x]
        desc = FormatCast(input_tensor=x_tensor, output_tensor=TensorDesc(to, x_tensor.sizes), format=format_)
        return self.add(desc, x)

    def bits(self, *sizes: int) -> Storage:
        """Bits that come from outside."""
        return self.given(TensorDesc(U16, sizes))

    def relu(self, x: Storage) -> Storage:
        """Something that no cast makes."""
        return self.add(ops.ActivationRelu(input_tensor=self.tensors[x], output_tensor=self.tensors[x]), x)

    def rounded(self, *sizes: int) -> Storage:
        """Numbers that a cast rounds."""
        return self.cast(self.relu(self.given(TensorDesc(F32, sizes))))

    def product(self, a: Storage, b: Storage, c: Storage | None = None, **fields: object) -> Storage:
        """A product of FLOAT32, whose factors are seen as they lie unless fields say otherwise."""
        tensors = {"a_tensor": self.tensors[a], "b_tensor": self.tensors[b]} | fields
        desc = ops.Gemm(**tensors, c_tensor=None if c is None else self.tensors[c])
        desc = desc.replace(output_tensor=TensorDesc(F32, desc.inferred_output_sizes()[0]))
        return self.add(desc, a, b, c)

    def after(self, *outputs: Storage, names: tuple[str, ...] = ("bfloat16",)) -> tuple[Step, ...]:
        """The steps after some passes, each of which is valid."""
        known = {item.name for item in PASSES}
        found = optimized(self.steps, outputs, without=known - {"dead", *names})
        for step in found:
            step.desc.validate()
        return found


def titles(steps: tuple[Step, ...]) -> list[str]:
    return [step.desc.title for step in steps]


def test_a_product_reads_the_bits_that_were_widened() -> None:
    graph = Graph()
    a, b = graph.bits(ROWS, DEPTH), graph.bits(DEPTH, COLUMNS)
    y = graph.product(graph.cast(a), graph.cast(b), alpha=0.5)
    (step,) = graph.after(y)
    assert isinstance(step.desc, FormatGemm) and step.desc.alpha == 0.5
    assert step.inputs == (a, b, None) and step.outputs == (y,)
    assert step.desc.tensor("output_tensor").data_type is F32


def test_what_is_rounded_is_made_bits_once() -> None:
    graph = Graph()
    x = graph.rounded(ROWS, DEPTH)
    first, second = (graph.product(x, graph.cast(graph.bits(DEPTH, COLUMNS))) for _ in range(2))
    steps = graph.after(first, second)
    assert titles(steps) == ["ActivationRelu", "FormatCast(BFLOAT16)", "FormatGemm", "FormatGemm"]
    assert steps[1].desc.tensor("output_tensor").data_type is U16, "nothing else reads the rounded numbers"
    assert steps[2].inputs[0] is steps[3].inputs[0] is steps[1].outputs[0]


def test_what_another_step_reads_is_rounded_too() -> None:
    graph = Graph()
    x = graph.rounded(ROWS, DEPTH)
    y, z = graph.product(x, graph.cast(graph.bits(DEPTH, COLUMNS))), graph.relu(x)
    kinds = [step.desc.tensor("output_tensor").data_type for step in graph.after(y, z)]
    assert kinds == [F32, F32, U16, F32, F32]


@pytest.mark.parametrize("a_is_known", [False, True])
def test_a_product_with_another_factor_stays(a_is_known: bool) -> None:
    graph = Graph()
    other = graph.relu(graph.given(TensorDesc(F32, (ROWS, ROWS))))
    known = graph.cast(graph.bits(ROWS, ROWS))
    y = graph.product(*((known, other) if a_is_known else (other, known)))
    assert "Gemm" in titles(graph.after(y))


def test_numbers_of_another_format_stay() -> None:
    graph = Graph()
    a = graph.cast(graph.given(TensorDesc(TensorDataType.UINT8, (ROWS, DEPTH))), format_=BYTES)
    assert "Gemm" in titles(graph.after(graph.product(a, graph.cast(graph.bits(DEPTH, COLUMNS)))))


def test_a_product_with_an_activation_stays() -> None:
    graph = Graph()
    factors = graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS))
    assert "Gemm" in titles(graph.after(graph.product(*factors, fused_activation=ops.ActivationRelu())))


def test_factors_are_seen_under_other_sizes_and_transposed() -> None:
    graph = Graph()
    a, b = graph.bits(2, ROWS, DEPTH), graph.bits(COLUMNS, DEPTH)
    wide = graph.cast(a), graph.cast(b)
    seen = TensorDesc(F32, (2 * ROWS, DEPTH)), TensorDesc(F32, (DEPTH, COLUMNS), (1, DEPTH))
    (step,) = graph.after(graph.product(*wide, a_tensor=seen[0], b_tensor=seen[1]))
    assert step.inputs == (a, b, None)
    assert step.desc.tensor("a_tensor") == TensorDesc(U16, seen[0].sizes)
    assert step.desc.tensor("b_tensor") == TensorDesc(U16, seen[1].sizes, (1, DEPTH))


def test_bits_are_read_through_copies() -> None:
    """Weights that were turned before they were widened, and once more after it."""
    graph = Graph()
    b = graph.bits(COLUMNS, DEPTH)
    turned = graph.cast(b, seen=TensorDesc(U16, (DEPTH, COLUMNS), (1, DEPTH)))
    back = graph.add(
        ops.ElementWiseIdentity(
            input_tensor=TensorDesc(F32, (COLUMNS, DEPTH), (1, COLUMNS)), output_tensor=TensorDesc(F32, (COLUMNS, DEPTH))
        ),
        turned,
    )
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), back, trans_b=MatrixTransform.TRANSPOSE)
    (step,) = graph.after(y)
    assert step.inputs[1] is b and step.desc.tensor("b_tensor").effective_strides == (DEPTH, 1)


def test_bits_without_neighbours_are_copied() -> None:
    """No row and no column of what the caller has is one: they are made bits anew, packed."""
    graph = Graph()
    a = graph.given(TensorDesc(U16, (ROWS, DEPTH), (2 * DEPTH, 2)))
    steps = graph.after(graph.product(graph.cast(a), graph.cast(graph.bits(DEPTH, COLUMNS))))
    assert titles(steps) == ["FormatCast(BFLOAT16)", "FormatCast(BFLOAT16)", "FormatGemm"]
    assert steps[2].desc.tensor("a_tensor").effective_strides == (DEPTH, 1)


def test_a_part_of_what_is_rounded_is_known() -> None:
    graph = Graph()
    both = graph.rounded(2, ROWS, DEPTH)
    part = TensorDesc(F32, (1, ROWS, DEPTH))
    desc = ops.Slice1(
        input_tensor=graph.tensors[both],
        output_tensor=part,
        input_window_offsets=(1, 0, 0),
        input_window_sizes=part.sizes,
        input_window_strides=(1, 1, 1),
    )
    own = TensorDesc(F32, (ROWS, DEPTH))
    y = graph.product(graph.add(desc, both), graph.cast(graph.bits(DEPTH, COLUMNS)), a_tensor=own)
    steps = graph.after(y)
    assert titles(steps)[-2:] == ["FormatCast(BFLOAT16)", "FormatGemm"]
    assert steps[-2].desc.tensor("input_tensor") == part, "what is sliced is made bits, not all"


def test_a_product_makes_the_bits_that_alone_are_read() -> None:
    graph = Graph()
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS)))
    z = graph.cast(y, U16, TensorDesc(F32, (2, ROWS // 2, COLUMNS)))
    (step,) = graph.after(z)
    assert step.outputs == (z,) and step.desc.tensor("output_tensor") == TensorDesc(U16, (ROWS, COLUMNS))
    again = Graph()
    y = again.product(again.cast(again.bits(ROWS, DEPTH)), again.cast(again.bits(DEPTH, COLUMNS)))
    assert len(again.after(y, again.cast(y, U16))) == 2, "the sums are read, too"


def test_bits_are_added_to_bits() -> None:
    graph = Graph()
    c = graph.bits(ROWS, COLUMNS)
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS)), graph.cast(c))
    for outputs in ((y,), (graph.cast(y, U16),)):
        (step,) = graph.after(*outputs)
        assert step.storage("c_tensor") is c and step.desc.tensor("c_tensor").data_type is U16
    graph = Graph()
    c = graph.relu(graph.given(TensorDesc(F32, (ROWS, COLUMNS))))
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS)), c)
    steps = graph.after(graph.cast(y, U16))
    assert titles(steps)[-2:] == ["FormatGemm", "FormatCast(BFLOAT16)"] and steps[-2].storage("c_tensor") is c, "no bits"


def test_what_is_rounded_to_be_added_stays() -> None:
    graph = Graph()
    c = graph.rounded(ROWS, COLUMNS)
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS)), c)
    steps = graph.after(y)
    assert titles(steps) == ["ActivationRelu", "FormatCast(BFLOAT16)", "FormatGemm"]
    assert steps[-1].storage("c_tensor") is c


def test_two_products_in_a_row_have_no_cast_between_them() -> None:
    graph = Graph()
    y = graph.product(graph.cast(graph.bits(ROWS, DEPTH)), graph.cast(graph.bits(DEPTH, COLUMNS)))
    z = graph.product(graph.cast(y), graph.cast(graph.bits(COLUMNS, DEPTH)))
    first, second = graph.after(z)
    assert second.inputs[0] is first.outputs[0] and first.desc.tensor("output_tensor").data_type is U16


HEADS, ROW = TensorDesc(F32, (2, 4, 8, 16)), TensorDesc(F32, (2, 8, 4, 16))
BY_HEADS = TensorDesc(F32, (2, 8, 4, 16), (512, 16, 128, 1))


def test_a_copy_comes_before_the_rounding_of_what_it_copies() -> None:
    graph = Graph()
    x = graph.relu(graph.given(HEADS))
    y = graph.add(ops.ElementWiseIdentity(input_tensor=BY_HEADS, output_tensor=ROW), graph.cast(x))
    _, copy, cast = graph.after(y, names=("rounding",))
    assert isinstance(copy.desc, ops.ElementWiseIdentity) and copy.inputs == (x,)
    assert copy.desc.tensor("input_tensor") == BY_HEADS
    assert isinstance(cast.desc, FormatCast) and cast.inputs == copy.outputs and cast.outputs == (y,)
    assert cast.desc.tensor("input_tensor") == cast.desc.tensor("output_tensor") == ROW


def test_a_rounding_that_others_read_stays_before_the_copy() -> None:
    graph = Graph()
    x = graph.cast(graph.relu(graph.given(HEADS)))
    y = graph.add(ops.ElementWiseIdentity(input_tensor=BY_HEADS, output_tensor=ROW), x)
    assert titles(graph.after(x, y, names=("rounding",)))[1:] == ["FormatCast(BFLOAT16)", "ElementWiseIdentity"]


DEVICE = Capabilities(
    features=frozenset(FEATURE_NAMES),
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    storage_buffer_bytes=2**32 - 1,
    storage_buffers=64,
    cooperative_matrices=(CooperativeMatrix(16, 16, 16, "bfloat16", "float32"),),
    model=H200,
)


def product(rows: int, output: TensorDataType = U16, **fields: object) -> FormatGemm:
    own = {"a_tensor": (rows, 512), "b_tensor": (512, 512)}
    tensors = {name: TensorDesc(U16, sizes) for name, sizes in own.items()}
    return FormatGemm(**tensors | fields, output_tensor=TensorDesc(output, (rows, 512)))


def rule(desc: FormatGemm, caps: Capabilities) -> str:
    return next(own.name for own, holds in explain(desc, caps) if holds)


@pytest.mark.parametrize("output", [F32, U16])
def test_matrices_of_bfloat16_multiply_bits(output: TensorDataType) -> None:
    desc = product(512, output)
    assert rule(desc, DEVICE) == "cooperative"
    first, *_ = lower(desc, DEVICE).dispatches
    assert isinstance(first, Dispatch) and first.kernel.kernel == "gemm_cooperative_bfloat16"
    assert dict(first.kernel.variant)["R"] == ("FLOAT32" if output is F32 else "BFLOAT16")


@pytest.mark.parametrize(("output", "kind"), [(F32, OperandC.BITS), (U16, OperandC.OWN)])
def test_kernels_are_told_what_is_added(output: TensorDataType, kind: OperandC) -> None:
    first, *_ = lower(product(512, output, c_tensor=TensorDesc(U16, (512, 512))), DEVICE).dispatches
    assert isinstance(first, Dispatch) and dict(first.kernel.constants)["HAS_C"] == kind


def test_a_few_rows_read_bits_without_matrices() -> None:
    first, *_ = lower(product(1), DEVICE).dispatches
    assert isinstance(first, Dispatch) and first.kernel.kernel == "gemm_vector"
    assert dict(first.kernel.variant) == {"T": "BFLOAT16", "R": "BFLOAT16"}


@pytest.mark.parametrize(
    "without",
    [
        dataclasses.replace(DEVICE, cooperative_matrices=(CooperativeMatrix(16, 16, 16, "float16", "float32"),)),
        dataclasses.replace(DEVICE, features=DEVICE.features - {"bfloat16"}),
        dataclasses.replace(DEVICE, features=DEVICE.features - {"cooperative_matrix"}),
    ],
    ids=["matrices of float16 alone", "no such type", "no matrices"],
)
def test_a_device_without_them_multiplies_what_it_unpacks(without: Capabilities) -> None:
    assert rule(product(512), without) == "tiled"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("format", {"format": BYTES}),
        ("BTensor", {"b_tensor": TensorDesc(U16, (256, 512))}),
        ("CTensor", {"c_tensor": TensorDesc(F32, (512, 512))}),
        ("OutputTensor", {"c_tensor": TensorDesc(U16, (512, 256))}),
        ("ATensor", {"a_tensor": TensorDesc(F32, (512, 512))}),
    ],
)
def test_what_is_no_product_of_bits_is_refused(field: str, changes: dict[str, object]) -> None:
    product(512).validate()
    with pytest.raises(InvalidArgumentError, match=field):
        product(512, **changes).validate()
