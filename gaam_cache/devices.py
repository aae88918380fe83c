"""What computes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import shortened

if TYPE_CHECKING:
    import torch


def check_device(name: str) -> None:
    """Refuse what names no device, whether or not there is one.

    Raises:
        ConfigError: naming those there can be.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        gpu = name.casefold().startswith(("gpu", "cuda"))
        raise ConfigError(
            "unknown --device",
            expected="auto, cpu, cuda or cuda:N",
            found=shortened(name),
            hint="did you mean 'cuda'?" if gpu else None,
        )


def resolve_device(name: str) -> torch.device:
    """The device that ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` names.

    Raises:
        ConfigError: no device has that name, or a GPU is asked for and there is none.
    """
    import torch

    check_device(name)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    if name.startswith("cuda") and int(name.partition(":")[2] or 0) >= count:
        numbers = f", cuda:0 to cuda:{count - 1}" if count else ""
        raise ConfigError(
            f"no device '{name}'",
            expected="a GPU that this build of torch can use",
            found=f"torch {torch.__version__}, {count or 'no'} GPU{'s' * (count > 1)}{numbers}",
            hint="--device cpu",
        )
    return torch.device(name)


_workers_here = 1


def share_machine(workers: int) -> None:
    """Say that so many workers of ours share the memory and the cores of this machine."""
    global _workers_here  # noqa: PLW0603 true of the process
    _workers_here = max(1, workers)


def workers_here() -> int:
    """Workers of ours on this machine, this one too: each takes its part of the memory."""
    return _workers_here
