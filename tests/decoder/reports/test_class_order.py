"""Ordered classes: scores follow the order that a person or the numbers give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from tests.decoder.configs import loose_config

WORDS = ("bad", "good", "middling")
LOW_TO_HIGH = ("bad", "middling", "good")


def trained(folder: Path, names: tuple[str, ...]) -> Any:
    generator = np.random.default_rng(0)
    x_NLD = generator.normal(size=(150, 2, 5)).astype(np.float32)
    # the class follows a feature, from low to high in the alphabet of WORDS
    level_N = np.digitize(x_NLD[:, 0, 0] + generator.normal(0, 0.5, 150), [-0.6, 0.6])
    label_N = np.array([0, 2, 1])[level_N]
    splits = {
        "train": (x_NLD[:90], label_N[:90]),
        "test": (x_NLD[90:], label_N[90:]),
    }
    gaam_cache.write(folder / "cache", splits, class_names=names)
    config = loose_config(
        attn=("none",),
        cache=folder / "cache",
        runs=folder / "runs",
        seeds=2,
        epochs=5,
        lr=0.02,
        device="cpu",
        probe=False,
    )
    [run] = gaam_decoder.train(config)
    return run


def scores(run: Any, score: str, **options: Any) -> list[float]:
    report = gaam_decoder.report([run], score=score, **options)
    assert json.loads(report.text("json"))["score"] == score
    [entry] = report.tables[0].entries
    values: list[float] = entry.compared_score.scored.values.tolist()
    return values


@pytest.mark.parametrize(
    ("names", "options", "place_C"),
    [
        pytest.param(
            WORDS, {"class_order": "bad,middling,good"}, [0, 2, 1], id="words"
        ),
        pytest.param(WORDS, {"class_order": LOW_TO_HIGH}, [0, 2, 1], id="sequence"),
        pytest.param(("10", "2", "-1"), {}, [2, 1, 0], id="numbers"),
    ],
)
def test_ordinal_scores_are_those_of_scikit_learn_in_the_order_of_the_classes(
    names: tuple[str, ...], options: Any, place_C: list[int], tmp_path: Path
) -> None:
    run = trained(tmp_path, names)
    places = np.array(place_C)
    label_N = places[run.labels]
    kappas = []
    errors = []
    for predicted_N in places[run.predictions]:
        kappas.append(cohen_kappa_score(label_N, predicted_N, weights="quadratic"))
        errors.append(mean_absolute_error(label_N, predicted_N))
    assert scores(run, "quadratic-kappa", **options) == pytest.approx(kappas)
    assert scores(run, "ordinal-mae", **options) == pytest.approx(errors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"score": "quadratic-kappa"}, "needs the order", id="words without order"
        ),
        pytest.param(
            {"score": "ordinal-mae", "class_order": "bad,good"},
            "does not name every class",
            id="a class lacks",
        ),
        pytest.param(
            {"class_order": "bad,middling,good"}, "ordered classes", id="no such score"
        ),
    ],
)
def test_an_order_that_does_not_fit_is_refused(
    options: Any, message: str, tmp_path: Path
) -> None:
    run = trained(tmp_path, WORDS)
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.report([run], **options)
