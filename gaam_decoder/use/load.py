"""A finished run, ready to predict."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gaam_cache import devices, plugin_code
from gaam_cache.errors import CacheError, ConfigError, GaamError, GaamWarning
from gaam_cache.format.encoding import Encoding
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.runs.folders import is_run, plan_of
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import WEIGHTS_FILE, RunResult
from gaam_decoder.specs import KINDS, parse_attention, parse_head
from gaam_decoder.use.ensemble import Ensemble, check_alone
from gaam_decoder.use.exported import has_config, read_decoder
from gaam_decoder.use.predictor import Predictor
from gaam_decoder.use.temperatures import no_rows, temperatures_of


def load(
    path: str | Path,
    *,
    seed: int | None = None,
    temperature: bool = False,
    cache: str | Path | None = None,
    encoder: str | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> Predictor:
    """Open a finished run, or what was exported of one, to predict with it.

    Args:
        path: folder of the run, or an exported folder.
        seed: whose decoder alone is used; default: all that finished, averaged.
        temperature: divide the logits of every seed by the temperature that fits the rows that
            chose its epoch best, before anything is averaged; as ``report`` does.
        cache: folder of the cache that it learned from; needed where the run is of an earlier
            version and the cache is neither where it was nor beside the runs.
        encoder: folder or id of the encoder, where it is no longer where it was.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: what suits the device.

    Raises:
        NotFoundError: no finished run and no exported decoder there.
        ConfigError: a seed that there is not or that failed, no seed that finished, or a mechanism
            whose predictions of a row depend on the rows beside it; or nothing that a temperature
            is fitted on.
        CacheError: the run is damaged, or the cache is another one.

    Warns:
        GaamWarning: it learned from shuffled labels, or is evaluated in another arithmetic, or no
            temperature is the best for a seed.
    """
    computes = devices.resolve_device(device)
    folder = Path(path).expanduser()
    if has_config(folder) and not is_run(folder):
        if temperature:
            raise no_rows(folder, "an exported decoder", "predict with the run that it is of")
        return _of_export(folder, seed, cache, encoder, computes, batch_tokens)
    run = one_run(folder)
    seeds = chosen_seeds(run, seed)
    check_code(run.recipe.get("plugins", {}), run.attention, run.head, folder)
    temperatures = temperatures_of(run, seeds) if temperature else ()
    ensemble = ensemble_of(run, seeds, _arithmetic(evaluated_in(run.recipe), computes))
    if run.shuffled:
        _warn_shuffled(folder)
    return Predictor(
        ensemble,
        class_names=run.cache["class_names"],
        seeds=seeds,
        layers=places_of(run),
        shape=(run.cache["layers"], run.cache["hidden_size"]),
        pooling=run.recipe["pool"],
        encoding=encoding_of(run.cache, run.path, cache),
        temperatures=temperatures,
        encoder=encoder,
        device=str(computes),
        batch_tokens=batch_tokens,
    )


def _of_export(
    folder: Path,
    seed: int | None,
    cache: str | Path | None,
    encoder: str | None,
    device: torch.device,
    batch_tokens: int | None,
) -> Predictor:
    config, ensemble = read_decoder(folder, seed=seed)
    check_code(config.plugins, config.attention, config.head, folder)
    ensemble.dtype = _arithmetic(config.dtype, device)
    if config.signature.get("labels_shuffled"):
        _warn_shuffled(folder)
    return Predictor(
        ensemble,
        class_names=config.class_names,
        seeds=config.seeds if seed is None else (seed,),
        layers=config.layers,
        shape=(config.num_layers, config.hidden_size),
        pooling=config.pooling,
        encoding=encoding_of(
            {"encoding": config.encoding, "fingerprint": config.fingerprint}, folder, cache
        ),
        encoder=encoder,
        device=str(device),
        batch_tokens=batch_tokens,
    )


def _warn_shuffled(folder: Path) -> None:
    warnings.warn(
        f"'{folder.name}' learned from shuffled labels: its predictions mean nothing",
        GaamWarning,
        stacklevel=3,
    )


def chosen_seeds(run: RunResult, seed: int | None) -> tuple[int, ...]:
    """That seed, or all that finished; raises ConfigError where it did not, or none."""
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


def check_code(then: Mapping[str, str], attention: str, head: str, folder: Path) -> None:
    """Mechanisms and heads of other packages compute as they did."""
    for kind, spec in (("mechanism", parse_attention(attention)), ("head", parse_head(head))):
        now, what = plugin_code.code(KINDS[kind][0], spec.name, kind=kind), f"{kind} {spec.name}"
        if (now if " " in now else None) != then.get(what):
            raise ConfigError(
                f"the {kind} '{spec.name}' is not the code that the run was trained with",
                expected=then.get(what, "that of gaam"),
                found=now,
                where=str(folder.absolute()),
                hint="install that version of the package",
            )


def places_of(run: RunResult) -> tuple[int, ...]:
    """Places of the layers that it reads, of those in its cache, from 0."""
    first = run.cache.get("first_layer", 1)
    return tuple(number - first for number in run.layer_numbers)


def ensemble_of(run: RunResult, seeds: tuple[int, ...], dtype: str) -> Ensemble:
    """Decoders of some seeds of a run.

    Raises:
        CacheError: the run is damaged.
        ConfigError: a mechanism that has no answer for one row.
    """
    spec = DecoderSpec(
        attention=parse_attention(run.attention),
        head=parse_head(run.head),
        num_layers=len(places_of(run)),
        hidden_size=run.cache["hidden_size"],
        num_classes=len(run.cache["class_names"]),
    )
    places = [run.seeds.index(seed) for seed in seeds]
    with run.tensors(WEIGHTS_FILE) as file:
        names = file.keys()
        weights = {name: torch.from_numpy(file.get_tensor(name)[places]) for name in names}
    ensemble = Ensemble.of(spec, weights, dtype=dtype)
    check_alone(ensemble, run.attention, run.path)
    return ensemble


def evaluated_in(recipe: Mapping[str, Any]) -> str:
    """The arithmetic that a run was evaluated in."""
    same = recipe.get("eval_dtype", "same") == "same"
    return str(recipe.get("dtype", "float32")) if same else "float32"


def _arithmetic(dtype: str, device: torch.device) -> str:
    """That arithmetic where the device is used for it, else float32."""
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


def encoding_of(
    about: Mapping[str, Any], path: Path, cache: str | Path | None
) -> Encoding | GaamError:
    """How rows are encoded, as the run at ``path`` says, or its cache; or why nobody knows."""
    recorded: Any = about.get("encoding")
    if cache is None and recorded is not None:
        return Encoding.from_dict(recorded)
    try:
        plan = plan_of(about, path, cache)
    except GaamError as error:
        if cache is not None:
            raise
        return CacheError(
            "the run is of an earlier version and does not say how its rows were encoded",
            expected=error.details.get("expected"),
            found=error.details.get("found"),
            where=str(path.absolute()),
            hint="name the folder of the cache with --cache",
        )
    return Encoding.of(plan) if recorded is None else Encoding.from_dict(recorded)
