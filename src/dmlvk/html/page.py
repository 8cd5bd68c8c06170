"""The frame of a page: one file, with styles and script in it, that fetches nothing."""

from __future__ import annotations

import html
import pathlib
from typing import Final

from dmlvk.html import palette

_FOLDER: Final = pathlib.Path(__file__).parent


def page(title: str, command: str, content: str) -> str:
    """A page.

    Args:
        title: What a browser's tab shows.
        command: The command that made it.
        content: HTML.
    """
    style = palette.style_sheet() + (_FOLDER / "style.css").read_text(encoding="utf-8")
    script = (_FOLDER / "script.js").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>
{style}
</style>
</head>
<body>
<main>
{content}
</main>
<footer>Made by <code>{html.escape(command)}</code>. This page is one file and fetches nothing.</footer>
<aside id="details" role="status" hidden></aside>
<script>
{script}
</script>
</body>
</html>
"""
