"""A planted cache is like any other; its labels are draws of a known teacher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from numpy.typing import NDArray

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_decoder import PlantConfig, plant
from gaam_decoder.analysis.learned import GATES
from gaam_decoder.analysis.planting import (
    draw_labels,
    gaussian_states,
    linear_accuracy,
    make_teacher,
    planted_mechanism,
)
from gaam_decoder.decoder import Decoder
from gaam_decoder.heads.linear import LinearHead
from tests.conftest import shard_bytes

Floats = NDArray[np.floating[Any]]
# layers, hidden size, classes
L = 6
D = 4
C = 3
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
    *({"gate": gate} for gate in GATES if gate != "laplace"),
]


def laplace(r: Floats) -> Floats:
    return np.exp(-np.abs(r) / 0.5)


def gaussian(r: Floats) -> Floats:
    return np.exp(-(r**2) / (2 * 0.5))


def student_t(r: Floats) -> Floats:
    return (1 + r**2 / (1.0 * 0.25)) ** (-(1.0 + 1) / 2)


def two_peaks(r: Floats) -> Floats:
    return (r**2 / 0.5 / 2) * np.exp(-(r**2 / 0.5 - 2) / 2)


FORMULAS: dict[str, Callable[[Floats], Floats]] = {
    "laplace": laplace,
    "gaussian": gaussian,
    "student-t": student_t,
    "two-peaks": two_peaks,
    "none": np.ones_like,
}
"""The densities as ATTENTION.md has them, with the planted numbers."""


def content_of(cache: Path) -> dict[str, bytes]:
    return {"cache.json": (cache / "cache.json").read_bytes(), **shard_bytes(cache)}


def states(rows: int, first: int = 0) -> Any:
    return gaussian_states((first + rows, L, D), 1)[first:]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_options_give_the_same_bytes(
    options: dict[str, Any], tmp_path: Path
) -> None:
    settings = SMALL | options
    first_out = tmp_path / "first"
    second_out = tmp_path / "second"
    first = plant(PlantConfig(out=first_out, **settings))
    second = plant(PlantConfig(out=second_out, **settings))
    assert content_of(first_out) == content_of(second_out)
    assert second.fingerprint == first.fingerprint
    assert gaam_cache.verify(first_out).good
    again = plant(PlantConfig(out=first_out, **settings))
    assert again.fingerprint == first.fingerprint


def test_other_options_give_other_fingerprints(tmp_path: Path) -> None:
    fingerprints: set[str] = set()
    for number, options in enumerate(OPTIONS):
        config = PlantConfig(out=tmp_path / f"{number}", **(SMALL | options))
        fingerprints.add(plant(config).fingerprint)
    assert len(fingerprints) == len(OPTIONS)


def test_other_options_into_the_same_folder_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "cache"
    plant(PlantConfig(out=out, **SMALL))
    with pytest.raises(ConfigError, match=r"cache'(.|\n)*planted\.seed .* 0, now 2"):
        plant(PlantConfig(out=out, **SMALL, seed=2))


def rows_of(cache: Any) -> list[bytes]:
    """The states of all rows of a cache, sorted."""
    rows: list[bytes] = []
    for split in cache.values():
        rows += [states_LD.tobytes() for states_LD in split.embeddings[:]]
    return sorted(rows)


@pytest.mark.parametrize("left_out", [0, 3])
def test_states_of_a_cache_are_taken_as_they_are_and_none_twice(
    left_out: int, tiny_cache: Path, tmp_path: Path
) -> None:
    source = gaam_cache.open_cache(tiny_cache)
    source_rows = rows_of(source)
    num_rows = len(source_rows) - left_out
    config = PlantConfig(
        out=tmp_path / "planted",
        from_cache=tiny_cache,
        classes=2,
        rows=num_rows if left_out else None,
    )
    summary = plant(config)
    cache = gaam_cache.open_cache(summary.path)
    rows = rows_of(cache)
    assert len(rows) == num_rows == sum(summary.rows.values())
    if left_out:
        assert set(rows) <= set(source_rows)
    else:
        assert rows == source_rows
    planted = cache.plan.fingerprint_fields["encoder"]["imported"]["planted"]
    assert planted["states"] == source.fingerprint


@pytest.fixture(scope="module")
def flat_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache all of whose states are equal."""
    folder = tmp_path_factory.mktemp("flat") / "cache"
    states_NLD = np.full((1400, 4, 3), 0.7, np.float32)
    gaam_cache.write(folder, {"train": (states_NLD, np.arange(1400) % 2)})
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": 1}, r"classes(.|\n)* 2 to"),
        ({"rows": 30, "classes": 11}, "--rows .* 33"),
        ({"layers": 2}, r"'laplace'(.|\n)*--gate none"),
        ({"from_cache": "tiny_cache", "rows": 10**6}, r" 84\n.* 1,000,000"),
        ({"from_cache": "flat_cache", "classes": 2}, "934 rows"),
    ],
    ids=["one class", "few rows", "few layers", "many rows", "equal states"],
)
def test_mistakes_are_refused_and_leave_nothing(
    settings: dict[str, Any],
    message: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if "from_cache" in settings:
        cache = request.getfixturevalue(settings["from_cache"])
        settings = settings | {"from_cache": cache}
    out = tmp_path / "new"
    with pytest.raises(ConfigError, match=message):
        plant(PlantConfig(out=out, **settings))
    assert not out.exists()


@pytest.mark.parametrize("gate", GATES)
def test_a_decoder_of_the_planted_mechanism_with_a_linear_head_expresses_the_teacher(
    gate: str,
) -> None:
    train = states(1000)
    teacher = make_teacher(gate, train, classes=C, strength=2.5, seed=3)
    attention = planted_mechanism(gate, L, D)
    head = LinearHead(L, D, C)
    decoder = Decoder(attention, head).double()
    x_NLD = states(200, first=1000)[:].astype(np.float64)
    with torch.no_grad():
        head.fc.weight.copy_(torch.from_numpy(teacher.weight_CF))
        head.fc.bias.copy_(torch.from_numpy(teacher.bias_C))
        logits_NC = decoder(torch.from_numpy(x_NLD)).numpy()
        gated_NLD = attention(torch.from_numpy(x_NLD)).numpy()
    np.testing.assert_allclose(teacher.logits(x_NLD), logits_NC, rtol=1e-9, atol=1e-9)
    # the gate is its formula; logarithms of q have 1e-12 added
    gate_NLD = FORMULAS[gate](standardised(x_NLD))
    np.testing.assert_allclose(gated_NLD, x_NLD * gate_NLD, rtol=1e-9, atol=1e-10)
    # where no gate is planted, the mean over the layers decides
    mean_NLD = np.repeat(x_NLD.mean(1, keepdims=True), L, axis=1)
    means_decide = np.allclose(teacher.logits(x_NLD), teacher.logits(mean_NLD))
    assert means_decide == (gate == "none")


@pytest.mark.parametrize("gate", GATES)
def test_logits_of_training_rows_are_centred_and_as_large_as_the_strength(
    gate: str,
) -> None:
    train = states(1000)
    teacher = make_teacher(gate, train, classes=C, strength=2.5, seed=3)
    logits_NC = teacher.logits(train[:].astype(np.float64))
    np.testing.assert_allclose(logits_NC.mean(0), 0, atol=1e-9)
    assert np.sqrt(np.square(logits_NC).mean()) == pytest.approx(2.5)
    p_NC = scipy.special.softmax(logits_NC, 1)
    np.testing.assert_allclose(teacher.probabilities(train), p_NC, rtol=1e-9)


def standardised(x_NLD: Floats) -> Floats:
    """How far each layer is from the mean of all, in standard deviations."""
    mean_N1D = x_NLD.mean(1, keepdims=True)
    variance_N1D = np.abs((x_NLD**2).mean(1, keepdims=True) - mean_N1D**2)
    return (x_NLD - mean_N1D) / np.sqrt(variance_N1D + 1e-8 + 1e-5)


def squared_correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a, b)[0, 1] ** 2)


MOST_SEEN_LINEARLY = {"two-peaks": 0.22, "none": 1.01}
"""A squared correlation; of all other gates 0.05."""


def test_others_see_as_much_of_a_gate_as_the_guide_says() -> None:
    """Of one layer and feature, since all are alike; Gaussians of the best width."""
    x_NLD = gaussian_states((8000, 16, 2), 0).astype(np.float64)
    r_N = standardised(x_NLD)[:, 0, 0]
    x_N = x_NLD[:, 0, 0]
    gaussians = [
        x_N * np.exp(-(r_N**2) / (2 * width)) for width in np.geomspace(0.02, 50, 200)
    ]
    unseen: dict[str, float] = {}
    for gate, formula in FORMULAS.items():
        y_N = x_N * formula(r_N)
        most_seen = MOST_SEEN_LINEARLY.get(gate, 0.05)
        assert squared_correlation(x_N, y_N) < most_seen, gate
        best = max(squared_correlation(gated_N, y_N) for gated_N in gaussians)
        unseen[gate] = 1 - best
    assert 0.03 < unseen["laplace"] < 0.05
    assert 0.015 < unseen["student-t"] < 0.03
    assert unseen["two-peaks"] > 0.45
    assert unseen["gaussian"] < 1e-3


def p_of_draws(p_NC: Floats, label_N: NDArray[Any]) -> float:
    """p of the hypothesis that labels are drawn from these probabilities.

    In every decile of a class's probability the class is as frequent as expected.
    """
    p_values: list[float] = []
    for number in range(C):
        p_N = p_NC[:, number]
        deciles = np.array_split(np.argsort(p_N), 10)
        expected = np.array([p_N[rows].sum() for rows in deciles])
        variance = np.array([(p_N[rows] * (1 - p_N[rows])).sum() for rows in deciles])
        counts = np.array([(label_N[rows] == number).sum() for rows in deciles])
        chi_square = ((counts - expected) ** 2 / variance).sum()
        p_values.append(float(scipy.stats.chi2.sf(chi_square, 10)))
    return float(scipy.stats.false_discovery_control(p_values).min())


def test_labels_are_draws_of_the_teacher() -> None:
    train = states(6000)
    teacher = make_teacher("laplace", train, classes=C, strength=2.0, seed=5)
    p_NC = teacher.probabilities(train)
    label_N = draw_labels(p_NC, 5, 0)
    assert p_of_draws(p_NC, label_N) > 0.01
    colder_NC = p_NC**1.3 / (p_NC**1.3).sum(1, keepdims=True)
    assert p_of_draws(colder_NC, label_N) < 1e-6, "another temperature is seen"
    assert (draw_labels(p_NC, 5, 1) != label_N).any()


@pytest.mark.parametrize("gate", GATES)
def test_the_best_linear_decoder_is_the_teacher_only_where_no_gate_is_planted(
    gate: str,
) -> None:
    train = states(2000)
    test = states(1000, first=2000)
    teacher = make_teacher(gate, train, classes=C, strength=4.0, seed=2)
    p_NC = teacher.probabilities(train)
    p_test_NC = teacher.probabilities(test)
    accuracy = linear_accuracy(train, p_NC, test, p_test_NC)
    best = p_test_NC.max(1).mean()
    assert accuracy is not None
    if gate == "none":
        assert accuracy == pytest.approx(best, abs=1e-3)
    else:
        assert 1 / C - 0.1 < accuracy < best - 0.2


def test_of_fewer_rows_than_two_a_feature_there_is_no_best_linear_decoder() -> None:
    train = states(2 * L * D - 1)
    test = states(1000, first=2000)
    teacher = make_teacher("none", states(2000), classes=C, strength=4.0, seed=2)
    p_NC = teacher.probabilities(train)
    assert linear_accuracy(train, p_NC, test, teacher.probabilities(test)) is None
