"""Tables with named columns; and how their records become rows: each is checked."""

import math
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.config import CLIP_OF, ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import NO_LABEL, Record, Rows, Texts
from gaam_cache.sources.media._base import Files
from gaam_cache.store.plan import MAX_VALUE_BYTES
from gaam_cache.terminal import Report, counting, silent

SHOWN = 3  # rows that cannot be used and are named
FILE_COLUMNS = ("file", "audio", "image", "img")
"""What a column of sounds or pictures is called where nobody says so; the first that is there."""


class Columns(NamedTuple):
    """The columns of a table that are read, by what they are read for."""

    inputs: tuple[str, ...]  # those that make an input together
    label: str | None  # that of the class; None where nobody knows it
    kept: tuple[str, ...] = ()
    of_files: bool = False  # the input is a sound or picture, of one column; else it is a text

    @property
    def all(self) -> list[str]:
        label = () if self.label is None else (self.label,)
        return list(dict.fromkeys((*self.inputs, *label, *self.kept)))


class Table(NamedTuple):
    """What is known of a table before its rows are read."""

    names: list[str]  # of all columns
    records: Callable[[Columns], Iterator[Record]]  # reads it, once; at least those columns
    stored: tuple[str, ...] = ()  # columns that hold sounds or pictures themselves
    class_names: tuple[str, ...] | None = None  # in order, if declared: whole numbers index them


def choose(table: Table, config: ExtractConfig, label: str | None, origin: str) -> Columns:
    """The columns of a table that make rows; no ``label``: nobody asks for the classes."""
    file = config.file_column
    if file is None and not config.text_columns and "text" not in table.names:
        usual = [name for name in FILE_COLUMNS if name in (table.stored or table.names)]
        file = next(iter(usual or table.stored[:1]), None)
    inputs = (config.text_columns or ("text",)) if file is None else (file,)
    columns = Columns(inputs, label, config.keep_columns, file is not None)
    if label in inputs:
        what = f"'{label}' is label and input: every decoder would be right"
        raise ConfigError(what, expected="another --label-column or --text-column", where=origin)
    if missing := [column for column in columns.all if column not in table.names]:
        hint = "--text-column, --file-column (of sounds or pictures) and --label-column name "
        hint += "columns; --set unlabelled=SPLIT is for a split without labels"
        if len(table.names) == 1:
            hint = "fields are not parted by commas: --set delimiter=semicolon (or tab, pipe)"
        plain = [name.isprintable() and name == name.strip() for name in table.names]
        shown = [one if ok else excerpt(one) for one, ok in zip(table.names, plain, strict=True)]
        raise ConfigError(
            f"no column '{missing[0]}'",
            expected=f"one of: {', '.join(shown)}",
            where=origin,
            hint=hint,
        )
    return columns


def collect(
    table: Table,
    columns: Columns,
    config: ExtractConfig,
    *,
    origin: str,
    folder: Path = Path(),
    report: Report = silent,
) -> Rows:
    """Records become rows; paths of files are relative to ``folder``, labels as they stand."""
    # where splits are made of the rows, the limit is theirs
    most = (None if config.test_fraction is not None else config.limit) or sys.maxsize
    names, strip = table.class_names, config.strip_labels
    if names is not None and strip:
        names = tuple(name.strip() for name in names)
    bad, unusable, skipped, total = list[tuple[str, DataError]](), 0, 0, 0
    inputs, labels, units, clips = list[Any](), list[str](), list[int](), list[str]()
    kept: dict[str, list[str]] = {name: [] for name in columns.kept}
    files = Files(folder, config) if columns.of_files else None
    found: Any = table.records(columns)
    if files:
        found = files.read(found, columns.inputs[0])
    every = 32 if files else 1024  # a file is decoded, which takes some milliseconds
    for place, record, *read in counting(found, report, f"reading {origin}", every=every):
        total += 1
        try:
            text = None if files else text_of(record, columns.inputs)
            made: Any = read[0]() if files else [text] if text else []
            if not made and config.skip_empty:
                total -= 1
                skipped += 1
                continue
            if not made:
                raise DataError(
                    "no file is named" if files else "a text is empty",
                    expected=f"something in {' + '.join(columns.inputs)}",
                    found=", ".join(excerpt(record[column]) for column in columns.inputs),
                    hint="remove such rows; gaam extract has --set skip-empty=true",
                )
            label = NO_LABEL
            if columns.label is not None:
                label = _class_of(record[columns.label], names, strip=strip)
            values = [_kept(record[name], name) for name in kept]
            "".join([label, *values, *([] if files else made)]).encode()
        except (DataError, UnicodeEncodeError) as error:
            unusable += 1
            if not isinstance(error, DataError):  # it can neither be hashed nor tokenised
                error = DataError("a row holds half a character", found=str(error))
            if len(bad) < SHOWN:
                bad.append((place, error))
            continue
        for one in made[: most - len(labels)]:
            inputs.append(one)
            labels.append(label)
            for of, value in zip(kept.values(), values, strict=True):
                of.append(value)
            if files:
                units.append(total)
                clips.append(one.name)
        if max(total, len(labels)) >= most:
            break
    if bad:
        place, first = bad[0]
        first.details["where"] = f"{origin}, {place}"
        if unusable > 1:
            lines = [f"{at}: {one.reason}" for at, one in bad]
            lines += [f"and {unusable - SHOWN:,} more"] * (unusable > SHOWN)
            first.message = f"{unusable:,} of {total:,} rows cannot be used: {first.message}"
            first.details["found"] = "\n".join(lines)
        raise first
    if not labels:
        left = f"{skipped:,} of which nothing is to be encoded" if skipped else "none"
        raise DataError("no rows", expected="at least one row", found=left, where=origin)
    if files and config.clip_mode == "split":
        kept[CLIP_OF] = clips
    return (files.kind if files else Texts)(
        inputs=inputs,
        labels=labels,
        class_names=names,
        origin=origin,
        kept=kept,
        skipped=skipped,
        labelled=columns.label is not None,
        units=units,
    )


def given_rows(
    rows: Sequence[str], kind: str, config: ExtractConfig, *, origin: str, places: Sequence[str]
) -> Rows:
    """Texts, or paths of files, that a program hands over, checked as those of a data set are."""
    records = zip(places, ({"row": row} for row in rows), strict=True)
    table = Table(["row"], lambda columns: iter(records))
    columns = Columns(("row",), None, of_files=kind != Texts.kind)
    settings = {"limit": None, "test_fraction": None, "skip_empty": False, "allow_outside": True}
    every = replace(config, **settings)  # type: ignore[arg-type]
    found = collect(table, columns, every, origin=origin, folder=Path.cwd())
    if found.kind != kind or len(found) != len(rows):
        what = "a file is not one row as those that were trained on"
        count = f"{len(found):,} of {found.kind} in {len(rows):,} files"
        raise DataError(what, expected=f"one row of {kind} each", found=count, where=origin)
    return found


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space; None where nothing is in them.

    They are kept as they stand, white space included; those that are null or blank are left out.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is not None and not isinstance(part, str):
            # a number could be written in several ways: which one is not ours to choose
            what = f"a text in column '{column}' is no string"
            raise _unusable(what, part, "a string", "--text-column")
        if part is not None and not is_blank(part):
            parts.append(part)
    return " ".join(parts) or None


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: white space, control and zero-width characters."""
    if text[:1].isalnum():  # nearly every text
        return False
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def _class_of(value: Any, names: tuple[str, ...] | None, *, strip: bool) -> str:
    """The class that a cell names; one object for each class.

    Strings stay as they are written. Whole numbers are their decimal digits (of fractions without
    a rest too: 3.0 is '3'), or index the declared classes; truth values are 'true' and 'false'.
    """
    number = isinstance(value, int | float) and math.isfinite(value)
    if isinstance(value, bool):
        return sys.intern(str(value).lower())
    if isinstance(value, str) and not is_blank(value):
        return sys.intern(value.strip() if strip else value)
    if number and value != int(value):
        return sys.intern(repr(value))
    if number and (names is None or 0 <= value < len(names)):
        return sys.intern(names[int(value)] if names else str(int(value)))
    expected = "a class name or a number" + (f" below {len(names)}" if names else "")
    raise _unusable("a label is missing or unusable", value, expected, "--label-column")


def _kept(value: Any, column: str) -> str:
    """What a kept column has of a row: a string, or the decimal text of a whole number."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else "\0"
    if "\0" in text or len(text.encode(errors="replace")) > MAX_VALUE_BYTES:
        expected = f"a string of at most {MAX_VALUE_BYTES:,} bytes, or a whole number"
        raise _unusable(f"the column '{column}' cannot be kept", value, expected, "--keep-column")
    return text


def _unusable(message: str, value: Any, expected: str, option: str) -> DataError:
    found, hint = f"{excerpt(value)} ({type(value).__name__})", "mend the row, or name another"
    return DataError(message, expected=expected, found=found, hint=f"{hint} column with {option}")
