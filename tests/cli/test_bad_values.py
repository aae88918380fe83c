"""Every option, field and variable with values that no one means.

Each is done or refused with one message; never a traceback.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import GaamError
from gaam_cache.terminal import settings
from gaam_decoder.config import TrainConfig
from tests.cli.commands import COMMANDS
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
CONFIGS: dict[str, type] = {"extract": ExtractConfig, "train": TrainConfig}
FEW = ["", "-1", "nan", "x" * 5000, "FOLDER"]
MORE = [
    *(
        "0",
        "1e400",
        "ä",
        "--",
        "FILE",
        " ",
        "-1e400",
        "inf",
        "-",
        "a\0b",
        "../..",
        "a/b",
        "99999999999999999999",
        "1.5",
        ",",
        ":",
    ),
    *("=", "true", "[]", "\u202e", "1,1", "3-1", "0-999999999", "None", "%s", "*"),
    *(
        "~no-such-user/x",
        "2147483647",
        "gaam:heads=0",
        "gaam:heads=99999999999999999999",
        "mqa:width=-1",
    ),
]
NOTHING_TO_WALK = {("report", "--figures")}
"""Every value of it that is a path is half a minute of pictures."""


def options_of(command: str) -> list[Any]:
    params = COMMANDS[command].params
    return [p for p in params if p.param_type_name == "option" and not p.is_flag]


def named(option: Any) -> str:
    return str(next(name for name in option.opts if name.startswith("--")))


@pytest.fixture
def arguments(
    gaam: Gaam, encoders: dict[str, Path], dataset: Path, tiny_cache: Path, tmp_path: Path
) -> dict[str, list[object]]:
    """With which a command is done in a moment; an option that is tried replaces one of these."""
    quick = ["--seeds", 1, "--epochs", 1, "--compile", "off", "--quiet"]
    runs = tmp_path / "runs"
    assert gaam("train", "--attn", "gaam", "--cache", tiny_cache, "--runs", runs, *quick).code == 0
    shutil.copytree(runs, tmp_path / "kept")
    train = ["--cache", tiny_cache, "--runs", tmp_path / "new" / "r", "--attn", "none", *quick]
    np.savez(tmp_path / "train.npz", embeddings=np.ones((4, 2, 3), "f4"), labels=[0, 1, 0, 1])
    files = [tmp_path / "train.npz"]
    data = ["--encoder", encoders["bert"], "--dataset", dataset, "--limit", 4, "--quiet"]
    rows = [
        "--file",
        dataset / "test.csv",
        "--out",
        tmp_path / "new" / "o.csv",
        "--overwrite",
        "-q",
    ]
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "study.toml").write_text(
        'title = "t"\n[caches.a]\ncommand = "plant"\n'
        '[[train]]\ncache = "a"\nattn = ["none"]\n[[report]]\nname = "r"\ncache = "a"\n'
    )
    return {
        "extract": [*data, "--device", "cpu", "--out", tmp_path / "new" / "c"],
        "import": [*files, "--out", tmp_path / "new" / "c", "--quiet"],
        "plant": [tmp_path / "new" / "c", "--classes", 2, "--rows", 30, "--quiet"],
        "train": train,
        "ablate": ["--quiet", next(runs.glob("gaam*"))],
        "predict": [next(runs.glob("gaam*")), *rows],
        "report": [runs],
        "study": [tmp_path / "planted", "--dry-run"],
        "runs": [runs],
        "export": [next(runs.glob("gaam*")), tmp_path / "new" / "e", "--quiet"],
        "inspect": [runs],
        "describe": [],
        "verify": ["--quiet", tiny_cache],
    }


def without(arguments: list[object], option: str) -> list[object]:
    if option not in arguments:
        return arguments
    place = arguments.index(option)
    return [*arguments[:place], *arguments[place + 2 :]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("values", [FEW, pytest.param(MORE, marks=pytest.mark.slow)], ids=len)
def test_no_value_of_any_option_is_a_traceback(
    command: str,
    values: list[str],
    gaam: Gaam,
    arguments: dict[str, list[object]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x\n")
    places = {"FOLDER": str(tmp_path / "folder"), "FILE": str(tmp_path / "file")}
    tried = 0
    for option in options_of(command):
        name = named(option)
        if (command, name) in NOTHING_TO_WALK:
            continue
        for number, word in enumerate(values):
            value = places.get(word, word)
            inner = tmp_path / "new" / f"{name}{number}" / "in"  # '../..' is nobody else's
            inner.mkdir(parents=True)
            monkeypatch.chdir(inner)
            rest = without(arguments[command], name)
            for made in ("new/c", "new/e", "runs"):  # by another value
                shutil.rmtree(tmp_path / made, ignore_errors=True)
            shutil.copytree(tmp_path / "kept", tmp_path / "runs")
            if command == "train" and name in ("--fold", "--groups"):
                rest = ["--folds", 2, *rest]
            # any other exception ends the test
            outcome = gaam(*command.split(), name, value, *rest)
            shown = f"{command} {name} {value[:40]!r}: {outcome}"
            assert outcome.code in (0, 1, 2, 3), shown
            assert "Traceback" not in outcome.err, shown
            if outcome.code:
                # a run of which all seeds failed is a run all the same
                assert outcome.out == "" or "every seed failed" in outcome.err, shown
                assert name in outcome.err or name[2:] in outcome.err or value in outcome.err, shown
                assert len(outcome.err) < 2500, shown
            tried += 1
    walked = [o for o in options_of(command) if (command, named(o)) not in NOTHING_TO_WALK]
    assert tried == len(walked) * len(values)


@pytest.mark.parametrize("command", ["ablate", "report", "inspect", "verify"])
def test_no_path_of_any_command_is_a_traceback(
    command: str, gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x\n")
    for value in [*FEW, *MORE, "folder", "file"]:
        outcome = gaam(command, "--", value)
        assert outcome.code in (1, 2, 3), f"{command} {value!r}: {outcome}"
        assert outcome.err.startswith("error: "), f"{command} {value!r}: {outcome}"


VALUES = [
    *(
        '""',
        '"\\u0000"',
        '"ä"',
        "-1",
        "0",
        "1e400",
        "-inf",
        "nan",
        "1.5",
        "true",
        "[]",
        "[[]]",
        "{}",
    ),
    *("[1, 'a']", "['']", "['a', 'a']", "[true]", "[1.5]", "[nan]", "[-1]", "[0]", "[10000000000]"),
    *(
        "{a = 1}",
        "[{a = 1}]",
        "1979-05-27",
        "07:32:00",
        "1979-05-27T07:32:00Z",
        "99999999999999999999",
    ),
    *(
        '"' + "x" * 5000 + '"',
        '["' + "x" * 5000 + '"]',
        "0x10",
        '"1,,2"',
        '"../.."',
        '"~no-such-user/x"',
    ),
]


def refusal(cls: type, section: str, **places: Any) -> GaamError | None:
    try:
        settings.resolve(cls, section, {}, **places)
    except GaamError as error:
        return error
    return None


@pytest.mark.parametrize("section", CONFIGS)
def test_no_value_of_any_field_of_a_file_is_a_traceback(section: str, tmp_path: Path) -> None:
    cls, file = CONFIGS[section], tmp_path / "c.toml"
    refused = 0
    for field in dataclasses.fields(cls):
        option = field.metadata.get("option", "--" + field.name.replace("_", "-"))
        for value in VALUES:
            file.write_text(f"[{section}]\n{field.name} = {value}\n")
            error = refusal(cls, section, config_file=file, environ={})
            if error is not None:
                assert error.exit_code == 2
                assert any(word in str(error) for word in (field.name, option, option[2:])), error
                assert len(str(error)) < 2500
                refused += 1
    assert refused > len(VALUES) * len(dataclasses.fields(cls)) / 2  # most of it is nonsense


@pytest.mark.parametrize("section", CONFIGS)
def test_no_value_of_any_variable_is_a_traceback(section: str) -> None:
    cls = CONFIGS[section]
    for field in dataclasses.fields(cls):
        for value in [*FEW, *MORE]:
            error = refusal(cls, section, environ={f"GAAM_{field.name.upper()}": value})
            assert error is None or error.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        *("x", "[", "\x00", "[train.epochs]", "train = 3", "train = [1]", "[[train]]", "[tarin]"),
        *("epochs = 3", "a.b.c = 1", '"" = 1', "[train]\n[train]", "[" * 5000),
        *("x = " + "[" * 3000 + "]" * 3000, "[train]\nepochs.x = 3", "[train]\n'' = 3"),
        *(
            "[train]\n'Epochs' = 3",
            "[train]\nepoch = 3",
            "\ufeff[train]",
            "[train]\nbatch--size = 3",
        ),
    ],
)
def test_no_file_is_a_traceback(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(GaamError) as caught:
        settings.resolve(TrainConfig, "train", {}, config_file=file, environ={})
    assert caught.value.exit_code == 2
    assert str(file) in str(caught.value)


def test_a_file_that_is_none_is_said_to_be(tmp_path: Path, gaam: Gaam) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"[train]\nattn = '\xff'\n")
    (tmp_path / "large").write_bytes(b"#" * 2**21)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("pipe", "latin", "large", "link", "/dev/zero", "/dev/null/x", "."):
        for option in ("--config", "--groups"):
            outcome = gaam("train", "--folds", 2, option, tmp_path / name)
            assert outcome.code == 2, (name, option, outcome)
    assert json.loads(gaam("describe", "--json").out)
