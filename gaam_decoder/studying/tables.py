"""Tables of a ``study.toml``, and what is said of those that are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.studying.place import not_of_machine


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
    """Refuse a key that nobody knows, with those that there are."""
    for key, value in found.items():
        if key not in known:
            kind = "table" if isinstance(value, (dict, list)) and not where else "setting"
            raise plugins.unknown(kind, key, sorted(known), where=f"{path} {where}".strip())


def by_field(
    options: Mapping[str, Any],
    path: Path,
    where: str,
    known: Iterable[str],
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Options by the names of fields, each known and once however it is spelled.

    Args:
        options: a table.
        path: of the recipe.
        where: in it.
        known: fields that it may have.
        names: fields that are not called like their option, by the name of the option.

    Raises:
        ConfigError: an option that there is not, that belongs to the machine or stands twice; as
            the recipe spells it.
    """
    spelled: dict[str, str] = {}
    for key in options:
        field = (names or {}).get(key, key.replace("-", "_"))
        if field in spelled:
            raise wrong(
                path, f"'{key}' in {where} twice", "one of them", f"{spelled[field]}, {key}"
            )
        spelled[field] = key
    not_of_machine(spelled, path, where)
    called = {field: name for name, field in (names or {}).items()}
    valid = sorted({called.get(field, field.replace("_", "-")) for field in known})
    for field, key in spelled.items():
        if field not in known:
            raise plugins.unknown("setting", key, valid, where=f"{path} {where}")
    return {field: options[key] for field, key in spelled.items()}


def chosen(value: Any, names: Iterable[str | None], kind: str, path: Path, where: str) -> str:
    """One of several names.

    Args:
        value: what the recipe says.
        names: those that there are; None is none.
        kind: what the name is of.
        path: of the recipe.
        where: in it.

    Raises:
        ConfigError: another, with the one that may be meant.
    """
    there = sorted(filter(None, names))
    if not isinstance(value, str):
        expected = f"one of: {', '.join(there)}"
        found = "nothing" if value is None else repr(value)
        raise wrong(path, f"'{kind}' of {where}", expected, found)
    if value not in there:
        raise plugins.unknown(kind, value, there, where=f"{path} {where}")
    return value


@contextmanager
def said_of(path: Path, what: str) -> Iterator[None]:
    """What a command would refuse is wrong with the recipe: of what in it, and all that is known.

    Raises:
        ConfigError: whatever was refused.
    """
    try:
        yield
    except ConfigError as error:
        said = error.details
        raise wrong(
            path,
            f"{what}: {error.message}",
            said.get("expected"),
            said.get("found"),
            said.get("to do"),
        ) from error


def wrong(
    path: Path, what: str, expected: str | None, found: Any, hint: str | None = None
) -> ConfigError:
    """What is wrong with a recipe."""
    shown = None if found is None else str(found)
    return ConfigError(what, expected=expected, found=shown, where=str(path), hint=hint)
