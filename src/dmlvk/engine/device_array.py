"""``DeviceArray``: an array on a device that computes there with DirectML's operators, by the array API's rules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_compositions import applied, runs
from dmlvk.engine.array_functions import Number, converted, copied
from dmlvk.engine.array_indices import assigned, indexed
from dmlvk.engine.array_reductions import Axes, cumulated, place, reduced, variance
from dmlvk.engine.default_device import check_device
from dmlvk.engine.numpy_types import HALF_BYTES, data_type_of
from dmlvk.engine.stored_array import StoredArray
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.tensor import element_bits

_BOOL: Final = np.dtype(bool)
_NAMESPACE: Final = "dmlvk.xp"
"""By name, because it stands above the arrays that it makes."""


def _not_on_a_device(asked: str) -> TypeError:
    return TypeError(f"numpy.{asked} does not run on a device: give it numpy.asarray(array), which copies to the host")


class DeviceArray(StoredArray):
    """An array on a device. Slicing, ``transpose`` and ``T`` give views of the same buffer. Whatever computes does so on the
    device: it gives a new array there, and does not wait for it.

    A view may start at any element, while DirectML binds tensors at multiples of 16 bytes: ``binding`` copies a view that
    starts elsewhere into a buffer of its own, on the device, and ``is_bindable`` tells beforehand.

    Types follow the array API standard: two arrays give the smallest type of their kind that holds both, integers and floats
    do not mix, and a Python number takes the array's type. A numpy array among the operands is uploaded. Integers become
    float32 where only floats make sense (``/``, ``mean``, ``np.sqrt``). numpy's functions that an operator computes, such as
    ``np.add``, run on the device, and others refuse. ``a += b`` and ``a[i] = b`` write to the memory of ``a``, and so to its
    views, as numpy's do; the type of ``a`` must hold the result.

    Attributes:
        device: The device that it lives on.
        buffer: The memory, shared with the views.
        offset: Bytes from the buffer's start to the first element.
        data_type: The type of the elements.
        is_bool: Whether the elements, of UINT8, are truth values: 0 or 1, and bool for numpy.
        shape: Elements a dimension; () for a single element.
        strides: Elements (not bytes) between neighbours of each dimension.
    """

    __slots__ = ()

    # -- the array API

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """``dmlvk.xp``, the array API standard's functions.

        Raises:
            InvalidArgumentError: a version of the standard that it does not follow.
        """
        namespace = importlib.import_module(_NAMESPACE)
        if api_version not in (None, *namespace.VERSIONS):
            rule = f"must be one of {', '.join(namespace.VERSIONS)}"
            raise InvalidArgumentError(rule, operator="__array_namespace__", field="api_version", value=api_version)
        return namespace

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        """numpy's protocol: runs a function that ``dmlvk.xp`` has too on the device.

        Raises:
            TypeError: it has none.
        """
        own = self.__array_namespace__().NUMPYS.get(function)
        if own is None:
            raise _not_on_a_device(f"{function.__module__}.{function.__name__}".removeprefix("numpy."))
        return own(*args, **options)

    # -- conversions

    @classmethod
    def from_dlpack(cls, array: Any, device: ComputeDevice | None = None) -> DeviceArray:
        """Uploads an array of another library that is in host memory and has DLPack's protocol; see ``from_numpy``.

        Raises:
            InvalidArgumentError: it has no such protocol, or a type that no tensor has.
            BufferError: what numpy raises of memory that the host cannot read.
        """
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgumentError("must have the method __dlpack__", field="array", value=type(array))
        return cls.from_numpy(np.from_dlpack(array), device)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> DeviceArray:
        """The elements in another type. A float becomes an integer toward zero, within the type's range.

        Args:
            dtype: A numpy type that tensors have.
            copy: Whether an array of this type already is copied.

        Raises:
            InvalidArgumentError: another type.
        """
        kind = np.dtype(dtype)
        data_type_of(kind)
        return copied(self) if copy and kind == self.dtype else converted(self, kind)

    def to_device(self, device: ComputeDevice, *, stream: None = None) -> DeviceArray:
        """The array on a device, itself where it is there; the values travel by the host.

        Args:
            device: The device.
            stream: None, which is all that the standard leaves to a library without streams.
        """
        if stream is not None:
            raise InvalidArgumentError("must be None", operator="to_device", field="stream", value=stream)
        check_device(device)
        return self if device is self.device else DeviceArray.from_numpy(self.numpy(), device)

    def copy(self) -> DeviceArray:
        """A packed copy, on the device."""
        return copied(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> tuple[Callable[..., DeviceArray], tuple[Any, ...]]:
        """Pickles the values; they are unpickled to the default device."""
        data_type = self.data_type if self.data_type in HALF_BYTES else None
        return DeviceArray.from_numpy, (self.numpy(), None, data_type)

    def item(self) -> Number:
        """The one element as a Python number. Waits for it.

        Raises:
            InvalidArgumentError: not one element.
        """
        if self.size != 1:
            raise InvalidArgumentError("the array must have one element", operator="item", value=self.shape)
        return cast(Number, self.numpy().item())

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers. Waits for them."""
        return self.numpy().tolist()

    @property
    def itemsize(self) -> int:
        """Bytes of an element for numpy."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements on the device, without what lies between them."""
        return -(-self.size * element_bits(self.data_type) // 8)

    def __bool__(self) -> bool:
        if self.size != 1:
            rule = "the array must have one element: of others use any() or all()"
            raise InvalidArgumentError(rule, operator="bool", value=self.shape)
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError(
                f"only an integer array without dimensions is an index; this one is {self.dtype} of {self.shape}"
            )
        return int(self.item())

    # -- elements

    def _applied(self, ufunc: np.ufunc, *operands: Any, into: DeviceArray | None = None) -> DeviceArray:
        return applied(DeviceArray, ufunc, *operands, into=into)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """numpy's protocol: runs the function on the device.

        Raises:
            TypeError: no operator computes it, or it is asked for in another way than by a plain call.
        """
        (into,) = options.pop("out", (None,))
        if into is not None and not isinstance(into, DeviceArray):
            options["out"] = into
        if method != "__call__" or options or not runs(ufunc):
            asked = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            wanted = asked + (f" with {', '.join(options)}" if options else "")
            raise _not_on_a_device(wanted)
        return self._applied(ufunc, *inputs, into=into)

    def __eq__(self, other: object) -> DeviceArray:  # type: ignore[override]  # an array, as numpy's
        return self._applied(np.equal, self, other)

    def __ne__(self, other: object) -> DeviceArray:  # type: ignore[override]
        return self._applied(np.not_equal, self, other)

    __hash__ = None  # type: ignore[assignment]  # what compares by elements has none

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __lt__(self, other: Any) -> DeviceArray:
        return self._applied(np.less, self, other)

    def __le__(self, other: Any) -> DeviceArray:
        return self._applied(np.less_equal, self, other)

    def __gt__(self, other: Any) -> DeviceArray:
        return self._applied(np.greater, self, other)

    def __ge__(self, other: Any) -> DeviceArray:
        return self._applied(np.greater_equal, self, other)

    def __add__(self, other: Any) -> DeviceArray:
        return self._applied(np.add, self, other)

    def __radd__(self, other: Any) -> DeviceArray:
        return self._applied(np.add, other, self)

    def __iadd__(self, other: Any) -> DeviceArray:
        return self._applied(np.add, self, other, into=self)

    def __sub__(self, other: Any) -> DeviceArray:
        return self._applied(np.subtract, self, other)

    def __rsub__(self, other: Any) -> DeviceArray:
        return self._applied(np.subtract, other, self)

    def __isub__(self, other: Any) -> DeviceArray:
        return self._applied(np.subtract, self, other, into=self)

    def __mul__(self, other: Any) -> DeviceArray:
        return self._applied(np.multiply, self, other)

    def __rmul__(self, other: Any) -> DeviceArray:
        return self._applied(np.multiply, other, self)

    def __imul__(self, other: Any) -> DeviceArray:
        return self._applied(np.multiply, self, other, into=self)

    def __truediv__(self, other: Any) -> DeviceArray:
        return self._applied(np.true_divide, self, other)

    def __rtruediv__(self, other: Any) -> DeviceArray:
        return self._applied(np.true_divide, other, self)

    def __itruediv__(self, other: Any) -> DeviceArray:
        return self._applied(np.true_divide, self, other, into=self)

    def __floordiv__(self, other: Any) -> DeviceArray:
        return self._applied(np.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> DeviceArray:
        return self._applied(np.floor_divide, other, self)

    def __ifloordiv__(self, other: Any) -> DeviceArray:
        return self._applied(np.floor_divide, self, other, into=self)

    def __mod__(self, other: Any) -> DeviceArray:
        return self._applied(np.remainder, self, other)

    def __rmod__(self, other: Any) -> DeviceArray:
        return self._applied(np.remainder, other, self)

    def __imod__(self, other: Any) -> DeviceArray:
        return self._applied(np.remainder, self, other, into=self)

    def __pow__(self, other: Any) -> DeviceArray:
        return self._applied(np.power, self, other)

    def __rpow__(self, other: Any) -> DeviceArray:
        return self._applied(np.power, other, self)

    def __ipow__(self, other: Any) -> DeviceArray:
        return self._applied(np.power, self, other, into=self)

    def __matmul__(self, other: Any) -> DeviceArray:
        return self._applied(np.matmul, self, other)

    def __rmatmul__(self, other: Any) -> DeviceArray:
        return self._applied(np.matmul, other, self)

    def __imatmul__(self, other: Any) -> DeviceArray:
        return self._applied(np.matmul, self, other, into=self)

    def __and__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_and, self, other)

    def __rand__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_and, other, self)

    def __iand__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_and, self, other, into=self)

    def __or__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_or, self, other)

    def __ror__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_or, other, self)

    def __ior__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_or, self, other, into=self)

    def __xor__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_xor, other, self)

    def __ixor__(self, other: Any) -> DeviceArray:
        return self._applied(np.bitwise_xor, self, other, into=self)

    def __lshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.left_shift, self, other)

    def __rlshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.left_shift, other, self)

    def __ilshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.left_shift, self, other, into=self)

    def __rshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.right_shift, self, other)

    def __rrshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.right_shift, other, self)

    def __irshift__(self, other: Any) -> DeviceArray:
        return self._applied(np.right_shift, self, other, into=self)

    def __neg__(self) -> DeviceArray:
        return self._applied(np.negative, self)

    def __pos__(self) -> DeviceArray:
        return self._applied(np.positive, self)

    def __abs__(self) -> DeviceArray:
        return self._applied(np.absolute, self)

    def __invert__(self) -> DeviceArray:
        return self._applied(np.invert, self)

    # -- reductions

    def sum(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The sum over one axis, several, or all of them. Integers and truth values are summed in 64 bits.

        Args:
            axis: The axes; negative ones count from the end.
            dtype: The type to sum in, where not that one.
            out: None, as numpy hands it on.
            keepdims: Whether the axes stay, with size 1.

        Raises:
            InvalidArgumentError: axes that the array does not have, an ``out``, or a type that the reduction does not take.
        """
        return reduced(self, "sum", ReduceFunction.SUM, axis, dtype, out, keepdims)

    def prod(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The product; see ``sum``."""
        return reduced(self, "prod", ReduceFunction.MULTIPLY, axis, dtype, out, keepdims)

    def mean(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The mean, of integers in float32; see ``sum``."""
        return reduced(self, "mean", ReduceFunction.AVERAGE, axis, dtype, out, keepdims)

    def max(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The largest element; see ``sum``."""
        return reduced(self, "max", ReduceFunction.MAX, axis, None, out, keepdims)

    def min(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The least element; see ``sum``."""
        return reduced(self, "min", ReduceFunction.MIN, axis, None, out, keepdims)

    def any(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """Whether some element is not 0; see ``sum``."""
        return reduced(self, "any", ReduceFunction.MAX, axis, _BOOL, out, keepdims)

    def all(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """Whether no element is 0; see ``sum``."""
        return reduced(self, "all", ReduceFunction.MIN, axis, _BOOL, out, keepdims)

    def var(self, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> DeviceArray:
        """The variance, of integers in float32; see ``sum``.

        Args:
            axis: The axes; negative ones count from the end.
            correction: What is taken from the number of elements before the sum of squares is divided by it.
            keepdims: Whether the axes stay, with size 1.
        """
        return variance(self, "var", axis, correction, keepdims)

    def std(self, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> DeviceArray:
        """The standard deviation: the root of ``var``."""
        return self._applied(np.sqrt, variance(self, "std", axis, correction, keepdims))

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The place of the largest element along an axis, or of all in row-major order, as int64. Of several it is the
        first, and NaN is the largest."""
        return place(self, "argmax", ops.Argmax, axis, out, keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The place of the least element; see ``argmax``. NaN is the least."""
        return place(self, "argmin", ops.Argmin, axis, out, keepdims)

    def cumsum(self, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: None = None) -> DeviceArray:
        """The sums of all elements up to each along an axis, or of all in row-major order; types as for ``sum``."""
        return cumulated(self, "cumsum", ops.CumulativeSummation, axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: None = None) -> DeviceArray:
        """The products; see ``cumsum``."""
        return cumulated(self, "cumprod", ops.CumulativeProduct, axis, dtype, out)

    # -- indices

    def __getitem__(self, index: Any) -> DeviceArray:
        """numpy's indices. Integers, slices with positive steps, ``None`` and ``...`` give a view. Negative steps, arrays or
        lists of integers, and masks of bool give a copy, made on the device.

        A mask is read first, and so are arrays of integers on the device where there are several. One such array is not
        read: what is out of range in it is clamped.

        Raises:
            IndexError: out of range, or too many indices.
            TypeError: an index of another kind.
        """
        return indexed(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Writes to the elements that an index takes: a number, an array or nested lists, which broadcast to them. Views of
        this memory see it, and what is read of the value is what was there before.

        A mask is read first unless the value is one element, and so are arrays of integers on the device where there are
        several. One such array is not read: what is out of range in it is dropped. Of several values for one element
        the last stays.

        Raises:
            IndexError: out of range, or too many indices.
            TypeError: an index of another kind.
            InvalidArgumentError: a value of a kind of type that the array does not hold, or of another shape; elements of
                4 bits, or several in the same memory, as in a broadcast array.
        """
        assigned(self, index, value)
