"""What ``make gpu`` runs: without a GPU it says so at once; rehearsed, each part leaves figures."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import DeviceType

from tests.benchmarks.batch_arithmetic import Ceilings
from tests.benchmarks.batch_trace import trace_of_kernels
from tests.benchmarks.bench_gpu import TINY, lengths_of_ag_news, random_model
from tests.benchmarks.bench_gpu_variants import NEEDS_GPU, main
from tests.benchmarks.encoder_passes import EncoderPasses
from tests.benchmarks.encoder_variants import attend_by
from tests.benchmarks.figures import try_within
from tests.benchmarks.on_gpu import SECONDS, limit_of

ROOT = Path(__file__).parents[2]
MACHINE = {"cpu", "threads", "python", "torch", "memory_gb", "gpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize(
    "module", ["on_gpu", "bench_gpu", "bench_gpu_variants", "bench_gpu_train"]
)
def test_without_a_gpu_nothing_is_begun(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--json", str(tmp_path / "figures.json")])
    with pytest.raises(SystemExit, match=re.escape(torch.__version__)):
        importlib.import_module(f"tests.benchmarks.{module}").main()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_rehearsal_of_all_parts_leaves_figures(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.on_gpu",
        "--tiny",
        "--json",
        str(tmp_path / "gpu.json"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout[-3000:], done.stderr[-3000:])
    assert done.returncode == 0
    found: dict[str, Any] = json.loads((tmp_path / "gpu.json").read_text())
    assert found.keys() == {"machine", *SECONDS}
    assert found["machine"].keys() >= MACHINE
    assert found["tests"]["found"]["count"] > 20
    assert not found["tests"]["found"]["failed"]
    extraction, training = found["extraction"]["found"], found["training"]["found"]
    assert found["variants"]["found"]["variants"]["graphs"] == NEEDS_GPU
    assert {
        "tokens_per_second",
        "share_of_ceiling",
        "projected_ag_news_hours",
    } <= extraction.keys()
    assert training["projected_hours_of_10_seeds_35_epochs_120000_rows"] > 0
    assert training["conv, bfloat16"]["share_of_ceiling"] > 0
    assert training["mha, linear, bfloat16, 10 seeds"]["times_the_plain_loop"] > 0


def test_all_parts_end_within_ten_minutes() -> None:
    parts = list(SECONDS)
    assert limit_of("tests", parts, 0) == 120
    # a late part takes no time from the next one, and a fast one leaves it some
    assert limit_of("training", parts, 500) == 100
    assert limit_of("variants", parts, 200) == 300


def test_rehearsed_variants_leave_figures_or_say_that_they_need_a_gpu(
    tmp_path: Path,
) -> None:
    main(["--tiny", "--rows", "16", "--json", str(tmp_path / "figures.json")])
    found = json.loads((tmp_path / "figures.json").read_text())
    parts = found["trace"]["parts"]
    for part in ("products", "attention"):
        expected = parts[part]["operations_on_paper"]
        assert parts[part]["operations_counted"] == pytest.approx(expected, rel=0.01)
    milliseconds = sum(part["milliseconds"] for part in parts.values())
    assert milliseconds == pytest.approx(found["trace"]["milliseconds"], rel=1e-3)

    measured = {
        name: figure
        for name, figure in found["variants"].items()
        if figure != NEEDS_GPU
    }
    assert {"as an extraction", "packed rows, row by row", "compiled layer"} <= set(
        measured
    )
    for name, figure in measured.items():
        assert figure["states_are_right"], name
        assert figure["tokens_per_second"] > 0, name
    # one graph serves for all layers
    assert measured["compiled layer"]["compiled_graphs"] == 1


def tiny_passes() -> EncoderPasses:
    """Few texts and a small model."""
    generator = np.random.default_rng(0)
    rows = [generator.integers(3, 1000, length) for length in lengths_of_ag_news(12)]
    model = random_model(TINY, torch.device("cpu"), torch.float32)
    return EncoderPasses(model, rows, Ceilings(1.0, 1.0, 1.0))


def test_states_that_other_rows_have_changed_are_not_right() -> None:
    packed = tiny_passes().with_packed_rows()
    attend_by(packed, "row-by-row")
    assert packed.measure()["states_are_right"]
    # it sees one long row
    attend_by(packed, "unmasked")
    assert not packed.measure()["states_are_right"]


def fail() -> None:
    raise ValueError("no such kernel\nfor this GPU")


def never_end() -> None:
    for _ in itertools.count():
        pass


@pytest.mark.parametrize(
    ("seconds", "measure", "expected"),
    [
        pytest.param(100, fail, "failed: ValueError: no such kernel", id="fails"),
        pytest.param(0.01, never_end, "ended after 0 s", id="late"),
        pytest.param(0, never_end, "not begun: the time is over", id="over"),
    ],
)
def test_a_variant_without_a_figure_says_why(
    seconds: float, measure: Callable[[], None], expected: str
) -> None:
    assert try_within(seconds, measure) == expected


def test_kernels_count_for_the_operator_that_launched_them() -> None:
    """Two streams, of which one copies while the other computes; two milliseconds of gaps."""

    def operator(name: str, parent: Any, kernel: str, start: int, end: int) -> Any:
        span = SimpleNamespace(start=1e3 * start, end=1e3 * end)
        launched.append(
            SimpleNamespace(
                name=kernel, device_type=DeviceType.CUDA, time_range=span, kernels=[]
            )
        )
        kernels = [SimpleNamespace(name=kernel, duration=1e3 * (end - start))]
        return SimpleNamespace(
            name=name, cpu_parent=parent, kernels=kernels, device_type=DeviceType.CPU
        )

    launched: list[Any] = []
    batch = operator("batch", None, "batch", 0, 20)
    linear = operator("aten::linear", batch, "transpose", 2, 3)
    norms = operator("norms", batch, "norms", 7, 9)
    events = [
        *(batch, linear, norms),
        operator("aten::mm", linear, "gemm", 3, 6),
        operator("aten::mul", norms, "multiply", 7, 9),
        operator("aten::add", batch, "add", 9, 10),
        operator("aten::copy_", batch, "Memcpy DtoH", 8, 12),
        operator("aten::embedding", batch, "gather", 13, 14),
    ]
    parts, longest, milliseconds = trace_of_kernels(events + launched)
    assert milliseconds == 12
    by_part = {"products": 4, "norms": 2, "copies": 4, "other": 2}
    assert parts == by_part | {"gaps": 2, "unattributed": -2}
    assert longest["gemm"] == 3
