"""What ``gaam inspect`` says about a cache: what it is, how far it is, who is at work on it."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.common.errors import CacheError, OutOfReachError
from gaam_cache.common.messages import excerpt, visible, visible_values
from gaam_cache.common.paths import absolute_path
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, read_plan
from gaam_cache.store.reader import Split
from gaam_cache.store.shard import missing_shards, read_receipt
from gaam_cache.workers.leases import LEASE_FOLDER, Holding, holdings

SHOWN = 20  # damages, and workers, that are listed for people
COUNTED_BYTES = (
    2**30
)  # of a split at most: its classes are counted, for which all of it is hashed
OF_PLAN = (
    *(
        "fingerprint",
        "untrained_seed",
        "num_layers",
        "first_layer",
        "hidden_size",
        "pooling",
    ),
    *("storage_dtype", "class_names", "created_with"),
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a cache is and how far it is."""

    about: dict[str, Any]  # JSON values

    @property
    def complete(self) -> bool:
        """Whether every shard is there, and nothing that was seen is damaged."""
        return bool(self.about["complete"])

    @property
    def damage(self) -> list[dict[str, str]]:
        """What is not what it must be, or not on this machine: 'name', 'reason' and 'repair'."""
        return [*self.about["damage"], *self.about["out_of_reach"]]

    def to_dict(self) -> dict[str, Any]:
        return self.about

    def in_words(self) -> str:
        about: dict[str, Any] = visible_values(self.about)
        workers = [
            f"{one['name']}: {Holding(**one).in_words()}" for one in about["at_work"]
        ]
        damage, out_of_reach = (
            ["{name}: {reason}; to do: {repair}".format(**one) for one in about[kind]]
            for kind in ("damage", "out_of_reach")
        )
        found: list[tuple[str, str]] = []
        if "fingerprint" not in about:
            state = (
                "DAMAGED, its plan cannot be used"
                if damage
                else "its rows are being read"
            )
            state = "its plan is out of reach" if out_of_reach else state
        else:
            missing = len(about["missing_shards"])
            there = f"{about['shards'] - missing:,} of {about['shards']:,} shards are there, "
            there += f"{about['rows_done']:,} of {about['rows']:,} rows"
            state = f"incomplete; {there}" if missing else "complete"
            state = f"not all of it is within reach; {there}" if out_of_reach else state
            state = f"DAMAGED; {there}" if damage else state
            if missing and not workers:
                workers = [f"nobody: the {about['maker']} that began it goes on"]
            found = [
                *_plan_in_words(about),
                *map(_split_in_words, about["splits"].items()),
            ]
        several = {"at work": workers, "damaged": damage, "out of reach": out_of_reach}
        for name, lines in several.items():
            more = [f"{len(lines) - SHOWN:,} more"] if len(lines) > SHOWN else []
            found += [(name, line) for line in lines[:SHOWN] + more]
        lines = [f"  {name:<12} {text}" for name, text in found if text]
        return "\n".join([f"cache {about['path']}: {state}", *lines])


def is_cache(path: Path) -> bool:
    """Whether a folder is, was or will be a cache, in whatever state it is."""
    begun = (path / SHARD_FOLDER).is_dir() or (path / LEASE_FOLDER).is_dir()
    return begun or os.path.lexists(path / PLAN_FILE)


def inspect(path: Path) -> Inspection:
    """Look at a cache, complete or not, damaged or not; others may be writing it.

    ``damage`` is what can be seen without reading every byte; ``gaam verify`` lists all of it.

    Raises:
        NotFoundError: no cache there.
    """
    path = absolute_path(path)
    held, damage = holdings(path / LEASE_FOLDER), list[dict[str, str]]()
    out_of_reach: list[dict[str, str]] = []

    def note(name: str, error: CacheError) -> None:
        faults = out_of_reach if isinstance(error, OutOfReachError) else damage
        faults.append(_damage(name, error))

    about: dict[str, Any] = {"kind": "cache", "path": str(path), "complete": False}
    about |= {"at_work": [asdict(one) for one in held], "damage": damage}
    about["out_of_reach"] = out_of_reach
    if (
        held
        and not os.path.lexists(path / PLAN_FILE)
        and not (path / SHARD_FOLDER).exists()
    ):
        return Inspection(about)
    try:
        plan = read_plan(path)
    except CacheError as error:
        note(PLAN_FILE, error)
        return Inspection(about)
    missing = missing_shards(path, plan)
    lacking, splits = set(missing), dict[str, Any]()
    for name, rows in plan.rows.items():
        splits[name], receipts, shards = {"rows": rows}, [], list(plan.shards(name))
        for shard in shards:
            try:
                if shard.name not in lacking:
                    receipts.append(read_receipt(path, plan, shard))
                if len(receipts) == len(shards):
                    splits[name] |= _whole(
                        Split(path, plan, name, receipts), count=not missing
                    )
            except CacheError as error:
                note(shard.name, error)
    encoder = plan.identity
    about |= {
        "complete": not (missing or damage or out_of_reach),
        "shards": plan.num_shards,
        "missing_shards": missing,
        "rows": sum(plan.rows.values()),
        "rows_done": sum(
            s.stop - s.start for s in plan.shards() if s.name not in lacking
        ),
        "at_work": [asdict(one) for one in held if one.name in lacking],
        "maker": plan.maker,
        "encoder": plan.encoder["name"],
        "label": plan.encoder_label,
        "revision": plan.encoder["revision"],
        "dataset": plan.dataset_label,
        "compute_dtype": encoder["dtype"],
        "pool_over": encoder.get("pool_over", "all"),
        "imported_from": encoder.get("imported", {}).get("files"),
        "planted": plan.planted,
        "columns": list(plan.columns),
        "splits": splits,
    }
    about |= {
        name: encoder.get(name) for name in ("layers", "pooled", "prompt", "max_length")
    }
    return Inspection(about | {name: getattr(plan, name) for name in OF_PLAN})


def _damage(name: str, error: CacheError) -> dict[str, str]:
    reason, repair = " ".join(error.reason.split()), error.details.get("to do", "")
    return {"name": name, "reason": visible(reason), "repair": repair}


def _whole(split: Split, *, count: bool) -> dict[str, Any]:
    """What is known of a split of which every shard is there; to ``count`` all of it is hashed."""
    about: dict[str, Any] = {
        "labelled": split.labelled,
        "truncated_rows": split.truncated,
    }
    about["bytes"] = split.nbytes
    if count and split.nbytes <= COUNTED_BYTES:
        labels = split.labels if split.labelled else np.zeros(0, np.int64)
        counts = np.bincount(labels, minlength=len(split.class_names)).tolist()
        about["rows_per_class"] = dict(zip(split.class_names, counts, strict=True))
        about["mean_tokens"] = round(float(split.num_tokens.mean()), 1)
    return about


def _plan_in_words(about: dict[str, Any]) -> list[tuple[str, str]]:
    revision = f" at {short_digest(about['revision'])}" if about["revision"] else ""
    where = (
        f"in {about['compute_dtype']}"
        if about["imported_from"] is None
        else "elsewhere"
    )
    over = "the text's own tokens" if about["pool_over"] == "text" else about["pooled"]
    some = "" if about["first_layer"] == 1 else f", from layer {about['first_layer']}"
    states = f"{about['num_layers']} layers x {about['hidden_size']}{some}, "
    states += f"pooled by {' and '.join(about['pooling'])}" + (
        f" over {over}" if over else ""
    )
    length = f", at most {about['max_length']} tokens a row"
    teacher = "drawn from a teacher: gate {gate}, strength {strength}, seed {seed}"
    return [
        ("encoder", f"{about['label']}{revision}, computed {where}"),
        ("layers", about["layers"] or ""),
        ("data set", f"{about['dataset']}" + length * (about["imported_from"] is None)),
        ("states", f"{states}, stored as {about['storage_dtype']}"),
        ("fingerprint", short_digest(about["fingerprint"])),
        ("prompt", excerpt(about["prompt"]) if about["prompt"] else ""),
        ("labels", teacher.format(**about["planted"]) if about["planted"] else ""),
        ("columns", ", ".join(about["columns"])),
    ]


def _split_in_words(named: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    name, split = named
    line = f"{split['rows']:,} rows"
    if "bytes" in split:
        line += "" if split["labelled"] else " without labels"
        if "mean_tokens" in split:
            classes = [f"{label} {n:,}" for label, n in split["rows_per_class"].items()]
            classes[8:] = ["..."] * (len(classes) > 8)
            line += f" ({', '.join(classes)})" if split["labelled"] else ""
            line += f", {split['mean_tokens']} tokens on average"
        line += (
            f", {split['truncated_rows']:,} truncated, {split['bytes'] / 1e6:,.1f} MB"
        )
    return name, line
