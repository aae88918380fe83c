"""What a shell is offered, asked for as shells ask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import typer

import cli
from gaam_cache import plugins
from gaam_cache.store.plan import read_plan
from gaam_cache.terminal import completion, plugin_options, settings
from gaam_decoder.specs import KINDS
from gaam_decoder.specs import plugin_options as true_options
from tests.cli.commands import COMMANDS
from tests.conftest import GOLDEN

ROOT = Path(__file__).parents[2]
MAIN = "import sys; sys.argv[0] = 'gaam'; from gaam_cache.terminal.entry import main; main()"
Ask = Callable[..., list[str]]
TYPED = {
    "--attn": "gaam_decoder.attention",
    "--head": "gaam_decoder.heads",
    "--loss": "gaam_decoder.losses",
    "--engine": "gaam_cache.engines",
}
"""Options of train that take the name of a plug-in."""


def asked(environ: dict[str, str], *, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The program as a shell starts it while one types; torch and transformers are not imported."""
    check = "import atexit, sys\nheavy = {'torch', 'transformers', 'datasets', 'pydantic'}\n"
    check += "atexit.register(lambda: print(*heavy & set(sys.modules), file=sys.stderr))\n"
    return subprocess.run(
        [sys.executable, "-c", check + MAIN],
        env=os.environ
        | environ
        | {"PYTHONPATH": str(ROOT)}
        | ({"HOME": str(home)} if home else {}),
        capture_output=True,
        text=True,
    )


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """What bash is offered for the last of some words, as it parts them."""
    command: Any = typer.main.get_command(cli.app)
    usual = dict(os.environ)

    def run(*words: str) -> list[str]:
        asking = {"COMP_WORDS": "\n".join(("gaam", *words)), "COMP_CWORD": str(len(words))}
        environ = {**usual, **asking, "_GAAM_COMPLETE": "complete_bash"}
        monkeypatch.setattr(os, "environ", environ)
        completion.join_words(environ)
        with pytest.raises(SystemExit) as stop:
            command(prog_name="gaam")
        assert stop.value.code == 0
        return capsys.readouterr().out.split()

    return run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_answered_and_nothing_heavy_is_imported(shell: str) -> None:
    line = "gaam train --attn ga"
    environ = {
        "COMP_WORDS": line.replace(" ", "\n"),
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_GAAM_COMPLETE": f"complete_{shell}",
    }
    answer = asked(environ)
    assert answer.returncode == 0
    assert "gaam" in answer.stdout
    assert "gaussian-mixture" in answer.stdout
    assert "laplace" not in answer.stdout
    assert not answer.stderr.strip()


def test_commands_and_options_are_offered(ask: Ask) -> None:
    command: Any = typer.main.get_command(cli.app)
    for name, one in command.commands.items():
        assert name in ask("")
        assert ask(name[:-1]) == [
            other for other in command.commands if other.startswith(name[:-1])
        ]
        context = one.make_context(name, [], resilient_parsing=True)
        options = [param for param in one.get_params(context) if param.param_type_name == "option"]
        for option in options:
            for word in [*option.opts, *option.secondary_opts]:
                if word.startswith("--"):
                    assert word in ask(name, word[:-1])
                    assert word in ask(name, "--")
    assert "--cache" not in ask("train", "--cache", "c", "--")  # it takes one value
    assert "--attn" in ask("train", "--attn", "gaam", "--")


def test_every_name_is_offered(ask: Ask) -> None:
    for option, package in TYPED.items():
        assert ask("train", option, "") == plugins.names(package)
        for name in plugins.names(package):
            assert name in ask("train", option, name[:2])
            assert name in ask("train", option, "=", name)
    assert ask("extract", "--pool", "") == plugins.names("gaam_cache.encoders.poolings")
    assert ask("train", "--pool", "mean,la") == ["mean,last"]
    assert ask("report", "--format", "") == plugins.names("gaam_decoder.reports.formats")
    assert ask("report", "--baseline", "lap") == ["laplace"]
    for section in ("extract", "train"):
        assert ask(section, "--preset", "") == settings.preset_names(section)


def test_words_to_choose_from_are_offered(ask: Ask) -> None:
    for name, config in (("extract", cli.gaam_cache.ExtractConfig), ("train", cli.TrainConfig)):
        for field, hint in typing.get_type_hints(config).items():
            if typing.get_origin(hint) is Literal:
                option = f"--{field.replace('_', '-')}"
                assert ask(name, option, "") == list(typing.get_args(hint))
        assert ask(name, "--device", "c") == ["cpu", "cuda"]
        assert ask(name, "--devices", "") == ["all"]


def test_where_there_is_nothing_to_offer_shells_offer_files(ask: Ask) -> None:
    for words in (["train", "--cache"], ["extract", "--dataset"], ["train", "--config"]):
        assert ask(*words, "") == []
    assert ask("inspect", "") == []
    assert ask("extract", "--out", "") == []
    assert ask("train", "--seeds", "") == []
    assert ask("train", "--attn", "no-such", ":", "a") == []


def plug_ins() -> Iterator[tuple[str, str, str]]:
    for kind, (package, option) in KINDS.items():
        for name in plugins.names(package):
            yield kind, name, option


def test_options_of_every_plug_in_are_those_that_it_takes(ask: Ask) -> None:
    count = 0
    for kind, name, option in plug_ins():
        package = KINDS[kind][0]
        known = true_options(plugins.load(package, name, kind=kind))
        read = plugin_options.read(package, name)
        assert list(read) == list(known), name
        for key, (hint, _) in known.items():
            words = list(map(str, typing.get_args(hint))) if _is_choice(hint) else []
            assert read[key] == (["true", "false"] if hint is bool else words), (name, key)
            offered = [f"{key}={word}" for word in read[key] or ("",)]
            assert set(offered) <= set(ask("train", option, name, ":"))
            assert ask("train", option, name, ":", key[:-1]) != []
            assert f"{name}:{offered[0]}" in ask("train", option, f"{name}:{key}")
            count += 1
        assert not known or f"{name}:{next(iter(known))}=1,heads" not in ask("train", option, name)
    assert count > 30


def _is_choice(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal


def test_of_several_options_those_that_are_given_are_not_offered_again(ask: Ask) -> None:
    typed = ["--attn", "gaam", ":", "location", "=", "mean,"]
    keys = {word.split("=")[0] for word in ask("train", *typed)}
    assert keys == {"mean,heads", "mean,normalize"}
    assert ask("train", "--attn", "gaam:location=mean,he") == ["gaam:location=mean,heads="]


def test_mistakes_on_the_way_are_not_said_while_one_types(ask: Ask) -> None:
    assert ask("train", "--cache", "a", "--cache", "b", "--attn", "lap") == ["laplace"]
    assert ask("train", "--no-such", "--epochs", "many", "--attn", "lap") == ["laplace"]
    assert ask("train", "--cache", "", "--attn", "lap") == ["laplace"]
    assert ask("no-such", "--att") == []


def test_other_packages_are_offered_and_not_imported(tmp_path: Path) -> None:
    about = tmp_path / "gaam_loud-3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gaam-loud\nVersion: 3\n")
    (about / "entry_points.txt").write_text("[gaam.attention]\nloud = loud_gate:Gate\n")
    (tmp_path / "loud_gate.py").write_text("raise SystemExit('imported')")
    for word in ("lo", "loud:"):
        environ = {"_GAAM_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
        environ |= {"COMP_WORDS": f"gaam\ntrain\n--attn\n{word}"}
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + MAIN
        answer = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert answer.stdout.split() == (["loud"] if word == "lo" else [])
        assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_installing_touches_the_home_folder_alone(shell: str, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(home)}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, option, shell],
            env=os.environ | named | {"PYTHONPATH": str(ROOT)},
            cwd=work,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        if option == "--show-completion":
            assert f"_GAAM_COMPLETE=complete_{shell}" in done.stdout
            assert not list(home.iterdir())
    assert not list(work.iterdir())
    scripts = [file for file in home.rglob("*gaam*") if file.is_file()]
    assert len(scripts) == 1
    assert f"_GAAM_COMPLETE=complete_{shell}" in scripts[0].read_text()


def test_bash_completes_with_what_was_installed(tmp_path: Path) -> None:
    program = tmp_path / "gaam"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{MAIN}" "$@"\n')
    program.chmod(0o755)
    script = 'eval "$(gaam --show-completion bash)"\n'
    script += "COMP_WORDS=(gaam train --attn gaam : loc); COMP_CWORD=5\n"
    script += "_gaam_completion gaam\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    script += "complete -p gaam\n"
    environ = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    environ |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=os.environ | environ, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == ["location=mean", "location=median"], done.stderr
    assert "complete -o default -F _gaam_completion gaam" in done.stdout


def test_splits_of_the_cache_on_the_line_are_offered(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout has a cache after 'make demo'
    plan = tmp_path / "states" / "cache.json"
    plan.parent.mkdir()
    plan.write_text((GOLDEN / "v0.1.0" / "cache" / "cache.json").read_text())
    there = list(read_plan(plan.parent).rows)
    assert len(there) > 1
    cache = ["--cache", str(plan.parent)]
    offered = {("predict", "--split"): there, ("train", "--train-split"): there}
    offered["train", "--test-split"] = [*there, "none"]
    for (command, option), names in offered.items():
        for place in (cache, [f"--cache={plan.parent}"], ["--attn", "gaam", *cache]):
            if command == "predict" and "--attn" in place:
                continue
            assert ask(command, *place, option, "") == names
            for name in names:
                assert name in ask(command, *place, option, name[:2])
            assert ask(command, *place, option, "zz") == []
        assert ask(command, option, "") == [n for n in names if n not in there]
        for wrong in ("{", "[]", '{"rows": 3}', '{"rows": {"a b": 1, "../x": 2}}', ""):
            plan.write_text(wrong)
            assert ask(command, *cache, option, "") == [n for n in names if n not in there]
        plan.write_text((GOLDEN / "v0.1.0" / "cache" / "cache.json").read_text())


def test_without_a_cache_on_the_line_it_is_the_usual_one(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(GOLDEN / "v0.1.0")
    names = list(read_plan(Path("cache")).rows)
    assert ask("train", "--train-split", "") == names
    monkeypatch.chdir(tmp_path)
    assert ask("train", "--train-split", "") == []


def test_every_option_that_takes_a_split_of_a_cache_is_completed() -> None:
    """By what its help says: one that is new is put into the table."""
    for name, one in COMMANDS.items():
        names = {param.name for param in one.params}
        for param in one.params:
            if (
                "cache" in names
                and re.search(r"\bsplit\b", str(param.name))
                and "NAME" in str(param.metavar)
            ):
                assert param.name in completion.SPLITS, (name, param.name)


def test_a_plan_is_read_without_what_is_heavy() -> None:
    line = f"gaam train --cache {GOLDEN / 'v0.1.0' / 'cache'} --test-split "
    environ = {"COMP_WORDS": line.replace(" ", "\n"), "COMP_CWORD": "5"}
    answer = asked(environ | {"_GAAM_COMPLETE": "complete_bash"})
    assert answer.returncode == 0
    assert answer.stdout.split() == [*read_plan(GOLDEN / "v0.1.0" / "cache").rows, "none"]
    assert not answer.stderr.strip()
