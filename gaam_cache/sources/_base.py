"""Rows of a data set, how a ``--dataset`` finds its source, and what is suspicious about rows.

Rows are the same where their essences are: of texts, all but white space and case.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.messages import excerpt
from gaam_cache.terminal import Report, counting, silent

Record = tuple[str, Mapping[str, Any]]
"""Where a record of a table stands ('line 7') and its values by column."""
NO_LABEL = ""  # of a row whose class nobody knows; no class can be called so
SOURCES, MEDIA = "gaam_cache.sources", "gaam_cache.sources.media"
FEWEST_ROWS = 10  # of which some can be held out for testing
DIGEST_BYTES = 16
"""At this width two texts of ten million agree by chance once in 10^24 data sets. BLAKE2 is the
quicker hash for short texts, and these are never kept."""
TOLERATED_TRUNCATED_SHARE = 0.01
LONGEST_LIST = 10
Group = list[tuple[str, int]]  # rows that are the same, each by its split and its index there


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows(ABC):
    """The rows of one split, in data-set order."""

    kind: ClassVar[str]
    """What the inputs are, which is the name of the kind of encoder that reads them."""
    noun: ClassVar[str] = "row"  # what people call one of them
    inputs: Sequence[Any]  # one per row, as it stands in the data
    labels: Sequence[str]  # the class name of every row
    class_names: tuple[str, ...] | None
    """All classes in order where the source declares them, else None."""
    origin: str  # where the rows came from, for messages and provenance
    revision: str | None = None  # commit on the hub, where they came from there
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the cache keeps: one string per row."""
    skipped: int = 0  # rows that ``skip_empty`` left out
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
            skipped=rows.skipped if split == "train" else 0,
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


def check_rows(
    rows: Mapping[str, Rows], class_names: Sequence[str], groups: Sequence[Group]
) -> list[str]:
    """One line for each thing that would make an accuracy mean less than it seems to.

    Args:
        rows: the rows of every split; those without labels are passed over.
        class_names: all classes, in order.
        groups: their ``repeated_texts``.
    """
    rows = {name: part for name, part in rows.items() if part.labelled}
    found = [_leak(rows, *pair, groups) for pair in combinations(rows, 2)]
    found += [_contradiction(part, name, groups) for name, part in rows.items()]
    return [line for line in found if line] + list(_classes(rows, class_names))


def repeated_texts(rows: Mapping[str, Rows], report: Report = silent) -> Iterator[Group]:
    """The rows of every text that occurs more than once, splits and rows in order.

    Texts are compared by 16-byte BLAKE2b digests: some 200 bytes a row, however long they are.
    """
    places = (
        ((name, row), essence)
        for name, part in rows.items()
        for row, essence in enumerate(part.essences())
    )
    first: dict[bytes, tuple[str, int]] = {}
    groups: dict[bytes, Group] = {}
    for place, essence in counting(places, report, "looking for repeated texts"):
        digest = hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()
        if (other := first.setdefault(digest, place)) is not place:
            groups.setdefault(digest, [other]).append(place)
    # the order of splits that share texts is that in which a plan records them
    for digest in sorted(groups, key=lambda digest: int.from_bytes(digest, "little")):
        yield groups[digest]


def shared_texts(groups: Sequence[Group]) -> dict[str, dict[str, int]]:
    """Rows of a split that have a text of another, or of itself: ``[split][other]``, no zeros."""
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        places = Counter(split for split, _ in group)
        for split, other in product(places, places):
            if split != other or places[split] > 1:
                of_split = counts.setdefault(split, {})
                of_split[other] = of_split.get(other, 0) + places[split]
    return counts


def _leak(rows: Mapping[str, Rows], first: str, second: str, groups: Sequence[Group]) -> str | None:
    """What to say of two splits that share texts."""
    count, examples, part = 0, [], rows[second]
    for group in groups:
        there = [row for split, row in group if split == second]
        here = [row for split, row in group if split == first]
        if here and there:
            count += len(there)
            examples.append((there[0], here[0]))
    if not examples:
        return None
    row, other = min(examples)
    return (
        f"{count:,} of {len(part):,} rows of '{second}' ({count / len(part):.1%}) have a "
        f"{part.noun} that '{first}' has too, which inflates accuracy; for example row {row + 1:,} "
        f"of '{second}' and row {other + 1:,} of '{first}': {part.excerpt(row)}"
    )


def _contradiction(part: Rows, name: str, groups: Sequence[Group]) -> str | None:
    """What to say of a split in which one text has several labels."""
    examples = []
    for group in groups:
        first, *others = [row for split, row in group if split == name] or [0]
        apart = (row for row in others if part.labels[row] != part.labels[first])
        examples += [(first, row) for row in [next(apart, None)] if row is not None]
    if not examples:
        return None
    first, second = min(examples)
    return (
        f"{len(examples):,} {part.noun}(s) have copies of another label in '{name}', which "
        f"decoders may not tell apart; for example rows {first + 1:,} and {second + 1:,} are "
        f"{excerpt(part.labels[first])} and {excerpt(part.labels[second])}: {part.excerpt(first)}"
    )


def _classes(rows: Mapping[str, Rows], class_names: Sequence[str]) -> Iterator[str]:
    """Lines if there is one class, if a split lacks some, if most have one row or look alike."""
    if len(class_names) == 1:
        one = excerpt(class_names[0])
        yield f"every row has the label {one}: there is nothing to tell apart"
        return
    for name, part in rows.items():
        present = set(part.labels)
        if absent := [excerpt(label) for label in class_names if label not in present]:
            what = f"'{name}' has no row of {len(absent):,} of {len(class_names):,} classes"
            then = f"macro-F1 and accuracy on '{name}' do not speak of them"
            then = "no decoder can learn them" if name == "train" else then
            yield f"{what} ({_listed(absent)}): {then}"
    total = sum(map(len, rows.values()))
    if len(class_names) > LONGEST_LIST and 2 * len(class_names) > total:
        yield (
            f"{len(class_names):,} classes for {total:,} rows ({', '.join(class_names[:3])}, ...): "
            "is that the column of the classes? --label-column names another"
        )
    seen: dict[str | float, str] = {}
    alike = ((seen.setdefault(_plain(name), name), name) for name in class_names)
    if pairs := [f"{excerpt(one)} and {excerpt(other)}" for one, other in alike if one != other]:
        yield (
            "classes that differ only in case, white space, quotes or the spelling of a number are "
            f"kept apart: {_listed(pairs)}"
        )


def _plain(name: str) -> str | float:
    """What classes share that may be one, written differently."""
    number = re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", name, re.ASCII)
    return float(name) if number else " ".join(name.replace('"', " ").casefold().split())


def truncation(rows: int, truncated: int, max_length: int, unit: str = "tokens") -> list[str]:
    """A line if more than one row in a hundred was cut at ``max_length``, which ``unit`` counts."""
    if truncated <= TOLERATED_TRUNCATED_SHARE * rows:
        return []
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    return [
        f"{truncated:,} of {rows:,} rows ({truncated / rows:.1%}) are cut at {max_length:,} "
        f"{unit}; if the encoder takes more, raise {option} and choose another --out"
    ]


def _listed(words: Sequence[str]) -> str:
    return ", ".join([*words[:LONGEST_LIST], *["..."] * (len(words) > LONGEST_LIST)])
