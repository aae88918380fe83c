"""What a prediction reads: a run, a table, and what says that another is the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.devices import resolve_device
from gaam_cache.errors import CacheError, ConfigError, GaamError, GaamWarning
from gaam_cache.format.digest import hash_file, short_digest
from gaam_cache.format.encoding import Encoding
from gaam_cache.format.fingerprint import differences
from gaam_cache.tables.cached import CachedTable
from gaam_cache.tables.open import Reading, check_reserved, format_of, open_table
from gaam_cache.tables.table import Table
from gaam_decoder.runs.run_folders import is_run
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.use.exported import CONFIG_FILE, WEIGHTS_FILE
from gaam_decoder.use.files.results import Results
from gaam_decoder.use.predict_config import PredictConfig
from gaam_decoder.use.predictor import Predictor

IDENTITY = (RUN_FILE, CONFIG_FILE, WEIGHTS_FILE)
"""Files that say which run, or which export of one, a folder is."""
_SHOWN = 8
"""Differences, of many."""


def predictor_of(config: PredictConfig) -> Predictor:
    """The run."""
    from gaam_decoder.use.load import load

    return load(
        config.run,
        seed=config.seed,
        temperature=config.temperature,
        cache=None if config.of_cache else config.cache,
        encoder=config.encoder,
        device=config.device,
        batch_tokens=config.batch_tokens,
    )


def results_of(config: PredictConfig, predictor: Predictor) -> Results:
    """What is said of every row.

    Raises:
        ConfigError: more classes than there are.
    """
    if config.top > len(predictor.class_names):
        raise ConfigError(
            "--top is out of range",
            expected=f"at most {len(predictor.class_names):,}, as many as there are classes",
            found=f"--top {config.top:,}",
        )
    return Results(predictor.class_names, config.top, config.prefix)


def table_of(config: PredictConfig, predictor: Predictor, spooled: Path | None) -> Table:
    """The table that is predicted.

    Args:
        config: says which.
        predictor: the run.
        spooled: a file of what came by stdin, if that is it.

    Raises:
        ConfigError: rows that this run has nothing to say of, or a column that is missing, or that
            is to be added.
    """
    reserved = [column.name for column in results_of(config, predictor).columns]
    if config.of_cache:
        cached = _cached(config, predictor)
        check_reserved(cached, reserved)
        return cached
    encoding = predictor.encoding
    if encoding is None:
        raise ConfigError(
            "nobody here can encode further rows as those of the run",
            expected="a run on states that gaam extract made",
            found="states that were imported",
            where=str(config.run),
            hint="import the states of these rows too, then --cache CACHE --split NAME",
        )
    path = spooled or config.file
    assert path is not None
    of_files = encoding.kind != "text"
    usual = () if of_files else tuple(encoding.rows.get("text_columns") or ("text",))
    recorded = encoding.rows.get("file_column") if of_files else None
    how = Reading(
        format=format_of(path, "--file") if spooled is None else config.format or "text",
        text_columns=config.text_columns or usual,
        file_column=config.file_column or recorded,
        of_files=of_files,
        delimiter=config.delimiter,
        encoding=config.encoding,
        outside=config.allow_outside or config.of_lines,
        skip_empty=config.skip_empty,
    )
    return open_table(path, how, path.parent if spooled is None else Path.cwd(), reserved)


def _cached(config: PredictConfig, predictor: Predictor) -> CachedTable:
    assert config.cache is not None
    cache = open_cache(config.cache)
    _check_alike(config.run.expanduser(), config.cache, predictor, cache)
    table = CachedTable(cache, config.split or "test")
    table.split.pooled(predictor.pooling)  # refuses a cache without it
    return table


def _check_alike(run: Path, folder: Path, predictor: Predictor, cache: EmbeddingCache) -> None:
    """Rows of another cache than the run's were encoded as those of the run.

    Raises:
        CacheError: they were not, or nobody knows.
    """
    known = read_run(run).cache["fingerprint"] if is_run(run) else None
    if cache.fingerprint == known:
        return
    theirs = Encoding.of(cache.plan)
    try:
        ours = predictor.encoding
    except GaamError as error:  # of an earlier version, and its cache is gone
        raise _not_alike(folder, cache, error.reason) from error
    if ours is None and theirs.imported:
        warnings.warn(
            "states of the run and of the cache were imported: nobody here knows whether they were "
            "made alike",
            GaamWarning,
            stacklevel=2,
        )
        return
    if ours is None or theirs.imported:
        which = "the cache" if ours is not None else "the run"
        raise _not_alike(folder, cache, f"states of {which} were imported")
    if pairs := differences(_numbers(ours), _numbers(theirs)):
        lines = [f"{name}: {mine} in the run, {other} there" for name, mine, other in pairs]
        raise _not_alike(folder, cache, "\n".join(lines[:_SHOWN]))


def _not_alike(folder: Path, cache: EmbeddingCache, found: str) -> CacheError:
    return CacheError(
        "rows of the cache are not known to be encoded as those of the run",
        expected="the cache of the run, or one of the same encoder, layers and types",
        found=found,
        where=f"{folder.absolute()}, fingerprint {short_digest(cache.fingerprint)}",
        hint="encode the rows as those of the run were: gaam predict RUN --file FILE",
    )


def _numbers(encoding: Encoding) -> dict[str, Any]:
    """What decides the numbers of rows; which poolings are there beside the run's does not."""
    identity = {name: value for name, value in encoding.identity.items() if name != "pooling"}
    return {
        "kind": encoding.kind,
        "encoder": identity,
        "decoders": encoding.decoders,
        "storage_dtype": encoding.storage_dtype,
        "layers": encoding.num_layers,
        "hidden_size": encoding.hidden_size,
        "first_layer": encoding.first_layer,
    }


def recipe_of(config: PredictConfig, predictor: Predictor, table: Table, to: str) -> dict[str, Any]:
    """All that decides a file of results beside its rows: JSON values."""
    files = [config.run.expanduser() / name for name in IDENTITY]
    found: dict[str, Any] = {
        "gaam": gaam_cache.__version__,
        "run": {path.name: hash_file(path) for path in files if path.is_file()},
        "seeds": list(predictor.seeds),
        "temperatures": list(predictor.temperatures),
        "top": config.top,
        "prefix": config.prefix,
        "input": table.format,
        "output": to,
        "columns": table.names,
        "delimiter": table.delimiter,
        "encoding": config.encoding,
        "read": list(table.inputs.columns.inputs),
        "skip_empty": config.skip_empty,
        "rows_of_a_piece": table.chunk_rows,
        "encoder": config.encoder,
        "device": str(resolve_device(config.device)),
        "batch_tokens": config.batch_tokens,
    }
    if isinstance(table, CachedTable):
        found["split"] = table.split.name
    return found
