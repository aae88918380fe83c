"""Turn runs into rows: one mechanism under one recipe over all its seeds.

A row carries the scores of its predictions on the test rows. S finished seeds, P parts
(1, or the folds of cross-validations), N test rows, C classes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError
from gaam_cache.common.messages import brief
from gaam_cache.store.files import digest_of
from gaam_decoder import stats
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.groups import TableGroups, table_groups
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    TUNED,
    Tuning,
    first_runs,
    mean_validation,
    on_training_rows,
    reported,
)
from gaam_decoder.stats.choice import ChoiceOf, choice_of
from gaam_decoder.stats.groups import joined, row_groups
from gaam_decoder.stats.scored import Scored, interval_by_score
from gaam_decoder.stats.scores.base import Answers, Interval, Score, SeedScore
from gaam_decoder.stats.scores.ece import BINS, reliability
from gaam_decoder.tasks import CLASSIFICATION

Floats = NDArray[np.float64]
# Runs of different seeds on the same test rows.
Part = Sequence[RunResult]
SeedFold = tuple[int, int]  # split seed, number of the fold
FoldRuns = dict[SeedFold, list[RunResult]]
# What the folds of one cross-validation share.
Partition = tuple[str, ...]

BY_FOLD = "by fold"
SCORES = "gaam_decoder.stats.scores"
DEFAULT = "accuracy"
MACRO_F1 = "macro-f1"
# Share of draws of other validation rows that select the same candidate.
SURE = 0.95
# Stands behind the name of a score if its probabilities were scaled.
SCALED = ", temperature fitted"


def score_of(name: str) -> Score:
    """Load a score by name.

    Raises:
        ConfigError: there is no such score.
    """
    score: Score = plugins.load(SCORES, name, kind="score")()
    return score


def all_scores() -> dict[str, Score]:
    """Load every score, the default score first."""
    return {name: score_of(name) for name in [DEFAULT, *plugins.names(SCORES)]}


class Measured(NamedTuple):
    """A score of the finished seeds of a row."""

    unit: Score
    scored: Scored
    mean: float | None  # None without a finished seed, or without such a score
    std: float | None  # over seeds
    interval: Interval  # 95% t interval over seeds, within the range of the score
    two_level: Interval  # 95%, over seeds and test rows; of a fit, over test rows


def _measure(score: Score, scored: Scored, fitted: bool) -> Measured:
    value_S = scored.values
    mean = None
    std = None
    interval: Interval = None
    if len(value_S) and np.isfinite(value_S).all():
        mean = float(value_S.mean())
        std = stats.standard_deviation(value_S)
        interval = stats.within(stats.t_interval(value_S), 0, score.highest)
    two_level = interval_by_score(score, scored, without_seeds=fitted)
    return Measured(score, scored, mean, std, interval, two_level)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row minus another row over the finished seeds of both, as fractions."""

    baseline: str  # mechanism of the other row
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]  # seeds that one of the two lacks, or that failed
    claim: stats.Claim
    other_training: stats.CorrectedT | None
    """Of folds: the difference that another training set would give."""
    other_grid: bool
    """Whether the two rows were tuned over different candidates."""

    def to_dict(self) -> dict[str, Any]:
        other_training = self.other_training
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            **claim_values(self.claim),
            "other_training_sets": (
                None if other_training is None else other_training.to_dict()
            ),
            "other_grid": self.other_grid,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """Give a claim as JSON values."""
    these_rows = claim.on_these_rows
    sign_flip = these_rows.sign_flip
    return {
        "difference": claim.difference,
        "verdict": claim.verdict,
        "significant": claim.significant,
        "margin": claim.margin,
        "p": claim.p,
        "p_holm": claim.p_holm,
        "p_equivalent": claim.p_equivalent,
        "p_equivalent_holm": claim.p_equivalent_holm,
        "num_tests": claim.num_tests,
        "num_groups": claim.num_groups,
        "seeds_to_decide": claim.seeds_to_decide,
        "rows_to_decide": claim.rows_to_decide,
        "groups_to_decide": claim.groups_to_decide,
        "difference_points": 100 * claim.difference,
        "within_margin": claim.negligible,
        "ci95_seeds_and_rows": claim.interval,
        "ci95_corrected": claim.interval_corrected,
        "on_these_test_rows": {
            "verdict": these_rows.verdict,
            "std": these_rows.std,
            "ci95": these_rows.interval,
            "p_sign_flip": sign_flip.p if sign_flip else None,
            "p_sign_flip_exact": sign_flip.exact if sign_flip else None,
            "p_equivalent": these_rows.p_equivalent,
            "minimum_detectable_difference": these_rows.detectable,
        },
    }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Entry:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    """Of folds without the fold; a setting tuned in each fold is ``BY_FOLD``."""
    code: str
    """File and digest of a mechanism from a plugin, or empty."""
    tunings: tuple[Tuning, ...]
    """Tuning of every fold; empty if nothing was tuned."""
    choices: tuple[ChoiceOf, ...]
    """How sure each of these choices is, if the runs record it."""
    parameters: dict[str, int]
    folds: int  # their test rows stand one after the other; or 1
    repeats: int  # cross-validations with other folds each, one after the other
    seeds: tuple[int, ...]  # seeds that every fold has, with failed ones, sorted
    finished: tuple[int, ...]  # seeds that finished in every fold: the S below
    seconds: dict[int, float]
    failed: dict[int, str]
    fitted: bool  # whether the head was fitted at once, without steps and seeds
    shuffled: bool  # whether labels were shuffled: a check, never compared
    on_training_rows: bool  # whether the test rows are the training rows
    drawn: int | None
    """Number of training rows drawn, the fewest of the folds; None: all."""
    still_learning: tuple[int, ...]
    """Finished seeds whose best epoch is the last one, in any fold."""
    too_short: bool  # whether these are more seeds than a plateau gives
    at_edge: frozenset[str]
    """Tuned settings whose smallest or largest candidate won, not by chance."""
    runs: tuple[RunResult, ...]
    accuracy: Measured
    chosen: Measured  # the score that the table compares
    right: NDArray[np.bool_]  # whether a seed is right on a test row, (S, N)
    by_part: Floats  # the compared score of every part, (S, P); NaN: undefined
    every: dict[str, Floats]  # every defined score, with a value for each seed
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C)."""
    vote_accuracy: float | None  # of the class that most seeds predict
    majority_accuracy: float  # of the most frequent class of the training rows
    labels_per_class: NDArray[np.int64]  # test rows, (C,)
    temperatures: Floats | None
    """Divisors of the logits in scores of probabilities, (S, P)."""
    bins: Floats
    """By calibration bin: rows, right rows, summed probabilities, (3, B)."""
    name: str = ""
    """Mechanism; and head, selection or check if these distinguish it from others."""
    settings: str = ""
    """Settings that the rows of the table do not share, such as ``lr=0.001``."""
    label: str = ""  # the name, with settings if another row has the same name
    compared: Comparison | None = None  # with its counterpart of the baseline
    probed: Comparison | None = None  # with the linear probe on the same states
    unchosen: bool = False  # whether it is a candidate of a tuning without a winner
    shown: bool = True  # whether it is among the best rows that the user wants
    candidate: bool = False
    """Whether it stands beside other candidates of the same tuning."""
    grouped_by: tuple[str, ...] = ()  # relations that put test rows together

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides its numbers: two rows with the same key are the same row."""
        return self.runs, self.seeds, self.choices

    @property
    def optimistic(self) -> bool:
        """Whether the test rows selected the epoch, or were training rows."""
        return self.select == "test" or self.on_training_rows

    @property
    def train_rows(self) -> float:
        """Number of training and validation rows; infinite for folds.

        If groups are the unit, the number is at most that of the training groups, each
        taken to be as large as a group of test rows.
        """
        if self.folds > 1:
            return math.inf
        first = self.runs[0]
        rows: int = self.drawn or first.cache["rows"][first.setting("train_split")]
        groups = self.accuracy.scored.groups
        if groups is None:
            return rows

        rows_each = len(groups.group_N) / len(groups)
        limits: list[float] = []
        for run in self.runs:
            known = [name for name in self.grouped_by if name in run.learned_groups]
            limits += [rows_each * run.learned_groups[name] for name in known]
        return min([rows, *limits])

    @property
    def unsure(self) -> bool:
        """Whether other validation rows might have selected another candidate."""
        return any(choice.share < SURE for choice in self.choices)

    @property
    def penalty_at_edge(self) -> bool:
        """Whether a fit selected the smallest or largest penalty of its grid."""
        return any(run.fit.get("edge") for run in self.runs)

    @property
    def undertrained(self) -> bool:
        """Whether a longer training or another rate may do better."""
        return self.too_short or bool(self.at_edge)

    @property
    def validation(self) -> float | None:
        """Mean validation accuracy over seeds and folds; None if a seed has none."""
        runs_by_fold: dict[tuple[str, int], list[RunResult]] = {}
        for run in self.runs:
            fold = (str(run.recipe.get("fold")), _split_seed(run))
            runs_by_fold.setdefault(fold, []).append(run)

        means: list[float] = []
        for runs in runs_by_fold.values():
            mean, _ = mean_validation(runs, self.finished)
            if mean is None:
                return None
            means.append(mean)
        return math.fsum(means) / len(means) if means else None

    @property
    def learned(self) -> dict[str, dict[str, Any]]:
        """Ranges of the learned parameters by name; empty for several folds."""
        return learned_ranges(self.runs) if self.by_part.shape[1] == 1 else {}

    @property
    def importance(self) -> Importance | None:
        """Importance of every layer; None without attention map, or for folds."""
        return importance_of(self.runs) if self.folds == 1 else None

    @property
    def temperature(self) -> dict[str, Any] | None:
        """Temperatures as JSON values, in the order of the seeds."""
        if self.temperatures is None:
            return None
        return {
            "mean": float(self.temperatures.mean()),
            "lowest": float(self.temperatures.min()),
            "highest": float(self.temperatures.max()),
            "per_seed": self.temperatures.tolist(),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values; statistics are over the finished seeds."""
        identity = {
            "attention": self.attention,
            "head": self.head,
            "select": self.select,
            "optimistic": self.optimistic,
            "parameters": self.parameters,
            "folds": self.folds,
            "repeats": self.repeats,
            "undertrained": self.undertrained,
            "learned": self.learned,
            "recipe": self.recipe,
            "temperature": self.temperature,
            "seeds": list(self.seeds),
            "tested_on_training_rows": self.on_training_rows,
        }
        return identity | self._score_values() | self._training_values()

    def _score_values(self) -> dict[str, Any]:
        accuracy_S = self.accuracy.scored.values
        return {
            "accuracy": {
                **_mean_and_std(accuracy_S),
                "ci95": self.accuracy.interval,
                "per_seed": self._per_seed(accuracy_S),
            },
            "accuracy_ci95_seeds_and_rows": self.accuracy.two_level,
            "macro_f1": self._summary(self.every[MACRO_F1]),
            "scores": {
                name: self._summary(value_S) for name, value_S in self.every.items()
            },
            "majority_vote_accuracy": self.vote_accuracy,
            "confusion": self.confusion.tolist(),
        }

    def _training_values(self) -> dict[str, Any]:
        seconds = [self.seconds[seed] for seed in self.finished]
        failed = sorted(self.failed.items())
        importance = self.importance
        return {
            "seconds_per_seed": float(np.mean(seconds)) if seconds else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.still_learning),
            "tuning": [tuning.to_dict() for tuning in self.tunings],
            "choice": [choice._asdict() for choice in self.choices],
            "failed_seeds": [
                {"seed": seed, "reason": reason} for seed, reason in failed
            ],
            "importance": importance.to_dict() if importance else None,
            "comparison": self.compared.to_dict() if self.compared else None,
            "against_probe": claim_values(self.probed.claim) if self.probed else None,
            "runs": [_run_values(run) for run in self.runs],
        }

    def _summary(self, value_S: Floats) -> dict[str, Any]:
        return _mean_and_std(value_S) | {"per_seed": self._per_seed(value_S)}

    def _per_seed(self, value_S: Floats) -> list[float | None]:
        """One value for every seed, None for a seed that failed."""
        value_by_seed = dict(zip(self.finished, value_S.tolist(), strict=True))
        return [value_by_seed.get(seed) for seed in self.seeds]


def _mean_and_std(value_S: Floats) -> dict[str, Any]:
    return {
        "mean": float(value_S.mean()) if len(value_S) else None,
        "std": stats.standard_deviation(value_S),
    }


def _run_values(run: RunResult) -> dict[str, Any]:
    values: dict[str, Any] = {
        "path": run.path.name,
        "key": run.key,
        "environment": run.environment,
        "engine": run.engine,
    }
    if run.fit:
        values["fit"] = run.fit
    return values


class Tested(NamedTuple):
    """The rows of a future table: all are tested on the same rows of the data."""

    where: str  # the test rows in words
    key: tuple[Any, ...]  # identity of the test rows, whichever runs are there
    rows: list[Entry]  # the best first
    incomplete: list[str]  # decoders left out because they lack folds
    groups: TableGroups
    labels: NDArray[np.int64]  # of the test rows, (N,)


def entries_by_test(
    runs: Sequence[RunResult],
    tunings: Mapping[str, Tuning],
    score: str,
    temperature: bool,
    grouped_by: str | None = None,
    beside: Sequence[RunResult] = (),
) -> Iterator[Tested]:
    """Group all runs into rows, by their test rows.

    Rows of different folds are different test rows. If a mechanism has all folds, its
    test rows are put one after the other: every row of the split is tested once, by
    decoders that did not learn from it. Repeats of a cross-validation are one table
    too. Any other fold is a table of its own.
    """
    maker = _TableMaker(runs, tunings, score, temperature, grouped_by, beside)

    whole_splits: set[tuple[Partition, int]] = set()
    for partition, folds_by_name in _folds_by_partition(runs, tunings).items():
        numbers = range(1, int(partition[1]) + 1)
        split_seeds = _whole_split_seeds(folds_by_name.values(), numbers)
        if split_seeds:
            whole_splits |= {(partition, seed) for seed in split_seeds}
            folds = list(folds_by_name.values())
            yield maker.cross_validation(partition, folds, split_seeds, numbers)

    for key, runs_by_recipe in _runs_by_single_test(runs, whole_splits).items():
        yield maker.single_test(key, list(runs_by_recipe.values()))


def _folds_by_partition(
    runs: Sequence[RunResult], tunings: Mapping[str, Tuning]
) -> dict[Partition, dict[str, FoldRuns]]:
    """Runs of folds by partition, by what all folds of a row share, and by fold."""
    by_partition: dict[Partition, dict[str, FoldRuns]] = {}
    for run in runs:
        fold = run.recipe.get("fold")
        if not fold:
            continue

        # Folds of one row may differ in their split seed and in tuned settings.
        left_out = {"fold", "split_seed"}
        if run.key in tunings:
            left_out.update(TUNED)
        shared = [(k, str(v)) for k, v in run.recipe.items() if k not in left_out]
        name = repr((run.attention, run.head, sorted(shared)))

        by_name = by_partition.setdefault(_partition(run), {})
        seed_fold = (_split_seed(run), int(fold.partition("/")[0]))
        by_name.setdefault(name, {}).setdefault(seed_fold, []).append(run)
    return by_partition


def _whole_split_seeds(folds: Iterable[FoldRuns], numbers: range) -> list[int]:
    """Split seeds with all folds, of the row that has most of them."""
    seeds_of_rows: list[set[int]] = []
    for runs_by_fold in folds:
        seeds = {seed for seed, _ in runs_by_fold}
        whole: set[int] = {
            seed for seed in seeds if all((seed, n) in runs_by_fold for n in numbers)
        }
        seeds_of_rows.append(whole)
    most: set[int] = max(seeds_of_rows, key=lambda seeds: len(seeds))
    return sorted(most)


def _runs_by_single_test(
    runs: Sequence[RunResult], whole_splits: set[tuple[Partition, int]]
) -> dict[tuple[Any, ...], dict[str, list[RunResult]]]:
    """Runs by the rows that test them and by key, without whole cross-validations."""
    by_test: dict[tuple[Any, ...], dict[str, list[RunResult]]] = {}
    for run in runs:
        fold = run.recipe.get("fold")
        partition = _partition(run)
        seed = _split_seed(run)
        if fold is not None and (partition, seed) in whole_splits:
            continue

        # Labels alone may agree by accident, so the split is part of the key.
        split = (run.recipe.get("test_split"), fold, partition, seed if fold else 0)
        key = (*split, run.majority_accuracy, digest_of(run.labels.tobytes()))
        by_test.setdefault(key, {}).setdefault(run.key, []).append(run)
    return by_test


@dataclass(frozen=True)
class _TableMaker:
    """Makes the rows of each table from the runs of a report."""

    runs: Sequence[RunResult]
    tunings: Mapping[str, Tuning]
    score: str
    temperature: bool
    grouped_by: str | None
    beside: Sequence[RunResult]

    def cross_validation(
        self,
        partition: Partition,
        folds: Sequence[FoldRuns],
        split_seeds: list[int],
        numbers: range,
    ) -> Tested:
        """The table of all rows that have every fold of these split seeds."""
        required = [(seed, number) for seed in split_seeds for number in numbers]
        complete = []
        lacking: set[str] = set()
        for runs_by_fold in folds:
            count = len(runs_by_fold.keys() & set(required))
            if count == len(required):
                complete.append(runs_by_fold)
            elif count > 0:
                lacking |= _decoder_names(runs_by_fold)

        times = f"{len(split_seeds)} times" if len(split_seeds) > 1 else "all"
        split = _split(complete[0][required[0]][0], split_seeds)
        where = f"{times} {len(numbers)} folds{split}"
        decoders: list[list[Part]] = [
            [runs_by_fold[seed_fold] for seed_fold in required]
            for runs_by_fold in complete
        ]
        return self._tested(where, ("folds", *partition), decoders, sorted(lacking))

    def single_test(self, key: tuple[Any, ...], parts: Sequence[Part]) -> Tested:
        """The table of all rows on one test split, or on one fold."""
        test_split, fold, *_ = key
        where = f"test split '{test_split or 'test'}'"
        if fold:
            first = parts[0][0]
            split = _split(first, [_split_seed(first)])
            where = f"fold {fold.replace('/', ' of ')}{split}"
        return self._tested(where, key, [[part] for part in parts], [])

    def _tested(
        self,
        where: str,
        key: tuple[Any, ...],
        decoders: Sequence[Sequence[Part]],
        incomplete: list[str],
    ) -> Tested:
        first_decoder = decoders[0]
        repeats = len({_split_seed(part[0]) for part in first_decoder})

        # Every part of the test rows, with the runs of all decoders on it.
        tests = [
            [run for part in parts for run in part]
            for parts in zip(*decoders, strict=True)
        ]
        fingerprint = first_decoder[0][0].cache["fingerprint"]
        runs_of_cache = [
            run
            for run in (*self.runs, *self.beside)
            if run.cache["fingerprint"] == fingerprint
        ]
        groups = table_groups(tests, runs_of_cache, repeats, self.grouped_by)
        rows = [
            _row(parts, self.tunings, self.score, self.temperature, groups)
            for parts in decoders
        ]

        # Repeats test every row several times; its label is listed once.
        label_N = np.concatenate([part[0].labels for part in first_decoder])
        if repeats > 1:
            row_N = np.concatenate([part[0].test_rows for part in first_decoder])
            label_N = label_N[np.argsort(row_N, kind="stable")[::repeats]]
        rows.sort(key=_rank)
        return Tested(where, key, rows, incomplete, groups, label_N)


def _rank(row: Entry) -> tuple[Any, ...]:
    """Sort key of a row in its table: the best mean first, then by name."""
    mean = math.inf if row.chosen.mean is None else row.chosen.mean
    if math.isfinite(mean) and row.chosen.unit.larger_is_better:
        mean = -mean
    some_layers = row.recipe.get("layers") is not None
    size = row.drawn or math.inf
    recipe = str(row.recipe)
    return mean, some_layers, row.attention, row.head, row.select, size, recipe


def _decoder_names(runs_by_fold: FoldRuns) -> set[str]:
    first_runs_of_folds = [runs[0] for runs in runs_by_fold.values()]
    return {
        f"{brief(run.attention)} + {brief(run.head)}" for run in first_runs_of_folds
    }


def _split_seed(run: RunResult) -> int:
    return int(run.recipe.get("split_seed") or 0)


def _partition(run: RunResult) -> Partition:
    """What folds of one cross-validation share, and its repeats."""
    count = str(run.recipe.get("fold") or "").partition("/")[2]
    if not count:
        return run.states, count
    train_split = str(run.recipe.get("train_split"))
    groups = str(run.recipe.get("groups"))
    return run.states, count, train_split, groups


def _split(run: RunResult, seeds: list[int]) -> str:
    """The split that the folds divide, and what else decides their rows."""
    text = f" of the '{run.recipe.get('train_split', 'train')}' split"
    if seeds != [0]:
        text += f", split seed {spell_numbers(seeds)}"
    if run.recipe.get("groups"):
        text += f", {groups_kept(run)}"
    return text


def groups_kept(run: RunResult) -> str:
    """Say which column or file keeps rows together, such as ``groups of 'speaker'``."""
    source = str(run.groups.get("source", ""))
    if not source:
        return "groups kept together"
    if run.groups.get("kind") == "file":
        return f"groups of the file '{brief(Path(source).name, 40)}' kept together"
    return f"groups of '{brief(source, 40)}' kept together"


def _row(
    parts: Sequence[Part],
    tunings: Mapping[str, Tuning],
    score_name: str,
    temperature: bool,
    groups: TableGroups,
) -> Entry:
    """Make one row from the runs of all its parts."""
    first = parts[0][0]
    score = score_of(score_name)
    runs_by_seed = [_reported_runs(part, tunings) for part in parts]
    seeds = set.intersection(*map(set, runs_by_seed))
    recipe, code = _shared_recipe(parts)
    num_repeats = len({_split_seed(part[0]) for part in parts})
    counted = _counted_runs(parts, seeds)

    tuned_parts = [part for part in parts if part[0].key in tunings]
    row_tunings = tuple(tunings[part[0].key] for part in tuned_parts)
    scores = _score_row(parts, sorted(seeds), num_repeats, score, temperature, groups)
    late = {seed for run in counted for seed in run.still_learning}
    late &= set(scores.finished)
    too_short = bool(late) and stats.later_than_chance(
        len(late), len(scores.finished), recipe["epochs"], len(parts)
    )
    choices = _choices(tuned_parts, row_tunings, score, groups.names)
    drawn = [sum(run.drawn.values()) for run in counted if run.drawn]
    return Entry(
        attention=first.attention,
        head=first.head,
        select=first.select,
        parameters=first.parameters,
        shuffled=first.shuffled,
        recipe=recipe,
        code=code,
        tunings=row_tunings,
        choices=choices,
        folds=len(parts) // num_repeats,
        repeats=num_repeats,
        seeds=tuple(sorted(seeds)),
        seconds={
            seed: sum(runs[seed].seconds[seed] for runs in runs_by_seed)
            for seed in seeds
        },
        failed=_failed_seeds(runs_by_seed, seeds),
        fitted=bool(first.fit),
        on_training_rows=on_training_rows(first.recipe),
        drawn=min(drawn, default=None),
        still_learning=tuple(sorted(late)),
        too_short=too_short,
        at_edge=_settings_at_edge(row_tunings, choices),
        runs=counted,
        grouped_by=groups.names,
        finished=scores.finished,
        accuracy=scores.accuracy,
        chosen=scores.chosen,
        right=scores.right_SN,
        by_part=scores.by_part_SP,
        every=scores.value_S_by_score,
        confusion=scores.confusion_CC,
        vote_accuracy=scores.vote_accuracy,
        majority_accuracy=scores.majority_accuracy,
        labels_per_class=scores.count_C,
        temperatures=scores.temperature_SP,
        bins=scores.bins,
    )


def _reported_runs(part: Part, tunings: Mapping[str, Tuning]) -> dict[int, RunResult]:
    """The run of each seed whose result counts, without seeds that only tune."""
    runs = first_runs(part)
    seeds = reported(tuple(runs), tunings.get(part[0].key))
    return {seed: runs[seed] for seed in seeds}


def _failed_seeds(
    runs_by_seed: Sequence[Mapping[int, RunResult]], seeds: set[int]
) -> dict[int, str]:
    """Why each failed seed failed, in its first fold that did."""
    reasons: dict[int, str] = {}
    for seed in seeds:
        for runs in runs_by_seed:
            run = runs[seed]
            if seed in run.failed:
                reason = run.failed[seed]
                if len(runs_by_seed) > 1:
                    reason = f"fold {run.recipe['fold']}: {reason}"
                reasons[seed] = reason
                break
    return reasons


def _shared_recipe(parts: Sequence[Part]) -> tuple[dict[str, Any], str]:
    """The recipe of a row, and the code of its mechanism if a plugin has it."""
    recipes = [dict(part[0].recipe) for part in parts]
    recipe = recipes[0]

    # The mechanism names its plugin; as a setting it would keep the row from
    # being compared with others.
    code = ""
    other_plugins = {}
    for name, plugin in recipe.pop("plugins", {}).items():
        if name.startswith("mechanism "):
            code += plugin
        else:
            other_plugins[name] = plugin
    if other_plugins:
        recipe["plugins"] = other_plugins

    if len(parts) > 1:
        for name in TUNED:
            if len({fold_recipe.get(name) for fold_recipe in recipes}) > 1:
                recipe[name] = BY_FOLD
        recipe["fold"] = None
    split_seeds = sorted({_split_seed(part[0]) for part in parts})
    if len(split_seeds) > 1:
        recipe["split_seed"] = ", ".join(map(str, split_seeds))
    return recipe, code


def _counted_runs(parts: Sequence[Part], seeds: set[int]) -> tuple[RunResult, ...]:
    """The runs with a seed of the row; of a part without any, all its runs."""
    counted: list[RunResult] = []
    for part in parts:
        counted += [run for run in part if set(run.seeds) & seeds] or part
    return tuple(counted)


def _choices(
    tuned_parts: Sequence[Part],
    tunings: Sequence[Tuning],
    score: Score,
    grouped_by: Sequence[str],
) -> tuple[ChoiceOf, ...]:
    choices = []
    for part, tuning in zip(tuned_parts, tunings, strict=True):
        choice = _choice(part[0].labels, tuning, score, grouped_by)
        if choice is not None:
            choices.append(choice)
    return tuple(choices)


def _choice(
    labels: NDArray[np.int64],
    tuning: Tuning,
    score: Score,
    grouped_by: Sequence[str],
) -> ChoiceOf | None:
    """How sure a tuning is; None without two candidates that have a score."""
    right: list[NDArray[Any]] = []
    values: list[list[float | None]] = []
    groups = None
    for right_N, logits, group_numbers in tuning.answers(grouped_by):
        right.append(right_N)
        if group_numbers and groups is None:
            groups = row_groups(joined(group_numbers))
        values.append([score.value(Answers(logits_NC, labels)) for logits_NC in logits])
    if len(right) < 2 or any(None in candidate_values for candidate_values in values):
        return None
    return choice_of(np.stack(right), np.array(values, np.float64), groups)


def _settings_at_edge(
    tunings: Sequence[Tuning], choices: Sequence[ChoiceOf]
) -> frozenset[str]:
    """Settings tuned to the end of their grid; none if the choice is unsure."""
    if any(choice.share < SURE for choice in choices):
        return frozenset()
    return frozenset(name for tuning in tunings for name in tuning.at_edge)


@dataclass(frozen=True, kw_only=True, eq=False)
class _RowScores:
    """The scores of a row over the seeds that finished in all parts."""

    finished: tuple[int, ...]
    right_SN: NDArray[np.bool_]
    accuracy: Measured
    chosen: Measured
    by_part_SP: Floats
    value_S_by_score: dict[str, Floats]
    confusion_CC: NDArray[np.int64]
    vote_accuracy: float | None
    majority_accuracy: float
    count_C: NDArray[np.int64]
    temperature_SP: Floats | None
    bins: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class _Predictions:
    """Test logits of the seeds that finished in all parts."""

    finished: tuple[int, ...]
    logits_SNC: NDArray[np.float32]
    label_N: NDArray[np.int64]
    sizes: tuple[int, ...]  # test rows of every part
    repeats: int
    temperature_SP: Floats | None

    def answers(self, place: int) -> Answers:
        """The logits of one seed."""
        logits_NC = self.logits_SNC[place]
        return Answers(logits_NC, self.label_N, self.sizes, self.repeats)

    def scaled_answers(self, place: int, temperature_SP: Floats) -> Answers:
        """The logits of one seed, in each part divided by its temperature."""
        # In float64: in float32 two logits might become equal, and another class
        # the first.
        logits_NC = self.logits_SNC[place].astype(np.float64)
        temperature_N = np.repeat(temperature_SP[place], self.sizes)
        scaled_NC = logits_NC / temperature_N[:, None]
        return Answers(scaled_NC, self.label_N, self.sizes, self.repeats)


def _read_predictions(
    parts: Sequence[Part], seeds: Sequence[int], repeats: int, fit_temperature: bool
) -> _Predictions:
    logits_by_part = [_logits(part) for part in parts]
    finished = [
        seed for seed in seeds if all(seed in logits for logits in logits_by_part)
    ]
    label_N = np.concatenate([part[0].labels for part in parts])
    num_classes = len(parts[0][0].cache["class_names"])
    temperature_SP = _temperatures(parts, finished) if fit_temperature else None

    shape = (len(finished), len(label_N), num_classes)
    logits_SNC = np.empty(shape, np.float32)
    for place, seed in enumerate(finished):
        seed_logits = [logits[seed] for logits in logits_by_part]
        np.concatenate(seed_logits, out=logits_SNC[place])
    return _Predictions(
        finished=tuple(finished),
        logits_SNC=logits_SNC,
        label_N=label_N,
        sizes=tuple(len(part[0].labels) for part in parts),
        repeats=repeats,
        temperature_SP=temperature_SP,
    )


def _score_row(
    parts: Sequence[Part],
    seeds: Sequence[int],
    repeats: int,
    score: Score,
    fit_temperature: bool,
    groups: TableGroups,
) -> _RowScores:
    """Score the predictions of every seed that finished in all parts."""
    predictions = _read_predictions(parts, seeds, repeats, fit_temperature)
    finished = predictions.finished
    label_N = predictions.label_N
    logits_SNC = predictions.logits_SNC
    num_classes = logits_SNC.shape[2]
    temperature_SP = predictions.temperature_SP
    tally = _Tally(score)
    for place in range(len(finished)):
        raw = predictions.answers(place)
        scaled = raw
        if temperature_SP is not None:
            scaled = predictions.scaled_answers(place, temperature_SP)
        tally.add(raw, scaled)

    predicted_SN = CLASSIFICATION.predictions(logits_SNC)
    right_SN = CLASSIFICATION.hits(predicted_SN, label_N)
    value_S_by_score = tally.value_S_by_score()
    vote_accuracy = None
    if finished:
        vote_N = stats.majority_votes(logits_SNC, predicted_SN)
        vote_accuracy = stats.accuracy(vote_N, label_N)
    accuracy = Scored(
        values=value_S_by_score[DEFAULT],
        by_row=_by_row(right_SN, parts, repeats),
        groups=groups.groups,
    )
    compared = _compared_score(tally, accuracy, parts, repeats, groups)
    fitted = bool(parts[0][0].fit)
    return _RowScores(
        finished=finished,
        right_SN=right_SN,
        accuracy=_measure(tally.scores[DEFAULT], accuracy, fitted),
        chosen=_measure(score, compared, fitted),
        by_part_SP=np.array(tally.by_part, np.float64).reshape(
            len(finished), len(parts)
        ),
        value_S_by_score=value_S_by_score,
        confusion_CC=stats.confusion(
            predicted_SN.ravel(), np.tile(label_N, len(finished)), num_classes
        ),
        vote_accuracy=vote_accuracy,
        majority_accuracy=_majority_accuracy(parts, len(label_N)),
        count_C=np.bincount(label_N, minlength=num_classes),
        temperature_SP=temperature_SP,
        bins=tally.bins,
    )


class _Tally:
    """Collects the scores of one seed after the other."""

    def __init__(self, compared: Score) -> None:
        self.compared = compared
        self.scores = all_scores()
        self.seed_scores: list[SeedScore | None] = []
        self.by_part: list[list[float | None]] = []
        self.no_claim = ""
        self.bins: Floats = np.zeros((3, BINS))
        self._values: dict[str, list[float]] = {DEFAULT: [], MACRO_F1: []}

    def add(self, raw: Answers, scaled: Answers) -> None:
        """Score a seed; ``scaled`` has its logits divided by the temperature."""
        for name, score in self.scores.items():
            value = score.value(scaled if score.of_sizes else raw)
            if value is not None:
                self._values.setdefault(name, []).append(value)

        answers = scaled if self.compared.of_sizes else raw
        self.seed_scores.append(self.compared.of(answers))
        if not self.no_claim:
            self.no_claim = self.compared.why_no_claim(answers)

        ends = np.cumsum(raw.sizes)[:-1]
        logits_by_part = np.split(answers.logits, ends)
        labels_by_part = np.split(answers.labels, ends)
        part_values = []
        for logits, labels in zip(logits_by_part, labels_by_part, strict=True):
            part_values.append(self.compared.value(Answers(logits, labels)))
        self.by_part.append(part_values)
        self.bins += np.stack(reliability(scaled))

    def value_S_by_score(self) -> dict[str, Floats]:
        """Every defined score, with the values of the seeds that have it."""
        return {
            name: np.array(values, np.float64) for name, values in self._values.items()
        }


def _compared_score(
    tally: _Tally,
    accuracy: Scored,
    parts: Sequence[Part],
    repeats: int,
    groups: TableGroups,
) -> Scored:
    """The compared score of all seeds; that of accuracy if no seed finished."""
    if not tally.seed_scores:
        return accuracy
    defined = [score for score in tally.seed_scores if score is not None]
    if len(defined) < len(tally.seed_scores):
        reason = f"these rows and classes have no {tally.compared.title}"
        nan_S = np.full(len(tally.seed_scores), np.nan)
        return Scored(values=nan_S, by_row=None, no_claim=reason)

    by_row = None
    rows = [score.by_row for score in defined if score.by_row is not None]
    if rows:
        by_row = _by_row(np.stack(rows), parts, repeats)
    return Scored.of(defined, by_row, tally.no_claim, groups.groups)


def _majority_accuracy(parts: Sequence[Part], num_rows: int) -> float:
    right = sum(
        (part[0].majority_accuracy or 0) * len(part[0].labels) for part in parts
    )
    return right / num_rows


def _by_row(value_SN: NDArray[Any], parts: Sequence[Part], repeats: int) -> Any:
    """Average each row over the repeats that test it, (S, rows of the split)."""
    if repeats == 1:
        return value_SN
    row_N = np.concatenate([part[0].test_rows for part in parts])
    counts = np.unique(row_N, return_counts=True)[1]
    if (counts != repeats).any():
        raise CacheError(
            "folds of repeats do not test every row equally often",
            where=str(parts[0][0].path.parent),
        )
    shape = (len(value_SN), len(row_N) // repeats, repeats)
    sorted_SN = value_SN[:, np.argsort(row_N, kind="stable")]
    return sorted_SN.reshape(shape).mean(2, dtype=np.float64)


def _logits(part: Part) -> dict[int, NDArray[np.float32]]:
    """Test logits of every finished seed, from the run that counts for it."""
    counting_run = first_runs(part)
    logits_by_seed: dict[int, NDArray[np.float32]] = {}
    for run in part:
        logits = run.finished_logits()
        # The largest of logits that are no numbers would be an arbitrary class.
        if not np.isfinite(logits).all():
            raise CacheError(
                "the run has test logits that are no numbers", where=str(run.path)
            )
        logits_by_seed |= {
            seed: logits_NC
            for seed, logits_NC in zip(run.finished, logits, strict=True)
            if counting_run[seed] is run
        }
    return logits_by_seed


def _temperatures(parts: Sequence[Part], seeds: Sequence[int]) -> Floats | None:
    """Temperatures of a row, (S, P); None if a seed has no validation rows."""
    if not seeds:
        return None
    value_SP = np.ones((len(seeds), len(parts)))
    for place, part in enumerate(parts):
        counting_run = first_runs(part)
        runs = {counting_run[seed] for seed in seeds}
        validation_of = {run: run.validation for run in runs}
        for index, seed in enumerate(seeds):
            run = counting_run[seed]
            validation = validation_of[run]
            if validation is None:
                return None
            value = validation.temperature(run.seeds.index(seed))
            if value is None:
                return None
            value_SP[index, place] = value
    return value_SP
