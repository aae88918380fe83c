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

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.table.row_names import numbered
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.runs.tuning import TUNED
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


DEFAULT = "attn"
ALL = ("layers", "train_rows", "shots")
"""Settings that mean all of them where a recipe has none."""
Same = tuple[tuple[str, str], ...]


def axis_of(asked: str | None) -> str:
    """The settings as recipes call them, with commas between them; None: the mechanism."""
    names = [name.strip().lower().replace("-", "_") for name in (asked or DEFAULT).split(",")]
    return ",".join(dict.fromkeys(filter(None, names))) or DEFAULT


def value_of(row: Row, axis: str) -> str:
    """What a row has of the settings; of what its recipe does not name, the default."""
    return ", ".join(str(_one(row, name)) for name in axis.split(","))


def _one(row: Row, name: str) -> Any:
    if name == "attn":
        return row.attention
    if name == "head":
        return row.head
    value = row.recipe.get(name, row.runs[0].setting(name))
    return "all" if value is None and name in ALL else value


def together(rows: Sequence[Row], axis: str) -> dict[Same, list[Row]]:
    """Rows by all that they share; those of one row alone are not there.

    What was tuned of rows may differ. Rows of a fit, of shuffled labels and without a finished seed
    are of none.
    """
    names = set(axis.split(","))
    found: dict[Same, list[Row]] = {}
    for row in rows:
        if row.fitted or row.shuffled or row.chosen_mean is None:
            continue
        if row.tunings and names & set(TUNED):
            continue
        apart = {*names, *(TUNED if row.tunings else ())}
        scaled = row.score.of_sizes and row.scores.temperatures is not None
        same = {"attn": row.attention, "head": row.head, "tuned": bool(row.tunings)} | row.recipe
        same["scaled logits"] = scaled  # see ``same_scale``
        key = tuple(
            sorted((k, str(v)) for k, v in same.items() if k not in apart and v is not None)
        )
        found.setdefault(key, []).append(row)
    return {key: of for key, of in found.items() if len({value_of(row, axis) for row in of}) > 1}


def unvaried(row_lists: Sequence[Sequence[Row]], axis: str) -> ConfigError:
    """The error of an axis along which no two rows differ."""
    names = {"attn", "head"}.union(*(row.recipe for rows in row_lists for row in rows))
    there = sorted(name for name in names if any(together(rows, name) for rows in row_lists))
    every = [row for rows in row_lists for row in rows]
    if every and all(row.chosen_mean is None for row in every):
        return ConfigError(
            "no row has the score that is to be compared",
            expected="finished seeds, and a score that these classes have",
            found=f"none of {len(every)} rows",
            hint="--score names another score; gaam report without --pairs says what failed",
        )
    tuned = any(row.tunings for row in every)
    option = any(f"{axis}=" in row.attention for row in every)
    return ConfigError(
        f"no two rows differ in '{axis}' alone",
        expected=f"one of: {', '.join(name.replace('_', '-') for name in there)}"
        if there
        else "rows that differ in one setting alone",
        found=f"--pairs {axis}",
        hint="it is an option of mechanisms, whose forms --pairs attn compares"
        if option
        else "what validation chose does not vary; --all shows every candidate"
        if tuned
        else None,
    )
