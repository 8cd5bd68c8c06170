"""Served models as deployments of Ray Serve: as many replicas as there are devices, each with its own.

``serve.run(text("model.gguf", num_replicas=8))`` starts them. Ray's proxy spreads requests over replicas by how many each
has; a replica that has failed is replaced, which its health check says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from ray import serve
from starlette.applications import Starlette

from dmlvk.directml.device import Device
from dmlvk.ray.devices import RESOURCE, assigned_device
from dmlvk.serving.opening import models_of, text_of

_REPLICA: Final = ("most_waiting", "limits", "name", "capacity", "sequences", "piece", "most_rows")
_MOST_WAITING: Final = 256
_SEQUENCES: Final = 8


def text(path: str | os.PathLike[str], *, share: float = 1.0, **options: Any) -> serve.Application:
    """A language model behind OpenAI's interface; see ``dmlvk.serving.text``.

    Args:
        path: The file or folder, as every node finds it.
        share: The part of a device that a replica takes.
        options: Those of ``dmlvk.serving.opening.text_of``; all others are Ray Serve's, such as ``num_replicas``,
            ``autoscaling_config`` and ``ray_actor_options``.
    """
    own, others = _parted(options)
    at_once = own.get("most_waiting", _MOST_WAITING) + own.get("sequences", _SEQUENCES)
    return _application("text", lambda device: text_of(path, device, **own), share, at_once, others)


def models(paths: Mapping[str, str | os.PathLike[str]], *, share: float = 1.0, **options: Any) -> serve.Application:
    """ONNX models behind the open inference protocol; see ``dmlvk.serving.models``.

    Args:
        paths: The files, as every node finds them, by the names that clients call the models.
        share: As of ``text``.
        options: Those of ``dmlvk.serving.opening.models_of``; all others are Ray Serve's.
    """
    own, others = _parted(options)
    at_once = own.get("most_waiting", _MOST_WAITING) * len(paths)
    return _application("models", lambda device: models_of(paths, device, **own), share, at_once, others)


def _parted(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    own = {name: value for name, value in options.items() if name in _REPLICA}
    return own, {name: value for name, value in options.items() if name not in _REPLICA}


def _application(
    name: str,
    build: Callable[[Callable[[], Device]], Starlette],
    share: float,
    at_once: int,
    options: Mapping[str, Any],
) -> serve.Application:
    def built() -> Starlette:
        return build(assigned_device)

    class Replica:
        """A replica, in which the application stands."""

        def check_health(self) -> None:
            """Raises what has made the replica useless, for Ray to make another one."""
            failure = self.app.state.failure()  # type: ignore[attr-defined]  # Ray Serve adds it
            if failure is not None:
                raise failure

    actor = dict(options.get("ray_actor_options", {}))
    actor["resources"] = {RESOURCE: share, **actor.get("resources", {})}
    # What is more is refused by the replica itself, in words that clients know.
    given = {"name": name, "max_ongoing_requests": 2 * at_once, **options, "ray_actor_options": actor}
    return serve.deployment(serve.ingress(built)(Replica), **given).bind()
