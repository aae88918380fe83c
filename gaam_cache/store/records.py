"""What a plan records of its encoder and of its data set.

The records hold JSON values of ``cache.json``. Reading checks the type of every field
that gaam uses; keys that it does not know stay in ``settings``, so that another version
of gaam still has them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, TypeGuard, get_args

from gaam_cache.store.json_fields import (
    OBJECT,
    TEXT,
    TEXT_BY_NAME,
    TEXT_OR_NULL,
    JsonFields,
    JsonType,
    is_integer,
)

Batching = Literal["padded", "equal lengths", "alone"]
"""Which texts may share a batch: any, those of exactly equal length, or none."""
BATCHINGS: tuple[Batching, ...] = get_args(Batching)
"""From the cheapest to the strictest."""

IMPORT_KEY = "import"
"""Key of ``DatasetRecord.imported``, which cannot have the name of a statement."""
PLANTED_KEY = "planted"
FIRST_SETTINGS = ("text_columns", "label_column", "limit")
"""Settings that stand before the origin of the rows in ``cache.json``."""
NOT_SETTINGS = (
    "path",
    "origin",
    "shared_texts",
    "equal_rows",
    "row_sketches",
    IMPORT_KEY,
)
"""Keys of a data set that are no settings of how its rows are read."""


def _is_batching(value: object) -> TypeGuard[Batching]:
    return value in BATCHINGS


def _is_shared_texts(value: object) -> TypeGuard[dict[str, dict[str, int]]]:
    """Whether a JSON value has the form split -> split -> number of rows."""
    if not OBJECT.includes(value):
        return False
    return all(
        OBJECT.includes(counts) and all(map(is_integer, counts.values()))
        for counts in value.values()
    )


def _is_equal_rows(value: object) -> TypeGuard[dict[str, list[list[int]]]]:
    """Whether a JSON value has the form split -> groups of row numbers."""
    if not OBJECT.includes(value):
        return False
    return all(
        isinstance(groups, list) and all(map(_is_integers, groups))
        for groups in value.values()
    )


def _is_integers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(map(is_integer, value))


BATCHING = JsonType(f"one of: {', '.join(BATCHINGS)}", _is_batching)
SHARED_TEXTS = JsonType("numbers by split and split", _is_shared_texts)
EQUAL_ROWS = JsonType("lists of row numbers by split", _is_equal_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderRecord:
    """What a plan records of the encoder: which one it was, and how it was run."""

    kind: str
    """What it reads: text, audio, vision, ...; or ``imported``."""
    name: str
    """Its name as the user gave it."""
    path: str | None = None
    """Its absolute path; None if it is no local file or folder."""
    revision: str | None
    """Its commit, if it came from the hub."""
    batching: Batching
    """Which rows may share a batch."""
    reference: Mapping[str, str] = field(default_factory=dict)
    """Pooling -> sketch of the states of two fixed rows (``reference.encode_sketch``).
    It serves to recognise an encoder that computes something else."""
    adapter_of: str | None = None
    """The base model of its adapter, for people."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the extraction that are not at their defaults, as JSON values."""

    @classmethod
    def from_dict(cls, content: object) -> Self:
        """Read and check what ``to_dict`` wrote; ValueError says what is wrong.

        Keys without a field, such as those of a later version, go to ``settings``.
        """
        fields = JsonFields("encoder", content)
        return cls(
            kind=fields.take("kind", TEXT),
            name=fields.take("name", TEXT),
            path=fields.take_optional("path", TEXT_OR_NULL, None),
            revision=fields.take("revision", TEXT_OR_NULL),
            batching=fields.take("batching", BATCHING),
            reference=fields.take_optional("reference", TEXT_BY_NAME, {}),
            adapter_of=fields.take_optional("adapter_of", TEXT_OR_NULL, None),
            settings=fields.rest(),
        )

    def to_dict(self) -> dict[str, object]:
        """JSON values, in the order of ``cache.json``."""
        content = asdict(self)
        settings: dict[str, Any] = content.pop("settings")
        # left out if empty: plans of earlier versions lack both, and are written as
        # they were read
        for name in ("reference", "adapter_of"):
            if not content[name]:
                del content[name]
        return content | settings


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetRecord:
    """What a plan records of the data set: how to read the same rows again."""

    name: str
    """Its name as the user gave it."""
    path: str | None = None
    """Its absolute path; None if it is no local file or folder."""
    revision: str | None = None
    """Its commit, if it came from the hub."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Split -> where its rows came from, for people."""
    shared_texts: Mapping[str, Mapping[str, int]]
    """Split -> split -> how many rows of the first have a text of the second.

    Of a split and itself: how many rows repeat the text of another row.
    """
    imported: Mapping[str, Any] | None = None
    """The settings with which imported files can be read again, as JSON values."""
    planted: Mapping[str, Any] | None = None
    """Figures of the model (teacher) that drew planted labels; None without them."""
    equal_rows: Mapping[str, list[list[int]]] = field(default_factory=dict)
    """Split -> groups of rows that are copies of one another; empty if unknown."""
    row_sketches: Mapping[str, str] = field(default_factory=dict)
    """Split -> sketch of its rows without their labels; empty if unknown."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the extraction that decide how rows are read, as JSON values."""

    @property
    def reading_settings(self) -> dict[str, object]:
        """All JSON values that decide which rows are read.

        If two caches have different rows, these may explain why.
        """
        return {
            key: value
            for key, value in self.to_dict().items()
            if key not in NOT_SETTINGS
        }

    @classmethod
    def from_dict(cls, content: object) -> Self:
        """Read and check what ``to_dict`` wrote; ValueError says what is wrong.

        Keys without a field, such as those of a later version, go to ``settings``.
        """
        fields = JsonFields("dataset", content)
        return cls(
            name=fields.take("name", TEXT),
            path=fields.take_optional("path", TEXT_OR_NULL, None),
            revision=fields.take_optional("revision", TEXT_OR_NULL, None),
            origin=fields.take_optional("origin", TEXT_BY_NAME, {}),
            shared_texts=fields.take("shared_texts", SHARED_TEXTS),
            imported=fields.take_optional(IMPORT_KEY, OBJECT, None),
            planted=fields.take_optional(PLANTED_KEY, OBJECT, None),
            equal_rows=fields.take_optional("equal_rows", EQUAL_ROWS, {}),
            row_sketches=fields.take_optional("row_sketches", TEXT_BY_NAME, {}),
            settings=fields.rest(),
        )

    def to_dict(self) -> dict[str, object]:
        """JSON values, in the order of ``cache.json``."""
        content = asdict(self)
        # some settings stand before the origin, and all others after it
        settings: dict[str, Any] = content["settings"]
        first_settings = {
            key: settings[key] for key in FIRST_SETTINGS if key in settings
        }
        other_settings = {
            key: value for key, value in settings.items() if key not in FIRST_SETTINGS
        }
        ordered: dict[str, object] = {
            "name": self.name,
            "path": self.path,
            "revision": self.revision,
            **first_settings,
            "origin": content["origin"],
            **other_settings,
            "shared_texts": content["shared_texts"],
        }
        if self.imported is not None:
            ordered[IMPORT_KEY] = content["imported"]
        # figures of the model that drew the labels
        if self.planted is not None:
            ordered[PLANTED_KEY] = content["planted"]
        if self.equal_rows:
            ordered["equal_rows"] = content["equal_rows"]
        if self.row_sketches:
            ordered["row_sketches"] = content["row_sketches"]
        return ordered
