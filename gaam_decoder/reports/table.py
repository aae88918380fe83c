"""From finished runs to the tables of a report: what they say, apart from how it looks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TextIO

from gaam_cache.messages import brief
from gaam_cache.store.digest import digest_of
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports import compare, finals, labels, literature
from gaam_decoder.reports.compare import Comparison, Pairs
from gaam_decoder.reports.finals import FinalModel
from gaam_decoder.reports.rows import Part, Row, row_of
from gaam_decoder.reports.unit import DEFAULT, Unit, score_of
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, Choice, choose

SEPARATE = "rows of different caches or test rows are not to be compared"
NOT_TESTED = "final models, which are not evaluated"
ON_TRAINING_ROWS = "tested on its own training rows"
CACHE_FIELDS = ("fingerprint", "encoder", "dataset", "layers", "first_layer", "hidden_size", "rows")


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows of one cache and one set of test rows; rows of different ones are never compared.

    Where all that is there of a cache are final models, which test nothing, it has no rows.
    """

    cache: dict[str, Any]
    majority_accuracy: float | None = None
    where: str
    """Which rows are tested, in words."""
    num_test_rows: int = 0
    rows: tuple[Row, ...] = ()
    baseline: str | None = None
    """What differences are to; None where nothing is compared."""
    incomplete: tuple[str, ...] = ()
    """What is not among the rows, because folds of it are missing."""
    comparisons: tuple[Comparison | None, ...] = ()
    """One for each row; None for the baseline, and where it has no counterpart."""
    against_probe: tuple[stats.Claim | None, ...] = ()
    """Every row minus the linear probe on the same states; None where there is none."""
    num_tests: int = 0
    """Comparisons of the whole report that make a claim: what Holm corrects for."""
    pairs: Pairs | None = None
    """Every row against every other that differs from it in one setting alone."""
    margin: float
    """Largest difference that does not matter, a fraction; or in the unit of the score."""
    score: str = DEFAULT
    temperature: bool = False
    uncounted: int = 0
    """Runs that were left out before anything was read of them; Holm corrects for none of them."""
    shown: tuple[int, ...] | None = None
    """Places of the rows that are shown; None: all. Whatever is said is said of all rows."""
    unchosen: tuple[int, ...] = ()
    """Places of the rows that are candidates between which nothing could choose."""
    selection: Selection | None = None
    """What was left out of the whole report."""
    finals: tuple[FinalModel, ...] = ()
    """Final models of the rows, and others of the cache that no row is the recipe of."""

    @property
    def places(self) -> tuple[int, ...]:
        """Places of the rows that are shown."""
        return tuple(range(len(self.rows))) if self.shown is None else self.shown

    @property
    def unit(self) -> Unit:
        """How values of the score that is compared are written."""
        return Unit(score_of(self.score))

    @property
    def published(self) -> tuple[dict[str, Any] | None, ...]:
        """For each row what was published for its data set and mechanism: accuracies."""
        if self.score != DEFAULT:
            return (None,) * len(self.rows)
        return tuple(literature.published(row, self.cache) for row in self.rows)

    def title(self) -> str:
        """One line that says what was encoded with what."""
        rows = " + ".join(f"{n:,} {brief(name, 40)}" for name, n in self.cache["rows"].items())
        zero = "" if self.cache.get("first_layer", 1) else f" (0 to {self.cache['layers'] - 1})"
        fold = "" if self.where == "test split 'test'" else f", {brief(self.where)}"
        return (
            f"{brief(self.cache['dataset'])} ({rows} rows) through {brief(self.cache['encoder'])}, "
            f"{self.cache['layers']} layers{zero} x {self.cache['hidden_size']}{fold}"
        )

    def settings(self) -> list[str]:
        """For every row the settings that not all rows share, such as ``lr=0.001``."""
        return labels.settings(self.rows)

    def shows_head(self, row: Row) -> bool:
        """Whether a row is called by its head too."""
        return labels.shows_head(row, self.rows)

    def labels(self) -> list[str]:
        """For every row a name that no other row of the table has, as short as can be."""
        return labels.labels(self.rows)

    def all_runs(self) -> list[RunResult]:
        """Those of its rows, and of its final models."""
        runs = [run for row in self.rows for run in row.runs]
        return runs + [run for final in self.finals for run in final.runs]

    def left_out(self) -> str:
        """What is said of the rows that are not shown; '' where all are."""
        rest = len(self.rows) - len(self.places)
        rows = "row is" if rest == 1 else "rows are"
        said = (
            f"{rest} of {len(self.rows)} {rows} not shown, but counted in all that is said; what "
        )
        return (said + "is shown because its test score is good is better by luck too") * bool(rest)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        rows = []
        columns = (self.rows, self.comparisons, self.published, self.against_probe)
        for row, comparison, found, claim in zip(*columns, strict=True):
            content = row.to_dict()
            content["comparison"] = comparison.to_dict() if comparison else None
            content["published"] = found
            if self.temperature:
                by = row.scores.temperatures
                content["temperature"] = by.to_dict() if by else None
            content["against_probe"] = compare.claim_values(claim) if claim else None
            rows.append(content)
        return {
            "cache": {name: self.cache[name] for name in CACHE_FIELDS if name in self.cache},
            "rows": [rows[place] for place in self.places],
            **({"rows_not_shown": len(rows) - len(self.places)} if self.shown is not None else {}),
            "majority_accuracy": self.majority_accuracy,
            "class_names": self.cache["class_names"],
            "tested_on": self.where,
            "test_rows": self.num_test_rows,
            "baseline": self.baseline,
            "comparisons_corrected_for": self.num_tests,
            "margin": self.margin,
            "score": self.score,
            **({"temperature": True} if self.temperature else {}),
            "unchosen_rows": [i for i, p in enumerate(self.places) if p in self.unchosen],
            **({"selection": self.selection.to_dict()} if self.selection else {}),
            "final_models": [final.to_dict() for final in self.finals],
        }


class Format(ABC):
    """One way to show tables."""

    says_selection: ClassVar[bool] = True
    """Whether it says in words what was left out of the report."""

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
    selection: Selection | None = None,
    beside: Sequence[RunResult] = (),
    pairs: str | None = None,
) -> list[Table]:
    """Group runs by cache and test rows, and runs that differ in their seeds alone into one row.

    Arguments and errors are those of ``report``; ``margin`` is a fraction, or in the unit of the
    score. What ``selection`` left out, ``beside``, is in no table, but what it was compared in
    counts for Holm, lest a look at the results make p smaller.
    """
    margin = score_of(score).margin if margin is None else margin
    how: dict[str, Any] = {"margin": margin, "score": score, "temperature": temperature}
    made: dict[Any, Row] = {}

    def rows_of(runs: Sequence[RunResult]) -> tuple[list[_Tested], list[list[Row]], Choice]:
        choice = Choice(list(runs), {}, ()) if every_candidate else choose(runs)
        of = _by_test_rows([run for run in choice.runs if run.evaluated], choice.tunings)
        rows = [
            [row_of(parts, choice.tunings, score, temperature, made) for parts in one.groups]
            for one in of
        ]
        return of, [sorted(one, key=_place) for one in rows], choice

    found, row_lists, choice = rows_of(runs)
    unevaluated = [run for run in choice.runs if not run.evaluated]
    chosen = compare.choose_baseline(
        [row for rows in row_lists for row in rows],
        baseline,
        {run.attention for run in unevaluated},
    )
    # what filters left out is compared too, for Holm alone
    all_found, all_rows, _ = rows_of([*runs, *beside]) if beside else ([], [], None)
    compared = [compare.against_baseline(rows, chosen, margin) for rows in row_lists]
    others = [c for rows in all_rows for c in compare.against_baseline(rows, chosen, margin)]
    claims = compare.corrected(
        [c.claim if c else None for table in compared for c in table],
        [c.claim if c else None for c in others],
    )
    told = iter(claims)
    settled: list[list[Any]] = [[(c, next(told)) for c in table] for table in compared]
    probed = {
        (of.where, rows[0].runs[0].cache["fingerprint"]): compare.against_probe(rows, margin)
        for of, rows in zip(all_found, all_rows, strict=True)
    }
    every_pair = compare.every_pair(row_lists, pairs, margin, all_rows)
    tables = []
    for place, (of, rows) in enumerate(zip(found, row_lists, strict=True)):
        cache = rows[0].runs[0].cache
        tested_rows = sum(len(part[0].labels) for part in of.groups[0])
        hidden = probed.get((of.where, cache["fingerprint"]), ())
        tables.append(
            Table(
                cache=cache,
                majority_accuracy=sum(
                    (part[0].majority_accuracy or 0) * len(part[0].labels) / tested_rows
                    for part in of.groups[0]
                ),
                where=of.where,
                num_test_rows=rows[0].scores.accuracy.scored.by_row.shape[1],  # type: ignore[union-attr]
                rows=tuple(rows),
                baseline=chosen if any(compare.is_of(row, chosen) for row in rows) else None,
                incomplete=of.incomplete,
                comparisons=tuple(c and replace(c, claim=claim) for c, claim in settled[place]),
                against_probe=tuple(compare.corrected(compare.against_probe(rows, margin), hidden)),
                num_tests=max((c.num_tests for c in claims if c and c.testable), default=0),
                pairs=every_pair[place],
                uncounted=sum(selection.left_out.values()) - len(beside) if selection else 0,
                unchosen=tuple(
                    i for i, row in enumerate(rows) if row.runs[0].key in choice.unchosen
                ),
                selection=selection,
                **how,
            )
        )
    tested = [(table.cache["fingerprint"], table.where, table.rows) for table in tables]
    beside_rows, alone = finals.placed(unevaluated, tested, choice.tunings)
    tables = [replace(table, finals=of) for table, of in zip(tables, beside_rows, strict=True)]
    about: dict[str, Any] = how | {"where": NOT_TESTED, "temperature": False}
    return tables + [
        Table(cache=of[0].runs[0].cache, finals=of, selection=selection, **about) for of in alone
    ]


def _place(row: Row) -> tuple[Any, ...]:
    """Where a row stands; those on some layers come after those on all, more rows after fewer."""
    on_some = row.recipe.get("layers") is not None
    size = math.inf if row.drawn is None else row.drawn
    return on_some, row.attention, row.head, row.select, size, str(row.recipe)


class _Tested(NamedTuple):
    """What may stand in one table."""

    where: str
    groups: Sequence[tuple[Part, ...]]
    """For every mechanism and recipe its runs in one part, or in as many as there are folds."""
    incomplete: tuple[str, ...] = ()


def _by_test_rows(runs: Sequence[RunResult], apart: Container[str]) -> list[_Tested]:
    """Runs by the rows that test them; ``apart`` may have other numbers in every fold.

    Rows of different folds are different test rows. Where all folds of a mechanism are there, its
    test rows are put one after the other, so that every row of the split is tested once, by
    decoders that did not learn from it; else a fold is a table of its own. Cross-validations with
    other folds of the same rows are repeats, and one table too.
    """
    # by what folds must share, by what a row is, by split seed and fold
    folds: dict[Any, dict[str, dict[tuple[int, int], list[RunResult]]]] = {}
    for run in runs:
        if run.recipe.get("fold") is not None:
            place = (
                int(run.recipe.get("split_seed") or 0),
                int(run.recipe["fold"].partition("/")[0]),
            )
            of = folds.setdefault(_partition(run), {}).setdefault(_name(run, apart), {})
            of.setdefault(place, []).append(run)
    tables, whole = [], set()
    for partition, by_name in folds.items():
        count = int(partition[1])
        seeds = sorted({seed for of in by_name.values() for seed, _ in of})
        complete = [
            seed
            for seed in seeds
            if any(all((seed, n) in of for n in range(1, count + 1)) for of in by_name.values())
        ]
        whole |= {(partition, seed) for seed in complete}
        for some in [complete, *([seed] for seed in complete)] if complete else ():
            needed = [(seed, n) for seed in some for n in range(1, count + 1)]
            groups = [
                tuple(of[place] for place in needed)
                for of in by_name.values()
                if all(place in of for place in needed)
            ]
            if not groups:
                continue
            of_split = _split(groups[0][0][0], split_seed=len(some) == 1)
            where = f"all {count} folds{of_split}"
            if len(some) > 1:
                where = f"{len(some)} times {count} folds{of_split}, split seeds "
                where += spell_numbers(some)
            tables.append(_Tested(where, groups, _incomplete(by_name, needed)))
            if len(some) > 1 or len(complete) == 1:
                break
    alone: dict[Any, dict[str, list[RunResult]]] = {}
    for run in runs:
        fold, seed = run.recipe.get("fold"), int(run.recipe.get("split_seed") or 0)
        if fold is None or (_partition(run), seed) not in whole:  # else a part of what is there
            shared = run.recipe.get("test_split"), fold, _partition(run), seed * bool(fold)
            # labels alone may agree by accident
            key = (*shared, run.majority_accuracy, digest_of(run.labels.tobytes()))
            alone.setdefault(key, {}).setdefault(run.key, []).append(run)
    for by_key in alone.values():
        first = next(iter(by_key.values()))[0]
        fold = first.recipe.get("fold")
        where = f"test split '{first.recipe.get('test_split', 'test')}'"
        where = f"fold {fold.replace('/', ' of ')}{_split(first)}" if fold else where
        tables.append(_Tested(where, [(part,) for part in by_key.values()]))
    return tables


def _incomplete(
    by_name: Mapping[str, Mapping[tuple[int, int], Part]], needed: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """The names of what has some of the folds that are needed, and not all."""
    found = []
    for of in by_name.values():
        there, run = sum(place in of for place in needed), next(iter(of.values()))[0]
        if 0 < there < len(needed):
            name = f"{brief(run.attention)} + {brief(run.head)}"
            found.append(f"{name} ({there} of {len(needed)})")
    return tuple(sorted(found))


def _partition(run: RunResult) -> tuple[str, ...]:
    """What runs must share to be folds of one cross-validation, or of its repeats."""
    count = str(run.recipe.get("fold") or "").partition("/")[2]
    splitting = [str(run.recipe.get(name)) if count else "" for name in ("train_split", "groups")]
    return run.cache["fingerprint"], count, *splitting


def _name(run: RunResult, apart: Container[str]) -> str:
    """What the folds of one row have in common."""
    left_out = ("fold", "split_seed", *(TUNED if run.key in apart else ()))
    rest = sorted((k, str(v)) for k, v in run.recipe.items() if k not in left_out)
    return repr((run.attention, run.head, rest))


def _split(run: RunResult, *, split_seed: bool = True) -> str:
    """Of what the folds are, and what else decides which rows they hold."""
    text = f" of the '{run.recipe.get('train_split', 'train')}' split"
    if split_seed and (seed := run.recipe.get("split_seed")):
        text += f", split seed {seed}"
    if groups := run.recipe.get("groups"):
        text += f", groups {str(groups)[:8]} kept together"
    return text


def laid_out(table: Table, top: int | None) -> Table:
    """The table with its rows by score, and ``shown`` where no more than ``top`` are.

    The baseline of a row that is shown stays beside it. All rows stay in the table: statistics,
    warnings and what Holm corrects for are of all of them, whatever is shown.
    """
    if table.rows:
        sign = -1 if table.unit.score.larger_is_better else 1
        means = [row.scores.chosen.mean for row in table.rows]
        keys = [math.inf if mean is None else sign * mean for mean in means]
        places = sorted(range(len(keys)), key=keys.__getitem__)
        table = replace(
            table,
            rows=tuple(table.rows[place] for place in places),
            comparisons=tuple(table.comparisons[place] for place in places),
            against_probe=tuple(table.against_probe[place] for place in places),
            unchosen=tuple(sorted(places.index(place) for place in table.unchosen)),
        )
    if top is None:
        return table
    compared = [row for row, c in zip(table.rows[:top], table.comparisons, strict=False) if c]
    theirs = [compare.counterpart(row, table.rows, str(table.baseline)) for row in compared]
    every = enumerate(table.rows)
    kept = [place for place, row in every if place < top or any(row is one for one in theirs)]
    return replace(table, shown=tuple(kept))
