"""What ``gaam inspect`` says about a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.cache import open_cache
from gaam_cache.encoders._base import describe_encoder
from gaam_cache.layout import missing_shards
from gaam_cache.plan import read_plan


def describe(path: Path) -> dict[str, Any]:
    """A cache, complete or not, as JSON values.

    Raises:
        NotFoundError: no cache there.
        CacheError: the plan or a shard is damaged.
    """
    plan = read_plan(path)
    missing = missing_shards(path, plan)
    about: dict[str, Any] = {
        "kind": "cache",
        "path": str(path.absolute()),
        "complete": not missing,
        "missing_shards": missing,
        "fingerprint": plan.fingerprint,
        "encoder": plan.encoder["name"],
        "untrained_seed": plan.untrained_seed,
        "revision": plan.encoder["revision"],
        "dataset": plan.dataset["name"],
        "num_layers": plan.num_layers,
        "hidden_size": plan.hidden_size,
        "pooling": list(plan.pooling),
        "storage_dtype": plan.storage_dtype,
        "compute_dtype": plan.fingerprint_fields["encoder"]["dtype"],
        "max_length": plan.fingerprint_fields["encoder"]["max_length"],
        "class_names": list(plan.class_names),
        "splits": {name: {"rows": rows} for name, rows in plan.rows.items()},
        "created_with": plan.created_with,
    }
    if not missing:
        cache = open_cache(path)
        for name, split in cache.items():
            counts = np.bincount(split.labels, minlength=len(plan.class_names))
            about["splits"][name] |= {
                "rows_per_class": dict(zip(plan.class_names, counts.tolist(), strict=True)),
                "mean_tokens": round(float(split.num_tokens.mean()), 1),
                "truncated_rows": split.truncated,
                "bytes": split.nbytes,
            }
    return about


def in_words(about: dict[str, Any]) -> str:
    """The result of ``describe`` as lines for people."""
    missing = about["missing_shards"]
    state = "complete" if not missing else f"incomplete, {len(missing)} shards are missing"
    revision = f" at {about['revision'][:12]}" if about["revision"] else ""
    encoder = describe_encoder(about["encoder"], about["untrained_seed"])
    lines = [
        f"cache {about['path']}: {state}",
        f"  encoder      {encoder}{revision}, computed in {about['compute_dtype']}",
        f"  data set     {about['dataset']}, at most {about['max_length']} tokens a text",
        f"  states       {about['num_layers']} layers x {about['hidden_size']}, "
        f"{' and '.join(about['pooling'])} pooled, stored as {about['storage_dtype']}",
        f"  fingerprint  {about['fingerprint'][:12]}",
    ]
    for name, split in about["splits"].items():
        line = f"  {name:<12} {split['rows']:,} rows"
        if "bytes" in split:
            classes = [f"{label} {n:,}" for label, n in split["rows_per_class"].items()]
            shown = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
            line += (
                f" ({shown}), {split['mean_tokens']} tokens on average, "
                f"{split['truncated_rows']:,} truncated, {split['bytes'] / 1e6:,.1f} MB"
            )
        lines.append(line)
    return "\n".join(lines)
