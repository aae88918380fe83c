"""Rows of the same states and test rows side by side: what reports say, apart from how it looks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TextIO

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder.number_lists import DRAWN_BY, spell_numbers
from gaam_decoder.reports import compare
from gaam_decoder.reports.compare import Pairs
from gaam_decoder.reports.groups import TableGroups, columns_like_groups
from gaam_decoder.reports.rows import (
    DEFAULT,
    Comparison,
    Row,
    Tested,
    rows_by_test,
    score_of,
)
from gaam_decoder.reports.titles import apart
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.result import RunResult, states_of
from gaam_decoder.runs.tuning import Choice, Tuning, choose, reported
from gaam_decoder.stats.scores.base import Score

SEPARATE = "rows of different caches or test rows are not to be compared"
ON_TRAINING_ROWS = "tested on its own training rows"
AT_EDGE = " (edge)"
CACHE_FIELDS = (
    *("fingerprint", "states", "encoder", "dataset"),
    *("layers", "first_layer", "hidden_size", "rows"),
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows of one cache and one set of test rows; rows of different ones are never compared.

    Where all that is there of a cache are final models, which test nothing, it has no rows.
    """

    cache: dict[str, Any]
    apart: str = (
        ""  # what tells the cache from others of the report that go by the same title
    )
    where: str  # which rows are tested, in words
    num_test_rows: int = 0
    rows: tuple[Row, ...] = ()
    baseline: str | None = None  # what differences are to
    incomplete: Sequence[
        str
    ] = ()  # what is not among the rows, because folds of it are missing
    num_tests: Mapping[str, int] = field(default_factory=dict)
    """Comparisons that make a claim, by head, left out ones too: what Holm corrects for."""
    pairs: Pairs | None = (
        None  # rows against every other that differs in one setting alone
    )
    margin: float  # largest difference that does not matter, a fraction or in the score's unit
    score: str
    temperature: bool
    selection: Selection | None  # what was left out of the whole report
    uncounted: int = 0  # runs that were left out unread: Holm corrects for none of them
    finals: tuple[
        dict[str, Any], ...
    ] = ()  # models that are not evaluated, as JSON values
    groups: TableGroups | None = None  # of its test rows; None where nothing is tested
    like_groups: Mapping[str, int] = field(default_factory=dict)
    """Kept columns that look like groups and are not taken for such, by how many values."""
    runs: tuple[RunResult, ...]  # of its rows, and of its final models

    @property
    def shown(self) -> list[Row]:
        """The rows that are shown."""
        return [row for row in self.rows if row.shown]

    @property
    def compared(self) -> list[tuple[Row, Comparison]]:
        """The rows that are compared with the baseline."""
        return [(row, row.compared) for row in self.rows if row.compared]

    @property
    def unit(self) -> Score:
        """The score that is compared, which says how its values are written."""
        return score_of(self.score)

    def title(self) -> str:
        """One line that says what was encoded with what."""
        where = self.where.partition(", groups ")[0] if self.num_groups else self.where
        fold = "" if where == "test split 'test'" else f", {brief(where)}"
        groups = (
            f", {self.groups.in_words()}" if self.groups and self.num_groups else ""
        )
        return f"{self.of_cache}{', ' if self.apart else ''}{self.apart}{fold}{groups}"

    @property
    def of_cache(self) -> str:
        """What a title says of the cache, where no other goes by the same."""
        rows = " + ".join(
            f"{n:,} {brief(name, 40)}" for name, n in self.cache["rows"].items()
        )
        first, count = self.cache.get("first_layer", 1), self.cache["layers"]
        some = "" if first == 1 else f" ({first} to {first + count - 1})"
        return (
            f"{brief(self.cache['dataset'])} ({rows} rows) through {brief(self.cache['encoder'])}, "
            f"{count} layers{some} x {self.cache['hidden_size']}"
        )

    @property
    def num_groups(self) -> int | None:
        """How many groups the test rows are in, where these are the unit; else None."""
        groups = self.groups.groups if self.groups else None
        return None if groups is None else len(groups)

    @property
    def units(self) -> str:
        """What other test sets would have others of: groups, or rows."""
        return "rows" if self.num_groups is None else "groups"

    def beside(self) -> list[str]:
        """What is not in the table: rows that are not shown, and final models."""
        rest = len(self.rows) - len(self.shown)
        said = f"{rest} of {len(self.rows)} rows are not shown, but counted in all that is said; "
        said += "what is shown because its test score is good is better by luck too"
        lines = [said] * bool(rest)
        for one in self.finals:
            failed = f" ({len(one['failed_seeds'])} failed)" * bool(one["failed_seeds"])
            seeds = f"seeds {spell_numbers(one['seeds'])}{failed}: not evaluated"
            name = f"final model {brief(one['attention'])} + {brief(one['head'], 60)}"
            lines.append(f"{name}, {seeds}; in {brief(one['folder'], 200)}")
        return lines

    def _groups_as_json(self) -> dict[str, Any] | None:
        if self.groups is None or self.num_groups is None:
            return None
        return {"number": self.num_groups, "columns": list(self.groups.names)}

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        return {
            "title": self.title(),
            "cache": {
                name: self.cache[name] for name in CACHE_FIELDS if name in self.cache
            },
            "cache_differs_by": self.apart or None,
            "rows": [row.to_dict() for row in self.shown],
            "majority_accuracy": self.rows[0].majority_accuracy if self.rows else None,
            "class_names": self.cache["class_names"],
            "tested_on": self.where,
            "test_rows": self.num_test_rows,
            "groups": self._groups_as_json(),
            "baseline": self.baseline,
            "comparisons_corrected_for": dict(self.num_tests),
            "margin": self.margin,
            "score": self.score,
            "temperature": self.temperature,
            "unchosen_rows": [i for i, row in enumerate(self.shown) if row.unchosen],
            "final_models": list(self.finals),
            "rows_not_shown": len(self.rows) - len(self.shown),
            "selection": self.selection and self.selection.to_dict(),
        }


class Format(ABC):
    """One way to show tables."""

    has_columns: ClassVar[bool] = True  # whether it may be asked for some
    section: str | None = None  # that is shown alone, without the table of accuracies
    columns: Sequence[
        Any
    ] = ()  # of the table, as ``columns.choose`` gives them; (): the usual

    @abstractmethod
    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write all tables to ``stream``."""


def build_tables(
    runs: Sequence[RunResult],
    baseline: str | None = None,
    *,
    margin: float | None = None,
    score: str = DEFAULT,
    temperature: bool = False,
    every_candidate: bool = False,
    top: int | None = None,
    pairs: str | None = None,
    groups: str | None = None,
) -> list[Table]:
    """Group runs by cache and test rows, and runs that differ in their seeds alone into one row.

    Arguments and errors are those of ``report``. What filters left out of ``Runs`` is compared for
    Holm alone, lest a look at the results make p smaller.
    """
    unit = score_of(score)
    margin = unit.margin if margin is None else margin / unit.factor
    if not 0 < margin < unit.highest:
        expected = (
            f"{unit.of_differences} above 0 and below {unit.factor * unit.highest:g}"
        )
        given = f"{unit.factor * margin:g}"
        raise ConfigError("--margin is out of range", expected=expected, found=given)
    selection, beside = getattr(runs, "selection", None), getattr(runs, "others", ())

    def by_test(runs: Sequence[RunResult]) -> tuple[Choice, list[Tested]]:
        choice = Choice(list(runs), {}, ()) if every_candidate else choose(runs)
        evaluated = [run for run in choice.runs if run.evaluated]
        of_tests = rows_by_test(
            evaluated, choice.tunings, score, temperature, groups, beside
        )
        return choice, list(of_tests)

    choice, tested = by_test(runs)
    # by test rows, what filters left out of a table too
    whole = (
        {one.key: one.rows for one in by_test([*runs, *beside])[1]} if beside else {}
    )
    both = [(one.rows, whole.get(one.key, [])) for one in tested]
    chosen = compare.choose_baseline(
        [row for one in tested for row in one.rows], baseline
    )

    def of_baseline(row: Row, rows: Sequence[Row]) -> Row | None:
        return compare.counterpart(row, rows, chosen)

    shared: dict[str, Any] = {"margin": margin, "score": score, "selection": selection}
    shared["temperature"] = temperature
    tables, of_pairs = [], iter(compare.every_pair(both, pairs, margin))
    for one, (rows, all_rows) in zip(tested, both, strict=True):
        compared = compare.compare_all(rows, all_rows, margin, of_baseline)
        probed = compare.compare_all(rows, all_rows, margin, compare.probe_of)
        # the baseline of a row that is shown stays beside it
        kept = [*rows[:top], *(of_baseline(row, rows) for row in rows[:top])]
        told = [
            replace(
                row,
                compared=compared.get(row.key),
                probed=probed.get(row.key),
                unchosen=row.runs[0].key in choice.unchosen,
                candidate=every_candidate and len(rows) > 1,
                shown=any(row is other for other in kept),
            )
            for row in rows
        ]
        table = Table(
            cache=rows[0].runs[0].cache,
            where=one.where,
            num_test_rows=len(one.labels),
            rows=_named(told),
            baseline=chosen
            if any(compare.is_of(row, chosen) for row in rows)
            else None,
            incomplete=one.incomplete,
            num_tests=compare.counts_by_head(rows, compared),
            pairs=next(of_pairs),
            runs=tuple(run for row in rows for run in row.runs),
            uncounted=sum(selection.left_out.values()) - len(beside)
            if selection
            else 0,
            groups=one.groups,
            like_groups=columns_like_groups(one.groups, _share_right(rows), one.labels),
            **shared,
        )
        tables.append(table)
    finals = [run for run in choice.runs if not run.evaluated]
    for states in dict.fromkeys(run.states for run in finals):
        of_cache = [run for run in finals if run.states == states]
        models = tuple(
            _final_model(run, choice.tunings.get(run.key)) for run in of_cache
        )
        where = "final models, which are not evaluated"
        empty = Table(cache=of_cache[0].cache, where=where, runs=(), **shared)
        there = (
            i
            for i, one in enumerate(tables)
            if one.runs and one.runs[0].states == states
        )
        place = next(there, len(tables))
        table = (tables[place:] or [empty])[0]
        tables[place : place + 1] = [
            replace(table, finals=models, runs=(*table.runs, *of_cache))
        ]
    return _told_apart(tables)


def _told_apart(tables: Sequence[Table]) -> list[Table]:
    """The tables, with what differs between caches in titles that would be the same."""
    caches: dict[str, dict[str, dict[str, Any]]] = {}
    for table in tables:
        caches.setdefault(table.of_cache, {})[states_of(table.cache)] = table.cache
    words: dict[str, str] = {}
    for by_states in caches.values():
        if len(by_states) > 1:
            words |= zip(by_states, apart(list(by_states.values())), strict=True)
    return [
        replace(table, apart=words.get(states_of(table.cache), "")) for table in tables
    ]


def _share_right(rows: Sequence[Row]) -> NDArray[np.float64]:
    """What share of all decoders, each with its seeds, is right on each test row, (N,)."""
    trained = [row for row in rows if row.finished and not row.shuffled]
    by_row = [np.asarray(row.accuracy.scored.by_row) for row in trained or rows]
    share_N: NDArray[np.float64] = np.mean(
        [one_SN.mean(0) for one_SN in by_row], axis=0
    )
    return np.nan_to_num(share_N)  # of a row without a finished seed


def _named(rows: Sequence[Row]) -> tuple[Row, ...]:
    """With names as short as can be, and the settings that not all share, or that were tuned."""

    def varies(name: str) -> bool:  # in the rows in which the setting plays a part
        playing = [
            row
            for row in rows
            if name in row.recipe or name in DRAWN_BY or not row.fitted
        ]
        return len({str(row.recipe.get(name)) for row in playing}) > 1

    tuned = {name for row in rows for tuning in row.tunings for name in tuning.names}
    said = {"select", "allow_train_as_test", "shuffle_labels"}  # in words of their own
    known = sorted({name for row in rows for name in row.recipe} - said)
    varied = [name for name in known if name in tuned or varies(name)]
    heads = len({row.head for row in rows if not row.fitted}) > 1
    found = []
    for row in rows:
        name = brief(row.attention) + f" + {brief(row.head, 60)}" * (
            heads or row.fitted
        )
        name += " labels shuffled" * row.shuffled + f" select={row.select}" * (
            row.select != "val"
        )
        there = [one for one in varied if row.recipe.get(one) is not None]
        spelt = {one: brief(f"{one}={row.recipe[one]}") for one in there}
        if len({one.code for one in rows if one.attention == row.attention}) > 1:
            spelt["code"] = row.code
        marked = [text + AT_EDGE * (one in row.at_edge) for one, text in spelt.items()]
        label = f"{name} {', '.join(spelt.values())}"
        found.append(replace(row, name=name, label=label, settings=", ".join(marked)))
    names = [row.name for row in found]
    labels = compare.numbered(
        [r.label.strip() if names.count(r.name) > 1 else r.name for r in found]
    )
    return tuple(
        replace(row, label=label) for row, label in zip(found, labels, strict=True)
    )


def _final_model(run: RunResult, tuning: Tuning | None) -> dict[str, Any]:
    seeds = reported(run.seeds, tuning)
    names = ("attention", "head", "select", "parameters", "recipe")
    return {name: getattr(run, name) for name in names} | {
        "evaluated": False,
        "folder": "/".join(
            run.path.parts[-2:]
        ),  # no more of a path: reports are shown to others
        "seeds": seeds,
        "failed_seeds": [
            {"seed": s, "reason": run.failed[s]} for s in seeds if s in run.failed
        ],
        "runs": [{"path": run.path.name, "key": run.key}],
    }
