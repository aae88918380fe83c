"""What an extraction has done so far, and what ``gaam extract`` says of it in the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np

from gaam_cache.common.messages import visible
from gaam_cache.common.paths import shown_path
from gaam_cache.encoders.base import Inputs
from gaam_cache.extraction.job import Job
from gaam_cache.sources.base import TOLERATED_TRUNCATED_SHARE
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import Batching, Plan

LARGEST_COUNTS = ("deviation", "seconds")  # of several workers beside each other
OF_PLAN = ("fingerprint", "num_layers", "hidden_size", "rows", "storage_dtype")
OF_ENCODER = ("dtype", "max_length", "noun", "unit", "acts_causal")
MOST_UNKNOWN = 0.05  # of all tokens: with more, rows lose what tells them apart
MOST_ALIKE = 0.5  # of the distinct rows
SHOWN = 3  # layers that a warning names
FIRST_OF_CAUSAL = (
    "this encoder reads from left to right, and the first token sees no other"
)


class Reason(NamedTuple):
    """Why rows are alike, as far as it can be seen, and what to do."""

    cause: str
    remedy: str


@dataclass(kw_only=True, slots=True)
class ExtractionStats:
    """What was done so far, and what was seen of rows that may not be what they seem."""

    shards_made: int = (
        0  # published by this run; others were there, or another was quicker
    )
    rows_made: int = 0
    tokens: int = 0  # padding not counted
    padded_tokens: int = 0
    truncated: int = 0  # rows that were longer than the maximum
    own_tokens: int = (
        0  # of the texts, without special ones; 0 where nobody counts them
    )
    unknown_tokens: int = 0  # of those
    unread: int = 0  # texts without any token that is known
    doubled: dict[str, int] = field(default_factory=dict)
    """Special token -> rows that hold it twice."""
    distinct: int = 0  # rows whose content no row before them in their shard has
    twins: dict[str, int] = field(default_factory=dict)
    """Pooling -> how many of those have the state of another, up to rounding."""
    flat: dict[str, int] = field(default_factory=dict)
    """Pooling and layer in which all rows of a shard are one -> in how many shards."""
    coarse: dict[str, str] = field(default_factory=dict)
    """Pooling and layer of which rounding takes a part away -> how much, in one of the shards."""
    proven: int = (
        0  # rows that were encoded again, alone, before their shard was published
    )
    deviation: float = (
        0.0  # the largest |state - alone| / |alone| of any layer of those rows
    )
    bytes: int = 0
    seconds: float = (
        0.0  # wall time, without loading the encoder; of workers, with their start
    )
    write_seconds: float = (
        0.0  # of checking, hashing and writing, most of it beside the encoder
    )
    batching: Batching | None = None  # which texts may share a batch, as measured
    smaller_batches: int | None = (
        None  # tokens of a batch in the end, where memory was short
    )

    def add(self, other: ExtractionStats) -> None:
        """What another worker did beside us."""
        for one in fields(ExtractionStats):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(ours, dict):
                together: Any = ours | theirs
                for key in ours.keys() & theirs.keys():
                    if isinstance(ours[key], int):
                        together[key] = ours[key] + theirs[key]
            elif one.default is None:
                together = min(
                    (x for x in (ours, theirs) if x is not None), default=None
                )
            else:
                together = (
                    max(ours, theirs) if one.name in LARGEST_COUNTS else ours + theirs
                )
            setattr(self, one.name, together)

    def count_inputs(self, inputs: Inputs) -> None:
        """Count what the preparation of some rows did to them."""
        self.truncated += sum(inputs.truncated)
        own_N, unknown_N = np.asarray(inputs.own), np.asarray(inputs.unknown)
        self.own_tokens += int(own_N.sum())
        self.unknown_tokens += int(unknown_N.sum())
        self.unread += int((unknown_N == own_N).sum())
        for token, rows in inputs.doubled.items():
            self.doubled[token] = self.doubled.get(token, 0) + rows

    @property
    def unknown_share(self) -> float:
        """Share of the tokens of the texts that the tokenizer does not know."""
        return self.unknown_tokens / max(1, self.own_tokens)

    def likely_reason(self, pooling: str, max_length: int, *, causal: bool) -> Reason:
        """Why rows that differ are alike."""
        causes, remedies = [], []
        if self.unknown_share > MOST_UNKNOWN:
            causes.append(
                f"{self.unknown_share:.0%} of their tokens are unknown to the tokenizer"
            )
            remedies.append("choose an encoder that knows their script and language")
        elif 2 * self.unread > self.rows_made:
            causes.append(
                f"the tokenizer makes no token of {self.unread / self.rows_made:.0%} of them"
            )
            remedies.append("choose an encoder that knows their script and language")
        if 2 * self.truncated > self.rows_made:
            share = self.truncated / self.rows_made
            causes.append(
                f"{share:.0%} of the rows are cut at {max_length:,}, where they may not differ yet"
            )
            remedies.append(
                "leave out what all begin with, or let more of them be read"
            )
        if pooling == "first" and causal:
            causes.append(FIRST_OF_CAUSAL)
            remedies.append("--pool mean or last")
        if not causes:
            causes.append("neither unknown tokens nor cut rows explain it")
            remedies.append(
                "look at the rows and at what one becomes (gaam extract --dry-run), or choose "
                "another encoder"
            )
        return Reason("; ".join(causes), ", or ".join(remedies))

    def doubts(
        self, *, noun: str, max_length: int, causal: bool, storage_dtype: str
    ) -> list[str]:
        """A line for each sign that rows are not what they seem to be.

        Args:
            noun: what people call a row.
            max_length: at which rows are cut.
            causal: whether the encoder reads from left to right.
            storage_dtype: what states are rounded to.
        """
        lines = []
        unread = self.unread > TOLERATED_TRUNCATED_SHARE * self.rows_made
        if unread or self.unknown_share > MOST_UNKNOWN:
            lines.append(
                f"{self.unknown_share:.1%} of all tokens are unknown to the encoder's tokenizer, "
                f"and {self.unread:,} of {self.rows_made:,} rows hold no other: what they say is "
                "lost; choose an encoder that knows their script and language"
            )
        doubled = [visible(token) for token in self.doubled]
        most = max(self.doubled.values(), default=0)
        if most > TOLERATED_TRUNCATED_SHARE * self.rows_made:
            lines.append(
                f"special tokens stand twice at the start or end of {most:,} of "
                f"{self.rows_made:,} rows, which moves their states: {', '.join(doubled)}; they "
                f"are added to every text: leave them out of the {noun}s and of --prompt"
            )
        for pooling, rows in self.twins.items():
            if pooling == "first" and causal:
                lines.append(
                    f"{FIRST_OF_CAUSAL}: {rows:,} of {self.distinct:,} {noun}s that differ have "
                    "the state of another (first); --pool mean or last read all of them"
                )
            elif rows > MOST_ALIKE * self.distinct:
                reason = self.likely_reason(pooling, max_length, causal=causal)
                lines.append(
                    f"{rows:,} of {self.distinct:,} {noun}s that differ have the state of another "
                    f"({pooling}): {reason.cause}; {reason.remedy}"
                )
        if self.flat:
            lines.append(
                f"in some layers all {noun}s have the same state, from which nothing can be read: "
                f"{_few(list(self.flat))}; leave such layers out (--layers), or take another --pool"
            )
        if self.coarse:
            found = [f"{place}: {lost}" for place, lost in self.coarse.items()]
            lines.append(
                f"{storage_dtype} rounds away part of what tells {noun}s apart ({_few(found)}); "
                "--storage-dtype float32 and a new --out keep it"
            )
        return lines

    @property
    def padding_share(self) -> float:
        """Share of the encoded positions that were padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0


@dataclass(kw_only=True, slots=True)
class ExtractSummary(ExtractionStats):
    """What an extraction did."""

    path: str
    fingerprint: str
    encoder: str
    dtype: str  # arithmetic of the encoder, as chosen where 'auto' was asked for
    storage_dtype: str
    num_layers: int
    hidden_size: int
    rows: dict[str, int]
    shards: int
    max_length: int
    noun: str  # what people call a row
    unit: str  # what is counted as tokens
    acts_causal: (
        bool | None
    )  # whether no state depends on what comes later, as measured
    workers: int = 1
    missing: int = 0  # shards that others still make
    made_by: str | None = None  # who they are
    skipped: dict[
        str, int
    ]  # split -> rows that were left out (skip-empty), where there are any

    @classmethod
    def of(
        cls,
        job: Job,
        plan: Plan,
        tally: ExtractionStats,
        *,
        missing: int,
        by: str | None,
    ) -> Self:
        """Of a job that is done, or of which others make what is ``missing``."""
        encoder = job.encoder
        return cls(
            path=str(job.config.out),
            encoder=encoder.label,
            shards=plan.num_shards,
            **{name: getattr(plan, name) for name in OF_PLAN},
            **{name: getattr(encoder, name) for name in OF_ENCODER},
            missing=missing,
            made_by=by,
            skipped={
                name: part.skipped for name, part in job.rows.items() if part.skipped
            },
            **asdict(tally) | {"batching": tally.batching or plan.batching},
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"padding_share": self.padding_share}

    def in_words(self) -> str:
        units, where = self.unit, f"the cache in '{visible(shown_path(self.path))}'"
        done = f"{where} is complete"
        if self.missing:
            done = f"{where} lacks {self.missing:,} of {self.shards:,} shards: others are at work "
            done += f"on {self.made_by}; the last to finish says that it is complete"
        encoder = (
            f"{visible(self.encoder)}, {self.num_layers} layers x {self.hidden_size}, "
        )
        encoder += f"computed in {self.dtype}"
        if units == "tokens":
            encoder += f", cuts at {self.max_length:,} tokens"
        rows = ", ".join(
            f"{visible(name)} {count:,}" for name, count in self.rows.items()
        )
        lines = {"encoder": encoder, "rows": rows}
        if self.skipped:
            lines["left out"] = ", ".join(
                f"{visible(s)} {n:,}" for s, n in self.skipped.items()
            )
        lines["fingerprint"] = short_digest(self.fingerprint)
        lines["this run"] = "nothing to do"
        if self.shards_made:
            lines["this run"] = (
                f"{self.shards_made} of {self.shards} shards, {self.rows_made:,} rows, "
                f"{self.tokens:,} {units} in {self.seconds:.1f} s "
                f"({self.rows_made / self.seconds:,.0f} {self.noun}s/s, "
                f"{self.tokens / self.seconds:,.0f} {units}/s, {self.padding_share:.1%} padding), "
                f"{self.bytes / 1e6:,.1f} MB"
                + f", by {self.workers} workers"
                * (self.workers > 1)
            )
            lines["batches"] = {
                "padded": f"padded; a {self.noun}'s states are the same alone and in a batch",
                "equal lengths": "of equal length only: padding moves this encoder's states",
                "alone": f"of one {self.noun}: neighbours move this encoder's states",
            }[self.batching or "padded"]
            if self.smaller_batches is not None:
                lines["memory"] = (
                    f"too little for batches above {self.smaller_batches:,} {units}"
                )
            far = f"off by at most {self.deviation:.1e} of a layer's norm"
            lines["proof"] = f"{self.proven:,} rows encoded again alone, {far}"
            if self.truncated:
                lines["truncated"] = (
                    f"{self.truncated:,} rows at {self.max_length} {units}"
                )
            if self.unknown_tokens:
                lines["unknown"] = (
                    f"{self.unknown_tokens:,} tokens ({self.unknown_share:.2%})"
                )
            if alike := max(self.twins.values(), default=0):
                lines["alike"] = (
                    f"{alike:,} of {self.distinct:,} that differ share a state"
                )
        return "\n".join(
            [done, *(f"  {name:<12} {text}" for name, text in lines.items())]
        )


def _few(places: list[str]) -> str:
    more = len(places) - SHOWN
    return "; ".join([*places[:SHOWN], *[f"and {more} more"] * (more > 0)])
