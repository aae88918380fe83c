from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.messages import option_of
from gaam_cache.settings import check_variables, preset_names, resolve
from gaam_decoder.config import TrainConfig


def test_command_line_beats_file_beats_preset_beats_environment_beats_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[extract]\nmax-length = 64\nout = "from-file"\n')
    config = resolve(
        ExtractConfig,
        "extract",
        {"out": "given", "limit": None},
        config_file=file,
        preset="agnews-llama2-13b",
        environ={
            "GAAM_OUT": "env",
            "GAAM_MAX_LENGTH": "8",
            "GAAM_DTYPE": "float16",
            "GAAM_SHARD_ROWS": "99",
            "GAAM_SPLITS": "train,dev",
            "GAAM_EPOCHS": "3",
        },
    )
    assert config.out == Path("given")
    assert config.max_length == 64
    assert config.dtype == "bfloat16"
    assert config.shard_rows == 99
    assert config.splits == ("train", "dev")
    assert config.limit is None
    assert config.encoder == "meta-llama/Llama-2-13b-hf"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[extract]\nmaxlength = 3", r"unknown setting 'maxlength'(.|\n)*max-length"),
        ('[extract]\nmax-length = "many"', r"bad value for 'max-length'(.|\n)*a whole number"),
        ("[extract]\nmax-length = true", r"bad value"),
        ("[extract]\nlimit = 0", r"--limit is out of range"),
        ('[extract]\ndtype = "int8"', r"bfloat16"),
        ("[extract]\nsplits = [1]", r"list of strings"),
        ('[extract]\nsplits = ["a/b"]', r"cannot be part of a file name"),
        ("[other]\nx = 1", r"unknown section"),
        ("max-length = 3", r"unknown section"),
        ("[extract", r"not valid TOML"),
    ],
)
def test_bad_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        resolve(ExtractConfig, "extract", {}, config_file=file)


def test_missing_file_and_unknown_preset(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        resolve(ExtractConfig, "extract", {}, config_file=tmp_path / "x.toml")
    with pytest.raises(ConfigError, match="agnews-llama2-13b, cifar100-beit, demo"):
        resolve(ExtractConfig, "extract", {}, preset="paper")


@pytest.mark.parametrize("section", ["extract", "train"])
def test_every_preset_resolves(section: str) -> None:
    cls = {"extract": ExtractConfig, "train": TrainConfig}[section]
    for preset in preset_names(section):
        resolve(cls, section, {}, preset=preset)
    assert "demo" in preset_names(section)


def test_the_demo_preset_is_what_happens_without_arguments() -> None:
    from gaam_cache.sources._base import find_source

    demo = resolve(ExtractConfig, "extract", {}, preset="demo")
    default = ExtractConfig()
    assert (demo.encoder, demo.dataset) == (default.encoder, default.dataset)
    source = find_source("news-sample")
    assert source.read(demo, "test") == source.read(default, "test")


def test_seeds_in_every_spelling(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    for text, seeds in (
        ("3", (0, 1, 2)),
        ('"4-6"', (4, 5, 6)),
        ("[3, 9, 5]", (3, 5, 9)),
        ('"3,5,9"', (3, 5, 9)),
        ('"0-1,7"', (0, 1, 7)),
        ('"7,"', (7,)),
    ):
        file.write_text(f"[train]\nseeds = {text}\n")
        assert resolve(TrainConfig, "train", {}, config_file=file).seeds == seeds
    for text in ("0", "x", "3-1", "1,1", "-4", "1.5", ""):
        with pytest.raises(ConfigError, match="seeds"):
            resolve(TrainConfig, "train", {"seeds": text})


def test_attention_options_keep_their_commas() -> None:
    given = {"attn": ["laplace:heads=1,location=median", "gaam"]}
    config = resolve(TrainConfig, "train", given)
    assert config.attn == ("laplace:heads=1,location=median", "gaam")


JUNK = "none-such"


def outcome(cls: type, section: str, **more: Any) -> str:
    try:
        return str(resolve(cls, section, {}, **more))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("cls", [ExtractConfig, TrainConfig])
def test_a_file_and_variables_take_every_option_as_it_is_spelled(cls: type, tmp_path: Path) -> None:
    section = "extract" if cls is ExtractConfig else "train"
    for field in dataclasses.fields(cls):
        option = field.metadata.get("option") or option_of(field.name)
        spellings = {option[2:], option[2:].replace("-", "_"), field.name}
        for spelled in spellings:
            path = tmp_path / "c.toml"
            path.write_text(f'[{section}]\n{spelled} = "{JUNK}"\n')
            variable = f"GAAM_{spelled.upper().replace('-', '_')}"
            check_variables(cls, environ={variable: JUNK})
            for more in ({"config_file": path, "environ": {}}, {"environ": {variable: JUNK}}):
                said = outcome(cls, section, **more)
                assert JUNK in said
                assert "unknown setting" not in said
        if len({one.replace("-", "_") for one in spellings}) > 1:
            path.write_text(f'[{section}]\n{option[2:]} = "a"\n{field.name} = "b"\n')
            with pytest.raises(ConfigError, match="twice"):
                resolve(cls, section, {}, config_file=path)


def test_of_a_mistyped_setting_the_option_is_named(tmp_path: Path) -> None:
    for section, cls in (("extract", ExtractConfig), ("train", TrainConfig)):
        for field in dataclasses.fields(cls):
            option = (field.metadata.get("option") or option_of(field.name))[2:]
            path = tmp_path / "c.toml"
            path.write_text(f"[{section}]\n{option.replace('-', '_')}{option[-1]} = 1\n")
            if len(option) > 5:
                with pytest.raises(ConfigError) as refused:
                    resolve(cls, section, {}, config_file=path)
                assert refused.value.details["to do"].startswith(f"did you mean '{option}'")
