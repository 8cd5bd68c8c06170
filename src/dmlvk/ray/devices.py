"""Vulkan devices as a resource of Ray's nodes, and the device that an actor is given.

Ray counts what a node has of a resource and what its actors hold, and starts an actor only where there is enough. It does
not say which device that is: the actor takes one itself, by a lock that the system drops when the process ends, however it
ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import ray

from dmlvk.directml.device import Device, default_device
from dmlvk.runtime.device import DeviceChoice, choose_device, devices, worthy
from dmlvk.spec.errors import InvalidArgumentError, NoDeviceError, StateError, UnsupportedError

RESOURCE: Final = "vulkan"
"""The name of the resource: how many devices a node has, and how many, or what share of one, an actor asks for."""
_PREFIX: Final = f"{RESOURCE}-"
_SECONDS: Final = 60.0
"""How long an actor waits for its device. The one before it may be on its way out, which takes a moment."""
_SECONDS_BETWEEN: Final = 0.05
_PARTS: Final = 10_000
"""The smallest part of a resource that Ray counts is one in so many."""


def resources(choices: Iterable[DeviceChoice] | None = None, *, copies: int = 1) -> dict[str, float]:
    """What a node announces to Ray: ``ray.init(resources=...)``, or as JSON ``ray start --resources=...``.

    Args:
        choices: The devices, each as ``Device`` takes it; None for all that are no processor's, or else for a processor's.
        copies: How many actors a device is announced for as if it were so many devices: to try a cluster on a processor's
            driver. Actors that share a device rather ask for a part of it.

    Returns:
        The number of devices by the name ``RESOURCE``, and by "vulkan-UUID" how often each is there. Actors ask for the
        first, and for one certain device for both.

    Raises:
        NoDeviceError: there is no device, or none that matches.
        InvalidArgumentError: less than one copy.
    """
    if copies < 1:
        raise InvalidArgumentError("must be at least 1", field="copies", value=copies)
    found = devices()
    if choices is None:
        chosen = worthy(found)
        if not chosen:
            raise NoDeviceError("there is no Vulkan 1.3 device")
    else:
        chosen = [choose_device(choice, found) for choice in choices]
    uuids = dict.fromkeys(info.uuid for info in chosen)
    return {RESOURCE: float(copies * len(uuids)), **{_PREFIX + uuid: float(copies) for uuid in uuids}}


_lock = threading.Lock()
_held: list[int] = []
"""The file whose lock says that this process has its device; open as long as the process lives."""


def assigned_device() -> Device:
    """The device that this actor has been given, open, and from now on the process-wide one. The process sees no other.

    An actor calls it before anything else of dmlvk. It has asked for a device, or for a share of one, by
    ``resources={"vulkan": 1}``; shares that add up to one device may be on it together.

    Raises:
        StateError: the caller is no actor, it asked for no device, or the process has opened another one before.
        UnsupportedError: it asked for more than one device, or this system has no locks that end with a process.
        NoDeviceError: others hold all devices; so they did not ask Ray for them, or shares are spread so that no device
            has enough left.
    """
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or not context.get_actor_id():
        raise StateError("only an actor of Ray is given a device: the process of a task outlives it")
    with _lock:
        if not _held:
            asked = context.get_assigned_resources()
            places = _places(asked, context.get_node_id())
            place, file = take(node_folder(), places, _share(asked))
            os.environ["DMLVK_VISIBLE_DEVICES"] = os.environ["DMLVK_DEVICE"] = place.uuid
            _held.append(file)
        uuid = os.environ["DMLVK_VISIBLE_DEVICES"]
        device = default_device()
        if device.info.uuid != uuid:
            raise StateError(f"the actor was given device {uuid}, and has opened {device.info.uuid} before it asked")
        return device


def node_folder() -> Path:
    """What this package keeps on the caller's node, among Ray's files of the session."""
    context = ray.get_runtime_context()
    return Path(context.get_temp_dir(), context.get_session_name(), "dmlvk", context.get_node_id())


@contextmanager
def taking_turns(folder: Path) -> Iterator[None]:
    """Inside, no other process of the node is inside with this folder, which is made where it is missing.

    Raises:
        UnsupportedError: the system has no locks that end with a process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "turn").open("a") as turn:
        _locked(turn.fileno(), wait=True)
        yield


class Place(NamedTuple):
    """A device as a node announces it: one of its copies."""

    uuid: str
    copy: int


def _share(asked: Mapping[str, float]) -> float:
    share = asked.get(RESOURCE, 0.0)
    if not share:
        raise StateError(f'the actor has asked for no device: give it resources={{"{RESOURCE}": 1}}')
    if share > 1:
        raise UnsupportedError(f"an actor has one device or a share of it; this one has asked for {share:g}")
    return share


def _places(asked: Mapping[str, float], node: str) -> list[Place]:
    """The places of a node that an actor may be given: all, or those of the device that it asked for by name."""
    (announced,) = (entry["Resources"] for entry in ray.nodes() if entry["NodeID"] == node)
    wanted = [name for name in asked if name.startswith(_PREFIX)]
    found = {name: int(announced[name]) for name in wanted or announced if name.startswith(_PREFIX)}
    return [Place(name.removeprefix(_PREFIX), copy) for name in sorted(found) for copy in range(found[name])]


def take(folder: Path, places: Sequence[Place], share: float, *, seconds: float = _SECONDS) -> tuple[Place, int]:
    """Takes a share of one of a node's devices for as long as the process lives, of those with room the fullest.

    Args:
        folder: Of files of this node, one for each holder, who has it locked.
        places: The devices.
        share: More than 0, at most 1.
        seconds: How long to wait for room.

    Returns:
        The device, and the file that holds it.

    Raises:
        UnsupportedError: the system has no such locks.
        NoDeviceError: no device has room.
    """
    parts = round(share * _PARTS)
    end = time.monotonic() + seconds
    while True:
        with taking_turns(folder):
            taken = _living(folder)
            full = {place: sum(item.parts for item in taken if item.place == place) for place in places}
            fitting = [place for place in places if full[place] + parts <= _PARTS]
            if fitting:
                place = max(fitting, key=lambda item: full[item])
                return place, _Holder(place, parts, os.getpid()).write(folder)
        if time.monotonic() > end:
            who = ", ".join(f"process {item.pid}: {item.parts / _PARTS:g} of {item.place.uuid}" for item in taken)
            message = f"no device of this node has {share:g} of it left after {seconds:g} s; it is held by {who or 'nobody'}"
            raise NoDeviceError(message)
        time.sleep(_SECONDS_BETWEEN)


class _Holder(NamedTuple):
    """A process that holds a part of a device, as its file's name says."""

    place: Place
    parts: int
    pid: int

    @classmethod
    def read(cls, name: str) -> _Holder:
        uuid, copy, parts, pid, _ = name.split("_")
        return cls(Place(uuid, int(copy)), int(parts), int(pid))

    def write(self, folder: Path) -> int:
        """Makes its file, locked."""
        name = f"{self.place.uuid}_{self.place.copy}_{self.parts}_{self.pid}_{time.monotonic_ns()}.held"
        file = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        _locked(file, wait=False)
        return file


def _living(folder: Path) -> list[_Holder]:
    """Those who hold something; the files of others are removed."""
    found = []
    for path in folder.glob("*.held"):
        with path.open() as file:
            if _locked(file.fileno(), wait=False):
                path.unlink()
            else:
                found.append(_Holder.read(path.name))
    return found


def _locked(file: int, *, wait: bool) -> bool:
    """Locks an open file until it is closed, as the end of the process does; False where another has it."""
    try:
        import fcntl
    except ImportError as error:
        raise UnsupportedError("devices of Ray's actors take locks of files that Linux and macOS have") from error
    locking: Any = fcntl  # its functions are not there on all systems
    try:
        locking.flock(file, locking.LOCK_EX if wait else locking.LOCK_EX | locking.LOCK_NB)
    except BlockingIOError:
        return False
    return True
