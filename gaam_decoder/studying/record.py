"""What is recorded of a study beside its recipe: read, and looked at before anything is compared.

Whoever opens ``results.json`` in an editor may slip: what cannot be compared is refused with the
place, before anything is trained.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.messages.checks import excerpt
from gaam_decoder.studying.checking import TOLERATED
from gaam_decoder.studying.recipe import Study

RESULTS = "results.json"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if value is None:  # of a row of which no seed finished
        return True
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and abs(value) <= sys.float_info.max


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_object_or_none(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


Fields = Mapping[str, tuple[str, Callable[[Any], bool]]]
TEXT, NUMBER = ("a text", _is_text), ("a number or null", _is_number)
OBJECT, OBJECTS = ("an object", _is_object), ("a list of objects", _are_objects)
PERHAPS = ("an object or null", _is_object_or_none)
NUMBERS: Fields = dict.fromkeys(TOLERATED, NUMBER)
WHOLE: Fields = {"reports": OBJECT, "machines": OBJECTS, "caches": OBJECT}
TABLE: Fields = {"cache": TEXT, "encoder": TEXT, "dataset": TEXT, "rows_of": OBJECT,
                 "rows": OBJECTS, **NUMBERS}  # fmt: skip
ROW: Fields = {"label": TEXT, "attention": TEXT, "head": TEXT, "accuracy": PERHAPS,
               "comparison": PERHAPS, **NUMBERS}  # fmt: skip
OF_ROW = ("accuracy", "comparison")
"""What a comparison computes with, and what it names things by."""


def recorded(study: Study) -> dict[str, Any]:
    """What is recorded of a study.

    Raises:
        NotFoundError: nothing.
        CacheError: it cannot be read, or holds what no study writes; says where.
    """
    path = study.folder / RESULTS
    if not path.is_file():
        raise NotFoundError(
            f"nothing is recorded of the study '{study.name}'",
            expected=RESULTS,
            where=str(study.folder),
            hint="gaam study FOLDER --record makes it",
        )
    try:
        text = path.read_text("utf-8")
        found: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1 : error.lineno]
        raise _unreadable(
            f"{error.msg} after column {error.colno - 1} of: {excerpt(''.join(line).strip())}",
            f"{path}, line {error.lineno}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error), str(path)) from error
    check_record(found, path)
    return found


def check_record(found: Any, path: Path) -> None:
    """Whether recorded results can be compared, in every row.

    Args:
        found: JSON values.
        path: of the file.

    Raises:
        CacheError: naming report, table, row and field.
    """
    if not isinstance(found, dict):
        raise _unreadable(excerpt(found), str(path))
    # what earlier versions recorded has neither machines nor caches
    _check(found, {name: of for name, of in WHOLE.items() if name in {*found, "reports"}}, [path])
    _check(found.get("caches", {}), dict.fromkeys(found.get("caches", {}), TEXT), [path, "caches"])
    _check(found["reports"], dict.fromkeys(found["reports"], OBJECTS), [path])
    for name, tables in found["reports"].items():
        for number, table in enumerate(tables, 1):
            place: list[object] = [path, f"report '{name}'", f"table {number}"]
            _check(table, TABLE, place)
            for count, row in enumerate(table["rows"], 1):
                where = [*place, f"row {count} ({excerpt(row.get('label'))})"]
                _check(row, ROW, where)
                for field in OF_ROW:
                    _check(row.get(field) or {}, NUMBERS, [*where, field])


def _check(values: Mapping[str, Any], fields: Fields, place: list[Any]) -> None:
    for name, (expected, fits) in fields.items():
        value = values.get(name)
        if not fits(value):
            raise CacheError(
                f"'{name}' of recorded results cannot be compared",
                expected=expected,
                found=excerpt(value) if name in values else "nothing of that name",
                where=", ".join(map(str, place)),
                hint=HINT,
            )


HINT = "mend it, take the file from where it came, or record it anew"


def _unreadable(found: str, where: str) -> CacheError:
    return CacheError(
        "results that cannot be read",
        expected=f"{RESULTS} as 'gaam study --record' writes it",
        found=found,
        where=where,
        hint=HINT,
    )
