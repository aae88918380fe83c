"""The commands as a person runs them: what they print, where, and with which exit code."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from gaam_cache.config import ExtractConfig
from gaam_cache.format.sealed import sealed_text, unsealed
from gaam_cache.hub.fetch import TIMEOUT_SECONDS
from gaam_decoder import load_runs
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.table.build import build_tables
from tests.conftest import Outcome, needs_minilm, write_csv

Gaam = Callable[..., Outcome]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def runs(gaam: Gaam, tiny_cache: Path, tmp_path: Path) -> Path:
    """Two mechanisms, three seeds each."""
    out = tmp_path / "runs"
    options = ["--cache", tiny_cache, "--runs", out, "--seeds", 3, "--epochs", 2, "--lr", 0.01]
    outcome = gaam("train", "--attn", "laplace", "--attn", "none", *options)
    assert outcome.code == 0, outcome.err
    assert outcome.out.count(" over 3 seeds") == 2  # each once
    assert " over 3 seeds" not in outcome.err
    return out


def test_extract_says_what_it_made(gaam: Gaam, tiny_config: ExtractConfig) -> None:
    arguments = ["extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    arguments += ["--out", tiny_config.out]
    first = gaam(*arguments)
    assert first.code == 0
    assert "is complete" in first.out
    assert "84 rows" in first.out
    assert "texts/s" in first.out
    assert "nothing to do" in gaam(*arguments).out
    summary = json.loads(gaam(*arguments, "--json").out)
    assert summary["rows"] == {"train": 60, "test": 24}


def test_every_option_of_extract_reaches_the_cache(
    gaam: Gaam, encoders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one.csv").write_text("y,title,body\n" + "p,goal,cup\nq,bank,vote\n" * 4)
    outcome = gaam(
        *("extract", "--encoder", encoders["llama"], "--dataset", tmp_path / "d"),
        *("--text-column", "title", "--text-column", "body", "--label-column", "y"),
        *("--split", "one", "--out", tmp_path / "c", "--pool", "last,mean", "--max-length", 9),
        *("--dtype", "bfloat16", "--storage-dtype", "bfloat16", "--batch-tokens", 64),
        *("--shard-rows", 2, "--limit", 5, "--device", "cpu", "--quiet"),
    )
    assert (outcome.code, outcome.err) == (0, "")
    about = json.loads(gaam("inspect", tmp_path / "c", "--json").out)
    assert about["pooling"] == ["last", "mean"]
    assert (about["compute_dtype"], about["storage_dtype"]) == ("bfloat16", "bfloat16")
    assert about["splits"]["one"]["rows"] == 5
    assert about["splits"]["one"]["rows_per_class"] == {"p": 3, "q": 2}
    assert about["splits"]["one"]["mean_tokens"] == 3.0  # bos, title, body
    assert len(list((tmp_path / "c" / "shards").glob("*.h5"))) == 3


def test_train_prints_a_line_per_run_and_json(gaam: Gaam, runs: Path, tiny_cache: Path) -> None:
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 3, "--epochs", 2, "--lr", 0.01]
    outcome = gaam("train", "--attn", "laplace", *options)
    assert outcome.out.startswith("laplace + linear, pool mean, lr 0.01: ")
    assert "over 3 seeds" in outcome.out
    content = json.loads(gaam("train", "--attn", "laplace", *options, "--json").out)
    assert [seed["seed"] for seed in content[0]["seeds"]] == [0, 1, 2]


def test_layers_come_from_the_command_line_or_a_file(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[train]\nlayers = [6, 2, 3]\n")
    options = [
        "--cache",
        tiny_cache,
        "--runs",
        tmp_path / "r",
        "--seeds",
        1,
        "--epochs",
        1,
        "--json",
    ]
    first = json.loads(gaam("train", "--attn", "none", "--layers", "2-3,6", *options).out)[0]
    second = json.loads(gaam("train", "--attn", "none", "--config", file, *options).out)[0]
    assert first == second
    assert first["recipe"]["layers"] == "2-3,6"
    assert first["parameters"]["total"] == 3 * 32 * 2 + 2
    file.write_text('[train]\nlayers = ["2-3,6", "all"]\n')
    both = json.loads(gaam("train", "--attn", "none", "--config", file, *options).out)
    given = ["--layers", "2-3,6", "--layers", "all"]
    assert both == json.loads(gaam("train", "--attn", "none", *given, *options).out)
    assert both[0] == first
    assert both[1]["recipe"]["layers"] is None
    outcome = gaam("train", "--layers", "5-7", *options)
    assert outcome.code == 2
    assert "--layers from 1 to 6" in outcome.err


def test_report_json_has_the_promised_keys_and_true_numbers(gaam: Gaam, runs: Path) -> None:
    report = json.loads(gaam("report", runs, "--format", "json").out)
    assert {"cache", "rows", "majority_accuracy", "baseline", "notes"} <= set(report)
    assert set(report["cache"]) == {
        *("fingerprint", "encoder", "dataset", "layers", "hidden_size", "rows")
    }
    assert [row["attention"] for row in report["rows"]] == ["laplace", "none"]
    row = report["rows"][0]
    promised = {"attention", "head", "seeds", "select", "accuracy", "macro_f1", "parameters"}
    assert promised | {"seconds_per_seed", "failed_seeds"} <= set(row)
    assert set(row["accuracy"]) == {"mean", "std", "ci95", "per_seed"}
    assert row["parameters"] == {"attention": 192, "total": 192 + 6 * 32 * 2 + 2}
    with safe_open(next(runs.glob("laplace*")) / "test.safetensors", "np") as file:
        logits, labels = file.get_tensor("logits"), file.get_tensor("labels")
    accuracy = (logits.argmax(-1) == labels).mean(1)
    np.testing.assert_allclose(row["accuracy"]["per_seed"], accuracy)
    np.testing.assert_allclose(row["accuracy"]["mean"], accuracy.mean())
    np.testing.assert_allclose(row["accuracy"]["std"], accuracy.std(ddof=1), atol=1e-12)
    half = 4.302652729911275 * accuracy.std(ddof=1) / 3**0.5  # t(2, 0.975)
    np.testing.assert_allclose(
        row["accuracy"]["ci95"], [accuracy.mean() - half, accuracy.mean() + half], atol=1e-9
    )
    assert row["seeds"] == [0, 1, 2]
    assert row["failed_seeds"] == []


def test_report_compares_with_the_baseline_that_is_named(
    gaam: Gaam, runs: Path, tmp_path: Path
) -> None:
    rows = json.loads(gaam("report", runs, "--json").out)["rows"]
    assert [row["comparison"] and row["comparison"]["baseline"] for row in rows] == ["none", None]
    outcome = gaam("report", runs, "--baseline", "laplace:heads=3", "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "one of: laplace, none" in outcome.err
    pictures = tmp_path / "new" / "pictures"
    outcome = gaam("report", runs, "--baseline", "laplace", "--figures", pictures, "--json")
    report = json.loads(outcome.out)  # nothing else on stdout
    assert report["baseline"] == "laplace"
    first, second = (row["accuracy"]["per_seed"] for row in report["rows"])
    expected = np.mean(second) - np.mean(first)
    assert report["rows"][1]["comparison"]["difference"] == pytest.approx(expected)
    assert report["rows"][1]["comparison"]["verdict"] == "undecided"  # three seeds
    assert report["rows"][1]["comparison"]["on_these_test_rows"]["p_sign_flip"] is None
    assert f"{len(list(pictures.iterdir()))} pictures" in outcome.err
    assert (pictures / "importance-laplace.pdf").exists()


def test_pictures_that_cannot_be_written_are_one_message(
    gaam: Gaam, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    outcome = gaam("report", runs, "--figures", tmp_path / "file")
    assert (outcome.code, outcome.out) == (2, "")
    assert "nothing can be written to" in outcome.err


def test_report_formats_agree(gaam: Gaam, runs: Path, tmp_path: Path) -> None:
    report = json.loads(gaam("report", runs, "--json").out)
    mean = report["rows"][0]["accuracy"]["mean"]
    lines = list(csv.DictReader(io.StringIO(gaam("report", runs, "--format", "csv").out)))
    assert [line["attention"] for line in lines] == ["laplace", "none"]
    assert float(lines[0]["accuracy_mean"]) == mean
    markdown = gaam("report", runs, "--format", "markdown").out
    terminal = gaam("report", runs).out
    for text in (markdown, terminal):
        assert f"{100 * mean:.1f}" in text
        assert "majority class alone" in text
        assert "held-out part of train" in text
    for block in markdown.split("\n\n"):
        table = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in table}) <= 1
    assert gaam("report", runs, "--format", "markdown", "--out", tmp_path / "t.md").out == ""
    assert (tmp_path / "t.md").read_text() == markdown


def test_terminal_report_fits_eighty_columns_and_a_pipe_gets_no_colour(
    gaam: Gaam, runs: Path, tiny_cache: Path
) -> None:
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 2, "--epochs", 1]
    gaam("train", "--attn", "laplace:heads=2,location=median", "--head", "conv", *options)
    piped = gaam("report", runs).out
    assert "\x1b" not in piped
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("NO_COLOR", "1")
        patch.setenv("TERM", "dumb")
        Terminal().write(build_tables(load_runs(runs)), screen)
    shown = screen.getvalue()
    assert "\u2026" not in shown, "a cell was cut"
    rule = next(line for line in shown.splitlines() if "\u2500" in line)
    assert len(rule) <= 80
    for part in ("decoder", "parameters", "laplace + conv", "location=median"):
        assert part in shown


def test_select_test_is_marked_and_failed_seeds_are_shown(
    gaam: Gaam, runs: Path, tiny_cache: Path
) -> None:
    run = next(runs.glob("laplace*"))
    tensors = safetensors.numpy.load_file(run / "test.safetensors")
    for name in set(tensors) - {"labels"}:
        tensors[name][1] = np.nan
    test = safetensors.numpy.save(tensors)
    (run / "test.safetensors").write_bytes(test)
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    log = "".join(json.dumps(line) + "\n" for line in lines if line["seed"] != 1).encode()
    (run / "log.jsonl").write_bytes(log)
    content = unsealed(json.loads((run / "run.json").read_bytes()))
    content["seeds"][1] |= {"failed": "the loss became nan in epoch 1", "epoch": 0}
    for name, data in {"test.safetensors": test, "log.jsonl": log}.items():
        content["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (run / "run.json").write_text(sealed_text(content))
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 2, "--epochs", 2]
    gaam("train", "--attn", "none", "--select", "test", *options)
    for name in ("terminal", "markdown"):
        out = gaam("report", runs, "--format", name).out
        assert "optimistic" in out
        assert ("2/3" if name == "terminal" else "1 failed") in out
        assert "laplace seed 1 failed: the loss became nan" in out
    row = json.loads(gaam("report", runs, "--json").out)["rows"][0]
    assert row["accuracy"]["per_seed"][1] is None
    assert row["failed_seeds"] == [{"seed": 1, "reason": "the loss became nan in epoch 1"}]


def test_seeds_of_several_runs_become_one_row_and_other_recipes_another(
    gaam: Gaam, runs: Path, tiny_cache: Path
) -> None:
    options = ["--attn", "none", "--cache", tiny_cache, "--runs", runs, "--epochs", 2]
    gaam("train", *options, "--seeds", "0-4", "--lr", 0.01)
    gaam("train", *options, "--seeds", 2, "--lr", 0.02)
    gaam("train", *options, "--seeds", 2, "--lr", 0.01, "--batch-size", 16)
    every = json.loads(gaam("report", runs, "--all", "--json").out)["rows"]
    assert sorted((row["attention"], row["recipe"].get("lr"), row["seeds"]) for row in every
                  if row["head"] == "linear") == [
        ("laplace", 0.01, [0, 1, 2]),
        ("none", 0.01, [0, 1]),
        ("none", 0.01, [0, 1, 2, 3, 4]),
        ("none", 0.02, [0, 1]),
    ]  # fmt: skip
    assert "lr=0.02" in gaam("report", runs, "--all").out
    chosen = json.loads(gaam("report", runs, "--json").out)["rows"]
    assert [row["tuning"] != [] for row in chosen if row["head"] == "linear"].count(True) == 1
    assert len(chosen) == len(every) - 1, "of two learning rates validation chooses one"
    assert "of 0.01 (" in gaam("report", runs).out


def test_runs_on_different_caches_are_never_in_one_table(
    gaam: Gaam, runs: Path, tiny_config: ExtractConfig
) -> None:
    gaam("extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset,
         "--out", tiny_config.out)  # fmt: skip
    options = ["--cache", tiny_config.out, "--runs", runs, "--seeds", 1, "--epochs", 1]
    assert gaam("train", "--attn", "none", *options).code == 0
    report = json.loads(gaam("report", runs, "--json").out)
    assert len(report["other_caches"]) == 1
    assert {row["attention"] for row in report["rows"]} == {"laplace", "none"}
    assert "not to be compared" in gaam("report", runs).out


def test_inspect_speaks_of_caches_and_runs(gaam: Gaam, runs: Path, tiny_cache: Path) -> None:
    words = gaam("inspect", tiny_cache).out
    assert "complete" in words
    assert "6 layers x 32" in words
    assert "train        60 rows" in words
    assert "laplace + linear" in gaam("inspect", runs).out
    run = next(runs.glob("laplace*"))
    about = json.loads(gaam("inspect", run, "--json").out)
    assert about["recipe"]["epochs"] == 2
    assert len(about["seeds"]) == 3


def test_inspect_tells_an_incomplete_cache(gaam: Gaam, tiny_config: ExtractConfig) -> None:
    gaam("extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset,
         "--out", tiny_config.out, "--shard-rows", 10)  # fmt: skip
    (tiny_config.out / "shards" / "train-00003.json").unlink()
    outcome = gaam("inspect", tiny_config.out)
    assert outcome.code == 0
    assert "incomplete, 1 shards are missing" in outcome.out
    outcome = gaam("train", "--cache", tiny_config.out)
    assert outcome.code == 3
    assert "train-00003" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["train", "--attn", "lapluce"], 2, ["unknown mechanism 'lapluce'", "gaam, laplace"]),
        (["train", "--attn", "gaam:hed=1"], 2, ["unknown option 'hed=1'", "heads=..."]),
        (["train", "--seeds", "x"], 2, ["seeds", "0-31"]),
        (["train", "--cache", "nowhere"], 2, ["no cache at 'nowhere'", "gaam extract"]),
        (["train", "--head", "tree"], 2, ["unknown head 'tree'", "conv, lbfgs, linear"]),
        (["train", "--select", "best"], 2, ["select", "val, last, test"]),
        (["train", "--preset", "demi"], 2, ["unknown preset 'demi'", "paper"]),
        (["report", "nowhere"], 2, ["no finished runs", "gaam train"]),
        (["report", "--format", "pdf"], 2, ["unknown report format 'pdf'", "terminal"]),
        (["inspect", "nowhere"], 2, ["nothing at 'nowhere'"]),
        (["extract", "--dataset", "no.csv"], 2, ["no data set at 'no.csv'"]),
        (["extract", "--text-column", "body"], 2, ["no column 'body'", "label, title"]),
        (["extract", "--encoder", "./none"], 2, ["no encoder at './none'"]),
        (["extract", "--encoder", "a/b/c"], 2, ["'a/b/c' is neither an existing path nor"]),
        (["extract", "--limit", "0"], 2, ["--limit is out of range", ">= 1"]),
        (["extract", "--limit", "many"], 2, ["--limit"]),
        (["extract", "--pool", "median"], 2, ["unknown pooling 'median'", "first, last"]),
        (["extract", "--config", "no.toml"], 2, ["cannot read the configuration file"]),
        (["extract", "--bogus"], 2, ["--bogus"]),
        (["extrakt"], 2, ["extrakt"]),
    ],
)
def test_a_mistake_gets_one_message_and_an_exit_code(
    arguments: list[str],
    code: int,
    parts: list[str],
    gaam: Gaam,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = gaam(*arguments)
    assert outcome.code == code
    assert outcome.out == ""
    for part in parts:
        assert part in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.iterdir()), "a refused command left something behind"


def test_bad_rows_exit_3(gaam: Gaam, encoders: dict[str, Path], tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", [("a", "goal"), ("b", " ")])
    write_csv(tmp_path / "test.csv", [("c", "goal")])
    options = ["--encoder", encoders["bert"], "--dataset", tmp_path, "--out", tmp_path / "c"]
    outcome = gaam("extract", *options)
    assert outcome.code == 3
    assert "a text is empty" in outcome.err
    assert "train.csv, line 3" in outcome.err
    write_csv(tmp_path / "train.csv", [("a", "goal"), ("b", "cup")])
    outcome = gaam("extract", *options)
    assert outcome.code == 3
    assert "label 'c' occurs in 'test' but not in 'train'" in outcome.err


def test_too_few_rows_to_choose_an_epoch_by(
    gaam: Gaam, encoders: dict[str, Path], tmp_path: Path
) -> None:
    for split, word in (("train", "cup"), ("test", "vote")):
        write_csv(tmp_path / f"{split}.csv", [("a", "goal"), ("b", word)])
    options = ["--encoder", encoders["bert"], "--dataset", tmp_path, "--out", tmp_path / "c"]
    assert gaam("extract", *options).code == 0
    options = ["--cache", tmp_path / "c", "--runs", tmp_path / "r", "--seeds", 2, "--epochs", 1]
    outcome = gaam("train", "--attn", "none", *options)
    assert outcome.code == 2
    assert "--select last" in outcome.err
    assert gaam("train", "--attn", "none", "--select", "last", *options).code == 0


HUBS = ["refused", pytest.param("silent", marks=pytest.mark.slow)]


@pytest.mark.parametrize("what", ["--encoder", "--dataset"])
@pytest.mark.parametrize("kind", HUBS)
def test_a_hub_that_cannot_be_reached_is_told_after_few_tries(
    what: str, kind: str, tmp_path: Path
) -> None:
    """What it may wait for is 20 seconds in all; tries are counted, since clocks tell of load."""
    with socket.socket() as server:  # takes connections and never answers
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        port = server.getsockname()[1] if kind == "silent" else 9
        process = subprocess.run(
            [sys.executable, str(ROOT / "cli.py"), "extract", what, "someone/something"],
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "HF_ENDPOINT": f"http://127.0.0.1:{port}",
                "HF_HOME": str(tmp_path / "hf"),
            },
            capture_output=True,
            text=True,
        )
        server.setblocking(False)
        tries = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                tries += 1
    assert tries * TIMEOUT_SECONDS <= 20
    assert process.returncode == 1
    assert "the hub could not be reached" in process.stderr
    assert "someone/something" in process.stderr
    assert "Traceback" not in process.stderr


def test_offline_without_a_copy_is_told(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), "extract", "--encoder", "someone/something"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert "HF_HUB_OFFLINE" in process.stderr


@needs_minilm
def test_the_three_commands_without_arguments(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gaam("extract").code == 0
    assert gaam("train", "--attn", "laplace").code == 0
    outcome = gaam("report", "--json")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert report["cache"]["dataset"] == "news-sample"
    assert report["cache"]["encoder"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert report["rows"][0]["seeds"] == list(range(10))
    assert 0.85 < report["rows"][0]["accuracy"]["mean"] < 1.0
    assert report["majority_accuracy"] == 0.25


def test_describe_lists_and_explains(gaam: Callable[..., Outcome]) -> None:
    listed = gaam("describe", "--layers", 6, "--hidden-size", 384)
    assert listed.code == 0
    for name in ("generalized-gaussian", "mlp", "focal", "2,304"):
        assert name in listed.out
    one = gaam("describe", "--attn", "mqa:published=true", "--json")
    about = json.loads(one.out)
    assert about["spec"] == "mqa:init=xavier-normal,published=true"
    assert about["output_shape"] == ["B", 40, 512]
    assert one.err == ""
    wrong = gaam("describe", "--attn", "gaam:heads=7")
    assert (wrong.code, wrong.out) == (2, "")
    assert "heads=7" in wrong.err


@pytest.mark.parametrize("command", ["extract", "train", "ablate run", "report", "describe"])
def test_a_folder_that_is_gone_is_said_before_a_library_ends_the_process(
    command: str, tmp_path: Path
) -> None:
    program = "import os, sys; os.rmdir(os.getcwd()); import cli; cli.main()"
    (tmp_path / "gone").mkdir()
    outcome = subprocess.run(
        [sys.executable, "-c", program, *command.split()],
        cwd=tmp_path / "gone",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 1, outcome
    assert "the current folder is gone" in outcome.stderr


def test_options_that_runs_do_not_have_are_refused(gaam: Gaam, runs: Path) -> None:
    for options in (
        ["--quick"],
        ["--prune"],
        ["--recompute", 2],
        ["--device", "cpu"],
        ["--seed", 3],
    ):
        outcome = gaam("verify", runs, *options)
        assert (outcome.code, outcome.out) == (2, ""), options
    assert gaam("verify", runs).code == 0


@pytest.mark.parametrize("command", ["extract", "train", "report", "inspect", "describe", "verify"])
def test_no_command_takes_a_variable_that_nobody_reads(
    command: str, gaam: Gaam, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAAM_SEED", "3")
    outcome = gaam(command, *([] if command in ("extract", "train", "describe") else [runs]))
    assert (outcome.code, outcome.out) == (2, "")
    assert "did you mean 'GAAM_SEEDS'" in outcome.err


def test_what_is_not_finished_is_incomplete(gaam: Gaam, runs: Path) -> None:
    (run, _) = sorted(runs.glob("[!.]*"))
    run.rename(run.with_name(f".{run.name}.partial"))
    outcome = gaam("report", runs)
    assert outcome.code == 0
    assert f"not finished: {run.name}" in outcome.err
    for other in runs.glob("[!.]*"):
        shutil.rmtree(other)
    for command in ("report", "inspect"):
        outcome = gaam(command, runs)
        assert outcome.code == 3, command
        assert "1 unfinished" in outcome.err


def test_a_margin_and_the_seeds_that_choose_are_options_of_a_report(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "r"
    options = ["--attn", "none", "--cache", tiny_cache, "--runs", runs, "--epochs", 2]
    options += ["--lr", "0.01,0.03"]
    tuned = gaam("train", *options, "--seeds", "0-1", "--tune-seeds", "7-8")
    assert tuned.code == 0, tuned.err
    made = json.loads(
        gaam("train", *options, "--seeds", "0-1", "--tune-seeds", "7,8", "--json").out
    )
    assert [[seed["seed"] for seed in run["seeds"]] for run in made] == [[7, 8], [7, 8], [0, 1]]
    [row] = json.loads(gaam("report", runs, "--json").out)["rows"]
    assert row["seeds"] == [0, 1]
    assert row["tuning"][0]["seeds"] == [7, 8]
    assert row["tuning"][0]["reported_on_other_seeds"] is True
    assert len(json.loads(gaam("report", runs, "--all", "--json").out)["rows"]) == 2
    for others in ("7-7", "0-1", "7,8,0"):
        refused = gaam("report", runs, "--tune-seeds", others, "--json")
        assert (refused.code, refused.out) == (2, ""), others
        assert "--tune-seeds are not those that chose" in refused.err
    same = json.loads(gaam("report", runs, "--tune-seeds", "7,8", "--json").out)["rows"]
    assert same == [row]
    alone = tmp_path / "alone"  # of runs that no seeds chose any may
    options[options.index("--runs") + 1] = alone
    assert gaam("train", *options, "--seeds", "0-3").code == 0
    other = json.loads(gaam("report", alone, "--tune-seeds", "0-1", "--json").out)["rows"][0]
    assert other["tuning"][0]["seeds"] == [0, 1]
    assert other["seeds"] == [2, 3]
    options[options.index("--runs") + 1] = runs
    for points, fraction in (("2", 0.02), ("0.1", 0.001)):
        assert json.loads(gaam("report", runs, "--margin", points, "--json").out)["margin"] == (
            pytest.approx(fraction)
        )
    for wrong in (["--margin", "0"], ["--margin", "100"], ["--margin", "-1"], ["--margin", "nan"],
                  ["--tune-seeds", "x"], ["--tune-seeds", "-1"]):  # fmt: skip
        outcome = gaam("report", runs, *wrong)
        assert (outcome.code, outcome.out) == (2, ""), wrong
        assert wrong[0] in outcome.err
        assert "Traceback" not in outcome.err
    plan = gaam("train", *options, "--seeds", "0-4", "--tune-seeds", "7-8", "--dry-run").out
    assert "the best of these 2 on validation" in plan
