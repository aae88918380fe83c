"""What an extraction has done so far, and what ``gaam extract`` says of it in the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from gaam_cache.extraction.job import Job
from gaam_cache.messages import visible
from gaam_cache.paths import shown_path
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import Batching, Plan

LARGEST_COUNTS = ("deviation", "seconds")  # of several workers beside each other
OF_PLAN = ("fingerprint", "num_layers", "hidden_size", "rows")
OF_ENCODER = ("dtype", "max_length", "noun", "unit")


@dataclass(kw_only=True, slots=True)
class Tally:
    """What was done so far."""

    shards_made: int = 0  # published by this run; others were there, or another was quicker
    rows_made: int = 0
    tokens: int = 0  # padding not counted
    padded_tokens: int = 0
    truncated: int = 0  # rows that were longer than the maximum
    proven: int = 0  # rows that were encoded again, alone, before their shard was published
    deviation: float = 0.0  # the largest |state - alone| / |alone| of any layer of those rows
    bytes: int = 0
    seconds: float = 0.0  # wall time, without loading the encoder; of workers, with their start
    write_seconds: float = 0.0  # of checking, hashing and writing, most of it beside the encoder
    batching: Batching | None = None  # which texts may share a batch, as measured
    smaller_batches: int | None = None  # tokens of a batch in the end, where memory was short

    def add(self, other: Tally) -> None:
        """What another worker did beside us."""
        for one in fields(Tally):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            if one.default is None:
                together = min((x for x in (ours, theirs) if x is not None), default=None)
            else:
                together = max(ours, theirs) if one.name in LARGEST_COUNTS else ours + theirs
            setattr(self, one.name, together)

    @property
    def padding_share(self) -> float:
        """Share of the encoded positions that were padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0


@dataclass(kw_only=True, slots=True)
class ExtractSummary(Tally):
    """What an extraction did."""

    path: str
    fingerprint: str
    encoder: str
    dtype: str  # arithmetic of the encoder, as chosen where 'auto' was asked for
    num_layers: int
    hidden_size: int
    rows: dict[str, int]
    shards: int
    max_length: int
    noun: str  # what people call a row
    unit: str  # what is counted as tokens
    workers: int = 1
    missing: int = 0  # shards that others still make
    made_by: str | None = None  # who they are
    skipped: dict[str, int]  # split -> rows that were left out (skip-empty), where there are any

    @classmethod
    def of(cls, job: Job, plan: Plan, tally: Tally, *, missing: int, by: str | None) -> Self:
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
            skipped={name: part.skipped for name, part in job.rows.items() if part.skipped},
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
        encoder = f"{visible(self.encoder)}, {self.num_layers} layers x {self.hidden_size}, "
        encoder += f"computed in {self.dtype}"
        if units == "tokens":
            encoder += f", cuts at {self.max_length:,} tokens"
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        lines = {"encoder": encoder, "rows": rows}
        if self.skipped:
            lines["left out"] = ", ".join(f"{visible(s)} {n:,}" for s, n in self.skipped.items())
        lines["fingerprint"] = short_digest(self.fingerprint)
        lines["this run"] = "nothing to do"
        if self.shards_made:
            lines["this run"] = (
                f"{self.shards_made} of {self.shards} shards, {self.rows_made:,} rows, "
                f"{self.tokens:,} {units} in {self.seconds:.1f} s "
                f"({self.rows_made / self.seconds:,.0f} {self.noun}s/s, "
                f"{self.tokens / self.seconds:,.0f} {units}/s, {self.padding_share:.1%} padding), "
                f"{self.bytes / 1e6:,.1f} MB" + f", by {self.workers} workers" * (self.workers > 1)
            )
            lines["batches"] = {
                "padded": f"padded; a {self.noun}'s states are the same alone and in a batch",
                "equal lengths": "of equal length only: padding moves this encoder's states",
                "alone": f"of one {self.noun}: neighbours move this encoder's states",
            }[self.batching or "padded"]
            if self.smaller_batches is not None:
                lines["memory"] = f"too little for batches above {self.smaller_batches:,} {units}"
            far = f"off by at most {self.deviation:.1e} of a layer's norm"
            lines["proof"] = f"{self.proven:,} rows encoded again alone, {far}"
            if self.truncated:
                lines["truncated"] = f"{self.truncated:,} rows at {self.max_length} {units}"
        return "\n".join([done, *(f"  {name:<12} {text}" for name, text in lines.items())])
