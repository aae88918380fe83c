"""Estimates what an extraction will cost: rows, tokens, bytes and time.

It reads the rows, and encodes a sample for a few seconds.
"""

import time
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import duration, size_in_words, visible
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress, no_progress
from gaam_cache.config import ExtractConfig, max_batch_tokens
from gaam_cache.encoders.base import Encoder, Inputs, refuse_unused_settings
from gaam_cache.extraction.batches import padded_tokens, token_budget_batches
from gaam_cache.extraction.job import Job, prepare_job, warn
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.sources.base import find_source
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import check_writable

MAX_SAMPLE_ROWS = 8192  # rows that are tokenised
SAMPLE_SECONDS = 6.0  # after which no further batch of the sample is encoded


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What ``gaam extract --dry-run`` shows."""

    encoder: str
    rows: dict[str, int]  # by split
    tokens: int
    exact_tokens: bool  # whether every row was tokenised, not just a sample
    truncated_share: float
    bytes: int  # size of the states
    seconds: float  # time of one worker, without loading the encoder
    tokens_per_second: float  # without padding
    timed_on: str | None  # the device; None if the configuration sets the speed
    noun: str  # what people call a row
    unit: str  # what is counted as tokens
    first_row: str  # what the encoder reads of the first row
    unknown_share: float  # share of the tokens that the tokenizer does not know

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def in_words(self) -> str:
        """The estimate in lines for people."""
        num_rows = sum(self.rows.values())
        counts = [f"{visible(name)} {count:,}" for name, count in self.rows.items()]
        time_needed = duration(max(1, self.seconds))
        lines = [
            f"about {time_needed} and {size_in_words(self.bytes)} for {num_rows:,} "
            f"{self.noun}s ({', '.join(counts)}); nothing was written",
            f"  encoder  {visible(self.encoder)}",
            f"  {self.unit:<8} {self._tokens_in_words()}",
            f"  row 1    {self.first_row}, of '{visible(next(iter(self.rows)))}'",
            f"  speed    {self._speed_in_words()}",
        ]
        return "\n".join(lines)

    def _tokens_in_words(self) -> str:
        """Number of tokens, share of cut rows, and share of unknown tokens if any."""
        words = f"{self.tokens:,}, {self.truncated_share:.1%} cut"
        # only a sample of the rows was tokenised
        if not self.exact_tokens:
            words = f"about {words}"
        if self.unknown_share:
            words += f", {self.unknown_share:.1%} unknown"
        return words

    def _speed_in_words(self) -> str:
        """The speed, and where the figure comes from."""
        reason = "as tokens-per-second says"
        if self.timed_on:
            reason = f"timed here on {self.timed_on}"
        return f"{self.tokens_per_second:,.0f} {self.unit}/s of one worker, {reason}"


def estimate(
    config: ExtractConfig, *, progress: ReportProgress | None = None
) -> Estimate:
    """Count the rows, tokenise a sample and encode for a few seconds; write nothing.

    With ``tokens_per_second`` no weights are needed.

    >>> config = gaam_cache.ExtractConfig(encoder="tfidf", out="words")
    >>> gaam_cache.estimate(config).rows
    {'train': 360, 'test': 120}

    Args:
        config: the extraction.
        progress: called with (rows read, 0, what is going on).

    Raises:
        GaamError: an error that ``extract`` would raise before its first shard.
    """
    _refuse_copy(config)
    report = progress or no_progress
    speed = config.tokens_per_second
    # only for its error: nothing is written now
    check_writable(config.out, option="--out")
    # complete the settings whose defaults depend on the data set
    config = find_source(config.dataset).with_defaults(config)
    if speed is not None:
        # nothing is computed, so the configured device need not be here
        config = replace(config, device="cpu")
    job = prepare_job(config, report, needs_weights=speed is None)
    encoder = job.encoder
    refuse_unused_settings(encoder, config)

    # tokenise the sample, timed
    sample = _sample(job)
    timing_words = ", and timing some batches" if speed is None else ""
    report(0, UNKNOWN_TOTAL, f"tokenising {len(sample):,} rows{timing_words}")
    started = time.perf_counter()
    inputs = encoder.prepare(sample)
    tokens = int(np.sum(inputs.lengths))
    seconds = time.perf_counter() - started

    if speed is None:
        # loading is not timed: an extraction does it once
        longest = int(np.max(inputs.lengths))
        encoder.load_for(longest, tell=lambda text: report(0, UNKNOWN_TOTAL, text))
        # rows are tokenised while others are encoded: the slower of the two counts
        seconds = max(seconds, _encoding_seconds(encoder, inputs, config.batch_tokens))
    else:
        # only the shape of the encoder: its number of layers and features
        encoder.outline()
        seconds = tokens / speed
    return _summarise(job, inputs, tokens, seconds)


def _refuse_copy(config: ExtractConfig) -> None:
    """Refuse to estimate an extraction that copies the states of another cache."""
    if config.states_from is None:
        return
    raise ConfigError(
        "states-from copies states: there is no encoding to estimate",
        expected="--dry-run, or states-from",
        found="both",
        hint="leave --dry-run out: rows and states are checked before anything is "
        "written",
    )


def _sample(job: Job) -> list[object]:
    """Choose rows of all splits at equal distances, about ``MAX_SAMPLE_ROWS`` at most.

    These are all rows if there are not more.
    """
    # -(-a // b) is a / b, rounded up
    step = -(-job.num_rows // MAX_SAMPLE_ROWS)
    sample: list[object] = []
    for rows in job.rows.values():
        sample.extend(rows.inputs[::step])
    return sample


def _encoding_seconds(
    encoder: Encoder, inputs: Inputs, batch_tokens: int | None
) -> float:
    """Estimate the time in seconds to encode all inputs, from some random batches.

    Args:
        encoder: the loaded encoder.
        inputs: the rows.
        batch_tokens: most tokens of a batch; None for the default of the device.
    """
    budget = max_batch_tokens(batch_tokens, encoder.device.type)
    sizes = inputs.sizes
    batches = token_budget_batches(
        sizes,
        budget,
        encoder.batching,
        inputs.extents,
        device_type=encoder.device.type,
    )

    # the first batch warms the encoder up and is not timed
    _encode(encoder, inputs, batches[0])
    started = time.perf_counter()
    encoded_tokens = 0
    for index in np.random.default_rng(0).permutation(len(batches)):
        _encode(encoder, inputs, batches[index])
        encoded_tokens += padded_tokens(sizes, [batches[index]])
        if time.perf_counter() - started > SAMPLE_SECONDS:
            break
    seconds = time.perf_counter() - started
    # tokens of all batches, at the speed of those that were encoded
    return padded_tokens(sizes, batches) * seconds / encoded_tokens


def _encode(encoder: Encoder, inputs: Inputs, batch: NDArray[np.int64]) -> None:
    """Encode a batch, and wait until the device has done it; the states are dropped.

    ``batch`` has the numbers of the rows in ``inputs``.
    """
    for x_BLD in encoder.encode(inputs.batch(batch)).values():
        # only for the time: a GPU works on while Python goes on, until a number is read
        float(x_BLD.sum())


def _summarise(job: Job, inputs: Inputs, tokens: int, seconds: float) -> Estimate:
    """Extrapolate from the sample to all rows, and warn of suspicious rows in it.

    Args:
        job: the extraction.
        inputs: rows of the sample.
        tokens: number of tokens of the sample, without padding.
        seconds: time to encode the sample.
    """
    config = job.config
    encoder = job.encoder
    sample_size = len(inputs.lengths)
    num_rows = job.num_rows

    # no states are counted here, only tokens: the values of ``causal`` and
    # ``storage_dtype``, which explain suspicious states, do not matter
    stats = ExtractionStats(rows_made=sample_size)
    stats.count_inputs(inputs)
    doubts = stats.doubts(
        noun=encoder.noun,
        max_length=encoder.max_length,
        causal=False,
        storage_dtype=config.storage_dtype,
    )
    warn(doubts)

    # a row has one state for each layer and pooling
    num_values = num_rows * len(config.pool) * encoder.num_layers * encoder.hidden_size
    is_timed = config.tokens_per_second is None
    return Estimate(
        encoder=encoder.label,
        rows={name: len(rows) for name, rows in job.rows.items()},
        tokens=round(tokens * num_rows / sample_size),
        exact_tokens=sample_size == num_rows,
        truncated_share=float(np.mean(inputs.truncated)),
        bytes=num_values * ITEM_BYTES[config.storage_dtype],
        seconds=seconds * num_rows / sample_size,
        tokens_per_second=tokens / seconds,
        timed_on=str(encoder.device) if is_timed else None,
        noun=encoder.noun,
        unit=encoder.unit,
        first_row=encoder.describe_row(inputs, 0),
        unknown_share=stats.unknown_share,
    )
