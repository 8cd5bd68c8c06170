"""What files of results say of where they were made."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

import dmlvk
from dmlvk.verify import machine


def test_a_checkout_s_commit_is_said_and_an_installed_package_has_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "dmlvk"
    package.mkdir(parents=True)
    monkeypatch.setattr(dmlvk, "__file__", str(package / "__init__.py"))
    assert machine._head() == ""
    git = ("git", "-C", str(tmp_path), "-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert head.startswith(machine._head()) and len(machine._head()) >= 7
