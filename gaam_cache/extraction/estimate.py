"""What an extraction will cost: tokens, bytes and time, before anything is spent."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Inputs
from gaam_cache.extraction.batching import (
    Batching,
    costs,
    in_words,
    padded_tokens,
    padding_share,
    token_budget_batches,
)
from gaam_cache.extraction.job import Job, make_plan, prepare_job
from gaam_cache.extraction.worker import batch_tokens
from gaam_cache.format.receipt import ITEM_BYTES
from gaam_cache.messages.foreign_text import visible
from gaam_cache.terminal.progress import Report, silent

SAMPLE_ROWS = 8192
"""Rows that are tokenised for the estimate; fewer are all tokenised."""
SAMPLE_SECONDS = 6.0
"""Time spent on encoding sample batches."""
WARM_UP_BATCHES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What ``gaam extract --dry-run`` says."""

    encoder: str
    dtype: str
    device: str
    rows: dict[str, int]
    tokens: int
    """Estimated from a sample where there are more than 8,192 rows."""
    exact_tokens: bool
    truncated_share: float
    padding_share: float
    batching: Batching
    """Which texts may share a batch, as measured on the encoder."""
    batching_cost: float
    """How many times the cost of padded batches."""
    leak: float | None
    """By how much of their norm states move in padded batches, where there are none for that."""
    bytes: int
    """Of the embeddings on disk."""
    tokens_per_second: float
    seconds: float
    """Of the extraction, without loading the encoder."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        about = "" if self.exact_tokens else "about "
        return "\n".join(
            [
                "dry run: nothing was written",
                f"  encoder  {visible(self.encoder)}, computed in {self.dtype} on {self.device}",
                f"  rows     {rows}",
                f"  tokens   {about}{self.tokens:,} ({100 * self.truncated_share:.1f}% of the rows "
                f"truncated, {100 * self.padding_share:.1f}% padding)",
                f"  batches  {in_words(self.batching, leak=self.leak, cost=self.batching_cost)}",
                f"  disk     {_size(self.bytes)}",
                f"  time     {_duration(self.seconds)} at {self.tokens_per_second:,.0f} tokens/s",
            ]
        )


def estimate(config: ExtractConfig, *, progress: Report | None = None) -> Estimate:
    """Tokenise a sample, time some of its batches, and project.

    The encoder is loaded and runs for a few seconds; nothing is written.

    Args:
        config: the extraction.
        progress: called with (rows read, 0, what is going on).

    Raises:
        GaamError: whatever ``extract`` would raise before its first shard.
    """
    report = progress or silent
    job = prepare_job(config, report)
    encoder = job.encoder
    total = sum(len(part) for part in job.rows.values())
    sample = _sample(job, total)
    report(0, 0, f"tokenising {len(sample):,} rows")
    inputs = encoder.prepare(sample)
    report(0, 0, "loading the encoder")
    encoder.load()
    plan = make_plan(config, job)
    budget = batch_tokens(config, encoder)
    batches = token_budget_batches(inputs.lengths, budget, encoder.batching)
    cost, padded_cost = costs(inputs.lengths, budget, encoder.batching, batches)
    length_N = np.asarray(inputs.lengths)
    padded = padded_tokens(inputs.lengths, batches)
    tokens = int(length_N.sum())
    report(0, 0, "timing some batches")
    rate = _padded_tokens_per_second(job, inputs, length_N, batches)
    scale = total / len(sample)
    seconds = scale * padded / rate
    return Estimate(
        encoder=encoder.label,
        dtype=encoder.dtype,
        device=str(encoder.device),
        rows=plan.rows,
        tokens=round(scale * tokens),
        exact_tokens=len(sample) == total,
        truncated_share=float(np.mean(inputs.truncated)),
        padding_share=padding_share(inputs.lengths, batches),
        batching=encoder.batching,
        batching_cost=cost / padded_cost,
        leak=encoder.leak,
        bytes=total
        * len(plan.pooling)
        * plan.num_layers
        * plan.hidden_size
        * ITEM_BYTES[plan.storage_dtype],
        tokens_per_second=scale * tokens / seconds,
        seconds=seconds,
    )


def _sample(job: Job, total: int) -> list[Any]:
    """Evenly spaced rows of all splits."""
    step = max(1, -(-total // SAMPLE_ROWS))
    return [row for part in job.rows.values() for row in part.inputs[::step]]


def _padded_tokens_per_second(
    job: Job, inputs: Inputs, length_N: np.ndarray, batches: list[np.ndarray]
) -> float:
    """Time batches spread over all lengths, until the time for it is up."""

    def run(batch: np.ndarray) -> int:
        for states in job.encoder.encode(inputs.batch(batch)).values():
            states.sum().item()  # waits for the device
        return int(length_N[batch].max()) * len(batch)

    order = np.random.default_rng(0).permutation(len(batches))
    for index in order[:WARM_UP_BATCHES]:
        run(batches[index])
    done = 0
    start = time.perf_counter()
    for index in order:
        done += run(batches[index])
        if time.perf_counter() - start > SAMPLE_SECONDS:
            break
    return done / (time.perf_counter() - start)


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
