"""From arrays to a table of accuracies, by the command line alone."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.cache.store.making import labels, save, states
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
ROOT = Path(__file__).parents[2]
QUICK = ("--seeds", 2, "--epochs", 2, "--compile", "off", "--quiet")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for split, rows, seed in (("train", 90, 1), ("test", 45, 2)):
        given = states(rows, 3, 12, seed=seed)
        given[:, 1, 0] += 4 * labels(rows)
        topic = np.array(["arts", "business", "chess"])[labels(rows)]
        save(tmp_path / f"{split}.npz", {"embeddings": given, "labels": topic})
    return tmp_path


def test_import_train_report_and_all_that_looks_at_a_cache(gaam: Gaam, folder: Path) -> None:
    dry = gaam("import", "train.npz", "test.npz", "--dry-run")
    assert dry.code == 0
    assert "train: 90 rows" in dry.out
    assert "arts 30, business 30, chess 30" in dry.out
    assert not (folder / "cache").exists()
    about = json.loads(gaam("import", "train.npz", "test.npz", "--dry-run", "--json").out)
    assert about["splits"]["test"]["rows"] == 45
    named = ("--encoder-name", "my encoder", "--dataset-name", "my topics")
    made = gaam("import", "train.npz", "test.npz", *named, "--pool", "cls", "--shard-rows", 20)
    assert made.code == 0, made.err
    assert "is complete" in made.out
    [following] = [line for line in made.out.splitlines() if line.startswith("next: ")]
    again = gaam("import", "train.npz", "test.npz", *named, "--pool", "cls", "--json")
    assert json.loads(again.out)["shards_made"] == 0
    words = shlex.split(following.removeprefix("next: "))
    assert gaam(*words[1:], "--attn", "none", *QUICK).code == 0
    told = gaam("report").out
    assert "my encoder" in told
    assert "my topics" in told
    for command in ("inspect", "verify"):
        assert gaam(command, "cache").code == 0
    inspected = gaam("inspect", "cache").out
    assert "my encoder, computed elsewhere; its layers: as in the files" in inspected
    assert "tokens" not in inspected
    assert "20 rows from their files" in gaam("verify", "cache", "--recompute", 20).out
    refused = gaam("extract", "--dataset", "news-sample", "--encoder", "tfidf", "--out", "cache")
    assert refused.code == 2
    assert "holds another cache; nothing was changed" in refused.err
    assert gaam("import", "train.npz", "--out", "cache").code == 2


def test_every_option_reaches_the_cache(gaam: Gaam, folder: Path) -> None:
    given, number = states(6, 3, 4), labels(6)
    with h5py.File("x.h5", "w") as file:
        for n in range(3):
            file[f"deep/out_{n}"] = given[:, n]
        file["first"] = np.ascontiguousarray(given.swapaxes(0, 1))
        file["topic"], file["length"], file["b/who"] = number, np.arange(1, 7), ["é"] * 6
        file["a/who"] = ["s, t"] * 6
    done = gaam(
        *("import", "x.h5", "--out", "c", "--array", "a=first", "--array", "b=first"),
        *("--axes", "lnd", "--labels", "a=topic", "--num-tokens", "a=length"),
        *("--unlabelled", "b", "--keep-column", "who", "--storage-dtype", "bfloat16"),
        *("--class-name", "x, y", "--class-name", "z", "--class-name", "w", "--shard-rows", "4"),
    )
    assert done.code == 0, done.err
    import gaam_cache

    cache = gaam_cache.open_cache("c")
    assert cache.class_names == ("x, y", "z", "w")
    assert cache.plan.storage_dtype == "bfloat16"
    assert cache.plan.shard_rows == 4
    assert cache["a"].num_tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert cache["a"].column("who") == ["s, t"] * 6
    assert not cache["b"].labelled
    np.testing.assert_allclose(cache["a"].embeddings[:], given, rtol=2**-8)
    found = gaam_cache.verify("c", recompute_rows=12)
    assert found.good
    words = shlex.split(found.complete_with)  # what it says makes the same cache
    (folder / "c" / "cache.json").rename(folder / "old.json")
    for file in (folder / "c" / "shards").iterdir():
        file.unlink()
    assert gaam(*words[1:]).code == 0
    assert gaam_cache.open_cache("c").fingerprint == cache.fingerprint
    assert (
        gaam("import", "x.h5", "--array", "train=deep/out_*", "--labels", "train=topic").code == 0
    )


def test_a_refusal_is_one_message_and_leaves_nothing(gaam: Gaam, folder: Path) -> None:
    for arguments, code, said in (
        (["train.npz", "nowhere.npz"], 2, "no file at 'nowhere.npz'"),
        (["train.npz", "--labels", "train=nope"], 2, "train.npz: embeddings: float32 (90, 3, 12)"),
        (["train.npz", "--axes", "dln"], 2, "one of: nld, lnd, nd"),
        (["train.npz", "--class-name", "a"], 3, "occurs in 'train' but not in the class names"),
        (["train.npz", "--pool", "9"], 2, "lower-case letters"),
        (["train.npz", "train.npz"], 2, "given twice"),
        ([], 2, "FILE..."),
    ):
        outcome = gaam("import", *arguments)
        assert outcome.code == code, outcome
        assert outcome.err.startswith(("error: ", "Usage")), outcome
        assert said in outcome.err
        assert "Traceback" not in outcome.err
        assert not (folder / "cache").exists()


def test_importing_loads_neither_torch_nor_transformers(folder: Path) -> None:
    code = "import sys, cli\ntry:\n cli.main()\nexcept SystemExit as stop: assert not stop.code\n"
    code += "heavy = {'torch', 'transformers', 'datasets', 'huggingface_hub'} & set(sys.modules)\n"
    code += "assert not heavy, heavy"
    files = [str(folder / "train.npz"), str(folder / "test.npz")]
    command = [sys.executable, "-c", code, "import", *files, "--out", str(folder / "c")]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
