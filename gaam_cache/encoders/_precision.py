"""A model once more in higher precision: what rounding is told from a wrong mask by.

Where padding shifts a state and the same padding shifts nothing in higher precision, rounding did.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaam_cache.common.devices import memory_left, out_of_memory
from gaam_cache.encoders._forward import Forward
from gaam_cache.encoders._weights import waiting

HIGHER = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
ROOM = 1.25  # of the memory for the weights: what is computed needs some too


class Exact:
    """Pooled states of a forward in higher precision; it changes nothing of that forward.

    Raises:
        RuntimeError: the model cannot be copied so: too little memory, no such arithmetic on the
            device, or weights on several devices.
    """

    def __init__(self, forward: Forward) -> None:
        loaded = forward.loaded
        self.dtype = HIGHER[forward.dtype]
        devices = {parameter.device for parameter in loaded.parameters()}
        if any(True for _ in waiting(loaded)) or len(devices) > 1:
            raise RuntimeError("its weights lie on several devices")
        [device] = devices or {forward.device}
        if device.type == "mps" and self.dtype == torch.float64:
            raise RuntimeError("mps computes nothing in float64")
        numbers = sum(parameter.numel() for parameter in loaded.parameters())
        if ROOM * numbers * self.dtype.itemsize > memory_left(device):
            raise RuntimeError("too little memory")
        self._forward = copy.copy(forward)
        self._forward.take(promoted(loaded, self.dtype), self.dtype)

    @torch.inference_mode()
    def together(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """States of a batch, (B, L, D) for every pooling."""
        with _AtLeast(self.dtype):
            return self._forward(items)

    @torch.inference_mode()
    def alone(self, item: Any) -> dict[str, Tensor]:
        """States of a row by transformers' own hidden states, (1, L, D) for every pooling."""
        with _AtLeast(self.dtype):
            return self._forward.reference(item)


def exact_or_none(forward: Forward) -> Exact | None:
    """The forward in higher precision; None where that cannot be had here."""
    try:
        return Exact(forward)
    except Exception as error:
        if isinstance(error, RuntimeError | NotImplementedError) or out_of_memory(
            error
        ):
            return None
        raise


def promoted(model: nn.Module, dtype: torch.dtype) -> Any:
    """A copy whose weights and buffers are of ``dtype`` where they are floating-point numbers."""
    higher: dict[int, Any] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            tensor = parameter.detach().to(dtype, copy=True)
            higher[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            higher[id(buffer)] = buffer.detach().to(dtype, copy=True)
    return copy.deepcopy(model, higher)


class _AtLeast(TorchDispatchMode):
    """While open, operations that ask for fewer digits by name get those of ``dtype``.

    Norms and softmaxes of many models are computed in float32, whatever the type of the model.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        lower = (torch.float16, torch.bfloat16, torch.float32)
        self._lower = frozenset(one for one in lower if one.itemsize < dtype.itemsize)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {name: self._raised(value) for name, value in (kwargs or {}).items()}
        return func(*map(self._raised, args), **given)

    def _raised(self, value: Any) -> Any:
        return (
            self._dtype
            if isinstance(value, torch.dtype) and value in self._lower
            else value
        )
