"""Promise 6: nothing that is chosen knows the rows that are tested, nor rows of the same group.

The same is trained twice, the second time with other states and labels of the rows that are tested:
what was chosen must be the same bit by bit. ``--select test`` shows that the changes matter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_decoder import RunResult
from tests.contract.conftest import run, train

RATES: dict[str, Any] = {"lr": (1e-4, 0.1), "weight_decay": (0, 0.5)}
TUNED: dict[str, Any] = {**RATES, "tune_seeds": (7, 8)}
GROUPS: dict[str, Any] = {"groups": "speaker"}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "rates and the probe": {**RATES, "probe": True, "val_fraction": 0.4},
    "rates by other seeds": {**TUNED, "final": True},
    "sizes": {"train_rows": (40, None), "probe": True},
    "shots": {"train_rows": ("9/class", "all")},
    "layers": {"attn": "none", "layers": ((1,), None), "head": ("linear", "mlp"),
               "schedule": "plateau"},
    "groups": {**GROUPS, **RATES, "final": True, "probe": True},
    "the last epoch": {"select": "last", "final": True},
    "a window of weighted classes": {"shuffle": "window:20", "class_weights": "balanced"},
    "folds": {"folds": 3, "fold": 2},
    "folds, rates by other seeds": {"folds": 3, "fold": 1, **TUNED},
    "folds of sizes": {"folds": 3, "fold": 3, "train_rows": (30, None)},
    "folds of groups": {"folds": 3, "fold": 2, **GROUPS, "probe": True},
}  # fmt: skip
ROWS, COPIES, CLASSES, SIDES = 120, 4, 2, 36
SPEAKER = [f"speaker {row // COPIES}" for row in range(SIDES * COPIES)]


def rows_of(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States that tell the classes apart half of the time."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(count) % CLASSES)
    x = rng.normal(size=(count, 2, 3))
    x[:, :, :CLASSES] += np.eye(CLASSES)[label][:, None] / 2
    return x.astype(np.float32), label


def trained(folder: Path, learned: Any, test: Any, **settings: Any) -> list[RunResult]:
    columns = {
        "speaker": {
            "train": SPEAKER[:ROWS],
            "test": [f"of {n}" for n in range(len(test[1]))],
        }
    }
    gaam_cache.write(
        folder / "cache", {"train": learned, "test": test}, columns=columns
    )
    settings = {"attn": "gaam", "epochs": 3, "lr": 0.03} | settings
    runs = train(folder / "cache", folder / "runs", **settings)
    return sorted(runs, key=lambda one: (one.title, one.seeds))


def chosen(of: RunResult) -> dict[str, Any]:
    """What was chosen, and what follows from it; not what is said of rows that are tested."""
    predictor = gaam_decoder.load(of.path, temperature=of.validation is not None)
    return {
        "rate, decay": of.recipe,
        "by validation of": of.tuning_seeds,
        "penalty": of.fit,
        "epochs": of.epochs,
        "temperatures": predictor.temperatures,
        "weights": predictor.predict_states(rows_of(20, 9)[0]).probabilities_NC,
        "validation": of.validation and asdict(of.validation),
        "log": [{k: v for k, v in entry.items() if k != "seconds"} for entry in of.log],
    }


def reported(folder: Path, tuned: bool) -> list[Any]:
    """Which rates and decays a report shows, and why; the order of its rows is by test scores."""
    rows = json.loads(run("report", folder / "runs", "--format", "json").out)["entries"]
    assert any(row["tuning"] for row in rows) == tuned
    told = [
        (row["attention"], row["head"], row["recipe"], row["tuning"]) for row in rows
    ]
    return sorted(told, key=str)


def with_other_rows(learned: Any, tested: np.ndarray) -> Any:
    """Other states of some rows; neighbours among them change labels, so that no fold changes."""
    x, label = learned[0].copy(), learned[1].copy()
    x[tested] = 3 * rows_of(ROWS, 77)[0][tested]
    for row in tested[:-1][np.diff(tested) == 1]:
        label[[row, row + 1]] = label[[row + 1, row]]
    assert (label != learned[1]).sum() >= 5
    return x, label


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_is_chosen_knows_the_rows_that_are_tested(
    protocol: str, tmp_path: Path
) -> None:
    settings, learned, test = PROTOCOLS[protocol], rows_of(ROWS, 0), rows_of(24, 1)
    first = trained(tmp_path / "first", learned, test, **settings)
    other = learned, (3 * rows_of(40, 78)[0], rows_of(40, 79)[1])
    if "folds" in settings:
        (tested,) = {tuple(one.test_rows) for one in first}
        other = with_other_rows(learned, np.array(tested)), test
    second = trained(tmp_path / "second", *other, **settings)
    for one, same in zip(first, second, strict=True):
        assert one.title == same.title
        np.testing.assert_equal(chosen(one), chosen(same), one.title)
        if len(one.labels):  # the rows that are tested are others
            assert not np.array_equal(one.logits, same.logits)
            assert not np.array_equal(one.labels, same.labels)
    told = [
        reported(tmp_path / name, bool(settings.get("lr")))
        for name in ("first", "second")
    ]
    assert told[0] == told[1]


def test_a_choice_by_test_rows_would_be_seen(tmp_path: Path) -> None:
    settings = {"select": "test", "seeds": tuple(range(6)), "epochs": 8}
    first, second = (
        trained(tmp_path / str(seed), rows_of(ROWS, 0), rows_of(24, seed), **settings)
        for seed in (1, 2)
    )
    assert first[0].epochs != second[0].epochs


OF_GROUPS: dict[str, dict[str, Any]] = {
    "folds": {"folds": 3, "val_fraction": 0.3},
    "repeats": {"folds": 3, "repeats": 2},
    "a fold for every group": {"folds": SIDES, "fold": 7},
    "tuned": {"folds": 2, **TUNED, "final": True, "seeds": (0,)},
    "final": {"test_split": "none", "val_fraction": 0.4},
    "a test split": {"split_seed": 3, "val_fraction": 0.5, "final": True},
    "layers": {"folds": 2, "layers": ((1,), None)},
    "a window": {"folds": 2, "shuffle": "window:20", "class_weights": "balanced"},
    "chosen by test": {"folds": 3, "select": "test"},
    "the last epoch": {"folds": 3, "select": "last", "probe": False, "final": True},
}


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Near copies in groups of four: only who learned a copy of a row can be right about it."""
    rng, of_row = np.random.default_rng(5), np.repeat(np.arange(SIDES), COPIES)
    label_N, splits = rng.permutation(np.arange(SIDES) % 2)[of_row], {}
    for split in ("train", "test"):
        center_NLD = rng.normal(size=(SIDES, 2, 48))[of_row]
        states = center_NLD + 1e-3 * rng.normal(size=center_NLD.shape)
        splits[split] = (states.astype(np.float32), label_N)
    columns = {
        "speaker": SPEAKER,
        "one": ["one"] * len(of_row),
        "class": list(map(str, label_N)),
    }
    kept = {
        k: {"train": of, "test": [f"other {n}" for n in of]}
        for k, of in columns.items()
    }
    kept["shared"] = dict.fromkeys(splits, SPEAKER)
    folder = tmp_path_factory.mktemp("groups") / "cache"
    gaam_cache.write(folder, splits, columns=kept)
    return folder


@pytest.mark.parametrize("protocol", OF_GROUPS)
def test_no_group_has_rows_on_two_sides(
    protocol: str, groups: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "attn": ("none", "scalar-mix"), "epochs": 3, "lr": 0.1, "probe": True, "val_fraction": 0.1,
        "select": "val", **GROUPS, **OF_GROUPS[protocol],
    }  # fmt: skip
    chose, right = defaultdict(set), []
    for one in train(groups, tmp_path / "runs", **settings):
        tested = [] if one.recipe.fold is None else one.test_rows
        found = one.validation
        assert (found is not None) == (settings["select"] == "val")
        held = [] if found is None else found.rows
        if np.ndim(held) == 2:  # each seed that chooses a rate holds out other groups
            sides = [{SPEAKER[row] for row in of if row >= 0} for of in held]
            assert sum(map(len, sides)) == len(set.union(*sides)) == SIDES // 2
            continue
        learned = np.setdiff1d(np.arange(len(SPEAKER)), [*tested, *held])
        sides = [{SPEAKER[row] for row in rows} for rows in (learned, held, tested)]
        assert sum(map(len, sides)) == SIDES  # each group is in one
        if found is None:
            continue
        assert abs(np.subtract(*np.bincount(found.labels, minlength=2))) <= COPIES
        assert (
            abs(len(held) - settings["val_fraction"] * (len(held) + len(learned)))
            <= 2 * COPIES
        )
        chose[one.recipe.fold, one.recipe.split_seed].add(tuple(held))
        right.append((found.logits.argmax(-1) == found.labels).mean())
    assert all(len(rows) == 1 for rows in chose.values())
    assert not right or np.mean(right) < 0.85


@pytest.mark.parametrize("options", [
    "one", "class", "class --folds 2", f"speaker --folds {SIDES + 1}", "speaker --select last",
    "speaker --train-rows 40", "speaker --folds 2 --train-rows 4/class", "lines.txt",
    "lines.txt --folds 2", "shared", "shared --final",
])  # fmt: skip
def test_what_groups_cannot_give_is_refused_before_training(
    options: str, groups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("\n".join([*SPEAKER[:6], " ", *SPEAKER[7:]]))
    outcome = run("train", "--cache", groups, "--lr", 1, "--groups", *options.split())
    assert outcome.code == 2, outcome.err
    assert not Path("runs").exists()
    assert ("line 7" in outcome.err) == options.startswith("lines.txt")


@pytest.mark.parametrize("pair", ["1 1.0", "1 01", "+1 1", 'sports \t"sports"', "a A"])
def test_classes_that_are_one_written_differently_are_told(
    pair: str, tmp_path: Path
) -> None:
    states = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
    with pytest.warns(match="classes that differ only in"):
        gaam_cache.write(
            tmp_path / "cache", {"train": (states, [*pair.split(" "), "other"] * 4)}
        )
