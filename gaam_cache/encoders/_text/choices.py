"""How far a text encoder reads, where nobody says."""

from __future__ import annotations

from typing import Any

import transformers
from torch import nn

from gaam_cache.encoders._model.weights import skeleton
from gaam_cache.encoders._text.forward import text_part
from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened

DEFAULT_MAX_LENGTH = 512


def choose_max_length(
    asked: int | None,
    tokenizer: transformers.PreTrainedTokenizerBase,
    model_config: transformers.PretrainedConfig,
) -> int:
    """The longest text in tokens: as asked, else 512 or the encoder's limit.

    Raises:
        ConfigError: more than the encoder can take, or no room for a token of the text.
    """
    text_config = model_config.get_text_config()
    positions = getattr(text_config, "max_position_embeddings", None)
    named = (
        ("model_max_length", tokenizer.model_max_length),
        ("max_position_embeddings", positions),
    )
    for name, value in named:
        if not isinstance(value, int | float | None):
            raise ConfigError(f"the encoder's {name} is no number", found=shortened(repr(value)))
    # a tokenizer that finds no room for its special tokens does not cut at all
    special = tokenizer.num_special_tokens_to_add()
    if asked is not None and asked <= special:
        raise ConfigError(
            "--max-length leaves no room for the text",
            expected=f"at least {special + 1} tokens: the tokenizer adds {special} special ones "
            "to every text",
            found=str(asked),
        )
    limits = [n for n in (tokenizer.model_max_length, positions) if n and 0 < n < 10**9]
    pad = getattr(text_config, "pad_token_id", None) or 0
    wanted = min([asked or DEFAULT_MAX_LENGTH, *limits])
    if limits and positions and wanted > positions - pad - 1:
        # whether the model counts from there on, only its own structure tells
        limits += _positions_behind_padding(skeleton(model_config))
    limit = min((int(n) for n in limits), default=None)
    if asked is None:
        return min(DEFAULT_MAX_LENGTH, limit or DEFAULT_MAX_LENGTH)
    if limit is not None and asked > limit:
        raise ConfigError(
            "--max-length is more than the encoder can take",
            expected=f"at most {limit} tokens",
            found=str(asked),
        )
    return asked


def _positions_behind_padding(model: Any) -> list[int]:
    """Tokens that have a position in tables which, as RoBERTa's, begin behind that of padding."""
    return [
        module.num_embeddings - module.padding_idx - 1
        for name, module in text_part(model).named_modules()
        if isinstance(module, nn.Embedding)
        and module.padding_idx is not None
        and "position" in name.lower()
        and "type" not in name.lower()
        and type(module) is nn.Embedding
    ]
