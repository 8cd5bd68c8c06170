"""An application on a port of this machine: the one place that imports uvicorn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dmlvk.spec.errors import MissingPackageError

try:
    import uvicorn
except ImportError as error:
    raise MissingPackageError("serving needs the package uvicorn: pip install 'dmlvk[serve]'") from error

if TYPE_CHECKING:
    from starlette.applications import Starlette

_SECONDS_TO_FINISH: Final = 30


def run(application: Starlette, host: str, port: int) -> None:
    """Serves until the process is told to end; answers that are on their way are finished then, for a while.

    Raises:
        SystemExit: the port is taken.
    """
    uvicorn.run(application, host=host, port=port, log_level="warning", timeout_graceful_shutdown=_SECONDS_TO_FINISH)
