"""A run directory <-> RunResult.

S seeds, N test rows, C classes.

A run is one mechanism trained under one recipe on one cache, over some seeds::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json             what was run, where, on what, and per seed how it went
      log.jsonl            one line per seed and epoch
      weights.safetensors  every parameter of every seed, stacked: (S, ...)
      test.safetensors     logits (S, N, C), labels (N,), mean attention map (S, ...), and learned
                           parameters as they are used, learned.NAME (S, ...)

It appears by one rename when it is finished. Unfinished seeds lie in a folder with a dot before
its name and are taken up again by the next call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from gaam_cache.errors import CacheError, NotFoundError
from gaam_decoder import stats
from gaam_decoder.specs import row_title

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
    """Fingerprint, path (where it was then), encoder, dataset, layers, hidden_size, rows,
    class_names."""
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float
    seeds: tuple[int, ...]
    failed: dict[int, str]
    epochs: dict[int, int]
    """Epoch that was kept, per seed."""
    seconds: dict[int, float]
    learned_start: dict[str, list[float]] = field(default_factory=dict)
    """Smallest and largest value of every learned parameter before training."""
    engine: dict[str, Any] = field(default_factory=dict)
    """How the seeds were run: device, dtype, seed_batch, compiled, why, data."""

    def _tensors(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Tensors of test.safetensors whose names begin so, without that beginning."""
        path = self.path / "test.safetensors"
        try:
            with safe_open(path, "np") as file:
                names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
                return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        except (OSError, SafetensorError) as error:
            raise _damaged(path, error) from error

    def _tensor(self, name: str) -> NDArray[Any]:
        try:
            return self._tensors(name)[""]
        except KeyError:
            path = self.path / "test.safetensors"
            raise _damaged(path, ValueError(f"no tensor '{name}'")) from None

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """Test logits, (S, N, C); NaN for failed seeds."""
        return self._tensor("logits")

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Test labels, (N,)."""
        return self._tensor("labels")

    @cached_property
    def attention_map(self) -> NDArray[np.float32] | None:
        """Attention map averaged over the test rows, (S, L, D), (S, L, 1) or (S, H, Q, L).

        NaN for failed seeds; None where the mechanism has none.
        """
        return self._tensors("attention_map").get("")

    @cached_property
    def learned(self) -> dict[str, NDArray[np.float32]]:
        """Learned parameters as they are used, such as ``xi``, each (S, ...)."""
        return self._tensors("learned.")

    @property
    def finished(self) -> tuple[int, ...]:
        """Seeds that did not fail."""
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted class of every test row, (finished seeds, N)."""
        return self.finished_logits().argmax(-1)

    def finished_logits(self) -> NDArray[np.float32]:
        """Test logits of the seeds that did not fail, (finished seeds, N, C).

        They are not kept in memory by this: a report reads those of hundreds of runs.
        """
        logits = vars(self).get("logits")
        if logits is None:
            logits = self._tensor("logits")
        return logits[[self.seeds.index(seed) for seed in self.finished]]

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One entry per seed and epoch: seed, epoch, loss, train_accuracy, accuracy and more.

        ``accuracy`` is on the rows that choose the epoch; None where none do.
        """
        path = self.path / "log.jsonl"
        try:
            return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error

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
    def title(self) -> str:
        """Decoder and what of the recipe a sweep varies."""
        part = {name: self.recipe.get(name) for name in ("pool", "lr", "layers", "fold")}
        return row_title(self.attention, self.head, **part)

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
            "engine": self.engine,
        }

    def summary(self) -> str:
        """One line for people."""
        text = f"{self.title}: "
        if len(self.accuracy):
            spread = stats.standard_deviation(self.accuracy)
            text += f"{100 * self.accuracy.mean():.1f}%"
            text += f" (sd {100 * spread:.1f})" if spread is not None else ""
            text += f" over {len(self.finished)} seed{'s' * (len(self.finished) != 1)}"
        else:
            text += "no seed finished"
        text += f", {len(self.failed)} FAILED" if self.failed else ""
        mean_seconds = np.mean([self.seconds[seed] for seed in self.seeds])
        text += f", {mean_seconds:.2f} s a seed"
        if self.engine:
            text += " (compiled" if self.engine["compiled"] else " (not compiled"
            text += f", up to {self.engine['seed_batch']} together, {self.engine['dtype']})"
        return f"{text}  {self.path}"


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
        from gaam_decoder.seed_store import unfinished_runs  # imports torch: a second

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


def _damaged(path: Path, error: Exception) -> CacheError:
    return CacheError(
        f"the run '{path.parent.name}' is damaged",
        expected="the files that gaam train wrote",
        found=str(error),
        where=str(path.absolute()),
        hint="remove that folder; 'gaam train' makes the run again",
    )
