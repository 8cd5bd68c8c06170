"""The common parts of the pages of ``bench --html`` and ``verify --html``: the skeleton, the colours and the figures.

A page is one file: styles, script and figures are in it, and nothing is fetched. Figures and style sheet take their colours
from ``palette``, by name, so that a rival has the same one everywhere, in the light and in the dark.

``import dmlvk.verify.html`` needs the packages jinja2 and matplotlib.

Raises:
    MissingPackageError: when imported without one of them.
"""

from __future__ import annotations

from dmlvk.spec.errors import MissingPackageError

try:
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
except ImportError as error:
    raise MissingPackageError(f"a page needs the package {error.name}: pip install 'dmlvk[report]'") from error
