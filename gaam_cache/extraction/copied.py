"""Copies the states of a complete cache into a new cache of the same rows.

Labels, kept columns and splits without labels are those of the rows as they are read
now. So other labels or columns need no second run of the encoder.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress
from gaam_cache.extraction.job import (
    Job,
    RowArrays,
    content_hashes,
    make_plan,
    shards_to_make,
)
from gaam_cache.extraction.summary import ExtractionStats
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.plan import (
    PLAN_FILE,
    Plan,
    ShardSpec,
    adopt_plan,
    comparable_fields,
    differing_fields,
    explain_differences,
    write_plan,
)
from gaam_cache.store.reader import EmbeddingCache, Split, open_cache
from gaam_cache.store.shard import (
    TypedArray,
    check_no_other_cache,
    embeddings_key,
    prepare_folder,
    write_shard,
)
from gaam_cache.targets.base import NO_LABEL

FIELDS_OF_LABELS = {"format_version", "class_names", "target", "columns", "unlabelled"}
"""Fields of a fingerprint that labels and kept columns alone decide."""
WITHOUT_COPY = "leave states-from out, and the encoder reads the rows"
REMEDY = (
    f"give the rows and settings of that cache, or {WITHOUT_COPY}. Labels decide which "
    "rows --limit, --test-fraction (0.2 for a single file) and skip-unlabelled take"
)


def copy_states(
    job: Job, states_from: Path, report: ReportProgress, stats: ExtractionStats
) -> None:
    """Make the missing shards of a cache with the states of another cache.

    Nothing is written before every byte and every row of the other cache is checked.

    Args:
        job: the extraction; its encoder need not be loaded.
        states_from: the other cache. A complete cache does not need it any more.
        report: called with (rows done, rows in all, what is going on).
        stats: counts what is copied.

    Raises:
        ConfigError: the states are not those of this encoder, these settings and rows.
        CacheError: the other cache is incomplete or damaged.
    """
    started = time.perf_counter()
    out = job.config.out
    is_new = not os.path.lexists(out / PLAN_FILE)
    # this refuses to go on with a cache of other labels or columns
    if not is_new and not shards_to_make(out, adopt_plan(out, job.fields, job.dataset)):
        return
    original = open_cache(states_from)
    _check_fields(job, original.plan)
    _check_rows(job, original, report)

    plan_of_copy = make_plan(job, original.plan)
    prepare_folder(out)
    if is_new:
        check_no_other_cache(out, plan_of_copy.fingerprint)
    # this returns the plan that is in the folder, if there is one
    plan = write_plan(out, plan_of_copy)
    if plan.states_id != plan_of_copy.states_id:
        raise ConfigError(
            "the cache in --out was begun with other states; nothing was changed",
            expected="the states that are copied, to the last bit",
            found="other states of two fixed rows",
            where=str(out),
            hint=f"choose another --out, or {WITHOUT_COPY}",
        )
    _copy_shards(job, plan, original, report, stats)
    stats.seconds += time.perf_counter() - started


def _check_fields(job: Job, plan: Plan) -> None:
    """Refuse imported states, another encoder, other settings, or other splits.

    ``plan`` is that of the cache that has the states.
    """
    if plan.imported:
        raise ConfigError(
            "imported states are not copied; nothing was written",
            expected="states-from: a cache of gaam extract",
            found="planted labels" if plan.planted else "imported states",
            where=str(job.config.states_from),
            hint="import or plant them again with other labels: this encodes nothing",
        )
    fields_now, fields_then = comparable_fields(job.fields, plan.fingerprint_fields)
    # the content depends on the labels, too: see ``_check_rows``
    for name in (*FIELDS_OF_LABELS, "content"):
        fields_now.pop(name, None)
        fields_then.pop(name, None)
    lines = explain_differences(fields_now, fields_then, plan)
    if lines:
        remedy = REMEDY
        if set(plan.rows) != set(job.fields["rows"]):
            splits = " ".join(f"--split {name}" for name in plan.rows)
            remedy = f"{splits} names the splits of that cache; {REMEDY}"
        raise ConfigError(
            "the states are those of other rows, another encoder or other settings; "
            "nothing was written",
            expected="differences in labels and kept columns alone",
            found="\n".join([*lines, *_differing_reading(job, plan)]),
            where=str(job.config.states_from),
            hint=remedy,
        )


def _differing_reading(job: Job, plan: Plan) -> list[str]:
    """How the rows are read otherwise, which often explains why they differ."""
    return differing_fields(
        {"dataset": job.dataset.reading_settings},
        {"dataset": plan.dataset.reading_settings},
    )


def _check_rows(job: Job, original: EmbeddingCache, report: ReportProgress) -> None:
    """Refuse a damaged shard, other rows, or another order of the rows.

    A content hash covers rows and labels. So the rows of today are hashed with the
    labels of the other cache: only the same rows in the same order have its hash.
    """
    report(0, UNKNOWN_TOTAL, "checking every byte of the states")
    rows_then = {
        split: replace(rows, labels=_labels(original[split]))
        for split, rows in job.rows.items()
    }
    content_then = original.plan.fingerprint_fields["content"]
    for split, digest in content_hashes(rows_then, report).items():
        if digest == content_then[split]:
            continue
        lines = _differing_reading(job, original.plan)
        row = f"a row of {job.rows[split].origin} was changed, left out or moved"
        raise ConfigError(
            f"the rows of '{split}' are not those of the states; nothing was written",
            expected="the same rows in the same order; labels and kept columns may "
            "differ",
            found="\n".join([row, *lines]),
            where=str(original.root),
            hint=REMEDY,
        )


def _labels(split: Split) -> list[str]:
    """The label of every row of a split, as the content hash covers it."""
    # even without labels: reading them hashes every shard of the split
    stored_labels = split.labels
    if not split.labelled:
        return [NO_LABEL] * len(split)
    return split.target.decode(stored_labels)


def _copy_shards(
    job: Job,
    plan: Plan,
    original: EmbeddingCache,
    report: ReportProgress,
    stats: ExtractionStats,
) -> None:
    """Make the missing shards of ``plan``; see ``copy_states`` for the arguments."""
    # makes what a shard holds beside its states: labels, numbers of rows, ...
    row_arrays = RowArrays(plan, job.rows)
    shards = shards_to_make(job.config.out, plan)
    num_done = job.num_rows - sum(shard.num_rows for shard in shards)
    for shard in shards:
        report(num_done, job.num_rows, f"copying shard {shard.name}")
        split = original[shard.split]
        num_tokens_N = split.num_tokens[shard.start : shard.stop].astype(np.int64)
        # the order of the arrays is part of the bytes of a shard
        arrays = _copied_states(plan, shard, split)
        arrays |= row_arrays.arrays_of(shard, num_tokens_N)
        truncated = _count_truncated(job, plan, shard, split)
        written = write_shard(job.config.out, plan, shard, arrays, truncated=truncated)
        num_done += shard.num_rows
        stats.rows_made += shard.num_rows
        stats.truncated += truncated
        stats.shards_made += written.is_published
        stats.bytes += written.num_bytes


def _copied_states(plan: Plan, shard: ShardSpec, split: Split) -> dict[str, TypedArray]:
    """The states of a new shard, whose rows may lie in several shards of ``split``."""
    dtype = plan.storage_dtype
    shape = (shard.num_rows, plan.num_layers, plan.hidden_size)
    arrays: dict[str, TypedArray] = {}
    for pooling in plan.pooling:
        # as stored: bfloat16 as its bits
        states_NLD = np.empty(shape, NUMPY_DTYPES[dtype])
        bytes_of_rows = states_NLD.reshape(shard.num_rows, -1).view(np.uint8)
        row_N = np.arange(shard.start, shard.stop)
        split.pooled(pooling).read_into(row_N, bytes_of_rows)
        arrays[embeddings_key(plan, pooling)] = TypedArray(dtype, states_NLD)
    return arrays


def _count_truncated(job: Job, plan: Plan, shard: ShardSpec, split: Split) -> int:
    """How many rows of a new shard were cut at the maximum length."""
    if plan.shard_rows == split.shard_rows:
        return split.receipts[shard.index].truncated
    # A receipt counts the rows of its own shard, and wider columns make smaller shards:
    # the rows are cut once more, which needs no weights.
    inputs = job.rows[shard.split].inputs[shard.start : shard.stop]
    return sum(job.encoder.prepare(inputs).truncated)
