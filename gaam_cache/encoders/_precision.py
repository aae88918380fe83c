"""Runs a copy of a model in higher precision, to tell rounding from a wrong mask.

Padding shifts the states of a row a little. If the same padding shifts nothing in
higher precision, rounding caused the shift.

Shape suffixes: B rows of a batch, L layers, D hidden size.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gaam_cache.common.devices import memory_left, out_of_memory
from gaam_cache.encoders._forward import Forward
from gaam_cache.encoders._weights import offloaded_weights

HIGHER_DTYPES = {
    torch.float32: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
"""Arithmetic of a model -> the higher precision of its copy."""
MEMORY_FACTOR = 1.25
"""Memory for weights and activations, as a multiple of the memory for the weights."""


class HigherPrecisionModel:
    """A copy of a ``Forward`` that computes pooled states in higher precision.

    Raises:
        RuntimeError: no such copy is possible. The memory is too small, the device
            has no such arithmetic, or the weights lie on several devices.
    """

    def __init__(self, forward: Forward) -> None:
        self.dtype = HIGHER_DTYPES[forward.dtype]
        self._check_can_copy(forward)
        self._forward = copy.copy(forward)
        self._forward.use_model(
            copy_in_dtype(forward.loaded_model, self.dtype), self.dtype
        )

    def _check_can_copy(self, forward: Forward) -> None:
        """Raise a ``RuntimeError`` if the model cannot be copied."""
        model: nn.Module = forward.loaded_model
        devices = {parameter.device for parameter in model.parameters()}
        has_offloaded_weights = next(offloaded_weights(model), None) is not None
        if has_offloaded_weights or len(devices) > 1:
            raise RuntimeError("its weights lie on several devices")

        # At most one device is left. A model without parameters computes where its
        # inputs are.
        [device] = devices or {forward.device}
        if device.type == "mps" and self.dtype == torch.float64:
            raise RuntimeError("mps computes nothing in float64")

        # On a CPU, the system could kill the process if the copy took too much memory.
        num_weights = sum(parameter.numel() for parameter in model.parameters())
        if MEMORY_FACTOR * num_weights * self.dtype.itemsize > memory_left(device):
            raise RuntimeError("too little memory")

    @torch.inference_mode()
    def states_in_batch(self, items: Sequence[object]) -> dict[str, Tensor]:
        """Pooled states of a batch of rows: (B, L, D) for every pooling."""
        # Models ask for float32 in some operations: the copy computes these higher too.
        with _AtLeastPrecision(self.dtype):
            return self._forward(items)

    @torch.inference_mode()
    def states_alone(self, item: object) -> dict[str, Tensor]:
        """Pooled states of a row alone: (1, L, D) for every pooling."""
        with _AtLeastPrecision(self.dtype):
            return self._forward.reference_states(item)


def higher_precision_or_none(forward: Forward) -> HigherPrecisionModel | None:
    """Copy a forward in higher precision.

    Returns:
        None if this machine cannot hold or run such a copy. Callers then do without it.
    """
    try:
        return HigherPrecisionModel(forward)
    except Exception as error:
        # torch raises these two where a device has no such arithmetic.
        is_expected = isinstance(error, RuntimeError | NotImplementedError)
        if is_expected or out_of_memory(error):
            return None
        raise


def copy_in_dtype(model: nn.Module, dtype: torch.dtype) -> Any:
    """Copy a model with all its floating-point weights and buffers in ``dtype``.

    Other tensors, such as those of integers, keep their type. Each tensor is copied
    straight into its new type, so that memory holds one copy and not two.
    """
    copies: dict[int, object] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            tensor = parameter.detach().to(dtype, copy=True)
            copies[id(parameter)] = nn.Parameter(tensor, requires_grad=False)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            copies[id(buffer)] = buffer.detach().to(dtype, copy=True)

    # deepcopy takes what is in this table for copies that it has made before.
    return copy.deepcopy(model, copies)


class _AtLeastPrecision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While open, operations that ask for a lower precision compute in ``dtype``.

    Many models compute norms and softmaxes in float32, whatever the type of the model.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype
        types = (torch.float16, torch.bfloat16, torch.float32)
        self._lower_dtypes = frozenset(
            lower for lower in types if lower.itemsize < dtype.itemsize
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operation of torch, which calls this method for each of them.

        The names of the arguments are torch's: the operation ``func`` is called with
        ``args`` and ``kwargs``.
        """
        # An operation takes its dtype as an argument, as in ``x.to(torch.float32)``.
        promoted_args = [self._promote(value) for value in args]
        promoted_kwargs = {
            name: self._promote(value) for name, value in (kwargs or {}).items()
        }
        return func(*promoted_args, **promoted_kwargs)

    def _promote(self, value: Any) -> Any:
        """The higher type in the place of a lower one; any other value as it is."""
        if isinstance(value, torch.dtype) and value in self._lower_dtypes:
            return self._dtype
        return value
