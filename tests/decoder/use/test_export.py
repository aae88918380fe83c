"""An exported decoder is the decoder, bit for bit; what is none is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import gaam_decoder
from gaam_cache import open_cache, plugins
from gaam_cache.errors import ConfigError, GaamError, NotFoundError
from gaam_decoder.decoder import build_attention
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.specs import parse_attention, plugin_options
from gaam_decoder.use import export
from gaam_decoder.use.export import export_run
from gaam_decoder.use.exported import OWN_FILES, WEIGHTS_FILE
from gaam_decoder.use.hub_model import HubDecoder
from tests.conftest import GOLDEN
from tests.decoder.use.exports import train

MECHANISMS = plugins.names("gaam_decoder.attention")
HEADS = plugins.names("gaam_decoder.heads")


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    """Every mechanism with a linear head, and every head without a mechanism."""
    folder = tmp_path_factory.mktemp("runs")
    found = train(tiny_cache, folder, *MECHANISMS, skip_impossible=True)
    return found | train(tiny_cache, folder, "none", head=tuple(HEADS))


@pytest.fixture
def folder(runs: dict[str, RunResult], tmp_path: Path) -> Path:
    """One that is whole."""
    export_run(runs["gaam + linear"].path, tmp_path / "out")
    return tmp_path / "out"


def test_every_mechanism_and_head_comes_back_bit_for_bit(
    runs: dict[str, RunResult], tiny_cache: Path, tmp_path: Path
) -> None:
    trained = {run.attention for run in runs.values()}, {run.head for run in runs.values()}
    assert trained == (set(MECHANISMS), set(HEADS))
    states_NLD = open_cache(tiny_cache)["test"].embeddings[:]
    x_NLD = torch.from_numpy(states_NLD).float()
    for name, run in runs.items():
        out, again = tmp_path / name / "out", tmp_path / name / "again"
        made = export_run(run.path, out)
        assert {path.name for path in out.iterdir()} == set(OWN_FILES)
        assert made.bytes == sum(path.stat().st_size for path in out.iterdir())
        model = HubDecoder.from_pretrained(out)
        model.save_pretrained(again)
        for file in OWN_FILES:
            assert (out / file).read_bytes() == (again / file).read_bytes(), (name, file)
        other = HubDecoder.from_pretrained(again)
        assert other.config == model.config
        kept = model.state_dict()
        plain = safetensors.torch.load_file(out / WEIGHTS_FILE)
        assert {key.removeprefix("ensemble.decoder.") for key in kept} == set(plain)
        assert all(torch.equal(value, kept[key]) for key, value in other.state_dict().items())
        assert not model.training
        p_NC = model(x_NLD)
        assert torch.equal(other(x_NLD), p_NC)
        predicted = gaam_decoder.load(run.path).predict_states(states_NLD)
        found = gaam_decoder.load(out).predict_states(states_NLD)
        assert np.array_equal(found.probabilities_NC, predicted.probabilities_NC), name
        assert np.array_equal(found.agreement_N, predicted.agreement_N)
        np.testing.assert_allclose(p_NC.numpy(), predicted.probabilities_NC, atol=1e-6)
        own_SNC = torch.from_numpy(run.finished_logits()).softmax(-1).mean(0)
        np.testing.assert_allclose(p_NC.numpy(), own_SNC.numpy(), atol=1e-5)


def test_one_seed_is_that_seed(
    runs: dict[str, RunResult], tiny_cache: Path, tmp_path: Path
) -> None:
    states_NLD = open_cache(tiny_cache)["test"].embeddings[:]
    run = runs["gaam + linear"]
    export_run(run.path, tmp_path / "all")
    for seed in run.seeds:
        out = tmp_path / str(seed)
        export_run(run.path, out, seed=seed)
        assert HubDecoder.from_pretrained(out).config.seeds == (seed,)
        p_NC = gaam_decoder.load(run.path, seed=seed).predict_states(states_NLD).probabilities_NC
        for path, chosen in ((out, None), (out, seed), (tmp_path / "all", seed)):
            loaded = gaam_decoder.load(path, seed=chosen)
            assert loaded.seeds == (seed,)
            assert np.array_equal(loaded.predict_states(states_NLD).probabilities_NC, p_NC)
    for path in (run.path, tmp_path / "all"):
        with pytest.raises(ConfigError, match="no seed 7"):
            gaam_decoder.load(path, seed=7)
    with pytest.raises(ConfigError, match="no seed 7"):
        export_run(run.path, tmp_path / "none", seed=7)
    assert not (tmp_path / "none").exists()


def test_texts_are_predicted_as_by_the_run(
    runs: dict[str, RunResult], tiny_cache: Path, folder: Path
) -> None:
    run = runs["gaam + linear"]
    encoder = str(tiny_cache.parent / "encoder")
    texts = ["goal cup", "bank", "vote star team"]
    found = gaam_decoder.load(folder, encoder=encoder).predictions(texts)
    expected = gaam_decoder.load(run.path).predictions(texts)
    assert np.array_equal(found.probabilities_NC, expected.probabilities_NC)
    named = gaam_decoder.load(folder, cache=tiny_cache).class_names
    assert named == tuple(run.cache["class_names"])


def test_what_looks_at_other_rows_is_refused(tiny_cache: Path, tmp_path: Path) -> None:
    published = [
        f"{name}:published=true"
        for name in MECHANISMS
        if "published" in plugin_options(plugins.load("gaam_decoder.attention", name, kind="m"))
    ]
    refused = 0
    for run in train(tiny_cache, tmp_path, *published, skip_impossible=True).values():
        out = tmp_path / run.attention
        if build_attention(parse_attention(run.attention), 6, 32).depends_on_batch:
            with pytest.raises(ConfigError, match="rows beside it"):
                export_run(run.path, out)
            assert not out.exists()
            refused += 1
        else:
            export_run(run.path, out)
            assert HubDecoder.from_pretrained(out).config.attention == run.attention
    assert refused


def test_weights_are_never_left_out(folder: Path) -> None:
    HubDecoder.from_pretrained(folder, strict=True)
    with pytest.raises(ConfigError, match="never left out"):
        HubDecoder.from_pretrained(folder, strict=False)


def test_a_folder_of_others_is_never_replaced(runs: dict[str, RunResult], tmp_path: Path) -> None:
    run = runs["gaam + linear"].path
    out = tmp_path / "out"
    out.mkdir()
    export_run(run, out)  # an empty one is free
    before = (out / WEIGHTS_FILE).read_bytes()
    with pytest.raises(ConfigError, match="is there already"):
        export_run(run, out, seed=1)
    assert (out / WEIGHTS_FILE).read_bytes() == before
    export_run(run, out, seed=1, overwrite=True)
    assert (out / WEIGHTS_FILE).read_bytes() != before
    mine, file = tmp_path / "mine", tmp_path / "file"
    shutil.copytree(out, mine)
    (mine / "thesis.tex").write_text("!")
    file.write_text("!")
    (tmp_path / "link").symlink_to(out)
    for place in (mine, file, run, tmp_path / "link"):
        with pytest.raises(ConfigError, match=r"is there already|a file|into itself"):
            export_run(run, place, overwrite=True)
    assert (mine / "thesis.tex").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out", "mine", "file", "link"}


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_there_whole_or_not_at_all(
    there: bool, runs: dict[str, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = runs["gaam + linear"].path, tmp_path / "out"
    if there:
        export_run(run, out)
    before = {path: path.read_bytes() for path in out.rglob("*")}

    def fail(*arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "card", fail)
    with pytest.raises(KeyboardInterrupt):
        export_run(run, out, seed=1, overwrite=True)
    assert {path: path.read_bytes() for path in out.rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * there


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no finished run"):
        export_run(tmp_path, tmp_path / "out")


def test_runs_of_earlier_versions_are_exported_with_their_cache(tmp_path: Path) -> None:
    study = shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "study")
    exported = 0
    for path in sorted((study / "runs").iterdir()):
        run = read_run(path)
        shape = run.cache["layers"], run.cache["hidden_size"]
        if build_attention(parse_attention(run.attention), *shape).depends_on_batch:
            continue
        out = tmp_path / path.name
        export_run(path, out, cache=study / "cache")
        states_NLD = open_cache(study / "cache")[run.recipe["test_split"]].embeddings[:]
        found = HubDecoder.from_pretrained(out)(torch.from_numpy(states_NLD).float())
        own = torch.from_numpy(run.finished_logits()).softmax(-1).mean(0)
        np.testing.assert_allclose(found.numpy(), own.numpy(), atol=1e-5)
        exported += 1
    assert exported
    (study / "cache").rename(tmp_path / "elsewhere")
    with pytest.raises(GaamError, match="does not say how its rows were encoded") as refused:
        export_run(path, tmp_path / "lost")
    assert "--cache" in str(refused.value)
    assert not (tmp_path / "lost").exists()
