"""An exported decoder is the decoder, bit for bit; other folders are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
import gaam_decoder.inspect
from gaam_cache import open_cache
from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError, ConfigError, NotFoundError
from gaam_cache.store.files import sealed_text, unsealed
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import export_run
from gaam_decoder.use.load import CONFIG_FILE, MODEL_FILE, OWN_FILES
from gaam_decoder.use.predictor import Predictions
from tests.decoder.configs import probabilities_of
from tests.decoder.use.exports import train


@pytest.fixture(scope="module")
def runs(
    tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RunResult]:
    """Every mechanism with a linear head, and every head without a mechanism."""
    folder = tmp_path_factory.mktemp("runs")
    mechanisms = plugins.names("gaam_decoder.attention")
    heads = plugins.names("gaam_decoder.heads")
    runs = train(tiny_cache, folder, *mechanisms)
    runs |= train(tiny_cache, folder, "none", head=tuple(heads))
    assert {run.attention.partition(":")[0] for run in runs.values()} == set(mechanisms)
    assert {run.head for run in runs.values()} == set(heads)
    return runs


@pytest.fixture
def run(runs: dict[str, RunResult]) -> Path:
    return runs["mha + linear"].path


@pytest.fixture
def decoder(run: Path, tmp_path: Path) -> Path:
    """An exported decoder."""
    folder = tmp_path / "decoder"
    export_run(run, folder)
    return folder


def test_every_mechanism_and_head_comes_back_bit_for_bit(
    runs: dict[str, RunResult], tiny_cache: Path, tmp_path: Path
) -> None:
    states_NLD = open_cache(tiny_cache)["test"].embeddings[:]
    for name, run in runs.items():
        folder = tmp_path / name / "out"
        export = export_run(run.path, folder)
        files = list(folder.iterdir())
        assert {file.name for file in files} == set(OWN_FILES), name
        assert export.bytes == sum(file.stat().st_size for file in files), name
        expected = gaam_decoder.load(run.path).predict_states(states_NLD)
        predicted = gaam_decoder.load(folder).predict_states(states_NLD)
        assert np.array_equal(
            probabilities_of(predicted), probabilities_of(expected)
        ), name
        assert isinstance(predicted, Predictions)
        assert isinstance(expected, Predictions)
        assert np.array_equal(predicted.agreement_N, expected.agreement_N), name


def test_a_mechanism_that_predicts_a_row_by_others_is_refused(
    tiny_cache: Path, tmp_path: Path
) -> None:
    [run] = train(tiny_cache, tmp_path / "runs", "mha:published=true").values()
    with pytest.raises(ConfigError, match="mha:published=true"):
        export_run(run.path, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "command", [gaam_decoder.inspect.inspect, gaam_decoder.load_runs]
)
def test_commands_for_runs_say_what_an_exported_decoder_is_for(
    command: Callable[[Path], object], decoder: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"wrote(.|\n)*gaam predict '.*decoder'"):
        command(decoder)
    (decoder / CONFIG_FILE).write_text('{"model_type": "bert"}')
    with pytest.raises(NotFoundError, match="no run in it"):
        command(decoder)


def test_an_empty_folder_is_taken(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "decoder"
    folder.mkdir()
    export_run(run, folder)
    assert (folder / MODEL_FILE).exists()


def test_a_decoder_is_replaced_only_where_this_is_asked_for(
    run: Path, decoder: Path
) -> None:
    weights = (decoder / MODEL_FILE).read_bytes()
    with pytest.raises(ConfigError, match="--overwrite"):
        export_run(run, decoder, seed=1)
    assert (decoder / MODEL_FILE).read_bytes() == weights
    export_run(run, decoder, seed=1, overwrite=True)
    assert (decoder / MODEL_FILE).read_bytes() != weights


def test_a_folder_with_other_files_is_never_replaced(run: Path, decoder: Path) -> None:
    thesis = decoder / "thesis.tex"
    thesis.write_text("!")
    for place in (decoder, thesis, run):
        with pytest.raises(ConfigError, match=place.name):
            export_run(run, place, overwrite=True)
    assert thesis.read_text() == "!"


def remove_the_configuration(folder: Path) -> None:
    (folder / CONFIG_FILE).unlink()


def put_a_pickle_in_place_of_the_weights(folder: Path) -> None:
    (folder / MODEL_FILE).rename(folder / "pytorch_model.bin")


def put_the_configuration_of_another_library(folder: Path) -> None:
    (folder / CONFIG_FILE).write_bytes(b'{"model_type": 1}')


def change_the_head(folder: Path) -> None:
    text = (folder / CONFIG_FILE).read_text()
    (folder / CONFIG_FILE).write_text(text.replace('"linear"', '"mlp"'))


def change_the_version(folder: Path) -> None:
    content = unsealed(json.loads((folder / CONFIG_FILE).read_text()))
    (folder / CONFIG_FILE).write_text(sealed_text(content | {"format_version": 3}))


def flip_a_bit_of_the_weights(folder: Path) -> None:
    content = bytearray((folder / MODEL_FILE).read_bytes())
    content[-1] ^= 1
    (folder / MODEL_FILE).write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_configuration,
        put_a_pickle_in_place_of_the_weights,
        put_the_configuration_of_another_library,
        change_the_head,
        change_the_version,
        flip_a_bit_of_the_weights,
    ],
)
def test_damaged_and_foreign_folders_are_refused(
    damage: Callable[[Path], None], decoder: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(decoder, damaged)
    damage(damaged)
    with pytest.raises((CacheError, ConfigError)) as refusal:
        gaam_decoder.load(damaged)
    assert refusal.value.details["expected"]
