"""Write the folder of a finished run. N test rows, V validation rows, C classes."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from gaam_cache.store import files as disk
from gaam_cache.store.files import digest_of, sealed_text
from gaam_decoder.runs.files import (
    CONFIG_FILE,
    LEARNED_PREFIX,
    LOG_FILE,
    RELATION_PREFIX,
    RUN_FILE,
    RUN_VERSION,
    TEST_FILE,
    VALIDATION_FILE,
    WEIGHTS_FILE,
)
from gaam_decoder.runs.records import FileRecord, SeedRecord

if TYPE_CHECKING:
    from torch import Tensor

_ORDER_OF_FILES = (WEIGHTS_FILE, TEST_FILE, LOG_FILE, CONFIG_FILE, VALIDATION_FILE)
"""The order in which run.json lists the files."""


@dataclass(kw_only=True, slots=True)
class SeedResult:
    """The result of one seed; its tensors are on the CPU."""

    seed: int
    failed: str | None
    """Why it stopped early; None if it finished."""
    epoch: int
    """Selected epoch, from 1; 0 where the seed failed."""
    seconds: float
    """Of a seed batch: its time divided by its size."""
    weights: dict[str, Tensor]
    test_logits: Tensor
    """(N, C); NaN where the seed failed. A final model has N = 0."""
    attention_map: Tensor | None
    """Mean over the test rows; None where there are none."""
    learned: dict[str, Tensor]
    """As ``Attention.learned`` returns it."""
    log: list[dict[str, Any]]
    validation_logits: Tensor | None = None
    """(V, C); NaN where the seed failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TestedRows:
    """The test rows of a run; a final model has none."""

    labels: Tensor
    """(N,), or (N, K) numbers or labels."""
    rows: NDArray[np.int64] | None = None
    """Of a fold, their numbers in the training split, (N,)."""
    relations: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """As ``RunResult.relations``, each (N,)."""


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    test: TestedRows,
    validation: Mapping[str, NDArray[Any]] | None,
    *,
    description: Mapping[str, Any],
    config: str,
) -> Path:
    """Publish a finished run by one rename; an existing run of that name stays.

    Args:
        runs: the folder of runs.
        name: the name of the run's folder.
        results: one for each seed.
        test: the test rows.
        validation: ``labels`` of the validation rows, their ``rows`` in the training
            or validation split, and for each relation NAME the group numbers
            ``same.NAME``, each (V,); None without validation rows.
        description: the content of run.json, but for its version, date, seeds and
            files.
        config: the content of config.toml.
    """
    contents = _tensor_files(results, test, validation)
    log = "".join(
        f"{json.dumps(entry)}\n" for result in results for entry in result.log
    )
    contents[LOG_FILE] = log.encode()
    # A path in it may be no valid UTF-8.
    contents[CONFIG_FILE] = config.encode(errors="replace")

    # run.json comes last, because it records the digests of all other files.
    files = {
        file: asdict(FileRecord(len(contents[file]), digest_of(contents[file])))
        for file in _ORDER_OF_FILES
        if file in contents
    }
    record = {
        "run_version": RUN_VERSION,
        **description,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seeds": [_seed_record(result) for result in results],
        "files": files,
    }
    contents[RUN_FILE] = sealed_text(record).encode()
    return _publish(runs, name, contents)


def _tensor_files(
    results: Sequence[SeedResult],
    test: TestedRows,
    validation: Mapping[str, NDArray[Any]] | None,
) -> dict[str, bytes]:
    """The content of the files of tensors, by file name."""
    weights = {
        key: _stack(result.weights[key] for result in results)
        for key in results[0].weights
    }
    seed_order = {"seeds": json.dumps([result.seed for result in results])}
    contents = {
        WEIGHTS_FILE: save(weights, seed_order),
        TEST_FILE: save(_test_tensors(results, test), seed_order),
    }
    have_validation = all(result.validation_logits is not None for result in results)
    if validation is not None and have_validation:
        logits = _stack(result.validation_logits for result in results)
        contents[VALIDATION_FILE] = save({"logits": logits, **validation}, seed_order)
    return contents


def _test_tensors(
    results: Sequence[SeedResult], test: TestedRows
) -> dict[str, NDArray[Any]]:
    """The content of the test file.

    A relation numbers the rows: rows with the same number belong together, as those of
    a speaker do.
    """
    tensors = {
        "logits": _stack(result.test_logits for result in results),
        "labels": test.labels.cpu().numpy(),
    }
    if test.rows is not None:
        tensors["rows"] = test.rows
    for name, number_N in test.relations.items():
        tensors[RELATION_PREFIX + name] = number_N

    # Seeds that failed have no map: NaN takes its place.
    maps = [result.attention_map for result in results]
    first_map = next((seed_map for seed_map in maps if seed_map is not None), None)
    if first_map is not None:
        empty_map = first_map.new_full(first_map.shape, np.nan)
        tensors["attention_map"] = _stack(
            empty_map if seed_map is None else seed_map for seed_map in maps
        )

    for name in results[0].learned:
        tensors[LEARNED_PREFIX + name] = _stack(
            result.learned[name] for result in results
        )
    return tensors


def _seed_record(result: SeedResult) -> dict[str, Any]:
    """What run.json says of a seed."""
    seconds = round(result.seconds, 4)
    return asdict(SeedRecord(result.seed, result.failed, result.epoch, seconds))


def _publish(runs: Path, name: str, contents: Mapping[str, bytes]) -> Path:
    """Write the files of a run into a temporary folder, and rename it to ``name``.

    Returns:
        The folder of the run, which another training may have published first.
    """
    folder = runs / name
    temporary = disk.temporary_path(runs, name)
    disk.make_folder(runs)
    temporary.mkdir()
    try:
        for file, content in contents.items():
            disk.write_synced(temporary / file, content)
        disk.sync_folder(temporary)
        temporary.rename(folder)
    except OSError:
        # Another training may have published this run first: that one stays.
        if not (folder / RUN_FILE).exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    disk.sync_folder(runs)
    return folder


def _stack(tensors: Iterable[Tensor | None]) -> NDArray[Any]:
    """The tensors of all seeds as one array, without those that are None."""
    return padded([tensor.cpu().numpy() for tensor in tensors if tensor is not None])


def padded(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays, which may differ in their number of rows.

    Missing rows are filled: floating-point numbers with NaN, unsigned integers (label
    sets) with 0, other integers with -1.
    """
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    most_rows = max(len(value) for value in values)
    fill_by_kind = {"f": np.nan, "u": 0}
    fill = fill_by_kind.get(values[0].dtype.kind, -1)
    no_padding = [(0, 0)] * (values[0].ndim - 1)
    same_length = [
        np.pad(value, [(0, most_rows - len(value)), *no_padding], constant_values=fill)
        for value in values
    ]
    return np.stack(same_length)
