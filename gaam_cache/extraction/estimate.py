"""What an extraction will cost: rows, tokens, bytes and time, before anything is spent."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.extraction.batches import budget_of, padded_tokens, token_budget_batches
from gaam_cache.extraction.job import prepare_job
from gaam_cache.messages import duration, visible
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import check_folder
from gaam_cache.terminal import Report, silent

SAMPLE_ROWS = 8192
"""Rows that are tokenised; fewer are all tokenised."""
SAMPLE_SECONDS = 6.0
"""Time spent on encoding batches of them."""
WARM_UP_BATCHES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What ``gaam extract --dry-run`` says."""

    encoder: str
    rows: dict[str, int]
    tokens: int
    exact_tokens: bool
    """False: counted in a sample of more than 8,192 rows."""
    truncated_share: float
    bytes: int
    """Of the states."""
    seconds: float
    """Of one worker, without loading the encoder."""
    tokens_per_second: float
    """Padding not counted."""
    timed_on: str | None
    """The device; None where the configuration names the speed."""
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
        how = f"timed here on {self.timed_on}" if self.timed_on else "as tokens-per-second says"
        lines = [
            f"about {duration(max(1, self.seconds))} and {in_bytes(self.bytes)} for "
            f"{sum(self.rows.values()):,} {self.noun}s ({rows}); nothing was written",
            f"  encoder  {visible(self.encoder)}",
            f"  {self.unit:<8} {'' if self.exact_tokens else 'about '}{self.tokens:,}, "
            f"{100 * self.truncated_share:.1f}% of the {self.noun}s are cut",
            f"  speed    {self.tokens_per_second:,.0f} {self.unit}/s of one worker, {how}",
        ]
        return "\n".join(lines)


def estimate(config: ExtractConfig, *, progress: Report | None = None) -> Estimate:
    """Count the rows, tokenise them or a sample, and encode for a few seconds.

    Where the configuration names ``tokens_per_second`` nothing is encoded: no weights are needed,
    and no device. Nothing is written.

    Args:
        config: the extraction.
        progress: called with (rows read, 0, what is going on).

    Raises:
        GaamError: whatever ``extract`` would raise before its first shard.
    """
    report, named = progress or silent, config.tokens_per_second
    check_folder(config.out, option="--out")
    here = config if named is None else replace(config, device="cpu")  # on which nothing runs
    job = prepare_job(here, report, weights=named is None)
    encoder, counts = job.encoder, {name: len(part) for name, part in job.rows.items()}
    total = sum(counts.values())
    step = -(-total // SAMPLE_ROWS)
    sample = [row for part in job.rows.values() for row in part.inputs[::step]]
    report(0, 0, f"tokenising {len(sample):,} rows")
    started = time.perf_counter()
    inputs = encoder.prepare(sample)
    tokenising = time.perf_counter() - started
    tokens = int(np.sum(inputs.lengths))
    if named is None:
        report(0, 0, "loading the encoder")
        encoder.load()
        report(0, 0, "timing some batches")
        # tokenising goes on beside the encoder
        seconds = max(tokenising, _seconds(encoder, inputs, config.batch_tokens))
    else:
        encoder.outline()
        seconds = tokens / named
    states = len(config.pool) * encoder.num_layers * encoder.hidden_size
    return Estimate(
        encoder=encoder.label,
        rows=counts,
        tokens=round(tokens * total / len(sample)),
        exact_tokens=len(sample) == total,
        truncated_share=float(np.mean(inputs.truncated)),
        bytes=total * states * ITEM_BYTES[config.storage_dtype],
        seconds=seconds * total / len(sample),
        tokens_per_second=tokens / seconds,
        timed_on=str(encoder.device) if named is None else None,
        noun=encoder.noun,
        unit=encoder.unit,
    )


def _seconds(encoder: Encoder, inputs: Inputs, batch_tokens: int | None) -> float:
    """Of all inputs, by batches of any length until the time for that is up."""
    budget = budget_of(batch_tokens, encoder.device.type)
    batches = token_budget_batches(inputs.sizes, budget, encoder.batching, inputs.extents)

    def encode(batch: NDArray[np.int64]) -> int:
        for states in encoder.encode(inputs.batch(batch)).values():
            states.sum().item()  # waits for the device
        return padded_tokens(inputs.sizes, [batch])

    order = np.random.default_rng(0).permutation(len(batches))
    for index in order[:WARM_UP_BATCHES]:
        encode(batches[index])
    done, started = 0, time.perf_counter()
    for index in order:
        done += encode(batches[index])
        if time.perf_counter() - started > SAMPLE_SECONDS:
            break
    return padded_tokens(inputs.sizes, batches) * (time.perf_counter() - started) / done


def in_bytes(count: float) -> str:
    """A size for people."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
