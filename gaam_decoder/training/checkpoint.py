"""Work on seeds that no run has yet: a file for each group of seeds that are trained together.

A file says of which seeds it is, how the work was begun, and how far it is: planned, after an epoch
(a checkpoint), or done (what the seeds left behind). Which seeds are trained together is what the
first trainer says, and never depends on when a training was interrupted.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gaam_cache.common.errors import GaamWarning
from gaam_cache.common.messages import visible
from gaam_cache.store.files import DAMAGE, digest_of, write_file
from gaam_decoder.runs.folders import unfinished_folders
from gaam_decoder.runs.result import SeedResult

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_decoder.training.arithmetic.engine import Engine
    from gaam_decoder.training.grid import Item

VERSION, FILES = 2, "group-*"
SECONDS_BETWEEN_CHECKPOINTS = 2.0
SHARE_OF_TIME = 0.05  # of the training that writing checkpoints may take
OF_A_SEED = ("seed", "failed", "epoch", "seconds", "log")
TENSORS = ("test_logits", "attention_map", "validation_logits")
DAMAGED = (*DAMAGE, SafetensorError)


class Checkpoint:
    """The file of one group of seeds; what ``begun`` says of the work stands in it, too."""

    def __init__(self, path: Path, begun: Mapping[str, Any]) -> None:
        self.path, self.begun = path, dict(begun)
        self._next = time.monotonic() + SECONDS_BETWEEN_CHECKPOINTS

    @property
    def due(self) -> bool:
        """Whether it is time to write the last epoch: so seldom that it takes little time."""
        return time.monotonic() >= self._next

    @property
    def done(self) -> bool:
        return bool(_about(self.path).get("done"))

    def save(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Replace what was there by the state after an epoch."""
        start = time.monotonic()
        arrays = {
            k: value.detach().contiguous().cpu().numpy() for k, value in tensors.items()
        }
        about = {**self.begun, "done": False, **about}
        sealed = {"sha256": _digest(self.path.name, arrays, about), **about}
        write_file(self.path, save(arrays, {"about": json.dumps(sealed)}))
        end = time.monotonic()
        self._next = end + max(
            SECONDS_BETWEEN_CHECKPOINTS, (end - start) / SHARE_OF_TIME
        )

    def finish(self, results: Sequence[SeedResult]) -> None:
        """Replace what was there by what the seeds leave behind."""
        tensors: dict[str, Tensor] = {}
        for result in results:
            own = {name: getattr(result, name) for name in TENSORS}
            own |= {f"weights.{name}": value for name, value in result.weights.items()}
            own |= {f"learned.{name}": value for name, value in result.learned.items()}
            tensors |= {
                f"{result.seed}.{k}": v for k, v in own.items() if v is not None
            }
        ends = [
            {name: getattr(result, name) for name in OF_A_SEED} for result in results
        ]
        self.save(
            tensors, {"seeds": [r.seed for r in results], "done": True, "results": ends}
        )

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        with suppress(OSError, *DAMAGED):
            return _read(self.path)
        return {}, {}


class Unfinished:
    """The folder, with a dot before its name, where finished seeds of an item wait for others."""

    def __init__(self, runs: Path, item: Item) -> None:
        self.folder = runs / f".{item.name}.partial"
        self._begun: dict[str, Any] = {"version": VERSION, "key": item.key}
        self._begun |= {"title": str(item), "epochs": item.epochs}

    def group(self, seeds: Sequence[int], engine: Engine) -> Checkpoint:
        """The file of seeds that are trained together, and how they are run."""
        digest = digest_of(" ".join(map(str, seeds)).encode())[:16]
        path = self.folder / f"group-{digest}.safetensors"
        return Checkpoint(path, {**self._begun, "engine": engine.to_dict()})

    def load(self) -> tuple[dict[int, SeedResult], list[dict[str, Any]]]:
        """Seeds that are finished, and what every file says of itself, those at work first."""
        results: dict[int, SeedResult] = {}
        files: list[dict[str, Any]] = []
        for path in sorted(self.folder.glob(FILES)):
            try:
                tensors, about = _read(path)
                if any(
                    about.get(name) != self._begun[name] for name in ("version", "key")
                ):
                    raise ValueError("it belongs to other runs")
            except FileNotFoundError:  # another trainer has removed it meanwhile
                continue
            except DAMAGED as error:
                path.unlink(missing_ok=True)
                text = f"unfinished work '{path}' cannot be gone on with and is trained again"
                warnings.warn(visible(f"{text} ({error})"), GaamWarning, stacklevel=2)
                continue
            files.append(about)
            for end in about.get("results", ()):
                own = _below(f"{end['seed']}.", tensors)
                found: dict[str, Any] = {name: own.get(name) for name in TENSORS} | end
                found |= {
                    name: _below(f"{name}.", own) for name in ("weights", "learned")
                }
                results[end["seed"]] = SeedResult(**found)
        return results, sorted(files, key=lambda about: not about.get("epochs_done"))

    def remove(self, published: Set[int], *, others: bool) -> None:
        """Drop what was published; groups of other seeds, finished or at work, stay.

        Where nobody else is at work, the folder goes with the last of them.
        """
        for path in self.folder.glob(FILES):
            about = _about(path)
            begun = about.get("done") or about.get("epochs_done")
            if {*about.get("seeds", ())} <= published or not (begun or others):
                path.unlink(missing_ok=True)
        if not others and not any(self.folder.glob(FILES)):
            shutil.rmtree(self.folder, ignore_errors=True)  # what is cut off in it, too


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and the rest, of which every byte was hashed."""
    import torch

    with safe_open(path, "np") as file:
        about = json.loads(file.metadata()["about"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if about.pop("sha256") != _digest(path.name, arrays, about):
        raise ValueError("it is not what was written under that name")
    return {name: torch.from_numpy(value) for name, value in arrays.items()}, about


def _digest(name: str, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    parts: list[bytes | memoryview] = [json.dumps([name, about]).encode()]
    for key, value in sorted(arrays.items()):
        parts += [
            f"{key} {value.dtype} {value.shape}".encode(),
            value.reshape(-1).view("u1").data,
        ]
    return digest_of(*parts)


def _about(path: Path) -> dict[str, Any]:
    """What a file says of itself, unchecked; nothing where it cannot be read at the moment."""
    with suppress(OSError, *DAMAGED), safe_open(path, "np") as file:
        about: dict[str, Any] = json.loads(file.metadata()["about"])
        return about
    return {}


def _below(start: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        key.removeprefix(start): v
        for key, v in tensors.items()
        if key.startswith(start)
    }


def claim_of(work: str, group: Sequence[int]) -> str:
    return f"{work}-{digest_of(str(list(group)).encode())[:8]}"


def look(runs: Path) -> Iterator[dict[str, Any]]:
    """All that is begun, by name, as JSON values; ``planned`` and ``done`` are seeds."""
    for folder in unfinished_folders(runs):
        files = list(filter(None, map(_about, sorted(folder.glob(FILES)))))
        work = [(one["seeds"], one["epochs_done"]) for one in files if not one["done"]]
        name = folder.stem[1:]
        if files:
            yield {
                "folder": folder.name,
                "title": files[0]["title"],
                "epochs": files[0]["epochs"],
                "planned": sorted({seed for one in files for seed in one["seeds"]}),
                "done": sorted(
                    {end["seed"] for one in files for end in one.get("results", ())}
                ),
                "groups": [
                    {"seeds": seeds, "epoch": epoch, "claim": claim_of(name, seeds)}
                    for seeds, epoch in work
                ],
            }
