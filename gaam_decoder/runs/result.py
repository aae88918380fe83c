"""A run directory <-> RunResult.

S seeds, N test rows, V rows that choose, C classes.

A run is one mechanism trained under one recipe on one cache, over some seeds::

    runs/laplace-linear-1f9c2a7b-s0-9/
      run.json             what was run, where, on what, per seed how it went, and size and SHA-256
                           of the other files; it carries its own digest and is written last
      config.toml          the settings, resolved: gaam train --config trains the run again
      log.jsonl            one line per seed and epoch
      weights.safetensors  every parameter of every seed, stacked: (S, ...)
      test.safetensors     logits (S, N, C), labels (N,), of a fold the numbers of its rows (N,),
                           mean attention map (S, ...), and learned parameters as they are used,
                           learned.NAME (S, ...); of a final model N is 0, and there is no map
      validation.safetensors  of rows of train that chose the epoch: logits of the epoch that was
                           kept (S, V, C), labels (V,), rows (V,), their numbers in the train split;
                           not there where no such rows chose, and of earlier versions

It appears by one rename when it is finished. Unfinished seeds lie in a folder with a dot before
its name and are taken up again by the next call. Sizes are checked when run.json is read, a digest
before a file is first used, what lies in it whenever it is read.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.runs import run_checks
from gaam_decoder.runs.run_checks import LOG_FILE, TEST_FILE, VALIDATION_FILE
from gaam_decoder.runs.run_files import HashedFiles
from gaam_decoder.runs.run_record import RunRecord
from gaam_decoder.runs.summary import summary, values
from gaam_decoder.runs.tensor_files import TensorFile
from gaam_decoder.runs.validation import Validation, read_validation


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunResult(RunRecord):
    """What a finished run says: everything a report needs, and nothing it has to recompute."""

    @cached_property
    def _hashed(self) -> HashedFiles:
        return HashedFiles(self.path, self.files)

    def opened(self, name: str) -> AbstractContextManager[BufferedReader]:
        """A file of the run, of which every byte is what was written; see ``HashedFiles``."""
        return self._hashed.opened(name)

    def check_digest(self, name: str) -> None:
        """Hash a file of the run, if that was not done.

        Raises:
            CacheError: it is not what was written.
            StorageError: it cannot be read now.
        """
        with self.opened(name):
            pass

    def _failures(self) -> list[bool]:
        return [seed in self.failed for seed in self.seeds]

    def _logits(self) -> NDArray[np.float32]:
        with self.opened(TEST_FILE) as file:
            tensors = TensorFile(file)
            logits = tensors.read("logits")
            classes = len(self.cache["class_names"])
            run_checks.check_logits(logits, self._failures(), len(self.labels), classes)
            return logits

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """Test logits, (S, N, C); NaN for failed seeds."""
        return self._logits()

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Test labels, (N,)."""
        with self.opened(TEST_FILE) as file:
            labels = TensorFile(file).read("labels")
            run_checks.check_labels(labels, self.recipe, self.cache)
            return labels

    @cached_property
    def test_rows(self) -> NDArray[np.int64] | None:
        """Numbers of the test rows in the train split, (N,); None where there is no fold.

        None too where an earlier version did not write them.
        """
        with self.opened(TEST_FILE) as file:
            tensors = TensorFile(file)
            if "rows" not in set(tensors):
                return None
            rows = tensors.read("rows")
            run_checks.check_rows(rows, len(self.labels), self.recipe, self.cache)
            return rows

    @cached_property
    def attention_map(self) -> NDArray[np.float32] | None:
        """Attention map averaged over the test rows, (S, L, D), (S, L, 1) or (S, H, Q, L).

        NaN for failed seeds; None where the mechanism has none, or no rows were tested.
        """
        with self.opened(TEST_FILE) as file:
            tensors = TensorFile(file)
            if "attention_map" not in set(tensors):
                return None
            shape = tensors.shape("attention_map")
            run_checks.check_map(shape, len(self.seeds), len(self.layer_numbers))
            return tensors.read("attention_map")

    @cached_property
    def learned(self) -> dict[str, NDArray[np.float32]]:
        """Learned parameters as they are used, such as ``xi``, each (S, ...)."""
        found = {}
        with self.opened(TEST_FILE) as file:
            tensors = TensorFile(file)
            for name in tensors:
                if name.startswith("learned."):
                    run_checks.check_stacked(name, tensors.shape(name), len(self.seeds))
                    found[name.removeprefix("learned.")] = tensors.read(name)
        return found

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
            logits = self._logits()
        return logits[np.logical_not(self._failures())] if self.failed else logits

    @property
    def validation(self) -> Validation | None:
        """What was said of the rows of train that chose the epoch; it is not kept in memory.

        None where there are no such rows, and of runs of earlier versions.
        """
        if VALIDATION_FILE not in self.files:
            return None
        with self.opened(VALIDATION_FILE) as file:
            return read_validation(self, file)

    @property
    def validation_logits(self) -> NDArray[np.float32] | None:
        """Logits of these rows, (S, V, C), as the epoch that was kept has them.

        NaN for failed seeds, and where they are not finite.
        """
        found = self.validation
        return None if found is None else found.logits

    @property
    def validation_labels(self) -> NDArray[np.int64] | None:
        """Labels of these rows, (V,)."""
        found = self.validation
        return None if found is None else found.labels

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One entry per seed and epoch: seed, epoch, loss, train_accuracy, accuracy and more.

        ``accuracy`` is on the rows that choose the epoch; None where none do. Of a fit, one entry
        per value that was tried.
        """
        with self.opened(LOG_FILE) as file:
            log = [json.loads(line) for line in file]
            epochs = self.fit["tried"] if self.fit else self.recipe["epochs"]
            run_checks.check_log(log, self.seeds, self.failed, epochs)
            return log

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Test accuracy of every finished seed, a fraction; of a final model no numbers, (0,)."""
        found = [stats.accuracy(row, self.labels) for row in self.predictions if row.size]
        return np.array(found)

    @cached_property
    def macro_f1(self) -> NDArray[np.float64]:
        """Macro-averaged F1 of every finished seed; of a final model no numbers, (0,)."""
        classes, rows = len(self.cache["class_names"]), self.predictions
        found = [stats.macro_f1(row, self.labels, classes) for row in rows if row.size]
        return np.array(found)

    def __repr__(self) -> str:
        """Folder, decoder, seeds."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<RunResult '{self.path}': {self.title}, {len(self.seeds)} seeds{failed}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what was run and how every seed ended."""
        return values(self)

    def summary(self) -> str:
        """One line for people."""
        return summary(self)
