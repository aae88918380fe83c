"""The single pass: rows -> encoder -> shards, by this process or by workers."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from gaam_cache import devices
from gaam_cache.config import ExtractConfig, placed
from gaam_cache.engines._base import (
    Place,
    Rank,
    Task,
    Tell,
    device_of,
    find_rank,
    load_engine,
    warning_once,
)
from gaam_cache.extraction.job import CheckedRows, read_rows, warn
from gaam_cache.extraction.pipeline import make_missing
from gaam_cache.extraction.summary import ExtractSummary, Tally
from gaam_cache.sources._base import find_source, truncation
from gaam_cache.store.files import check_folder
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_cache.store.shard import missing_shards, prepare_folder
from gaam_cache.terminal import Report, silent

TELL_SECONDS = 0.2  # between two words of a worker on how far it is


def extract(config: ExtractConfig, *, progress: Report | None = None) -> ExtractSummary:
    """Build a cache, or complete one.

    A shard that has its receipt is never made again: an interrupted extraction goes on where it
    stopped and ends with the same bytes. Where this process is one of several that somebody else
    started (see ``find_rank``), it returns when others are at work on all that is left.

    >>> config = gaam_cache.ExtractConfig(encoder="tfidf", out="words")
    >>> gaam_cache.extract(config).num_layers
    1

    Args:
        config: what to encode, with what, and where to.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        GaamError: an argument or a row cannot be used, the hub or the file system refused, or a
            state cannot be stored or is not that of its text alone (NumericsError).

    Warns:
        GaamWarning: splits share texts, a text has several labels, a split lacks a class, or more
            than 1% of the rows are cut; or a worker died.
    """
    config = find_source(config.dataset).settled(config)
    report, rank = progress or silent, find_rank(config.rank)
    check_folder(config.out, option="--out")
    if not config.alone and _rows_missing(config):  # else workers would look, and end
        summary = _by_engine(config, rank, report)
    elif rank is None:
        summary = make_missing(config, report, Tally())
    else:
        devices.share_machine(rank.here)
        config = replace(config, device=device_of(rank, config.device))
        summary = make_missing(config, report, Tally(), start=rank.start, waits=False)
    made, cut = summary.rows_made, summary.truncated
    warn(truncation(made, cut, summary.max_length, summary.unit))
    return summary


def _by_engine(config: ExtractConfig, rank: Rank | None, report: Report) -> ExtractSummary:
    """Let the workers of an engine build a cache; rows are read here, once."""
    engine = load_engine(config)
    engine.check(config.device, config)
    checked = read_rows(config, report)
    prepare_folder(config.out)
    total, tokens = sum(map(len, checked.rows.values())), 0
    done = total - int(min(total, _rows_missing(config)))
    began, at_work = time.perf_counter(), set[int]()

    def hear(worker: int, kind: str, value: Any) -> None:
        nonlocal done, tokens
        if kind == "waiting":
            report(0, 0, value)
        elif kind == "progress":
            rows, more_tokens, text = value
            at_work.add(worker)
            done, tokens = min(total, done + rows), tokens + more_tokens
            speed = tokens / (time.perf_counter() - began)
            many = f"workers: {len(at_work)}, {speed:,.0f} tokens/s"
            report(done, total, many if tokens else text)

    # a worker elsewhere reads the rows itself
    argument = placed(config), checked if config.engine == "local" else None, rank
    task = Task(_work, argument, config.out, config.device)
    summaries: list[ExtractSummary] = engine.run(task, config, warning_once(hear))
    # where one of them saw that nothing is left, nothing is
    summary, *others = sorted(summaries, key=lambda one: one.missing)
    for other in others:
        summary.add(other)
    summary.workers, summary.seconds = len(summaries), time.perf_counter() - began
    return summary


def _rows_missing(config: ExtractConfig) -> float:
    """Rows of the shards that a cache lacks; infinite where it has no plan yet."""
    if not (config.out / PLAN_FILE).exists():
        return math.inf
    plan = read_plan(config.out)
    missing = set(missing_shards(config.out, plan))
    return sum(shard.stop - shard.start for shard in plan.shards() if shard.name in missing)


def _work(
    argument: tuple[ExtractConfig, CheckedRows | None, Rank | None], place: Place, tell: Tell
) -> ExtractSummary:
    """Be one worker: make shards until none is missing."""
    config, checked, rank = argument
    tally, told, last = Tally(), (0, 0), 0.0

    def report(done: int, total: int, text: str) -> None:
        nonlocal told, last
        if (now := time.monotonic()) - last >= TELL_SECONDS:
            new = tally.rows_made, tally.tokens
            tell("progress", (new[0] - told[0], new[1] - told[1], text))
            told, last = new, now

    start = ((rank.start if rank else 0.0) + place.number / place.total) % 1
    config = replace(config, device=place.device)
    summary = make_missing(config, report, tally, checked=checked, start=start, waits=rank is None)
    last = 0.0
    report(0, 0, "")
    return summary
