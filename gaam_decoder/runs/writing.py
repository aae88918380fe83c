"""SeedResults -> a run directory, by one rename; ``result`` says what lies in it.

N test rows, V rows that choose, C classes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from gaam_cache.engines._claims import is_alive
from gaam_cache.store.digest import digest_of, sealed_text
from gaam_cache.store.files import (
    make_folder,
    storage_errors,
    sync_folder,
    temporary_path,
    write_synced,
)
from gaam_decoder.runs import result
from gaam_decoder.runs.folders import of_key

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True, slots=True)
class SeedResult:
    """What one seed left behind; tensors on the CPU."""

    seed: int
    failed: str | None
    """Why it stopped, or None."""
    epoch: int
    """Epoch that was kept, from 1; 0 where it failed."""
    seconds: float
    """Of a seed that was trained in a group: the time of the group divided by its size."""
    weights: dict[str, Tensor]
    test_logits: Tensor
    """(N, C); NaN where it failed. Of a final model N is 0."""
    attention_map: Tensor | None
    """Mean over the test rows; None where there are none."""
    learned: dict[str, Tensor]
    """Parameters that mean something by themselves, in their domain: ``Attention.learned``."""
    log: list[dict[str, Any]]
    validation_logits: Tensor | None = None
    """Of the rows of train that chose the epoch, as it was kept, (V, C); NaN where it failed, or
    they are not finite. None where no rows of train chose."""


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    labels: Tensor,
    about: dict[str, Any],
    rows: NDArray[np.int64] | None = None,
    held: Mapping[str, NDArray[Any]] | None = None,
    *,
    config: str,
) -> Path:
    """Publish a finished run by one rename; a run of that name that is there already wins."""

    def stacked(values: Sequence[Tensor]) -> NDArray[Any]:
        return padded([value.cpu().numpy() for value in values])

    seeds = [
        {"seed": r.seed, "failed": r.failed, "epoch": r.epoch, "seconds": round(r.seconds, 4)}
        for r in results
    ]
    test = {"logits": stacked([r.test_logits for r in results]), "labels": labels.cpu().numpy()}
    if rows is not None:
        test["rows"] = rows
    maps = [r.attention_map for r in results if r.attention_map is not None]
    if maps:  # a seed that failed has none
        nothing = maps[0].new_full(maps[0].shape, np.nan)
        found = [nothing if r.attention_map is None else r.attention_map for r in results]
        test["attention_map"] = stacked(found)
    for key in results[0].learned:
        test[f"learned.{key}"] = stacked([r.learned[key] for r in results])
    weights = {key: stacked([r.weights[key] for r in results]) for key in results[0].weights}
    order = {"seeds": json.dumps([r.seed for r in results])}
    contents = {
        result.WEIGHTS_FILE: save(weights, order),
        result.TEST_FILE: save(test, order),
        result.LOG_FILE: "".join(json.dumps(e) + "\n" for r in results for e in r.log).encode(),
        result.CONFIG_FILE: config.encode(errors="replace"),  # of a path that is no UTF-8
    }
    logits = [r.validation_logits for r in results if r.validation_logits is not None]
    if held is not None and len(logits) == len(results):
        contents[result.VALIDATION_FILE] = save({"logits": stacked(logits), **held}, order)
    files = {
        file: {"bytes": len(content), "sha256": digest_of(content)}
        for file, content in contents.items()
    }
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"run_version": result.RUN_VERSION, **about, "created": created}
    contents[result.RUN_FILE] = sealed_text(said | {"seeds": seeds, "files": files}).encode()
    final, temporary = runs / name, temporary_path(runs, name)
    with storage_errors(final, option="--runs"):
        try:
            make_folder(runs)
            temporary.mkdir()
            for file, content in contents.items():
                write_synced(temporary / file, content)
            sync_folder(temporary)
            try:
                temporary.rename(final)
            except OSError:
                if not (final / result.RUN_FILE).exists():
                    raise
            sync_folder(runs)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return final


def padded(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stacked; where some have fewer rows than others, NaN (or -1) stands below them."""
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    most, fill = max(map(len, values)), np.nan if values[0].dtype.kind == "f" else -1
    rest = [(0, 0)] * (values[0].ndim - 1)
    return np.stack([np.pad(v, [(0, most - len(v)), *rest], constant_values=fill) for v in values])


def remove_unfinished(runs: Path, key: str) -> None:
    """Drop what a writer that died left; one of this machine that lives is left in peace."""
    for folder in runs.glob(f".*{of_key(key)}*.tmp"):
        pid = folder.name.split(".")[-3]
        if not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(folder, ignore_errors=True)
