"""What is suspicious about rows though each can be used: pure functions that return messages.

Rows are the same where their essences are: of texts, all but white space and case.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows
from gaam_cache.terminal import Report, counting, silent

DIGEST_BYTES = 16
"""At this width two texts of ten million agree by chance once in 10^24 data sets. BLAKE2 is the
quicker hash for short texts, and these are never kept."""
TOLERATED_TRUNCATED_SHARE = 0.01
LONGEST_LIST = 10
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")

Place = tuple[str, int]
"""A row: its split and its index there."""


def check_rows(
    rows: Mapping[str, Rows], class_names: Sequence[str], groups: Sequence[Sequence[Place]]
) -> list[str]:
    """One line for each thing that would make an accuracy mean less than it seems to.

    Args:
        rows: the rows of every split.
        class_names: all classes, in order.
        groups: their ``repeated_texts``.

    Splits without labels are passed over: nothing is ever reported on them.
    """
    rows = {name: part for name, part in rows.items() if part.labelled}
    return [
        *leaks(rows, groups),
        *contradictions(rows, groups),
        *absent_classes(rows, class_names),
        *many_classes(rows, class_names),
        *similar_classes(class_names),
    ]


def repeated_texts(rows: Mapping[str, Rows], report: Report = silent) -> Iterator[list[Place]]:
    """The rows of every text that occurs more than once, splits and rows in order.

    Numerics:
        Texts are compared by 16-byte BLAKE2b digests in one array: some 60 bytes a row while it
        runs, however long the texts are.
    """
    essences = (essence for part in rows.values() for essence in part.essences())
    looked_at = counting(essences, report, "looking for repeated texts")
    digests = bytearray()  # joined at once they would all be objects
    for essence in looked_at:
        digests += _digest(essence)
    low_N, high_N = np.frombuffer(digests, dtype="<u8").reshape(-1, 2).T
    order_N = np.lexsort((low_N, high_N))  # stable: equal digests stay in order
    low_N, high_N = low_N[order_N], high_N[order_N]
    same_N = (low_N[1:] == low_N[:-1]) & (high_N[1:] == high_N[:-1])
    yield from _groups(order_N, same_N, rows)


def shared_texts(groups: Sequence[Sequence[Place]]) -> dict[str, dict[str, int]]:
    """Rows of a split that have a text of a split, itself too: ``[split][other]``; without zeros.

    Args:
        groups: the rows of every text that occurs more than once.
    """
    counts: dict[str, dict[str, int]] = {}
    for group in groups:
        places = Counter(split for split, _ in group)
        for split, other in product(places, places):
            if split != other or places[split] > 1:
                of_split = counts.setdefault(split, {})
                of_split[other] = of_split.get(other, 0) + places[split]
    return counts


def leaks(rows: Mapping[str, Rows], groups: Sequence[Sequence[Place]]) -> list[str]:
    """A line for every two splits that share texts."""
    messages = []
    for first, second in combinations(rows, 2):
        count, example = 0, None
        for group in groups:
            there = [row for split, row in group if split == second]
            here = [row for split, row in group if split == first]
            if here and there:
                count += len(there)
                example = min(example or (there[0], here[0]), (there[0], here[0]))
        if example:
            total, kind = len(rows[second]), rows[second].noun
            messages.append(
                f"{count:,} of {total:,} rows of '{second}' ({_percent(count, total)}) have a "
                f"{kind} that '{first}' has too, which inflates accuracy; for example row "
                f"{example[0] + 1:,} of '{second}' and row {example[1] + 1:,} of '{first}': "
                f"{rows[second].excerpt(example[0])}"
            )
    return messages


def contradictions(rows: Mapping[str, Rows], groups: Sequence[Sequence[Place]]) -> list[str]:
    """A line for every split in which one text has several labels."""
    messages = []
    for name, part in rows.items():
        count, example = 0, None
        for here in _exactly_alike(part, name, groups):
            other = next((r for r in here if part.labels[r] != part.labels[here[0]]), None)
            if other is not None:
                count += 1
                example = min(example or (here[0], other), (here[0], other))
        if example:
            labels = " and ".join(excerpt(part.labels[row]) for row in example)
            what = f"1 {part.noun} has" if count == 1 else f"{count:,} {part.noun}s have"
            messages.append(
                f"{what} several labels in '{name}', so that no decoder can get every row "
                f"right; for example rows {example[0] + 1:,} and {example[1] + 1:,} are "
                f"{labels}: {part.excerpt(example[0])}"
            )
    return messages


def _exactly_alike(part: Rows, name: str, groups: Sequence[Sequence[Place]]) -> Iterator[list[int]]:
    """Of every group the rows of a split, those that are written alike together."""
    for group in groups:
        written: dict[str, list[int]] = {}
        for split, row in group:
            if split == name:
                written.setdefault(part.exactly(row), []).append(row)
        yield from written.values()


def absent_classes(rows: Mapping[str, Rows], class_names: Sequence[str]) -> list[str]:
    """A line for every split that has no row of some class, and one for there being one class."""
    if len(class_names) == 1:
        return [
            f"every row has the label {excerpt(class_names[0])}: there is nothing to tell apart"
        ]
    messages = []
    for name, part in rows.items():
        present = set(part.labels)
        absent = [label for label in class_names if label not in present]
        if absent:
            shown = ", ".join(excerpt(label) for label in absent[:LONGEST_LIST])
            shown += ", ..." if len(absent) > LONGEST_LIST else ""
            messages.append(
                f"'{name}' has no row of {len(absent):,} of {len(class_names):,} classes "
                f"({shown}): macro-F1 and accuracy on '{name}' do not speak of what is absent"
                if name != "train"
                else f"'train' has no row of {len(absent):,} of {len(class_names):,} declared "
                f"classes ({shown}): no decoder can learn them"
            )
    return messages


def many_classes(rows: Mapping[str, Rows], class_names: Sequence[str]) -> list[str]:
    """A line if most classes have a single row, as measurements and names have."""
    total = sum(map(len, rows.values()))
    if len(class_names) <= LONGEST_LIST or 2 * len(class_names) <= total:
        return []
    shown = ", ".join(excerpt(name) for name in class_names[:3])
    return [
        f"{len(class_names):,} classes for {total:,} rows ({shown}, ...): is that the column of "
        "the classes? --label-column names another"
    ]


def similar_classes(class_names: Sequence[str]) -> list[str]:
    """Lines if class names differ only as misspelt labels do, or hold quotes by mistake."""
    seen: dict[str | Decimal, str] = {}
    pairs, quoted = [], []
    for name in class_names:
        if (bare := name.lstrip()) != name and bare.startswith('"'):
            quoted.append(excerpt(name))
        plain = " ".join(name.replace('"', " ").casefold().split())
        # compared exactly, however many digits they have
        other = seen.setdefault(Decimal(plain) if NUMBER.fullmatch(plain) else plain, name)
        if other is not name:
            pairs.append(f"{excerpt(other)} and {excerpt(name)}")
    told = {
        "classes that differ only in case, white space, quotes or the spelling of a number are "
        "kept apart": pairs,
        "white space before a quote makes the quotes a part of the class": quoted,
    }
    return [
        f"{what}: {', '.join(of[:LONGEST_LIST])}{', ...' if len(of) > LONGEST_LIST else ''}"
        for what, of in told.items()
        if of
    ]


def truncation(rows: int, truncated: int, max_length: int, unit: str = "tokens") -> list[str]:
    """A line if more than one row in a hundred was cut.

    Args:
        rows: rows that were encoded.
        truncated: how many of them were cut.
        max_length: the length at which they were.
        unit: what it counts.
    """
    if truncated <= TOLERATED_TRUNCATED_SHARE * rows:
        return []
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    return [
        f"{truncated:,} of {rows:,} rows ({_percent(truncated, rows)}) are cut at {max_length:,} "
        f"{unit}; if the encoder takes more, raise {option} and choose another --out"
    ]


def _digest(essence: bytes) -> bytes:
    return hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()


def _groups(
    order_N: NDArray[np.intp], same_N: NDArray[np.bool_], rows: Mapping[str, Rows]
) -> Iterator[list[Place]]:
    """Runs of equal digests as rows; ``same_N[i]`` tells whether i and i+1 are equal."""
    names = list(rows)
    starts = np.cumsum([0, *(len(rows[name]) for name in names)])
    edges = np.diff(same_N, prepend=False, append=False).nonzero()[0]
    for first, last in edges.reshape(-1, 2):
        members = order_N[first : last + 1]
        splits = np.searchsorted(starts, members, side="right") - 1
        pairs = zip(splits.tolist(), (members - starts[splits]).tolist(), strict=True)
        yield [(names[split], row) for split, row in pairs]


def _percent(count: int, total: int) -> str:
    share = 100 * count / total
    return f"{share:.1f}%" if share >= 0.1 else "under 0.1%"
