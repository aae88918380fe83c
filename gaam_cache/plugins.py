"""What names on the command line stand for.

A module in a folder is a name: ``student_t.py`` <-> ``student-t``.

Listing reads the folder and imports nothing from it; only the chosen module is imported. A
plug-in module defines exactly one public class, and may say in ``ALIASES`` what else people call
it: such a name is not taken, but answered with the one that is.
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
from gaam_cache.messages.checks import LONGEST_WORD, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def names(package: str) -> list[str]:
    """Names of all plug-ins in ``package`` (dotted), sorted."""
    spec = importlib.util.find_spec(package)
    folders = (spec and spec.submodule_search_locations) or []
    stems = {file.stem for folder in folders for file in Path(folder).glob("[!_]*.py")}
    return sorted(stem.replace("_", "-") for stem in stems)


def load(package: str, name: str, *, kind: str, **details: str | None) -> Any:
    """The public class of the module that ``name`` stands for.

    Args:
        package: dotted name of the folder.
        name: as ``names`` lists it.
        kind: what people call what is in there.
        details: of the error, such as where the name was written.

    Raises:
        ConfigError: no module of that name; the message lists those there are.
    """
    valid = names(package)
    if name not in valid:
        raise unknown(kind, name, valid, aliases=_aliases(package, valid), **details)
    module = _module(package, name)
    classes = [
        value
        for key, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__name__} must define one public class, has {len(classes)}")
    return classes[0]


def _module(package: str, name: str) -> ModuleType:
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")


def _aliases(package: str, valid: list[str]) -> dict[str, str]:
    return {
        alias: name for name in valid for alias in getattr(_module(package, name), "ALIASES", ())
    }


def unknown(
    kind: str,
    word: str,
    valid: Iterable[str],
    *,
    aliases: Mapping[str, str] | None = None,
    **details: str | None,
) -> ConfigError:
    """The refusal of a name that there is not, with those there are and the one that was meant.

    Args:
        kind: what the name would be of, as people call it.
        word: what was written.
        valid: all names.
        aliases: other words -> the valid name that they stand for.
        details: of the error, such as where the word was written.
    """
    listed = list(valid)
    meant = nearest(word, listed, aliases)
    hint = details.pop("hint", None) or (f"did you mean '{meant}'?" if meant else None)
    expected = f"one of: {', '.join(listed)}" if listed else "none: there are none"
    return ConfigError(
        f"unknown {kind} '{shortened(word)}'", expected=expected, hint=hint, **details
    )


def nearest(
    word: str, valid: Iterable[str], aliases: Mapping[str, str] | None = None
) -> str | None:
    """The valid name that was probably meant: its spelling is close, or it has that alias."""
    import difflib

    known = {_plain(alias): name for alias, name in (aliases or {}).items()}
    known |= {_plain(name): name for name in valid}
    plain = _plain(word[:LONGEST_WORD])
    if plain in known:
        return known[plain]
    if one_slip := difflib.get_close_matches(plain, known, 1, 0.9):
        return known[one_slip[0]]
    shorter = [name for name in known if plain.startswith(f"{name}-")]  # 'focal-loss'
    longer = [name for name in known if plain and name.startswith(f"{plain}-")]  # 'student'
    if shorter or longer:
        return known[max(shorter, key=len) if shorter else min(longer, key=len)]
    # 'best' is not 'test': of a short word one letter is much
    found = difflib.get_close_matches(plain, known, 1, 0.8 if len(plain) < 5 else 0.6)
    return known[found[0]] if found else None


def _plain(word: str) -> str:
    return word.strip().casefold().replace("_", "-").replace(" ", "-")


def lazy_attributes(package: str, homes: dict[str, str]) -> None:
    """Let ``package`` offer names that are imported from their submodules on first use.

    Args:
        package: dotted name of a package that is being imported.
        homes: public name -> submodule that defines it.
    """
    module: Any = sys.modules[package]

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    module.__getattr__ = get
    module.__dir__ = lambda: sorted({*homes, *(name for name in vars(module) if name[0] == "_")})
