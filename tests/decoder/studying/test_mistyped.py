"""What is mistyped in a recipe, or of a study's name, is told what was meant."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.settings import key_of
from gaam_decoder.studying import read_study
from gaam_decoder.studying.finding import FILE
from gaam_decoder.studying.place import MACHINE
from gaam_decoder.studying.step import CONFIGS
from tests.decoder.studying.test_recipe import OURS, PARTS
from tests.decoder.studying.tiny_study import RECIPE, written

MEANT = {
    **{f"\n{key} =": key for key in re.findall(r"^([a-z-]{4,}) =", RECIPE, re.MULTILINE)},
    **{f"[{name}": name for name in ("caches", "train", "ablate", "report", "check")},
    **{f'"{name}:': name for name in ("laplace", "gaam")},
    'cache = "small"': "small",
    'from = "small"': "small",
    'gate = "laplace"': "laplace",
    'command = "plant"': "plant",
}
"""A part of the tiny study, and the word in it that is mistyped."""


@pytest.mark.parametrize(("part", "word"), MEANT.items())
def test_of_a_mistyped_word_the_one_that_was_meant_is_named(
    part: str, word: str, tmp_path: Path
) -> None:
    assert part in RECIPE
    for typed in (f"{word}{word[-1]}", f"{word[:2]}{word[3:]}", f"{word[0]}{word[2]}{word[1:]}"):
        for other in {typed, typed.replace("-", "_")} - {word}:
            recipe = RECIPE.replace(part, part.replace(word, other), 1)
            with pytest.raises(ConfigError) as refused:
                read_study(written(tmp_path, recipe))
            assert refused.value.details["to do"] == f"did you mean '{word}'?"


MISTYPED = {
    'attn = ["laplace:heads=1", "none"]': {
        'attn = ["laplase:heads=1"]': ("laplase", "laplace"),
        'attn = ["laplace:haeds=1"]': ("haeds=1", "heads=..."),
        'atn = ["none"]': ("atn", "attn"),
    },
    'tune-seeds = "0-1"': {
        "tune-seed = '0-1'": ("tune-seed", "tune-seeds"),
        "tune_seed = '0-1'": ("tune_seed", "tune-seeds"),
        "train-row = 3": ("train-row", "train-rows"),
        "train_row = 3": ("train_row", "train-rows"),
        "layer-set = '1'": ("layer-set", "layers"),
        "schedule = 'plateu'": ("", "plateau"),
        "los = 'focal'": ("los", "loss"),
        "loss = 'focl'": ("focl", "focal"),
        "head = 'linaer'": ("linaer", "linear"),
    },
    "[[train]]": {"[[trian]]": ("trian", "train"), "[[trains]]": ("trains", "train")},
    "[caches.small]": {"[cache.small]": ("cache", "caches")},
    "[[report]]": {"[[reprot]]": ("reprot", "report")},
    "[[ablate]]": {"[[ablation]]": ("ablation", "ablate")},
    "[check]": {"[chekc]": ("chekc", "check")},
    "question =": {"qestion =": ("qestion", "question")},
    'cache = "small"': {"cache = 'smal'": ("smal", "small")},
    'cache = "again"': {"cache = 'agian'": ("agian", "again")},
    'from = "small"': {"from = 'smalll'": ("smalll", "small"), "form = 'x'": ("form", "from")},
    'gate = "laplace"': {
        "gate = 'laplase'": ("laplase", "laplace"),
        "gaet = 'laplace'": ("gaet", "gate"),
    },
    'command = "plant"': {"command = 'plnat'": ("plnat", "plant")},
    "num-layers = 2": {
        "num-layer = 2": ("num-layer", "num-layers"),
        "num_layer = 2": ("num_layer", "num-layers"),
    },
    'of = "laplace:heads=1"': {"of = 'laplase'": ("laplase", "laplace")},
    'baseline = "none"': {
        "baseline = 'nonee'": ("nonee", "none"),
        "basline = 'none'": ("basline", "baseline"),
        "tune_seds = '0-1'": ("tune_seds", "tune-seeds"),
        "score = 'acuracy'": ("acuracy", "accuracy"),
        "sort = 'diference'": ("diference", "difference"),
        "attn = ['laplase']": ("laplase", "laplace"),
        "studies = ['few-row']": ("few-row", "few-rows"),
    },
    "accuracy = 0.3": {"acuracy = 0.3": ("acuracy", "accuracy")},
}
"""A part of the tiny study, what it may be mistyped as, the word as it stands and what is meant."""


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, several in MISTYPED.items() for new in several]
)
def test_what_is_mistyped_is_told_what_was_meant(old: str, new: str, tmp_path: Path) -> None:
    assert old in RECIPE
    word, meant = MISTYPED[old][new]
    with pytest.raises(ConfigError) as refused:
        read_study(written(tmp_path, RECIPE.replace(old, new, 1)))
    assert refused.value.details["to do"] == f"did you mean '{meant}'?"
    assert word in f"{refused.value.message} {refused.value.details.get('found')}"
    assert refused.value.details.get("found") != "None"


def test_every_setting_is_told_of_a_slip_as_it_is_spelled(tmp_path: Path) -> None:
    """In a letter too many, with the words joined either way."""
    for config in CONFIGS.values():
        command = next(name for name, other in CONFIGS.items() if other is config)
        part = "[caches.again]\n" if command == "extract" else PARTS[command]
        whole = "[caches.again]\n" if command == "extract" else part
        for field in dataclasses.fields(config):
            if field.name in {*MACHINE, "out", "runs", "cache", "from_cache"}:
                continue
            option = key_of(field)
            for word in {f"{option}x", f"{option.replace('-', '_')}x"}:
                old = PARTS[command]
                recipe = RECIPE.replace(old, f"{whole}{word} = 1\n", 1)
                with pytest.raises(ConfigError) as refused:
                    read_study(written(tmp_path, recipe))
                assert refused.value.message == f"unknown setting '{word}'"
                assert refused.value.details["to do"] == f"did you mean '{option}'?"


def test_a_mistyped_name_of_a_study_is_told_which_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    for folder in OURS:
        for name in (f"{folder.name}{folder.name[-1]}", folder.name[1:], folder.name.upper()):
            assert meant_by(name) == folder.name
    assert meant_by(f"{tmp_path}/tniy") == f"{tmp_path}/tiny"
    assert meant_by(f"{tmp_path}/tiny/{FILE}") == f"{tmp_path}/tiny"
    monkeypatch.chdir(tmp_path)
    assert meant_by("tinyy") == "tiny"
    assert meant_by("zzzzzz") is None


def meant_by(name: str) -> str | None:
    with pytest.raises(NotFoundError) as refused:
        read_study(name)
    said = refused.value.details.get("to do")
    return said and said.removeprefix("did you mean '").removesuffix("'?")
