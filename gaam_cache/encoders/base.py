"""The contract between an encoder and the extraction.

An ``Encoder`` prepares rows as ``Inputs`` and turns batches of them into pooled states.

Shape suffixes: N rows, B rows of a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import excerpt, shortened
from gaam_cache.common.settings import command_words, fields_of, name_in_messages
from gaam_cache.config import ExtractConfig
from gaam_cache.store.plan import describe_encoder
from gaam_cache.store.records import Batching

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gaam_cache.sources.base import Rows


PACKAGE = "gaam_cache.encoders"
SETTINGS_OF_TEXTS = ("prompt", "chat_template", "pool_over")
SETTINGS_OF_SOUNDS = ("clip_seconds", "clip_mode", "published_audio")
SETTINGS_OF_PICTURES = ("grey_bits",)

Item = TypeVar("Item")
Result = TypeVar("Result")
RowStates = Mapping[str, NDArray[Any]]
"""States of a row: pooling -> (num_layers, hidden_size), float32 or float64."""


class CausalSetting(NamedTuple):
    """What the configuration of a model says about the direction of attention."""

    text: str  # the setting and its value, for messages: "is_decoder = true"
    is_causal: bool  # whether attention is causal by this setting


class PreciseStates(NamedTuple):
    """States of one row in higher precision than the encoder's arithmetic."""

    in_batch: RowStates  # computed together with the other rows of its batch
    alone: RowStates  # computed in a batch of its own


def prefetch(make: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``make(item)`` of every item, and let a thread make the next one meanwhile.

    Args:
        make: computes a result; it runs in the thread.
        items: what ``make`` takes; they are drawn in the caller's thread.
    """
    # The result that the caller gets next. It is handed over only after the thread has
    # got the item behind it.
    previous: Future[Result] | None = None
    with ThreadPoolExecutor(1) as thread:
        # Items are drawn outside of the thread, so that a user can interrupt a source
        # that waits for a terminal.
        for item in items:
            upcoming = thread.submit(make, item)
            if previous is not None:
                yield previous.result()
            previous = upcoming
        if previous is not None:
            yield previous.result()


@dataclass(frozen=True, slots=True)
class LazyItems(Sequence[Any]):
    """Encoder inputs that are computed at every access, so that few are in memory.

    Attributes:
        rows: the rows, such as references to sound files.
        make: computes the encoder's input of a row.
    """

    rows: Sequence[Any]
    make: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Any:
        return self.make(self.rows[row])


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Rows prepared for an encoder, on the CPU."""

    items: Sequence[Any]
    """The encoder's input of every row, such as token ids.

    If they are ``LazyItems``, a thread prepares the next batch while the encoder is
    busy.
    """
    lengths: Sequence[int] | NDArray[np.int64]
    """Length of every row in the encoder's unit, such as tokens."""
    truncated: Sequence[bool]
    """Whether each row was cut at the maximum length."""
    extents: Sequence[int] | NDArray[np.int64] | None = None
    """Length of every row in a finer unit, such as the samples of a sound.

    Rows of equal extent count as equally long. None stands for ``lengths``.
    """
    fixed_positions: int | None = None
    """Number of positions to which the encoder pads every row.

    None if the encoder pads rows to the longest row of their batch.
    """
    num_own_tokens: Sequence[int] | NDArray[np.int64] = ()
    """Number of every text's own tokens; empty for rows that are no texts.

    They stand for characters of the text. Special tokens and those of a prompt do not.
    """
    num_unknown_tokens: Sequence[int] | NDArray[np.int64] = ()
    """How many of a text's own tokens stand for characters without a token."""
    rows_by_doubled_token: Mapping[str, int] = field(default_factory=dict)
    """Special token -> number of rows that hold it twice.

    The tokenizer added it to a text that holds it already.
    """

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of positions that every row takes up in a batch, (N,).

        Padding up to the longest row of a batch does not count. But if the encoder
        pads all rows to one length, every row takes up that length.
        """
        length_N = np.asarray(self.lengths, dtype=np.int64)
        if self.fixed_positions is None:
            return length_N
        return np.full_like(length_N, self.fixed_positions)

    def batch(self, row_B: NDArray[np.int64]) -> Sequence[Any]:
        """Inputs of the rows with these indices, as ``Encoder.encode`` takes them."""
        return [self.items[row] for row in row_B]

    def batches(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Sequence[Any]]:
        """Yield the inputs of every batch; lazy ones are computed one batch ahead.

        ``batches`` holds the indices of the rows of every batch.
        """
        # Without a thread, the device would wait while sounds or pictures are decoded.
        if isinstance(self.items, LazyItems):
            return prefetch(self.batch, batches)
        return map(self.batch, batches)


class Encoder(ABC):
    """A frozen encoder turns rows into pooled states of every layer.

    ``open`` finds the encoder, and ``load`` reads its weights.
    """

    kind_when_named: ClassVar[str | None] = None
    """The kind of rows, such as "text", of an encoder that ``--encoder`` names.

    Its name there is that of its file, with options after a colon, as in
    ``tfidf:features=1000``. None marks a class that ``--encoder`` cannot name: it opens
    all models for one kind of rows, and its file has the name of this kind.
    """
    noun: ClassVar[str] = "text"  # word for a row in messages
    unit: ClassVar[str] = "tokens"  # what the length of a row counts
    unused_settings: ClassVar[tuple[str, ...]] = ()
    """Settings of an extraction that would change nothing for such an encoder."""

    name: str  # id or path as the user gave it
    revision: str | None  # commit on the hub, for an encoder from there
    num_layers: int  # number of stored layers; ``load`` measures it
    hidden_size: int  # features of a state; ``load`` measures it
    max_length: int  # maximum length of a row, at which ``prepare`` cuts
    dtype: str  # arithmetic: float32, bfloat16 or float16
    device: torch.device
    batching: Batching  # which rows may share a batch: measured by ``load``
    acts_causal: bool | None = None
    """Whether later tokens leave earlier states unchanged; ``load`` measures it.

    None before ``load``, and for rows without an order.
    """
    untrained_seed: int | None = None
    """Seed of random weights; None if the weights are trained."""
    causal_setting: CausalSetting | None = None
    """What the configuration says about causal attention; None if it says nothing."""
    _is_loaded = False  # whether ``load_for`` called ``load``
    adapter_of: str | None = None
    """The base model of its adapter; None without an adapter."""

    @property
    def label(self) -> str:
        """Name for people; it mentions an adapter and random weights."""
        return describe_encoder(self.name, self.untrained_seed, self.adapter_of)

    @classmethod
    @abstractmethod
    def open(cls, config: ExtractConfig) -> Encoder:
        """Find the encoder and read everything but its weights."""

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Encoder:
        """Open an encoder that will not need its weights; they may be missing."""
        return cls.open(config)

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size``, if possible without the weights.

        This method loads the weights. A subclass that finds both in its configuration
        overrides it.
        """
        self.load()

    def fit(self, rows: Mapping[str, Rows]) -> None:  # noqa: B027 most learn nothing
        """Learn from the training rows what the encoder needs, such as a vocabulary.

        Most encoders need nothing, and keep this empty method.

        Args:
            rows: the rows of every split. An encoder must learn from the training split
                only; it may check the rows of the others.
        """

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON values.

        Examples are hashes of the weights and the tokenizer, and settings.
        """

    def notices(self) -> list[str]:
        """Remarks about the encoder for the user before extraction, one a line."""
        return []

    @abstractmethod
    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Prepare rows for encoding: tokenise texts, for example."""

    def reference_rows(self) -> Sequence[Any]:
        """A few short rows that never change, as ``prepare`` takes them.

        The plan of a cache keeps their states. Later they show whether the encoder
        still gives the same states; an encoder without such rows is not compared.
        """
        return ()

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """Describe a prepared row on one line for people."""
        return f"{int(inputs.lengths[row]):,} {self.unit}"

    def empty_row_error(self, row: Any, where: str) -> DataError:
        """Build the error for a row of length zero, which the caller raises.

        Args:
            row: the row, as ``prepare`` takes it.
            where: its split and number, for the message.
        """
        return DataError(
            f"a {self.noun} has no {self.unit} that could be pooled",
            expected=f"at least one, within a maximum length of {self.max_length}",
            found=excerpt(row),
            where=where,
            hint="remove the row",
        )

    @abstractmethod
    def load(self) -> None:
        """Load the weights; set ``num_layers``, ``hidden_size`` and ``batching``."""

    def load_for(
        self,
        longest: int | None = None,
        *,
        encodes_alone: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load the weights, and measure how the model must run for some rows.

        Here this method only calls ``load``, once. A subclass may measure which rows
        share a batch; a second call then measures only what its rows need beyond the
        first.

        Args:
            longest: length of the longest row; None stands for the maximum length. A
                longer row is encoded alone.
            encodes_alone: whether the caller will encode every row alone. Then nothing
                about batches is measured, and ``acts_causal`` stays None. This suits a
                few rows of a cache that has a plan already.
            tell: receives a message before each slow step.

        Raises:
            ConfigError: no way of running the model gives every row the states of a row
                alone.
            ShortOfMemoryError: the memory is too small for the weights, or for a row of
                length ``longest``.
        """
        if not self._is_loaded:
            self.load()
            self._is_loaded = True

    def compile_layers(self) -> None:  # noqa: B027
        """Compile the loaded encoder, if the user wishes it; here it does nothing."""

    def longest_of(self, rows: Iterable[Any]) -> int:  # noqa: ARG002
        """Estimate the length of the longest row for ``load_for``, with little work.

        This is the maximum length, unless a subclass looks at the rows.
        """
        return self.max_length

    @abstractmethod
    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of one batch.

        Returns:
            For every pooling a float32 tensor of shape (B, num_layers, hidden_size).
        """

    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled states of one row, computed without other rows.

        The proof of a shard compares the states of a few rows in their batches with
        these. Here they come from ``encode``. A subclass should compute them with as
        little code of gaam as possible, so that they show faults of ``encode``.

        Returns:
            For every pooling a float32 tensor of shape (1, num_layers, hidden_size).
        """
        return self.encode([item])

    def states_in_higher_precision(
        self, items: Sequence[Any], row: int
    ) -> PreciseStates | None:  # noqa: ARG002
        """States of one row of a batch, in higher precision than ``dtype``.

        This method computes nothing; a subclass may. The caller may use another thread
        for ``encode`` at the same time.

        Args:
            items: the rows of the batch.
            row: index of the row in the batch.

        Returns:
            None if the device has no such arithmetic, or too little memory.
        """
        return None


def open_encoder(
    kind: str,
    config: ExtractConfig,
    rows: Mapping[str, Rows],
    *,
    needs_weights: bool = True,
) -> Encoder:
    """Open the encoder of a configuration for rows of a kind, and fit it to the rows.

    Args:
        kind: kind of the rows, such as "text".
        config: the extraction.
        rows: rows of every split.
        needs_weights: whether the caller will encode rows. Without weights, the encoder
            has settings and a shape only.

    Raises:
        ConfigError: the named encoder does not read rows of this kind.
    """
    encoder_class = _find_class(kind, config)

    # To read settings and shape only, nobody has to wait for weights from the hub.
    open_class = encoder_class.open_outline
    if needs_weights:
        open_class = encoder_class.open
    encoder = open_class(config)
    encoder.fit(rows)
    return encoder


def refuse_unused_settings(encoder: Encoder, config: ExtractConfig) -> None:
    """Refuse settings that would change nothing for an encoder.

    An extraction with a prompt, for example, would be compared with one without.
    """
    for setting in fields_of(config):
        value = getattr(config, setting.name)
        if setting.name in encoder.unused_settings and value != setting.default:
            raise ConfigError(
                f"{name_in_messages(config, setting.name)} means nothing for this "
                "encoder",
                expected=f"settings of an encoder of {encoder.noun}s: {config.encoder}",
                found=shortened(" ".join(command_words(setting, value))),
                hint="leave it out, or name another --encoder",
            )
    if config.encoder_seed is not None and not config.untrained_encoder:
        raise ConfigError(
            f"{name_in_messages(config, 'encoder_seed')} means nothing for an encoder "
            "with trained weights",
            expected="--untrained-encoder beside it",
            found=str(config.encoder_seed),
            hint="leave it out, or add --untrained-encoder",
        )


def _find_class(kind: str, config: ExtractConfig) -> type[Encoder]:
    """Find the class that ``--encoder`` names, or else the class for rows of a kind.

    Only some classes, such as that of tfidf, have a name for ``--encoder``. Any other
    value of ``--encoder`` is a path or an id, and the class for the kind opens it.

    Args:
        kind: kind of the rows, such as "text".
        config: the extraction.

    Raises:
        ConfigError: the named class does not read rows of this kind.
    """
    encoder_class: type[Encoder]
    name = config.encoder.partition(":")[0]
    if name in plugins.names(PACKAGE):
        encoder_class = plugins.load(PACKAGE, name, kind="kind of encoder")
        if encoder_class.kind_when_named == kind:
            return encoder_class
        if encoder_class.kind_when_named is not None:
            raise ConfigError(
                f"the encoder '{name}' does not read rows of this kind",
                expected=f"rows of {encoder_class.kind_when_named}",
                found=f"rows of {kind}: --dataset {config.dataset}",
            )
        # The name is that of a module for a kind of rows, such as text.py, and not of
        # an encoder. So ``--encoder text`` is a path.

    encoder_class = plugins.load(PACKAGE, kind, kind="kind of encoder")
    return encoder_class
