"""Rows that differ in one setting alone, each compared with each over seeds and test rows.

Of many rows the most accurate are compared, and Holm corrects for all pairs that there are, as if
those that were not compared had shown nothing: so choosing them by accuracy makes no p too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.comparisons.pair_axis import (
    ALL,
    Same,
    axis_of,
    together,
    unvaried,
    value_of,
)
from gaam_decoder.reports.table.row_names import numbered
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.stats.scored import Scored, claim_by_score

MOST_VALUES = 12
"""Rows of a group that are compared, 66 pairs: a matrix that can be read, in a second."""
MOST_GROUPS = 8
"""Groups of a table that are compared, those of most rows first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One row minus another; ``first`` and ``second`` are places in the group."""

    first: int
    second: int
    seeds: tuple[int, ...]
    claim: stats.Claim

    def to_dict(self, labels: Sequence[str]) -> dict[str, Any]:
        """JSON values, fractions."""
        claim = self.claim
        return {
            "first": labels[self.first],
            "second": labels[self.second],
            "paired_seeds": list(self.seeds),
            "difference": claim.difference,
            "ci95_seeds_and_rows": list(claim.interval) if claim.interval else None,
            "p": claim.p,
            "p_holm": claim.p_holm,
            "p_equivalent": claim.p_equivalent,
            "p_equivalent_holm": claim.p_equivalent_holm,
            "verdict": claim.verdict,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Rows that differ in one setting alone, the most accurate first, and all pairs of them."""

    name: str
    """What they share and other groups do not; may be ''."""
    labels: tuple[str, ...]
    """Their values of the setting."""
    rows: tuple[Row, ...] = field(repr=False)
    pairs: tuple[Pair, ...]
    left_out: int
    """Rows that are not as good, which are compared with nothing."""


class PairFamily:
    """All pairs of a report, which are corrected for one another."""

    def __init__(
        self,
        row_lists: Sequence[Sequence[Row]],
        axis: str | None,
        margin: float,
        beside: Sequence[PairFamily] = (),
    ) -> None:
        """Find the pairs; nothing is compared yet.

        Args:
            row_lists: rows of every table.
            axis: setting in which they differ, or several with commas; None: the mechanism, if it
                does.
            margin: largest difference that does not matter, a fraction.
            beside: pairs of runs that filters left out too.

        Raises:
            ConfigError: no rows differ in that setting alone.
        """
        self.axis = axis_of(axis)
        self._margin = margin
        self._sets = [together(rows, self.axis) for rows in row_lists]
        if axis is not None and not any(self._sets):
            raise unvaried(row_lists, axis)
        self.keys = {key for sets in self._sets for key in _keys(sets)}
        self.keys = self.keys.union(*(family.keys for family in beside))

    @property
    def num_tests(self) -> int:
        """Pairs with seeds enough for a claim: what Holm corrects for."""
        return len(self.keys)

    def has(self, place: int) -> bool:
        """Whether a table has pairs."""
        return bool(self._sets[place])

    def count(self, place: int) -> int:
        """Groups of rows of a table, whether they are compared or not."""
        return len(self._sets[place])

    @cached_property
    def tables(self) -> list[tuple[Group, ...]]:
        """Groups of every table, compared and corrected."""
        made = [tuple(self._compared(sets)) for sets in self._sets]
        claims = [pair.claim for groups in made for group in groups for pair in group.pairs]
        counted = sum(claim.testable or claim.silent for claim in claims)
        corrected = iter(stats.holm_corrected(claims, max(0, self.num_tests - counted)))
        return [
            tuple(
                replace(
                    group,
                    pairs=tuple(replace(pair, claim=next(corrected)) for pair in group.pairs),
                )
                for group in groups
            )
            for groups in made
        ]

    def _compared(self, sets: dict[Same, list[Row]]) -> Iterator[Group]:
        shared = set.intersection(*(set(same) for same in sets)) if sets else set()
        some = {key for same in sets for key, _ in same} & set(ALL)
        kept = sorted(sets.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]
        for same, rows in kept:
            best = sorted(rows, key=_place)[:MOST_VALUES]
            told = [brief(value) if key == "attn" else brief(f"{key}={value}")
                    for key, value in same
                    if key == "attn" or (key, value) not in shared]  # fmt: skip
            told += [f"{key}=all" for key in sorted(some - {key for key, _ in same})]
            pairs = []
            for first, second in combinations(range(len(best)), 2):
                seeds = _seeds(best[first], best[second])
                if seeds:
                    claim = claim_by_score(
                        best[first].score,
                        _scored(best[first], seeds),
                        _scored(best[second], seeds),
                        margin=self._margin,
                    )
                    pairs.append(Pair(first=first, second=second, seeds=seeds, claim=claim))
            yield Group(
                name=", ".join(told),
                labels=tuple(numbered([brief(value_of(row, self.axis), 60) for row in best])),
                rows=tuple(best),
                pairs=tuple(pairs),
                left_out=len(rows) - len(best),
            )


@dataclass(frozen=True, slots=True)
class TablePairs:
    """The pairs of one table of a report."""

    family: PairFamily
    place: int

    @property
    def there(self) -> bool:
        """Whether there are any; nothing is compared for that."""
        return self.family.has(self.place)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Compared and corrected, once for all that ask."""
        return self.family.tables[self.place]

    @property
    def groups_left_out(self) -> int:
        """Groups of rows that are not compared, beyond ``MOST_GROUPS``."""
        return self.family.count(self.place) - len(self.groups)


def _keys(sets: dict[Same, list[Row]]) -> Iterator[frozenset[str]]:
    """What makes each pair that can be claimed the same as in another report."""
    for rows in sets.values():
        for one, other in combinations(rows, 2):
            if len(_seeds(one, other)) >= stats.LEAST_SEEDS and one.scores.by_row.shape[1] > 1:
                yield frozenset({key_of(one), key_of(other)})


def key_of(row: Row) -> str:
    """What tells a row from every other of all reports."""
    fingerprint = row.runs[0].cache["fingerprint"]
    return repr((fingerprint, row.attention, row.head, sorted(row.recipe.items())))


def _seeds(one: Row, other: Row) -> tuple[int, ...]:
    return tuple(seed for seed in one.scores.seeds if seed in other.scores.seeds)


def _scored(row: Row, seeds: Sequence[int]) -> Scored:
    return row.scores.chosen.scored.chosen([row.scores.seeds.index(seed) for seed in seeds])


def _place(row: Row) -> float:
    """The best first."""
    mean = row.chosen_mean or 0.0
    return -mean if row.score.larger_is_better else mean
