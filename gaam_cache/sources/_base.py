"""What a source of rows is, and how a ``--dataset`` finds its source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, ClassVar, NamedTuple

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.sources._spool import PackedTexts
from gaam_cache.terminal import Report, silent


class Packed(NamedTuple):
    """Inputs as others can be handed them."""

    texts: PackedTexts
    """One per row."""
    about: Mapping[str, Any]
    """What is the same for all: JSON values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows(ABC):
    """The rows of one split, in data-set order."""

    kind: ClassVar[str]
    """What the inputs are, which is the name of the kind of encoder that reads them."""
    noun: ClassVar[str] = "row"
    """What people call one of them."""
    inputs: Sequence[Any]
    """One per row, as it stands in the data."""
    labels: Sequence[str]
    """The class name of every row."""
    class_names: tuple[str, ...] | None
    """All classes in order where the source declares them, else None."""
    origin: str
    """Where the rows came from, for messages and provenance."""
    revision: str | None = None
    """Commit on the hub, where they came from there."""
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the cache keeps: one string per row."""
    skipped: Sequence[str] = ()
    """Where rows stood that were left out, as ``skip-empty`` asks for."""
    labelled: bool = True
    """Else nobody knows the labels, and all of them are ``NO_LABEL``."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.inputs)

    def decoders(self) -> dict[str, str]:
        """What made inputs of bytes, and in which version, where it decides them."""
        return {}

    @abstractmethod
    def contents(self) -> Iterator[bytes]:
        """All of every input, which the fingerprint of a cache covers."""

    @abstractmethod
    def essences(self) -> Iterator[bytes]:
        """The same without what makes no difference: of equal ones, one is a copy of the other."""

    def exactly(self, row: int) -> str:  # noqa: ARG002  all of a row is its essence
        """What of copies has to be the same before their labels contradict one another."""
        return ""

    @abstractmethod
    def excerpt(self, row: int) -> str:
        """An input on one line, for messages."""

    def units(self) -> Sequence[int]:
        """For every row which unit it is of, counted from 0: those of one are never parted."""
        return range(len(self))

    def chosen_inputs(self, mask: Sequence[bool]) -> Sequence[Any]:
        """The inputs of some rows, in order; ``mask`` says of every row whether it is one."""
        return list(compress(self.inputs, mask))

    def packed_inputs(self) -> Packed | None:
        """What other processes make the inputs of; None where they cannot."""
        return None

    @classmethod
    def unpacked_inputs(cls, packed: Packed) -> Sequence[Any]:
        """The inputs, as they were."""
        raise NotImplementedError


NO_LABEL = ""
"""Of a row whose class nobody knows; no class can be called so."""


class Source(ABC):
    """Reads rows. ``dataset`` is what the user wrote after ``--dataset``."""

    priority: ClassVar[int]
    """Sources are asked in ascending order whether a data set is theirs."""
    is_path: ClassVar[bool] = False
    """Whether ``dataset`` is a path, which means something else in another folder."""

    @classmethod
    @abstractmethod
    def claims(cls, dataset: str) -> bool:
        """Whether this source is the one to read ``dataset``."""

    @abstractmethod
    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """All rows of one split; ``report`` is told how many there are so far.

        Raises:
            NotFoundError: no such file, data set or split.
            ConfigError: no such column.
            DataError: a row cannot be used; says which.
        """

    def state(self, config: ExtractConfig) -> Any | None:
        """What says, unread, that the data are still the same: JSON values.

        None where that cannot be told: then every worker that others started reads them itself.

        Raises:
            NotFoundError: no such file or data set.
        """
        return None


def find_source(dataset: str) -> Source:
    """The first source, by priority, that claims ``dataset``."""

    def ask(cls: type[Source]) -> tuple[int, bool]:
        return int(cls.priority), bool(cls.claims(dataset))

    answers = plugins.ask_all("gaam_cache.sources", ask, kind="source")
    if claiming := [(priority, cls) for cls, (priority, claims) in answers if claims]:
        source: Source = min(claiming, key=lambda one: one[0])[1]()
        return source
    raise ConfigError(f"no source can read the data set '{dataset}'")
