"""An extraction by several workers: those of an engine, or ranks that somebody else started."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import devices
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Facts
from gaam_cache.engines._base import Place, Task, Tell, load_engine, warning_once
from gaam_cache.engines._ranks import Rank, device_of
from gaam_cache.extraction.job import CheckedRows, prepare_job, provenance, read_rows
from gaam_cache.extraction.missing import Role, make_missing
from gaam_cache.extraction.summary import ExtractSummary, summarize
from gaam_cache.extraction.tally import Tally
from gaam_cache.placing import placed
from gaam_cache.store.plan import PLAN_FILE, adopt_plan, read_plan
from gaam_cache.store.shard import missing_shards, prepare_folder
from gaam_cache.terminal import Report, in_thread

TELL_SECONDS = 0.2
"""Between two words of a worker on how far it is."""


class Argument(NamedTuple):
    """What a worker is told."""

    config: ExtractConfig
    checked: CheckedRows | None
    """The rows, where they were read for it; None where it reads them itself."""
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
    if config.engine == "local" and _is_complete(config.out):  # workers would look, and end
        job, tally = prepare_job(config, report), Tally()
        made = make_missing(config, job, report, tally)
        return summarize(config, made.plan, job.encoder.facts(), tally, job.rows)
    checked = read_rows(config, report)
    in_thread(prepare_folder, config.out)
    argument = Argument(
        config=placed(config),
        checked=checked if config.engine == "local" else None,
        start=rank.start if rank else 0.0,
        share=1 / rank.total if rank else 1.0,
        waits=rank is None,
    )
    course = _Course(config, sum(len(part) for part in checked.rows.values()), report)
    began = time.perf_counter()
    task = Task(work, argument, config.out, config.device)
    results = engine.run(task, config, warning_once(course.hear))
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

    job = prepare_job(config, report, checked=argument.checked)
    start = argument.start + argument.share * place.number / place.total
    made = make_missing(config, job, report, tally, Role(start, argument.waits))
    tell("progress", Told(tally.rows, tally.tokens, ""))
    return tally, job.encoder.facts(), made.left


def as_rank(config: ExtractConfig, rank: Rank, report: Report) -> ExtractSummary:
    """Be one of several workers that somebody else started."""
    devices.share_machine(rank.here)
    config = replace(config, device=device_of(rank, config.device))
    job, tally = prepare_job(config, report), Tally()
    made = make_missing(config, job, report, tally, Role(rank.start, waits=False))
    return summarize(config, made.plan, job.encoder.facts(), tally, job.rows, left=made.left)


def _is_complete(out: Path) -> bool:
    return (out / PLAN_FILE).exists() and not missing_shards(out, read_plan(out))


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
