"""One batch of texts through a model of the transformers library.

B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.encoders._model.forward import Batch, Forward, Unusable
from gaam_cache.encoders._model.span import Span
from gaam_cache.encoders._token_ids import TokenIds

CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token that counts as none. To be taken for bidirectional by
mistake costs a causal model some speed; the other mistake would cost the states their truth."""


class TextForward(Forward):
    """Token ids, filled on the right."""

    reads: ClassVar[str] = "token ids"
    state_of: ClassVar[str] = "token id"
    unit: ClassVar[str] = "tokens"

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        pooling: Sequence[str],
        pad_id: int,
        vocabulary: int | None,
    ) -> None:
        super().__init__(model, device=device, pooling=pooling)
        self._pad_id = pad_id
        self.vocabulary = vocabulary

    def batch(self, items: Sequence[Any]) -> Batch:
        """Token ids as (B, T)."""
        tokens = TokenIds.of(items)
        padded_BT = tokens.padded(self._pad_id)
        if self.vocabulary is not None and (largest := int(padded_BT.max())) >= self.vocabulary:
            raise Unusable(
                f"the tokenizer makes the token {largest}, "
                f"the model has embeddings for {self.vocabulary}"
            )
        longest = padded_BT.shape[1]
        span = None
        if tokens.span_N2 is not None:
            start_B, stop_B = np.ascontiguousarray(tokens.span_N2.T)
            width = max(1, int((stop_B - start_B).max()))
            span = Span(self.to_device(start_B), self.to_device(stop_B - start_B), width)
        return Batch(
            inputs={"input_ids": self.to_device(padded_BT)},
            length_B=self.to_device(tokens.length_N),
            padded=int(tokens.length_N.min()) < longest,
            positions=longest,
            span=span,
        )

    def mask_of(self, batch: Batch) -> Tensor:
        """(B, T)."""
        position_T = torch.arange(batch.inputs["input_ids"].shape[1], device=self.device)
        return (position_T < batch.length_B[:, None]).long()

    def is_causal(self, items: Sequence[Any]) -> bool:
        """Whether another last token shifts no state before it: not at all, where it is causal."""
        for ids in (items[len(items) // 2], items[-1]):
            if len(ids) < 2:
                return False
            other = next((i for text in items for i in text if i != ids[-1]), ids[-1])
            runs = []
            for tokens in (ids, [*ids[:-1], other]):
                try:
                    _, layers = self.hidden_states(self.batch([np.array(tokens)]), None)
                except Unusable:
                    return False
                runs.append(layers[-1][:, :-1].float())
            if not bool((runs[0] - runs[1]).norm() <= CAUSAL_SHIFT * runs[0].norm()):
                return False
        return True


def vocabulary(*models: Any) -> int | None:
    """How many token ids the first of these models that has such a table has embeddings for."""
    for model in models:
        with suppress(NotImplementedError, AttributeError):
            if isinstance(found := model.get_input_embeddings(), nn.Embedding):
                return found.num_embeddings
    return None


def text_part(model: Any) -> Any:
    """What reads the text: of an encoder-decoder model, its encoder."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
