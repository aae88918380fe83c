"""Shards one after the other: the next is tokenised and the last is written beside the encoder.

Each in a thread of its own and never more than one ahead, so that memory does not grow with the
rows. Any number of workers may do so on one cache: each announces what it begins.
"""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gaam_cache.engines._claims import Claim, Claims
from gaam_cache.extraction.job import Job, make_plan, warn
from gaam_cache.extraction.shards import CLAIM_FOLDER, RowArrays, Undone, discard_broken
from gaam_cache.extraction.states import Encoded, Piece, StateMaker
from gaam_cache.extraction.summary import Tally
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.files import storage_errors
from gaam_cache.store.plan import (
    PLAN_FILE,
    SHARD_FOLDER,
    Plan,
    ShardSpec,
    adopt_plan,
    write_plan,
)
from gaam_cache.store.shard import (
    embeddings_key,
    missing_shards,
    prepare_folder,
    receipt_path,
    write_shard,
)
from gaam_cache.terminal import WRITER, Report, in_thread

SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others make."""


class Work(NamedTuple):
    """A shard that is to be made."""

    shard: ShardSpec
    claim: Claim
    piece: Piece


class ShardMaker:
    """Makes the shards of a plan: prepares, encodes (``states``), writes; each in its thread."""

    def __init__(self, job: Job, plan: Plan, tally: Tally) -> None:
        self.tally = tally
        self._job, self._plan, self._out = job, plan, Path(job.config.out)
        self._row_arrays = RowArrays(plan, job.rows)
        self.states = StateMaker(job.encoder, Encoding.of(plan), job.config.batch_tokens, tally)

    def exists(self, shard: ShardSpec) -> bool:
        """Whether the shard has its receipt by now."""
        return receipt_path(self._out, shard.name).exists()

    def prepare(self, shard: ShardSpec, claim: Claim) -> Work:
        """Make the rows of a shard ready; raises as ``StateMaker.prepare``."""
        part = self._job.rows[shard.split]
        rows = part.inputs[shard.start : shard.stop]
        piece = self.states.prepare(rows, origin=part.origin, first=shard.start)
        return Work(shard, claim, piece)

    def write(self, work: Work, encoded: Encoded) -> None:
        """Check, prove and publish a shard.

        Raises:
            NumericsError: a state that the storage type cannot hold, or that is not that of its
                text alone.
            StorageError: the file system refused.
        """
        self.states.wait()
        start = time.perf_counter()
        plan, shard = self._plan, work.shard
        arrays = {
            embeddings_key(plan, name): (plan.storage_dtype, states)
            for name, states in self.states.states(encoded).items()
        }
        arrays |= self._row_arrays.of(shard, work.piece.inputs.lengths)
        truncated = sum(work.piece.inputs.truncated)
        written, ours = write_shard(self._out, plan, shard, arrays, truncated=truncated)
        self.tally.bytes += written
        self.tally.shards_made += ours
        self.tally.write_seconds += time.perf_counter() - start
        work.claim.done()


def make_missing(
    job: Job, report: Report, tally: Tally, *, start: float | None = None, waits: bool = True
) -> tuple[Plan, str | None]:
    """Make the shards that a cache lacks; the one way, for whoever is alone or one of several.

    Args:
        job: of the extraction.
        report: told (rows done, rows in all, what is going on).
        tally: counts what is done.
        start: where in the order of work to begin, in [0, 1); None: at the first shard of a cache
            that we began, else anywhere.
        waits: until every shard is there, whoever makes it; else until others are at work on all
            that is left.

    Returns:
        The plan, and who makes what is left; None where nothing is.

    Raises:
        ConfigError: the folder holds another cache.
        GaamError: as ``ShardMaker``.
    """
    out, encoder, plan = job.config.out, job.encoder, None
    with storage_errors(out / PLAN_FILE):
        there = (out / PLAN_FILE).exists()
    if there:
        plan = adopt_plan(out, job.fields, job.provenance)
        broken = in_thread(discard_broken, out, plan)
        warn(f"{name} is made again: {why}" for name, why in broken.items())
    if plan is None or missing_shards(out, plan):  # a complete cache costs no model load
        in_thread(prepare_folder, out)
        report(0, sum(map(len, job.rows.values())), "loading the encoder")
        encoder.load()
    if plan is None:  # what is written now was measured on the loaded encoder
        ours = make_plan(job)
        plan = in_thread(write_plan, out, ours)
        start = 0.0 if start is None and plan is ours else start
    with storage_errors(out / SHARD_FOLDER):
        missing = set(missing_shards(out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    left = None
    if todo:
        # few are to want the same
        first = secrets.randbelow(len(todo)) if start is None else int(start * len(todo))
        began = time.perf_counter()
        left = make_shards(
            ShardMaker(job, plan, tally), todo[first:] + todo[:first], job, report, waits
        )
        tally.seconds = time.perf_counter() - began
    if left is None:
        Claims(out / CLAIM_FOLDER).clear()
    return plan, left


def make_shards(
    maker: ShardMaker, todo: list[ShardSpec], job: Job, report: Report, waits: bool
) -> str | None:
    """Make what nobody else makes; who makes what is left."""
    total, began, tally = sum(map(len, job.rows.values())), time.perf_counter(), maker.tally
    with (
        Claims(job.config.out / CLAIM_FOLDER) as claims,
        ThreadPoolExecutor(1, "tokenise") as reader,
        ThreadPoolExecutor(1, WRITER) as writer,
    ):
        undone = Undone(todo, claims, maker.exists)
        ahead: Future[Work | None] | None = None
        written: Future[None] | None = None
        pause = SHORTEST_PAUSE_SECONDS

        def prepare() -> Work | None:
            taken = undone.take()
            return maker.prepare(*taken) if taken else None

        while undone.rows or ahead is not None:
            work = (ahead or reader.submit(prepare)).result()
            ahead = None
            if work is None:
                if undone.rows and not waits and undone.others_live():
                    break
                if undone.rows:
                    report(total - undone.rows, total, f"waiting for {undone.in_words()}")
                    time.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = SHORTEST_PAUSE_SECONDS

            def tick(rows: int, work: Work = work, last: Future[None] | None = written) -> None:
                nonlocal ahead
                if last is not None and last.done():
                    last.result()  # a disk that refuses: not after another shard, but now
                if ahead is None and 2 * rows >= work.piece.count:
                    # not sooner: what we hoard, another worker might begin
                    ahead = reader.submit(prepare)
                speed = tally.tokens / max(time.perf_counter() - began, 1e-9)
                text = f"{speed:,.0f} {job.encoder.unit}/s, {tally.padding_share:.1%} padding"
                report(total - undone.rows + rows, total, text)

            encoded = maker.states.encode(work.piece, tick)
            undone.finish(work.shard)
            if written is not None:
                written.result()
            written = writer.submit(maker.write, work, encoded)
        if written is not None:
            written.result()
    return undone.left()  # not before all of ours is written: of several that leave, the last sees
