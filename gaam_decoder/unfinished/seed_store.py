"""Finished seeds of runs that are still unfinished, and the last epoch of those at work.

Several trainers may work in it: which seeds are trained together is what the first one says, and a
group is finished when its file is there.

Every file carries a digest of its name and content, says which work it belongs to, how that work
was begun and which seeds were to be trained together. What is damaged, swapped or foreign counts as
absent; since every file says how to go on, the training still ends with the same bits.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from gaam_cache.errors import GaamWarning
from gaam_cache.messages import visible
from gaam_cache.store.digest import digest_of
from gaam_cache.store.files import storage_errors
from gaam_decoder.runs.run_name import unfinished_name
from gaam_decoder.runs.seed_result import SeedResult
from gaam_decoder.unfinished.checkpoint import Checkpoint, publish, read
from gaam_decoder.unfinished.work import Groups, Work

PLAN_FILE = "plan.safetensors"


class SeedStore:
    """A folder with a dot before its name: groups of seeds that are finished or at work.

    A group is saved by one rename, with all its seeds: which seeds are trained together then never
    depends on when a training was interrupted.

    Args:
        runs: folder of all runs.
        name: of the work, readable.
        key: of the runs that come of it.
        about: said in every file, for whoever looks on.
    """

    def __init__(
        self, runs: Path, name: str, key: str, about: Mapping[str, Any] | None = None
    ) -> None:
        """The folder is made when something is saved."""
        self.folder = runs / unfinished_name(name)
        self._begun: dict[str, Any] = {"key": key, **(about or {})}

    def begin(self, work: Work, engine: dict[str, Any], groups: Groups) -> None:
        """Say what every file that is saved from now on says of the whole work.

        Args:
            work: what is there.
            engine: how seeds are run, as JSON values.
            groups: seeds that are to be trained together.

        Raises:
            StorageError: the file system refused.
        """
        new = [group for group in groups if group not in work.planned]
        self._begun |= {"engine": engine, "planned": work.planned + new}
        if new:  # for other trainers, who may begin at any moment
            publish(self.folder / PLAN_FILE, {}, {**self._begun, "seeds": []})

    def there(self) -> bool:
        """Whether there is anything."""
        return os.path.lexists(self.folder)

    def has(self, group: Sequence[int]) -> bool:
        """Whether the seeds of a group are finished."""
        return self._path("done", group).exists()

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
            if result.validation_logits is not None:
                own["validation_logits"] = result.validation_logits
            tensors |= {f"{result.seed}.{name}": value for name, value in own.items()}
        names = ("seed", "failed", "epoch", "seconds", "log")
        about = [{name: getattr(result, name) for name in names} for result in results]
        seeds = [result.seed for result in results]
        publish(self._path("done", seeds), tensors, {**self._begun, "seeds": about})
        with storage_errors(self.folder, option="--runs"):
            self.checkpoint(seeds).path.unlink(missing_ok=True)

    def load(self) -> Work:
        """What is whole; what is not is removed, with one warning that names it.

        Raises:
            StorageError: it cannot be read now, or what is damaged cannot be removed.
        """
        results: dict[int, SeedResult] = {}
        at_work: Groups = []
        begun: list[dict[str, Any]] = []
        damaged: dict[str, str] = {}
        with storage_errors(self.folder, option="--runs"):
            if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
                damaged[self.folder.name] = "it is no folder"
                _remove(self.folder)
            for path in self._files("*"):
                if path.name.startswith("."):
                    continue  # a temporary file, which goes with the folder
                try:
                    found, seeds, about = self._load(path)
                except ValueError as error:
                    if not os.path.lexists(path):
                        continue  # another trainer has finished that group meanwhile
                    damaged[path.name] = str(error)
                    _remove(path)
                    continue
                begun.append(about)
                results |= found
                at_work += [seeds] if seeds and not found else []
        if damaged:
            self._warn(damaged)
        planned = dict.fromkeys(tuple(group) for about in begun for group in about["planned"])
        return Work(
            results=results,
            at_work=at_work,
            engines=[about["engine"] for about in begun],
            planned=[list(group) for group in planned],
        )

    def _load(self, path: Path) -> tuple[dict[int, SeedResult], list[int], dict[str, Any]]:
        """Finished seeds of a file, all its seeds, and what it says of the whole work.

        Raises:
            ValueError: it is not a whole file of this work.
        """
        is_done = path.name.startswith("done-")
        try:
            tensors, about = read(path, with_tensors=is_done)
            if about["key"] != self._begun["key"]:
                raise ValueError("it belongs to other runs")
            about["engine"], about["planned"]
            if not is_done:
                return {}, [int(seed) for seed in about["seeds"]], about
            results = {
                entry["seed"]: _result(entry, _with_prefix(tensors, f"{entry['seed']}."))
                for entry in about["seeds"]
            }
            return results, list(results), about
        except (KeyError, TypeError) as error:
            raise ValueError(f"it was written by another version: {error!r}") from error

    def _warn(self, damaged: dict[str, str]) -> None:
        names = "; ".join(f"'{name}': {reason}" for name, reason in damaged.items())
        warnings.warn(
            visible(
                f"unfinished work in '{self.folder.absolute()}' is damaged and was removed, the "
                f"seeds or epochs in it are trained again ({names})"
            ),
            GaamWarning,
            stacklevel=2,
        )

    def _files(self, pattern: str) -> list[Path]:
        """By name; none where another trainer has removed the folder at this moment."""
        try:
            return sorted(self.folder.glob(pattern))
        except FileNotFoundError:
            return []

    def _path(self, kind: str, seeds: Sequence[int]) -> Path:
        digest = digest_of(" ".join(map(str, seeds)).encode())[:16]
        return self.folder / f"{kind}-{digest}.safetensors"

    def checkpoint(self, seeds: Sequence[int]) -> Checkpoint:
        """Where the group of these seeds keeps its last epoch."""
        return Checkpoint(self._path("group", seeds), self._begun)

    def remove(self, published: Set[int], *, others: bool) -> None:
        """Drop what was published; groups of other seeds, finished or at work, stay.

        Args:
            published: seeds that runs have.
            others: whether other trainers may be about to write here.

        Raises:
            StorageError: the file system refused.
        """
        with storage_errors(self.folder, option="--runs"):
            for path in [*self._files("group-*"), *self._files("done-*")]:
                with suppress(FileNotFoundError, ValueError):
                    _, about = read(path, with_tensors=False)
                    if _seeds_of(about) <= published:
                        path.unlink(missing_ok=True)
            left = self._files("done-*") or self._files("group-*")
            if not left and not others:
                shutil.rmtree(self.folder, ignore_errors=True)  # what is cut off in it, too


def _seeds_of(about: dict[str, Any]) -> set[int]:
    """Of a file: finished ones are told with how they ended."""
    return {seed["seed"] if isinstance(seed, dict) else seed for seed in about["seeds"]}


def _result(entry: dict[str, Any], own: dict[str, Tensor]) -> SeedResult:
    return SeedResult(
        weights=_with_prefix(own, "weights."),
        learned=_with_prefix(own, "learned."),
        test_logits=own["logits"],
        attention_map=own.get("attention_map"),
        validation_logits=own.get("validation_logits"),
        **entry,
    )


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _remove(path: Path) -> None:
    """Remove whatever lies there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
