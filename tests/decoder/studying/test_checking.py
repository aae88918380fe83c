"""Whatever is changed in recorded results is found, or is named here as not compared."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.bundle import data_path
from gaam_cache.errors import CacheError
from gaam_decoder.reports.writing.unit import Unit, all_scores, score_of
from gaam_decoder.studying.checking import BOUNDS, NOT_COMPARED, TOLERATED, compare

OURS = sorted(path.parent for path in (data_path() / "studies").glob("*/results.json"))
TOLERANCES = {"accuracy": 0.3, "difference": 0.5}


def row(attention: str, mean: float, comparison: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "label": f"{attention} lr=0.01",
        "attention": attention,
        "head": "linear",
        "select": "val",
        "layers": None,
        "train_rows": 50,
        "shots": None,
        "pool": "mean",
        "epochs": 2,
        "dtype": "float32",
        "tuned": [{"lr": 0.01, "weight_decay": 0.01}],
        "lr": 0.01,
        "seeds": [5, 6],
        "failed_seeds": [7],
        "macro_f1": mean - 0.01,
        "undertrained": False,
        "accuracy": {"mean": mean, "std": 0.01, "ci95": [0.7, 0.9], "per_seed": [mean, mean]},
        "ci95_seeds_and_rows": [0.6, 0.95],
        "parameters": {"attention": 8, "total": 76},
        "comparison": comparison,
    }


def results() -> dict[str, Any]:
    compared = {
        "baseline": "none",
        "difference": 0.02,
        "ci95_seeds_and_rows": [-0.1, 0.1],
        "p": 0.04,
        "p_holm": 0.08,
        "verdict": "undecided",
        "margin": 0.005,
        "within_margin": False,
        "p_equivalent_holm": 1.0,
        "on_these_test_rows": {"std": 0.1},
    }
    table = {
        "cache": "a1" * 32,
        "encoder": "e",
        "dataset": "d",
        "tested_on": "test split 'test'",
        "rows_of": {"train": 60, "test": 30},
        "baseline": "none",
        "conclusion": "c",
        "claims": ["c"],
        "sections": {"gates": "g"},
        "rows": [row("gaam", 0.82, compared), row("none", 0.8, None)],
    }
    other = copy.deepcopy(table) | {"cache": "b2" * 32}
    return {
        "study": "s",
        "title": "T",
        "gaam": "1",
        "machines": [{"cpu": "c", "cpus": 2, "device": "cpu", "threads": 1, "torch": "2"}],
        "caches": {"planted": "c3" * 32},
        "reports": {"one": [table], "two": [copy.deepcopy(table), other]},
    }


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from leaves(inner, (*path, place))
    else:
        yield path, value


def put(value: Any, path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


LEAVES = list(leaves(results()))


def test_the_same_is_the_same_in_any_order() -> None:
    found = results()
    found["reports"]["two"].reverse()
    found["reports"]["two"][0]["rows"].reverse()
    checked = compare(results(), found, TOLERANCES)
    assert (checked.differences, checked.num_rows) == ((), 6)


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=[str(path) for path, _ in LEAVES])
def test_every_change_is_found(path: tuple[Any, ...], value: Any) -> None:
    new: Any = f"{value}x"
    if isinstance(value, (bool, int, float)):
        new = not value if isinstance(value, bool) else value + 1
    changed = put(results(), path, new)
    for before, after in ((changed, results()), (results(), changed)):
        try:
            checked = compare(before, after, TOLERANCES)
        except CacheError:
            assert {"cache", "comparison"} & set(path)
            continue
        assert bool(checked.differences) != bool({*NOT_COMPARED} & {*path})


FRACTIONS = [
    path
    for path, _ in LEAVES
    if {*TOLERATED, *BOUNDS} & set(path) and "on_these_test_rows" not in path
]


@pytest.mark.parametrize("path", FRACTIONS, ids=str)
def test_tolerances_are_what_they_say(path: tuple[Any, ...]) -> None:
    tolerance = TOLERANCES["difference" if "comparison" in path else "accuracy"] / 100
    value = next(value for other, value in LEAVES if other == path)
    for factor, differs in ((0.99, False), (-0.99, False), (1.01, True), (-1.01, True)):
        changed = put(results(), path, value + factor * tolerance)
        assert bool(compare(results(), changed, TOLERANCES).differences) == differs
    for lost in (None, math.nan):
        assert compare(put(results(), path, lost), results(), TOLERANCES).differences


@pytest.mark.parametrize("lost", ["report", "table", "row"])
def test_what_is_there_on_one_side_alone_is_found(lost: str) -> None:
    fewer = results()
    if lost == "report":
        del fewer["reports"]["one"]
    elif lost == "row":
        del fewer["reports"]["one"][0]["rows"][0]
    else:
        del fewer["reports"]["two"][1]
    for before, after in ((fewer, results()), (results(), fewer)):
        if lost == "table":  # of a cache of its own
            with pytest.raises(CacheError, match="other states"):
                compare(before, after, TOLERANCES)
        else:
            assert compare(before, after, TOLERANCES).differences


@pytest.mark.parametrize("folder", OURS, ids=lambda folder: folder.name)
def test_what_is_recorded_can_be_compared(folder: Path) -> None:
    recorded = json.loads((folder / "results.json").read_text())
    checked = compare(recorded, recorded, TOLERANCES)
    assert not checked.differences
    assert checked.num_rows > 0


JUNK: list[Any] = [{}, {"reports": 3}]
JUNK += [{"reports": {"one": one}} for one in ([3], {"a": 1}, [{}], [{"cache": None}])]


@pytest.mark.parametrize("junk", JUNK)
def test_what_no_study_wrote_is_one_message(junk: dict[str, Any]) -> None:
    with pytest.raises(CacheError):
        compare(junk, results(), TOLERANCES)


@pytest.mark.parametrize("name", sorted(all_scores()))
def test_a_tolerance_is_said_in_the_unit_of_the_score(name: str) -> None:
    score = score_of(name)
    path = ("reports", "one", 0, "rows", 0, "comparison", "difference")
    changed = put(results(), path, 0.0312)
    units = {"one": Unit(score)}
    (line,) = compare(results(), changed, TOLERANCES, units=units).differences
    assert line.endswith(
        ": difference 3.12, recorded: 2.00 (tolerance 0.5 points)"
        if score.percent
        else f": difference in {score.title} 0.0312, recorded: 0.0200 (tolerance 0.005)"
    )
    (line,) = compare(results(), changed, TOLERANCES, units={"two": Unit(score)}).differences
    assert line.endswith("(tolerance 0.5 points)")  # of the other report nothing is known
    for field, said in (("mean", "accuracy"), ("macro_f1", "macro f1")):  # whatever is compared
        row = ("reports", "one", 0, "rows", 0, *(["accuracy"] if field == "mean" else []), field)
        (line,) = compare(results(), put(results(), row, 0.5), TOLERANCES, units=units).differences
        assert f": {said} 50.00, " in line
        assert line.endswith("(tolerance 0.3 points)")
