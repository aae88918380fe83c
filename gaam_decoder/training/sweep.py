"""A training: mechanisms x seeds -> runs, by this process or by workers.

What exists is not trained again. Several trainers may share a folder of runs: a lease for an item
says who plans, fits or publishes it, and a lease for each group of its seeds who trains them;
whoever finds all seeds finished publishes them.
"""

import shlex
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaam_cache.common import devices
from gaam_cache.common.errors import GaamWarning, NumericsError
from gaam_cache.common.paths import shown_path
from gaam_cache.config import without_workers
from gaam_cache.store.files import check_writable, make_folder
from gaam_cache.store.plan import PLAN_FILE
from gaam_cache.store.reader import open_cache
from gaam_cache.workers.engines import base
from gaam_cache.workers.leases import Holder, Leases
from gaam_cache.workers.ranks import device_of, find_rank
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import EACH, spell_numbers
from gaam_decoder.runs.folders import LEASE_FOLDER, runs_of_key
from gaam_decoder.runs.loading import Runs
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.runs.trackers import check_tracker, track_seeds
from gaam_decoder.runs.tuning import (
    HELD,
    TUNED,
    Tuning,
    choose,
    first_runs,
    tuning_in_words,
)
from gaam_decoder.specs import row_title
from gaam_decoder.training.arithmetic.engine import (
    Engine,
    choose_engine,
    enough_memory,
    groups_of,
)
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Unfinished, claim_of
from gaam_decoder.training.data import Loaded, TrainData, prepare_data
from gaam_decoder.training.grid import (
    Item,
    candidates_of,
    grids_of,
    plan_items,
    reporting_items,
)
from gaam_decoder.training.group import Group
from gaam_decoder.training.probe import fit_item
from gaam_decoder.training.record import publish

Progress = Callable[[int, int, str], None]
"""Called with (seed-epochs done, seed-epochs in all, what is going on)."""
Report = Callable[[int, int, str, int], None]
"""The same, with how many of this process are new since the last call."""
PAUSE_SECONDS = (
    0.5  # between two looks at what others train: each reads the runs that are there
)
FEW_ROWS = 1000  # of training: fewer are worth a cross-validation


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] | None = None,
) -> Runs:
    """Train every mechanism of a config over its seeds.

    Seeds that runs of the same mechanism, recipe and cache have are not trained again. With
    ``tune_seeds`` these train every rate and weight decay, and ``seeds`` the best of each row.

    Several processes with one folder of runs share the work: each returns when all is there.

    >>> config = gaam_decoder.TrainConfig(attn=("gaam", "none"), cache="cache", seeds=3, lr=1e-3)
    >>> runs = gaam_decoder.train(config)
    >>> [run.attention for run in runs if run.head == "linear"]
    ['gaam:heads=1', 'none']

    Args:
        config: mechanisms, seeds, recipe, protocol, folders, workers.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).
        on_run: called with every run when it is finished.

    Returns:
        The runs that together hold the seeds asked for, in the order of the mechanisms; behind
        them those that were trained to choose.

    Raises:
        ConfigError: an argument does not fit the cache, or no folder of runs can be there.
        NumericsError: a seed failed of every candidate, so that nothing can be chosen.
        CacheError: an incomplete or damaged cache, or a damaged run.
        OSError: the file system refused; finished seeds are kept.
    """
    report = progress or (lambda done, total, text: None)

    def say(path: Path) -> None:
        if on_run is not None:
            on_run(read_run(path))

    check_tracker(config.track)
    check_writable(config.runs, option="--runs")
    rank = find_rank(config.rank)
    if not config.has_single_local_worker:
        return Runs(_by_engine(config, rank.total if rank else 1, report, say))
    if rank is not None:
        devices.share_machine(rank.workers_on_machine)
        config = replace(config, device=device_of(rank, config.device))
    workers = rank.total if rank else 1
    return Runs(_Sweep(config, lambda *said: report(*said[:3]), say, workers).run())


def _by_engine(
    config: TrainConfig, ranks: int, report: Progress, on_run: Callable[[Path], None]
) -> list[RunResult]:
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

    plan = (config.cache / PLAN_FILE,)
    task = base.Task(
        _work, (without_workers(config), ranks), config.runs, config.device, plan
    )
    paths, *_ = base.load_engine(config).run(task, config, base.warning_once(hear))
    return [read_run(Path(path)) for path in paths]


def _work(
    argument: tuple[TrainConfig, int], place: base.Worker, tell: base.Send
) -> list[str]:
    """Be one worker, maybe of several ranks, and say what it alone has done since."""
    config, ranks = argument
    sweep = _Sweep(
        replace(config, device=place.device),
        lambda done, total, text, new: tell("progress", (new, total, text)),
        lambda path: tell("run", str(path)),
        ranks * place.total,
    )
    return [str(run.path) for run in sweep.run()]


class _Sweep:
    """What one process does of all that a config asks for, which so many workers share."""

    def __init__(
        self,
        config: TrainConfig,
        report: Report,
        on_run: Callable[[Path], None],
        workers: int,
    ) -> None:
        self._config, self._runs, self._workers = config, config.runs, workers
        self._report, self._on_run = report, on_run
        self._device = devices.resolve_device(config.device)
        self._cache = open_cache(config.cache)
        self._leases = Leases(config.runs / LEASE_FOLDER)
        self._loaded, self._steps = Loaded(config.memory_share), Steps()
        self._total = 0  # seed-epochs
        self._left: dict[
            str, int
        ] = {}  # of these, by the key of an item; "" of those to come

    def run(self) -> list[RunResult]:
        config = self._config
        items = plan_items(config, self._cache, self._device)
        with self._leases:
            if (choose_by := config.choosing_seeds) is None:
                return self._trained(items, config.seeds)
            winners = sum(len(grid) > 1 for grid in grids_of(items))
            tried = candidates_of(items, config, self._cache)
            self._total = self._left[""] = winners * len(config.seeds) * config.epochs
            tuned = self._trained([*tried.values()], choose_by)
            chosen = choose(tuned, choose_by)
            check_failures(
                [run for run in tuned if run.key in chosen.unchosen], choose_by
            )
            known = {run.path for run in tuned}
            reporting = reporting_items(items, config, tried, tuned, chosen)
            self._total -= self._left.pop("")
            reported = self._trained(reporting, config.seeds)
            return [run for run in reported if run.path not in known] + tuned

    def _trained(self, items: Sequence[Item], seeds: Sequence[int]) -> list[RunResult]:
        """Runs that together hold these seeds of the items, those that lacked trained."""
        found = {item.key: self._runs_of(item) for item in items}
        for item in items:
            code = item.recipe.code()
            for run in found[item.key]:
                before = run.environment["code"]
                if what := ", ".join(
                    name for name in code if code[name] != before.get(name, code[name])
                ):
                    text = f"{item}: {shown_path(run.path)} was trained by other code of {what}, "
                    text += "and is kept: another --runs trains it again"
                    warnings.warn(text, GaamWarning, stacklevel=2)
        left = {i.key: len(i.lacking(seeds, found[i.key])) * i.epochs for i in items}
        self._total += sum(left.values())
        self._left |= left
        # of what is there, a kill after it was published may have left something to tidy up
        asked = [
            i for i in items if left[i.key] or Unfinished(self._runs, i).folder.exists()
        ]
        if asked:
            make_folder(self._runs)
        waiting = asked
        while waiting:
            held = [(item, self._train(item, seeds, items)) for item in waiting]
            others = [(item, holder) for item, holder in held if holder is not None]
            if waiting := [item for item, _ in others]:
                item, holder = others[0]
                self._tell(item, f": waiting for {holder.in_words()}")
                time.sleep(PAUSE_SECONDS)
        self._leases.clear_dead()
        found |= {item.key: self._runs_of(item) for item in asked}
        wanted = {item.key: set(item.seeds(seeds)) for item in items}
        return [r for i in items for r in found[i.key] if wanted[i.key] & set(r.seeds)]

    def _runs_of(self, item: Item) -> list[RunResult]:
        return runs_of_key(self._runs, item.key)

    def _published(self, item: Item) -> set[int]:
        return {seed for run in self._runs_of(item) for seed in run.seeds}

    def _tell(self, item: Item, text: str, new: int = 0) -> None:
        """Say what is going on with an item, and how many of its seed-epochs are done since."""
        self._left[item.key] = max(0, self._left[item.key] - new)
        self._report(
            self._total - sum(self._left.values()), self._total, f"{item}{text}", new
        )

    def _train(
        self, item: Item, seeds: Sequence[int], items: Sequence[Item]
    ) -> Holder | None:
        """Train what nobody else trains of an item; who is at work on what is left, if anybody."""
        data, unfinished = None, Unfinished(self._runs, item)
        while item.lacking(seeds, self._runs_of(item)):
            if data is None:
                self._tell(item, ": reading and checking the cache")
                data = self._data(item, seeds[0])
                of_steps = item.recipe.window is None and not item.recipe.fitted
                if of_steps and data.train.features.place == "disk":
                    text = "training rows are read from disk, in any order: slow; "
                    text += f"--set shuffle=window:{max(1, len(data.train) // 8)} reads by parts"
                    warnings.warn(text, GaamWarning, stacklevel=2)
            lease = self._leases.take(item.name)
            if isinstance(lease, Holder):
                return lease
            try:
                # once more: published a moment ago
                if not (lacking := item.lacking(seeds, self._runs_of(item))):
                    break
                if item.recipe.fitted:  # too quick for anything that is kept
                    result, fit, engine = fit_item(
                        item.spec,
                        data,
                        item.recipe,
                        lambda text: self._tell(item, f": {text}", 1),
                    )
                    track_seeds(self._config.track, self._runs, item.name, [result])
                    about = data, engine, self._config, self._cache, fit
                    self._on_run(publish(item, [result], *about))
                    continue
                engine, groups = self._plan(item, lacking, data, items)
            finally:
                lease.release()
            holders = [self._train_group(item, group, data, engine) for group in groups]
            if holders and all(holders):
                return holders[0]
        if unfinished.folder.exists():
            lease = self._leases.take(item.name)
            if isinstance(lease, Holder):
                return lease
            others = self._leases.others_at_work(f"{item.name}-")
            unfinished.remove(self._published(item), others=others)
            lease.release()
        self._left[item.key] = 0
        return None

    def _data(self, item: Item, seed: int) -> TrainData:
        return prepare_data(self._cache, item.recipe, self._device, self._loaded, seed)

    def _plan(
        self, item: Item, lacking: Sequence[int], data: TrainData, items: Sequence[Item]
    ) -> tuple[Engine, list[list[int]]]:
        """How seeds of an item are run, and in which groups; none where they are published now.

        Groups are as they were when the work was begun, first those at work.
        """
        asked, unfinished = self._config.seed_batch, Unfinished(self._runs, item)
        most = None if item.recipe.val_folds is None else 1
        if most is None and self._workers > 1 and asked is None:
            # fewer seeds together, where workers would have nothing to do
            most = -(-len(lacking) // -(-self._workers // len(items)))
        # rates that are tried by seeds of their own share what is compiled
        beside = [
            one for one in items if one.spec == item.spec and item.recipe.val_folds
        ]
        sizes = (
            len(lacking) * max(1, len(beside)),
            len(data.train),
            asked,
            self._config.compile,
        )
        engine = choose_engine(item.spec, item.recipe, self._device, *sizes, most=most)
        size = engine.seed_batch
        results, files = unfinished.load()
        # how it was begun, where it can go on so: that gives the same bits
        engines = [Engine(**file["engine"]) for file in files]
        if same := [
            e for e in engines if (e.kind, e.dtype) == (engine.kind, engine.dtype)
        ]:
            # where the compiler failed of a group, it did
            engine = replace(min(same, key=lambda e: e.compiled), device=engine.device)
        left = set(lacking) - results.keys()
        self._left[item.key] = min(self._left[item.key], len(left) * item.epochs)
        if not left:
            finished = [
                results[seed] for seed in sorted(results.keys() - self._published(item))
            ]
            self._on_run(
                publish(item, finished, data, engine, self._config, self._cache)
            )
            return engine, []
        groups: list[list[int]] = []
        for file in files:
            group: list[int] = file["seeds"]
            wanted = left & {*group} if file.get("epochs_done") else left >= {*group}
            if wanted and len(group) <= (asked or len(group)):
                groups.append(group)
                left -= {*group}
        groups += groups_of(sorted(left), min(size, engine.seed_batch))
        for group in groups:  # for other trainers, too
            planned = unfinished.group(group, engine)
            if not planned.path.exists():
                planned.save({}, {"seeds": group, "epochs_done": 0, "seconds": 0.0})
        return engine, groups

    def _train_group(
        self, item: Item, group: list[int], data: TrainData, engine: Engine
    ) -> Holder | None:
        """Train seeds together, unless somebody has or is at it; who that is."""
        file = Unfinished(self._runs, item).group(group, engine)
        if file.done:
            return None
        lease = self._leases.take(claim_of(item.name, group))
        if isinstance(lease, Holder):
            return lease
        if not file.done:  # finished a moment before
            before, which = 0, f"seed{'s' * (len(group) > 1)} {spell_numbers(group)}"

            def on_epoch(epoch: int, loss: float) -> None:
                nonlocal before
                new, before = (epoch - before) * len(group), epoch
                self._tell(
                    item, f" {which} epoch {epoch}/{item.epochs} loss {loss:.3f}", new
                )

            own = data if item.recipe.val_folds is None else self._data(item, group[0])
            about = item.spec, own, item.recipe, group
            with enough_memory(item.recipe, group, engine.device):
                training = Group(*about, engine=engine, steps=self._steps)
                trained = training.train(file, on_epoch)
            if engine.compiled and not training.compiler.works:
                failed = replace(engine, compiled=False, why="the compiler failed")
                file.begun["engine"] = failed.to_dict()
            track_seeds(self._config.track, self._runs, item.name, trained)
            file.finish(trained)
        lease.release()
        return None


def is_candidate(config: TrainConfig, run: RunResult) -> bool:
    """Whether a run is a rate or weight decay of several, among which validation chooses."""
    several = len(config.rates) * len(config.weight_decay) > 1
    if run.fit or config.select != "val" or not several:
        return False
    return run.chose or config.choosing_seeds is None


def what_came_of_it(
    config: TrainConfig, runs: Sequence[RunResult], told: Collection[Path]
) -> list[str]:
    """What a training has to say when it ends, a line each.

    What validation chose of every decoder, over all folds, and the runs that were not told of when
    they were finished. Of candidates that were not chosen no accuracy is said: who reads test
    accuracies of all chooses by them.
    """
    choice = choose(runs, config.choosing_seeds)
    tuned = [run for run in choice.runs if run.key in choice.tunings]
    apart = {name for run in tuned for name in run.recipe} - {
        *TUNED,
        HELD,
        "fold",
        "split_seed",
    }
    # what they share tells none of them from another
    apart = {
        name for name in apart if len({str(run.recipe.get(name)) for run in tuned}) > 1
    }
    tunings: dict[str, dict[str, Tuning]] = {}
    for run in tuned:
        recipe: dict[str, Any] = {name: run.recipe.get(name) for name in apart}
        decoder = row_title(run.attention, run.head, **recipe)
        tunings.setdefault(decoder, {})[run.key] = choice.tunings[run.key]
    lines = [
        f"{name}: {tuning_in_words([*found.values()])}"
        for name, found in tunings.items()
    ]
    return [*lines, *(run.summary() for run in choice.runs if run.path not in told)]


def what_next(config: TrainConfig, runs: Sequence[RunResult]) -> list[str]:
    """What may follow a training, a line each."""
    by_layers = len(config.layers) > 1 or EACH in config.layers
    pairs = " --pairs layers" if by_layers else ""
    lines = [f"next: gaam report {shlex.quote(shown_path(config.runs))}{pairs}"]
    rows = runs[0].cache["rows"] if runs else {}
    train, test = (
        rows.get(name, 0) for name in (config.train_split, config.test_split)
    )
    if (
        not config.folds
        and 0 < test < train < FEW_ROWS
        and config.train_rows == (None,)
    ):
        lines.append(
            f"--folds 5 would test on all {train} training rows, these {test} set aside"
        )
    return lines


def check_failures(runs: Sequence[RunResult], seeds: Sequence[int]) -> None:
    """Say which of the seeds asked for failed, and why.

    >>> gaam_decoder.check_failures(runs, (0, 1, 2))

    Args:
        runs: what a training returned; of runs that share a seed the first counts.
        seeds: those that were asked for.

    Raises:
        NumericsError: all seeds of a recipe failed.

    Warns:
        GaamWarning: for every recipe of which some seeds failed.
    """
    hopeless: list[tuple[RunResult, str]] = []
    for key in dict.fromkeys(run.key for run in runs):
        of_seed = first_runs(run for run in runs if run.key == key)
        # what is fitted at once has a seed of its own
        asked = {seed: run for seed, run in of_seed.items() if run.fit or seed in seeds}
        failed = {seed: run for seed, run in asked.items() if seed in run.failed}
        for seed, run in [*failed.items()][:1]:
            if len(failed) == len(asked):
                hopeless.append((run, f"{run.title}: {run.failed[seed]}"))
                continue
            some = f"{len(failed)} of {len(asked)} seeds failed (seed {seed}: {run.failed[seed]})"
            warnings.warn(f"{run.title}: {some}", GaamWarning, stacklevel=2)
    if hopeless:
        raise NumericsError(
            f"every seed failed of {'; '.join(why for _, why in hopeless)}",
            where=", ".join(str(run.path) for run, _ in hopeless),
            hint="a smaller --lr, or --set clip-grad-norm=1",
        )
