"""What is suspicious about rows: copies in two splits, odd classes, missing texts.

None of it stops an extraction; each check yields lines for warnings. Two rows are
copies where their essences are equal (``Rows.essences``).
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.sources.base import (
    DIGEST_BYTES,
    TOLERATED_TRUNCATED_SHARE,
    Rows,
    Texts,
)
from gaam_cache.sources.rows.cells import is_doubtful, is_missing_word, spelling

LONGEST_LIST = 10  # names in one message
LONGEST_MISSING_WORD = 8  # characters; longer texts are not compared with the words
MOST_COPIES = 200_000  # copied rows that a plan lists: some 1.5 MB
CopyGroup = list[tuple[str, int]]
"""Rows that are copies of one another, each by its split and its index there."""


def check_rows(
    rows: Mapping[str, Rows],
    class_names: Sequence[str],
    copy_groups: Sequence[CopyGroup],
    *,
    known: Collection[str] = (),
) -> list[str]:
    """One line for each thing that would make an accuracy mean less than it seems to.

    Args:
        rows: the rows of every split. Checks of labels skip splits without labels.
        class_names: all classes, in order.
        copy_groups: the ``repeated_texts`` of these rows.
        known: classes that the user has confirmed, however odd their names.
    """
    # silent sounds and blank pictures matter without labels too
    lines = [line for part in rows.values() for line in part.doubts()]

    labelled = {name: part for name, part in rows.items() if part.labelled}
    for first, second in combinations(labelled, 2):
        lines.extend(_check_leak(labelled, first, second, copy_groups))
    for name, part in labelled.items():
        lines.extend(_check_contradiction(part, name, copy_groups))

    lines.extend(_check_missing_texts(rows))
    lines.extend(_check_classes(labelled, class_names))
    lines.extend(_check_doubtful_classes(labelled, known))
    return lines


def repeated_texts(
    rows: Mapping[str, Rows], report: ReportProgress = no_progress
) -> Iterator[CopyGroup]:
    """The rows of every text that occurs more than once, splits and rows in order.

    Texts are compared by 16-byte BLAKE2b digests. They take some 300 bytes of memory a
    row, however long the texts are.
    """
    groups: dict[bytes, CopyGroup] = {}
    for name, part in rows.items():
        essences = with_progress(part.essences(), report, "looking for copies")
        for row, essence in enumerate(essences):
            digest = hashlib.blake2b(essence, digest_size=DIGEST_BYTES).digest()
            groups.setdefault(digest, []).append((name, row))

    # a plan records splits with shared texts in this order, so it must not change
    repeated = [digest for digest, group in groups.items() if len(group) > 1]
    repeated.sort(key=lambda digest: int.from_bytes(digest, "little"))
    for digest in repeated:
        yield groups[digest]


def shared_texts(copy_groups: Sequence[CopyGroup]) -> dict[str, dict[str, int]]:
    """Number of rows of a split whose text a second split has: ``[split][second]``.

    ``[split][split]`` counts the rows whose text the split has more than once. Zeros
    are left out.
    """
    counts: dict[str, dict[str, int]] = {}
    for group in copy_groups:
        rows_of = Counter(split for split, _ in group)
        for split, second in product(rows_of, rows_of):
            if split != second or rows_of[split] > 1:
                shared = counts.setdefault(split, {})
                shared[second] = shared.get(second, 0) + rows_of[split]
    return counts


def equal_rows(copy_groups: Sequence[CopyGroup]) -> dict[str, list[list[int]]]:
    """The rows of each text that occurs more than once in a split, by split.

    Splits without copies are left out. The result is empty where there are so many
    copies that they would bloat the plan of a cache.
    """
    copies: dict[str, list[list[int]]] = {}
    for group in copy_groups:
        rows_by_split: dict[str, list[int]] = {}
        for split, row in group:
            rows_by_split.setdefault(split, []).append(row)
        for split, rows in rows_by_split.items():
            if len(rows) > 1:
                copies.setdefault(split, []).append(rows)

    count = sum(len(rows) for row_lists in copies.values() for rows in row_lists)
    # a plan is read whole whenever a cache is opened
    if count > MOST_COPIES:
        return {}
    return {split: sorted(row_lists) for split, row_lists in copies.items()}


def _check_leak(
    rows: Mapping[str, Rows],
    first: str,
    second: str,
    copy_groups: Sequence[CopyGroup],
) -> Iterator[str]:
    """A line if two splits share texts."""
    # pairs of a row of the second split and its first copy in the first split
    pairs: list[tuple[int, int]] = []
    for group in copy_groups:
        first_rows = [row for split, row in group if split == first]
        if first_rows:
            second_rows = [row for split, row in group if split == second]
            pairs.extend((row, first_rows[0]) for row in second_rows)
    if not pairs:
        return

    part = rows[second]
    # the example is the first such row of the split
    row, copy = min(pairs)
    yield (
        f"{len(pairs):,} of {len(part):,} rows of '{second}' "
        f"({len(pairs) / len(part):.1%}) repeat a {part.noun} of '{first}', which "
        f"inflates accuracy; for example row {row + 1:,} of '{second}' and row "
        f"{copy + 1:,} of '{first}': {part.excerpt(row)}"
    )


def _check_contradiction(
    part: Rows, name: str, copy_groups: Sequence[CopyGroup]
) -> Iterator[str]:
    """A line if one text has several labels in a split."""
    # for each such text: its first row, and the first row with another label
    pairs: list[tuple[int, int]] = []
    for group in copy_groups:
        rows = [row for split, row in group if split == name]
        for row in rows[1:]:
            if part.labels[row] != part.labels[rows[0]]:
                pairs.append((rows[0], row))
                break
    if not pairs:
        return

    first, second = min(pairs)
    labels = f"{excerpt(part.labels[first])} and {excerpt(part.labels[second])}"
    yield (
        f"{len(pairs):,} {part.noun}(s) of '{name}' have copies of another label, "
        f"which no decoder can tell apart; for example rows {first + 1:,} and "
        f"{second + 1:,} are {labels}: {part.excerpt(first)}"
    )


def _check_classes(
    rows: Mapping[str, Rows], class_names: Sequence[str]
) -> Iterator[str]:
    """Lines for a single class, absent classes, too many, and look-alikes."""
    if len(class_names) == 1:
        label = excerpt(class_names[0])
        yield f"every row has the label {label}: a decoder has nothing to learn"
        return

    for name, part in rows.items():
        labels = set(part.labels)
        absent = [excerpt(label) for label in class_names if label not in labels]
        if absent:
            yield (
                f"'{name}' has no row of {len(absent):,} of {len(class_names):,} "
                f"classes ({_listed(absent)}): its accuracy says nothing of them"
            )

    # a column of names or texts has nearly as many values as rows
    total = sum(map(len, rows.values()))
    if len(class_names) > LONGEST_LIST and 2 * len(class_names) > total:
        yield (
            f"{len(class_names):,} classes for {total:,} rows "
            f"({', '.join(class_names[:3])}, ...): is that the label column? "
            "--label-column names another"
        )

    pairs = _find_alike(class_names)
    if pairs:
        yield (
            "classes that differ only in case, white space, quotes, characters that "
            "look alike or the spelling of a number are separate classes here: "
            f"{_listed(pairs)}"
        )


def _find_alike(class_names: Sequence[str]) -> list[str]:
    """Pairs of classes that may be one class, written differently: "'a' and 'A'"."""
    first_names: dict[str | float, str] = {}
    pairs = []
    for name in class_names:
        first_name = first_names.setdefault(_plain(name), name)
        if first_name != name:
            pairs.append(f"{excerpt(first_name)} and {excerpt(name)}")
    return pairs


def _plain(name: str) -> str | float:
    """The name of a class in a form, or as a number, that its spellings share."""
    # 1, +1 and 1.0 are one number
    if re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", name, re.ASCII):
        return float(name)
    # characters of format, such as a zero-width space, are invisible
    normal = unicodedata.normalize("NFKC", name)
    visible = [char for char in normal if unicodedata.category(char) != "Cf"]
    return " ".join("".join(visible).replace('"', " ").casefold().split())


def _check_doubtful_classes(
    rows: Mapping[str, Rows], confirmed: Collection[str]
) -> Iterator[str]:
    """A line if names of classes are words that often stand for a missing label."""
    counts = Counter(label for part in rows.values() for label in part.labels)
    confirmed_spellings = set(map(spelling, confirmed))
    doubtful = []
    for name, count in counts.items():
        if is_doubtful(name, counts) and spelling(name) not in confirmed_spellings:
            doubtful.append(f"{excerpt(name)} (rows: {count:,})")
    if doubtful:
        yield (
            "these classes may stand for a missing label; if so, remove their rows: "
            f"{_listed(doubtful)}"
        )


def _check_missing_texts(rows: Mapping[str, Rows]) -> Iterator[str]:
    """A line for each split with texts that programs write for a missing value."""
    for name, part in rows.items():
        # sounds and pictures have no spelling of a missing value
        if part.kind != Texts.kind:
            continue

        # the length is looked at first because it rules out nearly every text
        suspects = [
            row
            for row, text in enumerate(part.inputs)
            if len(text) <= LONGEST_MISSING_WORD and is_missing_word(text)
        ]
        if suspects:
            yield (
                f"{len(suspects):,} texts of '{name}' may stand for a missing text, "
                f"such as row {suspects[0] + 1:,}: {part.excerpt(suspects[0])}"
            )


def truncation(
    rows: int, truncated: int, max_length: int, unit: str = "tokens"
) -> list[str]:
    """A line if over 1% of the rows were cut at ``max_length``, counted in ``unit``."""
    if truncated <= TOLERATED_TRUNCATED_SHARE * rows:
        return []
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    return [
        f"{truncated:,} of {rows:,} rows ({truncated / max(1, rows):.1%}) are cut at "
        f"{max_length:,} {unit}; if the encoder takes more, raise {option} and choose "
        "a new --out"
    ]


def _listed(words: Sequence[str]) -> str:
    """The first words, with dots where there are more."""
    shown = ", ".join(words[:LONGEST_LIST])
    return f"{shown}, ..." if len(words) > LONGEST_LIST else shown
