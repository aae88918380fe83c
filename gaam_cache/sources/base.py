"""Rows of a data set, how a ``--dataset`` finds its source, and what is suspicious about rows.

Rows are the same where their essences are: of texts, all but white space and case.
"""

import hashlib
import re
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.download import hub_only
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.rows.cells import is_doubtful, is_nothing, spelling
from gaam_cache.sources.rows.limit import limited

Record = tuple[str, Mapping[str, Any]]
"""Where a record of a table stands ('line 7') and its values by column."""
NO_LABEL = ""  # of a row whose class nobody knows; no class can be called so
SOURCES, MEDIA = "gaam_cache.sources", "gaam_cache.sources.media"
FEWEST_ROWS = 10  # of which some can be held out for testing
FEWEST_GROUPS = (
    6  # of test rows that belong together, with which a report compares mechanisms
)
DIGEST_BYTES = 16  # two texts of ten million agree by chance once in 10^24 data sets
TOLERATED_TRUNCATED_SHARE = 0.01
LONGEST_LIST = 10
MOST_COPIES = 200_000  # rows that a plan lists because they are copies: some 1.5 MB
Group = list[
    tuple[str, int]
]  # rows that are the same, each by its split and its index there


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
    kept: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # columns that the cache keeps
    skipped: int = 0  # rows that ``skip_empty`` left out
    labelled: bool = (
        True  # else nobody knows the labels, and all of them are ``NO_LABEL``
    )
    units: Sequence[
        int
    ] = ()  # which sound every row is a piece of, where pieces are rows
    held_out: Sequence[bool] = ()
    """Whether a row is of 'test', where a source took the rows of both parts for a limit itself."""

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

    priority: ClassVar[
        int
    ]  # sources are asked in ascending order whether a data set is theirs
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

    def read(
        self, config: ExtractConfig, split: str, report: ReportProgress = no_progress
    ) -> Rows:
        """All rows of one split; ``report`` is told how many there are so far.

        With a ``test_fraction`` 'train' and 'test' are made of the only split, which is read once.

        Raises:
            NotFoundError: no such file, data set or split.
            ConfigError: no such column.
            DataError: a row cannot be used; says which.
        """
        if not self.has_revisions and config.dataset_revision is not None:
            raise hub_only("dataset-revision", config.dataset_revision, config.dataset)
        if not self.has_revisions and config.subset is not None:
            raise hub_only("--subset", config.subset, config.dataset)
        if config.test_fraction is None and config.test_groups is not None:
            raise ConfigError(
                "--test-groups says how 'test' is cut off, and the data set has its splits",
                expected="--test-fraction beside it, or a single file",
                found=f"--test-groups {excerpt(config.test_groups)}",
                where=config.dataset,
            )
        if config.test_fraction is None:
            return _limited(self.rows(config, split, report), config)
        if self._parts is None:
            self._parts = _divided(
                self.rows(config, split, report), config, config.test_fraction
            )
        return self._parts[split]

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """All rows of one split, or of the only one where there is a ``test_fraction``.

        Rows beyond a limit may be there; ``read`` leaves them out.
        """
        raise NotImplementedError


def find_source(dataset: str) -> Source:
    """The first source, by priority, that claims ``dataset``; the hub's claims whatever is left."""
    sources = [
        plugins.load(SOURCES, name, kind="source") for name in plugins.names(SOURCES)
    ]
    by_priority = sorted(sources, key=lambda cls: int(cls.priority))
    return next(cls() for cls in by_priority if cls.claims(dataset))


def _divided(rows: Rows, config: ExtractConfig, fraction: float) -> dict[str, Rows]:
    """The splits 'train' and 'test', in order; pieces of a sound stay together in one of them."""
    if rows.held_out:
        test_N = np.asarray(rows.held_out, np.bool_)
    elif config.test_groups is not None:
        test_N = _whole_groups(rows, config.test_groups, fraction, config.split_seed)
    else:
        labels, unit_N = _units(rows)
        test_N = held_out(labels, fraction, config.split_seed)[unit_N]
    few = len(rows) < FEWEST_ROWS and not rows.held_out
    if few or not test_N.any():
        raise ConfigError(
            f"{len(rows)} rows are too few to hold some of them out",
            expected=f"at least {FEWEST_ROWS} rows for --test-fraction, two of a class",
            where=rows.origin,
            hint="more rows, or a folder with train.csv and test.csv",
        )
    parts = {}
    for split, chosen_N in (("train", ~test_N), ("test", test_N)):
        part = replace(
            _chosen(rows, chosen_N),
            origin=f"{rows.origin}, {split}",
            skipped=rows.skipped if split == "train" else 0,
        )
        parts[split] = _limited(part, config)
    return parts


def _limited(rows: Rows, config: ExtractConfig) -> Rows:
    """The rows that ``--limit`` takes: those of a source that did not look at it too."""
    limit = config.limit
    if limit is None:
        return rows
    if config.limit_rule == "first":
        taken_N = np.arange(len(rows)) < limit
    else:
        labels, unit_N = _units(rows)
        taken_N = limited(labels, limit)[unit_N]
    return rows if taken_N.all() else _chosen(rows, taken_N)


def _units(rows: Rows) -> tuple[list[str], NDArray[np.int64]]:
    """Labels of all sounds, or of all rows where a row is no piece; and which each row is of."""
    unit_N = np.asarray(rows.units or range(len(rows)), np.int64)
    _, first_U, of_N = np.unique(unit_N, return_index=True, return_inverse=True)
    return [rows.labels[row] for row in first_U.tolist()], of_N


def _chosen(rows: Rows, chosen_N: NDArray[np.bool_]) -> Rows:
    """Some of the rows, in their order."""
    row_N = np.flatnonzero(chosen_N).tolist()
    return replace(
        rows,
        inputs=[rows.inputs[row] for row in row_N],
        labels=[rows.labels[row] for row in row_N],
        kept={name: [of[row] for row in row_N] for name, of in rows.kept.items()},
        units=[rows.units[row] for row in row_N] if rows.units else (),
        held_out=(),
    )


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


def _whole_groups(
    rows: Rows, column: str, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Which rows are 'test', of a column by whose values they belong together; says how many."""
    names = rows.kept[column]
    test_N = held_out_groups(rows.labels, names, fraction, seed)
    count = len(set(names))
    if not test_N.any():
        raise ConfigError(
            f"no group of '{column}' can be held out: without any of them a class would be gone",
            expected=f"groups with at most {fraction:.0%} of the rows, and every class in several",
            found=f"{count:,} group{'s' if count != 1 else ''}",
            where=rows.origin,
        )
    there = len({name for name, is_test in zip(names, test_N, strict=True) if is_test})
    message = f"'test' has {there:,} of {count:,} groups of '{column}', "
    message += f"{test_N.sum():,} of {len(rows):,} rows ({test_N.mean():.1%})"
    if there < FEWEST_GROUPS:
        message += f": of fewer than {FEWEST_GROUPS} no report makes a claim; "
        message += (
            f"gaam train --folds 5 --groups {column} tests all groups of one split"
        )
    warnings.warn(message, GaamWarning, stacklevel=2)
    return test_N


def held_out_groups(
    labels: Sequence[str], groups: Sequence[str], fraction: float, seed: int
) -> NDArray[np.bool_]:
    """For every row, (N,), whether it is held out for testing, of a group all rows or none.

    The rule is for ever, as that of ``held_out`` is. Groups are put in order by their digests: the
    SHA-256 of '<seed> <name of the group>' in UTF-8. How far off a choice is: for every class
    ``|1,000,000 h - f n|``, of which h of n rows are held out, with f the fraction in millionths,
    rounded; and the sum of that over the classes. A group is never held out if then all rows of a
    class were.

    First every group, in order, is held out if of no class more than its share is held out then:
    ``1,000,000 h <= f n``. Then, one after the other, the group that brings the choice nearest,
    of equal ones the first, until none brings it nearer.
    """
    class_number = {name: number for number, name in enumerate(sorted(set(labels)))}
    digests = {
        name: hashlib.sha256(f"{seed} {name}".encode()).digest() for name in set(groups)
    }
    place = {
        name: number
        for number, name in enumerate(sorted(digests, key=digests.__getitem__))
    }
    group_N = np.array([place[name] for name in groups])
    class_N = np.array([class_number[label] for label in labels])
    count_GC = np.zeros((len(place), len(class_number)), np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)
    all_C = count_GC.sum(0)
    share_C = round(1e6 * fraction) * all_C
    held_C, is_held_G = np.zeros_like(all_C), np.zeros(len(place), np.bool_)
    for group, count_C in enumerate(count_GC):
        then_C = held_C + count_C
        if (10**6 * then_C <= share_C).all() and (then_C < all_C).all():
            held_C, is_held_G[group] = then_C, True
    while True:
        then_GC = held_C + count_GC
        off_G = abs(10**6 * then_GC - share_C).sum(1)
        never_G = is_held_G | ((then_GC >= all_C) & (count_GC > 0)).any(1)
        off_G[never_G] = np.iinfo(np.int64).max
        best = int(off_G.argmin())
        if off_G[best] >= abs(10**6 * held_C - share_C).sum():
            return is_held_G[group_N]
        held_C, is_held_G[best] = then_GC[best], True


def check_rows(
    rows: Mapping[str, Rows],
    class_names: Sequence[str],
    groups: Sequence[Group],
    *,
    known: Collection[str] = (),
) -> list[str]:
    """One line for each thing that would make an accuracy mean less than it seems to.

    Args:
        rows: the rows of every split; those without labels are passed over.
        class_names: all classes, in order.
        groups: their ``repeated_texts``.
        known: classes that somebody says are classes, however they are called.
    """
    doubts = [line for part in rows.values() for line in part.doubts()]
    nothing = list(_nothing(rows))
    rows = {name: part for name, part in rows.items() if part.labelled}
    found = [
        line for pair in combinations(rows, 2) for line in _leak(rows, *pair, groups)
    ]
    found += [
        line for name in rows for line in _contradiction(rows[name], name, groups)
    ]
    return [
        *doubts,
        *found,
        *nothing,
        *_classes(rows, class_names),
        *_doubtful(rows, known),
    ]


def repeated_texts(
    rows: Mapping[str, Rows], report: ReportProgress = no_progress
) -> Iterator[Group]:
    """The rows of every text that occurs more than once, splits and rows in order.

    Texts are compared by 16-byte BLAKE2b digests: some 300 bytes a row, however long they are.
    """
    groups: dict[bytes, Group] = {}
    for name, part in rows.items():
        for row, essence in enumerate(
            with_progress(part.essences(), report, "looking for copies")
        ):
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


def equal_rows(groups: Sequence[Group]) -> dict[str, list[list[int]]]:
    """For every split that has some: the rows of each text that occurs in it more than once.

    Nothing where so many rows are copies that the plan of a cache is no place for them.
    """
    copies: dict[str, list[list[int]]] = {}
    for group in groups:
        by_split: dict[str, list[int]] = {}
        for split, row in group:
            by_split.setdefault(split, []).append(row)
        for split, rows in by_split.items():
            if len(rows) > 1:
                copies.setdefault(split, []).append(rows)
    count = sum(len(rows) for lists in copies.values() for rows in lists)
    if count > MOST_COPIES:
        return {}
    return {split: sorted(lists) for split, lists in copies.items()}


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
    if pairs := [
        f"{excerpt(one)} and {excerpt(other)}" for one, other in alike if one != other
    ]:
        yield (
            "classes that differ only in case, white space, quotes, characters that look alike or "
            f"the spelling of a number are kept apart: {_listed(pairs)}"
        )


def _doubtful(rows: Mapping[str, Rows], known: Collection[str]) -> Iterator[str]:
    """A line if classes are called as people call rows whose class nobody knows."""
    counts = Counter(label for part in rows.values() for label in part.labels)
    expected = set(map(spelling, known))
    doubtful = [
        f"{excerpt(name)} (rows: {count:,})"
        for name, count in counts.items()
        if is_doubtful(name, counts) and spelling(name) not in expected
    ]
    if doubtful:
        yield (
            "classes that may say that nobody knows the class of a row; if so, remove the rows: "
            f"{_listed(doubtful)}"
        )


def _nothing(rows: Mapping[str, Rows]) -> Iterator[str]:
    """A line if texts are what programs write where there is none."""
    for name, part in rows.items():
        if part.kind != Texts.kind:
            continue
        odd = [
            row
            for row, text in enumerate(part.inputs)
            if len(text) < 9 and is_nothing(text)
        ]
        if odd:
            yield (
                f"{len(odd):,} texts of '{name}' may say that there is no text, such as row "
                f"{odd[0] + 1:,}: {part.excerpt(odd[0])}"
            )


def _plain(name: str) -> str | float:
    """What classes share that may be one, written differently."""
    if re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", name, re.ASCII):
        return float(name)
    seen = [
        c
        for c in unicodedata.normalize("NFKC", name)
        if unicodedata.category(c) != "Cf"
    ]
    return " ".join("".join(seen).replace('"', " ").casefold().split())


def truncation(
    rows: int, truncated: int, max_length: int, unit: str = "tokens"
) -> list[str]:
    """A line if more than one row in a hundred was cut at ``max_length``, which ``unit`` counts."""
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    line = (
        f"{truncated:,} of {rows:,} rows ({truncated / max(1, rows):.1%}) are cut at "
    )
    line += f"{max_length:,} {unit}; if the encoder takes more, raise {option} "
    line += "and choose a new --out"
    return [line] if truncated > TOLERATED_TRUNCATED_SHARE * rows else []


def _listed(words: Sequence[str]) -> str:
    return ", ".join([*words[:LONGEST_LIST], *["..."] * (len(words) > LONGEST_LIST)])
