from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.errors import StorageError
from gaam_cache.sources._spool import TextSpool

ROOT = Path(__file__).parents[3]
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=60)


def spool_of(texts: list[str]) -> TextSpool:
    spool = TextSpool()
    for text in texts:
        spool.append(text)
    return spool


@given(texts=TEXTS, data=st.data())
def test_reads_like_a_list(texts: list[str], data: st.DataObject) -> None:
    spool = spool_of(texts)
    assert list(spool) == texts
    assert spool == texts
    assert len(spool) == len(texts)
    bounds = data.draw(st.slices(len(texts)))
    assert spool[bounds] == texts[bounds]
    if texts:
        row = data.draw(st.integers(-len(texts), len(texts) - 1))
        assert spool[row] == texts[row]
    with pytest.raises(IndexError):
        spool[len(texts)]
    assert spool != [*texts, "x"]


def test_appending_after_reading() -> None:
    spool = spool_of(["a"])
    assert spool[0] == "a"
    spool.append("b")
    assert list(spool) == ["a", "b"]


def test_a_full_disk_is_told() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StorageError, match="TMPDIR"):
            _ = spool_of(["x" * 1000] * 20)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


PEAK = """
import sys, gaam_cache
from pathlib import Path
from gaam_cache.config import ExtractConfig
_, encoder, dataset, out, limit = sys.argv
gaam_cache.extract(ExtractConfig(encoder=encoder, dataset=dataset, splits=("train",), max_length=4,
    out=Path(out), limit=int(limit), shard_rows=256))
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(encoders: dict[str, Path], tmp_path: Path) -> None:
    text = "x" * 4096  # one word: quick to tokenise
    with (tmp_path / "train.csv").open("w") as file:
        file.write("label,text\n")
        file.writelines(f"{'ab'[i % 2]},{text} {i}\n" for i in range(12_000))
    peaks = []
    for limit in (1_000, 12_000):
        command = [sys.executable, "-c", PEAK, encoders["bert"], tmp_path, tmp_path / str(limit)]
        run = subprocess.run(
            [*map(str, command), str(limit)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        peaks.append(int(run.stdout) / 1024)
    texts_mb = 11_000 * len(text) / 2**20
    assert texts_mb > 40
    assert peaks[1] - peaks[0] < 0.4 * texts_mb, peaks
