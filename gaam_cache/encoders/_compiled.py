"""Compiled layers of an encoder: a GPU computes batches faster with them.

Between two matrix products, a layer adds, multiplies and normalises. Without a compiler
every such operation reads and writes all states in the memory of the GPU; compiled,
several of them become one.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from gaam_cache.common.compiling import (
    compiler_errors,
    copy_function,
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


class LayerCompiler:
    """Replaces the methods of layers by compiled ones.

    If the compiler fails, all layers run plainly, with a warning. One program serves
    for all layers with the same operations, and for all batches of two or more rows.
    With a torch that can, the layers round as plain ones do: a number that those round
    to half precision between two operations is rounded here as well.
    """

    def __init__(self, device_type: str) -> None:
        self._works = True
        self._options = reproducible_options(device_type) | _rounding_options()
        self._copies: dict[Any, FunctionType] = {}
        """Function -> its copy, which all layers of a class share."""

    def compile(self, layer: nn.Module) -> None:
        """From now on, run the layer compiled."""
        for module in layer.modules():
            _remove_hooks_of_transformers(module)
        layer.forward = self._compiled_or_plain(layer.forward)

    def _compiled_or_plain(self, plain: Any) -> Callable[..., Any]:
        """A method's compiled form, or the plain method once the compiler failed."""
        function = plain.__func__
        if function not in self._copies:
            self._copies[function] = copy_function(function)
        compiled = torch.compile(
            MethodType(self._copies[function], plain.__self__),
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
