"""Heads that are fitted at once, and the linear probe that stands beside every sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_cache.store.reader import open_cache
from gaam_decoder import TrainConfig
from gaam_decoder.heads import lbfgs
from gaam_decoder.inspect import list_runs
from gaam_decoder.training import probe
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.experiments import plan_experiments


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(lr=3e-4,
        attn=("none",), head="lbfgs", cache=tiny_cache, runs=tmp_path / "runs", seeds=(3, 5),
        epochs=2, probe=False,
    )  # fmt: skip


def rows_that(config: TrainConfig) -> Any:
    """Rows as the other heads have them."""
    cache = open_cache(config.cache)
    (experiment,) = plan_experiments(
        replace(config, probe=False), cache, torch.device("cpu")
    )
    return prepare_data(cache, experiment.recipe, torch.device("cpu"))


@pytest.mark.parametrize("attention", ["none", "gct"])
def test_every_mechanism_without_parameters_has_one_run_with_one_seed(
    attention: str, config: TrainConfig
) -> None:
    config = replace(config, attn=(attention,))
    (run,) = gaam_decoder.train(config)
    assert run.seeds == (0,)
    assert run.fit.tried == len(run.log) == 40
    assert run.epochs[0] == run.fit.kept
    assert run.log[run.fit.kept - 1]["C"] == run.fit.value
    assert "C " in run.summary()
    assert "seed" not in run.summary().replace(str(run.path), "")
    assert gaam_decoder.train(config)[0].path == run.path
    assert list_runs(config.runs, whole=True).good
    assert (run.attention_map is not None) == (
        attention == "gct"
    )  # the only one that has one


def test_it_learns_from_the_rows_of_the_other_heads(config: TrainConfig) -> None:
    (run,) = gaam_decoder.train(config)
    data = rows_that(config)
    cache = open_cache(config.cache)
    x = torch.from_numpy(cache["train"].embeddings[:]).float()
    head = lbfgs.LBFGSHead(6, 32, 2)
    parts = [
        lbfgs.Examples(x[one.rows].flatten(1), one.label_N)
        for one in (data.train, data.selection)
    ]
    fit = head.fit(parts[0], parts[1], lambda done, text: None)
    assert fit.to_dict() == run.fit.to_dict()
    logits = head(torch.from_numpy(cache["test"].embeddings[:]).float()).detach()
    np.testing.assert_allclose(run.logits[0], logits, atol=1e-5)


def test_what_is_too_expensive_is_left_out_and_said_but_done_where_asked_for(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = replace(config, head="linear", probe=True)
    for name in ("MOST_SECONDS", "MEMORY_SHARE"):
        with monkeypatch.context() as patch:
            patch.setattr(probe, name, 0.0)
            with pytest.warns(GaamWarning, match="--attn none --head lbfgs"):
                assert len(gaam_decoder.train(both)) == 1
            assert len(gaam_decoder.train(config)) == 1
