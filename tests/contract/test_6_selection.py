"""Promise 6: no test row has a say in anything that is chosen, in any protocol.

The same is trained twice, the second time with other states and labels of the rows that are tested.
What was chosen must be the same bit by bit: rate, decay, epoch, penalty, temperature, the rows that
choose, what is said of them, weights and logs. ``--select test`` shows that the changes matter.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_decoder import RunResult, TrainConfig
from tests.contract.conftest import run

L, D, CLASSES, ROWS = 2, 3, 2, 120
SPEAKER = [f"speaker {row // 4}" for row in range(ROWS)]
RATES: dict[str, Any] = {"lr": (1e-4, 0.1), "weight_decay": (0, 0.5)}
GROUPS: dict[str, Any] = {"groups": "speaker"}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "rates and the probe": {**RATES, "probe": True, "val_fraction": 0.4},
    "rates by other seeds": {**RATES, "tune_seeds": (7, 8), "final": True},
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
    "a window of weighted classes": {"shuffle": "window:20", "class_weights": "balanced"},
    "folds": {"folds": 3, "fold": 2},
    "folds, rates by other seeds": {"folds": 3, "fold": 1, **RATES, "tune_seeds": (7, 8)},
    "folds of sizes": {"folds": 3, "fold": 3, "train_rows": (30, None)},
    "folds of groups": {"folds": 3, "fold": 2, **GROUPS, "probe": True},
}


def rows_of(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """States that tell the classes apart half of the time."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(count) % CLASSES)
    x = rng.normal(size=(count, L, D))
    x[:, :, :CLASSES] += np.eye(CLASSES)[label][:, None] / 2
    return x.astype(np.float32), label


def trained(folder: Path, train: Any, test: Any, **settings: Any) -> list[RunResult]:
    columns = {"speaker": {"train": SPEAKER, "test": [f"other {n}" for n in range(len(test[1]))]}}
    gaam_cache.write(folder / "cache", {"train": train, "test": test}, columns=columns)
    config = {"attn": "gaam", "seeds": (0, 1), "epochs": 3, "lr": 0.03, "probe": False,
              "batch_size": 16, "compile": "off", **settings}  # fmt: skip
    runs = gaam_decoder.train(TrainConfig(cache=folder / "cache", runs=folder / "runs", **config))
    return sorted(runs, key=lambda one: (one.title, one.seeds))


def chosen(of: RunResult) -> dict[str, Any]:
    """What was chosen, and what follows from it; not what is said of rows that are tested."""
    predictor = gaam_decoder.load(of.path, temperature=of.validation is not None)
    states, _ = rows_of(20, 9)
    return {
        "rate, decay": of.recipe,
        "by validation of": of.tuning,
        "penalty": of.fit,
        "epochs": of.epochs,
        "temperatures": predictor.temperatures,
        "weights": predictor.predict_states(states).probabilities_NC,
        "validation": of.validation and asdict(of.validation),
        "log": [{k: v for k, v in entry.items() if k != "seconds"} for entry in of.log],
    }


def reported(folder: Path, tuned: bool) -> list[Any]:
    """Which rates and decays a report shows, and why; all seeds choose them where none is named."""
    outcome = run("report", folder / "runs", "--format", "json")
    rows = json.loads(outcome.out)["rows"]
    assert any(row["tuning"] for row in rows) == tuned
    return [(row["attention"], row["head"], row["recipe"], row["tuning"]) for row in rows]


def with_other_rows(train: Any, tested: NDArray[np.int64]) -> Any:
    """Other states of some rows; neighbours among them change labels, so that no fold changes."""
    x, label = train[0].copy(), train[1].copy()
    x[tested] = 3 * rows_of(ROWS, 77)[0][tested]
    for row in tested[:-1][np.diff(tested) == 1]:
        label[[row, row + 1]] = label[[row + 1, row]]
    assert (label != train[1]).sum() >= 5
    return x, label


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_that_is_chosen_knows_the_rows_that_are_tested(
    protocol: str, tmp_path: Path
) -> None:
    settings, train, test = PROTOCOLS[protocol], rows_of(ROWS, 0), rows_of(24, 1)
    first = trained(tmp_path / "first", train, test, **settings)
    if "folds" in settings:
        (tested,) = {tuple(one.test_rows) for one in first}
        other = with_other_rows(train, np.array(tested)), test
    else:
        other = train, (3 * rows_of(40, 78)[0], rows_of(40, 79)[1])
    second = trained(tmp_path / "second", *other, **settings)
    for one, same in zip(first, second, strict=True):
        assert one.title == same.title
        np.testing.assert_equal(chosen(one), chosen(same), one.title)
        if len(one.labels):  # the rows that are tested are others
            assert not np.array_equal(one.logits, same.logits)
            assert not np.array_equal(one.labels, same.labels)
    told = [reported(tmp_path / name, bool(settings.get("lr"))) for name in ("first", "second")]
    assert told[0] == told[1]


def test_a_choice_by_test_rows_would_be_seen(tmp_path: Path) -> None:
    settings = {"select": "test", "seeds": tuple(range(6)), "epochs": 8}
    first, second = (
        trained(tmp_path / str(seed), rows_of(ROWS, 0), rows_of(24, seed), **settings)
        for seed in (1, 2)
    )
    assert first[0].epochs != second[0].epochs
