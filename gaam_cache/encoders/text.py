"""Text encoders of the transformers library, BERT-like and Llama-like.

B batch, T tokens, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache import devices
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs, Outline
from gaam_cache.encoders._locate import locate
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._text.choices import check_depth, choose_dtype, choose_max_length
from gaam_cache.encoders._text.forward import Forward, Unusable, failed, text_part, vocabulary
from gaam_cache.encoders._text.outline import outline
from gaam_cache.encoders._text.probe import probe
from gaam_cache.encoders._text.tokens import Tokens, check_tokenizer
from gaam_cache.encoders._text.weights import (
    draw_untrained,
    entry_device,
    foreign,
    load_trained,
    room_for,
    untrained_identity,
)
from gaam_cache.encoders.poolings._base import load_poolings
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.format.files import Identity
from gaam_cache.hub.fetch import IS_WEIGHTS, WANTED

LAYER_CONVENTION = "transformers.hidden_states[1:]"


class TextEncoder(Encoder):
    """Pools every layer of a transformers text model while the forward pass produces it.

    A forward hook on each layer pools its output at once, so that no layer's token states outlive
    the layer; models whose layers do not yield what ``transformers`` calls ``hidden_states[1:]``
    are asked for those. Of an encoder-decoder model the encoder is used. How a model must be run
    for the states of a text to be its own, whatever else is in the batch, is not read off its
    name: a probe measures it when the weights are loaded.

    Numerics:
        Causal models run with right padding, no attention mask and no key-value cache: a real
        token never sees the padding behind it, and the kernel for plain causal attention stays
        available. Others get a mask, in batches that have padding. Where that is not enough,
        ``batching`` says which texts may share a batch.
    """

    _seen: Mapping[str, Identity] = {}
    """What the file system said of the folder's files before the first of them was read."""
    _hashed: Set[str] = frozenset()
    """Those that decide the numbers."""

    def __init__(
        self,
        located: Located,
        config: ExtractConfig,
        tokenizer: transformers.PreTrainedTokenizerBase,
        model_config: transformers.PretrainedConfig,
    ) -> None:
        """Use ``TextEncoder.open``."""
        self.name = config.encoder
        self.revision = located.revision
        self.max_length = choose_max_length(config.max_length, tokenizer, model_config)
        self.device = devices.resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._located = located
        self._model_config = model_config
        self._config = config
        self._tokens = Tokens(tokenizer, model_config, config.encoder)

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> TextEncoder:
        """The same of an encoder whose weights are not there, and not fetched from the hub."""
        return cls.open(config, weights=False)

    @classmethod
    def open(cls, config: ExtractConfig, *, weights: bool = True) -> TextEncoder:
        """Find the encoder and read its configuration and tokenizer.

        Raises:
            ConfigError: not a text encoder that transformers knows without remote code, or no such
                device.
        """
        load_poolings(config.pool)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        weights &= not config.untrained_encoder
        located = locate(config.encoder, config.revision, weights=weights)
        seen = located.identities()
        options = {"local_files_only": True, "trust_remote_code": False}
        with foreign(
            f"cannot read the encoder '{config.encoder}'",
            located.path,
            expected="a text encoder and tokenizer that transformers knows by itself",
        ):
            model_config = transformers.AutoConfig.from_pretrained(located.path, **options)
            check_depth(model_config)
            tokenizer = transformers.AutoTokenizer.from_pretrained(located.path, **options)
            check_tokenizer(tokenizer, located.path)
            encoder = cls(located, config, tokenizer, model_config)
        encoder._seen = seen
        return encoder

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do.

        Raises:
            ConfigError: a file was changed since the first one was read.
        """
        files = self._located.hashes(self._tokens.files())
        small = {n for n in self._seen if WANTED.fullmatch(n) and not IS_WEIGHTS.fullmatch(n)}
        self._hashed = files.keys() | small
        self._check_unchanged()
        untrained = {}
        if self.untrained_seed is not None:
            untrained["untrained"] = untrained_identity(self.untrained_seed)
        return {
            **untrained,
            "files": files,
            "dtype": self.dtype,
            "max_length": self.max_length,
            "special_tokens": True,
            "pooling": list(self._config.pool),
            "layers": LAYER_CONVENTION,
        }

    def _check_unchanged(self) -> None:
        """What was hashed is what was loaded, though each file is opened more than once."""
        now = self._located.identities() if self._seen else {}
        changed = sorted(n for n in self._hashed if now.get(n) != self._seen.get(n))
        if changed:
            raise ConfigError(
                "the encoder was changed while it was read",
                expected="files that stay as they are",
                found=", ".join(changed),
                where=str(self._located.path),
                hint="run the same again when whoever writes them is done",
            )

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, cut at the maximum length; raises as ``Tokens.prepare``."""
        return self._tokens.prepare(rows, self.max_length)

    def refuse_empty(self, row: str, where: str) -> DataError:
        """A text without tokens."""
        return DataError(
            "the tokenizer makes no token of a text",
            expected="at least one token",
            found=repr(row),
            where=where,
            hint="remove the row",
        )

    def outline(self) -> Outline:
        """Shape and cost from the configuration alone."""
        with foreign(f"cannot build '{self.name}'", self._located.path):
            layers, size, found = outline(self._model_config, self.max_length, self.name)
        self.num_layers, self.hidden_size, self.batching = layers, size, "padded"
        return found

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model.

        Raises:
            ConfigError: weights that do not fit the architecture, or a model that yields no state
                for every layer and token.
            ShortOfMemoryError: they do not fit into the memory, or leave too little for a batch.
        """
        with room_for(self.name, self._model_config, self.dtype, self.device):
            self._load()

    def _load(self) -> None:
        if self.untrained_seed is not None:
            with foreign(f"cannot build '{self.name}'", self._located.path):
                model = draw_untrained(self._model_config, self.untrained_seed, self.dtype)
        else:
            device_map = self._config.device_map
            files = self._located.weight_files()
            model = load_trained(files, self._model_config, self.name, self.dtype, device_map)
            self._hashed |= {file.name for file in files}
            self._check_unchanged()
        part = text_part(model.eval())
        if self._config.device_map is None:
            part.to(self.device)
        else:
            self.device = entry_device(part)
            devices.check_arithmetic(self.dtype, self.device)
        text_config = self._model_config.get_text_config()
        size = vocabulary(part, model) or getattr(text_config, "vocab_size", None)
        try:
            self._probe(part, size)
        except Unusable as reason:
            raise failed(self.name, reason) from reason

    def _probe(self, model: Any, size: int | None) -> None:
        model.requires_grad_(False)
        self._forward = Forward(
            model,
            device=self.device,
            pooling=self._config.pool,
            pad_id=self._tokens.pad_id(size),
            vocabulary=size,
        )
        if "token_type_ids" in self._forward.takes and self._tokens.have_types():
            raise Unusable(
                "its tokenizer gives tokens types other than 0 (token_type_ids), which would have "
                "to reach the model"
            )
        with torch.inference_mode():
            found = probe(
                self._forward,
                dtype=self.dtype,
                max_length=self.max_length,
                shortest=max(1, self._tokens.tokenizer.num_special_tokens_to_add()),
                avoid=self._tokens.tokenizer.all_special_ids,
                marks=self._tokens.marks(model, size),
                settings=self._model_config.to_dict(),
            )
        self.num_layers = found.num_layers
        self.hidden_size = found.hidden_size
        self.batching = found.batching
        self.leak = found.leaks.get("padded")

    @torch.inference_mode()
    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of every layer for one batch of token ids.

        Shape:
            items: B times T_b token ids. Result: (B, L, D) float32 for every pooling.

        Raises:
            ConfigError: the model fails on these tokens.
        """
        try:
            return self._forward(items)
        except Unusable as reason:
            raise failed(self.name, reason) from reason

    @torch.inference_mode()
    def encode_alone(self, item: Sequence[int] | NDArray[Any]) -> dict[str, Tensor]:
        """Pooled ``hidden_states[1:]`` of one text as transformers itself gives them.

        By none of the ways that ``encode`` takes, so that a proof shares none of its faults.
        """
        try:
            return self._forward.reference(item)
        except Unusable as reason:
            raise failed(self.name, reason) from reason
