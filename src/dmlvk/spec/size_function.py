"""A trace of sizes, written as one straight Python function of plain ints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dmlvk.spec.size import (
    CALL,
    COMPUTED,
    Comparison,
    Deferred,
    Form,
    RealSize,
    Size,
    SizeTrace,
    is_infinite,
    is_plain,
    sizes_in,
)

_LONG: Final = 200
"""Characters from which on an expression gets a name, so that none nests too deeply to be compiled."""


def function_of(trace: SizeTrace, outputs: Any) -> Callable[..., Any]:
    """Makes a Python function of all that a trace has recorded.

    Args:
        trace: The trace.
        outputs: The values to return: a Size, a plain value, a ``Deferred`` call, or a tuple of such.

    Returns:
        A function that takes the symbols' values, plain ints, in the order in which the symbols were made. It returns
        None where a guard fails, else the outputs for those values.
    """
    return _Writer(trace).function(outputs)


def guards_of(trace: SizeTrace) -> list[str]:
    """Every guard of a trace as Python, for reports and tests."""
    return _Writer(trace).guards()


class _Writer:
    """Writes a trace as Python: what is used more than once gets a name, and what is not used is not there."""

    def __init__(self, trace: SizeTrace) -> None:
        self._trace = trace
        self._uses: dict[int, int] = {}
        self._written: dict[int, str] = {}
        self._lines: list[str] = []
        self._conditions: list[str] = []
        self._constants: dict[str, Any] = {name: COMPUTED[name] for name in ("ceil", "floor", "trunc")}
        for position, symbol in enumerate(trace.symbols):
            self._written[id(symbol)] = f"s{position}"

    def guards(self) -> list[str]:
        """Every condition."""
        return [condition for check in self._trace.checks() for condition in self._conditions_of(check)]

    def function(self, outputs: Any) -> Callable[..., Any]:
        checks = list(self._trace.checks())
        for check in checks:
            for node in (check.size,) if isinstance(check, Form) else sizes_in((check.left, check.right)):
                self._count(node)
        for node in sizes_in(outputs):
            self._count(node)
        for check in checks:
            conditions = self._conditions_of(check)
            self._conditions += conditions
        self._flush()
        result = self._output(outputs)
        names = ", ".join(f"s{position}" for position in range(len(self._trace.symbols)))
        source = "\n    ".join([f"def function({names}):", *self._lines, f"return {result}"])
        exec(compile(source, "<sizes>", "exec"), self._constants)
        function: Callable[..., Any] = self._constants.pop("function")  # its globals, which then do not hold it
        return function

    def _conditions_of(self, check: Form | Comparison) -> list[str]:
        if isinstance(check, Comparison):
            condition = f"{self._output(check.left)} {check.relation} {self._output(check.right)}"
            return [condition if check.outcome else f"not {condition}"]
        excluded = sorted(number for number in check.excluded if check.low <= number <= check.high)
        if is_infinite(check.least) and is_infinite(check.most) and not excluded:
            return []
        text = self._text(check.size)
        if check.least == check.most:
            return [f"{text} == {check.least}"]
        bounds = [] if is_infinite(check.least) else [f"{check.least} <= {text}"]
        if not is_infinite(check.most):
            bounds = [f"{bounds[0] if bounds else text} <= {check.most}"]
        return bounds + [f"{text} != {number}" for number in excluded]

    def _count(self, node: Any) -> None:
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Size | RealSize):
                self._uses[id(node)] = self._uses.get(id(node), 0) + 1
                if self._uses[id(node)] == 1:
                    waiting += self._parts(node)

    def _parts(self, node: Size | RealSize) -> tuple[Any, ...]:
        if node.made:
            return () if node.made[0] == "symbol" else tuple(sizes_in(node.made[1:]))
        assert isinstance(node, Size), "what is a float was made by an operation"
        return tuple(self._trace.atoms[position] for product in node.terms for position in product)

    def _text(self, node: Any) -> str:
        """A node as an expression of a name, a number or in parentheses; its parts are written before it."""
        if not isinstance(node, Size | RealSize):
            return self._constant(node)
        waiting: list[Any] = [node]
        while waiting:
            top = waiting[-1]
            missing = [part for part in self._parts(top) if id(part) not in self._written]
            if id(top) in self._written or not missing:
                waiting.pop()
                if id(top) not in self._written:
                    self._write(top)
            else:
                waiting += missing
        return self._written[id(node)]

    def _write(self, node: Size | RealSize) -> None:
        text = self._expression(node)
        if self._uses.get(id(node), 0) > 1 or len(text) > _LONG:
            self._flush()
            name = f"t{len(self._written)}"
            self._lines.append(f"{name} = {text}")
            text = name
        self._written[id(node)] = text

    def _expression(self, node: Size | RealSize) -> str:
        if not node.made:
            assert isinstance(node, Size), "what is a float was made by an operation"
            products = (
                " * ".join([*([str(factor)] if factor != 1 or not product else []), *map(self._atom, product)])
                for product, factor in node.terms.items()
            )
            return f"({' + '.join(products)})"
        operation, *parts = node.made
        if operation == CALL:
            function, arguments, index = parts
            return f"{self._output(Deferred(function, arguments))}[{index}]"
        texts = [self._written.get(id(part)) or self._constant(part) for part in parts]
        if len(texts) == 2:
            return f"({texts[0]} {operation} {texts[1]})"
        if operation == "neg":
            return f"(-{texts[0]})"
        return f"{texts[0]}.bit_length()" if operation == "bit_length" else f"{operation}({texts[0]})"

    def _atom(self, position: int) -> str:
        return self._written[id(self._trace.atoms[position])]

    def _constant(self, value: Any) -> str:
        if value is None or type(value) in (int, bool):
            return repr(value) if value is None or value >= 0 else f"({value})"
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def _output(self, value: Any) -> str:
        if isinstance(value, Size | RealSize):
            return self._text(value)
        if is_plain(value):
            return self._constant(value)
        if isinstance(value, Deferred):
            return f"{self._constant(value.function)}({', '.join(map(self._output, value.arguments))})"
        name = "" if type(value) is tuple else self._constant(type(value))
        return f"{name}({''.join(f'{self._output(item)}, ' for item in value)})"

    def _flush(self) -> None:
        if self._conditions:
            self._lines.append(f"if not ({' and '.join(self._conditions)}): return None")
            self._conditions = []
