"""How the rows of a cache were encoded: what it takes to encode further rows alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from gaam_cache.format.plan import (
    BATCHINGS,
    CONVENTIONS,
    PLUGIN_PATTERN,
    Batching,
    Plan,
    describe_encoder,
)
from gaam_cache.format.portable import without_path
from gaam_cache.format.receipt import ITEM_BYTES
from gaam_cache.import_config import POOLING, is_imported

NOT_OF_ENCODING = ("origin", "shared_texts", "import")
"""What a plan says of its data set that plays no part for other rows."""
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
        fields_of, dataset = plan.fingerprint_fields, plan.dataset
        known = {name: value for name, value in dataset.items() if name not in NOT_OF_ENCODING}
        return cls(
            kind=plan.encoder["kind"],
            encoder=NO_PLACE | {k: v for k, v in plan.encoder.items() if k != "kind"},
            identity=fields_of["encoder"],
            decoders=fields_of.get("decoders", {}),
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
        return is_imported({"kind": self.kind})

    @property
    def untrained_seed(self) -> int | None:
        """Seed of the encoder's random weights; None where they are trained."""
        untrained = self.identity.get("untrained")
        return None if untrained is None else untrained["seed"]

    @property
    def label(self) -> str:
        """Name of the encoder for people, which says so where its weights are random."""
        return describe_encoder(self.encoder["name"], self.untrained_seed)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"pooling": list(self.pooling)}

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """What ``to_dict`` gave.

        Raises:
            ValueError: it is not that, or does not fit together.
        """
        names = {one.name for one in fields(cls)}
        if type(value) is not dict or set(value) != names:
            raise ValueError(f"an encoding has {', '.join(sorted(names))}")
        try:
            if type(value["pooling"]) is not list:
                raise ValueError("the poolings of an encoding are no array")
            found = cls(**{**value, "pooling": tuple(value["pooling"])})
            _check(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a part of an encoding is none: {error!r}") from error
        return found

    def portable(self) -> Self:
        """The same without any path of this machine; of a local name the last part is left."""
        return replace(self, encoder=without_path(self.encoder), rows=without_path(self.rows))


def _check(found: Encoding) -> None:
    """Refuse values that no plan has; a plan that is read is held to the same."""
    identity, encoder, rows = found.identity, found.encoder, found.rows
    parts = (identity, encoder, rows, found.decoders)
    if not all(type(part) is dict for part in parts):
        raise ValueError("a part of an encoding is no object")
    if not PLUGIN_PATTERN.fullmatch(found.kind):
        raise ValueError(f"bad kind of encoder {found.kind!r}")
    sizes = (found.num_layers, found.hidden_size)
    if not all(type(size) is int and 0 < size < 2**40 for size in sizes):
        raise ValueError("the sizes of an encoding must be positive whole numbers")
    if found.storage_dtype not in ITEM_BYTES:
        raise ValueError(f"unknown storage dtype {found.storage_dtype!r}")
    names = found.pooling
    if not names or not all(POOLING.fullmatch(name) for name in names):
        raise ValueError("bad pooling names")
    if list(names) != identity["pooling"] or len(set(names)) < len(names):
        raise ValueError("'pooling' is not what the identity of the encoder has")
    if type(found.first_layer) is not int or found.first_layer not in CONVENTIONS:
        raise ValueError("a first layer that is neither 0 nor 1")
    if (found.first_layer == 0) != (identity.get("layers") == CONVENTIONS[0]):
        raise ValueError("'first_layer' is not what the identity of the encoder has")
    if type(identity["max_length"]) is not int or type(identity["dtype"]) is not str:
        raise ValueError("the encoder's max_length must be a whole number, its dtype a string")
    if found.untrained_seed is not None and type(found.untrained_seed) is not int:
        raise ValueError("the seed of an untrained encoder must be a whole number")
    if encoder["batching"] not in BATCHINGS:
        raise ValueError(f"the encoder's batching must be one of: {', '.join(BATCHINGS)}")
    for source in (encoder, rows):
        optional = (source["revision"], source["path"])
        fits = all(isinstance(one, str | None) for one in optional)
        if type(source["name"]) is not str or not fits:
            raise ValueError("name, path and revision must be strings, or null")
    if type(rows["splits"]) is not list or not all(type(one) is str for one in rows["splits"]):
        raise ValueError("'splits' must be an array of names")
