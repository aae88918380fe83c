"""The shards that a cache lacks, made by this process."""

from __future__ import annotations

import time
from typing import NamedTuple

from gaam_cache.config import ExtractConfig
from gaam_cache.engines._claims import Claims
from gaam_cache.extraction.job import Job, make_plan, provenance, warn
from gaam_cache.extraction.pipeline import make_shards
from gaam_cache.extraction.repair import discard_broken
from gaam_cache.extraction.tally import Tally
from gaam_cache.extraction.undone import CLAIM_FOLDER, order_of_work
from gaam_cache.extraction.unstorable import Unstorable
from gaam_cache.extraction.worker import ShardWorker
from gaam_cache.store.files import storage_errors
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, adopt_plan, write_plan
from gaam_cache.store.shard import missing_shards, prepare_folder
from gaam_cache.terminal import Report, in_thread


class Role(NamedTuple):
    """What a process is among those that work on a cache."""

    start: float | None = None
    """Where in the order of work to begin, in [0, 1); None: at the first shard of a cache that we
    began, else anywhere."""
    waits: bool = True
    """Until every shard is there, whoever makes it."""


ALONE = Role()


class Made(NamedTuple):
    """What came of it."""

    plan: Plan
    left: str | None = None
    """Who makes what is left; None where every shard is there."""


def adopted(config: ExtractConfig, job: Job) -> Plan | None:
    """The plan that is there, what is broken beside it taken away; None where there is none.

    Raises:
        ConfigError: it is that of another cache.
    """
    with storage_errors(config.out / PLAN_FILE):
        there = (config.out / PLAN_FILE).exists()
    if not there:
        return None
    plan = adopt_plan(config.out, job.fields, provenance(config, job.rows))
    broken = in_thread(discard_broken, config.out, plan)
    warn([f"{name} is made again: {why}" for name, why in broken.items()], stacklevel=5)
    return plan


def make_missing(
    config: ExtractConfig, job: Job, report: Report, tally: Tally, role: Role = ALONE
) -> Made:
    """Make what is missing.

    Args:
        config: of the extraction.
        job: which was prepared for it.
        report: told (rows done, rows in all, what is going on).
        tally: counts what is done.
        role: of this process among others.
    """
    encoder, rows = job.encoder, job.rows
    plan = adopted(config, job)
    if plan is not None and not missing_shards(config.out, plan):
        tidy(config, plan)  # a complete cache costs no model load
        return Made(plan)
    in_thread(prepare_folder, config.out)
    total = sum(len(part) for part in rows.values())
    report(0, total, "loading the encoder")
    encoder.load()
    ours = plan is None
    if plan is None:  # what is written now was measured on the loaded encoder
        planned = make_plan(config, job)
        plan = in_thread(write_plan, config.out, planned)
        ours = plan is planned
    with storage_errors(config.out / SHARD_FOLDER):
        missing = set(missing_shards(config.out, plan))
    todo = [shard for shard in plan.shards() if shard.name in missing]
    todo = order_of_work(todo, 0.0 if ours and role.start is None else role.start)
    left, start = None, time.perf_counter()
    if todo:
        worker = ShardWorker(config, plan, encoder, rows, tally)
        claims = config.out / CLAIM_FOLDER
        try:
            left = make_shards(worker, todo, claims, total, report, waits=role.waits)
        except Unstorable as error:
            raise worker.explain(error) from None
    tally.seconds = time.perf_counter() - start
    if left is None:
        tidy(config, plan)
    return Made(plan, left)


def tidy(config: ExtractConfig, plan: Plan) -> None:
    """Remove what workers told each other; to be called when every shard is there."""
    Claims(config.out / CLAIM_FOLDER).clear({shard.name for shard in plan.shards()})
