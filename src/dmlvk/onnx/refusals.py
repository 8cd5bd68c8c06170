"""Names of ONNX Runtime's that are refused: they can be imported and looked up, and say why when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from dmlvk.onnx.names import NAMES, Standing
from dmlvk.spec.errors import UnsupportedError

T = TypeVar("T")


def refused_names() -> dict[str, Any]:
    """What stands for the module's refused names: a class for a class, which cannot be made, else a function."""
    rows = {name: row.note for name, row in NAMES[""].items() if row.standing is Standing.REFUSED}
    return {name: _refused_class(name, note) if name[0].isupper() else _refusal(name, note) for name, note in rows.items()}


def with_refused_methods(cls: type[T]) -> type[T]:
    """Gives a class the methods that are refused."""
    for name, row in NAMES[cls.__name__].items():
        if row.standing is Standing.REFUSED and not hasattr(cls, name):
            setattr(cls, name, _refusal(f"{cls.__name__}.{name}", row.note))
    return cls


def _refusal(name: str, note: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_keywords: object) -> NoReturn:
        raise UnsupportedError(f"{name} of ONNX Runtime: {note}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: {note}."
    return refuse


class _Refused(type):
    """A class whose attributes are refused as well."""

    note: str

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"{cls.__name__}.{name} of ONNX Runtime: {cls.note}")


def _refused_class(name: str, note: str) -> type:
    return _Refused(name, (), {"__init__": _refusal(name, note), "__doc__": f"Refused: {note}.", "note": note})
