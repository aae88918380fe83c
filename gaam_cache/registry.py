"""What names on the command line stand for.

A module in a folder is a name: ``student_t.py`` <-> ``student-t``.

Listing reads the folder and imports nothing from it; only the chosen module is imported. A
plug-in module defines exactly one public class.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gaam_cache.errors import ConfigError

if TYPE_CHECKING:
    import torch


def names(package: str) -> list[str]:
    """Names of all plug-ins in ``package`` (dotted), sorted."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    stems = {file.stem for folder in folders for file in Path(folder).glob("[!_]*.py")}
    return sorted(stem.replace("_", "-") for stem in stems)


def load(package: str, name: str, *, kind: str) -> Any:
    """The public class of the module that ``name`` stands for.

    Raises:
        ConfigError: no module of that name; the message lists those there are.
    """
    valid = names(package)
    if name not in valid:
        raise ConfigError(
            f"unknown {kind} '{name}'", expected=f"one of: {', '.join(valid)}", found=f"'{name}'"
        )
    module = importlib.import_module(f"{package}.{name.replace('-', '_')}")
    classes = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__name__} must define one public class, has {len(classes)}")
    return classes[0]


def resolve_device(name: str) -> torch.device:
    """The device that ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` names.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"no device '{name}'",
            expected="a GPU that this build of torch can use",
            found=f"torch {torch.__version__}, no GPU",
            hint="--device cpu",
        )
    return torch.device(name)


def lazy_attributes(package: str, homes: dict[str, str]) -> None:
    """Let ``package`` offer names that are imported from their submodules on first use.

    A property, unlike a module-level ``__getattr__``, also wins where a function is called like the
    submodule that holds it (``gaam_cache.extract``), whichever was imported first.

    Args:
        package: dotted name of a package that is being imported.
        homes: public name -> submodule that defines it.
    """

    def attribute(name: str, home: str) -> property:
        def get(_: ModuleType) -> Any:
            return getattr(importlib.import_module(f"{package}.{home}"), name)

        def ignore(_: ModuleType, value: Any) -> None:
            """The import system sets a package's attribute to the submodule; it need not."""

        return property(get, ignore)

    module = sys.modules[package]
    properties = {name: attribute(name, home) for name, home in homes.items()}
    module.__class__ = type("LazyPackage", (ModuleType,), properties)
