"""Shards one after the other: the next is tokenised and the last is written beside the encoder.

Each in a thread of its own and never more than one ahead, so that memory does not grow with the
rows. Any number of workers may do so on one cache: each announces what it begins.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gaam_cache.encoders._base import Inputs
from gaam_cache.engines._claims import Claim, Claims
from gaam_cache.extraction.states import Encoded
from gaam_cache.extraction.undone import Undone
from gaam_cache.extraction.worker import ShardWorker
from gaam_cache.store.plan import ShardSpec
from gaam_cache.terminal import WRITER, Report

SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
"""Between two looks at what others make."""


class _Work(NamedTuple):
    shard: ShardSpec
    claim: Claim
    inputs: Inputs


def make_shards(
    worker: ShardWorker,
    todo: list[ShardSpec],
    folder: Path,
    total: int,
    report: Report,
    *,
    waits: bool,
) -> str | None:
    """Make what nobody else makes.

    Args:
        worker: who makes it.
        todo: the shards that lack a receipt, in the order in which to try them.
        folder: of the claims.
        total: rows of all shards.
        report: told (rows done, rows in all, what is going on).
        waits: until every shard is there, whoever makes it; else until others are at work on all
            that is left.

    Returns:
        Who makes what is left; None where nothing is.
    """
    with (
        Claims(folder) as claims,
        ThreadPoolExecutor(1, "tokenise") as reader,
        ThreadPoolExecutor(1, WRITER) as writer,
    ):
        undone = Undone(todo, claims, worker.exists)
        ahead: Future[_Work | None] | None = None
        written: Future[None] | None = None
        pause = SHORTEST_PAUSE_SECONDS

        def prepare() -> _Work | None:
            taken = undone.take()
            return _Work(*taken, worker.prepare(taken[0])) if taken else None

        def write(work: _Work, states: Encoded, started: float) -> None:
            worker.write(work.shard, work.inputs, states)
            work.claim.done()
            claims.expect(time.monotonic() - started)

        while undone.rows or ahead is not None:
            work = (ahead or reader.submit(prepare)).result()
            ahead = None
            if work is None and undone.rows:
                if not waits and undone.others_live():
                    break
                report(total - undone.rows, total, f"waiting for {undone.in_words()}")
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if work is None or not undone.confirm(work.shard, work.claim):
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
    undone.look_again()  # not before all of ours is written
    if undone.rows:
        return undone.in_words()
    claims.clear({shard.name for shard in todo})
    return None
