"""What a plan says a shard must hold, and the receipts that say it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, StorageError
from gaam_cache.format.plan import FORMAT_VERSION, Plan, ShardSpec
from gaam_cache.format.receipt import SHARD_FOLDER, Receipt, read_receipt, receipt_path

ROW_DATASETS = {"label": "int64", "row": "int64", "num_tokens": "int32"}
"""Arrays with one number per row, and their types."""
UNLABELLED = -1
"""The label of every row of a split without labels."""


def embeddings_key(plan: Plan, pooling: str) -> str:
    """Name of the HDF5 dataset of a pooling."""
    return "embeddings" if pooling == plan.pooling[0] else f"embeddings_{pooling}"


def column_key(name: str) -> str:
    """Name of the HDF5 dataset of a kept column."""
    return f"column_{name}"


def expected_arrays(plan: Plan, shard: ShardSpec) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array of a shard."""
    rows = shard.stop - shard.start
    states = (rows, plan.num_layers, plan.hidden_size)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {
        embeddings_key(plan, pooling): (states, plan.storage_dtype) for pooling in plan.pooling
    }
    arrays |= {key: ((rows,), dtype) for key, dtype in ROW_DATASETS.items()}
    return arrays | {
        column_key(name): ((rows, width), "utf8") for name, width in plan.columns.items()
    }


def shard_attributes(plan: Plan, shard: ShardSpec) -> dict[str, Any]:
    """Attributes of the root group of a shard file."""
    return {
        "format": "gaam-shard",
        "format_version": FORMAT_VERSION,
        "fingerprint": plan.fingerprint,
        "split": shard.split,
        "start": shard.start,
        "stop": shard.stop,
        "pooling": ",".join(plan.pooling),
    }


def planned_receipt(root: Path, plan: Plan, shard: ShardSpec) -> Receipt:
    """Read the receipt of a planned shard and check it against the plan.

    Raises:
        CacheError: damaged, of another cache, or not what the plan says.
    """
    receipt = read_receipt(root, shard.name)
    belongs = (plan.fingerprint, shard.split, shard.start, shard.stop)
    said = (receipt.fingerprint, receipt.split, receipt.start, receipt.stop)
    arrays = expected_arrays(plan, shard)
    there = {key: (spec.shape, spec.dtype) for key, spec in receipt.datasets.items()}
    if said == belongs and there == arrays:
        return receipt
    message = f"the shard '{shard.name}' does not hold what the plan says"
    expected, found = _in_words(arrays), _in_words(there)
    if said != belongs:
        message = f"the shard '{shard.name}' belongs to another cache"
        expected = "fingerprint {:.12}, rows {} {} to {}".format(*belongs)
        found = "fingerprint {:.12}, rows {} {} to {}".format(*said)
    raise CacheError(
        message,
        expected=expected,
        found=found,
        where=str(receipt_path(root, shard.name).absolute()),
        hint="delete the receipt and run gaam extract again",
    )


def _in_words(arrays: dict[str, tuple[tuple[int, ...], str]]) -> str:
    return ", ".join(f"{key!r} {dtype} {shape}" for key, (shape, dtype) in sorted(arrays.items()))


def missing_shards(root: Path, plan: Plan) -> list[str]:
    """Names of the planned shards that have no receipt.

    Args:
        root: folder of the cache.
        plan: of it.

    Raises:
        StorageError: the folder cannot be listed.
    """
    try:
        # one listing: a shard a stat would be slow for a plan of many shards
        there = set(os.listdir(root / SHARD_FOLDER))  # noqa: PTH208 names are all we need
    except (FileNotFoundError, NotADirectoryError):
        there = set()
    except OSError as error:
        raise StorageError(
            "the shards of the cache cannot be listed",
            expected=f"a readable folder '{SHARD_FOLDER}'",
            found=error.strerror,
            where=str((root / SHARD_FOLDER).absolute()),
            hint="get the right to read there, or choose another folder with --out or --cache",
        ) from error
    done = {name.removesuffix(".json") for name in there if name.endswith(".json")}
    return [shard.name for shard in plan.shards() if shard.name not in done]
