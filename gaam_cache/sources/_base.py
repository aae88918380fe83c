"""Rows of a data set, how a ``--dataset`` finds its source, and what is suspicious about rows.

Rows are the same where their essences are: of texts, all but white space and case.
"""

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
from gaam_cache.errors import ConfigError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.messages import excerpt
from gaam_cache.terminal import Report, counting, silent

Record = tuple[str, Mapping[str, Any]]
"""Where a record of a table stands ('line 7') and its values by column."""
NO_LABEL = ""  # of a row whose class nobody knows; no class can be called so
SOURCES, MEDIA = "gaam_cache.sources", "gaam_cache.sources.media"
FEWEST_ROWS = 10  # of which some can be held out for testing
DIGEST_BYTES = 16  # two texts of ten million agree by chance once in 10^24 data sets
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
    class_names: tuple[str, ...] | None  # all, in order, where the source declares them
    origin: str  # where the rows came from, for messages and provenance
    revision: str | None = None  # commit on the hub, where they came from there
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)  # columns that the cache keeps
    skipped: int = 0  # rows that ``skip_empty`` left out
    labelled: bool = True  # else nobody knows the labels, and all of them are ``NO_LABEL``
    units: Sequence[int] = ()  # which sound every row is a piece of, where pieces are rows

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

    def doubts(self) -> Iterator[str]:
        """A line for each sign that inputs are not what people see or hear in them."""
        return iter(())

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
        return (text.encode() for text in self.inputs)

    def essences(self) -> Iterator[bytes]:
        """The words: texts that differ only in white space, case or form (NFKC) are copies."""
        for text in self.inputs:
            plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
            yield " ".join(plain.casefold().split()).encode()

    def excerpt(self, row: int) -> str:
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

        With a ``test_fraction`` 'train' and 'test' are made of the only split, which is read once.

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
    by_priority = sorted(sources, key=lambda cls: int(cls.priority))
    return next(cls() for cls in by_priority if cls.claims(dataset))


def _divided(rows: Rows, config: ExtractConfig, fraction: float) -> dict[str, Rows]:
    """The splits 'train' and 'test', in order; pieces of a sound stay together in one of them."""
    unit_N = np.asarray(rows.units or range(len(rows)), np.int64)
    _, first_U, of_N = np.unique(unit_N, return_index=True, return_inverse=True)
    labels = [rows.labels[row] for row in first_U.tolist()]
    test_N = held_out(labels, fraction, config.split_seed)[of_N]
    if len(rows) < FEWEST_ROWS or not test_N.any():
        raise ConfigError(
            f"{len(rows)} rows are too few to hold some of them out",
            expected=f"at least {FEWEST_ROWS} rows for --test-fraction, two of a class",
            where=rows.origin,
            hint="more rows, or a folder with train.csv and test.csv",
        )
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
    doubts = [line for part in rows.values() for line in part.doubts()]
    rows = {name: part for name, part in rows.items() if part.labelled}
    found = [line for pair in combinations(rows, 2) for line in _leak(rows, *pair, groups)]
    found += [line for name in rows for line in _contradiction(rows[name], name, groups)]
    return [*doubts, *found, *_classes(rows, class_names)]


def repeated_texts(rows: Mapping[str, Rows], report: Report = silent) -> Iterator[Group]:
    """The rows of every text that occurs more than once, splits and rows in order.

    Texts are compared by 16-byte BLAKE2b digests: some 300 bytes a row, however long they are.
    """
    groups: dict[bytes, Group] = {}
    for name, part in rows.items():
        for row, essence in enumerate(counting(part.essences(), report, "looking for copies")):
            digest = hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()
            groups.setdefault(digest, []).append((name, row))
    several = [digest for digest, group in groups.items() if len(group) > 1]
    # the order of splits that share texts is that in which a plan records them
    for digest in sorted(several, key=lambda digest: int.from_bytes(digest, "little")):
        yield groups[digest]


def shared_texts(groups: Sequence[Group]) -> dict[str, dict[str, int]]:
    """Rows of a split that have a text of another, or of itself: ``[split][other]``, no zeros."""
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        places = Counter(split for split, _ in group)
        for split, other in product(places, places):
            if split != other or places[split] > 1:
                of = counts.setdefault(split, {})
                of[other] = of.get(other, 0) + places[split]
    return counts


def _leak(
    rows: Mapping[str, Rows], first: str, second: str, groups: Sequence[Group]
) -> Iterator[str]:
    """A line if two splits share texts."""
    pairs, part = [], rows[second]
    for group in groups:
        here = [row for split, row in group if split == first]
        pairs += [(row, here[0]) for split, row in group if here and split == second]
    if pairs:
        row, other = min(pairs)
        yield (
            f"{len(pairs):,} of {len(part):,} rows of '{second}' ({len(pairs) / len(part):.1%}) "
            f"have a {part.noun} that '{first}' has too, which inflates accuracy; for example row "
            f"{row + 1:,} of '{second}' and row {other + 1:,} of '{first}': {part.excerpt(row)}"
        )


def _contradiction(part: Rows, name: str, groups: Sequence[Group]) -> Iterator[str]:
    """A line if one text has several labels in a split."""
    pairs = []
    for group in groups:
        first, *others = [row for split, row in group if split == name] or [0]
        apart = [row for row in others if part.labels[row] != part.labels[first]]
        pairs += [(first, row) for row in apart[:1]]
    if pairs:
        first, second = min(pairs)
        labels = f"{excerpt(part.labels[first])} and {excerpt(part.labels[second])}"
        yield (
            f"{len(pairs):,} {part.noun}(s) have copies of another label in '{name}', which "
            f"decoders may not tell apart; for example rows {first + 1:,} and {second + 1:,} are "
            f"{labels}: {part.excerpt(first)}"
        )


def _classes(rows: Mapping[str, Rows], class_names: Sequence[str]) -> Iterator[str]:
    """Lines if there is one class, if a split lacks some, if most have one row or look alike."""
    if len(class_names) == 1:
        yield f"every row has the label {excerpt(class_names[0])}: there is nothing to tell apart"
        return
    for name, part in rows.items():
        present = set(part.labels)
        if absent := [excerpt(label) for label in class_names if label not in present]:
            what = f"'{name}' has no row of {len(absent):,} of {len(class_names):,} classes"
            yield f"{what} ({_listed(absent)}): nothing on it speaks of them"
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
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    line = f"{truncated:,} of {rows:,} rows ({truncated / max(1, rows):.1%}) are cut at "
    line += (
        f"{max_length:,} {unit}; if the encoder takes more, raise {option} and choose a new --out"
    )
    return [line] if truncated > TOLERATED_TRUNCATED_SHARE * rows else []


def _listed(words: Sequence[str]) -> str:
    return ", ".join([*words[:LONGEST_LIST], *["..."] * (len(words) > LONGEST_LIST)])
