"""SeedResults -> a run directory, by one rename; ``runs`` says what lies in it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gaam_cache.engines._claims import is_alive
from gaam_cache.store.digest import digest_of_stream, sealed_text
from gaam_cache.store.files import (
    Parts,
    make_folder,
    storage_errors,
    sync_folder,
    temporary_path,
    write_synced,
)
from gaam_decoder.runs.run_checks import (
    CONFIG_FILE,
    CREATED_FORMAT,
    LOG_FILE,
    TEST_FILE,
    VALIDATION_FILE,
    WEIGHTS_FILE,
)
from gaam_decoder.runs.run_name import of_key
from gaam_decoder.runs.run_reader import RUN_FILE, RUN_VERSION
from gaam_decoder.runs.seed_result import SeedResult
from gaam_decoder.runs.tensor_files import Arrays, tensor_parts


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    labels: torch.Tensor,
    about: dict[str, Any],
    rows: NDArray[np.int64] | None = None,
    held: Arrays | None = None,
    *,
    config: str,
) -> Path:
    """Publish a finished run by one rename; a run of that name that is there already wins.

    Args:
        runs: folder of all runs.
        name: from ``run_name.run_name``.
        results: one per seed, in order.
        labels: test labels, (N,).
        about: the part of run.json that the seeds share.
        rows: numbers of the test rows in the train split, (N,), of a fold.
        held: labels and rows of those that choose, (V,) each, where they are a part of train.
        config: the settings that train it again, as TOML.
    """
    seeds = [
        {"seed": r.seed, "failed": r.failed, "epoch": r.epoch, "seconds": round(r.seconds, 4)}
        for r in results
    ]
    test = {"logits": _stacked([r.test_logits for r in results]), "labels": labels.cpu().numpy()}
    if rows is not None:
        test["rows"] = rows
    maps = [r.attention_map for r in results if r.attention_map is not None]
    if maps:
        nothing = torch.full_like(maps[0], torch.nan)
        test["attention_map"] = _stacked(
            [nothing if r.attention_map is None else r.attention_map for r in results]
        )
    for key in results[0].learned:
        test[f"learned.{key}"] = _stacked([r.learned[key] for r in results])
    weights = {key: _stacked([r.weights[key] for r in results]) for key in results[0].weights}
    order = {"seeds": json.dumps([r.seed for r in results])}
    log = "".join(json.dumps(entry) + "\n" for r in results for entry in r.log)
    contents: dict[str, Parts] = {
        WEIGHTS_FILE: tensor_parts(weights, order),
        TEST_FILE: tensor_parts(test, order),
        LOG_FILE: [log.encode()],
        CONFIG_FILE: [config.encode(errors="replace")],  # of a path that is no UTF-8
    }
    logits = [r.validation_logits for r in results if r.validation_logits is not None]
    if held is not None and len(logits) == len(results):  # a seed of an earlier version has none
        held = {"logits": _stacked(logits), **held}
        contents[VALIDATION_FILE] = tensor_parts(held, order)
    files = {name: _about_file(parts) for name, parts in contents.items()}
    created = time.strftime(CREATED_FORMAT, time.gmtime())
    content = {"run_version": RUN_VERSION, **about, "created": created}
    content |= {"seeds": seeds, "files": files}
    final = runs / name
    temporary = temporary_path(runs, name)
    with storage_errors(final, option="--runs"):
        try:
            make_folder(runs)
            temporary.mkdir()
            for file, parts in contents.items():
                write_synced(temporary / file, parts)
            write_synced(temporary / RUN_FILE, sealed_text(content).encode())
            sync_folder(temporary)
            try:
                if not (final / RUN_FILE).exists():
                    temporary.rename(final)
            except OSError:
                if not (final / RUN_FILE).exists():
                    raise
            sync_folder(runs)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return final


def _stacked(values: Sequence[torch.Tensor]) -> NDArray[Any]:
    return np.stack([value.cpu().numpy() for value in values])


def _about_file(parts: Parts) -> dict[str, Any]:
    return {"bytes": sum(map(len, parts)), "sha256": digest_of_stream(parts)}


def temporary_runs(runs: Path, key: str) -> list[Path]:
    """Folders of runs of this key that are being written, or were when their writer died."""
    return list(runs.glob(f".*{of_key(key)}*.tmp"))


def remove_unfinished(runs: Path, key: str) -> None:
    """Drop what a writer that died left; one of this machine that lives is left in peace."""
    for folder in temporary_runs(runs, key):
        pid = folder.name.split(".")[-3]
        if not (pid.isdigit() and is_alive(int(pid), None)):
            shutil.rmtree(folder, ignore_errors=True)
