"""Promise 6: no choice knows the rows that are tested, nor rows of the same group.

The same is trained twice, the second time with other states and labels of the rows that
are tested: every choice must be the same bit by bit. ``--select test`` shows that the
changes matter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_decoder import RunResult
from tests.contract.conftest import run, train
from tests.decoder.configs import probabilities_of

RATES: dict[str, Any] = {"lr": (1e-4, 0.1), "weight_decay": (0, 0.5)}
TUNED_SETTINGS: dict[str, Any] = {**RATES, "tune_seeds": (7, 8)}
GROUPS: dict[str, Any] = {"groups": "speaker"}
# with state_scale=auto the states of all rows, tested ones too, decide the unit
FOLDS: dict[str, Any] = {"folds": 3, "state_scale": "none"}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "rates and the probe": {**RATES, "probe": True, "val_fraction": 0.4},
    "rates by other seeds": {**TUNED_SETTINGS, "final": True},
    "sizes": {"train_rows": (40, None), "probe": True},
    "shots": {"train_rows": ("9/class", "all")},
    "layers": {
        "attn": "none",
        "layers": ((1,), None),
        "head": ("linear", "mlp"),
        "schedule": "plateau",
    },
    "groups": {**GROUPS, **RATES, "final": True, "probe": True},
    "the last epoch": {"select": "last", "final": True},
    "a validation split": {
        **TUNED_SETTINGS,
        **GROUPS,
        "val_split": "validation",
        "probe": True,
    },
    "a window of weighted classes": {
        "shuffle": "window:20",
        "class_weights": "balanced",
        "state_scale": "layer",
    },
    "folds": {"fold": 2, **FOLDS},
    "folds, rates by other seeds": {"fold": 1, **FOLDS, **TUNED_SETTINGS},
    "folds of sizes": {"fold": 3, **FOLDS, "train_rows": (30, None)},
    "folds of groups": {"fold": 2, **FOLDS, **GROUPS, "probe": True},
}
ROWS = 120
COPIES = 4
CLASSES = 2
NUM_GROUPS = 36
SPEAKERS = [f"speaker {row // COPIES}" for row in range(NUM_GROUPS * COPIES)]


class Rows(NamedTuple):
    """States and labels of a split."""

    states: NDArray[np.float32]
    labels: NDArray[np.int64]


def draw_rows(count: int, seed: int) -> Rows:
    """States that tell the classes apart half of the time."""
    rng = np.random.default_rng(seed)
    label_N = rng.permutation(np.arange(count) % CLASSES)
    x_NLD = rng.normal(size=(count, 2, 3))
    x_NLD[:, :, :CLASSES] += np.eye(CLASSES)[label_N][:, None] / 2
    return Rows(x_NLD.astype(np.float32), label_N)


def train_on(
    folder: Path, train_rows: Rows, test_rows: Rows, /, **settings: Any
) -> list[RunResult]:
    """Runs on a cache of these rows, in the order of their titles."""
    test_speakers = [f"of {row}" for row in range(len(test_rows.labels))]
    columns = {"speaker": {"train": SPEAKERS[:ROWS], "test": test_speakers}}
    splits = {"train": train_rows, "test": test_rows}
    if "val_split" in settings:
        splits["validation"] = draw_rows(30, 2)
        columns["speaker"]["validation"] = [f"validates {row}" for row in range(30)]
    gaam_cache.write(folder / "cache", splits, columns=columns)
    settings = {"attn": "gaam", "epochs": 3, "lr": 0.03} | settings
    runs = train(folder / "cache", folder / "runs", **settings)
    return sorted(runs, key=lambda run: (run.title, run.seeds))


def choices(result: RunResult) -> dict[str, Any]:
    """What was chosen, and what follows from it, without the rows that are tested."""
    predictor = gaam_decoder.load(
        result.path, temperature=result.validation is not None
    )
    log = [
        {key: value for key, value in entry.items() if key != "seconds"}
        for entry in result.log
    ]
    states = draw_rows(20, 9).states
    return {
        "rate, decay": result.recipe,
        "by validation of": result.tuning_seeds,
        "penalty": result.fit,
        "epochs": result.epochs,
        "temperatures": predictor.temperatures,
        "weights": probabilities_of(predictor.predict_states(states)),
        "validation": result.validation and asdict(result.validation),
        "log": log,
    }


def reported_choices(folder: Path, *, tuned: bool) -> list[Any]:
    """The rates and decays of a report, and why; not in its order by scores."""
    outcome = run("report", folder / "runs", "--format", "json")
    entries = json.loads(outcome.out)["entries"]
    assert any(entry["tuning"] for entry in entries) == tuned
    names = ("attention", "head", "recipe", "tuning")
    return sorted(([entry[name] for name in names] for entry in entries), key=str)


def change_rows(rows: Rows, tested: NDArray[np.int64]) -> Rows:
    """Other states of some rows; neighbours exchange labels: no fold changes."""
    states = rows.states.copy()
    states[tested] = 3 * draw_rows(ROWS, 77).states[tested]
    labels = rows.labels.copy()
    for row in tested[:-1][np.diff(tested) == 1]:
        labels[[row, row + 1]] = labels[[row + 1, row]]
    assert (labels != rows.labels).sum() >= 5
    return Rows(states, labels)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_is_chosen_knows_the_rows_that_are_tested(
    protocol: str, tmp_path: Path
) -> None:
    settings = PROTOCOLS[protocol]
    train_rows = draw_rows(ROWS, 0)
    test_rows = draw_rows(24, 1)
    first = train_on(tmp_path / "first", train_rows, test_rows, **settings)
    if "folds" in settings:
        [tested] = {tuple(run.test_rows) for run in first if run.test_rows is not None}
        train_rows = change_rows(train_rows, np.array(tested))
    else:
        test_rows = Rows(3 * draw_rows(40, 78).states, draw_rows(40, 79).labels)
    second = train_on(tmp_path / "second", train_rows, test_rows, **settings)
    for result, other in zip(first, second, strict=True):
        assert result.title == other.title
        np.testing.assert_equal(choices(result), choices(other), result.title)
        # the rows that are tested are others
        if len(result.labels):
            assert not np.array_equal(result.logits, other.logits)
            assert not np.array_equal(result.labels, other.labels)
    tuned = bool(settings.get("lr"))
    first_choices = reported_choices(tmp_path / "first", tuned=tuned)
    assert reported_choices(tmp_path / "second", tuned=tuned) == first_choices


def test_a_choice_by_test_rows_would_be_seen(tmp_path: Path) -> None:
    settings = {"select": "test", "seeds": tuple(range(6)), "epochs": 8}
    train_rows = draw_rows(ROWS, 0)
    first = train_on(tmp_path / "1", train_rows, draw_rows(24, 1), **settings)
    second = train_on(tmp_path / "2", train_rows, draw_rows(24, 2), **settings)
    assert first[0].epochs != second[0].epochs


GROUP_PROTOCOLS: dict[str, dict[str, Any]] = {
    "folds": {"folds": 3, "val_fraction": 0.3},
    "repeats": {"folds": 3, "repeats": 2},
    "a fold for every group": {"folds": NUM_GROUPS, "fold": 7},
    "tuned": {"folds": 2, **TUNED_SETTINGS, "final": True, "seeds": (0,)},
    "final": {"test_split": "none", "val_fraction": 0.4},
    "a test split": {"split_seed": 3, "val_fraction": 0.5, "final": True},
    "layers": {"folds": 2, "layers": ((1,), None)},
    "a window": {"folds": 2, "shuffle": "window:20", "class_weights": "balanced"},
    "selected by test": {"folds": 3, "select": "test"},
    "the last epoch": {"folds": 3, "select": "last", "probe": False, "final": True},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Near copies in groups of four: who learned a copy of a row is right about it."""
    rng = np.random.default_rng(5)
    group_N = np.repeat(np.arange(NUM_GROUPS), COPIES)
    label_N = rng.permutation(np.arange(NUM_GROUPS) % 2)[group_N]
    splits: dict[str, Rows] = {}
    for split in ("train", "test"):
        center_NLD = rng.normal(size=(NUM_GROUPS, 2, 48))[group_N]
        states = center_NLD + 1e-3 * rng.normal(size=center_NLD.shape)
        splits[split] = Rows(states.astype(np.float32), label_N)
    train_columns = {
        "speaker": SPEAKERS,
        "one": ["one"] * len(group_N),
        "class": [str(label) for label in label_N],
    }
    columns = {
        name: {"train": names, "test": [f"other {value}" for value in names]}
        for name, names in train_columns.items()
    }
    columns["shared"] = {"train": SPEAKERS, "test": SPEAKERS}
    folder = tmp_path_factory.mktemp("groups") / "cache"
    gaam_cache.write(folder, splits, columns=columns)
    return folder


def groups_of_sides(*sides: Any) -> list[set[str]]:
    """The groups of the rows on each side."""
    return [{SPEAKERS[row] for row in rows if row >= 0} for rows in sides]


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_no_group_has_rows_on_two_sides(
    protocol: str, cache: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "attn": ("none", "scalar-mix"),
        "epochs": 3,
        "lr": 0.1,
        "probe": True,
        "val_fraction": 0.1,
        "select": "val",
        **GROUPS,
        **GROUP_PROTOCOLS[protocol],
    }
    validation_rows = defaultdict(set)
    accuracies: list[float] = []
    for result in train(cache, tmp_path / "runs", **settings):
        validation = result.validation
        assert (validation is not None) == (settings["select"] == "val")
        rows: Any = [] if validation is None else validation.rows
        # each tuning seed has validation rows of other groups
        if np.ndim(rows) == 2:
            sides = groups_of_sides(*rows)
            assert sum(map(len, sides)) == NUM_GROUPS // 2
            assert len(set.union(*sides)) == NUM_GROUPS // 2
            continue
        tested = np.empty(0, np.int64)
        if result.test_rows is not None:
            tested = result.test_rows
        learned = np.setdiff1d(np.arange(len(SPEAKERS)), [*tested, *rows])
        sides = groups_of_sides(learned, rows, tested)
        assert sum(map(len, sides)) == NUM_GROUPS, "each group is on one side"
        if validation is None:
            continue
        check_validation_rows(validation, len(learned), settings["val_fraction"])
        fold = (result.recipe.fold, result.recipe.split_seed)
        validation_rows[fold].add(tuple(rows))
        is_right = validation.logits.argmax(-1) == validation.labels
        accuracies.append(is_right.mean())
    assert all(len(rows) == 1 for rows in validation_rows.values())
    assert not accuracies or np.mean(accuracies) < 0.85


def check_validation_rows(validation: Any, num_learned: int, fraction: float) -> None:
    """Check that classes are as many, and rows as many as asked for, up to groups."""
    class_counts = np.bincount(validation.labels, minlength=2)
    assert abs(class_counts[0] - class_counts[1]) <= COPIES
    num_rows = len(validation.rows)
    expected = fraction * (num_rows + num_learned)
    assert abs(num_rows - expected) <= 2 * COPIES


@pytest.mark.parametrize(
    "options",
    [
        "one",
        "class",
        "class --folds 2",
        f"speaker --folds {NUM_GROUPS + 1}",
        "speaker --select last",
        "speaker --train-rows 40",
        "speaker --folds 2 --train-rows 4/class",
        "lines.txt",
        "lines.txt --folds 2",
        "shared",
        "shared --final",
    ],
)
def test_what_groups_cannot_give_is_refused_before_training(
    options: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("\n".join([*SPEAKERS[:6], " ", *SPEAKERS[7:]]))
    outcome = run("train", "--cache", cache, "--lr", 1, "--groups", *options.split())
    assert outcome.code == 2, outcome.err
    assert not Path("runs").exists()
    assert ("line 7" in outcome.err) == options.startswith("lines.txt")


@pytest.mark.parametrize("source", ["column", "file"])
def test_training_groups_that_differ_in_spelling_alone_are_told(
    source: str, tmp_path: Path
) -> None:
    names = ["s1", "S1", *(f"s{number}" for number in range(2, 10))] * 2
    states = np.random.default_rng(0).normal(size=(20, 2, 4)).astype(np.float32)
    label_N = np.arange(20) % 2
    others = [f"other {row}" for row in range(20)]
    columns = {"speaker": {"train": names, "test": others}}
    splits = {"train": (states, label_N), "test": (-states, label_N)}
    gaam_cache.write(tmp_path / "cache", splits, columns=columns)
    groups = "speaker"
    if source == "file":
        groups = str(tmp_path / "groups.txt")
        Path(groups).write_text("\n".join(names))
    with pytest.warns(GaamWarning, match="that differ only in"):
        train(tmp_path / "cache", tmp_path / "runs", groups=groups, epochs=1, lr=0.01)


@pytest.mark.parametrize("pair", ["1 1.0", "1 01", "+1 1", 'sports \t"sports"', "a A"])
def test_classes_that_differ_in_spelling_alone_are_told(
    pair: str, tmp_path: Path
) -> None:
    states = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
    labels = [*pair.split(" "), "other"] * 4
    with pytest.warns(match="classes that differ only in"):
        gaam_cache.write(tmp_path / "cache", {"train": (states, labels)})
