"""Tensors -> a safetensors file, synced, and what to say when the disk refuses."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from gaam_cache.errors import StorageError


def save_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file and sync it."""
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    save_file(contiguous, path, metadata=metadata)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def publish_tensors(tensors: dict[str, torch.Tensor], about: dict[str, Any], path: Path) -> None:
    """Write a file under a temporary name, then rename it; the folder is made if need be.

    Raises:
        StorageError: the file system refused.
    """
    temporary = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(tensors, temporary, {"about": json.dumps(about)})
        temporary.rename(path)
    except OSError as error:
        raise cannot_write(path.parent, error) from error


def read_published(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """What ``publish_tensors`` wrote, or None; a damaged file counts as absent."""
    try:
        tensors = load_file(path)
        with safe_open(path, "pt") as file:
            return tensors, json.loads(file.metadata()["about"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None


def with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def cannot_write(folder: Path, error: OSError) -> StorageError:
    """The file system's refusal as one message."""
    return StorageError(
        "cannot write a run",
        found=error.strerror or str(error),
        where=str(folder.absolute()),
        hint="make room or choose another folder with --runs; finished seeds are kept",
    )
