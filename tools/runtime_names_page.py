"""The page of ONNX Runtime's names, made from the table of ``dmlvk.onnx.names``."""

from __future__ import annotations

from collections.abc import Iterator

from dmlvk.onnx.names import NAMES, VERSION, Standing

INTRODUCTION = f"""\
# ONNX Runtime's names

Every public name of the session interface of ONNX Runtime {VERSION}, and what it does in `dmlvk.onnx`.
[From ONNX Runtime](from-onnxruntime.md) says how to move a script.

- *same*: it does what it does there. A test makes the same calls with both and compares.
- *accepted without effect*: a script may use it; a line of the logger `dmlvk.onnx` says once that it does nothing.
- *refused*: it can be imported, and raises `UnsupportedError` with the reason when it is used. A class stands for its
  members.
"""


def page() -> str:
    """The page's text."""
    return "\n".join([INTRODUCTION, *_tables()])


def _tables() -> Iterator[str]:
    order = list(Standing)
    for owner, rows in NAMES.items():
        yield f"## {owner or 'The module'}\n"
        yield "| name | here | |"
        yield "| --- | --- | --- |"
        for name, row in sorted(rows.items(), key=lambda item: (order.index(item[1].standing), item[0])):
            yield f"| `{name}` | {row.standing.value} | {row.note} |"
        yield ""
