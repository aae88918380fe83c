"""Attention over encoder layers; a file in this folder is a mechanism.

What a mechanism is made of is offered here to those that live in other packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaam_decoder.attention._base import Attention
    from gaam_decoder.attention._density import DensityGate, Learned
    from gaam_decoder.attention._pooling import LayerPooling

__all__ = ["Attention", "DensityGate", "LayerPooling", "Learned"]

_HOMES = {
    "Attention": "_base",
    "DensityGate": "_density",
    "LayerPooling": "_pooling",
    "Learned": "_density",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return getattr(module, name, module)  # a submodule of that name is itself meant


def __dir__() -> list[str]:
    return sorted(_HOMES)
