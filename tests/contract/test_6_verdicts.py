"""Promise 6: a report of mechanisms follows from their answers on every row.

Figures of ``gaam report --format json`` are computed again, from the logits of every
seed and row by other means. How often claims are false is counted. S seeds, N rows,
C classes.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special, stats
from scipy.optimize import brentq, minimize_scalar
from sklearn import metrics

import gaam_cache
import gaam_decoder
from gaam_decoder.stats import claim, holm_corrected
from tests.contract.conftest import run, train

C = 3
SEEDS = tuple(range(7))
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on states whose first layers tell the classes apart; the last does not."""
    folder = tmp_path_factory.mktemp("verdicts")
    rng = np.random.default_rng(3)
    splits: dict[str, Any] = {}
    for split, rows in (("train", 120), ("test", 90)):
        label_N = rng.choice(C, rows, p=(0.5, 0.3, 0.2))
        x_NLD = rng.normal(size=(rows, 4, 12))
        x_NLD[:, :2, :C] += 1.3 * np.eye(C)[label_N][:, None]
        splits[split] = (x_NLD.astype(np.float32), label_N)
    gaam_cache.write(folder / "cache", splits)
    settings: dict[str, Any] = {
        "attn": ("gaam", "last-layer", "none", "scalar-mix"),
        "seeds": SEEDS,
        "lr": 0.01,
        "val_fraction": 0.3,
        "batch_size": 32,
    }
    train(folder / "cache", folder / "runs", epochs=6, probe=True, **settings)
    train(folder / "cache", folder / "folds", epochs=2, folds=3, **settings)
    return folder


def report(folder: Path, *options: object) -> Any:
    outcome = run("report", folder, "--format", "json", "--baseline", "none", *options)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


class Answers(NamedTuple):
    """The answers of all runs of a folder, folds one after another."""

    # logits (S, N, C) of every mechanism and head
    logits: dict[tuple[str, str], Floats]
    labels: NDArray[Any]
    # the rows where folds end
    ends: list[int]


def answers(folder: Path) -> Answers:
    results = sorted(
        gaam_decoder.load_runs(folder), key=lambda result: result.recipe.fold or (0,)
    )
    parts: dict[tuple[str, str], list[Any]] = {}
    labels: list[Any] = []
    for result in results:
        key = (result.attention, result.head)
        parts.setdefault(key, []).append(result.logits.astype(float))
        if key == ("none", "linear"):
            labels.append(result.labels)
    return Answers(
        {key: np.concatenate(part, 1) for key, part in parts.items()},
        np.concatenate(labels),
        np.cumsum([len(part) for part in labels[:-1]]).tolist(),
    )


def close(actual: Any, expected: Any, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-8)


def scores(logits: Floats, label: NDArray[Any], ends: list[int]) -> dict[str, float]:
    """Of one seed; rows of different folds are never ranked against one another."""
    p = special.softmax(logits, 1)
    predicted = logits.argmax(1)
    one_hot = np.eye(C)[label]
    areas = []
    precisions = []
    for y, fold_p in zip(np.split(one_hot, ends), np.split(p, ends), strict=True):
        areas.append(len(y) * metrics.roc_auc_score(y, fold_p))
        precisions.append(len(y) * metrics.average_precision_score(y, fold_p))
    return {
        "accuracy": (predicted == label).mean(),
        "macro-f1": metrics.f1_score(label, predicted, average="macro"),
        "balanced-accuracy": metrics.balanced_accuracy_score(label, predicted),
        "auroc": sum(areas) / len(label),
        "average-precision": sum(precisions) / len(label),
        "mcc": metrics.matthews_corrcoef(label, predicted),
        "log-loss": metrics.log_loss(label, p),
        "brier": ((p - one_hot) ** 2).sum(1).mean(),
        "ece": calibration_error(p.max(1), predicted == label),
    }


def calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """The expected calibration error over 15 bins that contain their upper ends."""
    bins = np.nextafter(np.arange(16) / 15, 1)
    gaps = stats.binned_statistic(confidence, right - confidence, "sum", bins).statistic
    return float(np.abs(gaps).sum() / len(right))


class Counts:
    """Counts of every class, where a row counts as often as its weight w says."""

    def __init__(self, w: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
        self.own = w @ y
        self.rest = w @ (1 - y)
        self.either = w @ (y + z)
        self.hits = w @ (y * z)


def row_effects(name: str, logits: Floats, label: NDArray[Any]) -> tuple[Floats, float]:
    """What every row adds: the derivative of the weighted score in its weight.

    And the square of what one more row, right in place of wrong, can change at most.
    """
    n = len(label)
    w = torch.ones(n, dtype=torch.float64, requires_grad=True)
    p = torch.softmax(torch.tensor(logits), 1)
    y = torch.tensor(np.eye(C)[label])
    z = torch.eye(C, dtype=torch.float64)[logits.argmax(1)]
    counts = Counts(w, y, z)
    if name == "macro-f1":
        f1 = 2 * counts.hits / counts.either
        value = f1.mean()
        most = ((2 - f1) / counts.either).max() + (f1 / counts.either).max()
        most = most / C
    elif name == "balanced-accuracy":
        value = (counts.hits / counts.own).mean()
        most = 1 / (C * counts.own.min())
    elif name == "auroc":
        above = [(1 + (s[:, None] - s).sign()) / 2 for s in torch.logit(p).T]
        areas = [(w * y[:, c]) @ above[c] @ (w * (1 - y[:, c])) for c in range(C)]
        value = (torch.stack(areas) / counts.own / counts.rest).mean()
        most = (1 / counts.own.min() + 1 / counts.rest.min()) / C
    else:
        row_scores, largest = additive_score(name, p, y, z)
        value = w @ row_scores / w.sum()
        most = torch.tensor(largest / n)
    (change,) = torch.autograd.grad(value, w)
    return value.item() + n * change.numpy(), most.detach().item() ** 2


def additive_score(
    name: str, p: torch.Tensor, y: torch.Tensor, z: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """A score of every row, of which a score is the mean; and the largest for a row."""
    if name == "accuracy":
        return (y * z).sum(1), 0.0
    if name == "brier":
        return ((p - y) ** 2).sum(1), 2.0
    assert name == "log-loss"
    loss = -(p.log() * y).sum(1)
    return loss, max(loss.max().item(), math.log(len(loss)))


class Crossed:
    """Seeds and rows at random: variances from residuals, p and limits from roots."""

    def __init__(self, d: Floats, unseen: float | None = None) -> None:
        seeds, rows = d.shape
        of_seed = d.mean(1)
        of_row = d.mean(0)
        self.sums = d.sum(0)
        self.mean = d.mean()
        self.of_seed = of_seed
        self.unseen = unseen
        self.df = np.array([max(seeds - 1, 1), rows - 1])
        rest = ((d - of_seed[:, None] - of_row + d.mean()) ** 2).sum() / self.df.prod()
        by_seeds = max(rows * of_seed.var(ddof=1), rest) if seeds > 1 else 0
        by_rows = max(seeds * of_row.var(ddof=1) - rest, 0)
        self.variances = np.array([by_seeds, by_rows]) / (seeds * rows)
        self.sides = (np.maximum(of_row, 0), np.maximum(-of_row, 0))

    def distance(self, tail: float, theta: float = 0.0) -> float:
        more = self.more(theta) if self.unseen is None else 3.33 * self.unseen
        variances = self.variances + np.array([0, more])
        return math.sqrt(stats.t.isf(tail, self.df) ** 2 @ variances)

    def more(self, theta: float) -> float:
        """Variance of rows that was not seen, at the likeliest shares theta apart."""
        size = min(abs(theta), 1 - 1e-9)
        low = 1e-14
        better, worse = (side.mean() for side in self.sides)
        if theta < 0:
            better, worse = worse, better

        def slope(q: float) -> float:
            neither = 2 * (1 - better - worse) / (1 - size - 2 * q)
            return better / (q + size) + worse / q - neither

        q = 0.0
        if slope(low) > 0:
            q = brentq(slope, low, (1 - size) / 2 - low, xtol=1e-15)
        likeliest = 2 * q + size - size**2
        seen = better + worse - (better - worse) ** 2
        return 1.107 * max(0.0, likeliest - seen) / (self.df[1] + 1)

    def tail(self, distance: float, theta: float = 0.0) -> float:
        if distance < 0:
            return 1 - self.tail(-distance, theta)

        def excess(log_tail: float) -> float:
            return self.distance(math.exp(log_tail), theta) - distance

        return math.exp(brentq(excess, -230, math.log(0.5)))

    def p(self) -> float:
        crossed = 2 * self.tail(abs(self.mean))
        if self.unseen is not None:
            return min(1.0, crossed)
        exact = self.p_of_flips() if (self.sums != 0).sum() < 100 else 0
        return min(1.0, max(crossed, exact, self.p_of_rare_differences()))

    def p_of_flips(self) -> float:
        """Every row for or against, as by chance."""
        sums = np.rint(self.sums[self.sums != 0]).astype(int)
        flips = np.ones(1)
        for size in abs(sums):
            flips = np.convolve(flips, np.eye(2 * size + 1)[[0, -1]].sum(0) / 2)
        totals = np.arange(len(flips)) - len(flips) // 2
        return float(flips[abs(totals) >= abs(sums.sum())].sum())

    def p_of_rare_differences(self) -> float:
        """Of a Poisson count of rows for, where few rows are against."""
        little, much = sorted(self.sides, key=np.mean)
        one = ((little**2).sum() + 1) / (little.sum() + 1)
        return float(2 * stats.gamma.sf(much.sum() / one, little.sum() / one + 1))

    def p_equivalent(self, margin: float) -> float:
        return max(
            self.tail(margin - self.mean, margin),
            self.tail(margin + self.mean, -margin),
        )

    def limit(self, end: float) -> float:
        if self.distance(0.025, end) >= abs(end - self.mean):
            return end
        return brentq(
            lambda x: self.distance(0.025, x) - abs(x - self.mean), self.mean, end
        )

    def interval(self, highest: float) -> tuple[float, float]:
        """What is not rejected; of accuracies zero is in it or not as p says."""
        if self.unseen is not None:
            return self.limit(-highest), self.limit(highest)
        if self.p() >= 0.05:
            return min(self.limit(-1), 0), max(self.limit(1), 0)
        lower_end = min(0, np.sign(self.mean))
        upper_end = max(0, np.sign(self.mean))
        return self.limit(lower_end), self.limit(upper_end)

    def share(self) -> list[float]:
        """Wilson's interval, of as many rows as have the variance (the score test)."""
        variance = self.variances.sum()
        rows = min(self.df[1] + 1, self.mean * (1 - self.mean) / variance)
        k = self.distance(0.025) ** 2 / variance / rows

        def excess(x: float) -> float:
            return (x - self.mean) ** 2 - k * x * (1 - x)

        return [brentq(excess, end, self.mean) for end in (0, 1)]


def holm(p: list[float]) -> list[float]:
    places = np.argsort(np.argsort(p))
    steps = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)).clip(max=1)
    return steps[places].tolist()


@pytest.mark.parametrize("name", ["runs", "folds"])
def test_scores_and_intervals_of_every_row(name: str, folder: Path) -> None:
    logits_by_key, label, ends = answers(folder / name)
    entries = report(folder / name)["entries"]
    keys = {(entry["attention"], entry["head"]) for entry in entries}
    assert keys == set(logits_by_key)
    for entry in entries:
        logits_SNC = logits_by_key[entry["attention"], entry["head"]]
        check_scores(entry, [scores(logits, label, ends) for logits in logits_SNC])
        predicted_SN = logits_SNC.argmax(2)
        right = predicted_SN == label
        if len(right) > 1:
            t = stats.t(len(right) - 1, right.mean(), stats.sem(right.mean(1)))
            close(entry["accuracy"]["ci95"], np.clip(t.interval(0.95), 0, 1))
        close(entry["accuracy_ci95_seeds_and_rows"], Crossed(right * 1.0, 0).share())
        counts = [metrics.confusion_matrix(label, row) for row in predicted_SN]
        assert entry["confusion"] == np.sum(counts, 0).tolist()
        # the mean probability decides where votes are equal
        votes = np.eye(C)[predicted_SN].sum(0)
        votes += special.softmax(logits_SNC, 2).mean(0) / 2
        close(entry["majority_vote_accuracy"], (votes.argmax(1) == label).mean())


def check_scores(entry: Any, seed_scores: list[dict[str, float]]) -> None:
    """Check values, means and deviations of all scores by those of every seed."""
    assert entry["scores"].keys() == seed_scores[0].keys()
    reported = {**entry["scores"], "accuracy": entry["accuracy"]}
    for name, summary in reported.items():
        values = [row[name] for row in seed_scores]
        close(summary["per_seed"], values)
        close(summary["mean"], np.mean(values))
        if len(values) > 1:
            assert abs(summary["std"] - np.std(values, ddof=1)) < 1e-9


@pytest.mark.parametrize("key", ["comparison", "against_probe"])
@pytest.mark.parametrize(
    "options",
    [
        "accuracy",
        "accuracy --margin 25",
        "macro-f1",
        "auroc",
        "balanced-accuracy",
        "brier",
        "log-loss",
    ],
)
def test_claims_and_their_corrections(options: str, key: str, folder: Path) -> None:
    logits_by_key, label, _ = answers(folder / "runs")
    whole_report = report(folder / "runs", "--score", *options.split())
    margin = whole_report["margin"]
    score = options.split()[0]
    # the probe has one answer
    other = logits_by_key["none", "linear" if key == "comparison" else "lbfgs"]
    entries = [entry for entry in whole_report["entries"] if entry.get(key)]
    assert len(entries) == (3 if key == "comparison" else 4)

    differences: list[Crossed] = []
    p: list[float] = []
    p_equivalent: list[float] = []
    for entry in entries:
        logits = logits_by_key[entry["attention"], entry["head"]]
        effects, most = zip(
            *(row_effects(score, seed, label) for seed in (*logits, *other)),
            strict=True,
        )
        d = np.array(effects[: len(SEEDS)]) - effects[len(SEEDS) :]
        difference = Crossed(d, None if score == "accuracy" else max(most))
        differences.append(difference)
        skewed = score == "log-loss" and 25 * stats.skew(d.mean(0)) ** 2 > len(label)
        p.append(1.0 if skewed else difference.p())
        p_equivalent.append(1.0 if skewed else difference.p_equivalent(margin))

    p_holm = holm(p)
    p_equivalent_holm = holm(p_equivalent)
    for place, entry in enumerate(entries):
        comparison = entry[key]
        close(comparison["difference"], differences[place].mean)
        if comparison["verdict"] == "no claim":
            assert comparison["p"] is None
            assert p[place] == 1.0
            continue
        close(comparison["p"], p[place], 1e-5)
        close(comparison["p_holm"], p_holm[place], 1e-5)
        close(comparison["p_equivalent"], p_equivalent[place], 1e-5)
        close(comparison["p_equivalent_holm"], p_equivalent_holm[place], 1e-5)
        highest = {"brier": 2, "log-loss": 1e9}.get(score, 1)
        interval = differences[place].interval(highest)
        close(comparison["ci95_seeds_and_rows"], interval, 1e-5)
        mean = differences[place].mean
        is_better = mean < 0 if score in ("brier", "log-loss") else mean > 0
        verdict = "better" if is_better else "worse"
        if p_holm[place] >= 0.05:
            is_equivalent = p_equivalent_holm[place] < 0.05
            verdict = "equivalent" if is_equivalent else "undecided"
        assert comparison["verdict"] == verdict
        on_these_rows = comparison["on_these_test_rows"]
        check_on_these_rows(on_these_rows, differences[place].of_seed, margin, highest)


def check_on_these_rows(
    comparison: Any, d: Floats, margin: float, highest: float
) -> None:
    """Check figures that take the test rows as given, by differences of the seeds."""
    close(comparison["std"], d.std(ddof=1))
    interval = stats.t.interval(0.95, len(d) - 1, d.mean(), stats.sem(d))
    close(comparison["ci95"], np.clip(interval, -highest, highest))
    signs = np.array(list(itertools.product((1, -1), repeat=len(d))))
    p_sign_flip = (abs(signs @ d) >= abs(d.sum()) - 1e-9).mean()
    close(comparison["p_sign_flip"], p_sign_flip)
    p_above = stats.ttest_1samp(d, -margin, alternative="greater").pvalue
    p_below = stats.ttest_1samp(d, margin, alternative="less").pvalue
    close(comparison["p_equivalent"], max(p_above, p_below))


# among them seeds that differ by less than luck
@pytest.mark.parametrize("seed", range(24))
def test_claims_of_any_hits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hits = rng.random((2, 2 + seed % 7, 20 + 20 * seed))
    first, second = hits < rng.choice((0.5, 0.9, 0.99))
    made = claim(first, second, margin=0.1)
    expected = Crossed(first * 1.0 - second)
    close([made.p, made.p_equivalent], [expected.p(), expected.p_equivalent(0.1)], 1e-5)
    close(made.interval, expected.interval(1), 1e-5)


def test_what_other_training_sets_would_give(folder: Path) -> None:
    """The corrected resampled t test over three folds (Nadeau and Bengio 2003)."""
    logits, label, ends = answers(folder / "folds")
    right_of_none = logits["none", "linear"].argmax(2) == label
    for entry in report(folder / "folds")["entries"]:
        if entry["attention"] == "none":
            continue
        right = logits[entry["attention"], "linear"].argmax(2) == label
        differences = 1.0 * right - right_of_none
        d = np.array([fold.mean() for fold in np.split(differences, ends, 1)])
        error = math.sqrt((1 / 3 + 1 / 2) * d.var(ddof=1))
        other_sets = entry["comparison"]["other_training_sets"]
        close(other_sets["difference"], d.mean())
        close(other_sets["p"], 2 * stats.t.sf(abs(d.mean()) / error, 2))
        interval = stats.t.interval(0.95, 2, d.mean(), error)
        close(other_sets["ci95"], np.clip(interval, -1, 1))


def test_temperatures_are_best_on_the_validation_rows(folder: Path) -> None:
    logits, label, ends = answers(folder / "runs")
    results = {
        (result.attention, result.head): result
        for result in gaam_decoder.load_runs(folder / "runs")
    }
    for entry in report(folder / "runs", "--temperature")["entries"]:
        key = (entry["attention"], entry["head"])
        labels = results[key].validation_labels
        validation_logits = results[key].validation_logits
        assert labels is not None
        assert validation_logits is not None
        for seed, (temperature,) in enumerate(entry["temperature"]["per_seed"]):
            seed_logits = validation_logits[seed].astype(float)
            check_best_temperature(temperature, seed_logits, labels)
            scaled = scores(logits[key][seed] / temperature, label, ends)
            for name in ("log-loss", "brier", "ece"):
                close(entry["scores"][name]["per_seed"][seed], scaled[name])


def check_best_temperature(
    temperature: float, logits: Floats, label: NDArray[Any]
) -> None:
    """Check that no temperature has a lower log-loss."""

    def loss(log_t: float) -> float:
        p = special.softmax(logits / math.exp(log_t), 1)
        return float(metrics.log_loss(label, p))

    best = minimize_scalar(loss, bounds=(-5, 9), method="bounded")
    assert loss(math.log(temperature)) <= best.fun + 1e-9


def simulate(
    rng: np.random.Generator, seeds: int, rows: int, accuracies: list[float]
) -> Any:
    """Hits (K, S, N) of K decoders.

    Rows are easy or hard, also for each decoder; seeds good or bad; the rest is luck.
    """
    k = len(accuracies)
    latent = 2 * rng.standard_normal((1, 1, rows))
    latent = latent + rng.standard_normal((k, 1, rows))
    latent = latent + 0.2 * rng.standard_normal((k, seeds, 1))
    level = stats.norm.ppf(accuracies) * math.sqrt(4 + 1 + 0.04 + 1)
    return latent + rng.standard_normal((k, seeds, rows)) + level[:, None, None] > 0


@pytest.mark.parametrize("sizes", [(10, 200), (6, 80), (10, 600)])
def test_claims_are_false_at_most_5_times_in_100(sizes: tuple[int, int]) -> None:
    """In 200 reports of four mechanisms.

    A rate of 5 in 100 gives more than 20 false ones once in 1,000 such tests.
    """
    rng = np.random.default_rng(sizes)
    falsely_different = 0
    falsely_equivalent = 0
    rightly_better = 0
    rightly_equivalent = 0
    for _ in range(200):
        none, *others = simulate(rng, *sizes, [0.85] * 4)
        claims = holm_corrected([claim(other, none) for other in others])
        falsely_different += any(made.significant for made in claims)
        low, high = simulate(rng, *sizes, [0.8, 0.85])
        verdict = claim(low, high, margin=0.05).verdict
        falsely_equivalent += verdict == "equivalent"
        low, high = simulate(rng, *sizes, [0.6, 0.85])
        rightly_better += claim(high, low).verdict == "better"
        verdict = claim(others[0], none, margin=0.2).verdict
        rightly_equivalent += verdict == "equivalent"
    most = stats.binom.isf(1e-3, 200, 0.05)
    assert falsely_different <= most
    assert falsely_equivalent <= most
    assert rightly_better >= 180
    assert rightly_equivalent >= 180
