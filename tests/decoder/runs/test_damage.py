"""Every kind of file of a run and of unfinished work x every kind of damage x every command.

Each is detected (exit code 3 and one message that names the run) or harmless (the same output).
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache import devices, plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import CacheError, GaamWarning
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_cache.store.files import canonical_json
from gaam_decoder import TrainConfig
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import ALL_FILES, TEST_FILE, VALIDATION_FILE, WEIGHTS_FILE
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.runs.verify import check_run
from gaam_decoder.training.items import plan_items
from gaam_decoder.unfinished import checkpoint
from gaam_decoder.unfinished.checkpoint import Checkpoint
from tests.conftest import Outcome

HANG_SECONDS = 60
TENSORS = (WEIGHTS_FILE, TEST_FILE, VALIDATION_FILE)
Harm = Callable[[Path], None]
"""Damages the file at a path."""
Gaam = Callable[..., Outcome]


class Place:
    """A folder of runs that is made again before each damage."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.runs = root / "runs"
        self.whole = root / "whole"
        self.config = TrainConfig(
            attn=("gaam", "none"),
            cache=cache,
            runs=self.runs,
            seeds=(0, 1),
            epochs=2,
            lr=0.01,
            seed_batch=2,
            compile="off",
            device="cpu",
        )

        self.made: list[Path] = []

    def keep(self) -> None:
        """What lies in the runs now is what ``restore`` makes."""
        shutil.copytree(self.runs, self.whole)

    def restore(self) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)
        shutil.copytree(self.whole, self.runs)

    def train(self, seeds: str = "0-3") -> list[str]:
        """The command line of the config."""
        options = {"cache": self.config.cache, "runs": self.runs, "epochs": 2, "lr": 0.01}
        options |= {"seed-batch": 2, "compile": "off", "device": "cpu", "seeds": seeds}
        named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return ["train", "--attn", "gaam", "--attn", "none", *named, "--quiet"]


def harms(size: int, flips: int, elsewhere: Path, neighbours: dict[str, Path]) -> dict[str, Harm]:
    """Every kind of damage to a file of ``size`` bytes."""

    def flip(place: int) -> Harm:
        def harm(path: Path) -> None:
            content = bytearray(path.read_bytes())
            content[place] ^= 1 << (place % 8)
            path.write_bytes(content)

        return harm

    def cut(length: int) -> Harm:
        return lambda path: path.write_bytes(path.read_bytes()[:length])

    def instead(make: Harm) -> Harm:
        def harm(path: Path) -> None:
            shutil.copyfile(path, elsewhere)  # a link leads to the very same content
            path.unlink()
            make(path)

        return harm

    def swap(other: Path) -> Harm:
        def harm(path: Path) -> None:
            mine = path.read_bytes()
            path.write_bytes(other.read_bytes())
            other.write_bytes(mine)

        return harm

    places = [size * i // flips + min(i, size // flips - 1) for i in range(flips)]
    return {
        **{f"bit {place}": flip(place) for place in places},
        "last bit": flip(size - 1),
        "truncated": cut(size // 2),
        "a byte short": cut(size - 1),
        "empty": cut(0),
        "appended": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
        "gone": Path.unlink,
        "folder": instead(Path.mkdir),
        "link": instead(lambda path: path.symlink_to(elsewhere)),
        "fifo": instead(lambda path: os.mkfifo(path)),
        **{f"swapped with {name}": swap(other) for name, other in neighbours.items()},
    }


@pytest.fixture
def no_hang() -> Iterator[None]:
    """A read that waits for a pipe ends the test, not the day."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("hangs")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def finished(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """gaam and none over seeds 0-1 and 2-3, and what ablating the first of them makes."""
    place = Place(tmp_path_factory.mktemp("finished"), tiny_cache)
    runs = gaam_decoder.train(place.config)
    place.made = [run.path for run in runs]
    place.made += [r.path for r in gaam_decoder.train(replace(place.config, seeds=(2, 3)))]
    gaam_decoder.ablate(runs[0].path, num_layers=2, device="cpu")
    place.keep()
    return place


def told(outcome: Outcome, command: str, whole: Outcome, names: list[str]) -> str:
    """'detected' or 'harmless'; anything else fails."""
    assert "Traceback" not in outcome.err, outcome.err
    if outcome == whole:
        return "harmless"
    assert outcome.code == 3, (outcome.code, outcome.out, outcome.err)
    if command in ("inspect", "verify"):
        assert outcome.err == ""
        lines = [x for x in outcome.out.splitlines() if x.startswith(("DAMAGED: ", "bad: "))]
        assert lines, outcome.out
        assert any(names[0] in line and "rm -r" in line for line in lines), outcome.out
    else:
        assert outcome.out == ""
        assert outcome.err.count("error: ") == 1, outcome.err
        # of two runs whose files were swapped either may be named first
        assert any(one in outcome.err for one in names), outcome.err
        assert "to do:" in outcome.err
    return "detected"


def check_table(
    place: Place, gaam: Gaam, tmp_path: Path, commands: dict[str, list[str]], flips: int
) -> Counter[tuple[str, str, str]]:
    """Damage each file of a run in each way and run each command."""
    place.restore()
    mine, other, same, _ = place.made
    whole = {name: gaam(*command) for name, command in commands.items()}
    assert [outcome.code for outcome in whole.values()] == [0] * len(whole), whole
    counted: Counter[tuple[str, str, str]] = Counter()
    for file in (RUN_FILE, *ALL_FILES):
        content = (mine / file).read_bytes()
        neighbours = {"other seeds": same / file, "another mechanism": other / file}
        cases = harms(len(content), flips, tmp_path / "elsewhere", neighbours)
        for harm, do in cases.items():
            place.restore()
            do(mine / file)
            said = {}
            swapped = [same.name, other.name] if harm.startswith("swapped") else []
            names = [mine.name, *swapped]
            for name, command in commands.items():
                signal.alarm(HANG_SECONDS)
                try:
                    said[name] = told(gaam(*command), name, whole[name], names)
                except AssertionError as error:
                    raise AssertionError(f"{file}, {harm}, {name}: {error}") from error
                signal.alarm(0)
                counted[file, name, said[name]] += 1
            changed = not same_content(mine / file, content)
            if "verify" in said:
                assert (said["verify"] == "detected") == changed, (file, harm)
    return counted


def same_content(path: Path, content: bytes) -> bool:
    """Whether a file says what it said: the same bytes, or the same JSON in other white space."""
    if path.is_symlink() or not path.is_file():
        return False
    found = path.read_bytes()
    if path.name != RUN_FILE or found == content:
        return found == content
    try:
        return canonical_json(json.loads(found)) == canonical_json(json.loads(content))
    except ValueError:
        return False


def commands_of(place: Place, formats: list[str]) -> dict[str, Any]:
    first = place.made[0]
    commands: dict[str, Any] = {"train": place.train("0-1")}
    commands["inspect"] = ["inspect", place.runs]
    commands["verify"] = ["verify", place.runs, "--quiet"]
    commands["report scaled"] = ["report", place.runs, "--temperature", "--format", "csv"]
    commands["ablate"] = ["ablate", first, "--num-layers", 2, "--device", "cpu", "--quiet"]
    for name in formats:
        commands[f"report {name}"] = ["report", place.runs, "--format", name]
    return commands


def test_damage_to_a_run_is_detected_or_harmless_in_every_command(
    finished: Place, gaam: Gaam, tmp_path: Path, no_hang: None
) -> None:
    finished.restore()
    counted = check_table(finished, gaam, tmp_path, commands_of(finished, ["csv"]), flips=3)
    assert counted[RUN_FILE, "report csv", "detected"] >= 12
    assert counted["test.safetensors", "report csv", "harmless"] == 0
    assert counted["weights.safetensors", "verify", "harmless"] == 0
    commands = ("report csv", "report scaled")
    found = {name: counted[VALIDATION_FILE, name, "detected"] for name in commands}
    assert found["report scaled"] > found["report csv"], "who needs it hashes it"
    assert counted[VALIDATION_FILE, "report scaled", "harmless"] == 0
    assert sum(counted.values()) == 6 * 5 * (3 + 11)


@pytest.mark.slow
def test_damage_to_a_run_is_detected_or_harmless_in_every_format(
    finished: Place, gaam: Gaam, tmp_path: Path, no_hang: None
) -> None:
    finished.restore()
    formats = plugins.names("gaam_decoder.reports.formats")
    counted = check_table(finished, gaam, tmp_path, commands_of(finished, formats), flips=16)
    for name in formats:
        assert counted["test.safetensors", f"report {name}", "harmless"] == 0
    assert counted["log.jsonl", "report html", "harmless"] == 0


@pytest.mark.parametrize(
    "put",
    [
        Path.mkdir,
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.write_text(""),
        lambda path: (path.mkdir(), (path / ".run.json.x").touch()),
        os.mkfifo,
    ],
    ids=["empty", "dangling", "file", "begun copy", "pipe"],
)
def test_what_is_named_like_a_run_and_holds_none_is_a_damaged_run(
    put: Callable[[Path], object], finished: Place, gaam: Gaam, no_hang: None
) -> None:
    finished.restore()
    folder = next(path for path in finished.made[2:])
    shutil.rmtree(folder)
    put(folder)
    for command in (["report", finished.runs], ["verify", finished.runs, "--quiet"]):
        outcome = gaam(*command)
        assert outcome.code == 3
        assert folder.name in outcome.out + outcome.err
        assert "rm -r" in outcome.out + outcome.err
    shown = json.loads(gaam("inspect", finished.runs, "--json").out)
    assert [Path(run["path"]).name for run in shown["damage"]] == [folder.name]
    finished.restore()


def test_all_damaged_runs_are_named_at_once(finished: Place, gaam: Gaam) -> None:
    finished.restore()
    names = sorted(path.name for path in finished.made[2:])
    assert len(names) == 2
    (finished.runs / names[0] / "run.json").unlink()
    flipped = finished.runs / names[1] / "test.safetensors"
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"\0")
    for command in (["report", finished.runs], ["verify", finished.runs, "--quiet"]):
        outcome = gaam(*command)
        assert outcome.code == 3
        for name in names:
            assert name in outcome.out + outcome.err
    assert "2 of " in gaam("report", finished.runs).err
    shown = json.loads(gaam("inspect", finished.runs, "--json").out)
    assert [Path(run["path"]).name for run in shown["damage"]] == names


def test_a_file_that_is_missing_is_named_and_no_other(finished: Place, gaam: Gaam) -> None:
    for path in sorted(finished.made[0].iterdir()):
        finished.restore()
        path.unlink()
        outcome = gaam("report", finished.runs)
        assert outcome.code == 3
        assert f"{path.name}: No such file" in outcome.err
    finished.restore()


def test_the_repair_that_verify_prints_makes_the_same_run_again(
    finished: Place, gaam: Gaam, no_hang: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished.restore()
    monkeypatch.chdir(tmp_path)
    broken = finished.made[2]
    whole = {name: (broken / name).read_bytes() for name in TENSORS}
    (broken / "weights.safetensors").write_bytes(whole["weights.safetensors"][:-1] + b"\0")
    outcome = gaam("verify", finished.runs, "--quiet", "--json")
    assert outcome.code == 3
    (bad,) = json.loads(outcome.out)["bad"]
    keep, remove, train = (shlex.split(part) for part in bad["repair"].split(" && "))
    assert (keep[0], remove) == ("mv", ["rm", "-r", str(broken)])
    shutil.move(*keep[1:])
    shutil.rmtree(broken)
    assert gaam(*train[1:]).code == 0
    assert {name: (broken / name).read_bytes() for name in whole} == whole
    assert gaam("verify", finished.runs, "--quiet").code == 0


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**12, 2**70, 1e300, "", "x", [], {}, [[]], [None], {"": 0}),
    *("\ud800", "../..", "5/2", "val", 0.5, ["a"], "9" * 5000),
)


def mutated(value: Any, generator: random.Random) -> Any:
    """JSON in which one thing, anywhere, is something else, gone, or there twice."""
    if isinstance(value, (dict, list)) and value and generator.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        copy, key = value.copy(), generator.choice(keys)
        match generator.randrange(8):
            case 0:
                del copy[key]
            case 1 if isinstance(copy, list):
                copy.append(copy[key])
            case 2:
                copy[key] = copy[generator.choice(keys)]
            case _:
                copy[key] = mutated(copy[key], generator)
        return copy
    return generator.choice(HOSTILE)


def use(path: Path) -> dict[str, Any]:
    """All that commands read of a run."""
    run = read_run(path)
    check_run(run)
    run.summary()
    return run.to_dict()


def test_2000_mutations_of_run_json_end_in_one_error_or_in_the_same_run(
    finished: Place, no_hang: None
) -> None:
    """Half of them with a digest that fits: by somebody who knows how."""
    finished.restore()
    path = finished.made[0]
    file = path / RUN_FILE
    content = file.read_bytes()
    parsed = unsealed(json.loads(content))
    whole = use(path)
    generator = random.Random(0)
    counted: Counter[str] = Counter()
    signal.alarm(10 * HANG_SECONDS)
    for number in range(2000):
        sealed = number % 2 == 1
        if sealed:
            some = mutated(parsed, generator)
            file.write_text(sealed_text(some) if isinstance(some, dict) else json.dumps(some))
        else:
            raw = bytearray(content)
            for _ in range(generator.randrange(1, 4)):
                raw[generator.randrange(len(raw))] = generator.randrange(256)
            file.write_bytes(raw)
        try:
            found = use(path)
        except CacheError:
            counted["detected"] += 1
            continue
        if sealed:
            counted["another run"] += 1  # a recipe of another name, another majority rate
        else:
            assert found == whole
            counted["harmless"] += 1
    assert counted["detected"] > 1400, counted


# unfinished work


@pytest.fixture(scope="module")
def unfinished(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Seeds 0-5 in pairs: the first is done, the second at work, the third not begun; twice."""
    place = Place(tmp_path_factory.mktemp("unfinished"), tiny_cache)
    place.config = replace(place.config, attn=("gaam",), seeds=tuple(range(6)))
    patch = pytest.MonkeyPatch()
    patch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    patch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))

    def interrupt(done: int, total: int, text: str) -> None:
        if "seeds 2-3 epoch 1" in text:
            raise KeyboardInterrupt

    for config in (place.config, replace(place.config, lr=0.02)):
        with pytest.raises(KeyboardInterrupt):
            gaam_decoder.train(config, progress=interrupt)
    patch.undo()
    place.keep()
    return place


def bits(run: RunResult) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in TENSORS}


def resumed(place: Place) -> tuple[dict[str, bytes], list[str]]:
    """Bits of the run that the interrupted training ends with, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        (run,) = gaam_decoder.train(place.config)
    said = [str(warning.message) for warning in caught if warning.category is GaamWarning]
    return bits(run), said


def folders_of(place: Place) -> tuple[Path, Path]:
    """Of the unfinished work of the config, and of that with another learning rate."""
    cache = open_cache(place.config.cache)
    (item,) = plan_items(place.config, cache, devices.resolve_device("cpu"))
    (second,) = set(place.runs.glob(".*.partial")) - {place.runs / f".gaam-{item.key[:8]}.partial"}
    return place.runs / f".gaam-{item.key[:8]}.partial", second


@pytest.mark.parametrize("kind", ["done", "group"])
def test_damage_to_unfinished_work_costs_time_and_never_changes_a_bit(
    kind: str, unfinished: Place, gaam: Gaam, tmp_path: Path, no_hang: None
) -> None:
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    place.restore()
    first, second = folders_of(place)
    (mine,), (twin,) = first.glob(f"{kind}-*"), second.glob(f"{kind}-*")
    other = next(first.glob("group-*" if kind == "done" else "done-*"))
    size = mine.stat().st_size
    cases = harms(size, 2, tmp_path / "elsewhere", {"the other kind": other, "other runs": twin})
    cases["nothing"] = lambda path: None
    lost = 0
    for harm, do in cases.items():
        place.restore()
        signal.alarm(HANG_SECONDS)
        do(mine)
        found, said = resumed(place)
        assert found == whole, (kind, harm)
        silent = harm in ("nothing", "gone")
        assert len(said) == (not silent), (harm, said)
        if not silent:
            assert mine.name in said[0]
            assert "trained again" in said[0]
            lost += 1
        assert not first.exists(), harm
    signal.alarm(0)
    assert lost == len(cases) - 2


def test_damage_to_all_unfinished_work_is_one_warning_and_a_training_from_the_start(
    unfinished: Place, tmp_path: Path
) -> None:
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    place.restore()
    first, second = folders_of(place)
    files, others = sorted(first.iterdir()), sorted(second.iterdir())
    for file in files:
        file.write_bytes(b"half a file")
    (first / "engine.json").write_text("{}")
    found, (said,) = resumed(place)
    assert found == whole
    assert all(f"'{file.name}'" in said for file in [*files, first / "engine.json"])
    for harm in ("a file", "a link to another"):
        place.restore()
        shutil.rmtree(first)
        if harm == "a file":
            first.write_bytes(b"")
        else:
            first.symlink_to(second)
        found, (said,) = resumed(place)
        assert found == whole
        assert "no folder" in said
        assert sorted(second.iterdir()) == others, "what a link led to is not ours"


def test_a_damaged_finished_group_is_trained_again_as_it_was_put_together(
    unfinished: Place, tmp_path: Path
) -> None:
    """More memory now would make larger groups of what is left, whose last bits may differ."""
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    place.restore()
    first, _ = folders_of(place)
    (done,) = first.glob("done-*")
    done.write_bytes(b"")
    seen: list[str] = []
    config = replace(place.config, seed_batch=32)
    with pytest.warns(GaamWarning, match="trained again"):
        (run,) = gaam_decoder.train(config, progress=lambda d, t, text: seen.append(text))
    assert bits(run) == whole
    groups = {found.group(1) for text in seen if (found := re.search(r"seeds (\S+) epoch", text))}
    assert groups == {"0-1", "2-3", "4-5"}
    assert run.engine["seed_batch"] == 2


def test_whatever_lies_at_the_lock_a_training_ends_with_the_same_bits_or_one_message(
    unfinished: Place, gaam: Gaam, tmp_path: Path, no_hang: None
) -> None:
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    place.restore()
    first, _ = folders_of(place)
    lock = first.with_suffix(".lock")
    lock.write_bytes(b"12345")
    cases = harms(5, 1, tmp_path / "elsewhere", {})
    for harm, do in cases.items():
        place.restore()
        lock.write_bytes(b"12345")
        do(lock)
        signal.alarm(HANG_SECONDS)
        options = {"cache": place.config.cache, "runs": place.runs, "epochs": 2, "lr": 0.01}
        options |= {"seed-batch": 2, "compile": "off", "device": "cpu", "seeds": "0-5"}
        named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        outcome = gaam("train", "--attn", "gaam", *named, "--quiet")
        signal.alarm(0)
        assert "Traceback" not in outcome.err
        if outcome.code:
            assert harm in ("folder", "link")
            assert outcome.err.count("error: ") == 1
            continue
        (run,) = gaam_decoder.load_runs(place.runs)
        assert bits(run) == whole, harm


def test_2000_damages_to_a_file_of_unfinished_work_are_all_seen(unfinished: Place) -> None:
    unfinished.restore()
    first, _ = folders_of(unfinished)
    (file,) = first.glob("group-*")
    content = file.read_bytes()
    generator = random.Random(0)
    assert Checkpoint(file).load() is not None
    for _ in range(2000):
        raw = bytearray(content)
        match generator.randrange(3):
            case 0:
                raw[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
            case 1:
                raw = raw[: generator.randrange(len(raw))]
            case _:
                place = generator.randrange(len(raw))
                raw[place:place] = generator.randbytes(generator.randrange(1, 9))
        file.write_bytes(raw)
        assert Checkpoint(file).load() is None
