"""From finished runs to the tables of a report: what they say, apart from how it looks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TextIO

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_cache.store.digest import digest_of
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports import axes, compare, finals, literature
from gaam_decoder.reports.axes import Beside, beside_alone
from gaam_decoder.reports.compare import Comparison, PairFamily, TablePairs
from gaam_decoder.reports.finals import FinalModel
from gaam_decoder.reports.literature import Published
from gaam_decoder.reports.rows import Part, Row, row_of
from gaam_decoder.reports.unit import DEFAULT, Unit, score_of
from gaam_decoder.runs.filters import Selection
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, Tuning, choose

SEPARATE = "rows of different caches or test rows are not to be compared"
NOT_TESTED = "final models, which are not evaluated"
ON_TRAINING_ROWS = "tested on its own training rows"
CACHE_FIELDS = ("fingerprint", "encoder", "dataset", "layers", "first_layer", "hidden_size", "rows")
SPLITTING = ("train_split", "groups", "split_seed")
"""Settings that, with the number of folds, decide which rows a fold holds."""


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
    pairs: TablePairs | None = None
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
    def published(self) -> tuple[Published | None, ...]:
        """For each row what was published for its data set and mechanism: accuracies."""
        if self.score != DEFAULT:
            return (None,) * len(self.rows)
        return tuple(literature.published(row, self.cache) for row in self.rows)

    @cached_property
    def layers(self) -> tuple[Beside, ...]:
        """Importance of layers beside the accuracy of each alone."""
        return tuple(beside_alone(self.rows))

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
        return axes.settings(self.rows)

    def shows_head(self, row: Row) -> bool:
        """Whether a row is called by its head too."""
        return axes.shows_head(row, self.rows)

    def labels(self) -> list[str]:
        """For every row a name that no other row of the table has, as short as can be."""
        return axes.labels(self.rows)

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
            content["published"] = found.to_dict() if found else None
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
    tune_seeds: Collection[int] | None = None,
    selection: Selection | None = None,
    beside: Sequence[RunResult] = (),
    pairs: str | None = None,
    made: dict[Any, Row] | None = None,
) -> list[Table]:
    """Group runs by cache and test rows, and runs that differ in their seeds alone into one row.

    Of runs that differ in numbers of the recipe alone, validation chooses one.

    Args:
        runs: finished runs; those that were not evaluated are beside the rows, and in nothing else.
        baseline: mechanism to compare with; default: ``none`` where it is among the runs.
        margin: largest difference that does not matter, a fraction, or in the unit of the score;
            default: that of the score.
        score: what is compared.
        temperature: fit one for every seed on the rows that chose its epoch.
        every_candidate: choose nothing: every one is a row.
        tune_seeds: seeds that choose; default: those that were trained to, else all.
        selection: what was left out of the runs.
        beside: those that it left out, as far as they are known: they are in no table, but what
            they were compared in counts for Holm, lest a look at the results make p smaller.
        pairs: setting in which the rows of a pair differ; default: the mechanism.
        made: rows that were made already, of which what filters leave has some.

    Raises:
        ConfigError: no run of the baseline that was asked for, no such score, or no rows differ in
            that setting.
        CacheError: a run is damaged.
    """
    margin = score_of(score).margin if margin is None else margin
    how: dict[str, Any] = {"margin": margin, "score": score, "temperature": temperature}
    made, every = {} if made is None else made, [*runs, *beside]
    tunings: Mapping[str, Tuning] = {}
    unchosen: tuple[str, ...] = ()
    if not every_candidate:
        runs, tunings, unchosen = choose(runs, tune_seeds)
    found = _by_test_rows([run for run in runs if run.evaluated], tunings)
    row_lists = [
        sorted(
            (row_of(parts, tunings, score, temperature, made) for parts in of.groups), key=_place
        )
        for of in found
    ]
    unevaluated = [run for run in runs if not run.evaluated]
    chosen = compare.choose_baseline(
        [row for rows in row_lists for row in rows],
        baseline,
        {run.attention for run in unevaluated},
    )
    family: list[Table] = []
    if beside:
        again: dict[str, Any] = {"every_candidate": every_candidate, "tune_seeds": tune_seeds}
        family = build_tables(every, chosen, pairs=pairs, made=made, **how, **again)
    compared = [
        [None] * len(rows) if chosen is None else compare.against_baseline(rows, chosen, margin)
        for rows in row_lists
    ]
    others = [c for table in family for c in table.comparisons]
    corrected, num_tests = compare.corrected(compared, others)
    hidden = [table.pairs.family for table in family[:1] if table.pairs]
    every_pair = PairFamily(row_lists, pairs, margin, hidden)
    tables = []
    for place, (of, rows) in enumerate(zip(found, row_lists, strict=True)):
        cache = rows[0].runs[0].cache
        probed = [
            claim
            for table in family
            if (table.where, table.cache["fingerprint"]) == (of.where, cache["fingerprint"])
            for claim in table.against_probe
        ]
        tables.append(
            Table(
                cache=cache,
                majority_accuracy=_majority(of.groups[0]),
                where=of.where,
                num_test_rows=rows[0].scores.by_row.shape[1],
                rows=tuple(rows),
                baseline=chosen if any(compare.is_of(row, chosen) for row in rows) else None,
                incomplete=of.incomplete,
                comparisons=corrected[place],
                against_probe=compare.against_probe(rows, margin, probed),
                num_tests=num_tests,
                pairs=TablePairs(every_pair, place),
                uncounted=sum(selection.left_out.values()) - len(beside) if selection else 0,
                unchosen=tuple(i for i, row in enumerate(rows) if row.runs[0].key in unchosen),
                selection=selection,
                **how,
            )
        )
    fingerprints = [table.cache["fingerprint"] for table in tables]
    tested = [(f, t.where, t.rows) for f, t in zip(fingerprints, tables, strict=True)]
    beside_rows, alone = finals.placed(unevaluated, tested, tunings)
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


def _majority(parts: Sequence[Part]) -> float:
    """Accuracy of the majority class, over all folds if there are several."""
    sizes = [len(part[0].labels) for part in parts]
    right = sum((p[0].majority_accuracy or 0) * n for p, n in zip(parts, sizes, strict=True))
    return right / sum(sizes)


class _Tested(NamedTuple):
    """What may stand in one table."""

    where: str
    groups: list[tuple[Part, ...]]
    """For every mechanism and recipe its runs in one part, or in as many as there are folds."""
    incomplete: tuple[str, ...] = ()


def _by_test_rows(runs: Sequence[RunResult], apart: Container[str]) -> list[_Tested]:
    """Runs by the rows that test them.

    Rows of different folds are different test rows. Where all folds of a mechanism are there, its
    test rows are put one after the other, so that every row of the split is tested once, by
    decoders that did not learn from it; else a fold is a table of its own. Cross-validations with
    other folds of the same rows are repeats, and one table too.

    Args:
        runs: all of them.
        apart: keys whose numbers were chosen, and may be others in every fold.
    """
    alone: dict[Any, dict[str, list[RunResult]]] = {}
    folds: dict[Any, dict[str, dict[int, list[list[RunResult]]]]] = {}
    for run in runs:
        shared = run.recipe.get("test_split"), run.recipe.get("fold"), _partition(run)
        # labels alone may agree by accident
        key = (*shared, run.majority_accuracy, digest_of(run.labels.tobytes()))
        alone.setdefault(key, {}).setdefault(run.key, []).append(run)
        if run.recipe.get("fold") is not None:
            of = folds.setdefault(_partition(run), {}).setdefault(_name(run, apart, "fold"), {})
            of.setdefault(int(run.recipe["fold"].partition("/")[0]), [[]])[0].append(run)
    whole: dict[Any, _Tested] = {}
    repeats: dict[Any, dict[str, dict[int, tuple[Part, ...]]]] = {}
    for partition, by_name in folds.items():
        groups, incomplete = _complete(by_name, range(1, int(partition[1]) + 1), "")
        if groups:
            where = f"all {partition[1]} folds{_split(groups[0][0][0])}"
            whole[partition] = _Tested(where, groups, incomplete)
        for parts in groups:
            name = _name(parts[0][0], apart, "fold", "split_seed")
            of_name = repeats.setdefault(partition[:-1], {}).setdefault(name, {})
            of_name[int(parts[0][0].recipe.get("split_seed") or 0)] = parts
    tables = []
    repeated = set()
    for common, of_names in repeats.items():
        seeds = sorted({seed for by_seed in of_names.values() for seed in by_seed})
        groups, incomplete = _complete(of_names, seeds, " repeats")
        if len(seeds) > 1 and groups:
            of_split = _split(groups[0][0][0], split_seed=False)
            spelt = f"{len(seeds)} times {common[1]} folds{of_split}, split seeds "
            tables.append(_Tested(spelt + spell_numbers(seeds), groups, incomplete))
            repeated.add(common)
    tables += [tested for key, tested in whole.items() if key[:-1] not in repeated]
    for by_key in alone.values():
        first = next(iter(by_key.values()))[0]
        fold = first.recipe.get("fold")
        if fold is None or _partition(first) not in whole:  # else a part of what is there
            where = f"test split '{first.recipe.get('test_split', 'test')}'"
            where = f"fold {fold.replace('/', ' of ')}{_split(first)}" if fold else where
            tables.append(_Tested(where, [(part,) for part in by_key.values()]))
    return tables


def _complete(
    by_name: Mapping[str, Mapping[int, Sequence[Part]]], needed: Sequence[int], what: str
) -> tuple[list[tuple[Part, ...]], tuple[str, ...]]:
    """The parts of what has all that is needed, and the names of what has not."""
    groups, incomplete = [], []
    for of in by_name.values():
        parts = tuple(part for number in sorted(of) for part in of[number])
        if set(of) == set(needed):
            groups.append(parts)
        else:
            first, count = parts[0][0], f"{len(of)} of {len(needed)}{what}"
            incomplete.append(f"{brief(first.attention)} + {brief(first.head)} ({count})")
    return groups, tuple(sorted(incomplete))


def _partition(run: RunResult) -> tuple[str, ...]:
    """What runs must share to be folds of one cross-validation; the split seed is the last."""
    count = str(run.recipe.get("fold") or "").partition("/")[2]
    splitting = [str(run.recipe.get(name)) if count else "" for name in SPLITTING]
    return run.cache["fingerprint"], count, *splitting


def _name(run: RunResult, apart: Container[str], *without: str) -> str:
    """What the folds of one row have in common."""
    left_out = (*without, *TUNED) if run.key in apart else without
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


SORTS: dict[str, Callable[[Row, Comparison | None], float | None]] = {
    "score": lambda row, found: row.chosen_mean,
    "accuracy": lambda row, found: row.mean,
    "difference": lambda row, found: found.claim.difference if found else None,
    "name": lambda row, found: 0.0,
    "parameters": lambda row, found: row.parameters["total"],
    "seconds": lambda row, found: row.seconds_per_seed,
}
"""What ``report(sort=)`` takes: the best by what is compared or by accuracy, the largest
difference, the fewest or the fastest first; what is equal, and ``name``, in the order of names."""


def _ranked(table: Table, sort: str) -> list[int]:
    """Places of the rows."""
    smaller = not table.unit.score.larger_is_better and sort != "accuracy"
    sign = 1 if smaller or sort in ("parameters", "seconds") else -1
    pairs = zip(table.rows, table.comparisons, strict=True)
    values = [SORTS[sort](row, found) for row, found in pairs]
    keys = [math.inf if value is None else sign * value for value in values]
    return sorted(range(len(keys)), key=keys.__getitem__)


def check_order(sort: str | None, top: int | None) -> None:
    """Whether these can be meant.

    Raises:
        ConfigError: they cannot.
    """
    if sort is not None and sort not in SORTS:
        names = ", ".join(SORTS)
        raise ConfigError(f"--sort knows no '{sort}'", expected=f"one of: {names}", found=sort)
    if top is not None and (not isinstance(top, int) or isinstance(top, bool) or top < 1):
        raise ConfigError("--top is out of range", expected="a number from 1 on", found=str(top))


def laid_out(table: Table, sort: str | None, top: int | None) -> Table:
    """The table with its rows in order, by score, and ``shown`` where no more than ``top`` are.

    The baseline of a row that is shown stays beside it. All rows stay in the table: statistics,
    warnings and what Holm corrects for are of all of them, whatever is shown.
    """
    if table.rows:
        places = _ranked(table, sort or "score")
        table = replace(
            table,
            rows=tuple(table.rows[place] for place in places),
            comparisons=tuple(table.comparisons[place] for place in places),
            against_probe=tuple(table.against_probe[place] for place in places),
            unchosen=tuple(sorted(places.index(place) for place in table.unchosen)),
        )
    if top is None:
        return table
    kept = _ranked(table, "score" if sort in (None, "name") else str(sort))[:top]
    of = [compare.counterpart(table.rows[p], table.rows, str(table.baseline))
          for p in kept if table.comparisons[p] is not None]  # fmt: skip
    theirs = {place for place, row in enumerate(table.rows) if any(row is one for one in of)}
    return replace(table, shown=tuple(sorted({*kept, *theirs})))


def check_fitted(tables: Sequence[Table]) -> None:
    """Refuse a report without any row of which a temperature could be fitted.

    Raises:
        ConfigError: there is none.
    """
    if not any(row.scores.temperatures for table in tables for row in table.rows):
        raise ConfigError(
            "no run has what a temperature is fitted on",
            expected="runs of --select val, which keep the logits of the rows that chose",
            hint="leave out --temperature, or train again with --select val",
        )
