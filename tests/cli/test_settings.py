"""Settings: command line > config file > preset > default; and what each is called."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.settings import preset_names, resolve, settings_of
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from tests.conftest import Outcome

FILE = """
[extract]
max-length = 64
out = "from-file"
shard-rows = 7
limit = 3
"""


def test_the_command_line_beats_the_file_the_preset_and_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(FILE)
    config = resolve(
        ExtractConfig,
        "extract",
        {"out": "given", "limit": None},
        sets=["shard-rows=99"],
        config_file=file,
        preset="agnews-llama2-13b",
    )
    # of the command line
    assert config.out == Path("given").absolute()
    assert config.shard_rows == 99
    # of the file
    assert config.max_length == 64
    assert config.limit == 3
    # of the preset
    assert config.dtype == "bfloat16"
    assert config.encoder == "meta-llama/Llama-2-13b-hf"
    # the default
    assert config.storage_dtype == ExtractConfig().storage_dtype


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[extract]\nlimit = 0", id="a limit of no rows"),
        pytest.param("[extract]\nmax-length = 3\nmax_length = 3", id="a key twice"),
        pytest.param("[extract", id="no TOML"),
    ],
)
def test_a_file_that_is_not_valid_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        resolve(ExtractConfig, "extract", {}, config_file=file)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"preset": "paper"}, id="a preset of another command"),
        pytest.param({"sets": ["limit"]}, id="a key without a value"),
        pytest.param({"sets": ["limit=1", "limit=2"]}, id="a key with two values"),
    ],
)
def test_an_option_that_is_not_valid_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        resolve(ExtractConfig, "extract", {}, **options)


def test_an_option_and_a_key_that_set_the_same_are_refused() -> None:
    with pytest.raises(ConfigError, match="'limit'"):
        resolve(ExtractConfig, "extract", {"limit": 3}, sets=["limit=3"])


PAIRS_WITHOUT_VALUE = [
    pytest.param(section, setting.key, "true", id=f"{section} {setting.key}")
    for section, config_class in cli.SETTINGS.items()
    for setting in settings_of(config_class)
    if setting.type == "true|false"
] + [
    pytest.param("extract", "skip_empty", "true", id="an underscore"),
    pytest.param("extract", "shard-rows", "N", id="a number"),
    pytest.param("extract", "limit-rule", "classes|first", id="one of two words"),
]


@pytest.mark.parametrize(("section", "key", "value"), PAIRS_WITHOUT_VALUE)
def test_a_key_without_a_value_is_answered_with_its_spelling(
    section: str, key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(cli.SETTINGS[section], section, {}, sets=[key])
    expected = f"--set {key.replace('_', '-')}={value}"
    assert caught.value.details["to do"] == expected


@pytest.mark.parametrize("section", ["extract", "train"])
def test_every_preset_resolves(section: str) -> None:
    config_class: type = cli.SETTINGS[section]
    presets = preset_names(section)
    assert "demo" in presets
    for preset in presets:
        resolve(config_class, section, {}, preset=preset)


def test_describe_lists_every_setting(gaam: Callable[..., Outcome]) -> None:
    printed = gaam("describe", "--settings").out
    sections = json.loads(gaam("describe", "--settings", "--json").out)
    assert sections.keys() == cli.SETTINGS.keys()
    for section, config_class in cli.SETTINGS.items():
        assert f"[{section}]" in printed
        assert len(sections[section]) == len(dataclasses.fields(config_class))
        for setting in sections[section]:
            assert setting["meaning"], setting
            assert f"\n{setting['key']} " in printed


@pytest.mark.parametrize(
    ("config", "of_folds"),
    [
        pytest.param(TrainConfig(), False, id="a test split"),
        pytest.param(TrainConfig(folds=5), True, id="five folds"),
    ],
)
def test_the_cost_of_tuning_is_said_first(config: TrainConfig, of_folds: bool) -> None:
    """Four learning rates by three seeds, then ten seeds; of five folds each."""
    assert "22 trainings" in config.tuning_cost_in_words
    assert ("fold" in config.tuning_cost_in_words) == of_folds


def test_a_given_learning_rate_costs_no_tuning() -> None:
    # another type than that of the field, as people write it
    settings: dict[str, Any] = {"lr": 1e-3}
    assert not TrainConfig(**settings).tuning_cost_in_words
