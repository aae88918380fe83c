"""Open a finished run, or an exported decoder, to predict with it.

An exported decoder is a folder of three files: config.json, with its own digest and
that of the weights, model.safetensors, and README.md, a card that people may change.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from gaam_cache.common import devices, plugins
from gaam_cache.common.errors import CacheError, ConfigError, GaamNote, GaamWarning
from gaam_cache.common.messages import counted, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.version import __version__
from gaam_cache.store.files import (
    DAMAGE,
    digest_of,
    read_json,
    regular_file_status,
    unsealed,
)
from gaam_cache.store.plan import Plan, read_plan
from gaam_decoder.recipe import recorded_plugins
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.recommend import Recommendation, recommended, why_none
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.runs.files import EXPORT_FILE, EXPORT_FORMAT, WEIGHTS_FILE
from gaam_decoder.runs.folders import find_cache, is_run, run_folders
from gaam_decoder.runs.loading import find_runs, load_runs, read_one_run
from gaam_decoder.runs.records import CacheRecord
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import KINDS, Spec, parse_plugin, parse_spec
from gaam_decoder.use.predictor import DecoderConfig, Predictor

CONFIG_FILE = EXPORT_FILE
MODEL_FILE = "model.safetensors"
CARD_FILE = "README.md"
OWN_FILES = (CONFIG_FILE, MODEL_FILE, CARD_FILE)
MOST_NAMED = 6  # runs that a message lists
FORMAT = {"format": EXPORT_FORMAT, "format_version": 2}


def load(
    path: str | Path,
    *,
    seed: int | None = None,
    temperature: bool = False,
    attn: str | type | None = None,
    head: str | type | None = None,
    cache: str | Path | None = None,
    encoder: str | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> Predictor:
    """Open a finished run, or an exported decoder, to predict with it.

    >>> predictor = gaam_decoder.load(runs[0].path)
    >>> predictor.predict_states(test_states).probabilities_NC.shape
    (30, 3)

    Args:
        path: folder of the run, an exported folder, or a folder of runs. Of several
            runs the one that their report recommends is used, and a note names it.
        seed: use the decoder of this seed; default: average all finished seeds.
        temperature: divide the logits of every seed by the temperature that fits its
            validation rows best, before the seeds are averaged; as ``report`` does.
        attn: your own mechanism of the run: its class, or ``FILE.py:CLASS``. Code that
            only a run names is never executed.
        head: your own head of the run, in the same way.
        cache: folder of the run's cache; default: the folder that the run recorded.
        encoder: folder or id of the encoder, if it has moved.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_tokens: tokens of a batch of the encoder; default: by the device.

    Raises:
        NotFoundError: no finished run and no exported decoder.
        ConfigError: no such seed, ``attn`` or ``head`` is not that of the run, a
            mechanism that reads several rows at once, or no validation rows for a
            temperature.
        CacheError: the run is damaged, or the cache is another one.
    """
    torch_device = devices.resolve_device(device)
    folder = absolute_path(path)
    run, config, weights = open_decoder(folder, seed, cache, attn, head)
    if config.recipe.shuffle_labels:
        _warn(
            f"'{folder.name}' learned from shuffled labels: "
            "its predictions mean nothing"
        )
    dtype = config.dtype
    try:
        devices.check_arithmetic(dtype, torch_device)
    except ConfigError:
        _warn(
            f"evaluated in float32, not in {dtype} as in the run: "
            f"{torch_device.type} is not used for {dtype}"
        )
        dtype = "float32"
    return Predictor(
        config,
        weights,
        temperatures=_temperatures(run, config.seeds) if temperature else (),
        dtype=dtype,
        device=str(torch_device),
        encoder=encoder,
        batch_tokens=batch_tokens,
    )


def _check_given_name(
    name: str, kind: str, spec_text: str, config: DecoderConfig, folder: Path
) -> None:
    """Refuse a mechanism or head that is not the one of the opened decoder.

    Args:
        name: of the mechanism or head that a person gave.
        kind: mechanism or head.
        spec_text: the mechanism or head of the decoder, such as ``gaam:heads=1``.
        config: of the decoder.
        folder: of the decoder, for messages.
    """
    own_name = spec_text.partition(":")[0]
    if name == own_name:
        return
    parameter = KINDS[kind].option.removeprefix("--")
    hint = f"leave {parameter} ('{name}') out"
    if f"{kind} {own_name}" in recorded_plugins(config.settings):
        hint = f"give the class '{own_name}'"
    raise ConfigError(
        f"the decoder was not trained with the {kind} '{name}'",
        expected=f"'{own_name}'",
        found=f"'{name}'",
        where=str(folder),
        hint=hint,
    )


def _temperatures(run: RunResult | None, seeds: Sequence[int]) -> list[float]:
    """The temperature of every seed, fitted on its validation logits.

    Raises:
        ConfigError: no validation rows, or a seed without a temperature.
    """
    if run is not None and not run.task_definition.has_probabilities:
        raise ConfigError(
            "a temperature is fitted to probabilities, and numbers have none",
            expected="a run of classification or multi-label, or no temperature",
            found=f"a run whose task is {run.task}",
        )
    temperatures: list[float] = []
    if run is not None and run.validation:
        for seed in seeds:
            index = run.seeds.index(seed)
            temperature = run.validation.temperature(index)
            if temperature is not None:
                temperatures.append(temperature)
    if len(temperatures) < len(seeds):
        raise ConfigError(
            "no temperature can be fitted without validation logits",
            expected="a run of --select val with finite validation logits",
        )
    return temperatures


def _warn(text: str) -> None:
    """Warn the caller of the function that calls this."""
    warnings.warn(text, GaamWarning, stacklevel=3)


class OpenedDecoder(NamedTuple):
    """The decoders of a run or an exported folder, of all seeds or of one."""

    run: RunResult | None
    """None for an exported folder."""
    config: DecoderConfig
    weights: dict[str, Tensor]
    """By name, each (S, ...) for S seeds."""


def open_decoder(
    folder: Path,
    seed: int | None = None,
    cache: str | Path | None = None,
    attn: str | type | None = None,
    head: str | type | None = None,
) -> OpenedDecoder:
    """Read the decoders of a run or an exported folder.

    Args:
        folder: of the run, or exported; or a folder of runs, of which the recommended
            one is read.
        seed: to read alone; None: all seeds.
        cache: of the run, if it was moved.
        attn: a mechanism of a person's own: its class, or ``FILE.py:CLASS``.
        head: a head of a person's own, in the same way.

    Raises:
        ConfigError: ``attn`` or ``head`` is another one than that of the decoder.
    """
    # parsing a class registers its name
    given_attention = None if attn is None else parse_plugin(attn, "mechanism")
    given_head = None if head is None else parse_plugin(head, "head")
    run = None
    if (folder / CONFIG_FILE).is_file() and not is_run(folder):
        config, weights = read_export(folder)
        # The record finds the cache again. An exported plan lacks the paths, so that it
        # would differ from the plan of that cache: leave it out of the comparison.
        record = CacheRecord.from_plan(config.plan, folder)
        cache_record = replace(record, plan=None)
    else:
        has_several_runs = not is_run(folder) and bool(run_folders(folder))
        if has_several_runs:
            folder = _recommended_run(folder)
        run = read_one_run(folder)
        if run.tuning_only:
            _warn(
                f"'{run.path.name}' was trained to choose a learning rate only: "
                "the run with the chosen rate is another one"
            )
        folder = run.path
        cache_record = run.cache
        config, weights = _read_run(run)

    if cache is not None:
        plan = read_plan(find_cache(cache_record, folder, cache))
        config = replace(config, plan=plan)
    where = str(folder)
    config, weights = _select_seed(config, weights, seed, where)
    _check_given_plugins(given_attention, given_head, config, folder)
    check_code(config, where)
    return OpenedDecoder(run, config, weights)


def _check_given_plugins(
    given_attention: Spec | None,
    given_head: Spec | None,
    config: DecoderConfig,
    folder: Path,
) -> None:
    """Refuse a person's own mechanism or head if it is not that of the decoder.

    Args:
        given_attention: the mechanism; None if the person gave none.
        given_head: the head, in the same way.
        config: of the decoder.
        folder: of the decoder, for messages.
    """
    if given_attention is not None:
        name = given_attention.name
        _check_given_name(name, "mechanism", config.attention, config, folder)
    if given_head is not None:
        _check_given_name(given_head.name, "head", config.head, config, folder)


def _select_seed(
    config: DecoderConfig,
    weights: dict[str, Tensor],
    seed: int | None,
    where: str,
) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """The decoder of one seed; of all seeds if ``seed`` is None.

    Raises:
        ConfigError: the seed did not finish, or no seed did.
    """
    if not config.seeds or seed not in (None, *config.seeds):
        raise ConfigError(
            f"no seed {'' if seed is None else seed}",
            expected=f"one that finished: {', '.join(map(str, config.seeds))}",
            where=where,
        )
    if seed is None:
        return config, weights
    index = config.seeds.index(seed)
    weights_of_seed = {name: tensor[[index]] for name, tensor in weights.items()}
    return replace(config, seeds=(seed,)), weights_of_seed


def _read_run(run: RunResult) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """The configuration of a run, and the weights of its finished seeds."""
    plan = Plan.from_dict(run.cache.plan or {})
    config = DecoderConfig(
        attention=run.attention,
        head=run.head,
        recipe=run.recipe,
        settings=run.settings,
        layers=tuple(number - plan.first_layer for number in run.layer_numbers),
        seeds=run.finished,
        key=run.key,
        gaam=__version__,
        plan=plan,
    )
    finished = [run.seeds.index(seed) for seed in run.finished]
    weights = {}
    with run.tensors(WEIGHTS_FILE) as file:
        for name in file.keys():  # noqa: SIM118 no mapping
            weights[name] = torch.from_numpy(file.get_tensor(name)[finished])
    return config, weights


def check_code(config: DecoderConfig, where: str) -> None:
    """Refuse a decoder whose mechanism or head has other code than it learned with.

    Args:
        config: of the decoder.
        where: its folder, for messages.
    """
    _check_code(config, "mechanism", config.attention, where)
    _check_code(config, "head", config.head, where)


def _check_code(config: DecoderConfig, kind: str, text: str, where: str) -> None:
    """Check that a mechanism or head is here with the code that the run learned with.

    Args:
        config: of the decoder, which records the code of plug-ins that are not gaam's.
        kind: mechanism or head.
        text: its spec, such as ``gaam:heads=1``.
        where: the folder, for messages.
    """
    recorded_code = recorded_plugins(config.settings)
    name = text.partition(":")[0]
    recorded = recorded_code.get(f"{kind} {name}")
    # the spec cannot be parsed before its plug-in is registered
    _check_registered(name, kind, recorded, where)
    parse_spec(text, kind)

    code = plugins.code_hash(KINDS[kind].package, name, kind=kind)
    # origin, a space and the hash; of gaam's own code the hash alone
    is_own = " " not in code
    # a run does not record gaam's own code
    code_to_record = None if is_own else code
    if recorded != code_to_record:
        raise ConfigError(
            f"the {kind} '{name}' is not the code that the run was trained with",
            expected=recorded or "that of gaam",
            found=code,
            where=where,
        )


def _check_registered(name: str, kind: str, recorded: str | None, where: str) -> None:
    """Refuse a mechanism or head of others whose code is not registered here.

    The error says how to register it.

    Args:
        name: of the mechanism or head.
        kind: mechanism or head.
        recorded: the origin of its code, a space and the hash, as the run records it;
            None: gaam's own.
        where: the folder, for messages.
    """
    if recorded is None:
        return
    package = KINDS[kind].package
    option = KINDS[kind].option
    parameter = option.removeprefix("--")
    is_registered = name in plugins.names(package) or plugins.origin(package, name)
    if is_registered:
        return
    # the origin is a file, or the name and version of a distribution
    origin, _, _ = recorded.rpartition(" ")
    remedy = f"install {origin}"
    if origin == plugins.SESSION:
        remedy = f"define the class as in training, and load(RUN, {parameter}={name})"
    elif origin.endswith(".py"):
        remedy = (
            f"{option} {origin}:{name} of 'gaam predict' and 'gaam export'; "
            f"from Python load(RUN, {parameter}={name})"
        )
    raise ConfigError(
        f"the {kind} '{name}' is not gaam's own, "
        "and no code is run that only a run names",
        expected=f"{origin}, which the run was trained with",
        where=where,
        hint=remedy,
    )


def _recommended_run(folder: Path) -> Path:
    """The run of the decoder that a report of a folder recommends, or its final model.

    A final model learned from all rows, including the test rows of the folds. Without
    one, the folds of a decoder are several runs, of which a person has to name one.
    """
    tables = build_tables(load_runs(folder))
    choice = _recommended_decoder(tables)
    candidates = _runs_to_use(choice.entry, tables)
    if len(candidates) != 1:
        reason = f"'{choice.entry.label}' has {len(candidates)} runs"
        raise _no_single_run_error(reason, candidates)
    [run] = candidates
    final = ""
    if not run.evaluated:
        has_folds = any(tested.recipe.fold for tested in choice.entry.runs)
        fact = "learned from the rows of all folds" if has_folds else "is not tested"
        final = f" (its final model, which {fact})"
    text = f"{choice.advice}{final}: {shown_path(run.path)}"
    warnings.warn(text, GaamNote, stacklevel=4)
    return run.path


def _recommended_decoder(tables: Sequence[Table]) -> Recommendation:
    """The decoder that one table recommends, or the only one that there is.

    Raises:
        ConfigError: several tables, or several decoders without a recommendation.
    """
    if len(tables) == 1:
        choice = recommended(tables[0])
        if choice is not None:
            return choice
    entries = [
        entry
        for table in tables
        for entry in table.entries
        if not entry.labels_shuffled
    ]
    if len(entries) != 1:
        reason = why_none(tables[0])
        if len(tables) > 1:
            reason = f"the report has {len(tables)} tables"
            choices = [recommended(table) for table in tables]
            # what the tables recommend, if they recommend anything
            entries = [choice.entry for choice in choices if choice] or entries
        runs = [run for entry in entries for run in _runs_to_use(entry, tables)]
        raise _no_single_run_error(reason, runs)
    [entry] = entries
    reason = "the only decoder"
    if any(table.incomplete for table in tables):
        reason += " that has all folds"
    return Recommendation(entry, f"use {entry.attention}: {reason}")


def _runs_to_use(entry: Entry, tables: Sequence[Table]) -> list[RunResult]:
    """The final models of a decoder, or its evaluated runs if it has none."""
    runs = [run for table in tables for run in table.runs]
    finals = [
        run for run in runs if not run.evaluated and _is_final_of(run, entry.runs)
    ]
    return finals or list(entry.runs)


def _no_single_run_error(reason: str, runs: Sequence[RunResult]) -> ConfigError:
    """The error for a folder without a single recommended run.

    Args:
        reason: why there is none.
        runs: of which a person may name one.
    """
    hint = "name one of these runs"
    if any(run.recipe.fold for run in runs):
        hint += "; each learned without the rows of its fold, --final learns from all"
    # the names of runs do not say what they were trained on
    differing = [
        name
        for name in ("dataset", "encoder")
        if len({getattr(run.cache, name) for run in runs}) > 1
    ]
    names = []
    for run in runs[:MOST_NAMED]:
        origin = " through ".join(getattr(run.cache, name) for name in differing)
        names.append(f"{run.path.name} ({origin})" if origin else run.path.name)
    return ConfigError(
        f"no run of the folder is recommended: {reason}",
        found=", ".join(names),
        hint=hint,
    )


def _is_final_of(run: RunResult, evaluated: Sequence[RunResult]) -> bool:
    """Whether a run is the final model of a decoder, given its evaluated runs.

    It is the model that ``--final`` makes of one of them: decoder, states, groups,
    split seed and training settings are the same; only the test rows differ.
    """
    if run.tuning_only:
        return False
    identity = _identity_of_final(run)
    return any(_identity_of_final(tested) == identity for tested in evaluated)


def cross_validations_in_words(final: RunResult) -> list[str]:
    """The mean score of every cross-validation that a final model is made of.

    The runs of the folds lie beside the final model. Each cross-validation with its
    settings has a line that names the folds and groups. A final model without
    validation rows does not depend on groups: it may have several lines. Repeats, with
    the split seeds that follow, share a line.

    Args:
        final: the final model.

    Returns:
        A line for each cross-validation; none if the folder has no such runs.
    """
    lines = []
    for table in build_tables(_folds_like(final)):
        for entry in table.entries:
            mean = entry.compared_score.mean
            if mean is None or entry.folds == 1:
                continue
            # the final model was made with the first repeat: without it these folds
            # belong to another one
            if not _is_final_of(final, entry.runs):
                continue
            score = final.task_definition.with_title(mean)
            lines.append(
                f"cross-validated {score}, {table.tested_on}: mean over "
                f"{counted(len(entry.finished), 'seed')}, each tested on a fold that "
                "it did not learn from"
            )
    return lines


def _folds_like(final: RunResult) -> list[RunResult]:
    """The runs of folds, beside a final model, that have its settings and groups.

    Their split seed is that of the final model, or a later one: repeats count up from
    the split seed of the first repeat, whose final model they share.
    """
    identity = _identity_of_final(final)
    first_split_seed = final.recipe.split_seed
    return [
        run
        for run in find_runs([final.path.parent]).sound
        if run.recipe.fold is not None
        and run.recipe.split_seed >= first_split_seed
        and _identity_of_final(run, first_split_seed) == identity
    ]


def _identity_of_final(run: RunResult, split_seed: int | None = None) -> object:
    """Everything that decides the final model of a run; of a final model, its own.

    Args:
        run: evaluated, or a final model.
        split_seed: of the final model, for a run of another repeat; None: of the run.
    """
    recipe = run.recipe
    if split_seed is not None:
        recipe = replace(recipe, split_seed=split_seed)
    recipe = recipe.without_test_rows()
    # groups with the same names may come from a column or from a file
    groups_digest = recipe.groups.digest if recipe.groups else None
    code = recorded_plugins(run.settings)
    return run.states, replace(recipe, groups=None), groups_digest, code


def read_export(folder: Path) -> tuple[DecoderConfig, dict[str, Tensor]]:
    """Read an exported decoder and its weights, and check the digests of both.

    Raises:
        CacheError: a file is missing, damaged or of another format.
    """
    try:
        # this checks the digest of the settings
        settings = unsealed(read_json(folder / CONFIG_FILE))
        if any(settings.pop(key, None) != value for key, value in FORMAT.items()):
            raise ValueError(f"not what gaam exports: {FORMAT}")
        # refuse a folder, a device or a broken link
        regular_file_status(folder / MODEL_FILE)
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
