"""What computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaam_cache.errors import ConfigError
from gaam_cache.messages.checks import check_device

if TYPE_CHECKING:
    import torch


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
