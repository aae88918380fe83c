"""Devices that compute: names, abilities, free memory, and errors about memory."""

from __future__ import annotations

import os
import platform
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.common.errors import (
    ConfigError,
    GaamError,
    ShortOfMemoryError,
    StorageError,
)
from gaam_cache.common.messages import shortened, visible

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

NAMES = "auto, cpu, cuda, cuda:N or mps"
_NO_MEMORY = re.compile(
    r"MemoryError|not enough memory|can(no|')t allocate memory|out of memory"
    r"|unable to allocate"
    r"|bad_alloc|failed to map segment|OutOfMemory|could not create a primitive"
    r"|_ALLOC(ATION)?_FAILED|error return without exception set",
    re.IGNORECASE,
)
"""Messages about memory of torch, oneDNN, NumPy, HDF5, the loader, CPython and CUDA."""
LOADING_LOCK = threading.RLock()
"""Held while an encoder is opened or a decoder is built. While transformers loads
weights it sets the default type of all threads, and parameters are of that type. While
a decoder is built, the random generators of the process have its seed."""
_workers_here = 1


def check_device(name: str) -> None:
    """Refuse a text that is not the name of a device; the device need not exist."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,4})?", name, re.ASCII):
        raise ConfigError("unknown --device", expected=NAMES, found=shortened(name))


def resolve_device(name: str) -> torch.device:
    """The device that a name stands for; ``auto`` is a GPU of CUDA, or else the CPU.

    This also makes torch exact for the whole process: float32 is computed in full
    precision, and a GPU computes the same bits in every run.

    Args:
        name: auto, cpu, cuda, cuda:N or mps.

    Raises:
        ConfigError: the name is unknown, or this machine has no such device.
    """
    import torch

    check_device(name)
    gpu_count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if gpu_count else "cpu"
    if not _exists(name, gpu_count):
        raise ConfigError(
            f"no device '{name}'",
            expected="a GPU that this build of torch can use",
            found=f"torch {torch.__version__}, GPUs: {gpu_count}",
            hint="--device cpu",
        )
    _make_exact()
    # each thread may have a current device of its own: the name needs its number
    if name == "cuda":
        # torch declares no type for this function
        is_cuda_in_use: Any = torch.cuda.is_initialized
        # to ask for the current device would start CUDA; before its start it is 0
        number = torch.cuda.current_device() if is_cuda_in_use() else 0
        name = f"cuda:{number}"
    return torch.device(name)


def _exists(name: str, gpu_count: int) -> bool:
    """Whether this machine has the device ``cpu``, ``mps``, ``cuda`` or ``cuda:N``."""
    import torch

    if name == "cpu":
        return True
    if name == "mps":
        return torch.backends.mps.is_available()
    # 'cuda' without a number needs at least one GPU
    number = int(name.partition(":")[2] or 0)
    return number < gpu_count


def _make_exact() -> None:
    """Make torch compute in full float32, and cuDNN in the same order in every run.

    These are switches of torch for the whole process.
    """
    import torch

    # the fraction of a float32 has 24 bits; TensorFloat-32, cuDNN's default, has 11
    torch.set_float32_matmul_precision("highest")
    # torch declares no types for some of these switches
    backends: Any = torch.backends
    cudnn = backends.cudnn
    backends.cuda.matmul.allow_tf32 = False
    cudnn.allow_tf32 = False
    # since torch 2.9 each part has a switch of its own, which overrides those above
    if hasattr(cudnn, "conv"):
        mkldnn = backends.mkldnn
        parts = (
            backends.cuda.matmul,
            cudnn.conv,
            cudnn.rnn,
            mkldnn.matmul,
            mkldnn.conv,
        )
        for part in parts:
            part.fp32_precision = "ieee"
    cudnn.deterministic = True
    cudnn.benchmark = False


def check_arithmetic(dtype: str, device: torch.device) -> None:
    """Refuse a half precision type on mps, the GPU of a Mac; all else passes."""
    # 'auto' becomes float32 on mps
    if device.type == "mps" and dtype not in ("float32", "auto"):
        expected = "--dtype float32, or another --device"
        raise ConfigError(f"--dtype {dtype} is not used on mps", expected=expected)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 itself; older GPUs emulate it slowly."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    # an older torch does not tell what the processor can: then the answer is no
    features: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16"))


def name_of(device: torch.device) -> str:
    """The product name of a GPU, or the type of another device."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type


def cpu_name() -> str:
    """The product name of the processor; its architecture if the name is unknown."""
    # only Linux has this file
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        match = re.search(r"^model name.*?:(.*)", text, re.MULTILINE)
        if match is not None:
            return " ".join(visible(match[1]).split())
    return platform.processor() or platform.machine()


def free_bytes(device: torch.device) -> int:
    """Bytes of a GPU's memory that this process may still fill.

    These are the free bytes, and those that torch holds in its cache without use.
    """
    import torch

    if device.type == "mps":
        allocated = torch.mps.current_allocated_memory()
        return max(0, torch.mps.recommended_max_memory() - allocated)
    reserved = torch.cuda.memory_reserved(device)
    cached = reserved - torch.cuda.memory_allocated(device)
    free, _total = torch.cuda.mem_get_info(device)
    return free + cached


def memory_left(device: torch.device) -> int:
    """Bytes that this worker may still fill on its device.

    A worker has its GPU for itself. On a CPU all workers share the machine's free
    bytes equally.
    """
    if device.type == "cpu":
        return free_memory() // workers_here()
    return free_bytes(device)


def free_memory() -> int:
    """Bytes that this process may still take of the machine and of its cgroup (v2)."""
    free = _free_on_machine()
    try:
        free_in_cgroup = _free_in_cgroup()
    except (OSError, ValueError):
        # there is no cgroup, or its limit is "max"
        return max(0, free)
    return max(0, min(free, free_in_cgroup))


def _free_on_machine() -> int:
    """Free bytes of the machine's memory."""
    # only Linux has this file, which also counts memory that the system can take back
    try:
        text = Path("/proc/meminfo").read_text()
        return int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_in_cgroup() -> int:
    """Free bytes below the memory limit of this process's control group (Linux).

    Raises:
        OSError: there is no control group.
        ValueError: the group has no limit.
    """
    root = Path("/sys/fs/cgroup")
    # the line of version 2 of control groups is '0::/PATH'; it is the last one
    own_folder = Path("/proc/self/cgroup").read_text().rpartition("::/")[2].strip()
    folder = root / own_folder
    # in a container the group's own files lie at the root
    if not (folder / "memory.max").exists():
        folder = root
    limit = int((folder / "memory.max").read_text())
    used = int((folder / "memory.current").read_text())
    lines = (folder / "memory.stat").read_text().splitlines()
    stat = dict(line.split() for line in lines)
    # the system takes back the memory of files when programs need it
    reclaimable = int(stat["file"]) + int(stat.get("slab_reclaimable", 0))
    return limit - used + reclaimable


def free_cached_memory(device: torch.device) -> None:
    """Free the memory of a GPU that torch keeps for later tensors.

    Nothing happens on a CPU.
    """
    import torch

    # torch keeps no such cache on a CPU
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the CPU to the device; Python does not wait for a GPU."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class CopyBack:
    """Copies tensors to the host on a stream of its own, while the device computes."""

    def __init__(self, device: torch.device) -> None:
        import torch

        # torch declares no type for this class
        new_stream: Any = torch.cuda.Stream
        # without a GPU of CUDA tensors are copied at once, and there is no stream
        self._stream = new_stream(device) if device.type == "cuda" else None

    def start(self, x: Tensor) -> Tensor:
        """Start to copy a tensor, and return its copy on the host.

        The content of the copy is complete only after ``wait``.
        """
        import torch

        if self._stream is None:
            return x.cpu()
        # the copy must begin after the computation of the tensor
        self._stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self._stream):
            host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            host.copy_(x, non_blocking=True)
        # the allocator must not reuse the memory before the copy is done
        x.record_stream(self._stream)
        return host

    def wait(self) -> None:
        """Wait until every copy is complete."""
        if self._stream is not None:
            self._stream.synchronize()


def to_numpy(states: Tensor) -> NDArray[Any]:
    """The tensor as a NumPy array of its type.

    NumPy has no bfloat16: such a tensor becomes the uint16 of its raw bits.
    """
    import torch

    if states.dtype == torch.bfloat16:
        return states.view(torch.uint16).numpy()
    return states.numpy()


def with_float64(device: torch.device) -> torch.device:
    """The device, or the CPU in place of mps, which has no float64."""
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def float64(tensor: Tensor) -> Tensor:
    """The tensor in float64, on a device that has it."""
    return tensor.to(with_float64(tensor.device)).double()


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a device or the machine has no memory left."""
    # the name of torch.OutOfMemoryError is enough: torch need not be imported
    return _NO_MEMORY.search(f"{type(error).__name__} {error}") is not None


def memory_message(error: BaseException) -> str:
    """The first line of an exception's text, cut after two sentences.

    An exception without a text is described by the name of its class.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    sentences = lines[0].split(". ")
    return ". ".join(sentences[:2])


def error_for_user(error: BaseException) -> GaamError | None:
    """The error that a person reads in place of an exception; None for a bug in gaam.

    A lack of memory may be hidden under other errors, because libraries wrap errors of
    the system. So every cause of the exception is looked at before the exception's
    own type decides.
    """
    # this error says more about the lack of memory than its cause does
    if isinstance(error, ShortOfMemoryError):
        return error
    cause: BaseException | None = error
    while cause is not None:
        # texts of our own errors may speak of memory, too
        if not isinstance(cause, GaamError) and out_of_memory(cause):
            return GaamError(
                "not enough memory",
                found=memory_message(cause),
                hint="extract with --set batch-tokens=512, "
                "or train with --set seed-batch=1",
            )
        cause = cause.__cause__ or cause.__context__

    if isinstance(error, GaamError):
        return error
    if isinstance(error, OSError):
        return StorageError(
            "the system refused",
            found=str(error),
            hint="look at the disk, its permissions and 'ulimit -n'; "
            "finished work is kept",
        )
    return None


def cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    # only Linux tells which cores a process may use
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None:
        return list(range(os.cpu_count() or 1))
    return sorted(affinity(0))


def set_workers_here(workers: int) -> None:
    """Set how many workers share the memory and the cores of this machine.

    ``workers_here`` returns this number, which is at least 1.
    """
    global _workers_here  # noqa: PLW0603 there is one number for the process
    _workers_here = max(1, workers)


def workers_here() -> int:
    """Number of workers on this machine; 1 until ``set_workers_here`` sets it."""
    return _workers_here
