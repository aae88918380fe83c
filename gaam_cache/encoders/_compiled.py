"""Compiled layers of an encoder: a GPU computes batches faster with them.

Between two matrix products, a layer adds, multiplies and normalises. Without a compiler
every such operation reads and writes all states in the memory of the GPU; compiled,
several of them become one.
"""

import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from gaam_cache.common.compiling import (
    compiler_errors,
    missing_compiler,
    reason_of_failure,
    reproducible_options,
)
from gaam_cache.common.errors import GaamWarning

HOOKS_OF_TRANSFORMERS = "transformers.utils.output_capturing"
"""Module of the hooks that collect hidden states, on which the compiler fails."""


def reason_not_to_compile(model: nn.Module, device: torch.device) -> str | None:
    """Why the layers of a model cannot be compiled; None if they can.

    Args:
        model: reads the rows.
        device: where the model is.
    """
    # accelerate does so with modules that it has placed on devices
    if any(not isinstance(module.forward, MethodType) for module in model.modules()):
        return "another library has replaced methods of its modules"
    return missing_compiler(device.type)


class CompiledLayers:
    """Replaces the methods of layers by compiled ones.

    If the compiler fails, the layers run plainly, with a warning. One program serves
    for all layers with the same operations, and for all batches of two or more rows.
    With a torch that can, the layers round as plain ones do: a number that those round
    to half precision between two operations is rounded here as well.
    """

    def __init__(self, layers: Iterable[nn.Module], device_type: str) -> None:
        self._works = True
        self._options = reproducible_options(device_type) | _rounding_options()
        self._copies: dict[Any, Callable[..., Any]] = {}
        for layer in layers:
            for module in layer.modules():
                _remove_hooks_of_transformers(module)
            layer.forward = self._compile(layer.forward)

    def _compile(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled method of a layer, or the plain one once a compiler failed."""
        compiled = torch.compile(
            self._copy_method(plain),
            fullgraph=True,
            dynamic=True,
            options=self._options,
        )

        @wraps(plain)
        def forward(*arguments: Any, **options: Any) -> Any:
            if self._works:
                try:
                    return compiled(*arguments, **options)
                except compiler_errors() as error:
                    # nothing has been computed yet: the plain method can run
                    self._works = False
                    reason = reason_of_failure(error)
                    text = f"the encoder's layers are not compiled, so slower: {reason}"
                    warnings.warn(text, GaamWarning, stacklevel=2)
            return plain(*arguments, **options)

        return forward

    def _copy_method(self, method: Any) -> MethodType:
        """The same method, of a copy of its function.

        Layers with one function share the copy. torch compiles few programs for each
        code object: with a copy, other encoders of this process do not use them up.
        """
        plain = method.__func__
        if plain not in self._copies:
            copy = FunctionType(
                plain.__code__.replace(),
                plain.__globals__,
                plain.__name__,
                plain.__defaults__,
                plain.__closure__,
            )
            copy.__kwdefaults__ = plain.__kwdefaults__
            self._copies[plain] = copy
        return MethodType(self._copies[plain], method.__self__)


def _rounding_options() -> dict[str, Any]:
    """Options of the compiler with which it rounds where plain layers round."""
    import torch._inductor.config as inductor

    # an older torch has no such option
    if hasattr(inductor, "emulate_precision_casts"):
        return {"emulate_precision_casts": True}
    return {}


def _remove_hooks_of_transformers(module: nn.Module) -> None:
    """Remove the hooks by which transformers collects hidden states.

    gaam uses hooks of its own, and never asks this model for its hidden states.
    """
    hooks = module._forward_hooks
    for key in list(hooks):
        if getattr(hooks[key], "__module__", None) == HOOKS_OF_TRANSFORMERS:
            del hooks[key]
