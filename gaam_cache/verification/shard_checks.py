"""Everything that can be asked of a shard, of many shards at a time; nothing is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from gaam_cache.errors import CacheError
from gaam_cache.format.files import Identity, open_regular
from gaam_cache.format.layout import planned_receipt, shard_attributes
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.format.receipt import ITEM_BYTES, NUMPY_DTYPES, SHARD_FOLDER, Receipt
from gaam_cache.format.refusals import raise_if_refused
from gaam_cache.reading.check_memory import identity_to_remember
from gaam_cache.reading.shard_numbers import shard_fault
from gaam_cache.reading.shard_reader import checkers
from gaam_cache.terminal import ran_out
from gaam_cache.verification.inspector import HDF5File, Inspector

SHARDS_PER_PROCESS = 256
"""Starting a process that looks into HDF5 files costs about as much as looking into so many."""
MAX_BATCH = 32
BATCH_BYTES = 64 * 2**20
"""Shards that are looked into at once; of large ones one, so that progress is seen."""


class Checked(NamedTuple):
    """What a look at a shard gave."""

    fault: str | None
    receipt: Receipt | None = None
    """Where it could be read."""
    identity: Identity | None = None
    """Of the file, where it was hashed."""
    changed: bool = False
    """Whether its bytes are not those that the receipt names."""


def check_shards(
    root: Path, plan: Plan, shards: list[ShardSpec]
) -> Iterator[tuple[ShardSpec, Checked]]:
    """Every shard and what is wrong with it, in order, several at a time."""
    inspectors: SimpleQueue[Inspector] = SimpleQueue()

    def check(batch: list[ShardSpec]) -> list[Checked]:
        inspector = inspectors.get()
        try:
            return _check_batch(root, plan, batch, inspector)
        finally:
            inspectors.put(inspector)

    bytes_per_row = plan.num_layers * plan.hidden_size * ITEM_BYTES[plan.storage_dtype]
    size = max(1, min(MAX_BATCH, BATCH_BYTES // (bytes_per_row * plan.shard_rows)))
    batches = [shards[start : start + size] for start in range(0, len(shards), size)]
    with ExitStack() as stack:
        workers = checkers(1 + len(shards) // SHARDS_PER_PROCESS)
        for _ in range(workers):
            inspectors.put(stack.enter_context(Inspector()))
        pool = stack.enter_context(ThreadPoolExecutor(workers, "verify"))
        stack.callback(pool.shutdown, cancel_futures=True)
        for batch, checked in zip(batches, pool.map(check, batches), strict=True):
            yield from zip(batch, checked, strict=True)


def check_receipts(
    root: Path, plan: Plan, shards: list[ShardSpec]
) -> Iterator[tuple[ShardSpec, Checked]]:
    """Every shard and what is wrong with its receipt or with the size of its file."""
    for shard in shards:
        try:
            yield shard, Checked(None, planned_receipt(root, plan, shard))
        except CacheError as error:
            yield shard, Checked(error.reason)


def _check_batch(
    root: Path, plan: Plan, shards: list[ShardSpec], inspector: Inspector
) -> list[Checked]:
    """Receipts, bytes and numbers; and of what agrees so far, whether it is a plain HDF5 file."""
    checked = [_check_bytes(root, plan, shard) for shard in shards]
    whole = [
        (number, shard, one.receipt)
        for number, (shard, one) in enumerate(zip(shards, checked, strict=True))
        if one.receipt is not None and one.identity is not None and not one.changed
    ]
    files = [_as_hdf5(root, plan, shard, receipt) for _, shard, receipt in whole]
    reasons = inspector.inspect(files) if files else []
    for (number, _, _), reason in zip(whole, reasons, strict=True):
        # what is no shard file at all is said before what is wrong with its numbers
        checked[number] = checked[number]._replace(fault=reason or checked[number].fault)
    return checked


def _check_bytes(root: Path, plan: Plan, shard: ShardSpec) -> Checked:
    try:
        receipt = planned_receipt(root, plan, shard)
    except CacheError as error:
        return Checked(error.reason)
    path = root / SHARD_FOLDER / receipt.file
    try:
        with open_regular(path) as file:
            identity = identity_to_remember(file.fileno())
            found = shard_fault(file, plan, shard, receipt)
    except (OSError, ValueError) as error:
        raise_if_refused(error, path)
        if ran_out(error):
            raise
        return Checked(f"the file cannot be read: {error}", receipt)
    changed = found.changed is not None
    return Checked(found.changed or found.numbers, receipt, identity, changed)


def _as_hdf5(root: Path, plan: Plan, shard: ShardSpec, receipt: Receipt) -> HDF5File:
    arrays = {
        name: {**asdict(spec), "stored": NUMPY_DTYPES[spec.dtype]}
        for name, spec in receipt.datasets.items()
    }
    path = str((root / SHARD_FOLDER / receipt.file).absolute())
    return HDF5File(path, shard_attributes(plan, shard), arrays)
