"""Unfinished work: one file for each seed batch.

A file names its seeds and the engine of the work. Its seed batch is planned, trained up
to an epoch (a checkpoint), or done (the results of the seeds). The first trainer
decides which seeds are trained together; an interruption changes nothing about it.

Every file carries a SHA-256 of its name and content. A damaged or foreign file counts
as absent: its seeds are trained again, with the same bits.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gaam_cache.common.errors import GaamWarning
from gaam_cache.common.messages import visible
from gaam_cache.store.files import DAMAGE, digest_of, write_file
from gaam_decoder.runs.folders import unfinished_folders, unfinished_name
from gaam_decoder.runs.write import SeedResult

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_decoder.training.arithmetic.engine import Engine

VERSION = 2
FILE_PATTERN = "group-*"
SECONDS_BETWEEN_CHECKPOINTS = 2.0
CHECKPOINT_SHARE = 0.05  # of the training that writing checkpoints may take
# fields of a SeedResult: those that JSON holds, and its single tensors
SEED_FIELDS = ("seed", "failed", "epoch", "seconds", "log")
SEED_TENSORS = ("test_logits", "attention_map", "validation_logits")
DAMAGED = (*DAMAGE, SafetensorError)


class Checkpoint:
    """The file of one seed batch: planned, trained up to an epoch, or done.

    A file holds tensors and a description in JSON. ``work`` is the part of the
    description that stays: version, experiment and engine.
    """

    def __init__(self, path: Path, work: Mapping[str, object]) -> None:
        self.path = path
        self.work = dict(work)
        self._next_save = time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS

    @property
    def is_due(self) -> bool:
        """Whether it is time to save: so seldom that saving takes little time."""
        return time.monotonic() >= self._next_save

    @property
    def is_done(self) -> bool:
        """Whether the file holds the results of its seeds."""
        return bool(_read_description(self.path).get("done"))

    def save(
        self, tensors: Mapping[str, Tensor], progress: Mapping[str, object]
    ) -> None:
        """Replace the content of the file.

        Args:
            tensors: by name.
            progress: seeds, epochs and whatever else the description gets.
        """
        start = time.monotonic()
        arrays = {
            name: value.detach().contiguous().cpu().numpy()
            for name, value in tensors.items()
        }
        description = {**self.work, "done": False, **progress}
        digest = _digest(self.path.name, arrays, description)
        sealed = {"sha256": digest, **description}
        write_file(self.path, save(arrays, {"about": json.dumps(sealed)}))

        # a slow disk gets fewer checkpoints
        end = time.monotonic()
        pause = max(SECONDS_BETWEEN_CHECKPOINTS, (end - start) / CHECKPOINT_SHARE)
        self._next_save = end + pause

    def finish(self, results: Sequence[SeedResult]) -> None:
        """Replace the content of the file by the results of the seeds.

        ``learned`` are the parameters of the mechanism as reports show them, such as
        the centre of a gate; ``weights`` those of the whole decoder as they are stored.
        """
        tensors: dict[str, Tensor] = {}
        entries: list[dict[str, object]] = []
        for result in results:
            entries.append({name: getattr(result, name) for name in SEED_FIELDS})
            for name in SEED_TENSORS:
                # without validation rows, or in a failed seed, some are None
                value: Tensor | None = getattr(result, name)
                if value is not None:
                    tensors[f"{result.seed}.{name}"] = value
            for name, weight in result.weights.items():
                tensors[f"{result.seed}.weights.{name}"] = weight
            for name, parameter in result.learned.items():
                tensors[f"{result.seed}.learned.{name}"] = parameter
        seeds = [result.seed for result in results]
        self.save(tensors, {"seeds": seeds, "done": True, "results": entries})

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and description of the file; both are empty if it is damaged."""
        with suppress(OSError, *DAMAGED):
            return _read(self.path)
        return {}, {}


class SavedBatch(NamedTuple):
    """A seed batch with a file of unfinished work."""

    seeds: list[int]
    engine: Engine  # how its seeds are run (device, type, compiled or not)
    is_begun: bool
    """Whether some of its epochs are trained. It is not begun where it is only planned,
    or done."""


class NamedExperiment(Protocol):
    """The part of an experiment that files of unfinished work name."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def epochs(self) -> int: ...


class UnfinishedWork:
    """The hidden folder of an experiment that is not published yet.

    It has a file for each seed batch. Finished seeds wait there until all are finished
    and the run is published.
    """

    def __init__(self, runs: Path, experiment: NamedExperiment) -> None:
        self.folder = runs / f".{experiment.name}.partial"
        self._work: dict[str, object] = {
            "version": VERSION,
            "key": experiment.key,
            "title": str(experiment),
            "epochs": experiment.epochs,
        }

    def checkpoint(self, seeds: Sequence[int], engine: Engine) -> Checkpoint:
        """The file of the seeds that are trained together.

        Args:
            seeds: of the seed batch; they make the name of the file.
            engine: how the seeds are run (device, type, compiled or not).
        """
        digest = digest_of(" ".join(map(str, seeds)).encode())[:16]
        path = self.folder / f"group-{digest}.safetensors"
        return Checkpoint(path, {**self._work, "engine": engine.to_dict()})

    def load(self) -> tuple[dict[int, SeedResult], list[SavedBatch]]:
        """Read all files, and remove the damaged ones.

        Returns:
            The results of the finished seeds, by seed; and the seed batches of all
            files, the begun ones first.
        """
        from gaam_decoder.training.arithmetic.engine import Engine

        results: dict[int, SeedResult] = {}
        saved_batches: list[SavedBatch] = []
        for path in sorted(self.folder.glob(FILE_PATTERN)):
            try:
                tensors, description = self._read_own(path)
            except FileNotFoundError:
                # another trainer has removed it meanwhile
                continue
            except DAMAGED as error:
                path.unlink(missing_ok=True)
                text = (
                    f"unfinished work '{path}' cannot be continued and is trained "
                    f"again ({error})"
                )
                warnings.warn(visible(text), GaamWarning, stacklevel=2)
                continue
            saved_batch = SavedBatch(
                seeds=description["seeds"],
                engine=Engine(**description["engine"]),
                is_begun=bool(description.get("epochs_done")),
            )
            saved_batches.append(saved_batch)
            for entry in description.get("results", ()):
                results[entry["seed"]] = _seed_result(entry, tensors)
        # False comes before True
        saved_batches.sort(key=lambda saved_batch: not saved_batch.is_begun)
        return results, saved_batches

    def _read_own(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors and the description of a file of this experiment.

        The description has the keys of ``Checkpoint.work``, seeds, done, epochs_done
        (unless it is done) and results (if it is done).

        Raises:
            ValueError: its digest is wrong, or it belongs to other runs.
        """
        tensors, description = _read(path)
        for name in ("version", "key"):
            if description.get(name) != self._work[name]:
                raise ValueError("it belongs to other runs")
        return tensors, description

    def remove(self, published: Set[int], *, others_train: bool) -> None:
        """Remove the files of published seeds, and unreadable files.

        Trained epochs and results of other seeds stay.

        Args:
            published: seeds that runs hold.
            others_train: whether another trainer is at work on a seed batch. If none
                is, files of batches that are only planned are removed, too, and with
                the last file the folder.
        """
        for path in self.folder.glob(FILE_PATTERN):
            description = _read_description(path)
            # an unreadable file names no seed, and so none that is not published
            seeds = set(description.get("seeds", ()))
            is_published = seeds <= published
            is_planned_only = not (
                description.get("done") or description.get("epochs_done")
            )
            if is_published or (is_planned_only and not others_train):
                path.unlink(missing_ok=True)

        # the rest of an interrupted write goes with the folder
        if not others_train and not any(self.folder.glob(FILE_PATTERN)):
            shutil.rmtree(self.folder, ignore_errors=True)


def _seed_result(entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SeedResult:
    """The result of one seed from a file that is done."""
    own_tensors = _tensors_below(f"{entry['seed']}.", tensors)
    return SeedResult(
        seed=entry["seed"],
        failed=entry["failed"],
        epoch=entry["epoch"],
        seconds=entry["seconds"],
        weights=_tensors_below("weights.", own_tensors),
        test_logits=own_tensors["test_logits"],
        attention_map=own_tensors.get("attention_map"),
        learned=_tensors_below("learned.", own_tensors),
        log=entry["log"],
        validation_logits=own_tensors.get("validation_logits"),
    )


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Tensors and description of a file.

    Raises:
        ValueError: the digest of its name and content is wrong.
    """
    import torch

    with safe_open(path, "np") as file:
        description = json.loads(file.metadata()["about"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    digest = description.pop("sha256")
    if digest != _digest(path.name, arrays, description):
        raise ValueError("it is not what was written under that name")
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    return tensors, description


def _digest(
    name: str, arrays: Mapping[str, Any], description: Mapping[str, Any]
) -> str:
    """SHA-256 of the name and the content of a file."""
    parts: list[bytes | memoryview] = [json.dumps([name, description]).encode()]
    for key, value in sorted(arrays.items()):
        parts.append(f"{key} {value.dtype} {value.shape}".encode())
        # the bytes of the array, without a copy
        parts.append(value.reshape(-1).view("u1").data)
    return digest_of(*parts)


def _read_description(path: Path) -> dict[str, Any]:
    """The description in a file, without a check of its SHA-256; empty if unreadable.

    It has the keys that ``UnfinishedWork._read_own`` names.
    """
    with suppress(OSError, *DAMAGED), safe_open(path, "np") as file:
        description: dict[str, object] = json.loads(file.metadata()["about"])
        return description
    return {}


def _tensors_below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def lease_name(experiment_name: str, seeds: Sequence[int]) -> str:
    """The name of the lease on a seed batch of an experiment."""
    return f"{experiment_name}-{digest_of(str(list(seeds)).encode())[:8]}"


def describe_unfinished(runs: Path) -> Iterator[dict[str, Any]]:
    """Describe the unfinished work of a folder of runs, by name, as JSON values.

    ``planned`` and ``done`` are seeds, ``groups`` are seed batches that are not done,
    each with the name of its lease as ``claim``.
    """
    for folder in unfinished_folders(runs):
        paths = sorted(folder.glob(FILE_PATTERN))
        descriptions = [_read_description(path) for path in paths]
        readable = [description for description in descriptions if description]
        if readable:
            yield _describe_folder(folder, readable)


def _describe_folder(
    folder: Path, descriptions: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Describe the unfinished work in a folder by the descriptions of its files."""
    planned: set[int] = set()
    done: set[int] = set()
    seed_batches: list[dict[str, Any]] = []
    for description in descriptions:
        seeds = description["seeds"]
        planned.update(seeds)
        done.update(entry["seed"] for entry in description.get("results", ()))
        if not description["done"]:
            # the folder's name is that of the experiment, between dots
            lease = lease_name(unfinished_name(folder), seeds)
            epoch = description["epochs_done"]
            seed_batches.append({"seeds": seeds, "epoch": epoch, "claim": lease})
    return {
        "folder": folder.name,
        "title": descriptions[0]["title"],
        "epochs": descriptions[0]["epochs"],
        "planned": sorted(planned),
        "done": sorted(done),
        "groups": seed_batches,
    }
