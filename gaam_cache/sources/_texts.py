"""Rows of text: what a text is made of, and when two are the same."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Packed, Rows
from gaam_cache.sources._spool import PackedTexts, spooled


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts(Rows):
    """Rows whose inputs are texts; never blank, always encodable as UTF-8."""

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "text"
    inputs: Sequence[str]

    def contents(self) -> Iterator[bytes]:
        """UTF-8."""
        return (text.encode() for text in self.inputs)

    def essences(self) -> Iterator[bytes]:
        """The words: texts that differ only in white space, case or form (NFKC) are copies."""
        return (_folded(text).encode() for text in self.inputs)

    def exactly(self, row: int) -> str:
        """The words as they are written: case may tell classes apart."""
        return " ".join(self.inputs[row].split())

    def excerpt(self, row: int) -> str:
        """The beginning of a text."""
        return excerpt(self.inputs[row])

    def chosen_inputs(self, mask: Sequence[bool]) -> Sequence[str]:
        """On disk too."""
        return spooled(compress(self.inputs, mask))

    def packed_inputs(self) -> Packed | None:
        """As they are, where they lie in a file."""
        return Packed(self.inputs, {}) if isinstance(self.inputs, PackedTexts) else None

    @classmethod
    def unpacked_inputs(cls, packed: Packed) -> Sequence[str]:
        """As they are."""
        return packed.texts


def text_of(record: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    """The text of a record: its columns joined by one space; None where nothing is in them.

    They are kept as they stand, white space included; those that are null or blank are left out.

    Raises:
        DataError: no string, or a lone surrogate.
    """
    parts = []
    for column in columns:
        part = record[column]
        if part is not None and not isinstance(part, str):
            # a number could be written in several ways: which one is not ours to choose
            raise DataError(
                "a text is no string",
                expected=f"a string in column '{column}'",
                found=f"{excerpt(part)} ({type(part).__name__})",
                hint="write it as a string, or name another column with --text-column",
            )
        if part is not None and not is_blank(part):
            parts.append(part)
    if not parts:
        return None
    text = parts[0] if len(parts) == 1 else " ".join(parts)
    check_encodable(text, "text")
    return text


def empty_text(record: Mapping[str, Any], columns: Sequence[str]) -> DataError:
    """The refusal of a row that has no text."""
    return DataError(
        "a text is empty",
        expected=f"words in {' + '.join(columns)}",
        found="nothing that can be seen: "
        + ", ".join(excerpt(record[column]) for column in columns),
        hint="remove such rows, leave them out (--set skip-empty=true) or name others with "
        "--text-column",
    )


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: white space, control and zero-width characters."""
    if text[:1].isalnum():  # nearly every text: a letter or a digit is seen
        return False
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def check_encodable(text: str, what: str) -> None:
    """Refuse half a character: it can neither be hashed nor tokenised."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"a {what} holds half a character",
            expected="text that can be written as UTF-8",
            found=f"the lone surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start + 1}",
            hint="a character was cut in two when the file was written: mend or remove the row",
        ) from error


def _folded(text: str) -> str:
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())
