"""What an extraction did so far."""

from __future__ import annotations

from dataclasses import dataclass

from gaam_cache.store.plan import Batching


@dataclass(slots=True)
class Tally:
    """What was done so far."""

    shards: int = 0
    """Published by us."""

    rows: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    smaller_batches: int | None = None
    """Tokens of a batch at most, where there was no memory for those that were asked for."""
    cost: int = 0
    """Of the batches, in tokens."""
    padded_cost: int = 0
    """What padded batches would have cost."""
    batching: Batching | None = None
    """Which texts share batches, where any were made."""
    proven: int = 0
    """Rows that were encoded again, alone."""
    deviation: float = 0.0
    """The largest of those, as the share of a layer's norm."""
    truncated: int = 0
    bytes: int = 0
    seconds: float = 0.0
    write_seconds: float = 0.0
    """Time of checking, hashing and writing, which runs beside the encoder."""

    def add(self, other: Tally) -> None:
        """What another worker did beside us."""
        for name in ("shards", "rows", "tokens", "padded_tokens", "cost", "padded_cost", "proven"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("truncated", "bytes", "write_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.batching = self.batching or other.batching
        budgets = [t.smaller_batches for t in (self, other) if t.smaller_batches is not None]
        self.smaller_batches = min(budgets, default=None)
        self.deviation = max(self.deviation, other.deviation)
        self.seconds = max(self.seconds, other.seconds)

    @property
    def padding_share(self) -> float:
        """Share of the encoded positions that were padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def batching_cost(self) -> float:
        """How many times the cost of padded batches."""
        return self.cost / self.padded_cost if self.padded_cost else 1.0
