"""Read a run folder as a RunResult."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import OutOfReachError
from gaam_cache.common.paths import absolute_path
from gaam_cache.store import files as disk
from gaam_cache.store.files import unsealed
from gaam_decoder.recipe import Recipe
from gaam_decoder.records import read_field, read_record, read_value
from gaam_decoder.runs.files import (
    ALL_FILES,
    CONFIG_FILE,
    RUN_FILE,
    RUN_FILES,
    RUN_VERSION,
    explained_file_errors,
)
from gaam_decoder.runs.records import CacheRecord, FileRecord, SeedRecord, TuningRecord
from gaam_decoder.runs.result import RunResult


def read_run(path: Path) -> RunResult:
    """Read run.json of a run folder, and check the sizes of the other files."""
    # The other files are read later, perhaps from another working folder.
    path = absolute_path(path)
    with explained_file_errors(path / RUN_FILE):
        content: dict[str, object] = unsealed(disk.read_json(path / RUN_FILE))
        _check_version(path, content.pop("run_version", None))
        files = read_value(content.pop("files"), dict[str, Any], "files")
        file_records = {
            name: read_record(FileRecord, record, f"files.{name}")
            for name, record in files.items()
        }
        _check_files(path, file_records)
        return _parse_run(path, content, file_records)


def _parse_run(
    path: Path, content: dict[str, Any], files: dict[str, FileRecord]
) -> RunResult:
    """The run of run.json, apart from the keys ``run_version`` and ``files``.

    Args:
        path: the folder of the run.
        content: of run.json, without these keys. Keys that need a conversion are taken
            out; the rest (``attention`` and ``head`` too) are fields of ``RunResult``.
        files: size and digest of the other files, by name.
    """
    settings = read_value(content.pop("recipe"), dict[str, Any], "recipe")
    recipe = Recipe.from_dict(
        settings,
        attention=read_value(content["attention"], str, "attention"),
        head=read_value(content["head"], str, "head"),
        groups=read_value(content.pop("groups", {}), dict[str, Any], "groups"),
    )
    cache = read_record(CacheRecord, content.pop("cache"), "cache")
    tuning_seeds: tuple[int, ...] = ()
    if "tuning" in content:
        tuning = read_record(TuningRecord, content.pop("tuning"), "tuning")
        tuning_seeds = tuning.seeds
    seeds = [
        read_record(SeedRecord, seed, "seeds")
        for seed in read_value(content.pop("seeds"), tuple[Any, ...], "seeds")
    ]
    return RunResult(
        path=path,
        recipe=recipe,
        settings=settings,
        cache=cache,
        tuning_seeds=tuning_seeds,
        seeds=tuple(seed.seed for seed in seeds),
        failed={seed.seed: seed.failed for seed in seeds if seed.failed},
        epochs={seed.seed: seed.epoch for seed in seeds},
        seconds={seed.seed: seed.seconds for seed in seeds},
        files=files,
        **_other_fields(content),
    )


def _other_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of run.json that are read as fields of the same names."""
    field_names = {entry.name for entry in fields(RunResult)}
    unknown = sorted(content.keys() - field_names)
    if unknown:
        raise ValueError(f"unknown key '{unknown[0]}'")
    return {
        name: read_field(RunResult, name, value, name)
        for name, value in content.items()
    }


def _check_version(path: Path, version: object) -> None:
    """Refuse a run folder that another version of gaam wrote."""
    if version != RUN_VERSION:
        raise OutOfReachError(
            f"another version of gaam wrote the run '{path.name}'",
            expected=f"run version {RUN_VERSION}, which this gaam reads",
            found=f"run version {version}",
            where=str(path),
            hint=f"use that version of gaam ({CONFIG_FILE} may name it), "
            "or train into another folder with --runs",
        )


def _check_files(path: Path, files: Mapping[str, FileRecord]) -> None:
    """Check that a run lists the files of a run, and that they have their sizes."""
    if not RUN_FILES <= set(files) <= ALL_FILES:
        raise ValueError(f"files: {', '.join(files)}")
    for name, record in files.items():
        with explained_file_errors(path / name):
            disk.check_size(path / name, record.bytes)
