"""Verifies a cache: every byte, and on request some rows that are encoded again."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import CacheError, OutOfReachError
from gaam_cache.common.messages import brief, counted, size_in_words, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.store.check import check_shards
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import read_plan

LONGEST_NAMES = 400  # characters of the names of missing shards


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What ``verify`` found.

    >>> gaam_cache.verify("cache").in_words().splitlines()[0]
    "cache 'cache': good"
    """

    path: str
    fingerprint: str
    maker: str  # the command that makes what is missing
    shards: int  # as planned
    rows: int  # of the good shards
    bytes: int  # of the shard files that were hashed and are right
    missing: tuple[str, ...]  # planned shards without a receipt
    bad: tuple[dict[str, str], ...]  # wrong shards: 'name', 'reason', 'repair'
    out_of_reach: tuple[dict[str, str], ...]
    """Shards whose files are not on this machine and may be intact; the same keys."""
    recomputed: dict[str, Any] | None
    """Figures of the rows that were encoded again, such as the largest
    ``|stored - alone| / |alone|`` of every layer; None if no row was."""

    @property
    def good(self) -> bool:
        """Whether every planned shard is there and right."""
        return not (self.missing or self.bad or self.out_of_reach)

    def to_dict(self) -> dict[str, object]:
        """JSON values: all fields, and whether the cache is good."""
        return {"good": self.good, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people: the state of the cache, then one for every bad shard."""
        lines = [
            f"cache '{shown_path(self.path)}': {self._state_in_words()}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  shards       {self._shards_in_words()}",
        ]
        if self.recomputed is not None:
            template = (
                "  recomputed   {rows} rows alone on {device} (seed {seed}): largest "
                "relative deviation {largest}; rounding explains {limit:.1e}"
            )
            lines.append(template.format(**self.recomputed))
        bad_template = "bad: {name}: {reason}; repair: {repair}"
        lines += [bad_template.format(**fault) for fault in self.bad]
        far_template = "out of reach: {name}: {reason}; to do: {repair}"
        lines += [far_template.format(**fault) for fault in self.out_of_reach]
        if self.missing:
            names = brief(", ".join(self.missing), LONGEST_NAMES)
            lines.append(
                f"missing: {names}; run the {self.maker} that made the cache again"
            )
        return "\n".join(lines)

    def _state_in_words(self) -> str:
        """The state of the cache in one word, or a few."""
        if self.good:
            return "good"
        # shards are missing, or are not on this machine
        if not self.bad:
            return "incomplete"
        # A shard in doubt is not damaged: its bytes are right. But one of its rows has
        # other states if it is computed here, with other versions of libraries.
        in_doubt = set()
        if self.recomputed is not None:
            in_doubt = set(self.recomputed.get("in_doubt", ()))
        damaged = {fault["name"] for fault in self.bad} - in_doubt
        if damaged:
            return "DAMAGED"
        return "in doubt, other library versions compute other states here"

    def _shards_in_words(self) -> str:
        """Numbers of good, bad and missing shards, and how much was hashed."""
        num_bad = len(self.bad)
        num_out_of_reach = len(self.out_of_reach)
        num_missing = len(self.missing)
        num_good = self.shards - num_missing - num_bad - num_out_of_reach
        parts = [f"{num_good:,} good", f"{num_bad:,} bad"]
        if num_out_of_reach:
            parts.append(f"{num_out_of_reach:,} out of reach")
        parts.append(f"{num_missing:,} missing of {self.shards:,}")
        size = f"{counted(self.rows, 'row')}, {size_in_words(self.bytes)} hashed"
        return f"{', '.join(parts)}; {size}"


def verify(
    path: str | Path,
    *,
    recompute_rows: int = 0,
    seed: int = 0,
    device: str = "auto",
    progress: ReportProgress | None = None,
) -> Verification:
    """Hash every byte of a cache, and compare the arrays that h5py reads with receipts.

    On request, some rows are encoded again and compared with their stored states. The
    memory that this takes does not grow with the cache.

    >>> gaam_cache.verify("cache").good
    True

    Args:
        path: the cache.
        recompute_rows: number of random rows of good shards to encode again, alone.
        seed: decides which rows are encoded again.
        device: where these rows are encoded: auto, cpu, cuda, cuda:N or mps.
        progress: called with (done, total, what is going on).

    Raises:
        NotFoundError: there is no cache; or no encoder or data set to recompute with.
        CacheError: the plan is damaged; or, with ``recompute_rows``, the encoder or
            the data set has changed.
    """
    root = absolute_path(path)
    report = progress or no_progress
    plan = read_plan(root)
    checked = check_shards(root, plan, report)

    faults = dict(checked.faults)
    recomputed: dict[str, object] | None = None
    if recompute_rows:
        # imported only here: the packages of sources and encoders take longer to import
        # than a small cache to hash
        from gaam_cache.extraction.recompute import random_rows, recompute

        # rows are chosen from good shards: those of bad ones show nothing new
        chosen_rows = random_rows(checked.good, recompute_rows, seed)
        if chosen_rows:
            recomputed, deviation_faults = recompute(
                root, plan, chosen_rows, device, report
            )
            recomputed["seed"] = seed
            faults |= deviation_faults

    bad, out_of_reach = _sort_faults(faults)
    # a shard with a deviating row has right bytes, but is not good
    good = [shard for shard in checked.present if shard.name not in faults]
    return Verification(
        path=str(root),
        fingerprint=plan.fingerprint,
        maker=plan.maker,
        shards=plan.num_shards,
        rows=sum(shard.num_rows for shard in good),
        bytes=sum(checked.sizes.values()),
        missing=tuple(checked.missing),
        bad=_describe(bad),
        out_of_reach=_describe(out_of_reach),
        recomputed=recomputed,
    )


def _sort_faults(
    faults: Mapping[str, CacheError],
) -> tuple[dict[str, CacheError], dict[str, CacheError]]:
    """Separate bad shards from shards that are out of reach.

    Args:
        faults: name of a shard -> what is wrong with it.

    Returns:
        The faults of bad shards, and those of shards that are out of reach.
    """
    bad: dict[str, CacheError] = {}
    out_of_reach: dict[str, CacheError] = {}
    for name, fault in faults.items():
        # such a file lies elsewhere, for example on another disk, and may be intact
        if isinstance(fault, OutOfReachError):
            out_of_reach[name] = fault
        else:
            bad[name] = fault
    return bad, out_of_reach


def _describe(faults: Mapping[str, CacheError]) -> tuple[dict[str, str], ...]:
    """Describe faults for JSON: a dictionary of 'name', 'reason' and 'repair' each.

    ``faults`` is name of a shard -> what is wrong with it.
    """
    descriptions = []
    for name, fault in faults.items():
        description = {
            "name": name,
            "reason": visible(fault.details["found"]),
            "repair": fault.details["to do"],
        }
        descriptions.append(description)
    return tuple(descriptions)
