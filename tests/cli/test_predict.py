"""gaam predict, from texts and files to labels, as the console script runs it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_decoder.runs.result import RunResult
from tests.conftest import Outcome, random_rows, write_csv

ROOT = Path(__file__).parents[2]
Gaam = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Three seeds on the tiny cache."""
    config = gaam_decoder.TrainConfig(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path_factory.mktemp("runs"),
        seeds=(0, 1, 2),
        epochs=2,
    )
    [found] = gaam_decoder.train(config)
    return found


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def averaged(run: RunResult) -> np.ndarray:
    """Probabilities of the test rows by the logits that the run keeps, (N, C)."""
    exp_SNC = np.exp(run.finished_logits().astype(np.float64))
    found: np.ndarray = (exp_SNC / exp_SNC.sum(-1, keepdims=True)).mean(0)
    return found


def test_the_same_rows_from_texts_files_stdin_and_cache(
    run: RunResult,
    gaam: Gaam,
    dataset: Path,
    tiny_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected_NC = averaged(run)
    names = run.cache["class_names"]
    labels = [names[number] for number in expected_NC.argmax(-1)]
    source = dataset / "test.csv"
    given = rows_of(source.read_text())
    texts = [row["text"] for row in given]
    found = {}
    found["file"] = rows_of(gaam("predict", run.path, "--file", source).out)
    out = tmp_path / "out.csv"
    outcome = gaam("predict", run.path, "--file", source, "--out", out)
    assert (outcome.code, outcome.err) == (0, "")
    found["out"] = rows_of(out.read_text())
    found["texts"] = json.loads(gaam("predict", run.path, *texts, "--json").out)
    lines = io.TextIOWrapper(io.BytesIO("\n".join(texts).encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    found["stdin"] = rows_of(gaam("predict", run.path, "-").out)
    split = ("--cache", tiny_cache, "--split", "test")
    found["cache"] = rows_of(gaam("predict", run.path, *split).out)
    for how, rows in found.items():
        assert [row["predicted"] for row in rows] == labels, how
        off = [float(row["probability"]) for row in rows] - expected_NC.max(-1)
        assert np.abs(off).max() < 1e-4, how
        assert {float(row["agreement"]) for row in rows} <= {1 / 3, 2 / 3, 1.0}
    assert [{n: row[n] for n in ("label", "text")} for row in found["out"]] == given
    assert [row["label"] for row in found["cache"]] == [row["label"] for row in given]


def test_no_encoder_is_read_for_a_cache(
    run: RunResult, gaam: Gaam, tiny_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.encode.RowEncoder.open", None)
    assert gaam("predict", run.path, "--cache", tiny_cache, "--split", "train").code == 0
    outcome = gaam("predict", run.path, "--cache", tiny_cache, "--split", "elsewhere")
    assert (outcome.code, "no split 'elsewhere'" in outcome.err) == (2, True)


def test_texts_for_people(run: RunResult, gaam: Gaam) -> None:
    long = "goal " * 100
    outcome = gaam("predict", run.path, "goal cup", long, "~nobody/" + "x" * 300, "--top", 2)
    assert outcome.code == 0, outcome.err
    blocks = outcome.out.splitlines()
    assert len(blocks) == 9
    assert blocks[0] == "goal cup"
    assert "of 3 seeds)" in blocks[1]
    assert all(len(line) < 80 for line in blocks)
    assert "seeds" not in gaam("predict", run.path, "goal", "--seed", 2).out


def test_one_seed_is_that_seed(run: RunResult, gaam: Gaam, dataset: Path) -> None:
    for place, seed in enumerate(run.seeds):
        rows = rows_of(
            gaam("predict", run.path, "--file", dataset / "test.csv", "--seed", seed).out
        )
        numbers = run.predictions[place]
        assert [row["predicted"] for row in rows] == [run.cache["class_names"][n] for n in numbers]
        assert {row["agreement"] for row in rows} == {"1.0"}
    outcome = gaam("predict", run.path, "goal", "--seed", 9)
    assert outcome.code == 2
    assert "0, 1, 2" in outcome.err


def test_a_failed_seed_is_refused_and_left_out(
    run: RunResult, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaam_decoder.runs import loading

    monkeypatch.setattr(loading, "read_run", lambda path: _failed(run))
    outcome = gaam("predict", run.path, "goal", "--seed", 1)
    assert (outcome.code, "not finite" in outcome.err) == (2, True)
    assert "of 2 seeds" in gaam("predict", run.path, "goal").out


def _failed(run: RunResult) -> RunResult:
    import dataclasses

    return dataclasses.replace(run, failed={1: "the loss is not finite"})


def test_rows_of_another_cache_must_have_been_encoded_alike(
    run: RunResult,
    gaam: Gaam,
    tiny_cache: Path,
    encoders: dict[str, Path],
    tmp_path: Path,
) -> None:
    write_csv(tmp_path / "more" / "train.csv", random_rows(30, 9))
    write_csv(tmp_path / "more" / "new.csv", random_rows(15, 8))
    same = tiny_cache.parent / "encoder"
    for encoder, dtype, fits in (
        (same, "float16", True),
        (same, "float32", False),
        (encoders["bert"], "float16", False),
    ):
        cache = tmp_path / f"{encoder.name}-{dtype}"
        options = ("--dataset", tmp_path / "more", "--split", "train", "--split", "new")
        options = (*options, "--unlabelled", "new", "--storage-dtype", dtype, "--out", cache)
        assert gaam("extract", "--encoder", encoder, *options).code == 0
        outcome = gaam("predict", run.path, "--cache", cache, "--split", "new")
        assert outcome.code == (0 if fits else 3), outcome.err
        if fits:
            rows = rows_of(outcome.out)
            assert list(rows[0]) == ["row", "predicted", "probability", "agreement"]
            assert [row["row"] for row in rows] == [str(row) for row in range(15)]
        else:
            assert "in the run" in outcome.err


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def test_head_is_no_error_and_ends_the_work(
    run: RunResult, tiny_cache: Path, tmp_path: Path
) -> None:
    write_csv(tmp_path / "many.csv", random_rows(6000, 3, longest=3))
    command = [sys.executable, str(ROOT / "cli.py"), "predict", str(run.path)]
    command += ["--file", str(tmp_path / "many.csv")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"label,text,predicted,probability,agreement\n"
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(), said) == (0, b"")


def test_a_file_of_results_in_json_and_what_is_refused(
    run: RunResult, gaam: Gaam, dataset: Path, tmp_path: Path
) -> None:
    source, out = dataset / "test.csv", tmp_path / "out.parquet"
    arguments = ("predict", run.path, "--file", source, "--out", out, "--json", "-q")
    found = json.loads(gaam(*arguments).out)
    assert found == {"out": str(out), "rows": 24, "empty": 0, "seeds": 3}
    refused = {
        arguments: "there already",
        ("predict", run.path): "nothing to predict",
        ("predict", run.path, "goal", "--file", source): "or those of a file",
        ("predict", run.path, " "): "empty",
        ("predict", tmp_path, "goal"): "no finished run",
        ("predict", run.path, "goal", "--encoder", tmp_path / "nowhere"): "nowhere",
    }
    for words, said in refused.items():
        outcome = gaam(*words)
        assert outcome.code in (2, 3), words
        assert outcome.err.startswith("error: "), words
        assert said in outcome.err, words
        assert not outcome.out


def test_a_run_folder_alone_knows_its_encoder(run: RunResult, gaam: Gaam, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "moved")
    assert gaam("predict", tmp_path / "moved", "goal cup").code == 0


def test_pictures_are_rows_of_a_table_lines_of_stdin_and_arguments(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL", reason="the package Pillow (extra 'vision') is not installed")
    from tests.cache.encoders.vision.models import FAMILIES
    from tests.cache.encoders.vision.pictures import write_figures

    data = tmp_path / "pictures"
    write_figures(data, {"train": 12, "test": 8})
    encoder = FAMILIES["dinov2-registers"].save(tmp_path / "dinov2-registers")
    cache, runs = tmp_path / "cache", tmp_path / "runs"
    assert gaam("extract", "--encoder", encoder, "--dataset", data, "--out", cache).code == 0
    options = ("--runs", runs, "--attn", "gaam", "--seeds", 2, "--epochs", 1)
    assert gaam("train", "--cache", cache, *options).code == 0
    [run] = runs.glob("gaam-*")
    files = sorted((data / "test").rglob("*.png"))
    write_csv(
        data / "in.csv",
        [(file.parent.name, str(file.relative_to(data))) for file in files],
        "n,file",
    )
    found = rows_of(gaam("predict", run, "--file", data / "in.csv").out)
    assert [row["file"] for row in found] == [str(file.relative_to(data)) for file in files]
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(str, files)).encode()))
    )
    of_stdin = rows_of(gaam("predict", run, "-").out)
    of_words = json.loads(gaam("predict", run, *files, "--json").out)
    for rows in (of_stdin, of_words):
        for row, other in zip(rows, found, strict=True):
            assert row["predicted"] == other["predicted"]
            assert abs(float(row["probability"]) - float(other["probability"])) < 1e-4
    write_csv(tmp_path / "in.csv", [("x", str(data / "in.csv"))], "n,file")
    outside = write_csv(tmp_path / "other" / "in.csv", [("x", str(files[0]))], "n,file")
    assert "of no kind" in gaam("predict", run, "--file", tmp_path / "in.csv").err
    assert gaam("predict", run, "--file", outside).code == 0
