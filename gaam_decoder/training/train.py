"""A training, by this process or by workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import devices
from gaam_cache.engines._base import Place, Task, Tell, load_engine, warning_once
from gaam_cache.engines._ranks import Rank, device_of, find_rank
from gaam_cache.placing import placed
from gaam_cache.store.files import check_folder
from gaam_cache.store.plan import PLAN_FILE
from gaam_decoder.config import TrainConfig
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.runs.trackers import check_tracker
from gaam_decoder.training.sweep import Swept, sweep
from gaam_decoder.training.tracker import Progress, Told, Tracker


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] = lambda run: None,
    on_others: Callable[[str], None] = lambda text: None,
) -> list[RunResult]:
    """Train every mechanism of a config over its seeds.

    Runs that exist with the same mechanism, recipe and cache are kept, and only seeds that they
    lack are trained. A seed that was finished before an interruption is not trained again.

    With ``tune_seeds`` these train every learning rate and weight decay, and ``seeds`` only that of
    each row that has the best mean validation accuracy.

    Where ``config`` asks for several devices or another engine, workers train. Where this process
    is one of several that somebody else started (see ``find_rank``), it is one of the workers, and
    returns when others are at work on all that is left.

    Args:
        config: mechanisms, seeds, recipe, protocol, folders, workers.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).
        on_run: called with every run when it is finished.
        on_others: called with what others still train, where this is one of several workers.

    Returns:
        The runs that together hold the seeds asked for, in the order of the mechanisms; before
        them those that were trained to choose.

    Raises:
        ConfigError: an argument does not fit the cache, or no folder of runs can be there.
        NumericsError: a seed failed of every candidate, so that nothing can be chosen.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
        StorageError: the file system refused; finished seeds are kept.
    """
    report = progress or (lambda done, total, text: None)
    check_tracker(config.track)
    check_folder(config.runs, option="--runs")
    rank = find_rank(config.rank)

    def say(path: Path) -> None:
        on_run(read_run(path))

    if not config.alone:
        swept = _by_engine(config, rank, report, say)
    elif rank is not None:
        devices.share_machine(rank.here)
        own = replace(config, device=device_of(rank, config.device))
        swept = sweep(own, Tracker(report), say, workers=rank.total, waits=False)
    else:
        swept = sweep(config, Tracker(report), say)
    if swept.left is not None:
        on_others(swept.left)
    return swept.runs


class _Argument(NamedTuple):
    """What a worker is told."""

    config: TrainConfig
    ranks: int
    """Calls like this one that share the work."""
    waits: bool


def _by_engine(
    config: TrainConfig, rank: Rank | None, report: Progress, on_run: Callable[[Path], None]
) -> Swept:
    """Let the workers of an engine train.

    Raises:
        GaamError: whatever a worker raised, or all of them died.
    """
    done = 0

    def hear(worker: int, kind: str, value: Any) -> None:
        nonlocal done
        if kind == "progress":
            new, total, text = value
            done = min(done + new, total)
            report(done, total, f"worker {worker + 1}: {text}")
        elif kind == "waiting":
            report(0, 0, value)
        elif kind == "run":
            on_run(Path(value))

    argument = _Argument(placed(config), rank.total if rank else 1, rank is None)
    task = Task(_work, argument, config.runs, config.device, (config.cache / PLAN_FILE,))
    results = load_engine(config).run(task, config, warning_once(hear))
    paths, left = min(results, key=lambda result: result[1] is not None)
    return Swept(runs=[read_run(Path(path)) for path in paths], left=left)


def _work(argument: _Argument, place: Place, tell: Tell) -> tuple[list[str], str | None]:
    """Be one worker: train what nobody else trains until all seeds are there."""
    swept = sweep(
        replace(argument.config, device=place.device),
        Told(tell),
        lambda path: tell("run", str(path)),
        workers=argument.ranks * place.total,
        waits=argument.waits,
    )
    return [str(run.path) for run in swept.runs], swept.left
