"""A module in a folder is a name on the command line: ``student_t.py`` <-> ``student-t``.

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
from typing import Any

from gaam_cache.errors import ConfigError


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
