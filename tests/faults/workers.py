"""Tasks of real workers that note what they do; here, because workers call them by name.

What is to happen stands beside the folder that they work on, in ``<folder>.orders``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gaam_cache.engines._base import Place, Tell
from gaam_cache.extraction.workers import work as extract_shards
from tests.faults.notes import Notes, note_batches, note_epochs


def order(folder: Path, dies_after: int | None) -> Path:
    """Let the first worker that finds so many notes be killed; where notes are."""
    orders = [f"{folder}.notes", dies_after, f"{folder}.killed"]
    Path(f"{folder}.orders").write_text(json.dumps(orders))
    return Path(orders[0])


def was_killed(folder: Path) -> bool:
    return Path(f"{folder}.killed").exists()


def _notes(folder: Path) -> Notes:
    return Notes(*json.loads(Path(f"{folder}.orders").read_text()))


def extract(argument: Any, place: Place, tell: Tell) -> Any:
    """As ``gaam extract`` has its workers do."""
    note_batches(_notes(argument.config.out))
    return extract_shards(argument, place, tell)


def train(argument: Any, place: Place, tell: Tell) -> Any:
    """As ``gaam train`` has its workers do."""
    from gaam_decoder.training.train import _work

    note_epochs(_notes(argument.config.runs))
    return _work(argument, place, tell)
