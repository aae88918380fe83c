"""Names that a package offers before it has imported what they are."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def lazy_attributes(package: str, homes: dict[str, str]) -> None:
    """Let ``package`` offer names that are imported from their submodules on first use.

    Args:
        package: dotted name of a package that is being imported.
        homes: public name -> submodule that defines it; a submodule of that name is itself meant.
    """
    module: Any = sys.modules[package]

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = importlib.import_module(f"{package}.{homes[name]}")
        return found if homes[name] == name else getattr(found, name)

    module.__getattr__ = get
    module.__dir__ = lambda: sorted({*homes, *(name for name in vars(module) if name[0] == "_")})
