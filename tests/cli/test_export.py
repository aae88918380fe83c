"""``gaam export``: what it makes, what it asks, and that nothing personal goes out."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gaam_cache.inspect import is_cache
from tests.cache.encoders.audio import sounds, spoken
from tests.cache.hub.hub_server import Writable, folder_content
from tests.conftest import Outcome, build_encoder, random_rows, write_csv

Gaam = Callable[..., Outcome]
ME = "zwiebelfisch"
"""Who works on this machine."""
TRAIN = (
    "train",
    "--attn",
    "none",
    "--seeds",
    "2",
    "--epochs",
    "1",
    "--lr",
    "1e-3",
    "--no-probe",
    "-q",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with an encoder and data, in which one stands."""
    home = tmp_path / f"home-of-{ME}"
    (home / "desk").mkdir(parents=True)
    build_encoder(home / f"{ME}-models" / "encoder", "bert", num_layers=2)
    data = home / f"{ME}-data" / "rows"
    write_csv(data / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(20, 1)])
    write_csv(data / "test.csv", random_rows(10, 2))
    for name in ("HOME", "USER", "LOGNAME"):
        monkeypatch.setenv(name, str(home) if name == "HOME" else ME)
    monkeypatch.chdir(home / "desk")
    return home


def made(gaam: Gaam, *cache: object) -> tuple[str, str]:
    """Names of a cache and of a run on it."""
    for arguments in (cache, TRAIN):
        outcome = gaam(*arguments)
        assert outcome.code == 0, outcome.err
    [run] = [path for path in Path("runs").iterdir() if path.name[0] != "."]
    return "cache", str(run)


def extract(home: Path, encoder: str, dataset: str, *more: str) -> tuple[str, ...]:
    return ("extract", "--encoder", encoder, "--dataset", dataset, "-q", *more)


def states(home: Path) -> tuple[str, ...]:
    """Files of states, to be imported."""
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        rows = generator.normal(size=(20, 2, 8)).astype(np.float32)
        np.savez(
            home / f"{ME}-data" / f"{split}.npz",
            embeddings=rows,
            labels=np.arange(20) % 2,
        )
    return tuple(
        str(home / f"{ME}-data" / f"{split}.npz") for split in ("train", "test")
    )


def media(home: Path) -> tuple[str, str]:
    """An encoder of sounds and a folder of classes."""
    saved, data = home / f"{ME}-models" / "audio", home / f"{ME}-data" / "audio"
    sounds.save(next(iter(sounds.CONFIGS)), saved)
    spoken.write(data, {"train": 4, "test": 2})
    return str(saved), str(data)


WAYS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "whole paths": lambda home: extract(
        home,
        f"{home}/{ME}-models/encoder",
        f"{home}/{ME}-data/rows",
        "--keep-column",
        "label",
    ),
    "from home": lambda home: extract(
        home,
        f"~/{ME}-models/encoder",
        f"~/{ME}-data/rows",
        "--prompt",
        "of {text} it is said",
    ),
    "a link": lambda home: extract(home, *links(home)),
    "sounds": lambda home: extract(home, *media(home), "--keep-column", "file"),
    "imported": lambda home: ("import", *states(home), "-q"),
}


def links(home: Path) -> tuple[str, str]:
    for name, target in (("e", f"{ME}-models/encoder"), ("d", f"{ME}-data/rows")):
        Path(name).symlink_to(home / target)
    return "e", "d"


def personal(home: Path) -> Iterator[bytes]:
    """What nobody else may read."""
    places = (
        home,
        Path.cwd(),
        Path.home(),
        tempfile.gettempdir(),
        os.path.realpath(home),
    )
    words = [ME, *map(str, places), sys.prefix, str(Path(__file__).parents[2])]
    words += [
        name for name in (socket.gethostname(), getpass.getuser()) if len(name) > 3
    ]
    yield from (word.encode() for word in set(words))


@pytest.mark.parametrize("way", WAYS)
def test_nothing_personal_goes_out(way: str, gaam: Gaam, home: Path) -> None:
    cache, run = made(gaam, *WAYS[way](home))
    there = b"".join(path.read_bytes() for path in Path(cache).rglob("*.json"))
    assert str(home).encode() in there, "there is something to find"
    for what in (cache, run):
        outcome = gaam("export", what, f"out-{is_cache(Path(what))}", "-q")
        assert outcome.code == 0, outcome.err
    tops = "|".join(
        re.escape(path.name) for path in Path("/").iterdir() if path.is_dir()
    )
    files = [path for path in Path().glob("out-*/**/*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".h5", ".md", ".safetensors"}
    for path in files:
        content = path.read_bytes()
        for word in personal(home):
            assert word not in content, (path, word)
            assert word not in str(path).encode()
        if path.suffix in (".json", ".md"):
            found = re.findall(rf"(?<![\w.:/<])/(?:{tops})/\S*".encode(), content)
            assert not found, (path, found)
    assert gaam("verify", "out-True", "-q").code == 0
    trained = gaam(*TRAIN, "--cache", "out-True", "--runs", "others")
    assert trained.code == 0, trained.err


REFUSED: dict[str, tuple[int, str]] = {
    "CACHE o --seed 1": (2, "--seed"),
    "RUN o --private": (2, "--private"),
    "RUN o --push someone/x": (2, "--yes"),
    "RUN o --push someone/x --yes": (1, "HF_TOKEN"),
    "nowhere o": (2, "nowhere"),
}


def test_refusals_are_one_message_and_make_nothing(
    gaam: Gaam, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    places = dict(
        zip(("CACHE", "RUN"), made(gaam, *WAYS["from home"](home)), strict=True)
    )
    about = json.loads(gaam("export", places["RUN"], "r", "--json").out)
    assert (about["sent_to"], about["seeds"], about["files"]) == (None, [0, 1], 3)
    assert (
        "seed 1" in gaam("export", places["RUN"], "r", "--overwrite", "--seed", 1).out
    )
    for words, (code, said) in REFUSED.items():
        outcome = gaam("export", *(places.get(word, word) for word in words.split()))
        assert outcome.code == code, (words, outcome.err)
        assert said in outcome.err, (words, outcome.err)
        assert outcome.err.count("error: ") == 1
        assert not Path("o").exists()


@pytest.mark.parametrize("answer", ["YES\n", "\n"])
def test_it_asks_before_it_sends(
    answer: str,
    gaam: Gaam,
    tiny_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    hub = Writable(monkeypatch)
    monkeypatch.setattr(sys, "stdin", Terminal())
    outcome = gaam(
        "export", tiny_cache, tmp_path / "o", "--push", "someone/states", "-q"
    )
    assert f"to {hub.endpoint}/datasets/someone/states" in outcome.err
    assert "PUBLIC" in outcome.err
    assert "as someone" in outcome.err
    assert "[y/N]" in outcome.err
    if answer.strip().lower() in ("y", "yes"):
        assert outcome.code == 0, outcome.err
        assert (
            folder_content(tmp_path / "o").items()
            <= hub.content("someone/states").items()
        )
    else:
        assert outcome.code == 1
        assert not hub.written
