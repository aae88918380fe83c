"""Settings: command line > config file > preset > default; and what each is called."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import cli
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.settings import preset_names, resolve
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from tests.conftest import Outcome


def test_the_command_line_beats_the_file_the_preset_and_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[extract]\nmax-length = 64\nout = "from-file"\nshard-rows = 7\nlimit = 3\n'
    )
    config = resolve(
        ExtractConfig, "extract", {"out": "given", "limit": None}, sets=["shard-rows=99"],
        config_file=file, preset="agnews-llama2-13b",
    )  # fmt: skip
    assert (config.out, config.shard_rows) == (Path("given").absolute(), 99)
    assert (config.max_length, config.limit) == (64, 3)
    assert (config.dtype, config.encoder) == ("bfloat16", "meta-llama/Llama-2-13b-hf")
    assert config.storage_dtype == ExtractConfig().storage_dtype


def test_files_keys_and_values_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    for text in (
        "[extract]\nlimit = 0", "[extract]\nmax-length = 3\nmax_length = 3", "[extract",
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(ConfigError):
            resolve(ExtractConfig, "extract", {}, config_file=file)
    for given in (
        {"preset": "paper"},
        {"sets": ["limit"]},
        {"sets": ["limit=1", "limit=2"]},
    ):
        with pytest.raises(ConfigError):
            resolve(ExtractConfig, "extract", {}, **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'limit'"):
        resolve(ExtractConfig, "extract", {"limit": 3}, sets=["limit=3"])


@pytest.mark.parametrize("section", ["extract", "train"])
def test_every_preset_resolves(section: str) -> None:
    cls: type = cli.SETTINGS[section]
    for preset in preset_names(section):
        resolve(cls, section, {}, preset=preset)
    assert "demo" in preset_names(section)


def test_describe_lists_every_setting(gaam: Callable[..., Outcome]) -> None:
    shown = gaam("describe", "--settings").out
    found = json.loads(gaam("describe", "--settings", "--json").out)
    assert found.keys() == cli.SETTINGS.keys()
    for section, config in cli.SETTINGS.items():
        assert f"[{section}]" in shown
        assert len(found[section]) == len(dataclasses.fields(config))
        for about in found[section]:
            assert about["meaning"]
            assert f"\n{about['key']} " in shown


def test_what_tuning_costs_is_said_first() -> None:
    """Four rates by three seeds, then ten seeds; of five folds each."""
    for config, of_folds in ((TrainConfig(), False), (TrainConfig(folds=5), True)):
        assert "22 trainings" in config.tuning
        assert ("fold" in config.tuning) == of_folds
    assert not TrainConfig(lr=1e-3).tuning
