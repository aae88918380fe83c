"""A run folder as it is read: run.json first, its other files when they are asked for."""

from __future__ import annotations

import os
from pathlib import Path

from gaam_cache.store.digest import unsealed
from gaam_cache.store.files import read_json
from gaam_decoder.runs import run_checks
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_files import check_size, reading

RUN_VERSION = 1
RUN_FILE = "run.json"


def read_run(path: Path) -> RunResult:
    """Read one run directory; of its files beside run.json only the sizes are looked at.

    Raises:
        CacheError: not a run, damaged, or of another version.
        StorageError: it cannot be read now.
    """
    with reading(path / RUN_FILE):
        try:
            content = unsealed(read_json(path / RUN_FILE))
            version = content.pop("run_version")
            if version != RUN_VERSION:
                raise ValueError(f"run version {version}, this gaam reads {RUN_VERSION}")
            run_checks.check_about(content)
            seeds = content.pop("seeds")
            for name, about in content["files"].items():
                with reading(path / name):
                    status = os.lstat(path / name)
                check_size(status, about["bytes"], name)
            return RunResult(
                path=path,
                seeds=tuple(entry["seed"] for entry in seeds),
                failed={entry["seed"]: entry["failed"] for entry in seeds if entry["failed"]},
                epochs={entry["seed"]: entry["epoch"] for entry in seeds},
                seconds={entry["seed"]: entry["seconds"] for entry in seeds},
                **content,
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from error
