"""What is given twice: a list where an option takes one, else an error that names both values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gaam_cache.terminal.settings import resolve

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_decoder.config import TrainConfig
from gaam_decoder.specs import parse_attention
from gaam_decoder.training import items
from tests.cli.commands import COMMANDS
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
OPTIONS = [
    (command, option)
    for command, group in COMMANDS.items()
    for option in group.params
    if option.param_type_name == "option" and not option.is_flag
]
CHOOSING = {"--attn", "--head", "--layers", "--lr"}
REPEATABLE = {
    "extract": {"--text-column", "--split", "--pool", "--keep-column", "--unlabelled"},
    "import": {"--array", "--labels", "--num-tokens", "--keep-column", "--unlabelled"}
    | {"--class-name"},
    "train": {"--attn", "--head", "--pool", "--lr", "--weight-decay", "--layers", "--seeds"}
    | {"--tune-seeds", "--train-rows", "--shots"},
    "predict": {"--text-column"},
    "report": CHOOSING,
    "runs": CHOOSING,
}


def test_an_option_that_takes_one_value_takes_it_once(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for command, option in OPTIONS:
        if any(name in REPEATABLE.get(command, ()) for name in option.opts):
            assert option.multiple, (command, option.opts)
            continue
        for first in option.opts:  # '--out 3 -o 5' is a repetition too
            for written in (
                [first, "3", option.opts[-1], "5"],
                [f"{first}=3" if first[1] == "-" else f"{first}3", first, "5"],
            ):
                outcome = gaam(*command.split(), *written)
                assert outcome.code == 2, (command, written, outcome)
                assert option.opts[0] in outcome.err
                assert "given twice" in outcome.err
                assert "3 and 5" in outcome.err
                refused += 1
    assert refused > 90
    assert not list(tmp_path.iterdir())


def test_a_value_that_looks_like_an_option_is_a_value(gaam: Gaam) -> None:
    outcome = gaam("train", "--runs", "--epochs", "--epochs", "0")
    assert "--epochs is out of range" in outcome.err


@pytest.mark.parametrize("repeated", [True, False])
def test_lists_are_repeated_or_separated_by_commas(repeated: bool) -> None:
    def given(**lists: list[str]) -> dict[str, Any]:
        return lists if repeated else {key: [",".join(value)] for key, value in lists.items()}

    one = resolve(
        ExtractConfig,
        "extract",
        given(text_columns=["a", "b"], splits=["x", "y"], pool=["last", "mean"]),
        environ={},
    )
    assert (one.text_columns, one.splits, one.pool) == (("a", "b"), ("x", "y"), ("last", "mean"))
    two = resolve(
        TrainConfig,
        "train",
        given(pool=["last", "mean"], lr=["1e-4", "1e-3"], seeds=["0-2", "7", "5"]),
        environ={},
    )
    assert (two.pools, two.lrs, two.seeds) == (("last", "mean"), (1e-4, 1e-3), (0, 1, 2, 5, 7))


def test_specs_and_sets_of_layers_are_repeated() -> None:
    lists = {"attn": ["gaam", "mha:heads=2"], "head": ["mlp", "conv"], "layers": ["1-3,5", "all"]}
    config = resolve(TrainConfig, "train", lists, environ={})
    assert config.layer_sets == ((1, 2, 3, 5), None)
    assert len(items.recipes(config, "float32")) == 2 * 2 * 2


@pytest.mark.parametrize(
    "name",
    [
        *("attn", "head", "pool", "lr", "weight_decay", "layers", "seeds", "tune_seeds"),
        *("train_rows", "shots"),
    ],
)
def test_no_value_of_a_list_is_there_twice(name: str) -> None:
    same = {
        "attn": ["gaam", "gaam:location=mean"],
        "head": ["conv", "conv"],
        "pool": ["mean", "mean"],
        "lr": ["1e-3", "0.001"],
        "weight_decay": ["0", "-0.0"],
        "tune_seeds": ["7,8", "8"],
        "layers": ["1-3", "3,2,1"],
        "seeds": ["0-3", "2"],
        "train_rows": ["1k,all", "1_000"],
        "shots": ["all", "5,all"],
    }
    with pytest.raises(ConfigError, match=r"twice"):
        resolve(TrainConfig, "train", {name: same[name]}, environ={})


@pytest.mark.parametrize(
    "text",
    [
        *("batch-size = 3\nbatch_size = 4", "batch_size = 3\nbatch-size = 3"),
        *("test-split = 'a'\ntest_split = 'b'", "'batch-size' = 3\nbatch_size = 4"),
    ],
)
@pytest.mark.parametrize("form", ["[train]\n{}", "{dotted}"])
def test_a_setting_of_a_file_has_one_spelling(text: str, form: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    dotted = "\n".join(f"train.{line}" for line in text.splitlines())
    file.write_text(form.format(text, dotted=dotted))
    with pytest.raises(ConfigError, match=r"is set twice") as caught:
        resolve(TrainConfig, "train", {}, config_file=file, environ={})
    for line in text.splitlines():
        assert line.replace("'batch-size'", "batch-size") in str(caught.value)


def test_an_option_of_a_spec_is_given_once() -> None:
    for text in (
        "gaam:heads=2,heads=3",
        "gaam:heads=2, heads=2",
        "mha:published=true,published=true",
    ):
        with pytest.raises(ConfigError, match=r"is given twice(.|\n)*one value"):
            parse_attention(text)


def test_poolings_are_an_axis_of_a_sweep(
    gaam: Gaam, tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    import dataclasses

    gaam_cache.extract(dataclasses.replace(tiny_config, pool=("mean", "last")))
    options = ["--cache", tiny_config.out, "--runs", tmp_path / "r", "--attn", "none"]
    options += ["--seeds", 1, "--epochs", 1, "--compile", "off"]
    for both in (["--pool", "mean", "--pool", "last"], ["--pool", "mean,last"]):
        plan = gaam("train", *both, *options, "--dry-run")
        assert "none + linear, pool mean, lr 0.0003" in plan.out
        assert "none + linear, pool last, lr 0.0003" in plan.out
    runs = json.loads(gaam("train", *both, *options, "--json").out)
    assert [run["recipe"]["pool"] for run in runs] == ["mean", "last"]
    assert runs[0]["path"] != runs[1]["path"]
    alone = {pool: json.loads(gaam("train", *options, *given, "--json").out) for pool, given in {
        "mean": ["--pool", "mean"], "last": ["--pool", "last"], "default": []}.items()}  # fmt: skip
    assert alone["mean"] == alone["default"] == runs[:1]
    assert alone["last"] == runs[1:]
    assert len(list((tmp_path / "r").iterdir())) == 2
    # the states are those of the pooling: alone in a cache it gives the same accuracies
    one = tmp_path / "one"
    gaam_cache.extract(dataclasses.replace(tiny_config, pool=("last",), out=one))
    options[1], options[3] = one, tmp_path / "s"
    (only,) = json.loads(gaam("train", *options, "--json").out)
    assert [s["accuracy"] for s in only["seeds"]] == [s["accuracy"] for s in runs[1]["seeds"]]
    outcome = gaam("train", *options, "--pool", "mean")
    assert outcome.code == 2
    assert "no pooling 'mean'" in outcome.err
    outcome = gaam("train", *options, "--pool", "Last")
    assert "did you mean 'last'" in outcome.err
