"""Runs -> rows: a mechanism under one recipe over all its seeds, and what these predicted.

S finished seeds, P parts (1, or the folds of cross-validations), N test rows, C classes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
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
from gaam_decoder.stats.scores.base import Answers, Interval, Score
from gaam_decoder.stats.scores.ece import BINS, reliability

Floats = NDArray[np.float64]
Part = Sequence[RunResult]  # on the same test rows, of seeds that differ
BY_FOLD = "by fold"
SCORES = "gaam_decoder.stats.scores"
DEFAULT = "accuracy"
SURE = 0.95  # share of draws of other rows that choose the same
SCALED = ", temperature fitted"  # behind the name of a score of probabilities that were scaled


def score_of(name: str) -> Score:
    """The score of that name; a ConfigError where there is none."""
    found: Score = plugins.load(SCORES, name, kind="score")()
    return found


def all_scores() -> dict[str, Score]:
    """Every score by its name."""
    return {name: score_of(name) for name in [DEFAULT, *plugins.names(SCORES)]}


class Measured(NamedTuple):
    """A score of the finished seeds of a row."""

    unit: Score
    scored: Scored
    mean: float | None  # None if no seed finished, or there is no such score
    std: float | None  # over seeds
    interval: Interval  # 95% t interval over seeds, as far as the score can be
    two_level: Interval  # 95%, over seeds and test rows; of a fit, over test rows alone


def _measured(score: Score, scored: Scored, fitted: bool) -> Measured:
    value_S, std, interval, mean = scored.values, None, None, None
    if len(value_S) and np.isfinite(value_S).all():
        mean, std = float(value_S.mean()), stats.standard_deviation(value_S)
        interval = stats.within(stats.t_interval(value_S), 0, score.highest)
    both = interval_by_score(score, scored, without_seeds=fitted)
    return Measured(score, scored, mean, std, interval, both)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row minus another over the seeds that both finished. Fractions, not percent."""

    baseline: str  # mechanism of the other
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]  # that one of the two lacks, or in which one failed
    claim: stats.Claim
    other_training: (
        stats.CorrectedT | None
    )  # of folds: what another training set would give
    other_grid: (
        bool  # whether more or other values were tried for one than for the other
    )

    def to_dict(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            **claim_values(self.claim),
            "other_training_sets": self.other_training
            and self.other_training.to_dict(),
            "other_grid": self.other_grid,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """A claim as JSON values."""
    here = claim.on_these_rows
    names = (
        "difference verdict significant margin p p_holm p_equivalent p_equivalent_holm"
    )
    names += " num_tests num_groups seeds_to_decide rows_to_decide groups_to_decide"
    return {name: getattr(claim, name) for name in names.split()} | {
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[
        str, Any
    ]  # of folds without the fold; what each chose for itself is BY_FOLD
    code: str  # its file and a digest, or empty: of a mechanism that is not ours
    tunings: tuple[Tuning, ...]  # of every fold; empty where nothing was chosen
    choices: tuple[ChoiceOf, ...]  # how sure each of these is, where the runs say
    parameters: dict[str, int]
    folds: int  # whose test rows stand one after the other; or 1
    repeats: int  # cross-validations with other folds each, one after the other
    seeds: tuple[int, ...]  # all that every fold has, failed ones too, sorted
    finished: tuple[int, ...]  # the S of all that follows: in every fold
    seconds: dict[int, float]
    failed: dict[int, str]
    fitted: bool  # whether its head was fitted at once, without steps and seeds
    shuffled: bool  # whether labels were: a check, which is compared with nothing
    on_training_rows: bool  # whether it is tested on the rows that it learned from
    drawn: (
        int | None
    )  # training rows that it was given, the fewest of its folds; None: all
    still_learning: tuple[
        int, ...
    ]  # finished seeds whose best epoch is the last, in any fold
    too_short: bool  # whether these are more than a plateau gives
    at_edge: frozenset[
        str
    ]  # chosen, and not by chance, at the smallest or largest that was tried
    runs: tuple[RunResult, ...]
    accuracy: Measured
    chosen: Measured  # the score that is compared
    right: NDArray[np.bool_]  # whether each seed is right on each test row, (S, N)
    by_part: Floats  # the score that is compared of every part, (S, P); NaN where there is none
    every: dict[str, Floats]  # every score of every seed, of those that these rows have
    confusion: NDArray[
        np.int64
    ]  # true class by predicted class, summed over seeds, (C, C)
    vote_accuracy: float | None  # of the class that most seeds predict
    majority_accuracy: (
        float  # of the class that is most frequent among the training rows
    )
    labels_per_class: NDArray[np.int64]  # test rows, (C,)
    temperatures: Floats | None  # that divide logits in scores of probabilities, (S, P)
    bins: Floats  # rows, right ones, summed probabilities by bin of the calibration error, (3, B)
    name: str = (
        ""  # mechanism, and head, selection or check where these tell it from others
    )
    settings: str = ""  # that not all rows of the table share, such as ``lr=0.001``
    label: str = ""  # the name, with settings where another row has it too
    compared: Comparison | None = None  # with its counterpart of the baseline
    probed: Comparison | None = None  # with the linear probe on the same states
    unchosen: bool = False  # whether it is a candidate among which nothing could choose
    shown: bool = True  # whether it is among the best that were asked for
    candidate: bool = (
        False  # whether it stands beside others that validation may choose among
    )
    grouped_by: tuple[str, ...] = ()  # what says which test rows belong together

    @property
    def key(self) -> tuple[Any, ...]:
        """What decides its numbers: rows of two selections of runs that share it are one."""
        return self.runs, self.seeds, self.choices

    @property
    def optimistic(self) -> bool:
        """Whether the test rows chose the epoch, or were learned from."""
        return self.select == "test" or self.on_training_rows

    @property
    def train_rows(self) -> float:
        """That it learned from and chose by; no limit of folds, which learn from others each.

        Where groups are the unit, no more than so many groups have, if each is as large as those
        that are tested.
        """
        if self.folds > 1:
            return math.inf
        rows = (
            self.drawn
            or self.runs[0].cache["rows"][self.runs[0].setting("train_split")]
        )
        groups = self.accuracy.scored.groups
        if groups is None:
            return rows
        rows_each = len(groups.group_N) / len(groups)
        known = [
            run.learned_groups[name]
            for run in self.runs
            for name in self.grouped_by
            if name in run.learned_groups
        ]
        return min([rows, *(rows_each * count for count in known)])

    @property
    def unsure(self) -> bool:
        """Whether other rows might have chosen other numbers."""
        return any(one.share < SURE for one in self.choices)

    @property
    def penalty_at_edge(self) -> bool:
        """Whether a fit chose the smallest or largest penalty that was tried."""
        return any(run.fit.get("edge") for run in self.runs)

    @property
    def undertrained(self) -> bool:
        """Whether a longer training or another rate may do better."""
        return self.too_short or bool(self.at_edge)

    @property
    def validation(self) -> float | None:
        """Mean validation accuracy of its seeds, and of folds; None where a seed has none."""
        parts: dict[tuple[str, int], list[RunResult]] = {}
        for run in self.runs:
            parts.setdefault(
                (str(run.recipe.get("fold")), _split_seed(run)), []
            ).append(run)
        means = [mean_validation(part, self.finished)[0] for part in parts.values()]
        known = [mean for mean in means if mean is not None]
        return (
            math.fsum(known) / len(known)
            if known and len(known) == len(means)
            else None
        )

    @property
    def learned(self) -> dict[str, dict[str, Any]]:
        """Where the learned parameters ended up, by name; of one fold alone."""
        return learned_ranges(self.runs) if self.by_part.shape[1] == 1 else {}

    @property
    def importance(self) -> Importance | None:
        """Of every layer; None where the mechanism has no attention map, or over several folds."""
        return importance_of(self.runs) if self.folds == 1 else None

    @property
    def temperature(self) -> dict[str, Any] | None:
        """Temperatures as JSON values, in the order of the seeds."""
        if (found := self.temperatures) is None:
            return None
        mean, low, high = float(found.mean()), float(found.min()), float(found.max())
        return {
            "mean": mean,
            "lowest": low,
            "highest": high,
            "per_seed": found.tolist(),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values; statistics are over the seeds that finished."""

        def of_seeds(value_S: Floats, **more: Any) -> dict[str, Any]:
            by_seed = dict(zip(self.finished, value_S.tolist(), strict=True))
            return {
                "mean": float(value_S.mean()) if len(value_S) else None,
                "std": stats.standard_deviation(value_S),
                **more,
                "per_seed": [by_seed.get(seed) for seed in self.seeds],
            }

        taken, importance = (
            [self.seconds[seed] for seed in self.finished],
            self.importance,
        )
        names = "attention head select optimistic parameters folds repeats undertrained learned"
        return {name: getattr(self, name) for name in names.split()} | {
            "recipe": self.recipe,
            "temperature": self.temperature,
            "seeds": list(self.seeds),
            "tested_on_training_rows": self.on_training_rows,
            "accuracy": of_seeds(
                self.accuracy.scored.values, ci95=self.accuracy.interval
            ),
            "accuracy_ci95_seeds_and_rows": self.accuracy.two_level,
            "macro_f1": of_seeds(self.every["macro-f1"]),
            "scores": {name: of_seeds(value_S) for name, value_S in self.every.items()},
            "majority_vote_accuracy": self.vote_accuracy,
            "confusion": self.confusion.tolist(),
            "seconds_per_seed": float(np.mean(taken)) if taken else None,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "best_epoch_is_last": list(self.still_learning),
            "tuning": [tuning.to_dict() for tuning in self.tunings],
            "choice": [one._asdict() for one in self.choices],
            "failed_seeds": [
                {"seed": s, "reason": why} for s, why in sorted(self.failed.items())
            ],
            "importance": importance and importance.to_dict(),
            "comparison": self.compared and self.compared.to_dict(),
            "against_probe": self.probed and claim_values(self.probed.claim),
            "runs": [
                {"path": run.path.name, "key": run.key, "environment": run.environment}
                | {"engine": run.engine}
                | ({"fit": run.fit} if run.fit else {})
                for run in self.runs
            ],
        }


class Tested(NamedTuple):
    """Rows of a table to be, which are tested on the same rows of the data."""

    where: str  # what tests them, in words
    key: tuple[Any, ...]  # what tests them: the same whichever runs are there
    rows: list[Row]  # the best first
    incomplete: list[str]  # what lacks folds and is not among them
    groups: TableGroups
    labels: NDArray[np.int64]  # of the test rows, (N,)


def rows_by_test(
    runs: Sequence[RunResult],
    tunings: Mapping[str, Tuning],
    score: str,
    temperature: bool,
    grouped_by: str | None = None,
    beside: Sequence[RunResult] = (),
) -> Iterator[Tested]:
    """All rows, by what tests them.

    Rows of different folds are different test rows. Where all folds of a mechanism are there, its
    test rows are put one after the other, so that every row of the split is tested once, by
    decoders that did not learn from it; repeats of that are one table too. Else a fold is a table.
    """

    def place(row: Row) -> tuple[Any, ...]:
        mean = math.inf if row.chosen.mean is None else row.chosen.mean
        better = math.isfinite(mean) and row.chosen.unit.larger_is_better
        some, size = row.recipe.get("layers") is not None, row.drawn or math.inf
        named = some, row.attention, row.head, row.select, size, str(row.recipe)
        return -mean if better else mean, *named

    def tested(
        where: str,
        key: tuple[Any, ...],
        decoders: list[list[Part]],
        incomplete: list[str],
    ) -> Tested:
        first = decoders[0]
        repeats = len({_split_seed(part[0]) for part in first})
        # of every part of the test rows the runs of all decoders
        tests = [
            [run for part in parts for run in part]
            for parts in zip(*decoders, strict=True)
        ]
        cache = first[0][0].cache["fingerprint"]
        of_cache = [
            run for run in (*runs, *beside) if run.cache["fingerprint"] == cache
        ]
        groups = table_groups(tests, of_cache, repeats, grouped_by)
        rows = [_row(parts, tunings, score, temperature, groups) for parts in decoders]
        label_N = np.concatenate([part[0].labels for part in first])
        if repeats > 1:
            row_N = np.concatenate([part[0].test_rows for part in first])
            label_N = label_N[np.argsort(row_N, kind="stable")[::repeats]]
        return Tested(where, key, sorted(rows, key=place), incomplete, groups, label_N)

    # by what folds must share, by what a row is, by split seed and fold
    folds: dict[Any, dict[str, dict[tuple[int, int], list[RunResult]]]] = {}
    for run in runs:
        if fold := run.recipe.get("fold"):
            left_out = ("fold", "split_seed", *(TUNED if run.key in tunings else ()))
            rest = sorted(
                (k, str(v)) for k, v in run.recipe.items() if k not in left_out
            )
            name = repr(
                (run.attention, run.head, rest)
            )  # what all folds of a row share
            of = folds.setdefault(_partition(run), {}).setdefault(name, {})
            of.setdefault((_split_seed(run), int(fold.partition("/")[0])), []).append(
                run
            )
    whole = set()
    for partition, by_name in folds.items():
        numbers = range(1, int(partition[1]) + 1)
        # split seeds of which a row has all folds: those of the row that has most
        every = [
            {s for s, _ in of if all((s, n) in of for n in numbers)}
            for of in by_name.values()
        ]
        if seeds := sorted({*max(every, key=len)}):
            whole |= {(partition, seed) for seed in seeds}
            needed = [(seed, n) for seed in seeds for n in numbers]
            full = [of for of in by_name.values() if of.keys() >= {*needed}]
            some = [
                of
                for of in by_name.values()
                if 0 < len(of.keys() & {*needed}) < len(needed)
            ]
            lacking = {
                f"{brief(r.attention)} + {brief(r.head)}"
                for of in some
                for r, *_ in of.values()
            }
            times = f"{len(seeds)} times" if len(seeds) > 1 else "all"
            where = (
                f"{times} {len(numbers)} folds{_split(full[0][needed[0]][0], seeds)}"
            )
            decoders: list[list[Part]] = [[of[one] for one in needed] for of in full]
            yield tested(where, ("folds", *partition), decoders, sorted(lacking))
    alone: dict[Any, dict[str, list[RunResult]]] = {}
    for run in runs:
        fold, seed = run.recipe.get("fold"), _split_seed(run)
        if (
            fold is None or (_partition(run), seed) not in whole
        ):  # else a part of what is there
            shared = (
                run.recipe.get("test_split"),
                fold,
                _partition(run),
                seed * bool(fold),
            )
            # labels alone may agree by accident
            key = (*shared, run.majority_accuracy, digest_of(run.labels.tobytes()))
            alone.setdefault(key, {}).setdefault(run.key, []).append(run)
    for key, by_key in alone.items():
        test_split, fold, *_ = key
        first = next(iter(by_key.values()))[0]
        where = f"test split '{test_split or 'test'}'"
        if fold:
            where = (
                f"fold {fold.replace('/', ' of ')}{_split(first, [_split_seed(first)])}"
            )
        yield tested(where, key, [[part] for part in by_key.values()], [])


def _split_seed(run: RunResult) -> int:
    return int(run.recipe.get("split_seed") or 0)


def _partition(run: RunResult) -> tuple[str, ...]:
    """What runs must share to be folds of one cross-validation, or of its repeats."""
    count = str(run.recipe.get("fold") or "").partition("/")[2]
    splitting = [
        str(run.recipe.get(name)) for name in ("train_split", "groups") if count
    ]
    return run.states, count, *splitting


def _split(run: RunResult, seeds: list[int]) -> str:
    """Of what the folds are, and what else decides which rows they hold."""
    text = f" of the '{run.recipe.get('train_split', 'train')}' split"
    text += f", split seed {spell_numbers(seeds)}" * (seeds != [0])
    return text + (f", {groups_kept(run)}" if run.recipe.get("groups") else "")


def groups_kept(run: RunResult) -> str:
    """``groups of 'speaker' kept together``: by a column, or a file, of which the name is said."""
    source = str(run.groups.get("source", ""))
    if not source:
        return "groups kept together"
    if run.groups.get("kind") == "file":
        return f"groups of the file '{brief(Path(source).name, 40)}' kept together"
    return f"groups of '{brief(source, 40)}' kept together"


def _row(
    parts: Sequence[Part],
    tunings: Mapping[str, Tuning],
    score: str,
    temperature: bool,
    groups: TableGroups,
) -> Row:
    first, meant = parts[0][0], score_of(score)
    by_part: list[dict[int, RunResult]] = []
    for part in parts:
        runs = first_runs(part)
        there = reported(tuple(runs), tunings.get(part[0].key))
        by_part.append({seed: runs[seed] for seed in there})
    seeds = set.intersection(*map(set, by_part))
    failed: dict[int, str] = {}
    for seed in seeds:
        for run in (
            runs[seed] for runs in reversed(by_part) if seed in runs[seed].failed
        ):
            why = run.failed[seed]
            failed[seed] = (
                f"fold {run.recipe['fold']}: {why}" if len(parts) > 1 else why
            )
    recipes = [dict(part[0].recipe) for part in parts]
    recipe = recipes[0]
    # of whose code the mechanism is says the mechanism: it keeps no row from being compared
    theirs = recipe.pop("plugins", {}).items()
    code = "".join(code for name, code in theirs if name.startswith("mechanism "))
    if others := {
        name: code for name, code in theirs if not name.startswith("mechanism ")
    }:
        recipe["plugins"] = others
    split_seeds = sorted({_split_seed(part[0]) for part in parts})
    if len(parts) > 1:
        apart = [name for name in TUNED if len({one.get(name) for one in recipes}) > 1]
        recipe |= dict.fromkeys(apart, BY_FOLD) | {"fold": None}
    if len(split_seeds) > 1:
        recipe["split_seed"] = ", ".join(map(str, split_seeds))
    counted = tuple(
        run
        for part in parts
        for run in ([o for o in part if set(o.seeds) & seeds] or part)
    )
    tuned = [(part, tunings[part[0].key]) for part in parts if part[0].key in tunings]
    answered = _answers(
        parts, sorted(seeds), len(split_seeds), meant, temperature, groups
    )
    finished = answered["finished"]
    late = {seed for run in counted for seed in run.still_learning}.intersection(
        finished
    )
    choices = tuple(one for of in tuned if (one := _choice(*of, meant, groups.names)))
    chance = any(
        one.share < SURE for one in choices
    )  # other rows would choose another rate
    same = ("attention", "head", "select", "parameters", "shuffled")
    return Row(
        **{name: getattr(first, name) for name in same},
        recipe=recipe,
        code=code,
        tunings=tuple(tuning for _, tuning in tuned),
        choices=choices,
        folds=len(parts) // len(split_seeds),
        repeats=len(split_seeds),
        seeds=tuple(sorted(seeds)),
        seconds={
            seed: sum(runs[seed].seconds[seed] for runs in by_part) for seed in seeds
        },
        failed=failed,
        fitted=bool(first.fit),
        on_training_rows=on_training_rows(first.recipe),
        drawn=min(
            (sum(run.drawn.values()) for run in counted if run.drawn), default=None
        ),
        still_learning=tuple(sorted(late)),
        too_short=bool(late)
        and stats.later_than_chance(
            len(late), len(finished), recipe["epochs"], len(parts)
        ),
        at_edge=frozenset(
            n for _, tuning in tuned for n in tuning.at_edge if not chance
        ),
        runs=counted,
        grouped_by=groups.names,
        **answered,
    )


def _choice(
    part: Part, tuning: Tuning, score: Score, grouped_by: Sequence[str]
) -> ChoiceOf | None:
    labels, right, values = part[0].labels, [], []
    groups = None
    for right_N, logits, same in tuning.answers(grouped_by):
        right.append(right_N)
        if same and groups is None:
            groups = row_groups(joined(same))
        values.append([score.value(Answers(logits_NC, labels)) for logits_NC in logits])
    if len(right) < 2 or any(value is None for of in values for value in of):
        return None
    return choice_of(np.stack(right), np.array(values, np.float64), groups)


def _answers(
    parts: Sequence[Part],
    seeds: Sequence[int],
    repeats: int,
    score: Score,
    fit: bool,
    groups: TableGroups,
) -> dict[str, Any]:
    """What a row has of the seeds that finished in all parts, by the names of its fields."""
    by_part = [_logits(part) for part in parts]
    finished = [seed for seed in seeds if all(seed in by_seed for by_seed in by_part)]
    labels = np.concatenate([part[0].labels for part in parts])
    sizes = tuple(len(part[0].labels) for part in parts)
    majority = sum(
        (part[0].majority_accuracy or 0) * len(part[0].labels) for part in parts
    )
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
            sure = Answers(
                logits_SNC[place].astype(np.float64) / of_row, labels, sizes, repeats
            )
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
    votes = stats.majority_votes(logits_SNC, predicted_SN) if finished else None
    by_row_SN = _by_row(right_SN, parts, repeats)
    right = Scored(values=every[DEFAULT], by_row=by_row_SN, groups=groups.groups)
    there, scored = [one for one in found if one is not None], right
    if len(there) < len(found):
        why = f"these rows and classes have no {score.title}"
        scored = Scored(values=np.full(len(found), np.nan), by_row=None, no_claim=why)
    elif found:
        rows = [one.by_row for one in there if one.by_row is not None]
        by_row = _by_row(np.stack(rows), parts, repeats) if rows else None
        scored = Scored.of(there, by_row, why, groups.groups)
    at_once = bool(parts[0][0].fit)
    return {
        "finished": tuple(finished),
        "right": right_SN,
        "accuracy": _measured(known[DEFAULT], right, at_once),
        "chosen": _measured(score, scored, at_once),
        "by_part": np.array(part_values, np.float64).reshape(len(finished), len(parts)),
        "every": every,
        "confusion": stats.confusion(
            predicted_SN.ravel(), np.tile(labels, len(finished)), classes
        ),
        "vote_accuracy": None if votes is None else float((votes == labels).mean()),
        "majority_accuracy": majority / len(labels),
        "labels_per_class": np.bincount(labels, minlength=classes),
        "temperatures": fitted,
        "bins": bins,
    }


def _by_row(value_SN: NDArray[Any], parts: Sequence[Part], repeats: int) -> Any:
    """Of rows that several cross-validations test the mean, (S, rows of the split)."""
    if repeats == 1:
        return value_SN
    row_N = np.concatenate([part[0].test_rows for part in parts])
    tested = np.unique(row_N, return_counts=True)[1]
    if (tested != repeats).any():
        where = str(parts[0][0].path.parent)
        raise CacheError(
            "folds of repeats do not test every row equally often", where=where
        )
    shape = len(value_SN), len(row_N) // repeats, repeats
    return (
        value_SN[:, np.argsort(row_N, kind="stable")]
        .reshape(shape)
        .mean(2, dtype=np.float64)
    )


def _logits(part: Part) -> dict[int, NDArray[np.float32]]:
    decides = first_runs(part)
    found: dict[int, NDArray[np.float32]] = {}
    for run in part:
        logits = run.finished_logits()
        if not np.isfinite(logits).all():  # which class is largest would be anything
            where = str(run.path)
            raise CacheError("the run has test logits that are no numbers", where=where)
        mine = dict(zip(run.finished, logits, strict=True))
        found |= {seed: mine[seed] for seed in mine if decides[seed] is run}
    return found


def _temperatures(parts: Sequence[Part], seeds: Sequence[int]) -> Floats | None:
    """Of the seeds of a row, (S, P); None where one of them has nothing to fit one on."""
    value_SP = np.ones((len(seeds), len(parts)))
    for place, part in enumerate(parts):
        decides = first_runs(part)
        held = {run: run.validation for run in {decides[seed] for seed in seeds}}
        for index, seed in enumerate(seeds):
            found, run = held[decides[seed]], decides[seed]
            value = found.temperature(run.seeds.index(seed)) if found else None
            if value is None:
                return None
            value_SP[index, place] = value
    return value_SP if seeds else None
