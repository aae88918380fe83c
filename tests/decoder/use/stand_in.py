"""A run that predicts by the length of a text: no encoder, no decoder, and nothing to wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gaam_cache.encode import Placed
from gaam_decoder.use.predictor import Predictions

CLASSES = ('a, "quoted"', "two\nlines", "naïve 東京", "=1+1", "\u202ertl")


class StandIn:
    """What ``gaam_decoder.load`` gives, as far as files need it."""

    def __init__(self) -> None:
        self.class_names = CLASSES
        self.seeds = (0, 1, 2)
        self.temperatures: tuple[float, ...] = ()
        self.pooling = "mean"
        self.encoding = SimpleNamespace(kind="text", rows={})
        self.asked: list[str] = []

    def stream(self, chunks: Iterable[Placed], **about: Any) -> Iterator[Predictions]:
        for chunk in chunks:
            yield self.predictions(chunk.rows)

    def predictions(self, rows: Sequence[str], **about: Any) -> Predictions:
        self.asked += rows
        number = len(self.class_names)
        seen_N = np.array([sum(row.encode()) for row in rows], np.float32).reshape(-1, 1)
        logits_SNC = np.stack([np.sin(seen_N + seed + np.arange(number)) for seed in self.seeds])
        logits_SNC = logits_SNC.astype(np.float32)
        return Predictions.of(logits_SNC, self.class_names, temperatures=self.temperatures)


def stand_in(monkeypatch: Any, folder: Path) -> tuple[StandIn, Path]:
    """Let ``predict`` open a stand-in wherever it opens a run; the run's folder."""
    predictor = StandIn()
    monkeypatch.setattr("gaam_decoder.use.predict.load", lambda run, **about: predictor)
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text("{}")
    return predictor, folder
