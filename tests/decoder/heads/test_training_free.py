"""Training-free heads against scikit-learn, loops, and what must hold of any of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import linear_model, neighbors

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_decoder.heads import Examples, Fit, FittedHead
from gaam_decoder.heads.nadaraya_watson import WIDTHS, NadarayaWatsonHead
from gaam_decoder.heads.ridge import PENALTIES
from gaam_decoder.specs import build, parse_spec
from gaam_decoder.tasks import task_of
from tests.decoder.configs import loose_config

LAYERS, SIZE, K = 2, 5, 3
HEADS = ("class-means", "knn:k=5", "nadaraya-watson", "ridge")
CASES = [
    (head, task)
    for head in HEADS
    for task in plugins.load(
        "gaam_decoder.heads", head.partition(":")[0], kind="head"
    ).tasks
]


def examples(task: str, count: int = 120, seed: int = 0) -> Examples:
    """Features of very different size, one of them constant, that say something."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, LAYERS * SIZE, generator=generator)
    number = x[:, :K].sin() + 0.3 * torch.randn(count, K, generator=generator)
    x = x * torch.logspace(-2, 2, LAYERS * SIZE) + 5
    x[:, -1] = 0.1
    if task == "regression":
        return Examples(x, number, task)
    if task == "multi-label":
        return Examples(x, (number > 0.2).float(), task)
    return Examples(x, number.argmax(1), task)


def fitted(
    head: str, training: Examples, validation: Examples
) -> tuple[FittedHead, Fit]:
    built: FittedHead = build(parse_spec(head, "head"), "head", LAYERS, SIZE, K)
    return built, built.fit(training, validation, lambda done, text: None)


def outputs(head: FittedHead, rows: Examples) -> np.ndarray:
    logits: np.ndarray = head(rows.x_NF.view(-1, LAYERS, SIZE)).detach().numpy()
    return logits


def standardised(rows: Examples, training: Examples) -> np.ndarray:
    x = training.x_NF.double().numpy()
    varies = x.std(0) > 1e-6
    factor = np.where(varies, 1 / np.where(varies, x.std(0), 1), 0)
    z: np.ndarray = (rows.x_NF.double().numpy() - x.mean(0)) * factor
    return z / np.sqrt(varies.sum())


def _as_outputs(mean: np.ndarray, task: str) -> np.ndarray:
    if task == "regression":
        return mean
    logits = np.log(mean + 1e-3)
    if task == "multi-label":
        logits = logits - np.log(1 - mean + 1e-3)
    result: np.ndarray = logits
    return result


TASKS = ("classification", "regression", "multi-label")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("k", [1, 5, 20])
def test_knn_equals_scikit_learn(task: str, k: int) -> None:
    training, rows = examples(task), examples(task, 60, 1)
    head, fit = fitted(f"knn:k={k}", training, rows)
    z, query = standardised(training, training), standardised(rows, training)
    label = training.label_N.numpy()
    if task == "classification":
        theirs = neighbors.KNeighborsClassifier(k).fit(z, label).predict_proba(query)
    else:
        theirs = neighbors.KNeighborsRegressor(k).fit(z, label).predict(query)
    expected = _as_outputs(theirs, task)
    np.testing.assert_allclose(outputs(head, rows), expected, atol=1e-4)
    assert (fit.setting, fit.value, fit.tried) == ("k", k, 1)


def test_more_neighbours_than_rows_are_all_rows() -> None:
    training = examples("regression", 6)
    head, _ = fitted("knn:k=50", training, training)
    mean = training.label_N.mean(0).expand(6, -1)
    np.testing.assert_allclose(outputs(head, training), mean, atol=1e-5)


def test_class_means_are_those_of_scikit_learn() -> None:
    training, rows = examples("classification"), examples("classification", 60, 1)
    head, _ = fitted("class-means", training, rows)
    z, query = standardised(training, training), standardised(rows, training)
    theirs = neighbors.NearestCentroid().fit(z, training.label_N.numpy())
    logits = outputs(head, rows)
    np.testing.assert_array_equal(logits.argmax(1), theirs.predict(query))
    # up to what all classes share, logits are distances
    square = ((query[:, None] - theirs.centroids_) ** 2).sum(2)
    own = ((z - theirs.centroids_[training.label_N.numpy()]) ** 2).sum(1).mean()
    expected = -square / (2 * own)
    np.testing.assert_allclose(
        logits - logits.mean(1, keepdims=True),
        expected - expected.mean(1, keepdims=True),
        atol=1e-3,
    )


def test_class_means_of_labels_are_those_of_scikit_learn_label_by_label() -> None:
    training, rows = examples("multi-label"), examples("multi-label", 60, 1)
    head, _ = fitted("class-means", training, rows)
    z, query = standardised(training, training), standardised(rows, training)
    for k in range(K):
        theirs = neighbors.NearestCentroid().fit(z, training.label_N[:, k].numpy())
        np.testing.assert_array_equal(
            outputs(head, rows)[:, k] > 0, theirs.predict(query) > 0
        )


def test_class_means_never_predict_what_no_training_row_has() -> None:
    training, rows = examples("classification"), examples("classification", 60, 1)
    training.label_N.clamp_max_(1)
    head, _ = fitted("class-means", training, rows)
    far = Examples(rows.x_NF * 1e3, rows.label_N)
    for some in (rows, far):
        assert (outputs(head, some).argmax(1) < 2).all()
    training, rows = examples("multi-label"), examples("multi-label", 60, 1)
    training.label_N[:, 0] = 0
    training.label_N[:, 1] = 1
    head, _ = fitted("class-means", training, rows)
    assert (outputs(head, rows)[:, 0] < 0).all()
    assert (outputs(head, rows)[:, 1] > 0).all()


def test_class_means_refuse_numbers() -> None:
    rows = examples("regression")
    with pytest.raises(ConfigError, match="predicts no numbers"):
        fitted("class-means", rows, rows)


@pytest.mark.parametrize("count", [120, 8], ids=["more rows", "more features"])
@pytest.mark.parametrize("place", [4, 12, 20])
def test_ridge_equals_scikit_learn(
    count: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    penalty = PENALTIES[place]
    monkeypatch.setattr("gaam_decoder.heads.ridge.PENALTIES", (penalty,))
    training, rows = examples("regression", count), examples("regression", 60, 1)
    head, _ = fitted("ridge", training, rows)
    z, query = standardised(training, training), standardised(rows, training)
    theirs = linear_model.Ridge(alpha=penalty * count).fit(z, training.label_N.numpy())
    np.testing.assert_allclose(outputs(head, rows), theirs.predict(query), atol=2e-3)


def test_the_path_of_ridge_is_that_of_leave_one_out_in_scikit_learn() -> None:
    """Leave-one-out and validation rows choose nearly the same penalty of many rows."""
    training, rows = examples("regression", 400), examples("regression", 400, 1)
    _, fit = fitted("ridge", training, rows)
    alphas = 400 * np.array(PENALTIES)
    theirs = linear_model.RidgeCV(alphas=alphas, store_cv_results=True)
    theirs.fit(standardised(training, training), training.label_N.numpy())
    loss = theirs.cv_results_.mean((0, 1))
    ours = np.array([entry["selection_loss"] for entry in fit.log])
    np.testing.assert_allclose(ours, loss, rtol=0.2)
    assert loss[fit.kept - 1] < 1.02 * loss.min()


KERNELS: dict[str, Any] = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: 1.0 * (u <= 1),
    "epanechnikov": lambda u: np.maximum(1 - u**2, 0),
    "triangular": lambda u: np.maximum(1 - u, 0),
}


def loop(
    kernel: str, width: float, query: np.ndarray, key: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Nadaraya-Watson, one row after the other."""
    means = []
    for row in query:
        distance = np.sqrt(((row - key) ** 2).sum(1))
        weight = KERNELS[kernel](distance / width)
        if weight.sum() == 0:
            weight = 1.0 * (np.arange(len(key)) == distance.argmin())
        means.append(weight @ value / weight.sum())
    return np.stack(means)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("width", [0.05, 0.5, 3.0])
def test_nadaraya_watson_equals_a_plain_loop(
    kernel: str, task: str, width: float
) -> None:
    training, rows = examples(task), examples(task, 60, 1)
    head, fit = fitted(f"nadaraya-watson:kernel={kernel},width={width}", training, rows)
    value = training.label_N.double().numpy()
    if task == "classification":
        value = np.eye(K)[training.label_N.numpy()]
    z, query = standardised(training, training), standardised(rows, training)
    expected = _as_outputs(loop(kernel, width, query, z, value), task)
    np.testing.assert_allclose(outputs(head, rows), expected, atol=5e-3)
    assert (fit.value, fit.tried, fit.edge) == (pytest.approx(width), 1, None)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_example_of_the_lecture(kernel: Any) -> None:
    """100 points of 2 sin x + x + noise; the test points ask, the training points answer."""
    generator = np.random.default_rng(0)

    def points(x: np.ndarray, noise: float) -> Examples:
        y = 2 * np.sin(x) + x + noise * generator.normal(size=len(x))
        columns = [torch.from_numpy(side).float()[:, None] for side in (x, y)]
        return Examples(columns[0], columns[1], "regression")

    training = points(np.sort(generator.uniform(0, 5, 100)), 0.5)
    validation = points(generator.uniform(0, 5, 50), 0.5)
    test = points(np.linspace(0, 5, 50), 0.0)
    head = NadarayaWatsonHead(1, 1, 1, kernel=kernel)
    fit = head.fit(training, validation, lambda done, text: None)
    with torch.inference_mode():
        predicted = head(test.x_NF[:, None]).numpy()

    assert (fit.tried, fit.edge) == (len(WIDTHS), None)
    assert np.abs(predicted - test.label_N.numpy()).mean() < 0.3
    x = training.x_NF.numpy()
    key, query = ((side - x.mean()) / x.std() for side in (x, test.x_NF.numpy()))
    expected = loop(kernel, fit.value, query, key, training.label_N.numpy())
    # a point at the edge of a boxcar is in or out by rounding
    assert (np.abs(predicted - expected) < 1e-3).mean() > 0.9


@pytest.mark.parametrize(("name", "task"), CASES)
def test_the_best_on_validation_rows_is_kept_and_logged(name: str, task: str) -> None:
    training, rows = examples(task), examples(task, 60, 1)
    head, fit = fitted(name, training, rows)
    key = task_of(task).score_key
    ranks = [(entry[key], -entry["selection_loss"]) for entry in fit.log]
    assert fit.kept == 1 + ranks.index(max(ranks))
    assert [entry["epoch"] for entry in fit.log] == list(range(1, fit.tried + 1))
    found = outputs(head, rows)
    target = rows.label_N.numpy()
    if task == "classification":
        value = (found.argmax(1) == target).mean()
    elif task == "regression":
        residual, spread = ((target - found) ** 2).sum(0), target.var(0) * len(target)
        value = (1 - residual / spread).mean()
    else:
        hits, either = ((found > 0) & (target > 0)).sum(), (found > 0).sum()
        value = 2 * hits / (either + target.sum())
    assert fit.log[fit.kept - 1][key] == pytest.approx(value, abs=1e-4)
    assert value > 0.3, "it has learned"
    assert type(head).num_tried_values in (1, fit.tried)
    assert all(number > 0 for number in type(head).cost(120, 10, K))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_head_that_is_loaded_predicts_the_same(name: str, task: str) -> None:
    training, rows = examples(task), examples(task, 60, 1)
    head, _ = fitted(name, training, rows)
    other: FittedHead = build(parse_spec(name, "head"), "head", LAYERS, SIZE, K)
    weights = head.state_dict()
    other.resize(weights)
    other.load_state_dict(weights)
    np.testing.assert_array_equal(outputs(other, rows), outputs(head, rows))


@pytest.mark.parametrize(
    ("k", "is_told"),
    [
        pytest.param(10, False, id="half of the rows"),
        pytest.param(11, True, id="more than half"),
        pytest.param(50, True, id="more than there are"),
    ],
)
def test_a_k_of_most_training_rows_is_told(k: int, is_told: bool) -> None:
    rows = examples("classification", count=20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        fitted(f"knn:k={k}", rows, rows)
    messages = [str(entry.message) for entry in caught]
    assert [f"{min(k, 20)} of 20 training rows vote" in text for text in messages] == (
        [True] if is_told else []
    )


@pytest.mark.parametrize(
    "text", ["knn:k=0", "nadaraya-watson:width=0", "nadaraya-watson:kernel=cubic"]
)
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        build(parse_spec(text, "head"), "head", LAYERS, SIZE, K)


def test_runs_of_nothing_but_fitted_heads_have_a_report(tmp_path: Path) -> None:
    def split(seed: int) -> tuple[np.ndarray, np.ndarray]:
        rows = examples("classification", seed=seed)
        return rows.x_NF.view(-1, LAYERS, SIZE).numpy(), rows.label_N.numpy()

    gaam_cache.write(tmp_path / "cache", {"train": split(0), "test": split(1)})
    gaam_decoder.train(
        loose_config(
            cache=tmp_path / "cache",
            runs=tmp_path / "runs",
            attn=("none", "layer-mean"),
            head="class-means",
            probe=False,
        )
    )
    report = gaam_decoder.report(tmp_path / "runs")
    assert "layer-mean + class-means" in report.text()
