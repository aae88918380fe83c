"""What an extraction will cost: rows, tokens, bytes and time, before anything is spent."""

import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from gaam_cache.common.messages import duration, visible
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.base import Encoder, Inputs
from gaam_cache.extraction.batches import budget_of, padded_tokens, token_budget_batches
from gaam_cache.extraction.job import prepare_job, warn
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.base import find_source
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import check_writable

SAMPLE_ROWS, SAMPLE_SECONDS = (
    8192,
    6.0,
)  # tokenised at most, and spent on encoding some of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What ``gaam extract --dry-run`` says."""

    encoder: str
    rows: dict[str, int]
    tokens: int
    exact_tokens: bool  # else counted in a sample of more than 8,192 rows
    truncated_share: float
    bytes: int  # of the states
    seconds: float  # of one worker, without loading the encoder
    tokens_per_second: float  # padding not counted
    timed_on: str | None  # the device; None where the configuration names the speed
    noun: str  # what people call a row
    unit: str  # what is counted as tokens
    first_row: str  # what the first row of the first split becomes
    unknown_share: (
        float  # of the tokens of the texts, those that the tokenizer does not know
    )

    to_dict = asdict

    def in_words(self) -> str:
        rows = ", ".join(
            f"{visible(name)} {count:,}" for name, count in self.rows.items()
        )
        how = (
            f"timed here on {self.timed_on}"
            if self.timed_on
            else "as tokens-per-second says"
        )
        unknown = f", {self.unknown_share:.1%} unknown" if self.unknown_share else ""
        about = "" if self.exact_tokens else "about "
        first_split = visible(next(iter(self.rows)))
        return f"""\
about {duration(max(1, self.seconds))} and {self.bytes / 1e6:,.1f} MB for \
{sum(self.rows.values()):,} {self.noun}s ({rows}); nothing was written
  encoder  {visible(self.encoder)}
  {self.unit:<8} {about}{self.tokens:,}, {self.truncated_share:.1%} cut{unknown}
  row 1    {self.first_row}, of '{first_split}'
  speed    {self.tokens_per_second:,.0f} {self.unit}/s of one worker, {how}"""


def estimate(
    config: ExtractConfig, *, progress: ReportProgress | None = None
) -> Estimate:
    """Count the rows, tokenise them or a sample, and encode for a few seconds; write nothing.

    With ``tokens_per_second`` no weights are needed. ``progress``: (rows read, 0, what goes on).

    >>> config = gaam_cache.ExtractConfig(encoder="tfidf", out="words")
    >>> gaam_cache.estimate(config).rows
    {'train': 360, 'test': 120}

    Raises:
        GaamError: whatever ``extract`` would raise before its first shard.
    """
    report, speed = progress or no_progress, config.tokens_per_second
    check_writable(config.out, option="--out")
    config = find_source(config.dataset).settled(config)
    config = (
        config if speed is None else replace(config, device="cpu")
    )  # on which nothing runs
    job = prepare_job(config, report, weights=speed is None)
    encoder, total = job.encoder, sum(map(len, job.rows.values()))
    sample = [
        row
        for part in job.rows.values()
        for row in part.inputs[:: -(-total // SAMPLE_ROWS)]
    ]
    report(0, 0, f"tokenising {len(sample):,} rows, and timing some batches")
    started, inputs = time.perf_counter(), encoder.prepare(sample)
    tokens, seconds = int(np.sum(inputs.lengths)), time.perf_counter() - started
    if speed is None:
        # tokenising goes on beside it
        encoder.load_for(
            int(np.max(inputs.lengths)), tell=lambda text: report(0, 0, text)
        )
        seconds = max(seconds, _seconds(encoder, inputs, config.batch_tokens))
    else:
        encoder.outline()
        seconds = tokens / speed
    counts = ExtractionStats(rows_made=len(sample))
    counts.count_inputs(inputs)
    warn(
        counts.doubts(
            noun=encoder.noun,
            max_length=encoder.max_length,
            causal=False,
            storage_dtype=config.storage_dtype,
        )
    )
    states = total * len(config.pool) * encoder.num_layers * encoder.hidden_size
    return Estimate(
        encoder=encoder.label,
        rows={name: len(part) for name, part in job.rows.items()},
        tokens=round(tokens * total / len(sample)),
        exact_tokens=len(sample) == total,
        truncated_share=float(np.mean(inputs.truncated)),
        bytes=states * ITEM_BYTES[config.storage_dtype],
        seconds=seconds * total / len(sample),
        tokens_per_second=tokens / seconds,
        timed_on=str(encoder.device) if speed is None else None,
        noun=encoder.noun,
        unit=encoder.unit,
        first_row=encoder.describe_row(inputs, 0),
        unknown_share=counts.unknown_share,
    )


def _seconds(encoder: Encoder, inputs: Inputs, batch_tokens: int | None) -> float:
    """Of all inputs, by batches of any length until the time for that is up."""
    budget, sizes = budget_of(batch_tokens, encoder.device.type), inputs.sizes
    batches = token_budget_batches(sizes, budget, encoder.batching, inputs.extents)
    done, started = 0, 0.0
    for batch in (
        batches[i] for i in (0, *np.random.default_rng(0).permutation(len(batches)))
    ):
        sum(
            float(x.sum()) for x in encoder.encode(inputs.batch(batch)).values()
        )  # waits for it
        done += padded_tokens(sizes, [batch]) if started else 0
        started = started or time.perf_counter()  # the first one warms it up
        if time.perf_counter() - started > SAMPLE_SECONDS:
            break
    return padded_tokens(sizes, batches) * (time.perf_counter() - started) / done
