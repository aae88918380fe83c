"""Promise 3: who computes refuses what is cut, changed, swapped or missing.

Every kind of file x every damage x every command: each refuses with exit code 3, or its
result is exactly that of the undamaged folder; ``verify`` always refuses.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import replace_by_links
from tests.contract.conftest import Outcome, extract, run
from tests.contract.test_2_resume import timeless, timeless_files

Command = tuple[object, ...]


def flip_a_bit(file: Path, other: Path) -> None:
    """Flip one bit; a file of JSON stays one."""
    content = file.read_bytes()
    for place in range(3 * len(content) // 4, len(content)):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        if ".json" not in file.suffix or is_json(changed, file.suffix):
            break
    file.write_bytes(changed)


def is_json(content: bytes, suffix: str) -> bool:
    lines = [content] if suffix == ".json" else content.splitlines()
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return False
    return True


def cut(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def swap(file: Path, other: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)


def remove(file: Path, other: Path) -> None:
    file.unlink()


DAMAGES: tuple[Callable[[Path, Path], None], ...] = (flip_a_bit, cut, swap, remove)


class Kind(NamedTuple):
    """A kind of file: one of it, another one, and the commands that compute with it."""

    file: str
    other: str
    readers: str

    @property
    def folder(self) -> str:
        return "runs" if self.file.startswith("runs") else "cache"

    @property
    def refusing(self) -> set[str]:
        """The commands that must refuse damage."""
        return {"verify", *self.readers.split()}


READ_A_CACHE = "train predict export plant ablate"
KINDS = {
    "cache.json": Kind(
        "cache/cache.json", "other/cache.json", f"{READ_A_CACHE} inspect"
    ),
    "receipt": Kind(
        "cache/shards/train-00000.json", "cache/shards/train-00001.json", READ_A_CACHE
    ),
    "shard": Kind(
        "cache/shards/train-00000-*.h5", "cache/shards/train-00001-*.h5", READ_A_CACHE
    ),
    "test shard": Kind(
        "cache/shards/test-*.h5", "other/shards/test-*.h5", "train export plant ablate"
    ),
    "run.json": Kind(
        "runs/gaam*/run.json",
        "runs/laplace*/run.json",
        "inspect train report page report-scaled predict predict-texts predict-scaled "
        "export ablate",
    ),
    "log.jsonl": Kind("runs/gaam*/log.jsonl", "runs/laplace*/log.jsonl", "page"),
    "weights.safetensors": Kind(
        "runs/gaam*/weights*",
        "runs/laplace*/weights*",
        "predict predict-texts predict-scaled export",
    ),
    "test.safetensors": Kind(
        "runs/gaam*/test*",
        "runs/laplace*/test*",
        "train report page report-scaled ablate",
    ),
    "validation.safetensors": Kind(
        "runs/gaam*/validation*",
        "runs/laplace*/validation*",
        "report-scaled predict-scaled",
    ),
}
CACHE = "cache"
RUNS = "runs"
RUN = "runs/gaam"
OUT = "out"
CPU = ("--device", "cpu", "--json")
SHORT = ("--lr", 3e-4, "--seeds", 2, "--epochs", 1, "--no-probe", *CPU)
LONG = (
    *("--lr", 3e-4, "--seeds", 3, "--epochs", 4, "--batch-size", 16),
    *("--no-probe", *CPU),
)
COMMANDS: dict[str, dict[str, Command]] = {
    "cache": {
        "verify": ("verify", CACHE, "--json"),
        "inspect": ("inspect", CACHE, "--json"),
        "train": ("train", "--cache", CACHE, "--runs", OUT, "--attn", "gaam", *SHORT),
        "predict": ("predict", RUN, "--cache", CACHE, "--split", "train"),
        "export": ("export", CACHE, OUT),
        "plant": ("plant", OUT, "--from", CACHE, "--rows", 80),
        "ablate": ("ablate", RUN, "--cache", CACHE, "--num-layers", 2, *CPU),
    },
    "runs": {
        "verify": ("verify", RUNS, "--json"),
        "inspect": ("inspect", RUNS, "--json"),
        "train": ("train", "--cache", CACHE, "--runs", RUNS, "--attn", "gaam", *LONG),
        "report": ("report", RUNS, "--json"),
        "page": ("report", RUN, "--format", "html"),
        "report-scaled": (
            *("report", RUNS, "--json", "--temperature", "--score", "log-loss"),
        ),
        "predict": ("predict", RUN, "--cache", CACHE),
        "predict-texts": ("predict", RUN, "goal bank", "star", *CPU),
        "predict-scaled": ("predict", RUN, "--cache", CACHE, "--temperature"),
        "export": ("export", RUN, OUT),
        "ablate": ("ablate", RUN, "--cache", CACHE, "--num-layers", 2, *CPU),
    },
}


@pytest.fixture(scope="module")
def sound(
    cache: Path,
    runs: Path,
    encoder: Path,
    texts: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The cache, another of the same rows, and the runs."""
    root = tmp_path_factory.mktemp("sound")
    extract(encoder, texts, root / "other", shard_rows=30)
    shutil.copytree(cache, root / "cache")
    shutil.copytree(runs, root / "runs")
    return root


@pytest.fixture(scope="module")
def copy(sound: Path) -> Path:
    """A place for copies of the sound folder: results of commands name it."""
    return sound.with_name("copy")


def copy_into(copy: Path, sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the sound folder and work there."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(sound, copy)
    monkeypatch.chdir(copy)


def run_and_read(command: Command) -> tuple[Outcome, Any]:
    """Run a command; its result is what it prints and the new files, without times."""
    run_path = str(next(Path("runs").glob("gaam*")))
    runs_before = set(Path("runs").iterdir())
    outcome = run(*(run_path if word == RUN else word for word in command))
    try:
        printed = timeless(json.loads(outcome.out))
    except ValueError:
        printed = outcome.out
    new_runs = sorted(set(Path("runs").iterdir()) - runs_before)
    new_folders = [Path(OUT), *new_runs]
    result = (printed, [timeless_files(folder) for folder in new_folders])
    for folder in new_folders:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, result


@pytest.fixture(scope="module")
def undamaged(sound: Path, copy: Path) -> dict[str, dict[str, Any]]:
    """The result of every command on the sound folder."""
    results: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for folder, commands in COMMANDS.items():
            copy_into(copy, sound, patch)
            results[folder] = {}
            for name, command in commands.items():
                outcome, results[folder][name] = run_and_read(command)
                assert outcome.code == 0, (name, outcome)
                assert "Traceback" not in outcome.err, (name, outcome)
    return results


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_damaged_is_refused_or_makes_no_difference(
    kind: str,
    damage: Callable[[Path, Path], None],
    sound: Path,
    copy: Path,
    undamaged: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy_into(copy, sound, monkeypatch)
    # A shard without a receipt is none: the cache lacks one, and inspect prints that.
    changes_inspect = kind == "receipt" and damage is remove
    exempt = {"inspect"} if changes_inspect else set()
    check_damage(KINDS[kind], damage, undamaged, exempt)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_that_no_command_needs_is_refused_or_makes_no_difference(
    damage: Callable[[Path, Path], None],
    sound: Path,
    copy: Path,
    undamaged: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {file.name for file in sound.glob("runs/*/*")} - KINDS.keys()
    assert names
    for name in sorted(names):
        copy_into(copy, sound, monkeypatch)
        kind = Kind(f"runs/gaam*/{name}", f"runs/laplace*/{name}", "")
        check_damage(kind, damage, undamaged, set())


def check_damage(
    kind: Kind,
    damage: Callable[[Path, Path], None],
    undamaged: dict[str, dict[str, Any]],
    exempt: set[str],
) -> None:
    """Damage a file here: each command refuses, or its result is as before."""
    file = next(Path().glob(kind.file))
    damage(file, next(Path().glob(kind.other)))
    for name, command in COMMANDS[kind.folder].items():
        outcome, result = run_and_read(command)
        case = f"{file}, {name}: {outcome}"
        assert "Traceback" not in outcome.err, case
        if outcome.code == 3:
            continue
        assert name not in kind.refusing, case
        assert result == undamaged[kind.folder][name] or name in exempt, case


@pytest.mark.parametrize("folder", COMMANDS)
def test_links_to_the_files_are_the_files(
    folder: str,
    sound: Path,
    copy: Path,
    undamaged: dict[str, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As git-annex, DVC and the hub's client lay them out."""
    copy_into(copy, sound, monkeypatch)
    replace_by_links(copy, tmp_path / "annex")
    for name, command in COMMANDS[folder].items():
        outcome, result = run_and_read(command)
        assert outcome.code == 0, (name, outcome)
        assert result == undamaged[folder][name], name


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_nothing_is_named_and_nobody_is_told_to_remove_anything(
    kind: str, sound: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_into(copy, sound, monkeypatch)
    file = next(Path().glob(KINDS[kind].file))
    file.unlink()
    file.symlink_to("/mnt/not-mounted/annex/1f9c")
    commands = COMMANDS[KINDS[kind].folder]
    for name in sorted(KINDS[kind].refusing):
        command = list(commands[name])
        if name in ("verify", "inspect"):
            command.remove("--json")
        outcome, _ = run_and_read(tuple(command))
        message = " ".join((outcome.out + outcome.err).split())
        assert outcome.code == 3, (name, outcome)
        link = f"{file.name} is a link to '/mnt/not-mounted/annex/1f9c'"
        assert link in message, name
        advice = re.search(r"damaged|delete|rm -r|move", message, re.IGNORECASE)
        assert not advice, (name, message)


def rewrite(file: Path, **values: Any) -> None:
    """Change values of a file of JSON, and the digest that goes with them."""
    content = json.loads(file.read_text())
    del content["sha256_of_this"]
    content |= values
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["sha256_of_this"] = hashlib.sha256(canonical).hexdigest()
    file.write_text(json.dumps(content))


def change_the_format() -> None:
    rewrite(Path("cache/cache.json"), format_version=3)


def change_the_version_of_a_run() -> None:
    rewrite(next(Path("runs").glob("gaam*/run.json")), run_version=99)


def give_a_run_the_name_of_another() -> None:
    gaam_run = next(Path("runs").glob("gaam*"))
    laplace_run = next(Path("runs").glob("laplace*"))
    laplace_run.rename("aside")
    gaam_run.rename(Path("runs", laplace_run.name))


def put_the_plan_of_another_cache() -> None:
    shutil.copy("other/cache.json", "cache/cache.json")


def move_the_cache() -> None:
    Path("cache").rename("elsewhere")


TRAIN = ("train", "--cache", CACHE)
INTACT: dict[Callable[[], None], tuple[Command, ...]] = {
    change_the_format: (
        ("verify", CACHE),
        ("inspect", CACHE),
        (*TRAIN, "--runs", OUT, *SHORT),
    ),
    change_the_version_of_a_run: (
        ("verify", RUNS),
        ("report", RUNS),
        ("runs", RUNS),
        ("inspect", RUNS),
    ),
    give_a_run_the_name_of_another: (
        (*TRAIN, "--runs", RUNS, "--attn", "laplace", *LONG),
    ),
    put_the_plan_of_another_cache: (
        ("inspect", CACHE),
        (*TRAIN, "--runs", OUT, *SHORT),
    ),
    move_the_cache: (
        (*TRAIN, *SHORT),
        ("predict", RUN, "--cache", CACHE),
    ),
}
"""A change that damages nothing -> the commands that refuse what it leaves."""


@pytest.mark.parametrize("change", INTACT)
def test_what_is_whole_is_not_called_damaged_and_nobody_is_told_to_remove_it(
    change: Callable[[], None],
    sound: Path,
    copy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy_into(copy, sound, monkeypatch)
    change()
    for command in INTACT[change]:
        run_path = str(next(Path("runs").glob("*gaam*"), ""))
        outcome = run(*(run_path if word == RUN else word for word in command))
        assert outcome.code in (2, 3), (command, outcome)
        message = outcome.out + outcome.err
        advice = re.search(r"damaged|delete|remove|\brm\b", message, re.IGNORECASE)
        assert not advice, (command, message)
