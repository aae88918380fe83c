"""The single pass: rows -> encoder -> shards, by this process or by workers."""

from __future__ import annotations

from gaam_cache.config import ExtractConfig
from gaam_cache.engines._ranks import find_rank
from gaam_cache.extraction.job import prepare_job, warn
from gaam_cache.extraction.missing import make_missing
from gaam_cache.extraction.summary import ExtractSummary, summarize
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.workers import as_rank, by_engine
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.store.files import check_folder
from gaam_cache.terminal import Report, silent


def extract(config: ExtractConfig, *, progress: Report | None = None) -> ExtractSummary:
    """Build a cache, or complete one.

    Rows are encoded shard by shard; a shard that has its receipt is never made again, so an
    interrupted extraction goes on where it stopped and ends with the same bytes.

    Where ``config`` asks for several devices or another engine, workers do so. Where this process
    is one of several that somebody else started (see ``find_rank``), it is one of the workers, and
    returns when others are at work on all that is left.

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: an argument is wrong, the folder holds another cache, or none can be there.
        DataError: a row cannot be used.
        NumericsError: a state that the storage type cannot hold, or that is not that of its text
            alone.
        HubError: the hub cannot be reached.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a class, or more
            than 1% of the rows are cut; or a worker died.
    """
    report = progress or silent
    rank = find_rank(config.rank)
    check_folder(config.out, option="--out")
    if not config.alone:
        summary = by_engine(config, rank, report)
    elif rank is not None:
        summary = as_rank(config, rank, report)
    else:
        job, tally = prepare_job(config, report), Tally()
        made = make_missing(config, job, report, tally)
        summary = summarize(config, made.plan, job.encoder.facts(), tally, job.rows)
    cut = row_checks.truncation(
        summary.rows_made, summary.truncated, summary.max_length, summary.unit
    )
    warn(cut, stacklevel=3)
    return summary
