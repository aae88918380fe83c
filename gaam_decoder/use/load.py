"""A finished run, or what was exported of one, ready to predict.

An exported decoder is a folder of three files: config.json, which carries its own digest and that
of the weights, model.safetensors, and README.md, a card for people, who may change it.
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
from gaam_decoder.reports.notes import recommended
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
"""Settings that a final model has otherwise than the runs beside it, or not at all."""
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
        attn: a mechanism of one's own, which the run was trained with: its class, or
            ``FILE.py:CLASS``. No code is run that only a run names.
        cache: folder of the cache that it learned from; default: what the run says of it.
        encoder: folder or id of the encoder, where it is no longer where it was.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: what suits the device.

    Raises:
        NotFoundError: no finished run and no exported decoder there.
        ConfigError: no such seed, a mechanism that looks at the rows beside a row, or nothing that
            a temperature is fitted on.
        CacheError: the run is damaged, or the cache is another one.
    """
    if attn is not None:
        own_spec(attn, "mechanism")  # from now on its name is known
    computes, folder = devices.resolve_device(device), absolute_path(path)
    run, config, weights = open_decoder(folder, seed, cache)
    if config.recipe.get("shuffle_labels"):
        _warn(
            f"'{folder.name}' learned from shuffled labels: its predictions mean nothing"
        )
    opens: dict[str, Any] = {"encoder": encoder, "batch_tokens": batch_tokens}
    try:
        devices.check_arithmetic(config.dtype, computes)
    except ConfigError:
        _warn(
            f"evaluated in float32: {computes.type} is not used for {config.dtype}, as it was"
        )
        opens["dtype"] = "float32"
    if temperature:
        held = run and run.validation
        found = [
            held.temperature(run.seeds.index(s)) for s in config.seeds if run and held
        ]
        if not found or None in found:
            expected = (
                "a run of --select val, whose answers to the rows that chose are finite"
            )
            raise ConfigError(
                "there is nothing that a temperature is fitted on", expected=expected
            )
        opens["temperatures"] = found
    return Predictor(config, weights, device=str(computes), **opens)


def _warn(text: str) -> None:
    warnings.warn(text, GaamWarning, stacklevel=3)


def open_decoder(
    folder: Path, seed: int | None = None, cache: str | Path | None = None
) -> tuple[RunResult | None, DecoderConfig, dict[str, Tensor]]:
    """A run, and its decoders of all seeds that finished or of one; None of what was exported."""
    run = None
    if (folder / CONFIG_FILE).is_file() and not is_run(folder):
        config, weights = read_export(folder)
        about: dict[str, Any] = {"fingerprint": config.plan.fingerprint}
    else:
        several = not is_run(folder) and run_folders(folder)
        run = one_run(_recommended(folder) if several else folder)
        if run.chose:
            _warn(
                f"'{run.path.name}' was trained to choose a rate: what was chosen is another run"
            )
        folder, about, plan = run.path, run.cache, Plan.from_dict(run.cache["plan"])
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
        places = [run.seeds.index(one) for one in run.finished]
        with run.tensors(WEIGHTS_FILE) as file:
            weights = {
                n: torch.from_numpy(file.get_tensor(n)[places])
                for n in file.keys()  # noqa: SIM118 no mapping
            }
    where = str(folder)
    if cache is not None:
        config = replace(config, plan=read_plan(find_cache(about, folder, cache)))
    if not config.seeds or seed not in (None, *config.seeds):
        expected = f"one that finished: {', '.join(map(str, config.seeds))}"
        raise ConfigError(
            f"no seed {'' if seed is None else seed}", expected=expected, where=where
        )
    if seed is not None:
        weights = {n: one[[config.seeds.index(seed)]] for n, one in weights.items()}
        config = replace(config, seeds=(seed,))
    for kind, text in (("mechanism", config.attention), ("head", config.head)):
        recorded = config.recipe.get("plugins", {}).get(
            f"{kind} {text.partition(':')[0]}"
        )
        _check_known(text.partition(":")[0], kind, recorded, where)
        name = parse_spec(text, kind).name
        now = plugins.code(KINDS[kind][0], name, kind=kind)
        then = config.recipe.get("plugins", {}).get(f"{kind} {name}")
        if (now if " " in now else None) != then:
            message = (
                f"the {kind} '{name}' is not the code that the run was trained with"
            )
            raise ConfigError(
                message, expected=then or "that of gaam", found=now, where=where
            )
    return run, config, weights


def _check_known(name: str, kind: str, recorded: str | None, where: str) -> None:
    """Refuse a part of a decoder whose code is not known here, and say how it becomes known."""
    package, option = KINDS[kind]
    if (
        recorded is None
        or name in plugins.names(package)
        or plugins.origin(package, name)
    ):
        return
    origin = recorded.rpartition(" ")[0]
    known_by = f"install {origin}"
    if origin.endswith(".py"):
        known_by = f"gaam predict RUN {option} {origin}:{name}; from Python load(RUN, attn={name})"
    raise ConfigError(
        f"the {kind} '{name}' is not gaam's own, and no code is run that only a run names",
        expected=f"{origin}, which the run was trained with",
        where=where,
        hint=known_by,
    )


def _recommended(folder: Path) -> Path:
    """Of a folder of runs the final model of the decoder that its report recommends, or its run.

    A final model learned from all rows, also from those that the others were tested on; where the
    decoder was trained on folds, it is the only one that can be used.
    """
    tables = report(folder).tables
    entries = [entry for table in tables for entry in table.rows if not entry.shuffled]
    choice = recommended(tables[0]) if len(tables) == 1 else None
    if choice is None and len(entries) == 1:
        choice = entries[0], f"use {entries[0].attention}: the only decoder"
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
    shown = ", ".join(run.path.name for run in runs[:6])
    hint = (
        "name one of them; of folds, gaam train --final makes a model that can be used"
    )
    return ConfigError(
        "the report of these runs recommends no single one", found=shown, hint=hint
    )


def _is_final_of(run: RunResult, evaluated: Sequence[RunResult]) -> bool:
    """Whether a run is the final model beside these: all but what is tested is the same."""
    if run.chose:
        return False
    first = evaluated[0]
    if (run.attention, run.head, run.states) != (
        first.attention,
        first.head,
        first.states,
    ):
        return False
    recipes = [
        {name: value for name, value in recipe.items() if name not in ONLY_TESTED}
        for recipe in (run.recipe, first.recipe)
    ]
    return recipes[0] == recipes[1]


def read_export(folder: Path) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """An exported decoder and its weights, of which every byte is hashed."""
    try:
        about = unsealed(read_json(folder / CONFIG_FILE))
        if any(about.pop(key, None) != value for key, value in FORMAT.items()):
            raise ValueError(f"not what gaam exports: {FORMAT}")
        regular_file(folder / MODEL_FILE)
        content = (folder / MODEL_FILE).read_bytes()
        if digest_of(content) != about.pop("sha256_of_weights"):
            raise ValueError("the weights are not those that were exported")
        return DecoderConfig.from_dict(about), safetensors.torch.load(content)
    except (*DAMAGE, SafetensorError) as error:
        raise CacheError(
            visible(f"'{folder.name}' holds no decoder that can be used"),
            expected=f"the files that 'gaam export' wrote: {', '.join(OWN_FILES)}",
            found=visible(f"{type(error).__name__}: {error}"),
            where=visible(str(folder.absolute())),
        ) from error
