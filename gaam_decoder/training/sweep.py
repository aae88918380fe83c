"""A training: mechanisms x seeds -> runs, by this process or by workers.

What exists is not trained again. Several trainers may share a folder of runs.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.engines._base import Place, Task, Tell, load_engine, warning_once
from gaam_cache.engines._claims import Claims, Holder
from gaam_cache.engines._ranks import Rank, device_of, find_rank
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
from gaam_decoder.runs.writing import temporary_runs
from gaam_decoder.training.candidates import apart, reporting_items, tried_items
from gaam_decoder.training.grid import Item, families_of, lacking_seeds, plan_items, seeds_of
from gaam_decoder.training.work import Shared, Tracker, train_item, work_name

Progress = Callable[[int, int, str], None]
"""Called with (seed-epochs done, seed-epochs in all, what is going on)."""
TELL_SECONDS = 0.2
"""Between two words of a worker: epochs may be shorter."""
WINNERS = "winners"
"""Stands in the tracker for items that are not known before the seeds that choose are trained."""
SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others train."""
LARGE_RATE = 1e-3
"""Of AdamW on these decoders: from far above it, steps of a tenth would lead nowhere soon."""


class Swept(NamedTuple):
    """What came of a sweep."""

    runs: list[RunResult]
    """That together hold the seeds asked for, in the order of the mechanisms; before them those
    that were trained to choose."""
    left: str | None = None
    """Who trains what is left; None where nothing is."""


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

    >>> config = gaam_decoder.TrainConfig(attn=("gaam", "none"), cache="cache", seeds=(0, 1, 2))
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
    tracker = Tracker(lambda done, total, text, new: report(done, total, text))

    def say(path: Path) -> None:
        on_run(read_run(path))

    if not config.alone:
        swept = _by_engine(config, rank, report, say)
    elif rank is not None:
        devices.share_machine(rank.here)
        own = replace(config, device=device_of(rank, config.device))
        swept = _sweep(own, tracker, say, workers=rank.total, waits=False)
    else:
        swept = _sweep(config, tracker, say)
    if swept.left is not None:
        on_others(swept.left)
    return Runs(swept.runs)


class _Argument(NamedTuple):
    """What a worker is told."""

    config: TrainConfig
    ranks: int
    """Calls like this one that share the work."""
    waits: bool


def _by_engine(
    config: TrainConfig, rank: Rank | None, report: Progress, on_run: Callable[[Path], None]
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

    argument = _Argument(placed(config), rank.total if rank else 1, rank is None)
    task = Task(_work, argument, config.runs, config.device, (config.cache / PLAN_FILE,))
    results = load_engine(config).run(task, config, warning_once(hear))
    paths, left = min(results, key=lambda result: result[1] is not None)
    return Swept([read_run(Path(path)) for path in paths], left)


def _work(argument: _Argument, place: Place, tell: Tell) -> tuple[list[str], str | None]:
    """Be one worker: train what nobody else trains until all seeds are there."""
    swept = _sweep(
        replace(argument.config, device=place.device),
        _tracker_of_worker(tell),
        lambda path: tell("run", str(path)),
        workers=argument.ranks * place.total,
        waits=argument.waits,
    )
    return [str(run.path) for run in swept.runs], swept.left


def _tracker_of_worker(tell: Callable[[str, Any], None]) -> Tracker:
    """The tracker of a worker, which says now and then what this worker alone has done since."""
    waiting, told = 0, -TELL_SECONDS

    def report(done: int, total: int, text: str, new: int) -> None:
        nonlocal waiting, told
        waiting += new
        if (now := time.monotonic()) - told >= TELL_SECONDS:
            tell("progress", (waiting, total, text))
            waiting, told = 0, now

    return Tracker(report)


def _sweep(
    config: TrainConfig,
    tracker: Tracker,
    on_run: Callable[[Path], None],
    *,
    workers: int = 1,
    waits: bool = True,
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
            on_run=on_run,
            workers=workers,
        )
        if config.tune_seeds is None:
            return _trained(items, config.seeds, shared, waits=waits)
        evaluated, finals = apart(items, config)
        winners = len(families_of(evaluated)) + len(families_of(finals))
        tracker.expect({WINNERS: winners * len(config.seeds) * config.epochs})
        tuned = _trained(tried_items(items, config), config.tune_seeds, shared, waits=True).runs
        chosen = choose(tuned, config.tune_seeds)
        check_failures([run for run in tuned if run.key in chosen.unchosen], config.tune_seeds)
        tracker.forget(WINNERS)
        left = reporting_items(items, config, tuned, chosen)
        known = {run.path for run in tuned}
        reported = _trained(left, config.seeds, shared, waits=waits)
        new = [run for run in reported.runs if run.path not in known]
        return Swept(tuned + new, reported.left)


def _trained(items: Sequence[Item], seeds: Sequence[int], shared: Shared, *, waits: bool) -> Swept:
    """Runs that together hold these seeds of the items, those that lacked trained."""
    runs, tracker = shared.config.runs, shared.tracker
    found = {item.key: runs_of_key(runs, item.key) for item in items}
    for item in items:
        _warn_of_other_code(item, found[item.key])
    todo = {item.key: lacking_seeds(item, seeds, found[item.key]) for item in items}
    tracker.expect({item.key: len(todo[item.key]) * item.epochs for item in items})
    waiting = [item for item in items if todo[item.key] or _left_behind(runs, item)]
    if waiting:
        with storage_errors(runs / CLAIM_FOLDER, option="--runs"):
            make_folder(runs)
    pause = SHORTEST_PAUSE_SECONDS
    holders: dict[str, Holder] = {}
    while waiting:
        postponed = []
        for item in waiting:
            holder = train_item(item, list(seeds), shared, num_items=len(items))
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
            waiting = [item for item in waiting if lacking_seeds(item, seeds, found[item.key])]
            break
        first = waiting[0]
        tracker.tell(first.key, f"{first}: waiting for {holders[first.key].in_words()}")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    shared.claims.clear_dead()
    left = None
    if waiting:
        others = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        left = f"{waiting[0]}{others} ({holders[waiting[0].key].in_words()})"
    trained = [
        run
        for item in items
        for run in found[item.key]
        if set(run.seeds) & set(seeds_of(item, seeds))
    ]
    return Swept(trained, left)


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


def _left_behind(runs: Path, item: Item) -> bool:
    """Whether a kill after a run was published left something to tidy up."""
    return any(runs.glob(f".{work_name(item)}.*")) or any(temporary_runs(runs, item.key))


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
    hopeless: list[tuple[RunResult, str]] = []
    by_key: dict[str, list[RunResult]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    for same in by_key.values():
        of_seed = first_runs(same)
        # what is fitted at once has a seed of its own
        asked = list(of_seed) if same[0].fit else [seed for seed in seeds if seed in of_seed]
        failed = {s: of_seed[s].failed[s] for s in asked if s in of_seed[s].failed}
        if not failed:
            continue
        first = min(failed)
        if len(failed) == len(asked):
            hopeless.append((same[0], f"{same[0].title}: {failed[first]}"))
        else:
            some = f"{len(failed)} of {len(asked)} seeds failed (seed {first}: {failed[first]})"
            warnings.warn(f"{same[0].title}: {some}", GaamWarning, stacklevel=2)
    if hopeless:
        raise NumericsError(
            f"every seed failed of {'; '.join(text for _, text in hopeless)}",
            expected="a training loss that stays finite",
            where=", ".join(str(run.path) for run, _ in hopeless),
            hint=what_to_try(hopeless[0][0]),
        )


def what_to_try(run: RunResult) -> str:
    """Options that may keep a loss finite which did not stay so."""
    if run.fit:
        return "look for states that are not finite: gaam verify CACHE"
    lower = f"try --lr {min(run.recipe['lr'] / 10, LARGE_RATE):g}"
    if run.recipe["dtype"] == "float16":
        return f"{lower} or --dtype bfloat16, whose range is that of float32"
    norm = run.recipe.get("clip_grad_norm")
    return f"{lower} or --set clip-grad-norm={1 if norm is None else min(1.0, norm / 10):g}"
