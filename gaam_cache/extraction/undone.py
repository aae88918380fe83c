"""Which shard to make next, where several extractors work on one cache."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence

from gaam_cache.engines._claims import Claim, Claims, Holder
from gaam_cache.store.plan import ShardSpec

CLAIM_FOLDER = "claims"


class Undone:
    """The shards that lack a receipt, as far as we know.

    Args:
        shards: in the order in which to try them.
        claims: who is at work on what.
        exists: whether a shard has its receipt by now.
    """

    def __init__(
        self, shards: Sequence[ShardSpec], claims: Claims, exists: Callable[[ShardSpec], bool]
    ) -> None:
        self.rows = sum(shard.stop - shard.start for shard in shards)
        """Of the shards that are neither encoded by us nor made by others."""
        self._left = deque(shards)
        self._claims = claims
        self._exists = exists
        self._holder = Holder()
        self._lock = threading.Lock()

    def take(self) -> tuple[ShardSpec, Claim] | None:
        """The next shard that nobody makes; None where others make all that is left."""
        for _ in range(len(self._left)):
            shard = self._left.popleft()
            if self._exists(shard):
                self.finish(shard)
                continue
            claim = self._claims.take(shard.name)
            if isinstance(claim, Holder):
                self._holder = claim
                self._left.append(shard)
            elif self._is_ours(shard, claim):
                return shard, claim
        return None

    def confirm(self, shard: ShardSpec, claim: Claim) -> bool:
        """Whether a shard that was taken some time ago is still ours to make."""
        if claim.lost():
            self._claims.forget(claim)
            self._left.append(shard)
            return False
        return self._is_ours(shard, claim)

    def finish(self, shard: ShardSpec) -> None:
        """Count a shard as done."""
        with self._lock:  # the next is taken in a thread of its own
            self.rows -= shard.stop - shard.start

    def look_again(self) -> None:
        """Count what others have finished meanwhile: of several that leave, the last sees all."""
        for _ in range(len(self._left)):
            shard = self._left.popleft()
            if self._exists(shard):
                self.finish(shard)
            else:
                self._left.append(shard)

    def others_live(self) -> bool:
        """Whether all that is left is held, now, by those who were seen to be alive."""
        return {shard.name for shard in self._left} <= self._claims.alive()

    def in_words(self) -> str:
        """Who makes what is left."""
        count = len(self._left)
        what = f"{count:,} shards that others make" if count > 1 else "a shard that another makes"
        return f"{what} ({self._holder.in_words()})"

    def _is_ours(self, shard: ShardSpec, claim: Claim) -> bool:
        if not self._exists(shard):
            return True
        claim.done()
        self.finish(shard)
        return False


def order_of_work(shards: list[ShardSpec], start: float | None) -> list[ShardSpec]:
    """From a place on that is a share of them; None is anywhere, so that few want the same."""
    if len(shards) < 2:
        return shards
    first = secrets.randbelow(len(shards)) if start is None else int(start * len(shards))
    return shards[first:] + shards[:first]
