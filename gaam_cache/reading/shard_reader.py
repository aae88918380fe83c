"""Rows of a split out of its shard files, each of which is checked before its first row is used.

No file stays open for long and none is mapped: a cache may have more shards than a process may open
files or map memory. What is read with ``pread`` is a copy that nobody else can change, and a
file that became shorter is an error and no signal that kills.

N rows asked for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.devices import cores
from gaam_cache.errors import CacheError
from gaam_cache.extraction.repair import extract_again, repair_command
from gaam_cache.format.files import Identity, open_regular
from gaam_cache.format.plan import Plan
from gaam_cache.format.receipt import SHARD_FOLDER, Receipt
from gaam_cache.format.refusals import raise_if_refused
from gaam_cache.reading.check_memory import CheckMemory, identity_to_remember
from gaam_cache.reading.open_files import OpenFiles
from gaam_cache.reading.shard_numbers import shard_fault

MAX_CHECKERS = 8
"""Threads that hash; more wait for the disk."""
MAX_READERS = 4
"""Threads that copy: what one copies out of the page cache is less than memory gives."""
THREADS_FROM_BYTES = 4 * 2**20
"""Less is copied at once, before other threads would have begun."""
MERGED_ROWS = 64
"""Of a shard; among fewer, neighbours are not worth looking for."""
MAX_ATTEMPTS = 3
"""To read rows from a file that is touched at that moment."""


class Run(NamedTuple):
    """Bytes of a row that lie one behind the other in the file and in the result."""

    source: int
    target: int
    bytes: int


class ShardReader:
    """The shards of one split."""

    def __init__(
        self, root: Path, plan: Plan, split: str, receipts: Sequence[Receipt], memory: CheckMemory
    ) -> None:
        """Use ``EmbeddingCache``, which has checked the receipts."""
        self._root = root
        self._plan = plan
        self._specs = list(plan.shards(split))
        self._receipts = receipts
        self._memory = memory
        self._folder = str((root / SHARD_FOLDER).absolute())
        self._checked: list[Identity | None] = [None] * len(receipts)
        self._row_bytes = {
            key: spec.nbytes // spec.shape[0] for key, spec in receipts[0].datasets.items()
        }

    def read(
        self, key: str, row_N: NDArray[np.int64], out: NDArray[np.uint8], runs: Sequence[Run]
    ) -> None:
        """Copy rows of an array, in the order asked for.

        Args:
            key: name of the array.
            row_N: row numbers, not negative.
            out: their bytes, (N, bytes of a row in the result); C-contiguous.
            runs: which bytes of a row are wanted, and where they go.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
            StorageError: its file may not be read.
        """
        order = np.argsort(row_N, kind="stable")
        row_N = row_N[order]
        shard_N = row_N // self._plan.shard_rows
        ends = [*(np.flatnonzero(shard_N[1:] != shard_N[:-1]) + 1).tolist(), len(row_N)]
        starts = [0, *ends[:-1]]
        whole = len(runs) == 1 and runs[0].bytes == out.shape[1] == self._row_bytes[key]
        flat: Any = out.reshape(-1)
        view = memoryview(flat)
        copying: list[Future[None]] = []
        with closing(self._in_order(shard_N[starts].tolist())) as checked:
            for start, end, shard in zip(starts, ends, checked, strict=True):
                at = row_N[start:end], order[start:end]
                if whole and end - start > MERGED_ROWS:
                    stretches = consecutive(*at)
                else:
                    places = at[0].tolist(), at[1].tolist()
                    stretches = [(row, place, 1) for row, place in zip(*places, strict=True)]
                task = shard, key, stretches, view, runs
                if out.nbytes < THREADS_FROM_BYTES:
                    self._copy_right(*task)
                else:
                    copying.append(_readers.submit(self._copy_right, *task))
            for copied in copying:
                copied.result()

    def _copy_right(self, shard: int, *task: Any) -> None:
        for _ in range(MAX_ATTEMPTS):
            if self._copy(shard, *task):
                return
            self._check(shard)  # touched since: perhaps only its times are others
        raise self._damaged(shard, "the file is being changed while it is read")

    def _copy(
        self,
        shard: int,
        key: str,
        stretches: Sequence[tuple[int, int, int]],
        view: memoryview,
        runs: Sequence[Run],
    ) -> bool:
        """Copy rows of one shard; whether the file is the one that was checked."""
        row_bytes = self._row_bytes[key]
        base = self._receipts[shard].datasets[key].offset - self._specs[shard].start * row_bytes
        width = sum(run.bytes for run in runs)
        identity = self._checked[shard]
        assert identity is not None
        try:
            file = _open_files.get(self._path(shard), identity)
            descriptor = file.fileno()
            for row, place, count in stretches:
                for source, target, size in runs:
                    begin = place * width + target
                    part = view[begin : begin + size * count]
                    at = base + row * row_bytes + source
                    if os.preadv(descriptor, [part], at) != len(part):
                        _read_on(descriptor, part, at)
            return Identity.of(os.fstat(descriptor)) == identity
        except (OSError, ValueError) as error:
            raise_if_refused(error, Path(self._path(shard)))
            raise self._damaged(shard, f"the file cannot be read: {error}") from error

    def _in_order(self, shards: list[int]) -> Generator[int, None, None]:
        """The shards one by one, each when it is known to be right; checked ahead by threads."""
        todo = [shard for shard in shards if self._checked[shard] is None]
        if not todo:
            yield from shards
            return
        workers = checkers(len(todo))
        waiting = iter(todo)
        ahead: deque[tuple[int, Future[None]]] = deque()
        with ThreadPoolExecutor(workers, "check") as pool:
            try:
                for shard in shards:
                    while (
                        len(ahead) < 4 * workers and (following := next(waiting, None)) is not None
                    ):
                        ahead.append((following, pool.submit(self._check, following)))
                    if ahead and ahead[0][0] == shard:
                        ahead.popleft()[1].result()
                    yield shard
            finally:
                pool.shutdown(cancel_futures=True)
                self._memory.save()

    def _check(self, shard: int) -> None:
        """Make sure of one shard: what is remembered of it, else every byte and number."""
        receipt = self._receipts[shard]
        try:
            with open_regular(Path(self._path(shard))) as file:
                identity = identity_to_remember(file.fileno())
                fault = None
                if not self._memory.knows(identity, receipt, self._plan):
                    found = shard_fault(file, self._plan, self._specs[shard], receipt)
                    fault = found.changed or found.numbers
                    if fault is None:
                        self._memory.add(identity, receipt, self._plan)
        except (OSError, ValueError) as error:
            raise_if_refused(error, Path(self._path(shard)))
            raise self._damaged(shard, f"the file cannot be read: {error}") from error
        if fault is not None:
            raise self._damaged(shard, fault)
        self._checked[shard] = identity

    def _path(self, shard: int) -> str:
        return f"{self._folder}/{self._receipts[shard].file}"

    def _damaged(self, shard: int, found: str) -> CacheError:
        name = self._specs[shard].name
        repair = repair_command(self._root, name, extract_again(self._root, self._plan))
        return CacheError(
            f"the shard '{name}' is damaged",
            expected="the bytes that its receipt names, and in them numbers that can be right",
            found=found,
            where=self._path(shard),
            hint=f"{repair} (gaam verify lists all damage)",
        )


def checkers(shards: int) -> int:
    """How many threads it takes to check so many shards."""
    return max(1, min(MAX_CHECKERS, len(cores()), shards))


def consecutive(
    first_N: NDArray[np.int64], second_N: NDArray[np.int64]
) -> list[tuple[int, int, int]]:
    """Two lists of numbers in stretches that both rise by one: (first, second, how many)."""
    breaks = np.flatnonzero((np.diff(first_N) != 1) | (np.diff(second_N) != 1)) + 1
    starts = np.concatenate([[0], breaks]) if len(first_N) else breaks
    counts = np.diff(np.concatenate([starts, [len(first_N)]]))
    columns = first_N[starts].tolist(), second_N[starts].tolist(), counts.tolist()
    return list(zip(*columns, strict=True))


def _read_on(descriptor: int, part: memoryview, offset: int) -> None:
    """Fill ``part`` however little the system reads at once."""
    while part:
        count = os.preadv(descriptor, [part], offset)
        if not count:
            raise ValueError("it became shorter")
        part, offset = part[count:], offset + count


def _begin() -> None:
    """What all readers of a process share; a fork has no threads and must not wait for a lock."""
    global _open_files, _readers
    _open_files = OpenFiles()
    _readers = ThreadPoolExecutor(checkers(MAX_READERS), "read")


_open_files: OpenFiles
_readers: ThreadPoolExecutor
_begin()
os.register_at_fork(after_in_child=_begin)
