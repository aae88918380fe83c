"""Open a finished run, or an exported decoder, to predict with it.

An exported decoder is a folder of three files: config.json, with its own digest and
that of the weights, model.safetensors, and README.md, a card that people may change.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from gaam_cache.common import devices, plugins
from gaam_cache.common.errors import CacheError, ConfigError, GaamWarning
from gaam_cache.common.messages import visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.version import __version__
from gaam_cache.store.files import DAMAGE, digest_of, read_json, regular_file, unsealed
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.reports.recommend import Recommendation, recommended
from gaam_decoder.reports.report import report
from gaam_decoder.runs.folders import find_cache, is_run, run_folders
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import WEIGHTS_FILE, RunResult
from gaam_decoder.specs import KINDS, own_spec, parse_spec
from gaam_decoder.use.predictor import DecoderConfig, Predictor

OWN_FILES = CONFIG_FILE, MODEL_FILE, CARD_FILE = (
    "config.json",
    "model.safetensors",
    "README.md",
)
ONLY_TESTED = ("test_split", "fold", "groups", "split_seed", "allow_train_as_test")
"""Settings of tested runs that a final model lacks, or has with other values."""
FORMAT = {"format": "gaam-decoder", "format_version": 2}


def load(
    path: str | Path,
    *,
    seed: int | None = None,
    temperature: bool = False,
    attn: str | type | None = None,
    cache: str | Path | None = None,
    encoder: str | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> Predictor:
    """Open a finished run, or an exported decoder, to predict with it.

    >>> predictor = gaam_decoder.load(runs[0].path)
    >>> predictor.predict_states(others).probabilities_NC.shape
    (30, 3)

    Args:
        path: folder of the run, an exported folder, or a folder of runs. Of several
            runs the one that their report recommends is used, and a warning names it.
        seed: use the decoder of this seed; default: average all finished seeds.
        temperature: divide the logits of every seed by the temperature that fits its
            validation rows best, before the seeds are averaged; as ``report`` does.
        attn: your own mechanism of the run: its class, or ``FILE.py:CLASS``. Code that
            only a run names is never executed.
        cache: folder of the run's cache; default: the folder that the run recorded.
        encoder: folder or id of the encoder, if it has moved.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: by the device.

    Raises:
        NotFoundError: no finished run and no exported decoder.
        ConfigError: no such seed, a mechanism that reads several rows at once, or no
            validation rows for a temperature.
        CacheError: the run is damaged, or the cache is another one.
    """
    if attn is not None:
        # registers the name of the mechanism
        own_spec(attn, "mechanism")
    computes = devices.resolve_device(device)
    folder = absolute_path(path)
    run, config, weights = open_decoder(folder, seed, cache)
    if config.recipe.get("shuffle_labels"):
        _warn(
            f"'{folder.name}' learned from shuffled labels: "
            "its predictions mean nothing"
        )
    dtype = None
    try:
        devices.check_arithmetic(config.dtype, computes)
    except ConfigError:
        _warn(
            f"evaluated in float32: {computes.type} is not used for {config.dtype}, "
            "as it was"
        )
        dtype = "float32"
    return Predictor(
        config,
        weights,
        temperatures=_temperatures(run, config.seeds) if temperature else (),
        dtype=dtype,
        device=str(computes),
        encoder=encoder,
        batch_tokens=batch_tokens,
    )


def _temperatures(run: RunResult | None, seeds: Sequence[int]) -> list[float]:
    """The temperature of every seed, fitted on its validation logits.

    Raises:
        ConfigError: no validation rows, or a seed without a temperature.
    """
    temperatures: list[float | None] = []
    if run is not None and run.validation:
        for seed in seeds:
            place = run.seeds.index(seed)
            temperatures.append(run.validation.temperature(place))
    fitted = [number for number in temperatures if number is not None]
    if not fitted or len(fitted) < len(temperatures):
        raise ConfigError(
            "there is nothing that a temperature is fitted on",
            expected="a run of --select val with finite validation logits",
        )
    return fitted


def _warn(text: str) -> None:
    """Warn the caller of the function that calls this."""
    warnings.warn(text, GaamWarning, stacklevel=3)


def open_decoder(
    folder: Path, seed: int | None = None, cache: str | Path | None = None
) -> tuple[RunResult | None, DecoderConfig, dict[str, Tensor]]:
    """Read the decoders of a run or an exported folder, of all seeds or of one.

    Returns:
        The run, None for an exported folder; its configuration; and its weights by
        name, (S, ...).
    """
    run = None
    if (folder / CONFIG_FILE).is_file() and not is_run(folder):
        config, weights = read_export(folder)
        cache_record: dict[str, Any] = {"fingerprint": config.plan.fingerprint}
    else:
        has_several = not is_run(folder) and run_folders(folder)
        run = one_run(_recommended(folder) if has_several else folder)
        if run.tuning_only:
            _warn(
                f"'{run.path.name}' was trained to choose a rate: "
                "what was chosen is another run"
            )
        folder = run.path
        cache_record = run.cache
        config, weights = _read_run(run)

    if cache is not None:
        plan = read_plan(find_cache(cache_record, folder, cache))
        config = replace(config, plan=plan)
    where = str(folder)
    if not config.seeds or seed not in (None, *config.seeds):
        raise ConfigError(
            f"no seed {'' if seed is None else seed}",
            expected=f"one that finished: {', '.join(map(str, config.seeds))}",
            where=where,
        )
    if seed is not None:
        place = config.seeds.index(seed)
        weights = {name: tensor[[place]] for name, tensor in weights.items()}
        config = replace(config, seeds=(seed,))
    _check_code(config, "mechanism", config.attention, where)
    _check_code(config, "head", config.head, where)
    return run, config, weights


def _read_run(run: RunResult) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """The configuration of a run, and the weights of its finished seeds."""
    plan = Plan.from_dict(run.cache["plan"])
    config = DecoderConfig(
        attention=run.attention,
        head=run.head,
        recipe=run.recipe,
        layers=tuple(number - plan.first_layer for number in run.layer_numbers),
        seeds=run.finished,
        key=run.key,
        gaam=__version__,
        plan=plan,
    )
    places = [run.seeds.index(seed) for seed in run.finished]
    weights = {}
    with run.tensors(WEIGHTS_FILE) as file:
        for name in file.keys():  # noqa: SIM118 no mapping
            weights[name] = torch.from_numpy(file.get_tensor(name)[places])
    return config, weights


def _check_code(config: DecoderConfig, kind: str, text: str, where: str) -> None:
    """Check that a mechanism or head has the code that the run was trained with."""
    recorded_code = config.recipe.get("plugins", {})
    own_name = text.partition(":")[0]
    _check_known(own_name, kind, recorded_code.get(f"{kind} {own_name}"), where)

    name = parse_spec(text, kind).name
    code = plugins.code(KINDS[kind][0], name, kind=kind)
    recorded = recorded_code.get(f"{kind} {name}")
    # a run records foreign code alone, which is named with its digest
    foreign_code = code if " " in code else None
    if foreign_code != recorded:
        raise ConfigError(
            f"the {kind} '{name}' is not the code that the run was trained with",
            expected=recorded or "that of gaam",
            found=code,
            where=where,
        )


def _check_known(name: str, kind: str, recorded: str | None, where: str) -> None:
    """Refuse a mechanism or head of unknown code, and say how to make it known."""
    package, option = KINDS[kind]
    if recorded is None:
        return
    if name in plugins.names(package) or plugins.origin(package, name):
        return
    origin = recorded.rpartition(" ")[0]
    known_by = f"install {origin}"
    if origin.endswith(".py"):
        known_by = (
            f"gaam predict RUN {option} {origin}:{name}; "
            f"from Python load(RUN, attn={name})"
        )
    raise ConfigError(
        f"the {kind} '{name}' is not gaam's own, "
        "and no code is run that only a run names",
        expected=f"{origin}, which the run was trained with",
        where=where,
        hint=known_by,
    )


def _recommended(folder: Path) -> Path:
    """The run that the report of a folder recommends, or its final model.

    A final model learned from all rows, including the test rows of the others. It is
    the only usable run of a decoder that was trained on folds.
    """
    tables = report(folder).tables
    entries = [
        entry for table in tables for entry in table.entries if not entry.shuffled
    ]
    choice = recommended(tables[0]) if len(tables) == 1 else None
    if choice is None and len(entries) == 1:
        reason = f"use {entries[0].attention}: the only decoder"
        choice = Recommendation(entries[0], reason)
    if choice is None:
        raise _no_single_one([entry.runs[0] for entry in entries])
    entry, reason = choice
    finals = [
        run
        for run in tables[0].runs
        if not run.evaluated and _is_final_of(run, entry.runs)
    ]
    candidates = finals or list(entry.runs)
    if len(candidates) != 1:
        raise _no_single_one(candidates)
    [run] = candidates
    final = " (its final model, which learned from all training rows)" if finals else ""
    _warn(f"{reason}{final}: {shown_path(run.path)}")
    return run.path


def _no_single_one(runs: Sequence[RunResult]) -> ConfigError:
    """The error for a folder without a single recommended run."""
    shown = ", ".join(run.path.name for run in runs[:6])
    hint = (
        "name one of them; of folds, gaam train --final makes a model that can be used"
    )
    return ConfigError(
        "the report of these runs recommends no single one", found=shown, hint=hint
    )


def _is_final_of(run: RunResult, evaluated: Sequence[RunResult]) -> bool:
    """Whether a run is the final model of these: it differs in its tested rows."""
    if run.tuning_only:
        return False
    first = evaluated[0]
    if run.attention != first.attention or run.head != first.head:
        return False
    if run.states != first.states:
        return False
    recipes = [
        {name: value for name, value in recipe.items() if name not in ONLY_TESTED}
        for recipe in (run.recipe, first.recipe)
    ]
    return recipes[0] == recipes[1]


def read_export(folder: Path) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """Read an exported decoder and its weights, and check the digests of both."""
    try:
        settings = unsealed(read_json(folder / CONFIG_FILE))
        if any(settings.pop(key, None) != value for key, value in FORMAT.items()):
            raise ValueError(f"not what gaam exports: {FORMAT}")
        regular_file(folder / MODEL_FILE)
        content = (folder / MODEL_FILE).read_bytes()
        if digest_of(content) != settings.pop("sha256_of_weights"):
            raise ValueError("the weights are not those that were exported")
        return DecoderConfig.from_dict(settings), safetensors.torch.load(content)
    except (*DAMAGE, SafetensorError) as error:
        raise CacheError(
            visible(f"'{folder.name}' holds no decoder that can be used"),
            expected=f"the files that 'gaam export' wrote: {', '.join(OWN_FILES)}",
            found=visible(f"{type(error).__name__}: {error}"),
            where=visible(str(folder.absolute())),
        ) from error
