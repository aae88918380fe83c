"""What a text costs."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor

from gaam_cache.encoders._base import Outline
from gaam_cache.encoders._model.outline import outline
from gaam_cache.encoders._text.forward import text_part

LONGEST_COUNTED = 128
"""Tokens of the longer of two texts whose operations are counted."""


def outline_of_text(
    model_config: transformers.PretrainedConfig, max_length: int, name: str
) -> tuple[int, int, Outline]:
    """Layers, hidden size and cost, without any weight; raises as ``outline``.

    Args:
        model_config: of the encoder.
        max_length: tokens of the longest text.
        name: what the user calls it.
    """
    longest = min(LONGEST_COUNTED, max_length)
    lengths = (max(1, longest // 2), longest)
    return outline(model_config, name, part_of=text_part, inputs_of=_token_ids, lengths=lengths)


def _token_ids(length: int) -> dict[str, Tensor]:
    return {"input_ids": torch.zeros((1, length), dtype=torch.long, device="meta")}
