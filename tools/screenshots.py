"""The documentation's pictures, by a headless Chromium: ``docs/images/verify-DEVICE.png`` of the accuracy cards in
``bench/results``, and ``docs/images/run.png`` of a page that ``python -m dmlvk run --html`` has written.

python tools/screenshots.py [--chromium PROGRAM] [--run PAGE]
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from dmlvk.verify import card as cards
from dmlvk.verify import page as verify_page

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
IMAGES = ROOT / "docs/images"
DEVICES = ("h200", "lavapipe")
DESKTOP = 1280, 1700
TOP = 1120, 930
"""Width and height of a window, and of one that shows only the top of a page."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MOST_BYTES = 400_000
"""The most bytes of a picture."""


def browser() -> str | None:
    """A Chromium, by the names that systems know it under."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def run(program: str, page: str, size: tuple[int, int], *options: str) -> str:
    """Opens a page without a window, network or profile.

    Args:
        program: The browser.
        page: HTML.
        size: The size of the window.
        options: Chromium's options, such as ``--dump-dom``.

    Returns:
        What it printed.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        command += ["--disable-background-networking", "--no-first-run", f"--user-data-dir={folder}/profile"]
        command += [f"--window-size={size[0]},{size[1]}", *options, path.as_uri()]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def picture(program: str, page: str, size: tuple[int, int], path: pathlib.Path) -> None:
    """Writes what a window of that size shows of a page, as PNG."""
    run(program, page, size, f"--screenshot={path}")
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {MOST_BYTES}: show less of it")


def main(arguments: list[str] | None = None) -> int:
    """Makes the pictures; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--chromium", default=browser(), help="the browser, where it is not on the path")
    parser.add_argument("--run", type=pathlib.Path, help="the page of a run to show, and nothing else")
    options = parser.parse_args(arguments)
    if options.chromium is None:
        print(f"no browser: none of {', '.join(PROGRAMS)} is on the path; Debian's package is chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    if options.run is not None:
        picture(options.chromium, options.run.read_text(encoding="utf-8"), TOP, IMAGES / "run.png")
        return 0
    for device in DEVICES:
        card = cards.read(RESULTS / f"{device}-verify.json")
        picture(options.chromium, verify_page.page(card), DESKTOP, IMAGES / f"verify-{device}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
