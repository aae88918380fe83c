"""A name that nearly is one is answered with the one that was meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from gaam_cache.terminal.settings import check_variables, preset_names, resolve

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.messages import nearest
from gaam_decoder.config import TrainConfig
from gaam_decoder.specs import parse_attention, parse_head, parse_loss
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
PACKAGES = (
    "gaam_decoder.attention",
    "gaam_decoder.heads",
    "gaam_decoder.losses",
    "gaam_decoder.reports.formats",
)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "--attn", "Laplace"], "did you mean 'laplace'"),
        (["train", "--attn", "gaussian"], "did you mean 'gaam'"),
        (["train", "--attn", "student"], "did you mean 'student-t'"),
        (["train", "--attn", "student_t"], "did you mean 'student-t'"),
        (["train", "--attn", "gaam,laplace"], "--attn gaam --attn laplace"),
        (["train", "--attn", "gaam:heads=1,laplace"], "--attn gaam --attn laplace"),
        (["train", "--attn", "mha-published"], "did you mean 'mha:published=true'"),
        (["train", "--attn", "gaam:head=2"], "did you mean 'heads=...'"),
        (["train", "--attn", "gaam:location=Median"], "did you mean 'median'"),
        (["train", "--attn", "mha:published=yes"], "did you mean 'true'"),
        (["train", "--head", "Linear"], "did you mean 'linear'"),
        (["train", "--head", "linear,conv"], "--head linear --head conv"),
        (["train", "--loss", "focal-loss"], "did you mean 'focal'"),
        (["train", "--loss", "crossentropy"], "did you mean 'cross-entropy'"),
        (["train", "--preset", "papers"], "did you mean 'paper'"),
        (["train", "--schedule", "plateu"], "did you mean 'plateau'"),
        (["train", "--device", "gpu"], "did you mean 'cuda'"),
        (["train", "--epoch", "3"], "--epochs"),
        (["report", "--format", "html5"], "did you mean 'html'"),
        (["report", "--format", "md"], "did you mean 'markdown'"),
        (["describe", "--attn", "Gaussian"], "did you mean 'gaam'"),
        (["extract", "--pool", "Mean"], "did you mean 'mean'"),
        (["extract", "--dtype", "bf16"], "bfloat16"),
        (["extract", "--dataset", "news_sample"], "did you mean 'news-sample'"),
        (["extract", "--encoder", "all-minilm-l6-v2"], "sentence-transformers/all-MiniLM-L6-v2'"),
        (["trian"], "train"),
    ],
)
def test_what_was_meant_is_said(
    arguments: list[str],
    meant: str,
    gaam: Gaam,
    encoders: dict[str, Path],
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    if arguments[0] == "extract" and "--dataset" not in arguments:
        arguments = [*arguments, "--dataset", str(dataset)]
    if arguments[0] == "extract" and "--encoder" not in arguments:
        arguments = [*arguments, "--encoder", str(encoders["bert"])]
    (tmp_path / "runs").mkdir()
    outcome = gaam(*arguments)
    assert outcome.code in (1, 2)
    assert meant in outcome.err


@pytest.mark.parametrize("package", PACKAGES)
def test_other_spellings_and_aliases_of_every_plugin_lead_to_it(package: str) -> None:
    names = plugins.names(package)
    seen: dict[str, str] = {}
    for name in names:
        module = plugins._module(package, name)
        aliases = getattr(module, "ALIASES", ())
        assert isinstance(aliases, tuple)
        for word in (name.upper(), name.replace("-", "_") + " ", f"{name}-thing", *aliases):
            if word in names:
                continue
            assert seen.setdefault(word, name) == name, f"'{word}' means two"
            with pytest.raises(ConfigError) as caught:
                plugins.load(package, word, kind="plug-in")
            assert caught.value.details["to do"] == f"did you mean '{name}'?", word


def test_nothing_is_meant_by_what_is_like_nothing() -> None:
    for word in ("", "zzzz", "q" * 10**6, "best"):
        assert nearest(word, ["val", "last", "test", "laplace"]) is None


@pytest.mark.parametrize("name", ["val", "from", "gate", "gaam", "laplace", "student-t"])
def test_two_letters_the_other_way_round_are_a_slip_in_any_word(name: str) -> None:
    for at in range(len(name) - 1):
        word = f"{name[:at]}{name[at + 1]}{name[at]}{name[at + 2 :]}"
        assert nearest(word, ["val", "from", "gate", "gaam", "laplace", "student-t"]) == name


@pytest.mark.parametrize("parse", [parse_attention, parse_head, parse_loss])
def test_a_spec_error_names_its_option(parse: Callable[[str], object]) -> None:
    for text in ("zzzz", "zzzz:a=1"):
        with pytest.raises(ConfigError, match=r"--(attn|head|loss) zzzz"):
            parse(text)


@pytest.mark.parametrize("cls", [ExtractConfig, TrainConfig])
def test_variables_that_no_command_reads_are_refused(cls: type) -> None:
    section = {ExtractConfig: "extract", TrainConfig: "train"}[cls]
    other = {ExtractConfig: TrainConfig, TrainConfig: ExtractConfig}[cls]
    for field in dataclasses.fields(cls):
        variable = f"GAAM_{field.name.upper()}"
        for wrong in (f"{variable}S", variable.lower().replace("gaam", "GAAM"), variable[:-1]):
            every = [f for c in (cls, other) for f in dataclasses.fields(c)]
            known = {f"GAAM_{f.name.upper()}" for f in every}
            known |= {f"GAAM_{f.metadata['option'][2:].upper().replace('-', '_')}"
                      for f in every if "option" in f.metadata}  # fmt: skip
            if wrong in known:
                continue
            with pytest.raises(ConfigError, match=f"unknown variable '{wrong}'") as caught:
                check_variables(cls, other, environ={wrong: "1"})
            assert "did you mean 'GAAM_" in str(caught.value)
            assert f"unset {wrong}" in str(caught.value)
    check_variables(cls, other, environ={"GAAMX": "1", "gaam_x": "1"})
    theirs = {f"GAAM_{f.name.upper()}" for f in dataclasses.fields(other)}
    theirs -= {f"GAAM_{f.name.upper()}" for f in dataclasses.fields(cls)}
    assert theirs
    resolve(cls, section, {}, environ=dict.fromkeys(theirs, "whatever"))


def test_both_commands_know_the_variables_of_the_other(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAAM_EPOCHS", "many")
    assert "--limit" in gaam("extract", "--limit", "0").err
    assert "bad value for 'GAAM_EPOCHS'" in gaam("train").err
    monkeypatch.setenv("GAAM_EPOCHS", "3")
    monkeypatch.setenv("GAAM_EPOCH", "3")
    for command in ("extract", "train"):
        outcome = gaam(command)
        assert outcome.code == 2
        assert "did you mean 'GAAM_EPOCHS'" in outcome.err


def test_every_preset_is_found_from_a_slip() -> None:
    for section, cls in (("extract", ExtractConfig), ("train", TrainConfig)):
        for name in preset_names(section):
            with pytest.raises(ConfigError, match=f"did you mean '{name}'"):
                resolve(
                    cls,
                    section,
                    {},
                    preset=f"{name}s" if len(name) > 4 else name.upper(),
                    environ={},
                )


@pytest.mark.parametrize("option", ["--attn", "--head", "--loss", "--baseline"])
def test_several_names_in_one_are_told_what_works(
    option: str, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    names = {"--head": "linear,mlp", "--loss": "focal,cross-entropy"}.get(option, "gaam,mha")
    command = ("report", tmp_path) if option == "--baseline" else ("train", "--cache", tmp_path)
    outcome = gaam(*command, option, names)
    assert outcome.code == 2
    assert ("several times" in outcome.err) == (option in ("--attn", "--head")), outcome.err
    assert ("choose one of them" in outcome.err) == (option in ("--loss", "--baseline"))
