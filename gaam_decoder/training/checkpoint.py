"""Work on seeds that no run has yet: a file for each group of seeds that are trained together.

A file says of which seeds it is, how the work was begun, and how far it is: planned, after an epoch
(a checkpoint), or done (what the seeds left behind). Several trainers may work in a folder: which
seeds are trained together is what the first one says. A group is saved by one rename, with all its
seeds: which seeds are trained together then never depends on when a training was interrupted.

Every file carries a SHA-256 of its name and content. What is damaged or foreign counts as absent:
its seeds are trained again, with the same bits.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from gaam_cache.errors import GaamWarning
from gaam_cache.messages import visible
from gaam_cache.store.digest import digest_of
from gaam_cache.store.files import storage_errors, write_file
from gaam_decoder.runs.folders import unfinished_folders, unfinished_name, work_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from gaam_decoder.runs.writing import SeedResult

VERSION = 1
"""Of the files."""
SECONDS_BETWEEN_CHECKPOINTS = 2.0
SHARE_OF_TIME = 0.05
"""Of the training that writing checkpoints may take."""
OF_A_SEED = ("seed", "failed", "epoch", "seconds", "log")
Groups = list[list[int]]


class Checkpoint:
    """The state of one group of seeds after its last epoch.

    It is written so seldom that it takes a small share of the time: what a kill costs is the
    epochs since then, never the result.
    """

    def __init__(self, path: Path, begun: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._begun = dict(begun or {})
        self._next = time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS

    @property
    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() >= self._next

    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Replace what was there."""
        start = time.monotonic()
        _publish(self.path, tensors, {**self._begun, **about, "done": False})
        end = time.monotonic()
        self._next = end + max(SECONDS_BETWEEN_CHECKPOINTS, (end - start) / SHARE_OF_TIME)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and the rest; None where there is none."""
        try:
            return _read(self.path)
        except (OSError, ValueError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """What a training that was stopped left behind."""

    results: dict[int, SeedResult] = field(default_factory=dict)
    at_work: Groups = field(default_factory=list)
    """Seeds of every group that left a checkpoint."""
    planned: Groups = field(default_factory=list)
    """Seeds that were to be trained together, of every group."""
    engines: list[dict[str, Any]] = field(default_factory=list)
    """How it was begun; several where that has changed since."""

    def groups(self, seeds: Sequence[int], most: int | None) -> tuple[Groups, list[int]]:
        """Seeds in groups as they were when the work was begun, and those that were in none.

        First those at work, then those that were planned together and of which nothing is there.
        """
        left = set(seeds)
        groups: Groups = []
        for group in [*self.at_work, *self.planned]:
            meant = left & set(group) if group in self.at_work else left >= set(group)
            if meant and len(group) <= (most or len(group)):
                groups.append(group)
                left -= set(group)
        return groups, sorted(left)


class Unfinished:
    """The folder, with a dot before its name, of one decoder under one recipe."""

    def __init__(
        self, runs: Path, name: str, key: str, about: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = runs / unfinished_name(name)
        self._begun: dict[str, Any] = {"version": VERSION, "key": key, **(about or {})}

    def _path(self, seeds: Sequence[int]) -> Path:
        digest = digest_of(" ".join(map(str, seeds)).encode())[:16]
        return self.folder / f"group-{digest}.safetensors"

    def _files(self) -> list[Path]:
        """By name; none where another trainer has removed the folder at this moment."""
        return sorted(self.folder.glob("group-*"))

    def begin(self, engine: dict[str, Any], groups: Groups) -> None:
        """Say how seeds are run and which are trained together, for other trainers too."""
        self._begun["engine"] = engine
        for group in groups:
            if not (path := self._path(group)).exists():
                about = {"seeds": group, "epochs_done": 0, "seconds": 0.0, "done": False}
                _publish(path, {}, {**self._begun, **about})

    def has(self, group: Sequence[int]) -> bool:
        """Whether the seeds of a group are finished."""
        return bool((_about(self._path(group)) or {}).get("done"))

    def checkpoint(self, seeds: Sequence[int]) -> Checkpoint:
        """Where the group of these seeds keeps its last epoch."""
        return Checkpoint(self._path(seeds), self._begun)

    def save(self, results: Sequence[SeedResult]) -> None:
        """Write the seeds of one group, in the place of their checkpoint."""
        tensors: dict[str, Tensor] = {}
        for result in results:
            own = {f"weights.{name}": value for name, value in result.weights.items()}
            own |= {f"learned.{name}": value for name, value in result.learned.items()}
            own["test_logits"] = result.test_logits
            for name in ("attention_map", "validation_logits"):
                if (value := getattr(result, name)) is not None:
                    own[name] = value
            tensors |= {f"{result.seed}.{name}": value for name, value in own.items()}
        seeds = [result.seed for result in results]
        ends = [{name: getattr(result, name) for name in OF_A_SEED} for result in results]
        about = {"seeds": seeds, "done": True, "results": ends}
        _publish(self._path(seeds), tensors, {**self._begun, **about})

    def load(self) -> Left:
        """What is whole; what is not is removed, with one warning that names it."""
        left = Left()
        damaged: list[str] = []
        with storage_errors(self.folder, option="--runs"):
            for path in self._files():
                try:
                    tensors, about = _read(path)
                    if any(about.get(name) != self._begun[name] for name in ("version", "key")):
                        raise ValueError(f"'{path.name}' belongs to other runs")
                except ValueError as error:
                    if path.exists():  # else another trainer has removed it meanwhile
                        damaged.append(str(error))
                        path.unlink(missing_ok=True)
                    continue
                if about["done"]:
                    found = {e["seed"]: _result(e, tensors) for e in about["results"]}
                    left.results.update(found)
                elif about["epochs_done"]:
                    left.at_work.append(about["seeds"])
                left.planned.append(about["seeds"])
                left.engines.append(about["engine"])
        if damaged:
            warnings.warn(
                visible(
                    f"unfinished work in '{self.folder.absolute()}' is damaged and was removed, "
                    f"the seeds or epochs in it are trained again ({'; '.join(damaged)})"
                ),
                GaamWarning,
                stacklevel=2,
            )
        return left

    def remove(self, published: Set[int], *, others: bool) -> None:
        """Drop what was published; groups of other seeds, finished or at work, stay."""
        with storage_errors(self.folder, option="--runs"):
            left = False
            for path in self._files():
                about = _about(path) or {"seeds": []}
                begun = about.get("done") or about.get("epochs_done")
                if set(about["seeds"]) <= published or not (begun or others):
                    path.unlink(missing_ok=True)
                else:
                    left = True
            if not left and not others:
                shutil.rmtree(self.folder, ignore_errors=True)  # what is cut off in it, too


def _publish(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and JSON values in one file that carries a digest of its name and content."""
    from safetensors.numpy import save

    arrays = {name: value.detach().contiguous().cpu().numpy() for name, value in tensors.items()}
    sealed = {"sha256": _digest(path.name, arrays, about), **about}
    write_file(path, save(arrays, {"about": json.dumps(sealed)}), option="--runs")


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``_publish`` wrote; ValueError where it is something else, OSError of the system."""
    import torch

    try:
        with safe_open(path, "np") as file:
            about = json.loads(file.metadata()["about"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.pop("sha256") != _digest(path.name, arrays, about):
            raise ValueError(f"'{path.name}' is not what was written under that name")
    except (KeyError, TypeError, AttributeError, FileNotFoundError, SafetensorError) as error:
        raise ValueError(f"'{path.name}' is no file of unfinished work: {error}") from error
    return {name: torch.from_numpy(value) for name, value in arrays.items()}, about


def _digest(name: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> str:
    parts: list[bytes | memoryview] = [json.dumps([name, about]).encode()]
    for key, value in sorted(arrays.items()):
        parts += [f"{key} {value.dtype} {value.shape}".encode(), value.reshape(-1).view("u1").data]
    return digest_of(*parts)


def _about(path: Path) -> dict[str, Any] | None:
    """What a file says of itself, unchecked; None where it cannot be read at the moment."""
    with suppress(OSError, ValueError, KeyError, TypeError, SafetensorError):
        with safe_open(path, "np") as file:
            about: dict[str, Any] = json.loads(file.metadata()["about"])
        about["seeds"]
        return about
    return None


def _result(entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SeedResult:
    from gaam_decoder.runs.writing import SeedResult

    def below(name: str) -> dict[str, Tensor]:
        start = f"{entry['seed']}.{name}"
        return {key.removeprefix(start): v for key, v in tensors.items() if key.startswith(start)}

    own = below("")
    return SeedResult(
        weights=below("weights."),
        learned=below("learned."),
        test_logits=own["test_logits"],
        attention_map=own.get("attention_map"),
        validation_logits=own.get("validation_logits"),
        **entry,
    )


def claim_of(work: str, group: Sequence[int]) -> str:
    """What the claim of a group of seeds is called."""
    return f"{work}-{digest_of(str(list(group)).encode())[:8]}"


def look(runs: Path) -> Iterator[dict[str, Any]]:
    """All that is begun, by name: JSON values; what cannot be read at the moment is left out.

    ``planned`` and ``done`` are seeds, ``groups`` those that are not finished, each with its last
    ``epoch`` and ``claim``; ``seconds_left`` is of one worker for all of them, None where nothing
    was timed yet.
    """
    for folder in unfinished_folders(runs):
        name = work_of(folder.name)
        files = [about for path in sorted(folder.glob("group-*")) if (about := _about(path))]
        if not files:
            continue
        epochs = max(about.get("epochs", 0) for about in files)
        done = [entry for about in files for entry in about.get("results", ())]
        finished = {entry["seed"] for entry in done}
        left = [a for a in files if not set(a["seeds"]) <= finished]
        # per seed and epoch, of what is finished and of what is at work
        seconds = sum(entry["seconds"] for entry in done) + sum(a["seconds"] for a in left)
        timed = len(done) * epochs + sum(len(a["seeds"]) * a["epochs_done"] for a in left)
        to_do = sum(len(a["seeds"]) * (epochs - a["epochs_done"]) for a in left)
        yield {
            "title": files[0].get("title", name),
            "epochs": epochs,
            "planned": sorted({seed for about in files for seed in about["seeds"]}),
            "done": sorted(finished),
            "groups": [
                {
                    "seeds": a["seeds"],
                    "epoch": a["epochs_done"],
                    "claim": claim_of(name, a["seeds"]),
                }
                for a in left
            ],
            "seconds_left": to_do * seconds / timed if timed else None,
        }
