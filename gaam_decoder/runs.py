"""A run directory <-> RunResult.

S seeds, N test rows, C classes.

A run is one mechanism trained under one recipe on one cache, over some seeds::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json             what was run, where, on what, and per seed how it went
      log.jsonl            one line per seed and epoch
      weights.safetensors  every parameter of every seed, stacked: (S, ...)
      test.safetensors     logits (S, N, C), labels (N,), mean attention map (S, ...)

It appears by one rename when it is finished. Unfinished seeds lie in a folder with a dot before
its name and are taken up again by the next call.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from gaam_cache.errors import CacheError, NotFoundError, StorageError
from gaam_decoder import stats
from gaam_decoder.train import SeedResult

RUN_VERSION = 1
RUN_FILE = "run.json"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a finished run says: everything a report needs, and nothing it has to recompute."""

    path: Path
    key: str
    """Hash of mechanism, recipe and cache; runs that share it differ in their seeds alone."""
    attention: str
    head: str
    recipe: dict[str, Any]
    """Training settings that change the numbers."""
    cache: dict[str, Any]
    """Fingerprint, encoder, dataset, layers, hidden_size, rows, class_names."""
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float
    seeds: tuple[int, ...]
    failed: dict[int, str]
    epochs: dict[int, int]
    """Epoch that was kept, per seed."""
    seconds: dict[int, float]

    @cached_property
    def _test(self) -> dict[str, NDArray[Any]]:
        path = self.path / "test.safetensors"
        try:
            with safe_open(path, "np") as file:
                return {name: file.get_tensor(name) for name in ("logits", "labels")}
        except (OSError, SafetensorError) as error:
            raise _damaged(path, error) from error

    @property
    def logits(self) -> NDArray[np.float32]:
        """Test logits, (S, N, C); NaN for failed seeds."""
        return self._test["logits"]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Test labels, (N,)."""
        return self._test["labels"]

    @property
    def finished(self) -> tuple[int, ...]:
        """Seeds that did not fail."""
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted class of every test row, (finished seeds, N)."""
        keep = [self.seeds.index(seed) for seed in self.finished]
        return self.logits[keep].argmax(-1)

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Test accuracy of every finished seed, a fraction."""
        return np.array([stats.accuracy(row, self.labels) for row in self.predictions])

    @cached_property
    def macro_f1(self) -> NDArray[np.float64]:
        """Macro-averaged F1 of every finished seed."""
        classes = len(self.cache["class_names"])
        return np.array([stats.macro_f1(row, self.labels, classes) for row in self.predictions])

    @property
    def select(self) -> str:
        """Selection protocol: val, last or test."""
        return str(self.recipe["select"])

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what was run and how every seed ended."""
        accuracy = dict(zip(self.finished, self.accuracy.tolist(), strict=True))
        return {
            "kind": "run",
            "path": str(self.path.absolute()),
            "attention": self.attention,
            "head": self.head,
            "recipe": self.recipe,
            "parameters": self.parameters,
            "cache": self.cache,
            "majority_accuracy": self.majority_accuracy,
            "seeds": [
                {
                    "seed": seed,
                    "accuracy": accuracy.get(seed),
                    "epoch": self.epochs[seed],
                    "seconds": self.seconds[seed],
                    "failed": self.failed.get(seed),
                }
                for seed in self.seeds
            ],
            "environment": self.environment,
        }

    def summary(self) -> str:
        """One line for people."""
        text = f"{self.attention} + {self.head}: "
        if len(self.accuracy):
            spread = stats.standard_deviation(self.accuracy)
            text += f"{100 * self.accuracy.mean():.1f}%"
            text += f" (sd {100 * spread:.1f})" if spread is not None else ""
        text += f" over {len(self.finished)} seeds"
        text += f", {len(self.failed)} FAILED" if self.failed else ""
        mean_seconds = np.mean([self.seconds[seed] for seed in self.seeds])
        return f"{text}, {mean_seconds:.2f} s a seed  {self.path}"


def run_name(attention: str, head: str, key: str, seeds: Sequence[int]) -> str:
    """Folder name of a run: readable in front, unambiguous behind."""
    slug = "".join(c if c.isalnum() or c in "-_." else "_" for c in f"{attention}-{head}")
    contiguous = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}-{seeds[-1]}" if contiguous else "_".join(map(str, seeds))
    if len(text) > 40:
        text = f"{len(seeds)}x{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return f"{slug[:80]}-{key[:8]}-s{text}"


class SeedStore:
    """Finished seeds of a run that is still unfinished, one file each."""

    def __init__(self, runs: Path, name: str) -> None:
        """The folder is made when the first seed is saved."""
        self.folder = runs / f".{name}.partial"

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.safetensors"

    def save(self, result: SeedResult) -> None:
        """Write one seed under a temporary name, then rename it."""
        tensors = {f"weights.{name}": value for name, value in result.weights.items()}
        tensors["logits"] = result.test_logits
        if result.attention_map is not None:
            tensors["attention_map"] = result.attention_map
        about = {
            name: getattr(result, name) for name in ("seed", "failed", "epoch", "seconds", "log")
        }
        temporary = self.folder / f"seed-{result.seed}.{secrets.token_hex(4)}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _save(tensors, temporary, {"about": json.dumps(about)})
            temporary.rename(self._path(result.seed))
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    def load(self, seed: int) -> SeedResult | None:
        """A seed that was saved, or None; a damaged file counts as absent."""
        try:
            tensors = load_file(self._path(seed))
            with safe_open(self._path(seed), "pt") as file:
                about = json.loads(file.metadata()["about"])
        except (OSError, SafetensorError, ValueError, KeyError):
            return None
        return SeedResult(
            weights={
                name.removeprefix("weights."): value
                for name, value in tensors.items()
                if name.startswith("weights.")
            },
            test_logits=tensors["logits"],
            attention_map=tensors.get("attention_map"),
            **about,
        )

    def remove(self) -> None:
        """Drop the folder, once the run is published."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _save(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    save_file(contiguous, path, metadata=metadata)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    labels: torch.Tensor,
    about: dict[str, Any],
) -> Path:
    """Publish a finished run by one rename; a run of that name that is there already wins.

    Args:
        runs: folder of all runs.
        name: from ``run_name``.
        results: one per seed, in order.
        labels: test labels, (N,).
        about: the part of run.json that the seeds share.
    """
    seeds = [
        {"seed": r.seed, "failed": r.failed, "epoch": r.epoch, "seconds": round(r.seconds, 4)}
        for r in results
    ]
    test = {"logits": torch.stack([r.test_logits for r in results]), "labels": labels.cpu()}
    maps = [r.attention_map for r in results if r.attention_map is not None]
    if maps:
        test["attention_map"] = torch.stack(
            [
                torch.full_like(maps[0], torch.nan) if r.attention_map is None else r.attention_map
                for r in results
            ]
        )
    weights = {key: torch.stack([r.weights[key] for r in results]) for key in results[0].weights}
    order = {"seeds": json.dumps([r.seed for r in results])}
    final = runs / name
    temporary = runs / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir(parents=True)
        try:
            _save(weights, temporary / "weights.safetensors", order)
            _save(test, temporary / "test.safetensors", order)
            lines = [json.dumps(entry) + "\n" for r in results for entry in r.log]
            (temporary / "log.jsonl").write_text("".join(lines), "utf-8")
            content = {"run_version": RUN_VERSION, **about, "seeds": seeds}
            (temporary / RUN_FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            if not (final / RUN_FILE).exists():
                temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        if not (final / RUN_FILE).exists():
            raise _cannot_write(runs, error) from error
    return final


def read_run(path: Path) -> RunResult:
    """Read one run directory.

    Raises:
        CacheError: not a run, damaged, or of a newer version.
    """
    try:
        content = json.loads((path / RUN_FILE).read_bytes())
        version = content.pop("run_version")
        if version > RUN_VERSION:
            raise ValueError(f"run version {version}, this gaam reads up to {RUN_VERSION}")
        seeds = content.pop("seeds")
        return RunResult(
            path=path,
            seeds=tuple(int(entry["seed"]) for entry in seeds),
            failed={entry["seed"]: entry["failed"] for entry in seeds if entry["failed"]},
            epochs={entry["seed"]: entry["epoch"] for entry in seeds},
            seconds={entry["seed"]: entry["seconds"] for entry in seeds},
            **content,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path / RUN_FILE, error) from error


def load_runs(path: str | Path) -> list[RunResult]:
    """All finished runs below a folder, or the one run that ``path`` itself is.

    Raises:
        NotFoundError: no finished run there.
        CacheError: a run that cannot be read.
    """
    folder = Path(path).expanduser()
    if (folder / RUN_FILE).is_file():
        return [read_run(folder)]
    found = sorted(
        file.parent for file in folder.glob("*/" + RUN_FILE) if file.parent.name[0] != "."
    )
    if not found:
        unfinished = unfinished_runs(folder)
        raise NotFoundError(
            f"no finished runs in '{folder}'",
            expected=f"folders with {RUN_FILE}",
            found=f"{len(unfinished)} unfinished" if unfinished else "none",
            where=str(folder.absolute()),
            hint="the same 'gaam train' again finishes them"
            if unfinished
            else "make one with 'gaam train', or name another folder",
        )
    return [read_run(run) for run in found]


def unfinished_runs(folder: Path) -> list[str]:
    """Names of runs that were started and not finished."""
    return sorted(p.name[1:].removesuffix(".partial") for p in folder.glob(".*.partial"))


def describe(path: Path) -> dict[str, Any]:
    """What ``gaam inspect`` says about a run or a folder of runs. JSON values only."""
    runs = [run.to_dict() for run in load_runs(path)]
    if (path / RUN_FILE).is_file():
        return runs[0]
    return {
        "kind": "runs",
        "path": str(path.absolute()),
        "unfinished": unfinished_runs(path),
        "runs": runs,
    }


def _damaged(path: Path, error: Exception) -> CacheError:
    return CacheError(
        f"the run '{path.parent.name}' is damaged",
        expected="the files that gaam train wrote",
        found=str(error),
        where=str(path.absolute()),
        hint="remove that folder; 'gaam train' makes the run again",
    )


def _cannot_write(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        "cannot write a run",
        found=error.strerror or str(error),
        where=str(folder.absolute()),
        hint="make room or choose another folder with --runs; finished seeds are kept",
    )


def in_words(about: dict[str, Any]) -> str:
    """The result of ``describe`` as lines for people."""
    if about["kind"] == "runs":
        blocks = [in_words(run) for run in about["runs"]]
        blocks += [f"unfinished: {name}" for name in about["unfinished"]]
        return "\n".join(blocks)
    recipe = ", ".join(f"{k}={v}" for k, v in about["recipe"].items() if v is not None)
    lines = [
        f"run {about['path']}",
        f"  decoder      {about['attention']} + {about['head']} head, "
        f"{about['parameters']['attention']:,} of {about['parameters']['total']:,} parameters "
        "in the attention",
        f"  cache        {about['cache']['fingerprint'][:12]}: {about['cache']['dataset']} "
        f"through {about['cache']['encoder']}",
        f"  recipe       {recipe}",
        f"  majority     {100 * about['majority_accuracy']:.1f}%",
    ]
    for seed in about["seeds"]:
        what = (
            f"failed: {seed['failed']}"
            if seed["failed"]
            else f"{100 * seed['accuracy']:.2f}% on test, epoch {seed['epoch']}"
        )
        lines.append(f"  seed {seed['seed']:<7} {what}, {seed['seconds']:.2f} s")
    return "\n".join(lines)
