"""Finished seeds of runs that are still unfinished."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from gaam_cache.errors import StorageError
from gaam_decoder.train import SeedResult


class SeedStore:
    """A folder with a dot before its name that holds one file per finished seed."""

    def __init__(self, runs: Path, name: str) -> None:
        """The folder is made when the first seed is saved."""
        self.folder = runs / f".{name}.partial"

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.safetensors"

    def save(self, result: SeedResult) -> None:
        """Write one seed under a temporary name, then rename it."""
        tensors = {f"weights.{name}": value for name, value in result.weights.items()}
        tensors |= {f"learned.{name}": value for name, value in result.learned.items()}
        tensors["logits"] = result.test_logits
        if result.attention_map is not None:
            tensors["attention_map"] = result.attention_map
        about = {
            name: getattr(result, name) for name in ("seed", "failed", "epoch", "seconds", "log")
        }
        temporary = self.folder / f"seed-{result.seed}.{secrets.token_hex(4)}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_tensors(tensors, temporary, {"about": json.dumps(about)})
            temporary.rename(self._path(result.seed))
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    def load(self, seed: int) -> SeedResult | None:
        """A seed that was saved, or None; a damaged file counts as absent."""
        try:
            tensors = load_file(self._path(seed))
            with safe_open(self._path(seed), "pt") as file:
                about = json.loads(file.metadata()["about"])
        except (OSError, SafetensorError, ValueError, KeyError):
            return None

        def group(prefix: str) -> dict[str, torch.Tensor]:
            return {
                name.removeprefix(prefix): value
                for name, value in tensors.items()
                if name.startswith(prefix)
            }

        return SeedResult(
            weights=group("weights."),
            learned=group("learned."),
            test_logits=tensors["logits"],
            attention_map=tensors.get("attention_map"),
            **about,
        )

    def remove(self) -> None:
        """Drop the folder, once the run is published."""
        shutil.rmtree(self.folder, ignore_errors=True)


def unfinished_runs(folder: Path) -> list[str]:
    """Names of runs that were started and not finished."""
    return sorted(p.name[1:].removesuffix(".partial") for p in folder.glob(".*.partial"))


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file and sync it."""
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    save_file(contiguous, path, metadata=metadata)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def cannot_write(folder: Path, error: OSError) -> StorageError:
    """The file system's refusal as one message."""
    return StorageError(
        "cannot write a run",
        found=error.strerror or str(error),
        where=str(folder.absolute()),
        hint="make room or choose another folder with --runs; finished seeds are kept",
    )
