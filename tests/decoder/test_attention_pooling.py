"""The page on attention pooling: its blocks run, and its head is the lecture's pooling."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.nonparametric.kernel_regression import KernelReg

import gaam_decoder
from gaam_decoder.runs.loading import load_runs
from tests.conftest import Outcome

# few rows; statsmodels draws random numbers in a way that it will change
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/concepts/attention-pooling.md"
BLOCK = re.compile(
    r"^```python\n(.*?)^```$|^gaam ((?:[^\n]*\\\n)*[^\n]*)$", re.M | re.S
)
"""Code, or a command, which may be continued by a backslash."""
RESULT = re.compile(r"^\| `(nadaraya-watson\S*)` \| ([0-9.]*) \| (\S+) \|$", re.M)
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: 1.0 * (u <= 1),
    "epanechnikov": lambda u: np.maximum(1 - u**2, 0),
    "triangular": lambda u: np.maximum(1 - u, 0),
}
"""The kernels of the lecture, written down once more."""


def script() -> Any:
    """The script that draws the picture."""
    file = ROOT / "data/studies/attention_pooling.py"
    spec = importlib.util.spec_from_file_location("attention_pooling", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_runs_and_its_table_is_what_comes_out(
    gaam: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    names: dict[str, Any] = {}
    num_commands = 0
    for code, command in BLOCK.findall(text):
        if code:
            exec(code, names)
            continue
        outcome = gaam(*command.replace("\\\n", " ").split())
        assert outcome.code == 0, outcome.err
        num_commands += 1
    assert num_commands == 2

    # a head is named without its defaults in a run
    run_by_head = {run.head: run for run in load_runs("runs")}
    results = RESULT.findall(text)
    assert len(results) == 4
    for head, width, r2 in results:
        run = run_by_head[head.replace(":kernel=gaussian", "").replace("=10", "=10.0")]
        assert f"{run.score[0]:.3f}" == r2
        assert run.fit is not None
        assert f"{run.fit.value:.3g}" == width


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_head_is_the_pooling_of_the_lecture(kernel: str) -> None:
    x, y = script().points()
    query = np.arange(0, 5, 0.05)
    width = 0.5 / x.std()
    head = f"nadaraya-watson:kernel={kernel},width={width}"
    decoder = gaam_decoder.fit(x[:, None, None], y, attn="none", head=head)
    pooled = decoder.predict(query[:, None, None])

    # its keys are the points whose values it keeps, in their own spread
    kept = decoder._learned().weights["head.value_NK"].numpy().ravel()
    is_key = np.isin(y.astype(np.float32), kept)
    assert is_key.sum() == len(kept) == 90
    key, value = x[is_key], y[is_key]
    h = width * key.std()
    weight = KERNELS[kernel](np.abs(query[:, None] - key) / h)
    expected = weight @ value / weight.sum(1)
    # a key at the edge of a boxcar is in or out by rounding
    assert (np.abs(pooled - expected) < 2e-3).mean() > (
        0.9 if kernel == "boxcar" else 0.999
    )
    if kernel == "gaussian":
        theirs = KernelReg(value, key, "c", reg_type="lc", bw=[h]).fit(query)[0]
        np.testing.assert_allclose(pooled, theirs, atol=2e-3)


def test_the_picture_can_be_drawn() -> None:
    figure = script().draw(kernels=["boxcar"], widths=[0.2, 1.0])
    curves = [axes.lines[-1].get_ydata() for axes in figure.axes]
    # the wide window is the smoother one
    roughness = [np.abs(np.diff(curve, 2)).sum() for curve in curves]
    assert roughness[0] > 2 * roughness[1]
