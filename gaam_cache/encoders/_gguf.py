"""Loads an encoder from a GGUF file, which transformers reads and dequantises.

transformers silently drops tensors and settings that it has no name for. A file is
refused if a dropped one decides the numbers, such as a setting of a scaled rotary
embedding.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from gaam_cache.common.errors import CacheError, ConfigError, GaamError
from gaam_cache.common.messages import install_command, join_first, visible

NAME = "model.gguf"
"""Name of the link through which transformers reads a GGUF file."""
PACKAGES = ("gguf", "accelerate")
"""Packages with which transformers reads a GGUF file."""
HEAD_TENSOR = re.compile(r"(output|cls|cls\.output)\.(weight|bias)|token_types\.weight")
"""Names of the tensors of heads, which read the last layer."""
EXPERTS_TENSOR = re.compile(r"_exps\.(weight|bias)$")
"""Names of tensors that hold all experts of a layer.

transformers splits them into parameters, and reports a parameter that gets no tensor.
"""
DECISIVE_SETTING = re.compile(
    r"rope\.(scal|freq_base)|sliding_window|softcap|(^|[._])scale|clamp|\.causal$"
    r"|temperature|epsilon$"
)
"""Names of settings that change states and leave the shapes of the weights alike."""
NEUTRAL_VALUES: tuple[object, ...] = ("none", "", 0, 1)
"""Values of such settings that turn nothing on, such as a scale of 1."""


def check_gguf_packages(file: Path) -> None:
    """Refuse a GGUF file if a package for reading it is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "transformers needs more packages to read a GGUF file",
            expected=" and ".join(PACKAGES),
            found=f"no {' and no '.join(missing)}",
            where=str(file),
            hint=install_command("gguf"),
        )


@contextmanager
def gguf_in_own_folder(file: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Put a GGUF file into a folder of its own while it is read.

    In the file's real folder, transformers would read tokenizers and adapters beside
    it.

    Yields:
        The folder, and the options with which transformers reads the file.
    """
    check_gguf_packages(file)
    with tempfile.TemporaryDirectory(prefix="gaam-gguf-") as name:
        folder = Path(name)
        (folder / NAME).symlink_to(file.absolute())
        try:
            yield folder, {"gguf_file": NAME, "local_files_only": True}
        except GaamError:
            raise
        # The libraries raise any error on a damaged file. If the file is not damaged,
        # the error has another cause and stays as it is.
        except Exception:
            _check_readable(file)
            raise


def _check_readable(file: Path) -> None:
    """Refuse a file that the package gguf cannot read, such as one that was cut off."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except Exception as error:
        raise CacheError(
            f"the GGUF file '{file.name}' is cut off or damaged",
            found=f"{file.stat().st_size:,} bytes; {type(error).__name__}: {error}",
            where=str(file.absolute()),
            hint="download or copy it again",
        ) from error


def load_gguf(
    file: Path,
    model_class: Any,
    model_config: transformers.PretrainedConfig,
    options: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """Load and dequantise the model of a file.

    Args:
        file: the GGUF file.
        model_class: the model's class in transformers.
        model_config: the model's configuration.
        options: more arguments for the class's ``from_pretrained``.

    Returns:
        The model; and transformers' report on loading it, with keys such as
        "missing_keys".

    Raises:
        ConfigError: the file is a part of a model, or transformers would drop a part of
            the file that decides the states.
    """
    with gguf_in_own_folder(file) as (folder, gguf_options):
        _check_complete(folder / NAME, model_class, model_config)
        options = options | gguf_options
        # Versions of transformers that have this class would otherwise keep the weights
        # packed, and run them in kernels that come from the hub.
        gguf_config = getattr(transformers, "GgufConfig", None)
        if gguf_config is not None:
            options["quantization_config"] = gguf_config(dequantize=True)
        # ``_weights`` refuses tensors of another size, with a better message.
        with _without_gguf_progress_bar():
            model, loading_report = model_class.from_pretrained(
                folder,
                config=model_config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **options,
            )
    # Through its quantizer, the model would keep the file open.
    if hasattr(model, "hf_quantizer"):
        del model.hf_quantizer
    return model, loading_report


@contextmanager
def _without_gguf_progress_bar() -> Iterator[None]:
    """While open, hide the progress bar with which transformers loads a GGUF file.

    No setting of transformers turns it off, so a disabled ``tqdm`` replaces the one of
    its module.
    """
    from transformers import modeling_gguf_pytorch_utils

    gguf_utils: Any = modeling_gguf_pytorch_utils
    progress_bar = gguf_utils.tqdm
    gguf_utils.tqdm = partial(progress_bar, disable=True)
    try:
        yield
    finally:
        gguf_utils.tqdm = progress_bar


def _check_complete(
    file: Path, model_class: Any, model_config: transformers.PretrainedConfig
) -> None:
    """Refuse a file if transformers would drop a part of it that decides the states."""
    from gguf import GGUFReader

    reader = GGUFReader(file)
    settings = {name: field.contents() for name, field in reader.fields.items()}
    num_parts = settings.get("split.count", 1)
    if num_parts > 1:
        raise ConfigError(
            "the GGUF file is one part of several",
            expected="a whole model in one file",
            found=f"one part of {num_parts}",
            hint="join them: llama-gguf-split --merge FIRST_PART WHOLE_FILE",
        )

    tensors = [tensor.name for tensor in reader.tensors]
    architecture = str(settings["general.architecture"])
    dropped = [
        *_find_dropped_settings(settings, architecture, model_config),
        *_find_dropped_tensors(tensors, architecture, model_class, model_config),
    ]
    if dropped:
        raise ConfigError(
            "transformers would drop a part of the GGUF file that decides the states",
            expected="tensors and settings that transformers has a name for",
            found=visible(join_first(dropped, 1)),
            hint="use the checkpoint that the file was made from",
        )


def _find_dropped_settings(
    settings: Mapping[str, Any],
    architecture: str,
    model_config: transformers.PretrainedConfig,
) -> list[str]:
    """Find settings of the file that change states and are not in the configuration.

    Args:
        settings: all settings in the file, by name, such as "llama.rope.freq_base".
        architecture: the file's name for the kind of model, such as "llama".
        model_config: the configuration that transformers made of the settings.

    Returns:
        The name and value of each such setting, as text "name = value".
    """
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    # transformers lists the settings that it reads, for every kind of model.
    mapping: Any = GGUF_CONFIG_MAPPING
    names_read = {
        *mapping.get(architecture, ()),
        *mapping.get(model_config.model_type, ()),
    }
    config_values = dict(_flatten(model_config.to_dict()))

    dropped = []
    for key, value in settings.items():
        # Settings without the architecture's name describe the file or the tokenizer.
        name = key.removeprefix(f"{architecture}.")
        is_of_model = name != key
        if not is_of_model or name in names_read:
            continue
        if not DECISIVE_SETTING.search(name) or _is_neutral(name, value):
            continue
        # Although transformers does not read the setting, its configuration may have
        # the value from elsewhere, such as from a default. Nothing is lost then.
        last_part = name.split(".")[-1]
        if not _has_value(config_values, last_part, value):
            dropped.append(f"{key} = {value}")
    return dropped


def _is_neutral(name: str, value: object) -> bool:
    """Whether a setting with this value changes no state.

    The model then does the same as without the setting, as with a scale of 1. A
    decoder has causal attention even if no setting says so.
    """
    if name.endswith("causal"):
        return value is True
    return value in NEUTRAL_VALUES


def _flatten(settings: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield every nested setting that is no dictionary: its own name, and its value.

    Args:
        settings: a dictionary of settings, or the value of a setting.
        name: the name of that setting; empty for the outermost dictionary.
    """
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _flatten(value, str(key))
    else:
        yield name, settings


def _has_value(config_values: Mapping[str, object], name: str, value: object) -> bool:
    """Whether a configuration has the value of a setting of the file.

    transformers may give the setting another name. Two settings hardly ever have the
    same fraction as their value, so a fraction may stand under any name. Any other
    value, such as 1 or true, must stand under the setting's own name.

    Args:
        config_values: the innermost names and values of the configuration.
        name: the last part of the setting's name.
        value: the setting's value in the file.
    """
    if isinstance(value, float):
        return any(
            math.isclose(value, number, rel_tol=1e-6)
            for number in config_values.values()
            if isinstance(number, float)
        )
    return name in config_values and bool(config_values[name] == value)


def _find_dropped_tensors(
    tensors: Sequence[str],
    architecture: str,
    model_class: Any,
    model_config: transformers.PretrainedConfig,
) -> list[str]:
    """Find tensors that transformers has no name for, apart from those of heads.

    Args:
        tensors: names of the tensors in the file.
        architecture: the file's name for the kind of model, such as "llama".
        model_class: the model's class in transformers.
        model_config: the model's configuration.

    Returns:
        Names of the tensors; an empty list if another check finds dropped tensors.
    """
    from transformers import modeling_gguf_pytorch_utils

    gguf_utils: Any = modeling_gguf_pytorch_utils
    if _reports_dropped_tensors(architecture):
        return []
    with torch.device("meta"):
        model = model_class(copy.deepcopy(model_config))

    # If there are as many tensors as parameters, a dropped tensor leaves a parameter
    # without weights. Loading refuses such a model: nothing has to be found here.
    body_tensors = [name for name in tensors if not HEAD_TENSOR.fullmatch(name)]
    if len(body_tensors) == len(model.state_dict()):
        return []

    # transformers maps names in the file to its own, and drops a tensor outside of this
    # map. A processor knows the exceptions of one kind of model.
    processor_class = gguf_utils.TENSOR_PROCESSORS.get(
        architecture, gguf_utils.TensorProcessor
    )
    names_read = gguf_utils.get_gguf_hf_weights_map(model, processor_class(config={}))
    unmapped = [name for name in body_tensors if name not in names_read]
    # transformers splits a tensor of all experts of a layer, and reads it without an
    # entry in the map. Loading refuses an expert without weights.
    return [name for name in unmapped if not EXPERTS_TENSOR.search(name)]


def _reports_dropped_tensors(architecture: str) -> bool:
    """Whether transformers warns of tensors that it drops when it loads a GGUF file.

    A version that has ``GGUF_ARCHS`` warns for these architectures. Otherwise we have
    to find the dropped tensors ourselves.
    """
    try:
        from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
    except ImportError:
        return False
    return architecture in GGUF_ARCHS
