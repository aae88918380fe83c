"""What there is to train, and roughly how long it takes. Nothing is written."""

from dataclasses import replace
from typing import Any, NamedTuple

from gaam_cache.common import devices
from gaam_cache.common.messages import duration
from gaam_cache.store.files import check_writable
from gaam_cache.store.reader import open_cache
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    choose_engine,
    groups_of,
)
from gaam_decoder.training.data import Loaded, prepare_data
from gaam_decoder.training.grid import candidates_of, grids_of, plan_items
from gaam_decoder.training.group import Group
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.protocol import num_rows

TIMED_STEPS = 3
COMPILED_SPEED = (
    4.0  # times that of an eager step; on two cores 1 for matrix products, 7 for gates
)


class EstimatedRun(NamedTuple):
    """One run to be, of one of so many candidates; ``seeds`` are lacking, ``done`` are there."""

    title: str
    recipe: dict[str, Any]
    candidates: int
    epochs: int | None
    seeds: tuple[int, ...]
    done: int
    seconds: float


class TrainEstimate(NamedTuple):
    """Everything that a config asks for."""

    trainings: int  # seeds of all runs that are still to be trained
    seconds: float  # of one worker
    runs: tuple[EstimatedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"runs": [run._asdict() for run in self.runs]}

    def in_words(self) -> str:
        text = f"roughly {duration(max(1, self.seconds))} for {self.trainings:,} trainings in "
        text += f"{len(self.runs):,} runs; nothing was written"
        for run in self.runs:
            text += f"\n  {run.title}"
            text += f" or what else is best of {run.candidates}" * (run.candidates > 1)
            text += f": seeds {spell_numbers(run.seeds) or 'are all there'}"
            text += f", {duration(run.seconds)}" * bool(run.seeds)
        return text


def estimate(config: TrainConfig) -> TrainEstimate:
    """List what ``train`` would do and time a few steps of every decoder; raises as ``train``.

    >>> config = gaam_decoder.TrainConfig(attn=("laplace",), cache="cache", lr=1e-3)
    >>> print(gaam_decoder.estimate(config).in_words())  # doctest: +ELLIPSIS
    roughly...
    """
    check_writable(config.runs, option="--runs")
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    asked = [([item], config.seeds) for item in items]
    if (
        choosing := config.choosing_seeds
    ) is not None:  # one of several is trained with --seeds
        asked = [
            ([one], choosing) for one in candidates_of(items, config, cache).values()
        ]
        asked += [(grid, config.seeds) for grid in grids_of(items)]
    loaded = Loaded(0.0)  # a few rows are read from disk
    per_row: dict[tuple[Any, ...], float] = {}
    runs = []
    for several, seeds in asked:
        lacking = [
            one.lacking(seeds, runs_of_key(config.runs, one.key)) for one in several
        ]
        # if it is that one
        item, left = min(
            zip(several, lacking, strict=True), key=lambda pair: len(pair[1])
        )
        spec, recipe, seconds = item.spec, item.recipe, 0.0
        if left and recipe.fitted:
            seconds, _ = fit_cost(spec, num_rows(recipe, cache), device)
        elif left:
            data = prepare_data(cache, recipe, device, loaded)
            train, rows = data.train, len(data.train)
            sizes = len(left), rows, config.seed_batch, config.compile
            engine = choose_engine(spec, recipe, device, *sizes)
            [group, *others] = groups_of(left, engine.seed_batch)
            few = min(rows, recipe.batch_size * TIMED_STEPS)
            kind = spec, len(group), few
            if kind not in per_row:  # each decoder is timed once
                part = replace(
                    train, rows=train.rows[:few], label_N=train.label_N[:few]
                )
                data, eager = replace(data, train=part), replace(engine, compiled=False)
                training = Group(
                    spec, replace(data, selection=None), recipe, group, engine=eager
                )
                training.train_epoch()
                warm = training.seconds
                training.train_epoch()
                per_row[kind] = (training.seconds - warm) / few
            seconds = per_row[kind] * rows * item.epochs * (1 + len(others))
            if engine.compiled:
                seconds = COMPILER_SECONDS + seconds / COMPILED_SPEED
        done = len(item.seeds(seeds)) - len(left)
        epochs = None if recipe.fitted else item.epochs
        about = str(item), recipe.to_dict(), len(several), epochs
        runs.append(EstimatedRun(*about, tuple(left), done, seconds))
    trainings, seconds = (
        sum(len(run.seeds) for run in runs),
        sum(run.seconds for run in runs),
    )
    return TrainEstimate(trainings, seconds, tuple(runs))
