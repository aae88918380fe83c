"""gaam rerun: the commands that it prints give the same runs, bit for bit, or none are printed."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaam_decoder import RunResult, load_runs
from gaam_decoder.config import TrainConfig
from gaam_decoder.recipe import Recipe
from gaam_decoder.reports.signature import read, spell
from gaam_decoder.rerun.commands import ELSEWHERE, spell_seeds
from gaam_decoder.rerun.of_runs import config_of
from tests.cli.commands import COMMANDS
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
USUAL = {"--epochs": 2, "--seeds": 2, "--device": "cpu"}
OTHERWISE: dict[str, tuple[object, ...]] = {
    "attn": ("--attn", "gaam:heads=1", "--attn", "none"),
    "head": ("--attn", "none", "--head", "mlp", "--head", "lbfgs"),
    "loss": ("--loss", "focal:gamma=2.5,alpha=0.25"),
    "class_weights": ("--class-weights", "balanced"),
    "seeds": ("--seeds", "3,"),
    "tune_seeds": ("--lr", "1e-3,1e-2", "--tune-seeds", "0-1", "--seeds", "2-3"),
    "epochs": ("--epochs", 3),
    "train_rows": ("--train-rows", "20,all"),
    "shots": ("--shots", "4,8"),
    "batch_size": ("--batch-size", 7),
    "lr": ("--lr", "1.5e-3,1e-2"),
    "weight_decay": ("--weight-decay", "0,0.3"),
    "schedule": ("--schedule", "plateau"),
    "clip_grad_norm": ("--clip-grad-norm", 0.5),
    "loss_scale": ("--loss-scale", "dynamic"),
    "clip_order": ("--dtype", "float16", "--clip-grad-norm", 1, "--clip-order", "clip-first"),
    "shuffle": ("--shuffle", "window:32"),
    "select": ("--select", "last"),
    "ties": ("--ties", "first"),
    "val_fraction": ("--val-fraction", 0.25),
    "split_seed": ("--split-seed", 3),
    "pool": ("--pool", "mean"),
    "layers": ("--layers", "1,3", "--layers", "2-4", "--layers", "all"),
    "train_split": ("--train-split", "test", "--test-split", "train"),
    "test_split": ("--test-split", "none"),
    "final": ("--final",),
    "allow_train_as_test": ("--test-split", "train", "--allow-train-as-test"),
    "shuffle_labels": ("--shuffle-labels",),
    "folds": ("--folds", 2),
    "fold": ("--folds", 2, "--fold", 2),
    "repeats": ("--folds", 2, "--repeats", 2),
    "groups": ("--folds", 2, "--groups", "GROUPS"),
    "dtype": ("--dtype", "bfloat16"),
    "eval_dtype": ("--dtype", "bfloat16", "--eval-dtype", "float32"),
    "probe": ("--probe",),
}
"""For every option of a training that decides numbers one way to set it."""
NO_NUMBERS = {*ELSEWHERE, "cache", "runs", "preset", "dry_run", "config", "quiet", "as_json"}
"""Options that decide no number."""


def test_every_option_of_a_training_is_tried_or_decides_no_number() -> None:
    options = {parameter.name for parameter in COMMANDS["train"].params} - {"help"}
    assert options == {*OTHERWISE, *NO_NUMBERS}
    assert not {*OTHERWISE} & NO_NUMBERS


def test_every_field_of_a_recipe_is_a_field_of_a_configuration_or_follows() -> None:
    follows = {"attention", "shard_rows"}
    assert {one.name for one in dataclasses.fields(Recipe)} - follows <= {
        one.name for one in dataclasses.fields(TrainConfig)
    }


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_cache: Path
) -> Callable[[Gaam, str], Path]:
    """A folder of runs with an option set; each is trained once."""
    made: dict[str, Path] = {}

    def train(gaam: Gaam, name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp("rerun") / "runs"
            names = folder.parent / "names.txt"
            names.write_text("".join(f"s{row % 7}\n" for row in range(60)))
            words = [names if word == "GROUPS" else word for word in OTHERWISE[name]]
            usual = [w for o, value in USUAL.items() if o not in words for w in (o, value)]
            outcome = gaam("train", "--cache", tiny_cache, "--runs", folder, *usual, *words)
            assert outcome.code == 0, outcome.err
            made[name] = folder
        return made[name]

    return train


@pytest.fixture
def elsewhere(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a test is in from then on, with the cache and no runs in it."""
    (tmp_path / "cache").symlink_to(tiny_cache)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands_in(script: str) -> list[list[str]]:
    lines = (shlex.split(line, comments=True) for line in script.splitlines())
    return [words for words in lines if words]


def run_all(gaam: Gaam, commands: list[list[str]]) -> None:
    for words in commands:
        outcome = gaam(*words[1:])
        assert outcome.code == 0, outcome.err


def contents(runs: Path) -> dict[tuple[str, int], tuple[bytes, ...]]:
    """By key and seed what was learned and what it said of the test rows."""
    return {
        (run.key, seed): (run.logits[place].tobytes(),) if run.evaluated else ()
        for run in load_runs(runs)
        for place, seed in enumerate(run.seeds)
    }  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_printed_gives_the_same_runs(
    name: str,
    trained: Callable[[Gaam, str], Path],
    gaam: Gaam,
    elsewhere: Path,
) -> None:
    runs = trained(gaam, name)
    outcome = gaam("rerun", runs)
    assert outcome.code == 0, outcome.err
    commands = commands_in(outcome.out)
    assert [words[1] for words in commands] == [
        "extract", *["train"] * (len(commands) - 2), "report"
    ]  # fmt: skip
    run_all(gaam, commands[1:-1])
    assert contents(elsewhere / "runs") == contents(runs)
    before, after = (gaam("report", folder, "--format", "csv").out for folder in (runs, "runs"))
    assert without_time(after) == without_time(before)


@pytest.mark.parametrize("name", ["folds", "repeats", "groups"])
def test_all_folds_are_one_command_and_some_are_one_each(
    name: str, trained: Callable[[Gaam, str], Path], gaam: Gaam, elsewhere: Path
) -> None:
    """That what is printed gives these runs is what the test of every option holds."""
    paths = sorted(path for path in trained(gaam, name).iterdir() if (path / "run.json").is_file())
    by_fold: dict[str, list[Path]] = {}
    for run in load_runs(paths):
        by_fold.setdefault(run.recipe["fold"], []).append(run.path)
    assert len(by_fold) == 2
    repeats = len(by_fold["1/2"])

    def trains(*given: Path) -> list[list[str]]:
        commands = commands_in(gaam("rerun", *given).out)
        return [words for words in commands if words[1] == "train"]

    whole = trains(*paths)
    assert len(whole) == repeats
    assert all("--folds" in words and "--fold" not in words for words in whole)
    for fold, some in by_fold.items():
        apart = trains(*some)
        assert len(apart) == repeats
        assert all(words[words.index("--fold") + 1] == fold[0] for words in apart)
    lacking = trains(*paths[1:])
    assert len([words for words in lacking if "--fold" in words]) == 1


def without_time(text: str) -> list[list[str]]:
    header, *lines = (line.split(",") for line in text.splitlines())
    drop = {place for place, column in enumerate(header) if "second" in column or "run" in column}
    return [[cell for place, cell in enumerate(line) if place not in drop] for line in lines]


def test_a_run_from_nothing_to_the_same_bytes(
    gaam: Gaam, trained: Callable[[Gaam, str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (run,) = (path for path in trained(gaam, "loss").iterdir() if path.is_dir())
    script = gaam("rerun", run).out
    monkeypatch.chdir(tmp_path)
    run_all(gaam, commands_in(script))
    for name in ("weights.safetensors", "test.safetensors"):
        assert (Path("runs") / run.name / name).read_bytes() == (run / name).read_bytes()


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_signature_gives_the_same_table(
    name: str,
    trained: Callable[[Gaam, str], Path],
    gaam: Gaam,
    elsewhere: Path,
) -> None:
    runs = trained(gaam, name)
    line = gaam("report", runs, "--signature").out.strip()
    if name == "test_split":
        assert not line  # nothing is evaluated
        return
    assert line.isascii()
    assert "\n" not in line
    assert spell(read(line)) == line
    outcome = gaam("rerun", line)
    assert outcome.code == 0, outcome.err
    if name == "groups":
        assert "groups" in outcome.out
        return
    of_cpu = ["--device", "cpu"]
    run_all(gaam, [words + of_cpu * (words[1] == "train") for words in commands_in(outcome.out)])
    assert gaam("report", "runs", "--signature").out.strip() == line
    assert contents(elsewhere / "runs") == contents(runs)


def mutations(run: RunResult) -> Iterator[RunResult]:
    """Runs that no command gives."""
    for recipe in (
        {"new_setting": 3},
        {"epochs": "many"},
        {"loss": "of-mine"},
        {"batch_size": 0},
        {"fold": "x/y"},
        {"groups": "0123456789abcdef", "fold": "1/2"},
        {"layers": "3,1"},
        {"pool": None},
    ):
        yield dataclasses.replace(run, recipe=run.recipe | recipe)
    for attention in ("gaam:heads=99x", "of-mine", ""):
        yield dataclasses.replace(run, attention=attention)


def test_a_run_that_no_command_gives_is_refused(
    trained: Callable[[Gaam, str], Path], gaam: Gaam
) -> None:
    run = load_runs(trained(gaam, "loss"))[0]
    assert config_of(run, Path("cache")).epochs == 2
    for other in mutations(run):
        with pytest.raises(Exception, match="no command of this version") as refused:
            config_of(other, Path("cache"))
        assert refused.value.details["found"]  # type: ignore[attr-defined]


def test_groups_that_have_changed_are_refused(gaam: Gaam, tiny_cache: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("".join(f"s{row % 7}\n" for row in range(60)))
    runs = tmp_path / "runs"
    few = ("--epochs", 1, "--seeds", 1, "--folds", 2, "--fold", 1)
    gaam("train", "--cache", tiny_cache, "--runs", runs, *few, "--groups", names)
    assert gaam("rerun", runs).code == 0
    names.write_text("".join(f"s{row % 5}\n" for row in range(60)))
    outcome = gaam("rerun", runs)
    assert outcome.code == 3
    assert "not those" in outcome.err
    assert not outcome.out


def test_a_report_in_json_is_its_signature(
    trained: Callable[[Gaam, str], Path], gaam: Gaam, tmp_path: Path
) -> None:
    runs = trained(gaam, "lr")
    gaam("report", runs, "--json", "-o", tmp_path / "report.json")
    line = gaam("report", runs, "--signature").out.strip()
    assert gaam("rerun", tmp_path / "report.json").out == gaam("rerun", line).out
    for text in ('{"rows": []}', "{}", "[]", "3", '{"sections": 3}', "{", ""):
        (tmp_path / "other.json").write_text(text)
        outcome = gaam("rerun", tmp_path / "other.json")
        assert outcome.code == 2, text
        assert "Traceback" not in outcome.err


def test_lines_that_are_no_signature_are_refused(
    trained: Callable[[Gaam, str], Path], gaam: Gaam
) -> None:
    line = gaam("report", trained(gaam, "loss"), "--signature").out.strip()
    fields = line.split("|")
    for place in range(len(fields)):
        name = fields[place].split()[0]
        for other in (name, f"{name} \u00e9|{name} x", "", "|"):
            changed = "|".join([*fields[:place], other, *fields[place + 1 :]])
            outcome = gaam("rerun", changed)
            assert outcome.code == 2, changed
            assert "Traceback" not in outcome.err
    for seeds in ("1-0", "0-999999999999", "x", "0-1000000", "%"):
        changed = "|".join(f"seeds {seeds}" if f.startswith("seeds ") else f for f in fields)
        outcome = gaam("rerun", changed)
        assert (outcome.code, "Traceback" in outcome.err) == (2, False), seeds
    for name in ("rows", "seeds", "folds"):  # no number
        others = [field for field in fields if not field.startswith(f"{name} ")]
        outcome = gaam("rerun", "|".join([*others[:-1], f"{name} x", others[-1]]))
        assert (outcome.code, "Traceback" in outcome.err) == (2, False), name
    assert gaam("rerun", f"signature: {line}").out == gaam("rerun", line).out
    for other in ("|", "a|b", line.replace("signature 1", "signature 2"), line + line):
        assert gaam("rerun", other).code == 2


def test_seeds_are_spelled_as_they_are_read() -> None:
    from gaam_decoder.number_lists import parse_seeds

    for seeds in ((0,), (5,), (0, 1), (3, 5, 9), tuple(range(10)), (0, 2, 3)):
        assert parse_seeds(spell_seeds(seeds)) == seeds


def test_as_json(trained: Callable[[Gaam, str], Path], gaam: Gaam) -> None:
    runs = trained(gaam, "loss")
    found: dict[str, Any] = json.loads(gaam("rerun", runs, "--json").out)
    lines = gaam("rerun", runs).out.splitlines()
    assert found["commands"] == [line for line in lines if not line.startswith("# ")]
    assert [f"# {note}" for note in found["notes"]] == [x for x in lines if x.startswith("# ")]


@pytest.mark.parametrize("gate", ["laplace", "two-peaks", "none"])
def test_planted_labels_come_again(
    gate: str, gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("--layers", 3, "--width", 4, "--classes", 3, "--rows", 61, "--seed", 5)
    kept = ("--strength", 2.5, "--storage-dtype", "float16")
    assert gaam("plant", "first", "--gate", gate, *few, *kept).code == 0
    assert (
        gaam("train", "--cache", "first", "--attn", "none", "--epochs", 1, "--seeds", 1).code == 0
    )
    script = gaam("rerun", "runs").out
    assert gaam("plant", "other", "--from", "first", "--gate", gate).code == 0
    assert gaam("train", "--cache", "other", "--runs", "of-other", "--attn", "none",
                "--epochs", 1, "--seeds", 1).code == 0  # fmt: skip
    refused = gaam("rerun", "of-other")
    assert (refused.code, refused.out) == (3, "")
    assert "plant --from" in refused.err
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    run_all(gaam, commands_in(script))
    (run,) = load_runs("runs")
    (before,) = load_runs(tmp_path / "runs")
    assert run.key == before.key
    assert run.logits.tobytes() == before.logits.tobytes()


def test_more_than_the_table_had_is_said(trained: Callable[[Gaam, str], Path], gaam: Gaam) -> None:
    line = gaam("report", trained(gaam, "layers"), "--signature").out.strip()
    said = "not every combination"
    assert said not in gaam("rerun", line).out
    assert said in gaam("rerun", line.replace("|rows 3", "|rows 2")).out
