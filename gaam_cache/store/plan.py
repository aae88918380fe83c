"""The plan of a cache (``cache.json``): its encoder, its data set and its shards.

gaam writes the plan once, before the first shard, and never changes it. Two caches with
the same fingerprint are the same: it covers everything that changes the numbers.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Self

from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    NotFoundError,
    OutOfReachError,
)
from gaam_cache.common.messages import brief
from gaam_cache.common.paths import shown_path, suggest_folder
from gaam_cache.config import IMPORTED, NAME_PATTERN
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import (
    DAMAGE,
    ElsewhereError,
    describe_damage,
    fingerprint,
    read_json,
    sealed_text,
    short_digest,
    unsealed,
    write_file,
)
from gaam_cache.store.records import (
    PLANTED_KEY,
    Batching,
    DatasetRecord,
    EncoderRecord,
)
from gaam_cache.store.reference import decode_sketch, largest_deviation, states_digest
from gaam_cache.store.rounding import ROUNDING, recompute_limit
from gaam_cache.targets.base import CLASSIFICATION, Target, target_of_kind
from gaam_cache.targets.classes import Classes

FORMAT = "gaam-cache"
CLASSES_VERSION = 1
"""The version of caches of classes: the first, so that old releases read them."""
TARGET_VERSION = 2
"""The version of caches of numbers and of sets of labels."""
FORMAT_VERSIONS = (CLASSES_VERSION, TARGET_VERSION)
KNOWN_VERSIONS = " or ".join(map(str, FORMAT_VERSIONS))
"""The versions that this gaam reads, in words."""
PLAN_FILE = "cache.json"
SHARD_FOLDER = "shards"
MAX_SHARD_BYTES = 512 * 10**6
OPTIONAL_FIELDS = ("columns", "unlabelled")
"""Fields that a plan lacks if they are empty, as in the plans of gaam 0.1."""
COVERED_FIELDS = (
    "pooling",
    "unlabelled",
    "columns",
    "rows",
    "storage_dtype",
)
"""Fields of a plan that its fingerprint repeats."""

# Largest UTF-8 size of a value in a kept column: room for a name, not for a text.
MAX_VALUE_BYTES = 4096

WITH_INPUT_LAYER = "transformers.hidden_states"
CONVENTIONS = {1: "transformers.hidden_states[1:]", 0: WITH_INPUT_LAYER}
"""Number of an encoder's first kept layer -> name for this numbering of the layers."""
MEASURED_FIELDS = ("tokens", "acts_causal")
"""Measured properties of an encoder. Plans before gaam 0.3 lack both, and the second is
known only with loaded weights. A comparison uses a property if both sides have it."""
LIBRARIES = ("torch", "transformers", "tokenizers")
"""Libraries that decide which states an encoder computes."""
TOKEN_FIELD = re.compile(r"(encoder\.)?tokens\.")
"""Fields of a fingerprint that hash the token ids of fixed texts."""
GAUSSIAN = "gaussian"
"""Value of ``states`` if planted labels belong to random states, not to a cache."""


def describe_encoder(
    name: str, untrained_seed: int | None, adapter_of: str | None = None
) -> str:
    """Name an encoder for people; ``adapter_of`` is the base model of its adapter."""
    if untrained_seed is not None:
        return f"{name}, untrained (seed {untrained_seed})"
    if adapter_of is not None:
        return f"{name} (adapter of {adapter_of})"
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardSpec:
    """One shard: rows ``start`` to ``stop`` (exclusive) of a split."""

    split: str
    index: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.split}-{self.index:05d}"

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that is known about a cache before its first shard is written."""

    fingerprint: str
    """SHA-256 of ``fingerprint_fields``."""
    fingerprint_fields: dict[str, Any]
    """JSON values of everything that decides the numbers in the cache."""
    encoder: EncoderRecord
    dataset: DatasetRecord
    num_layers: int
    hidden_size: int
    pooling: tuple[str, ...]
    storage_dtype: str
    target: Target
    """What is predicted, and how its labels are stored."""
    rows: dict[str, int]
    """Number of rows of every split."""
    shard_rows: int
    """Rows of every shard except the last of a split."""
    created_with: dict[str, str]
    """Library -> its version when the cache was begun."""
    columns: dict[str, int] = field(default_factory=dict)
    """Kept columns, each with the UTF-8 size of its longest value."""
    unlabelled: tuple[str, ...] = ()
    """Splits without labels."""

    @property
    def kind(self) -> str:
        """Kind of the rows (text, audio, vision, ...), or ``imported``."""
        return self.encoder.kind

    @property
    def imported(self) -> bool:
        """Whether the states came from elsewhere: gaam cannot encode further rows."""
        return self.kind == IMPORTED

    @property
    def identity(self) -> dict[str, Any]:
        """The JSON values of the fingerprint that describe the encoder."""
        return dict(self.fingerprint_fields["encoder"])

    @property
    def decoders(self) -> dict[str, Any]:
        """Library -> version, for those that decoded sound or picture files."""
        return dict(self.fingerprint_fields.get("decoders", {}))

    @property
    def planted(self) -> dict[str, Any] | None:
        """Parameters and figures of the teacher of planted labels.

        The teacher is a model with known parameters, with which ``gaam plant`` draws
        labels from states. None for labels that were not planted.
        """
        parameters = self.identity.get("imported", {}).get(PLANTED_KEY)
        if parameters is None:
            return None
        return {**(self.dataset.planted or {}), **parameters}

    @property
    def maker(self) -> str:
        """The command that makes this cache."""
        return "gaam import" if self.imported else "gaam extract"

    @property
    def untrained_seed(self) -> int | None:
        """Seed of an encoder with random weights; None for a trained encoder."""
        seed: int | None = self.identity.get("untrained", {}).get("seed")
        return seed

    @property
    def first_layer(self) -> int:
        """Number of the first layer of the states: 0 is the encoder's input."""
        # such as 'transformers.hidden_states[20:41]'
        layers = str(self.identity.get("layers"))
        slice_match = re.fullmatch(r"transformers\.hidden_states\[(\d+):\d*\]", layers)
        if slice_match:
            return int(slice_match[1])
        return 0 if layers == WITH_INPUT_LAYER else 1

    @property
    def task(self) -> str:
        """Name of the task: classification, regression, multi-label."""
        return self.target.task

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty where the task is not classification."""
        if self.task != CLASSIFICATION:
            return ()
        return self.target.names

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the classes, of the numbers or of the labels."""
        return self.target.names

    @property
    def format_version(self) -> int:
        """Version of the format on disk."""
        return version_of_target(self.target)

    @property
    def batching(self) -> Batching:
        return self.encoder.batching

    @property
    def reference(self) -> Mapping[str, str]:
        """Pooling -> sketch of the states of two fixed rows, to compare encoders."""
        return self.encoder.reference

    @property
    def states_id(self) -> str:
        """A hash that identifies the states: of the fingerprint and of ``reference``.

        Two caches of the same settings, whose encoders computed different states, have
        different hashes.
        """
        return states_digest(self.fingerprint, self.reference)

    @property
    def encoder_label(self) -> str:
        """The encoder's name for people."""
        return describe_encoder(
            self.encoder.name, self.untrained_seed, self.encoder.adapter_of
        )

    @property
    def dataset_label(self) -> str:
        """The data set's name for people, with its subset if it has one."""
        name = self.dataset.name
        subset = self.dataset.settings.get("subset")
        return name if subset is None else f"{name} ({subset})"

    def shards(self, split: str | None = None) -> Iterator[ShardSpec]:
        """All planned shards, or those of one split."""
        split_names = self.rows if split is None else (split,)
        for name in split_names:
            rows = self.rows[name]
            for index, start in enumerate(range(0, rows, self.shard_rows)):
                stop = min(start + self.shard_rows, rows)
                yield ShardSpec(split=name, index=index, start=start, stop=stop)

    @property
    def num_shards(self) -> int:
        # -(-a // b) is a / b, rounded up.
        return sum(-(-rows // self.shard_rows) for rows in self.rows.values())

    @property
    def row_bytes(self) -> int:
        """Bytes of the states and kept columns of one row."""
        num_values = len(self.pooling) * self.num_layers * self.hidden_size
        column_bytes = sum(self.columns.values())
        return num_values * ITEM_BYTES[self.storage_dtype] + column_bytes

    def to_dict(self) -> dict[str, Any]:
        """JSON values for ``cache.json``, and for every run on the cache."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": self.format_version,
        }
        for name, value in asdict(self).items():
            # the fields of a target stand in its place
            values = {name: value}
            if name == "target":
                values = target_fields(self.target)
            content |= values
        content["encoder"] = self.encoder.to_dict()
        content["dataset"] = self.dataset.to_dict()
        for name in OPTIONAL_FIELDS:
            if not content[name]:
                del content[name]
        return content

    def to_json(self) -> str:
        return sealed_text(self.to_dict())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read and check what ``to_dict`` wrote; else raise one of ``files.DAMAGE``."""
        content = dict(value)
        if content.pop("format") != FORMAT:
            raise ValueError("not a gaam cache")
        format_version = content.pop("format_version")
        if format_version not in FORMAT_VERSIONS:
            raise ValueError(
                f"format version {format_version!r}, this gaam reads {KNOWN_VERSIONS}"
            )
        content["target"] = _read_target(content, format_version)
        # JSON has arrays where the plan has tuples.
        for name in ("pooling", "unlabelled"):
            content[name] = tuple(content.get(name, ()))
        content["encoder"] = EncoderRecord.from_dict(content["encoder"])
        content["dataset"] = DatasetRecord.from_dict(content["dataset"])
        plan = cls(**content)

        plan._check_fingerprint()
        if not all(map(NAME_PATTERN.fullmatch, plan.rows)):
            raise ValueError("bad names of splits")
        # each is states of fixed rows as a text; this raises an error if it is damaged
        for sketch_text in plan.reference.values():
            decode_sketch(sketch_text)
        return plan

    def _check_fingerprint(self) -> None:
        """Check that the plan agrees with its fingerprint.

        The fingerprint must be the hash of its fields. Where a field repeats a value of
        the plan, the two must be equal.

        Raises:
            ValueError: they do not agree.
        """
        fields = self.fingerprint_fields
        if fingerprint(fields) != self.fingerprint:
            raise ValueError("the fingerprint does not match its fields")
        # two fields are left out if they are empty
        covered = {"columns": {}, "unlabelled": [], **fields}
        # the pooling is a property of the encoder
        covered["pooling"] = fields["encoder"]["pooling"]
        for name in COVERED_FIELDS:
            if not _agrees_with_fingerprint(name, getattr(self, name), covered[name]):
                raise ValueError(f"'{name}' is not what the fingerprint covers")
        for name, value in target_fields(self.target).items():
            if covered.get(name) != value:
                raise ValueError(f"'{name}' is not what the fingerprint covers")

    def with_content(self, content: dict[str, str], dataset: DatasetRecord) -> Self:
        """A copy of the plan whose fingerprint covers the content of the rows, too.

        An import can hash the rows only after it has planned how to read them.

        Args:
            content: split -> hash of its rows and labels.
            dataset: what is recorded of the data set.
        """
        fields = {**self.fingerprint_fields, "content": content}
        return replace(
            self,
            fingerprint=fingerprint(fields),
            fingerprint_fields=fields,
            dataset=dataset,
        )

    def portable(self) -> Self:
        """A copy of the plan without paths of this machine.

        Of the path of a local encoder or data set, only the last part stays.
        """
        encoder_name = portable_name(self.encoder.name, local=bool(self.encoder.path))
        encoder = replace(self.encoder, name=encoder_name, path=None)

        has_path = bool(self.dataset.path)
        is_local = has_path or self.imported
        dataset = replace(
            self.dataset,
            name=portable_name(self.dataset.name, local=has_path),
            path=None,
            origin={
                split: portable_name(origin, local=is_local)
                for split, origin in self.dataset.origin.items()
            },
            # The imported files exist on this machine only.
            imported=None,
        )
        return replace(self, encoder=encoder, dataset=dataset)


def version_of_target(target: Target) -> int:
    """Version of the file format of a cache whose labels are of this target."""
    return CLASSES_VERSION if target.task == CLASSIFICATION else TARGET_VERSION


def target_fields(target: Target) -> dict[str, Any]:
    """The JSON values that describe a target in a plan and in its fingerprint.

    Classes have a form of their own, as in the first version of the format.
    """
    names = list(target.names)
    if version_of_target(target) == CLASSES_VERSION:
        return {"class_names": names}
    return {"target": {"kind": target.kind, "names": names}}


def _read_target(content: dict[str, Any], format_version: int) -> Target:
    """Read the target from the JSON values of a plan, and remove these values.

    Args:
        content: the values of the plan; this removes those of the target.
        format_version: the version of the plan.

    Raises:
        ValueError, LookupError or TypeError: the values are damaged.
    """
    if format_version == CLASSES_VERSION:
        return Classes(tuple(content.pop("class_names")))
    fields = content.pop("target")
    if set(fields) != {"kind", "names"}:
        raise ValueError("bad keys in 'target'")
    target = target_of_kind(fields["kind"], fields["names"])
    if version_of_target(target) != format_version:
        raise ValueError(f"classes in a plan of format version {format_version}")
    return target


def _agrees_with_fingerprint(name: str, in_plan: Any, in_fingerprint: Any) -> bool:
    """Whether a field of a plan agrees with the same field of its fingerprint.

    Args:
        name: of the field.
        in_plan: its value in the plan.
        in_fingerprint: its value among the fields of the fingerprint.
    """
    if name == "columns":
        # Column -> width in the plan, column -> hash of the values in the fingerprint.
        return set(in_plan) == set(in_fingerprint)
    if name == "rows":
        return dict(in_plan) == dict(in_fingerprint)
    # A tuple in the plan may be a list in the fingerprint.
    return list(in_plan) == list(in_fingerprint)


def rows_per_shard(bytes_per_row: int, shard_rows: int) -> int:
    """Rows of a shard: ``shard_rows``, or fewer if they would exceed 512 MB."""
    return max(1, min(shard_rows, MAX_SHARD_BYTES // bytes_per_row))


def read_plan(root: Path) -> Plan:
    """Read and check ``cache.json``.

    Raises:
        NotFoundError: there is no cache at ``root``.
        OutOfReachError: the file was not fetched, or has another format version.
        CacheError: the file is damaged.
    """
    path = root / PLAN_FILE
    try:
        # this checks the digest of the content, which the file holds
        content = unsealed(read_json(path))
        _check_format_version(root, content)
        return Plan.from_dict(content)
    except ElsewhereError as error:
        # a link or pointer is in place of the file
        subject = f"the plan of the cache '{shown_path(root)}'"
        raise error.out_of_reach_error(subject, path) from error
    except DAMAGE as error:
        raise _unusable_plan_error(root, error) from error


def _check_format_version(root: Path, content: Mapping[str, object]) -> None:
    """Refuse a plan in a version of the format that this gaam does not read."""
    # The caller refuses a file of another program.
    if content.get("format") != FORMAT:
        return
    if content["format_version"] in FORMAT_VERSIONS:
        return
    created_with = brief(str(content.get("created_with")))
    raise OutOfReachError(
        f"the cache '{shown_path(root)}' is in another version of the format",
        expected=f"version {KNOWN_VERSIONS}, which this gaam reads",
        found=f"version {content['format_version']!r}",
        where=str((root / PLAN_FILE).absolute()),
        hint=f"use the gaam that made it: {created_with}",
    )


def _unusable_plan_error(root: Path, error: Exception) -> NotFoundError | CacheError:
    """Build the error for a folder whose plan is missing or damaged."""
    path = (root / PLAN_FILE).absolute()
    intact_copy = f"copy {PLAN_FILE} again from an intact copy of the cache"
    rebuild = (
        "run the command that made the cache again, which keeps every shard that fits"
    )

    # A plan is damaged, and not just missing, if there are shards.
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if not is_missing:
        reason = describe_damage(error)
        hint = f"{intact_copy}; else move {path} away and {rebuild}"
    # the files of shards have names such as train-00003-1f9c2a7b.h5
    elif any(root.glob(f"{SHARD_FOLDER}/*-?????*.h5")):
        reason = "no such file, though there are shards"
        hint = f"{intact_copy}; else {rebuild}"
    else:
        return NotFoundError(
            f"no cache at '{shown_path(root)}'",
            found=_describe_other_content(root),
            where=str(root.absolute()),
            hint=suggest_folder(root, _has_plan, "gaam extract"),
        )
    return CacheError(
        "the plan of the cache is unusable", found=reason, where=str(path), hint=hint
    )


def _has_plan(folder: Path) -> bool:
    """Whether a folder has a plan, which may be a broken link."""
    return os.path.lexists(folder / PLAN_FILE)


def _describe_other_content(root: Path) -> str:
    """Say what is at ``root`` instead of a cache."""
    if root.is_dir():
        return f"no {PLAN_FILE} in it"
    return "a file" if root.is_file() else "no such folder"


def write_plan(root: Path, plan: Plan) -> Plan:
    """Write the plan into a folder, unless another worker has written it.

    Returns:
        The plan that is in the folder now.

    Raises:
        ConfigError: the folder holds the plan of another cache.
    """
    if write_file(root / PLAN_FILE, plan.to_json().encode(), exclusive=True):
        return plan
    return adopt_plan(root, plan.fingerprint_fields, plan.dataset)


def adopt_plan(root: Path, fields: dict[str, Any], dataset: DatasetRecord) -> Plan:
    """Read the plan that a folder holds, if its fingerprint covers the same fields.

    Args:
        root: the folder of the cache.
        fields: everything that decides the numbers of the cache now.
        dataset: how the rows are read now. The fingerprint covers only the content of
            the rows, so this serves to explain a difference.

    Raises:
        ConfigError: the folder holds another cache; the message lists the differences.
    """
    existing = read_plan(root)
    fields_now, fields_then = comparable_fields(fields, existing.fingerprint_fields)
    if fields_now == fields_then:
        return existing

    # The settings of the data set often explain why its content differs.
    now = {"dataset": dataset.reading_settings, **fields_now}
    then = {"dataset": existing.dataset.reading_settings, **fields_then}
    lines = explain_differences(now, then, existing)
    listing = "".join(f"\n    {line}" for line in lines)

    hint = "choose another folder with --out"
    # Plans before gaam 0.3 record no rule for their limit.
    limit_rule_changed = (
        existing.dataset.settings.get("limit") is not None
        and "limit_rule" not in existing.dataset.settings
    )
    if limit_rule_changed:
        hint += (
            "; or add --set limit-rule=first: --limit took the first rows before "
            "gaam 0.3, now it takes the same share of every class"
        )
    raise ConfigError(
        f"'{shown_path(root)}' holds another cache; nothing was changed. "
        f"What differs:{listing}",
        found=f"fingerprint {short_digest(existing.fingerprint)}, "
        f"not {short_digest(fingerprint(fields))}",
        hint=hint,
    )


def comparable_fields(
    now: Mapping[str, Any], then: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of two fingerprints, without those that only one of them has measured.

    Args:
        now: fields of a fingerprint.
        then: fields of another fingerprint.

    Returns:
        The remaining fields of ``now``, and those of ``then``.
    """
    measured_once = {
        name
        for name in MEASURED_FIELDS
        if (name in now["encoder"]) != (name in then["encoder"])
    }
    return (
        _without_encoder_fields(now, measured_once),
        _without_encoder_fields(then, measured_once),
    )


def _without_encoder_fields(
    fields: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """The fields of a fingerprint without the fields of the encoder of these names."""
    encoder = {
        name: value for name, value in fields["encoder"].items() if name not in names
    }
    return {**fields, "encoder": encoder}


def differing_fields(
    now: Mapping[str, object], then: Mapping[str, object]
) -> list[str]:
    """List the fields in which two mappings differ, a line for each.

    A line has the dotted name of the field and both values; ``-`` is no value. Token
    ids follow from other fields: they are listed only if no other field differs.

    Args:
        now: nested mappings, such as the fields of a fingerprint.
        then: the same fields as they were before.
    """
    texts_now = _flatten(now)
    texts_then = _flatten(then)
    names = sorted({**texts_now, **texts_then})
    width = max(map(len, names), default=0)

    lines = {}
    for name in names:
        text_now = texts_now.get(name, "-")
        text_then = texts_then.get(name, "-")
        if text_now != text_then:
            lines[name] = f"{name:<{width}}  in the cache {text_then}, now {text_now}"

    causes = [line for name, line in lines.items() if not TOKEN_FIELD.match(name)]
    return causes or list(lines.values())


def _flatten(value: object, name: str = "") -> dict[str, str]:
    """Dotted name -> short text, for all values in nested mappings.

    {'encoder': {'dtype': 'float32'}} gives {'encoder.dtype': 'float32'}.

    Args:
        value: a mapping, or a value in it.
        name: the dotted name of ``value``.
    """
    if not isinstance(value, Mapping):
        text = value if isinstance(value, str) else json.dumps(value)
        return {name: brief(text, 40)}
    texts: dict[str, str] = {}
    for key, inner in value.items():
        texts |= _flatten(inner, f"{name}.{key}" if name else key)
    return texts


def explain_differences(
    now: Mapping[str, object], then: Mapping[str, object], plan: Plan
) -> list[str]:
    """The lines of ``differing_fields``; if only token ids differ, name the libraries.

    Args:
        now: fields, such as those of a fingerprint.
        then: the same fields as a plan records them.
        plan: names the libraries of that time.
    """
    # such as 'encoder.tokens.cut  in the cache a5e8, now 7e4b'
    lines = differing_fields(now, then)
    if not lines or not all(map(TOKEN_FIELD.match, lines)):
        return lines
    fields = [line.split()[0] for line in lines]
    # the last part names the fixed texts: 'cut' are texts that are too long
    kinds_of_text = ", ".join(name.rpartition(".")[2] for name in fields)
    return [
        "the same tokenizer files give other token ids for fixed texts "
        f"({kinds_of_text})",
        f"in the cache with {recorded_versions(plan)}",
        f"now with {installed_versions()}",
    ]


def installed_versions() -> str:
    """Installed versions of the libraries that decide which states are computed."""
    return ", ".join(f"{name} {version(name)}" for name in LIBRARIES)


def recorded_versions(plan: Plan) -> str:
    """Versions of torch, transformers and tokenizers when the cache was begun.

    A plan may lack some of them.
    """
    recorded = [name for name in LIBRARIES if name in plan.created_with]
    return ", ".join(f"{name} {plan.created_with[name]}" for name in recorded)


def describe_state_deviation(plan: Plan, other: Plan) -> str | None:
    """Say how far the states of two caches differ for the same two fixed rows.

    Returns:
        A sentence; None if rounding explains the difference, or if a plan lacks the
        states of these reference rows.
    """
    dtype = str(plan.identity.get("dtype"))
    if dtype not in ROUNDING:
        return None
    # sketches are stored in float32, whatever the type of the stored states is
    limit = recompute_limit(dtype, storage_dtype="float32")
    for pooling in plan.reference.keys() & other.reference.keys():
        sketch_text = plan.reference[pooling]
        deviation, layer = largest_deviation(sketch_text, other.reference[pooling])
        if deviation > limit:
            return (
                f"states of the same two rows differ by {deviation:.1e} of their norm "
                f"in layer {layer + plan.first_layer}, and rounding explains only "
                f"{limit:.1e}: computed with {recorded_versions(plan)}, "
                f"and with {recorded_versions(other)}"
            )
    return None


def portable_name(name: str, *, local: bool = False) -> str:
    """The name of an encoder or data set without the folders of this machine.

    Args:
        name: the name: a path, or an id on the hub.
        local: whether it surely is a path. Else its form decides. Only the last part of
            a path stays.
    """
    # A single slash may separate owner and name on the hub.
    is_path = re.match(r"[~./]|[A-Za-z]:\\|.*(?:/|\\).*/", name)
    if not local and not is_path:
        return name
    last_part = PurePath(name.replace("\\", "/")).name
    if last_part in ("", "..") or last_part.startswith("~"):
        return "local"
    return last_part
