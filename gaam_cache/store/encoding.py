"""How the rows of a cache were encoded: what it takes to encode further rows alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from gaam_cache.config import IMPORTED
from gaam_cache.store.plan import Batching, Plan, describe_encoder, without_path

NO_PLACE = {"path": None, "revision": None}
"""Of what a plan, such as one that somebody else wrote, says no more than the name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How rows were encoded; a plan has it, and so has a run that learned from the rows.

    It is a value of JSON, and compares as one.
    """

    kind: str
    """Of the rows: text, audio, vision, ..., or of states that others made."""
    encoder: dict[str, Any]
    """As in a plan: name, path, revision, batching, and settings that are not at their default."""
    identity: dict[str, Any]
    """What decides the numbers, as the fingerprint covers it: hashes of the encoder's files, type
    of its arithmetic, greatest length, poolings, layers, and more."""
    decoders: dict[str, Any]
    """What made samples or pixels of files, and in which version; empty of texts."""
    storage_dtype: str
    pooling: tuple[str, ...]
    num_layers: int
    hidden_size: int
    first_layer: int
    """Number of the first layer: 0 where that is what the encoder's first one reads, else 1."""
    rows: dict[str, Any]
    """How rows are read, as in a plan: name, path and revision of the data set, ``text_columns``,
    ``label_column``, settings that are not at their default; and its ``splits``."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """That of a cache."""
        found = ("origin", "shared_texts", "import")
        known = {name: value for name, value in plan.dataset.items() if name not in found}
        return cls(
            kind=plan.encoder["kind"],
            encoder=NO_PLACE | {k: v for k, v in plan.encoder.items() if k != "kind"},
            identity=plan.fingerprint_fields["encoder"],
            decoders=plan.fingerprint_fields.get("decoders", {}),
            storage_dtype=plan.storage_dtype,
            pooling=plan.pooling,
            num_layers=plan.num_layers,
            hidden_size=plan.hidden_size,
            first_layer=plan.first_layer,
            rows=NO_PLACE | known | {"splits": list(plan.rows)},
        )

    @property
    def batching(self) -> Batching:
        """Which rows may share a batch, as measured by whoever wrote the plan."""
        found: Batching = self.encoder["batching"]
        return found

    @property
    def imported(self) -> bool:
        """Whether nobody here can encode further rows: the states were handed over."""
        return self.kind == IMPORTED

    @property
    def untrained_seed(self) -> int | None:
        """Seed of the encoder's random weights; None where they are trained."""
        seed: int | None = self.identity.get("untrained", {}).get("seed")
        return seed

    @property
    def label(self) -> str:
        """Name of the encoder for people, which says so where its weights are random."""
        return describe_encoder(self.encoder["name"], self.untrained_seed)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"pooling": list(self.pooling)}

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """What ``to_dict`` gave; ValueError where it is something else."""
        names = {one.name for one in fields(cls)}
        if type(value) is not dict or set(value) != names:
            raise ValueError(f"an encoding has {', '.join(sorted(names))}")
        return cls(**{**value, "pooling": tuple(value["pooling"])})

    def portable(self) -> Self:
        """The same without any path of this machine; of a local name the last part is left."""
        return replace(self, encoder=without_path(self.encoder), rows=without_path(self.rows))
