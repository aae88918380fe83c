"""Prepares an extraction: reads its rows, finds its encoder and makes its plan."""

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
from gaam_cache.common.messages import excerpt, join_first, shortened
from gaam_cache.common.terminal import ReportProgress, no_progress, with_progress
from gaam_cache.common.version import __version__
from gaam_cache.config import (
    DEFAULT_DATASET,
    SHARD_ROWS,
    SHARD_ROWS_OF_KIND,
    ExtractConfig,
)
from gaam_cache.encoders.base import Encoder, open_encoder
from gaam_cache.extraction.behaviour import measure_reference, with_measured_fields
from gaam_cache.extraction.reopen import recorded_settings
from gaam_cache.sources.base import Rows, find_source
from gaam_cache.sources.rows.checks import (
    check_rows,
    count_shared_texts,
    find_equal_texts,
    list_equal_rows,
    repeated_texts,
    sketch_splits,
)
from gaam_cache.store.dtypes import pack_strings, utf8_width
from gaam_cache.store.files import fingerprint, hash_parts
from gaam_cache.store.plan import (
    LIBRARIES,
    Plan,
    ShardSpec,
    rows_per_shard,
    target_fields,
    version_of_target,
)
from gaam_cache.store.records import Batching, DatasetRecord, EncoderRecord
from gaam_cache.store.shard import (
    ROW_DATASETS,
    TypedArray,
    column_key,
    missing_shards,
    read_receipt,
    receipt_path,
)
from gaam_cache.targets.base import Target, target_class

MAX_LISTED_CLASSES = 20  # class names that a message lists


class CheckedRows(NamedTuple):
    """The rows of all splits, which were read and checked."""

    rows: dict[str, Rows]  # by split
    target: Target
    content: dict[str, str]  # split -> hash of its rows and labels
    shared_texts: dict[str, dict[str, int]]
    """Split -> split -> number of rows of the first whose text the second has, too."""
    equal_rows: dict[str, list[list[int]]]
    row_sketches: dict[str, str]
    """Split -> groups of rows that are copies of one another."""


class Job(NamedTuple):
    """An extraction that is ready to begin: rows checked, encoder found."""

    config: ExtractConfig
    rows: dict[str, Rows]  # by split
    target: Target
    encoder: Encoder
    fields: dict[str, Any]
    """JSON values that the fingerprint of its cache covers, from ``plan_fields``."""
    dataset: DatasetRecord
    """How to read the same rows again, whatever the working folder then is."""

    @property
    def num_rows(self) -> int:
        """Number of the rows of all splits."""
        return sum(len(rows) for rows in self.rows.values())


def prepare_job(
    config: ExtractConfig,
    report: ReportProgress,
    *,
    checked_rows: CheckedRows | None = None,
    needs_weights: bool = True,
) -> Job:
    """Read the rows and find the encoder. This writes nothing, and loads no weights.

    Args:
        config: the extraction.
        report: called with (rows read, 0, what is going on); 0 means that the number of
            all rows is unknown.
        checked_rows: the rows, if they were read before.
        needs_weights: whether the files of the encoder's weights must exist. If not,
            the fields of the job do not cover the weights.
    """
    # the process that started this worker may have read the rows
    if checked_rows is None:
        checked_rows = read_rows(config, report)
    rows = checked_rows.rows
    encoder = open_encoder(
        _first_split(rows).kind, config, rows, needs_weights=needs_weights
    )
    warn(encoder.notices())
    # the fingerprint of the cache covers these fields
    fields = plan_fields(
        rows,
        checked_rows.target,
        checked_rows.content,
        encoder.identity(),
        config.storage_dtype,
    )
    return Job(
        config=config,
        rows=rows,
        target=checked_rows.target,
        encoder=encoder,
        fields=fields,
        dataset=_dataset_record(config, checked_rows),
    )


def _dataset_record(config: ExtractConfig, checked_rows: CheckedRows) -> DatasetRecord:
    """What a plan records of the data set.

    Args:
        config: the extraction.
        checked_rows: the rows of all splits.
    """
    settings: dict[str, object] = {
        "text_columns": list(config.text_columns),
        "label_column": _label_column(config),
        "limit": config.limit,
        # the other settings of the data set, unless they are at their defaults
        **recorded_settings(config, part="dataset"),
    }
    # without a limit the rule has no meaning
    if config.limit is not None:
        settings["limit_rule"] = config.limit_rule
    # the bundled sample has no path, even if a folder here happens to have its name
    path = None
    if config.dataset != DEFAULT_DATASET:
        path = _local_path(config.dataset)
    rows = checked_rows.rows
    return DatasetRecord(
        name=config.dataset,
        path=path,
        revision=_first_split(rows).revision,
        origin={split: split_rows.origin for split, split_rows in rows.items()},
        shared_texts=checked_rows.shared_texts,
        equal_rows=checked_rows.equal_rows,
        row_sketches=checked_rows.row_sketches,
        settings=settings,
    )


def read_rows(
    config: ExtractConfig, report: ReportProgress = no_progress
) -> CheckedRows:
    """Read the rows of all splits; warn of suspicious ones."""
    source = find_source(config.dataset)
    rows = {split: source.read(config, split, report) for split in config.splits}
    _check_kinds(rows)
    target = _find_target(rows, config)
    equal_texts = find_equal_texts(rows, report)
    copy_groups = repeated_texts(equal_texts)
    warn(check_rows(rows, target, copy_groups, confirmed_classes=config.odd_classes))
    return CheckedRows(
        rows=rows,
        target=target,
        content=content_hashes(rows, report),
        # how many rows have a text that is in another split or again in their own
        shared_texts=count_shared_texts(copy_groups),
        # the rows of each split that are copies of one another
        equal_rows=list_equal_rows(copy_groups),
        # by which a report sees that two data sets have the same rows
        row_sketches=sketch_splits(equal_texts),
    )


def _check_kinds(rows: Mapping[str, Rows]) -> None:
    """Refuse splits of different kinds, such as texts and sounds."""
    kinds = {split_rows.kind for split_rows in rows.values()}
    if len(kinds) <= 1:
        return
    descriptions = [
        f"'{split}' of {split_rows.noun}s" for split, split_rows in rows.items()
    ]
    raise DataError(
        "splits are of several kinds", expected="one", found=", ".join(descriptions)
    )


def content_hashes(rows: Mapping[str, Rows], report: ReportProgress) -> dict[str, str]:
    """Hash the rows of every split, with their labels.

    Returns:
        Split -> one hash of all its rows.
    """
    hashes = {}
    # rows may be larger than memory, so each is read, hashed and dropped
    for split, split_rows in rows.items():
        inputs = with_progress(split_rows.contents(), report, f"hashing '{split}'")
        labels = (label.encode("utf-8", "surrogatepass") for label in split_rows.labels)
        pairs = zip(inputs, labels, strict=True)
        # hash input, label, input, label and so on
        hashes[split] = hash_parts(chain.from_iterable(pairs))
    return hashes


def plan_fields(
    rows: Mapping[str, Rows],
    target: Target,
    content: dict[str, str],
    identity: Mapping[str, object],
    storage_dtype: str,
) -> dict[str, Any]:
    """The JSON values that decide the numbers of a cache: its fingerprint covers them.

    Args:
        rows: of every split.
        target: what is predicted.
        content: split -> hash of its rows and labels.
        identity: the properties of the encoder that decide its states: hashes of its
            files, and settings.
        storage_dtype: type to which states are rounded.
    """
    fields = {
        "format_version": version_of_target(target),
        "encoder": identity,
        "storage_dtype": storage_dtype,
        **target_fields(target),
        "rows": {split: len(split_rows) for split, split_rows in rows.items()},
        "content": content,
    }

    # Plans of earlier versions lack these three fields. An empty one is left out, so
    # that the same cache keeps its fingerprint.
    optional_fields = {
        "columns": _column_hashes(rows),
        "unlabelled": [
            split for split, split_rows in rows.items() if not split_rows.labelled
        ],
        # versions of the libraries that decode sounds or pictures; all splits are of
        # one kind
        "decoders": _first_split(rows).decoders(),
    }
    present_fields = {name: value for name, value in optional_fields.items() if value}
    return fields | present_fields


def _column_hashes(rows: Mapping[str, Rows]) -> dict[str, dict[str, str]]:
    """Hash the columns that the cache keeps.

    Returns:
        Name of a column -> split -> hash of its values.
    """
    hashes: dict[str, dict[str, str]] = {}
    for column in _first_split(rows).kept_columns:
        hashes[column] = {
            split: hash_parts(map(str.encode, split_rows.kept_columns[column]))
            for split, split_rows in rows.items()
        }
    return hashes


def new_plan(
    fields: dict[str, Any],
    rows: Mapping[str, Rows],
    *,
    target: Target,
    encoder: EncoderRecord,
    dataset: DatasetRecord,
    num_layers: int,
    hidden_size: int,
    shard_rows: int,
    libraries: Sequence[str],
) -> Plan:
    """Make the plan of a cache.

    Args:
        fields: what the fingerprint covers, from ``plan_fields``.
        rows: of every split.
        target: what is predicted.
        encoder: what the plan records of the encoder.
        dataset: what the plan records of the data set.
        num_layers: layers of the states.
        hidden_size: features of the states.
        shard_rows: most rows of a shard.
        libraries: the libraries whose versions the plan records.
    """
    versions = {name: version(name) for name in libraries}
    column_widths = {
        column: max(
            utf8_width(split_rows.kept_columns[column]) for split_rows in rows.values()
        )
        for column in fields.get("columns", {})
    }
    plan = Plan(
        fingerprint=fingerprint(fields),
        fingerprint_fields=fields,
        encoder=encoder,
        dataset=dataset,
        num_layers=num_layers,
        hidden_size=hidden_size,
        pooling=tuple(fields["encoder"]["pooling"]),
        storage_dtype=fields["storage_dtype"],
        target=target,
        rows=fields["rows"],
        columns=column_widths,
        unlabelled=tuple(fields.get("unlabelled", ())),
        shard_rows=shard_rows,
        created_with={"gaam": __version__} | versions,
    )
    # only the plan can tell the bytes of a row; with large rows, a shard has fewer rows
    return replace(plan, shard_rows=rows_per_shard(plan.row_bytes, shard_rows))


def make_plan(job: Job, original: Plan | None = None) -> Plan:
    """Make the plan of a job.

    Args:
        job: the extraction. Its encoder must be loaded, unless states are copied.
        original: the plan of the cache whose states are copied. It has what was
            measured of the encoder, and the versions of its libraries.
    """
    config = job.config
    measured: Encoder | Plan = job.encoder
    if original is None:
        # what was measured of the loaded encoder is part of the fingerprint, too
        fields = with_measured_fields(job.fields, job.encoder)
        # states of fixed rows, which will show whether an encoder is still the same
        reference: Mapping[str, str] = measure_reference(job.encoder)
    else:
        measured = original
        fields = {**job.fields, "encoder": original.identity}
        reference = original.reference
    encoder_record = _encoder_record(job, measured.batching, reference)
    shard_rows = config.shard_rows
    if shard_rows is None:
        shard_rows = SHARD_ROWS_OF_KIND.get(encoder_record.kind, SHARD_ROWS)
    plan = new_plan(
        fields,
        job.rows,
        target=job.target,
        encoder=encoder_record,
        dataset=job.dataset,
        num_layers=measured.num_layers,
        hidden_size=measured.hidden_size,
        shard_rows=shard_rows,
        libraries=(*LIBRARIES, "h5py", "numpy"),
    )
    if original is None:
        return plan
    return replace(plan, created_with=original.created_with | {"gaam": __version__})


def _encoder_record(
    job: Job, batching: Batching, reference: Mapping[str, str]
) -> EncoderRecord:
    """What a plan records of the encoder; ``EncoderRecord`` explains the arguments."""
    config = job.config
    encoder = job.encoder
    # An encoder such as 'tfidf' has a name and no path, even if a folder here has that
    # name, too. ``kind_when_named`` is set for such encoders alone.
    encoder_path = None
    if encoder.kind_when_named is None:
        encoder_path = _local_path(config.encoder)
    return EncoderRecord(
        kind=_first_split(job.rows).kind,
        name=encoder.name,
        path=encoder_path,
        revision=encoder.revision,
        batching=batching,
        reference=reference,
        adapter_of=encoder.adapter_of,
        settings=recorded_settings(config, part="encoder"),
    )


def warn(messages: Iterable[str]) -> None:
    """Warn of each message."""
    for message in messages:
        warnings.warn(message, GaamWarning, stacklevel=2)


def _first_split(rows: Mapping[str, Rows]) -> Rows:
    """The rows of the first split; all splits have its kind and its columns."""
    return next(iter(rows.values()))


def _local_path(name: str) -> str | None:
    """The absolute path of a file or folder; None if no file has this name."""
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else None


def _label_column(config: ExtractConfig) -> str | list[str]:
    """The label column as a plan records it; a list where there are several."""
    if len(config.label_column) == 1:
        return config.label_column[0]
    return list(config.label_column)


def _find_target(rows: dict[str, Rows], config: ExtractConfig) -> Target:
    """Find out what is predicted, such as which classes there are.

    It is what the source declares, or else what the labels are in the reference split:
    'train', or the first split if there is no 'train'.

    Args:
        rows: of every split.
        config: the extraction.

    Raises:
        DataError: a split has another kind of labels than the reference split, or a
            label that the target lacks.
    """
    # a decoder can predict only the classes of its training rows
    reference_split = "train" if "train" in rows else next(iter(rows))
    reference_rows = rows[reference_split]
    target = target_class(reference_rows.task).from_labels(
        reference_rows.labels, reference_rows.class_names
    )
    for split, split_rows in rows.items():
        # rows without labels have no class
        if not split_rows.labelled:
            continue
        if split_rows.task != reference_rows.task:
            raise DataError(
                "splits have labels of several kinds",
                expected=f"{reference_rows.task}, as in '{reference_split}'",
                found=f"{split_rows.task} in '{split}'",
                where=split_rows.origin,
                hint="--task says what the labels of all splits are",
            )
        unknown_labels = target.unknown_names(split_rows.labels)
        if unknown_labels:
            raise _unknown_label_error(
                min(unknown_labels), split, split_rows, reference_split, target, config
            )
    return target


def _unknown_label_error(
    label: str,
    split: str,
    rows: Rows,
    reference_split: str,
    target: Target,
    config: ExtractConfig,
) -> DataError:
    """The error for a label that the reference split lacks.

    Args:
        label: the label.
        split: name of the split that has the label.
        rows: of this split.
        reference_split: name of the split whose labels are the classes.
        target: the classes of the reference split, or its columns or labels.
        config: the extraction.
    """
    class_names = target.names
    shown_names = join_first(list(map(shortened, class_names)), MAX_LISTED_CLASSES)

    # the reference split may lack the class only because --limit left out its rows
    remedy = f"mend the labels, or add rows of that class to '{reference_split}'"
    limit = config.limit
    if limit is not None and limit <= len(class_names):
        remedy = f"raise --limit: {limit:,} rows hold at most so many classes"
    elif limit is not None and config.limit_rule == "first":
        remedy += f" (only the first {limit:,} rows of each split are read)"
    row = next(
        row
        for row, row_label in enumerate(rows.labels)
        if label in target.unknown_names([row_label])
    )
    return DataError(
        f"the label {excerpt(label)} occurs in '{split}' but not in "
        f"'{reference_split}'",
        expected=f"one of: {shown_names}",
        where=f"{rows.origin}, row {row + 1}",
        hint=remedy,
    )


class RowArrays:
    """Makes the arrays that a shard holds beside its states.

    These are the labels, the numbers of the rows, their tokens and the kept columns.
    """

    def __init__(self, plan: Plan, rows: Mapping[str, Rows]) -> None:
        self._plan = plan
        self._rows = rows
        self._target = plan.target

    def arrays_of(
        self, shard: ShardSpec, num_tokens: Sequence[int] | NDArray[np.int64]
    ) -> dict[str, TypedArray]:
        """Make the arrays of a shard: name of an array -> its values, (N, ...).

        Args:
            shard: its rows.
            num_tokens: the number of tokens of every row of the shard.
        """
        split_rows = self._rows[shard.split]
        shard_slice = slice(shard.start, shard.stop)
        row_N = np.arange(shard.start, shard.stop)
        label_N = self._target.encode_unlabelled(len(row_N))
        if split_rows.labelled:
            label_N = self._target.encode(split_rows.labels[shard_slice])

        # the order of the arrays is part of the bytes of a shard
        arrays = {self._target.array_key: TypedArray(self._target.dtype, label_N)}
        values = {"row": row_N, "num_tokens": np.asarray(num_tokens)}
        for key, dtype in ROW_DATASETS.items():
            arrays[key] = TypedArray(dtype, values[key])
        for name, width in self._plan.columns.items():
            column = split_rows.kept_columns[name][shard_slice]
            arrays[column_key(name)] = TypedArray("utf8", pack_strings(column, width))
        return arrays


def shards_to_make(root: Path, plan: Plan) -> list[ShardSpec]:
    """The shards that a cache lacks, in the order of the plan.

    A receipt is the small file that makes a shard count. Broken receipts are removed,
    with a warning, so that their shards are made again. A receipt is broken if it
    cannot be read, does not fit the plan, or names a shard file that is gone, has
    another size or is no regular file. The content of shard files is not read.

    Other workers may make some of these shards at any time.

    Raises:
        OutOfReachError: a file is on a disk that is not here, or belongs to another
            cache. Its receipt stays, for the file may be whole.
    """
    missing = set(missing_shards(root, plan))
    reason_by_shard: dict[str, str] = {}
    for shard in plan.shards():
        if shard.name in missing:
            continue
        try:
            read_receipt(root, plan, shard)
        except OutOfReachError:
            # a subclass of CacheError, but such a receipt is not broken
            raise
        except CacheError as error:
            missing.add(shard.name)
            # if another worker removes the receipt first, it gives the warning
            with suppress(FileNotFoundError):
                receipt_path(root, shard.name).unlink()
                reason_by_shard[shard.name] = error.reason
    warn(f"{name} is made again: {reason}" for name, reason in reason_by_shard.items())
    return [shard for shard in plan.shards() if shard.name in missing]
