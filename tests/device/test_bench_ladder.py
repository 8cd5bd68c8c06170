"""Each rung of the ladder multiplies as many matrices as is counted, and the last one is the product."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import dmlvk
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.peak.ladder import Rung, rungs
from dmlvk_bench import ladder
from dmlvk_bench.cli import main
from dmlvk_bench.results import read


def _constants(rung: Rung) -> dict[str, int]:
    (dispatch,) = rung.plan.dispatches
    return {**dict(KERNELS["peak_ladder"].defaults), **dict(dispatch.kernel.constants)}


def _wanted(rung: Rung, a: np.ndarray, b: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """The sums of a tile's subgroups, {subgroups, MAT_M, MAT_N}: those of its matrices."""
    own = _constants(rung)
    product = a[tile[0] * own["TILE_M"] :][: own["TILE_M"]].astype(np.float64) @ b[:, tile[1] * own["TILE_N"] :][
        :, : own["TILE_N"]
    ].astype(np.float64)
    blocks = product.reshape(
        own["TILE_M"] // own["SUB_M"],
        -1,
        own["MAT_M"],
        own["TILE_N"] // own["SUB_N"],
        own["SUB_N"] // own["MAT_N"],
        own["MAT_N"],
    )
    return blocks.sum(axis=(1, 4)).transpose(0, 2, 1, 3).reshape(-1, own["MAT_M"], own["MAT_N"])


@pytest.fixture(name="every")
def _every(device: dmlvk.Device) -> list[Rung]:
    found = rungs(device.capabilities)
    if not found:
        pytest.skip("the device multiplies no matrices of float16")
    return found


def test_every_rung_does_all_of_the_arithmetic(device: dmlvk.Device, every: list[Rung]) -> None:
    """Of factors of ones each matrix has the depth in every place."""
    size = every[0].size
    for rung in every:
        own = _constants(rung)
        blocks = own["SUB_M"] // own["MAT_M"] * (own["SUB_N"] // own["MAT_N"])
        assert set(ladder.sums(device, rung, np.ones((2, size, size), np.float16)).tolist()) == {blocks * size}, rung.name


def test_the_rungs_with_loads_are_products(device: dmlvk.Device, every: list[Rung]) -> None:
    cached, whole = every[-2:]
    values = ladder.factors(whole.size)
    for rung in (cached, whole):
        own = _constants(rung)
        found = ladder.sums(device, rung, values).reshape(-1, own["MAT_M"], own["MAT_N"])
        wanted = _wanted(rung, values[0], values[1], (0, 0))
        np.testing.assert_allclose(found[: len(wanted)], wanted, atol=1e-4 * np.abs(wanted).max(), err_msg=rung.name)


def test_the_ladder_ends_in_the_operator(
    device: dmlvk.Device, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device without such matrices has none, and the run is whole all the same."""
    file = tmp_path / "r.json"
    assert main(["--quick", "--suite", "ladder", "--json", str(file)]) == 0
    results = read(file)
    names = [rung.name for rung in rungs(device.capabilities)]
    assert results.complete and list(results.ladder) == ([*names, ladder.WHOLE] if names else [])
    assert all(rate > 0 for rate in results.ladder.values())
    assert all(name in capsys.readouterr().out for name in names[:1])
