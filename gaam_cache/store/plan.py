"""The plan of a cache (``cache.json``): which rows lie in which shard. Written once, immutable.

Its fingerprint is what makes two caches the same: everything that changes the numbers, and nothing
else.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, Literal, Self, get_args

from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    NotFoundError,
    OutOfReachError,
)
from gaam_cache.common.messages import brief
from gaam_cache.common.paths import shown_path
from gaam_cache.config import IMPORTED, NAME_PATTERN
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.files import (
    DAMAGE,
    ElsewhereError,
    fingerprint,
    read_json,
    sealed_text,
    unsealed,
    write_file,
)
from gaam_cache.store.reference import decode_sketch, largest_deviation, states_digest
from gaam_cache.store.rounding import ROUNDING, recompute_limit

FORMAT = "gaam-cache"
FORMAT_VERSION = 1
PLAN_FILE = "cache.json"
SHARD_FOLDER = "shards"
MAX_SHARD_BYTES = 512 * 10**6
NOT_SETTINGS = (
    "path",
    "origin",
    "shared_texts",
    "equal_rows",
    "import",
)  # of what is said of a data set
OPTIONAL = ("columns", "unlabelled")
MAX_VALUE_BYTES = 4096  # of a value of a kept column in UTF-8: a name, not a text
Batching = Literal["padded", "equal lengths", "alone"]
"""Which texts may share a batch: any, those of exactly equal length, or none."""
BATCHINGS: tuple[Batching, ...] = get_args(
    Batching
)  # from the cheapest to the strictest
# how an encoder's layers are numbered, by the number of the first that is kept
CONVENTIONS = {1: "transformers.hidden_states[1:]", 0: "transformers.hidden_states"}
MEASURED = ("tokens", "acts_causal")
"""Fields of an encoder that are measured on it: plans before gaam 0.3 lack them, and the second
one is known only when the weights are loaded. They count where both sides have them."""
LIBRARIES = ("torch", "transformers", "tokenizers")
"""Libraries that decide what an encoder does."""
TOKENS = re.compile(r"(encoder\.)?tokens\.")
PLANTED_KEY = "planted"
GAUSSIAN = "gaussian"
"""What ``states`` says of planted ones that were drawn; else it is the fingerprint of a cache."""


def describe_encoder(
    name: str, untrained_seed: int | None, adapter_of: str | None = None
) -> str:
    """What people call an encoder: ``adapter_of`` is the base model of its adapter."""
    if untrained_seed is not None:
        return f"{name}, untrained (seed {untrained_seed})"
    return name if adapter_of is None else f"{name} (adapter of {adapter_of})"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that is known about a cache before its first shard is written."""

    fingerprint: str
    fingerprint_fields: dict[str, Any]
    encoder: dict[str, Any]
    dataset: dict[str, Any]
    num_layers: int
    hidden_size: int
    pooling: tuple[str, ...]
    storage_dtype: str
    class_names: tuple[str, ...]
    rows: dict[str, int]  # rows of every split
    shard_rows: int  # rows of every shard but the last of a split
    created_with: dict[str, str]
    columns: dict[str, int] = field(
        default_factory=dict
    )  # kept, by bytes of their longest value
    unlabelled: tuple[str, ...] = ()  # splits without labels

    @property
    def kind(
        self,
    ) -> str:  # of the rows: text, audio, vision, ..., or of states that others made
        return str(self.encoder["kind"])

    @property
    def imported(self) -> bool:  # somebody else computed the states: no further rows
        return self.kind == IMPORTED

    @property
    def identity(self) -> dict[str, Any]:  # all of the encoder that decides the numbers
        return dict(self.fingerprint_fields["encoder"])

    @property
    def decoders(
        self,
    ) -> dict[str, Any]:  # versions of what made samples or pixels of files
        return dict(self.fingerprint_fields.get("decoders", {}))

    @property
    def planted(self) -> dict[str, Any] | None:
        """Parameters and figures of the teacher of a planted cache; None where there was none."""
        parameters = self.identity.get("imported", {}).get(PLANTED_KEY)
        return (
            None
            if parameters is None
            else {**self.dataset.get(PLANTED_KEY, {}), **parameters}
        )

    @property
    def maker(self) -> str:
        return "gaam import" if self.imported else "gaam extract"

    @property
    def untrained_seed(self) -> int | None:
        seed: int | None = self.identity.get("untrained", {}).get("seed")
        return seed

    @property
    def first_layer(self) -> int:
        """Number of the first layer of the states: 0 where that is the encoder's input."""
        layers = str(self.identity.get("layers"))
        kept = re.fullmatch(r"transformers\.hidden_states\[(\d+):\d*\]", layers)
        return int(kept[1]) if kept else int(layers != CONVENTIONS[0])

    @property
    def batching(self) -> Batching:
        return self.encoder["batching"]

    @property
    def shared_texts(self) -> dict[str, dict[str, int]]:
        """Rows of a split that have a text of a split, or, of itself, of another of its rows."""
        return dict(self.dataset["shared_texts"])

    @property
    def reference(self) -> dict[str, str]:
        """States of the reference rows by pooling, as ``reference.encode_sketch`` writes them."""
        return dict(self.encoder.get("reference", {}))

    @property
    def states(self) -> str:
        """The name of these very states: what the fingerprint covers, and what was computed."""
        return states_digest(self.fingerprint, self.reference)

    @property
    def equal_rows(self) -> dict[str, list[list[int]]]:
        """Rows of a split that are copies of one another; empty where the plan has none."""
        return dict(self.dataset.get("equal_rows", {}))

    @property
    def encoder_label(self) -> str:
        name, adapter_of = self.encoder["name"], self.encoder.get("adapter_of")
        return describe_encoder(name, self.untrained_seed, adapter_of)

    @property
    def dataset_label(self) -> str:
        """What to call the data set: its name, and which subset of it where somebody named one."""
        name, subset = str(self.dataset["name"]), self.dataset.get("subset")
        return name if subset is None else f"{name} ({subset})"

    def shards(self, split: str | None = None) -> Iterator[ShardSpec]:
        for name in self.rows if split is None else (split,):
            for index, start in enumerate(range(0, self.rows[name], self.shard_rows)):
                stop = min(start + self.shard_rows, self.rows[name])
                yield ShardSpec(split=name, index=index, start=start, stop=stop)

    @property
    def num_shards(self) -> int:
        return sum(-(-rows // self.shard_rows) for rows in self.rows.values())

    @property
    def row_bytes(self) -> int:
        states = len(self.pooling) * self.num_layers * self.hidden_size
        return states * ITEM_BYTES[self.storage_dtype] + sum(self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what lies in ``cache.json``, and in every run on the cache."""
        content: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
        # a plan that needs none of the last two stays as gaam 0.1 wrote it
        return content | {
            k: v for k, v in asdict(self).items() if k not in OPTIONAL or v
        }

    def to_json(self) -> str:
        return sealed_text(self.to_dict())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """What ``to_dict`` gave, and its fingerprint covers; else one of ``files.DAMAGE``."""
        content = dict(value)
        if content.pop("format") != FORMAT:
            raise ValueError("not a gaam cache")
        if (number := content.pop("format_version")) != FORMAT_VERSION:
            raise ValueError(
                f"format version {number!r}, this gaam reads {FORMAT_VERSION}"
            )
        for name in ("pooling", "class_names", "unlabelled"):
            content[name] = tuple(content.get(name, ()))
        plan, fields = cls(**content), content["fingerprint_fields"]
        covered = {"columns": {}, "unlabelled": [], **fields} | fields["encoder"]
        if fingerprint(fields) != plan.fingerprint:
            raise ValueError("the fingerprint does not match its fields")
        for name in (
            "pooling",
            "class_names",
            "unlabelled",
            "columns",
            "rows",
            "storage_dtype",
        ):
            kind = {"columns": set, "rows": dict}.get(name, list)
            if kind(getattr(plan, name)) != kind(covered[name]):
                raise ValueError(f"'{name}' is not what the fingerprint covers")
        if (
            not all(map(NAME_PATTERN.fullmatch, plan.rows))
            or plan.batching not in BATCHINGS
        ):
            raise ValueError("bad names of splits, or bad batching")
        for text in plan.reference.values():
            decode_sketch(text)
        return plan

    def portable(self) -> Self:
        """The same without any path of this machine; of a local name the last part is left."""
        encoder, dataset = (
            of
            | {
                "name": portable_name(of["name"], local=bool(of.get("path"))),
                "path": None,
            }
            for of in (self.encoder, self.dataset)
        )
        dataset.pop("import", None)  # the files that were imported are here alone
        on_disk = bool(self.dataset.get("path")) or self.imported
        dataset["origin"] = {
            split: portable_name(str(origin), local=on_disk)
            for split, origin in dataset.get("origin", {}).items()
        }
        return replace(self, encoder=encoder, dataset=dataset)


def rows_per_shard(bytes_per_row: int, shard_rows: int) -> int:
    """Rows of a shard under both bounds: the number asked for and 512 MB."""
    return max(1, min(shard_rows, MAX_SHARD_BYTES // bytes_per_row))


def read_plan(root: Path) -> Plan:
    """Read ``cache.json``; NotFoundError where there is none, CacheError where it is damaged."""
    path = root / PLAN_FILE
    try:
        content = unsealed(read_json(path))
        if (
            content.get("format") == FORMAT
            and content["format_version"] != FORMAT_VERSION
        ):
            raise OutOfReachError(
                f"the cache '{shown_path(root)}' is in another version of the format",
                expected=f"version {FORMAT_VERSION}, which this gaam reads",
                found=f"version {content['format_version']!r}",
                where=str(path.absolute()),
                hint=f"use the gaam that made it: {brief(str(content.get('created_with')))}",
            )
        return Plan.from_dict(content)
    except ElsewhereError as error:
        raise error.refusal(
            f"the plan of the cache '{shown_path(root)}'", path
        ) from error
    except DAMAGE as error:
        gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        if gone and not next(root.glob(f"{SHARD_FOLDER}/*-?????*.h5"), None):
            raise NotFoundError(
                f"no cache at '{shown_path(root)}'",
                found=_instead(root),
                where=str(root.absolute()),
                hint="build one with 'gaam extract', or name another folder",
            ) from error
        found = f"no key {error}" if isinstance(error, KeyError) else str(error)
        raise CacheError(
            "the plan of the cache is unusable",
            found="no such file, though there are shards" if gone else found,
            where=str(path.absolute()),
            hint=f"copy {PLAN_FILE} again from where it is whole; else "
            + ("" if gone else f"move {path.absolute()} away, ")
            + "run the command that made the cache again: every shard that fits is kept",
        ) from error


def _instead(root: Path) -> str:
    """What is there, where a plan is not."""
    if root.is_dir():
        return f"no {PLAN_FILE} in it"
    return "a file" if root.is_file() else "no such folder"


def write_plan(root: Path, plan: Plan) -> Plan:
    """Write the plan, or adopt the one that is there if it has the same fingerprint."""
    if write_file(root / PLAN_FILE, plan.to_json().encode(), exclusive=True):
        return plan
    return adopt_plan(root, plan.fingerprint_fields, plan.dataset)


def adopt_plan(root: Path, fields: dict[str, Any], dataset: Mapping[str, Any]) -> Plan:
    """The plan that is there, if its fingerprint covers these fields; else what differs is named.

    ``dataset`` says how the rows are read, of which the fingerprint covers what was read.
    """
    there = read_plan(root)
    fields_now, fields_then = comparable(fields, there.fingerprint_fields)
    if fields_now == fields_then:
        return there
    now, then = (
        {
            "dataset": {
                name: value for name, value in one.items() if name not in NOT_SETTINGS
            },
            **of,
        }
        for one, of in ((dataset, fields_now), (there.dataset, fields_then))
    )
    lines = "".join(f"\n    {line}" for line in explain_differences(now, then, there))
    hint = "choose another folder with --out"
    if there.dataset.get("limit") is not None and "limit_rule" not in there.dataset:
        hint += "; or, since --limit took the first rows before gaam 0.3 and takes of every class "
        hint += "its share now: --set limit-rule=first"
    raise ConfigError(
        f"'{shown_path(root)}' holds another cache; nothing was changed. What differs:{lines}",
        found=f"fingerprint {there.fingerprint:.12}, and not {fingerprint(fields):.12}",
        hint=hint,
    )


def comparable(
    now: Mapping[str, Any], then: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of two fingerprints without what was measured on one of the encoders alone."""
    identities = now["encoder"], then["encoder"]
    one_sided = {
        name for name in MEASURED if (name in identities[0]) != (name in identities[1])
    }
    kept = [
        {name: value for name, value in identity.items() if name not in one_sided}
        for identity in identities
    ]
    return {**now, "encoder": kept[0]}, {**then, "encoder": kept[1]}


def differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """A line for each field that differs, by its dotted name; absent values are ``-``.

    Token ids are left out where another field differs too, from which their difference follows.
    """

    def flat(value: Any, name: str) -> dict[str, str]:
        if not isinstance(value, Mapping):
            return {
                name: brief(value if isinstance(value, str) else json.dumps(value), 40)
            }
        parts = (
            flat(inner, f"{name}.{key}" if name else key)
            for key, inner in value.items()
        )
        return {key: text for part in parts for key, text in part.items()}

    here, there = flat(now, ""), flat(then, "")
    found = {
        key: (here.get(key, "-"), there.get(key, "-"))
        for key in sorted({**here, **there})
    }
    differing = {key: values for key, values in found.items() if values[0] != values[1]}
    causes = {key: values for key, values in differing.items() if not TOKENS.match(key)}
    width = max(map(len, found), default=0)
    return [
        f"{key:<{width}}  now {new}, then {old}"
        for key, (new, old) in (causes or differing).items()
    ]


def explain_differences(
    now: Mapping[str, Any], then: Mapping[str, Any], plan: Plan
) -> list[str]:
    """``differences``; where token ids alone differ, the libraries that make them are named."""
    lines = differences(now, then)
    if not lines or not all(map(TOKENS.match, lines)):
        return lines
    kinds = ", ".join(line.split()[0].rpartition(".")[2] for line in lines)
    return [
        f"the same tokenizer files give other token ids of fixed texts ({kinds})",
        f"now with {installed_versions()}",
        f"then with {recorded_versions(plan)}",
    ]


def installed_versions() -> str:
    """The libraries that decide what an encoder does, as they are installed here."""
    return ", ".join(f"{name} {version(name)}" for name in LIBRARIES)


def describe_state_deviation(plan: Plan, other: Plan) -> str | None:
    """How the reference states of two caches differ by more than rounding; None where they do not.

    Nothing is known of a cache that has none.
    """
    dtype = str(plan.identity.get("dtype"))
    if dtype not in ROUNDING:
        return None
    limit = recompute_limit(dtype, "float32")
    for pooling in plan.reference.keys() & other.reference.keys():
        deviation, layer = largest_deviation(
            plan.reference[pooling], other.reference[pooling]
        )
        if not deviation <= limit:
            return (
                f"states of the same two rows differ by {deviation:.1e} of their norm in layer "
                f"{layer + plan.first_layer}, where rounding explains {limit:.1e}: computed with "
                f"{recorded_versions(plan)}, and with {recorded_versions(other)}"
            )
    return None


def recorded_versions(plan: Plan) -> str:
    """The libraries that decide what an encoder does, as they were when a cache was begun."""
    recorded = (
        f"{name} {plan.created_with[name]}"
        for name in LIBRARIES
        if name in plan.created_with
    )
    return ", ".join(recorded)


def portable_name(name: str, *, local: bool = False) -> str:
    """What to call a data set or encoder elsewhere: of a path, or what is ``local``, its end."""
    # one slash may be that of an owner and a name on the hub
    if not local and not re.match(r"[~./]|[A-Za-z]:\\|.*(?:/|\\).*/", name):
        return name
    last = PurePath(name.replace("\\", "/")).name
    return "local" if last in ("", "..") or last.startswith("~") else last
