"""A finished run, ready to predict."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from gaam_cache import devices, plugin_code
from gaam_cache.errors import CacheError, ConfigError, GaamError, GaamWarning, NotFoundError
from gaam_cache.format.encoding import Encoding
from gaam_cache.format.plan import read_plan
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import WEIGHTS_FILE
from gaam_decoder.runs.run_folders import is_run
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.runs.tensor_files import TensorFile
from gaam_decoder.specs import KINDS, Spec, parse_attention, parse_head
from gaam_decoder.use.ensemble import Ensemble
from gaam_decoder.use.predictor import Predictor


def load(
    path: str | Path,
    *,
    seed: int | None = None,
    cache: str | Path | None = None,
    encoder: str | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> Predictor:
    """Open a finished run to predict with it.

    Args:
        path: folder of the run.
        seed: whose decoder alone is used; default: all that finished, averaged.
        cache: folder of the cache that it learned from; needed where the run is of an earlier
            version and the cache is no longer where it was.
        encoder: folder or id of the encoder, where it is no longer where it was.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: what suits the device.

    Raises:
        NotFoundError: no finished run there.
        ConfigError: a seed that there is not or that failed, no seed that finished, or a mechanism
            whose predictions of a row depend on the rows beside it.
        CacheError: the run is damaged, or the cache is another one.

    Warns:
        GaamWarning: it learned from shuffled labels, or is evaluated in another arithmetic.
    """
    run = _read(Path(path).expanduser())
    seeds = _chosen(run, seed)
    attention, head = parse_attention(run.attention), parse_head(run.head)
    _check_code(run, {"mechanism": attention, "head": head})
    first = run.cache.get("first_layer", 1)
    layers = [number - first for number in run.layer_numbers]
    spec = DecoderSpec(
        attention=attention,
        head=head,
        num_layers=len(layers),
        hidden_size=run.cache["hidden_size"],
        num_classes=len(run.cache["class_names"]),
    )
    computes = devices.resolve_device(device)
    ensemble = _ensemble(run, spec, seeds, computes)
    if run.shuffled:
        warnings.warn(
            f"'{run.path.name}' learned from shuffled labels: its predictions mean nothing",
            GaamWarning,
            stacklevel=2,
        )
    return Predictor(
        ensemble,
        class_names=run.cache["class_names"],
        seeds=seeds,
        layers=layers,
        shape=(run.cache["layers"], run.cache["hidden_size"]),
        pooling=run.recipe["pool"],
        encoding=_encoding(run, cache),
        encoder=encoder,
        device=str(computes),
        batch_tokens=batch_tokens,
    )


def _read(path: Path) -> RunResult:
    if not is_run(path):
        raise NotFoundError(
            f"no finished run at '{path}'",
            expected=f"the folder of one run, with {RUN_FILE}",
            where=str(path.absolute()),
            hint="gaam inspect RUNS lists the runs of a folder",
        )
    return read_run(path)


def _chosen(run: RunResult, seed: int | None) -> tuple[int, ...]:
    where, there = str(run.path.absolute()), ", ".join(map(str, run.finished))
    if not run.finished:
        raise ConfigError(
            "every seed of the run failed",
            expected="a seed that finished",
            found=run.failure,
            where=where,
        )
    if seed is None:
        return run.finished
    if seed not in run.finished:
        raise ConfigError(
            f"seed {seed} of the run failed"
            if seed in run.failed
            else f"no seed {seed} in the run",
            expected=f"one of: {there}",
            found=run.failed.get(seed),
            where=where,
        )
    return (seed,)


def _check_code(run: RunResult, parts: dict[str, Spec]) -> None:
    """Mechanisms and heads of other packages compute as they did."""
    then = run.recipe.get("plugins", {})
    for kind, spec in parts.items():
        now, what = plugin_code.code(KINDS[kind][0], spec.name, kind=kind), f"{kind} {spec.name}"
        if (now if " " in now else None) != then.get(what):
            raise ConfigError(
                f"the {kind} '{spec.name}' is not the code that the run was trained with",
                expected=then.get(what, "that of gaam"),
                found=now,
                where=str(run.path.absolute()),
                hint="install that version of the package",
            )


def _ensemble(
    run: RunResult, spec: DecoderSpec, seeds: tuple[int, ...], device: torch.device
) -> Ensemble:
    places = [run.seeds.index(seed) for seed in seeds]
    with run.opened(WEIGHTS_FILE) as file:
        tensors = TensorFile(file)
        if json.loads(tensors.metadata.get("seeds", "null")) != list(run.seeds):
            raise ValueError("weights of other seeds")
        found = {name: tensors.read(name) for name in tensors}
        if any(len(value) != len(run.seeds) for value in found.values()):
            raise ValueError("weights that are not there for every seed")
        weights = {name: torch.from_numpy(value[places]) for name, value in found.items()}
        ensemble = Ensemble.of(spec, weights, dtype=_dtype(run, device))
    if ensemble.decoder.attention.depends_on_batch:
        raise ConfigError(
            f"'{run.attention}' predicts a row by the rows beside it, and has no answer for one",
            expected="a mechanism that looks at one row at a time",
            found="attention over the rows of a batch, as it was published",
            where=str(run.path.absolute()),
            hint="its test accuracy is that of batches as they were: gaam report",
        )
    return ensemble


def _dtype(run: RunResult, device: torch.device) -> str:
    """The arithmetic that the run was evaluated in, where the device is used for that."""
    if run.recipe.get("eval_dtype", "same") == "float32":
        return "float32"
    dtype = str(run.recipe.get("dtype", "float32"))
    try:
        devices.check_arithmetic(dtype, device)
    except ConfigError:
        warnings.warn(
            f"evaluated in float32: {device.type} is not used for {dtype}, in which the run was",
            GaamWarning,
            stacklevel=4,
        )
        return "float32"
    return dtype


def _encoding(run: RunResult, cache: str | Path | None) -> Encoding | GaamError:
    """How rows are encoded, as the run says, or its cache; or why nobody knows."""
    recorded: Any = run.cache.get("encoding")
    if cache is None and recorded is not None:
        return Encoding.from_dict(recorded)
    folder = Path(cache if cache is not None else run.cache.get("path", "cache")).expanduser()
    try:
        plan = read_plan(folder)
        if plan.fingerprint != run.cache["fingerprint"]:
            raise CacheError(
                "this is not the cache that the run was trained on",
                expected=f"fingerprint {run.cache['fingerprint'][:12]}",
                found=plan.fingerprint[:12],
                where=str(folder.absolute()),
                hint="name the folder of the cache with --cache",
            )
    except GaamError as error:
        if cache is not None:
            raise
        return CacheError(
            "the run is of an earlier version and does not say how its rows were encoded",
            expected="its cache, where it was or where --cache says",
            found=error.reason,
            where=str(folder.absolute()),
            hint="name the folder of the cache with --cache",
        )
    return Encoding.of(plan) if recorded is None else Encoding.from_dict(recorded)
