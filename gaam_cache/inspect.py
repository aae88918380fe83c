"""Inspect a cache for ``gaam inspect``: its plan, progress, workers and damage."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from gaam_cache.common.errors import CacheError, OutOfReachError
from gaam_cache.common.messages import (
    counted,
    excerpt,
    join_first,
    size_in_words,
    visible,
    visible_values,
)
from gaam_cache.common.paths import absolute_path
from gaam_cache.config import IMPORTED
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, read_plan
from gaam_cache.store.reader import Split
from gaam_cache.store.shard import missing_shards, read_receipt
from gaam_cache.targets.base import CLASSIFICATION
from gaam_cache.workers.leases import LEASE_FOLDER, Holding, holdings

# Workers, and faults of a kind, that are listed for people.
MOST_LISTED = 20
# Classes of a split that are listed for people.
MOST_CLASSES = 8
# Largest split whose classes are counted: a count hashes the whole split.
COUNTED_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Fault:
    """A plan or shard that cannot be used, why, and what to do."""

    name: str
    reason: str
    repair: str

    @classmethod
    def from_error(cls, name: str, error: CacheError) -> Self:
        """The fault that an error describes; ``name`` is the plan or the shard."""
        reason = visible(" ".join(error.reason.split()))
        return cls(name, reason, error.details.get("to do", ""))

    def in_words(self) -> str:
        return visible(f"{self.name}: {self.reason}; to do: {self.repair}")


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of a cache: what is damaged, and what is not on this machine."""

    damaged: list[Fault] = field(default_factory=list)
    out_of_reach: list[Fault] = field(default_factory=list)

    def add(self, name: str, error: CacheError) -> None:
        """Add the error of a plan or shard, which ``name`` names, to its list."""
        is_out_of_reach = isinstance(error, OutOfReachError)
        faults = self.out_of_reach if is_out_of_reach else self.damaged
        faults.append(Fault.from_error(name, error))

    def __bool__(self) -> bool:
        """Whether there is any fault."""
        return bool(self.damaged or self.out_of_reach)


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitInspection:
    """A split of a cache. Fields are None unless all of its shards exist and are good.

    ``rows_per_class`` and ``mean_tokens`` are None also in an incomplete cache, and for
    a split of more than ``COUNTED_BYTES``. Of imported states ``truncated_rows`` and
    ``mean_tokens`` are unknown.
    """

    rows: int  # as planned
    labelled: bool | None = None  # whether the rows have labels
    truncated_rows: int | None = None  # rows that were cut at the maximum length
    bytes: int | None = None
    rows_per_class: dict[str, int] | None = None
    """Rows of every class, all 0 without labels; None for another task."""
    target_figures: dict[str, Any] | None = None
    """Figures of numbers or of sets of labels, where classes would be counted."""
    mean_tokens: float | None = None

    def to_dict(self) -> dict[str, object]:
        """JSON values; fields that are None are missing."""
        return {
            name: value for name, value in asdict(self).items() if value is not None
        }

    def in_words(self) -> str:
        text = counted(self.rows, "row")
        # without all shards nothing but the number of rows is known
        if self.bytes is None:
            return text
        if not self.labelled:
            text += " without labels"
        if self.rows_per_class is not None and self.labelled:
            text += f" ({_classes_in_words(self.rows_per_class)})"
        if self.target_figures is not None:
            text += f" ({_figures_in_words(self.target_figures)})"
        if self.mean_tokens is not None:
            text += f", {self.mean_tokens} tokens on average"
        if self.truncated_rows is not None:
            text += f", {self.truncated_rows:,} truncated"
        return text + f", {size_in_words(self.bytes)}"


def _classes_in_words(rows_per_class: dict[str, int]) -> str:
    """The first few classes, each with its number of rows."""
    classes = [f"{visible(name)} {count:,}" for name, count in rows_per_class.items()]
    return join_first(classes, MOST_CLASSES)


def _figures_in_words(figures: dict[str, Any]) -> str:
    """Figures of labels: 'rows per label: a 120, b 30' or 'means: x 2.98'."""
    texts = []
    for key, value in figures.items():
        noun = key.replace("_", " ")
        if not isinstance(value, dict):
            texts.append(f"{noun} {value:,}")
            continue
        entries = [
            f"{visible(name)} {number:,}"
            if isinstance(number, int)
            else f"{visible(name)} {number:.4g}"
            for name, number in value.items()
        ]
        texts.append(f"{noun}: {join_first(entries, MOST_CLASSES)}")
    return "; ".join(texts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """The state of a cache."""

    path: Path
    at_work: list[Holding]
    """Workers, each with the shard that it makes."""
    faults: Faults = field(default_factory=Faults)
    plan: Plan | None = None  # None if it is not written yet or cannot be used
    missing_shards: list[str] = field(default_factory=list)  # their names
    splits: dict[str, SplitInspection] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every shard exists, and no fault was found."""
        return self.plan is not None and not self.missing_shards and not self.faults

    @property
    def damage(self) -> list[dict[str, str]]:
        """All faults, also of files that are not on this machine.

        Each is a dictionary with the keys 'name', 'reason' and 'repair'.
        """
        faults = [*self.faults.damaged, *self.faults.out_of_reach]
        return [asdict(fault) for fault in faults]

    def to_dict(self) -> dict[str, object]:
        """JSON values; without a plan, there are no properties of a plan."""
        content: dict[str, object] = {
            "kind": "cache",
            "path": str(self.path),
            "complete": self.complete,
            "at_work": [asdict(holding) for holding in self.at_work],
            "damage": [asdict(fault) for fault in self.faults.damaged],
            "out_of_reach": [asdict(fault) for fault in self.faults.out_of_reach],
        }
        if self.plan is None:
            return content
        progress = {
            "shards": self.plan.num_shards,
            "missing_shards": self.missing_shards,
            "rows": sum(self.plan.rows.values()),
            "rows_done": self._count_rows_done(self.plan),
        }
        splits = {name: split.to_dict() for name, split in self.splits.items()}
        return content | progress | _plan_to_dict(self.plan, splits)

    def in_words(self) -> str:
        """A headline, then a line for each property, worker and fault."""
        entries: list[tuple[str, str]] = []
        if self.plan is not None:
            # no splits among the properties: they follow as lines of their own
            properties = _plan_to_dict(self.plan, splits={})
            # names from elsewhere may hold characters that control a terminal
            entries += _plan_in_words(visible_values(properties))
            for name, split in self.splits.items():
                entries.append((visible(name), split.in_words()))

        lists = {
            "at work": self._workers_in_words(),
            "damaged": [fault.in_words() for fault in self.faults.damaged],
            "out of reach": [fault.in_words() for fault in self.faults.out_of_reach],
        }
        for name, texts in lists.items():
            entries += [(name, text) for text in texts[:MOST_LISTED]]
            if len(texts) > MOST_LISTED:
                entries.append((name, f"{len(texts) - MOST_LISTED:,} more"))

        headline = f"cache {visible(str(self.path))}: {self._state_in_words()}"
        lines = [f"  {name:<12} {text}" for name, text in entries if text]
        return "\n".join([headline, *lines])

    def _state_in_words(self) -> str:
        """Whether the cache is complete, and if not, why and how far it is."""
        if self.plan is None:
            if self.faults.out_of_reach:
                return "its plan is out of reach"
            if self.faults.damaged:
                return "DAMAGED, its plan cannot be used"
            # workers write the plan after they have read the rows
            return "its rows are being read"

        num_shards = self.plan.num_shards
        existing_shards = num_shards - len(self.missing_shards)
        progress = (
            f"{existing_shards:,} of {num_shards:,} shards are there, "
            f"{self._count_rows_done(self.plan):,} of "
            f"{sum(self.plan.rows.values()):,} rows"
        )
        if self.faults.damaged:
            return f"DAMAGED; {progress}"
        if self.faults.out_of_reach:
            return f"partly out of reach; {progress}"
        if self.missing_shards:
            return f"incomplete; {progress}"
        return "complete"

    def _workers_in_words(self) -> list[str]:
        """A line for each worker; a hint if shards are missing and nobody is at work.

        Without a plan it is not known whether shards are missing, and no hint is given.
        """
        workers = [
            visible(f"{holding.name}: {holding.in_words()}") for holding in self.at_work
        ]
        if self.plan is not None and self.missing_shards and not workers:
            return [f"nobody; run the '{self.plan.maker}' command again to continue"]
        return workers

    def _count_rows_done(self, plan: Plan) -> int:
        """Count the rows of the shards that exist."""
        missing = set(self.missing_shards)
        return sum(
            shard.num_rows for shard in plan.shards() if shard.name not in missing
        )


def is_cache(path: Path) -> bool:
    """Whether a folder is a cache, complete, damaged or only begun."""
    is_begun = (path / SHARD_FOLDER).is_dir() or (path / LEASE_FOLDER).is_dir()
    # A plan may be a broken link: the cache is out of reach, but it is a cache.
    return is_begun or os.path.lexists(path / PLAN_FILE)


def inspect(path: Path) -> Inspection:
    """Inspect a cache, complete or not, damaged or not; workers may be writing it.

    This finds faults of the plan and the receipts, and shards whose file is missing or
    of another size. ``gaam verify`` finds all, because it reads every byte.

    Raises:
        NotFoundError: there is no cache in the folder.
    """
    path = absolute_path(path)
    leases = holdings(path / LEASE_FOLDER)

    # Workers that still read the rows have written no plan yet.
    has_plan_or_shards = (
        os.path.lexists(path / PLAN_FILE) or (path / SHARD_FOLDER).exists()
    )
    if leases and not has_plan_or_shards:
        return Inspection(path=path, at_work=leases)

    faults = Faults()
    try:
        plan = read_plan(path)
    except CacheError as error:
        faults.add(PLAN_FILE, error)
        return Inspection(path=path, at_work=leases, faults=faults)

    missing = missing_shards(path, plan)
    names_missing = set(missing)
    splits = {
        name: _inspect_split(path, plan, name, names_missing, faults)
        for name in plan.rows
    }
    # The lease of a shard that exists is left out: its worker is about to remove it.
    at_work = [holding for holding in leases if holding.name in names_missing]
    return Inspection(
        path=path,
        at_work=at_work,
        faults=faults,
        plan=plan,
        missing_shards=missing,
        splits=splits,
    )


def _inspect_split(
    path: Path, plan: Plan, name: str, missing: set[str], faults: Faults
) -> SplitInspection:
    """Check the receipts of a split, and describe the split.

    Args:
        path: folder of the cache.
        plan: of the cache.
        name: of the split.
        missing: names of the shards of the cache that do not exist.
        faults: faults of this split are added to these.
    """
    shards = list(plan.shards(name))
    receipts = []
    for shard in shards:
        if shard.name in missing:
            continue
        try:
            receipts.append(read_receipt(path, plan, shard))
        except CacheError as error:
            faults.add(shard.name, error)

    rows = plan.rows[name]
    # a split without rows has no shards
    if not shards or len(receipts) < len(shards):
        return SplitInspection(rows=rows)
    try:
        split = Split(path, plan, name, receipts)
        return _inspect_existing_split(
            split, has_missing_shards=bool(missing), is_imported=plan.imported
        )
    except CacheError as error:
        # To count, shards are hashed. The place in the error is the receipt of a shard
        # that is damaged: the stem of its path is the name of the shard.
        faults.add(Path(error.details["where"]).stem, error)
        return SplitInspection(rows=rows)


def _inspect_existing_split(
    split: Split, *, has_missing_shards: bool, is_imported: bool
) -> SplitInspection:
    """Describe a split whose shards all exist.

    Labels and tokens are counted only in a complete cache, and if the split is not too
    large.
    """
    rows_per_class: dict[str, int] | None = None
    target_figures: dict[str, Any] | None = None
    mean_tokens: float | None = None
    if not has_missing_shards and split.nbytes <= COUNTED_BYTES:
        if split.task == CLASSIFICATION:
            rows_per_class = _count_classes(split)
        # such as the mean of every column of numbers
        elif split.labelled:
            target_figures = split.target.summary(split.labels)
        # the tokens of imported states are unknown: each row is stored with one
        if not is_imported:
            mean_tokens = round(float(split.num_tokens.mean()), 1)
    return SplitInspection(
        rows=len(split),
        labelled=split.labelled,
        truncated_rows=None if is_imported else split.truncated,
        bytes=split.nbytes,
        rows_per_class=rows_per_class,
        target_figures=target_figures,
        mean_tokens=mean_tokens,
    )


def _count_classes(split: Split) -> dict[str, int]:
    """Class -> number of its rows; 0 for every class of a split without labels."""
    labels = split.labels if split.labelled else split.labels[:0]
    counts: dict[str, int] = split.target.summary(labels)["rows_per_class"]
    return counts


def _plan_to_dict(plan: Plan, splits: Mapping[str, object]) -> dict[str, Any]:
    """Properties of encoder, data set and states as JSON values, in output order.

    ``splits`` is the description of the splits, which is put among them.
    """
    # What decides the states of the encoder. A setting at its default has no key, and
    # some have one only with encoders of one kind.
    identity = plan.identity
    return {
        "maker": plan.maker,  # the command that makes the cache
        "encoder": plan.encoder.name,
        "label": plan.encoder_label,
        "revision": plan.encoder.revision,
        "dataset": plan.dataset_label,
        "compute_dtype": identity["dtype"],
        # which tokens of a text are pooled: 'all', or 'text' for its own alone
        "pool_over": identity.get("pool_over", "all"),
        "imported_from": identity.get("imported", {}).get("files"),
        "planted": plan.planted,
        "columns": list(plan.columns),
        "splits": splits,
        "layers": identity.get("layers"),
        # which positions of a picture are pooled, in words
        "pooled": identity.get("pooled"),
        "prompt": identity.get("prompt"),
        "max_length": identity.get("max_length"),
        "fingerprint": plan.fingerprint,
        "untrained_seed": plan.untrained_seed,
        "num_layers": plan.num_layers,
        "first_layer": plan.first_layer,
        "hidden_size": plan.hidden_size,
        "pooling": plan.pooling,
        "storage_dtype": plan.storage_dtype,
        "task": plan.task,
        "class_names": plan.class_names,
        "target_names": plan.target_names,
        "created_with": plan.created_with,
    }


def _plan_in_words(properties: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and text of every property of a plan, for people.

    ``properties`` are the values of ``_plan_to_dict``, with the control characters of
    their texts replaced by escapes. An empty text stands for a property that is not
    shown.
    """
    encoder = properties["label"]
    if properties["revision"]:
        encoder += f" at {short_digest(properties['revision'])}"
    dataset = properties["dataset"]
    if properties["imported_from"] is None:
        encoder += f", computed in {properties['compute_dtype']}"
        dataset += f", at most {properties['max_length']} tokens a row"
    else:
        encoder += ", computed elsewhere"

    task = ""
    if properties["task"] != CLASSIFICATION:
        shown_names = join_first(properties["target_names"], MOST_CLASSES)
        task = f"{properties['task']}: {shown_names}"
    # ``gaam plant`` replaces labels by those that a model of known weights, the
    # teacher, draws from the states: a decoder should find them again
    labels = ""
    teacher = properties["planted"]
    if teacher:
        labels = (
            f"drawn from a teacher: gate {teacher['gate']}, "
            f"strength {teacher['strength']}, seed {teacher['seed']}"
        )
    return [
        ("encoder", encoder),
        ("layers", properties["layers"] or ""),
        ("data set", dataset),
        ("states", _states_in_words(properties)),
        ("fingerprint", short_digest(properties["fingerprint"])),
        ("prompt", excerpt(properties["prompt"]) if properties["prompt"] else ""),
        ("task", task),
        ("labels", labels),
        ("columns", ", ".join(properties["columns"])),
    ]


def _states_in_words(properties: dict[str, Any]) -> str:
    """Shape, pooling and type of the states, from the values of ``_plan_to_dict``."""
    text = f"{counted(properties['num_layers'], 'layer')} x {properties['hidden_size']}"
    if properties["first_layer"] != 1:
        text += f", from layer {properties['first_layer']}"
    # the name says nothing where an import did not give one
    if properties["pooling"] != [IMPORTED]:
        text += f", pooled by {' and '.join(properties['pooling'])}"
    pooled_positions_in_words = properties["pooled"]  # of pictures; else None
    if properties["pool_over"] == "text":
        text += " over the text's own tokens"
    elif pooled_positions_in_words:
        text += f" over {pooled_positions_in_words}"
    return f"{text}, stored as {properties['storage_dtype']}"
