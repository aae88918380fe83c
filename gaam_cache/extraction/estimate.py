"""What an extraction will cost: tokens, bytes and time, before anything is spent."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.extraction.assumptions import Assumptions
from gaam_cache.extraction.batching import (
    Batching,
    budget_of,
    costs,
    in_words,
    padding_share,
    token_budget_batches,
)
from gaam_cache.extraction.job import Job, make_plan, prepare_job
from gaam_cache.extraction.rate import Rate, assumed_rate, card_rate, timed_rate
from gaam_cache.extraction.row_arrays import label_numbers
from gaam_cache.format.plan import Plan
from gaam_cache.format.receipt import ITEM_BYTES
from gaam_cache.format.targets import check_folder
from gaam_cache.messages import visible
from gaam_cache.terminal import Report, silent

SAMPLE_ROWS = 8192
"""Rows that are tokenised for the estimate; fewer are all tokenised."""
WARM_UP_ROWS = 64
SHARDS_PER_WORKER = 4
"""With a few each no worker waits long for the last shard of another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What ``gaam extract --dry-run`` says."""

    encoder: str
    parameters: int | None
    """Counted where the encoder was not loaded."""
    dtype: str
    device: str
    rows: dict[str, int]
    tokens: int
    """Estimated from a sample where there are more than 8,192 rows."""
    exact_tokens: bool
    truncated_share: float
    padding_share: float
    batching: Batching
    """Which texts may share a batch, as measured on the encoder or assumed."""
    batching_measured: bool
    batching_cost: float
    """How many times the cost of padded batches."""
    leak: float | None
    """By how much of their norm states move in padded batches, where there are none for that."""
    bytes: int
    """Of the embeddings on disk."""
    shards: int
    workers: int
    tokens_per_second: float
    """Of one worker, padding not counted."""
    rate_from: str
    """Where that comes from."""
    seconds: float
    """Of the extraction by all workers, without loading the encoder."""
    warnings: tuple[str, ...]
    noun: str = "text"
    """What people call a row."""
    unit: str = "tokens"
    """What ``tokens`` counts."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        about, units = "" if self.exact_tokens else "about ", self.unit
        size = "" if self.parameters is None else f" ({self.parameters / 1e6:,.1f} M parameters)"
        batches = "padded: assumed, the encoder was not loaded"
        if self.batching_measured:
            batches = in_words(
                self.batching, leak=self.leak, cost=self.batching_cost, noun=self.noun
            )
        by = "" if self.workers == 1 else f" with {self.workers:,} workers, each"
        lines = [
            "dry run: nothing was written",
            f"  encoder  {visible(self.encoder)}{size}, computed in {self.dtype} on {self.device}",
            f"  rows     {rows}",
            f"  {units:<8} {about}{self.tokens:,} ({100 * self.truncated_share:.1f}% of the rows "
            f"truncated, {100 * self.padding_share:.1f}% padding)",
            f"  batches  {batches}",
            f"  disk     {_size(self.bytes)} in {self.shards:,} shard{'s' * (self.shards > 1)}",
            f"  time     {_duration(self.seconds)}{by} at {self.tokens_per_second:,.0f} {units}/s",
            f"  rate     {self.rate_from}",
        ]
        return "\n".join([*lines, *(f"  warning  {text}" for text in self.warnings)])


def estimate(
    config: ExtractConfig,
    *,
    assumed: Assumptions | None = None,
    progress: Report | None = None,
) -> Estimate:
    """Tokenise a sample, time some of its batches or assume what they take, and project.

    Where nothing is assumed the encoder is loaded and runs for a few seconds. Else, and where a GPU
    is asked for that is not here, its configuration and tokenizer suffice. Nothing is written.

    Args:
        config: the extraction.
        assumed: who will do it.
        progress: called with (rows read, 0, what is going on).

    Raises:
        GaamError: whatever ``extract`` would raise before its first shard.
    """
    return estimate_and_plan(config, assumed, progress or silent)[0]


def estimate_and_plan(
    config: ExtractConfig, assumed: Assumptions | None = None, report: Report = silent
) -> tuple[Estimate, Plan, dict[str, NDArray[np.int64]]]:
    """The estimate, the plan of the cache that will be made, and class numbers of every split."""
    assumed = assumed or Assumptions()
    check_folder(config.out, option="--out")
    on_card = assumed.on_card(config, gpu_here=torch.cuda.is_available())
    loaded = on_card is None and assumed.assume_tokens_per_second is None
    here = config if loaded else replace(config, device="cpu")  # nothing runs on any device
    job = prepare_job(here, report, weights=loaded)
    encoder = job.encoder
    total = sum(len(part) for part in job.rows.values())
    sample = _sample(job, total)
    report(0, 0, f"tokenising {len(sample):,} rows")
    encoder.prepare(sample[:WARM_UP_ROWS])
    started = time.perf_counter()
    inputs = encoder.prepare(sample)
    tokenising = time.perf_counter() - started
    dtype, outline = encoder.dtype, None
    if loaded:
        report(0, 0, "loading the encoder")
        encoder.load()
    else:
        report(0, 0, "building the encoder without its weights")
        outline = encoder.outline()
        if config.dtype == "auto" and outline is not None:
            native = on_card is None or "bfloat16" in on_card[0].peaks
            dtype = "bfloat16" if native else "float16"
    plan = make_plan(config, job)
    budget = budget_of(config.batch_tokens, encoder.device.type)
    if not loaded and config.device != "cpu":
        budget = budget_of(config.batch_tokens, "cuda")
    size_N = inputs.sizes
    batches = token_budget_batches(size_N, budget, encoder.batching, inputs.extents)
    cost, padded_cost = costs(size_N, budget, encoder.batching, batches)
    tokens = int(np.sum(inputs.lengths))
    rate: Rate
    if assumed.assume_tokens_per_second is not None:
        rate = assumed_rate(assumed.assume_tokens_per_second, tokens)
    elif on_card is not None:
        if outline is None:
            raise ConfigError(
                "what this encoder costs on a card cannot be told",
                expected="--assume-tokens-per-second N",
                found=f"{encoder.label} on one {on_card[0].label}",
            )
        rate = card_rate(*on_card, dtype, outline, size_N, batches)
    else:
        report(0, 0, "timing some batches")
        rate = timed_rate(encoder, inputs, size_N, batches)
    if tokenising > rate.seconds:
        share = 100 * rate.seconds / tokenising
        source = f"that of the tokenizer here; the encoder takes {share:.0f}% of it, {rate.source}"
        rate = Rate(tokenising, source)
    scale = total / len(sample)
    shards = sum(1 for _ in plan.shards())
    rounds = -(-shards // assumed.workers)  # whoever has the most
    estimated = Estimate(
        encoder=encoder.label,
        parameters=None if outline is None else outline.parameters,
        dtype=dtype,
        device=str(encoder.device) if loaded else _elsewhere(config, encoder.called is None),
        rows=plan.rows,
        tokens=round(scale * tokens),
        exact_tokens=len(sample) == total,
        truncated_share=float(np.mean(inputs.truncated)),
        padding_share=padding_share(inputs.lengths, batches, size_N),
        batching=encoder.batching,
        batching_measured=outline is None,
        batching_cost=cost / padded_cost,
        leak=encoder.leak,
        bytes=total
        * len(plan.pooling)
        * plan.num_layers
        * plan.hidden_size
        * ITEM_BYTES[plan.storage_dtype],
        shards=shards,
        workers=assumed.workers,
        tokens_per_second=tokens / rate.seconds,
        rate_from=rate.source,
        seconds=scale * rate.seconds * rounds / shards,
        warnings=_warnings(shards, assumed.workers, total),
        noun=encoder.noun,
        unit=encoder.unit,
    )
    return estimated, plan, label_numbers(plan, job.rows)


def _elsewhere(config: ExtractConfig, accelerated: bool) -> str:
    """What a worker is assumed to compute on."""
    return "cuda" if config.device == "auto" and accelerated else config.device


def _warnings(shards: int, workers: int, total: int) -> tuple[str, ...]:
    if shards >= workers:
        return ()
    rows = max(1, total // (SHARDS_PER_WORKER * workers))
    return (
        f"{shards:,} shards for {workers:,} workers, of which {workers - shards:,} would have "
        f"nothing to do; --set shard-rows={rows} makes {SHARDS_PER_WORKER} or more for each",
    )


def _sample(job: Job, total: int) -> list[Any]:
    """Evenly spaced rows of all splits."""
    step = max(1, -(-total // SAMPLE_ROWS))
    return [row for part in job.rows.values() for row in part.inputs[::step]]


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
