"""What parts of a recipe say of one another is looked at before anything is made."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.studying import read_study
from tests.decoder.studying.tiny_study import RECIPE, written

MECHANISMS = plugins.names("gaam_decoder.attention")
TRAINED = {"laplace", "gaam", "none"}
REPORT = '[[report]]\nname = "more"\ntitle = "More"\n'
FIRST = 'cache = "small"\nattn = ["laplace:heads=1", "none"]\nlr = "1e-3,1e-2"\n'
TUNED = {"tune-seeds": '"0-1"', "seeds": '"2-7"', "lr": '"1e-3,1e-2"'}
OTHERWISE = {"tune-seeds": '"8-9"', "seeds": '"3-7"', "lr": '"1e-3,3e-3"'}
ANOTHER_ROW = (
    *("epochs = 3", "ties = 'first'", "batch-size = 8", "layers = '1'", "head = 'mlp'"),
    *("train-rows = 40", "loss = 'focal'", "val-fraction = 0.2", "attn = ['laplace:heads=2']"),
)


def refused(tmp_path: Path, recipe: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_study(written(tmp_path, recipe))
    assert "study.toml" in error.value.details["where"]
    return str(error.value)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in TRAINED])
def test_what_nobody_trains_is_not_reported_nor_ablated(name: str, tmp_path: Path) -> None:
    said = refused(tmp_path, RECIPE.replace('of = "laplace:heads=1"', f'of = "{name}"'))
    assert "'of' in [[ablate]]" in said
    for line, what in ((f'baseline = "{name}"', "baseline"), (f'attn = ["{name}"]', "attn")):
        assert f"'{what}' of report 'more'" in refused(tmp_path, f"{RECIPE}\n{REPORT}{line}\n")


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_what_is_trained_is_reported(name: str, tmp_path: Path) -> None:
    for line in (f'baseline = "{name}"', f'attn = ["{name}"]', 'head = ["linear", "lbfgs"]'):
        assert read_study(written(tmp_path, f"{RECIPE}\n{REPORT}{line}\n")).reports


@pytest.mark.parametrize(
    "line",
    [
        *('attn = ["laplace:heads=2"]', 'baseline = "laplace:heads=4"', 'head = ["conv"]'),
        *('cache = "again"\nattn = ["laplace"]', 'cache = "small"\nbaseline = "gaam"'),
        *('cache = "small"\ntune-seeds = "2-3"', "tune-seeds = 'x'", "top = 1", "since = '1d'"),
    ],
)
def test_what_is_trained_otherwise_or_elsewhere_is_not_reported(line: str, tmp_path: Path) -> None:
    refused(tmp_path, f"{RECIPE}\n{REPORT}{line}\n")


def test_a_study_trains(tmp_path: Path) -> None:
    start, end = RECIPE.index("[[train]]"), RECIPE.index("[[report]]")
    assert "[[train]]" in refused(tmp_path, RECIPE[:start] + RECIPE[end:])


def second(changed: dict[str, str], more: str = "", *, without: str = "") -> str:
    options = TUNED | changed
    lines = [f"{name} = {value}" for name, value in options.items() if name != without]
    own = "" if more.startswith("attn") else 'attn = ["none", "laplace:heads=1"]\n'
    epochs = "" if more.startswith("epochs") else "epochs = 2\n"
    whole = f'[[train]]\ncache = "small"\n{own}{epochs}compile = "off"\n{more}\n'
    return f"{RECIPE}\n{whole}" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("changed", list(product([False, True], repeat=3)), ids=str)
def test_one_row_is_chosen_and_reported_by_the_same_seeds(
    changed: tuple[bool, ...], tmp_path: Path
) -> None:
    otherwise = {name: OTHERWISE[name] for name, is_so in zip(TUNED, changed, strict=True) if is_so}
    if otherwise:
        assert "with the same rows of laplace:heads=1, none" in refused(tmp_path, second(otherwise))
    else:
        assert read_study(written(tmp_path, second(otherwise)))
    refused(tmp_path, second(otherwise, without="tune-seeds"))


@pytest.mark.parametrize("more", ANOTHER_ROW)
def test_another_row_may_have_other_seeds(more: str, tmp_path: Path) -> None:
    assert read_study(written(tmp_path, second(OTHERWISE, more)))
