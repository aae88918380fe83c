"""The three stages of one shard: tokenise, encode, write."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.batching import padding_share, token_budget_batches
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.errors import DataError, NumericsError
from gaam_cache.layout import ROW_DATASETS, embeddings_key, shard_attributes
from gaam_cache.plan import Plan, ShardSpec
from gaam_cache.shard import build_image, publish
from gaam_cache.sources._base import Rows

CPU_BATCH_TOKENS = 2048
"""More is slower on a CPU: the activations leave its cache."""
GPU_BATCH_TOKENS = 16384


@dataclass(slots=True)
class Tally:
    """What was done so far."""

    rows: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    truncated: int = 0
    bytes: int = 0
    seconds: float = 0.0


class ShardWorker:
    """Makes the shards of a plan; each stage may run in a thread of its own."""

    def __init__(
        self, config: ExtractConfig, plan: Plan, encoder: Encoder, rows: dict[str, Rows]
    ) -> None:
        self.tally = Tally()
        self._config = config
        self._plan = plan
        self._encoder = encoder
        self._rows = rows
        number = {name: index for index, name in enumerate(plan.class_names)}
        self._labels = {
            name: np.array([number[label] for label in part.labels]) for name, part in rows.items()
        }
        self._batch_tokens = config.batch_tokens or (
            CPU_BATCH_TOKENS if encoder.device.type == "cpu" else GPU_BATCH_TOKENS
        )
        self._started = time.perf_counter()

    def prepare(self, shard: ShardSpec) -> Inputs:
        """Tokenise the rows of a shard.

        Raises:
            DataError: a text of which the tokenizer makes nothing.
        """
        part = self._rows[shard.split]
        inputs = self._encoder.prepare(part.texts[shard.start : shard.stop])
        if 0 in inputs.lengths:
            row = shard.start + inputs.lengths.index(0)
            raise DataError(
                "the tokenizer makes no token of a text",
                expected="at least one token",
                found=repr(part.texts[row]),
                where=f"{part.origin}, row {row + 1}",
                hint="remove the row",
            )
        return inputs

    def encode(
        self, shard: ShardSpec, inputs: Inputs, tick: Callable[[int], None]
    ) -> dict[str, Tensor]:
        """Storage-type states of one shard for every pooling, (rows, L, D), in data-set order.

        Raises:
            NumericsError: a state that the storage type cannot hold.
        """
        plan = self._plan
        dtype = getattr(torch, plan.storage_dtype)
        shape = (shard.stop - shard.start, plan.num_layers, plan.hidden_size)
        states = {name: torch.empty(shape, dtype=dtype) for name in plan.pooling}
        batches = token_budget_batches(inputs.lengths, self._batch_tokens)
        done = 0
        for batch in batches:
            pooled = self._encoder.encode([inputs.items[i] for i in batch])
            for name, states_BLD in pooled.items():
                stored_BLD = states_BLD.to(dtype)
                if not torch.isfinite(stored_BLD).all():
                    self._refuse(shard, batch, states_BLD, stored_BLD)
                states[name][torch.from_numpy(batch)] = stored_BLD.cpu()
            done += len(batch)
            self.tally.tokens += sum(inputs.lengths[i] for i in batch)
            tick(done)
        self.tally.rows += done
        self.tally.truncated += sum(inputs.truncated)
        tokens = sum(inputs.lengths)
        self.tally.padded_tokens += round(tokens / (1 - padding_share(inputs.lengths, batches)))
        return states

    def _refuse(
        self, shard: ShardSpec, batch: NDArray[np.int64], states: Tensor, stored: Tensor
    ) -> None:
        bad = (~torch.isfinite(stored)).nonzero()[0].tolist()
        value = float(states[tuple(bad)])
        row = shard.start + int(batch[bad[0]]) + 1
        overflow = bool(np.isfinite(value))
        raise NumericsError(
            f"a state of layer {bad[1] + 1} cannot be stored as {self._plan.storage_dtype}"
            if overflow
            else f"the encoder's layer {bad[1] + 1} yields {value}",
            expected=f"finite values up to {torch.finfo(stored.dtype).max:g}",
            found=f"{value:g} in feature {bad[2]}",
            where=f"{self._rows[shard.split].origin}, row {row}",
            hint="--storage-dtype float32 and a new --out"
            if overflow
            else "look at the row, or compute in --dtype float32 with a new --out",
        )

    def write(self, shard: ShardSpec, inputs: Inputs, states: dict[str, Tensor]) -> None:
        """Publish a shard."""
        plan = self._plan
        label = self._labels[shard.split][shard.start : shard.stop]
        row = np.arange(shard.start, shard.stop)
        values = {"label": label, "row": row, "num_tokens": np.asarray(inputs.lengths)}
        arrays = {
            embeddings_key(plan, name): (plan.storage_dtype, _bits(states[name]))
            for name in plan.pooling
        }
        arrays |= {key: (dtype, values[key]) for key, dtype in ROW_DATASETS.items()}
        image, specs = build_image(arrays, shard_attributes(plan, shard))
        self.tally.bytes += len(image)
        publish(
            Path(self._config.out),
            shard.name,
            image,
            {
                "fingerprint": plan.fingerprint,
                "split": shard.split,
                "start": shard.start,
                "stop": shard.stop,
                "truncated": sum(inputs.truncated),
                "datasets": specs,
            },
        )

    def speed(self) -> str:
        """Tokens per second so far, for people."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        return f"{self.tally.tokens / seconds:,.0f} tokens/s"


def _bits(states: Tensor) -> NDArray[Any]:
    """The tensor as NumPy sees it; bfloat16, which NumPy lacks, as its raw bits."""
    if states.dtype == torch.bfloat16:
        return states.view(torch.int16).numpy().view(np.uint16)
    return states.numpy()
