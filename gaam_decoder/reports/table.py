"""Rows of the same states and test rows side by side: what reports say, apart from how it looks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from gaam_cache.messages import brief
from gaam_decoder.number_lists import DRAWN_BY, spell_numbers
from gaam_decoder.reports import compare
from gaam_decoder.reports.compare import Pairs
from gaam_decoder.reports.rows import Comparison, Row, rows_by_test
from gaam_decoder.reports.unit import DEFAULT, Unit, numbered, percent, score_of
from gaam_decoder.runs.loading import Selection
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED, Choice, Tuning, choose, first_runs, reported

SEPARATE = "rows of different caches or test rows are not to be compared"
ON_TRAINING_ROWS = "tested on its own training rows"
AT_EDGE = " (edge)"
CACHE_FIELDS = ("fingerprint", "encoder", "dataset", "layers", "first_layer", "hidden_size", "rows")


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows of one cache and one set of test rows; rows of different ones are never compared.

    Where all that is there of a cache are final models, which test nothing, it has no rows.
    """

    cache: dict[str, Any]
    where: str  # which rows are tested, in words
    num_test_rows: int = 0
    rows: tuple[Row, ...] = ()
    baseline: str | None = None  # what differences are to
    incomplete: tuple[str, ...] = ()  # what is not among the rows, because folds of it are missing
    num_tests: int = 0  # comparisons of the report that make a claim: what Holm corrects for
    pairs: Pairs | None = None  # rows against every other that differs in one setting alone
    margin: float  # largest difference that does not matter, a fraction or in the score's unit
    score: str
    temperature: bool
    selection: Selection | None  # what was left out of the whole report
    uncounted: int = 0  # runs that were left out unread: Holm corrects for none of them
    finals: tuple[dict[str, Any], ...] = ()  # models that are not evaluated, as JSON values
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

    def beside(self) -> list[str]:
        """What is not in the table: rows that are not shown, and final models."""
        rest = len(self.rows) - len(self.shown)
        said = f"{rest} of {len(self.rows)} rows are not shown, but counted in all that is said; "
        said += "what is shown because its test score is good is better by luck too"
        lines = [said] * bool(rest)
        for one in self.finals:
            near = one["expected"]
            found = [f"{percent(of['accuracy_mean'])}% on {brief(of['tested_on'])}" for of in near]
            failed = f" ({len(one['failed_seeds'])} failed)" * bool(one["failed_seeds"])
            lines.append(
                f"final model {brief(one['attention'])} + {brief(one['head'], 60)}, seeds "
                f"{spell_numbers(one['seeds'])}{failed}: not evaluated; evaluated runs of the same "
                f"recipe: {', '.join(found) or 'none, so that nothing says how good it is'}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        rows = [row.to_dict() for row in self.shown]
        for row, values in zip(self.shown, rows, strict=True):
            values |= {"temperature": row.temperature} if self.temperature else {}
        found = {
            "cache": {name: self.cache[name] for name in CACHE_FIELDS if name in self.cache},
            "rows": rows,
            "majority_accuracy": self.rows[0].majority_accuracy if self.rows else None,
            "class_names": self.cache["class_names"],
            "tested_on": self.where,
            "test_rows": self.num_test_rows,
            "baseline": self.baseline,
            "comparisons_corrected_for": self.num_tests,
            "margin": self.margin,
            "score": self.score,
            "unchosen_rows": [i for i, row in enumerate(self.shown) if row.unchosen],
            "final_models": list(self.finals),
            "rows_not_shown": len(self.rows) - len(rows),
        }
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

    Arguments and errors are those of ``report``; ``margin`` is as claims have it. What filters left
    out, ``beside``, is compared for Holm alone, lest a look at the results make p smaller.
    """
    margin = score_of(score).margin if margin is None else margin

    def grouped(runs: Sequence[RunResult]) -> tuple[Choice, list[Any]]:
        choice = Choice(list(runs), {}, ()) if every_candidate else choose(runs)
        evaluated = [run for run in choice.runs if run.evaluated]
        return choice, list(rows_by_test(evaluated, choice.tunings, score, temperature))

    choice, tested = grouped(runs)
    hidden = grouped([*runs, *beside])[1] if beside else []
    lists, others = [rows for _, rows, _ in tested], [rows for _, rows, _ in hidden]
    chosen = compare.choose_baseline([row for rows in lists for row in rows], baseline)

    def of_baseline(row: Row, rows: Sequence[Row]) -> Row | None:
        return compare.counterpart(row, rows, chosen)

    compared = compare.corrected(
        compare.against(lists, margin, of_baseline), compare.against(others, margin, of_baseline)
    )
    num_tests = max((c.claim.num_tests for c in compared.values() if c.claim.testable), default=0)
    shared: dict[str, Any] = {"margin": margin, "score": score, "selection": selection}
    shared["temperature"] = temperature
    by_row = {mine: of for (mine, _), of in compared.items()}
    tables, of_pairs = [], iter(compare.every_pair(lists, pairs, margin, others))
    for where, rows, incomplete in tested:
        cache = rows[0].runs[0].cache
        near = [
            of
            for place, of, _ in hidden
            if (place, of[0].runs[0].cache["fingerprint"]) == (where, cache["fingerprint"])
        ]
        probed = compare.corrected(
            compare.against([rows], margin, compare.probe_of),
            compare.against(near, margin, compare.probe_of),
        )
        of_probe = {mine: of for (mine, _), of in probed.items()}
        told = [
            replace(
                row,
                compared=by_row.get(row.key),
                probed=of_probe.get(row.key),
                unchosen=row.runs[0].key in choice.unchosen,
            )
            for row in rows
        ]
        table = Table(
            cache=cache,
            where=where,
            num_test_rows=rows[0].accuracy.scored.by_row.shape[1],
            rows=_named(told),
            baseline=chosen if any(compare.is_of(row, chosen) for row in rows) else None,
            incomplete=incomplete,
            num_tests=num_tests,
            pairs=next(of_pairs),
            runs=tuple(run for row in rows for run in row.runs),
            uncounted=sum(selection.left_out.values()) - len(beside) if selection else 0,
            **shared,
        )
        tables.append(table)
    finals: dict[str, list[RunResult]] = {}
    for run in choice.runs:
        if not run.evaluated:
            finals.setdefault(run.cache["fingerprint"], []).append(run)
    for fingerprint, of_cache in finals.items():
        places = [i for i, one in enumerate(tables) if one.cache["fingerprint"] == fingerprint]
        if not places:
            places = [len(tables)]
            where = "final models, which are not evaluated"
            tables.append(Table(cache=of_cache[0].cache, where=where, runs=(), **shared))
        beside_them = [(tables[i].where, row) for i in places for row in tables[i].rows]
        models = _final_models(of_cache, beside_them, choice.tunings)
        table = tables[places[0]]
        tables[places[0]] = replace(table, finals=models, runs=(*table.runs, *of_cache))
    return tables


def _named(rows: Sequence[Row]) -> tuple[Row, ...]:
    """With names as short as can be, and the settings that not all share, or that were tuned."""

    def varies(name: str) -> bool:  # in the rows in which the setting plays a part
        playing = [row for row in rows if name in row.recipe or name in DRAWN_BY or not row.fitted]
        return len({str(row.recipe.get(name)) for row in playing}) > 1

    tuned = {name for row in rows for tuning in row.tunings for name in tuning.names}
    said = {"select", "allow_train_as_test", "shuffle_labels"}  # in words of their own
    known = sorted({name for row in rows for name in row.recipe} - said)
    varied = [name for name in known if name in tuned or varies(name)]
    heads = len({row.head for row in rows if not row.fitted}) > 1
    selects = len({row.select for row in rows}) > 1
    found = []
    for row in rows:
        name = brief(row.attention) + f" + {brief(row.head, 60)}" * (heads or row.fitted)
        name += " labels shuffled" * row.shuffled
        apart = row.select == "test" or (selects and row.select != "val")
        name += f" select={row.select}" * apart
        there = [one for one in varied if row.recipe.get(one) is not None]
        spelt = {one: brief(f"{one}={row.recipe[one]}") for one in there}
        marked = [text + AT_EDGE * (one in row.at_edge) for one, text in spelt.items()]
        label = f"{name} {', '.join(spelt.values())}"
        found.append(replace(row, name=name, label=label, settings=", ".join(marked)))
    names = [row.name for row in found]
    labels = numbered([r.label.strip() if names.count(r.name) > 1 else r.name for r in found])
    return tuple(replace(row, label=label) for row, label in zip(found, labels, strict=True))


def _final_models(
    runs: Sequence[RunResult], rows: Sequence[tuple[str, Row]], tunings: Mapping[str, Tuning]
) -> tuple[dict[str, Any], ...]:
    by_key, found = dict[str, list[RunResult]](), list[dict[str, Any]]()
    for run in sorted(runs, key=lambda run: (run.attention, run.head, str(run.recipe))):
        by_key.setdefault(run.key, []).append(run)
    names = ("attention", "head", "select", "parameters", "recipe")
    for same in by_key.values():
        by_seed = first_runs(same)
        seeds = reported(tuple(by_seed), tunings.get(same[0].key))
        there = [run for run in same if {*run.seeds} & {*seeds}]
        failed = {s: by_seed[s].failed[s] for s in seeds if s in by_seed[s].failed}
        found.append(
            {name: getattr(same[0], name) for name in names}
            | {
                "evaluated": False,
                "seeds": seeds,
                "failed_seeds": [{"seed": s, "reason": why} for s, why in failed.items()],
                "expected": [
                    {"tested_on": where, "accuracy_mean": row.accuracy.mean}
                    for where, row in rows
                    if _is_of(same[0], row)
                ],
                "runs": [{"path": run.path.name, "key": run.key} for run in there],
            }
        )
    return tuple(found)


def _is_of(final: RunResult, row: Row) -> bool:
    """Whether a row has the recipe, but for what is tested, and what was chosen for each fold."""
    apart = ["test_split", "fold", *(TUNED if row.folds > 1 and row.tunings else ())]
    apart += [] if final.select == "val" or final.drawn else ["split_seed", "groups"]
    alike = (row.attention, row.head) == (final.attention, final.head)
    return alike and any(compare.same_recipe(final.recipe, run.recipe, apart) for run in row.runs)
