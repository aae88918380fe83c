"""Does importance matter? Retrain on the most, the least and randomly chosen layers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, NumericsError
from gaam_cache.common.paths import absolute_path
from gaam_decoder import stats
from gaam_decoder.analysis import importance as of_layers
from gaam_decoder.analysis.importance import Importance, importance_of
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import spelled_out
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.runs.folders import find_cache
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_runs
from gaam_decoder.specs import Spec, parse_attention
from gaam_decoder.training.sweep import train

RANDOM_SETS = 10
"""Sets of random layers, where there are as many."""
MOST_LISTED = 5000
"""Sets up to which all are listed, and those that are taken drawn from the list."""
FOLDER = "ablation"
"""Of the runs on few layers, beside the run: a report of that folder alone has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSet:
    """The same experiment on some of the layers."""

    name: str  # all, high, low, or random 1 and so on
    layers: tuple[int, ...]  # numbers in the encoder, from 1
    hits: dict[int, NDArray[np.bool_]]
    """For every seed that finished whether each test row was right, (N,)."""
    failed: dict[int, str]
    runs: tuple[str, ...]  # folders of the runs that hold these seeds

    @property
    def accuracy(self) -> dict[int, float]:
        """Of every seed that finished, a fraction."""
        return {seed: float(hit_N.mean()) for seed, hit_N in self.hits.items()}

    @property
    def mean_accuracy(self) -> float | None:
        """Over seeds; None where none finished."""
        values = list(self.accuracy.values())
        return float(np.mean(values)) if values else None

    def to_dict(self) -> dict[str, Any]:
        value_S = np.array(list(self.accuracy.values()))
        return {
            "name": self.name,
            "layers": list(self.layers),
            "mean_accuracy": self.mean_accuracy,
            "std": stats.standard_deviation(value_S),
            "per_seed": [
                {"seed": s, "accuracy": a} for s, a in sorted(self.accuracy.items())
            ],
            "failed_seeds": [
                {"seed": s, "reason": why} for s, why in sorted(self.failed.items())
            ],
            "runs": list(self.runs),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """What became of a mechanism on few layers."""

    run: str
    ranked_by: str  # mechanism whose attention map ranked the layers
    attention: str  # mechanism that was trained on them
    seed: int
    importance: Importance
    layer_sets: tuple[LayerSet, ...]

    @property
    def random_sets(self) -> tuple[LayerSet, ...]:
        """The sets of random layers on which a seed finished."""
        return tuple(
            one for one in self.layer_sets if one.name.startswith("random") and one.hits
        )

    def claims(self) -> dict[tuple[str, str], stats.Claim]:
        """Differences over seeds and test rows, corrected for one another, by the two names.

        ``random`` stands for the average over all random sets, seed by seed and row by row.
        """
        hits: dict[str, Mapping[int, NDArray[Any]]]
        hits = {one.name: one.hits for one in self.layer_sets}
        hits["random"] = _average([one.hits for one in self.random_sets])
        made = {}
        for first, second in (("high", "low"), ("high", "random"), ("low", "random")):
            seeds = sorted(hits[first].keys() & hits[second].keys())
            if seeds:
                both = [
                    np.stack([hits[name][seed] for seed in seeds])
                    for name in (first, second)
                ]
                made[first, second] = stats.claim(
                    *[one.astype(np.float64) for one in both]
                )
        return dict(zip(made, stats.holm_corrected(list(made.values())), strict=True))

    def sets_below(self, name: str) -> int:
        """How many random sets have a lower mean accuracy than the set of that name."""
        [mean] = [one.mean_accuracy for one in self.layer_sets if one.name == name]
        means = [one.mean_accuracy for one in self.random_sets]
        return sum(
            mean is not None and other is not None and other < mean for other in means
        )

    def check(self) -> None:
        """NumericsError where no seed finished on the layers of a set."""
        for one in self.layer_sets:
            if not one.hits:
                message = f"every seed failed on the layers {spell_numbers(one.layers)}"
                found = next(iter(one.failed.values()), None)
                hint = "train the run again with a lower --lr and ablate that"
                raise NumericsError(
                    message, found=found, where=", ".join(one.runs), hint=hint
                )

    def to_dict(self) -> dict[str, Any]:
        names = ("run", "ranked_by", "attention", "seed")
        means = [one.mean_accuracy for one in self.random_sets]
        return {name: getattr(self, name) for name in names} | {
            "importance": self.importance.to_dict(),
            "layer_sets": [one.to_dict() for one in self.layer_sets],
            "differences": [
                {
                    "first": first,
                    "second": second,
                    "difference": claim.difference,
                    "ci95": claim.interval_corrected or claim.interval,
                    "p": claim.p,
                    "p_holm": claim.p_holm,
                    "verdict": claim.verdict,
                    "seeds": claim.num_seeds,
                    "test_rows": claim.num_rows,
                }
                for (first, second), claim in self.claims().items()
            ],
            "random": {
                "sets": len(means),
                "mean_accuracies": means,
                "below_high": self.sets_below("high"),
                "below_low": self.sets_below("low"),
            },
        }

    def in_words(self) -> str:
        """Lines for people; accuracies in percent, differences in percentage points."""
        other = (
            ""
            if self.attention == self.ranked_by
            else f", retrained with {self.attention}"
        )
        lines = [f"layers ranked by the importance factor of {self.ranked_by}{other}"]
        ranked = (one for one in self.layer_sets if not one.name.startswith("random"))
        lines += [*map(_set_in_words, ranked), *self._random_in_words()]
        lines.append(
            "differences over seeds and test rows, in points, corrected by Holm"
        )
        for (first, second), claim in self.claims().items():
            lines.append(f"  {f'{first} - {second}':<14}  {_claim_in_words(claim)}")
        if any(claim.num_seeds < stats.LEAST_SEEDS for claim in self.claims().values()):
            lines.append(
                f"with fewer than {stats.LEAST_SEEDS} seeds nothing can be claimed"
            )
        return "\n".join(lines)

    def _random_in_words(self) -> list[str]:
        means = [
            one.mean_accuracy
            for one in self.random_sets
            if one.mean_accuracy is not None
        ]
        if not means:
            return ["  random  no seed finished"]
        number = len(means)
        line = f"  random  {number} sets: {100 * np.mean(means):.2f}%"
        line += f", from {100 * min(means):.2f} to {100 * max(means):.2f}%"
        places = ", ".join(
            f"{name} is above {self.sets_below(name)} of {number}"
            for name in ("high", "low")
        )
        return [f"{line}; {places}"]


def _average(
    hits: Sequence[dict[int, NDArray[np.bool_]]],
) -> dict[int, NDArray[np.float64]]:
    """For every seed that finished in all sets, the share of them that was right, (N,)."""
    seeds = set.intersection(*(set(one) for one in hits)) if hits else set()
    return {seed: np.mean([one[seed] for one in hits], axis=0) for seed in seeds}


def _set_in_words(one: LayerSet) -> str:
    line = f"  {one.name:<7} layers {spell_numbers(one.layers):<9}  "
    mean = one.mean_accuracy
    line += (
        "no seed finished"
        if mean is None
        else f"{100 * mean:.2f}%, {len(one.hits)} seeds"
    )
    if one.failed:
        line += f", {len(one.failed)} FAILED"
    return line


def _claim_in_words(claim: stats.Claim) -> str:
    text = f"{100 * claim.difference:+z.2f}"
    interval = claim.interval_corrected or claim.interval
    if interval is not None:
        low, high = (f"{100 * bound:+z.2f}" for bound in interval)
        text += f" ({low} to {high})"
    return f"{text}  {claim.verdict or 'no claim'}"


def ablate(
    path: str | Path,
    *,
    num_layers: int = 3,
    random_sets: int = RANDOM_SETS,
    seed: int = 0,
    cache: str | Path | None = None,
    attn: str | None = None,
    device: str = "auto",
    progress: Callable[[int, int, str], None] | None = None,
) -> Ablation:
    """Retrain a finished run's decoder on its most and least important layers and on random ones.

    Recipe and seeds are those of the run. The new runs lie in the folder ``ablation`` beside it,
    where no report of the run's own folder recommends one; what is there already is not trained
    again.

    >>> found = gaam_decoder.ablate(run.path, num_layers=2, random_sets=1)
    >>> [one.name for one in found.layer_sets]
    ['all', 'high', 'low', 'random 1']

    Args:
        path: folder of the run.
        num_layers: layers of each set.
        random_sets: how many sets of random layers there are, or fewer where there are no more.
        seed: decides the random layers.
        cache: folder of the cache, if it has moved.
        attn: what to train where the options of the run's own mechanism do not fit that few layers
            (``gaam:heads=1`` for a run of ``gaam:heads=8``).
        device: auto, cpu, cuda, cuda:N or mps.
        progress: called with (seed-epochs done, in all, what is going on).

    Raises:
        ConfigError: no attention map, a constant one, too few layers, or options that do not fit.
        NotFoundError, CacheError: no such run or cache, or one that it was not trained on.
    """
    run = one_run(absolute_path(path))
    importance, fold = importance_of([run]), run.recipe.fold
    if importance is None or fold:
        why = f"fold {fold}" if fold else "every seed failed"
        if run.finished and not fold:
            why = (
                "no attention map to take importance from, which final models lack too"
            )
        raise ConfigError(
            f"the layers of '{run.attention}' cannot be ranked", found=why
        )
    chosen = choose_layers(importance, num_layers, seed, random_sets)
    trained = attn or _fitting(run)
    config = _config(run, trained, list(chosen.values()), cache, device)
    try:
        runs = train(config, progress=progress)
    except ConfigError as error:
        if attn is None and ":" in run.attention:
            error.details.setdefault(
                "to do", "choose --num-layers, or what to train by --attn"
            )
        raise
    sets = [_layer_set("all", importance.layers, [run], run.seeds)]
    for name, layers in chosen.items():
        of_layers = [one for one in runs if one.layer_numbers == layers]
        sets.append(_layer_set(name, layers, of_layers, run.seeds))
    return Ablation(
        run=str(run.path),
        ranked_by=run.attention,
        attention=trained,
        seed=seed,
        importance=importance,
        layer_sets=tuple(sets),
    )


def _fitting(run: RunResult) -> str:
    """The run's mechanism, without a number of heads that was chosen to fit its layers."""
    spec = parse_attention(run.attention)
    rest = Spec(
        spec.name, tuple(option for option in spec.options if option[0] != "heads")
    )
    chosen = spelled_out(rest, len(run.layer_numbers), run.cache.hidden_size)
    return str(rest if chosen == spec else spec)


def _config(
    run: RunResult,
    attention: str,
    layer_sets: Sequence[tuple[int, ...]],
    cache: str | Path | None,
    device: str,
) -> TrainConfig:
    """The recipe and seeds of a run, on other layers."""
    implied = ("plugins", "shard_rows")
    recipe: dict[str, Any] = {k: v for k, v in run.settings.items() if k not in implied}
    if (shots := recipe.pop("shots", None)) is not None:
        recipe["train_rows"] = f"{shots}{PER_CLASS}"
    recipe |= {
        "attn": (attention,),
        "head": run.head,
        "layers": [spell_numbers(layers) for layers in layer_sets],
        "cache": find_cache(run.cache, run.path, cache),
        "runs": run.path.parent / FOLDER,
        "seeds": run.seeds,
        "device": device,
        "probe": False,
    }
    return TrainConfig(**recipe)


def choose_layers(
    importance: Importance, count: int, seed: int, random_sets: int = RANDOM_SETS
) -> dict[str, tuple[int, ...]]:
    """The ``count`` layers with the highest and the lowest mean importance factor, and random ones.

    Random layers are others than both where these make enough sets, else any; no set is there
    twice.

    Raises:
        ConfigError: there are too few layers, or none is more important than another.
    """
    layers, factor = np.array(importance.layers), np.array(importance.factor)
    if not 1 <= count <= len(layers) // 2 or math.comb(len(layers), count) < 3:
        most = f"1 to {len(layers) // 2}: the highest and the lowest must not overlap"
        raise ConfigError(
            "--num-layers is out of range",
            expected=most if len(layers) > 2 else "a run on three or more layers",
            found=f"{count} of {len(layers)} layers",
        )
    if np.ptp(factor) <= of_layers.FLAT:
        found = f"a mean importance factor of {factor[0]:.3f} everywhere"
        raise ConfigError("no layer is more important than another", found=found)
    order = np.argsort(-factor, kind="stable")
    high = tuple(sorted(layers[order[:count]].tolist()))
    low = tuple(sorted(layers[order[-count:]].tolist()))
    chosen = {"high": high, "low": low}
    others = np.sort(order[count:-count])
    enough = math.comb(len(others), count) >= random_sets
    pool = layers[others] if enough else layers
    every = [
        one
        for one in _sets(pool.tolist(), count, random_sets, seed)
        if one not in (high, low)
    ]
    for number, random in enumerate(every[:random_sets], start=1):
        chosen[f"random {number}"] = random
    return chosen


def _sets(pool: list[int], count: int, wanted: int, seed: int) -> list[tuple[int, ...]]:
    """Different sets of so many layers, in a random order; two more than wanted, or all."""
    generator = np.random.default_rng(seed)
    if math.comb(len(pool), count) <= MOST_LISTED:
        every = list(combinations(sorted(pool), count))
        return [every[place] for place in generator.permutation(len(every))]
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < wanted + 2:
        drawn[tuple(sorted(generator.choice(pool, count, replace=False).tolist()))] = (
            None
        )
    return list(drawn)


def _layer_set(
    name: str, layers: tuple[int, ...], runs: Sequence[RunResult], seeds: Sequence[int]
) -> LayerSet:
    run_of_seed = {seed: run for seed, run in first_runs(runs).items() if seed in seeds}
    hits, failed = {}, {}
    for seed, run in run_of_seed.items():
        if seed in run.failed:
            failed[seed] = run.failed[seed]
        else:
            hits[seed] = run.hits[run.finished.index(seed)]
    return LayerSet(
        name=name,
        layers=layers,
        hits=hits,
        failed=failed,
        runs=tuple(str(run.path) for run in runs),
    )
