"""The native module: one Vulkan instance, devices with features, memory, kernels and command lists.

Built from ``native/`` over Kompute's C++ core. Only ``dmlvk.runtime`` imports it; nothing else in the project does.
Every failing Vulkan call raises what ``dmlvk.spec.errors.vulkan_error(result, call, detail)`` returns; a misuse by our own
Python raises ``ValueError``. Calls that may block release the GIL. Every object keeps what it uses alive.
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

BufferProtocol = NDArray[Any] | bytes | bytearray | memoryview
"""Anything with the buffer protocol does; Python 3.11 has no type that says so."""

class PhysicalDevice:
    """What one Vulkan device reports, read once; nothing is created on it."""

    index: int
    name: str
    uuid: str
    """VkPhysicalDeviceIDProperties.deviceUUID, as 8-4-4-4-12 hexadecimal digits."""
    driver: str
    """driverName and driverInfo, such as "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"."""
    driver_version: int
    vendor_id: int
    device_id: int
    type: str
    """"discrete", "integrated", "virtual", "cpu" or "other"."""
    api_version: tuple[int, int, int]
    memory_bytes: int
    """Sum of the device-local heaps."""
    features: dict[str, bool]
    """Every optional feature by dmlvk's name (see FEATURE_NAMES), whether the device reports it."""
    limits: dict[str, int | float]
    """VkPhysicalDeviceLimits members that matter to compute, by their Vulkan names (an array gives an entry an element:
    maxComputeWorkGroupCount0, 1, 2; maxComputeWorkGroupSize0, 1, 2), plus subgroupSize, minSubgroupSize,
    maxSubgroupSize, maxComputeWorkgroupSubgroups, maxMemoryAllocationSize, maxBufferSize, timestampValidBits (of the
    queue) and, where an extension of the vendor tells them, processors and processorSubgroups (that one holds)."""
    has_portable_reductions: bool
    """Whether matrix_reductions, if there are any, are those of VK_EXT_cooperative_matrix_maintenance1 and not NVIDIA's."""
    cooperative_matrices: list[dict[str, Any]]
    """One entry a reported shape: m, n, k, a_type, b_type, c_type, result_type ("float16", "bfloat16", "int8", ...),
    saturating, scope ("subgroup", "workgroup", ...)."""

FEATURE_NAMES: tuple[str, ...]
"""float16 int8 int16 int64 float64 storage16 storage8 subgroup_size_control full_subgroups
subgroup_arithmetic subgroup_shuffle cooperative_matrix matrix_reductions bfloat16
integer_dot_product memory_budget buffer_device_address vulkan_memory_model atomic_float executable_properties
external_memory external_semaphores
(each the Vulkan feature or extension of that meaning; subgroup_size_control where compute shaders may require a size)."""

def physical_devices() -> list[PhysicalDevice]:
    """All devices of at least Vulkan 1.3 with a compute queue, in the loader's order (portability devices included)."""

def validation_messages(clear: bool = True) -> list[str]:
    """What the Khronos validation layer said since the last call; the layer is on when DMLVK_VALIDATION=1 is set
    before the first use (core and synchronisation validation)."""

class Device:
    """A logical device with every reported feature of FEATURE_NAMES switched on except those in ``disable``."""

    def __init__(self, index: int, *, disable: Sequence[str] = (), pipeline_cache: str = "") -> None:
        """pipeline_cache: path of the cache file, read now and written by save_pipeline_cache(); "" for none."""

    physical: PhysicalDevice
    features: dict[str, bool]
    """What is switched on."""
    pipelines_created: int
    submissions: int
    """vkQueueSubmit calls so far. Uploads travel with the next list's submit and add none of their own, large ones
    excepted."""
    dispatches: int
    """Dispatches submitted so far, replays counted each time."""

    uploads: int
    """Writes of buffers from the host so far, parameter blocks among them."""
    downloads: int
    """Reads of buffers for the host so far."""
    most_pending_bytes: int
    """The most bytes of begin_download."""

    def allocate(self, nbytes: int, purpose: int = 0, exported: bool = False) -> Buffer:
        """Device-local storage, sub-allocated from pooled blocks, contents undefined. nbytes > 0. purpose: which member of
        Purpose it is counted under. exported: in an allocation of its own, for Buffer.export_memory; ValueError without
        external_memory."""

    def shared_timeline(self) -> SharedTimeline:
        """A new timeline semaphore at 0; ValueError without external_semaphores."""

    def kernel(
        self,
        spirv: bytes,
        *,
        name: str,
        storage_buffers: int,
        has_params: bool,
        push_bytes: int,
        constants: Sequence[tuple[int, int]] = (),
        subgroup_size: int = 0,
        inspected: bool = False,
    ) -> Kernel:
        """A compute pipeline, entry point "main". Bindings 0..storage_buffers-1 of set 0 are storage buffers; with
        has_params, binding storage_buffers is a uniform buffer. constants: (constant_id, 32-bit pattern).
        subgroup_size: required size, 0 for the device's choice. inspected: for executables()."""

    def upload(self, buffer: Buffer, offset: int, data: BufferProtocol) -> None:
        """Copies contiguous host bytes through the staging ring. Returns as soon as ``data`` may be reused; the copy is
        ordered before every later submit and download."""

    def download(self, buffer: Buffer, offset: int, out: BufferProtocol) -> None:
        """Fills the contiguous writable ``out``, after everything submitted before."""

    def begin_download(self, buffer: Buffer, offset: int, out: BufferProtocol) -> PendingDownload:
        """Asks for what ``download`` fills ``out`` with, and returns at once. ValueError for more than
        most_pending_bytes."""

    def launches(
        self, alignment: int, launches: Sequence[tuple[Kernel | None, int, Sequence[tuple[int, int]], bool]]
    ) -> Launches:
        """Launches for CommandList.launch. alignment: of storage bindings. A launch is its kernel, None for a copy of one
        range into another; which of its bindings it writes, as in CommandList.dispatch; of each binding the place in
        ``Resources`` and the slot there, 0 where there is one range alone; and ``Dispatch.beside_previous``."""

    def command_list(self, *, timestamps: bool = False) -> CommandList: ...
    def prepared_run(
        self,
        feeds: Sequence[tuple[Buffer, int, int]],
        commands: Sequence[CommandList],
        results: Sequence[tuple[Buffer, int, int] | bytes],
    ) -> PreparedRun:
        """A run that native code repeats without Python: what it is fed goes to ``feeds``, ``commands`` run, and what it
        makes comes from ``results``, ranges or bytes that are known."""

    def flush(self) -> None:
        """Submits what is deferred."""

    def wait_idle(self) -> None: ...
    def memory(self) -> dict[str, int]:
        """Bytes: buffers (sum of live buffers), peak (its highest value), blocks (reserved from the driver), staging,
        and where memory_budget is on: budget, usage."""

    def live_bytes(self, purpose: int) -> int:
        """The live buffers' bytes of a purpose."""

    def reset_peak(self, at_least: int = 0) -> None: ...
    def save_pipeline_cache(self) -> None: ...
    wait_timeout: float | None
    """Seconds, above 0, after which a wait for the device raises WaitTimeoutError; None: never. Every wait hears Ctrl-C."""

    left_behind: bool
    """Whether this is a forked child of the process that opened the device: then every call raises StateError."""

    def require_alive(self) -> None:
        """Raises DeviceLostError where the device is lost, StateError where it is left behind."""

    lost: str
    """"" while the device works, else why not (the call that reported VK_ERROR_DEVICE_LOST)."""

class PendingDownload:
    def finish(self) -> None:
        """Waits until the bytes have come."""

class Buffer:
    size: int
    device: Device
    def export_memory(self) -> tuple[int, int]:
        """A new file descriptor of the allocation, which the caller closes or gives away, and the allocation's bytes."""

class SharedTimeline:
    """A timeline semaphore that other interfaces may import; it lives as long as its device."""

    def export_semaphore(self) -> int:
        """A new file descriptor, which the caller closes or gives away."""

    def signal(self, value: int) -> None:
        """Sets it to ``value``, above all before, once everything submitted or deferred so far is over."""

    def wait(self, value: int) -> None:
        """Has everything submitted later wait, on the device, until it is at ``value``."""

class PreparedRun:
    """Is run here or through the door, not for two threads at once."""

    is_open: bool
    def run(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs once with contiguous memory for each feed and each result, of exactly its bytes. Waits for the results."""
    def start(self, inputs: Sequence[Any]) -> bool:
        """Hands over a run without waiting for it. Returns whether copies bring the results to the host with it, for
        ``take``: those of the first run do not, nor do large ones."""
    def take(self, index: int, offset: int, out: NDArray[Any]) -> None:
        """Fills ``out`` with bytes of a result that the last ``start`` brings. Waits for them. For any thread, but not while
        another run starts."""
    def close(self) -> None:
        """Lets go of what it has. Not while it runs."""

def door() -> object:
    """A capsule with what other native modules of ours call without Python: see native/door.h."""

class Kernel:
    name: str
    def executables(
        self,
    ) -> list[tuple[str, str, int, list[tuple[str, str, bool | int | float]], list[tuple[str, str, bytes, bool]]]]:
        """The driver's programs of a kernel that was created to be inspected: name, description, subgroup size, statistics
        (name, description, value), and internal representations (name, description, bytes, whether they are text)."""

class Launches:
    """What the launches of a plan have in common whatever their sizes."""

class CommandList:
    """Recorded once through kp::Sequence, replayed with submit(). Barriers are emitted here and nowhere else: before a
    command whose byte ranges conflict (RAW, WAR, WAW) with an earlier command since the last barrier. The list starts
    with a barrier against everything submitted before it, transfers included."""

    def dispatch(
        self,
        kernel: Kernel,
        buffers: Sequence[tuple[Buffer, int, int]],
        writes: int,
        params: tuple[Buffer, int, int] | None,
        push: bytes,
        grid: tuple[int, int, int],
    ) -> None:
        """buffers: (buffer, offset, bytes) a storage binding; bit i of writes is set where binding i is written."""

    def launch(
        self,
        launches: Launches,
        order: Sequence[int] | None,
        values: Sequence[tuple[bytes | None, tuple[int, int, int] | None, Sequence[tuple[object, int, int, int]]]],
        blocks: Sequence[tuple[Buffer, int, int] | None],
        resources: tuple[Any, ...],
    ) -> tuple[int, ...]:
        """Appends all launches of a plan, and returns the places of copies that are left out, as there is nothing to do:
        those of bytes to themselves.

        order: which of ``launches`` each is; None where they are these in order. values: for each its grid, which follows
        its parameter block, and its ranges: the last two numbers of each are the offset in its resource and the bytes, 0
        for the rest of it. blocks: where the parameter block of each lies. resources: ``Resources``; a range in it is a
        Buffer of dmlvk.runtime.memory, an offset and bytes."""

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None: ...
    def fill(self, target: Buffer, offset: int, nbytes: int, word: int) -> None:
        """offset and nbytes are multiples of 4."""

    def submit(self, *, defer: bool = False) -> None:
        """Ends recording at the first call. Waits for this list's own previous submit before replaying.

        defer: leaves the list to the next submit, upload, download or wait of anybody, which it precedes."""

    def wait(self, timeout: float | None = None) -> bool:
        """Spins briefly, then blocks, GIL released. False when the timeout (seconds) ran out; the list stays valid. None:
        as long as the device's wait_timeout allows."""

    def timings(self) -> list[tuple[float, float]]:
        """(start, end) of every dispatch of the last finished submit, nanoseconds from the first start. Needs
        timestamps=True."""

    def timestamp(self) -> None:
        """Records the taking of the queue's time, once every earlier command of the list is done."""

    def timestamps(self) -> list[int]:
        """What timestamp() took in the last finished submit: ticks of limits["timestampPeriod"] nanoseconds, of which the
        low limits["timestampValidBits"] bits count."""

    dispatch_count: int
    barrier_count: int
    """Barriers between commands of this list; the one it starts with is not counted."""
