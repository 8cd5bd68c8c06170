"""The pages in a real browser: figures are drawn, nothing overlaps or runs off a phone, and the script does its part."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import page_samples
import pytest
import screenshots

from dmlvk.verify.page import page as verify_page
from dmlvk_bench.page import page as bench_page

BROWSER = screenshots.browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, which shows the pages")

FIRST = """<script>
const found = {errors: []};
addEventListener("error", (event) => found.errors.push(event.message));
document.addEventListener("securitypolicyviolation", (event) => found.errors.push(`fetches ${event.blockedURI}`));
for (const level of ["error", "warn"]) console[level] = (...words) => found.errors.push(words.join(" "));
</script>"""
LAST = """<script>
addEventListener("load", () => {
  found.widths = [document.documentElement.scrollWidth, innerWidth];
  found.wide = [...document.querySelectorAll("main *")].filter((element) => !element.closest(".scroll,svg")
    && element.getBoundingClientRect().right > innerWidth + 1).map((element) => element.outerHTML.slice(0, 100));
  found.figures = [...document.querySelectorAll("figure svg")].map((svg) => {
    const box = svg.getBBox();
    const texts = [...svg.querySelectorAll("text")].filter((text) => !/rotate\\((?!-?0\\b)/.test(text.outerHTML));
    const boxes = texts.map((text) => [text.textContent.trim(), text.getBoundingClientRect()]);
    const overlaps = [];
    boxes.forEach(([one, a], index) => boxes.slice(index + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > Math.min(a.height, b.height) / 3) overlaps.push(`${one} | ${other}`);
    }));
    const sizes = texts.map((text) => parseFloat(getComputedStyle(text.querySelector("tspan") ?? text).fontSize));
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const letters = Math.min(...sizes) * scale;
    return {label: svg.getAttribute("aria-label"), box: Math.min(box.width, box.height), overlaps, letters};
  });
  found.open = [...document.querySelectorAll("details.family")].map((family) => family.open);
  const visible = (rows) => [...document.querySelectorAll(rows)].filter((row) => !row.hidden).length;
  for (const input of document.querySelectorAll("input[data-filter]")) {
    const rows = `${input.dataset.filter} tbody tr`;
    const before = visible(rows);
    input.value = input.dataset.filter === ".problems" ? "gemm 64" : "gelu";
    input.dispatchEvent(new Event("input"));
    (found.filters ??= []).push([before, visible(rows), input.offsetHeight > 0]);
    input.value = "";
    input.dispatchEvent(new Event("input"));
  }
  const table = document.querySelector("table.sortable");
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => ["µs", "largest ULP"].includes(cell.textContent));
  found.sorted = [1, 2].map(() => {
    table.tHead.rows[0].cells[column].querySelector("button").click();
    return [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value ?? "");
  });
  const cell = document.querySelector(".heat td[title]");
  cell?.click();
  const details = document.getElementById("details");
  found.details = details.hidden ? "" : details.textContent;
  document.body.click();
  found.closed = details.hidden;
  parent.document.documentElement.dataset.found = JSON.stringify(found);
});
</script>"""


def opened(page: str, width: int) -> dict[str, Any]:
    """What the browser says of a page that many pixels wide, in a frame because a window is 500 wide at least."""
    assert BROWSER is not None
    probed = page.replace("<head>", f"<head>{FIRST}", 1).replace("</body>", f"{LAST}</body>", 1)
    frame = f'<!DOCTYPE html><iframe style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(probed)}"></iframe>'
    shown = screenshots.run(BROWSER, frame, (1400, 1000), "--dump-dom")
    found = re.search(r'data-found="([^"]*)"', shown)
    assert found, f"the page's script did not come to its end: {shown[-500:]}"
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    ("make", "figures"),
    [
        pytest.param(lambda: bench_page(page_samples.results(), page_samples.card()), 4, id="bench"),
        pytest.param(lambda: verify_page(page_samples.card()), 1, id="verify"),
        pytest.param(page_samples.run_page, 1, id="run"),
    ],
)
def test_a_page_in_a_browser(make: Callable[[], str], figures: int, width: int) -> None:
    page = make()
    found = opened(page, width)
    assert found["errors"] == [], "nothing is complained of, and nothing fetched"
    content, window = found["widths"]
    assert content <= window == width, f"{content} pixels wide in a window of {window}: {found['wide']}"
    assert found["wide"] == []
    assert len(found["figures"]) == figures
    for figure in found["figures"]:
        assert figure["box"] > 50, f"{figure['label']} is empty"
        assert figure["overlaps"] == [], f"{figure['label']}: letters upon letters"
        assert figure["letters"] >= 7.5, f"{figure['label']}: letters of {figure['letters']:.1f} pixels"
    families = [True, width >= 640] if 'class="heat"' in page else []
    assert found["open"] == families, "a phone unfolds what failed"
    for before, after, visible in found["filters"]:
        assert visible and 0 < after < before
    for order, backwards in zip(found["sorted"], (False, True), strict=True):
        known = [float(value.replace("inf", "Infinity")) for value in order if value]
        assert known == sorted(known, reverse=backwards) and "" not in order[: len(known)]
    assert found["details"].startswith("ActivationElu FLOAT32\nlargest 0.40 ULP" if families else "")
    assert found["closed"]
