"""The rows of a split, and the sources that read them.

``find_source`` finds the source of a ``--dataset``. ``Source.read`` reads one split. It
also divides a data set without splits into 'train' and 'test', and applies ``--limit``.

Shapes: N rows, U units. A unit is a row, or all rows that are pieces of one sound.
"""

import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.cells import is_blank, lookalike_groups
from gaam_cache.common.download import hub_only_error
from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.rows.holdout import (
    held_out_groups,
    held_out_of_target,
    held_out_rows,
)
from gaam_cache.sources.rows.limit import rows_within_limit
from gaam_cache.targets.base import CLASSIFICATION, target_class

Record = tuple[str, Mapping[str, Any]]
"""The location of a record in its table ('line 7'), and its values by column."""
SOURCES = "gaam_cache.sources"
MEDIA = "gaam_cache.sources.media"
FEWEST_ROWS = 10  # with fewer rows, none can be held out for testing
FEWEST_GROUPS = 6  # with fewer groups in 'test', reports make no claim
DIGEST_BYTES = 16  # two texts of ten million agree by chance once in 10^24 data sets
TOLERATED_SHARE = 0.01  # of rows that were cut, or that lost something else, unwarned


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows(ABC):
    """The rows of one split, in data-set order."""

    kind: ClassVar[str]
    """Kind of the inputs, and name of the kind of encoder that reads them."""
    noun: ClassVar[str] = "row"
    """Word for one input in messages."""
    inputs: Sequence[Any]
    """One input a row, as the data set has it."""
    labels: Sequence[str]
    """The class name of every row; of other tasks the JSON of its numbers or labels."""
    class_names: tuple[str, ...] | None
    """All classes, columns of numbers or labels, where the source declares them."""
    origin: str
    """Where the rows came from, for messages and provenance."""
    revision: str | None = None
    """The commit on the hub, for rows from the hub."""
    kept_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the cache keeps."""
    num_skipped: int = 0
    """Number of rows that ``skip_empty`` left out."""
    num_without_label: int = 0
    """Number of rows that ``skip_unlabelled`` left out."""
    task: str = CLASSIFICATION
    """What the labels are: classification, regression or multi-label."""
    labelled: bool = True
    """False for a split without labels; all its labels are ``NO_LABEL``."""
    sound_numbers: Sequence[int] = ()
    """The number of the sound of every row, for sounds cut into pieces; else empty."""
    is_test: Sequence[bool] = ()
    """Whether each row belongs to 'test'; empty if that is not decided yet. A source
    decides it if it has to apply a limit to 'train' and 'test' each."""

    def __len__(self) -> int:
        return len(self.inputs)

    @abstractmethod
    def contents(self) -> Iterator[bytes]:
        """The bytes of every input. The fingerprint of a cache covers all of them."""

    def copy_keys(self) -> Iterator[bytes]:
        """Bytes of every input that are equal for inputs that count as copies.

        Of a text, for example, these are its bytes without differences in case.
        """
        return self.contents()

    @abstractmethod
    def excerpt(self, row: int) -> str:
        """The input of a row, shortened to one line for messages."""

    def doubts(self) -> Iterator[str]:
        """Yield warnings of suspicious inputs, such as silent sounds."""
        return iter(())

    @classmethod
    def decoders(cls) -> dict[str, str]:
        """Library -> its version, for the libraries that decode the files.

        The states depend on them.
        """
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts(Rows):
    """Rows whose inputs are texts. No text is blank, and UTF-8 can encode each."""

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "text"

    def contents(self) -> Iterator[bytes]:
        return (text.encode() for text in self.inputs)

    def copy_keys(self) -> Iterator[bytes]:
        """Texts without differences in white space, case or Unicode form (NFKC)."""
        for text in self.inputs:
            # normalizing is slow, and leaves ASCII as it is
            normalized_text = text
            if not text.isascii():
                normalized_text = unicodedata.normalize("NFKC", text)
            yield " ".join(normalized_text.casefold().split()).encode()

    def excerpt(self, row: int) -> str:
        return excerpt(self.inputs[row])


class Source(ABC):
    """Reads the rows of a data set; every subclass reads another kind of data sets.

    ``dataset`` always is the text that the user wrote after ``--dataset``.
    """

    priority: ClassVar[int]
    """Of the sources that claim a data set, the one with the lowest number reads it."""
    has_revisions: ClassVar[bool] = False
    """Whether data sets have revisions, so that the user may name one."""
    _divided_rows: dict[str, Rows] | None = None
    """'train' and 'test' of a data set without splits, once it is read."""

    @classmethod
    @abstractmethod
    def claims(cls, dataset: str) -> bool:
        """Whether this source can read ``dataset``, as its form says.

        ``dataset`` is what the user wrote after ``--dataset``. Of several sources that
        claim it, the one with the lowest ``priority`` reads it.
        """

    @classmethod
    def with_defaults(cls, config: ExtractConfig) -> ExtractConfig:
        """The configuration, completed with defaults that depend on the data set."""
        return config

    def read(
        self, config: ExtractConfig, split: str, report: ReportProgress = no_progress
    ) -> Rows:
        """Read the rows of one split that ``--limit`` takes.

        With a ``test_fraction``, this reads the only split of the data set once and
        divides it into 'train' and 'test'.

        Args:
            config: the extraction.
            split: name of the split.
            report: called with the number of rows so far.

        Raises:
            NotFoundError: the file, data set or split does not exist.
            ConfigError: a column does not exist, or an option does not apply.
            DataError: a row cannot be used; the error says which.
        """
        self._check_options(config)
        if config.test_fraction is None:
            return _apply_limit(self.rows(config, split, report), config)

        # the rows are read once, when the first of the two splits is needed
        if self._divided_rows is None:
            rows = self.rows(config, split, report)
            self._divided_rows = _divide(rows, config, config.test_fraction)
        return self._divided_rows[split]

    @abstractmethod
    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """All rows of one split; with a ``test_fraction``, all rows of the only split.

        A source may ignore ``--limit``, because ``read`` applies it to the result.
        """

    def _check_options(self, config: ExtractConfig) -> None:
        """Refuse options that mean nothing for this data set."""
        # a user would believe that an ignored option has had its effect
        if not self.has_revisions and config.dataset_revision is not None:
            raise hub_only_error(
                "dataset-revision", config.dataset_revision, config.dataset
            )
        if not self.has_revisions and config.subset is not None:
            raise hub_only_error("--subset", config.subset, config.dataset)
        if config.test_fraction is None and config.test_groups is not None:
            raise ConfigError(
                "--test-groups divides a data set without splits; this one has splits",
                expected="--test-fraction beside it, or a single file",
                found=f"--test-groups {excerpt(config.test_groups)}",
                where=config.dataset,
            )


def find_source(dataset: str) -> Source:
    """The source that reads ``dataset``.

    It is the one with the lowest ``priority`` of those that claim the data set. The hub
    claims any data set, so there is always one.
    """
    # other packages may add sources, so all are loaded before one is chosen
    sources: list[type[Source]] = [
        plugins.load(SOURCES, name, kind="source") for name in plugins.names(SOURCES)
    ]
    sources.sort(key=lambda source: int(source.priority))
    return next(source() for source in sources if source.claims(dataset))


def _divide(rows: Rows, config: ExtractConfig, fraction: float) -> dict[str, Rows]:
    """Divide rows into the splits 'train' and 'test', and apply ``--limit`` to each.

    Args:
        rows: the rows of the only split. A source may have decided already which of
            them become 'test' (``Rows.is_test``).
        config: the extraction.
        fraction: the share of the rows that becomes 'test'.

    Returns:
        Split -> its rows.

    Raises:
        ConfigError: there are too few rows, or no class has two.
    """
    is_test_N = _choose_test_rows(rows, config, fraction)
    # A source that has divided the rows itself had more of them, and passed on those
    # that the limit takes: their number says nothing.
    source_has_divided = len(rows.is_test) > 0
    has_few_rows = len(rows) < FEWEST_ROWS and not source_has_divided
    if has_few_rows:
        raise ConfigError(
            f"{len(rows)} rows are too few to hold some out for testing",
            expected=f"at least {FEWEST_ROWS} rows for --test-fraction, two of a class",
            where=rows.origin,
            hint="more rows, or a folder with train.csv and test.csv",
        )
    if not is_test_N.any():
        raise ConfigError(
            "no row can be held out for testing",
            expected="two rows or more of a class",
            found=f"{len(rows):,} rows",
            where=rows.origin,
            hint="--label-column names another column; numbers: --task regression",
        )

    train = replace(_select_rows(rows, ~is_test_N), origin=f"{rows.origin}, train")
    # 'train' reports the number of skipped rows of both splits, so 'test' reports 0
    test = replace(
        _select_rows(rows, is_test_N),
        origin=f"{rows.origin}, test",
        num_skipped=0,
        num_without_label=0,
    )
    return {"train": _apply_limit(train, config), "test": _apply_limit(test, config)}


def _choose_test_rows(
    rows: Rows, config: ExtractConfig, fraction: float
) -> NDArray[np.bool_]:
    """Choose the rows of 'test': (N,) truth values; pieces of a sound stay together.

    Args:
        rows: the rows of the only split.
        config: the extraction; it may name a column of groups that must not be split.
        fraction: the share of the rows that becomes 'test'.
    """
    # the source may have divided the rows already
    if rows.is_test:
        return np.asarray(rows.is_test, np.bool_)
    if config.test_groups is not None:
        return _choose_test_groups(
            rows, config.test_groups, fraction, config.split_seed
        )
    # 'test' gets the same share of every class, or is spread evenly over the numbers
    units = _units(rows)
    seed = config.split_seed
    if rows.labelled:
        target = target_class(rows.task)
        is_test_U = held_out_of_target(target, units.labels, fraction, seed)
    else:
        is_test_U = held_out_rows(units.strata, fraction, seed)
    return units.of_rows(is_test_U)


def _choose_test_groups(
    rows: Rows, column: str, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Choose the rows of 'test' by whole groups: (N,) truth values.

    A group is all rows with one value in ``column``. A warning says how many groups
    were chosen.

    Args:
        rows: the rows of the only split.
        column: the kept column with the group of every row, such as the speaker.
        fraction: the share of the rows that becomes 'test'.
        seed: draws the groups.

    Raises:
        ConfigError: no group can be held out, or a row has no group.
    """
    group_names = rows.kept_columns[column]
    num_blank = sum(map(is_blank, group_names))
    if num_blank:
        raise ConfigError(
            f"rows have no group in '{column}'",
            expected="a name for each row",
            found=f"rows without one: {num_blank:,} of {len(rows):,}",
            where=rows.origin,
            hint="give each such row a group of its own, or leave it out",
        )
    warning = lookalike_groups(group_names, column)
    if warning:
        warnings.warn(warning, GaamWarning, stacklevel=2)
    row_strata = target_class(rows.task).strata(rows.labels)
    is_test_N = held_out_groups(row_strata, group_names, fraction, seed)
    num_groups = len(set(group_names))
    if not is_test_N.any():
        plural = "" if num_groups == 1 else "s"
        raise ConfigError(
            f"no group of '{column}' can be held out for testing",
            expected=f"groups of at most {fraction:.0%} of the rows, and every class "
            "in several of them",
            found=f"{num_groups:,} group{plural}",
            where=rows.origin,
        )

    # with too few groups no report makes a claim: the user has to know that now
    test_group_names = {
        name for name, is_test in zip(group_names, is_test_N, strict=True) if is_test
    }
    message = (
        f"'test' has {len(test_group_names):,} of {num_groups:,} groups of '{column}', "
        f"{is_test_N.sum():,} of {len(rows):,} rows ({is_test_N.mean():.1%})"
    )
    if len(test_group_names) < FEWEST_GROUPS:
        message += (
            f": reports make no claim from fewer than {FEWEST_GROUPS} groups; "
            f"gaam train --folds 5 --groups {column} tests all groups of one split"
        )
    warnings.warn(message, GaamWarning, stacklevel=2)
    return is_test_N


def _apply_limit(rows: Rows, config: ExtractConfig) -> Rows:
    """The rows of a split that ``--limit`` takes: a share of every class, or the first.

    The pieces of a sound count as one row, except for the first rows. A source may have
    applied the limit already: then all its rows are taken.
    """
    limit = config.limit
    if limit is None:
        return rows
    if config.limit_rule == "first":
        is_taken_N = np.arange(len(rows)) < limit
    else:
        units = _units(rows)
        is_taken_U = rows_within_limit(units.strata, limit)
        is_taken_N = units.of_rows(is_taken_U)
    # without a change the rows need not be copied, which takes memory
    if is_taken_N.all():
        return rows
    return _select_rows(rows, is_taken_N)


class _Units(NamedTuple):
    """Rows that stay together: a unit is one row, or all pieces of one sound."""

    labels: Sequence[str]
    strata: Sequence[str]
    """The stratum of every unit: a limit takes the same share of each. The strata of
    classes are the classes."""
    unit_N: NDArray[np.int64]
    """The index of every row's unit."""

    def of_rows(self, values_U: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Give every row the value of its unit, (N,)."""
        values_N: NDArray[np.bool_] = values_U[self.unit_N]
        return values_N


def _units(rows: Rows) -> _Units:
    """The units of some rows, with the stratum of each."""
    # without pieces of sounds, every row is a unit of its own
    unit_number_N = np.asarray(rows.sound_numbers or range(len(rows)), np.int64)
    _, first_row_U, unit_N = np.unique(
        unit_number_N, return_index=True, return_inverse=True
    )
    # all rows of a unit have one label, so that of its first row is enough
    labels = [rows.labels[row] for row in first_row_U.tolist()]
    # rows without labels are one stratum
    strata: Sequence[str] = labels
    if rows.labelled:
        strata = target_class(rows.task).strata(labels)
    return _Units(labels, strata, unit_N)


def _select_rows(rows: Rows, is_selected_N: NDArray[np.bool_]) -> Rows:
    """The rows for which ``is_selected_N``, (N,), is true, in their order.

    What a source has decided about 'train' and 'test' is applied by now, and dropped.
    """
    row_N = np.flatnonzero(is_selected_N).tolist()
    columns = {
        name: [values[row] for row in row_N]
        for name, values in rows.kept_columns.items()
    }
    # pieces of one sound have one number; rows of texts have none
    sound_numbers: Sequence[int] = ()
    if rows.sound_numbers:
        sound_numbers = [rows.sound_numbers[row] for row in row_N]
    return replace(
        rows,
        inputs=[rows.inputs[row] for row in row_N],
        labels=[rows.labels[row] for row in row_N],
        kept_columns=columns,
        sound_numbers=sound_numbers,
        is_test=(),
    )
