"""What a process that works notes while it does, and when it is killed for that."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gaam_cache.extraction.job
import gaam_cache.extraction.worker
import gaam_cache.extraction.workers


class Notes:
    """A file to which any number of processes append, one byte a note.

    Args:
        path: of the file.
        dies_after: so many notes of this process kill it.
        first_to_die: this file is made by whoever finds ``dies_after`` notes of all processes:
            that one is killed, and nobody after it.
    """

    def __init__(self, path: str, dies_after: int | None, first_to_die: str | None = None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._dies_after = dies_after
        self._first_to_die = first_to_die
        self._count = 0

    def add(self, value: int) -> None:
        os.write(self._file, bytes([value]))
        self._count += 1
        if self._dies_after is None:
            return
        if self._first_to_die is None:
            dies = self._count == self._dies_after
        else:
            dies = os.fstat(self._file).st_size >= self._dies_after and _make(self._first_to_die)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)


def _make(path: str) -> bool:
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def note_batches(notes: Notes) -> None:
    """From now on the rows of every batch that is encoded are noted."""
    encode = gaam_cache.extraction.worker.ShardWorker.encode

    def noted(worker: Any, shard: Any, inputs: Any, tick: Any) -> Any:
        before = 0

        def note(done: int) -> None:
            nonlocal before
            rows, before = done - before, done
            notes.add(rows)
            time.sleep(0.01)  # the others are to find something left
            tick(done)

        return encode(worker, shard, inputs, note)

    gaam_cache.extraction.worker.ShardWorker.encode = noted  # type: ignore[method-assign]


def note_reads(notes: Notes) -> None:
    """From now on it is noted whenever rows are read."""
    read = gaam_cache.extraction.job.read_rows

    def noted(*arguments: Any, **options: Any) -> Any:
        notes.add(1)
        return read(*arguments, **options)

    gaam_cache.extraction.job.read_rows = noted
    gaam_cache.extraction.workers.read_rows = noted


def note_epochs(notes: Notes) -> None:
    """From now on it is noted whenever a group of seeds has been through an epoch, and kept."""
    import gaam_decoder.runs.unfinished
    import gaam_decoder.training.seed_groups

    gaam_decoder.runs.unfinished.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    gaam_decoder.runs.unfinished.SHARE_OF_TIME = float("inf")
    train = gaam_decoder.training.seed_groups.train_group

    def noted(*arguments: Any, on_epoch: Any, **options: Any) -> Any:
        def note(epoch: int, loss: float) -> None:
            notes.add(len(arguments[3]))
            on_epoch(epoch, loss)

        return train(*arguments, on_epoch=note, **options)

    gaam_decoder.training.seed_groups.train_group = noted
