"""A run that predicts by the length of a text: no encoder, no decoder, and nothing to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gaam_cache.encode import Placed
from gaam_decoder.use.predictor import Predictions

CLASSES = ('a, "quoted"', "two\nlines", "naïve 東京", "=1+1", "\u202ertl")


class StandIn:
    """What ``gaam_decoder.load`` gives, as far as files need it.

    Args:
        class_names: of the run.
        text_columns: of its data set.
        meanwhile: called with the number of every piece before it is predicted.
    """

    def __init__(
        self,
        class_names: Sequence[str] = CLASSES,
        text_columns: Sequence[str] = (),
        meanwhile: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.class_names = tuple(class_names)
        self.seeds = (0, 1, 2)
        self.temperatures: tuple[float, ...] = ()
        self.pooling = "mean"
        self.encoding = SimpleNamespace(kind="text", rows={"text_columns": list(text_columns)})
        self.asked: list[str] = []
        self.pieces = 0
        self._meanwhile = meanwhile

    def stream(self, chunks: Iterable[Placed], **about: Any) -> Iterator[Predictions]:
        for chunk in chunks:
            self._meanwhile(self.pieces)
            self.pieces += 1
            yield self.predictions(chunk.rows)

    def predictions(self, rows: Sequence[str], **about: Any) -> Predictions:
        self.asked += rows
        number = len(self.class_names)
        seen_N = np.array([sum(row.encode()) for row in rows], np.float32).reshape(-1, 1)
        logits_SNC = np.stack([np.sin(seen_N + seed + np.arange(number)) for seed in self.seeds])
        logits_SNC = logits_SNC.astype(np.float32)
        return Predictions.of(logits_SNC, self.class_names, temperatures=self.temperatures)


def stand_in(monkeypatch: Any, folder: Path, **about: Any) -> tuple[StandIn, Path]:
    """Let ``predict`` open a stand-in wherever it opens a run; the run's folder."""
    predictor = StandIn(**about)

    def opened(run: Path, *, temperature: bool = False, **about: Any) -> StandIn:  # noqa: ARG001
        predictor.temperatures = (0.5, 1.0, 2.0) if temperature else ()
        return predictor

    monkeypatch.setattr("gaam_decoder.use.load.load", opened)
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text("{}")
    return predictor, folder
