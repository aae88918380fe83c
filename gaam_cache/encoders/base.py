"""What an encoder is to the extraction, and rows on their way to it.

N rows, B rows of a batch, D hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import excerpt
from gaam_cache.config import ExtractConfig
from gaam_cache.store.plan import Batching, describe_encoder

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gaam_cache.sources.base import Rows


T = TypeVar("T")
R = TypeVar("R")
ExactStates = Mapping[str, NDArray[Any]]
"""Of a row: pooling -> (num_layers, hidden_size), float32 or float64."""


def prefetch(make: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """What is made of items in turn, each in a thread while the one before it is used."""
    ready: Future[R] | None = None
    with ThreadPoolExecutor(1) as thread:
        for (
            item
        ) in items:  # not in the thread: who waits for a terminal can be interrupted
            ahead = thread.submit(make, item)
            if ready is not None:
                yield ready.result()
            ready = ahead
        if ready is not None:
            yield ready.result()


@dataclass(frozen=True, slots=True)
class LazyItems(Sequence[Any]):
    """Rows as an encoder takes them, made anew whenever one is asked for: never are all there."""

    rows: Sequence[Any]
    make: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self.make(self.rows[row])


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Rows made ready for an encoder, on the CPU."""

    items: Sequence[Any]
    """One entry per row: token ids, or what else the encoder reads. Of ``LazyItems`` ones the next batch
    is made ready in a thread while the encoder is busy."""
    lengths: (
        Sequence[int] | NDArray[np.int64]
    )  # length of every row in the encoder's unit (tokens)
    truncated: Sequence[bool]  # whether the row was longer than the maximum and was cut
    extents: Sequence[int] | NDArray[np.int64] | None = None
    """What decides which rows are of equal length, where that is finer: of a sound its samples."""
    width: int | None = (
        None  # what every row takes of a batch, where all are filled to one length
    )
    own: (
        Sequence[int] | NDArray[np.int64]
    ) = ()  # tokens of every row that are of its text
    unknown: (
        Sequence[int] | NDArray[np.int64]
    ) = ()  # those of them that the tokenizer does not know
    doubled: Mapping[str, int] = field(default_factory=dict)
    """Special token that stands twice where the tokenizer adds one -> in how many rows."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """What every row takes of a batch."""
        length_N = np.asarray(self.lengths, dtype=np.int64)
        return length_N if self.width is None else np.full_like(length_N, self.width)

    def batch(self, row_B: NDArray[np.int64]) -> Sequence[Any]:
        """The items of some rows, as ``Encoder.encode`` takes them."""
        return [self.items[row] for row in row_B]

    def batches(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Sequence[Any]]:
        """The items of every batch in turn; what has to be decoded is, one batch ahead."""
        lazy = isinstance(self.items, LazyItems)
        return prefetch(self.batch, batches) if lazy else map(self.batch, batches)


class Encoder(ABC):
    """A frozen encoder: rows in, pooled states of every layer out; ``load`` brings the weights."""

    called: ClassVar[str | None] = None
    """The kind of rows that it reads, where ``--encoder`` calls it by the name of its file, with
    options after a colon; None where it stands for all encoders of a kind of rows."""
    noun: ClassVar[str] = "text"  # what people call a row that it reads
    unit: ClassVar[str] = "tokens"  # what the length of a row counts

    name: str  # id or path as the user gave it
    revision: str | None  # commit on the hub, where it came from there
    num_layers: int  # measured by ``load``, as is ``hidden_size``
    hidden_size: int
    max_length: int
    dtype: str  # arithmetic: float32, bfloat16 or float16
    device: torch.device
    batching: Batching  # which texts may share a batch: measured by ``load``
    acts_causal: bool | None = None
    """Whether what comes later in a row shifts no earlier state: measured by ``load``. None where
    it was not measured, and of rows that have no order of which that could be said."""
    untrained_seed: int | None = (
        None  # seed of random weights; None where they are trained
    )
    causal_setting: tuple[str, bool] | None = None
    """What the configuration says of that: the setting as text, and whether it says causal; None
    where it says nothing."""
    _is_loaded = False  # whether ``load_for`` called ``load``
    adapter_of: str | None = (
        None  # the base model of its adapter; None where it has none
    )

    @property
    def label(self) -> str:
        """Name for people, which says so where there is an adapter or the weights are random."""
        return describe_encoder(self.name, self.untrained_seed, self.adapter_of)

    @classmethod
    @abstractmethod
    def open(cls, config: ExtractConfig) -> Encoder:
        """Find the encoder and read all but its weights."""

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Encoder:
        """Like ``open``, where the weights will not be needed and need not be there."""
        return cls.open(config)

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size``, without weights where that can be."""
        self.load()

    def fit(self, rows: Mapping[str, Rows]) -> None:  # noqa: B027 nothing is to be learned
        """Learn from the rows of all splits; of others than training none may have a say."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What decides the numbers: hashes of weights and tokenizer, settings. JSON values."""

    def notices(self) -> list[str]:
        """What a person should know of it before anything is encoded, a line each."""
        return []

    @abstractmethod
    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Make inputs of rows ready, as tokens if they are texts."""

    def reference_rows(self) -> Sequence[Any]:
        """A few short rows that never change, as ``prepare`` takes them.

        A plan keeps what the encoder makes of them. Without any, there is nothing to compare.
        """
        return ()

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """What a row becomes, on one line for people."""
        return f"{int(inputs.lengths[row]):,} {self.unit}"

    def refuse_empty(self, row: Any, where: str) -> DataError:
        """What to say of a row that has no length."""
        return DataError(
            f"a {self.noun} has no {self.unit} that could be pooled",
            expected=f"at least one, within a maximum length of {self.max_length}",
            found=excerpt(row),
            where=where,
            hint="remove the row",
        )

    @abstractmethod
    def load(self) -> None:
        """Load the weights, and set ``num_layers``, ``hidden_size`` and ``batching``."""

    def load_for(
        self,
        longest: int | None = None,
        *,
        batching: Batching | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load the weights, as ``load`` does, and measure no more than these rows need.

        Weights that are there stay; rows that need more than was measured have it measured.

        Args:
            longest: length of the longest row; None: the maximum length. A row that is longer all
                the same is encoded alone.
            batching: "alone" where every row will be encoded alone, whatever the model is like,
                as is best for a few rows of a cache whose plan is there: nothing is measured then,
                and ``acts_causal`` stays None. Any other is measured, and may be found to differ.
            tell: called with what goes on, where it takes time.

        Raises:
            ConfigError: the model cannot be run so that every row has its own states.
            ShortOfMemoryError: no memory for the weights, or for a row that long.
        """
        if not self._is_loaded:
            self.load()
            self._is_loaded = True

    def longest_of(self, rows: Iterable[Any]) -> int:  # noqa: ARG002
        """Length of about the longest row, as ``load_for`` takes it, found without much work."""
        return self.max_length

    @abstractmethod
    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of one batch.

        Returns:
            For every pooling a float32 tensor of shape (B, num_layers, hidden_size).
        """

    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled states of one row, by as little of our own as can be: what others are held to."""
        return self.encode([item])

    def exact(
        self, items: Sequence[Any], row: int
    ) -> tuple[ExactStates, ExactStates] | None:  # noqa: ARG002
        """A row's states in its batch, and alone, both in higher precision than ``dtype``.

        None where they cannot be had: there is no such arithmetic, or no memory for it. Another
        thread may encode meanwhile.
        """
        return None


def open_encoder(
    kind: str, config: ExtractConfig, rows: Mapping[str, Rows], *, weights: bool = True
) -> Encoder:
    """The encoder of a configuration, for rows of that kind; a setting means something to it."""
    package, named = "gaam_cache.encoders", config.encoder.partition(":")[0]
    cls: type[Encoder] | None = None
    if named in plugins.names(package):
        cls = plugins.load(package, named, kind="kind of encoder")
    if cls is None or cls.called is None:
        cls = plugins.load(package, kind, kind="kind of encoder")
    elif cls.called != kind:
        found = f"rows of {kind}: --dataset {config.dataset}"
        message = f"the encoder '{named}' does not read such rows"
        raise ConfigError(message, expected=f"rows of {cls.called}", found=found)
    if config.chat_template and kind != "text":
        message, found = (
            "--chat-template is for texts",
            f"rows of {kind}: {config.dataset}",
        )
        raise ConfigError(message, expected="a data set of texts", found=found)
    opened = cls.open(config) if weights else cls.open_outline(config)
    opened.fit(rows)
    return opened
