"""Settings: command line > config file > preset > default; and what each is called."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from gaam_cache import settings
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.settings import preset_names, resolve
from gaam_decoder.config import TrainConfig
from tests.conftest import Outcome

SAMPLES: dict[str, Any] = {
    "attn": "laplace", "head": "mlp", "loss": "focal", "shuffle": "window:8", "devices": "2",
    "engine": "ray", "address": "auto", "rank": "1/3", "track": "tensorboard", "pool": "last",
    "delimiter": "tab", "encoding": "latin-1", "device_map": "auto", "device": "cpu",
    "prompt": "of {text}", "array": "train=a", "labels": "train=b", "num_tokens": "train=c",
}  # fmt: skip
"""Values of settings that take no word of ours, number or path."""


def test_the_command_line_beats_the_file_the_preset_and_the_default(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[extract]\nmax-length = 64\nout = "from-file"\nshard-rows = 7\nlimit = 3\n')
    config = resolve(
        ExtractConfig,
        "extract",
        {"out": "given", "limit": None},
        sets=["shard-rows=99"],
        config_file=file,
        preset="agnews-llama2-13b",
    )
    assert (config.out, config.shard_rows) == (Path("given"), 99)
    assert (config.max_length, config.limit) == (64, 3)
    assert (config.dtype, config.encoder) == ("bfloat16", "meta-llama/Llama-2-13b-hf")
    assert config.storage_dtype == ExtractConfig().storage_dtype


@pytest.mark.parametrize(
    "text",
    [
        "[extract]\nmaxlength = 3",
        '[extract]\nmax-length = "many"',
        "[extract]\nmax-length = true",
        "[extract]\nlimit = 0",
        '[extract]\ndtype = "int8"',
        "[extract]\nsplits = [1]",
        "[extract]\nmax-length = 3\nmax_length = 3",
        "[other]\nx = 1",
        "max-length = 3",
        "[extract",
    ],
)
def test_bad_files_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        resolve(ExtractConfig, "extract", {}, config_file=file)


def test_what_is_not_there_and_what_is_said_twice_is_refused(tmp_path: Path) -> None:
    for given in (
        {"config_file": tmp_path / "x.toml"},
        {"preset": "paper"},
        {"sets": ["limit"]},
        {"sets": ["limit=1", "limit=2"]},
        {"sets": ["shard-row=1"]},
    ):
        with pytest.raises(ConfigError):
            resolve(ExtractConfig, "extract", {}, **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="twice"):
        resolve(ExtractConfig, "extract", {"limit": 3}, sets=["limit=3"])
    with pytest.raises(NotFoundError):
        resolve(ExtractConfig, "extract", {}, config_file=tmp_path)


@pytest.mark.parametrize("section", ["extract", "train"])
def test_every_preset_resolves(section: str) -> None:
    cls: type = cli.SETTINGS[section]
    for preset in preset_names(section):
        resolve(cls, section, {}, preset=preset)
    assert "demo" in preset_names(section)


def sample(about: dict[str, Any]) -> str:
    """A value that a setting takes."""
    if (name := about["key"].replace("-", "_")) in SAMPLES:
        return str(SAMPLES[name])
    kinds = {"N": "3", "NUMBER": "0.5", "PATH": "p", "LIST": "3", "TEXT": "word"}
    return kinds.get(about["type"]) or about["type"].split("|")[0]


@pytest.mark.parametrize("section", cli.SETTINGS)
def test_every_setting_is_a_key_of_set_and_of_a_file(section: str, tmp_path: Path) -> None:
    """What both say is the same; whether it fits the other settings is the configuration's."""
    cls: type = dataclasses.make_dataclass(
        "Loose",
        [
            (one.name, one.type, dataclasses.field(default=None, metadata=one.metadata))
            for one in dataclasses.fields(cli.SETTINGS[section])
        ],
    )
    cls.__module__ = cli.SETTINGS[section].__module__
    file = tmp_path / "c.toml"
    for about in settings.keys(cli.SETTINGS[section]):
        value = sample(about)
        file.write_text(f"[{section}]\n{about['key']} = {json.dumps(value)}\n")
        by_set = resolve(cls, section, {}, sets=[f"{about['key']}={value}"])
        assert by_set == resolve(cls, section, {}, config_file=file) != cls()


def test_a_setting_is_written_as_it_is_read() -> None:
    """The words that a repair or a study prints are those that the command takes."""
    config = TrainConfig(probe=False, compile="off", lr=(1e-3, 1e-2), skip_impossible=True)
    words = [
        word
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
        for word in settings.words(field, value)
    ]
    assert words == [
        *("--lr", "0.001", "--lr", "0.01", "--set", "compile=off"),
        *("--no-probe", "--set", "skip-impossible=true"),
    ]


def test_seeds_in_every_spelling(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    for text, seeds in (
        ("3", (0, 1, 2)),
        ('"4-6"', (4, 5, 6)),
        ("[3, 9, 5]", (3, 5, 9)),
        ('"0-1,7"', (0, 1, 7)),
    ):
        file.write_text(f"[train]\nseeds = {text}\n")
        assert resolve(TrainConfig, "train", {}, config_file=file).seeds == seeds
    for text in ("0", "x", "3-1", "1,1", "-4", "1.5", ""):
        with pytest.raises(ConfigError):
            resolve(TrainConfig, "train", {"seeds": text})


def test_rows_of_train_and_of_every_class_are_one_setting() -> None:
    config = resolve(TrainConfig, "train", {"train_rows": ["100,1k", "all", "5/class"]})
    assert config.train_rows == (100, 1000, None, "5/class")


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
