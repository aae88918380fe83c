"""Rows of a data set, and how a ``--dataset`` finds the source that reads it."""

from __future__ import annotations

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.messages import excerpt
from gaam_cache.terminal import Report, silent

Record = tuple[str, Mapping[str, Any]]
"""Where a record of a table stands ('line 7') and its values by column."""
NO_LABEL = ""  # of a row whose class nobody knows; no class can be called so
SOURCES, MEDIA = "gaam_cache.sources", "gaam_cache.sources.media"
FEWEST_ROWS = 10  # of which some can be held out for testing


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows(ABC):
    """The rows of one split, in data-set order."""

    kind: ClassVar[str]
    """What the inputs are, which is the name of the kind of encoder that reads them."""
    noun: ClassVar[str] = "row"
    """What people call one of them."""
    inputs: Sequence[Any]  # one per row, as it stands in the data
    labels: Sequence[str]  # the class name of every row
    class_names: tuple[str, ...] | None
    """All classes in order where the source declares them, else None."""
    origin: str  # where the rows came from, for messages and provenance
    revision: str | None = None  # commit on the hub, where they came from there
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the cache keeps: one string per row."""
    skipped: Sequence[str] = ()  # where rows stood that ``skip_empty`` left out
    labelled: bool = True  # else nobody knows the labels, and all of them are ``NO_LABEL``
    units: Sequence[int] = ()
    """Which sound of the data every row is a piece of, where pieces are rows."""

    def __len__(self) -> int:
        return len(self.inputs)

    @abstractmethod
    def contents(self) -> Iterator[bytes]:
        """All of every input, which the fingerprint of a cache covers."""

    def essences(self) -> Iterator[bytes]:
        """What of every input makes a difference: of two with the same, one is a copy."""
        return self.contents()

    @abstractmethod
    def excerpt(self, row: int) -> str:
        """An input on one line, for messages."""

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """What makes samples or pixels of bytes, and in which version: it decides them."""
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts(Rows):
    """Rows whose inputs are texts; never blank, always encodable as UTF-8."""

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "text"

    def contents(self) -> Iterator[bytes]:
        """UTF-8."""
        return (text.encode() for text in self.inputs)

    def essences(self) -> Iterator[bytes]:
        """The words: texts that differ only in white space, case or form (NFKC) are copies."""
        for text in self.inputs:
            plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
            yield " ".join(plain.casefold().split()).encode()

    def excerpt(self, row: int) -> str:
        """The beginning of a text."""
        return excerpt(self.inputs[row])


class Source(ABC):
    """Reads rows. ``dataset`` is what the user wrote after ``--dataset``."""

    priority: ClassVar[int]  # sources are asked in ascending order whether a data set is theirs
    has_revisions: ClassVar[bool] = False
    """Whether what it reads is kept under revisions, of which one may be named."""
    _parts: dict[str, Rows] | None = None

    @classmethod
    @abstractmethod
    def claims(cls, dataset: str) -> bool:
        """Whether this source is the one to read ``dataset``."""

    @classmethod
    def settled(cls, config: ExtractConfig) -> ExtractConfig:
        """The config, with what the data set itself decides where nobody said."""
        return config

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """All rows of one split; ``report`` is told how many there are so far.

        With a ``test_fraction`` there is one split, of which 'train' and 'test' are made; it is
        read once, so that both are of the same content.

        Raises:
            NotFoundError: no such file, data set or split.
            ConfigError: no such column.
            DataError: a row cannot be used; says which.
        """
        if not self.has_revisions and config.dataset_revision is not None:
            raise hub_only("dataset-revision", config.dataset_revision, config.dataset)
        if config.test_fraction is None:
            return self.rows(config, split, report)
        if self._parts is None:
            self._parts = _divided(self.rows(config, split, report), config, config.test_fraction)
        return self._parts[split]

    def rows(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        """All rows of one split, or of the only one where there is a ``test_fraction``."""
        raise NotImplementedError


def find_source(dataset: str) -> Source:
    """The first source, by priority, that claims ``dataset``; the hub's claims whatever is left."""
    sources = [plugins.load(SOURCES, name, kind="source") for name in plugins.names(SOURCES)]
    by_priority: list[type[Source]] = sorted(sources, key=lambda cls: int(cls.priority))
    return next(cls() for cls in by_priority if cls.claims(dataset))


def _divided(rows: Rows, config: ExtractConfig, fraction: float) -> dict[str, Rows]:
    """The splits 'train' and 'test', in order; pieces of a sound stay together in one of them."""
    if len(rows) < FEWEST_ROWS:
        raise ConfigError(
            f"{len(rows)} rows are too few to hold some of them out",
            expected=f"at least {FEWEST_ROWS} rows for --test-fraction",
            where=rows.origin,
            hint="more rows, or a folder with train.csv and test.csv",
        )
    unit_N = np.asarray(rows.units or range(len(rows)), np.int64)
    _, first_U, of_N = np.unique(unit_N, return_index=True, return_inverse=True)
    labels = [rows.labels[row] for row in first_U.tolist()]
    test_N = held_out(labels, fraction, config.split_seed)[of_N]
    if not test_N.any():
        message = "there is nothing to hold out for testing: no class has two rows"
        raise DataError(message, where=rows.origin)
    parts = {}
    for split, chosen_N in (("train", ~test_N), ("test", test_N)):
        row_N = np.flatnonzero(chosen_N)[: config.limit].tolist()
        parts[split] = replace(
            rows,
            inputs=[rows.inputs[row] for row in row_N],
            labels=[rows.labels[row] for row in row_N],
            kept={name: [of[row] for row in row_N] for name, of in rows.kept.items()},
            units=[rows.units[row] for row in row_N] if rows.units else (),
            origin=f"{rows.origin}, {split}",
            skipped=rows.skipped if split == "train" else (),
        )
    return parts


def held_out(labels: Sequence[str], fraction: float, seed: int) -> NDArray[np.bool_]:
    """For every row, (N,), whether it is held out for testing: of every class the same share.

    The rule is for ever: it depends on no library's random numbers, and who has the labels in order
    can follow it in any language. Of a class with n rows, ``round(fraction * n)`` are held out
    (halves to the even number), at least one and not all where there are two or more; a single one
    is not. They are those with the smallest digests: the first eight bytes, big-endian, of the
    SHA-256 of '<seed> <row>' in ASCII, rows counted from 0; of equal digests the earlier row is the
    smaller.
    """
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    texts = (f"{seed} {row}".encode() for row in range(len(labels)))
    digests = b"".join(hashlib.sha256(text).digest()[:8] for text in texts)
    digest_N = np.frombuffer(digests, ">u8")
    held_N = np.zeros(len(labels), np.bool_)
    for members in rows.values():
        row_N = np.array(members)
        count = min(len(row_N) - 1, max(1, round(fraction * len(row_N))))
        held_N[row_N[np.argsort(digest_N[row_N], kind="stable")[:count]]] = True
    return held_N
