"""The single pass: rows -> encoder -> shards.

While the encoder works on one shard, the next is tokenised and the last one is written, each in a
thread of its own and never more than one ahead, so that memory does not grow with the rows. Any
number of extractors may work on one cache: each announces what it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.engines.lease import Lease, Leases
from gaam_cache.engines.undone import LEASE_FOLDER, Undone, order_of_work
from gaam_cache.extraction.job import make_plan, prepare_job, warn
from gaam_cache.extraction.repair import discard_broken
from gaam_cache.extraction.summary import ExtractSummary
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.worker import EncodedShard, ShardWorker, Unstorable
from gaam_cache.format.layout import missing_shards
from gaam_cache.format.plan import PLAN_FILE, Plan, ShardSpec, adopt_plan, write_plan
from gaam_cache.format.receipt import SHARD_FOLDER
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.shard import prepare_folder
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.terminal.progress import Report, silent

T = TypeVar("T")
SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others make."""


def extract(config: ExtractConfig, *, progress: Report | None = None) -> ExtractSummary:
    """Build a cache, or complete one.

    Rows are encoded shard by shard; a shard that has its receipt is never made again, so an
    interrupted extraction goes on where it stopped and ends with the same bytes.

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: an argument is wrong, or the folder holds another cache.
        DataError: a row cannot be used.
        NumericsError: a state that the storage type cannot hold, or that is not that of its text
            alone.
        HubError: the hub cannot be reached.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a class, or more
            than 1% of the rows are cut.
    """
    report = progress or silent
    job = prepare_job(config, report)
    encoder, rows = job.encoder, job.rows
    plan = None
    with storage_errors(config.out / PLAN_FILE):
        there = (config.out / PLAN_FILE).exists()
    if there:
        plan = adopt_plan(config.out, job.fields)
        broken = _in_thread(discard_broken, config.out, plan)
        warn([f"{name} is made again: {why}" for name, why in broken.items()], stacklevel=3)
        if not missing_shards(config.out, plan):  # a complete cache costs no model load
            Leases(config.out / LEASE_FOLDER).clear({shard.name for shard in plan.shards()})
            return _summary(config, plan, encoder, Tally())
    _in_thread(prepare_folder, config.out)
    total = sum(len(part) for part in rows.values())
    report(0, total, "loading the encoder")
    encoder.load()
    ours = plan is None
    if plan is None:  # what is written now was measured on the loaded encoder
        planned = make_plan(config, job)
        plan = _in_thread(write_plan, config.out, planned)
        ours = plan is planned
    with storage_errors(config.out / SHARD_FOLDER):
        missing = set(missing_shards(config.out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    todo = order_of_work(todo, alone=ours)
    if not todo:
        Leases(config.out / LEASE_FOLDER).clear({shard.name for shard in plan.shards()})
        return _summary(config, plan, encoder, Tally())
    worker = ShardWorker(config, plan, encoder, rows)
    start = time.perf_counter()
    try:
        _run(worker, todo, config.out / LEASE_FOLDER, total, report)
    except Unstorable as error:
        raise worker.explain(error) from None
    worker.tally.seconds = time.perf_counter() - start
    tally = worker.tally
    warn(row_checks.truncation(tally.rows, tally.truncated, encoder.max_length), stacklevel=3)
    return _summary(config, plan, encoder, worker.tally)


def _summary(config: ExtractConfig, plan: Plan, encoder: Encoder, tally: Tally) -> ExtractSummary:
    return ExtractSummary(
        path=str(config.out),
        fingerprint=plan.fingerprint,
        encoder=encoder.label,
        dtype=encoder.dtype,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        rows=plan.rows,
        shards=sum(1 for _ in plan.shards()),
        shards_made=tally.shards,
        rows_made=tally.rows,
        tokens=tally.tokens,
        truncated=tally.truncated,
        max_length=encoder.max_length,
        padding_share=tally.padding_share,
        batching=tally.batching or plan.batching,
        batching_cost=tally.batching_cost,
        leak=encoder.leak,
        proven=tally.proven,
        deviation=tally.deviation,
        seconds=tally.seconds,
        write_seconds=tally.write_seconds,
        bytes=tally.bytes,
        smaller_batches=tally.smaller_batches,
    )


def _in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call it where no KeyboardInterrupt can cut it off half-way; those reach the main thread."""
    with ThreadPoolExecutor(1, "write") as writer:
        return writer.submit(function, *arguments).result()


class _Work(NamedTuple):
    shard: ShardSpec
    lease: Lease
    inputs: Inputs


def _run(
    worker: ShardWorker, todo: list[ShardSpec], folder: Path, total: int, report: Report
) -> None:
    """Make what nobody else makes until every shard is there."""
    with (
        Leases(folder) as leases,
        ThreadPoolExecutor(1, "tokenise") as reader,
        ThreadPoolExecutor(1, "write") as writer,
    ):
        undone = Undone(todo, leases, worker.exists)
        ahead: Future[_Work | None] | None = None
        written: Future[None] | None = None
        pause = SHORTEST_PAUSE_SECONDS

        def prepare() -> _Work | None:
            taken = undone.take()
            return _Work(*taken, worker.prepare(taken[0])) if taken else None

        def write(work: _Work, states: EncodedShard, started: float) -> None:
            worker.write(work.shard, work.inputs, states)
            work.lease.done()
            leases.expect(time.monotonic() - started)

        while undone.rows or ahead is not None:
            work = (ahead or reader.submit(prepare)).result()
            ahead = None
            if work is None and undone.rows:
                report(total - undone.rows, total, undone.in_words())
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if work is None or not undone.confirm(work.shard, work.lease):
                continue
            pause = SHORTEST_PAUSE_SECONDS

            def tick(rows: int, work: _Work = work, last: Future[None] | None = written) -> None:
                nonlocal ahead
                if last is not None and last.done():
                    last.result()  # a disk that refuses: not after another shard, but now
                if ahead is None and 2 * rows >= len(work.inputs.lengths):
                    # not sooner: what we hoard, another worker might begin
                    ahead = reader.submit(prepare)
                report(total - undone.rows + rows, total, worker.speed())

            started = time.monotonic()
            states = worker.encode(work.shard, work.inputs, tick)
            undone.finish(work.shard)
            if written is not None:
                written.result()
            written = writer.submit(write, work, states, started)
        if written is not None:
            written.result()
    leases.clear({shard.name for shard in todo})
