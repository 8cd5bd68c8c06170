"""The Vulkan functions in which faults are injected, and what each may answer, read from the Vulkan registry (vk.xml).

The registry comes with the headers that the native module is compiled with. ``wrappers`` writes the C of the layer's
wrappers from it, so that a function is in one place only.
"""

from __future__ import annotations

import functools
import os
import pathlib
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import Final

VERSIONS: Final = ("VK_VERSION_1_0", "VK_VERSION_1_1", "VK_VERSION_1_2", "VK_VERSION_1_3")
"""What dmlvk asks for: it calls no function of an extension that returns a result."""

BY_HAND: Final = frozenset(
    {
        "vkCreateInstance",
        "vkCreateDevice",
        "vkEnumerateInstanceVersion",
        "vkEnumerateInstanceLayerProperties",
        "vkEnumerateInstanceExtensionProperties",
        "vkEnumerateDeviceLayerProperties",
    }
)
"""layer.c wraps the first two, because it builds its tables there. No layer of an instance can wrap the others."""

ANSWERS: Final = {
    "vkWaitSemaphores": ("VK_TIMEOUT",),
    "vkGetPipelineCacheData": ("VK_INCOMPLETE",),
    "vkQueueSubmit": ("VK_TIMEOUT",),
}
"""Results that are no errors, and that dmlvk's calls of these functions can get. For vkQueueSubmit: what every wait for the
work gets from then on."""


@dataclass(frozen=True)
class Command:
    """A function that returns a VkResult.

    Attributes:
        name: Its name.
        parameters: Type and name of each, as the registry spells them: ``("VkDevice", "device", "VkDevice device")``.
        errors: The errors that it may return, by name.
    """

    name: str
    parameters: tuple[tuple[str, str, str], ...]
    errors: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """What a sweep makes it answer."""
        return self.errors + ANSWERS.get(self.name, ())


ALLOCATION: Final = Command("operator new", (), ("std::bad_alloc",))
"""The native module's own allocations, which the layer makes fail as if they were a function of Vulkan."""


def registry_path() -> pathlib.Path | None:
    """vk.xml of the installed headers, or of the Vulkan SDK; None where there is none."""
    roots = [os.environ.get("VULKAN_SDK", ""), "/usr", "/usr/local", "/opt/homebrew"]
    paths = (pathlib.Path(root, "share", "vulkan", "registry", "vk.xml") for root in roots if root)
    return next((path for path in paths if path.exists()), None)


@functools.cache
def _registry() -> ElementTree.Element:
    path = registry_path()
    assert path is not None, "no Vulkan registry"
    return ElementTree.parse(path).getroot()


def _core_names() -> set[str]:
    return {
        command.attrib["name"]
        for feature in _registry().findall("feature")
        if feature.attrib["name"] in VERSIONS
        for command in feature.iterfind("require/command")
    }


@functools.cache
def commands() -> tuple[Command, ...]:
    """Every function of Vulkan 1.3 that returns a VkResult. The place here is the layer's number of the function."""
    names = _core_names()
    found = []
    for element in _registry().iterfind("commands/command"):
        proto = element.find("proto")
        if proto is None or proto.findtext("type") != "VkResult" or proto.findtext("name") not in names:
            continue
        parameters = tuple(
            (item.findtext("type", ""), item.findtext("name", ""), " ".join("".join(item.itertext()).split()))
            for item in element.findall("param")
            if item.attrib.get("api", "vulkan") == "vulkan"
        )
        errors = tuple(filter(None, element.attrib.get("errorcodes", "").split(",")))
        found.append(Command(proto.findtext("name", ""), parameters, errors))
    return tuple(found)


@functools.cache
def result_values() -> dict[str, int]:
    """Each VkResult by name."""
    found: dict[str, int] = {}
    for enums in _registry().iterfind("enums[@name='VkResult']/enum"):
        if "value" in enums.attrib:
            found[enums.attrib["name"]] = int(enums.attrib["value"])
    for extension in [*_registry().findall("feature"), *_registry().iterfind("extensions/extension")]:
        for enum in extension.iterfind("require/enum[@extends='VkResult']"):
            number = enum.attrib.get("extnumber", extension.attrib.get("number"))
            if "offset" in enum.attrib and number is not None:
                value = 1_000_000_000 + (int(number) - 1) * 1000 + int(enum.attrib["offset"])
                found[enum.attrib["name"]] = -value if enum.attrib.get("dir") == "-" else value
    for extension in _registry().iterfind("extensions/extension"):
        for enum in extension.iterfind("require/enum[@extends='VkResult'][@alias]"):
            found.setdefault(enum.attrib["name"], found.get(enum.attrib["alias"], 0))
    return found


@functools.cache
def kinds() -> tuple[str, ...]:
    """The kinds of objects that are made and destroyed one by one. The place here is the layer's number of the kind."""
    names = _core_names()
    made = {_made(command) for command in commands()} - {""}
    return tuple(sorted(kind for kind in made if {f"vkDestroy{kind[2:]}", f"vkFree{kind[8:]}"} & names))


def _made(command: Command) -> str:
    """The type of the object that a function makes, "" where it makes none."""
    kind, _, text = command.parameters[-1]
    makes = command.name.startswith("vkCreate") or command.name == "vkAllocateMemory"
    return kind if makes and text.startswith(f"{kind}*") else ""


def wrappers() -> str:
    """The C text that layer.c includes: a wrapper for each function and each destroyer, and their tables."""
    lines = []
    lost = ", ".join(str(int("VK_ERROR_DEVICE_LOST" in command.errors)) for command in commands())
    lines += [f"#define K_{kind} {number}" for number, kind in enumerate(kinds())]
    lines.append(f"static const char may_be_lost[FUNCTIONS] = {{{lost}}};")
    destroyers = {
        kind: "vkFreeMemory" if kind == "VkDeviceMemory" else f"vkDestroy{kind[2:]}"
        for kind in kinds()
        if kind not in ("VkInstance", "VkDevice")
    }
    table = [command.name for command in commands() if command.name not in BY_HAND] + [*destroyers.values()]
    lines += [f"#define E_{name} {number}" for number, name in enumerate(table)]
    for number, command in enumerate(commands()):
        lines.append(f"#define F_{command.name} {number}")
        if command.name not in BY_HAND:
            lines += _wrapper(command)
    for kind, destroy in destroyers.items():
        forget = "forget_memory((uint64_t)object); " if kind == "VkDeviceMemory" else ""
        lines += [
            f"static VKAPI_ATTR void VKAPI_CALL layer_{destroy}(VkDevice device, {kind} object, "
            "const VkAllocationCallbacks* callbacks) {",
            f"    if (object != VK_NULL_HANDLE) {{ {forget}count(K_{kind}, -1); }}",
            f"    ((PFN_{destroy})next(device, E_{destroy}))(device, object, callbacks);",
            "}",
        ]
    lines.append("static const struct entry entries[] = {")
    lines += [f'    {{"{name}", (PFN_vkVoidFunction)layer_{name}}},' for name in table]
    lines.append("};")
    sizes = f"enum {{ FUNCTIONS = {len(commands())}, KINDS = {len(kinds())}, ENTRIES = {len(table)} }};"
    return "\n".join([sizes, *lines]) + "\n"


def _wrapper(command: Command) -> list[str]:
    texts = ", ".join(text for _, _, text in command.parameters)
    names = ", ".join(name for _, name, _ in command.parameters)
    first = command.parameters[0][1]
    lines = [f"static VKAPI_ATTR VkResult VKAPI_CALL layer_{command.name}({texts}) {{"]
    lines.append(f"    VkResult fault = enter({first}, F_{command.name});")
    if command.name == "vkEndCommandBuffer":  # which is over, but may not be submitted
        lines.append(f"    if (fault < 0) fault = spoil({first}, fault);")
    if command.name in ("vkQueueSubmit", "vkQueueSubmit2"):
        infos = "pCommandBufferInfos[j].commandBuffer" if command.name == "vkQueueSubmit2" else "pCommandBuffers[j]"
        amount = "commandBufferInfoCount" if command.name == "vkQueueSubmit2" else "commandBufferCount"
        lines.append("    for (uint32_t i = 0; i < submitCount; i++)")
        lines.append(f"        for (uint32_t j = 0; j < pSubmits[i].{amount}; j++) expect_sound(pSubmits[i].{infos});")
    if command.name == "vkQueueSubmit":
        lines.append("    if (fault == VK_TIMEOUT) { note_submission(pSubmits); fault = VK_SUCCESS; }")
    if command.name == "vkWaitSemaphores":
        lines.append("    if (fault >= 0 && waits_in_vain(pWaitInfo, timeout)) return VK_TIMEOUT;")
    if command.name == "vkBeginCommandBuffer":
        lines.append(f"    if (fault >= 0) mend({first});")
    last = command.parameters[-1][1]
    made = _made(command)
    amount = next((name for _, name, _ in command.parameters if name == "createInfoCount"), "1")
    allocated = {"VkCommandBufferAllocateInfo": "commandBufferCount", "VkDescriptorSetAllocateInfo": "descriptorSetCount"}
    counts = [f"{name}->{allocated[kind]}" for kind, name, _ in command.parameters if kind in allocated]
    lines.append("    if (fault < 0) {")
    if (made and amount != "1") or counts:  # the specification says that these are null then
        lines.append(f"        memset({last}, 0, {counts[0] if counts else amount} * sizeof *{last});")
    elif made:  # and leaves these undefined
        lines.append(f"        memset({last}, 0xdb, sizeof *{last});")
    lines += ["        return fault;", "    }"]
    queued = command.name in ("vkQueueSubmit", "vkQueueSubmit2", "vkQueueWaitIdle", "vkDeviceWaitIdle")
    if queued:
        lines.append("    pthread_mutex_lock(&queues);")
    lines.append(f"    VkResult result = ((PFN_{command.name})next({first}, E_{command.name}))({names});")
    if queued:
        lines.append("    pthread_mutex_unlock(&queues);")
    if made in kinds():
        lines.append(
            f"    for (uint32_t i = 0; result >= 0 && i < {amount}; i++) count(K_{made}, {last}[i] != VK_NULL_HANDLE);"
        )
    if command.name == "vkGetSemaphoreCounterValue":
        lines.append("    if (result >= 0) hold_back(pValue);")
    if command.name == "vkAllocateMemory":
        lines.append(f"    if (result >= 0) note_memory((uint64_t)*{last}, pAllocateInfo->allocationSize);")
    if command.name == "vkAllocateCommandBuffers":
        lines.append(f"    for (uint32_t i = 0; result >= 0 && i < {counts[0]}; i++) mend({last}[i]);")
    return [*lines, f"    return leave({first}, F_{command.name}, fault, result);", "}"]
