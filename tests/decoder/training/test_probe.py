"""Heads that are fitted at once, and the linear probe beside every sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.common.errors import ConfigError, GaamWarning, ShortOfMemoryError
from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.heads import lbfgs
from gaam_decoder.heads.base import Examples
from gaam_decoder.inspect import list_runs
from gaam_decoder.training import probe
from gaam_decoder.training.data import Subset, prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.decoder.configs import change, train_config, train_single_run

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        lr=3e-4,
        attn=("none",),
        head="lbfgs",
        seeds=(3, 5),
        epochs=2,
    )


@pytest.mark.parametrize(
    ("attention", "has_map"), [("none", False), ("gct", True)], ids=["none", "gct"]
)
def test_every_mechanism_without_parameters_has_one_run_with_one_seed(
    attention: str, has_map: bool, config: TrainConfig
) -> None:
    run = train_single_run(config, attn=(attention,))
    assert run.seeds == (0,)
    fit = run.fit
    assert fit is not None
    assert fit.tried == len(run.log) == 40
    assert run.epochs[0] == fit.kept
    assert run.log[fit.kept - 1]["C"] == fit.value
    assert "C " in run.summary()
    assert "seed" not in run.summary().replace(str(run.path), "")
    assert (run.attention_map is not None) == has_map
    again = train_single_run(config, attn=(attention,))
    assert again.path == run.path
    assert list_runs(config.runs, whole=True).good


@pytest.mark.parametrize(
    "head", ["class-means", "knn", "lbfgs", "nadaraya-watson", "ridge"]
)
@pytest.mark.parametrize(
    ("attention", "select", "message", "found"),
    [
        ("gaam", "val", "mechanism without parameters", "--attn gaam:heads=2, which"),
        ("gaam", "last", "mechanism without parameters", "--attn gaam:heads=2, which"),
        ("none", "last", "needs validation rows", "--select last"),
    ],
    ids=["parameters", "both", "no validation rows"],
)
def test_a_fitted_head_says_what_it_lacks(
    attention: str,
    select: Literal["val", "last"],
    message: str,
    found: str,
    head: str,
    config: TrainConfig,
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        gaam_decoder.train(
            change(config, attn=(attention,), head=(head,), select=select)
        )
    assert f"--head {head}" in caught.value.message
    assert caught.value.details["found"].startswith(found)
    assert "penalty" not in str(caught.value)


def test_progress_counts_epochs_and_no_tried_values(config: TrainConfig) -> None:
    progress: set[tuple[int, int]] = set()
    gaam_decoder.train(
        change(config, head=("linear", "lbfgs")),
        progress=lambda done, total, text: progress.add((done, total)),
    )
    assert {total for _done, total in progress} == {4}
    assert max(progress) == (4, 4)


def test_it_learns_from_the_rows_of_the_other_heads(config: TrainConfig) -> None:
    run = train_single_run(config)
    cache = open_cache(config.cache)
    [experiment] = plan_experiments(config, cache, CPU)
    data = prepare_data(cache, experiment.recipe, CPU)
    assert data.selection is not None
    x_NLD = torch.from_numpy(cache["train"].embeddings[:]).float()

    def examples(rows: Subset) -> Examples:
        return Examples(x_NLD[rows.rows].flatten(1), rows.label_N)

    def ignore_progress(done: int, text: str) -> None:
        pass

    head = lbfgs.LBFGSHead(6, 32, 2)
    fit = head.fit(examples(data.train), examples(data.selection), ignore_progress)
    assert run.fit is not None
    assert fit.to_dict() == run.fit.to_dict()
    test_NLD = torch.from_numpy(cache["test"].embeddings[:]).float()
    np.testing.assert_allclose(run.logits[0], head(test_NLD).detach(), atol=1e-5)


@pytest.mark.parametrize("limit", ["MOST_SECONDS", "MEMORY_SHARE"])
def test_a_probe_that_is_too_expensive_is_left_out_with_a_warning(
    limit: str, config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained where it is asked for as a head."""
    monkeypatch.setattr(probe, limit, 0.0)
    beside = change(config, head="linear", probe=True)
    with pytest.warns(GaamWarning, match="--attn none --head lbfgs"):
        assert len(gaam_decoder.train(beside)) == 1
    assert len(gaam_decoder.train(config)) == 1


def test_a_fit_larger_than_the_free_memory_is_refused_before_it_begins(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "free_fit_memory", lambda device: 1000)
    with pytest.raises(ShortOfMemoryError, match="needs more memory than is free"):
        gaam_decoder.train(config)
