"""What an encoder computes in and how far it reads, where nobody says."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from gaam_cache.errors import ConfigError

DEFAULT_MAX_LENGTH = 512


def choose_dtype(asked: str, device: torch.device) -> str:
    """The arithmetic for ``auto``: bfloat16 where the device has instructions for it."""
    if asked != "auto":
        return asked
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if features.get("avx512_bf16") or features.get("amx_bf16") else "float32"


def choose_max_length(
    asked: int | None,
    tokenizer: transformers.PreTrainedTokenizerBase,
    model_config: transformers.PretrainedConfig,
) -> int:
    """The longest text in tokens: as asked, else 512 or the encoder's limit.

    Raises:
        ConfigError: more than the encoder can take, or no room for a token of the text.
    """
    limits = [tokenizer.model_max_length, getattr(model_config, "max_position_embeddings", None)]
    limit = min((int(n) for n in limits if n and n < 10**9), default=None)
    if asked is None:
        return min(DEFAULT_MAX_LENGTH, limit or DEFAULT_MAX_LENGTH)
    if limit is not None and asked > limit:
        raise ConfigError(
            "--max-length is more than the encoder can take",
            expected=f"at most {limit} tokens",
            found=str(asked),
        )
    # a tokenizer that finds no room for its special tokens does not cut at all
    special = tokenizer.num_special_tokens_to_add()
    if asked <= special:
        raise ConfigError(
            "--max-length leaves no room for the text",
            expected=f"at least {special + 1} tokens: the tokenizer adds {special} special ones "
            "to every text",
            found=str(asked),
        )
    return asked
