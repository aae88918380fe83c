"""Promise 6: what a report says of mechanisms is what their answers on every row say.

Figures of ``gaam report --format json`` are computed again from the logits of every seed and row
by other means. How often claims are false is counted. S seeds, N rows, C classes.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

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

C, SEEDS = 3, tuple(range(7))
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on states of which the first layers tell the classes apart, and the last does not."""
    rng, splits, out = np.random.default_rng(3), {}, tmp_path_factory.mktemp("verdicts")
    for split, rows in (("train", 120), ("test", 90)):
        label = rng.choice(C, rows, p=(0.5, 0.3, 0.2))
        x = rng.normal(size=(rows, 4, 12))
        x[:, :2, :C] += 1.3 * np.eye(C)[label][:, None]
        splits[split] = (x.astype(np.float32), label)
    gaam_cache.write(out / "cache", splits)
    for name, epochs, folds in (("runs", 6, None), ("folds", 2, 3)):
        attn = ("gaam", "last-layer", "none", "scalar-mix")
        about = {
            "attn": attn,
            "seeds": SEEDS,
            "lr": 0.01,
            "val_fraction": 0.3,
            "batch_size": 32,
        }
        train(
            out / "cache",
            out / name,
            epochs=epochs,
            folds=folds,
            probe=not folds,
            **about,
        )
    return out


def report(folder: Path, *options: object) -> Any:
    outcome = run("report", folder, "--format", "json", "--baseline", "none", *options)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def answers(
    folder: Path,
) -> tuple[dict[tuple[str, str], Floats], NDArray[Any], list[int]]:
    """Logits (S, N, C) of every mechanism and head, labels, and where folds end."""
    runs = sorted(
        gaam_decoder.load_runs(folder), key=lambda one: one.recipe.fold or (0,)
    )
    parts: dict[tuple[str, str], list[Any]] = {}
    for one in runs:
        parts.setdefault((one.attention, one.head), []).append(one.logits.astype(float))
    labels = [
        one.labels for one in runs if (one.attention, one.head) == ("none", "linear")
    ]
    logits = {key: np.concatenate(part, 1) for key, part in parts.items()}
    return (
        logits,
        np.concatenate(labels),
        np.cumsum([len(one) for one in labels[:-1]]).tolist(),
    )


def close(found: Any, expected: Any, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-8)


def scores(logits: Floats, label: NDArray[Any], ends: list[int]) -> dict[str, float]:
    """Of one seed; rows of different folds are never ranked against one another."""
    p, predicted, one_hot = (
        special.softmax(logits, 1),
        logits.argmax(1),
        np.eye(C)[label],
    )
    sure, right, bins = (
        p.max(1),
        predicted == label,
        np.nextafter(np.arange(16) / 15, 1),
    )
    off = stats.binned_statistic(sure, right - sure, "sum", bins).statistic
    folds = zip(np.split(one_hot, ends), np.split(p, ends), strict=True)
    return {
        "accuracy": right.mean(),
        "macro-f1": metrics.f1_score(label, predicted, average="macro"),
        "balanced-accuracy": metrics.balanced_accuracy_score(label, predicted),
        "auroc": sum(len(y) * metrics.roc_auc_score(y, s) for y, s in folds)
        / len(label),
        "log-loss": metrics.log_loss(label, p),
        "brier": ((p - one_hot) ** 2).sum(1).mean(),
        "ece": np.abs(off).sum() / len(label),
    }


def by_row(name: str, logits: Floats, label: NDArray[Any]) -> tuple[Floats, float]:
    """What every row adds: the derivative of the weighted score in its weight.

    And the squares of what one more row can change at most, summed over all kinds of rows.
    """
    n, w = len(label), torch.ones(len(label), dtype=torch.float64, requires_grad=True)
    p, y = torch.softmax(torch.tensor(logits), 1), torch.tensor(np.eye(C)[label])
    z = torch.eye(C, dtype=torch.float64)[logits.argmax(1)]
    own, rest, either, hits = w @ y, w @ (1 - y), w @ (y + z), w @ (y * z)
    if name == "macro-f1":
        f1 = 2 * hits / either
        value, most = f1.mean(), torch.stack([2 - f1, f1]) / (C * either)
    elif name == "balanced-accuracy":
        value, most = (hits / own).mean(), 1 / (C * own)
    elif name == "auroc":
        above = [(1 + (s[:, None] - s).sign()) / 2 for s in torch.logit(p).T]
        areas = [(w * y[:, c]) @ above[c] @ (w * (1 - y[:, c])) for c in range(C)]
        value, most = (
            (torch.stack(areas) / own / rest).mean(),
            torch.cat([1 / own, 1 / rest]) / C,
        )
    else:
        loss = -(p.log() * y).sum(1)
        each, largest = {
            "accuracy": ((y * z).sum(1), 0.0),
            "brier": (((p - y) ** 2).sum(1), 2.0),
            "log-loss": (loss, max(loss.max().item(), math.log(n))),
        }[name]
        value, most = w @ each / w.sum(), torch.tensor(largest / n)
    (change,) = torch.autograd.grad(value, w)
    return value.item() + n * change.numpy(), (most.detach() ** 2).sum().item()


class Crossed:
    """Seeds and rows at random: variances from residuals, p and limits by finding roots."""

    def __init__(self, d: Floats, unseen: float | None = None) -> None:
        (seeds, rows), of_seed, of_row = d.shape, d.mean(1), d.mean(0)
        self.sums, self.mean, self.of_seed, self.unseen = (
            d.sum(0),
            d.mean(),
            of_seed,
            unseen,
        )
        self.df = np.array([max(seeds - 1, 1), rows - 1])
        rest = ((d - of_seed[:, None] - of_row + d.mean()) ** 2).sum() / self.df.prod()
        by_seeds = max(rows * of_seed.var(ddof=1), rest) if seeds > 1 else 0
        by_rows = max(seeds * of_row.var(ddof=1) - rest, 0)
        self.variances = np.array([by_seeds, by_rows]) / (seeds * rows)
        self.sides = np.maximum(of_row, 0), np.maximum(-of_row, 0)

    def distance(self, tail: float, theta: float = 0.0) -> float:
        more = self.more(theta) if self.unseen is None else 3.33 * self.unseen
        return math.sqrt(
            stats.t.isf(tail, self.df) ** 2 @ (self.variances + np.array([0, more]))
        )

    def more(self, theta: float) -> float:
        """Variance of rows, at the likeliest shares that differ by theta, that was not seen."""
        size, low = min(abs(theta), 1 - 1e-9), 1e-14
        b, w = (side.mean() for side in self.sides[:: 1 if theta >= 0 else -1])

        def slope(q: float) -> float:
            return b / (q + size) + w / q - 2 * (1 - b - w) / (1 - size - 2 * q)

        q = (
            brentq(slope, low, (1 - size) / 2 - low, xtol=1e-15)
            if slope(low) > 0
            else 0
        )
        return (
            1.107
            * max(0.0, 2 * q + size - size**2 - (b + w - (b - w) ** 2))
            / (self.df[1] + 1)
        )

    def tail(self, distance: float, theta: float = 0.0) -> float:
        if distance < 0:
            return 1 - self.tail(-distance, theta)
        half = math.log(0.5)
        return math.exp(
            brentq(lambda x: self.distance(math.exp(x), theta) - distance, -230, half)
        )

    def p(self) -> float:
        crossed = 2 * self.tail(abs(self.mean))
        if self.unseen is not None:
            return min(1.0, crossed)
        sums, flips = np.rint(self.sums[self.sums != 0]).astype(int), np.ones(1)
        for size in abs(sums):  # every row for or against, as by chance
            flips = np.convolve(flips, np.eye(2 * size + 1)[[0, -1]].sum(0) / 2)
        exact = flips[
            abs(np.arange(len(flips)) - len(flips) // 2) >= abs(sums.sum())
        ].sum()
        little, much = sorted(self.sides, key=np.mean)
        one = ((little**2).sum() + 1) / (little.sum() + 1)
        rare = 2 * stats.gamma.sf(much.sum() / one, little.sum() / one + 1)
        return min(1.0, max(crossed, exact if len(sums) < 100 else 0, rare))

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
        return self.limit(min(0, np.sign(self.mean))), self.limit(
            max(0, np.sign(self.mean))
        )

    def share(self) -> list[float]:
        """Wilson's interval, of as many rows as have the variance: the score test inverted."""
        rows = min(self.df[1] + 1, self.mean * (1 - self.mean) / self.variances.sum())
        k = self.distance(0.025) ** 2 / self.variances.sum() / rows
        return [brentq(lambda x: (x - self.mean) ** 2 - k * x * (1 - x), end, self.mean)
                for end in (0, 1)]  # fmt: skip


def holm(p: list[float]) -> list[float]:
    places = np.argsort(np.argsort(p))
    steps = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)).clip(max=1)
    return steps[places].tolist()


@pytest.mark.parametrize("name", ["runs", "folds"])
def test_scores_and_intervals_of_every_row(name: str, folder: Path) -> None:
    (logits_of, label, ends), told = answers(folder / name), report(folder / name)
    assert {(row["attention"], row["head"]) for row in told["entries"]} == set(
        logits_of
    )
    for row in told["entries"]:
        logits = logits_of[row["attention"], row["head"]]
        right, of_seeds = (
            logits.argmax(2) == label,
            [scores(one, label, ends) for one in logits],
        )
        assert row["scores"].keys() == of_seeds[0].keys()
        several = len(logits) > 1
        for key, about in {**row["scores"], "accuracy": row["accuracy"]}.items():
            values = [one[key] for one in of_seeds]
            close(about["per_seed"], values)
            close(about["mean"], np.mean(values))
            assert not several or abs(about["std"] - np.std(values, ddof=1)) < 1e-9
        if several:
            t = stats.t(len(logits) - 1, right.mean(), stats.sem(right.mean(1)))
            close(row["accuracy"]["ci95"], np.clip(t.interval(0.95), 0, 1))
        close(row["accuracy_ci95_seeds_and_rows"], Crossed(right * 1.0, 0).share())
        counts = [metrics.confusion_matrix(label, one.argmax(1)) for one in logits]
        assert row["confusion"] == np.sum(counts, 0).tolist()
        votes = (
            np.eye(C)[logits.argmax(2)].sum(0) + special.softmax(logits, 2).mean(0) / 2
        )
        close(row["majority_vote_accuracy"], (votes.argmax(1) == label).mean())


@pytest.mark.parametrize("key", ["comparison", "against_probe"])
@pytest.mark.parametrize("score", ["accuracy", "accuracy --margin 25", "macro-f1", "auroc",
                                   "balanced-accuracy", "brier", "log-loss"])  # fmt: skip
def test_claims_and_their_corrections(score: str, key: str, folder: Path) -> None:
    logits, label, _ = answers(folder / "runs")
    told = report(folder / "runs", "--score", *score.split())
    score = score.split()[0]
    sign, highest = {"brier": (-1, 2), "log-loss": (-1, 1e9)}.get(score, (1, 1))
    other = logits[
        "none", "linear" if key == "comparison" else "lbfgs"
    ]  # which has one answer
    claims, found, p, equal = (
        [row for row in told["entries"] if row.get(key)],
        [],
        [],
        [],
    )
    assert len(claims) == (3 if key == "comparison" else 4)
    for row in claims:
        mine = logits[row["attention"], row["head"]]
        rows, most = zip(
            *(by_row(score, one, label) for one in (*mine, *other)), strict=True
        )
        d = np.array(rows[: len(SEEDS)]) - rows[len(SEEDS) :]
        found.append(Crossed(d, None if score == "accuracy" else max(most)))
        skewed = score == "log-loss" and 25 * stats.skew(d.mean(0)) ** 2 > len(label)
        p.append(1.0 if skewed else found[-1].p())
        equal.append(1.0 if skewed else found[-1].p_equivalent(told["margin"]))
    every = zip(claims, found, p, holm(p), equal, holm(equal), strict=True)
    for row, one, *expected in every:
        close(row[key]["difference"], one.mean)
        if row[key]["verdict"] == "no claim":
            assert (row[key]["p"], expected[0]) == (None, 1.0)
            continue
        keys = ("p", "p_holm", "p_equivalent", "p_equivalent_holm")
        close([row[key][name] for name in keys], expected, 1e-5)
        close(row[key]["ci95_seeds_and_rows"], one.interval(highest), 1e-5)
        verdict = "better" if sign * one.mean > 0 else "worse"
        if expected[1] >= 0.05:
            verdict = "equivalent" if expected[3] < 0.05 else "undecided"
        assert row[key]["verdict"] == verdict
        d, here, test = one.of_seed, row[key]["on_these_test_rows"], stats.ttest_1samp
        close(here["std"], d.std(ddof=1))
        ci = stats.t.interval(0.95, len(d) - 1, d.mean(), stats.sem(d))
        close(here["ci95"], np.clip(ci, -highest, highest))
        signs = np.array(list(itertools.product((1, -1), repeat=len(d))))
        close(here["p_sign_flip"], (abs(signs @ d) >= abs(d.sum()) - 1e-9).mean())
        sides = ((-told["margin"], "greater"), (told["margin"], "less"))
        close(
            here["p_equivalent"],
            max(test(d, at, alternative=to).pvalue for at, to in sides),
        )


def test_claims_of_any_hits() -> None:
    for seed in range(24):  # among them seeds that differ by less than luck
        rng = np.random.default_rng(seed)
        mine, theirs = rng.random((2, 2 + seed % 7, 20 + 20 * seed)) < rng.choice(
            (0.5, 0.9, 0.99)
        )
        told, one = claim(mine, theirs, margin=0.1), Crossed(mine * 1.0 - theirs)
        close([told.p, told.p_equivalent], [one.p(), one.p_equivalent(0.1)], 1e-5)
        close(told.interval, one.interval(1), 1e-5)


def test_what_other_training_sets_would_give(folder: Path) -> None:
    """The corrected resampled t test over three folds (Nadeau and Bengio 2003)."""
    logits, label, ends = answers(folder / "folds")
    none = logits["none", "linear"].argmax(2) == label
    for row in report(folder / "folds")["entries"]:
        d = 1.0 * (logits[row["attention"], "linear"].argmax(2) == label) - none
        d = np.array([one.mean() for one in np.split(d, ends, 1)])
        if row["attention"] != "none":
            error, found = math.sqrt((1 / 3 + 1 / 2) * d.var(ddof=1)), row["comparison"]
            close(found["other_training_sets"]["difference"], d.mean())
            close(
                found["other_training_sets"]["p"],
                2 * stats.t.sf(abs(d.mean()) / error, 2),
            )
            ci = stats.t.interval(0.95, 2, d.mean(), error)
            close(found["other_training_sets"]["ci95"], np.clip(ci, -1, 1))


def test_temperatures_are_best_on_the_rows_that_chose(folder: Path) -> None:
    logits, label, ends = answers(folder / "runs")
    chose = {
        (one.attention, one.head): one
        for one in gaam_decoder.load_runs(folder / "runs")
    }
    for row in report(folder / "runs", "--temperature")["entries"]:
        key = row["attention"], row["head"]
        for place, (value,) in enumerate(row["temperature"]["per_seed"]):
            x, y = (
                chose[key].validation_logits[place].astype(float),
                chose[key].validation_labels,
            )

            def loss(log_t: float, x: Floats = x, y: NDArray[Any] = y) -> float:
                return metrics.log_loss(y, special.softmax(x / math.exp(log_t), 1))

            best = minimize_scalar(loss, bounds=(-5, 9), method="bounded")
            assert loss(math.log(value)) <= best.fun + 1e-9
            scaled = scores(logits[key][place] / value, label, ends)
            for name in ("log-loss", "brier", "ece"):
                close(row["scores"][name]["per_seed"][place], scaled[name])


def simulated(
    rng: np.random.Generator, seeds: int, rows: int, right: list[float]
) -> Any:
    """Hits (K, S, N): rows are easy or hard, also for each; seeds good or bad; the rest is luck."""
    draw, k = rng.standard_normal, len(right)
    latent = 2 * draw((1, 1, rows)) + draw((k, 1, rows)) + 0.2 * draw((k, seeds, 1))
    level = stats.norm.ppf(right) * math.sqrt(4 + 1 + 0.04 + 1)
    return latent + draw((k, seeds, rows)) + level[:, None, None] > 0


@pytest.mark.parametrize("sizes", [(10, 200), (6, 80), (10, 600)])
def test_claims_are_false_at_most_5_times_in_100(sizes: tuple[int, int]) -> None:
    """In 200 reports of four mechanisms: 5 in 100 give more than 20 once in 1,000 such tests."""
    rng = np.random.default_rng(sizes)
    counts = dict.fromkeys(("false", "alike", "found", "same"), 0)
    for _ in range(200):
        none, *others = simulated(rng, *sizes, [0.85] * 4)
        told = holm_corrected([claim(one, none) for one in others])
        counts["false"] += any(one.significant for one in told)
        low, high = simulated(rng, *sizes, [0.8, 0.85])
        counts["alike"] += claim(low, high, margin=0.05).verdict == "equivalent"
        low, high = simulated(rng, *sizes, [0.6, 0.85])
        counts["found"] += claim(high, low).verdict == "better"
        counts["same"] += claim(others[0], none, margin=0.2).verdict == "equivalent"
    assert max(counts["false"], counts["alike"]) <= stats.binom.isf(1e-3, 200, 0.05)
    assert min(counts["found"], counts["same"]) >= 180, counts
