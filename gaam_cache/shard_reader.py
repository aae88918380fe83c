"""Rows of a split out of its shard files, each of which is checked before its first row is used.

No file stays open for long and none is mapped: a cache may have more shards than a process may open
files or map memory. What is read with ``pread`` is a copy that nobody else can change, and a
file that became shorter is an error and no signal that kills.

N rows asked for.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.check_memory import CheckMemory, Identity
from gaam_cache.errors import CacheError
from gaam_cache.files import open_regular
from gaam_cache.plan import Plan
from gaam_cache.receipt import SHARD_FOLDER, Receipt
from gaam_cache.repair import extract_again, repair_command
from gaam_cache.shard_numbers import shard_fault

MAX_CHECKERS = 8
"""Threads that hash; more wait for the disk."""
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
        self._checked: list[Identity | None] = [None] * len(receipts)

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
        """
        order = np.argsort(row_N, kind="stable")
        row_N = row_N[order]
        shard_N = row_N // self._plan.shard_rows
        ends = [*(np.flatnonzero(np.diff(shard_N)) + 1).tolist(), len(row_N)]
        starts = [0, *ends[:-1]]
        whole = len(runs) == 1 and runs[0].bytes == out.shape[1] == self._row_bytes(key)
        flat: Any = out.reshape(-1)
        view = memoryview(flat)
        with closing(self._in_order(shard_N[starts].tolist())) as checked:
            for start, end, shard in zip(starts, ends, checked, strict=True):
                rows, places = row_N[start:end], order[start:end]
                stretches = (
                    consecutive(rows, places)
                    if whole
                    else [(*at, 1) for at in zip(rows.tolist(), places.tolist(), strict=True)]
                )
                for _ in range(MAX_ATTEMPTS):
                    if self._copy(shard, key, stretches, view, runs):
                        break
                    self._check(shard)  # touched since: perhaps only its times are others
                else:
                    raise self._damaged(shard, "the file is being changed while it is read")

    def _row_bytes(self, key: str) -> int:
        spec = self._receipts[0].datasets[key]
        return spec.nbytes // spec.shape[0]

    def _copy(
        self,
        shard: int,
        key: str,
        stretches: Sequence[tuple[int, int, int]],
        view: memoryview,
        runs: Sequence[Run],
    ) -> bool:
        """Copy rows of one shard; whether the file is the one that was checked."""
        spec = self._receipts[shard].datasets[key]
        row_bytes = spec.nbytes // spec.shape[0]
        base = spec.offset - self._specs[shard].start * row_bytes
        width = sum(run.bytes for run in runs)
        identity = self._checked[shard]
        assert identity is not None
        try:
            file = _open_files.get(self._path(shard), identity)
            descriptor = file.fileno()
            for row, place, count in stretches:
                for source, target, size in runs:
                    begin = place * width + target
                    wanted = size * count
                    at = base + row * row_bytes + source
                    if os.preadv(descriptor, [view[begin : begin + wanted]], at) != wanted:
                        _read_on(descriptor, view[begin : begin + wanted], at)
            return Identity.of(os.fstat(descriptor)) == identity
        except (OSError, ValueError) as error:
            raise self._damaged(shard, f"the file cannot be read: {error}") from error

    def _in_order(self, shards: list[int]) -> Generator[int, None, None]:
        """The shards one by one, each when it is known to be right; checked ahead by threads."""
        todo = [shard for shard in shards if self._checked[shard] is None]
        if not todo:
            yield from shards
            return
        workers = checkers(len(todo))
        waiting = iter(todo)
        ahead: deque[Future[None]] = deque()
        with ThreadPoolExecutor(workers, "check") as pool:
            try:
                for shard in shards:
                    while (
                        len(ahead) < 4 * workers and (following := next(waiting, None)) is not None
                    ):
                        ahead.append(pool.submit(self._check, following))
                    while self._checked[shard] is None:
                        ahead.popleft().result()
                    yield shard
            finally:
                pool.shutdown(cancel_futures=True)
                self._memory.save()

    def _check(self, shard: int) -> None:
        """Make sure of one shard: what is remembered of it, else every byte and number."""
        receipt = self._receipts[shard]
        try:
            with open_regular(self._path(shard)) as file:
                identity = Identity.of(os.fstat(file.fileno()))
                fault = None
                if not self._memory.knows(identity, receipt, self._plan):
                    found = shard_fault(file, self._plan, self._specs[shard], receipt)
                    fault = found.changed or found.numbers
                    if fault is None:
                        self._memory.add(identity, receipt, self._plan)
        except (OSError, ValueError) as error:
            raise self._damaged(shard, f"the file cannot be read: {error}") from error
        if fault is not None:
            raise self._damaged(shard, fault)
        self._checked[shard] = identity

    def _path(self, shard: int) -> Path:
        return self._root / SHARD_FOLDER / self._receipts[shard].file

    def _damaged(self, shard: int, found: str) -> CacheError:
        name = self._specs[shard].name
        repair = repair_command(self._root, name, extract_again(self._root, self._plan))
        return CacheError(
            f"the shard '{name}' is damaged",
            expected="the bytes that its receipt names, and in them numbers that can be right",
            found=found,
            where=str(self._path(shard).absolute()),
            hint=f"{repair} (gaam verify lists all damage)",
        )


def checkers(shards: int) -> int:
    """How many threads it takes to check so many shards."""
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(MAX_CHECKERS, processors, shards))


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


class _OpenFiles:
    """The files that were read last, at most an eighth of what the process may open."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, tuple[_Closing, Identity]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: Path, identity: Identity) -> _Closing:
        """The open file; another one is opened where ``identity`` is no longer that of last time.

        It is closed when nobody uses it any more: a descriptor is never closed, and its number
        given to another file, below a thread that reads.
        """
        with self._lock:
            held = self._files.get(path)
            if held is not None and held[1] == identity:
                self._files.move_to_end(path)
                return held[0]
        file = _Closing(open_regular(path))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self._lock:
            self._files[path] = file, identity
            self._files.move_to_end(path)
            while len(self._files) > max(4, min(256, soft // 8)):
                self._files.popitem(last=False)
        return file


class _Closing:
    """An open file that is closed when the last reference to it goes."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.fileno = file.fileno

    def __del__(self) -> None:
        self._file.close()


_open_files = _OpenFiles()
