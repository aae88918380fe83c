"""What computes: its name, what it can do, the memory that it has left, what it says without."""

from __future__ import annotations

import os
import platform
import re
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
    r"MemoryError|not enough memory|can(no|')t allocate memory|out of memory|unable to allocate"
    r"|bad_alloc|failed to map segment|OutOfMemory|could not create a primitive"
    r"|_ALLOC(ATION)?_FAILED|error return without exception set",
    re.IGNORECASE,
)
"""How torch, oneDNN, NumPy, HDF5, the dynamic loader, CPython, CUDA and its libraries say it."""
_workers_here = 1


def check_device(name: str) -> None:
    """Refuse what names no device, whether or not there is one."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,4})?", name, re.ASCII):
        raise ConfigError("unknown --device", expected=NAMES, found=shortened(name))


def resolve_device(name: str) -> torch.device:
    """The device that is named; ``auto``: a GPU that CUDA can use, else the CPU, never ``mps``.

    From here on float32 means float32 in this process, and a GPU gives the same bits twice.
    """
    import torch

    check_device(name)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    there = name == "cpu" or (name == "mps" and torch.backends.mps.is_available())
    if not there and (name == "mps" or int(name.partition(":")[2] or 0) >= count):
        raise ConfigError(
            f"no device '{name}'",
            expected="a GPU that this build of torch can use",
            found=f"torch {torch.__version__}, GPUs: {count}",
            hint="--device cpu",
        )
    # float32 keeps its 24 bits (cuDNN's TensorFloat-32 has 11), and cuDNN the order of sums
    torch.set_float32_matmul_precision("highest")
    backends: Any = torch.backends
    matmul, cudnn, mkldnn = backends.cuda.matmul, backends.cudnn, backends.mkldnn
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    if hasattr(
        cudnn, "conv"
    ):  # from torch 2.9; where both ways were used, the newer one decides
        for part in (matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv):
            part.fp32_precision = "ieee"
    cudnn.deterministic, cudnn.benchmark = True, False
    if (
        name == "cuda"
    ):  # with its number: each thread may have a current device of its own
        name = (
            f"cuda:{torch.cuda.current_device() if torch.cuda.is_initialized() else 0}"
        )
    return torch.device(name)


def check_arithmetic(dtype: str, device: torch.device) -> None:
    if device.type == "mps" and dtype not in ("float32", "auto"):
        expected = "--dtype float32, or another --device"
        raise ConfigError(f"--dtype {dtype} is not used on mps", expected=expected)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 natively; older GPUs emulate it, slowly."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16"))


def name_of(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cpu_name() -> str:
    """What the processor is called; as far as the system says so, else its architecture."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        if found := re.search(r"^model name.*?:(.*)", text, re.MULTILINE):
            return " ".join(visible(found[1]).split())
    return platform.processor() or platform.machine()


def free_on(device: torch.device) -> int:
    """Bytes of memory that a GPU has left for this process, with what torch keeps for tensors."""
    import torch

    if device.type == "mps":
        return max(
            0, torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
        )
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def memory_left(device: torch.device) -> int:
    """Bytes that are free on a GPU, or of the machine's memory for each of its workers."""
    return free_memory() // workers_here() if device.type == "cpu" else free_on(device)


def free_memory() -> int:
    """Bytes of memory that this process may still take: of the machine and of its cgroup (v2)."""
    try:
        lines = Path("/proc/meminfo").read_text()
        free = int(lines.partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        root = Path("/sys/fs/cgroup")
        own = root / Path("/proc/self/cgroup").read_text().rpartition("::/")[2].strip()
        folder = own if (own / "memory.max").exists() else root
        left = int((folder / "memory.max").read_text())
        left -= int((folder / "memory.current").read_text())
        stat = dict(
            x.split() for x in (folder / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):  # no cgroup, or "max"
        return max(0, free)
    # what files occupy of it is given back under pressure and counts as free
    return max(
        0, min(free, left + int(stat["file"]) + int(stat.get("slab_reclaimable", 0)))
    )


def give_back(device: torch.device) -> None:
    import torch

    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device; a copy to a GPU neither waits nor makes Python wait."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class CopyBack:
    """Brings tensors to the host on a stream of their own, so that the device need not wait."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, x: Tensor) -> Tensor:
        """The tensor on the host; its content is there after ``wait``."""
        import torch

        if self._stream is None:
            return x.cpu()
        self._stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self._stream):
            host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            host.copy_(x, non_blocking=True)
        x.record_stream(
            self._stream
        )  # its memory is not reused before the copy is done
        return host

    def wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def bits(states: Tensor) -> NDArray[Any]:
    """The tensor as NumPy sees it; bfloat16, which NumPy lacks, as its raw bits."""
    import torch

    if states.dtype == torch.bfloat16:
        return states.view(torch.uint16).numpy()
    return states.numpy()


def with_float64(device: torch.device) -> torch.device:
    """Where numbers of a device are computed with in float64: mps has none."""
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def float64(tensor: Tensor) -> Tensor:
    """The tensor in float64, where its device has that."""
    return tensor.to(with_float64(tensor.device)).double()


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out: of a device or of the machine."""
    # torch.OutOfMemoryError is found by its name: nothing is imported to look at an error
    return _NO_MEMORY.search(f"{type(error).__name__} {error}") is not None


def memory_message(error: BaseException) -> str:
    """The first sentence or two of an exception, on a line."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ". ".join(said.split(". ")[:2])


def as_refusal(error: BaseException) -> GaamError | None:
    """What a person is told of an exception: our own words, or what the machine refused.

    None where it is a bug of ours. Libraries wrap what the system said, and so may we.
    """
    cause = (
        None if isinstance(error, ShortOfMemoryError) else error
    )  # that says more than we can
    while cause is not None:
        if not isinstance(cause, GaamError) and out_of_memory(cause):
            hint = (
                "extract with --set batch-tokens=512, or train with --set seed-batch=1"
            )
            return GaamError(
                "not enough memory", found=memory_message(cause), hint=hint
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, OSError) and not isinstance(error, GaamError):
        hint = "look at the disk, its permissions and 'ulimit -n'; what is finished is kept"
        return StorageError("the system refused", found=str(error), hint=hint)
    return error if isinstance(error, GaamError) else None


def cores() -> list[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))


def share_machine(workers: int) -> None:
    """Say that so many workers of ours share the memory and the cores of this machine."""
    global _workers_here  # noqa: PLW0603 true of the process
    _workers_here = max(1, workers)


def workers_here() -> int:
    """Workers of ours on this machine, this one too: each takes its part of the memory."""
    return _workers_here
