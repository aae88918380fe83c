"""Whether a study comes out as it is recorded, within the tolerances that it states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.errors import CacheError

SAME = ("attention", "head", "seeds", "failed_seeds", "parameters")
"""What of a row has to be the very same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What differs beyond the tolerances, and what is worth a word although it does not."""

    differences: tuple[str, ...]
    remarks: tuple[str, ...]
    num_rows: int


def compare(
    recorded: Mapping[str, Any], found: Mapping[str, Any], tolerances: Mapping[str, float]
) -> Checked:
    """Compare results with those that are recorded, row by row.

    A verdict that has changed while its difference is within the tolerance is a remark: a p value
    near 0.05 falls on either side.

    Args:
        recorded: what ``results.json`` beside the recipe holds.
        found: the same of now.
        tolerances: points, of ``accuracy`` and ``difference``.

    Raises:
        CacheError: they are of other rows or another encoder, and cannot be compared.
    """
    differences: list[str] = []
    remarks: list[str] = []
    count = 0
    reports, now = recorded["reports"], found["reports"]
    differences += [f"report '{name}' is not there" for name in reports if name not in now]
    differences += [f"report '{name}' is not recorded" for name in now if name not in reports]
    for name in (name for name in reports if name in now):
        _check_caches(name, reports[name], now[name])
        for old, new in zip(reports[name], now[name], strict=True):
            where = f"{name}, {old['dataset']}"
            rows = {row["label"]: row for row in new["rows"]}
            for row in old["rows"]:
                count += 1
                other = rows.pop(row["label"], None)
                who = f"{where}, {row['label']}"
                if other is None:
                    differences.append(f"{who}: is not there")
                    continue
                differences += [f"{who}: {line}" for line in _differences(row, other, tolerances)]
                remarks += [f"{who}: {line}" for line in _remarks(row, other)]
            differences += [f"{where}, {label}: is not recorded" for label in rows]
    return Checked(differences=tuple(differences), remarks=tuple(remarks), num_rows=count)


def _check_caches(name: str, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    """Only what was learned from the same states can be compared."""
    before = {table["cache"]: table for table in old}
    after = {table["cache"]: table for table in new}
    if [t["cache"] for t in old] == [t["cache"] for t in new] and len(before) == len(old):
        return
    if before.keys() == after.keys():
        new.sort(key=lambda table: list(before).index(table["cache"]))
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


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], tolerances: Mapping[str, float]
) -> Iterator[str]:
    for name in SAME:
        if old[name] != new[name]:
            yield f"{name.replace('_', ' ')} {new[name]}, recorded: {old[name]}"
    pairs = [("accuracy", old["accuracy"]["mean"], new["accuracy"]["mean"])]
    before, after = old["comparison"], new["comparison"]
    if (before is None) != (after is None):
        yield "is compared, recorded: is not" if after else "is not compared, recorded: is"
    elif before and after:
        if before["baseline"] != after["baseline"]:
            yield f"baseline {after['baseline']}, recorded: {before['baseline']}"
        pairs.append(("difference", before["difference"], after["difference"]))
    for name, was, now in pairs:
        if was is None and now is None:
            continue
        if was is None or now is None or not abs(100 * (now - was)) <= tolerances[name]:
            told = ["none" if one is None else f"{100 * one:.2f}" for one in (now, was)]
            yield f"{name} {told[0]}, recorded: {told[1]} (tolerance {tolerances[name]} points)"


def _remarks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = old["comparison"] or {}, new["comparison"] or {}
    if before.get("verdict") != after.get("verdict"):
        yield f"verdict '{after.get('verdict')}', recorded: '{before.get('verdict')}'"
    if old["tuned"] != new["tuned"]:
        yield f"validation chose {new['tuned']}, recorded: {old['tuned']}"
