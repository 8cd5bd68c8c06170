"""What a session's report says as a page and in a notebook, of any model."""

from __future__ import annotations

import dataclasses
import re

import page_samples
import pytest
from page_samples import Reader, run_page, run_report, step

from dmlvk.engine.trace import Label
from dmlvk.html.elements import element, markup, shortened, table
from dmlvk.html.words import size
from dmlvk.runtime.device import DeviceInfo

pytestmark = pytest.mark.quick
HOSTILE = "</script><script>alert(1)</script>"


def rows(html: str) -> dict[str, str]:
    """The text of each line of the table of nodes, by its node."""
    found = {}
    for line in re.findall("<tr>(.*?)</tr>", html.split("<h2>The nodes</h2>")[1]):
        text = [Reader(f"<p>{cell}</p>").text for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", line)]
        found[text[0].rpartition(" ")[0]] = " | ".join(text[1:])
    return found


def test_what_each_node_became() -> None:
    found = rows(run_page())
    assert found["conv"] == f"3,000 | 66.7% | ConvOperator with the work of batch<b>, {HOSTILE} | 1 | 4.0 KiB | conv_kernel"
    assert found[HOSTILE] == found["batch<b>"] == " |  | part of conv |  |  | "
    assert found["once"].split(" | ")[2] == "TransposeOperator (once, before the first run)"
    assert found["view"].split(" | ")[2] == "no work: a view of its input"
    assert found["shape"].split(" | ")[2] == "on the host: shape arithmetic"
    assert found["function"].split(" | ")[2] == "on the device"
    assert found["inside a function"].split(" | ")[2] == "MulOperator"
    assert list(found)[1:4] == ["conv", "gelu", "inside a function"], "what took longest comes first"


def test_what_the_page_says_beside_the_nodes() -> None:
    text = re.sub(r"\s+", " ", Reader(run_page()).text)
    for words in (
        '<model> & "more".onnx',
        "<x> [1, 3, 224, 224]",
        "4.50 ms",
        "100.0 MiB",
        "The most are in use at step 2 of 3: gelu (Gelu)",
        "in ONNX Runtime: text11 <T>; 2.0 KiB from and to the device",
    ):
        assert words in text


def test_a_run_without_times_has_none() -> None:
    steps = [dataclasses.replace(item, times=None) for item in run_report().steps]
    page = run_page(steps=tuple(steps))
    assert "µs" not in page and "Where the time went" not in page
    assert rows(page)["gelu"] == "GeluOperator | 1 | 4.0 KiB | gelu_kernel"


def test_names_are_never_markup() -> None:
    for html in (run_page(), run_report()._repr_html_()):
        assert HOSTILE in Reader(html).text
        assert "<b>batch" not in html and "batch<b>" not in html and "<x>" not in html and "<T>" not in html
        assert html.count("<script") == html.count("<a href=") / 2 == ("<!DOCTYPE" in html), (
            "its own, and none in a notebook"
        )
    names = element("a", HOSTILE, "&", element("i", '"'), HOSTILE, title='">', href=None)
    assert Reader(markup([names])).text == f'{HOSTILE}&"{HOSTILE}'
    assert Reader(markup([names])).attributes == [("title", '">')]


@pytest.mark.parametrize("timed", [True, False])
def test_ten_thousand_nodes_make_a_small_page(timed: bool) -> None:
    long = "scope/" * 500
    steps = [step(f"{long}{n}", "Conv", n * 1e-6, n * 1e-9, merged=(f"relu {n}",), live_bytes=n) for n in range(10_000)]
    report = run_report(
        steps=tuple(item if timed else dataclasses.replace(item, times=None) for item in steps),
        gpu_nodes=tuple(Label(item.node, f"Conv{n % 50}") for n, item in enumerate(steps)),
        removed_nodes=tuple(Label(f"relu {n}", "Relu", "part of another node's operator") for n in range(10_000)),
    )
    page = run_page(**{field.name: getattr(report, field.name) for field in dataclasses.fields(report)})
    assert len(page) < 1_000_000 and len(report._repr_html_()) < 40_000
    assert "Of 20,002 nodes these are the 1,000 that " in page and page.count('id="node') == 1000
    assert ("took longest" in page) == timed
    assert page.count("V") < 2_000, "the figure has as many points as a screen shows"


def test_nothing_ran() -> None:
    report = run_report(steps=(), gpu_nodes=(), host_nodes=(), removed_nodes=(), input_shapes={})
    Reader(report._repr_html_())
    page = run_page(**{field.name: getattr(report, field.name) for field in dataclasses.fields(report)})
    assert "The nodes" not in Reader(page).text


def test_a_notebook_shows_a_report_and_a_device() -> None:
    text = Reader(run_report()._repr_html_()).text
    for words in ("SessionReport", "4.50 ms", "Memory over a run", "10 nodes", "conv_kernel", page_samples.MACHINE.device):
        assert words in text
    info = DeviceInfo(0, "A <b>card</b>", "uuid", "a driver", "cpu", (1, 3, 250), 3 << 30, {"float16": True, "int64": False})
    text = Reader(info._repr_html_()).text
    for words in ("DeviceInfo 0: A <b>card</b>", "1.3.250", "3.0 GiB", "featuresfloat16", "withoutint64"):
        assert words in text


def test_a_notebook_shows_a_card() -> None:
    card = page_samples.card()
    text = Reader(card._repr_html_()).text
    failed = next(entry for entry in card.entries if entry.failure)
    for words in ("FAIL", page_samples.MACHINE.device, "1 failed, 1 cannot run here", failed.operator, failed.failure.what):
        assert words in text
    assert "PASS" in Reader(page_samples.passing()._repr_html_()).text


def test_texts() -> None:
    assert [size(value) for value in (0, 1023, 1024, 1 << 20, 5 << 30, 1 << 41)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 GiB", "2,048.0 GiB")
    ]
    assert shortened("short") == "short" and len(shortened("x" * 10**6)) < 200
    assert Reader(markup([table(("a", "\tb"), [("1", None)])])).text == "ab1"
