"""A finished run, or what was exported of one, ready to predict.

An exported decoder is a folder of three files: config.json, model.safetensors, README.md.
config.json carries its own digest and that of the weights; the card is for people, who may change
it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

import gaam_cache
from gaam_cache import devices, plugins
from gaam_cache.errors import CacheError, ConfigError, GaamError, GaamWarning, NotFoundError
from gaam_cache.messages import visible
from gaam_cache.store.digest import digest_of, sealed_text, unsealed
from gaam_cache.store.files import read_json, write_file
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.notes import recommended
from gaam_decoder.reports.report import report
from gaam_decoder.runs.folders import find_cache, is_run, run_folders
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import WEIGHTS_FILE, RunResult
from gaam_decoder.specs import KINDS, parse_spec
from gaam_decoder.use.predictor import DecoderConfig, Ensemble, Predictor

CONFIG_FILE, MODEL_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
OWN_FILES = (CONFIG_FILE, MODEL_FILE, CARD_FILE)
"""All that lies in an exported decoder."""
FORMAT = {"format": "gaam-decoder", "format_version": 1}


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

    >>> predictor = gaam_decoder.load(runs[0].path)
    >>> predictor.predict_states(others).probabilities_NC.shape
    (30, 3)

    Args:
        path: folder of the run, an exported folder, or a folder of runs: of these the one that
            their report recommends, which a warning names.
        seed: whose decoder alone is used; default: all that finished, averaged.
        temperature: divide the logits of every seed by the temperature that fits the rows that
            chose its epoch best, before anything is averaged; as ``report`` does.
        cache: folder of the cache that it learned from; default: what the run says of it.
        encoder: folder or id of the encoder, where it is no longer where it was.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: what suits the device.

    Raises:
        NotFoundError: no finished run and no exported decoder there.
        ConfigError: no such seed, or one that failed; a mechanism whose predictions of a row depend
            on the rows beside it; or nothing that a temperature is fitted on.
        CacheError: the run is damaged, or the cache is another one.

    Warns:
        GaamWarning: shuffled labels, another arithmetic, or no best temperature.
    """
    computes = devices.resolve_device(device)
    folder = Path(path).expanduser()
    temperatures: tuple[float, ...] = ()
    if (folder / CONFIG_FILE).is_file() and not is_run(folder):
        if temperature:
            raise _no_rows(folder)
        config, ensemble = read_decoder(folder, seed=seed)
        about = {"plan": config.plan, "fingerprint": config.fingerprint}
        plan = _plan_of(about, folder, cache)
    else:
        run, config, ensemble, plan = open_run(folder, seed, cache)
        temperatures = _temperatures(run, config.seeds) if temperature else ()
    if config.signature.get("labels_shuffled"):
        _warn(f"'{folder.name}' learned from shuffled labels: its predictions mean nothing")
    try:
        devices.check_arithmetic(config.dtype, computes)
    except ConfigError:
        _warn(f"evaluated in float32: {computes.type} is not used for {config.dtype}, as it was")
        ensemble.dtype = "float32"
    opens: dict[str, Any] = {"encoder": encoder, "batch_tokens": batch_tokens}
    opens["device"] = str(computes)
    return Predictor(config, ensemble, plan, temperatures=temperatures, **opens)


def _warn(text: str) -> None:
    warnings.warn(text, GaamWarning, stacklevel=3)


def open_run(
    folder: Path, seed: int | None, cache: str | Path | None
) -> tuple[RunResult, DecoderConfig, Ensemble, Plan]:
    """Decoders of the seeds that finished, or of one; the plan may name paths."""
    if not is_run(folder) and run_folders(folder):
        folder = _recommended(folder)
    run = one_run(folder)
    where, recipe, about = str(run.path.absolute()), run.recipe, run.cache
    if not run.finished:
        found = run.failed[run.seeds[0]]
        raise ConfigError("every seed of the run failed", found=found, where=where)
    if seed is not None and seed not in run.finished:
        lost, expected = run.failed.get(seed), f"one of: {', '.join(map(str, run.finished))}"
        message = f"seed {seed} of the run failed" if lost else f"no seed {seed} in the run"
        raise ConfigError(message, expected=expected, found=lost, where=where)
    if run.chose:
        _warn(f"'{run.path.name}' was trained to choose a rate: what was chosen is another run")
    plan = _plan_of(about, run.path, cache)
    float32 = recipe.get("eval_dtype") == "float32"
    config = DecoderConfig(
        attention=run.attention,
        head=run.head,
        layers=tuple(number - about.get("first_layer", 1) for number in run.layer_numbers),
        num_layers=about["layers"],
        hidden_size=about["hidden_size"],
        pooling=recipe["pool"],
        class_names=tuple(about["class_names"]),
        seeds=run.finished if seed is None else (seed,),
        dtype="float32" if float32 else str(recipe.get("dtype", "float32")),
        plugins=dict(recipe.get("plugins", {})),
        fingerprint=about["fingerprint"],
        key=run.key,
        plan=plan.portable().to_dict(),
        signature={
            "gaam": gaam_cache.__version__,
            "attention": run.attention,
            "head": run.head,
            "recipe": recipe,
            "seeds": list(run.seeds),
            "labels_shuffled": run.shuffled,
        },
    )
    places = [run.seeds.index(one) for one in config.seeds]
    with run.tensors(WEIGHTS_FILE) as file:
        weights = {n: torch.from_numpy(file.get_tensor(n)[places]) for n in file.keys()}  # noqa: SIM118
    return run, config, _ensemble(config, weights, folder), plan


def _recommended(folder: Path) -> Path:
    """Of a folder of runs that which its report recommends, or the only one."""
    rows = [(t, row) for t in report(folder).tables for row in t.rows if not row.shuffled]
    found = recommended(rows[0][0]) if len({id(table) for table, _ in rows}) == 1 else None
    if found is None and len(rows) == 1:
        found = rows[0][1], f"use {rows[0][1].attention}: the only row"
    if found is None or len(found[0].runs) != 1:
        raise ConfigError(
            "the report of these runs recommends no single one",
            expected="one run",
            found=", ".join(row.runs[0].path.name for _, row in rows[:6]),
            where=str(folder.absolute()),
            hint="gaam report says how they differ",
        )
    _warn(f"{found[1]}: {found[0].runs[0].path}")
    return found[0].runs[0].path


def _ensemble(config: DecoderConfig, weights: Mapping[str, Tensor], folder: Path) -> Ensemble:
    """The decoders; mechanisms and heads of other packages must compute as they did."""
    for kind, text in (("mechanism", config.attention), ("head", config.head)):
        name = parse_spec(text, kind).name
        now, then = plugins.code(KINDS[kind][0], name, kind=kind), config.plugins
        if (now if " " in now else None) != then.get(f"{kind} {name}"):
            raise ConfigError(
                f"the {kind} '{name}' is not the code that the run was trained with",
                expected=then.get(f"{kind} {name}", "that of gaam"),
                found=now,
                where=str(folder.absolute()),
            )
    return Ensemble(config.spec, weights, dtype=config.dtype)


def _plan_of(about: Mapping[str, Any], path: Path, cache: str | Path | None) -> Plan:
    """Of the cache that is named, or as the run at ``path`` recorded it."""
    recorded = about.get("plan")
    if cache is not None or recorded is None:
        return read_plan(find_cache(about, path, cache))
    return Plan.from_dict(recorded)


def _temperatures(run: RunResult, seeds: Sequence[int]) -> tuple[float, ...]:
    """One for every seed, above 0, fitted on the rows that chose its epoch."""
    held = run.validation
    found = [held.temperature(run.seeds.index(seed)) if held else None for seed in seeds]
    fitted = [one for one in found if one is not None]
    if len(fitted) < len(seeds):
        raise _no_rows(run.path)
    if lacking := [seed for seed, (_, best) in zip(seeds, fitted, strict=True) if not best]:
        _warn(
            f"no temperature has the smallest loss of seeds {spell_numbers(lacking)} of "
            f"'{run.path.name}': the rows that chose are all right, or no better than chance"
        )
    return tuple(value for value, _ in fitted)


def _no_rows(where: Path) -> ConfigError:
    return ConfigError(
        "there is nothing that a temperature is fitted on",
        expected="finite answers to the rows that chose the epoch, which runs of --select val keep",
        where=str(where.absolute()),
        hint="leave out --temperature, or train again with --select val",
    )


def read_config(folder: Path) -> tuple[DecoderConfig, str]:
    """The configuration of an exported decoder, and the SHA-256 of its weights."""
    path = folder / CONFIG_FILE
    try:
        content = read_json(path.resolve())  # where the hub's client keeps them, files are links
        if {key: content.get(key) for key in FORMAT} != FORMAT:
            raise ValueError(f"not what gaam exports: {FORMAT}")
        content = {key: value for key, value in unsealed(content).items() if key not in FORMAT}
        digest: str = content.pop("files")[MODEL_FILE]["sha256"]
        return DecoderConfig.from_dict(content), digest
    except FileNotFoundError as error:
        expected = f"a folder with {', '.join(OWN_FILES)}"
        raise NotFoundError(f"no exported decoder at '{folder}'", expected=expected) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unusable(path, error) from error


def read_decoder(folder: Path, *, seed: int | None = None) -> tuple[DecoderConfig, Ensemble]:
    """An exported decoder: all seeds, or one. Every byte of the weights is hashed."""
    config, digest = read_config(folder)
    if seed is not None and seed not in config.seeds:
        expected = f"one of: {', '.join(map(str, config.seeds))}"
        raise ConfigError(f"no seed {seed} in the exported decoder", expected=expected)
    path = folder / MODEL_FILE
    try:
        content = path.read_bytes()
        if digest_of(content) != digest:
            raise ValueError("the weights are not those that were exported")
        weights = safetensors.torch.load(content)
        if any(len(one) != len(config.seeds) for one in weights.values()):
            raise ValueError("weights of other seeds")
        if seed is not None:
            place = config.seeds.index(seed)
            weights = {name: one[place : place + 1] for name, one in weights.items()}
            config = replace(config, seeds=(seed,))
        return config, _ensemble(config, weights, folder)
    except GaamError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _unusable(path, error) from error


def write_decoder(folder: Path, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
    """Write configuration and weights, by the names that a decoder gives them, each (S, ...)."""
    whole = {name: one.cpu().contiguous() for name, one in weights.items()}
    content = safetensors.torch.save(whole, {"format": "pt"})
    about = {MODEL_FILE: {"bytes": len(content), "sha256": digest_of(content)}}
    text = {**FORMAT, **asdict(config), "files": about}
    write_file(folder / MODEL_FILE, content, option="DIR")
    write_file(folder / CONFIG_FILE, sealed_text(text).encode(), option="DIR")


def _unusable(path: Path, error: Exception) -> CacheError:
    return CacheError(
        visible(f"'{path.parent.name}' holds no decoder that can be used"),
        expected=f"the files that 'gaam export' wrote: {', '.join(OWN_FILES)}",
        found=visible(f"no key {error}" if isinstance(error, KeyError) else str(error)),
        where=visible(str(path.absolute())),
        hint="export it again, or download it again",
    )
