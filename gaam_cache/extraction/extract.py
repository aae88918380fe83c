"""The single pass: rows -> encoder -> shards, by this process or by workers.

Shards are made one after the other: the next is tokenised and the last is written beside the
encoder, each in a thread of its own and never more than one ahead, so that memory does not grow
with the rows. Any number of workers may do so on one cache: each announces what it begins.
"""

import math
import os
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from gaam_cache.common import devices
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import ExtractConfig, without_workers
from gaam_cache.extraction.behaviour import check_behaviour, warn_of_contradiction
from gaam_cache.extraction.job import (
    CheckedRows,
    Job,
    RowArrays,
    discard_broken,
    make_plan,
    prepare_job,
    read_rows,
    warn,
)
from gaam_cache.extraction.states import Encoded, PreparedRows, StateExtractor
from gaam_cache.extraction.summary import ExtractionStats, ExtractSummary
from gaam_cache.sources.base import find_source, truncation
from gaam_cache.store.files import check_writable, fingerprint
from gaam_cache.store.plan import (
    PLAN_FILE,
    Plan,
    ShardSpec,
    adopt_plan,
    read_plan,
    write_plan,
)
from gaam_cache.store.shard import (
    check_no_others,
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
    warning_once,
)
from gaam_cache.workers.leases import LEASE_FOLDER, Holder, Lease, Leases
from gaam_cache.workers.ranks import Rank, device_of, find_rank

TELL_SECONDS = 0.2  # between two words of a worker on how far it is
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = (
    0.02,
    1.0,
)  # between two looks at what others make


def extract(
    config: ExtractConfig, *, progress: ReportProgress | None = None
) -> ExtractSummary:
    """Build a cache, or complete one.

    A shard that has its receipt is never made again: an interrupted extraction goes on where it
    stopped and ends with the same bytes. Where this process is one of several that somebody else
    started (see ``find_rank``), it returns when others are at work on all that is left.

    >>> config = gaam_cache.ExtractConfig(encoder="tfidf", out="words")
    >>> gaam_cache.extract(config).num_layers
    1

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        GaamError: an argument or a row cannot be used, the hub or the file system refused, or a
            state cannot be stored or is not that of its text alone (NumericsError).

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a class, or more
            than 1% of the rows are cut; or a worker died.
    """
    config = find_source(config.dataset).settled(config)
    report, rank = progress or no_progress, find_rank(config.rank)
    check_writable(config.out, option="--out")
    if not config.alone and _rows_missing(config):  # else workers would look, and end
        summary = _by_engine(config, rank, report)
    elif rank is None:
        summary = make_missing(config, report, ExtractionStats())
    else:
        devices.share_machine(rank.workers_on_machine)
        config = replace(config, device=device_of(rank, config.device))
        summary = make_missing(
            config, report, ExtractionStats(), start=rank.start, waits=False
        )
    made, cut = summary.rows_made, summary.truncated
    warn(truncation(made, cut, summary.max_length, summary.unit))
    warn(
        summary.doubts(
            noun=summary.noun,
            max_length=summary.max_length,
            causal=bool(summary.acts_causal),
            storage_dtype=summary.storage_dtype,
        )
    )
    return summary


def _by_engine(
    config: ExtractConfig, rank: Rank | None, report: ReportProgress
) -> ExtractSummary:
    """Let the workers of an engine build a cache; rows are read here, once."""
    engine = load_engine(config)
    engine.check(config.device, config)
    checked = read_rows(config, report)
    prepare_folder(config.out)
    total, tokens = sum(map(len, checked.rows.values())), 0
    done = total - int(min(total, _rows_missing(config)))
    began, at_work = time.perf_counter(), set[int]()

    def hear(worker: int, kind: str, value: Any) -> None:
        nonlocal done, tokens
        if kind == "waiting":
            report(0, 0, value)
        elif kind == "progress":
            rows, more_tokens, text = value
            at_work.add(worker)
            done, tokens = min(total, done + rows), tokens + more_tokens
            speed = tokens / (time.perf_counter() - began)
            many = f"workers: {len(at_work)}, {speed:,.0f} tokens/s"
            report(done, total, many if tokens else text)

    # a worker elsewhere reads the rows itself
    argument = (
        without_workers(config),
        checked if config.engine == "local" else None,
        rank,
    )
    task = Task(_work, argument, config.out, config.device)
    summaries: list[ExtractSummary] = engine.run(task, config, warning_once(hear))
    # where one of them saw that nothing is left, nothing is
    summary, *others = sorted(summaries, key=lambda one: one.missing)
    for other in others:
        summary.add(other)
    summary.workers, summary.seconds = len(summaries), time.perf_counter() - began
    return summary


def _rows_missing(config: ExtractConfig) -> float:
    """Rows of the shards that a cache lacks; infinite where it has no plan yet."""
    if not os.path.lexists(config.out / PLAN_FILE):  # a link to nothing is no new cache
        return math.inf
    plan = read_plan(config.out)
    missing = set(missing_shards(config.out, plan))
    return sum(
        shard.stop - shard.start for shard in plan.shards() if shard.name in missing
    )


def _work(
    argument: tuple[ExtractConfig, CheckedRows | None, Rank | None],
    place: Worker,
    tell: Send,
) -> ExtractSummary:
    """Be one worker: make shards until none is missing."""
    config, checked, rank = argument
    tally, told, last = ExtractionStats(), (0, 0), 0.0

    def report(done: int, total: int, text: str) -> None:
        nonlocal told, last
        if (now := time.monotonic()) - last >= TELL_SECONDS:
            new = tally.rows_made, tally.tokens
            tell("progress", (new[0] - told[0], new[1] - told[1], text))
            told, last = new, now

    start = ((rank.start if rank else 0.0) + place.number / place.total) % 1
    config = replace(config, device=place.device)
    summary = make_missing(
        config, report, tally, checked=checked, start=start, waits=rank is None
    )
    last = 0.0
    report(0, 0, "")
    return summary


def make_missing(
    config: ExtractConfig,
    report: ReportProgress,
    tally: ExtractionStats,
    *,
    checked: CheckedRows | None = None,
    start: float | None = None,
    waits: bool = True,
) -> ExtractSummary:
    """Make the shards that a cache lacks; the one way, for whoever is alone or one of several.

    ``start`` is where in the order of work to begin, in [0, 1); None: at the first shard of a cache
    that we began, else anywhere. It ``waits`` until every shard is there, whoever makes it, else
    until others are at work on all that is left.
    """
    job = prepare_job(config, report, checked=checked)
    out, plan = config.out, None
    if os.path.lexists(out / PLAN_FILE):
        plan = adopt_plan(out, job.fields, job.provenance)
        broken = discard_broken(out, plan)
        warn(f"{name} is made again: {why}" for name, why in broken.items())
    else:
        check_no_others(out, fingerprint(job.fields))
    if plan is None or missing_shards(
        out, plan
    ):  # a complete cache costs no model load
        prepare_folder(out)
        _load(job, report)
        warn_of_contradiction(job.encoder)
        began_it = False
        if plan is None:  # what is written now was measured on the loaded encoder
            ours = make_plan(job)
            plan = write_plan(out, ours)
            began_it = plan is ours
        if not began_it:
            check_behaviour(job.encoder, plan)
        start = 0.0 if start is None and began_it else start
    missing = set(missing_shards(out, plan))
    todo, left = [shard for shard in plan.shards() if shard.name in missing], None
    if todo:
        # few are to want the same
        first = (
            secrets.randbelow(len(todo)) if start is None else int(start * len(todo))
        )
        began = time.perf_counter()
        left = ShardWorker(job, plan, tally, todo[first:] + todo[:first]).make(
            report, waits=waits
        )
        tally.seconds = time.perf_counter() - began
    if left is None:
        shutil.rmtree(out / LEASE_FOLDER, ignore_errors=True)
        remove_locks(out)
    lacking = 0 if left is None else len(missing_shards(out, plan))
    return ExtractSummary.of(job, plan, tally, missing=lacking, by=left)


def _load(job: Job, report: ReportProgress) -> None:
    """Load the encoder for the rows of an extraction."""
    total = sum(map(len, job.rows.values()))
    report(0, total, "loading the encoder")
    longest = job.encoder.longest_of(
        row for part in job.rows.values() for row in part.inputs
    )
    job.encoder.load_for(longest, tell=lambda text: report(0, total, text))


class Work(NamedTuple):
    """A shard that is to be made."""

    shard: ShardSpec
    lease: Lease
    piece: PreparedRows


class ShardWorker:
    """Makes shards that lack a receipt, of which others may make some meanwhile."""

    def __init__(
        self, job: Job, plan: Plan, tally: ExtractionStats, todo: Sequence[ShardSpec]
    ) -> None:
        self._job, self._plan, self._tally, self._out = job, plan, tally, job.config.out
        self._row_arrays = RowArrays(plan, job.rows)
        self._states = StateExtractor(job.encoder, plan, job.config.batch_tokens, tally)
        self._leases, self._holder = Leases(self._out / LEASE_FOLDER), Holder()
        self._left = deque(todo)
        self._lock = threading.Lock()
        self._rows_left = sum(shard.stop - shard.start for shard in todo)
        """Of the shards that are neither encoded by us nor made by others."""

    def make(self, report: ReportProgress, *, waits: bool) -> str | None:
        """Make what nobody else makes; who makes what is left, None where others have finished."""
        total, began = sum(map(len, self._job.rows.values())), time.perf_counter()
        tally, unit = self._tally, self._job.encoder.unit
        with (
            self._leases,
            ThreadPoolExecutor(1, "tokenise") as reader,
            ThreadPoolExecutor(1, "write") as writer,
        ):
            ahead: Future[Work | None] | None = None
            written: Future[None] | None = None
            pause = SHORTEST_PAUSE_SECONDS
            while self._rows_left or ahead is not None:
                work = (ahead or reader.submit(self.prepare)).result()
                ahead = None
                if work is None:
                    # whether all that is left is held by those who were seen to be alive
                    names = {shard.name for shard in self._left}
                    if self._rows_left and not waits and names <= self._leases.alive():
                        break
                    if self._rows_left:
                        waiting = f"waiting for {self._left_in_words()}"
                        report(total - self._rows_left, total, waiting)
                        time.sleep(pause)
                        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                    continue
                pause = SHORTEST_PAUSE_SECONDS

                def tick(
                    rows: int, work: Work = work, last: Future[None] | None = written
                ) -> None:
                    nonlocal ahead
                    if last is not None and last.done():
                        last.result()  # a disk that refuses: not after another shard, but now
                    if ahead is None and 2 * rows >= len(work.piece.inputs.lengths):
                        # not sooner: what we hoard, another worker might begin
                        ahead = reader.submit(self.prepare)
                    speed = tally.tokens / max(time.perf_counter() - began, 1e-9)
                    text = f"{speed:,.0f} {unit}/s, {tally.padding_share:.1%} padding"
                    report(total - self._rows_left + rows, total, text)

                encoded = self._states.encode(work.piece, tick)
                self._finish(work.shard)
                if written is not None:
                    written.result()
                written = writer.submit(self.write, work, encoded)
            if written is not None:
                written.result()
        # not before all of ours is written: of several that leave, the last sees
        self._left = deque(shard for shard in self._left if not self._exists(shard))
        return self._left_in_words() if self._left else None

    def prepare(self) -> Work | None:
        """The next shard that nobody makes, its rows ready; None where others make what is left."""
        for _ in range(len(self._left)):
            shard = self._left.popleft()
            if self._exists(shard):
                self._finish(shard)
                continue
            lease = self._leases.take(shard.name)
            if isinstance(lease, Holder):
                self._holder = lease
                self._left.append(shard)
            elif self._exists(shard):  # finished a moment before
                lease.release()
                self._finish(shard)
            else:
                part = self._job.rows[shard.split]
                rows = replace(part, inputs=part.inputs[shard.start : shard.stop])
                piece = self._states.prepare(
                    rows.inputs, rows.essences(), origin=part.origin, first=shard.start
                )
                return Work(shard, lease, piece)
        return None

    def write(self, work: Work, encoded: Encoded) -> None:
        """Check, prove and publish a shard."""
        self._states.wait()
        start = time.perf_counter()
        plan, shard = self._plan, work.shard
        arrays = {
            embeddings_key(plan, name): (plan.storage_dtype, states)
            for name, states in self._states.states(encoded).items()
        }
        arrays |= self._row_arrays.of(shard, work.piece.inputs.lengths)
        truncated = sum(work.piece.inputs.truncated)
        written, ours = write_shard(self._out, plan, shard, arrays, truncated=truncated)
        self._tally.bytes += written
        self._tally.shards_made += ours
        self._tally.write_seconds += time.perf_counter() - start
        work.lease.release()

    def _exists(self, shard: ShardSpec) -> bool:
        return receipt_path(self._out, shard.name).exists()

    def _finish(self, shard: ShardSpec) -> None:
        with self._lock:  # the next is taken in a thread of its own
            self._rows_left -= shard.stop - shard.start

    def _left_in_words(self) -> str:
        count = len(self._left)
        what = (
            f"{count:,} shards that others make"
            if count > 1
            else "a shard that another makes"
        )
        return f"{what} ({self._holder.in_words()})"
