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
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress, no_progress
from gaam_cache.config import without_workers
from gaam_cache.store.files import make_folder
from gaam_cache.store.plan import PLAN_FILE
from gaam_cache.store.reader import open_cache
from gaam_cache.workers.engines import base
from gaam_cache.workers.leases import Holder, Leases
from gaam_cache.workers.ranks import device_of, find_rank
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import EACH, spell_numbers
from gaam_decoder.runs.folders import LEASE_FOLDER, check_runs_folder, runs_of_key
from gaam_decoder.runs.loading import Runs
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.trackers import check_tracker, track_seeds
from gaam_decoder.runs.tuning import (
    Tuning,
    choose_candidates,
    first_run_by_seed,
    tuning_in_words,
)
from gaam_decoder.runs.write import SeedResult
from gaam_decoder.specs import decoder_title
from gaam_decoder.training.arithmetic.engine import (
    Engine,
    choose_engine,
    divide_seeds,
    explained_memory_errors,
    without_denormals,
)
from gaam_decoder.training.arithmetic.step import StepCache
from gaam_decoder.training.checkpoint import (
    Checkpoint,
    SavedBatch,
    UnfinishedWork,
    lease_name,
)
from gaam_decoder.training.data import LoadedFeatures, TrainData, prepare_data
from gaam_decoder.training.experiments import (
    Experiment,
    candidate_grids,
    candidates_of,
    plan_experiments,
    reporting_experiments,
)
from gaam_decoder.training.fitting import fit_experiment
from gaam_decoder.training.probe import check_fit_memory
from gaam_decoder.training.publish import publish
from gaam_decoder.training.seed_batch import SeedBatch
from gaam_decoder.training.status import (
    DecoderStatus,
    StatusBoard,
    differing_settings,
)

OnStatus = Callable[[DecoderStatus], None] | None
ProgressOfProcess = Callable[[int, int, str, int], None]
"""The same, and the seed-epochs that this process finished since the last call."""

# each look at the work of other trainers reads the existing runs
PAUSE_SECONDS = 0.5
FEW_ROWS = 1000  # with fewer training rows, a cross-validation is suggested
SUGGESTED_BLOCKS = 8  # parts of the training rows that a warning suggests to read by
UNCHOSEN = ""  # in the place of the key of an experiment that tuning has yet to choose


def train(
    config: TrainConfig,
    *,
    progress: ReportProgress | None = None,
    on_run: Callable[[RunResult], None] | None = None,
    on_status: OnStatus = None,
) -> Runs:
    """Train every mechanism of a config over its seeds.

    Seeds of existing runs with the same mechanism, recipe and cache are not trained
    again. With ``tune_seeds``, these seeds train every learning rate and weight decay,
    and ``seeds`` train the best of each decoder.

    Several processes share the work of one folder of runs: each returns when all runs
    exist.

    Examples:
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
        on_status: called with the status of a decoder whenever that changes.

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
    report = progress or no_progress

    def report_run(path: Path) -> None:
        if on_run is not None:
            on_run(read_run(path))

    # one process does all the work here: what it did itself is what is done
    def report_progress(done: int, total: int, text: str, done_here: int) -> None:
        report(done, total, text)

    # refuse before anything is read
    check_tracker(config.track)
    check_runs_folder(config.runs)
    rank = find_rank(config.rank)
    num_ranks = rank.total if rank else 1
    if not config.has_single_local_worker:
        runs = _train_in_workers(config, num_ranks, report, report_run, on_status)
        return Runs(runs)

    # ranks of one machine share its cores and devices
    if rank is not None:
        devices.set_workers_here(rank.workers_on_machine)
        config = replace(config, device=device_of(rank, config.device))
    sweep = _Sweep(config, report_progress, report_run, on_status, num_ranks)
    return Runs(sweep.run())


def _train_in_workers(
    config: TrainConfig,
    num_ranks: int,
    report: ReportProgress,
    on_run: Callable[[Path], None],
    on_status: OnStatus,
) -> list[RunResult]:
    """Train in workers that ``config.engine`` starts, and read the runs they publish.

    An error of a worker is raised here.

    Args:
        config: of the training.
        num_ranks: processes like this one that share the training, each with workers
            of its own; 1 if it is the only one.
        report: called with the progress of all workers together.
        on_run: called with the folder of every new run.
        on_status: called with the statuses of all workers.
    """
    done = 0
    largest_total = 0

    def on_message(worker_number: int, kind: str, value: Any) -> None:
        """Handle a message of ``_run_worker`` or of the engine, by its kind."""
        nonlocal done, largest_total
        if kind == "progress":
            newly_done, total, text = value
            # each worker counts in its total what was missing when it started
            largest_total = max(largest_total, total)
            done += newly_done
            # people count workers from 1
            name = f"worker {worker_number + 1}"
            report(min(done, largest_total), largest_total, f"{name}: {text}")
        elif kind == "waiting":
            report(0, UNKNOWN_TOTAL, value)
        elif kind == "run":
            on_run(Path(value))
        elif kind == "status" and on_status is not None:
            on_status(value)

    engine = base.load_engine(config)
    paths_by_worker = engine.run(
        _worker_task(config, num_ranks),
        config,
        base.showing_each_warning_once(on_message),
    )
    # every worker returns the paths of all runs
    paths = paths_by_worker[0]
    return [read_run(Path(path)) for path in paths]


def _worker_task(config: TrainConfig, num_ranks: int) -> base.Task:
    """The task that the workers of a training carry out.

    Args:
        config: of the training.
        num_ranks: processes that share the training, each with workers of its own.
    """
    return base.Task(
        work=_run_worker,
        argument=(without_workers(config), num_ranks),
        folder=config.runs,
        device=config.device,
        other_paths=(config.cache / PLAN_FILE,),
    )


def _run_worker(
    argument: tuple[TrainConfig, int], worker: base.Worker, send: base.Send
) -> list[str]:
    """Train as one worker process, and send its own progress and its new runs.

    Args:
        argument: the config of the training, and the number of ranks that share it.
        worker: this worker, with its device.
        send: sends a message to the process that started the worker.

    Returns:
        The folders of all runs of the training, whoever made them.
    """
    config, num_ranks = argument

    # the receiver adds up what the workers did
    def report(done: int, total: int, text: str, done_here: int) -> None:
        send("progress", (done_here, total, text))

    def report_run(path: Path) -> None:
        send("run", str(path))

    def report_status(status: DecoderStatus) -> None:
        send("status", status)

    config = replace(config, device=worker.device)
    # every rank starts as many workers
    num_workers = num_ranks * worker.total
    sweep = _Sweep(config, report, report_run, report_status, num_workers)
    return [str(run.path) for run in sweep.run()]


class _Sweep:
    """Trains the experiments of a config together with other processes.

    An experiment is a decoder under a recipe. A trainer, which is a process, takes a
    lease on the part of an experiment that it works on: a small file that tells the
    others.

    Args:
        config: of the training.
        report: called with the progress.
        on_run: called with the folder of every run that this process publishes.
        on_status: called with the status of a decoder whenever that changes.
        num_workers: processes that share the training, on all machines.
    """

    def __init__(
        self,
        config: TrainConfig,
        report: ProgressOfProcess,
        on_run: Callable[[Path], None],
        on_status: OnStatus,
        num_workers: int,
    ) -> None:
        self._config = config
        self._runs = config.runs
        self._num_workers = num_workers
        self._report = report
        self._on_run = on_run
        self._on_status = on_status
        self._device = devices.resolve_device(config.device)
        self._cache = open_cache(config.cache)
        self._leases = Leases(config.runs / LEASE_FOLDER)
        self._loaded = LoadedFeatures(config.memory_share)
        self._steps = StepCache()
        # seed-epochs of the whole training
        self._all_seed_epochs = 0
        # unfinished seed-epochs by the key of an experiment, or by ``UNCHOSEN``
        self._remaining_seed_epochs: dict[str, int] = {}

    @without_denormals()
    def run(self) -> list[RunResult]:
        """Train everything that no run has; the runs of reporting seeds come first."""
        experiments = plan_experiments(self._config, self._cache, self._device)
        tuning_seeds = self._config.resolved_tune_seeds
        self._board = StatusBoard(experiments, tuning_seeds, self._on_status)
        with self._leases, _imported_objects_uncollected():
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
        self._all_seed_epochs = len(tuned_grids) * len(config.seeds) * config.epochs
        self._remaining_seed_epochs[UNCHOSEN] = self._all_seed_epochs

        # tune on validation rows
        tuning_runs = self._train_experiments(
            [*candidates.values()], tuning_seeds, is_tuning=True
        )
        choice = choose_candidates(tuning_runs, tuning_seeds)
        unchosen = [run for run in tuning_runs if run.key in choice.undecided_keys]
        check_failures(unchosen, tuning_seeds)

        # train the chosen candidates with the reporting seeds
        reporting = reporting_experiments(
            experiments, config, candidates, tuning_runs, choice
        )
        # the seed-epochs of chosen experiments take the place of the expected ones
        self._all_seed_epochs -= self._remaining_seed_epochs.pop(UNCHOSEN)
        reporting_runs = self._train_experiments(reporting, config.seeds)
        tuning_paths = {run.path for run in tuning_runs}
        new_runs = [run for run in reporting_runs if run.path not in tuning_paths]
        return new_runs + tuning_runs

    def _train_experiments(
        self,
        experiments: Sequence[Experiment],
        seeds: Sequence[int],
        *,
        is_tuning: bool = False,
    ) -> list[RunResult]:
        """Train the missing seeds of experiments; return the runs with these seeds."""
        runs_by_key = {
            experiment.key: self._runs_of(experiment) for experiment in experiments
        }
        for experiment in experiments:
            _warn_of_other_code(experiment, runs_by_key[experiment.key])

        missing_seeds_by_key = {
            experiment.key: experiment.missing_seeds(seeds, runs_by_key[experiment.key])
            for experiment in experiments
        }
        self._count_missing_seeds(experiments, missing_seeds_by_key)

        open_experiments = self._open_experiments(experiments, missing_seeds_by_key)
        self._board.begin(experiments, is_tuning=is_tuning)
        for experiment in experiments:
            if experiment not in open_experiments:
                self._board.finish(experiment, runs_by_key[experiment.key])
        if open_experiments:
            make_folder(self._runs)
        self._train_until_published(
            open_experiments, seeds, all_experiments=experiments
        )
        self._leases.remove_stale_leases()

        # return what is published now
        for experiment in open_experiments:
            runs_by_key[experiment.key] = self._runs_of(experiment)
        return _runs_with_seeds(experiments, seeds, runs_by_key)

    def _count_missing_seeds(
        self,
        experiments: Sequence[Experiment],
        missing_seeds_by_key: Mapping[str, Sequence[int]],
    ) -> None:
        """Add the seed-epochs that no run has to those of the whole training.

        Args:
            experiments: to train.
            missing_seeds_by_key: key of an experiment -> its seeds that no run has.
        """
        remaining: dict[str, int] = {}
        for experiment in experiments:
            num_missing = len(missing_seeds_by_key[experiment.key])
            remaining[experiment.key] = num_missing * experiment.epochs
        self._all_seed_epochs += sum(remaining.values())
        self._remaining_seed_epochs |= remaining

    def _open_experiments(
        self,
        experiments: Sequence[Experiment],
        missing_seeds_by_key: Mapping[str, Sequence[int]],
    ) -> list[Experiment]:
        """The experiments to train, or with unfinished work to remove.

        Args:
            experiments: the published ones, too.
            missing_seeds_by_key: key of an experiment -> its seeds that no run has.
        """
        # a trainer that was killed after it published leaves a folder to remove
        return [
            experiment
            for experiment in experiments
            if missing_seeds_by_key[experiment.key]
            or UnfinishedWork(self._runs, experiment).folder.exists()
        ]

    def _train_until_published(
        self,
        open_experiments: Sequence[Experiment],
        seeds: Sequence[int],
        all_experiments: Sequence[Experiment],
    ) -> None:
        """Train experiments in turn, and wait for those that other trainers train.

        Args:
            open_experiments: to train, or with unfinished work to remove.
            seeds: that the config requests.
            all_experiments: these and the published ones, which share the workers.
        """
        unpublished = list(open_experiments)
        while unpublished:
            still_unpublished: list[Experiment] = []
            holders: list[Holder] = []
            for experiment in unpublished:
                holder = self._train_experiment(experiment, seeds, all_experiments)
                if holder is None:
                    self._board.finish(experiment, self._runs_of(experiment))
                else:
                    # another trainer holds its lease
                    still_unpublished.append(experiment)
                    holders.append(holder)
            unpublished = still_unpublished
            if unpublished:
                waiting = f"waiting for {holders[0].in_words()}"
                self._report_work(unpublished[0], waiting)
                time.sleep(PAUSE_SECONDS)

    def _runs_of(self, experiment: Experiment) -> list[RunResult]:
        """The published runs of an experiment."""
        return runs_of_key(self._runs, experiment.key)

    def _published_seeds(self, experiment: Experiment) -> set[int]:
        """The seeds that published runs of an experiment hold."""
        return {seed for run in self._runs_of(experiment) for seed in run.seeds}

    def _report_work(
        self, experiment: Experiment, text: str, new_seed_epochs: int = 0
    ) -> None:
        """Count the new seed-epochs of an experiment, and report the progress."""
        remaining = self._remaining_seed_epochs[experiment.key] - new_seed_epochs
        self._remaining_seed_epochs[experiment.key] = max(0, remaining)
        done = self._all_seed_epochs - sum(self._remaining_seed_epochs.values())
        self._board.work(experiment, text)
        self._report(
            done, self._all_seed_epochs, f"{experiment}: {text}", new_seed_epochs
        )

    def _train_experiment(
        self,
        experiment: Experiment,
        seeds: Sequence[int],
        all_experiments: Sequence[Experiment],
    ) -> Holder | None:
        """Train the seeds of an experiment that no other trainer is at work on.

        Args:
            experiment: to train.
            seeds: that the config requests.
            all_experiments: of the config, which share the workers.

        Returns:
            Another trainer that is at work on the rest. None if all seeds are
            published and the files of unfinished work are removed.
        """
        data: TrainData | None = None
        while experiment.missing_seeds(seeds, self._runs_of(experiment)):
            if data is None:
                data = self._read_data(experiment, seeds[0])

            # one trainer at a time fits, plans and publishes
            lease = self._leases.take(experiment.name)
            if isinstance(lease, Holder):
                return lease
            try:
                # another trainer may have published a moment ago
                missing_seeds = experiment.missing_seeds(
                    seeds, self._runs_of(experiment)
                )
                if not missing_seeds:
                    break
                if experiment.recipe.is_fitted_at_once:
                    self._fit_experiment(experiment, data)
                    continue
                engine, seed_batches = self._plan_or_publish(
                    experiment, missing_seeds, data, all_experiments
                )
            finally:
                lease.release()

            # the next turn of the loop publishes what is trained here
            holders = self._train_seed_batches(experiment, seed_batches, data, engine)
            workers_ahead = [holder for holder in holders if holder is not None]
            if workers_ahead and len(workers_ahead) == len(seed_batches):
                return workers_ahead[0]
        return self._remove_unfinished_work(experiment)

    def _read_data(self, experiment: Experiment, seed: int) -> TrainData:
        """The data of an experiment; warn where every step reads rows from disk."""
        self._report_work(experiment, "reading and checking the cache")
        data = self._prepare_data(experiment, seed)
        draws_any_row = (
            experiment.recipe.window_rows is None
            and not experiment.recipe.is_fitted_at_once
        )
        if draws_any_row and data.train.features.location == "disk":
            window = max(1, len(data.train) // SUGGESTED_BLOCKS)
            warnings.warn(
                "training rows are read from disk, in any order: slow; "
                f"--set shuffle=window:{window} reads by parts",
                GaamWarning,
                stacklevel=3,
            )
        return data

    def _prepare_data(self, experiment: Experiment, seed: int) -> TrainData:
        """Training, validation and test rows of an experiment and seed."""
        return prepare_data(
            self._cache, experiment.recipe, self._device, self._loaded, seed
        )

    def _fit_experiment(self, experiment: Experiment, data: TrainData) -> None:
        """Fit a head that is not trained in steps, and publish its run.

        A fit is too quick for a checkpoint. ``fit`` records which values of its setting
        were tried, ``engine`` how it was run (device, type).
        """

        # a tried value takes another time than an epoch: progress does not count it
        def on_value(text: str) -> None:
            self._report_work(experiment, text)

        # training and validation rows are in memory at the same time
        num_validation_rows = 0 if data.selection is None else len(data.selection)
        num_rows = len(data.train) + num_validation_rows
        check_fit_memory(experiment.spec, experiment.recipe, num_rows, self._device)
        result, fit, engine = fit_experiment(
            experiment.spec, data, experiment.recipe, on_value
        )
        track_seeds(self._config.track, self._runs, experiment.name, [result])
        path = publish(
            experiment, [result], data, engine, self._config, self._cache, fit
        )
        self._on_run(path)

    def _remove_unfinished_work(self, experiment: Experiment) -> Holder | None:
        """Remove the files of seed batches of a published experiment.

        Returns:
            None after the removal. Where another trainer holds the lease of the
            experiment, nothing is removed, and that trainer is returned.
        """
        unfinished = UnfinishedWork(self._runs, experiment)
        if unfinished.folder.exists():
            lease = self._leases.take(experiment.name)
            if isinstance(lease, Holder):
                return lease
            # the names of the leases on its seed batches begin so, see ``lease_name``
            others_train = self._leases.is_other_worker_at(f"{experiment.name}-")
            unfinished.remove(
                self._published_seeds(experiment), others_train=others_train
            )
            lease.release()
        self._remaining_seed_epochs[experiment.key] = 0
        return None

    def _plan_or_publish(
        self,
        experiment: Experiment,
        missing_seeds: Sequence[int],
        data: TrainData,
        all_experiments: Sequence[Experiment],
    ) -> tuple[Engine, list[list[int]]]:
        """Divide the missing seeds into seed batches, or publish if all are finished.

        The seed batches of begun work stay as they are.

        Args:
            experiment: to train.
            missing_seeds: requested seeds that no run holds.
            data: of the experiment.
            all_experiments: of the config, which share the workers.

        Returns:
            How seeds are run (device, type, compiled or not), and the seeds of each
            seed batch; no batch after publishing.
        """
        chosen = self._choose_engine(experiment, missing_seeds, data, all_experiments)
        unfinished = UnfinishedWork(self._runs, experiment)
        results, saved_batches = unfinished.load()
        engine = _engine_of_begun_work(chosen, saved_batches)
        unfinished_seeds = set(missing_seeds) - results.keys()

        # other trainers may have finished seeds: progress counts them as done
        self._remaining_seed_epochs[experiment.key] = min(
            self._remaining_seed_epochs[experiment.key],
            len(unfinished_seeds) * experiment.epochs,
        )
        if not unfinished_seeds:
            self._publish(experiment, results, data, engine)
            return engine, []

        # a new batch is within the limit of the begun work, and within that of today
        most_seeds = min(chosen.seed_batch, engine.seed_batch)
        seed_batches = self._seed_batches(unfinished_seeds, saved_batches, most_seeds)
        # write the planned seed batches down for other trainers, too
        for batch in seed_batches:
            planned = unfinished.checkpoint(batch, engine)
            if not planned.path.exists():
                progress = {"seeds": batch, "epochs_done": 0, "seconds": 0.0}
                planned.save(tensors={}, progress=progress)
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
        missing_seeds: Sequence[int],
        data: TrainData,
        all_experiments: Sequence[Experiment],
    ) -> Engine:
        """The engine that suits the missing seeds of an experiment."""
        # Compiling must pay off over all seeds that use the compiled step. With
        # ``val_folds`` every batch has one seed, so that a single compiled step serves
        # all seeds of all candidates of the decoder.
        num_candidates = 1
        if experiment.recipe.val_folds is not None:
            same_decoder = [
                other for other in all_experiments if other.spec == experiment.spec
            ]
            num_candidates = len(same_decoder)
        return choose_engine(
            experiment.spec,
            experiment.recipe,
            self._device,
            num_seeds=len(missing_seeds) * num_candidates,
            num_rows=len(data.train),
            seed_batch=self._config.seed_batch,
            compile=self._config.compile,
            most_seeds=self._most_seeds(experiment, missing_seeds, all_experiments),
        )

    def _most_seeds(
        self,
        experiment: Experiment,
        missing_seeds: Sequence[int],
        all_experiments: Sequence[Experiment],
    ) -> int | None:
        """The most seeds to train together, whatever the memory; None: no limit."""
        # each seed has validation rows of its own
        if experiment.recipe.val_folds is not None:
            return 1
        if self._num_workers > 1 and self._config.seed_batch is None:
            # larger seed batches would leave workers without work; rounded up
            workers_per_experiment = -(-self._num_workers // len(all_experiments))
            return -(-len(missing_seeds) // workers_per_experiment)
        return None

    def _seed_batches(
        self,
        unfinished_seeds: set[int],
        saved_batches: Sequence[SavedBatch],
        most_seeds: int,
    ) -> list[list[int]]:
        """The seed batches of begun work, and new ones for the other seeds.

        Args:
            unfinished_seeds: seeds without a result.
            saved_batches: the seed batches with files, the begun ones first.
            most_seeds: the largest size of a new batch.
        """
        remaining = set(unfinished_seeds)
        seed_batches: list[list[int]] = []
        for saved_batch in saved_batches:
            batch = saved_batch.seeds
            if saved_batch.is_begun:
                is_wanted = bool(remaining & set(batch))
            else:
                # a batch that is only planned is worth it if all its seeds are missing
                is_wanted = remaining >= set(batch)
            # the user may request smaller batches than before
            requested_size = self._config.seed_batch
            is_small_enough = requested_size is None or len(batch) <= requested_size
            if is_wanted and is_small_enough:
                seed_batches.append(batch)
                remaining -= set(batch)
        return seed_batches + divide_seeds(sorted(remaining), most_seeds)

    def _train_seed_batches(
        self,
        experiment: Experiment,
        seed_batches: Sequence[list[int]],
        data: TrainData,
        engine: Engine,
    ) -> list[Holder | None]:
        """Train seed batches in turn, as ``_train_seed_batch`` does.

        If one fails, nothing of those without a trained epoch stays: a loss of a user's
        own that fails in its first step leaves no unfinished run.
        """
        try:
            return [
                self._train_seed_batch(experiment, batch, data, engine)
                for batch in seed_batches
            ]
        except Exception:
            self._remove_unfinished_work(experiment)
            raise

    def _train_seed_batch(
        self, experiment: Experiment, batch: list[int], data: TrainData, engine: Engine
    ) -> Holder | None:
        """Train a seed batch that no other trainer has done or is at work on.

        Returns:
            The other trainer that is at work on it, or None.
        """
        checkpoint = UnfinishedWork(self._runs, experiment).checkpoint(batch, engine)
        if checkpoint.is_done:
            return None
        lease = self._leases.take(lease_name(experiment.name, batch))
        if isinstance(lease, Holder):
            return lease
        # another trainer may have finished it before the lease was taken
        if not checkpoint.is_done:
            self._train_and_save(experiment, batch, data, engine, checkpoint)
        lease.release()
        return None

    def _train_and_save(
        self,
        experiment: Experiment,
        batch: list[int],
        data: TrainData,
        engine: Engine,
        checkpoint: Checkpoint,
    ) -> None:
        """Train a seed batch, and write its results into the file of its checkpoint."""
        # with ``val_folds`` a batch has one seed, with validation rows of its own
        if experiment.recipe.val_folds is not None:
            [seed] = batch
            data = self._prepare_data(experiment, seed)
        with explained_memory_errors(experiment.recipe, batch, engine.device):
            training = SeedBatch(
                experiment.spec,
                data,
                experiment.recipe,
                batch,
                engine=engine,
                steps=self._steps,
            )
            on_epoch = self._epoch_reporter(experiment, batch)
            results = training.train(checkpoint, on_epoch)

        # the file records that the compiler failed: later seed batches of the
        # experiment are not compiled either, also after an interruption
        if engine.compiled and not training.compiler.works:
            eager = replace(engine, compiled=False, why="the compiler failed")
            checkpoint.work["engine"] = eager.to_dict()
        track_seeds(self._config.track, self._runs, experiment.name, results)
        checkpoint.finish(results)

    def _epoch_reporter(
        self, experiment: Experiment, batch: Sequence[int]
    ) -> Callable[[int, float], None]:
        """A function of (epoch, mean loss) that reports the epochs of a seed batch."""
        title = f"seed {spell_numbers(batch)}"
        if len(batch) > 1:
            title = f"seeds {spell_numbers(batch)}"
        last_epoch = 0

        def on_epoch(epoch: int, loss: float) -> None:
            nonlocal last_epoch
            # a batch that goes on from a checkpoint has several new epochs at first
            new_seed_epochs = (epoch - last_epoch) * len(batch)
            last_epoch = epoch
            text = f"{title}, epoch {epoch} of {experiment.epochs}, loss {loss:.3f}"
            self._report_work(experiment, text, new_seed_epochs)

        return on_epoch


@contextlib.contextmanager
def _imported_objects_uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking at the objects that imports have made.

    A full collection would look at 400,000 objects that stay, for a tenth of a second:
    measured, 5% of a short training.
    """
    if gc.get_freeze_count():
        # the caller has frozen objects, which the end of this block would unfreeze
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


def _runs_with_seeds(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    runs_by_key: Mapping[str, Sequence[RunResult]],
) -> list[RunResult]:
    """The runs of experiments that hold requested seeds, in their order.

    Args:
        experiments: the experiments.
        seeds: that the config requests.
        runs_by_key: key of an experiment -> its published runs.
    """
    runs_with_seeds: list[RunResult] = []
    for experiment in experiments:
        requested_seeds = set(experiment.seeds_to_train(seeds))
        runs = runs_by_key[experiment.key]
        runs_with_seeds += [run for run in runs if requested_seeds & set(run.seeds)]
    return runs_with_seeds


def _engine_of_begun_work(
    chosen: Engine, saved_batches: Sequence[SavedBatch]
) -> Engine:
    """The engine to go on with: that of begun work if it can be used, else ``chosen``.

    With the same engine, the seeds that are left get the same bits as without an
    interruption. Where the compiler failed for a batch, the work goes on without it.

    Args:
        chosen: the engine (device, type, compiled or not) for new work.
        saved_batches: the seed batches with files.
    """
    usable = [
        saved_batch.engine
        for saved_batch in saved_batches
        if saved_batch.engine.kind == chosen.kind
        and saved_batch.engine.dtype == chosen.dtype
    ]
    if not usable:
        return chosen
    # engines without a compiler come first, as False comes before True
    begun = min(usable, key=lambda engine: engine.compiled)
    # another worker has a device of its own
    return replace(begun, device=chosen.device)


def is_candidate(config: TrainConfig, run: RunResult) -> bool:
    """Whether a run has one of several rates or decays that validation chooses from."""
    has_candidates = len(config.rates) * len(config.weight_decay) > 1
    if config.select != "val" or not has_candidates:
        return False
    # a head that is fitted at once has neither rate nor decay
    if run.fit:
        return False
    # without tuning seeds, the reporting seeds train all candidates
    has_tuning_seeds = config.resolved_tune_seeds is not None
    return run.tuning_only or not has_tuning_seeds


def training_summary(
    config: TrainConfig, runs: Sequence[RunResult], published_paths: Collection[Path]
) -> list[str]:
    """The lines that a training ends with.

    They name the settings that validation chose for every decoder over all folds, and
    summarise its runs. Candidates that lost get no accuracy: a reader of all test
    accuracies would choose by them.

    Args:
        config: of the training.
        runs: all runs of the training.
        published_paths: runs that were shown already, when they finished.
    """
    choice = choose_candidates(runs, config.resolved_tune_seeds)
    tuned = [run for run in choice.runs if run.key in choice.tunings]

    # name decoders by the settings in which they differ
    differing = differing_settings([run.settings for run in tuned])

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


def next_commands(config: TrainConfig, runs: Sequence[RunResult]) -> list[str]:
    """Lines that suggest the next command after a training."""
    by_layers = len(config.layers) > 1 or EACH in config.layers
    pairs = " --pairs layers" if by_layers else ""
    lines = [f"next: gaam report {shlex.quote(shown_path(config.runs))}{pairs}"]

    # a small data set gives more test rows by cross-validation
    rows = runs[0].cache.rows if runs else {}
    train_rows = rows.get(config.train_split, 0)
    test_rows = rows.get(config.test_split, 0)
    is_small = 0 < test_rows < train_rows < FEW_ROWS
    takes_folds = config.train_rows == (None,) and config.val_split is None
    if is_small and not config.folds and takes_folds:
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
    # of recipes without any finished seed, a run by the reason of its failure
    failed_runs: list[RunResult] = []
    reasons: list[str] = []
    for key in dict.fromkeys(run.key for run in runs):
        run_by_seed = first_run_by_seed(run for run in runs if run.key == key)
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
            failed_runs.append(run)
            reasons.append(f"{run.title}: {reason}")
            continue
        count = f"{len(failed)} of {len(requested)} seeds failed"
        warnings.warn(
            f"{run.title}: {count} (seed {seed}: {reason})", GaamWarning, stacklevel=2
        )
    if failed_runs:
        raise NumericsError(
            f"every seed failed of {'; '.join(reasons)}",
            where=", ".join(str(run.path) for run in failed_runs),
            hint="a smaller --lr, or --set clip-grad-norm=1",
        )
