"""Train, run folder, report and prediction of every task, on small synthetic arrays."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, r2_score

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.runs.loading import Runs
from gaam_decoder.use.results import LabelSetPredictions, NumberPredictions
from tests.decoder.configs import loose_config, probabilities_of

NUM_TRAIN = 80
NAMES = ("alpha", "beta")


def arrays(task: str) -> tuple[Any, Any]:
    """States of 120 rows, and targets that depend on them."""
    generator = np.random.default_rng(5)
    x_NLD = generator.normal(size=(120, 3, 6)).astype(np.float32)
    if task == "classification":
        return x_NLD, (x_NLD[:, 1, 0] > 0).astype(np.int64)
    if task == "regression":
        # far from 0 and of different size: nothing learns this without a scale
        far_N = 1000 + 3 * x_NLD[:, 1, 0]
        small_N = 0.01 * x_NLD[:, 2, 1] - 5
        return x_NLD, np.stack([far_N, small_N], 1).astype(np.float32)
    return x_NLD, (x_NLD[:, 0, :2] > [0, 0.5])


def make_cache(folder: Path, task: str) -> Path:
    x_NLD, targets = arrays(task)
    splits = {
        "train": (x_NLD[:NUM_TRAIN], targets[:NUM_TRAIN]),
        "test": (x_NLD[NUM_TRAIN:], targets[NUM_TRAIN:]),
    }
    settings: dict[str, Any] = {}
    if task != "classification":
        settings = {"task": task, "target_names": NAMES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.write(folder / "cache", splits, **settings)
    return folder / "cache"


def train(folder: Path, cache: Path, **settings: Any) -> Runs:
    config = loose_config(
        attn=("none",),
        cache=cache,
        runs=folder / "runs",
        seeds=2,
        epochs=20,
        lr=0.05,
        device="cpu",
        probe=False,
        **settings,
    )
    return gaam_decoder.train(config)


def reference(task: str, labels: Any, logits_NK: Any) -> float:
    if task == "classification":
        return float((logits_NK.argmax(1) == labels).mean())
    if task == "regression":
        return float(r2_score(labels.astype(float), logits_NK.astype(float)))
    return float(f1_score(labels, logits_NK > 0, average="micro"))


@pytest.mark.parametrize(
    ("task", "least"),
    [("classification", 0.8), ("regression", 0.5), ("multi-label", 0.6)],
)
def test_a_task_is_learned_reported_and_predicted(
    task: str, least: float, tmp_path: Path
) -> None:
    cache = make_cache(tmp_path, task)
    (run,) = train(tmp_path, cache)
    _, targets = arrays(task)
    tested = targets[NUM_TRAIN:]

    # the run: outputs in the unit of the data, and the score of a plain reference
    np.testing.assert_array_equal(run.labels, tested)
    expected = [reference(task, tested, logits) for logits in run.logits]
    np.testing.assert_allclose(run.score, expected, rtol=1e-6)
    assert run.score.mean() > least
    record = json.loads((run.path / "run.json").read_text())
    assert record.get("task", "classification") == run.task == task
    if task == "classification":
        np.testing.assert_allclose(run.accuracy, expected)
    else:
        with pytest.raises(ConfigError, match="has no accuracy"):
            _ = run.accuracy

    # the report: the same mean, and the trivial prediction beside it
    report = gaam_decoder.report(tmp_path / "runs")
    table = json.loads(report.text("json"))
    key = "accuracy" if task == "classification" else "score"
    assert table["entries"][0][key]["mean"] == pytest.approx(np.mean(expected))
    # every format has one interval
    interval = table["entries"][0][f"{key}_ci95_seeds_and_rows"]
    in_table = report.tables[0].entries[0].compared_score.seeds_rows_interval
    assert interval == pytest.approx(in_table)
    text = report.text("markdown")
    assert ("accuracy" in text) == (task == "classification")

    # the prediction is that of the mean over the seeds
    out = tmp_path / "predicted.csv"
    config = gaam_decoder.PredictConfig(run=run.path, cache=cache, out=out)
    gaam_decoder.predict(config)
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == len(tested)
    if task == "regression":
        numbers = [[float(row[f"predicted_{name}"]) for name in NAMES] for row in rows]
        np.testing.assert_allclose(numbers, run.logits.mean(0), rtol=1e-5)
    if task == "multi-label":
        probability_SNK = 1 / (1 + np.exp(-run.logits.astype(float)))
        mean_NK = probability_SNK.mean(0)
        for row, mean_K in zip(rows, mean_NK, strict=True):
            of_row = [name for name, p in zip(NAMES, mean_K, strict=True) if p > 0.5]
            assert json.loads(row["predicted"]) == of_row
            found = [float(row[f"probability_{name}"]) for name in NAMES]
            np.testing.assert_allclose(found, mean_K, rtol=1e-5)

    # an export predicts the same
    gaam_decoder.export_run(run.path, tmp_path / "export")
    again = tmp_path / "again.csv"
    config = gaam_decoder.PredictConfig(run=tmp_path / "export", cache=cache, out=again)
    gaam_decoder.predict(config)
    assert again.read_text() == out.read_text()


@pytest.mark.parametrize("task", ["regression", "multi-label"])
def test_rates_are_tuned_in_folds(task: str, tmp_path: Path) -> None:
    cache = make_cache(tmp_path, task)
    config = loose_config(
        attn=("none",),
        cache=cache,
        runs=tmp_path / "runs",
        seeds=2,
        tune_seeds="1000-1001",
        epochs=3,
        lr="1e-3,5e-2",
        folds=2,
        device="cpu",
    )
    runs = gaam_decoder.train(config)
    probe = "ridge" if task == "regression" else "lbfgs"
    assert {run.head for run in runs} == {"linear", probe}
    tuning = [run for run in runs if run.tuning_only]
    for run in tuning:
        # every tuning seed has validation rows of its own, some padded
        validation = run.validation
        assert validation is not None
        logits_VK, label_VK = validation.logits_and_labels_of_seed(1)
        assert len(logits_VK) == len(label_VK) > 0
        expected = reference(task, label_VK, logits_VK)
        np.testing.assert_allclose(run.validation_score[1], expected, rtol=1e-5)
    assert "chose by validation" in gaam_decoder.report(runs).text("markdown")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"loss": "cross-entropy"}, "loss 'cross-entropy'", id="loss"),
        pytest.param({"head": "lbfgs"}, "head 'lbfgs'", id="head"),
        pytest.param({"class_weights": "balanced"}, "class-weights", id="weights"),
        pytest.param({"train_rows": "5/class"}, "--train-rows 5/class", id="budget"),
    ],
)
def test_what_needs_classes_is_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    cache = make_cache(tmp_path, "regression")
    with pytest.raises(ConfigError, match=message):
        train(tmp_path, cache, **settings)


@pytest.mark.parametrize(
    ("task", "probe"),
    [
        ("regression", "ridge regression (none + ridge)"),
        ("multi-label", "logistic regression of every label (none + lbfgs)"),
    ],
)
def test_mechanisms_are_compared_with_the_linear_probe_of_their_task(
    task: str, probe: str, tmp_path: Path
) -> None:
    """A mechanism that learns nothing is worse, and the conclusion says so."""
    config = loose_config(
        attn=("gaam",),
        cache=make_cache(tmp_path, task),
        runs=tmp_path / "runs",
        seeds=6,
        epochs=1,
        lr=1e-4,
        device="cpu",
    )
    trained, probed = gaam_decoder.train(config)
    assert probed.score[0] > trained.score.max() + 0.1
    [table] = gaam_decoder.report(tmp_path / "runs").tables
    text = conclusion(table)
    assert f"worse than {probe}, which is the one to use" in text


def test_label_sets_have_balanced_weights_and_budgets_by_label(tmp_path: Path) -> None:
    cache = make_cache(tmp_path, "multi-label")
    plain, weighted = (
        train(tmp_path, cache, class_weights=weights)[0].predictions.sum()
        for weights in ("none", "balanced")
    )
    assert weighted > plain, "rows with a rare label count more"
    [run] = train(tmp_path, cache, train_rows="5/class")
    assert run.drawn is not None
    assert 5 <= run.drawn.learn + run.drawn.choose <= 15


def test_a_temperature_calibrates_label_sets(tmp_path: Path) -> None:
    """The temperature of a report divides the logits of what is predicted."""
    cache = make_cache(tmp_path, "multi-label")
    [run] = train(tmp_path, cache)
    report = gaam_decoder.report(tmp_path / "runs", temperature=True)
    [entry] = json.loads(report.text("json"))["entries"]
    fitted = entry["temperature"]["per_seed"]
    predictor = gaam_decoder.load(run.path, temperature=True)
    states = gaam_cache.open_cache(cache)["test"].embeddings
    predicted = predictor.predict_states(states)
    assert isinstance(predicted, LabelSetPredictions)
    scaled_SNK = run.logits / np.array(fitted)[:, 0, None, None]
    expected_NK = (1 / (1 + np.exp(-scaled_SNK))).mean(0)
    np.testing.assert_allclose(predicted.probabilities_NC, expected_NK, rtol=1e-4)
    losses = [
        np.logaddexp(0, np.where(run.labels, -1, 1) * logits_NK).mean()
        for logits_NK in scaled_SNK
    ]
    assert entry["scores"]["log-loss"]["per_seed"] == pytest.approx(losses, rel=1e-5)
    assert "share with the label" in report.text("markdown")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"score": "accuracy"}, "score 'accuracy'", id="score"),
        pytest.param({"temperature": True}, "a temperature", id="temperature"),
    ],
)
def test_reports_refuse_what_does_not_fit(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    train(tmp_path, make_cache(tmp_path, "regression"))
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.report(tmp_path / "runs", **settings)


@pytest.mark.parametrize(
    ("task", "head"),
    [
        ("regression", "ridge"),
        ("regression", "knn:k=3"),
        ("regression", "nadaraya-watson"),
        ("multi-label", "ridge"),
        ("multi-label", "knn:k=3"),
        ("multi-label", "nadaraya-watson"),
        ("multi-label", "class-means"),
    ],
)
def test_heads_without_training_serve_numbers_and_label_sets(
    task: str, head: str, tmp_path: Path
) -> None:
    """The score is scikit-learn's, and predictions are those of the training."""
    cache = make_cache(tmp_path, task)
    config = loose_config(
        attn=("none",), head=head, cache=cache, runs=tmp_path / "runs", probe=False
    )
    [run] = gaam_decoder.train(config)
    [logits_NK] = run.logits
    expected = reference(task, run.labels, logits_NK)
    assert run.score[0] == pytest.approx(expected, rel=1e-6)
    states = gaam_cache.open_cache(cache)["test"].embeddings
    predicted = gaam_decoder.load(run.path).predict_states(states)
    expected_NK = logits_NK.astype(np.float64)
    if task == "regression":
        assert isinstance(predicted, NumberPredictions)
        np.testing.assert_allclose(predicted.numbers_NK, expected_NK, rtol=1e-3)
        return
    expected_NK = 1 / (1 + np.exp(-expected_NK))
    np.testing.assert_allclose(probabilities_of(predicted), expected_NK, rtol=1e-3)


@pytest.mark.parametrize("score", ["r2", "spearman"])
def test_a_score_that_one_seed_lacks_has_no_mean(score: str, tmp_path: Path) -> None:
    """Equal outputs for all rows have no rank correlation."""
    [run] = train(tmp_path, make_cache(tmp_path, "regression"))
    logits_SNK = run.logits.copy()
    logits_SNK[1] = 5.0
    vars(run)["logits"] = logits_SNK
    report = gaam_decoder.report(Runs([run]), score=score)
    table = json.loads(report.text("json"))
    [entry] = table["entries"]
    spearman = entry["scores"]["spearman"]
    assert spearman["mean"] is None
    assert spearman["per_seed"][0] > 0
    assert spearman["per_seed"][1] is None
    assert entry["scores"]["mae"]["mean"] > 0
    for format in ("csv", "markdown", "html", "latex"):
        report.text(format)
