"""What ``gaam extract`` says when it is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gaam_cache.extraction import batching
from gaam_cache.messages.foreign_text import visible


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
    """Wall time of this run's shards, without loading the encoder."""
    write_seconds: float
    """Time of checking, hashing and writing, most of it beside the encoder."""
    bytes: int
    """Bytes of this run's shards."""
    smaller_batches: int | None = None
    """Tokens of a batch in the end, where there was no memory for those that were asked for."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        lines = [
            f"the cache in '{visible(str(self.path))}' is complete",
            f"  encoder      {visible(self.encoder)}, "
            f"{self.num_layers} layers x {self.hidden_size}, computed in {self.dtype}",
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
        said = batching.in_words(self.batching, leak=self.leak, cost=self.batching_cost)
        lines.append(f"  batches      {said}")
        if self.smaller_batches is not None:
            lines.append(
                f"  memory       too little for larger batches: {self.smaller_batches:,} tokens at "
                "most in the end (--batch-tokens)"
            )
        lines.append(
            f"  proof        {self.proven:,} rows encoded again alone, off by at most "
            f"{self.deviation:.1e} of a layer's norm"
        )
        if self.truncated:
            lines.append(f"  truncated    {self.truncated:,} rows at {self.max_length} tokens")
        return "\n".join(lines)
