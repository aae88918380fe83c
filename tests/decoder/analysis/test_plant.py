"""A planted cache is one like any other, the same to the bit at every planting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.store.files import temporary_path
from gaam_cache.store.plan import SHARD_FOLDER
from gaam_decoder import PlantConfig, plant
from gaam_decoder.analysis.planting import GaussianStates, chosen_rows, make_teacher
from gaam_decoder.plant_config import GATES
from tests.conftest import Outcome, shard_bytes

SMALL: dict[str, Any] = {"rows": 60, "layers": 4, "width": 3, "classes": 2}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"seed": 1},
    {"strength": 1.5},
    {"classes": 3},
    {"layers": 6},
    {"width": 5},
    {"rows": 90},
    {"storage_dtype": "float16"},
]


def content(cache: Path) -> dict[str, bytes]:
    return {"cache.json": (cache / "cache.json").read_bytes(), **shard_bytes(cache)}


@pytest.mark.parametrize("gate", GATES)
def test_the_same_options_give_the_same_bytes_and_others_other_ones(
    gate: str, tmp_path: Path
) -> None:
    seen = []
    for number, options in enumerate(OPTIONS):
        a, b = tmp_path / f"a{number}", tmp_path / f"b{number}"
        given: dict[str, Any] = {"gate": gate, **SMALL, **options}
        first, second = (plant(PlantConfig(out=out, **given)) for out in (a, b))
        assert content(a) == content(b)
        assert first.fingerprint == second.fingerprint
        seen.append(first.fingerprint)
        assert gaam_cache.verify(a).good
        assert plant(PlantConfig(out=a, **given)).fingerprint == first.fingerprint
    assert len(set(seen)) == len(OPTIONS)


def test_labels_are_of_the_states_as_they_are_stored(tmp_path: Path) -> None:
    for dtype in ("float32", "float16"):
        made = plant(PlantConfig(out=tmp_path / dtype, **SMALL, storage_dtype=dtype))
        cache = gaam_cache.open_cache(tmp_path / dtype)
        assert cache.plan.storage_dtype == dtype == made.storage_dtype
        stored = cache["test"].embeddings
        assert stored.dtype == dtype
        train = GaussianStates((40, 4, 3), 0, 0, dtype)
        assert (train[:] == cache["train"].embeddings[:]).all()
        teacher = make_teacher("laplace", train, classes=2, strength=4.0, seed=0)
        chosen = teacher.logits(stored[:].astype(np.float64)).argmax(1)
        assert made.teacher_accuracy_drawn == (chosen == cache["test"].labels).mean()


def test_states_of_a_cache_are_taken_as_they_are_and_none_twice(
    tiny_cache: Path, tmp_path: Path
) -> None:
    source = gaam_cache.open_cache(tiny_cache)
    there = {row.tobytes() for split in source.values() for row in split.embeddings[:]}
    total = sum(len(split) for split in source.values())
    for rows in (None, total - 3):
        out = tmp_path / str(rows)
        made = plant(PlantConfig(out=out, from_cache=tiny_cache, classes=2, rows=rows))
        cache = gaam_cache.open_cache(out)
        taken = [row.tobytes() for split in cache.values() for row in split.embeddings[:]]
        assert len(taken) == (rows or total) == sum(made.rows.values())
        assert set(taken) <= there
        if rows is None:
            whole = [row.tobytes() for split in source.values() for row in split.embeddings[:]]
            assert sorted(taken) == sorted(whole)
        planted = cache.plan.fingerprint_fields["encoder"]["imported"]["planted"]
        assert planted["states"] == source.fingerprint


def test_refusals(tiny_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for given, said in {
        (("classes", 1),): "classes is out of range",
        (("rows", 0),): "--rows is out of range",
        (("rows", 30), ("classes", 11)): "more classes than rows",
        (("strength", 0.0),): "--strength is out of range",
        (("strength", float("nan")),): "--strength is out of range",
        (("layers", 1),): "layers is out of range",
        (("width", 0),): "width is out of range",
        (("seed", -1),): "--seed is out of range",
        (("rows", 2**31 - 1), ("width", 1000)): "more than is planted",
        (("from_cache", tiny_cache), ("layers", 4)): "layers is of Gaussian states",
        (("from_cache", tiny_cache), ("rows", 10**6)): "fewer rows than --rows",
        (("from_cache", tiny_cache), ("classes", 10**4)): "more classes than rows",
        (("out", tmp_path / "there"),): "(is no cache|nothing can be written)",
        (("out", tmp_path / "file"),): "(is no cache|nothing can be written)",
    }.items():
        with pytest.raises(ConfigError, match=said):
            plant(PlantConfig(**{"out": tmp_path / "new", **dict(given)}))
    with pytest.raises(NotFoundError, match="no cache"):
        plant(PlantConfig(out=tmp_path / "new", from_cache=tmp_path / "nowhere"))
    assert not (tmp_path / "new").exists()
    plant(PlantConfig(out=tmp_path / "new", **SMALL))
    before = content(tmp_path / "new")
    with pytest.raises(ConfigError, match="holds another cache"):
        plant(PlantConfig(out=tmp_path / "new", **SMALL, seed=2))
    assert content(tmp_path / "new") == before


def test_a_planted_cache_goes_through_every_command(gaam: Any, tmp_path: Path) -> None:
    def run(*words: object) -> Outcome:
        outcome: Outcome = gaam(*words)
        assert outcome.code == 0, outcome
        return outcome

    out, runs = tmp_path / "c", tmp_path / "runs"
    small = [
        "--set",
        "layers=4",
        "--set",
        "width=3",
        "--rows",
        60,
        "--set",
        "classes=2",
        "--gate",
        "two-peaks",
    ]
    shown = run("plant", out, *small, "--quiet").out
    assert "gate         two-peaks" in shown
    about = json.loads(run("plant", out, *small, "--quiet", "--json").out)
    assert about["mechanism"] == "chi2"
    said = gaam("plant", tmp_path / "d", "--gate", "laplacian")
    assert said.code == 2
    assert "did you mean 'laplace'?" in said.err
    assert "gate two-peaks, strength 4, seed 0" in run("inspect", out).out
    run("verify", out, "--quiet")
    run("export", out, tmp_path / "e", "--quiet")
    train = ["--cache", out, "--runs", runs, "--seeds", 2, "--epochs", 1, "--set", "compile=off"]
    run("train", "--attn", "none", "--attn", "chi2:heads=1", *train, "--quiet")
    (loaded,) = {str(r.cache["planted"]["gate"]) for r in gaam_decoder.load_runs(runs)}
    assert loaded == "two-peaks"
    assert "Learned gates: the gates that 1 row learned" in run("report", runs).out
    page = run("report", runs, "--format", "html").out
    assert "planted gate two-peaks" in page


@pytest.mark.parametrize("rows", [6, 7, 12, 13, 24])
def test_as_many_rows_as_layers_are_rows(rows: int, tmp_path: Path) -> None:
    made = plant(PlantConfig(out=tmp_path / "p", rows=rows, layers=4, width=2, classes=2))
    assert sum(made.rows.values()) == rows
    assert gaam_cache.open_cache(tmp_path / "p").plan.num_layers == 4


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("constant", ["every number", "every row", "rows to learn from"])
def test_states_that_no_teacher_can_tell_apart_are_refused(
    gate: Any, constant: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    shape = (1400, 4, 3)  # more than two blocks
    row = np.full((1, 4, 3), 0.7) if constant == "every number" else rng.normal(size=(1, 4, 3))
    states = np.broadcast_to(row, shape).astype(np.float32).copy()
    if constant == "rows to learn from":
        (learn_N, _) = chosen_rows(1400, (934, 466), 0)
        others_N = np.setdiff1d(np.arange(1400), learn_N)
        states[others_N] = rng.normal(size=(len(others_N), 4, 3))
    label = np.arange(1400) % 2
    gaam_cache.write(tmp_path / "c", {"train": (states, label)})
    given: dict[str, Any] = {"gate": gate, "from_cache": tmp_path / "c", "classes": 2}
    with pytest.raises(ConfigError, match="no teacher can tell the rows apart") as error:
        plant(PlantConfig(out=tmp_path / "p", **given))
    assert "934 rows to learn from" in str(error.value)
    assert not (tmp_path / "p").exists()


def test_more_numbers_than_are_planted_says_the_bytes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"275 GB[\s\S]*lower --rows, layers or width"):
        PlantConfig(out=tmp_path, rows=2**31 - 1, layers=4, width=8)
    with pytest.raises(ConfigError, match="layers is out of range"):
        PlantConfig(out=tmp_path, layers=10**8, rows=60)


@pytest.mark.parametrize("folder", [".", SHARD_FOLDER])
def test_a_folder_in_which_a_plan_is_being_written_is_one_of_ours(
    folder: str, tmp_path: Path
) -> None:
    """By another process at this moment, or by one that was killed."""
    (tmp_path / folder).mkdir(exist_ok=True)
    temporary_path(tmp_path / folder, "probe").write_bytes(b"{")
    plant(PlantConfig(out=tmp_path, **SMALL))
    assert gaam_cache.open_cache(tmp_path).plan.rows


@pytest.mark.parametrize("name", [f"{SHARD_FOLDER}/a", "a.tmp", ".a", "a/.b.tmp"])
def test_a_folder_of_somebody_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(ConfigError, match="no cache"):
        plant(PlantConfig(out=tmp_path, **SMALL))
