"""The single pass: rows -> encoder -> shards.

While the encoder works on one shard, the next is tokenised and the last one is written, each in a
thread of its own and never more than one ahead, so that memory does not grow with the rows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gaam_cache import row_checks
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.files import storage_errors
from gaam_cache.job import prepare_job, warn
from gaam_cache.layout import missing_shards
from gaam_cache.plan import Plan, ShardSpec, write_plan
from gaam_cache.receipt import SHARD_FOLDER
from gaam_cache.repair import discard_broken
from gaam_cache.shard import prepare_folder
from gaam_cache.worker import ShardWorker, Tally, Unstorable

T = TypeVar("T")
if TYPE_CHECKING:
    Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractSummary:
    """What an extraction did."""

    path: str
    fingerprint: str
    encoder: str
    dtype: str
    """Arithmetic of the encoder, as chosen where 'auto' was asked for."""
    num_layers: int
    hidden_size: int
    rows: dict[str, int]
    shards: int
    shards_made: int
    """Shards that this run published; the others were there, or another extractor was quicker."""
    rows_made: int
    tokens: int
    """Tokens encoded in this run, padding not counted."""
    truncated: int
    """Rows of this run that were longer than the maximum."""
    max_length: int
    padding_share: float
    seconds: float
    """Wall time of this run's shards, without loading the encoder."""
    write_seconds: float
    """Time of checking, hashing and writing, most of it beside the encoder."""
    bytes: int
    """Bytes of this run's shards."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        lines = [
            f"the cache in '{self.path}' is complete",
            f"  encoder      {self.encoder}, {self.num_layers} layers x {self.hidden_size}, "
            f"computed in {self.dtype}",
            f"  rows         {rows}",
            f"  fingerprint  {self.fingerprint[:12]}",
        ]
        if not self.shards_made:
            return "\n".join([*lines, "  this run     nothing to do, every shard was there"])
        lines.append(
            f"  this run     {self.shards_made} of {self.shards} shards, {self.rows_made:,} rows, "
            f"{self.tokens:,} tokens in {self.seconds:.1f} s "
            f"({self.rows_made / self.seconds:,.0f} texts/s, "
            f"{self.tokens / self.seconds:,.0f} tokens/s, "
            f"{100 * self.padding_share:.1f}% padding), {self.bytes / 1e6:,.1f} MB"
        )
        if self.truncated:
            lines.append(f"  truncated    {self.truncated:,} rows at {self.max_length} tokens")
        return "\n".join(lines)


def extract(config: ExtractConfig, *, progress: Progress | None = None) -> ExtractSummary:
    """Build a cache, or complete one.

    Rows are encoded shard by shard; a shard that has its receipt is never made again, so an
    interrupted extraction goes on where it stopped and ends with the same bytes.

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: an argument is wrong, or the folder holds another cache.
        DataError: a row cannot be used.
        NumericsError: a state that the storage type cannot hold.
        HubError: the hub cannot be reached.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a class, or more
            than 1% of the rows are cut.
    """
    report = progress or (lambda done, total, text: None)
    job = prepare_job(config)
    encoder, rows = job.encoder, job.rows
    plan = _in_thread(write_plan, config.out, job.plan)
    broken = _in_thread(discard_broken, config.out, plan)
    warn([f"{name} is made again: {why}" for name, why in broken.items()], stacklevel=3)
    with storage_errors(config.out / SHARD_FOLDER):
        missing = set(missing_shards(config.out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    todo = _order(todo, ours=plan is job.plan)
    if not todo:
        return _summary(config, plan, encoder, Tally())
    _in_thread(prepare_folder, config.out)
    total = sum(plan.rows.values())
    report(0, total, "loading the encoder")
    encoder.load()  # after a look at what is missing: a complete cache costs no model load
    worker = ShardWorker(config, plan, encoder, rows)
    start = time.perf_counter()
    try:
        _run(worker, todo, total, report)
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
        seconds=tally.seconds,
        write_seconds=tally.write_seconds,
        bytes=tally.bytes,
    )


def _in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call it where no KeyboardInterrupt can cut it off half-way; those reach the main thread."""
    with ThreadPoolExecutor(1, "write") as writer:
        return writer.submit(function, *arguments).result()


def _order(shards: list[ShardSpec], *, ours: bool) -> list[ShardSpec]:
    """The order in which to make shards.

    From the first on where the plan is ours. Where it was there already another extractor may be at
    work: beginning anywhere, we meet it late instead of doing the same shards beside it.
    """
    start = 0 if ours or len(shards) < 2 else secrets.randbelow(len(shards))
    return shards[start:] + shards[:start]


def _run(worker: ShardWorker, todo: list[ShardSpec], total: int, report: Progress) -> None:
    done = total - sum(shard.stop - shard.start for shard in todo)
    with ThreadPoolExecutor(1, "tokenise") as reader, ThreadPoolExecutor(1, "write") as writer:
        ready: Future[Inputs] = reader.submit(worker.prepare, todo[0])
        written: Future[None] | None = None
        for shard, following in zip(todo, [*todo[1:], None], strict=True):
            inputs = ready.result()
            if following is not None:
                ready = reader.submit(worker.prepare, following)
            if worker.exists(shard):  # another extractor was quicker
                done += shard.stop - shard.start
                continue

            def tick(rows: int, base: int = done, last: Future[None] | None = written) -> None:
                if last is not None and last.done():
                    last.result()  # a disk that refuses: not after another shard, but now
                report(base + rows, total, worker.speed())

            states = worker.encode(shard, inputs, tick)
            if written is not None:
                written.result()
            written = writer.submit(worker.write, shard, inputs, states)
            done += shard.stop - shard.start
        if written is not None:
            written.result()
