"""Tables of a ``study.toml``, and what is said of those that are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError


def table(found: Mapping[str, Any], name: str, path: Path, needed: bool = True) -> dict[str, Any]:
    """A table of the recipe, or what is wrong with it."""
    value = found.get(name, None if needed else {})
    if not isinstance(value, dict):
        raise wrong(path, f"'{name}'", "a table", "none" if value is None else repr(value))
    return value


def tables(found: Mapping[str, Any], name: str, path: Path) -> list[dict[str, Any]]:
    """An array of tables."""
    values = found.get(name, [])
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise wrong(path, f"'{name}'", f"tables, each [[{name}]]", repr(values))
    return values


def no_others(found: Mapping[str, Any], known: set[str], path: Path, where: str = "") -> None:
    """Refuse a key that nobody knows, with those that there are, all as options are spelled."""
    for key in found:
        if key not in known:
            there = sorted(name.replace("_", "-") for name in known)
            place = f"{path} {where}".strip()
            raise plugins.unknown("setting", key.replace("_", "-"), there, where=place)


def by_field(
    options: Mapping[str, Any], path: Path, where: str, names: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Options by the names of fields, each once however it is spelled.

    Args:
        options: a table.
        path: of the recipe.
        where: in it.
        names: fields that are not called like their option.
    """
    spelled: dict[str, str] = {}
    for key in options:
        field = (names or {}).get(key, key.replace("-", "_"))
        if field in spelled:
            raise wrong(
                path, f"'{field}' in {where} twice", "one of them", f"{spelled[field]}, {key}"
            )
        spelled[field] = key
    return {field: options[key] for field, key in spelled.items()}


def check_name(path: Path, what: str, names: set[str | None], found: Any) -> None:
    """Refuse a name that there is not, with those that there are."""
    if not isinstance(found, str) or found not in names:
        known = sorted(filter(None, names))
        meant = plugins.nearest(str(found), known)
        expected = f"one of: {', '.join(known)}" if known else "a table [caches.NAME]"
        hint = f"did you mean '{meant}'?" if meant else None
        raise wrong(path, what, expected, repr(found), hint)


def wrong(
    path: Path, what: str, expected: str | None, found: Any, hint: str | None = None
) -> ConfigError:
    """What is wrong with a recipe."""
    return ConfigError(what, expected=expected, found=str(found), where=str(path), hint=hint)


def wrong_option(path: Path, who: str, error: ConfigError) -> ConfigError:
    """What is wrong with an option, in the words of the command that takes it."""
    details = error.details
    return wrong(
        path, f"{who}: {error.message}", details.get("expected"), details.get("found", "this"),
        details.get("to do"),
    )  # fmt: skip
