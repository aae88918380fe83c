"""A finished run predicts what it predicted when it was tested, whatever it is made of."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_cache
import gaam_decoder
from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamWarning, NotFoundError
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import head_class, parse_head
from gaam_decoder.training.probe import ATTENTION
from gaam_decoder.use.predictor import Predictor
from tests.conftest import GOLDEN, build_encoder, random_rows, write_csv

MECHANISMS = plugins.names("gaam_decoder.attention")
HEADS = plugins.names("gaam_decoder.heads")
BY_STEPS = [name for name in HEADS if head_class(parse_head(name)).trained_by == "steps"]
OLD = GOLDEN / "v0.1.0"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers 0 to 4 of 16 features each, in two poolings; three classes."""
    root = tmp_path_factory.mktemp("use")
    rows = [(f"class {len(text) % 3}", text) for _, text in random_rows(24, 1)]
    write_csv(root / "data" / "train.csv", rows)
    write_csv(
        root / "data" / "test.csv", [(f"class {n % 3}", t) for n, (_, t) in enumerate(rows[::2])]
    )
    config = ExtractConfig(
        encoder=str(build_encoder(root / "encoder", "bert", num_layers=4)),
        dataset=str(root / "data"),
        out=root / "cache",
        pool=("mean", "max"),
        layer_zero=True,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.extract(config)
    return config.out


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        cache=cache, runs=tmp_path / "runs", attn=("gaam",), seeds=(0, 1, 2), epochs=1,
        batch_size=24, lr=0.05, compile="off", device="cpu",
    )  # fmt: skip


def train(config: TrainConfig) -> list[RunResult]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gaam_decoder.train(config)


def held(run: RunResult) -> np.ndarray:
    """Probabilities of the test rows by the logits that the run holds."""
    logits_SNC = torch.from_numpy(run.finished_logits()).double()
    return logits_SNC.softmax(-1).mean(0).numpy()


def check(run: RunResult, cache: Path, tolerance: float = 1e-5) -> Predictor:
    """What it predicts from states of the test rows is what it holds."""
    predictor = gaam_decoder.load(run.path, device="cpu")
    states = gaam_cache.open_cache(cache)["test"].pooled(run.recipe["pool"])
    found = predictor.predict_states(states[:])
    assert predictor.seeds == run.finished
    np.testing.assert_allclose(found.probabilities_NC, held(run), atol=tolerance, rtol=0)
    same_N = run.predictions == found.predicted_N
    np.testing.assert_allclose(found.agreement_N, same_N.mean(0), atol=1.5 / len(run.finished))
    assert found.labels == [predictor.class_names[n] for n in held(run).argmax(-1)]
    assert (predictor.predict_states(states).probabilities_NC == found.probabilities_NC).all()
    return predictor


@pytest.mark.parametrize("head", BY_STEPS)
def test_every_mechanism_predicts_from_states_what_its_run_holds(
    head: str, config: TrainConfig, cache: Path
) -> None:
    runs = train(replace(config, attn=tuple(MECHANISMS), head=head, seeds=(0, 1)))
    assert len(runs) == len(MECHANISMS)
    for run in runs:
        check(run, cache)


def test_every_head_that_is_fitted_at_once_predicts_what_its_run_holds(
    config: TrainConfig, cache: Path
) -> None:
    fitted = [name for name in HEADS if name not in BY_STEPS]
    assert fitted
    for head in fitted:
        for run in train(replace(config, attn=(str(ATTENTION), "layer-mean"), head=head)):
            assert check(run, cache).seeds == (0,)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": (0, 2, 4)},
        {"layers": (3,), "attn": ("none",)},
        {"pool": "max"},
        {"folds": 3, "fold": 2},
        {"select": "test"},
        {"select": "last"},
        {"seeds": (7,)},
        {"seeds": (5, 2, 9), "seed_batch": 1},
        {"loss": "focal", "class_weights": "balanced"},
        {"attn": ("gaussian-mixture:heads=2",), "head": "mlp", "layers": (1, 2, 3, 4)},
    ],
    ids=str,
)
def test_every_recipe_predicts_what_its_run_holds(
    change: dict[str, object], config: TrainConfig, cache: Path
) -> None:
    [run] = train(replace(config, **change))  # type: ignore[arg-type]
    if run.recipe.get("fold") is None:
        check(run, cache)
        return
    predictor = gaam_decoder.load(run.path, device="cpu")
    states = gaam_cache.open_cache(cache)["train"].embeddings[run.test_rows]
    found = predictor.predict_states(states)
    np.testing.assert_allclose(found.probabilities_NC, held(run), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("eval_dtype", ["same", "float32"])
def test_it_is_evaluated_in_the_arithmetic_of_its_run(
    dtype: str, eval_dtype: str, config: TrainConfig, cache: Path
) -> None:
    config = replace(config, attn=("mha", "gaam"), head="mlp", epochs=3)
    for run in train(replace(config, dtype=dtype, eval_dtype=eval_dtype)):  # type: ignore[arg-type]
        predictor = check(run, cache)
        assert predictor._ensemble.dtype == ("float32" if eval_dtype == "float32" else dtype)


def test_one_seed_is_that_seed(config: TrainConfig, cache: Path) -> None:
    [run] = train(replace(config, seeds=(4, 1, 8)))
    states = gaam_cache.open_cache(cache)["test"].embeddings
    for place, seed in enumerate(run.seeds):
        found = gaam_decoder.load(run.path, seed=seed, device="cpu").predict_states(states)
        alone = torch.from_numpy(run.logits[place]).double().softmax(-1).numpy()
        np.testing.assert_allclose(found.probabilities_NC, alone, atol=1e-5, rtol=0)
        assert (found.agreement_N == 1).all()
    with pytest.raises(ConfigError, match="no seed 2 in the run") as caught:
        gaam_decoder.load(run.path, seed=2)
    assert "1, 4, 8" in str(caught.value)


def test_seeds_that_failed_are_left_out(
    config: TrainConfig, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_decoder

    def poisoned(spec: DecoderSpec, seed: int) -> Decoder:
        decoder = build(spec, seed)
        if seed == 1 and not next(decoder.head.parameters()).is_meta:
            with torch.no_grad():
                next(decoder.head.parameters()).fill_(torch.nan)
        return decoder

    monkeypatch.setattr("gaam_decoder.training.group.build_decoder", poisoned)
    [run] = train(config)
    assert check(run, cache).seeds == (0, 2)
    with pytest.raises(ConfigError, match="seed 1 of the run failed") as caught:
        gaam_decoder.load(run.path, seed=1)
    assert "one of: 0, 2" in str(caught.value)
    assert "loss became nan" in str(caught.value)


def test_all_seeds_failed_is_refused(config: TrainConfig) -> None:
    [run] = train(replace(config, lr=1e30, attn=("mha",), epochs=3))
    assert not run.finished
    for seed in (None, 0):
        with pytest.raises(ConfigError, match="every seed of the run failed"):
            gaam_decoder.load(run.path, seed=seed)


def test_what_depends_on_the_rows_beside_a_row_is_refused(config: TrainConfig) -> None:
    [run] = train(replace(config, attn=("mha:published=true",)))
    with pytest.raises(ConfigError, match="by the rows beside it"):
        gaam_decoder.load(run.path)


def test_shuffled_labels_are_said(config: TrainConfig, cache: Path) -> None:
    [run] = train(replace(config, shuffle_labels=True))
    with pytest.warns(GaamWarning, match="shuffled labels"):
        check(run, cache)


def test_a_run_that_tested_nothing_predicts(config: TrainConfig, cache: Path) -> None:
    """With ``--select last`` its weights are those of a run that tests."""
    config = replace(config, select="last")
    [evaluated], [final] = train(config), train(replace(config, test_split="none"))
    assert not final.evaluated
    predictor = gaam_decoder.load(final.path, device="cpu")
    found = predictor.predict_states(gaam_cache.open_cache(cache)["test"].embeddings)
    np.testing.assert_allclose(found.probabilities_NC, held(evaluated), atol=1e-5, rtol=0)


def test_order_and_company_of_rows_do_not_matter(config: TrainConfig, cache: Path) -> None:
    states = gaam_cache.open_cache(cache)["test"].embeddings[:]
    order = np.random.default_rng(0).permutation(len(states))
    for run in train(replace(config, attn=("gaam", "mha-bn", "perceiver"), head="conv")):
        predictor = gaam_decoder.load(run.path, device="cpu")
        whole = predictor.predict_states(states).probabilities_NC
        moved = predictor.predict_states(states[order]).probabilities_NC
        alone = [predictor.predict_states(row[None]).probabilities_NC[0] for row in states]
        np.testing.assert_allclose(moved, whole[order], atol=1e-5, rtol=0)
        np.testing.assert_allclose(np.stack(alone), whole, atol=1e-5, rtol=0)


def test_states_of_any_floating_type_are_taken_and_others_refused(
    config: TrainConfig, cache: Path
) -> None:
    [run] = train(config)
    predictor = gaam_decoder.load(run.path, device="cpu")
    states = gaam_cache.open_cache(cache)["test"].embeddings[:]
    whole = predictor.predict_states(states).probabilities_NC
    same = [states.astype(np.float32), states.astype(np.float64), states.tolist()]
    same += [torch.from_numpy(states), torch.from_numpy(states).double()]
    same += [np.ma.masked_array(states), states.astype(np.float64).astype(">f8")]
    for given in same:
        assert (predictor.predict_states(given).probabilities_NC == whole).all()
    assert len(predictor.predict_states(states[:0])) == 0
    broken = states.copy()
    broken[5, 1, 2] = np.inf
    refused = [
        (states.view(np.uint16), "no floating-point"), (states[0], "another shape"),
        (states[:, 1:], "another shape"), (states[..., 1:], "another shape"),
        (np.ma.masked_array(states, states > 0), "masked"),
        (np.where(np.isfinite(broken), states.astype(np.float64), 1e300), "not finite in float32"),
        (broken, "not finite"),
    ]  # fmt: skip
    for given, why in refused:
        with pytest.raises(DataError, match=why) as caught:
            predictor.predict_states(given)
    assert "row 6" in str(caught.value)


def test_top_is_in_order_and_begins_with_what_is_predicted(
    config: TrainConfig, cache: Path
) -> None:
    [run] = train(config)
    found = check(run, cache).predict_states(gaam_cache.open_cache(cache)["test"].embeddings)
    for count in (1, 2, 3, 9):
        number_NK, probability_NK = found.top(count)
        assert number_NK.shape == probability_NK.shape == (len(found), min(count, 3))
        assert (number_NK[:, 0] == found.predicted_N).all()
        assert (np.diff(probability_NK) <= 0).all()
    np.testing.assert_allclose(found.top(3)[1].sum(1), 1)


def test_a_damaged_run_is_refused(config: TrainConfig, tmp_path: Path) -> None:
    [run] = train(config)
    weights = run.path / "weights.safetensors"
    content = weights.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        weights.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CacheError, match="damaged"):
            gaam_decoder.load(run.path)
    with pytest.raises(NotFoundError, match="no finished run"):
        gaam_decoder.load(tmp_path)


def test_runs_of_the_first_version_predict_what_they_hold(tmp_path: Path) -> None:
    split = gaam_cache.open_cache(OLD / "cache")["test"]
    for folder in sorted((OLD / "runs").iterdir()):
        moved = shutil.copytree(folder, tmp_path / folder.name / "runs" / folder.name)
        alone, named = (
            gaam_decoder.load(moved, cache=c, device="cpu") for c in (None, OLD / "cache")
        )
        beside = gaam_decoder.load(folder, device="cpu")
        [run] = gaam_decoder.load_runs(folder)
        for predictor in (alone, named, beside):
            found = predictor.predict_states(split.pooled(run.recipe["pool"]))
            np.testing.assert_allclose(found.probabilities_NC, held(run), atol=1e-5, rtol=0)
        with pytest.raises(CacheError, match="earlier version") as caught:
            alone.predict(["goal"])
        assert "--cache" in str(caught.value)
        for predictor in (named, beside):
            assert predictor.encoding is not None
            assert predictor.encoding.identity["max_length"] == 64
            with pytest.raises(NotFoundError, match="'encoder' is not where it was") as missing:
                predictor.predict(["goal"])
            assert "--encoder" in str(missing.value)


def test_another_cache_is_refused(config: TrainConfig, cache: Path, tiny_cache: Path) -> None:
    [run] = train(config)
    gaam_decoder.load(run.path, cache=cache)
    with pytest.raises(CacheError, match="not the cache that the run was trained on"):
        gaam_decoder.load(run.path, cache=tiny_cache)
    with pytest.raises(NotFoundError, match="no cache"):
        gaam_decoder.load(run.path, cache=cache.parent / "nowhere")


def test_a_run_alone_knows_how_its_rows_were_encoded(
    config: TrainConfig, cache: Path, tmp_path: Path
) -> None:
    shutil.copytree(cache, tmp_path / "copy")
    [run] = train(replace(config, cache=tmp_path / "copy"))
    whole = gaam_decoder.load(run.path).encoding
    shutil.rmtree(tmp_path / "copy")
    predictor = gaam_decoder.load(run.path, device="cpu")
    assert predictor.encoding == whole
    assert predictor.predict(["goal bank", "robot"])
