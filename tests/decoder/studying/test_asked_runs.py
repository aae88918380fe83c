"""A study reports the runs that its recipe asks for: no more, and all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_decoder.runs.loading import load_runs
from tests.decoder.studying.tiny_study import (
    ABLATION,
    RECIPE,
    RUNS,
    Gaam,
    contents,
    written,
)


def trained_by_hand(gaam: Gaam) -> str:
    asked = ["--attn", "layer-mean", "--seeds", "2,3", "--epochs", "1", "--no-probe", "-q"]
    assert gaam("train", "--cache", CACHE, "--runs", RUNS, *asked).code == 0
    return RECIPE


CACHE = "studies/caches/small"
CHANGED: dict[str, tuple[Callable[[Gaam], str], list[str]]] = {
    "another mechanism": (lambda _: RECIPE.replace('"gaam:heads=1", ', ""), ["gaam_heads_1-"]),
    "fewer seeds": (lambda _: RECIPE.replace("2-7", "2-6", 1), 2 * ["-s2-7 (seeds 7)"]),
    "no ablation": (lambda _: RECIPE.replace(ABLATION, ""), 3 * ["laplace_heads_1-"]),
    "by hand": (trained_by_hand, ["layer-mean-linear-"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_runs_that_nobody_asked_for_are_named_and_nothing_is_reported(
    here: Path, gaam: Gaam, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    changed, expected = CHANGED[change]
    recipe = changed(gaam)
    written(here, recipe)
    before = contents(here)
    for option in ("--check", "--record", "--json"):
        refused = gaam("study", "tiny", option)
        assert refused.code == 2
        assert "does not ask for" in refused.err
        assert contents(here) == before
    (line,) = [line for line in refused.err.splitlines() if line.startswith("  found:")]
    named = line.removeprefix("  found:").strip().split("; ")
    assert len(named) == len(expected)
    for name, part in zip(named, expected, strict=True):
        assert part in name
        shutil.move(here / RUNS / name.split(" ")[0], here / name.split(" ")[0])
    if change != "fewer seeds":  # whose others are to be trained
        assert gaam("study", "tiny").code == 0


def test_runs_that_are_missing_are_named_and_nothing_is_reported(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.studying.outcome.run", lambda *_, **__: None)
    runs = sorted((here / "studies/tiny/runs").iterdir())
    for run in runs:
        run.rename(here / run.name)
        refused = gaam("study", "tiny")
        assert refused.code == 2, run.name
        assert "are missing" in refused.err
        (here / run.name).rename(run)


TUNED = 'tune-seeds = "0-1"\nseeds = "2-7"'
OTHERS_CHOOSE = {
    "none": (TUNED, 'seeds = "0-7"'),
    "others": (TUNED, 'tune-seeds = "0-2"\nseeds = "3-7"'),
}


@pytest.mark.parametrize("change", OTHERS_CHOOSE)
def test_runs_where_other_seeds_chose_are_refused_before_anything_is_trained(
    here: Path, gaam: Gaam, change: str
) -> None:
    recipe = RECIPE.replace(ABLATION, "")
    written(here, recipe)
    for run in load_runs(here / RUNS):
        if run.recipe.get("layers"):  # of the ablation
            shutil.rmtree(run.path)
    assert gaam("study", "tiny").code == 0
    written(here, recipe.replace(*OTHERS_CHOOSE[change]))
    before = contents(here)
    refused = gaam("study", "tiny")
    assert refused.code == 2
    assert "(trained where seeds 0-1 choose)" in refused.err
    assert contents(here) == before
    fresh = gaam("study", "tiny", "--out", "others")
    assert fresh.code == 0


def test_runs_where_no_seed_chose_are_refused_when_the_recipe_lets_some(
    tmp_path: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = RECIPE.replace(ABLATION, "").replace(TUNED, 'seeds = "0-7"')
    written(tmp_path, recipe)
    assert gaam("study", "tiny").code == 0
    written(tmp_path, RECIPE.replace(ABLATION, ""))
    refused = gaam("study", "tiny")
    assert refused.code == 2
    assert "(trained where no seeds choose)" in refused.err
