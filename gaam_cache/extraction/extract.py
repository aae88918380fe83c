"""Extraction: rows -> encoder -> shards, by this process or by workers.

A process makes one shard after the other. While the encoder works on a shard, one
thread tokenises the next shard and another writes the last one. Neither is more than
one shard away, so the memory does not grow with the rows. Any number of workers may do
this on one cache; a lease announces each shard that is begun.
"""

import logging
import os
import secrets
import shutil
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from gaam_cache.common import devices
from gaam_cache.common.errors import GaamNote
from gaam_cache.common.paths import shown_path
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress, no_progress
from gaam_cache.config import ExtractConfig, without_workers
from gaam_cache.encoders.base import refuse_unused_settings
from gaam_cache.extraction.behaviour import check_behaviour, warn_of_contradiction
from gaam_cache.extraction.copied import copy_states
from gaam_cache.extraction.encoded import Encoded, PreparedRows
from gaam_cache.extraction.job import (
    CheckedRows,
    Job,
    RowArrays,
    make_plan,
    prepare_job,
    read_rows,
    shards_to_make,
    warn,
)
from gaam_cache.extraction.states import StateExtractor
from gaam_cache.extraction.summary import ExtractionStats, ExtractSummary
from gaam_cache.sources.base import find_source
from gaam_cache.sources.rows.checks import truncation_warning
from gaam_cache.store.files import check_writable
from gaam_cache.store.plan import (
    PLAN_FILE,
    Plan,
    ShardSpec,
    adopt_plan,
    read_plan,
    rows_per_shard,
    write_plan,
)
from gaam_cache.store.shard import (
    TypedArray,
    check_no_other_cache,
    embeddings_key,
    missing_shards,
    prepare_folder,
    receipt_path,
    remove_locks,
    write_shard,
)
from gaam_cache.workers.engines.base import (
    Send,
    Task,
    Worker,
    load_engine,
    showing_each_warning_once,
)
from gaam_cache.workers.leases import LEASE_FOLDER, Holder, Lease, Leases
from gaam_cache.workers.ranks import Rank, device_of, find_rank

logger = logging.getLogger(__name__)
SEND_SECONDS = 0.2  # between two messages of a worker about its progress
SHORTEST_PAUSE_SECONDS = 0.02  # between two looks at the shards of other workers
LONGEST_PAUSE_SECONDS = 1.0


def extract(
    config: ExtractConfig, *, progress: ReportProgress | None = None
) -> ExtractSummary:
    """Build a cache, or complete one.

    A shard with a receipt is never made again. So an interrupted extraction goes on
    where it stopped and ends with the same bytes. A rank (see ``find_rank``) returns
    as soon as other ranks are making all missing shards.

    >>> config = gaam_cache.ExtractConfig(encoder="tfidf", out="words")
    >>> gaam_cache.extract(config).num_layers
    1

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        GaamError: an argument or a row cannot be used; the hub or the file system
            refused; a state cannot be stored, or is not that of the row alone
            (NumericsError).

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a
            class, more than 1% of the rows are cut, or a worker died.
    """
    # complete the settings whose defaults depend on the data set
    config = find_source(config.dataset).with_defaults(config)
    try:
        return _extract(config, progress)
    except KeyboardInterrupt:
        warnings.warn(_kept_in_words(config), GaamNote, stacklevel=2)
        raise


def _kept_in_words(config: ExtractConfig) -> str:
    """How many shards of a cache exist after an interruption."""
    if not os.path.lexists(config.out / PLAN_FILE):
        return "no shard is finished"
    plan = read_plan(config.out)
    num_kept = plan.num_shards - len(missing_shards(config.out, plan))
    return f"{num_kept:,} of {plan.num_shards:,} shards are finished"


def _extract(config: ExtractConfig, progress: ReportProgress | None) -> ExtractSummary:
    """Build a cache, or complete one, from a configuration with all its defaults."""
    report = progress or no_progress
    rank = find_rank(config.rank)
    check_writable(config.out, option="--out")

    # a complete cache needs no other workers
    if not config.has_single_local_worker and _count_missing_rows(config) != 0:
        summary = _extract_by_engine(config, rank, report)
    elif rank is None:
        summary = make_missing(config, report, ExtractionStats())
    else:
        # the user has started several such processes (ranks), each of which makes what
        # is left: this one does not wait for shards that others are making
        devices.set_workers_here(rank.workers_on_machine)
        config = replace(config, device=device_of(rank, config.device))
        summary = make_missing(
            config,
            report,
            ExtractionStats(),
            # every rank begins elsewhere in the list of missing shards
            start_fraction=rank.start_fraction,
            waits_for_others=False,
        )
    _warn_of_doubts(summary)
    return summary


def _warn_of_doubts(summary: ExtractSummary) -> None:
    """Warn of many rows that were cut, and of rows that seem to be unfit.

    Examples are rows of unknown tokens, and different rows with the same states.
    """
    lines = truncation_warning(
        summary.rows_made, summary.truncated, summary.max_length, summary.unit
    )
    lines += summary.doubts(
        noun=summary.noun,
        max_length=summary.max_length,
        causal=bool(summary.acts_causal),
        storage_dtype=summary.storage_dtype,
    )
    warn(lines)


class _WorkerArgument(NamedTuple):
    """The argument of ``_run_worker``."""

    config: ExtractConfig  # without workers
    checked_rows: CheckedRows | None  # None if the worker must read the rows itself
    rank: Rank | None  # of the process that started the workers; None if it has none


def _extract_by_engine(
    config: ExtractConfig, rank: Rank | None, report: ReportProgress
) -> ExtractSummary:
    """Start several workers that make the missing shards, and summarise what they did.

    Args:
        config: the extraction; its engine decides how workers are started.
        rank: number of this process, if the user has started several such processes.
        report: called with (rows done, rows in all, what is going on).
    """
    engine = load_engine(config)
    engine.check(config.device, config)
    checked_rows = read_rows(config, report)
    prepare_folder(config.out)
    num_rows = sum(map(len, checked_rows.rows.values()))
    num_missing = _count_missing_rows(config)
    # a new cache lacks all rows
    if num_missing is None:
        num_missing = num_rows
    progress = _SumOfProgress(
        report, num_rows=num_rows, num_done=num_rows - num_missing
    )

    # workers on other machines read the rows themselves
    rows_for_workers = checked_rows if config.engine == "local" else None
    # a worker starts no workers itself
    argument = _WorkerArgument(without_workers(config), rows_for_workers, rank)
    task = Task(_run_worker, argument, config.out, config.device)
    started = time.perf_counter()
    summaries: list[ExtractSummary] = engine.run(
        task, config, showing_each_warning_once(progress.receive)
    )

    # Every worker counts the missing shards when it ends. The last one finds fewest,
    # and its summary holds. All other counts are added up.
    summary, *other_summaries = sorted(summaries, key=lambda summary: summary.missing)
    for other_summary in other_summaries:
        summary.add(other_summary)
    summary.workers = len(summaries)
    summary.seconds = time.perf_counter() - started
    return summary


class _Progress(NamedTuple):
    """What a worker has done since its last message."""

    new_rows: int
    new_tokens: int
    text: str  # what is going on


class _SumOfProgress:
    """Adds up the progress of all workers and reports it."""

    def __init__(self, report: ReportProgress, *, num_rows: int, num_done: int) -> None:
        """Begin with ``num_done`` of ``num_rows`` rows, which earlier runs made."""
        self._report = report
        self._num_rows = num_rows
        self._num_done = num_done
        self._tokens = 0
        self._workers = set[int]()  # numbers of the workers that sent their progress
        self._started = time.perf_counter()

    def receive(self, worker: int, kind: str, value: Any) -> None:
        """Take a message of a worker, and report the progress of all.

        Args:
            worker: number of the worker.
            kind: 'waiting', or 'progress'; other messages are ignored.
            value: for 'waiting' a text; for 'progress' a ``_Progress``.
        """
        if kind == "waiting":
            # how much is done does not matter while nobody works
            self._report(0, UNKNOWN_TOTAL, value)
        elif kind == "progress":
            # the message is a tuple, whichever engine carries it
            progress = _Progress(*value)
            self._workers.add(worker)
            # a shard that two workers have made comes twice
            self._num_done = min(self._num_rows, self._num_done + progress.new_rows)
            self._tokens += progress.new_tokens
            text = progress.text
            if self._tokens:
                text = self._describe_speed()
            self._report(self._num_done, self._num_rows, text)

    def _describe_speed(self) -> str:
        """Number of the workers that sent their progress, and their joint speed."""
        speed = self._tokens / (time.perf_counter() - self._started)
        return f"workers: {len(self._workers)}, {speed:,.0f} tokens/s"


def _count_missing_rows(config: ExtractConfig) -> int | None:
    """Count the rows of the shards that a cache lacks.

    None if the cache is new: it has no plan, which would tell the number of its rows.
    """
    # lexists: a link to nothing is a damaged cache, not a new one
    if not os.path.lexists(config.out / PLAN_FILE):
        return None
    plan = read_plan(config.out)
    missing_names = set(missing_shards(config.out, plan))
    num_missing_rows = 0
    for shard in plan.shards():
        if shard.name in missing_names:
            num_missing_rows += shard.num_rows
    return num_missing_rows


def _run_worker(
    argument: _WorkerArgument, worker: Worker, send: Send
) -> ExtractSummary:
    """Make missing shards in the process of a worker.

    Args:
        argument: what to extract.
        worker: number and device of this worker.
        send: sends messages to the process that started the workers.
    """
    config, checked_rows, rank = argument
    stats = ExtractionStats()
    progress = _ProgressSender(send, stats)
    # Where in the list of missing shards this worker begins, as a fraction of the list.
    # All begin at different shards, also the workers that other ranks have started;
    # behind the end of the list comes its beginning.
    start_fraction = worker.number / worker.total
    if rank is not None:
        start_fraction = (rank.start_fraction + start_fraction) % 1
    summary = make_missing(
        replace(config, device=worker.device),
        progress.report,
        stats,
        checked_rows=checked_rows,
        start_fraction=start_fraction,
        # ranks do not wait for one another
        waits_for_others=rank is None,
    )
    # what was done since the last message, which came some time before the end
    progress.send_now("")
    return summary


class _ProgressSender:
    """Sends what a worker has done since its last message.

    ``stats`` are the counts of the worker, which grow while it works.
    """

    def __init__(self, send: Send, stats: ExtractionStats) -> None:
        self._send = send
        self._stats = stats
        self._sent_rows = 0
        self._sent_tokens = 0
        self._last_time = 0.0

    def report(self, done: int, total: int, text: str) -> None:
        """Send the progress, unless the last message is very recent.

        ``stats`` say what was done; ``done`` and ``total``, which every function for
        progress takes, are not used.
        """
        if time.monotonic() - self._last_time >= SEND_SECONDS:
            self.send_now(text)

    def send_now(self, text: str) -> None:
        """Send the rows and tokens since the last message, and a text."""
        rows = self._stats.rows_made
        tokens = self._stats.tokens
        progress = _Progress(
            new_rows=rows - self._sent_rows,
            new_tokens=tokens - self._sent_tokens,
            text=text,
        )
        self._send("progress", progress)
        self._sent_rows = rows
        self._sent_tokens = tokens
        self._last_time = time.monotonic()


def make_missing(
    config: ExtractConfig,
    report: ReportProgress,
    stats: ExtractionStats,
    *,
    checked_rows: CheckedRows | None = None,
    start_fraction: float | None = None,
    waits_for_others: bool = True,
) -> ExtractSummary:
    """Make the shards that a cache lacks, alone or as one of several workers.

    Args:
        config: the extraction; its settings of workers are not used.
        report: called with (rows done, rows in all, what is going on).
        stats: counts what this process does.
        checked_rows: the rows, if they were read before.
        start_fraction: where in the list of missing shards to begin, as a fraction in
            [0, 1). None stands for the first shard of a new cache, and a random one of
            an existing cache.
        waits_for_others: whether to return only when every shard exists, whoever makes
            it. If not, this returns as soon as other workers are making all missing
            shards.
    """
    job = prepare_job(config, report, checked_rows=checked_rows)
    refuse_unused_settings(job.encoder, config)
    if config.states_from is not None:
        copy_states(job, config.states_from, report, stats)  # none is missing then
    plan, shards, is_new = _plan_missing_shards(job, report)
    # not earlier: the states in the plan, with which the encoder was compared just now,
    # are those of plain layers
    if shards:
        job.encoder.compile_layers()
    # nobody else makes shards of a new cache yet: begin with the first
    if start_fraction is None and is_new:
        start_fraction = 0.0
    other_makers = _make_shards(
        job,
        plan,
        shards,
        report,
        stats,
        start_fraction=start_fraction,
        waits_for_others=waits_for_others,
    )
    num_missing = 0
    # no worker of a complete cache needs leases and locks any more
    if other_makers is None:
        shutil.rmtree(config.out / LEASE_FOLDER, ignore_errors=True)
        remove_locks(config.out)
    else:
        num_missing = len(missing_shards(config.out, plan))
    return ExtractSummary.of_job(
        job, plan, stats, missing=num_missing, made_by=other_makers
    )


class _MissingShards(NamedTuple):
    """What is left to make of a cache."""

    plan: Plan
    shards: list[ShardSpec]  # those that are missing
    is_new: bool  # whether this process has written the plan


def _plan_missing_shards(job: Job, report: ReportProgress) -> _MissingShards:
    """Find or write the plan of a cache; load the encoder if a shard is missing."""
    out = job.config.out
    plan = _existing_plan(job)
    if plan is None:
        prepare_folder(out)
        _load_encoder(job, report)
        plan, is_new = _agree_on_plan(job)
        # even now shards may exist: those of a plan whose file was lost, or of another
        # worker that has just written the same plan
        return _MissingShards(plan, shards_to_make(out, plan), is_new)

    shards = shards_to_make(out, plan)
    # a complete cache needs no loaded encoder
    if shards:
        prepare_folder(out)
        _load_encoder(job, report)
        check_behaviour(job.encoder, plan)
    return _MissingShards(plan, shards, is_new=False)


def _existing_plan(job: Job) -> Plan | None:
    """The plan of the cache in the folder of the job; None if there is none yet.

    Raises:
        ConfigError: the plan is that of another cache.
    """
    out = job.config.out
    # lexists: a link to nothing is a damaged cache, not a new one
    if not os.path.lexists(out / PLAN_FILE):
        return None
    # this reads the plan, and refuses it if it is that of another cache
    plan = adopt_plan(out, job.fields, job.dataset)
    requested = job.config.shard_rows
    if (
        requested is not None
        and rows_per_shard(plan.row_bytes, requested) != plan.shard_rows
    ):
        warn(
            [
                f"shard-rows={requested:,} has no effect: the cache in "
                f"'{shown_path(out)}' has shards of {plan.shard_rows:,} rows; "
                "choose another folder with --out"
            ]
        )
    return plan


def _load_encoder(job: Job, report: ReportProgress) -> None:
    """Load the encoder, and measure how it must run for the rows of an extraction."""
    total = job.num_rows
    report(0, total, "loading the encoder")
    inputs = chain.from_iterable(rows.inputs for rows in job.rows.values())
    longest = job.encoder.longest_of(inputs)
    job.encoder.load_for(longest, tell=lambda text: report(0, total, text))
    # the model may read from left to right although its configuration says otherwise
    warn_of_contradiction(job.encoder)


def _agree_on_plan(job: Job) -> tuple[Plan, bool]:
    """Write the plan of a new cache, or take that of a quicker worker.

    Args:
        job: the extraction, with its loaded encoder. The encoder must behave like that
            of the process that wrote the plan.

    Returns:
        The plan that all workers use, and whether this process has written it.

    Raises:
        ConfigError: the encoder behaves differently here.
        OutOfReachError: the folder has no plan, but shards of another cache.
    """
    own_plan = make_plan(job)
    # what was measured of the loaded encoder is part of the fingerprint, too
    check_no_other_cache(job.config.out, own_plan.fingerprint)
    # this returns the plan of another worker if that one was quicker
    plan = write_plan(job.config.out, own_plan)
    is_own = plan is own_plan
    if not is_own:
        check_behaviour(job.encoder, plan)
    return plan, is_own


def _make_shards(
    job: Job,
    plan: Plan,
    shards: list[ShardSpec],
    report: ReportProgress,
    stats: ExtractionStats,
    *,
    start_fraction: float | None,
    waits_for_others: bool,
) -> str | None:
    """Make those missing shards that no other worker makes, and count the seconds.

    Args:
        job: the extraction.
        plan: the plan of the cache.
        shards: the missing shards.
        report: called with (rows done, rows in all, what is going on).
        stats: the counts and the seconds of this call are added to them.
        start_fraction: where in the list of missing shards this worker begins, as a
            fraction in [0, 1); None for a random shard.
        waits_for_others: whether to wait for shards that other workers are making.

    Returns:
        A description of the workers that make the other shards; None if no shard is
        missing any more.
    """
    if not shards:
        return None

    # from the first shard of this worker to the last, and then those before it
    first_index = _first_index(len(shards), start_fraction)
    shards_in_order = shards[first_index:] + shards[:first_index]
    started = time.perf_counter()
    worker = ShardWorker(job, plan, stats, shards_in_order)
    other_makers = worker.make(report, waits_for_others=waits_for_others)
    stats.seconds += time.perf_counter() - started
    return other_makers


def _first_index(num_shards: int, start_fraction: float | None) -> int:
    """Index of the shard to begin with.

    Workers that begin at different shards rarely want the same one.

    Args:
        num_shards: number of the missing shards.
        start_fraction: where to begin, as a fraction of the list, in [0, 1); None for a
            random shard.
    """
    if start_fraction is None:
        return secrets.randbelow(num_shards)
    return int(start_fraction * num_shards)


class ShardTask(NamedTuple):
    """A shard that we have leased, and its rows, ready for the encoder."""

    shard: ShardSpec
    lease: Lease
    prepared: PreparedRows


class ShardWorker:
    """Makes shards that lack a receipt, while other workers may make some of them.

    A receipt is the small file that makes a shard exist. A lease is a file by which a
    worker announces that it makes a shard.

    Args:
        job: the extraction, with its loaded encoder.
        plan: of the cache.
        stats: counts what this worker does.
        shards: the shards that lack a receipt, in the order in which to make them.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        stats: ExtractionStats,
        shards: Sequence[ShardSpec],
    ) -> None:
        self._job = job
        self._plan = plan
        self._stats = stats
        self._out = job.config.out
        # makes what a shard holds beside its states: labels, numbers of rows, ...
        self._row_arrays = RowArrays(plan, job.rows)
        self._extractor = StateExtractor(
            job.encoder, plan, job.config.batch_tokens, stats
        )
        self._leases = Leases(self._out / LEASE_FOLDER)
        self._latest_holder = Holder()
        """The worker that held the last shard that we wanted and did not get."""
        self._shards_left = deque(shards)
        self._rows_left = sum(shard.num_rows for shard in shards)
        """Rows of shards that we have not encoded and that nobody else has finished."""
        self._lock = threading.Lock()  # guards ``_rows_left``
        self._started = time.perf_counter()
        self._next_task: Future[ShardTask | None] | None = None
        """The preparation of the next shard, in a thread; None if none has begun.

        A result of None means that no shard is free.
        """
        self._previous_write: Future[None] | None = None
        """The write of the previous shard, in a thread; None before the first."""

    def make(self, report: ReportProgress, *, waits_for_others: bool) -> str | None:
        """Make the shards that no other worker makes.

        Args:
            report: called with (rows done, rows in all, what is going on).
            waits_for_others: whether to wait for shards that other workers are making.

        Returns:
            A description of the workers that make the other shards; None if no shard
            is missing any more.
        """
        # the end of the block releases all leases, also after an error
        with (
            self._leases,
            ThreadPoolExecutor(1, "tokenise") as reader,
            ThreadPoolExecutor(1, "write") as writer,
        ):
            self._make_available(
                reader, writer, report, waits_for_others=waits_for_others
            )
            # wait until the last shard is written, and raise its error if it cannot be
            if self._previous_write is not None:
                self._previous_write.result()
        # look for missing shards only after the last one of this worker is published:
        # so the worker that ends last, whichever it is, sees that none is missing
        self._shards_left = deque(
            shard for shard in self._shards_left if not self._exists(shard)
        )
        if not self._shards_left:
            return None
        return self._describe_shards_left()

    def _make_available(
        self,
        reader: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
        report: ReportProgress,
        *,
        waits_for_others: bool,
    ) -> None:
        """Make shards until none is left.

        Args:
            reader: prepares the next shard while one is encoded.
            writer: writes the previous shard meanwhile.
            report: called with (rows done, rows in all, what is going on).
            waits_for_others: whether to wait for shards that other workers are making.
                If not, this returns as soon as they are making all shards that are
                left.
        """
        pause = SHORTEST_PAUSE_SECONDS
        while self._rows_left or self._next_task is not None:
            # the next shard may have been prepared already, see ``_make_shard``
            future = self._next_task or reader.submit(self.prepare)
            self._next_task = None
            task = future.result()
            if task is not None:
                self._make_shard(task, reader, writer, report)
                pause = SHORTEST_PAUSE_SECONDS
            # other workers hold all shards that are left; one of these workers may die
            # and leave its shard to us: look again after a pause, and each time later
            elif self._rows_left:
                if not waits_for_others and self._others_make_rest():
                    return
                done = self._job.num_rows - self._rows_left
                text = f"waiting for {self._describe_shards_left()}"
                report(done, self._job.num_rows, text)
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _others_make_rest(self) -> bool:
        """Whether other workers hold the leases of all shards that are left.

        Only workers that were seen at work count: a lease may be that of a dead worker.
        """
        names = {shard.name for shard in self._shards_left}
        return names <= self._leases.names_at_work()

    def _make_shard(
        self,
        task: ShardTask,
        reader: ThreadPoolExecutor,
        writer: ThreadPoolExecutor,
        report: ReportProgress,
    ) -> None:
        """Encode a shard, and hand it to ``writer``, which writes it meanwhile.

        In the second half of its rows, ``reader`` begins to prepare the next shard.
        """
        num_rows = len(task.prepared.inputs.lengths)

        def on_progress(encoded_rows: int) -> None:
            # the write of the previous shard may have failed, as on a full disk: this
            # raises its error at once
            if self._previous_write is not None and self._previous_write.done():
                self._previous_write.result()
            # not earlier: the lease of the next shard keeps other workers from it
            if self._next_task is None and 2 * encoded_rows >= num_rows:
                self._next_task = reader.submit(self.prepare)
            done = self._job.num_rows - self._rows_left + encoded_rows
            report(done, self._job.num_rows, self._describe_speed())

        encoded = self._extractor.encode(task.prepared, on_progress)
        self._count_as_done(task.shard)

        # one shard is written at a time: two would need the memory of both
        if self._previous_write is not None:
            self._previous_write.result()
        self._previous_write = writer.submit(self.write, task, encoded)

    def _describe_speed(self) -> str:
        """Tokens per second of this worker, and the share of padding."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        speed = self._stats.tokens / seconds
        unit = self._job.encoder.unit
        return f"{speed:,.0f} {unit}/s, {self._stats.padding_share:.1%} padding"

    def prepare(self) -> ShardTask | None:
        """Lease the next free shard and prepare its rows; None if none is free.

        Shards that other workers have finished meanwhile are taken off the queue.
        """
        # look at every shard in the queue once
        for _ in range(len(self._shards_left)):
            shard = self._shards_left.popleft()
            if self._exists(shard):
                self._count_as_done(shard)
                continue

            # a shard that another worker holds goes to the end of the queue
            lease = self._leases.take(shard.name)
            if isinstance(lease, Holder):
                self._latest_holder = lease
                self._shards_left.append(shard)
            elif self._exists(shard):
                # another worker finished the shard just before we took the lease
                lease.release()
                self._count_as_done(shard)
            else:
                return ShardTask(shard, lease, self._prepare_rows(shard))
        return None

    def _prepare_rows(self, shard: ShardSpec) -> PreparedRows:
        """Make the rows of a shard ready for the encoder: texts become tokens."""
        split_rows = self._job.rows[shard.split]
        rows = replace(split_rows, inputs=split_rows.inputs[shard.start : shard.stop])
        return self._extractor.prepare(
            rows.inputs,
            # rows with equal keys are copies: that they get equal states is no fault
            rows.copy_keys(),
            # messages name a row by its source and its number there
            origin=rows.origin,
            first_row=shard.start,
        )

    def write(self, task: ShardTask, encoded: Encoded) -> None:
        """Check the states of a shard, publish the shard, and release its lease.

        The check includes the proof: some rows were encoded again, each by itself, and
        their states are compared with those of their batches.
        """
        # the device may still compute and copy, which does not count as writing
        self._extractor.wait()
        started = time.perf_counter()
        plan = self._plan
        inputs = task.prepared.inputs

        # the order of the arrays is part of the bytes of a shard
        states = self._extractor.checked_states(encoded)
        arrays = {
            embeddings_key(plan, pooling): TypedArray(plan.storage_dtype, states_NLD)
            for pooling, states_NLD in states.items()
        }
        arrays |= self._row_arrays.arrays_of(task.shard, inputs.lengths)
        written = write_shard(
            self._out,
            plan,
            task.shard,
            arrays,
            truncated=sum(inputs.truncated),
        )
        # Another worker may publish the shard first. Then the bytes count, because they
        # were written, but the shard does not.
        self._stats.bytes += written.num_bytes
        self._stats.shards_made += written.is_published
        self._stats.write_seconds += time.perf_counter() - started
        logger.debug(
            "%s: %d bytes, published here: %s",
            task.shard.name,
            written.num_bytes,
            written.is_published,
        )
        task.lease.release()

    def _exists(self, shard: ShardSpec) -> bool:
        """Whether a shard is published, by whichever worker."""
        return receipt_path(self._out, shard.name).exists()

    def _count_as_done(self, shard: ShardSpec) -> None:
        """Take the rows of a shard off the rows that are left."""
        # the thread that prepares the next shard calls this, too
        with self._lock:
            self._rows_left -= shard.num_rows

    def _describe_shards_left(self) -> str:
        """Say how many shards other workers are making, and name one of the workers."""
        num_shards = len(self._shards_left)
        shards = f"{num_shards:,} shards"
        if num_shards == 1:
            shards = "a shard"
        return f"{shards} of other workers ({self._latest_holder.in_words()})"
