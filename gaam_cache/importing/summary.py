"""What ``gaam import`` says: before it begins, and when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gaam_cache.format.digest import short_digest
from gaam_cache.format.plan import rows_per_shard
from gaam_cache.importing.job import ImportJob
from gaam_cache.messages import visible

SHOWN = 12
"""Classes, and arrays that are not taken, that are listed for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    """What an import did."""

    path: str
    fingerprint: str
    encoder: str
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: Mapping[str, int]
    shards: int
    shards_made: int
    """In this run; the others were there."""
    seconds: float
    left: tuple[str, ...]
    """Arrays of the files that were not taken."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{visible(name)} {count:,}" for name, count in self.rows.items())
        run = f"{self.shards_made:,} of {self.shards:,} shards in {self.seconds:.1f} s"
        lines = [
            f"the cache in '{visible(self.path)}' is complete",
            f"  encoder      {visible(self.encoder)}: states that were computed elsewhere, "
            f"{self.num_layers} layers x {self.hidden_size}, stored as {self.storage_dtype}",
            f"  rows         {rows}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  this run     {run if self.shards_made else 'nothing to do, every shard was there'}",
            *_not_taken(self.left),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportPreview:
    """What an import would take as what."""

    splits: Mapping[str, dict[str, Any]]
    class_names: tuple[str, ...]
    num_layers: int
    hidden_size: int
    storage_dtype: str
    shards: int
    bytes: int
    """On disk, of states and columns."""
    left: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        lines = []
        for name, split in self.splits.items():
            first, last = split["states"][0], split["states"][-1]
            names = first if first == last else f"{first} to {last}, one for each layer"
            lines += [
                f"{visible(name)}: {split['rows']:,} rows",
                f"  states       {visible(names)}, {'/'.join(split['dtypes'])}, "
                f"axes {split['axes']}",
                f"  labels       {_labels(split)}",
                f"  tokens       {visible(split.get('num_tokens', 'not known'))}",
            ]
            kept = [visible(array) for array in split["columns"].values()]
            lines += [f"  columns      {', '.join(kept)}"] if kept else []
        return "\n".join(
            [
                *lines,
                f"{self.num_layers} layers x {self.hidden_size}, to be stored as "
                f"{self.storage_dtype}: {self.shards:,} shards, {self.bytes / 1e6:,.1f} MB",
                *_not_taken(self.left),
            ]
        )


def _labels(split: dict[str, Any]) -> str:
    if "labels" not in split:
        return "none: to predict on"
    return f"{visible(split['labels'])}: {_counts(split['rows_per_class'])}"


def _counts(rows_per_class: Mapping[str, int]) -> str:
    shown = [f"{visible(name)} {count:,}" for name, count in list(rows_per_class.items())[:SHOWN]]
    return ", ".join(shown) + (", ..." if len(rows_per_class) > SHOWN else "")


def _not_taken(left: tuple[str, ...]) -> list[str]:
    lines = [f"  not taken    {visible(array)}" for array in left[:SHOWN]]
    return [*lines, f"  not taken    {len(left) - SHOWN:,} more"] if len(left) > SHOWN else lines


def preview_of(job: ImportJob, shard_rows: int) -> ImportPreview:
    """What is known before any state is read."""
    rows = {split: len(material) for split, material in job.materials.items()}
    most = rows_per_shard(job.bytes_per_row, shard_rows)
    splits = {}
    for split, material in job.materials.items():
        splits[split] = {"rows": rows[split], **job.taken[split]}
        if material.labelled:
            counts = np.bincount(material.labels.numbers, minlength=len(job.class_names))
            per_class = dict(zip(job.class_names, counts.tolist(), strict=True))
            splits[split]["rows_per_class"] = per_class
    return ImportPreview(
        splits=splits,
        class_names=job.class_names,
        num_layers=job.num_layers,
        hidden_size=job.hidden_size,
        storage_dtype=job.storage_dtype,
        shards=sum(-(-count // most) for count in rows.values()),
        bytes=sum(rows.values()) * job.bytes_per_row,
        left=tuple(job.left),
    )
