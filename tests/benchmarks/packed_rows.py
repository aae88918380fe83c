"""Rows of any lengths one behind the other in one sequence, so that nothing is padded.

Attention then needs to know where rows begin: no token may see those of another row.
Its functions are registered with transformers under their names, for which it makes no
mask.

B rows, P positions of all rows, H heads, D features of a head or of a state.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from gaam_cache.encoders._forward import Batch
from gaam_cache.encoders.text import _TextForward


class PackedForward(_TextForward):
    """Reads the rows of a batch as one sequence, and pools each row by itself."""

    def batch(self, items: Sequence[Any]) -> Batch:
        """One sequence, (1, P), whose positions begin anew with every row."""
        length_B = np.fromiter(map(len, items), np.int64, len(items))
        offset_B1 = np.concatenate([[0], length_B.cumsum()]).astype(np.int32)
        position_P = np.concatenate([np.arange(length) for length in length_B])
        inputs: dict[str, Any] = {
            "input_ids": self.to_device(np.concatenate(items)[None]),
            "position_ids": self.to_device(position_P[None]),
            # the model passes on what it does not know, down to attention
            "cu_seq_lens_q": self.to_device(offset_B1),
            "max_length_q": int(length_B.max()),
        }
        return Batch(
            inputs=inputs,
            length_B=self.to_device(length_B),
            positions=len(position_P),
        )

    def _pool_layer(self, x_BTD: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Mean of every row, (B, D) float32; without checks, which wait for a GPU."""
        means_BD = torch.segment_reduce(
            x_BTD[0].float(), "mean", lengths=batch.length_B, unsafe=True
        )
        return {"mean": means_BD}


def packed_batches(
    lengths: NDArray[np.int64], batch_tokens: int
) -> list[NDArray[np.int64]]:
    """Row numbers of every batch: rows in their order, as many as the tokens allow."""
    batches: list[list[int]] = [[]]
    tokens = 0
    for row, length in enumerate(lengths.tolist()):
        if tokens + length > batch_tokens and batches[-1]:
            batches.append([])
            tokens = 0
        batches[-1].append(row)
        tokens += length
    return [np.array(batch) for batch in batches]


varlen_attn: Any = None
with suppress(ImportError):  # torch 2.10 or newer has it
    varlen_attn = importlib.import_module("torch.nn.attention.varlen").varlen_attn
CAUSAL: dict[str, Any] = {"window_size": (-1, 0)}
"""What makes ``varlen_attn`` causal; torch 2.10 has another argument for it."""
if varlen_attn and "is_causal" in inspect.signature(varlen_attn).parameters:
    CAUSAL = {"is_causal": True}

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Takes queries, keys and values, (P, H, D), the offsets of rows and the longest row."""


def _by_varlen(
    q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, offset_B1: Tensor, longest: int
) -> Tensor:
    """Torch's flash attention for rows of several lengths; it needs a GPU."""
    attended: Any = varlen_attn(
        q_PHD, k_PHD, v_PHD, offset_B1, offset_B1, longest, longest, **CAUSAL
    )
    return attended


def _by_nested(
    q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, offset_B1: Tensor, longest: int
) -> Tensor:
    """Torch's nested tensors; causal attention of them needs a GPU."""

    def nested(x_PHD: Tensor) -> Tensor:
        x = torch.nested.nested_tensor_from_jagged(
            x_PHD.contiguous(), offset_B1, min_seqlen=1, max_seqlen=longest
        )
        return x.transpose(1, 2)

    attended = scaled_dot_product_attention(
        nested(q_PHD), nested(k_PHD), nested(v_PHD), is_causal=True
    )
    return attended.transpose(1, 2).values()


def _row_by_row(
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offset_B1: Tensor,
    longest: int,  # noqa: ARG001
) -> Tensor:
    """One row after the other: on any device, and slow."""
    lengths = offset_B1.diff().tolist()
    attended = []
    for q, k, v in zip(*(x.split(lengths) for x in (q_PHD, k_PHD, v_PHD)), strict=True):
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        row = scaled_dot_product_attention(q, k, v, is_causal=True)
        attended.append(row[0].transpose(0, 1))
    return torch.cat(attended)


def _as_attention(attend: Attend) -> Callable[..., tuple[Tensor, None]]:
    """Attention as a model of transformers calls it, with one sequence."""

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        **options: Any,
    ) -> tuple[Tensor, None]:
        q_PHD, k_PHD, v_PHD = (x[0].transpose(0, 1) for x in (query, key, value))
        offset_B1, longest = options["cu_seq_lens_q"], options["max_length_q"]
        attended_PHD = attend(q_PHD, k_PHD, v_PHD, offset_B1, longest)
        return attended_PHD[None], None

    return attention


ATTENTIONS: dict[str, Callable[..., Any]] = {
    # transformers looks for packed rows wherever it may make a mask, and so waits for
    # the GPU in every batch
    "unmasked": sdpa_attention_forward,
    "varlen": _as_attention(_by_varlen),
    "nested": _as_attention(_by_nested),
    "row-by-row": _as_attention(_row_by_row),
}
for _name, _attention in ATTENTIONS.items():
    transformers.AttentionInterface.register(_name, _attention)
