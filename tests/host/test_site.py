"""The documentation's site has every page that it names, and README leads nowhere else."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r'\]\(([^)#:]+)[^):]*\)|src="([^"]+)"', README)))


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages that are made when the site is built, by their paths."""
    import site_pages  # here, since it needs mkdocs

    return site_pages.pages()


@pytest.mark.slow
def test_every_page_of_the_navigation_is_written_or_made(made: dict[str, str]) -> None:
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = set(re.findall(r"[\w-]+\.md", str(sections)))
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert named == written | {path for path in made if path.endswith(".md")}
    assert not written & made.keys(), "what is made is not in the repository"


@pytest.mark.slow
def test_what_is_made_is_whole(made: dict[str, str]) -> None:
    for path, text in made.items():
        begins, ends = {".md": ("# ", "\n"), ".svg": ("<svg", "</svg>"), ".html": ("<!doctype html>", "</html>")}[
            pathlib.PurePath(path).suffix
        ]
        assert text.lower().startswith(begins) and text.rstrip().endswith(ends.strip()), path


@pytest.mark.parametrize("link", [link or source for link, source in LINKS])
def test_a_link_of_the_readme_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
