"""A training: mechanisms x seeds -> runs, by this process or by workers.

What exists is not trained again. Several trainers may share a folder of runs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.engines._base import Place, Task, Tell, load_engine, warning_once
from gaam_cache.engines._claims import Claims, Holder
from gaam_cache.engines._ranks import device_of, find_rank
from gaam_cache.errors import GaamWarning, NumericsError
from gaam_cache.placing import placed
from gaam_cache.store.files import check_folder, make_folder, storage_errors
from gaam_cache.store.plan import PLAN_FILE
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import CLAIM_FOLDER, runs_of_key
from gaam_decoder.runs.loading import Runs
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.runs.trackers import check_tracker
from gaam_decoder.runs.tuning import choose, first_runs
from gaam_decoder.training.candidates import apart, families_of, reporting_items
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import Item, lacking_seeds, plan_items, seeds_of, tuning_item
from gaam_decoder.training.work import Shared, Tracker, train_item, unfinished_of, work_name

Progress = Callable[[int, int, str], None]
"""Called with (seed-epochs done, seed-epochs in all, what is going on)."""
TELL_SECONDS = 0.2
"""Between two words of a worker: epochs may be shorter."""
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others train."""


Swept = tuple[list[RunResult], str | None]
"""Runs, and who trains what is left; None where nothing is."""


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] = lambda run: None,
    on_others: Callable[[str], None] = lambda text: None,
) -> Runs:
    """Train every mechanism of a config over its seeds.

    Runs that exist with the same mechanism, recipe and cache are kept, and only seeds that they
    lack are trained. A seed that was finished before an interruption is not trained again.

    With ``tune_seeds`` these train every learning rate and weight decay, and ``seeds`` only that of
    each row that has the best mean validation accuracy.

    Where ``config`` asks for several devices or another engine, workers train. Where this process
    is one of several that somebody else started (see ``find_rank``), it is one of the workers, and
    returns when others are at work on all that is left.

    >>> config = gaam_decoder.TrainConfig(attn=("gaam", "none"), cache="cache", seeds=3, lr=1e-3)
    >>> runs = gaam_decoder.train(config)
    >>> [run.attention for run in runs if run.head == "linear"]
    ['gaam:heads=1', 'none']

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
        swept = _by_engine(config, rank.total if rank else 0, report, say)
    else:
        tracker = Tracker(lambda done, total, text, new: report(done, total, text))
        if rank is not None:
            devices.share_machine(rank.here)
            config = replace(config, device=device_of(rank, config.device))
        workers = rank.total if rank else 1
        swept = _sweep(config, tracker, say, workers=workers, waits=rank is None)
    runs, left = swept
    if left is not None:
        on_others(left)
    return Runs(runs)


def _by_engine(
    config: TrainConfig, ranks: int, report: Progress, on_run: Callable[[Path], None]
) -> Swept:
    """Let the workers of an engine train; whatever one raised is raised here."""
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

    argument = placed(config), ranks
    task = Task(_work, argument, config.runs, config.device, (config.cache / PLAN_FILE,))
    results = load_engine(config).run(task, config, warning_once(hear))
    paths, left = min(results, key=lambda result: result[1] is not None)
    return [read_run(Path(path)) for path in paths], left


def _work(
    argument: tuple[TrainConfig, int], place: Place, tell: Tell
) -> tuple[list[str], str | None]:
    """Be one worker, maybe of several ranks, and say now and then what it alone has done since."""
    config, ranks = argument
    waiting, told = 0, -TELL_SECONDS

    def report(done: int, total: int, text: str, new: int) -> None:
        nonlocal waiting, told
        waiting += new
        if (now := time.monotonic()) - told >= TELL_SECONDS:
            tell("progress", (waiting, total, text))
            waiting, told = 0, now

    runs, left = _sweep(
        replace(config, device=place.device),
        Tracker(report),
        lambda path: tell("run", str(path)),
        workers=max(1, ranks) * place.total,
        waits=not ranks,
    )
    return [str(run.path) for run in runs], left


def _sweep(
    config: TrainConfig,
    tracker: Tracker,
    on_run: Callable[[Path], None],
    *,
    workers: int,
    waits: bool,
) -> Swept:
    """Train what nobody else trains of all that a config asks for.

    It waits until all seeds are there, whoever trains them, or only until others are at work on all
    that is left. What chooses between rates is waited for in any case.
    """
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    with Claims(config.runs / CLAIM_FOLDER) as claims:
        shared = Shared(
            config=config,
            cache=cache,
            device=device,
            tracker=tracker,
            claims=claims,
            loaded=Loaded(config.memory_share),
            on_run=on_run,
            workers=workers,
        )
        if config.choosing_seeds is None:
            return _trained(items, config.seeds, shared, waits=waits)
        evaluated, finals = apart(items, config)
        grids = [grid for grid in families_of(evaluated) if len(grid) > 1]
        winners = len(grids) + sum(len(grid) > 1 for grid in families_of(finals))
        tried = {i.key: tuning_item(i, config, cache) for grid in grids for i in grid}
        later = winners * len(config.seeds) * config.epochs
        tuned, _ = _trained(
            list(tried.values()), config.choosing_seeds, shared, waits=True, later=later
        )
        chosen = choose(tuned, config.choosing_seeds)
        check_failures([run for run in tuned if run.key in chosen.unchosen], config.choosing_seeds)
        known = {run.path for run in tuned}
        reporting = reporting_items(items, config, tried, tuned, chosen)
        reported, left = _trained(reporting, config.seeds, shared, waits=waits)
        return tuned + [run for run in reported if run.path not in known], left


def _trained(
    items: Sequence[Item], seeds: Sequence[int], shared: Shared, *, waits: bool, later: int = 0
) -> Swept:
    """Runs that together hold these seeds of the items, those that lacked trained."""
    runs, tracker = shared.config.runs, shared.tracker
    found = {item.key: runs_of_key(runs, item.key) for item in items}

    def lacking(item: Item) -> list[int]:
        return lacking_seeds(item, seeds, found[item.key])

    for item in items:
        _warn_of_other_code(item, found[item.key])
    tracker.expect({item.key: len(lacking(item)) * item.epochs for item in items}, later)
    # of what is there, a kill after it was published may have left something to tidy up
    waiting = [i for i in items if lacking(i) or unfinished_of(i, runs).folder.exists()]
    if waiting:
        with storage_errors(runs / CLAIM_FOLDER, option="--runs"):
            make_folder(runs)
    pause, left = SHORTEST_PAUSE_SECONDS, None
    holders: dict[str, Holder] = {}
    while waiting:
        postponed = []
        for item in waiting:
            holder = train_item(item, seeds, shared, num_items=len(items))
            found[item.key] = runs_of_key(runs, item.key)
            if holder is None:
                tracker.finish(item.key)
                pause = SHORTEST_PAUSE_SECONDS
            else:
                postponed.append(item)
                holders[item.key] = holder
        waiting = postponed
        if not waiting:
            break
        alive = set() if waits else shared.claims.alive()
        if alive and all(_is_held(work_name(item), alive) for item in waiting):
            # not before all of ours is done: of several that leave, the last sees all
            found |= {item.key: runs_of_key(runs, item.key) for item in waiting}
            if unfinished := [item for item in waiting if lacking(item)]:
                others = f" and {len(unfinished) - 1} more" if len(unfinished) > 1 else ""
                left = f"{unfinished[0]}{others} ({holders[unfinished[0].key].in_words()})"
            break
        first = waiting[0]
        tracker.tell(first.key, f"{first}: waiting for {holders[first.key].in_words()}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    shared.claims.clear_dead()
    asked = {item.key: set(seeds_of(item, seeds)) for item in items}
    trained = [r for item in items for r in found[item.key] if asked[item.key] & set(r.seeds)]
    return trained, left


def _is_held(work: str, names: set[str]) -> bool:
    """Whether an item, or a group of its seeds, is among the names of claims."""
    return any(name == work or name.startswith(f"{work}-") for name in names)


def _warn_of_other_code(item: Item, runs: list[RunResult]) -> None:
    """Say which seeds are there, but were trained before a mechanism, head or loss was changed."""
    code = item.recipe.code()
    if other := [run for run in runs if run.environment["code"] != code]:
        before = other[0].environment["code"]
        what = ", ".join(name for name in code if code[name] != before.get(name))
        warnings.warn(
            f"{item}: seeds {spell_numbers(sorted({s for run in other for s in run.seeds}))} were "
            f"trained by other code than there is now of {what}: they are kept; to train them "
            f"again remove {', '.join(str(run.path) for run in other)}",
            GaamWarning,
            stacklevel=3,
        )


def check_failures(runs: Sequence[RunResult], seeds: Sequence[int]) -> None:
    """Say which of the seeds asked for failed, and why.

    >>> gaam_decoder.check_failures(runs, (0, 1, 2))

    Args:
        runs: what a training returned; of runs that share a seed the first counts.
        seeds: those that were asked for.

    Raises:
        NumericsError: all seeds of a recipe failed; names every recipe of which this is so.

    Warns:
        GaamWarning: for every recipe of which some seeds failed.
    """
    hopeless: dict[str, RunResult] = {}
    by_key: dict[str, list[RunResult]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    for same in by_key.values():
        of_seed, title = first_runs(same), same[0].title
        # what is fitted at once has a seed of its own
        asked = list(of_seed) if same[0].fit else [seed for seed in seeds if seed in of_seed]
        failed = {s: of_seed[s].failed[s] for s in asked if s in of_seed[s].failed}
        if failed and len(failed) == len(asked):
            hopeless[f"{title}: {failed[min(failed)]}"] = same[0]
        elif failed:
            first = f"seed {min(failed)}: {failed[min(failed)]}"
            some = f"{len(failed)} of {len(asked)} seeds failed ({first})"
            warnings.warn(f"{title}: {some}", GaamWarning, stacklevel=2)
    if hopeless:
        run = next(iter(hopeless.values()))
        # of a rate far too large, a tenth would lead nowhere soon
        lower = "" if run.fit else f"--lr {min(run.recipe['lr'] / 10, 1e-3):g}"
        raise NumericsError(
            f"every seed failed of {'; '.join(hopeless)}",
            expected="a training loss that stays finite",
            where=", ".join(str(run.path) for run in hopeless.values()),
            hint=f"try {lower} or --set clip-grad-norm=1" if lower else "gaam verify CACHE",
        )
