"""Finished seeds of runs that are still unfinished, and the last epoch of those at work."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gaam_decoder.tensor_files import cannot_write, publish_tensors, read_published, with_prefix

SECONDS_BETWEEN_CHECKPOINTS = 2.0
SHARE_OF_TIME = 0.05
"""Of the training that writing checkpoints may take."""


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
    """(N, C); NaN where it failed."""
    attention_map: Tensor | None
    """Mean over the test rows."""
    learned: dict[str, Tensor]
    """Parameters that mean something by themselves, in their domain: ``Attention.learned``."""
    log: list[dict[str, Any]]


class Checkpoint:
    """The state of one group of seeds after its last epoch, in one file.

    It is written so seldom that it takes a small share of the time: what a kill costs is the
    epochs since then, never the result.
    """

    def __init__(self, path: Path) -> None:
        """Use ``SeedStore.checkpoint``."""
        self.path = path
        self._next = time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS

    @property
    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() >= self._next

    def save(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Replace what was there."""
        start = time.monotonic()
        publish_tensors(tensors, about, self.path)
        end = time.monotonic()
        wait = max(SECONDS_BETWEEN_CHECKPOINTS, (end - start) / SHARE_OF_TIME)
        self._next = end + wait

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and the rest, or None; a damaged file counts as absent."""
        return read_published(self.path)

    def remove(self) -> None:
        """Drop it, once its seeds are saved."""
        self.path.unlink(missing_ok=True)


class SeedStore:
    """A folder with a dot before its name: groups of seeds that are finished or at work.

    A group is saved by one rename, with all its seeds: which seeds are trained together then never
    depends on when a training was interrupted.
    """

    def __init__(self, runs: Path, name: str) -> None:
        """The folder is made when something is saved."""
        self.folder = runs / f".{name}.partial"

    def save(self, results: Sequence[SeedResult]) -> None:
        """Write the seeds of one group.

        Raises:
            StorageError: the file system refused.
        """
        tensors: dict[str, Tensor] = {}
        for result in results:
            own = {f"weights.{name}": value for name, value in result.weights.items()}
            own |= {f"learned.{name}": value for name, value in result.learned.items()}
            own["logits"] = result.test_logits
            if result.attention_map is not None:
                own["attention_map"] = result.attention_map
            tensors |= {f"{result.seed}.{name}": value for name, value in own.items()}
        names = ("seed", "failed", "epoch", "seconds", "log")
        about = [{name: getattr(result, name) for name in names} for result in results]
        seeds = [result.seed for result in results]
        publish_tensors(tensors, {"seeds": about}, self._path("done", seeds))
        self.checkpoint(seeds).remove()

    def load(self) -> dict[int, SeedResult]:
        """All seeds that were saved; a damaged file counts as absent."""
        found: dict[int, SeedResult] = {}
        for path in sorted(self.folder.glob("done-*.safetensors")):
            content = read_published(path)
            if content is None:
                continue
            tensors, about = content
            for entry in about["seeds"]:
                own = with_prefix(tensors, f"{entry['seed']}.")
                found[entry["seed"]] = SeedResult(
                    weights=with_prefix(own, "weights."),
                    learned=with_prefix(own, "learned."),
                    test_logits=own["logits"],
                    attention_map=own.get("attention_map"),
                    **entry,
                )
        return found

    def _path(self, kind: str, seeds: Sequence[int]) -> Path:
        digest = hashlib.sha256(" ".join(map(str, seeds)).encode()).hexdigest()[:16]
        return self.folder / f"{kind}-{digest}.safetensors"

    def checkpoint(self, seeds: Sequence[int]) -> Checkpoint:
        """Where the group of these seeds keeps its last epoch."""
        return Checkpoint(self._path("group", seeds))

    def groups_at_work(self) -> list[list[int]]:
        """Seeds of every group that left a checkpoint."""
        found = []
        for path in sorted(self.folder.glob("group-*.safetensors")):
            content = read_published(path)
            if content is not None:
                found.append([int(seed) for seed in content[1]["seeds"]])
        return found

    def first_engine(self, engine: dict[str, Any]) -> dict[str, Any]:
        """The engine that the first call on this folder used; ``engine`` if this is the first.

        Going on as it was begun is what makes a resumed training end with the same bits.
        """
        path = self.folder / "engine.json"
        try:
            first = json.loads(path.read_bytes())
        except (OSError, ValueError):
            first = None
        same = first is not None and all(first.get(k) == engine[k] for k in ("device", "dtype"))
        if same and set(first) == set(engine):
            return dict(first)
        temporary = path.with_name(f"engine.{secrets.token_hex(4)}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(engine), "utf-8")
            temporary.rename(path)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        return engine

    def remove(self) -> None:
        """Drop what was published; groups of other seeds that are still at work stay."""
        if not self.groups_at_work():
            shutil.rmtree(self.folder, ignore_errors=True)
        for path in self.folder.glob("done-*.safetensors"):
            path.unlink(missing_ok=True)


def unfinished_runs(folder: Path) -> list[str]:
    """Names of runs that were started and not finished."""
    return sorted(p.name[1:].removesuffix(".partial") for p in folder.glob(".*.partial"))
