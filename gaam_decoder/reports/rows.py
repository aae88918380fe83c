"""Rows of a table: a mechanism under one recipe over all its seeds, and what these predicted.

S finished seeds, P parts (1, or the folds of cross-validations), N test rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError
from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.unit import DEFAULT, Interval, Unit, all_scores, score_of
from gaam_decoder.runs.result import RunResult, Validation
from gaam_decoder.runs.tuning import TUNED, Tuning, first_runs, on_training_rows, reported
from gaam_decoder.stats.choice import ChoiceOf, choice_of
from gaam_decoder.stats.scored import Scored, interval_by_score
from gaam_decoder.stats.scores._base import Answers, Score
from gaam_decoder.stats.scores.ece import BINS, reliability

Floats = NDArray[np.float64]
Part = Sequence[RunResult]
"""Runs on the same test rows that differ in their seeds alone."""
BY_FOLD = "by fold"
SURE = 0.95
"""Share of draws of other rows that choose the same."""
SCALED = ", temperature fitted"
"""Behind the name of a score of probabilities that were scaled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A score of the finished seeds of a row."""

    score: Score
    scored: Scored
    fitted: bool
    """Whether the head was fitted at once: then there are no seeds to speak of."""

    @property
    def mean(self) -> float | None:
        """None if no seed finished, or there is no such score."""
        value_S = self.scored.values
        return float(value_S.mean()) if len(value_S) and np.isfinite(value_S).all() else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds."""
        return None if self.mean is None else stats.standard_deviation(self.scored.values)

    @property
    def interval(self) -> Interval:
        """95% t interval over seeds, as far as the score can be."""
        found = None if self.mean is None else stats.t_interval(self.scored.values)
        return stats.within(found, 0, self.score.highest)

    @property
    def two_level(self) -> Interval:
        """95% interval over seeds and test rows; of a fit, over test rows alone."""
        return interval_by_score(self.score, self.scored, without_seeds=self.fitted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the finished seeds of a row predicted, in the order of ``seeds``."""

    seeds: tuple[int, ...]
    right: NDArray[np.bool_]
    """Whether each seed is right on each test row, (S, N)."""
    accuracy: Measured
    chosen: Measured
    """The score that is compared."""
    part_value: Floats
    """That score of every part, (S, P); NaN where a part has none."""
    every: dict[str, Floats]
    """Every score of every seed, by name; those that these rows and classes have."""
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C)."""
    vote_accuracy: float | None
    """Of the class that most seeds predict."""
    labels_per_class: NDArray[np.int64]
    """Test rows of every class, (C,)."""
    temperatures: Floats | None
    """By which logits are divided in scores of probabilities, (S, P); None: by nothing."""
    bins: Floats
    """Rows, right ones and summed probabilities by bin of the calibration error, (3, bins)."""

    def temperature(self) -> dict[str, Any] | None:
        """Temperatures as JSON values, in the order of the seeds."""
        found = self.temperatures
        if found is None:
            return None
        about = {"mean": found.mean(), "lowest": found.min(), "highest": found.max()}
        return {k: float(value) for k, value in about.items()} | {"per_seed": found.tolist()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row minus its baseline over the seeds that both finished. Fractions, not percent."""

    baseline: str
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]
    """Seeds that one of the two lacks, or in which one failed."""
    claim: stats.Claim
    other_training: stats.CorrectedT | None
    """Of a cross-validation: over its folds, what another training set would give."""
    other_grid: bool
    """Whether more or other values were tried for one than for the other."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            **claim_values(self.claim),
            "other_training_sets": self.other_training and self.other_training.to_dict(),
            "other_grid": self.other_grid,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """A claim as JSON values."""
    here = claim.on_these_rows
    names = (
        *("difference", "verdict", "significant", "margin", "p", "p_holm", "p_equivalent"),
        *("p_equivalent_holm", "seeds_to_decide", "rows_to_decide"),
    )
    return {name: getattr(claim, name) for name in names} | {
        "difference_points": 100 * claim.difference,
        "within_margin": claim.negligible,
        "ci95_seeds_and_rows": claim.interval,
        "ci95_corrected": claim.interval_corrected,
        "on_these_test_rows": {
            "verdict": here.verdict,
            "std": here.std,
            "ci95": here.interval,
            "p_sign_flip": here.sign_flip.p if here.sign_flip else None,
            "p_sign_flip_exact": here.sign_flip.exact if here.sign_flip else None,
            "p_equivalent": here.p_equivalent,
            "minimum_detectable_difference": here.detectable,
        },
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    """Of a cross-validation without the fold; what was chosen for each fold is ``BY_FOLD``."""
    tunings: tuple[Tuning, ...]
    """How the numbers of the recipe were chosen, of every fold; empty where nothing was."""
    choices: tuple[ChoiceOf, ...]
    """How sure each of these is, where the runs say."""
    parameters: dict[str, int]
    folds: int
    """1, or as many as a cross-validation has, whose test rows then stand one after the other."""
    repeats: int
    """Cross-validations with other folds each, which stand one after the other."""
    seeds: tuple[int, ...]
    """All that every fold has, failed ones included, sorted."""
    seconds: dict[int, float]
    failed: dict[int, str]
    fitted: bool
    """Whether its head was fitted at once, without steps and seeds."""
    shuffled: bool
    """Whether it learned from shuffled labels: a check, which is compared with nothing."""
    on_training_rows: bool
    """Whether it is tested on the rows that it learned from."""
    drawn: int | None
    """Training rows that it was given, the fewest of its folds; None is all."""
    still_learning: tuple[int, ...]
    """Finished seeds whose best epoch is the last of the recipe, in some fold at least."""
    too_short: bool
    """Whether these are more than a plateau gives."""
    at_edge: frozenset[str]
    """What was chosen at the smallest or largest value that was tried."""
    runs: tuple[RunResult, ...] = field(repr=False)
    scores: Scores = field(repr=False)
    label: str = ""
    """A name that no other row of its table has."""
    settings: str = ""
    """Those that not all rows of the table share, such as ``lr=0.001``."""
    compared: Comparison | None = None
    """With the baseline; None for the baseline, and where it has no counterpart."""
    probed: stats.Claim | None = None
    """Minus the linear probe on the same states; None where there is none."""
    unchosen: bool = False
    """Whether it is one of several candidates between which nothing could choose."""
    shown: bool = True
    """Whether it is among the best that were asked for; what is said is said of all rows."""

    @property
    def unit(self) -> Unit:
        """How values of the score that is compared are written."""
        return Unit(self.scores.chosen.score)

    @property
    def mean(self) -> float | None:
        """Mean accuracy; None if no seed finished."""
        return self.scores.accuracy.mean

    @property
    def optimistic(self) -> bool:
        """Whether the test rows chose the epoch, or were learned from."""
        return self.select == "test" or self.on_training_rows

    @property
    def unsure(self) -> bool:
        """Whether other rows might have chosen other numbers."""
        return any(one.share < SURE for one in self.choices)

    @property
    def undertrained(self) -> bool:
        """Whether a longer training or another rate may do better."""
        return self.too_short or bool(self.at_edge)

    @property
    def learned(self) -> dict[str, dict[str, Any]]:
        """Where the learned parameters ended up, by name; of one fold alone."""
        return learned_ranges(self.runs) if self.scores.part_value.shape[1] == 1 else {}

    @property
    def importance(self) -> Importance | None:
        """Of every layer; None where the mechanism has no attention map, or over several folds."""
        return importance_of(self.runs) if self.folds == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values; statistics are over the seeds that finished."""
        scores, importance, accuracy = self.scores, self.importance, self.scores.accuracy

        def of_seeds(value_S: Floats, **more: Any) -> dict[str, Any]:
            by_seed = dict(zip(scores.seeds, value_S.tolist(), strict=True))
            return {
                "mean": float(value_S.mean()) if len(value_S) else None,
                "std": stats.standard_deviation(value_S),
                **more,
                "per_seed": [by_seed.get(seed) for seed in self.seeds],
            }

        taken = [self.seconds[seed] for seed in scores.seeds]
        names = (
            *("attention", "head", "select", "optimistic", "parameters", "folds", "repeats"),
            *("undertrained", "learned", "recipe"),
        )
        return {name: getattr(self, name) for name in names} | {
            "seeds": list(self.seeds),
            "tested_on_training_rows": self.on_training_rows,
            "accuracy": of_seeds(accuracy.scored.values, ci95=accuracy.interval),
            "accuracy_ci95_seeds_and_rows": accuracy.two_level,
            "macro_f1": of_seeds(scores.every["macro-f1"]),
            "scores": {name: of_seeds(value_S) for name, value_S in scores.every.items()},
            "majority_vote_accuracy": scores.vote_accuracy,
            "confusion": scores.confusion.tolist(),
            "seconds_per_seed": float(np.mean(taken)) if taken else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.still_learning),
            "tuning": [tuning.to_dict() for tuning in self.tunings],
            "choice": [one._asdict() for one in self.choices],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "importance": importance.to_dict() if importance else None,
            "comparison": self.compared.to_dict() if self.compared else None,
            "against_probe": claim_values(self.probed) if self.probed else None,
            "runs": [
                {"path": run.path.name, "key": run.key, "environment": run.environment}
                | {"engine": run.engine}
                | ({"fit": run.fit} if run.fit else {})
                for run in self.runs
            ],
        }


def row_of(
    parts: Sequence[Part],
    tunings: Mapping[str, Tuning],
    score: str,
    temperature: bool,
    made: dict[Any, Scores],
) -> Row:
    """The row of runs of one mechanism under one recipe, in one part or the folds of several.

    Scores that were computed are in ``made``, so that nothing is computed twice.

    Raises:
        CacheError: a run is damaged.
    """
    first, meant = parts[0][0], score_of(score)
    chosen = [tunings.get(part[0].key) for part in parts]
    by_part: list[dict[int, RunResult]] = []
    for part, tuning in zip(parts, chosen, strict=True):
        runs = first_runs(part)
        by_part.append({seed: runs[seed] for seed in reported(tuple(runs), tuning)})
    seeds = set.intersection(*map(set, by_part))
    repeats = len({part[0].recipe.get("split_seed") for part in parts})
    failed: dict[int, str] = {}
    for runs in by_part:
        for seed in seeds & {seed for seed, run in runs.items() if seed in run.failed}:
            of, why = runs[seed].recipe, runs[seed].failed[seed]
            where = f"fold {of.get('fold')}"
            where += f" of split seed {of['split_seed']}" if of.get("split_seed") else ""
            failed.setdefault(seed, f"{where}: {why}" if len(parts) > 1 else why)
    recipe = first.recipe
    if len(parts) > 1:
        recipes = [part[0].recipe for part in parts]
        apart = [name for name in TUNED if len({one.get(name) for one in recipes}) > 1]
        recipe = recipe | dict.fromkeys(apart, BY_FOLD) | {"fold": None}
        if repeats > 1:
            split_seeds = sorted({int(one["split_seed"]) for one in recipes})
            recipe["split_seed"] = ", ".join(map(str, split_seeds))
    key = tuple((tuple(map(id, p)), tuple(of)) for p, of in zip(parts, by_part, strict=True))
    if key not in made:
        made[key] = _scores(parts, sorted(seeds), repeats, meant, temperature)
    counted = tuple(
        run for part in parts for run in ([o for o in part if set(o.seeds) & seeds] or part)
    )
    tuned = [(part, tuning) for part, tuning in zip(parts, chosen, strict=True) if tuning]
    late = {seed for run in counted for seed in run.still_learning}.intersection(made[key].seeds)
    finished = len(made[key].seeds)
    return Row(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=recipe,
        tunings=tuple(tuning for _, tuning in tuned),
        choices=tuple(one for of in tuned if (one := _choice(*of, meant))),
        parameters=first.parameters,
        folds=len(parts) // repeats,
        repeats=repeats,
        seeds=tuple(sorted(seeds)),
        seconds={seed: sum(runs[seed].seconds[seed] for runs in by_part) for seed in seeds},
        failed=failed,
        fitted=bool(first.fit),
        shuffled=first.shuffled,
        on_training_rows=on_training_rows(first.recipe),
        drawn=min((sum(run.drawn.values()) for run in counted if run.drawn), default=None),
        still_learning=tuple(sorted(late)),
        too_short=bool(late)
        and stats.later_than_chance(len(late), finished, recipe["epochs"], len(parts)),
        at_edge=frozenset(name for _, tuning in tuned for name in tuning.at_edge),
        runs=counted,
        scores=made[key],
    )


def _choice(part: Part, tuning: Tuning, score: Score) -> ChoiceOf | None:
    """What other rows would have chosen, and the scores of that."""
    labels, right, values = part[0].labels, [], []
    for right_N, logits in tuning.answers():
        right.append(right_N)
        values.append([score.value(Answers(logits_NC, labels)) for logits_NC in logits])
    if len(right) < 2 or any(value is None for of in values for value in of):
        return None
    return choice_of(np.stack(right), np.array(values, np.float64))


def _scores(
    parts: Sequence[Part], seeds: Sequence[int], repeats: int, score: Score, fit: bool
) -> Scores:
    """Of the seeds that finished in all parts, whose test rows are put one after the other."""
    by_part = [_logits(part) for part in parts]
    finished = [seed for seed in seeds if all(seed in by_seed for by_seed in by_part)]
    labels = np.concatenate([part[0].labels for part in parts])
    sizes = tuple(len(part[0].labels) for part in parts)
    ends, classes = np.cumsum(sizes)[:-1], len(parts[0][0].cache["class_names"])
    fitted = _temperatures(parts, finished) if fit else None
    logits_SNC = np.empty((len(finished), len(labels), classes), np.float32)
    known, values = all_scores(), {DEFAULT: list[float](), "macro-f1": list[float]()}
    found, part_values, why, bins = [], [], "", np.zeros((3, BINS))
    for place, seed in enumerate(finished):
        np.concatenate([by_seed[seed] for by_seed in by_part], out=logits_SNC[place])
        answers = sure = Answers(logits_SNC[place], labels, sizes, repeats)
        if fitted is not None:
            # in float64: in float32 two logits might become equal, and another class the first
            of_row = np.repeat(fitted[place], sizes)[:, None]
            sure = Answers(logits_SNC[place].astype(np.float64) / of_row, labels, sizes, repeats)
        for name, one in known.items():
            if (value := one.value(sure if one.of_sizes else answers)) is not None:
                values.setdefault(name, []).append(value)
        asked = sure if score.of_sizes else answers
        found.append(score.of(asked))
        why = why or score.why_no_claim(asked)
        pieces = zip(np.split(asked.logits, ends), np.split(labels, ends), strict=True)
        part_values.append([score.value(Answers(*piece)) for piece in pieces])
        bins += np.stack(reliability(sure))
    predicted_SN = logits_SNC.argmax(-1)
    right_SN = predicted_SN == labels
    every = {name: np.array(of_seeds, np.float64) for name, of_seeds in values.items()}
    votes_N = stats.majority_votes(logits_SNC, predicted_SN) == labels if finished else None
    right = Scored(values=every[DEFAULT], by_row=_by_row(right_SN, parts, repeats))
    there, scored = [one for one in found if one is not None], right
    if len(there) < len(found):
        why = f"these rows and classes have no {score.title}"
        scored = Scored(values=np.full(len(found), np.nan), by_row=None, no_claim=why)
    elif found:
        rows = [one.by_row for one in there if one.by_row is not None]
        scored = Scored.of(there, _by_row(np.stack(rows), parts, repeats) if rows else None, why)
    at_once = bool(parts[0][0].fit)
    return Scores(
        seeds=tuple(finished),
        right=right_SN,
        accuracy=Measured(score=known[DEFAULT], scored=right, fitted=at_once),
        chosen=Measured(score=score, scored=scored, fitted=at_once),
        part_value=np.array(part_values, np.float64).reshape(len(finished), len(parts)),
        every=every,
        confusion=stats.confusion(predicted_SN.ravel(), np.tile(labels, len(finished)), classes),
        vote_accuracy=None if votes_N is None else float(votes_N.mean()),
        labels_per_class=np.bincount(labels, minlength=classes),
        temperatures=fitted,
        bins=bins,
    )


def _by_row(value_SN: NDArray[Any], parts: Sequence[Part], repeats: int) -> Any:
    """Of rows that several cross-validations test the mean, (S, rows of the split)."""
    if repeats == 1:
        return value_SN
    row_N = np.concatenate([part[0].test_rows for part in parts])
    tested = np.unique(row_N, return_counts=True)[1]
    if (tested != repeats).any():
        raise CacheError(
            "the folds of a repeated cross-validation do not test every row equally often",
            expected=f"each row {repeats} times",
            found=f"{tested.min()} to {tested.max()} times",
            where=", ".join(str(part[0].path) for part in parts[:3]),
        )
    shape = len(value_SN), len(row_N) // repeats, repeats
    return value_SN[:, np.argsort(row_N, kind="stable")].reshape(shape).mean(2, dtype=np.float64)


def _logits(part: Part) -> dict[int, NDArray[np.float32]]:
    """Test logits of every finished seed, in the run that counts."""
    decides = first_runs(part)
    found: dict[int, NDArray[np.float32]] = {}
    for run in part:
        logits = run.finished_logits()
        if not np.isfinite(logits).all():  # which class is largest would be anything
            raise CacheError(
                f"the run '{run.path.name}' has test logits that are no numbers",
                expected="finite logits of every seed that did not fail",
                where=str(run.path),
                hint="remove that folder; 'gaam train' makes the run again",
            )
        mine = zip(run.finished, logits, strict=True)
        found |= {seed: one for seed, one in mine if decides[seed] is run}
    return found


def _temperatures(parts: Sequence[Part], seeds: Sequence[int]) -> Floats | None:
    """Of the seeds of a row, (S, P); None where one of them has nothing to fit one on."""
    value_SP = np.ones((len(seeds), len(parts)))
    for place, part in enumerate(parts):
        decides, held = first_runs(part), dict[int, Validation | None]()
        for index, seed in enumerate(seeds):
            run = decides[seed]
            if id(run) not in held:
                held = {id(run): run.validation}  # of one run at a time
            rows = held[id(run)]
            found = None if rows is None else rows.temperature(run.seeds.index(seed))
            if found is None:
                return None
            value_SP[index, place] = found[0]
    return value_SP if seeds else None
