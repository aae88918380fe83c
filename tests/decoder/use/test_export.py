"""An exported decoder is the decoder, bit for bit; what is none is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache import open_cache
from gaam_cache.common import plugins
from gaam_cache.common.errors import CacheError, ConfigError
from gaam_cache.store.files import sealed_text, unsealed
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import export_run
from gaam_decoder.use.load import CONFIG_FILE, MODEL_FILE, OWN_FILES
from tests.decoder.use.exports import train

MECHANISMS = plugins.names("gaam_decoder.attention")
HEADS = plugins.names("gaam_decoder.heads")


@pytest.fixture(scope="module")
def runs(
    tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, RunResult]:
    """Every mechanism with a linear head, and every head without a mechanism."""
    folder = tmp_path_factory.mktemp("runs")
    found = train(tiny_cache, folder, *MECHANISMS)
    return found | train(tiny_cache, folder, "none", head=tuple(HEADS))


def test_every_mechanism_and_head_comes_back_bit_for_bit(
    runs: dict[str, RunResult], tiny_cache: Path, tmp_path: Path
) -> None:
    assert {run.attention.partition(":")[0] for run in runs.values()} == set(MECHANISMS)
    assert {run.head for run in runs.values()} == set(HEADS)
    states_NLD = open_cache(tiny_cache)["test"].embeddings[:]
    for name, run in runs.items():
        out = tmp_path / name / "out"
        made = export_run(run.path, out)
        assert {path.name for path in out.iterdir()} == set(OWN_FILES)
        assert made.bytes == sum(path.stat().st_size for path in out.iterdir())
        predicted = gaam_decoder.load(run.path).predict_states(states_NLD)
        found = gaam_decoder.load(out).predict_states(states_NLD)
        assert np.array_equal(found.probabilities_NC, predicted.probabilities_NC), name
        assert np.array_equal(found.agreement_N, predicted.agreement_N)


def test_a_mechanism_that_predicts_a_row_by_others_is_refused(
    tiny_cache: Path, tmp_path: Path
) -> None:
    [run] = train(tiny_cache, tmp_path / "runs", "mha:published=true").values()
    with pytest.raises(ConfigError, match="mha:published=true"):
        export_run(run.path, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_of_others_is_never_replaced(
    runs: dict[str, RunResult], tmp_path: Path
) -> None:
    run, out = runs["mha + linear"].path, tmp_path / "out"
    out.mkdir()
    export_run(run, out)  # an empty one is free
    before = (out / MODEL_FILE).read_bytes()
    with pytest.raises(ConfigError, match="--overwrite"):
        export_run(run, out, seed=1)
    assert (out / MODEL_FILE).read_bytes() == before
    export_run(run, out, seed=1, overwrite=True)
    assert (out / MODEL_FILE).read_bytes() != before
    mine = Path(shutil.copytree(out, tmp_path / "mine"))
    (mine / "thesis.tex").write_text("!")
    for place in (mine, mine / "thesis.tex", run):
        with pytest.raises(ConfigError, match=place.name):
            export_run(run, place, overwrite=True)
    assert (mine / "thesis.tex").exists()


def flip(folder: Path) -> None:
    content = bytearray((folder / MODEL_FILE).read_bytes())
    content[-1] ^= 1
    (folder / MODEL_FILE).write_bytes(content)


def another_version(folder: Path) -> None:
    content = unsealed(json.loads((folder / CONFIG_FILE).read_text()))
    (folder / CONFIG_FILE).write_text(sealed_text(content | {"format_version": 3}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no configuration": lambda folder: (folder / CONFIG_FILE).unlink(),
    "no weights but a pickle": lambda folder: (folder / MODEL_FILE).rename(
        folder / "pytorch_model.bin"
    ),
    "of another library": lambda folder: (folder / CONFIG_FILE).write_bytes(
        b'{"model_type": 1}'
    ),
    "changed": lambda folder: (folder / CONFIG_FILE).write_text(
        (folder / CONFIG_FILE).read_text().replace('"linear"', '"mlp"')
    ),
    "another version": another_version,
    "a bit of the weights": flip,
}


def test_damaged_and_foreign_folders_are_refused(
    runs: dict[str, RunResult], tmp_path: Path
) -> None:
    export_run(runs["mha + linear"].path, tmp_path / "out")
    for damage, do in DAMAGE.items():
        do(Path(shutil.copytree(tmp_path / "out", tmp_path / damage)))
        with pytest.raises((CacheError, ConfigError)) as refused:
            gaam_decoder.load(tmp_path / damage)
        assert refused.value.details["expected"], damage
