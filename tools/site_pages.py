"""The pages that are made from the tables and from what was measured, whenever the site is built: a hook of mkdocs.yml."""

from __future__ import annotations

import drivers_page
import models_page
import operators_page
import performance_page
import runtime_names_page
import torch_page
import zoo_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from dmlvk.verify import card as cards
from dmlvk.verify import page as verify_page
from dmlvk_bench import figures, results
from dmlvk_bench import page as bench_page


def pages() -> dict[str, str]:
    """The text of each page and figure, by its path in the site's sources."""
    found = results.read(performance_page.RESULTS)
    made = {
        "operators.md": operators_page.page(),
        "onnxruntime-names.md": runtime_names_page.page(),
        "performance.md": performance_page.page(found),
        "models.md": models_page.page(
            models_page.Record.read(), models_page.read_saved(), models_page.ProviderRecord.read()
        ),
        "zoo.md": zoo_page.page(),
        "torch-operators.md": torch_page.page(),
        "drivers.md": drivers_page.page(),
        "images/roofline.svg": figures.roofline(found, alone=True),
        "images/copy-shares.svg": figures.copy_shares(found, alone=True),
        "images/ratios.svg": figures.ratios(found, "torch", alone=True),
    }
    for device in ("h200", "lavapipe"):
        card = cards.read(performance_page.FOLDER / f"{device}-verify.json")
        made[f"verify-{device}.html"] = verify_page.page(card)
        made[f"bench-{device}.html"] = bench_page.page(results.read(performance_page.FOLDER / f"{device}.json"), card)
    return made


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds them to the files that mkdocs found; mkdocs calls it by its name."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
