"""Shards one after the other: the next is tokenised and the last is written beside the encoder.

Each in a thread of its own and never more than one ahead, so that memory does not grow with the
rows. Any number of workers may do so on one cache: each announces what it begins.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from gaam_cache.config import ExtractConfig
from gaam_cache.engines._claims import CLAIM_FOLDER, Claim, Claims, Holder
from gaam_cache.extraction.job import (
    CheckedRows,
    Job,
    RowArrays,
    discard_broken,
    make_plan,
    prepare_job,
    warn,
)
from gaam_cache.extraction.states import Encoded, Piece, StateMaker
from gaam_cache.extraction.summary import ExtractSummary, Tally
from gaam_cache.store.plan import PLAN_FILE, Plan, ShardSpec, adopt_plan, write_plan
from gaam_cache.store.shard import (
    embeddings_key,
    missing_shards,
    prepare_folder,
    receipt_path,
    write_shard,
)
from gaam_cache.terminal import Report

SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0  # between two looks at what others make


def make_missing(
    config: ExtractConfig,
    report: Report,
    tally: Tally,
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
    out, encoder, plan = config.out, job.encoder, None
    if (out / PLAN_FILE).exists():
        plan = adopt_plan(out, job.fields, job.provenance)
        broken = discard_broken(out, plan)
        warn(f"{name} is made again: {why}" for name, why in broken.items())
    if plan is None or missing_shards(out, plan):  # a complete cache costs no model load
        prepare_folder(out)
        report(0, sum(map(len, job.rows.values())), "loading the encoder")
        encoder.load()
    if plan is None:  # what is written now was measured on the loaded encoder
        ours = make_plan(job)
        plan = write_plan(out, ours)
        start = 0.0 if start is None and plan is ours else start
    missing = set(missing_shards(out, plan))
    todo, left = [shard for shard in plan.shards() if shard.name in missing], None
    if todo:
        # few are to want the same
        first = secrets.randbelow(len(todo)) if start is None else int(start * len(todo))
        began = time.perf_counter()
        left = ShardMaker(job, plan, tally, todo[first:] + todo[:first]).make(report, waits=waits)
        tally.seconds = time.perf_counter() - began
    if left is None:
        shutil.rmtree(out / CLAIM_FOLDER, ignore_errors=True)
    lacking = 0 if left is None else len(missing_shards(out, plan))
    return ExtractSummary.of(job, plan, tally, missing=lacking, by=left)


class Work(NamedTuple):
    """A shard that is to be made."""

    shard: ShardSpec
    claim: Claim
    piece: Piece


class ShardMaker:
    """Makes shards that lack a receipt, of which others may make some meanwhile."""

    def __init__(self, job: Job, plan: Plan, tally: Tally, todo: Sequence[ShardSpec]) -> None:
        self._job, self._plan, self._tally, self._out = job, plan, tally, job.config.out
        self._row_arrays = RowArrays(plan, job.rows)
        self._states = StateMaker(job.encoder, plan, job.config.batch_tokens, tally)
        self._claims, self._holder = Claims(self._out / CLAIM_FOLDER), Holder()
        self._left = deque(todo)
        self._lock = threading.Lock()
        self._rows_left = sum(shard.stop - shard.start for shard in todo)
        """Of the shards that are neither encoded by us nor made by others."""

    def make(self, report: Report, *, waits: bool) -> str | None:
        """Make what nobody else makes; who makes what is left, None where others have finished."""
        total, began = sum(map(len, self._job.rows.values())), time.perf_counter()
        tally, unit = self._tally, self._job.encoder.unit
        with (
            self._claims,
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
                    if self._rows_left and not waits and names <= self._claims.alive():
                        break
                    if self._rows_left:
                        waiting = f"waiting for {self._left_in_words()}"
                        report(total - self._rows_left, total, waiting)
                        time.sleep(pause)
                        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                    continue
                pause = SHORTEST_PAUSE_SECONDS

                def tick(rows: int, work: Work = work, last: Future[None] | None = written) -> None:
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
            claim = self._claims.take(shard.name)
            if isinstance(claim, Holder):
                self._holder = claim
                self._left.append(shard)
            elif self._exists(shard):  # finished a moment before
                claim.done()
                self._finish(shard)
            else:
                part = self._job.rows[shard.split]
                rows = part.inputs[shard.start : shard.stop]
                piece = self._states.prepare(rows, origin=part.origin, first=shard.start)
                return Work(shard, claim, piece)
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
        work.claim.done()

    def _exists(self, shard: ShardSpec) -> bool:
        return receipt_path(self._out, shard.name).exists()

    def _finish(self, shard: ShardSpec) -> None:
        with self._lock:  # the next is taken in a thread of its own
            self._rows_left -= shard.stop - shard.start

    def _left_in_words(self) -> str:
        count = len(self._left)
        what = f"{count:,} shards that others make" if count > 1 else "a shard that another makes"
        return f"{what} ({self._holder.in_words()})"
