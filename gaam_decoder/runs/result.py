"""Read a run folder as a RunResult, and write the folder of a finished run.

A run is one decoder, trained with one recipe on one cache, over some seeds. Shapes: S
seeds, N test rows, V validation rows, C classes.

A run folder holds these files::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json                what was trained, on what, and how each seed ended;
                              size and SHA-256 of every other file
      config.toml             all settings; gaam train --config trains the run again
      log.jsonl               one line per seed and epoch
      weights.safetensors     every parameter of every seed, stacked: (S, ...)
      test.safetensors        logits (S, N, C), labels (N,), attention_map (S, ...),
                              learned.NAME (S, ...), same.NAME (N,); of a fold also
                              rows (N,). A final model has N = 0 and no map
      validation.safetensors  logits (S, V, C), labels, rows and same.NAME, each (V,)

A tensor ``same.NAME`` gives rows that belong together the same number.

The folder appears by one rename when the run is finished. ``read_run`` checks the sizes
of the files; each file is hashed before its first use.
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
from gaam_decoder.tasks import CLASSIFICATION

if TYPE_CHECKING:
    from torch import Tensor

RUN_FILE = "run.json"
RUN_VERSION = 1
WEIGHTS_FILE = "weights.safetensors"
TEST_FILE = "test.safetensors"
LOG_FILE = "log.jsonl"
VALIDATION_FILE = "validation.safetensors"
CONFIG_FILE = "config.toml"
RUN_FILES = {WEIGHTS_FILE, TEST_FILE, LOG_FILE}
"""Files that every run has beside run.json."""
ALL_FILES = RUN_FILES | {VALIDATION_FILE, CONFIG_FILE}
SAME = "same."
"""Prefix of the tensors that number the rows by what belongs together."""
LEARNED = "learned."
"""Prefix of the tensors of learned parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Validation logits of every seed at its selected epoch.

    Seeds may have validation rows of their own; labels, rows and ``same`` are then
    (S, V), and -1 fills up the seeds with fewer rows.
    """

    logits: NDArray[np.float32]
    """(S, V, C); NaN for seeds that failed or are not finite."""
    labels: NDArray[np.int64]
    """(V,) or (S, V)."""
    rows: NDArray[np.int64]
    """Row numbers in the train split, of the same shape."""
    same: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """As in ``RunResult.same``, of the same shape as the labels."""

    def of_seed(self, place: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Validation logits and labels of the seed with this index."""
        label_V = self.labels if self.labels.ndim == 1 else self.labels[place]
        is_row_V = label_V >= 0
        return self.logits[place][is_row_V], label_V[is_row_V]

    def same_of_seed(
        self, place: int, names: Collection[str]
    ) -> list[NDArray[np.int32]]:
        """Numbers of a seed's validation rows, for each relation that the run has."""
        numbers = []
        for name in sorted(names):
            if name not in self.same:
                continue
            number_V = self.same[name]
            if number_V.ndim > 1:
                number_V = number_V[place]
            numbers.append(number_V[number_V >= 0])
        return numbers

    def temperature(self, place: int) -> float | None:
        """Temperature fitted on the validation rows of the seed with this index.

        It is 1 where every prediction is right, and None where a logit is not finite.
        """
        logits_VC, label_V = self.of_seed(place)
        if not np.isfinite(logits_VC).all():
            return None

        # Training never needs the fit, so that it does not pay for the import.
        from gaam_decoder.stats.temperature import fit_temperature

        temperature = fit_temperature(logits_VC, label_V) or 1.0
        if temperature < np.inf:
            return temperature

        # The logits tell nothing: a huge temperature makes all classes equally likely.
        return 1e6 * max(1.0, float(np.abs(logits_VC).max()))


def _read_test_tensor(run: RunResult, key: str) -> Any:
    with run.tensors(TEST_FILE) as file:
        if key not in file.keys():  # noqa: SIM118 the file is no mapping
            return None
        return file.get_tensor(key)


def _test_tensor(key: str) -> Any:
    """A property that reads a tensor of the test file once; None if it is missing."""
    return cached_property(lambda run: _read_test_tensor(run, key))


def states_of(cache: Mapping[str, Any]) -> str:
    """The name of a cache's states (``Plan.states``), from a run's record of it."""
    return str(cache.get("states") or cache["fingerprint"])


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunResult:
    """A finished run. The fields are those of run.json, but for ``path`` and the seeds.

    >>> runs[0].attention, runs[0].seeds, runs[0].hits.shape
    ('gaam:heads=1', (0, 1, 2), (3, 30))
    """

    path: Path
    key: str
    """Hash of decoder, recipe and cache: runs of one key differ in seeds alone."""
    attention: str
    head: str
    recipe: dict[str, Any]
    """Training settings that change the numbers."""
    cache: dict[str, Any]
    """Fingerprint, path at the time of training, encoder, dataset, layers, hidden_size,
    rows, class_names; ``first_layer`` where that is 0; and ``plan``, the plan by which
    rows are encoded."""
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float | None
    """Of the test rows; None where there are none."""
    seeds: tuple[int, ...]
    failed: dict[int, str]
    """Reason why a seed failed, by seed."""
    epochs: dict[int, int]
    """Selected epoch, by seed."""
    seconds: dict[int, float]
    learned_start: dict[str, list[float]] = field(default_factory=dict)
    """Smallest and largest start value of each learned parameter."""
    engine: dict[str, Any] = field(default_factory=dict)
    """Device, dtype, seed_batch, compiled, why."""
    fit: dict[str, Any] = field(default_factory=dict)
    """Fit of a head that is not trained in steps; its epochs are the values tried."""
    groups: dict[str, Any] = field(default_factory=dict)
    """``kind`` (column, file) and ``source``."""
    learned_groups: dict[str, int] = field(default_factory=dict)
    """Number of groups of training and validation rows, by the names of ``same``."""
    drawn: dict[str, int] = field(default_factory=dict)
    """Rows drawn: ``learn``, ``choose``; empty if all rows were used."""
    tuning: dict[str, Any] = field(default_factory=dict)
    """``seeds``: the tuning seeds."""
    created: str | None = None
    """UTC time of publishing, such as ``2026-11-01T09:30:00Z``."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """bytes and sha256, by file name."""

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Seeds that tuned the candidates of which this run is one."""
        return tuple(self.tuning.get("seeds", ()))

    @property
    def tuning_only(self) -> bool:
        """Whether the run served tuning only: it has no reporting seed."""
        return bool(self.tuning_seeds) and set(self.seeds) <= set(self.tuning_seeds)

    @property
    def states(self) -> str:
        """The name of the states that the run learned from: ``Plan.states``."""
        return states_of(self.cache)

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """Layers that the run learned from; layer 0 is the input of layer 1."""
        layers = self.recipe.get("layers")
        if layers:
            return parse_numbers(layers)
        first_layer = self.cache.get("first_layer", 1)
        return tuple(range(first_layer, first_layer + self.cache["layers"]))

    def setting(self, name: str) -> Any:
        """A setting of the recipe, or the default if the recipe does not name it."""
        return self.recipe.get(name, DEFAULTS.get(name))

    @property
    def finished(self) -> tuple[int, ...]:
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds whose last epoch was their best: more epochs may help.

        A seed counts if its validation accuracy was lower in every earlier epoch. Its
        selected epoch alone does not tell: among equally accurate epochs the lowest
        loss decides, and that is often the last one's.
        """
        if self.select == "last" or self.fit or self.shuffled:
            return ()
        last_epoch = self.recipe["epochs"]
        accuracies = self._logged_accuracies()

        def was_lower_before(seed: int) -> bool:
            earlier = [accuracies.get((seed, epoch)) for epoch in range(1, last_epoch)]
            return all(
                accuracy is None or accuracy < accuracies[seed, last_epoch]
                for accuracy in earlier
            )

        ended_last = [seed for seed in self.finished if self.epochs[seed] == last_epoch]
        return tuple(seed for seed in ended_last if was_lower_before(seed))

    @property
    def title(self) -> str:
        """The decoder, with the settings that a sweep varies."""
        return row_title(
            self.attention, self.head, final=not self.evaluated, **self.recipe
        )

    @property
    def evaluated(self) -> bool:
        """Whether the run has test rows; a final model has none, and no accuracy."""
        if self.recipe.get("fold") is not None:
            return True
        return self.recipe.get("test_split") != NO_TEST

    @property
    def shuffled(self) -> bool:
        return bool(self.recipe.get("shuffle_labels"))

    @property
    def select(self) -> str:
        return str(self.recipe["select"])

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """Give the path of a file after hashing it once; errors become CacheError."""
        path = self.path / name
        hashed_files = self.__dict__.setdefault("hashed", set())
        with reading(path):
            if name not in hashed_files:
                if hash_file(path) != self.files[name]["sha256"]:
                    reason = "it was changed: its SHA-256 is not that of run.json"
                    raise ValueError(reason)
                hashed_files.add(name)
            yield path

    @contextmanager
    def tensors(self, name: str) -> Iterator[Any]:
        """Open a safetensors file whose bytes were all hashed."""
        with self.reading(name) as path, safe_open(path, "np") as file:
            yield file

    logits = _test_tensor("logits")
    """Test logits, (S, N, C); NaN for failed seeds."""
    labels = _test_tensor("labels")
    """Test labels, (N,)."""
    test_rows = _test_tensor("rows")
    """Numbers of a fold's test rows in the train split, (N,); None without folds."""
    attention_map = _test_tensor("attention_map")
    """Attention map averaged over the test rows: (S, L, D), (S, L, 1) or (S, H, Q, L).
    NaN for failed seeds; None if the mechanism has none or there are no test rows."""

    @cached_property
    def same(self) -> dict[str, NDArray[np.int32]]:
        """Relations between test rows: equal numbers belong together, (N,), by name.

        There is one for each kept column of the cache, for a file of groups, and for
        equal rows.
        """
        return self._read_prefixed(SAME)

    @cached_property
    def learned(self) -> dict[str, NDArray[np.float32]]:
        """Learned parameters as the mechanism uses them, such as ``xi``, (S, ...)."""
        return self._read_prefixed(LEARNED)

    def _read_prefixed(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Tensors of the test file with a prefix, by the rest of their names."""
        with self.tensors(TEST_FILE) as file:
            return {
                name.removeprefix(prefix): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 the file is no mapping
                if name.startswith(prefix)
            }

    def finished_logits(self) -> NDArray[np.float32]:
        """Test logits of the finished seeds, (finished, N, C), not kept in memory."""
        logits: NDArray[np.float32] | None = vars(self).get("logits")
        if logits is None:
            logits = _read_test_tensor(self, "logits")
        if self.failed:
            return logits[[seed not in self.failed for seed in self.seeds]]
        return logits

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted class of every test row, (finished seeds, N)."""
        return CLASSIFICATION.predictions(self.finished_logits())

    @property
    def hits(self) -> NDArray[np.bool_]:
        """Whether a prediction is right, (finished seeds, N), for ``stats.claim``."""
        return CLASSIFICATION.hits(self.predictions, self.labels)

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Test accuracy of every finished seed, a fraction; (0,) for a final model."""
        if not self.predictions.size:
            return np.empty(0)
        return CLASSIFICATION.accuracy(self.hits)

    @property
    def validation_accuracy(self) -> NDArray[np.float64]:
        """Validation accuracy of every finished seed at its selected epoch, or NaN."""
        accuracies = self._logged_accuracies()
        selected = [accuracies.get((seed, self.epochs[seed])) for seed in self.finished]
        values = [np.nan if accuracy is None else accuracy for accuracy in selected]
        return np.array(values, np.float64)

    def _logged_accuracies(self) -> dict[tuple[int, int], Any]:
        """Validation accuracies of the log, by seed and epoch."""
        return {
            (entry["seed"], entry["epoch"]): entry.get("accuracy") for entry in self.log
        }

    @property
    def validation(self) -> Validation | None:
        """The validation logits, if there are any; they are not kept in memory."""
        if VALIDATION_FILE not in self.files:
            return None
        with self.tensors(VALIDATION_FILE) as file:
            arrays = {
                name: file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 the file is no mapping
            }
        return Validation(
            logits=arrays["logits"],
            labels=arrays["labels"],
            rows=arrays["rows"],
            same={
                name.removeprefix(SAME): array
                for name, array in arrays.items()
                if name.startswith(SAME)
            },
        )

    @property
    def validation_logits(self) -> NDArray[np.float32] | None:
        """(S, V, C), or None."""
        validation = self.validation
        return None if validation is None else validation.logits

    @property
    def validation_labels(self) -> NDArray[np.int64] | None:
        """(V,) or (S, V), or None."""
        validation = self.validation
        return None if validation is None else validation.labels

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One entry per seed and epoch, or per value of a fit.

        ``accuracy`` is that of the validation rows.
        """
        with self.reading(LOG_FILE) as path:
            return [json.loads(line) for line in path.read_text().splitlines()]

    def __repr__(self) -> str:
        return f"<RunResult '{shown_path(self.path)}': {self.title}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what was trained and how every seed ended."""
        accuracies = dict(
            zip(self.finished, self.accuracy.tolist(), strict=self.evaluated)
        )
        seeds = [
            {
                "seed": seed,
                "accuracy": accuracies.get(seed),
                "epoch": self.epochs.get(seed),
                "seconds": self.seconds.get(seed),
                "failed": self.failed.get(seed),
            }
            for seed in self.seeds
        ]
        return {
            "kind": "run",
            "path": str(self.path),
            "attention": self.attention,
            "head": self.head,
            "recipe": self.recipe,
            "parameters": self.parameters,
            "cache": self.cache,
            "evaluated": self.evaluated,
            "engine": self.engine,
            "majority_accuracy": self.majority_accuracy,
            "environment": self.environment,
            "created": self.created,
            "groups": self.groups,
            "drawn": self.drawn,
            "fit": self.fit,
            "seeds": seeds,
        }

    def in_words(self) -> str:
        """What was trained, and with which result, on one line."""
        text = f"{self.title}: {self._outcome_in_words()}"
        if self.failed:
            text += f", {len(self.failed)} FAILED"
        text += f", {np.mean(list(self.seconds.values())):.2f} s"
        if self.fit:
            return text + ", {setting} {value:.3g} chosen from {tried}".format(
                **self.fit
            )
        text += f" a seed, seeds: {len(self.seeds)}"
        if self.tuning_only:
            text += " to choose a rate"
        return text

    def _outcome_in_words(self) -> str:
        """The mean accuracy, or why there is none."""
        if not self.finished:
            return f"no seed finished: {self.failed[self.seeds[0]]}"
        if not self.evaluated:
            return "not evaluated"

        # Whoever sees test accuracies of candidates has chosen by them, so that
        # tuning runs show validation accuracies alone.
        if self.tuning_only:
            accuracy_S = self.validation_accuracy
            text = f"validation {100 * accuracy_S.mean():.1f}%"
        else:
            accuracy_S = self.accuracy
            text = f"{100 * accuracy_S.mean():.1f}%"
        if len(accuracy_S) > 1:
            text += f" (sd {100 * accuracy_S.std(ddof=1):.1f})"
        if self.select == "test":
            text += " (epoch chosen on the test rows)"
        return text

    def summary(self) -> str:
        return f"{self.in_words()}  {shown_path(self.path)}"


def read_run(path: Path) -> RunResult:
    """Read run.json of a run folder, and check the sizes of the other files."""
    # The other files are read later, perhaps from another working folder.
    path = absolute_path(path)
    with reading(path / RUN_FILE):
        content: dict[str, Any] = unsealed(disk.read_json(path / RUN_FILE))
        _check_version(path, content.pop("run_version", None))
        _check_files(path, content["files"])
        seeds = {entry["seed"]: entry for entry in content.pop("seeds")}
        failed = {
            seed: entry["failed"]
            for seed, entry in seeds.items()
            if entry.get("failed")
        }
        return RunResult(
            path=path,
            seeds=tuple(seeds),
            failed=failed,
            epochs={seed: entry["epoch"] for seed, entry in seeds.items()},
            seconds={seed: entry["seconds"] for seed, entry in seeds.items()},
            **content,
        )


def _check_version(path: Path, version: object) -> None:
    if version != RUN_VERSION:
        raise OutOfReachError(
            f"another version of gaam wrote the run '{path.name}'",
            expected=f"run version {RUN_VERSION}, which this gaam reads",
            found=f"run version {version}",
            where=str(path),
            hint=f"use that version of gaam ({CONFIG_FILE} may name it), "
            "or train into another folder with --runs",
        )


def _check_files(path: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that a run lists the files of a run, and that they have their sizes."""
    if not RUN_FILES <= set(files) <= ALL_FILES:
        raise ValueError(f"files: {', '.join(files)}")
    for name, record in files.items():
        with reading(path / name):
            disk.check_size(path / name, record["bytes"])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error about a file of a run into one that says what is wrong with it."""
    try:
        yield
    except GaamError:
        # It already says what is wrong.
        raise
    except disk.ElsewhereError as error:
        raise error.refusal(f"the run '{path.parent.name}'", path) from error
    except (*disk.DAMAGE, SafetensorError) as error:
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        if is_gone and not path.parent.is_dir():
            raise disk.moved_away_error("run", path.parent) from error
        reason = getattr(error, "strerror", None) or str(error)
        if path.name not in reason:
            reason = f"{path.name}: {reason}"
        raise damaged_run(path, reason) from error


def damaged_run(path: Path, found: str) -> CacheError:
    """The error about a file of a run that is damaged."""
    folder = shlex.quote(str(path.parent))
    return CacheError(
        f"the run '{path.parent.name}' is damaged",
        found=found,
        where=str(path),
        hint=f"copy the run again from an intact copy; else move {folder} out of the "
        "folder of runs, and run the 'gaam train' command that made it again",
    )


@dataclass(kw_only=True, slots=True)
class SeedResult:
    """The result of one seed; its tensors are on the CPU."""

    seed: int
    failed: str | None
    """Why it stopped."""
    epoch: int
    """Selected epoch, from 1; 0 where the seed failed."""
    seconds: float
    """Of a seed batch: its time divided by its size."""
    weights: dict[str, Tensor]
    test_logits: Tensor
    """(N, C); NaN where the seed failed. A final model has N = 0."""
    attention_map: Tensor | None
    """Mean over the test rows; None where there are none."""
    learned: dict[str, Tensor]
    """As ``Attention.learned`` returns it."""
    log: list[dict[str, Any]]
    validation_logits: Tensor | None = None
    """(V, C); NaN where the seed failed."""


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
    """Publish a finished run by one rename; an existing run of that name stays.

    Args:
        runs: the folder of runs.
        name: the name of the run's folder.
        results: one for each seed.
        labels: test labels, (N,).
        about: the content of run.json, but for its version, date, seeds and files.
        rows: of a fold, numbers of the test rows in the train split, (N,).
        held: labels, rows and ``same.NAME`` of the validation rows, if there are any.
        same: relations between the test rows, as in ``RunResult.same``.
        config: the content of config.toml.
    """
    test = _test_tensors(results, labels, rows, same or {})
    weights = {
        key: _stack(result.weights[key] for result in results)
        for key in results[0].weights
    }
    log = "".join(
        f"{json.dumps(entry)}\n" for result in results for entry in result.log
    )
    seed_order = {"seeds": json.dumps([result.seed for result in results])}
    contents = {
        WEIGHTS_FILE: save(weights, seed_order),
        TEST_FILE: save(test, seed_order),
        LOG_FILE: log.encode(),
        # A path in it may be no valid UTF-8.
        CONFIG_FILE: config.encode(errors="replace"),
    }
    have_validation = all(result.validation_logits is not None for result in results)
    if held is not None and have_validation:
        logits = _stack(result.validation_logits for result in results)
        contents[VALIDATION_FILE] = save({"logits": logits, **held}, seed_order)

    # run.json comes last, because it records the digests of all other files.
    files = {
        file: {"bytes": len(content), "sha256": digest_of(content)}
        for file, content in contents.items()
    }
    record = {
        "run_version": RUN_VERSION,
        **about,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seeds": [_seed_record(result) for result in results],
        "files": files,
    }
    contents[RUN_FILE] = sealed_text(record).encode()
    return _publish(runs, name, contents)


def _test_tensors(
    results: Sequence[SeedResult],
    labels: Tensor,
    rows: NDArray[np.int64] | None,
    same: Mapping[str, NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    """The content of the test file."""
    tensors = {
        "logits": _stack(result.test_logits for result in results),
        "labels": labels.cpu().numpy(),
    }
    if rows is not None:
        tensors["rows"] = rows
    for name, number_N in same.items():
        tensors[SAME + name] = number_N

    # Seeds that failed have no map: NaN takes its place.
    maps = [result.attention_map for result in results]
    first_map = next((seed_map for seed_map in maps if seed_map is not None), None)
    if first_map is not None:
        empty_map = first_map.new_full(first_map.shape, np.nan)
        tensors["attention_map"] = _stack(
            empty_map if seed_map is None else seed_map for seed_map in maps
        )

    for name in results[0].learned:
        tensors[LEARNED + name] = _stack(result.learned[name] for result in results)
    return tensors


def _seed_record(result: SeedResult) -> dict[str, Any]:
    """What run.json says of a seed."""
    return {
        "seed": result.seed,
        "failed": result.failed,
        "epoch": result.epoch,
        "seconds": round(result.seconds, 4),
    }


def _publish(runs: Path, name: str, contents: Mapping[str, bytes]) -> Path:
    """Write the files of a run into a temporary folder, and rename it."""
    folder = runs / name
    temporary = disk.temporary_path(runs, name)
    disk.make_folder(runs)
    temporary.mkdir()
    try:
        for file, content in contents.items():
            disk.write_synced(temporary / file, content)
        disk.sync_folder(temporary)
        temporary.rename(folder)
    except OSError:
        # Another training may have published this run first: that one stays.
        if not (folder / RUN_FILE).exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    disk.sync_folder(runs)
    return folder


def _stack(tensors: Iterable[Tensor | None]) -> NDArray[Any]:
    """The tensors of all seeds as one array, without those that are None."""
    return padded([tensor.cpu().numpy() for tensor in tensors if tensor is not None])


def padded(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays; NaN or -1 fills up those with fewer rows than others."""
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    most_rows = max(len(value) for value in values)
    fill = np.nan if values[0].dtype.kind == "f" else -1
    no_padding = [(0, 0)] * (values[0].ndim - 1)
    same_length = [
        np.pad(value, [(0, most_rows - len(value)), *no_padding], constant_values=fill)
        for value in values
    ]
    return np.stack(same_length)
