"""A model in higher precision, which tells rounding from a wrong mask.

Padding shifts a state. Where the same padding shifts nothing in higher precision, the
shift was rounding.
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
ROOM = 1.25  # memory for weights and activations, as a multiple of that for the weights


class Exact:
    """Pooled states of a forward in higher precision, computed by a copy of it.

    Raises:
        RuntimeError: the model cannot be copied so. The memory is too small, the device
            has no such arithmetic, or the weights lie on several devices.
    """

    def __init__(self, forward: Forward) -> None:
        self.dtype = HIGHER[forward.dtype]
        self._check_copyable(forward)
        self._forward = copy.copy(forward)
        self._forward.use_model(promoted(forward.loaded, self.dtype), self.dtype)

    def _check_copyable(self, forward: Forward) -> None:
        model: nn.Module = forward.loaded
        devices = {parameter.device for parameter in model.parameters()}
        has_offloaded_weights = next(waiting(model), None) is not None
        if has_offloaded_weights or len(devices) > 1:
            raise RuntimeError("its weights lie on several devices")

        # A model without parameters computes where its inputs are.
        [device] = devices or {forward.device}
        if device.type == "mps" and self.dtype == torch.float64:
            raise RuntimeError("mps computes nothing in float64")

        # Without this check, an allocation on the CPU could end the process.
        count = sum(parameter.numel() for parameter in model.parameters())
        if ROOM * count * self.dtype.itemsize > memory_left(device):
            raise RuntimeError("too little memory")

    @torch.inference_mode()
    def together(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """States of a batch, (B, L, D) for every pooling."""
        # Models compute some operations in float32 by name: the copy raises them too.
        with _AtLeast(self.dtype):
            return self._forward(items)

    @torch.inference_mode()
    def alone(self, item: Any) -> dict[str, Tensor]:
        """A row's own hidden states of transformers, (1, L, D) for every pooling."""
        with _AtLeast(self.dtype):
            return self._forward.reference(item)


def exact_or_none(forward: Forward) -> Exact | None:
    """Copy the forward in higher precision; None where this machine cannot."""
    try:
        return Exact(forward)
    except Exception as error:
        is_expected = isinstance(error, RuntimeError | NotImplementedError)
        if is_expected or out_of_memory(error):
            return None
        raise


def promoted(model: nn.Module, dtype: torch.dtype) -> Any:
    """Copy a model with all its floating-point weights and buffers in ``dtype``."""
    copies: dict[int, Any] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            tensor = parameter.detach().to(dtype, copy=True)
            copies[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            copies[id(buffer)] = buffer.detach().to(dtype, copy=True)

    # deepcopy takes what is in this table for copies that it has made before.
    return copy.deepcopy(model, copies)


class _AtLeast(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While open, an operation that asks for fewer digits gets those of ``dtype``.

    Many models compute norms and softmaxes in float32, whatever the type of the model.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype
        types = (torch.float16, torch.bfloat16, torch.float32)
        self._lower = frozenset(
            lower for lower in types if lower.itemsize < dtype.itemsize
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Such a dtype is an argument like any other, as in ``x.to(torch.float32)``.
        promoted_args = [self._promote(value) for value in args]
        promoted_kwargs = {
            name: self._promote(value) for name, value in (kwargs or {}).items()
        }
        return func(*promoted_args, **promoted_kwargs)

    def _promote(self, value: Any) -> Any:
        if isinstance(value, torch.dtype) and value in self._lower:
            return self._dtype
        return value
