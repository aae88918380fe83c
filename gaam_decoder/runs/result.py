"""A finished run: what was trained, and what came of it.

``runs.files`` lists the files of a run folder. Shapes: S seeds, N test rows, V
validation rows, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.paths import shown_path
from gaam_cache.store.files import hash_file
from gaam_decoder.recipe import DEFAULTS, Recipe
from gaam_decoder.runs.files import (
    LEARNED_PREFIX,
    LOG_FILE,
    RELATION_PREFIX,
    TEST_FILE,
    VALIDATION_FILE,
    explained_file_errors,
)
from gaam_decoder.runs.records import CacheRecord, DrawnRows, FileRecord, FitRecord
from gaam_decoder.specs import Settings, decoder_title
from gaam_decoder.tasks import CLASSIFICATION, Task, task_of

NO_TEMPERATURE = 1.0
"""Stands for the temperature of a seed whose validation rows are all right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Validation logits of every seed at its selected epoch.

    Seeds may have validation rows of their own; labels, rows and relations are then
    (S, V), and -1 fills up the seeds with fewer rows. A relation is a reason for which
    rows belong together, such as the same speaker.
    """

    logits: NDArray[np.float32]
    """(S, V, C); NaN for seeds that failed or are not finite."""
    labels: NDArray[Any]
    """(V,) or (S, V); of numbers and label sets (V, K) or (S, V, K)."""
    rows: NDArray[np.int64]
    """Row numbers in the train split, or in ``val_split``, (V,) or (S, V)."""
    relations: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """As in ``RunResult.relations``, of the same shape as the rows."""

    def logits_and_labels_of_seed(
        self, index: int
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Validation logits, (V, C), and labels of the seed with this index."""
        label_V = self.labels
        row_V = self.rows
        has_rows_of_its_own = row_V.ndim > 1
        if has_rows_of_its_own:
            label_V = label_V[index]
            row_V = row_V[index]
        # -1 fills up seeds with fewer rows
        is_row_V = row_V >= 0
        return self.logits[index][is_row_V], label_V[is_row_V]

    def relations_of_seed(
        self, index: int, names: Collection[str]
    ) -> list[NDArray[np.int32]]:
        """For each of some relations, a number of every validation row of a seed, (V,).

        A relation gives rows that belong together, such as those of a speaker, the
        same number.

        Args:
            index: of the seed.
            names: of the relations; those that the run lacks are left out.

        Returns:
            An array for each relation, in the order of their sorted names.
        """
        numbers_of_relations = []
        for name in sorted(names):
            if name not in self.relations:
                continue
            number_V = self.relations[name]
            has_rows_of_its_own = number_V.ndim > 1
            if has_rows_of_its_own:
                number_V = number_V[index]
            # -1 fills up seeds with fewer rows
            numbers_of_relations.append(number_V[number_V >= 0])
        return numbers_of_relations

    def temperature(self, index: int) -> float | None:
        """Temperature of the seed with this index, fitted on its validation rows.

        Divided by it, the logits give calibrated probabilities. It is
        ``NO_TEMPERATURE`` where every prediction is right, and None where a logit is
        not finite.
        """
        logits_VC, label_V = self.logits_and_labels_of_seed(index)
        if not np.isfinite(logits_VC).all():
            return None

        # Training never needs the fit, so that it does not pay for the import.
        from gaam_decoder.stats.temperature import fit_temperature

        temperature = fit_temperature(logits_VC, label_V)
        # every prediction is right: no temperature is best
        if temperature is None:
            return NO_TEMPERATURE
        if np.isinf(temperature):
            # The logits say nothing: a huge temperature makes all classes equally
            # likely.
            return 1e6 * max(1.0, float(np.abs(logits_VC).max()))
        return temperature


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunResult:
    """A finished run.

    >>> runs[0].attention, runs[0].seeds, runs[0].hits.shape
    ('gaam:heads=1', (0, 1, 2), (3, 30))
    """

    path: Path
    key: str
    """Hash of decoder, recipe and cache: runs of one key differ in seeds alone."""
    attention: str
    head: str
    recipe: Recipe
    """Decoder and training settings that change the numbers."""
    settings: Settings
    """The recipe as run.json spells it, without defaults: for titles and tables."""
    cache: CacheRecord
    environment: dict[str, Any]
    parameters: dict[str, int]
    majority_accuracy: float | None = None
    """Share of the test rows with the most frequent class of the training rows.

    None where there are no test rows, and for other tasks."""
    task: str = CLASSIFICATION.name
    """classification, regression or multi-label."""
    baseline_score: float | None = None
    """Of other tasks: the score of the prediction that looks at no row."""
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
    fit: FitRecord | None = None
    """Of a head that is fitted at once; None: the head was trained in epochs."""
    learned_groups: dict[str, int] = field(default_factory=dict)
    """Number of groups of training and validation rows, by the names of ``same``."""
    drawn: DrawnRows | None = None
    """None: all training rows were used."""
    tuning_seeds: tuple[int, ...] = ()
    """Seeds that tuned the candidates of which this run is one."""
    created: str | None = None
    """UTC time of publishing, such as ``2026-11-01T09:30:00Z``."""
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def tuning_only(self) -> bool:
        """Whether the run served tuning only: it has no reporting seed."""
        return bool(self.tuning_seeds) and set(self.seeds) <= set(self.tuning_seeds)

    @property
    def states(self) -> str:
        """The name of the states that the run learned from: ``Plan.states_id``."""
        return self.cache.name_of_states

    @property
    def layer_numbers(self) -> tuple[int, ...]:
        """Layers that the run learned from; layer 0 is the input of layer 1."""
        if self.recipe.layers:
            return self.recipe.layers
        first_layer = self.cache.first_layer
        return tuple(range(first_layer, first_layer + self.cache.layers))

    def setting(self, name: str) -> Any:
        """A setting by its name, as JSON; its default if run.json does not name it."""
        return self.settings.get(name, DEFAULTS.get(name))

    @property
    def finished(self) -> tuple[int, ...]:
        """The seeds that did not fail."""
        return tuple(seed for seed in self.seeds if seed not in self.failed)

    @property
    def still_learning(self) -> tuple[int, ...]:
        """Finished seeds whose last epoch was their best: more epochs may help.

        A seed counts if its validation score was lower in every earlier epoch. The
        selected epoch alone does not show that: among equal scores the lowest loss
        decides, which is often that of the last epoch.
        """
        is_fitted_at_once = self.fit is not None
        has_selected_epoch = self.select != "last" and not is_fitted_at_once
        # a control on shuffled labels should not learn at all
        if not has_selected_epoch or self.shuffled:
            return ()
        last_epoch = self.recipe.epochs
        scores = self._logged_scores()

        def was_lower_before(seed: int) -> bool:
            earlier_scores = [
                scores.get((seed, epoch)) for epoch in range(1, last_epoch)
            ]
            return all(
                score is None or score < scores[seed, last_epoch]
                for score in earlier_scores
            )

        selected_last = [
            seed for seed in self.finished if self.epochs[seed] == last_epoch
        ]
        return tuple(seed for seed in selected_last if was_lower_before(seed))

    @property
    def title(self) -> str:
        """The decoder, with the settings that a sweep varies."""
        return decoder_title(
            self.attention, self.head, self.settings, final=not self.evaluated
        )

    @property
    def evaluated(self) -> bool:
        """Whether the run has test rows; a final model has none, and no accuracy."""
        return not self.recipe.final

    @property
    def shuffled(self) -> bool:
        """Whether it learned from shuffled labels, as a control experiment."""
        return self.recipe.shuffle_labels

    @property
    def select(self) -> str:
        """How the epoch was selected: val, last or test."""
        return self.recipe.select

    @contextmanager
    def checked_file(self, name: str) -> Iterator[Path]:
        """The path of a file of the run, after a check of its SHA-256.

        A file is hashed at its first use. An error while the file is read becomes a
        CacheError that says what is wrong with the run.
        """
        path = self.path / name
        hashed_files = self.__dict__.setdefault("hashed", set())
        with explained_file_errors(path):
            if name not in hashed_files:
                if hash_file(path) != self.files[name].sha256:
                    reason = "it was changed: its SHA-256 is not that of run.json"
                    raise ValueError(reason)
                hashed_files.add(name)
            yield path

    @contextmanager
    def tensors(self, name: str) -> Iterator[Any]:
        """Open a safetensors file of the run, after a check of its SHA-256."""
        with self.checked_file(name) as path, safe_open(path, "np") as file:
            yield file

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """Test logits, (S, N, C); NaN for failed seeds."""
        return self._read_logits()

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Test labels, (N,); of numbers and label sets (N, K)."""
        with self.tensors(TEST_FILE) as file:
            labels: NDArray[Any] = file.get_tensor("labels")
        return labels

    @cached_property
    def test_rows(self) -> NDArray[np.int64] | None:
        """Test rows of a fold: numbers in the train split, (N,); None without folds."""
        return self._read_optional("rows")

    @cached_property
    def attention_map(self) -> NDArray[np.float32] | None:
        """Attention map averaged over the test rows.

        (S, L, D), (S, L, 1) or (S, H, Q, L). NaN for failed seeds; None if the
        mechanism has none or there are no test rows.
        """
        return self._read_optional("attention_map")

    def _read_logits(self) -> NDArray[np.float32]:
        """Read the test logits from the file."""
        with self.tensors(TEST_FILE) as file:
            logits: NDArray[np.float32] = file.get_tensor("logits")
        return logits

    def _read_optional(self, key: str) -> NDArray[Any] | None:
        """A tensor of the test file; None if the file lacks it."""
        with self.tensors(TEST_FILE) as file:
            if key not in file.keys():  # noqa: SIM118 the file is no mapping
                return None
            tensor: NDArray[Any] = file.get_tensor(key)
        return tensor

    @cached_property
    def relations(self) -> dict[str, NDArray[np.int32]]:
        """Relations between test rows: equal numbers belong together, (N,), by name.

        There is one for each kept column of the cache, for a file of groups, and for
        equal rows.
        """
        return self._read_prefixed(RELATION_PREFIX)

    @cached_property
    def learned(self) -> dict[str, NDArray[np.float32]]:
        """Learned parameters as the mechanism uses them, such as ``xi``, (S, ...)."""
        return self._read_prefixed(LEARNED_PREFIX)

    def _read_prefixed(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Tensors of the test file with a prefix, by the rest of their names."""
        with self.tensors(TEST_FILE) as file:
            return {
                name.removeprefix(prefix): file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 the file is no mapping
                if name.startswith(prefix)
            }

    def finished_logits(self) -> NDArray[np.float32]:
        """Test logits of the finished seeds, (finished seeds, N, C).

        They are not kept in memory.
        """
        # the property ``logits`` would keep what it reads
        logits: NDArray[np.float32] | None = vars(self).get("logits")
        if logits is None:
            logits = self._read_logits()
        if self.failed:
            return logits[[seed not in self.failed for seed in self.seeds]]
        return logits

    @cached_property
    def predictions(self) -> NDArray[Any]:
        """The predicted class of every test row, (finished seeds, N).

        Other tasks: its numbers, or whether it has each label, (finished seeds, N, K).
        """
        predicted: NDArray[Any] = self.task_definition.predictions(
            self.finished_logits()
        )
        return predicted

    @property
    def task_definition(self) -> Task:
        """The ``Task`` named ``task``: it computes predictions and scores."""
        return task_of(self.task)

    @property
    def targets(self) -> NDArray[Any]:
        """Test labels as scores take them: int64 (N,), float64 (N, K), bool (N, K)."""
        return self.task_definition.scored_targets(self.labels)

    @cached_property
    def score(self) -> NDArray[np.float64]:
        """Test score of every finished seed: accuracy, R2 or micro-F1, by the task.

        (0,) for a final model.
        """
        if self.task == CLASSIFICATION.name:
            return self.accuracy
        if not self.evaluated or not self.finished:
            return np.empty(0)
        return np.asarray(
            self.task_definition.selection_score(self.finished_logits(), self.labels)
        )

    def _refuse_other_tasks(self, name: str) -> None:
        """Raise ConfigError if the run is not a classification.

        Args:
            name: of the property that only classifications have, for the message.
        """
        if self.task == CLASSIFICATION.name:
            return
        raise ConfigError(
            f"a run of {self.task} has no {name}",
            expected="a run of classification",
            where=str(self.path),
            hint=f"run.score is its {self.task_definition.score_title}, and "
            "run.predictions what it predicts",
        )

    @property
    def hits(self) -> NDArray[np.bool_]:
        """Whether a prediction is right, (finished seeds, N), for ``stats.claim``."""
        self._refuse_other_tasks("hits")
        return CLASSIFICATION.hits(self.predictions, self.labels)

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Test accuracy of every finished seed, a fraction; (0,) for a final model."""
        self._refuse_other_tasks("accuracy")
        if not self.predictions.size:
            return np.empty(0)
        return CLASSIFICATION.accuracy(self.hits)

    @property
    def validation_score(self) -> NDArray[np.float64]:
        """Validation score of every finished seed at its selected epoch, or NaN."""
        scores = self._logged_scores()
        selected = [scores.get((seed, self.epochs[seed])) for seed in self.finished]
        values = [np.nan if score is None else score for score in selected]
        return np.array(values, np.float64)

    def _logged_scores(self) -> dict[tuple[int, int], Any]:
        """Validation scores of the log, by seed and epoch."""
        key = self.task_definition.score_key
        return {(entry["seed"], entry["epoch"]): entry.get(key) for entry in self.log}

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
            relations={
                name.removeprefix(RELATION_PREFIX): array
                for name, array in arrays.items()
                if name.startswith(RELATION_PREFIX)
            },
        )

    @property
    def validation_logits(self) -> NDArray[np.float32] | None:
        """(S, V, C), or None."""
        validation = self.validation
        return None if validation is None else validation.logits

    @property
    def validation_labels(self) -> NDArray[Any] | None:
        """(V,) or (S, V), or None; of other tasks with K behind."""
        validation = self.validation
        return None if validation is None else validation.labels

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One entry per seed and epoch, or per value of a fit.

        ``accuracy`` is that of the validation rows.
        """
        with self.checked_file(LOG_FILE) as path:
            return [json.loads(line) for line in path.read_text().splitlines()]

    def __repr__(self) -> str:
        return f"<RunResult '{shown_path(self.path)}': {self.title}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what was trained and how every seed ended."""
        # a final model has no test rows, and so no score
        score_by_seed: dict[int, float] = {}
        if self.evaluated:
            score_by_seed = dict(zip(self.finished, self.score.tolist(), strict=True))
        seeds = [
            {
                "seed": seed,
                self.task_definition.score_key: score_by_seed.get(seed),
                "epoch": self.epochs.get(seed),
                "seconds": self.seconds.get(seed),
                "failed": self.failed.get(seed),
            }
            for seed in self.seeds
        ]
        # the score of the best prediction that looks at no row; JSON of classification
        # has a key of its own for it
        baseline: dict[str, Any] = {"majority_accuracy": self.majority_accuracy}
        if self.task != CLASSIFICATION.name:
            baseline = {"task": self.task, "baseline_score": self.baseline_score}
        return {
            "kind": "run",
            "path": str(self.path),
            "attention": self.attention,
            "head": self.head,
            "recipe": self.settings,
            "parameters": self.parameters,
            "cache": self.cache.to_dict(),
            "evaluated": self.evaluated,
            "engine": self.engine,
            **baseline,
            "environment": self.environment,
            "created": self.created,
            "groups": self._groups_values(),
            "drawn": asdict(self.drawn) if self.drawn else {},
            "fit": self.fit.to_dict() if self.fit else {},
            "seeds": seeds,
        }

    def _groups_values(self) -> dict[str, Any]:
        """Where the groups of the training are from, as JSON values.

        Rows of one group, such as a speaker, stay together in splits and folds. Groups
        come from a column or a file (``kind`` and ``source``). Empty if the training
        had no groups, or if run.json does not say where they are from.
        """
        groups = self.recipe.groups
        if groups is None or groups.kind is None:
            return {}
        return {"kind": groups.kind, "source": groups.source}

    def in_words(self) -> str:
        """What was trained, and with which result, on one line."""
        text = f"{self.title}: {self._outcome_in_words()}"
        if self.failed:
            text += f", {len(self.failed)} FAILED"
        mean_seconds = np.mean(list(self.seconds.values()))
        text += f", {mean_seconds:.2f} s"
        if self.fit:
            return f"{text}, {self.fit.in_words()}"
        text += f" a seed, seeds: {len(self.seeds)}"
        if self.tuning_only:
            text += " to choose a rate"
        return text

    def _outcome_in_words(self) -> str:
        """The mean score, or why there is none."""
        if not self.finished:
            return f"no seed finished: {self.failed[self.seeds[0]]}"
        if not self.evaluated:
            return "not evaluated"

        task = self.task_definition
        # Tuning runs show validation scores alone: whoever sees the test scores of all
        # candidates would choose by them.
        if self.tuning_only:
            score_S = self.validation_score
            text = f"validation {task.with_title(float(score_S.mean()))}"
        else:
            score_S = self.score
            text = task.with_title(float(score_S.mean()))
        if len(score_S) > 1:
            sd_in_words = task.in_words(float(score_S.std(ddof=1)))
            text += f" (sd {sd_in_words.rstrip('%')})"
        if self.select == "test":
            text += " (epoch chosen on the test rows)"
        return text

    def summary(self) -> str:
        """The run in words, and its folder."""
        return f"{self.in_words()}  {shown_path(self.path)}"
