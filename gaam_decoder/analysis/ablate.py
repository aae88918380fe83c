"""Does importance matter? Retrain on the most, the least and randomly chosen layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_decoder.analysis.ablation import Ablation, Group
from gaam_decoder.analysis.importance import (
    FLAT,
    NO_MAP,
    NO_MAP_OF_FINAL,
    Importance,
    importance_of,
)
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import spelled_out
from gaam_decoder.number_lists import PER_CLASS
from gaam_decoder.recipe import IMPLIED
from gaam_decoder.runs.folders import cache_of
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_runs
from gaam_decoder.specs import Spec, parse_attention
from gaam_decoder.training.sweep import train

if TYPE_CHECKING:
    Progress = Callable[[int, int, str], None]


def ablate(
    path: str | Path,
    *,
    num_layers: int = 3,
    seed: int = 0,
    cache: str | Path | None = None,
    attn: str | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Ablation:
    """Retrain a finished run's decoder on its most and least important layers and on random ones.

    Recipe and seeds are those of the run. The new runs lie beside it; what is there already is
    not trained again.

    Args:
        path: folder of the run.
        num_layers: layers of each group.
        seed: decides the random layers.
        cache: folder of the cache, where ``cache_of`` does not find it.
        attn: what to train instead of the run's own mechanism, where its options do not fit
            that few layers (``gaam:heads=1`` for a run of ``gaam:heads=8``).
        device: auto, cpu, cuda, cuda:N or mps.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on); the counts
            begin anew with each group.

    Raises:
        ConfigError: no attention map, a constant one, too few layers, or options that do not fit.
        NotFoundError: no such run or cache.
        CacheError: the cache is not the one that the run was trained on.
    """
    report = progress or (lambda done, total, text: None)
    run = one_run(Path(path).expanduser())
    importance = _ranked(run)
    chosen = choose_layers(importance, num_layers, seed)
    folder, trained = cache_of(run, cache).root, attn or _own(run)
    groups = [_group("all", importance.layers, [run], run.seeds)]
    for name, layers in chosen.items():

        def tick(done: int, total: int, text: str, name: str = name) -> None:
            report(done, total, f"{name} layers: {text}")

        config = _config(run, folder, layers, trained, device)
        try:
            runs = train(config, progress=tick)
        except ConfigError as error:
            if attn is None and ":" in run.attention:
                error.details.setdefault(
                    "to do",
                    f"the options of '{run.attention}' must fit {num_layers} layers: choose "
                    "--num-layers, or say with --attn what to train on them",
                )
            raise
        groups.append(_group(name, layers, runs, run.seeds))
    return Ablation(
        run=str(run.path),
        ranked_by=run.attention,
        attention=trained,
        seed=seed,
        importance=importance,
        groups=tuple(groups),
    )


def _own(run: RunResult) -> str:
    """The run's mechanism, without a number of heads that its encoder chose to fit it."""
    spec = parse_attention(run.attention)
    rest = tuple(one for one in spec.options if one[0] != "heads")
    size = len(run.layer_numbers), run.cache["hidden_size"]
    chosen = spelled_out(Spec(spec.name, rest), *size)
    return str(Spec(spec.name, rest) if chosen == spec else spec)


def _ranked(run: RunResult) -> Importance:
    """The importance of its layers."""
    importance = importance_of([run])
    if importance is None:
        why = NO_MAP if run.evaluated else NO_MAP_OF_FINAL
        raise ConfigError(
            f"the layers of '{run.attention}' cannot be ranked",
            expected="a finished run of a mechanism with an attention map, tested on a split",
            found=why if run.finished else "every seed failed",
            where=str(run.path.absolute()),
        )
    return importance


def choose_layers(importance: Importance, count: int, seed: int) -> dict[str, tuple[int, ...]]:
    """The ``count`` layers with the highest, the lowest, and with any mean importance factor.

    The random layers are others than both where there are enough, else another set than both.

    Raises:
        ConfigError: too few layers for three different groups, or none more important than others.
    """
    layers = np.array(importance.layers)
    factor = np.array(importance.factor)
    if not 1 <= count <= len(layers) // 2 or math.comb(len(layers), count) < 3:
        raise ConfigError(
            "--num-layers is out of range",
            expected=f"1 to {len(layers) // 2}: the highest and the lowest must not overlap"
            if len(layers) > 2
            else "a run on three or more layers",
            found=f"{count} of {len(layers)} layers",
        )
    if np.ptp(factor) <= FLAT:
        raise ConfigError(
            "no layer is more important than another",
            expected="an attention map that varies over the layers",
            found=f"a mean importance factor of {factor[0]:.3f} everywhere",
        )
    order = np.argsort(-factor, kind="stable")
    high, low = _numbers(layers[order[:count]]), _numbers(layers[order[-count:]])
    generator = np.random.default_rng(seed)
    others = np.sort(order[count:-count])
    pool = layers[others] if len(others) >= count else layers
    while True:
        random = _numbers(generator.choice(pool, count, replace=False))
        if random not in (high, low):
            return {"high": high, "low": low, "random": random}


def _numbers(layers: Sequence[Any] | np.ndarray) -> tuple[int, ...]:
    return tuple(sorted(int(layer) for layer in layers))


def _config(
    run: RunResult, cache: Path, layers: tuple[int, ...], attention: str, device: str
) -> TrainConfig:
    """What trained the run, on other layers."""
    recipe: dict[str, Any] = {k: v for k, v in run.recipe.items() if k not in IMPLIED}
    if (shots := recipe.pop("shots", None)) is not None:
        recipe["train_rows"] = f"{shots}{PER_CLASS}"
    if run.recipe.get("fold"):
        raise ConfigError(
            "a run of one fold cannot be ablated",
            expected="a run that was tested on a split of the cache",
            found=f"fold {run.recipe['fold']}",
            where=str(run.path.absolute()),
        )
    recipe |= {
        "attn": (attention,),
        "head": run.head,
        "cache": cache,
        "runs": run.path.absolute().parent,
        "seeds": run.seeds,
        "layers": layers,
        "device": device,
        "probe": False,
    }
    return TrainConfig(**recipe)


def _group(
    name: str, layers: tuple[int, ...], runs: Sequence[RunResult], seeds: Sequence[int]
) -> Group:
    counts = {seed: run for seed, run in first_runs(runs).items() if seed in seeds}
    return Group(
        name=name,
        layers=layers,
        accuracy={
            seed: float(run.accuracy[run.finished.index(seed)])
            for seed, run in counts.items()
            if seed not in run.failed
        },
        failed={seed: run.failed[seed] for seed, run in counts.items() if seed in run.failed},
        runs=tuple(str(run.path) for run in runs),
    )
