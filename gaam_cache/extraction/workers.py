"""An extraction by several workers: those of an engine, or ranks that somebody else started."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import devices
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Facts
from gaam_cache.engines._base import Place, Task, Tell, load_engine, warning_once
from gaam_cache.engines.sharing.holder import Holder
from gaam_cache.engines.sharing.lease import Leases
from gaam_cache.engines.sharing.ranks import Rank, device_of
from gaam_cache.engines.sharing.undone import LEASE_FOLDER
from gaam_cache.extraction.job import prepare_job, provenance, read_rows
from gaam_cache.extraction.missing import ROWS, Role, make_missing
from gaam_cache.extraction.recorded import recorded_settings
from gaam_cache.extraction.summary import ExtractSummary, summarize
from gaam_cache.extraction.tally import Tally
from gaam_cache.format.digest import digest_of
from gaam_cache.format.files import canonical_json
from gaam_cache.format.layout import missing_shards
from gaam_cache.format.plan import PLAN_FILE, read_plan
from gaam_cache.format.shard import prepare_folder
from gaam_cache.format.write_plan import adopt_plan
from gaam_cache.placing import placed
from gaam_cache.sources._base import find_source
from gaam_cache.sources._handed_over import (
    CheckedRows,
    hand_over,
    needed,
    put_away,
    take_over,
)
from gaam_cache.terminal import Report, in_thread

PAUSE_SECONDS = 0.5
"""Between two looks at rows that another reads."""
TELL_SECONDS = 0.2
"""Between two words of a worker on how far it is."""


class Argument(NamedTuple):
    """What a worker is told."""

    config: ExtractConfig
    key: str | None
    """Of the rows that were read for it; None where it reads them itself."""
    start: float
    share: float
    """Of the order of work, for all workers of this call: where they begin, and how much."""
    waits: bool


class Told(NamedTuple):
    """What a worker has done so far."""

    rows: int
    tokens: int
    text: str


def by_engine(config: ExtractConfig, rank: Rank | None, report: Report) -> ExtractSummary:
    """Let the workers of an engine build a cache; rows are read here, once.

    Raises:
        GaamError: whatever a worker raised, or all of them died.
    """
    engine = load_engine(config)
    engine.check(config.device, config)
    key = _key(config) if rank else None
    own = secrets.token_hex(16) if key is None else None
    if config.engine == "local" and _is_complete(config.out):  # workers would look, and end
        job, tally = prepare_job(config, report), Tally()
        made = make_missing(config, job, report, tally)
        return summarize(config, made.plan, job.encoder.facts(), tally, job.rows)
    checked = read_rows(config, report) if key is None else _rows_of_rank(config, key, report)
    in_thread(prepare_folder, config.out)
    shared = own is None or in_thread(hand_over, checked, config.out, own)
    argument = Argument(
        config=placed(config),
        key=(own or key) if shared else None,
        start=rank.start if rank else 0.0,
        share=1 / rank.total if rank else 1.0,
        waits=rank is None,
    )
    course = _Course(config, sum(len(part) for part in checked.rows.values()), report)
    began = time.perf_counter()
    try:
        results = engine.run(
            Task(work, argument, config.out, config.device), config, warning_once(course.hear)
        )
    finally:
        if own is not None:
            in_thread(put_away, config.out, own)
    facts = next((facts for _, facts, _ in results if facts is not None), None)
    if facts is None:  # others had completed it when the first worker began
        job = prepare_job(config, report, checked=checked)
        adopt_plan(config.out, job.fields, provenance(config, job.rows))
        facts = job.encoder.facts()
    tally = Tally()
    for done, _, _ in results:
        tally.add(done)
    tally.seconds = time.perf_counter() - began
    lefts = [left for _, _, left in results]
    left = None if None in lefts else lefts[0]
    plan, count = read_plan(config.out), len(results)
    return summarize(config, plan, facts, tally, checked.rows, left=left, workers=count)


def work(argument: Argument, place: Place, tell: Tell) -> tuple[Tally, Facts | None, str | None]:
    """Be one worker: make shards until none is missing; what the encoder is, where it was asked."""
    config = replace(argument.config, device=place.device)
    tally, last = Tally(), 0.0

    def report(done: int, total: int, text: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= TELL_SECONDS:
            last = now
            tell("progress", Told(tally.rows, tally.tokens, text))

    checked = None
    if argument.key is not None:
        checked = take_over(config.out, argument.key)
        if checked is None and _is_complete(config.out):
            return tally, None, None  # whoever completed it has put the rows away
        checked = needed(checked, argument.key)
    job = prepare_job(config, report, checked=checked)
    start = argument.start + argument.share * place.number / place.total
    made = make_missing(config, job, report, tally, Role(start, argument.waits))
    tell("progress", Told(tally.rows, tally.tokens, ""))
    return tally, job.encoder.facts(), made.left


def as_rank(config: ExtractConfig, rank: Rank, report: Report) -> ExtractSummary:
    """Be one of several workers that somebody else started."""
    devices.share_machine(rank.here)
    config = replace(config, device=device_of(rank, config.device))
    key = _key(config)
    checked = None if key is None else _rows_of_rank(config, key, report)
    job, tally = prepare_job(config, report, checked=checked), Tally()
    made = make_missing(config, job, report, tally, Role(rank.start, waits=False))
    return summarize(config, made.plan, job.encoder.facts(), tally, job.rows, left=made.left)


def _is_complete(out: Path) -> bool:
    return (out / PLAN_FILE).exists() and not missing_shards(out, read_plan(out))


def _key(config: ExtractConfig) -> str | None:
    """Of the rows, where they can be told, unread, to be the same for all ranks."""
    state = find_source(config.dataset).state(config)
    if state is None:
        return None
    about = (state, config.text_columns, config.label_column, config.splits, config.limit)
    return digest_of(canonical_json((*about, recorded_settings(config, "dataset"))))


def _rows_of_rank(config: ExtractConfig, key: str, report: Report) -> CheckedRows:
    """The rows, which one of the ranks reads for all."""
    in_thread(prepare_folder, config.out)
    with Leases(config.out / LEASE_FOLDER) as leases:
        while (checked := take_over(config.out, key)) is None:
            lease = leases.take(ROWS)
            if isinstance(lease, Holder):
                report(0, 0, f"waiting for the rows, which {lease.in_words()} reads")
                time.sleep(PAUSE_SECONDS)
                continue
            if (checked := take_over(config.out, key)) is None:
                checked = read_rows(config, report)
                in_thread(hand_over, checked, config.out, key)
            lease.done()
        return checked


class _Course:
    """How far all workers are together."""

    def __init__(self, config: ExtractConfig, total: int, report: Report) -> None:
        self._config = config
        self._total = total
        self._report = report
        self._before = self._published()
        self._rows: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        self._began = time.perf_counter()

    def hear(self, worker: int, kind: str, value: Any) -> None:
        """Take note of what a worker says."""
        if kind == "died":
            # of what it had encoded, what it had published stays
            self._rows.pop(worker, None)
            self._before = max(self._before, self._published() - sum(self._rows.values()))
        elif kind == "waiting":
            self._report(0, 0, value)
        elif kind == "progress":
            self._rows[worker], self._tokens[worker], text = value
            done = min(self._total, self._before + sum(self._rows.values()))
            self._report(done, self._total, self._in_words(text))

    def _in_words(self, text: str) -> str:
        tokens = sum(self._tokens.values())
        if not tokens:
            return text
        speed = tokens / (time.perf_counter() - self._began)
        count = len(self._rows)
        return f"{count} worker{'s' * (count != 1)}, {speed:,.0f} tokens/s"

    def _published(self) -> int:
        if not (self._config.out / PLAN_FILE).exists():
            return 0
        plan = read_plan(self._config.out)
        missing = set(missing_shards(self._config.out, plan))
        return sum(shard.stop - shard.start for shard in plan.shards() if shard.name not in missing)
