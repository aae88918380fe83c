"""The three stages of one shard: tokenise, encode, write."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.errors import NumericsError
from gaam_cache.extraction.piece import Piece
from gaam_cache.extraction.row_arrays import RowArrays
from gaam_cache.extraction.states import Encoded, StateMaker
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.unstorable import Unstorable
from gaam_cache.sources._base import Rows
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.plan import Plan, ShardSpec
from gaam_cache.store.shard import (
    build_image,
    embeddings_key,
    publish,
    receipt_path,
    shard_attributes,
)


class ShardWorker:
    """Makes the shards of a plan; each stage may run in a thread of its own."""

    def __init__(
        self,
        config: ExtractConfig,
        plan: Plan,
        encoder: Encoder,
        rows: dict[str, Rows],
        tally: Tally,
    ) -> None:
        self.tally = tally
        self._config = config
        self._plan = plan
        self._encoder = encoder
        self._rows = rows
        self._row_arrays = RowArrays(plan, rows)
        self._maker = StateMaker(encoder, Encoding.of(plan), config.batch_tokens, tally)
        self.batching = self._maker.batching
        self._started = time.perf_counter()

    def _piece(self, shard: ShardSpec) -> Piece:
        part = self._rows[shard.split]
        return Piece(part.inputs, shard.start, shard.stop, part.origin)

    def prepare(self, shard: ShardSpec) -> Inputs:
        """Make the rows of a shard ready; raises as ``StateMaker.prepare``."""
        return self._maker.prepare(self._piece(shard))

    def exists(self, shard: ShardSpec) -> bool:
        """Whether the shard has its receipt by now."""
        return receipt_path(Path(self._config.out), shard.name).exists()

    def encode(self, shard: ShardSpec, inputs: Inputs, tick: Callable[[int], None]) -> Encoded:
        """Pooled states of one shard, as ``StateMaker.encode`` makes them."""
        return self._maker.encode(self._piece(shard), inputs, tick)

    def write(self, shard: ShardSpec, inputs: Inputs, encoded: Encoded) -> None:
        """Check, prove and publish a shard.

        Raises:
            Unstorable: a state that the storage type cannot hold.
            NumericsError: a state that is not that of its text alone.
            StorageError: the file system refused.
        """
        self._maker.wait()
        start = time.perf_counter()
        plan = self._plan
        states = self._maker.states(self._piece(shard), encoded)
        arrays = {
            embeddings_key(plan, name): (plan.storage_dtype, values)
            for name, values in states.items()
        }
        arrays |= self._row_arrays.of(shard, inputs.lengths)
        image, specs = build_image(arrays, shard_attributes(plan, shard))
        self.tally.bytes += len(image)
        self.tally.shards += publish(
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
        self.tally.write_seconds += time.perf_counter() - start

    def explain(self, error: Unstorable) -> NumericsError:
        """Say what the encoder yields where a state could not be stored; encodes that row again."""
        return self._maker.explain(error)

    def speed(self) -> str:
        """Tokens per second so far, for people."""
        seconds = max(time.perf_counter() - self._started, 1e-9)
        share = 100 * self.tally.padding_share
        return f"{self.tally.tokens / seconds:,.0f} {self._encoder.unit}/s, {share:.1f}% padding"
