"""The Python blocks of the documentation's pages run as they stand, in order, and print what the pages say."""

from __future__ import annotations

import pathlib
import re

import pytest

import dmlvk

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "name", ["quickstart.md", "arrays.md", "concepts.md", *sorted(path.name for path in DOCS.glob("from-*.md"))]
)
def test_the_page_runs(
    name: str,
    device: dmlvk.Device,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    assert blocks
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            assert not printed, f"the page does not show what the block before this one prints: {text}"
            exec(text, names)
            printed = capsys.readouterr().out
        else:
            assert printed == text
            printed = ""
    assert not printed
