"""What a dry run says of what is known and of what is not."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.cache import EmbeddingCache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import NotFoundError
from gaam_cache.extraction import rate
from gaam_decoder import TrainConfig
from gaam_decoder.studying import Place, estimate, estimating, read_study, running
from gaam_decoder.training.estimate import TrainEstimate
from tests.decoder.studying.tiny_study import (
    RUNS,
    Gaam,
    written,
)

EXTRACTED = """
title = "Tiny"
question = "Is anything there?"

[caches.small]
encoder = "{}"
dataset = "{}"

[[train]]
cache = "small"
attn = ["none"]
seeds = "0-1"
probe = true
epochs = 1
compile = "off"

[[report]]
name = "one"
title = "One"
"""


def left_out(here: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(here / "studies" / name)


@pytest.mark.parametrize(
    ("missing", "unknown", "said"),
    [
        (("caches", "tiny"), 2, "and what is not known: 2 of 5 commands have no estimate"),
        (("caches/again",), 1, "and what is not known: 1 of 5 commands have no estimate"),
        (("tiny",), 0, "# together about"),
        ((), 0, "# nothing is left to be made"),
    ],
)
def test_a_dry_run_says_what_it_does_not_know(
    missing: tuple[str, ...], unknown: int, said: str, here: Path, gaam: Gaam
) -> None:
    left_out(here, *missing)
    told = gaam("study", "tiny", "--dry-run")
    assert said in told.out.splitlines()[-1]
    assert told.out.count("no estimate") == unknown + (unknown > 0)
    values = json.loads(gaam("study", "tiny", "--dry-run", "--json").out)
    assert values["seconds"] is not None
    assert values["unknown"] == unknown


def test_an_ablation_has_an_estimate_when_its_run_is_there(here: Path, gaam: Gaam) -> None:
    for run in (here / RUNS).iterdir():
        if run.is_dir() and json.loads((run / "run.json").read_text())["recipe"]["layers"]:
            shutil.rmtree(run)
    told = json.loads(gaam("study", "tiny", "--dry-run", "--json").out)
    (ablation,) = [one for one in told["commands"] if one["command"].startswith("gaam ablate")]
    assert ablation["cost"] == "18 trainings"
    assert ablation["seconds"] > 0


def test_a_dry_run_writes_nothing(here: Path, gaam: Gaam) -> None:
    shutil.rmtree(here / "studies")
    told = gaam("study", "tiny", "--dry-run", "--json")
    assert told.code == 0
    commands = [one["command"].split()[1] for one in json.loads(told.out)["commands"]]
    assert commands == ["plant", "plant", "train", "train", "ablate"]
    assert not (here / "studies").exists()


Asked = list[tuple[TrainConfig, dict[str, Any], int]]
"""What the estimate of trainings was asked: of what, on a cache of which shape, and trainings."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found: Asked = []
    meant = estimating.estimate_training

    def noted(config: TrainConfig, cache: EmbeddingCache | None = None) -> TrainEstimate:
        said = meant(config, cache)
        there = gaam_cache.open_cache(config.cache) if cache is None else cache
        found.append((config, shape(there), sum(run.num_seeds for run in said.runs)))
        return said

    monkeypatch.setattr(estimating, "estimate_training", noted)
    return found


def shape(cache: EmbeddingCache) -> dict[str, Any]:
    names = "num_layers", "hidden_size", "pooling", "storage_dtype", "class_names", "rows"
    plan = asdict(cache.plan)
    return {name: plan[name] for name in (*names, "shard_rows")} | {"first": cache.first_layer}


def test_trainings_are_estimated_alike_before_their_cache_is_there_and_after(
    here: Path, asked: Asked
) -> None:
    recipe, place = read_study("tiny"), Place(out=Path("studies"))
    shutil.rmtree(here / "studies/tiny")
    after = [cost.words for cost in estimate(recipe, place)][2:]
    of_after = asked.copy()
    asked.clear()
    shutil.rmtree(here / "studies/caches")
    before = [cost.words for cost in estimate(recipe, place)][2:]
    assert before == after == ["21 trainings", "13 trainings", "18 trainings"]
    assert asked == of_after  # of the same options on caches of the same shape, as often


def test_an_ablation_is_estimated_alike_before_its_run_is_there_and_after(
    here: Path, asked: Asked
) -> None:
    for run in (here / RUNS).iterdir():
        if run.is_dir() and json.loads((run / "run.json").read_text())["recipe"]["layers"]:
            shutil.rmtree(run)
    recipe, place = read_study("tiny"), Place(out=Path("studies"))
    after = list(estimate(recipe, place))[-1]
    of_after = asked[-3:]
    shutil.rmtree(here / "studies/tiny")
    before = list(estimate(recipe, place))[-1]
    assert before.words == after.words == "18 trainings"
    for (config, of_cache, count), (other, of_other, as_many) in zip(
        asked[-3:], of_after, strict=True
    ):
        assert (of_cache, count) == (of_other, as_many)
        assert len(config.layer_sets[0]) == len(other.layer_sets[0]) == 2
        free = {"layers": None, "lr": 1e-3, "runs": Path(), "pool": None, "cache": Path()}
        assert replace(config, **free) == replace(other, **free)


def test_runs_that_may_be_there_are_said_to_be_so(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_cache(*run: object, **options: object) -> None:  # it knows of that of another study
        raise NotFoundError("no cache")

    left_out(here, "caches")
    monkeypatch.setattr(estimating, "trainings", no_cache)
    costs = list(estimate(read_study("tiny"), Place(out=Path("studies"))))
    words = [cost.words for cost in costs]
    assert words[2:] == ["up to 21 trainings", "up to 13 trainings", "up to 18 trainings"]


def test_runs_on_a_cache_that_is_to_be_extracted_again_are_found(
    tiny_config: ExtractConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fingerprint is known before it is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rate, "SAMPLE_SECONDS", 0.05)
    written(tmp_path, EXTRACTED.format(tiny_config.encoder, tiny_config.dataset))
    recipe, place = read_study("tiny"), Place(out=Path("studies"))
    words = [cost.words for cost in estimate(recipe, place)]
    assert words == ["", "3 trainings"]  # two seeds and the probe
    assert not (tmp_path / "studies").exists()
    running.run(recipe, place, quiet=True, say=lambda line: None)
    shutil.rmtree(tmp_path / "studies/caches")
    words = [cost.words for cost in estimate(recipe, place)]
    assert words == ["", "is there"]


def test_what_needs_a_cache_that_cannot_be_made_has_no_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, EXTRACTED.format("nowhere", "nothing.csv"))
    costs = list(estimate(read_study("tiny"), Place(out=Path("studies"))))
    assert [cost.seconds for cost in costs] == [None, None]
    assert costs[0].words.startswith("no estimate: ")
    assert costs[1].words == "no estimate before the cache 'small' is there"


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_workers_with_a_device_each_share_the_time(
    workers: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = estimating.estimate_training
    alone: list[float] = []

    def shared(config: TrainConfig, cache: EmbeddingCache | None = None) -> TrainEstimate:
        found = real(config, cache)
        alone.append(found.seconds)
        return replace(found, workers=workers)

    monkeypatch.setattr(estimating, "estimate_training", shared)
    shutil.rmtree(here / "studies/tiny")
    costs = estimate(read_study("tiny"), Place(out=Path("studies")))
    assert sum(cost.seconds or 0 for cost in costs) == pytest.approx(sum(alone) / workers)
