"""Whether a study comes out as it is recorded, within the tolerances that it states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.errors import CacheError
from gaam_decoder.reports.writing.unit import DEFAULT, Unit, score_of

NOT_COMPARED = (
    *("gaam", "sha256", "files", "machines", "caches", "encoder", "dataset", "label"),
    *("conclusion", "claims", "sections", "per_seed", "on_these_test_rows"),
    *("p", "p_holm", "p_equivalent_holm", "verdict", "within_margin"),
    *("tuned", "lr", "undertrained"),
)
"""Names and sentences, single seeds, whose mean is compared, and what falls on either side of a
bound: verdicts, the rate that validation chose, marks of under-training."""
SETTINGS = ("select", "layers", "train_rows", "shots", "pool", "epochs", "dtype")
"""What, beside mechanism and head, makes two rows two."""
TOLERATED = ("mean", "std", "macro_f1", "difference")
"""Fractions, each with the tolerance of accuracies or of differences."""
BOUNDS = ("ci95", "ci95_seeds_and_rows")
"""Pairs of fractions, with the tolerance of what they are bounds of."""
NAMED = {"mean": "accuracy", "std": "standard deviation", "macro_f1": "macro f1",
         "ci95": "95% interval over seeds", "ci95_seeds_and_rows": "95% interval"}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What differs beyond the tolerances."""

    differences: tuple[str, ...]
    num_rows: int


def compare(
    recorded: Mapping[str, Any],
    found: Mapping[str, Any],
    tolerances: Mapping[str, float],
    *,
    units: Mapping[str, Unit] | None = None,
) -> Checked:
    """Compare results with those that are recorded, row by row.

    Settings, seeds and counts have to be the very same; accuracies, macro-F1 and differences may
    differ by the tolerances. Verdicts are not compared: a p value near 0.05 falls on either side.

    Args:
        recorded: what ``results.json`` beside the recipe holds.
        found: the same of now.
        tolerances: hundredths, of ``accuracy`` and ``difference``: points, where the score is in
            percent.
        units: of the scores that reports compare, by the name of the report; of others accuracy.

    Raises:
        CacheError: they are of other rows or another encoder, and cannot be compared; or what is
            recorded is not what a study writes.
    """
    try:
        return _compared(recorded, found, tolerances, units or {})
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CacheError(
            "recorded results that no study has written",
            expected="results.json as 'gaam study --record' writes it",
            found=f"{type(error).__name__}: {error}",
            hint="take it from where it came, or record it anew",
        ) from error


def _compared(
    recorded: Mapping[str, Any],
    found: Mapping[str, Any],
    tolerances: Mapping[str, float],
    units: Mapping[str, Unit],
) -> Checked:
    before, after = recorded["reports"], found["reports"]
    for name in before.keys() & after.keys():
        _check_caches(name, before[name], after[name])
    old, report_of = _by_row(before)
    new, _ = _by_row(after)
    percent = Unit(score_of(DEFAULT))
    differences = list(_of_values("", recorded, found, tolerances, percent))
    differences += [f"{who}: is not there" for who in old if who not in new]
    differences += [f"{who}: is not recorded" for who in new if who not in old]
    both = [who for who in old if who in new]
    for who in both:
        unit = units.get(report_of[who], percent)
        differences += _of_values(f"{who}: ", old[who], new[who], tolerances, unit)
    num_rows = sum(who.endswith("]") for who in both)
    return Checked(differences=tuple(differences), num_rows=num_rows)


def _by_row(reports: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Every report, table and row by what it is called; of the same name, by its place too.

    And of which report each is.
    """
    named: dict[str, dict[str, Any]] = {}
    report_of: dict[str, str] = {}
    for name, tables in reports.items():
        named[f"report '{name}'"] = {"tables": len(tables)}
        for table in sorted(tables, key=_key):
            cache, tested_on = _key(table)
            where = f"{name}, cache {cache[:12]}, {tested_on}"
            while where in named:
                where += ", again"
            rows = table["rows"]
            named[where] = {key: value for key, value in table.items() if key != "rows"}
            kept = [_setting(row) for row in rows]
            for row, setting in zip(rows, kept, strict=True):
                alone = kept.count(setting) == 1
                who = f"{where} [{setting if alone else row['label']}]"
                if who in named:
                    raise ValueError(f"{who} stands twice")
                named[who] = dict(row)
        report_of |= dict.fromkeys(named.keys() - report_of.keys(), name)
    return named, report_of


def _setting(row: Mapping[str, Any]) -> str:
    """What a row is, whatever validation chose for it: its label may name the rate."""
    named = [f"{name}={row[name]}" for name in SETTINGS if row.get(name) is not None]
    return " ".join([f"{row['attention']} + {row['head']}", *named])


def _key(table: Mapping[str, Any]) -> tuple[str, str]:
    if not isinstance(table["cache"], str):
        raise TypeError("a table without the fingerprint of its cache")
    return table["cache"], str(table.get("tested_on", "all rows"))


def _check_caches(name: str, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Only what was learned from the same states can be compared."""
    before = {_key(table)[0]: table for table in old}
    after = {_key(table)[0]: table for table in new}
    if before.keys() == after.keys():
        return
    missing = [before[key] for key in before if key not in after]
    others = [after[key] for key in after if key not in before]
    raise CacheError(
        f"report '{name}' is of other states than those that are recorded",
        expected="; ".join(map(_cache, missing)) or "no other cache",
        found="; ".join(map(_cache, others)) or "no such cache",
        hint="other rows or another encoder give other numbers, which nothing is said of here: "
        "'gaam study' without --check shows them",
    )


def _cache(table: Mapping[str, Any]) -> str:
    rows = ", ".join(f"{split} {number:,}" for split, number in table["rows_of"].items())
    return f"{table['dataset']} ({rows}) through {table['encoder']}, cache {table['cache'][:12]}"


def _of_values(
    who: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    tolerances: Mapping[str, float],
    unit: Unit,
) -> Iterator[str]:
    """A line for every value that has to be the same and is not."""
    for name in dict.fromkeys((*old, *new)):
        if name in ("reports", *NOT_COMPARED):
            continue
        was, now, said = old.get(name), new.get(name), NAMED.get(name, name.replace("_", " "))
        if name in ("accuracy", "comparison") and (was is None) == (now is None):
            yield from _of_values(who, was or {}, now or {}, tolerances, unit)
        elif name in (*TOLERATED, *BOUNDS):
            of_difference = name == "difference" or (name in BOUNDS and "difference" in new)
            of = unit if of_difference else Unit(score_of(DEFAULT))
            tolerance = tolerances["difference" if of_difference else "accuracy"]
            if not of.score.percent:
                said += f" in {of.score.title}"
            if name in TOLERATED:
                yield from _beyond(f"{who}{said}", was, now, tolerance, of)
            for at, bound in enumerate(("lower", "upper") if name in BOUNDS else ()):
                before, after = (one[at] if one else None for one in (was, now))
                who_of = f"{who}{bound} bound of the {said}"
                yield from _beyond(who_of, before, after, tolerance, of)
        elif was != now:
            yield f"{who}{said} {_shown(now)}, recorded: {_shown(was)}"


def _shown(value: Any) -> str:
    return "none" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _beyond(
    who: str, was: float | None, now: float | None, tolerance: float, unit: Unit
) -> Iterator[str]:
    if was is None and now is None:
        return
    if was is None or now is None or not abs(100 * (now - was)) <= tolerance:
        digits = 2 if unit.score.percent else 4
        told = ["none" if one is None else f"{unit.factor * one:.{digits}f}" for one in (now, was)]
        yield f"{who} {told[0]}, recorded: {told[1]} (tolerance {unit.margin(tolerance / 100)})"
