"""The plan of a cache (``cache.json``): which rows lie in which shard. Written once, immutable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gaam_cache.config import NAME_PATTERN
from gaam_cache.config_checks import COLUMN_PATTERN
from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.format.fingerprint import check_covered
from gaam_cache.format.receipt import ITEM_BYTES, SHARD_FOLDER
from gaam_cache.format.refusals import raise_if_refused
from gaam_cache.format.sealed import sealed_text, unsealed
from gaam_cache.format.strict_json import read_json

FORMAT = "gaam-cache"
FORMAT_VERSION = 1
PLAN_FILE = "cache.json"
MAX_SHARD_BYTES = 512 * 10**6
MAX_SHARDS = 2**20
"""Of one cache: what a reader lists and a folder can hold."""
OPTIONAL = ("columns", "unlabelled")
"""Keys of a plan that are there where they say something."""
MAX_VALUE_BYTES = 4096
"""Of a value of a kept column in UTF-8: a name, not a text."""
PLUGIN_PATTERN = re.compile(r"[a-z0-9-]{1,32}")
Batching = Literal["padded", "equal lengths", "alone"]
"""Which texts may share a batch: any, those of exactly equal length, or none."""
CONVENTIONS = {1: "transformers.hidden_states[1:]", 0: "transformers.hidden_states"}
"""How an encoder's layers are numbered, by the number of the first that is kept."""
BATCHINGS: tuple[Batching, ...] = ("padded", "equal lengths", "alone")
"""From the cheapest to the strictest."""


def describe_encoder(name: str, untrained_seed: int | None) -> str:
    """What to call an encoder, trained or not."""
    return name if untrained_seed is None else f"{name}, untrained (seed {untrained_seed})"


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardSpec:
    """One shard: rows ``start`` to ``stop`` (exclusive) of a split."""

    split: str
    index: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """File name without hash and suffix, such as ``train-00003``."""
        return f"{self.split}-{self.index:05d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that is known about a cache before its first shard is written."""

    fingerprint: str
    fingerprint_fields: dict[str, Any]
    encoder: dict[str, Any]
    dataset: dict[str, Any]
    num_layers: int
    hidden_size: int
    pooling: tuple[str, ...]
    storage_dtype: str
    class_names: tuple[str, ...]
    rows: dict[str, int]
    """Rows of every split."""
    shard_rows: int
    """Rows of every shard but the last of a split."""
    created_with: dict[str, str]
    columns: dict[str, int] = field(default_factory=dict)
    """Columns of strings that are kept, and how many bytes the longest of their values takes."""
    unlabelled: tuple[str, ...] = ()
    """Splits without labels."""

    @property
    def untrained_seed(self) -> int | None:
        """Seed of the encoder's random weights; None where they are trained."""
        untrained = self.fingerprint_fields["encoder"].get("untrained")
        return None if untrained is None else untrained["seed"]

    @property
    def first_layer(self) -> int:
        """Number of the first layer of the states: 0 where that is the encoder's input, else 1."""
        return 0 if self.fingerprint_fields["encoder"].get("layers") == CONVENTIONS[0] else 1

    @property
    def batching(self) -> Batching:
        """Which texts may share a batch, as measured by whoever wrote the plan."""
        found: Batching = self.encoder["batching"]
        return found

    @property
    def shared_texts(self) -> dict[str, dict[str, int]]:
        """Rows of a split that have a text of a split, or, of itself, of another of its rows."""
        found: dict[str, dict[str, int]] = self.dataset["shared_texts"]
        return found

    @property
    def encoder_label(self) -> str:
        """Name of the encoder for people, which says so where its weights are random."""
        return describe_encoder(self.encoder["name"], self.untrained_seed)

    def shards(self, split: str | None = None) -> Iterator[ShardSpec]:
        """The shards of one split, or of all, in order."""
        for name in self.rows if split is None else (split,):
            for index, start in enumerate(range(0, self.rows[name], self.shard_rows)):
                stop = min(start + self.shard_rows, self.rows[name])
                yield ShardSpec(split=name, index=index, start=start, stop=stop)

    def to_json(self) -> str:
        """The text of ``cache.json``."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        for name in OPTIONAL:
            if not content[name]:
                del content[name]  # a plan that needs none of it stays as gaam 0.1 wrote it
        return sealed_text(content)


def rows_per_shard(bytes_per_row: int, shard_rows: int) -> int:
    """Rows of a shard under both bounds: the number asked for and 512 MB."""
    return max(1, min(shard_rows, MAX_SHARD_BYTES // bytes_per_row))


def read_plan(root: Path) -> Plan:
    """Read and check ``cache.json``.

    Raises:
        NotFoundError: no cache in that folder.
        CacheError: the plan is unreadable, of another version, or inconsistent.
    """
    path = root / PLAN_FILE
    try:
        content = unsealed(read_json(path))
        if content.pop("format") != FORMAT:
            raise ValueError("not a gaam cache")
        version = content.pop("format_version")
        if version is True or version != FORMAT_VERSION:
            raise ValueError(f"format version {version!r}, this gaam reads {FORMAT_VERSION}")
        for name in ("pooling", "class_names", "unlabelled"):
            if not isinstance(content.setdefault(name, []), list):
                raise ValueError(f"'{name}' is no array")
            content[name] = tuple(content[name])
        plan = Plan(**content)
        _check(plan)
    except (FileNotFoundError, NotADirectoryError) as error:
        if next(root.glob(f"{SHARD_FOLDER}/*-?????*.h5"), None):
            raise _unusable(path, "no such file, though there are shards") from error
        raise NotFoundError(
            f"no cache at '{root}'",
            expected=f"a folder with {PLAN_FILE}",
            found="no such file in it" if root.is_dir() else "no such folder",
            where=str(root.absolute()),
            hint="build one with 'gaam extract', or name another folder",
        ) from error
    except KeyError as error:
        raise _unusable(path, f"no key {error}") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise_if_refused(error, path)
        raise _unusable(path, str(error)) from error
    return plan


def _unusable(path: Path, found: str) -> CacheError:
    return CacheError(
        "the plan of the cache is unusable",
        expected="cache.json as gaam wrote it",
        found=found,
        where=str(path.absolute()),
        hint=f"move {path} away and run the gaam extract that made it again: "
        "it writes the plan anew and keeps every shard that fits it",
    )


def _check(plan: Plan) -> None:
    counts = [plan.num_layers, plan.hidden_size, plan.shard_rows, *plan.rows.values()]
    if not all(type(n) is int and 0 < n < 2**40 for n in counts):
        raise ValueError("sizes must be positive whole numbers")
    shards = sum(-(-rows // plan.shard_rows) for rows in plan.rows.values())
    if shards > MAX_SHARDS:
        raise ValueError(f"{shards:,} shards, a cache has at most {MAX_SHARDS:,}")
    if not plan.pooling or not all(re.fullmatch(r"[a-z]{1,16}", name) for name in plan.pooling):
        raise ValueError("bad pooling names")
    if len(set(plan.pooling)) != len(plan.pooling):
        raise ValueError("a pooling is there twice")
    if not plan.rows or not all(NAME_PATTERN.fullmatch(split) for split in plan.rows):
        raise ValueError("bad split names")
    if plan.storage_dtype not in ITEM_BYTES:
        raise ValueError(f"unknown storage dtype {plan.storage_dtype!r}")
    if not plan.class_names or not all(isinstance(name, str) for name in plan.class_names):
        raise ValueError("bad class names")
    if not all(isinstance(source.get("name"), str) for source in (plan.encoder, plan.dataset)):
        raise ValueError("encoder and dataset must have a name")
    if not PLUGIN_PATTERN.fullmatch(plan.encoder["kind"]):
        raise ValueError(f"bad kind of encoder {plan.encoder['kind']!r}")
    if plan.batching not in BATCHINGS:
        raise ValueError(f"the encoder's batching must be one of: {', '.join(BATCHINGS)}")
    for split, others in plan.shared_texts.items():
        if not all(type(n) is int and 0 < n <= plan.rows[split] for n in others.values()):
            raise ValueError("'shared_texts' must hold numbers of rows")
    if not isinstance(plan.encoder["revision"], str | None):
        raise ValueError("the encoder's revision must be a string or null")
    if not all(COLUMN_PATTERN.fullmatch(name) for name in plan.columns):
        raise ValueError("bad names of columns")
    if not all(type(n) is int and 0 < n <= MAX_VALUE_BYTES for n in plan.columns.values()):
        raise ValueError("bad widths of columns")
    if len(set(plan.unlabelled)) != len(plan.unlabelled) or not set(plan.unlabelled) < set(
        plan.rows
    ):
        raise ValueError("'unlabelled' must name some of the splits, and not all")
    check_covered(plan)
