from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import CacheError, GaamError, NotFoundError
from gaam_cache.store.plan import read_plan
from gaam_cache.store.verify import find_leftovers, list_files
from tests.cache.store.forgery import edit_json, edit_plan, replace_shard, run_bounded
from tests.conftest import Outcome, build_encoder, shard_bytes, write_csv

Gaam = Callable[..., Outcome]
NAME = "train-00002"


@pytest.fixture(scope="session")
def made(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> ExtractConfig:
    """A cache of three shards, to be copied."""
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=tmp_path_factory.mktemp("made") / "cache",
        splits=("train",),
        limit=30,
        shard_rows=10,
        batch_tokens=64,
    )
    gaam_cache.extract(config)
    return config


@pytest.fixture
def cache(made: ExtractConfig, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.out, tmp_path / "cache"))


@pytest.fixture(scope="session")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard of two rows, one layer."""
    root = tmp_path_factory.mktemp("smallest")
    encoder = build_encoder(root / "encoder", "bert", num_layers=1)
    data = write_csv(root / "train.csv", [("a", "goal"), ("b", "cup cup")])
    config = ExtractConfig(
        encoder=str(encoder), dataset=str(data), splits=("train",), out=root / "cache"
    )
    gaam_cache.extract(config)
    return config.out


def only_reason(cache: Path) -> str:
    """The reason of the one shard that is bad."""
    (bad,) = gaam_cache.verify(cache).bad
    return bad.reason


def shard_file(cache: Path, name: str = NAME) -> Path:
    return next((cache / "shards").glob(f"{name}-*.h5"))


def receipt_of(cache: Path, name: str = NAME) -> Path:
    return cache / "shards" / f"{name}.json"


def test_a_sound_cache_is_good(gaam: Gaam, made: ExtractConfig) -> None:
    before = shard_bytes(made.out)
    outcome = gaam("verify", made.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert "good" in outcome.out.splitlines()[0]
    about = json.loads(gaam("verify", made.out, "--json").out)
    assert about["good"] is True
    assert (about["shards"], about["rows"]) == (3, 30)
    assert (about["missing"], about["bad"], about["leftovers"]) == ([], [], [])
    assert about["bytes"] == sum(len(b) for name, b in before.items() if name.endswith(".h5"))
    assert shard_bytes(made.out) == before


@pytest.mark.parametrize("left", [0, 1, 8, "half", -1, "more"])
def test_a_truncated_or_longer_file_is_found(left: int | str, cache: Path) -> None:
    path = shard_file(cache)
    content = path.read_bytes()
    cuts = {"half": content[: len(content) // 2], "more": content + bytes(100)}
    path.write_bytes(cuts[left] if isinstance(left, str) else content[:left])
    assert f"has {path.stat().st_size} bytes" in only_reason(cache)
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(cache)


def test_quick_reads_receipts_and_sizes_alone(gaam: Gaam, cache: Path) -> None:
    path = shard_file(cache)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    assert gaam("verify", cache, "--quick").code == 0
    assert gaam("verify", cache).code == 3
    path.write_bytes(content[:-1])
    assert gaam("verify", cache, "--quick").code == 3
    assert gaam("verify", cache, "--quick", "--recompute", 1).code == 2


def test_what_h5py_finds_must_be_what_the_receipt_says(cache: Path) -> None:
    """Another name, attribute or data set than the receipt has, though all hashes agree."""
    receipt = json.loads(receipt_of(cache).read_text())
    content = shard_file(cache).read_bytes()
    for old, new in ((b"num_tokens", b"num_tokenz"), (b"gaam-shard", b"gaam-shart")):
        assert old in content
        replace_shard(cache, NAME, content.replace(old, new), receipt["datasets"])
        assert only_reason(cache)


def put(*keys: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that sets one value deep in a JSON object."""

    def edit(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (put("file", value="../../secret.h5"), "bad file name"),
        (put("file", value="/etc/passwd"), "bad file name"),
        (put("file", value=f"{NAME}-0123abcd.h5\0"), "bad file name"),
        (put("file", value="train-00001-01234567.h5"), "bad file name"),
        (put("file", value=["a"]), "bad file name"),
        (put("sha256", value="x" * 64), "bad sha256"),
        (put("sha256", value=7), "string"),
        (put("fingerprint", value="0" * 64), "belongs to another cache"),
        (put("split", value="test"), "belongs to another cache"),
        (put("start", value=21), "has not one entry per row"),
        (put("bytes", value=True), "whole numbers"),
        (put("bytes", value=10**100), "whole numbers"),
        (put("truncated", value=-1), "whole numbers"),
        (put("truncated", value=11), "truncated"),
        (put("datasets", "embeddings", "dtype", value="float32"), "reaches beyond|overlaps"),
        (put("datasets", "embeddings", "dtype", value="bfloat16"), "does not hold what the plan"),
        (put("datasets", "embeddings", "dtype", value="object"), "of a type or shape"),
        (put("datasets", "embeddings", "offset", value=10**9), "reaches beyond"),
        (put("datasets", "embeddings", "offset", value=-64), "whole numbers"),
        (put("datasets", "embeddings", "offset", value=64.0), "whole numbers"),
        (put("datasets", "embeddings", "offset", value=True), "whole numbers"),
        (put("datasets", "embeddings", "shape", value=[10, 3, 2**40]), "reaches beyond"),
        (put("datasets", "embeddings", "shape", value=[10, 32, 3]), "does not hold what the plan"),
        (put("datasets", "embeddings", "shape", value=[10] * 5), "of a type or shape"),
        (put("datasets", "embeddings", "shape", value=7), "not iterable"),
        (put("datasets", "more", value={"offset": 0, "shape": [10], "dtype": "int64"}), "does not"),
        (put("datasets", value=[]), ""),
        (put("datasets", "row", value={}), "no key 'shape'"),
        (put("extra", value=1), "extra"),
        (lambda receipt: receipt.pop("datasets"), "no key 'datasets'"),
        (lambda receipt: receipt["datasets"].pop("row"), "does not hold what the plan"),
        (
            lambda receipt: receipt["datasets"]["row"].update(receipt["datasets"]["label"]),
            "overlaps",
        ),
    ],
)
def test_an_edited_receipt_is_refused(
    edit: Callable[[dict[str, Any]], None], reason: str, cache: Path
) -> None:
    edit_json(receipt_of(cache), edit)
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(cache)
    assert re.search(reason, only_reason(cache)), only_reason(cache)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ('{"a":' * 100_000, "recursion"),
        ("[]", "JSON object"),
        ('{"file": 1, "file": 2}', "there twice"),
        ('{"start": NaN}', "no JSON"),
        ("\x00", "Expecting value"),
        ('{"start": ' + "9" * 5000 + "}", "digits"),
        (" " * (2**20 + 1), "at most"),
    ],
)
def test_a_receipt_that_is_no_honest_json_is_refused(text: str, reason: str, cache: Path) -> None:
    receipt_of(cache).write_text(text)
    assert reason in only_reason(cache)
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(cache)


@pytest.mark.parametrize("what", ["shard", "receipt", "dangling", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused(what: str, cache: Path, tmp_path: Path) -> None:
    path = shard_file(cache) if what in ("shard", "folder") else receipt_of(cache)
    elsewhere = path.rename(tmp_path / "elsewhere")
    if what == "pipe":
        os.mkfifo(path)  # reading one would wait for ever
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to(elsewhere if what != "dangling" else tmp_path / "nothing")
    assert "regular file" in only_reason(cache) or "symbolic link" in only_reason(cache)
    with pytest.raises(CacheError, match=NAME):
        gaam_cache.open_cache(cache)


def set_rows(rows: Any) -> Callable[[dict[str, Any]], None]:
    def edit(plan: dict[str, Any]) -> None:
        plan["rows"]["train"] = rows
        plan["fingerprint_fields"]["rows"]["train"] = rows

    return edit


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (set_rows(-1), "whole numbers"),
        (set_rows(60.0), "whole numbers"),
        (set_rows(True), "whole numbers"),
        (set_rows("60"), "whole numbers"),
        (put("rows", "train", value=50), "'rows' is not what the fingerprint covers"),
        (put("rows", value={"../x": 60}), "bad split names"),
        (put("rows", value={"a\0": 60}), "bad split names"),
        (put("rows", value=[60]), ""),
        (put("class_names", value=["b", "a"]), "'class_names' is not"),
        (put("class_names", value="ab"), "'class_names' is no array"),
        (put("pooling", value=["last"]), "'pooling' is not"),
        (put("pooling", value=["mean", "mean"]), "twice"),
        (put("storage_dtype", value="bfloat16"), "'storage_dtype' is not"),
        (put("storage_dtype", value="object"), "unknown storage dtype"),
        (put("storage_dtype", value=[]), "unhashable"),
        (put("format_version", value=True), "format version True"),
        (put("encoder", value={}), "must have a name"),
        (put("encoder", value="x"), ""),
        (put("fingerprint_fields", value={}), "no key 'encoder'"),
        (put("fingerprint_fields", "encoder", "max_length", value="5"), "max_length"),
        (put("extra", value=1), "extra"),
    ],
)
def test_an_edited_plan_is_refused_though_its_fingerprint_fits(
    edit: Callable[[dict[str, Any]], None], found: str, gaam: Gaam, cache: Path
) -> None:
    edit_plan(cache, edit)
    outcome = gaam("verify", cache)
    assert outcome.code == 3, outcome
    assert outcome.out == ""
    assert found in outcome.err
    assert "Traceback" not in outcome.err
    with pytest.raises(CacheError, match="plan"):
        gaam_cache.open_cache(cache)


@pytest.mark.parametrize("what", ["rows", "plan", "receipt", "deep"])
def test_giant_claims_are_refused_in_little_memory(what: str, cache: Path) -> None:
    plan = cache / "cache.json"
    if what == "rows":
        edit_plan(cache, set_rows(10**9))
        edit_json(plan, put("shard_rows", value=1))
    elif what == "deep":
        plan.write_text("[" * 10**7)
    else:
        path = plan if what == "plan" else receipt_of(cache)
        os.truncate(path, 10**12)  # sparse: nothing is written
    process = run_bounded("verify", cache)
    assert process.returncode == 3, process.stderr
    assert "Traceback" not in process.stderr
    said = process.stdout + process.stderr
    expected = {"rows": "at most 1,048,576", "deep": "recursion", "plan": "bytes, at most"}
    assert expected.get(what, "bytes, at most") in said


def spoil(cache: Path, key: str, index: Any, value: Any, name: str = NAME) -> None:
    """Change a number inside a shard and make its receipt agree."""
    spec = json.loads(receipt_of(cache, name).read_text())["datasets"][key]
    image = bytearray(shard_file(cache, name).read_bytes())
    dtype = {"float16": "<f2", "int64": "<i8", "int32": "<i4"}[spec["dtype"]]
    count = int(np.prod(spec["shape"]))
    array = np.frombuffer(image, dtype=dtype, count=count, offset=spec["offset"])
    array.reshape(spec["shape"])[index] = value
    replace_shard(cache, name, bytes(image))


@pytest.mark.parametrize(
    ("key", "index", "value", "reason"),
    [
        ("embeddings", (4, 1, 7), np.nan, "not finite in row 24, layer 2, feature 7"),
        ("embeddings", (9, 2, 31), -np.inf, "not finite in row 29, layer 3, feature 31"),
        ("label", 3, 2, "'label' of row 23 is 2"),
        ("label", 3, -1, "'label' of row 23 is -1"),
        ("row", 5, 24, "'row' of row 25 is 24"),
        ("num_tokens", 0, 0, "'num_tokens' of row 20 is 0"),
        ("num_tokens", 0, 65, "'num_tokens' of row 20 is 65"),
    ],
)
def test_a_wrong_number_is_found_though_the_receipt_agrees(
    key: str, index: Any, value: Any, reason: str, cache: Path
) -> None:
    spoil(cache, key, index, value)
    assert reason in only_reason(cache)


def test_a_shard_in_the_place_of_another_is_found(cache: Path) -> None:
    other = json.loads(receipt_of(cache, "train-00001").read_text())
    image = shard_file(cache, "train-00001").read_bytes()
    replace_shard(cache, NAME, image, other["datasets"])
    assert "'row'" in only_reason(cache)  # the file itself says which rows it holds


def test_every_bad_shard_gets_one_line_whose_command_repairs_it(
    gaam: Gaam, cache: Path, made: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard_file(cache)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    receipt_of(cache, "train-00000").write_text("{")
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    lines = [line for line in outcome.out.splitlines() if line.startswith("bad: ")]
    assert [line.split(": ")[1] for line in lines] == ["train-00000", NAME]
    monkeypatch.chdir("/")
    for line in lines:
        remove, extract = line.split("; repair: ")[1].split(" && ")
        command, target = shlex.split(remove)
        assert command == "rm"
        Path(target).unlink()
    assert gaam("verify", cache).code == 3
    program, *arguments = shlex.split(extract)
    assert program == "gaam"
    more = ("--set", "batch-tokens=64", "-q")  # all that a plan does not record
    assert gaam(*arguments, *more).code == 0
    assert gaam("verify", cache).code == 0


def test_the_repair_command_quotes_what_the_plan_says(cache: Path) -> None:
    edit_json(cache / "cache.json", put("dataset", "path", value="/x; touch /tmp/owned"))
    receipt_of(cache).write_text("{")
    (bad,) = gaam_cache.verify(cache).bad
    assert "'/x; touch /tmp/owned'" in bad.repair
    edit_json(cache / "cache.json", put("dataset", "path", value="/x\n\x1b[2J"))
    report = gaam_cache.verify(cache)
    assert "\x1b" not in report.in_words()
    assert report.in_words().count("\nbad: ") == 1


def test_missing_shards_are_incomplete_and_exit_3(gaam: Gaam, cache: Path) -> None:
    receipt_of(cache).unlink()
    outcome = gaam("verify", cache)
    assert outcome.code == 3
    assert "incomplete" in outcome.out
    assert f"missing: {NAME}; make them: gaam extract" in outcome.out
    about = json.loads(gaam("verify", cache, "--json").out)
    assert (about["missing"], about["bad"], about["rows"]) == ([NAME], [], 20)
    shutil.rmtree(cache / "shards")
    assert len(json.loads(gaam("verify", cache, "--json").out)["missing"]) == 3


def test_no_cache_is_a_usage_error(gaam: Gaam, tmp_path: Path) -> None:
    outcome = gaam("verify", tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "no cache at" in outcome.err


@pytest.fixture
def littered(cache: Path) -> tuple[Path, dict[str, str]]:
    """A cache with every kind of file that does not belong there."""
    shards = cache / "shards"
    kinds = {
        "shards/.train-00001-01234567.h5.12.ab.tmp": "temporary",
        ".cache.json.12.ab.tmp": "temporary",
        "shards/train-00001-01234567.h5": "without receipt",
        "shards/train-00099-01234567.h5": "unknown",
        "shards/train-00099.json": "unknown",
        "shards/notes.txt": "unknown",
        "shards/.hidden": "unknown",
    }
    for name in kinds:
        (cache / name).write_text("x")
    (shards / "folder.tmp").mkdir()
    return cache, kinds | {"shards/folder.tmp": "unknown"}


def grow_old(cache: Path) -> None:
    old = time.time() - 7200
    for path in cache.rglob("*"):
        os.utime(path, (old, old))


def test_leftovers_are_listed_and_harmless(littered: tuple[Path, dict[str, str]]) -> None:
    cache, kinds = littered
    before = shard_bytes(cache)
    report = gaam_cache.verify(cache)
    assert report.good
    assert {leftover.path: leftover.kind for leftover in report.leftovers} == kinds
    assert shard_bytes(cache) == before
    gaam_cache.open_cache(cache)


@pytest.mark.parametrize("age", ["young", "old"])
@pytest.mark.parametrize("state", ["complete", "incomplete"])
def test_prune_removes_what_nobody_can_need_and_nothing_else(
    state: str, age: str, littered: tuple[Path, dict[str, str]], gaam: Gaam
) -> None:
    cache, kinds = littered
    if state == "incomplete":
        receipt_of(cache).unlink()  # as if its extractor were about to link it
        kinds = kinds | {f"shards/{shard_file(cache).name}": "without receipt"}
    if age == "old":
        grow_old(cache)
    before = shard_bytes(cache)
    outcome = gaam("verify", cache, "--prune", "--json")
    about = json.loads(outcome.out)
    gone = {path for path, kind in kinds.items() if kind != "unknown"}
    if (state, age) == ("incomplete", "young"):
        gone = set()
    assert set(about["pruned"]) == gone
    assert set(before) - set(shard_bytes(cache)) == gone
    assert {leftover["path"] for leftover in about["leftovers"]} == set(kinds) - gone
    assert outcome.code == (3 if state == "incomplete" else 0)


def test_prune_keeps_the_file_of_a_damaged_receipt(cache: Path) -> None:
    receipt_of(cache).write_text("{")
    grow_old(cache)
    report = gaam_cache.verify(cache, prune_leftovers=True)
    assert report.pruned == ()
    assert "removed: nothing" in report.in_words()
    assert "removed" not in gaam_cache.verify(cache).in_words()
    assert shard_file(cache).exists()


def test_prune_looks_for_the_receipt_once_more(cache: Path) -> None:
    from gaam_cache.store.verify import prune

    receipt = receipt_of(cache).rename(cache / "away")
    grow_old(cache)
    named = {name: shard_file(cache, name).name for name in ("train-00000", "train-00001")}
    leftovers = find_leftovers(cache, read_plan(cache), list_files(cache), named, complete=False)
    assert [leftover.removable for leftover in leftovers] == [True]
    receipt.rename(receipt_of(cache))  # a slow extractor comes to its end
    assert prune(cache, leftovers) == ()
    assert gaam_cache.verify(cache).good


@pytest.mark.parametrize(
    ("storage_dtype", "pool", "tolerance"),
    [
        ("float16", ("mean",), 1e-3),
        ("float32", ("mean", "last"), 2e-4),
        ("bfloat16", ("max",), 5e-3),
    ],
)
def test_rows_encoded_alone_agree_with_the_cache(
    storage_dtype: Any,
    pool: tuple[str, ...],
    tolerance: float,
    tiny_config: ExtractConfig,
    gaam: Gaam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(tiny_config, storage_dtype=storage_dtype, pool=pool)
    monkeypatch.chdir(Path(config.dataset).parent)
    gaam_cache.extract(replace(config, dataset=Path(config.dataset).name, limit=20))
    monkeypatch.chdir("/")
    batches: list[int] = []
    encode_alone = TextEncoder.encode_alone

    def counted(self: TextEncoder, item: list[int]) -> Any:
        batches.append(1)
        return encode_alone(self, item)

    monkeypatch.setattr(TextEncoder, "encode_alone", counted)
    outcome = gaam("verify", config.out, "--recompute", 7, "--json", "-q")
    assert outcome.code == 0, outcome
    assert batches == [1] * 7
    about = json.loads(outcome.out)["recomputed"]
    assert about["rows"] == 7
    assert len(about["deviation"]) == 3
    assert 0 < max(about["deviation"]) <= about["limit"] <= tolerance
    assert "that rounding explains" in gaam("verify", config.out, "--recompute", 3).out


def test_the_seed_decides_the_rows_and_all_rows_is_the_most(made: ExtractConfig) -> None:
    def deviation(**options: int) -> Any:
        recomputed = gaam_cache.verify(made.out, **options).recomputed
        assert recomputed is not None
        return recomputed

    first, again = (deviation(recompute_rows=2, seed=1) for _ in range(2))
    assert first == again
    assert deviation(recompute_rows=2, seed=2).deviation != first.deviation
    everything = deviation(recompute_rows=1000)
    assert everything.rows == 30
    assert all(a >= b for a, b in zip(everything.deviation, first.deviation, strict=True))


def test_a_state_of_another_row_is_found_by_encoding_it_alone(cache: Path, gaam: Gaam) -> None:
    states = gaam_cache.open_cache(cache)["train"].embeddings
    spoil(cache, "embeddings", (4, 1), states[25, 1])
    assert gaam_cache.verify(cache).good  # finite, in range, and the receipt agrees
    outcome = gaam("verify", cache, "--recompute", 1000)
    assert outcome.code == 3
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("bad: ")]
    assert line.startswith(f"bad: {NAME}: row 24, encoded alone, deviates by ")
    assert "in layer 2" in line


def test_a_wrong_label_is_found_by_encoding_the_row_alone(cache: Path) -> None:
    label = int(gaam_cache.open_cache(cache)["train"].labels[23])
    spoil(cache, "label", 3, 1 - label)
    (bad,) = gaam_cache.verify(cache, recompute_rows=1000).bad
    assert "row 23 has label" in bad.reason


def test_recompute_refuses_an_encoder_or_rows_that_changed(
    cache: Path, tmp_path: Path, dataset: Path, gaam: Gaam
) -> None:
    other = build_encoder(tmp_path / "other", "bert", seed=3)
    edit_json(cache / "cache.json", put("encoder", "path", value=str(other)))
    outcome = gaam("verify", cache, "--recompute", 1)
    assert outcome.code == 3
    assert "encoder.files.model.safetensors" in outcome.err
    edit_json(cache / "cache.json", put("encoder", "path", value="/nowhere"))
    with pytest.raises(NotFoundError, match="/nowhere"):
        gaam_cache.verify(cache, recompute_rows=1)


@pytest.mark.parametrize(
    ("key", "value"), [("limit", True), ("text_columns", 7), ("label_column", []), ("limit", -1)]
)
def test_a_plan_that_does_not_say_how_to_read_again_is_told(
    key: str, value: Any, cache: Path
) -> None:
    edit_json(cache / "cache.json", put("dataset", key, value=value))
    assert gaam_cache.verify(cache).good
    with pytest.raises(GaamError) as caught:
        gaam_cache.verify(cache, recompute_rows=1)
    assert caught.value.exit_code == 3
