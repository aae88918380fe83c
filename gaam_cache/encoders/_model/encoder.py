"""An encoder of the transformers library in a folder: what is read, hashed, loaded and run.

B batch, L layers, D hidden size.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
import transformers
from torch import Tensor

from gaam_cache import devices
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder
from gaam_cache.encoders._locate import locate
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._model.choices import check_depth, choose_dtype
from gaam_cache.encoders._model.forward import Forward, Unusable
from gaam_cache.encoders._model.outline import shape_of
from gaam_cache.encoders._model.probe import Items, probe
from gaam_cache.encoders._model.watched import Watched
from gaam_cache.encoders._model.weights import (
    draw_untrained,
    entry_device,
    foreign,
    load_trained,
    room_for,
    untrained_identity,
)
from gaam_cache.encoders.poolings._base import load_poolings
from gaam_cache.errors import ConfigError
from gaam_cache.store.plan import CONVENTIONS


class ModelEncoder(Encoder):
    """Pools every layer of a transformers model while the forward pass produces it.

    A forward hook on each layer pools its output at once, so that no layer's states outlive the
    layer; models whose layers do not yield what ``transformers`` calls ``hidden_states`` are asked
    for those. How a model must be run for the states of a row to be its own, whatever else is
    in the batch, is not read off its name: a probe measures it when the weights are loaded.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"layer_zero"})
    reads: ClassVar[str]
    """What it reads, for messages: 'a text encoder and tokenizer'."""
    _files: Watched
    _forward: Forward

    def __init__(
        self,
        located: Located,
        config: ExtractConfig,
        model_config: transformers.PretrainedConfig,
        max_length: int,
    ) -> None:
        """Use ``open``.

        Args:
            located: the folder.
            config: of the extraction.
            model_config: as the folder has it.
            max_length: of a row, in tokens.
        """
        self.name = config.encoder
        self.revision = located.revision
        self.max_length = max_length
        self.device = devices.resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._located = located
        self._model_config = model_config
        self._config = config

    @property
    def first_layer(self) -> Literal[0, 1]:
        """Number of the first layer that is kept: 0 is what the first one reads."""
        return 0 if self._config.layer_zero else 1

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Self:
        """The same of an encoder whose weights are not there, and not fetched from the hub."""
        return cls.open(config, weights=False)

    @classmethod
    def open(cls, config: ExtractConfig, *, weights: bool = True) -> Self:
        """Find the encoder and read all but its weights.

        Raises:
            ConfigError: not an encoder of its kind that transformers knows without remote code, or
                no such device.
        """
        load_poolings(config.pool)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        weights &= not config.untrained_encoder
        located = locate(config.encoder, config.revision, weights=weights)
        files = Watched(located)
        with foreign(
            f"cannot read the encoder '{config.encoder}'",
            located.path,
            expected=f"{cls.reads} that transformers knows by itself",
        ):
            model_config = transformers.AutoConfig.from_pretrained(
                located.path, local_files_only=True, trust_remote_code=False
            )
            check_depth(model_config)
            encoder = cls._read(located, config, model_config)
        encoder._files = files
        return encoder

    @classmethod
    @abstractmethod
    def _read(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Self:
        """Read what else the folder holds, such as a tokenizer; anything may be raised."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """What decides the numbers beside files, arithmetic and pooling: JSON values."""

    @abstractmethod
    def _part_of(self, model: Any) -> Any:
        """Of a model the part that is run."""

    @abstractmethod
    def _without_numbers(self) -> dict[str, Tensor]:
        """What the model is called with for one row, on torch's meta device."""

    @abstractmethod
    def _forward_of(self, part: Any, model: Any) -> Forward:
        """How it is run."""

    @abstractmethod
    def _candidates(self, part: Any, model: Any) -> tuple[Sequence[Items], int]:
        """Rows for the probe, and the length up to which they are tried together."""

    def _more_files(self) -> set[str]:
        """Names of files that are read beside the usual ones."""
        return set()

    @abstractmethod
    def _failed(self, reason: Unusable) -> ConfigError:
        """The refusal of an encoder that cannot be run as asked."""

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do.

        Raises:
            ConfigError: a file was changed since the first one was read.
        """
        files = self._files.hashes(self._more_files())
        untrained = {}
        if self.untrained_seed is not None:
            untrained["untrained"] = untrained_identity(self.untrained_seed)
        return {
            **untrained,
            "files": files,
            "dtype": self.dtype,
            "max_length": self.max_length,
            "pooling": list(self._config.pool),
            "layers": CONVENTIONS[self.first_layer],
            **self._settings(),
        }

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size`` by the configuration alone.

        Raises:
            ConfigError: neither the model nor its configuration tells them.
        """
        with foreign(f"cannot build '{self.name}'", self._located.path):
            num_layers, self.hidden_size = shape_of(
                self._model_config, self.name, self._part_of, self._without_numbers()
            )
        self.num_layers = num_layers + 1 - self.first_layer

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model.

        Raises:
            ConfigError: weights that do not fit the architecture, or a model that yields no state
                for every layer and position.
            ShortOfMemoryError: they do not fit into the memory, or leave too little for a batch.
        """
        with room_for(self.name, self._model_config, self.dtype, self.device, self._part_of):
            self._load()

    def _load(self) -> None:
        if self.untrained_seed is not None:
            with foreign(f"cannot build '{self.name}'", self._located.path):
                model = draw_untrained(self._model_config, self.untrained_seed, self.dtype)
        else:
            files = self._located.weight_files()
            model = load_trained(
                files,
                self._model_config,
                self.name,
                self.dtype,
                self._config.device_map,
                self._part_of,
            )
            self._files.used(file.name for file in files)
        part = self._part_of(model.eval())
        if self._config.device_map is None:
            part.to(self.device)
        else:
            self.device = entry_device(part)
            devices.check_arithmetic(self.dtype, self.device)
        try:
            self._probe(part, model)
        except Unusable as reason:
            raise self._failed(reason) from reason

    def _probe(self, part: Any, model: Any) -> None:
        part.requires_grad_(False)
        self._forward = self._forward_of(part, model)
        self._forward.first_layer = self.first_layer
        candidates, longest = self._candidates(part, model)
        with torch.inference_mode():
            found = probe(self._forward, candidates, dtype=self.dtype, longest=longest)
        self.num_layers = found.num_layers
        self.hidden_size = found.hidden_size
        self.batching = found.batching
        self.leak = found.leaks.get("padded")

    @torch.inference_mode()
    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of every layer for one batch.

        Shape:
            items: B rows as ``prepare`` made them. Result: (B, L, D) float32 for every pooling.

        Raises:
            ConfigError: the model fails on these rows.
        """
        try:
            return self._forward(items)
        except Unusable as reason:
            raise self._failed(reason) from reason

    @torch.inference_mode()
    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled hidden states of one row as transformers itself gives them.

        By none of the ways that ``encode`` takes, so that a proof shares none of its faults.
        """
        try:
            return self._forward.reference(item)
        except Unusable as reason:
            raise self._failed(reason) from reason
