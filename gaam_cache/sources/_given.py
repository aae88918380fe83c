"""Rows that a program hands over, one by one: texts, or paths of sounds or pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Texts, rows_of_kind
from gaam_cache.sources._collect import BadRows, check_encodable, is_blank
from gaam_cache.sources.media._base import Looker


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
    """
    bad, inputs = BadRows(origin), []
    noun = rows_of_kind(kind).noun
    looker = None if kind == Texts.kind else Looker(Path.cwd(), config, anywhere=True)

    def found() -> Iterator[Any]:
        named: list[Any] = []
        for row in rows:
            if not isinstance(row, str) or is_blank(row):
                named.append(
                    DataError("a row is empty or no string", expected=f"a {noun}", found=repr(row))
                )
            else:
                named.append({"file": row})
        if looker is None:
            for row, one in zip(rows, named, strict=True):
                yield one if isinstance(one, DataError) else row
            return
        for _, record, items in looker.look(zip(places, named, strict=True), ["file"]):
            if isinstance(record, DataError) or isinstance(items, DataError):
                yield record if isinstance(record, DataError) else items
            elif looker.rows.kind != kind or len(items) != 1:
                yield DataError(
                    "a file is not one row as those that were trained on",
                    expected=f"one {noun}",
                    found=f"{len(items)} of the kind {looker.rows.kind}",
                )
            else:
                yield items[0]

    for place, one in zip(places, found(), strict=True):
        try:
            if isinstance(one, DataError):
                raise one
            if isinstance(one, str):
                check_encodable(one, "text")
            inputs.append(one)
        except DataError as error:
            bad.add(place, error)
    bad.refuse(len(rows))
    return inputs
