"""What ``gaam extract`` says when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Facts
from gaam_cache.extraction import batching
from gaam_cache.extraction.tally import Tally
from gaam_cache.messages import visible
from gaam_cache.sources._base import Rows
from gaam_cache.store.digest import short_digest
from gaam_cache.store.plan import Plan
from gaam_cache.store.shard import missing_shards

FIRST_SKIPPED = 3
"""Rows of a split that were left out and are named."""
OF_TALLY = (
    *("tokens", "truncated", "padding_share", "batching_cost", "proven", "deviation"),
    *("seconds", "write_seconds", "bytes", "smaller_batches"),
)
"""What a summary takes as it is counted."""


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
    batching: batching.Batching
    """Which texts may share a batch, as measured on the encoder."""
    batching_cost: float
    """How many times the cost of padded batches."""
    leak: float | None
    """By how much of their norm states move in padded batches, where there are none for that."""
    proven: int
    """Rows of this run that were encoded again, alone, before their shard was published."""
    deviation: float
    """The largest ``|stored - alone| / |alone|`` of any layer of those rows."""
    seconds: float
    """Wall time of this run's shards, without loading the encoder; of workers, with their start."""
    write_seconds: float
    """Time of checking, hashing and writing, most of it beside the encoder."""
    bytes: int
    """Bytes of this run's shards."""
    workers: int = 1
    """That made them."""
    missing: int = 0
    """Shards that others still make."""
    noun: str = "text"
    """What people call a row."""
    unit: str = "tokens"
    """What ``tokens`` and ``max_length`` count."""
    made_by: str | None = None
    """Who they are."""
    smaller_batches: int | None = None
    """Tokens of a batch in the end, where there was no memory for those that were asked for."""
    skipped: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of every split from which rows were left out (skip-empty): how many, and where the first
    stood."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        units = self.unit
        where = f"the cache in '{visible(str(self.path))}'"
        left_out = "; ".join(map(_left_out, self.skipped.items()))
        lines = [
            f"{where} is complete"
            if not self.missing
            else f"{where} lacks {self.missing:,} of {self.shards:,} shards: others are at work on "
            f"{self.made_by}; the last to finish says that it is complete",
            f"  encoder      {visible(self.encoder)}, "
            f"{self.num_layers} layers x {self.hidden_size}, computed in {self.dtype}",
            f"  rows         {rows}",
            *([f"  left out     {left_out} (skip-empty)"] if left_out else []),
            f"  fingerprint  {short_digest(self.fingerprint)}",
        ]
        if not self.shards_made:
            why = "every shard was there" if not self.missing else "others do the rest"
            return "\n".join([*lines, f"  this run     nothing to do, {why}"])
        lines.append(
            f"  this run     {self.shards_made} of {self.shards} shards, {self.rows_made:,} rows, "
            f"{self.tokens:,} {units} in {self.seconds:.1f} s "
            f"({self.rows_made / self.seconds:,.0f} {self.noun}s/s, "
            f"{self.tokens / self.seconds:,.0f} {units}/s, "
            f"{100 * self.padding_share:.1f}% padding), {self.bytes / 1e6:,.1f} MB"
            + (f", by {self.workers} workers" if self.workers > 1 else "")
        )
        said = batching.in_words(
            self.batching, leak=self.leak, cost=self.batching_cost, noun=self.noun
        )
        lines.append(f"  batches      {said}")
        if self.smaller_batches is not None:
            lines.append(
                f"  memory       too little for larger batches: {self.smaller_batches:,} {units} "
                "at most in the end (batch-tokens)"
            )
        lines.append(
            f"  proof        {self.proven:,} rows encoded again alone, off by at most "
            f"{self.deviation:.1e} of a layer's norm"
        )
        if self.truncated:
            lines.append(f"  truncated    {self.truncated:,} rows at {self.max_length} {units}")
        return "\n".join(lines)


def _left_out(item: tuple[str, dict[str, Any]]) -> str:
    split, about = item
    more = ", ..." if about["rows"] > len(about["first"]) else ""
    return f"{visible(split)} {about['rows']:,}: {', '.join(about['first'])}{more}"


def summarize(
    config: ExtractConfig,
    plan: Plan,
    encoder: Facts,
    tally: Tally,
    rows: Mapping[str, Rows],
    *,
    left: str | None = None,
    workers: int = 1,
) -> ExtractSummary:
    """What an extraction did.

    Args:
        config: of the extraction.
        plan: of the cache.
        encoder: as it was run.
        tally: what was counted, of all workers of this run.
        rows: of every split.
        left: who makes what is left; None where nothing is.
        workers: of this run.
    """
    return ExtractSummary(
        path=str(config.out),
        fingerprint=plan.fingerprint,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        rows=plan.rows,
        shards=sum(1 for _ in plan.shards()),
        shards_made=tally.shards,
        rows_made=tally.rows,
        batching=tally.batching or plan.batching,
        workers=workers,
        missing=0 if left is None else len(missing_shards(config.out, plan)),
        made_by=left,
        skipped={
            name: {"rows": len(part.skipped), "first": list(part.skipped[:FIRST_SKIPPED])}
            for name, part in rows.items()
            if part.skipped
        },
        **encoder._asdict(),
        **{name: getattr(tally, name) for name in OF_TALLY},
    )
