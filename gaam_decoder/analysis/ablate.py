"""Does importance matter? Retrain on the most, the least and randomly chosen layers.

Names of arrays end in their axes: S seeds, N test rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError, NumericsError
from gaam_cache.common.messages import counted
from gaam_cache.common.paths import absolute_path
from gaam_cache.common.terminal import ReportProgress
from gaam_decoder import stats
from gaam_decoder.analysis.importance import FLAT, Importance, importance_of
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import with_derived_options
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.runs.folders import find_cache
from gaam_decoder.runs.groups import count_train_rows, groups_of_test_rows
from gaam_decoder.runs.loading import read_one_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_run_by_seed
from gaam_decoder.specs import Spec, parse_attention
from gaam_decoder.training.sweep import train

RANDOM_SETS = 10
"""Default number of random layer sets."""
MOST_LISTED = 5000
"""If more sets of layers are possible, they are drawn, not listed and shuffled."""
FOLDER = "ablation"
"""Folder of the new runs, beside the run. Only a report of this folder shows them."""
COMPARED = (("high", "low"), ("high", "random"), ("low", "random"))
"""Names of the layer sets whose difference is tested: the first minus the second."""

Layers = tuple[int, ...]  # numbers in the encoder, ascending


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSet:
    """The same experiment on some of the layers."""

    name: str
    """``all``, ``high`` (the most important layers), ``low`` (the least important), or
    ``random 1`` and so on."""
    layers: Layers
    attention: str
    """The mechanism: ``all`` is the ablated run, which has its own."""
    hits: dict[int, NDArray[np.bool_]]
    """Whether each test row was right, (N,), for every finished seed."""
    failed: dict[int, str]  # reason for every failed seed
    runs: tuple[str, ...]  # folders of the runs that hold these seeds

    @property
    def is_random(self) -> bool:
        """Whether the layers were chosen at random."""
        return self.name.startswith("random")

    @property
    def accuracy(self) -> dict[int, float]:
        """Accuracy of every finished seed, a fraction."""
        return {seed: float(hit_N.mean()) for seed, hit_N in self.hits.items()}

    @property
    def mean_accuracy(self) -> float | None:
        """Mean over seeds; None if no seed finished."""
        accuracies = list(self.accuracy.values())
        return float(np.mean(accuracies)) if accuracies else None

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        accuracy_S = np.array(list(self.accuracy.values()))
        return {
            "name": self.name,
            "layers": list(self.layers),
            "attention": self.attention,
            "mean_accuracy": self.mean_accuracy,
            "std": stats.standard_deviation(accuracy_S),
            "per_seed": [
                {"seed": seed, "accuracy": accuracy}
                for seed, accuracy in sorted(self.accuracy.items())
            ],
            "failed_seeds": [
                {"seed": seed, "reason": reason}
                for seed, reason in sorted(self.failed.items())
            ],
            "runs": list(self.runs),
        }

    def in_words(self, retrained: str) -> str:
        """One line for people; ``retrained`` is the mechanism of most sets."""
        result = "no seed finished"
        mean = self.mean_accuracy
        if mean is not None:
            result = f"{100 * mean:.2f}%, {counted(len(self.hits), 'seed')}"
        if self.failed:
            result += f", {len(self.failed)} FAILED"
        if self.attention != retrained:
            result += f", with {self.attention}"
        return f"  {self.name:<7} layers {spell_numbers(self.layers):<9}  {result}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """The results of a mechanism on few layers."""

    run: str  # folder of the run that was ablated
    ranked_by: str  # mechanism whose attention map ranked the layers
    attention: str  # mechanism that was trained on the layer sets
    seed: int  # decided the random layers
    importance: Importance
    layer_sets: tuple[LayerSet, ...]
    train_rows: float
    """Number of rows that decoders learned from, as ``stats.claim`` takes it."""
    groups: stats.RowGroups | None
    """Test rows that belong together, such as those of a speaker; None: none do."""

    @property
    def random_sets(self) -> tuple[LayerSet, ...]:
        """The sets of random layers on which a seed finished."""
        return tuple(
            layer_set
            for layer_set in self.layer_sets
            if layer_set.is_random and layer_set.hits
        )

    @property
    def random_means(self) -> list[float]:
        """The mean accuracy of every set of ``random_sets``."""
        means = [layer_set.mean_accuracy for layer_set in self.random_sets]
        return [mean for mean in means if mean is not None]

    def claims(self) -> dict[tuple[str, str], stats.Claim]:
        """Claims on pairs of layer sets, over seeds and test rows, by their two names.

        They allow for groups of test rows and few training rows, as reports do.
        ``random`` is the average over all random sets, seed by seed and row by row.
        Holm corrects the claims for one another.
        """
        hits_by_name: dict[str, Mapping[int, NDArray[Any]]] = {
            layer_set.name: layer_set.hits for layer_set in self.layer_sets
        }
        random_hits = [layer_set.hits for layer_set in self.random_sets]
        hits_by_name["random"] = _average_hits(random_hits)

        claims: dict[tuple[str, str], stats.Claim] = {}
        for first, second in COMPARED:
            first_hits = hits_by_name[first]
            second_hits = hits_by_name[second]
            seeds = sorted(first_hits.keys() & second_hits.keys())
            if seeds:
                claims[first, second] = stats.claim(
                    _stack(first_hits, seeds),
                    _stack(second_hits, seeds),
                    train_rows=self.train_rows,
                    groups=self.groups,
                )
        corrected = stats.holm_corrected(list(claims.values()))
        return dict(zip(claims, corrected, strict=True))

    def random_sets_below(self, name: str) -> int:
        """How many random sets have a lower mean accuracy than the set of that name.

        0 if no seed finished on that set.
        """
        [mean] = [
            layer_set.mean_accuracy
            for layer_set in self.layer_sets
            if layer_set.name == name
        ]
        if mean is None:
            return 0
        return sum(random_mean < mean for random_mean in self.random_means)

    def check(self) -> None:
        """Check that at least one seed finished on every layer set.

        Raises:
            NumericsError: no seed finished on the layers of a set.
        """
        for layer_set in self.layer_sets:
            if not layer_set.hits:
                layers = spell_numbers(layer_set.layers)
                raise NumericsError(
                    f"every seed failed on the layers {layers}",
                    found=next(iter(layer_set.failed.values()), None),
                    where=", ".join(layer_set.runs),
                    hint="train the run again with a lower --lr and ablate that",
                )

    def to_dict(self) -> dict[str, object]:
        """JSON values; accuracies are fractions."""
        differences = [
            _claim_values(first, second, claim)
            for (first, second), claim in self.claims().items()
        ]
        return {
            "run": self.run,
            "ranked_by": self.ranked_by,
            "attention": self.attention,
            "seed": self.seed,
            "importance": self.importance.to_dict(),
            "layer_sets": [layer_set.to_dict() for layer_set in self.layer_sets],
            "differences": differences,
            "random": {
                "sets": len(self.random_sets),
                "mean_accuracies": self.random_means,
                # random sets on which the decoder is less accurate than on the most
                # (high) or least (low) important layers
                "below_high": self.random_sets_below("high"),
                "below_low": self.random_sets_below("low"),
            },
        }

    def in_words(self) -> str:
        """Lines for people; accuracies in percent, differences in percentage points."""
        title = f"layers ranked by the importance factor of {self.ranked_by}"
        if self.attention != self.ranked_by:
            title += f", retrained with {self.attention}"
        lines = [title]
        lines += [
            layer_set.in_words(self.attention)
            for layer_set in self.layer_sets
            if not layer_set.is_random
        ]
        lines.append(self._random_in_words())

        units = "test rows" if self.groups is None else "groups of test rows"
        lines.append(f"differences over seeds and {units}, in points, by Holm")
        claims = self.claims()
        for (first, second), claim in claims.items():
            lines.append(f"  {f'{first} - {second}':<14}  {_claim_in_words(claim)}")
        if any(claim.num_seeds < stats.LEAST_SEEDS for claim in claims.values()):
            lines.append(
                f"with fewer than {stats.LEAST_SEEDS} seeds nothing can be claimed"
            )
        return "\n".join(lines)

    def _random_in_words(self) -> str:
        """One line about all random sets, and how the other two compare with them."""
        means = self.random_means
        if not means:
            return "  random  no seed finished"
        count = len(means)
        ranks = ", ".join(
            f"{name} is above {self.random_sets_below(name)} of {count}"
            for name in ("high", "low")
        )
        sets = counted(count, "set")
        return (
            f"  random  {sets}: {100 * np.mean(means):.2f}%, "
            f"from {100 * min(means):.2f} to {100 * max(means):.2f}%; {ranks}"
        )


def _average_hits(
    hits_of_sets: Sequence[Mapping[int, NDArray[np.bool_]]],
) -> dict[int, NDArray[np.float64]]:
    """Share of the layer sets whose decoder was right on each test row, by seed.

    Args:
        hits_of_sets: for each layer set and seed, whether each test row was right.

    Returns:
        The share, (N,), for every seed that finished on all sets.
    """
    if not hits_of_sets:
        return {}
    seeds = set.intersection(*(set(hits) for hits in hits_of_sets))
    return {
        seed: np.mean([hits[seed] for hits in hits_of_sets], axis=0) for seed in seeds
    }


def _stack(
    hits: Mapping[int, NDArray[Any]], seeds: Sequence[int]
) -> NDArray[np.float64]:
    """The hits of these seeds as numbers, (S, N)."""
    return np.stack([hits[seed] for seed in seeds]).astype(np.float64)


def _claim_values(first: str, second: str, claim: stats.Claim) -> dict[str, object]:
    """The difference of two layer sets as JSON values."""
    return {
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


def _claim_in_words(claim: stats.Claim) -> str:
    """Difference and interval in percentage points, and the verdict."""
    text = f"{100 * claim.difference:+z.2f}"
    interval = claim.interval_corrected or claim.interval
    if interval is not None:
        low, high = interval
        text += f" ({100 * low:+z.2f} to {100 * high:+z.2f})"
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
    progress: ReportProgress | None = None,
) -> Ablation:
    """Retrain the decoder of a finished run on few layers.

    These are its most and its least important layers, and random ones. Recipe and seeds
    are those of the run. The new runs lie in the folder ``ablation`` beside it, so that
    no report of the run's own folder recommends them. Existing runs are not trained
    again.

    Examples:
        >>> ablation = gaam_decoder.ablate(run.path, num_layers=2, random_sets=1)
        >>> [layer_set.name for layer_set in ablation.layer_sets]
        ['all', 'high', 'low', 'random 1']

    Args:
        path: folder of the run.
        num_layers: layers of each set.
        random_sets: number of random layer sets, or fewer if there are no more.
        seed: decides the random layers.
        cache: folder of the cache, if it has moved.
        attn: mechanism to train, if the options of the run's own mechanism do not fit
            so few layers (``gaam:heads=1`` for a run of ``gaam:heads=8``).
        device: auto, cpu, cuda, cuda:N or mps.
        progress: called with (seed-epochs done, in all, current step).

    Raises:
        ConfigError: a task without classes, no attention map, a constant one, too few
            layers, or options that do not fit.
        NotFoundError: no such run or cache.
        CacheError: the run or cache is damaged, or the run was trained on another one.
    """
    run = read_one_run(absolute_path(path))
    if not run.task_definition.has_classes:
        raise ConfigError(
            "layers are compared by the test rows that are right",
            expected="a run of classification",
            found=f"a run of {run.task}",
        )
    importance = _rank_layers(run)
    chosen_layers = choose_layers(importance, num_layers, seed, random_sets)
    attention = attn or _attention_for_few_layers(run)
    config = _ablation_config(
        run, attention, list(chosen_layers.values()), cache, device
    )
    try:
        runs = train(config, progress=progress)
    except ConfigError as error:
        if attn is None and ":" in run.attention:
            error.details.setdefault(
                "to do", "choose --num-layers, or what to train by --attn"
            )
        raise

    layer_sets = [_layer_set("all", importance.layers, [run], run.seeds)]
    for name, layers in chosen_layers.items():
        runs_on_layers = [other for other in runs if other.layer_numbers == layers]
        layer_sets.append(_layer_set(name, layers, runs_on_layers, run.seeds))
    groups, joining_names = groups_of_test_rows(run)
    return Ablation(
        run=str(run.path),
        ranked_by=run.attention,
        # with the number of heads that fits so few layers
        attention=runs[0].attention,
        seed=seed,
        importance=importance,
        layer_sets=tuple(layer_sets),
        train_rows=count_train_rows([run], groups, joining_names),
        groups=groups,
    )


def _rank_layers(run: RunResult) -> Importance:
    """The importance of every layer of a run.

    Raises:
        ConfigError: the run has none, or tested only one fold.
    """
    importance = importance_of([run])
    fold = run.recipe.fold
    if importance is not None and not fold:
        return importance
    if fold:
        reason = f"fold {fold}"
    elif run.finished:
        reason = "no attention map to take importance from, which final models lack too"
    else:
        reason = "every seed failed"
    raise ConfigError(f"the layers of '{run.attention}' cannot be ranked", found=reason)


def _attention_for_few_layers(run: RunResult) -> str:
    """The run's mechanism, without a default number of heads.

    The default depends on the number of layers, so another number of layers may need
    another one. A number that a person chose stays.
    """
    spec = parse_attention(run.attention)
    other_options = tuple(option for option in spec.options if option[0] != "heads")
    without_heads = Spec(spec.name, other_options)
    with_default_heads = with_derived_options(
        without_heads, len(run.layer_numbers), run.cache.hidden_size
    )
    return str(without_heads if with_default_heads == spec else spec)


def _ablation_config(
    run: RunResult,
    attention: str,
    layer_sets: Sequence[Layers],
    cache: str | Path | None,
    device: str,
) -> TrainConfig:
    """A config that trains a run's recipe and seeds on other layers.

    Args:
        run: that is ablated.
        attention: the mechanism to train.
        layer_sets: the layers, one training for each set.
        cache: folder of the cache, if it has moved.
        device: that trains.
    """
    # a run records no defaults of a recipe, and a config would decide these anew
    settings: dict[str, Any] = {
        "state_scale": run.recipe.state_scale,
        "loss_scale": run.recipe.loss_scale,
    }
    settings |= run.settings
    # a run's settings have the digest of its groups, where a config has their source
    if run.recipe.groups is not None:
        settings["groups"] = run.recipe.groups.source
    # the mechanism and the cache imply these
    settings.pop("plugins", None)
    settings.pop("shard_rows", None)
    shots = settings.pop("shots", None)
    if shots is not None:
        settings["train_rows"] = f"{shots}{PER_CLASS}"
    settings |= {
        "attn": (attention,),
        "head": run.head,
        "layers": [spell_numbers(layers) for layers in layer_sets],
        "cache": find_cache(run.cache, run.path, cache),
        "runs": run.path.parent / FOLDER,
        "seeds": run.seeds,
        "device": device,
        "probe": False,
    }
    return TrainConfig(**settings)


def choose_layers(
    importance: Importance, count: int, seed: int, random_sets: int = RANDOM_SETS
) -> dict[str, Layers]:
    """Choose the most important layers, the least important ones, and random ones.

    Importance is the mean importance factor. Random layers are others than these two
    sets where those make enough random sets, else any layers. No set occurs twice.

    Args:
        importance: of every layer.
        count: layers of each set.
        seed: decides the random layers.
        random_sets: number of random sets, or fewer if there are no more.

    Returns:
        The layers by the name of their set: high, low, 'random 1' and so on.

    Raises:
        ConfigError: too few layers, or none is more important than another.
    """
    layers = np.array(importance.layers)
    factors = np.array(importance.factor)
    num_layers = len(layers)
    # the two sets may not overlap, and a third one is needed for a random set
    if not 1 <= count <= num_layers // 2 or math.comb(num_layers, count) < 3:
        expected = "a run on three or more layers"
        if num_layers > 2:
            expected = (
                f"1 to {num_layers // 2}: the highest and the lowest must not overlap"
            )
        raise ConfigError(
            "--num-layers is out of range",
            expected=expected,
            found=f"{count} of {num_layers} layers",
        )
    if np.ptp(factors) <= FLAT:
        raise ConfigError(
            "no layer is more important than another",
            found=f"a mean importance factor of {factors[0]:.3f} everywhere",
        )

    order = np.argsort(-factors, kind="stable")
    high = tuple(sorted(layers[order[:count]].tolist()))
    low = tuple(sorted(layers[order[-count:]].tolist()))
    other_layers = layers[np.sort(order[count:-count])]
    has_enough_sets = math.comb(len(other_layers), count) >= random_sets
    pool = other_layers if has_enough_sets else layers

    chosen = {"high": high, "low": low}
    # draw two sets more, as the highest and the lowest may be among them
    drawn = _shuffled_sets(pool.tolist(), count, random_sets + 2, seed)
    other_sets = [layer_set for layer_set in drawn if layer_set not in (high, low)]
    for number, random_layers in enumerate(other_sets[:random_sets], start=1):
        chosen[f"random {number}"] = random_layers
    return chosen


def _shuffled_sets(
    pool: Sequence[int], layers_per_set: int, least_sets: int, seed: int
) -> list[Layers]:
    """Different sets of layers in a random order.

    Args:
        pool: layers to choose from.
        layers_per_set: number of layers of each set.
        least_sets: number of sets to return at least, if there are as many.
        seed: decides the order.
    """
    generator = np.random.default_rng(seed)
    # list and shuffle all sets where they are few, else draw some
    if math.comb(len(pool), layers_per_set) <= MOST_LISTED:
        all_sets = list(combinations(sorted(pool), layers_per_set))
        return [all_sets[number] for number in generator.permutation(len(all_sets))]

    # a dictionary keeps the order in which sets were drawn
    drawn: dict[Layers, None] = {}
    while len(drawn) < least_sets:
        layers = generator.choice(pool, layers_per_set, replace=False)
        drawn[tuple(sorted(layers.tolist()))] = None
    return list(drawn)


def _layer_set(
    name: str, layers: Layers, runs: Sequence[RunResult], seeds: Sequence[int]
) -> LayerSet:
    """The results of some seeds on a set of layers.

    Args:
        name: of the set.
        layers: of the set.
        runs: the runs of the decoder on these layers.
        seeds: seeds to include; a run may have others.
    """
    hits = {}
    failed = {}
    for seed, run in first_run_by_seed(runs).items():
        if seed not in seeds:
            continue
        if seed in run.failed:
            failed[seed] = run.failed[seed]
        else:
            hits[seed] = run.hits[run.finished.index(seed)]
    return LayerSet(
        name=name,
        layers=layers,
        attention=runs[0].attention,
        hits=hits,
        failed=failed,
        runs=tuple(str(run.path) for run in runs),
    )
