"""Warns of suspicious rows: copies in two splits, odd classes, missing texts.

No check stops an extraction; each yields the lines of warnings. Two rows are copies of
one another if their copy keys are equal (``Rows.copy_keys``).
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

from gaam_cache.common.cells import is_missing_word
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress, with_progress
from gaam_cache.sources.base import (
    DIGEST_BYTES,
    TOLERATED_SHARE,
    Rows,
    Texts,
)
from gaam_cache.store.row_sketch import sketch
from gaam_cache.targets.base import Target

MAX_MISSING_WORD_LENGTH = 8  # characters; longer texts are not compared with the words
MAX_COPIES_LISTED = 200_000  # copied rows that a plan lists: some 1.5 MB
CopyGroup = list[tuple[str, int]]
"""Rows that are copies of one another: (split, index in the split) of each."""


def check_rows(
    rows: Mapping[str, Rows],
    target: Target,
    copy_groups: Sequence[CopyGroup],
    *,
    confirmed_classes: Collection[str] = (),
) -> list[str]:
    """Lines of warnings about rows that make an accuracy less meaningful than it seems.

    Args:
        rows: the rows of every split. Checks of labels skip splits without labels.
        target: what is predicted.
        copy_groups: the rows that are copies of one another, by ``repeated_texts``.
        confirmed_classes: classes that the user has confirmed, although programs write
            such names for a missing label.
    """
    # silent sounds and blank pictures matter without labels too
    lines = [line for split_rows in rows.values() for line in split_rows.doubts()]

    labelled = {
        split: split_rows for split, split_rows in rows.items() if split_rows.labelled
    }
    for first, second in combinations(labelled, 2):
        lines.extend(_leak_warning(labelled, first, second, copy_groups))
    for split, split_rows in labelled.items():
        lines.extend(_contradiction_warning(split_rows, split, copy_groups))

    lines.extend(_missing_text_warnings(rows))
    labels_by_split = {
        split: split_rows.labels for split, split_rows in labelled.items()
    }
    lines.extend(target.warnings(labels_by_split, confirmed_classes))
    return lines


def find_equal_texts(
    rows: Mapping[str, Rows], report: ReportProgress
) -> dict[bytes, CopyGroup]:
    """Group the rows of all splits by their text.

    A group lists (split, row) in the order of the splits and of their rows. Two texts
    are equal if their copy keys are, which leave out differences in case and white
    space, for example (``Rows.copy_keys``). The keys are compared by 16-byte BLAKE2b
    digests, which take some 300 bytes of memory a row, however long the texts are.

    Args:
        rows: the rows of every split.
        report: called with the number of rows of the split so far.

    Returns:
        Digest of a text -> its rows.
    """
    groups: dict[bytes, CopyGroup] = {}
    for split, split_rows in rows.items():
        copy_keys = with_progress(split_rows.copy_keys(), report, "looking for copies")
        for row, copy_key in enumerate(copy_keys):
            digest = hashlib.blake2b(copy_key, digest_size=DIGEST_BYTES).digest()
            groups.setdefault(digest, []).append((split, row))
    return groups


def repeated_texts(groups: Mapping[bytes, CopyGroup]) -> list[CopyGroup]:
    """The groups of rows whose text occurs more than once."""
    # a plan records splits with shared texts in this order, so it must not change
    repeated = [digest for digest, group in groups.items() if len(group) > 1]
    repeated.sort(key=lambda digest: int.from_bytes(digest, "little"))
    return [groups[digest] for digest in repeated]


def sketch_splits(groups: Mapping[bytes, CopyGroup]) -> dict[str, str]:
    """Sketch the texts of every split: reports compare those of two data sets.

    Args:
        groups: digest of a text -> its rows, by ``find_equal_texts``.
    """
    digests: dict[str, list[bytes]] = {}
    for digest, group in groups.items():
        for split in {split for split, _ in group}:
            digests.setdefault(split, []).append(digest)
    # in the order of the names: that of a set differs between processes
    return {split: sketch(digests[split]) for split in sorted(digests)}


def count_shared_texts(copy_groups: Sequence[CopyGroup]) -> dict[str, dict[str, int]]:
    """Count the rows whose text another split has, or the same split has again.

    Args:
        copy_groups: the rows that are copies of one another, by ``repeated_texts``.

    Returns:
        ``[first][second]``: the number of rows of the first split whose text the second
        split has. ``[first][first]``: the number of rows of the split whose text the
        split has more than once. Zeros are left out.
    """
    counts: dict[str, dict[str, int]] = {}
    for group in copy_groups:
        num_rows_by_split = Counter(split for split, _ in group)
        for first, second in product(num_rows_by_split, num_rows_by_split):
            num_rows = num_rows_by_split[first]
            # a row that is the only one of its split is no copy in that split
            if first == second and num_rows == 1:
                continue
            counts_of_first = counts.setdefault(first, {})
            counts_of_first[second] = counts_of_first.get(second, 0) + num_rows
    return counts


def list_equal_rows(copy_groups: Sequence[CopyGroup]) -> dict[str, list[list[int]]]:
    """The rows that are copies of one another within a split.

    Args:
        copy_groups: for each repeated text the (split, row) of all its rows, by
            ``repeated_texts``.

    Returns:
        Split -> for each text that occurs more than once, its rows. Splits without
        copies are left out. The result is empty if there are more copies than a plan
        lists.
    """
    copies: dict[str, list[list[int]]] = {}
    for group in copy_groups:
        rows_by_split: dict[str, list[int]] = {}
        for split, row in group:
            rows_by_split.setdefault(split, []).append(row)
        for split, rows in rows_by_split.items():
            if len(rows) > 1:
                copies.setdefault(split, []).append(rows)

    num_copies = sum(len(rows) for row_lists in copies.values() for rows in row_lists)
    # whoever opens a cache reads its whole plan, so the plan has to stay small
    if num_copies > MAX_COPIES_LISTED:
        return {}
    return {split: sorted(row_lists) for split, row_lists in copies.items()}


def _leak_warning(
    rows: Mapping[str, Rows],
    first: str,
    second: str,
    copy_groups: Sequence[CopyGroup],
) -> Iterator[str]:
    """Yield one line if two splits share texts.

    Args:
        rows: the rows of every split.
        first: name of one split, such as 'train'.
        second: name of another split.
        copy_groups: the rows that are copies of one another, by ``repeated_texts``.
    """
    # pairs of a row of the second split and its first copy in the first split
    pairs: list[tuple[int, int]] = []
    for group in copy_groups:
        copies_in_first = [row for split, row in group if split == first]
        if copies_in_first:
            copies_in_second = [row for split, row in group if split == second]
            pairs.extend((row, copies_in_first[0]) for row in copies_in_second)
    if not pairs:
        return

    second_rows = rows[second]
    # the example is the first row of the second split that has a copy
    row, copy = min(pairs)
    yield (
        f"{len(pairs):,} of {len(second_rows):,} rows of '{second}' "
        f"({len(pairs) / len(second_rows):.1%}) repeat a {second_rows.noun} of "
        f"'{first}', which inflates accuracy; for example row {row + 1:,} of "
        f"'{second}' and row {copy + 1:,} of '{first}': {second_rows.excerpt(row)}"
    )


def _contradiction_warning(
    split_rows: Rows, name: str, copy_groups: Sequence[CopyGroup]
) -> Iterator[str]:
    """Yield one line if copies of one text have different labels in a split.

    Args:
        split_rows: the rows of the split.
        name: name of the split.
        copy_groups: the rows of all splits that are copies of one another, by
            ``repeated_texts``.
    """
    labels = split_rows.labels
    # of each such text, its first row and the first row with another label
    pairs: list[tuple[int, int]] = []
    for group in copy_groups:
        copies = [row for split, row in group if split == name]
        for row in copies[1:]:
            if labels[row] != labels[copies[0]]:
                pairs.append((copies[0], row))
                break
    if not pairs:
        return

    # the example is the pair that comes first in the split
    first, second = min(pairs)
    yield (
        f"{len(pairs):,} {split_rows.noun}(s) of '{name}' have copies of another "
        f"label, which no decoder can tell apart; for example rows {first + 1:,} and "
        f"{second + 1:,} are {excerpt(labels[first])} and {excerpt(labels[second])}: "
        f"{split_rows.excerpt(first)}"
    )


def _missing_text_warnings(rows: Mapping[str, Rows]) -> Iterator[str]:
    """Yield a line for each split with texts such as 'nan': words for a missing value.

    Args:
        rows: the rows of every split.
    """
    for split, split_rows in rows.items():
        # sounds and pictures cannot be such a word
        if split_rows.kind != Texts.kind:
            continue

        # the length comes first because it rules out nearly every text quickly
        suspects = [
            row
            for row, text in enumerate(split_rows.inputs)
            if len(text) <= MAX_MISSING_WORD_LENGTH and is_missing_word(text)
        ]
        if suspects:
            yield (
                f"{len(suspects):,} texts of '{split}' may stand for a missing text, "
                f"such as row {suspects[0] + 1:,}: {split_rows.excerpt(suspects[0])}"
            )


def truncation_warning(
    num_rows: int,
    num_truncated: int,
    max_length: int,
    unit: str = "tokens",
    *,
    for_prediction: bool = False,
) -> list[str]:
    """One line of warning if too many of the rows were cut, else no line.

    Of the rows of a data set 1% may be cut. Of rows to predict none may be cut
    silently: each of them has an answer that somebody reads.

    Args:
        num_rows: number of all rows.
        num_truncated: number of rows that were cut.
        max_length: the length at which they were cut.
        unit: unit of the length: 'tokens' for texts, another unit for sounds.
        for_prediction: whether the rows are to be predicted, at the length of a cache.
    """
    num_tolerated = 0 if for_prediction else TOLERATED_SHARE * num_rows
    if num_truncated <= num_tolerated:
        return []
    option = "--max-length" if unit == "tokens" else "clip-seconds"
    advice = f"if the encoder takes more, raise {option} and choose a new --out"
    if for_prediction:
        advice = "longer training rows were cut there, too"
    share = num_truncated / max(1, num_rows)
    return [
        f"{num_truncated:,} of {num_rows:,} rows ({share:.1%}) are cut at "
        f"{max_length:,} {unit}; {advice}"
    ]
