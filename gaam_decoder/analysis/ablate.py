"""Does importance matter? Retrain on the most, the least and randomly chosen layers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.errors import ConfigError, NumericsError
from gaam_cache.paths import absolute_path
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The same experiment on some of the layers. Accuracies are fractions."""

    name: str  # all, high, low or random
    layers: tuple[int, ...]  # numbers in the encoder, from 1
    accuracy: dict[int, float]  # per seed that finished
    failed: dict[int, str]
    runs: tuple[str, ...]  # folders of the runs that hold these seeds

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "layers": list(self.layers),
            "accuracy": _spread(list(self.accuracy.values()), least=0),
            "per_seed": [{"seed": s, "accuracy": a} for s, a in sorted(self.accuracy.items())],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
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
    groups: tuple[Group, ...]

    def differences(self) -> list[dict[str, Any]]:
        """Mean differences of accuracy over seeds that finished in both groups, as JSON values."""
        by_name = {group.name: group.accuracy for group in self.groups}
        found = []
        for first, second in (("high", "low"), ("high", "random"), ("low", "random")):
            both = sorted(by_name[first].keys() & by_name[second].keys())
            values = [by_name[first][s] - by_name[second][s] for s in both]
            spread = _spread(values, least=-1)
            found.append({"first": first, "second": second, "seeds": both, **spread})
        return found

    def check(self) -> None:
        """NumericsError where no seed finished on the layers of a group."""
        for group in self.groups:
            if not group.accuracy:
                message = f"every seed failed on the layers {spell_numbers(group.layers)}"
                found = next(iter(group.failed.values()), None)
                hint = "train the run again with a lower --lr and ablate that"
                raise NumericsError(message, found=found, where=", ".join(group.runs), hint=hint)

    def to_dict(self) -> dict[str, Any]:
        names = ("run", "ranked_by", "attention", "seed")
        return {name: getattr(self, name) for name in names} | {
            "importance": self.importance.to_dict(),
            "groups": [group.to_dict() for group in self.groups],
            "differences": self.differences(),
        }

    def in_words(self) -> str:
        """Lines for people; accuracies in percent, differences in percentage points."""
        other = "" if self.attention == self.ranked_by else f", retrained with {self.attention}"
        lines = [f"layers ranked by the importance factor of {self.ranked_by}{other}"]
        for group in self.groups:
            line = f"  {group.name:<7} layers {spell_numbers(group.layers):<9}  "
            line += f"{_in_words(group.to_dict()['accuracy'], '%')}, {len(group.accuracy)} seeds"
            lines.append(line + f", {len(group.failed)} FAILED" * bool(group.failed))
        lines.append("differences, paired by seed, in points; intervals (95%) are over seeds alone")
        for pair in self.differences():
            name = f"{pair['first']} - {pair['second']}"
            lines.append(f"  {name:<14}  {_in_words(pair, '', sign='+')}")
        if any(len(pair["seeds"]) < stats.LEAST_SEEDS for pair in self.differences()):
            lines.append(f"with fewer than {stats.LEAST_SEEDS} seeds nothing can be claimed")
        return "\n".join(lines)


def _spread(values: Sequence[float], least: float) -> dict[str, Any]:
    """Mean, standard deviation and 95% interval over seeds."""
    value_S = np.array(values)
    return {
        "mean": float(value_S.mean()) if len(value_S) else None,
        "std": stats.standard_deviation(value_S),
        "ci95": stats.within(stats.t_interval(value_S), least, 1),
    }


def _in_words(spread: dict[str, Any], unit: str, sign: str = "") -> str:
    if spread["mean"] is None:
        return "no seed finished"
    text = f"{100 * spread['mean']:{sign}z.2f}{unit}"
    if spread["ci95"] is not None:
        low, high = (f"{100 * bound:{sign}z.2f}" for bound in spread["ci95"])
        text += f" (sd {100 * spread['std']:.2f}; {low} to {high})"
    return text


def ablate(
    path: str | Path,
    *,
    num_layers: int = 3,
    seed: int = 0,
    cache: str | Path | None = None,
    attn: str | None = None,
    device: str = "auto",
    progress: Callable[[int, int, str], None] | None = None,
) -> Ablation:
    """Retrain a finished run's decoder on its most and least important layers and on random ones.

    Recipe and seeds are those of the run. The new runs lie beside it; what is there already is
    not trained again.

    >>> found = gaam_decoder.ablate(run.path, num_layers=2)
    >>> [group.name for group in found.groups]
    ['all', 'high', 'low', 'random']

    Args:
        path: folder of the run.
        num_layers: layers of each group.
        seed: decides the random layers.
        cache: folder of the cache, if it has moved.
        attn: what to train where the options of the run's own mechanism do not fit that few layers
            (``gaam:heads=1`` for a run of ``gaam:heads=8``).
        device: auto, cpu, cuda, cuda:N or mps.
        progress: called with (seed-epochs done, in all, what is going on) of each group.

    Raises:
        ConfigError: no attention map, a constant one, too few layers, or options that do not fit.
        NotFoundError, CacheError: no such run or cache, or one that it was not trained on.
    """
    run = one_run(absolute_path(path))
    importance, fold = importance_of([run]), run.recipe.get("fold")
    if importance is None or fold:
        why = f"fold {fold}" if fold else "every seed failed"
        if run.finished and not fold:
            why = "no attention map to take importance from, which final models lack too"
        raise ConfigError(f"the layers of '{run.attention}' cannot be ranked", found=why)
    chosen = choose_layers(importance, num_layers, seed)
    spec = parse_attention(run.attention)
    rest = Spec(spec.name, tuple(one for one in spec.options if one[0] != "heads"))
    # without a number of heads that its encoder chose to fit it
    fitting = spelled_out(rest, len(run.layer_numbers), run.cache["hidden_size"]) == spec
    trained = attn or str(rest if fitting else spec)
    implied = ("plugins", "shard_rows")
    recipe: dict[str, Any] = {k: v for k, v in run.recipe.items() if k not in implied}
    if (shots := recipe.pop("shots", None)) is not None:
        recipe["train_rows"] = f"{shots}{PER_CLASS}"
    recipe |= {
        "attn": (trained,),
        "head": run.head,
        "cache": find_cache(run.cache, run.path, cache),
        "runs": run.path.parent,
        "seeds": run.seeds,
        "device": device,
        "probe": False,
    }
    groups = [_group("all", importance.layers, [run], run.seeds)]
    for name, layers in chosen.items():

        def tick(done: int, total: int, text: str, name: str = name) -> None:
            if progress is not None:
                progress(done, total, f"{name} layers: {text}")

        try:
            runs = train(TrainConfig(**recipe | {"layers": layers}), progress=tick)
        except ConfigError as error:
            if attn is None and ":" in run.attention:
                error.details.setdefault("to do", "choose --num-layers, or what to train by --attn")
            raise
        groups.append(_group(name, layers, runs, run.seeds))
    about = {"run": str(run.path), "ranked_by": run.attention, "attention": trained, "seed": seed}
    return Ablation(importance=importance, groups=tuple(groups), **about)  # type: ignore[arg-type]


def choose_layers(importance: Importance, count: int, seed: int) -> dict[str, tuple[int, ...]]:
    """The ``count`` layers with the highest, the lowest, and with any mean importance factor.

    The random layers are others than both where there are enough, else another set than both. A
    ConfigError says that there are too few layers, or none more important than others.
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

    def numbers(of: np.ndarray) -> tuple[int, ...]:
        return tuple(sorted(of.tolist()))

    order = np.argsort(-factor, kind="stable")
    high, low = numbers(layers[order[:count]]), numbers(layers[order[-count:]])
    generator = np.random.default_rng(seed)
    others = np.sort(order[count:-count])
    pool = layers[others] if len(others) >= count else layers
    while (random := numbers(generator.choice(pool, count, replace=False))) in (high, low):
        pass
    return {"high": high, "low": low, "random": random}


def _group(
    name: str, layers: tuple[int, ...], runs: Sequence[RunResult], seeds: Sequence[int]
) -> Group:
    counts = {seed: run for seed, run in first_runs(runs).items() if seed in seeds}
    finished = [(seed, run) for seed, run in counts.items() if seed not in run.failed]
    return Group(
        name=name,
        layers=layers,
        accuracy={seed: float(run.accuracy[run.finished.index(seed)]) for seed, run in finished},
        failed={seed: run.failed[seed] for seed, run in counts.items() if seed in run.failed},
        runs=tuple(str(run.path) for run in runs),
    )
