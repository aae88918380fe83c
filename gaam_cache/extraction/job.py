"""What an extraction has to know before it begins: rows, encoder, plan."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import CacheError, DataError, GaamWarning, OutOfReachError
from gaam_cache.common.messages import excerpt, shortened
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.common.version import __version__
from gaam_cache.config import DEFAULT_DATASET, ExtractConfig
from gaam_cache.encoders.base import Encoder, open_encoder
from gaam_cache.extraction.behaviour import covered_fields, measure_reference
from gaam_cache.extraction.reopen import recorded_settings
from gaam_cache.sources.base import Rows, find_source
from gaam_cache.sources.rows.checks import (
    check_rows,
    equal_rows,
    repeated_texts,
    shared_texts,
)
from gaam_cache.store.dtypes import pack_strings, utf8_width
from gaam_cache.store.files import fingerprint, hash_parts
from gaam_cache.store.plan import (
    FORMAT_VERSION,
    LIBRARIES,
    Plan,
    ShardSpec,
    rows_per_shard,
)
from gaam_cache.store.shard import (
    ROW_DATASETS,
    UNLABELLED,
    column_key,
    missing_shards,
    read_receipt,
    receipt_path,
)

FEW_CLASSES = 20  # as many are named in a message


class CheckedRows(NamedTuple):
    """Rows of all splits, read and checked, with what was found."""

    rows: dict[str, Rows]
    class_names: tuple[str, ...]
    content: dict[str, str]  # hash of every split
    shared_texts: dict[
        str, dict[str, int]
    ]  # rows of a split whose text a split has too
    equal_rows: dict[
        str, list[list[int]]
    ]  # rows of a split that are copies of one another


class Job(NamedTuple):
    """An extraction that is ready to begin: rows read and checked, encoder found."""

    config: ExtractConfig
    rows: dict[str, Rows]
    encoder: Encoder
    fields: dict[str, Any]  # what the fingerprint of its cache covers
    provenance: dict[
        str, Any
    ]  # what it takes to read the same rows again, from any folder
    shared_texts: dict[str, dict[str, int]]
    equal_rows: dict[str, list[list[int]]]


def prepare_job(
    config: ExtractConfig,
    report: ReportProgress = no_progress,
    *,
    checked: CheckedRows | None = None,
    weights: bool = True,
) -> Job:
    """Read the rows (unless somebody did) and find the encoder; writes nothing, loads no weights.

    Without ``weights`` the encoder's need not be there; the fields of the job then cover none.
    """
    rows, class_names, content, shared, copies = checked or read_rows(config, report)
    encoder = open_encoder(_first(rows).kind, config, rows, weights=weights)
    warn(encoder.notices())
    fields = plan_fields(
        rows, class_names, content, encoder.identity(), config.storage_dtype
    )
    bundled = config.dataset == DEFAULT_DATASET
    provenance = {
        "name": config.dataset,
        "path": None if bundled else _local_path(config.dataset),
        "revision": _first(rows).revision,
        "text_columns": list(config.text_columns),
        "label_column": config.label_column,
        "limit": config.limit,
        "origin": {name: part.origin for name, part in rows.items()},
        **recorded_settings(config, "dataset"),
    }
    if config.limit is not None:
        provenance["limit_rule"] = config.limit_rule
    return Job(config, rows, encoder, fields, provenance, shared, copies)


def read_rows(
    config: ExtractConfig, report: ReportProgress = no_progress
) -> CheckedRows:
    """Read the rows of all splits; warn of what is suspicious."""
    source = find_source(config.dataset)
    rows = {split: source.read(config, split, report) for split in config.splits}
    if len({part.kind for part in rows.values()}) > 1:
        kinds = ", ".join(f"'{split}' of {part.noun}s" for split, part in rows.items())
        raise DataError("splits are of several kinds", expected="one", found=kinds)
    class_names = _class_names(rows, config)
    groups = list(repeated_texts(rows, report))
    warn(check_rows(rows, class_names, groups, known=config.odd_classes))
    content = content_of(rows, report)
    return CheckedRows(
        rows, class_names, content, shared_texts(groups), equal_rows(groups)
    )


def content_of(
    rows: Mapping[str, Rows], report: ReportProgress = no_progress
) -> dict[str, str]:
    """Hash of the rows of every split."""
    found = {}
    for name, part in rows.items():
        inputs = with_progress(part.contents(), report, f"hashing '{name}'")
        labels = (label.encode("utf-8", "surrogatepass") for label in part.labels)
        found[name] = hash_parts(chain.from_iterable(zip(inputs, labels, strict=True)))
    return found


def plan_fields(
    rows: Mapping[str, Rows],
    class_names: tuple[str, ...],
    content: dict[str, str],
    identity: dict[str, Any],
    storage_dtype: str,
) -> dict[str, Any]:
    """All that decides the numbers of a cache; ``identity`` is that of the encoder."""
    columns = {
        column: {
            name: hash_parts(map(str.encode, part.kept[column]))
            for name, part in rows.items()
        }
        for column in _first(rows).kept
    }
    some = {
        "columns": columns,
        "unlabelled": [name for name, part in rows.items() if not part.labelled],
        "decoders": _first(rows).decoders(),
    }
    return {
        "format_version": FORMAT_VERSION,
        "encoder": identity,
        "storage_dtype": storage_dtype,
        "class_names": list(class_names),
        "rows": {name: len(part) for name, part in rows.items()},
        "content": content,
        **{key: value for key, value in some.items() if value},
    }


def new_plan(
    fields: dict[str, Any],
    rows: Mapping[str, Rows],
    *,
    encoder: dict[str, Any],
    dataset: dict[str, Any],
    num_layers: int,
    hidden_size: int,
    shard_rows: int,
    libraries: Sequence[str],
) -> Plan:
    """The plan of a cache of ``plan_fields``, made with ``libraries``."""
    plan = Plan(
        fingerprint=fingerprint(fields),
        fingerprint_fields=fields,
        encoder=encoder,
        dataset=dataset,
        num_layers=num_layers,
        hidden_size=hidden_size,
        pooling=tuple(fields["encoder"]["pooling"]),
        storage_dtype=fields["storage_dtype"],
        class_names=tuple(fields["class_names"]),
        rows=fields["rows"],
        columns={
            column: max(utf8_width(part.kept[column]) for part in rows.values())
            for column in fields.get("columns", {})
        },
        unlabelled=tuple(fields.get("unlabelled", ())),
        shard_rows=shard_rows,
        created_with={"gaam": __version__}
        | {name: version(name) for name in libraries},
    )
    return replace(plan, shard_rows=rows_per_shard(plan.row_bytes, shard_rows))


def make_plan(job: Job) -> Plan:
    """The plan that these rows and this encoder, which must be loaded, call for."""
    config, encoder = job.config, job.encoder
    reference = measure_reference(encoder)
    return new_plan(
        covered_fields(job.fields, encoder),
        job.rows,
        encoder={
            "kind": _first(job.rows).kind,
            "name": encoder.name,
            "path": None if encoder.called else _local_path(config.encoder),
            "revision": encoder.revision,
            "batching": encoder.batching,
            **({"reference": reference} if reference else {}),
            **({"adapter_of": encoder.adapter_of} if encoder.adapter_of else {}),
            **recorded_settings(config, "encoder"),
        },
        dataset=job.provenance
        | {"shared_texts": job.shared_texts}
        | ({"equal_rows": job.equal_rows} if job.equal_rows else {}),
        num_layers=encoder.num_layers,
        hidden_size=encoder.hidden_size,
        shard_rows=config.shard_rows,
        libraries=(*LIBRARIES, "h5py", "numpy"),
    )


def class_order(labels: set[str]) -> tuple[str, ...]:
    """Classes in the order in which they are numbered, where nobody declares another."""
    numeric = all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in labels)
    # '1' and '01' are one number: without a second key their order would be that of the set
    return tuple(sorted(labels, key=lambda x: (int(x) if numeric else 0, x)))


def warn(messages: Iterable[str]) -> None:
    """Warn of each."""
    for message in messages:
        warnings.warn(message, GaamWarning, stacklevel=2)


def _first(rows: Mapping[str, Rows]) -> Rows:  # all have its kind and columns
    return next(iter(rows.values()))


def _local_path(name: str) -> str | None:
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else None


def _class_names(rows: dict[str, Rows], config: ExtractConfig) -> tuple[str, ...]:
    """Classes in order: as declared, else those of 'train' (or the first split), sorted."""
    reference = "train" if "train" in rows else next(iter(rows))
    names = rows[reference].class_names or class_order(set(rows[reference].labels))
    for split, part in rows.items():
        if unknown := set(part.labels) - set(names) if part.labelled else None:
            label, known = min(unknown), [*map(shortened, names[:FEW_CLASSES])]
            remedy = f"mend the labels, or add rows of that class to '{reference}'"
            if config.limit is not None and config.limit <= len(names):
                remedy = (
                    f"raise --limit: {config.limit:,} rows hold so many classes at most"
                )
            elif config.limit is not None and config.limit_rule == "first":
                remedy += (
                    f" (the first {config.limit:,} rows of each split are read alone)"
                )
            raise DataError(
                f"the label {excerpt(label)} occurs in '{split}' but not in '{reference}'",
                expected=f"one of: {', '.join(known)}"
                + ", ..." * (len(names) > FEW_CLASSES),
                where=f"{part.origin}, row {part.labels.index(label) + 1}",
                hint=remedy,
            )
    return names


class RowArrays:
    """Labels, row numbers, numbers of tokens and kept columns of every shard of a plan."""

    def __init__(self, plan: Plan, rows: Mapping[str, Rows]) -> None:
        self._plan, self._rows = plan, rows
        self._number = {name: index for index, name in enumerate(plan.class_names)}

    def of(
        self, shard: ShardSpec, lengths: Sequence[int] | NDArray[np.int64]
    ) -> dict[str, tuple[str, NDArray[Any]]]:
        """Name -> (dtype, one entry per row), as ``write_shard`` takes them."""
        part, these = self._rows[shard.split], slice(shard.start, shard.stop)
        row_N = np.arange(shard.start, shard.stop)
        label_N = np.full_like(row_N, UNLABELLED)
        if part.labelled:
            label_N = np.array([self._number[label] for label in part.labels[these]])
        values = {
            "label": label_N,
            "row": row_N,
            "num_tokens": np.asarray(lengths),
        }
        arrays = {key: (dtype, values[key]) for key, dtype in ROW_DATASETS.items()}
        for name, width in self._plan.columns.items():
            arrays[column_key(name)] = (
                "utf8",
                pack_strings(part.kept[name][these], width),
            )
        return arrays


def discard_broken(root: Path, plan: Plan) -> dict[str, str]:
    """Take away the receipts that make no shard exist, so that it is made again.

    That is a receipt that cannot be read or that does not fit the plan, and one whose file is
    gone, of another size or no regular file; no byte of the file is read. Returns what was wrong
    with every shard by name.

    Raises:
        OutOfReachError: a file is elsewhere, or of another cache; what may be whole is left alone.
    """
    broken, missing = {}, set(missing_shards(root, plan))
    for shard in plan.shards():
        if shard.name not in missing:
            try:
                read_receipt(root, plan, shard)
            except OutOfReachError:
                raise
            except CacheError as error:
                path = receipt_path(root, shard.name)
                with suppress(FileNotFoundError):  # another was quicker
                    path.unlink()
                    broken[shard.name] = error.reason
    return broken
