"""The batch scripts that are shipped: without SLURM, what can be known of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gaam_cache.terminal.settings import preset_names

from gaam_cache.bundle import data_path
from tests.conftest import Outcome, shard_bytes

SCRIPTS = sorted((data_path() / "presets" / "slurm").iterdir())
Gaam = Callable[..., Outcome]


def test_there_are_scripts_and_they_are_no_presets() -> None:
    assert {path.name for path in SCRIPTS} == {
        "array.sbatch",
        "chain.sh",
        "nodes.sbatch",
        "one-node.sbatch",
    }
    for section in ("extract", "train"):
        assert not {path.stem for path in SCRIPTS} & set(preset_names(section))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_that_a_shell_reads(script: Path) -> None:
    for shell in ("sh", "bash"):
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
    lines = script.read_text("ascii").splitlines()
    assert lines[0] == "#!/bin/sh"
    assert max(map(len, lines)) <= 100
    options = [line for line in lines if line.startswith("#SBATCH")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=[\w:%.-]+)?", line) for line in options)


def commands(script: Path, tmp_path: Path) -> list[list[str]]:
    """Every command that a script says to type, or has typed, as gaam would be called."""
    text = script.read_text("ascii")
    lines = [line.strip("# ") for line in text.splitlines()]
    typed = [shlex.split(line, comments=True) for line in lines if line.startswith("sbatch ")]
    found = [
        words[next(i for i, w in enumerate(words) if w == script.name) + 1 :] for words in typed
    ]
    if script.name == "chain.sh":
        found += called_by(script, tmp_path, {})
        found += called_by(script, tmp_path, {"TASKS": "3", "PRESET": "agnews-llama2-13b"})
    more = ["--devices", "all"] if "--devices all" in text else []
    return [words + more for words in found]


def called_by(script: Path, tmp_path: Path, variables: dict[str, str]) -> list[list[str]]:
    """What a script gives to sbatch, behind the name of a batch script."""
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir(exist_ok=True)
    calls = tmp_path / "calls"
    calls.write_text("")
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "" >> "{calls}"\necho 17\n')
    fake.chmod(0o755)
    environ = {**os.environ, **variables, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", str(script)], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = []
    for call in calls.read_text().strip().split("\n\n"):
        words = call.splitlines()
        place = next(i for i, word in enumerate(words) if word.endswith(".sbatch"))
        assert Path(words[place]).exists()
        found.append(words[place + 1 :])
    assert len(found) == 3
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_command_in_a_script_is_one_that_gaam_has(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaam: Gaam
) -> None:
    """Parsed by the command line itself, with what it would call replaced."""
    import gaam_cache
    import gaam_decoder
    from gaam_decoder.config import TrainConfig

    configs: list[object] = []

    def stop(config: object, **more: object) -> None:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(gaam_cache, "extract", stop)
    monkeypatch.setattr(gaam_decoder, "train", stop)
    monkeypatch.setattr(gaam_decoder, "report", stop)
    monkeypatch.chdir(tmp_path)
    found = commands(script, tmp_path)
    assert len(found) >= 2
    for words in found:
        outcome = gaam(*words)
        assert outcome.code == 130, (words, outcome.err)
        if words[0] != "report":
            kind = {"extract": gaam_cache.ExtractConfig, "train": TrainConfig}[words[0]]
            assert type(configs[-1]) is kind
            assert getattr(configs[-1], "devices", "") == ("all" if "all" in words else "1")


@pytest.mark.parametrize("script", [s for s in SCRIPTS if s.name == "array.sbatch"])
def test_tasks_of_an_array_one_after_the_other_make_one_cache(
    script: Path, tiny_config: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaam: Gaam
) -> None:
    """The variables of SLURM set by hand: each task does what is left, all end with 0."""
    from gaam_cache.config import ExtractConfig

    assert isinstance(tiny_config, ExtractConfig)
    assert 'exec gaam "$@"' in script.read_text()
    places = ["--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    command = ["extract", *places, "--shard-rows", 10, "--device", "cpu"]
    assert gaam(*command, "--out", tmp_path / "alone").code == 0
    out = tmp_path / "out"
    for task in range(3):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "0")
        monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
        outcome = gaam(*command, "--out", out)
        assert outcome.code == 0, outcome.err
        assert "is complete" in outcome.out
        assert ("nothing to do" in outcome.out) == (task > 0)
    assert shard_bytes(out) == shard_bytes(tmp_path / "alone")
