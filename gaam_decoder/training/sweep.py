"""Train mechanisms over seeds, in this process or in workers, and publish the runs.

Existing runs are not trained again. Several trainers may share a folder of runs. A
trainer takes a lease on an experiment to plan, fit or publish it, and a lease on each
seed batch to train it. The trainer that finds all seeds finished publishes the run.
"""

import contextlib
import gc
import shlex
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.trackers import check_tracker, track_seeds
from gaam_decoder.runs.tuning import (
    HELD,
    TUNED,
    Tuning,
    choose,
    first_runs,
    tuning_in_words,
)
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.specs import decoder_title
from gaam_decoder.training.arithmetic.engine import (
    Engine,
    choose_engine,
    divide_seeds,
    enough_memory,
)
from gaam_decoder.training.arithmetic.step import Steps
from gaam_decoder.training.checkpoint import Checkpoint, Unfinished, lease_name
from gaam_decoder.training.data import Loaded, TrainData, prepare_data
from gaam_decoder.training.experiments import (
    Experiment,
    candidate_grids,
    candidates_of,
    plan_experiments,
    reporting_experiments,
)
from gaam_decoder.training.fitting import fit_experiment
from gaam_decoder.training.publish import publish
from gaam_decoder.training.seed_batch import SeedBatch

Progress = Callable[[int, int, str], None]
"""Called with (finished seed-epochs, all seed-epochs, a description of the work)."""
Report = Callable[[int, int, str, int], None]
"""The same, and the seed-epochs that this process finished since the last call."""

# each look at the work of other trainers reads the existing runs
PAUSE_SECONDS = 0.5
FEW_ROWS = 1000  # fewer training rows are worth a cross-validation


def train(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    on_run: Callable[[RunResult], None] | None = None,
) -> Runs:
    """Train every mechanism of a config over its seeds.

    Seeds of existing runs with the same mechanism, recipe and cache are not trained
    again. With ``tune_seeds``, these seeds train every learning rate and weight decay,
    and ``seeds`` train the best of each decoder.

    Several processes share the work of one folder of runs: each returns when all runs
    exist.

    >>> config = gaam_decoder.TrainConfig(
    ...     attn=("gaam", "none"), cache="cache", seeds=3, lr=1e-3
    ... )
    >>> runs = gaam_decoder.train(config)
    >>> [run.attention for run in runs if run.head == "linear"]
    ['gaam:heads=1', 'none']

    Args:
        config: mechanisms, seeds, recipe, protocol, folders, workers.
        progress: called with (seed-epochs done, seed-epochs in all, what is going on).
        on_run: called with every run when it is finished.

    Returns:
        The runs of the requested seeds, in the order of the mechanisms; behind them the
        runs of the tuning seeds.

    Raises:
        ConfigError: an argument does not fit the cache, or the folder of runs cannot be
            made.
        NumericsError: every candidate of a decoder has a failed tuning seed.
        CacheError: the cache is incomplete or damaged, or a run is damaged.
        OSError: the file system refused; finished seeds stay.
    """
    report = progress or (lambda done, total, text: None)

    def report_run(path: Path) -> None:
        if on_run is not None:
            on_run(read_run(path))

    def report_progress(done: int, total: int, text: str, new: int) -> None:
        report(done, total, text)

    # refuse before anything is read
    check_tracker(config.track)
    check_writable(config.runs, option="--runs")
    rank = find_rank(config.rank)
    workers = rank.total if rank else 1
    if not config.has_single_local_worker:
        return Runs(_train_by_engine(config, workers, report, report_run))

    # ranks of one machine share its cores and devices
    if rank is not None:
        devices.share_machine(rank.workers_on_machine)
        config = replace(config, device=device_of(rank, config.device))
    return Runs(_Sweep(config, report_progress, report_run, workers).run())


def _train_by_engine(
    config: TrainConfig, ranks: int, report: Progress, on_run: Callable[[Path], None]
) -> list[RunResult]:
    """Let the workers of an engine train; an error of a worker is raised here."""
    done = 0

    def on_message(worker: int, kind: str, value: Any) -> None:
        nonlocal done
        if kind == "progress":
            new, total, text = value
            done = min(done + new, total)
            report(done, total, f"worker {worker + 1}: {text}")
        elif kind == "waiting":
            report(0, 0, value)
        elif kind == "run":
            on_run(Path(value))

    task = base.Task(
        _run_worker,
        (without_workers(config), ranks),
        config.runs,
        config.device,
        (config.cache / PLAN_FILE,),
    )
    engine = base.load_engine(config)
    # every worker returns the paths of all runs: the list of the first is enough
    paths, *_ = engine.run(task, config, base.warning_once(on_message))
    return [read_run(Path(path)) for path in paths]


def _run_worker(
    argument: tuple[TrainConfig, int], worker: base.Worker, send: base.Send
) -> list[str]:
    """Train as one worker of an engine, and send the progress of this worker alone."""
    config, ranks = argument

    def report(done: int, total: int, text: str, new: int) -> None:
        send("progress", (new, total, text))

    def report_run(path: Path) -> None:
        send("run", str(path))

    config = replace(config, device=worker.device)
    sweep = _Sweep(config, report, report_run, ranks * worker.total)
    return [str(run.path) for run in sweep.run()]


class _Sweep:
    """The part of one process in a training that ``workers`` processes share."""

    def __init__(
        self,
        config: TrainConfig,
        report: Report,
        on_run: Callable[[Path], None],
        workers: int,
    ) -> None:
        self._config = config
        self._runs = config.runs
        self._workers = workers
        self._report = report
        self._on_run = on_run
        self._device = devices.resolve_device(config.device)
        self._cache = open_cache(config.cache)
        self._leases = Leases(config.runs / LEASE_FOLDER)
        self._loaded = Loaded(config.memory_share)
        self._steps = Steps()
        # seed-epochs in all, and those that are left by the key of an experiment; the
        # key "" stands for experiments that tuning has not chosen yet
        self._total = 0
        self._left: dict[str, int] = {}

    def run(self) -> list[RunResult]:
        experiments = plan_experiments(self._config, self._cache, self._device)
        tuning_seeds = self._config.choosing_seeds
        with self._leases, _modules_left_alone():
            if tuning_seeds is None:
                return self._train_experiments(experiments, self._config.seeds)
            return self._tune_and_train(experiments, tuning_seeds)

    def _tune_and_train(
        self, experiments: Sequence[Experiment], tuning_seeds: Sequence[int]
    ) -> list[RunResult]:
        """Train all candidates with the tuning seeds, then the chosen ones."""
        config = self._config
        candidates = candidates_of(experiments, config, self._cache)

        # progress counts the reporting seeds of each decoder from the start
        tuned_grids = [grid for grid in candidate_grids(experiments) if len(grid) > 1]
        self._total = len(tuned_grids) * len(config.seeds) * config.epochs
        self._left[""] = self._total

        # tune on validation rows
        tuned = self._train_experiments([*candidates.values()], tuning_seeds)
        choice = choose(tuned, tuning_seeds)
        unchosen = [run for run in tuned if run.key in choice.unchosen]
        check_failures(unchosen, tuning_seeds)

        # train the chosen candidates with the reporting seeds
        reporting = reporting_experiments(
            experiments, config, candidates, tuned, choice
        )
        self._total -= self._left.pop("")
        reported = self._train_experiments(reporting, config.seeds)
        tuned_paths = {run.path for run in tuned}
        return [run for run in reported if run.path not in tuned_paths] + tuned

    def _train_experiments(
        self, experiments: Sequence[Experiment], seeds: Sequence[int]
    ) -> list[RunResult]:
        """Train the missing seeds of experiments; return the runs with these seeds."""
        runs_by_key = {
            experiment.key: self._runs_of(experiment) for experiment in experiments
        }
        for experiment in experiments:
            _warn_of_other_code(experiment, runs_by_key[experiment.key])

        # count the seed-epochs that no run has
        remaining: dict[str, int] = {}
        for experiment in experiments:
            lacking = experiment.lacking(seeds, runs_by_key[experiment.key])
            remaining[experiment.key] = len(lacking) * experiment.epochs
        self._total += sum(remaining.values())
        self._left |= remaining

        # a trainer that was killed after it published leaves a folder to tidy up
        open_experiments = [
            experiment
            for experiment in experiments
            if remaining[experiment.key]
            or Unfinished(self._runs, experiment).folder.exists()
        ]
        if open_experiments:
            make_folder(self._runs)
        self._train_until_published(open_experiments, seeds, experiments)
        self._leases.clear_dead()

        # return what is published now
        for experiment in open_experiments:
            runs_by_key[experiment.key] = self._runs_of(experiment)
        published: list[RunResult] = []
        for experiment in experiments:
            requested_seeds = set(experiment.seeds(seeds))
            runs = runs_by_key[experiment.key]
            published += [run for run in runs if requested_seeds & set(run.seeds)]
        return published

    def _train_until_published(
        self,
        open_experiments: Sequence[Experiment],
        seeds: Sequence[int],
        experiments: Sequence[Experiment],
    ) -> None:
        """Train experiments in turn, and wait for those that other trainers train."""
        waiting = list(open_experiments)
        while waiting:
            at_work: list[tuple[Experiment, Holder]] = []
            for experiment in waiting:
                holder = self._train_experiment(experiment, seeds, experiments)
                if holder is not None:
                    at_work.append((experiment, holder))
            waiting = [experiment for experiment, _ in at_work]
            if at_work:
                experiment, holder = at_work[0]
                self._tell(experiment, f": waiting for {holder.in_words()}")
                time.sleep(PAUSE_SECONDS)

    def _runs_of(self, experiment: Experiment) -> list[RunResult]:
        return runs_of_key(self._runs, experiment.key)

    def _published_seeds(self, experiment: Experiment) -> set[int]:
        return {seed for run in self._runs_of(experiment) for seed in run.seeds}

    def _tell(self, experiment: Experiment, text: str, new: int = 0) -> None:
        """Report the work on an experiment and its ``new`` finished seed-epochs."""
        self._left[experiment.key] = max(0, self._left[experiment.key] - new)
        done = self._total - sum(self._left.values())
        self._report(done, self._total, f"{experiment}{text}", new)

    def _train_experiment(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        experiments: Sequence[Experiment],
    ) -> Holder | None:
        """Train the seeds of an experiment that no other trainer is at work on.

        Returns:
            A trainer that is at work on the rest, or None if all seeds are published.
        """
        data: TrainData | None = None
        while experiment.lacking(seeds, self._runs_of(experiment)):
            if data is None:
                data = self._read_data(experiment, seeds[0])

            # one trainer at a time fits, plans and publishes
            lease = self._leases.take(experiment.name)
            if isinstance(lease, Holder):
                return lease
            try:
                # another trainer may have published a moment ago
                lacking = experiment.lacking(seeds, self._runs_of(experiment))
                if not lacking:
                    break
                if experiment.recipe.fitted:
                    self._fit_experiment(experiment, data)
                    continue
                engine, seed_batches = self._plan(
                    experiment, lacking, data, experiments
                )
            finally:
                lease.release()

            # the next turn of the loop publishes
            holders = [
                self._train_seed_batch(experiment, batch, data, engine)
                for batch in seed_batches
            ]
            if holders and all(holders):
                return holders[0]
        return self._tidy_up(experiment)

    def _read_data(self, experiment: Experiment, seed: int) -> TrainData:
        """The data of an experiment; warn where every step reads rows from disk."""
        self._tell(experiment, ": reading and checking the cache")
        data = self._prepare_data(experiment, seed)
        draws_any_row = (
            experiment.recipe.window is None and not experiment.recipe.fitted
        )
        if draws_any_row and data.train.features.place == "disk":
            window = max(1, len(data.train) // 8)
            warnings.warn(
                "training rows are read from disk, in any order: slow; "
                f"--set shuffle=window:{window} reads by parts",
                GaamWarning,
                stacklevel=3,
            )
        return data

    def _prepare_data(self, experiment: Experiment, seed: int) -> TrainData:
        return prepare_data(
            self._cache, experiment.recipe, self._device, self._loaded, seed
        )

    def _fit_experiment(self, experiment: Experiment, data: TrainData) -> None:
        """Fit a head at once and publish it: a fit is too quick for a checkpoint."""

        def on_value(text: str) -> None:
            self._tell(experiment, f": {text}", 1)

        result, fit, engine = fit_experiment(
            experiment.spec, data, experiment.recipe, on_value
        )
        track_seeds(self._config.track, self._runs, experiment.name, [result])
        path = publish(
            experiment, [result], data, engine, self._config, self._cache, fit
        )
        self._on_run(path)

    def _tidy_up(self, experiment: Experiment) -> Holder | None:
        """Remove the unfinished work of a published experiment.

        Returns:
            A trainer that holds the lease of the experiment, or None.
        """
        unfinished = Unfinished(self._runs, experiment)
        if unfinished.folder.exists():
            lease = self._leases.take(experiment.name)
            if isinstance(lease, Holder):
                return lease
            other_leases = self._leases.others_at_work(f"{experiment.name}-")
            unfinished.remove(self._published_seeds(experiment), others=other_leases)
            lease.release()
        self._left[experiment.key] = 0
        return None

    def _plan(
        self,
        experiment: Experiment,
        lacking: Sequence[int],
        data: TrainData,
        experiments: Sequence[Experiment],
    ) -> tuple[Engine, list[list[int]]]:
        """Choose the engine and the seed batches of an experiment.

        Seed batches of begun work stay as they are. Where all seeds are finished, the
        run is published and there are no seed batches.
        """
        chosen = self._choose_engine(experiment, lacking, data, experiments)
        unfinished = Unfinished(self._runs, experiment)
        results, files = unfinished.load()
        engine = _engine_of_begun_work(chosen, files)

        # publish where no seed is left to train
        remaining = set(lacking) - results.keys()
        self._left[experiment.key] = min(
            self._left[experiment.key], len(remaining) * experiment.epochs
        )
        if not remaining:
            self._publish(experiment, results, data, engine)
            return engine, []

        # write the planned seed batches down for other trainers, too
        most = min(chosen.seed_batch, engine.seed_batch)
        seed_batches = self._seed_batches(remaining, files, most)
        for batch in seed_batches:
            planned = unfinished.checkpoint(batch, engine)
            if not planned.path.exists():
                planned.save({}, {"seeds": batch, "epochs_done": 0, "seconds": 0.0})
        return engine, seed_batches

    def _publish(
        self,
        experiment: Experiment,
        results: Mapping[int, SeedResult],
        data: TrainData,
        engine: Engine,
    ) -> None:
        """Publish the finished seeds of an experiment that no run holds yet."""
        new_seeds = sorted(results.keys() - self._published_seeds(experiment))
        finished = [results[seed] for seed in new_seeds]
        path = publish(experiment, finished, data, engine, self._config, self._cache)
        self._on_run(path)

    def _choose_engine(
        self,
        experiment: Experiment,
        lacking: Sequence[int],
        data: TrainData,
        experiments: Sequence[Experiment],
    ) -> Engine:
        """The engine that suits the lacking seeds of an experiment."""
        # tuning seeds with rows of their own share the compiled step across candidates
        sharing = 1
        if experiment.recipe.val_folds:
            sharing = sum(
                other_experiment.spec == experiment.spec
                for other_experiment in experiments
            )
        return choose_engine(
            experiment.spec,
            experiment.recipe,
            self._device,
            len(lacking) * max(1, sharing),
            len(data.train),
            self._config.seed_batch,
            self._config.compile,
            most=self._most_seeds(experiment, lacking, experiments),
        )

    def _most_seeds(
        self,
        experiment: Experiment,
        lacking: Sequence[int],
        experiments: Sequence[Experiment],
    ) -> int | None:
        """The most seeds of a seed batch, if rows or other workers limit them."""
        if experiment.recipe.val_folds is not None:
            return 1
        if self._workers > 1 and self._config.seed_batch is None:
            # large seed batches would leave workers without work
            workers_per_experiment = -(-self._workers // len(experiments))
            return -(-len(lacking) // workers_per_experiment)
        return None

    def _seed_batches(
        self, remaining: set[int], files: Sequence[dict[str, Any]], most: int
    ) -> list[list[int]]:
        """The seed batches of begun work, and new ones for the other seeds."""
        remaining = set(remaining)
        seed_batches: list[list[int]] = []
        for file in files:
            batch: list[int] = file["seeds"]
            # a batch that is only planned is taken up where it lacks all its seeds
            if file.get("epochs_done"):
                is_wanted = bool(remaining & set(batch))
            else:
                is_wanted = remaining >= set(batch)
            limit = self._config.seed_batch or len(batch)
            if is_wanted and len(batch) <= limit:
                seed_batches.append(batch)
                remaining -= set(batch)
        return seed_batches + divide_seeds(sorted(remaining), most)

    def _train_seed_batch(
        self, experiment: Experiment, batch: list[int], data: TrainData, engine: Engine
    ) -> Holder | None:
        """Train a seed batch that no other trainer has done or is at work on.

        Returns:
            The other trainer that is at work on it, or None.
        """
        file = Unfinished(self._runs, experiment).checkpoint(batch, engine)
        if file.done:
            return None
        lease = self._leases.take(lease_name(experiment.name, batch))
        if isinstance(lease, Holder):
            return lease
        # another trainer may have finished it before the lease was taken
        if not file.done:
            self._train_and_keep(experiment, batch, data, engine, file)
        lease.release()
        return None

    def _train_and_keep(
        self,
        experiment: Experiment,
        batch: list[int],
        data: TrainData,
        engine: Engine,
        file: Checkpoint,
    ) -> None:
        """Train a seed batch and write its results into its file."""
        if experiment.recipe.val_folds is not None:
            data = self._prepare_data(experiment, batch[0])
        with enough_memory(experiment.recipe, batch, engine.device):
            training = SeedBatch(
                experiment.spec,
                data,
                experiment.recipe,
                batch,
                engine=engine,
                steps=self._steps,
            )
            results = training.train(file, self._epoch_reporter(experiment, batch))

        # later seed batches go on as this one ended
        if engine.compiled and not training.compiler.works:
            eager = replace(engine, compiled=False, why="the compiler failed")
            file.work["engine"] = eager.to_dict()
        track_seeds(self._config.track, self._runs, experiment.name, results)
        file.finish(results)

    def _epoch_reporter(
        self, experiment: Experiment, batch: Sequence[int]
    ) -> Callable[[int, float], None]:
        """A function that reports the epochs of a seed batch."""
        title = f"seed {spell_numbers(batch)}"
        if len(batch) > 1:
            title = f"seeds {spell_numbers(batch)}"
        last_epoch = 0

        def on_epoch(epoch: int, loss: float) -> None:
            nonlocal last_epoch
            new = (epoch - last_epoch) * len(batch)
            last_epoch = epoch
            text = f" {title} epoch {epoch}/{experiment.epochs} loss {loss:.3f}"
            self._tell(experiment, text, new)

        return on_epoch


@contextlib.contextmanager
def _modules_left_alone() -> Iterator[None]:
    """Let the garbage collector pass over what the imports of torch have made.

    A full collection would look at 400,000 objects that stay, for a tenth of a second:
    measured, 5% of a short training.
    """
    if gc.get_freeze_count():
        # the caller has frozen objects, which an end of this would thaw
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _warn_of_other_code(experiment: Experiment, runs: Sequence[RunResult]) -> None:
    """Warn of existing runs that other versions of the mechanism or head trained."""
    code = experiment.recipe.code()
    for run in runs:
        old_code = run.environment["code"]
        changed = [
            name for name in code if code[name] != old_code.get(name, code[name])
        ]
        if changed:
            warnings.warn(
                f"{experiment}: {shown_path(run.path)} was trained by other code of "
                f"{', '.join(changed)}, and is kept: another --runs trains it again",
                GaamWarning,
                stacklevel=3,
            )


def _engine_of_begun_work(chosen: Engine, files: Sequence[dict[str, Any]]) -> Engine:
    """The engine of begun work, which gives the same bits, or else ``chosen``.

    The compiler may have failed for a seed batch; then the work goes on without it.
    """
    engines = [Engine(**file["engine"]) for file in files]
    usable = [
        engine
        for engine in engines
        if (engine.kind, engine.dtype) == (chosen.kind, chosen.dtype)
    ]
    if not usable:
        return chosen
    begun = min(usable, key=lambda engine: engine.compiled)
    return replace(begun, device=chosen.device)


def is_candidate(config: TrainConfig, run: RunResult) -> bool:
    """Whether a run has one of several rates or decays that validation chooses from."""
    has_candidates = len(config.rates) * len(config.weight_decay) > 1
    if run.fit or config.select != "val" or not has_candidates:
        return False
    return run.tuning_only or config.choosing_seeds is None


def what_came_of_it(
    config: TrainConfig, runs: Sequence[RunResult], published_paths: Collection[Path]
) -> list[str]:
    """The lines that a training ends with.

    They name the settings that validation chose for every decoder over all folds, and
    summarise the runs outside ``published_paths``, which were reported when they
    finished. Other candidates get no accuracy: a reader of all test accuracies would
    choose by them.
    """
    choice = choose(runs, config.choosing_seeds)
    tuned = [run for run in choice.runs if run.key in choice.tunings]

    # name decoders by the settings in which they differ
    names = {name for run in tuned for name in run.settings}
    names -= {*TUNED, HELD, "fold", "split_seed"}
    differing = set()
    for name in names:
        values = {str(run.settings.get(name)) for run in tuned}
        if len(values) > 1:
            differing.add(name)

    # the folds and repeats of a decoder share a line
    tunings: dict[str, dict[str, Tuning]] = {}
    for run in tuned:
        settings = {name: run.settings.get(name) for name in differing}
        decoder = decoder_title(run.attention, run.head, settings)
        tunings.setdefault(decoder, {})[run.key] = choice.tunings[run.key]
    lines = [
        f"{decoder}: {tuning_in_words([*tuning_by_key.values()])}"
        for decoder, tuning_by_key in tunings.items()
    ]
    return [
        *lines,
        *(run.summary() for run in choice.runs if run.path not in published_paths),
    ]


def what_next(config: TrainConfig, runs: Sequence[RunResult]) -> list[str]:
    """Lines that suggest the next command after a training."""
    by_layers = len(config.layers) > 1 or EACH in config.layers
    pairs = " --pairs layers" if by_layers else ""
    lines = [f"next: gaam report {shlex.quote(shown_path(config.runs))}{pairs}"]

    # a small data set gives more test rows by cross-validation
    rows = runs[0].cache.rows if runs else {}
    train_rows = rows.get(config.train_split, 0)
    test_rows = rows.get(config.test_split, 0)
    is_small = 0 < test_rows < train_rows < FEW_ROWS
    if is_small and not config.folds and config.train_rows == (None,):
        lines.append(
            "more test rows: --folds 5 tests on each of the "
            f"{train_rows} training rows once, and leaves these {test_rows} out"
        )
    return lines


def check_failures(runs: Sequence[RunResult], seeds: Sequence[int]) -> None:
    """Warn of failed seeds, and raise where every seed of a recipe failed.

    >>> gaam_decoder.check_failures(runs, (0, 1, 2))

    Args:
        runs: the runs of a training; of runs that share a seed the first counts.
        seeds: the requested seeds.

    Raises:
        NumericsError: all seeds of a recipe failed.

    Warns:
        GaamWarning: for every recipe of which some seeds failed.
    """
    hopeless: list[tuple[RunResult, str]] = []
    for key in dict.fromkeys(run.key for run in runs):
        run_by_seed = first_runs(run for run in runs if run.key == key)
        # a fitted head has a seed of its own
        requested = {
            seed: run for seed, run in run_by_seed.items() if run.fit or seed in seeds
        }
        failed = [seed for seed, run in requested.items() if seed in run.failed]
        if not failed:
            continue

        # the reason of the first failed seed stands for all
        seed = failed[0]
        run = requested[seed]
        reason = run.failed[seed]
        if len(failed) == len(requested):
            hopeless.append((run, f"{run.title}: {reason}"))
            continue
        count = f"{len(failed)} of {len(requested)} seeds failed"
        warnings.warn(
            f"{run.title}: {count} (seed {seed}: {reason})", GaamWarning, stacklevel=2
        )
    if hopeless:
        raise NumericsError(
            f"every seed failed of {'; '.join(reason for _, reason in hopeless)}",
            where=", ".join(str(run.path) for run, _ in hopeless),
            hint="a smaller --lr, or --set clip-grad-norm=1",
        )
