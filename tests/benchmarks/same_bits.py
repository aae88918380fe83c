"""Does a change of the code change any number? Digests of all that a small study consists of.

    python -m tests.benchmarks.same_bits --record before.json
    python -m tests.benchmarks.same_bits --compare before.json

A cache of every pooling in every storage type; runs of every mechanism with every head, also in
folds, in a sweep of layers, poolings and rates, and compiled; the same reports in every format, and
the pictures. What is no result (seconds, folders, versions of ours) is set to fixed values. Digests
are those of one machine and one version of torch: they are made and compared, never kept. It holds
README's "the same bytes" across a change of the code.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.store.files import sealed_text, unsealed
from gaam_decoder import TrainConfig, load_runs
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import build_tables
from tests.conftest import build_encoder, random_rows, write_csv
from tests.decoder.configs import change, loose_config

SEEDS = (0, 1, 2)


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()).resolve() / f"samebits{os.getpid()}"
    folder.mkdir()  # of a name in which no format escapes anything
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = digests(folder)
    finally:
        shutil.rmtree(folder)
    if options.record:
        options.record.write_text(json.dumps(found, indent=1))
        print(f"{len(found):,} digests recorded")
    if options.compare:
        before = json.loads(options.compare.read_text())
        changed = sorted(
            key for key in before.keys() & found.keys() if before[key] != found[key]
        )
        lost, new = (
            sorted(before.keys() - found.keys()),
            sorted(found.keys() - before.keys()),
        )
        for what, keys in (("other", changed), ("lost", lost), ("new", new)):
            for key in keys:
                print(f"{what}: {key}")
        print(
            f"{len(before.keys() & found.keys()) - len(changed):,} of {len(before):,} the same"
        )
        raise SystemExit(bool(changed or lost))


def digests(folder: Path) -> dict[str, str]:
    """All of the study, name -> SHA-256."""
    found: dict[str, bytes] = {}
    encoder = build_encoder(folder / "encoder", "bert", num_layers=4)
    # with weights as small as those of a new model the first token tells no two rows apart
    weights = load_file(encoder / "model.safetensors")
    larger = {name: 8 * x if x.ndim == 2 else x for name, x in weights.items()}
    save_file(larger, encoder / "model.safetensors", {"format": "pt"})
    write_csv(folder / "data" / "train.csv", random_rows(90, 1))
    write_csv(folder / "data" / "test.csv", random_rows(41, 2))
    for storage in ("float32", "bfloat16", "float16"):
        cache = folder / f"cache-{storage}"
        config = ExtractConfig(
            encoder=str(encoder),
            dataset=str(folder / "data"),
            out=cache,
            pool=("mean", "last", "first", "max"),
            shard_rows=32,
            storage_dtype=storage,
            device="cpu",
        )
        gaam_cache.extract(config)
        for file in sorted(cache.glob("shards/*.h5")):
            # the name holds the digest; the content holds the fingerprint, which a format decides
            found[f"{storage}/{file.name[:-12]}"] = _arrays(file)
    base = loose_config(
        cache=folder / "cache-float16",
        runs=folder / "runs",
        seeds=SEEDS,
        epochs=3,
        batch_size=16,
        lr=0.01,
        compile="off",
        device="cpu",
        probe=False,  # what is compared is what a study asks for
    )
    for name, study in _studies(base).items():
        gaam_decoder.train(study)
        for run in sorted(study.runs.glob("[!.]*/run.json")):
            _settle(run, folder)
            for file in sorted(run.parent.glob("*.safetensors")):
                found[f"{name}/{run.parent.name}/{file.name}"] = file.read_bytes()
            log = [json.loads(line) for line in (run.parent / "log.jsonl").open()]
            kept = [
                {key: line[key] for key in line if key != "seconds"} for line in log
            ]
            found[f"{name}/{run.parent.name}/log"] = json.dumps(kept).encode()
        tables = build_tables(load_runs(study.runs))
        for format in plugins.names("gaam_decoder.reports.formats"):
            stream = io.StringIO()
            plugins.load(
                "gaam_decoder.reports.formats", format, kind="report format"
            )().write(tables, stream)
            text = stream.getvalue().replace(str(folder), "FOLDER")
            text = text.replace(f"gaam {gaam_cache.__version__}", "gaam 0.1.0")
            found[f"{name}/report.{format}"] = text.encode()
        for picture in sorted(
            Path(p)
            for p in Report(tuple(tables)).save_figures(folder / f"{name}-figures")
        ):
            if picture.suffix == ".png":
                found[f"{name}/{picture.name}"] = picture.read_bytes()
    return {
        name: hashlib.sha256(content).hexdigest() for name, content in found.items()
    }


def _studies(base: TrainConfig) -> dict[str, TrainConfig]:

    everything = tuple(plugins.names("gaam_decoder.attention"))
    package = "gaam_decoder.heads"
    heads = tuple(
        name
        for name in plugins.names(package)
        if plugins.load(package, name, kind="head").trained_by == "steps"
    )
    some = ("gaam", "mha", "none", "laplace:heads=2,location=median")
    runs = base.runs.parent
    return {
        "fitted": change(
            base, attn=("none", "gct"), head="lbfgs", folds=2, runs=runs / "fitted"
        ),
        "all": change(base, attn=everything, head=heads, runs=runs / "all"),
        "folds": change(base, attn=some, folds=3, runs=runs / "folds"),
        "sweep": change(
            base,
            attn=some[:2],
            lr=(0.01, 0.1),
            pool=("mean", "last"),
            layers=(None, (1, 4)),
            runs=runs / "sweep",
        ),
        "protocol": change(
            base,
            attn=some,
            select="test",
            schedule="plateau",
            clip_grad_norm=0.5,
            loss="focal",
            dtype="bfloat16",
            seed_batch=2,
            runs=runs / "protocol",
        ),
        "compiled": change(base, attn=some[:2], compile="on", runs=runs / "compiled"),
        "failed": change(base, attn=some[:3], lr=1e30, runs=runs / "failed"),
    }


def _settle(path: Path, folder: Path) -> None:
    """Set what is no result."""
    log = path.with_name("log.jsonl")
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.open()]
    text = "".join(
        json.dumps(line | {"seconds": 0.5}) + "\n" for line in lines
    ).encode()
    log.write_bytes(text)
    about = unsealed(json.loads(path.read_text()))
    about["seeds"] = [seed | {"seconds": 0.5} for seed in about["seeds"]]
    about["files"]["log.jsonl"] = {
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    about["cache"]["path"] = "somewhere"
    about["environment"]["code"] = {}  # a move or a name changes it
    path.write_text(sealed_text(about))


def _arrays(file: Path) -> bytes:
    import h5py

    with h5py.File(file) as opened:
        return b"".join(
            key.encode() + opened[key][:].tobytes() for key in sorted(opened)
        )


if __name__ == "__main__":
    main()
