"""Rows that a program hands over, one by one: texts, or paths of sounds or pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._bad_rows import BadRows
from gaam_cache.sources._kinds import rows_of_kind
from gaam_cache.sources._texts import Texts, check_encodable, is_blank
from gaam_cache.sources.media._in_order import in_order
from gaam_cache.sources.media._items import Place, blob_of
from gaam_cache.sources.media._look import Found, Looker, Named, media


def given_inputs(
    rows: Sequence[str], kind: str, config: ExtractConfig, *, origin: str, places: Sequence[str]
) -> Sequence[Any]:
    """Inputs as an encoder of the kind takes them, each checked as those of a data set are.

    Args:
        rows: texts, or paths: absolute, or from the folder that the process is in.
        kind: what they are.
        config: says how sounds are cut.
        origin: what to call where they are from, in messages.
        places: where each of them stands there.

    Raises:
        DataError: of all that cannot be used how many there are, and the first.
        ConfigError: rows of this kind cannot be handed over.
    """
    bad, inputs = BadRows(origin), []
    for place, found in zip(places, _found(rows, kind, config), strict=True):
        if isinstance(found, DataError):
            bad.add(place, found)
        else:
            inputs.append(found)
    bad.refuse(len(rows))
    return inputs


def _found(rows: Sequence[str], kind: str, config: ExtractConfig) -> Sequence[Any]:
    """Of every row the input, or why it cannot be used."""
    if kind == Texts.kind:
        return [_text(row) for row in rows]
    if kind not in media():
        raise ConfigError(
            f"rows of the kind '{kind}' cannot be handed over one by one",
            expected=f"one of: {', '.join([Texts.kind, *media()])}",
            found=kind,
            hint="extract them, and predict from the cache",
        )
    place = Place(Path.cwd())
    looker = Looker(place, config, anywhere=True)

    def look(row: str) -> Any:
        named = _named(row)
        found = named if isinstance(named, DataError) else looker.look(named)
        return found if isinstance(found, DataError) else _item(found, kind, place)

    return [found for _, found in in_order(look, rows)]


def _text(row: Any) -> str | DataError:
    if not isinstance(row, str):
        return _no_string(row, "a text")
    if is_blank(row):
        return DataError(
            "a text is empty",
            expected="words",
            found=f"nothing that can be seen: {excerpt(row)}",
            hint="leave such rows out",
        )
    try:
        check_encodable(row, "text")
    except DataError as error:
        return error
    return row


def _named(row: Any) -> Named | DataError:
    if not isinstance(row, str):
        return _no_string(row, "a path")
    if is_blank(row):
        return DataError(
            "no file is named", expected="a path", found=excerpt(row), hint="leave such rows out"
        )
    return Named(row)


def _item(found: Found, kind: str, place: Place) -> Any:
    there = found.medium.rows
    if there.kind != kind:
        return DataError(
            f"a file is a {there.noun}, which the encoder does not read",
            expected=f"a {rows_of_kind(kind).noun}, as those that were trained on",
            found=f"a {there.noun}: {excerpt(str(found.about.get('path', '')))}",
            hint=f"remove the row, or predict with a run on {there.noun}s",
        )
    if len(found.facts) != 1:
        return DataError(
            "a file is several rows, and each has a prediction of its own",
            expected="files that are not longer than a piece",
            found=f"{len(found.facts):,} pieces",
            where=str(found.about.get("path", "")),
            hint="cut it yourself, and hand over the pieces",
        )
    return found.medium.item(blob_of(found.about, place), found.facts[0])


def _no_string(row: Any, what: str) -> DataError:
    return DataError(
        f"{what} is no string",
        expected="a string",
        found=f"{excerpt(row)} ({type(row).__name__})",
    )
