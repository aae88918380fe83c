"""Under which heading of a help text a command or an option stands.

One table, by name: a command or an option of ``cli.py`` that is new gets its place here, in the
order in which they are shown. What is in no table stands under ``OTHER``, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

FIRST = "What one needs first"
"""The heading of at most ten options of a command that has many."""
OTHER = "Options"
WORKERS = ("engine", "devices", "address", "gpus_per_worker", "rank")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "The three commands": ("extract", "train", "report"),
    "Look after caches and runs": ("import", "status", "inspect", "verify", "runs"),
    "Understand": ("describe", "ablate", "plant", "study"),
    "Use and share": ("predict", "export"),
}
OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "extract": {
        FIRST: (
            *("preset", "encoder", "dataset", "text_columns", "label_column"),
            *("out", "pool", "dtype", "limit", "dry_run"),
        ),
        "Encoder": (
            *("revision", "untrained_encoder", "encoder_seed", "max_length", "layer_zero"),
            *("prompt", "prompt_file", "pool_over"),
        ),
        "Data": (
            *("dataset_revision", "splits", "test_fraction", "split_seed", "unlabelled"),
            *("keep_columns", "delimiter", "encoding", "strip_labels", "skip_empty"),
            *("file_column", "allow_outside", "clip_seconds", "clip_mode", "published_audio"),
        ),
        "Cache": ("storage_dtype", "shard_rows"),
        "Speed": ("device", "batch_tokens", "device_map"),
        "Workers": WORKERS,
        "With --dry-run": ("workers", "assume_tokens_per_second", "card", "share"),
        OTHER: ("config", "quiet", "as_json", "help"),
    },
    "import": {
        FIRST: ("out", "arrays", "labels", "axes", "class_names", "dry_run"),
        "Data": ("unlabelled", "keep_columns", "num_tokens"),
        "Cache": ("storage_dtype", "shard_rows", "encoder_name", "dataset_name", "pool"),
        OTHER: ("quiet", "as_json", "help"),
    },
    "plant": {
        FIRST: ("gate", "strength", "from_cache", "classes", "rows", "seed"),
        "States": ("layers", "width", "storage_dtype"),
        OTHER: ("quiet", "as_json", "help"),
    },
    "study": {
        FIRST: ("out", "dataset", "dry_run", "check", "record"),
        "Workers": ("device", "engine", "devices", "address", "gpus_per_worker"),
        OTHER: ("quiet", "as_json", "help"),
    },
    "train": {
        FIRST: (
            *("attn", "preset", "cache", "runs", "seeds"),
            *("head", "layers", "epochs", "lr", "dry_run"),
        ),
        "Mechanism": ("pool", "probe", "skip_impossible"),
        "Recipe": (
            *("batch_size", "weight_decay", "loss", "class_weights", "schedule"),
            *("clip_grad_norm", "dtype", "eval_dtype", "loss_scale", "clip_order", "shuffle"),
        ),
        "Protocol": (
            *("select", "ties", "val_fraction", "split_seed", "tune_seeds"),
            *("train_rows", "shots"),
            *("train_split", "test_split", "final", "folds", "fold", "repeats", "groups"),
            *("allow_train_as_test", "shuffle_labels"),
        ),
        "Speed": ("device", "seed_batch", "memory_share", "compile"),
        "Workers": WORKERS,
        OTHER: ("track", "config", "quiet", "as_json", "help"),
    },
    "export": {
        FIRST: ("push", "private", "overwrite", "yes"),
        "Of a run": ("seed", "average", "cache"),
        "Of a cache": ("copy",),
        OTHER: ("quiet", "as_json", "help"),
    },
    "predict": {
        FIRST: ("file", "out", "format", "cache", "split", "seed", "top", "temperature"),
        "Data": (
            *("text_columns", "file_column", "allow_outside", "delimiter", "encoding"),
            *("skip_empty", "prefix", "overwrite"),
        ),
        "Speed": ("device", "batch_tokens"),
        OTHER: ("encoder", "quiet", "as_json", "help"),
    },
    "report": {
        FIRST: (
            *("format", "score", "baseline", "margin", "pairs", "temperature"),
            *("out", "figures"),
        ),
        "Which runs": ("attn", "head", "layers", "lr", "cache", "since"),
        "Which rows": ("sort", "top"),
        "Candidates": ("all_candidates", "tune_seeds"),
        OTHER: ("as_json", "help"),
    },
}


def headed(named: Mapping[str, T], table: Mapping[str, tuple[str, ...]]) -> dict[str, list[T]]:
    """What stands under which heading, all in the order of the table.

    Args:
        named: commands by name, or options by what ``cli.py`` calls the variable. One whose
            ``rich_help_panel`` is set stands at the end of that heading.
        table: ``COMMANDS``, or what ``OPTIONS`` has for a command.
    """
    places = {name: heading for heading, names in table.items() for name in names}
    found: dict[str, list[T]] = {heading: [] for heading in table}
    for name in [*places, *(name for name in named if name not in places)]:
        if name in named:
            heading = getattr(named[name], "rich_help_panel", None) or places.get(name, OTHER)
            found.setdefault(heading, []).append(named[name])
    return {heading: there for heading, there in found.items() if there}
