"""The pages of bench and verify: what they say, and that they are whole, of one file, and the same for the same numbers."""

from __future__ import annotations

import dataclasses
import re
import sys

import page_samples
import pytest
from page_samples import Reader

from dmlvk.html import palette
from dmlvk.html.words import number
from dmlvk.spec.errors import MissingPackageError
from dmlvk.verify.html.figure import axes, svg
from dmlvk.verify.page import page as verify_page
from dmlvk_bench.page import page as bench_page
from dmlvk_bench.results import Ceilings, ProblemRow, Results

pytestmark = pytest.mark.slow

SCREENS = ("light", "dark")
PAGES = {
    "bench": lambda: bench_page(page_samples.results(), page_samples.card()),
    "verify": lambda: verify_page(page_samples.card()),
    "run": page_samples.run_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_one_well_formed_file(name: str) -> None:
    page = PAGES[name]()
    reader = Reader(page)
    assert len(page) < 2_000_000
    for attribute, value in reader.attributes:
        if attribute in ("src", "href", "xlink:href", "action", "poster"):
            assert value.startswith(("#", "data:")), f"{attribute}={value}"
        if attribute in ("clip-path", "href") and "#" in value:
            assert re.sub(r"url\(#(.*)\)|#(.*)", r"\1\2", value) in reader.ids, f"{value} points nowhere"
    assert "url(http" not in page and "@import" not in page
    assert "default-src 'none'" in page, "a browser would fetch what it is told to"
    assert page_samples.MACHINE.device in reader.text, "names are escaped, and then they are what they were"
    assert name == "run" or page_samples.MACHINE.uuid in reader.text
    assert PAGES[name]() == page, "the same numbers give the same bytes"


def test_the_benchmark_says_what_is_wrong_first_and_what_missed_its_target() -> None:
    text = re.sub(r"\s+", " ", Reader(PAGES["bench"]()).text)
    wrong, tiles, below = (text.index(words) for words in ("What disagreed", "geometric mean", "Below target: 3 problems"))
    assert wrong < tiles < below
    assert wrong < text.index("ours: ours is wrong") < text.index("PyTorch: its rival is wrong") < tiles
    assert text.index(f"WebGPU and dmlvk on {page_samples.NETWORK}") < tiles
    places = [text.index(name, below) for name in ("far from a copy <i>&", "behind its rival", "GEMM 64")]
    assert places == sorted(places), "the furthest from its target comes first"
    assert "as fast or faster on 5 of 7" not in text, "a wrong rival's ratio counts for nothing"
    assert "as fast or faster on 4 of 6 problems" in text
    assert "ONNX Runtime did not take part: it is not installed" in text
    assert "1 of 3 models within their target" in text
    assert "0.83 × PyTorch graph NCHW, above the target of 1 ms" in text
    assert "no <such> layer" in text and "node 'a' cannot run" in text
    assert "This run was ended before everything was measured" in text
    assert (
        "needs <int64>: no int64" in text and "1 problem that ncnn failed at" in text and "convolution: it gave up" in text
    )
    assert "Headline targets: 1 of 1 met" not in text and "of 1 met" not in text, "the targets are those of an H200"
    for row in page_samples.results().problems:
        assert row.problem in text


def test_the_card_says_what_failed_in_words_to_copy() -> None:
    card = page_samples.card()
    page = PAGES["verify"]()
    failed = next(entry for entry in card.entries if not entry.passed)
    text = Reader(page).text
    assert "FAIL" in text and "1 of 7 operators and types failed; 1 cannot run on this device" in text
    assert card.report(failed) in text
    for kind in ("exact", "0", "1", "2", "4", "more", "failed", "unsupported"):
        assert f'class="ulp-{kind}"' in page, kind
    assert "no int64: 1ElementWiseAddWithALongNameForAPhone UINT64" in text
    assert "2 runs: no strides: 1ActivationTanh FLOAT32" in text
    passed = Reader(verify_page(page_samples.passing())).text
    assert "PASS" in passed and "What failed" not in passed
    stopped = Reader(verify_page(dataclasses.replace(page_samples.passing(), stopped="the device was lost"))).text
    assert "FAIL" in stopped and "it ended before all was run: the device was lost" in stopped


def test_pages_of_next_to_nothing() -> None:
    machine = page_samples.MACHINE
    assert "No problem was measured" in Reader(bench_page(Results(machine, "quick"))).text
    assert "python -m dmlvk verify" in Reader(bench_page(Results(machine, "quick"))).text, "it says how to get the heat map"
    one = Results(machine, "quick", problems=[page_samples.row("one", 5.0, rivals={})])
    assert "No rival took part" in Reader(bench_page(one)).text
    counted = [page_samples.row("one", 5.0, rivals={}, operations=100)]
    assert "roofline" in bench_page(dataclasses.replace(one, problems=counted)), "without ceilings too"
    dead = [page_samples.row("one", 0.0, agrees=False)]
    assert "ours: one" in Reader(bench_page(dataclasses.replace(one, problems=dead, ceilings=Ceilings(4.0)))).text
    assert "No operator was verified" in Reader(verify_page(dataclasses.replace(page_samples.card(), entries=[]))).text


def test_a_page_of_many_problems_stays_small() -> None:
    found = page_samples.results()

    def copies(row: ProblemRow) -> list[ProblemRow]:
        return [dataclasses.replace(row, problem=f"{row.problem} of a longer name, number {turn}") for turn in range(100)]

    many = dataclasses.replace(found, problems=[copy for row in found.problems for copy in copies(row)])
    page = bench_page(many, page_samples.card())
    assert len(page) < 2_000_000
    assert page.count("<title>far from a copy") == 100, "each mark has its name"


def test_a_figure_alone_brings_its_colours() -> None:
    with axes(2.0) as (figure, plot):
        plot.plot([1, 2], [3, 4])
        drawing = svg(figure, "name", "a line", alone=True)
    assert "prefers-color-scheme" in drawing and 'xmlns="http://www.w3.org/2000/svg"' in drawing
    assert 'aria-label="a line"' in drawing and "var(--ink" in drawing


@pytest.mark.quick
def test_text_can_be_read_on_every_ground() -> None:
    panels = [name for name in palette.COLOURS if name.endswith("panel") or name.startswith("ulp-")]
    grounds = {
        "ink": ["paper", *panels],
        "muted": ["paper", "panel", "miss-panel"],
        "link": ["paper", "panel"],
        "good": ["paper", "good-panel"],
        "miss": ["paper", "panel", "miss-panel"],
    }
    for text, below in grounds.items():
        for name in below:
            for screen in range(len(SCREENS)):
                ratio = contrast(palette.COLOURS[text][screen], palette.COLOURS[name][screen])
                assert ratio >= 4.5, f"{text} on {name}, {SCREENS[screen]}: {ratio:.2f}"
    for mark in ("ours", "torch", "onnxruntime", "ncnn", "other", "miss"):
        for screen in range(len(SCREENS)):
            ratio = contrast(palette.COLOURS[mark][screen], palette.COLOURS["paper"][screen])
            assert ratio >= 2.7, f"{mark}, {SCREENS[screen]}: {ratio:.2f}"
    assert len({colour.light for colour in palette.COLOURS.values()}) == len(palette.COLOURS), "figures name them by this"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as the Web Content Accessibility Guidelines define it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.quick
def test_a_rival_has_one_colour_whatever_it_is_called() -> None:
    assert {palette.colour_of(name) for name in ("torch", "PyTorch eager NHWC", "torch graph 100 dependent")} == {"torch"}
    assert {palette.colour_of(name) for name in ("onnxruntime", "WebGPU replayed", "ONNX Runtime CPU")} == {"onnxruntime"}
    assert palette.colour_of("ncnn") == "ncnn" and palette.colour_of("tvm") == "other"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4209.8, "4,210"),
        (53.94, "53.9"),
        (1.343, "1.34"),
        (0.092, "0.092"),
        (0.5, "0.50"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_a_package_the_error_says_what_brings_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("dmlvk.verify.html") or name == "dmlvk_bench.page"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"{package}: pip install 'dmlvk\[report\]'"):
        __import__("dmlvk_bench.page")
