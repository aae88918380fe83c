"""Rows of one group never stand on two sides of what learns, what chooses and what is tested.

States are near copies in groups of four whose labels are drawn by group: who chooses by a copy of
what was learned is right about it every time, and nobody else can be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_decoder import TrainConfig

GROUPS, COPIES = 36, 4
OF_ROW = np.repeat(np.arange(GROUPS), COPIES)
BASE = TrainConfig(
    attn=("none", "scalar-mix"), seeds=(0, 1), epochs=3, lr=0.1, compile="off", probe=True,
    groups="speaker",
)  # fmt: skip
PROTOCOLS: dict[str, dict[str, Any]] = {
    "folds": {"folds": 3, "val_fraction": 0.3},
    "repeats": {"folds": 3, "repeats": 2},
    "a fold for every group": {"folds": GROUPS, "fold": 7},
    "tuned": {"folds": 2, "lr": (1e-3, 0.1), "weight_decay": (0, 0.1), "tune_seeds": (7, 8),
              "final": True, "seeds": (0,)},
    "final": {"test_split": "none", "val_fraction": 0.4},
    "a test split": {"split_seed": 3, "val_fraction": 0.5, "final": True},
    "layers": {"folds": 2, "layers": ((1,), None)},
    "a window": {"folds": 2, "shuffle": "window:20", "class_weights": "balanced"},
    "chosen by test": {"folds": 3, "select": "test"},
    "the last epoch": {"folds": 3, "select": "last", "probe": False, "final": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    label_N = rng.permutation(np.arange(GROUPS) % 2)[OF_ROW]
    splits = {}
    for split in ("train", "test"):
        center_NLD = rng.normal(size=(GROUPS, 2, 48))[OF_ROW]
        states = center_NLD + 1e-3 * rng.normal(size=center_NLD.shape)
        splits[split] = (states.astype(np.float32), label_N)
    columns = {
        "speaker": [f"speaker {number}" for number in OF_ROW],
        "one": ["one"] * len(OF_ROW),
        "class": list(map(str, label_N)),
    }
    folder = tmp_path_factory.mktemp("groups") / "cache"
    kept = {k: {"train": of, "test": [f"other {n}" for n in of]} for k, of in columns.items()}
    kept["shared"] = dict.fromkeys(splits, columns["speaker"])
    gaam_cache.write(folder, splits, columns=kept)
    return folder


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_group_has_rows_on_two_sides(protocol: str, cache: Path, tmp_path: Path) -> None:
    config = replace(BASE, cache=cache, runs=tmp_path / "runs", **PROTOCOLS[protocol])
    runs = gaam_decoder.train(config)
    chose, right = defaultdict(set), []
    for run in runs:
        tested = [] if run.recipe["fold"] is None else run.test_rows
        found = run.validation
        assert (found is not None) == (config.select == "val")
        held = [] if found is None else found.rows
        learned = np.setdiff1d(np.arange(len(OF_ROW)), [*tested, *held])
        sides = [set(OF_ROW[np.asarray(rows, dtype=int)]) for rows in (learned, held, tested)]
        assert sum(map(len, sides)) == GROUPS  # each group is in one
        if found is None:
            continue
        of_class = np.bincount(found.labels, minlength=2)
        assert abs(of_class[0] - of_class[1]) <= COPIES
        expected = config.val_fraction * (len(held) + len(learned))
        assert abs(len(held) - expected) <= 2 * COPIES
        chose[run.recipe["fold"], run.recipe["split_seed"]].add(tuple(held))
        right.append((found.logits.argmax(-1) == found.labels).mean())
    # the same rows for every mechanism, seed, rate and the probe; nobody can know their labels
    assert all(len(rows) == 1 for rows in chose.values())
    assert not right or np.mean(right) < 0.85


@pytest.mark.parametrize(
    "options",
    [("one",), ("class",), ("class", "--folds", 2), ("speaker", "--folds", GROUPS + 1),
     ("speaker", "--select", "last"), ("speaker", "--train-rows", 40),
     ("speaker", "--folds", 2, "--train-rows", "4/class"), ("lines.txt",),
     ("lines.txt", "--folds", 2), ("shared",), ("shared", "--final")],
)  # fmt: skip
def test_what_groups_cannot_give_is_refused_before_training(
    options: tuple[Any, ...], cache: Path, gaam: Callable[..., Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    lines = [f"speaker {number}" for number in OF_ROW]
    Path("lines.txt").write_text("\n".join([*lines[:6], " ", *lines[7:]]))
    outcome = gaam("train", "--cache", cache, "--runs", "runs", "--attn", "none",
                   "--groups", *options)  # fmt: skip
    assert outcome.code == 2, outcome.err
    assert not Path("runs").exists()
    assert ("line 7" in outcome.err) == (options[0] == "lines.txt")


@pytest.mark.parametrize("pair", ["1 1.0", "1 01", "+1 1", 'sports \t"sports"', "a A"])
def test_classes_that_are_one_written_differently_are_told(pair: str, tmp_path: Path) -> None:
    first, second = pair.split(" ")
    labels = [first, second, "other"] * 4
    states = np.random.default_rng(0).normal(size=(12, 2, 4)).astype(np.float32)
    with pytest.warns(match="classes that differ only in"):
        gaam_cache.write(tmp_path / "cache", {"train": (states, labels)})
