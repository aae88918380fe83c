"""Which runs count: the first that holds a seed, and of candidates what validation chooses."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.runs.folders import ending
from gaam_decoder.runs.result import TEST_FILE, RunResult

SPELLED_OUT = {"lr": "learning rate", "weight_decay": "weight decay"}
TUNED = tuple(
    SPELLED_OUT
)  # numbers of a recipe in which alone the candidates of a row differ
HELD = "val_folds"  # the setting by which seeds hold out parts in turn


def on_training_rows(recipe: Mapping[str, Any]) -> bool:
    """Whether the rows that are tested under a recipe are those that were learned from."""
    # also of two splits that hold the same rows
    same = recipe.get("test_split", "test") == recipe.get("train_split", "train")
    return recipe.get("fold") is None and (
        same or bool(recipe.get("allow_train_as_test"))
    )


def first_runs(runs: Iterable[RunResult]) -> dict[int, RunResult]:
    """For every seed the run that counts: the first that holds it, finished or failed.

    First is what ``run_name`` would sort first (``s0-9`` before ``s5``), then the smaller digest of
    results, so that what was renamed or moved counts as before.
    """

    def place(run: RunResult) -> tuple[str, ...]:
        results = run.files.get(TEST_FILE, {}).get("sha256", "")
        return ending(run.key, run.seeds), results, run.path.name, str(run.path)

    found: dict[int, RunResult] = {}
    for run in sorted(runs, key=place):
        for seed in run.seeds:
            found.setdefault(seed, run)
    return dict(sorted(found.items()))


def by_seed(
    runs: Sequence[RunResult], read: Callable[[RunResult], NDArray[Any] | None]
) -> dict[int, NDArray[Any]]:
    """Entries of the seeds that finished, each from the run that counts for it."""
    found = {}
    for seed, run in first_runs(runs).items():
        if seed not in run.failed and (values := read(run)) is not None:
            found[seed] = values[run.seeds.index(seed)]
    return found


class Candidate(NamedTuple):
    """One value of what is tuned, and its ``mean_validation``."""

    values: dict[str, float]
    accuracy: float | None
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the numbers of a row were chosen."""

    chosen: dict[str, float]
    candidates: tuple[Candidate, ...]  # all of them, ascending
    seeds: tuple[int, ...]  # that chose
    apart: bool  # whether the seeds that chose are left out of what is reported
    tried: tuple[
        tuple[RunResult, ...], ...
    ] = ()  # runs of those that all these seeds have

    def answers(
        self, relations: Collection[str] = ()
    ) -> Iterator[
        tuple[NDArray[Any], list[NDArray[np.float32]], list[NDArray[np.int32]]]
    ]:
        """Of every candidate whether it was right on rows that chose, and test logits by seed.

        And the numbers of these rows in each of the ``relations`` that the runs have.
        """
        for runs in self.tried:
            counted, right, logits = first_runs(runs), [], []
            same = list[list[NDArray[np.int32]]]()
            for seed, run in ((seed, counted[seed]) for seed in self.seeds):
                if (held := run.validation) is None or not run.evaluated:
                    return
                place = run.seeds.index(seed)
                logits_VC, label_V = held.of_seed(place)
                right.append(logits_VC.argmax(-1) == label_V)
                logits.append(run.finished_logits()[run.finished.index(seed)])
                same.append(held.same_of_seed(place, relations))
            if runs[0].recipe.get(HELD) is None:
                yield np.mean(right, axis=0), logits, same[0]
            else:  # every seed held out rows of its own
                together = [
                    np.concatenate(of_seeds) for of_seeds in zip(*same, strict=True)
                ]
                yield np.concatenate(right), logits, together

    @property
    def accuracy(self) -> float:
        """Mean validation accuracy of what was chosen."""
        chosen = next(one for one in self.candidates if one.values == self.chosen)
        assert chosen.accuracy is not None, (
            "what has no validation accuracy is not chosen"
        )
        return chosen.accuracy

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            n for n in TUNED if len({c.values[n] for c in self.candidates}) > 1
        )

    @property
    def at_edge(self) -> tuple[str, ...]:
        """What was chosen at the smallest or largest value that was tried; below 0 is nothing."""
        tried = {name: [c.values[name] for c in self.candidates] for name in self.names}
        return tuple(
            n for n, of in tried.items() if 0 < self.chosen[n] in (min(of), max(of))
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen,
            "candidates": [
                c.values | {"validation_accuracy": c.accuracy} for c in self.candidates
            ],
            "seeds": list(self.seeds),
            "reported_on_other_seeds": self.apart,
            "at_edge": list(self.at_edge),
        }


def tuning_in_words(tunings: Sequence[Tuning]) -> str:
    """What validation chose: ``learning rate 0.05 of 4, validation 98.9%``; of folds their mean."""
    counts = Counter(map(_chosen_in_words, tunings))
    values = list(counts)
    if len(counts) > 1:
        values = [
            f"{text} in {count} fold{'s' if count > 1 else ''}"
            for text, count in counts.most_common()
        ]
    tried = " or ".join(
        dict.fromkeys(str(len(tuning.candidates)) for tuning in tunings)
    )
    accuracy = math.fsum(tuning.accuracy for tuning in tunings) / len(tunings)
    return f"{', '.join(values)} of {tried}, validation {100 * accuracy:.1f}%"


def _chosen_in_words(tuning: Tuning) -> str:
    names = tuning.names or TUNED[:1]
    return " and ".join(
        f"{SPELLED_OUT[name]} {tuning.chosen[name]:.6g}" for name in names
    )


class Choice(NamedTuple):
    """What is left of runs when every row has one candidate."""

    runs: list[RunResult]
    tunings: dict[str, Tuning]  # by key of the candidate that was chosen
    unchosen: tuple[str, ...]  # keys of candidates between which nothing could choose


def family(recipe: Mapping[str, Any], attention: str, head: str, states: str) -> str:
    """What candidates of one row have in common."""
    # what chooses a rate may hold out other rows than what reports
    rest = {
        k: v for k, v in recipe.items() if k not in (*TUNED, HELD) and v is not None
    }
    return repr((states, attention, head, sorted((k, str(v)) for k, v in rest.items())))


def choose(runs: Sequence[RunResult], seeds: Collection[int] | None = None) -> Choice:
    """Keep of the candidates of every row the one with the best mean validation accuracy.

    Candidates are runs whose recipes differ in ``TUNED`` alone; of final models, those that were
    trained to choose. Seeds that were trained to choose do, or else all that every candidate has;
    other seeds of what is chosen are reported alone. Of equals the lower validation loss counts,
    then the smaller value; one of which a seed that chooses failed or is not there does not.
    """
    rows: dict[str, dict[tuple[float, ...], list[RunResult]]] = {}
    for run in runs:
        row = family(run.recipe, run.attention, run.head, run.states)
        values = tuple(float(run.recipe.get(name, 0.0)) for name in TUNED)
        rows.setdefault(row, {}).setdefault(values, []).append(run)
    dropped, tunings, unchosen = set[str](), dict[str, Tuning](), list[str]()
    for candidates in rows.values():
        evaluated = next(iter(candidates.values()))[0].evaluated
        if not evaluated:
            candidates = {
                v: of for v, of in candidates.items() if any(one.chose for one in of)
            }
        if len(candidates) < 2:
            continue
        tuning = _tuning(candidates, seeds)
        if tuning is None:
            unchosen += {one.key for of in candidates.values() for one in of}
            continue
        for values, of in candidates.items():
            keys = {one.key for one in of}
            reports = {one.key for one in of if not one.chose}
            if values == tuple(tuning.chosen.values()):
                tunings |= dict.fromkeys(keys, tuning)
                dropped |= keys - (reports or keys)
            elif evaluated or not reports:
                dropped |= keys
    return Choice(
        [run for run in runs if run.key not in dropped], tunings, tuple(unchosen)
    )


def _tuning(
    rows: Mapping[tuple[float, ...], Sequence[RunResult]], asked: Collection[int] | None
) -> Tuning | None:
    every = [run for runs in rows.values() for run in runs]
    there = {
        v: {seed for run in runs for seed in run.seeds} for v, runs in rows.items()
    }
    meant = (
        {seed for run in every for seed in run.tuning_seeds}
        if asked is None
        else set(asked)
    )
    # where some hold out parts in turn, no others choose
    held = any(run.recipe.get(HELD) for run in every)
    tried = {
        v: [r for r in of if bool(r.recipe.get(HELD)) == held] for v, of in rows.items()
    }
    choosing = sorted(meant or set.intersection(*there.values()))
    candidates = {
        values: Candidate(
            dict(zip(TUNED, values, strict=True)), *mean_validation(of, choosing)
        )
        for values, of in sorted(tried.items())
    }
    able = [values for values, one in candidates.items() if one.accuracy is not None]
    if not able:
        return None
    # of equals the first
    winner = max(
        able, key=lambda one: (candidates[one].accuracy, -candidates[one].loss)
    )
    return Tuning(
        chosen=candidates[winner].values,
        candidates=tuple(candidates.values()),
        seeds=tuple(choosing),
        apart=bool(meant and there[winner] - set(choosing)),
        tried=tuple(tuple(tried[values]) for values in able),
    )


def mean_validation(
    runs: Sequence[RunResult], seeds: Sequence[int]
) -> tuple[float | None, float]:
    """Mean validation accuracy and loss, over seeds, of the epochs that were kept.

    None where a seed failed or is missing, or nothing chose; an unknown loss is infinite.
    """
    found, counted = [], first_runs(runs)
    for seed in seeds:
        run = counted.get(seed)
        if run is None or seed in run.failed or run.select != "val":
            return None, math.inf
        kept = [
            e for e in run.log if (e["seed"], e["epoch"]) == (seed, run.epochs[seed])
        ]
        if not kept or kept[0].get("accuracy") is None:
            return None, math.inf
        loss = kept[0].get("selection_loss")
        found.append((kept[0]["accuracy"], math.inf if loss is None else loss))
    if not found:
        return None, math.inf
    # exact: equal accuracies are equal in whatever order the seeds have them
    accuracy, loss = (
        math.fsum(values) / len(seeds) for values in zip(*found, strict=True)
    )
    return accuracy, loss


def reported(seeds: Sequence[int], tuning: Tuning | None) -> list[int]:
    return [s for s in seeds if not (tuning and tuning.apart and s in tuning.seeds)]
