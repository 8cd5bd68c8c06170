"""What tools/setup_venv.py takes for compiled: a change of anything else runs from the sources, without an installation."""

from __future__ import annotations

import dataclasses
import pathlib

import build_kernels
import pytest
import setup_venv

from dmlvk.kernels.manifest import KERNELS


def test_a_changed_row_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_kernels.key()
    spec = KERNELS["elementwise_binary"]
    monkeypatch.setitem(KERNELS, spec.name, dataclasses.replace(spec))
    assert build_kernels.key() == before
    monkeypatch.setitem(KERNELS, spec.name, dataclasses.replace(spec, constants=(*spec.constants, ("ONE_MORE", 1))))
    assert build_kernels.key() != before


def test_compiled_parts_are_copied_beside_the_sources(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_venv, "ROOT", tmp_path)
    monkeypatch.setattr(setup_venv, "ENVIRONMENT", tmp_path / ".venv")
    installed, sources = tmp_path / ".venv/lib/python3.11/site-packages/dmlvk", tmp_path / "src/dmlvk"
    for package in (installed, sources):
        (package / "runtime").mkdir(parents=True)
        (package / "kernels").mkdir()
    (installed / "runtime" / "_native.abi3.so").write_text("native")
    (installed / "kernels" / "kernels.zip").write_text("new")
    (sources / "kernels" / "kernels.zip").write_text("old")
    setup_venv.copy_compiled()
    assert (sources / "runtime" / "_native.abi3.so").read_text() == "native"
    assert (sources / "kernels" / "kernels.zip").read_text() == "new"
