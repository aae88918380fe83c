"""From finished runs to the tables of a report: what they say, apart from how it looks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, TextIO

from gaam_cache.messages import brief
from gaam_cache.store.digest import digest_of
from gaam_decoder.number_lists import DRAWN_BY, spell_numbers
from gaam_decoder.reports import compare
from gaam_decoder.reports.compare import Pairs
from gaam_decoder.reports.rows import Comparison, Part, Row, Scores, row_of
from gaam_decoder.reports.unit import DEFAULT, Unit, numbered, percent, score_of
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import OF_TEST, TUNED, Choice, Tuning, choose, first_runs, reported

SEPARATE = "rows of different caches or test rows are not to be compared"
NOT_TESTED = "final models, which are not evaluated"
ON_TRAINING_ROWS = "tested on its own training rows"
SHUFFLED = "labels shuffled"
AT_EDGE = " (edge)"
UNSPELT = ("select", "allow_train_as_test", "shuffle_labels")
"""Settings that rows are marked with in words of their own."""
CACHE_FIELDS = ("fingerprint", "encoder", "dataset", "layers", "first_layer", "hidden_size", "rows")


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalModel:
    """A decoder that learned from all training rows, or all that it was given, over its seeds."""

    runs: tuple[RunResult, ...]
    seeds: tuple[int, ...]
    failed: dict[int, str]
    expected: tuple[tuple[str, Row], ...]
    """Evaluated rows of the same recipe, each behind what tests it."""

    def in_words(self) -> str:
        """One line."""
        found = [f"{percent(row.mean)}% on {brief(where)}" for where, row in self.expected]
        failed = f" ({len(self.failed)} failed)" * bool(self.failed)
        return (
            f"final model {brief(self.runs[0].attention)} + {brief(self.runs[0].head, 60)}, seeds "
            f"{spell_numbers(self.seeds)}{failed}: not evaluated; evaluated runs of the same "
            f"recipe: {', '.join(found) or 'none, so that nothing says how good it is'}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        run = self.runs[0]
        names = ("attention", "head", "select", "parameters", "recipe")
        return {name: getattr(run, name) for name in names} | {
            "evaluated": False,
            "seeds": list(self.seeds),
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "expected": [
                {"tested_on": where, "accuracy_mean": row.mean} for where, row in self.expected
            ],
            "runs": [{"path": run.path.name, "key": run.key} for run in self.runs],
        }


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
    selection: Selection | None = None
    """What was left out of the whole report."""
    finals: tuple[FinalModel, ...] = ()

    @property
    def shown(self) -> list[Row]:
        """The rows that are shown."""
        return [row for row in self.rows if row.shown]

    @property
    def compared(self) -> list[tuple[Row, Comparison]]:
        """The rows that are compared with the baseline."""
        return [(row, row.compared) for row in self.rows if row.compared]

    @property
    def unit(self) -> Unit:
        """How values of the score that is compared are written."""
        return Unit(score_of(self.score))

    def title(self) -> str:
        """One line that says what was encoded with what."""
        rows = " + ".join(f"{n:,} {brief(name, 40)}" for name, n in self.cache["rows"].items())
        zero = "" if self.cache.get("first_layer", 1) else f" (0 to {self.cache['layers'] - 1})"
        fold = "" if self.where == "test split 'test'" else f", {brief(self.where)}"
        return (
            f"{brief(self.cache['dataset'])} ({rows} rows) through {brief(self.cache['encoder'])}, "
            f"{self.cache['layers']} layers{zero} x {self.cache['hidden_size']}{fold}"
        )

    def shows_head(self, row: Row) -> bool:
        """Whether a row is called by its head too: where those of others differ, or it is a fit."""
        return row.fitted or len({one.head for one in self.rows if not one.fitted}) > 1

    def labelled(self) -> Table:
        """With the settings of its rows that not all share, and names as short as can be.

        A setting that a row leaves at nothing (all layers, no clipping) is not spelled out; that
        labels were shuffled always is, and what was tuned, with a mark at the edge of its grid.
        """

        def varies(name: str) -> bool:  # in the rows in which the setting plays a part
            always = name in DRAWN_BY
            playing = [row for row in self.rows if name in row.recipe or always or not row.fitted]
            return len({str(row.recipe.get(name)) for row in playing}) > 1

        tuned = {name for row in self.rows for tuning in row.tunings for name in tuning.names}
        known = sorted({name for row in self.rows for name in row.recipe} - {*UNSPELT})
        varied = [name for name in known if name in tuned or varies(name)]
        named, rows = [], []
        for row in self.rows:
            head = f" + {brief(row.head, 60)}" * self.shows_head(row)
            named.append(brief(row.attention) + head + f" {SHUFFLED}" * row.shuffled)
        selects = {name: {r.select for r, n in zip(self.rows, named, strict=True) if n == name}
                   for name in named}  # fmt: skip
        for place, row in enumerate(self.rows):
            apart = row.select == "test" or len(selects[named[place]]) > 1
            named[place] += f" select={row.select}" * apart
        for row, name in zip(self.rows, named, strict=True):
            told = [one for one in varied if row.recipe.get(one) is not None]
            spelt = {one: brief(f"{one}={row.recipe[one]}") for one in told}
            label = name + f" {', '.join(spelt.values())}" * (named.count(name) > 1 and bool(spelt))
            split = brief(row.recipe.get("train_split", "train"), 40)
            label += f" test={split}" * row.on_training_rows
            marked = [text + AT_EDGE * (one in row.at_edge) for one, text in spelt.items()]
            text = ", ".join([SHUFFLED] * row.shuffled + marked)
            rows.append(replace(row, label=label, settings=text))
        labels = numbered([row.label for row in rows])
        rows = [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]
        return replace(self, rows=tuple(rows))

    def all_runs(self) -> list[RunResult]:
        """Those of its rows, and of its final models."""
        every: tuple[Row | FinalModel, ...] = (*self.rows, *self.finals)
        return [run for one in every for run in one.runs]

    def beside(self) -> list[str]:
        """What is not in the table: rows that are not shown, and final models."""
        rest = len(self.rows) - len(self.shown)
        said = f"{rest} of {len(self.rows)} rows are not shown, but counted in all that is said; "
        said += "what is shown because its test score is good is better by luck too"
        return [said] * bool(rest) + [final.in_words() for final in self.finals]

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        rows = [row.to_dict() for row in self.shown]
        for row, values in zip(self.shown, rows, strict=True):
            values |= {"temperature": row.scores.temperature()} if self.temperature else {}
        found = {
            "cache": {name: self.cache[name] for name in CACHE_FIELDS if name in self.cache},
            "rows": rows,
            "majority_accuracy": self.majority_accuracy,
            "class_names": self.cache["class_names"],
            "tested_on": self.where,
            "test_rows": self.num_test_rows,
            "baseline": self.baseline,
            "comparisons_corrected_for": self.num_tests,
            "margin": self.margin,
            "score": self.score,
            "unchosen_rows": [i for i, row in enumerate(self.shown) if row.unchosen],
            "final_models": [final.to_dict() for final in self.finals],
        }
        found["rows_not_shown"] = len(self.rows) - len(rows)
        found |= {"temperature": True} if self.temperature else {}
        return found | ({"selection": self.selection.to_dict()} if self.selection else {})


class Format(ABC):
    """One way to show tables."""

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
    made: dict[Any, Scores] = {}

    def place(row: Row) -> tuple[Any, ...]:
        on_some = row.recipe.get("layers") is not None
        size = math.inf if row.drawn is None else row.drawn
        return on_some, row.attention, row.head, row.select, size, str(row.recipe)

    def grouped(runs: Sequence[RunResult]) -> tuple[Choice, list[_Tested], list[list[Row]]]:
        choice = Choice(list(runs), {}, ()) if every_candidate else choose(runs)
        tested = _by_test_rows([run for run in choice.runs if run.evaluated], choice.tunings)
        rows = [
            [row_of(parts, choice.tunings, score, temperature, made) for parts in one.groups]
            for one in tested
        ]
        return choice, tested, [sorted(one, key=place) for one in rows]

    choice, tested, every = grouped(runs)
    _, all_tested, hidden = grouped([*runs, *beside]) if beside else (None, [], [])
    unevaluated = [run for run in choice.runs if not run.evaluated]
    chosen = compare.choose_baseline([row for rows in every for row in rows], baseline)
    # what filters left out is compared too, for Holm alone
    compared, others = (
        [one for rows in of for one in compare.against_baseline(rows, chosen, margin)]
        for of in (every, hidden)
    )
    claims = compare.corrected(*([c.claim if c else None for c in of] for of in (compared, others)))
    both = zip(compared, claims, strict=True)
    settled = iter([replace(c, claim=claim) if c and claim else None for c, claim in both])
    probed = {
        (of.where, _fingerprint(rows)): compare.against_probe(rows, margin)
        for of, rows in zip(all_tested, hidden, strict=True)
    }
    every_pair = compare.every_pair(every, pairs, margin, hidden)
    shared: dict[str, Any] = {"margin": margin, "score": score, "selection": selection}
    tables = []
    for of, rows, of_pairs in zip(tested, every, every_pair, strict=True):
        parts = [part[0] for part in of.groups[0]]
        size = sum(len(part.labels) for part in parts)
        probes = compare.corrected(
            compare.against_probe(rows, margin), probed.get((of.where, _fingerprint(rows)), ())
        )
        rows = [
            replace(row, compared=c, probed=p, unchosen=row.runs[0].key in choice.unchosen)
            for row, c, p in zip(rows, islice(settled, len(rows)), probes, strict=True)
        ]
        table = Table(
            cache=rows[0].runs[0].cache,
            majority_accuracy=sum(
                (part.majority_accuracy or 0) * len(part.labels) / size for part in parts
            ),
            where=of.where,
            num_test_rows=rows[0].scores.accuracy.scored.by_row.shape[1],  # type: ignore[union-attr]
            rows=tuple(rows),
            baseline=chosen if any(compare.is_of(row, chosen) for row in rows) else None,
            incomplete=of.incomplete,
            num_tests=max((c.num_tests for c in claims if c and c.testable), default=0),
            pairs=of_pairs,
            temperature=temperature,
            uncounted=sum(selection.left_out.values()) - len(beside) if selection else 0,
            **shared,
        )
        tables.append(table.labelled())
    for fingerprint, cache in {run.cache["fingerprint"]: run.cache for run in unevaluated}.items():
        near = [place for place, t in enumerate(tables) if t.cache["fingerprint"] == fingerprint]
        finals = _final_models(
            [run for run in unevaluated if run.cache["fingerprint"] == fingerprint],
            [(tables[place].where, row) for place in near for row in tables[place].rows],
            choice.tunings,
        )
        if near:
            tables[near[0]] = replace(tables[near[0]], finals=finals)
        else:
            tables.append(Table(cache=cache, where=NOT_TESTED, finals=finals, **shared))
    return tables


def _final_models(
    runs: Sequence[RunResult],
    rows: Iterable[tuple[str, Row]],
    tunings: Mapping[str, Tuning],
) -> tuple[FinalModel, ...]:
    """Those of one cache, and what evaluated rows of it came to, each behind what tests it."""
    by_key, tested, found = dict[str, list[RunResult]](), list(rows), []
    for run in sorted(runs, key=lambda run: (run.attention, run.head, str(run.recipe))):
        by_key.setdefault(run.key, []).append(run)
    for same in by_key.values():
        by_seed = first_runs(same)
        seeds = tuple(reported(tuple(by_seed), tunings.get(same[0].key)))
        model = FinalModel(
            runs=tuple(run for run in same if set(run.seeds) & set(seeds)),
            seeds=seeds,
            failed={s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed},
            expected=tuple((where, row) for where, row in tested if _is_of(same[0], row)),
        )
        found.append(model)
    return tuple(found)


def _is_of(final: RunResult, row: Row) -> bool:
    """Whether a row has the recipe, but for what is tested; of folds any rate that was tried."""
    decides = final.select == "val" or bool(final.drawn)
    apart = OF_TEST if decides else (*OF_TEST, "split_seed", "groups")
    values = tuple(float(final.recipe.get(name, 0.0)) for name in TUNED)
    if row.folds > 1 and row.tunings and all(values in tuning.grid for tuning in row.tunings):
        apart = (*apart, *TUNED)
    alike = (row.attention, row.head) == (final.attention, final.head)
    return alike and any(compare.same_recipe(final.recipe, run.recipe, apart) for run in row.runs)


def _fingerprint(rows: Sequence[Row]) -> str:
    return str(rows[0].runs[0].cache["fingerprint"])


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
        if fold := run.recipe.get("fold"):
            of = folds.setdefault(_partition(run), {}).setdefault(_name(run, apart), {})
            of.setdefault((_split_seed(run), int(fold.partition("/")[0])), []).append(run)
    tables, whole = [], set()
    for partition, by_name in folds.items():
        numbers = range(1, int(partition[1]) + 1)
        every = [(of, seed) for of in by_name.values() for seed, _ in of]
        complete = sorted({s for of, s in every if all((s, n) in of for n in numbers)})
        whole |= {(partition, seed) for seed in complete}
        for some in [complete, *([seed] for seed in complete)] if complete else ():
            needed = [(seed, n) for seed in some for n in numbers]
            there = {name: sum(place in of for place in needed) for name, of in by_name.items()}
            groups = [
                tuple(of[place] for place in needed)
                for name, of in by_name.items()
                if there[name] == len(needed)
            ]
            if not groups:
                continue
            where = f"all {len(numbers)} folds{_split(groups[0][0][0], split_seed=len(some) == 1)}"
            if len(some) > 1:
                where = where.replace("all", f"{len(some)} times", 1)
                where += f", split seeds {spell_numbers(some)}"
            lacking = [
                f"{brief(run.attention)} + {brief(run.head)} ({there[name]} of {len(needed)})"
                for name, of in by_name.items()
                for run in next(iter(of.values()))[:1]
                if 0 < there[name] < len(needed)
            ]
            tables.append(_Tested(where, groups, tuple(sorted(lacking))))
            if len(some) > 1 or len(complete) == 1:
                break
    alone: dict[Any, dict[str, list[RunResult]]] = {}
    for run in runs:
        fold, seed = run.recipe.get("fold"), _split_seed(run)
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


def _split_seed(run: RunResult) -> int:
    return int(run.recipe.get("split_seed") or 0)


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
    """The table with its rows by score, of which no more than ``top`` are shown.

    The baseline of a row that is shown stays beside it. All rows stay in the table: statistics,
    warnings and what Holm corrects for are of all of them, whatever is shown.
    """
    sign = -1 if table.unit.score.larger_is_better else 1

    def place(row: Row) -> float:
        mean = row.scores.chosen.mean
        return math.inf if mean is None else sign * mean

    ranked = sorted(table.rows, key=place)
    best = [row for row in ranked[:top] if row.compared]
    theirs = [compare.counterpart(row, ranked, str(table.baseline)) for row in best]
    kept = {id(row) for row in (*ranked[:top], *theirs)}
    rows = (replace(row, shown=id(row) in kept) for row in ranked)
    return replace(table, rows=tuple(rows))
