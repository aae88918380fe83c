"""``gaam import``: files of arrays become a cache."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.extraction.recorded import settings_of_import
from gaam_cache.format.targets import check_folder
from gaam_cache.import_config import ImportConfig
from gaam_cache.importing.job import hash_files, opened
from gaam_cache.importing.publish import publish_states
from gaam_cache.importing.summary import ImportPreview, ImportSummary, preview_of
from gaam_cache.terminal import Report, silent


def import_states(config: ImportConfig, *, progress: Report | None = None) -> ImportSummary:
    """Make a cache of states that somebody else computed, or complete one.

    Every number is read twice: once to check and hash it before anything is written, and once to
    write it. At most the rows of one shard are in memory.

    Args:
        config: which files, what to take from them, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: what to take is not clear, or the folder holds another cache.
        DataError: a file is damaged, or its arrays do not fit together.
        NumericsError: a state that is no number, or that cannot be stored.
        StorageError: the file system refused.

    Warns:
        GaamWarning: splits share states, or a split lacks a class.
    """
    report = progress or silent
    check_folder(config.out, option="--out")
    with opened(config) as job:
        files = hash_files(job.containers, report)
        for container in job.containers:
            for array in container.arrays:
                if array.fault is None:
                    array.check()
        shown = ", ".join(Path(name).name for name in config.files)
        return publish_states(
            job,
            config.out,
            names={"encoder": config.encoder_name, "dataset": config.dataset_name or shown},
            files=files,
            again=settings_of_import(config),
            pool=config.pool,
            shard_rows=config.shard_rows,
            report=report,
        )


def preview_import(config: ImportConfig) -> ImportPreview:
    """What ``import_states`` would take as what; reads labels, but no states; writes nothing.

    Raises:
        ConfigError: what to take is not clear.
        DataError: a file is damaged, or its arrays do not fit together.
    """
    check_folder(config.out, option="--out")
    with opened(config) as job:
        return preview_of(job, config.shard_rows)
