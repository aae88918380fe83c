"""What is suspicious about rows though each can be used: pure functions that return messages.

Rows are the same where their essences are: of texts, all but white space and case.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows
from gaam_cache.terminal import Report, counting, silent

DIGEST_BYTES = 16
"""At this width two texts of ten million agree by chance once in 10^24 data sets. BLAKE2 is the
quicker hash for short texts, and these are never kept."""
TOLERATED_TRUNCATED_SHARE = 0.01
LONGEST_LIST = 10
Group = list[tuple[str, int]]  # rows that are the same, each by its split and its index there


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
    seen: dict[str, str] = {}
    alike = ((seen.setdefault(" ".join(n.casefold().split()), n), n) for n in class_names)
    if pairs := [f"{excerpt(one)} and {excerpt(other)}" for one, other in alike if one != other]:
        yield f"classes that differ only in case or white space are kept apart: {_listed(pairs)}"


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
