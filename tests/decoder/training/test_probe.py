"""Heads that are fitted at once, and the linear probe that stands beside every sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder import TrainConfig, load_runs
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.heads import lbfgs
from gaam_decoder.runs.listing import verify
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.training import probe
from gaam_decoder.training.items import plan_items
from gaam_decoder.training.rows.data import prepare_data
from tests.conftest import Outcome

MECHANISMS = plugins.names("gaam_decoder.attention")


def learns(attention: str) -> bool:
    spec = DecoderSpec(
        attention=parse_attention(attention),
        head=parse_head("linear"),
        num_layers=6,
        hidden_size=32,
        num_classes=2,
    )
    return build_decoder(spec, 0).num_parameters()["attention"] > 0


FREE = [name for name in MECHANISMS if not learns(name)]
LEARNING = [name for name in MECHANISMS if learns(name)]


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("none",), head="lbfgs", cache=tiny_cache, runs=tmp_path / "runs", seeds=(3, 5),
        epochs=2,
    )  # fmt: skip


def rows_that(config: TrainConfig) -> Any:
    """Rows as the other heads have them."""
    cache = open_cache(config.cache)
    (item,) = plan_items(replace(config, probe=False), cache, torch.device("cpu"))
    return prepare_data(cache, item.recipe, torch.device("cpu"))


@pytest.mark.parametrize("attention", FREE)
@pytest.mark.parametrize("select", ["val", "test"])
def test_every_mechanism_without_parameters_has_one_run_with_one_seed(
    attention: str, select: str, config: TrainConfig
) -> None:
    config = replace(config, attn=(attention,), select=select)
    (run,) = gaam_decoder.train(config)
    assert run.seeds == (0,)
    assert run.fit["tried"] == len(run.log) == 40
    assert run.epochs[0] == run.fit["kept"]
    assert run.log[run.fit["kept"] - 1]["C"] == run.fit["value"]
    assert "C " in run.summary()
    assert "seed" not in run.summary().replace(str(run.path), "")
    assert gaam_decoder.train(config)[0].path == run.path
    assert verify(config.runs).good
    assert (run.attention_map is not None) == (attention == "gct")  # the only one that has one


@pytest.mark.parametrize("attention", LEARNING)
def test_what_learns_is_refused_and_says_why(attention: str, config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match="learns nothing") as caught:
        gaam_decoder.train(replace(config, attn=(attention,)))
    assert "cannot be built" in str(caught.value)
    assert "--attn none --head lbfgs" in str(caught.value)


def test_an_option_with_which_a_mechanism_learns_counts(config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match="learns nothing"):
        gaam_decoder.train(replace(config, attn=("gct:learn_scale=true",)))


def test_without_rows_that_choose_it_is_refused(config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match="--select val"):
        gaam_decoder.train(replace(config, select="last"))


def test_it_learns_from_the_rows_of_the_other_heads(config: TrainConfig) -> None:
    (run,) = gaam_decoder.train(config)
    data = rows_that(config)
    cache = open_cache(config.cache)
    x = torch.from_numpy(cache["train"].embeddings[:]).float()
    head = lbfgs.LBFGSHead(6, 32, 2)
    parts = [
        lbfgs.Examples(x[one.rows].flatten(1), one.label_N) for one in (data.train, data.selection)
    ]
    fit = head.fit(parts[0], parts[1], lambda done, text: None)
    assert fit.to_dict() == run.fit
    logits = head(torch.from_numpy(cache["test"].embeddings[:]).float()).detach()
    np.testing.assert_allclose(run.logits[0], logits, atol=1e-5)


def test_settings_of_steps_make_no_second_row(config: TrainConfig) -> None:
    (run,) = gaam_decoder.train(config)
    other = replace(
        config, lr=(1e-4, 1e-3), epochs=9, batch_size=7, weight_decay=0.5, schedule="plateau",
        clip_grad_norm=1.0, dtype="bfloat16", loss="focal", seeds=(1,), seed_batch=2,
    )  # fmt: skip
    (same,) = gaam_decoder.train(other)
    assert same.path == run.path
    assert not {"lr", "epochs", "loss", "dtype"} & run.recipe.keys()


def test_folds_poolings_and_layers_are_part_of_the_sweep(config: TrainConfig) -> None:
    config = replace(config, folds=3, layers=(None, (1, 2)))
    runs = gaam_decoder.train(config)
    assert [run.recipe["fold"] for run in runs] == ["1/3", "2/3", "3/3"] * 2
    text = str(gaam_decoder.report(runs))
    assert "(fold 2/3): C " in text


def test_a_kill_leaves_nothing_and_the_next_call_ends_with_the_same(config: TrainConfig) -> None:
    def interrupt(done: int, total: int, text: str) -> None:
        if done >= 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=interrupt)
    assert not list(config.runs.glob("*lbfgs*"))
    assert not list(config.runs.glob(".*.partial"))
    (run,) = gaam_decoder.train(config)
    (other,) = gaam_decoder.train(replace(config, runs=config.runs / "undisturbed"))
    assert (run.path / "weights.safetensors").read_bytes() == (
        other.path / "weights.safetensors"
    ).read_bytes()


def test_progress_counts_what_is_tried(config: TrainConfig) -> None:
    seen: list[tuple[int, int]] = []
    gaam_decoder.train(config, progress=lambda done, total, text: seen.append((done, total)))
    assert seen[-1] == (40, 40)


def test_a_fit_that_does_not_converge_is_a_warning_and_stands_in_the_run(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lbfgs, "MOST_ITERATIONS", 2)
    with pytest.warns(GaamWarning, match="did not converge for"):
        (run,) = gaam_decoder.train(config)
    assert run.fit["unconverged"]
    assert "did not converge" in run.summary()
    assert "did not converge" in str(gaam_decoder.report(run))


@pytest.mark.parametrize("attention", [name for name in FREE if name != "none"])
def test_a_sweep_has_a_probe_of_its_own_at_its_end(attention: str, config: TrainConfig) -> None:
    config = replace(config, attn=(attention, "gaam"), head="linear", probe=True)
    planned = gaam_decoder.estimate(config).runs
    runs = gaam_decoder.train(config)
    found = [(run.attention, run.head) for run in runs]
    assert found == [(attention, "linear"), ("gaam", "linear"), ("none", "lbfgs")]
    assert [run.title for run in planned] == [run.title for run in runs]
    assert planned[-1].seeds == (0,)


def test_it_is_added_for_every_pooling_set_of_layers_and_fold_and_once_for_all_rates(
    config: TrainConfig,
) -> None:
    config = replace(
        config, head="linear", probe=True, lr=(1e-3, 1e-2), layers=(None, (1, 2)), folds=2
    )
    items = plan_items(config, open_cache(config.cache), torch.device("cpu"))
    added = [item for item in items if item.spec.head.name == "lbfgs"]
    assert len(items) == 8 + 4
    assert items[-4:] == added
    assert len({item.key for item in added}) == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"probe": False}, None),
        ({"head": ("linear", "lbfgs")}, None),
        ({"select": "last"}, "--select last chooses nothing"),
    ],
)
def test_where_it_is_not_added(
    change: dict[str, Any], why: str | None, config: TrainConfig, recwarn: pytest.WarningsRecorder
) -> None:
    config = replace(config, **{"head": "linear", "probe": True} | change)
    items = plan_items(config, open_cache(config.cache), torch.device("cpu"))
    heads = [str(item.spec.head) for item in items]
    assert heads == list(config.head)
    said = [str(one.message) for one in recwarn if "left out" in str(one.message)]
    assert bool(said) == (why is not None)
    assert why is None or why in said[0]


def test_what_is_too_expensive_is_left_out_and_said_but_done_where_asked_for(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = replace(config, head="linear", probe=True)
    for name, value, why in (("MOST_SECONDS", 0.0, "minutes"), ("MEMORY_SHARE", 0.0, "memory")):
        with monkeypatch.context() as patch:
            patch.setattr(probe, name, value)
            with pytest.warns(GaamWarning, match=f"left out.*{why}.*--head lbfgs asks for it"):
                assert len(gaam_decoder.train(both)) == 1
            assert len(gaam_decoder.train(config)) == 1


@pytest.mark.parametrize("format", plugins.names("gaam_decoder.reports.formats"))
def test_every_format_shows_it_beside_what_was_trained(format: str, config: TrainConfig) -> None:
    runs = gaam_decoder.train(replace(config, attn=("gaam",), head="linear", probe=True))
    report = gaam_decoder.report(runs)
    text = report.text(format)
    assert "lbfgs" in text
    labels = report.tables[0].labels()
    assert sorted(labels) == ["gaam", "none + lbfgs"]
    assert report.tables[0].settings() == ["", ""]
    assert report.tables[0].baseline is None  # a probe is no counterpart of anything
    if format in ("terminal", "markdown", "html"):
        assert "chosen from 40" in text or format == "terminal"
        assert "no control" in text.lower()


def test_pictures_are_drawn_with_it(config: TrainConfig) -> None:
    gaam_decoder.train(replace(config, attn=("gaam", "none"), head="linear", probe=True))
    assert gaam_decoder.report(config.runs).save_figures(config.runs / "figures")


def test_the_commands_take_it(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    options = ["--cache", tiny_cache, "--runs", tmp_path / "runs", "--device", "cpu"]
    few = ["--seeds", "4-5", "--epochs", 1]
    said = gaam("train", "--attn", "gct", "--probe", *few, *options)
    assert said.code == 0, said.err
    assert "none + lbfgs, pool mean: " in said.out
    again = gaam("train", "--attn", "gct", "--head", "lbfgs", "--json", *options)
    (about,) = json.loads(again.out)
    assert [seed["seed"] for seed in about["seeds"]] == [0]
    assert about["fit"]["setting"] == "C"
    assert gaam("verify", tmp_path / "runs").code == 0
    assert "chosen from 40" in gaam("inspect", tmp_path / "runs").out
    assert "lbfgs" in gaam("describe").out
    ablated = gaam("ablate", about["path"], "--num-layers", 2, "--device", "cpu")
    assert ablated.code in (0, 1), ablated.err
    assert len([run for run in load_runs(tmp_path / "runs") if run.fit]) in (2, 5)
    dry = gaam("train", "--attn", "gct", "--probe", "--dry-run", *few, *options)
    assert "none + lbfgs, pool mean: all seeds are there" in dry.out


def test_a_tracked_fit_has_curves(config: TrainConfig) -> None:
    pytest.importorskip("tensorboard")
    gaam_decoder.train(replace(config, track="tensorboard"))
    assert list((config.runs / "tensorboard").rglob("events*"))
