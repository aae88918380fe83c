"""Text encoders of the transformers library, BERT-like and Llama-like.

B batch, T tokens, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from gaam_cache import registry
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.encoders._choices import choose_dtype, choose_max_length
from gaam_cache.encoders._forward import Forward, Unusable, failed, text_part, vocabulary
from gaam_cache.encoders._locate import Located, locate
from gaam_cache.encoders._probe import probe
from gaam_cache.encoders._weights import draw_untrained, load_trained, untrained_identity
from gaam_cache.errors import ConfigError
from gaam_cache.pooling import check_names

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
        self.device = registry.resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._located = located
        self._model_config = model_config
        self._config = config
        self._tokenizer = tokenizer

    @classmethod
    def open(cls, config: ExtractConfig) -> TextEncoder:
        """Find the encoder and read its configuration and tokenizer.

        Raises:
            ConfigError: not a text encoder that transformers knows without remote code, or no such
                device.
        """
        check_names(config.pool)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        located = locate(config.encoder, config.revision, weights=not config.untrained_encoder)
        options = {"local_files_only": True, "trust_remote_code": False}
        try:
            model_config = transformers.AutoConfig.from_pretrained(located.path, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(located.path, **options)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ConfigError(
                f"cannot read the encoder '{config.encoder}'",
                expected="a text encoder and tokenizer that transformers knows by itself",
                found=str(error).strip().splitlines()[0],
                where=str(located.path),
            ) from error
        return cls(located, config, tokenizer, model_config)

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        untrained = {}
        if self.untrained_seed is not None:
            untrained["untrained"] = untrained_identity(self.untrained_seed)
        return {
            **untrained,
            "files": self._located.hashes(_files_of(self._tokenizer)),
            "dtype": self.dtype,
            "max_length": self.max_length,
            "special_tokens": True,
            "pooling": list(self._config.pool),
            "layers": LAYER_CONVENTION,
        }

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, special tokens included, cut at the maximum length."""
        cut = self._token_ids(rows, max_length=self.max_length)
        full = [i for i, ids in enumerate(cut) if len(ids) == self.max_length]
        truncated = [False] * len(cut)
        if full:
            # only a text that fills the maximum can have been cut: ask for its true length
            for i, ids in zip(full, self._token_ids([rows[i] for i in full]), strict=True):
                truncated[i] = len(ids) > self.max_length
        return Inputs(items=cut, lengths=[len(ids) for ids in cut], truncated=truncated)

    def _token_ids(self, rows: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        encoded = self._tokenizer(
            list(rows),
            add_special_tokens=True,
            padding=False,
            truncation=max_length is not None,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return encoded["input_ids"]

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model.

        Raises:
            ConfigError: weights that do not fit the architecture, or a model that yields no state
                for every layer and token.
        """
        if self.untrained_seed is not None:
            model = draw_untrained(self._model_config, self.untrained_seed, self.dtype)
        else:
            device_map = self._config.device_map
            files = self._located.weight_files()
            model = load_trained(files, self._model_config, self.name, self.dtype, device_map)
        part = text_part(model.eval())
        if self._config.device_map is None:
            part.to(self.device)
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
            pad_id=self._pad_id(size),
            vocabulary=size,
        )
        with torch.inference_mode():
            found = probe(
                self._forward,
                dtype=self.dtype,
                max_length=self.max_length,
                shortest=max(1, self._tokenizer.num_special_tokens_to_add()),
                avoid=self._tokenizer.all_special_ids,
                settings=self._model_config.to_dict(),
            )
        self.num_layers = found.num_layers
        self.hidden_size = found.hidden_size
        self.batching = found.batching
        self.leak = found.leaks.get("padded")

    def _pad_id(self, size: int | None) -> int:
        """What fills a batch: the tokenizer's token, else the model's, else any."""
        config = self._model_config.get_text_config()
        for found in (self._tokenizer.pad_token_id, getattr(config, "pad_token_id", None)):
            if type(found) is int and 0 <= found < (size or found + 1):
                return found
        return 0

    @torch.inference_mode()
    def encode(self, items: Sequence[list[int]]) -> dict[str, Tensor]:
        """Pooled states of every layer for one batch of token ids.

        Shape:
            items: B lists of T_b token ids. Result: (B, L, D) float32 for every pooling.

        Raises:
            ConfigError: the model fails on these tokens.
        """
        try:
            return self._forward(items)
        except Unusable as reason:
            raise failed(self.name, reason) from reason


def _files_of(tokenizer: transformers.PreTrainedTokenizerBase) -> set[str]:
    """Names of the files that a tokenizer reads."""
    given = [value for value in tokenizer.init_kwargs.values() if isinstance(value, str)]
    return {*tokenizer.vocab_files_names.values(), *(Path(value).name for value in given)}
