"""``gaam export``: what it makes, what it asks, and that nothing personal goes out."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.cache.encoders.audio import sounds, spoken
from tests.cache.hub.hub_server import Writable, folder_content
from tests.conftest import Outcome
from tests.tiny import build_encoder, random_rows, write_csv

Gaam = Callable[..., Outcome]
Command = tuple[object, ...]
USER = "zwiebelfisch"
"""Who works on this machine."""
TRAIN: Command = (
    *("train", "--attn", "none", "--seeds", "2", "--epochs", "1", "--lr", "1e-3"),
    *("--no-probe", "-q"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with an encoder and data; the current folder is inside."""
    home = tmp_path / f"home-of-{USER}"
    (home / "desk").mkdir(parents=True)
    build_encoder(home / f"{USER}-models" / "encoder", "bert", num_layers=2)
    data = home / f"{USER}-data" / "rows"
    write_csv(data / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(20, 1)])
    write_csv(data / "test.csv", random_rows(10, 2))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.chdir(home / "desk")
    return home


def extract(encoder: object, dataset: object, *options: str) -> Command:
    return ("extract", "--encoder", encoder, "--dataset", dataset, "-q", *options)


def extract_from_whole_paths(home: Path) -> Command:
    encoder = home / f"{USER}-models/encoder"
    return extract(encoder, home / f"{USER}-data/rows", "--keep-column", "label")


def extract_from_home(home: Path) -> Command:
    encoder = f"~/{USER}-models/encoder"
    prompt = ("--prompt", "of {text} it is said")
    return extract(encoder, f"~/{USER}-data/rows", *prompt)


def extract_through_links(home: Path) -> Command:
    Path("encoder-link").symlink_to(home / f"{USER}-models/encoder")
    Path("data-link").symlink_to(home / f"{USER}-data/rows")
    return extract("encoder-link", "data-link")


def extract_sounds(home: Path) -> Command:
    encoder = home / f"{USER}-models" / "audio"
    sounds.save(next(iter(sounds.CONFIGS)), encoder)
    data = home / f"{USER}-data" / "audio"
    spoken.write(data, {"train": 4, "test": 2})
    return extract(encoder, data, "--keep-column", "file")


def import_states(home: Path) -> Command:
    rng = np.random.default_rng(0)
    files: list[Path] = []
    for split in ("train", "test"):
        states = rng.normal(size=(20, 2, 8)).astype(np.float32)
        file = home / f"{USER}-data" / f"{split}.npz"
        np.savez(file, embeddings=states, labels=np.arange(20) % 2)
        files.append(file)
    return ("import", *files, "-q")


MAKERS: dict[str, Callable[[Path], Command]] = {
    "whole paths": extract_from_whole_paths,
    "from home": extract_from_home,
    "a link": extract_through_links,
    "sounds": extract_sounds,
    "imported": import_states,
}
"""Functions that make inputs and return the command that makes a cache of them."""


class Made(NamedTuple):
    """A cache and a run on it."""

    cache: Path
    run: Path


def make(gaam: Gaam, command: Command) -> Made:
    """Make a cache by a command, and train on it."""
    run_command(gaam, *command)
    run_command(gaam, *TRAIN)
    [run] = [path for path in Path("runs").iterdir() if not path.name.startswith(".")]
    return Made(Path("cache"), run)


def run_command(gaam: Gaam, *command: object) -> None:
    outcome = gaam(*command)
    assert outcome.code == 0, outcome.err


def personal_words(home: Path) -> set[bytes]:
    """What nobody else may read."""
    words = {
        USER,
        str(home),
        str(Path.cwd()),
        str(Path.home()),
        tempfile.gettempdir(),
        os.path.realpath(home),
        sys.prefix,
        str(Path(__file__).parents[2]),
    }
    # a shorter name may be part of another word
    names = (socket.gethostname(), getpass.getuser())
    words |= {name for name in names if len(name) > 3}
    return {word.encode() for word in words}


def absolute_paths(content: bytes) -> list[bytes]:
    """Paths in a text that begin with a folder of this machine."""
    folders = [re.escape(path.name) for path in Path("/").iterdir() if path.is_dir()]
    pattern = rf"(?<![\w.:/<])/(?:{'|'.join(folders)})/\S*"
    return re.findall(pattern.encode(), content)


@pytest.mark.parametrize("maker", MAKERS)
def test_nothing_personal_goes_out(maker: str, gaam: Gaam, home: Path) -> None:
    made = make(gaam, MAKERS[maker](home))
    records = b"".join(path.read_bytes() for path in made.cache.rglob("*.json"))
    assert str(home).encode() in records, "there is something to leak"
    run_command(gaam, "export", made.cache, "out-cache", "-q")
    run_command(gaam, "export", made.run, "out-run", "-q")
    files = [path for path in Path().glob("out-*/**/*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".h5", ".md", ".safetensors"}
    words = personal_words(home)
    for path in files:
        content = path.read_bytes()
        for word in words:
            assert word not in content, (path, word)
            assert word not in str(path).encode()
        if path.suffix in (".json", ".md"):
            assert absolute_paths(content) == [], path
    run_command(gaam, "verify", "out-cache", "-q")
    run_command(gaam, *TRAIN, "--cache", "out-cache", "--runs", "others")


class Refusal(NamedTuple):
    """Words after ``gaam export``, the exit code, and a word of the message."""

    words: str
    code: int
    part: str


REFUSALS = (
    Refusal("CACHE o --seed 1", 2, "--seed"),
    Refusal("RUN o --private", 2, "--private"),
    Refusal("RUN o --push someone/x", 2, "--yes"),
    Refusal("RUN o --push someone/x --yes", 1, "HF_TOKEN"),
    Refusal("nowhere o", 2, "nowhere"),
)


def test_refusals_are_one_message_and_make_nothing(
    gaam: Gaam, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    made = make(gaam, extract_from_home(home))
    paths = {"CACHE": made.cache, "RUN": made.run}
    for refusal in REFUSALS:
        words = [paths.get(word, word) for word in refusal.words.split()]
        outcome = gaam("export", *words)
        case = (refusal.words, outcome.err)
        assert outcome.code == refusal.code, case
        assert refusal.part in outcome.err, case
        assert outcome.err.count("error: ") == 1, case
        assert not Path("o").exists(), case
    summary = json.loads(gaam("export", made.run, "r", "--json").out)
    assert summary["sent_to"] is None
    assert summary["seeds"] == [0, 1]
    assert summary["files"] == 3
    overwritten = gaam("export", made.run, "r", "--overwrite", "--seed", 1)
    assert "seed 1" in overwritten.out


class Terminal:
    """A terminal at which somebody types one answer."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "is_sent"),
    [pytest.param("YES\n", True, id="yes"), pytest.param("\n", False, id="Enter")],
)
def test_it_asks_before_it_sends(
    answer: str,
    is_sent: bool,
    gaam: Gaam,
    tiny_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Writable(monkeypatch)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    out = tmp_path / "o"
    outcome = gaam("export", tiny_cache, out, "--push", "someone/states", "-q")
    address = f"to {hub.endpoint}/datasets/someone/states"
    for part in (address, "PUBLIC", "as someone", "[y/N]"):
        assert part in outcome.err
    if is_sent:
        assert outcome.code == 0, outcome.err
        sent_files = hub.content("someone/states")
        assert folder_content(out).items() <= sent_files.items()
    else:
        assert outcome.code == 1
        assert not hub.written
