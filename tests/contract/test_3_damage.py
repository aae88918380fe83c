"""Promise 3: what is cut, changed, swapped or missing is refused by all that computes with it.

Every kind of file x every damage x every command: each refuses with exit code 3, or says exactly
what it says of the undamaged folder; ``verify`` always refuses.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import linked
from tests.contract.conftest import Outcome, extract, run
from tests.contract.test_2_resume import made, timeless


def flipped(file: Path, other: Path) -> None:
    """One bit; of JSON one that leaves it JSON."""
    content = file.read_bytes()
    for place in range(3 * len(content) // 4, len(content)):
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        lines = [changed] if file.suffix == ".json" else changed.splitlines()
        with suppress(ValueError):
            _ = [json.loads(line) for line in lines] if ".json" in file.suffix else None
            break
    file.write_bytes(changed)


def cut(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def swapped(file: Path, other: Path) -> None:
    mine = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(mine)


def missing(file: Path, other: Path) -> None:
    file.unlink()


DAMAGES = (flipped, cut, swapped, missing)
READ_A_CACHE = "train predict export plant ablate"
FILES = {
    "cache.json": ("cache/cache.json", "other/cache.json", READ_A_CACHE + " inspect"),
    "receipt": ("cache/shards/train-00000.json", "cache/shards/train-00001.json", READ_A_CACHE),
    "shard": ("cache/shards/train-00000-*.h5", "cache/shards/train-00001-*.h5", READ_A_CACHE),
    "test shard": ("cache/shards/test-*.h5", "other/shards/test-*.h5", "train export plant ablate"),
    "run.json": ("runs/gaam*/run.json", "runs/laplace*/run.json",
                 "inspect train report page report-scaled predict predict-texts predict-scaled "
                 "export ablate"),
    "log.jsonl": ("runs/gaam*/log.jsonl", "runs/laplace*/log.jsonl", "page"),
    "weights.safetensors": ("runs/gaam*/weights*", "runs/laplace*/weights*",
                            "predict predict-texts predict-scaled export"),
    "test.safetensors": ("runs/gaam*/test*", "runs/laplace*/test*",
                         "train report page report-scaled ablate"),
    "validation.safetensors": ("runs/gaam*/validation*", "runs/laplace*/validation*",
                               "report-scaled predict-scaled"),
}  # fmt: skip
"""Of each kind one, another of its kind, and who computes with it."""
CACHE, RUNS, RUN, OUT, CPU = (
    "cache",
    "runs",
    "runs/gaam",
    "out",
    ("--device", "cpu", "--json"),
)
SHORT = ("--lr", 3e-4, "--seeds", 2, "--epochs", 1, "--no-probe", *CPU)
LONG = (
    "--lr",
    3e-4,
    "--seeds",
    3,
    "--epochs",
    4,
    "--batch-size",
    16,
    "--no-probe",
    *CPU,
)
COMMANDS: dict[str, dict[str, tuple[object, ...]]] = {
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
            "report",
            RUNS,
            "--json",
            "--temperature",
            "--score",
            "log-loss",
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


def said(command: tuple[object, ...]) -> tuple[Outcome, Any]:
    """What a command leaves, and of that what it says and makes, but for times."""
    mine, before = str(next(Path("runs").glob("gaam*"))), set(Path("runs").iterdir())
    outcome = run(*(mine if word == RUN else word for word in command))
    try:
        told = timeless(json.loads(outcome.out))
    except ValueError:
        told = outcome.out
    new = [Path(OUT), *sorted(set(Path("runs").iterdir()) - before)]
    found = told, [made(folder) for folder in new]
    for folder in new:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome, found


@pytest.mark.parametrize("kind", [*FILES, "any other of a run"])
def test_whatever_is_damaged_is_refused_or_makes_no_difference(
    kind: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {file.name for file in sound.glob("runs/*/*")} - FILES.keys()
    for name in [kind] if kind in FILES else names:
        usual = f"runs/gaam*/{name}", f"runs/laplace*/{name}", ""
        mine, other, readers = FILES.get(name, usual)
        commands = COMMANDS["runs" if mine.startswith("runs") else "cache"]
        must = {"verify", *readers.split()}
        whole: dict[str, Any] = {}
        for damage in (None, *DAMAGES):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(sound, tmp_path / "copy")
            monkeypatch.chdir(tmp_path / "copy")
            if damage is not None:
                damage(*(next(Path().glob(pattern)) for pattern in (mine, other)))
            for command, line in commands.items():
                outcome, found = said(line)
                case = f"{name} {damage}, {command}: {outcome}"
                assert "Traceback" not in outcome.err, case
                if damage is None:
                    assert outcome.code == 0, case
                    whole[command] = found
                elif outcome.code != 3:
                    # a shard without receipt is none: its cache lacks one, and inspect says so
                    lacks = (name, damage, command) == ("receipt", missing, "inspect")
                    assert command not in must, case
                    assert found == whole[command] or lacks, case


@pytest.mark.parametrize("folder", COMMANDS)
def test_links_to_the_files_are_the_files(
    folder: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git-annex, DVC and the hub's client lay them out."""
    whole: dict[str, Any] = {}
    copy = Path(shutil.copytree(sound, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    for links in (False, True):
        if links:
            linked(copy, tmp_path / "annex")
        for command, line in COMMANDS[folder].items():
            outcome, found = said(line)
            assert outcome.code == 0, (command, outcome)
            assert whole.setdefault(command, found) == found, command


@pytest.mark.parametrize("kind", FILES)
def test_a_link_to_nothing_is_named_and_nobody_is_told_to_remove_anything(
    kind: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _, readers = FILES[kind]
    shutil.copytree(sound, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    file = next(Path().glob(mine))
    file.unlink()
    file.symlink_to("/mnt/not-mounted/annex/1f9c")
    commands = COMMANDS["runs" if mine.startswith("runs") else "cache"]
    for command in {"verify", *readers.split()}:
        line = [*commands[command]]
        if command in ("verify", "inspect"):
            line.remove("--json")
        outcome, _ = said(tuple(line))
        words = " ".join((outcome.out + outcome.err).split())
        assert outcome.code == 3, (command, outcome)
        assert f"{file.name} is a link to '/mnt/not-mounted/annex/1f9c'" in words, (
            command
        )
        assert not re.search(r"damaged|delete|rm -r|move", words, re.IGNORECASE), (
            command,
            words,
        )


def rewritten(file: Path, **values: Any) -> None:
    """A file of JSON with other values, and the digest that goes with them."""
    content = {
        k: v for k, v in json.loads(file.read_text()).items() if k != "sha256_of_this"
    }
    content |= values
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(canonical).hexdigest()
    file.write_text(json.dumps(content | {"sha256_of_this": digest}))


def of_another_format() -> None:
    rewritten(Path("cache/cache.json"), format_version=2)


def of_another_gaam() -> None:
    rewritten(next(Path("runs").glob("gaam*/run.json")), run_version=99)


def with_the_name_of_another() -> None:
    mine, other = (next(Path("runs").glob(f"{name}*")) for name in ("gaam", "laplace"))
    other.rename("aside")
    mine.rename(Path("runs", other.name))


def under_the_plan_of_another() -> None:
    shutil.copy("other/cache.json", "cache/cache.json")


def moved() -> None:
    Path("cache").rename("elsewhere")


INTACT: dict[Any, tuple[tuple[object, ...], ...]] = {
    of_another_format: (
        ("verify", CACHE), ("inspect", CACHE), ("train", "--cache", CACHE, "--runs", OUT, *SHORT)),
    of_another_gaam: (
        ("verify", RUNS), ("report", RUNS), ("runs", RUNS), ("inspect", RUNS)),
    with_the_name_of_another: (
        ("train", "--cache", CACHE, "--runs", RUNS, "--attn", "laplace", *LONG),),
    under_the_plan_of_another: (
        ("inspect", CACHE), ("train", "--cache", CACHE, "--runs", OUT, *SHORT)),
    moved: (("train", "--cache", CACHE, *SHORT), ("predict", RUN, "--cache", CACHE)),
}  # fmt: skip
"""What is whole, and what refuses it all the same."""


@pytest.mark.parametrize("change", INTACT)
def test_what_is_whole_is_not_called_damaged_and_nobody_is_told_to_remove_it(
    change: Any, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sound, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    change()
    for line in INTACT[change]:
        mine = str(next(Path("runs").glob("*gaam*"), ""))
        outcome = run(*(mine if word == RUN else word for word in line))
        assert outcome.code in (2, 3), (line, outcome)
        words = outcome.out + outcome.err
        assert not re.search(r"damaged|delete|remove|\brm\b", words, re.IGNORECASE), (
            line,
            words,
        )
