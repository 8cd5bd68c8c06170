"""Every colour of the pages, for a light and for a dark screen.

The marks that stand for something differ in lightness and in shape too, and their hues are apart for the colour-blind: they
are taken from Okabe and Ito's set. What missed a target, or is wrong, is ``miss``, and nothing else is.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Colour(NamedTuple):
    """A colour as ``#rrggbb``, on a light and on a dark page."""

    light: str
    dark: str


COLOURS: Final[dict[str, Colour]] = {
    "paper": Colour("#ffffff", "#10151c"),
    "panel": Colour("#f5f7fa", "#19212c"),
    "line": Colour("#d5dce5", "#33404f"),
    "ink": Colour("#17212b", "#e8edf3"),
    "muted": Colour("#566474", "#a3b0bf"),
    "link": Colour("#00578a", "#7fc4f5"),
    "good": Colour("#00684a", "#4fd6a5"),
    "miss": Colour("#b3261e", "#ff8a7e"),
    "good-panel": Colour("#e3f4ed", "#11322a"),
    "miss-panel": Colour("#fcebe9", "#451d1b"),
    # Who: as marks and bars, never as text.
    "ours": Colour("#0072b2", "#56b4e9"),
    "torch": Colour("#d98c00", "#f0b440"),
    "onnxruntime": Colour("#009e73", "#2fc79a"),
    "ncnn": Colour("#b45c90", "#dd9ac0"),
    "other": Colour("#7d8894", "#8e9aa8"),
    # The suites, told apart by the shapes of their marks as well.
    "ops": Colour("#4f9fd0", "#9ad0f2"),
    "matmul": Colour("#01466e", "#3d8fd1"),
    "conv": Colour("#7a4fa3", "#bf9be0"),
    # The classes of an error, from none to much. Text on them is ink.
    "ulp-exact": Colour("#e2f2e9", "#15332a"),
    "ulp-0": Colour("#dcebf7", "#1d3347"),
    "ulp-1": Colour("#bcd9ee", "#21465f"),
    "ulp-2": Colour("#96c4e3", "#265a7c"),
    "ulp-4": Colour("#e9c98f", "#6b5220"),
    "ulp-more": Colour("#dfa25c", "#80551a"),
    "ulp-failed": Colour("#f3aaa2", "#8c2b25"),
}

RIVALS: Final[dict[str, tuple[str, ...]]] = {
    "torch": ("torch", "pytorch"),
    "onnxruntime": ("onnxruntime", "onnx runtime", "webgpu"),
    "ncnn": ("ncnn",),
}
"""The first words of rivals' names in results, in lower case, by the rival's colour."""

TITLES: Final[dict[str, str]] = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "ncnn": "ncnn"}
"""The rivals' own names."""


def colour_of(rival: str) -> str:
    """The name of a rival's colour, whatever the results call it: "torch" for "PyTorch eager NHWC"."""
    lower = rival.lower()
    return next((name for name, begins in RIVALS.items() if lower.startswith(begins)), "other")


def style_sheet() -> str:
    """The colours as custom properties of CSS. Paper is light, whatever the screen is."""
    light, dark = (";".join(f"--{name}:{shades[dim]}" for name, shades in COLOURS.items()) for dim in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n"
    )
