"""What a study may say: every option is one of a public command, and nothing is wrong for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaam_cache.bundle import data_path
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_decoder.studying import Place, read_study
from gaam_decoder.studying.finding import FILE
from gaam_decoder.studying.place import MACHINE
from gaam_decoder.studying.running import arguments
from tests.cli.test_help import COMMANDS
from tests.decoder.studying.tiny_study import RECIPE, written

OURS = sorted(path.parent for path in (data_path() / "studies").glob(f"*/{FILE}"))
WRONG = {
    "epochs = 2": ("epoch = 2", "epochs = [2, 3]", "dry-run = true", "preset = 'x'", "runs = 'x'"),
    '"none"]': ('"nonne"]', '"-x"]', "3]"),
    'baseline = "none"': (
        *("baseline = 'nonne'", "baseline = 3", "margin = 'x'", "margin = -1", "sort = 'up'"),
        *("score = 'acuracy'", "head = 'linear'", "lr = ['x']", "top = 'x'", "all = 'no'"),
        *("figures = 'x'", "format = 'csv'", "cache = 'other'", "studies = 'x'", "since = '3d'"),
        *("studies = ['none-such']", "studies = [3]"),
    ),
    'from = "small"': ("from = 'again'", "from = 'other'", "from = 3"),
    'gate = "laplace"': ("gate = 'none-such'", "out = 'x'", "rows = -3", "command = 'import'"),
    "num-layers = 2": ("num-layers = 'x'", "device = 'cuda'", "cache = 'other'", "of = 3"),
    'of = "laplace:heads=1"': ("of = 'nonne'", "of = 'laplace:head=1'", "of = ''"),
    "accuracy = 0.3": ("accuracy = nan", "accuracy = -1", "accuracy = '1'", "acc = 1"),
    'name = "one"': ("name = 'both'", "name = 'both-1'", "name = '../x'", "name = 3"),
    'title = "Tiny"': ("title = 3", "title = ''", "name = 'x'", "title = ["),
}
"""A part of the tiny study, and what it may not be replaced by."""


def test_there_are_studies() -> None:
    assert len(OURS) >= 6


@pytest.mark.parametrize("folder", OURS, ids=lambda folder: folder.name)
def test_every_command_of_our_studies_is_one(folder: Path) -> None:
    study = read_study(folder.name)
    assert study.folder == folder.resolve()
    for step in study.steps:
        if step.command != "ablate":  # which run is known when it is there
            command, *words = arguments(step, study, Place())
            COMMANDS[command].make_context(command, words)
    assert study.title
    assert study.question
    assert all(asked.title for asked in study.reports)


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, several in WRONG.items() for new in several]
)
def test_what_is_wrong_is_refused_before_anything_runs(old: str, new: str, tmp_path: Path) -> None:
    assert old in RECIPE
    folder = written(tmp_path, RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        read_study(folder)
    assert refused.value.details["where"].startswith(str(folder))


PARTS = {
    "extract": '[caches.again]\ncommand = "plant"\nfrom = "small"\ngate = "none"\n',
    "plant": "rows = 90\n",
    "train": "epochs = 2\n",
    "ablate": "num-layers = 2\n",
}
"""A part of the table of a command in the tiny study; an extraction in place of the first."""


@pytest.mark.parametrize("command", PARTS)
@pytest.mark.parametrize("setting", MACHINE)
def test_settings_of_the_machine_are_no_recipe(command: str, setting: str, tmp_path: Path) -> None:
    option = setting.replace("_", "-")
    part = PARTS[command]
    assert part in RECIPE
    whole = "[caches.again]\n" if command == "extract" else part
    recipe = RECIPE.replace(part, f"{whole}{option} = 1\n", 1)
    with pytest.raises(ConfigError, match=f"'{option}' in ") as refused:
        read_study(written(tmp_path, recipe))
    assert "belongs to the machine" in refused.value.details["expected"]
    assert f"gaam study --set {option}" in refused.value.details["to do"]


TWICE = {
    'tune-seeds = "0-1"': "tune_seeds = '0-1'",
    "num-layers = 2": "num_layers = 2",
    'title = "Both"': "every_candidate = true\nall = true",
    "width = 4": "storage-dtype = 'float16'\nstorage_dtype = 'float32'",
}
"""A line of the tiny study, and the same setting in another spelling."""


@pytest.mark.parametrize(("line", "again"), TWICE.items())
def test_a_setting_that_is_spelled_twice_is_refused(line: str, again: str, tmp_path: Path) -> None:
    assert line in RECIPE
    with pytest.raises(ConfigError, match="twice"):
        read_study(written(tmp_path, RECIPE.replace(line, f"{line}\n{again}", 1)))


@pytest.mark.parametrize("switch", ["skip-impossible", "final", "probe", "shuffle-labels"])
@pytest.mark.parametrize("value", ["true", "false"])
def test_switches_are_spelt_as_the_command_takes_them(
    switch: str, value: str, tmp_path: Path
) -> None:
    recipe = RECIPE.replace("probe = true", f"{switch} = {value}", 1)
    study = read_study(written(tmp_path, recipe))
    command, *words = arguments(study.steps[2], study, Place())
    found = COMMANDS[command].make_context(command, words).params
    set_so = f"{switch}={value}" in found["sets"] or found.get(switch) is (value == "true")
    assert set_so or (value == "false" and not found.get(switch))


def test_unknown_studies_are_told_of_ours() -> None:
    for name in ("none-such", "../none", "", "none/such"):
        with pytest.raises(NotFoundError, match="no study") as refused:
            read_study(name)
        assert OURS[0].name in refused.value.details["expected"]
