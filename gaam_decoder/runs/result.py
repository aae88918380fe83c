"""A run directory <-> RunResult.

S seeds, N test rows, V rows that choose, C classes.

A run is one mechanism trained under one recipe on one cache, over some seeds::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json             what was run, on what, how it went; size and SHA-256 of every other file
      config.toml          the settings, resolved: gaam train --config trains the run again
      log.jsonl            one line per seed and epoch
      weights.safetensors  every parameter of every seed, stacked: (S, ...)
      test.safetensors     logits (S, N, C), labels (N,), of a fold rows (N,), mean attention_map
                           (S, ...), learned.NAME (S, ...), same.NAME (N,): equal numbers where
                           rows belong together; of a final model N is 0, and no map
      validation.safetensors  of the rows that chose: logits (S, V, C), labels, rows and same.NAME,
                           (V,)

It appears by one rename when it is finished. Sizes are checked when run.json is read, the digest of
a file before it is first used.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gaam_cache.common.errors import CacheError, GaamError, OutOfReachError
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.store import files as disk
from gaam_cache.store.files import digest_of, hash_file, sealed_text, unsealed
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.recipe import DEFAULTS, NO_TEST
from gaam_decoder.specs import row_title

if TYPE_CHECKING:
    from torch import Tensor

RUN_FILE, RUN_VERSION = "run.json", 1
WEIGHTS_FILE, TEST_FILE, LOG_FILE = (
    "weights.safetensors",
    "test.safetensors",
    "log.jsonl",
)
VALIDATION_FILE, CONFIG_FILE = "validation.safetensors", "config.toml"
RUN_FILES = {
    WEIGHTS_FILE,
    TEST_FILE,
    LOG_FILE,
}  # those that every run has beside run.json
ALL_FILES = RUN_FILES | {VALIDATION_FILE, CONFIG_FILE}
SAME = "same."
"""Begins the names of tensors that say which rows belong together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Answers of every seed to the rows of train that chose, in the epoch that was kept."""

    logits: NDArray[
        np.float32
    ]  # (S, V, C); NaN for seeds that failed or are not finite
    labels: NDArray[
        np.int64
    ]  # (V,); (S, V) where seeds held out rows of their own, -1 below fewer
    rows: NDArray[np.int64]  # numbers in the train split, of the same shape
    same: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """As ``RunResult.same`` has it, of the same shape."""

    def of_seed(self, place: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Logits and labels of the rows that chose for the seed at a place."""
        label_V = self.labels if self.labels.ndim == 1 else self.labels[place]
        return self.logits[place][label_V >= 0], label_V[label_V >= 0]

    def same_of_seed(
        self, place: int, names: Collection[str]
    ) -> list[NDArray[np.int32]]:
        """Numbers of these rows in those relations that are known, in their order."""
        numbers = []
        for name in sorted(names):
            if name in self.same:
                number_V = self.same[name]
                number_V = number_V if number_V.ndim == 1 else number_V[place]
                numbers.append(number_V[number_V >= 0])
        return numbers

    def temperature(self, place: int) -> float | None:
        """Of the seed at a place, fitted on these rows; 1 if all is right, None if not finite."""
        logits_VC, label_V = self.of_seed(place)
        if not np.isfinite(logits_VC).all():
            return None
        from gaam_decoder.stats.temperature import (
            fit_temperature,  # a training does without
        )

        found = fit_temperature(logits_VC, label_V) or 1.0
        # where nothing can be told, all classes are equally likely
        return (
            found if found < np.inf else 1e6 * max(1.0, float(np.abs(logits_VC).max()))
        )


def _tensor(run: RunResult, key: str) -> Any:
    with run.tensors(TEST_FILE) as file:
        return file.get_tensor(key) if key in file.keys() else None  # noqa: SIM118 no mapping


def _of_test(key: str) -> Any:
    return cached_property(lambda run: _tensor(run, key))


def states_of(cache: Mapping[str, Any]) -> str:
    """The name of the states of a cache, as a run records it: ``Plan.states``."""
    return str(cache.get("states") or cache["fingerprint"])


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunResult:
    """What a finished run says; the fields, but for ``path`` and seeds, are those of run.json.

    >>> runs[0].attention, runs[0].seeds, runs[0].hits.shape
    ('gaam:heads=1', (0, 1, 2), (3, 30))
    """

    path: Path
    key: str  # hash of mechanism, recipe and cache; runs that share it differ in their seeds alone
    attention: str
    head: str
    recipe: dict[str, Any]  # training settings that change the numbers
    cache: dict[str, Any]
    """Fingerprint, path (where it was then), encoder, dataset, layers, hidden_size, rows,
    class_names; ``first_layer`` where that is 0; and its ``plan``, by which rows are encoded."""
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float | None  # of the test rows; None where there are none
    seeds: tuple[int, ...]
    failed: dict[int, str]
    epochs: dict[int, int]  # epoch that was kept, per seed
    seconds: dict[int, float]
    learned_start: dict[str, list[float]] = field(
        default_factory=dict
    )  # smallest, largest
    engine: dict[str, Any] = field(
        default_factory=dict
    )  # device, dtype, seed_batch, compiled, why
    fit: dict[str, Any] = field(
        default_factory=dict
    )  # of a head; its epochs are the values tried
    groups: dict[str, Any] = field(
        default_factory=dict
    )  # ``kind`` (column, file) and ``source``
    learned_groups: dict[str, int] = field(default_factory=dict)
    """How many groups the rows of train that learned or chose are in, by the names of ``same``."""
    drawn: dict[str, int] = field(
        default_factory=dict
    )  # rows: ``learn``, ``choose``; empty: all
    tuning: dict[str, Any] = field(
        default_factory=dict
    )  # ``seeds`` that were trained to choose
    created: str | None = (
        None  # when it was published, UTC, such as ``2026-11-01T09:30:00Z``
    )
    files: dict[str, dict[str, Any]] = field(default_factory=dict)  # bytes, sha256

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Seeds that were trained to choose between candidates of which this is one."""
        return tuple(self.tuning.get("seeds", ()))

    @property
    def chose(self) -> bool:
        """Whether it was trained to choose alone: no seed of it is one that reports."""
        return bool(self.tuning_seeds) and set(self.seeds) <= set(self.tuning_seeds)

    @property
    def states(self) -> str:
        """The name of the very states that it learned from: of its cache, ``Plan.states``."""
        return states_of(self.cache)

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """Layers that it learned from, by number: 0 is what the first one reads."""
        some, first = self.recipe.get("layers"), self.cache.get("first_layer", 1)
        return (
            parse_numbers(some)
            if some
            else tuple(range(first, first + self.cache["layers"]))
        )

    def setting(self, name: str) -> Any:
        """What the recipe has of a setting, or means where it does not name it."""
        return self.recipe.get(name, DEFAULTS.get(name))

    @property
    def finished(self) -> tuple[int, ...]:
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds that were never as accurate before the last epoch: more may do better.

        Of epochs that are equally accurate the lowest loss decides which is kept, often the last.
        """
        if self.select == "last" or self.fit or self.shuffled:
            return ()
        last = self.recipe["epochs"]
        late = [seed for seed in self.finished if self.epochs[seed] == last]
        seen = {
            (one["seed"], one["epoch"]): one.get("accuracy") for one in self.log if late
        }

        def rises(seed: int) -> bool:
            before = (seen.get((seed, epoch)) for epoch in range(1, last))
            return all(one is None or one < seen[seed, last] for one in before)

        return tuple(seed for seed in late if rises(seed))

    @property
    def title(self) -> str:
        """Decoder and what of the recipe a sweep varies."""
        return row_title(
            self.attention, self.head, final=not self.evaluated, **self.recipe
        )

    @property
    def evaluated(self) -> bool:
        """Whether it was tested; a final model has no test rows, and no accuracy."""
        return (
            self.recipe.get("fold") is not None
            or self.recipe.get("test_split") != NO_TEST
        )

    @property
    def shuffled(self) -> bool:
        return bool(self.recipe.get("shuffle_labels"))

    @property
    def select(self) -> str:
        return str(self.recipe["select"])

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """A file of the run, which is hashed where that was not done; what is wrong is damage."""
        path, hashed = self.path / name, self.__dict__.setdefault("hashed", set())
        with reading(path):
            if name not in hashed and hash_file(path) != self.files[name]["sha256"]:
                raise ValueError("it was changed: its SHA-256 is not that of run.json")
            hashed.add(name)
            yield path

    @contextmanager
    def tensors(self, name: str) -> Iterator[Any]:
        """A file of tensors, open as ``safetensors`` has it, every byte of which was hashed."""
        with self.reading(name) as path, safe_open(path, "np") as file:
            yield file

    logits = _of_test("logits")  # test logits, (S, N, C); NaN for failed seeds
    labels = _of_test("labels")  # test labels, (N,)
    test_rows = _of_test(
        "rows"
    )  # of a fold: their numbers in the train split, (N,); else None
    attention_map = _of_test("attention_map")
    """Attention map averaged over the test rows, (S, L, D), (S, L, 1) or (S, H, Q, L); NaN for
    failed seeds, None where the mechanism has none, or no rows were tested."""

    @cached_property
    def same(self) -> dict[str, NDArray[np.int32]]:
        """What may say which test rows belong together: a number for every row, (N,), by name.

        Of every kept column of the cache, of a file of groups, and of copies.
        """
        with self.tensors(TEST_FILE) as file:
            names = [name for name in file.keys() if name.startswith(SAME)]  # noqa: SIM118
            return {name.removeprefix(SAME): file.get_tensor(name) for name in names}

    @cached_property
    def learned(self) -> dict[str, NDArray[np.float32]]:
        """Learned parameters as they are used, such as ``xi``, each (S, ...)."""
        with self.tensors(TEST_FILE) as file:
            names = [name for name in file.keys() if name.startswith("learned.")]  # noqa: SIM118
            return {
                name.removeprefix("learned."): file.get_tensor(name) for name in names
            }

    def finished_logits(self) -> NDArray[np.float32]:
        """Test logits of the seeds that did not fail, (finished, N, C), not kept in memory."""
        logits = vars(self).get("logits")
        logits = _tensor(self, "logits") if logits is None else logits
        return (
            logits[[seed not in self.failed for seed in self.seeds]]
            if self.failed
            else logits
        )

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted class of every test row, (finished seeds, N)."""
        return self.finished_logits().argmax(-1)

    @property
    def hits(self) -> NDArray[np.bool_]:
        """Whether that is right, (finished seeds, N), as ``stats.claim`` takes it."""
        return self.predictions == self.labels

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Test accuracy of every finished seed, a fraction; of a final model no numbers, (0,)."""
        return np.array(
            [np.mean(row == self.labels) for row in self.predictions if row.size]
        )

    @property
    def validation_accuracy(self) -> NDArray[np.float64]:
        """That of the epoch that was kept, of every finished seed; of others no number."""
        by_epoch = {
            (entry["seed"], entry["epoch"]): entry.get("accuracy") for entry in self.log
        }
        kept = [by_epoch.get((seed, self.epochs[seed])) for seed in self.finished]
        return np.array([np.nan if one is None else one for one in kept], np.float64)

    @property
    def validation(self) -> Validation | None:
        """What was said of the rows of train that chose the epoch, if any; not kept in memory."""
        if VALIDATION_FILE not in self.files:
            return None
        with self.tensors(VALIDATION_FILE) as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        same = [name for name in arrays if name.startswith(SAME)]
        return Validation(
            same={name.removeprefix(SAME): arrays[name] for name in same},
            **{name: arrays[name] for name in ("logits", "labels", "rows")},
        )

    # (S, V, C) and (V,) or (S, V)
    validation_logits = property(lambda run: run.validation and run.validation.logits)
    validation_labels = property(lambda run: run.validation and run.validation.labels)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One entry per seed and epoch, or value of a fit; ``accuracy`` is on rows that choose."""
        with self.reading(LOG_FILE) as path:
            return [json.loads(line) for line in path.read_text().splitlines()]

    def __repr__(self) -> str:
        return f"<RunResult '{shown_path(self.path)}': {self.title}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what was run and how every seed ended."""
        accuracy = dict(
            zip(self.finished, self.accuracy.tolist(), strict=self.evaluated)
        )
        names = (
            "attention head recipe parameters cache evaluated engine majority_accuracy "
        )
        names += "environment created groups drawn fit"
        about = {name: getattr(self, name) for name in names.split()}
        of_seed = {"accuracy": accuracy, "epoch": self.epochs, "seconds": self.seconds}
        of_seed |= {"failed": self.failed}
        seeds = [
            {"seed": s} | {k: of.get(s) for k, of in of_seed.items()}
            for s in self.seeds
        ]
        return {"kind": "run", "path": str(self.path), **about, "seeds": seeds}

    def in_words(self) -> str:
        """What was run, and what came of it, on one line."""
        said = f"{self.title}: " + "not evaluated" * (not self.evaluated)
        if not self.finished:
            said = f"{self.title}: no seed finished: {self.failed[self.seeds[0]]}"
        elif self.evaluated:
            # who looks at test accuracies of candidates has chosen by them
            accuracy = self.validation_accuracy if self.chose else self.accuracy
            said += f"{'validation ' if self.chose else ''}{100 * accuracy.mean():.1f}%"
            if len(accuracy) > 1:
                said += f" (sd {100 * accuracy.std(ddof=1):.1f})"
            said += " (epoch chosen on the test rows)" * (self.select == "test")
        said += f", {len(self.failed)} FAILED" if self.failed else ""
        said += f", {np.mean(list(self.seconds.values())):.2f} s"
        if self.fit:
            return said + ", {setting} {value:.3g} chosen from {tried}".format(
                **self.fit
            )
        return (
            f"{said} a seed, seeds: {len(self.seeds)}"
            + " to choose a rate" * self.chose
        )

    def summary(self) -> str:
        return f"{self.in_words()}  {shown_path(self.path)}"


def read_run(path: Path) -> RunResult:
    """Read one run directory; of its files beside run.json only the sizes are looked at."""
    path = absolute_path(path)  # its files are read later, from whatever folder
    with reading(path / RUN_FILE):
        content = unsealed(disk.read_json(path / RUN_FILE))
        version = content.pop("run_version", None)
        if version != RUN_VERSION:
            raise OutOfReachError(
                f"another version of gaam wrote the run '{path.name}'",
                expected=f"run version {RUN_VERSION}, which this gaam reads",
                found=f"run version {version}",
                where=str(path),
                hint=f"use that gaam ({CONFIG_FILE} may say which), or train into other --runs",
            )
        if not RUN_FILES <= set(content["files"]) <= ALL_FILES:
            raise ValueError(f"files: {', '.join(content['files'])}")
        for name, about in content["files"].items():
            with reading(path / name):
                disk.check_size(path / name, about["bytes"])
        seeds = {entry["seed"]: entry for entry in content.pop("seeds")}
        return RunResult(
            path=path,
            seeds=tuple(seeds),
            failed={
                seed: one["failed"] for seed, one in seeds.items() if one.get("failed")
            },
            epochs={seed: one["epoch"] for seed, one in seeds.items()},
            seconds={seed: one["seconds"] for seed, one in seeds.items()},
            **content,
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say what is wrong with a file of a run: damaged, or out of reach."""
    try:
        yield
    except GaamError:
        raise  # said already
    except disk.ElsewhereError as error:
        raise error.refusal(f"the run '{path.parent.name}'", path) from error
    except (*disk.DAMAGE, SafetensorError) as error:
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        if gone and not path.parent.is_dir():
            raise disk.moved_away_error("run", path.parent) from error
        found = getattr(error, "strerror", None) or str(error)
        found = found if path.name in found else f"{path.name}: {found}"
        raise damaged_run(path, found) from error


def damaged_run(path: Path, found: str) -> CacheError:
    return CacheError(
        f"the run '{path.parent.name}' is damaged",
        found=found,
        where=str(path),
        hint=f"copy it again from where it is whole; else move {shlex.quote(str(path.parent))} "
        "out of the folder of runs, and run the gaam train that made it again",
    )


@dataclass(kw_only=True, slots=True)
class SeedResult:
    """What one seed left behind; tensors on the CPU."""

    seed: int
    failed: str | None  # why it stopped
    epoch: int  # epoch that was kept, from 1; 0 where it failed
    seconds: float  # in a group: its time divided by its size
    weights: dict[str, Tensor]
    test_logits: Tensor  # (N, C); NaN where it failed. Of a final model N is 0
    attention_map: Tensor | None  # mean over the test rows; None where there are none
    learned: dict[str, Tensor]  # as ``Attention.learned`` has it
    log: list[dict[str, Any]]
    validation_logits: Tensor | None = (
        None  # of the rows that chose, (V, C); NaN as in the test
    )


def write_run(
    runs: Path,
    name: str,
    results: Sequence[SeedResult],
    labels: Tensor,
    about: dict[str, Any],
    rows: NDArray[np.int64] | None = None,
    held: Mapping[str, NDArray[Any]] | None = None,
    *,
    same: Mapping[str, NDArray[Any]] | None = None,
    config: str,
) -> Path:
    """Publish a finished run by one rename; a run of that name that is there already wins."""

    def stacked(tensors: Iterable[Tensor | None]) -> NDArray[Any]:
        return padded([one.cpu().numpy() for one in tensors if one is not None])

    test = {
        "logits": stacked(r.test_logits for r in results),
        "labels": labels.cpu().numpy(),
    }
    test |= {} if rows is None else {"rows": rows}
    test |= {SAME + name: number_N for name, number_N in (same or {}).items()}
    every = [r.attention_map for r in results]
    if (first := next((one for one in every if one is not None), None)) is not None:
        nothing = first.new_full(first.shape, np.nan)  # of a seed that failed
        test["attention_map"] = stacked(
            nothing if one is None else one for one in every
        )
    test |= {
        f"learned.{k}": stacked(r.learned[k] for r in results)
        for k in results[0].learned
    }
    weights = {
        key: stacked(r.weights[key] for r in results) for key in results[0].weights
    }
    order = {"seeds": json.dumps([r.seed for r in results])}
    contents = {
        WEIGHTS_FILE: save(weights, order),
        TEST_FILE: save(test, order),
        LOG_FILE: "".join(
            f"{json.dumps(e)}\n" for r in results for e in r.log
        ).encode(),
        CONFIG_FILE: config.encode(errors="replace"),  # of a path that is no UTF-8
    }
    if held is not None and all(r.validation_logits is not None for r in results):
        logits = stacked(r.validation_logits for r in results)
        contents[VALIDATION_FILE] = save({"logits": logits, **held}, order)
    seeds = [
        {
            "seed": r.seed,
            "failed": r.failed,
            "epoch": r.epoch,
            "seconds": round(r.seconds, 4),
        }
        for r in results
    ]
    files = {k: {"bytes": len(v), "sha256": digest_of(v)} for k, v in contents.items()}
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {
        "run_version": RUN_VERSION,
        **about,
        "created": created,
        "seeds": seeds,
        "files": files,
    }
    contents[RUN_FILE] = sealed_text(said).encode()
    final, temporary = runs / name, disk.temporary_path(runs, name)
    disk.make_folder(runs)
    temporary.mkdir()
    try:
        for file, content in contents.items():
            disk.write_synced(temporary / file, content)
        disk.sync_folder(temporary)
        temporary.rename(final)
    except OSError:
        if not (final / RUN_FILE).exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    disk.sync_folder(runs)
    return final


def padded(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stacked; where some have fewer rows than others, NaN (or -1) stands below them."""
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    most, fill = max(map(len, values)), np.nan if values[0].dtype.kind == "f" else -1
    rest = [(0, 0)] * (values[0].ndim - 1)
    return np.stack(
        [np.pad(v, [(0, most - len(v)), *rest], constant_values=fill) for v in values]
    )
