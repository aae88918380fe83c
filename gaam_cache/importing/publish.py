"""Checked states become the shards of a cache; an interrupted import goes on where it stopped."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.engines._claims import Claim, Claims
from gaam_cache.errors import GaamWarning
from gaam_cache.extraction.job import content_of
from gaam_cache.extraction.repair import discard_broken
from gaam_cache.extraction.row_arrays import RowArrays
from gaam_cache.extraction.undone import CLAIM_FOLDER, Undone
from gaam_cache.format.layout import (
    embeddings_key,
    missing_shards,
    shard_attributes,
)
from gaam_cache.format.plan import (
    Plan,
    ShardSpec,
)
from gaam_cache.format.planted import Planted
from gaam_cache.format.receipt import receipt_path
from gaam_cache.format.shard import build_image, prepare_folder, publish
from gaam_cache.format.write_plan import write_plan
from gaam_cache.importing.job import ImportJob, changed
from gaam_cache.importing.plan import check_folder, fields_of, plan_of
from gaam_cache.importing.rows import ImportedRows, digests_of, look_at
from gaam_cache.importing.summary import ImportSummary
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.terminal import Report, in_thread

PAUSE_SECONDS = 0.2
"""Between two looks at what another import makes."""


def publish_states(
    job: ImportJob,
    out: Path,
    *,
    names: Mapping[str, str],
    files: Mapping[str, str],
    again: Mapping[str, Any] | None,
    pool: str,
    shard_rows: int,
    report: Report,
    planted: Planted | None = None,
) -> ImportSummary:
    """Make what a cache of these states lacks.

    Args:
        job: what to take.
        out: folder of the cache.
        names: what reports call the encoder and the data set.
        files: their names and hashes; none where arrays came from memory.
        again: what it takes to read them again; None where nothing does.
        pool: name of the pooling.
        shard_rows: rows of a shard at most.
        report: called with (rows done, rows in all, what is going on).
        planted: what is known of the teacher of the labels, where there was one.

    Raises:
        ConfigError: the folder holds another cache.
        NumericsError: a state that is no number, or that cannot be stored.
        DataError: a file is damaged, or is written to meanwhile.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    began = time.perf_counter()
    fields = fields_of(job, files, pool, planted)
    check_folder(out, fields)
    rows = look_at(job.materials, job.origins, job.storage_dtype, report)
    job.check_unchanged()
    groups = list(row_checks.repeated_texts(rows, report))
    for message in row_checks.check_rows(rows, job.class_names, groups):
        warnings.warn(message, GaamWarning, stacklevel=4)
    fields["content"] = content_of(rows, report)
    plan = plan_of(job, fields, names, again, pool, shard_rows, planted)
    plan.dataset["shared_texts"] = row_checks.shared_texts(groups)
    in_thread(prepare_folder, out)
    plan = in_thread(write_plan, out, plan)
    for name, why in in_thread(discard_broken, out, plan).items():
        warnings.warn(f"{name} is made again: {why}", GaamWarning, stacklevel=4)
    made = _make_missing(_Maker(out, plan, job, rows), report)
    job.check_unchanged()
    return ImportSummary(
        path=str(out),
        fingerprint=plan.fingerprint,
        encoder=plan.encoder_label,
        num_layers=plan.num_layers,
        hidden_size=plan.hidden_size,
        storage_dtype=plan.storage_dtype,
        rows=plan.rows,
        shards=sum(1 for _ in plan.shards()),
        shards_made=made,
        seconds=time.perf_counter() - began,
        left=tuple(job.left),
    )


class _Maker:
    """Makes the shards of a plan."""

    def __init__(
        self, out: Path, plan: Plan, job: ImportJob, rows: Mapping[str, ImportedRows]
    ) -> None:
        self.out, self.plan = out, plan
        self._job, self._rows = job, rows
        self._row_arrays = RowArrays(plan, rows)

    def exists(self, shard: ShardSpec) -> bool:
        """Whether it has its receipt by now."""
        return receipt_path(self.out, shard.name).exists()

    def make(self, shard: ShardSpec) -> None:
        """Read and publish one; what was read before must be what is read now."""
        plan, material = self.plan, self._job.materials[shard.split]
        states = material.states.stored(shard.start, shard.stop, plan.storage_dtype)
        if digests_of(states) != self._rows[shard.split].inputs[shard.start : shard.stop]:
            raise changed(self._job.origins[shard.split])
        tokens = material.num_tokens
        length_N = np.ones(len(material), np.int64) if tokens is None else tokens.astype(np.int64)
        arrays = {embeddings_key(plan, plan.pooling[0]): (plan.storage_dtype, states)}
        arrays |= self._row_arrays.of(shard, length_N[shard.start : shard.stop])
        image, specs = build_image(arrays, shard_attributes(plan, shard))
        receipt = {
            "fingerprint": plan.fingerprint,
            "split": shard.split,
            "start": shard.start,
            "stop": shard.stop,
            "truncated": 0,
            "datasets": specs,
        }
        in_thread(publish, self.out, shard.name, image, receipt)


def _make_missing(maker: _Maker, report: Report) -> int:
    """How many shards were made; others that import the same beside us may make the rest."""
    out, plan = maker.out, maker.plan
    missing = set(missing_shards(out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    total, made = sum(plan.rows.values()), 0
    with Claims(out / CLAIM_FOLDER) as claims:
        undone = Undone(todo, claims, maker.exists)
        while undone.rows:
            report(total - undone.rows, total, "writing shards")
            taken: tuple[ShardSpec, Claim] | None = undone.take()
            if taken is None:
                time.sleep(PAUSE_SECONDS)
                continue
            shard, claim = taken
            maker.make(shard)
            undone.finish(shard)
            claim.done()
            made += 1
        claims.clear({shard.name for shard in plan.shards()})
    return made
