"""A finished run -> a folder that the hub takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.errors import GaamError
from gaam_cache.messages import visible
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.files import check_elsewhere, whole_folder, write_file
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.loading import one_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.card import card
from gaam_decoder.use.decoder_config import DecoderConfig
from gaam_decoder.use.exported import CARD_FILE, is_export, write_decoder
from gaam_decoder.use.load import (
    check_code,
    chosen_seeds,
    encoding_of,
    ensemble_of,
    evaluated_in,
    places_of,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderExport:
    """What an export of a run made."""

    path: str
    key: str
    seeds: tuple[int, ...]
    files: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        averaged = f"averaged over seeds {spell_numbers(self.seeds)}"
        which = averaged if len(self.seeds) > 1 else f"of seed {self.seeds[0]}"
        lines = [
            f"exported to '{self.path}', {which}",
            f"  files        {self.files:,}, {self.bytes / 1e6:,.1f} MB",
            f"  card         {CARD_FILE}: licences are for you to fill in",
        ]
        return visible("\n".join(lines), keep="\n")


def export_run(
    path: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    cache: str | Path | None = None,
    overwrite: bool = False,
) -> DecoderExport:
    """Make a folder of a run that holds no path and no name of this machine.

    Args:
        path: folder of the run.
        out: a folder that is not there yet, or is empty.
        seed: whose decoder alone is exported; default: all that finished, averaged.
        cache: folder of its cache; needed where the run is of an earlier version and the cache is
            no longer where it was.
        overwrite: replace an earlier export.

    Raises:
        NotFoundError: no finished run there.
        ConfigError: a seed that there is not or that failed, a mechanism that has no answer for one
            row, or something in the way.
        CacheError: the run is damaged, or nobody knows how its rows were encoded.
        StorageError: the file system refused.
    """
    folder, out = Path(path).expanduser(), Path(out).expanduser()
    run = one_run(folder)
    check_elsewhere(folder, out)
    seeds = chosen_seeds(run, seed)
    plugins = run.recipe.get("plugins", {})
    check_code(plugins, run.attention, run.head, folder)
    ensemble = ensemble_of(run, seeds, evaluated_in(run.recipe))
    encoding = encoding_of(run.cache, run.path, cache)
    if isinstance(encoding, GaamError):
        raise encoding
    config = _config(run, seeds, encoding)
    with whole_folder(out, is_export, overwrite=overwrite) as made:
        write_decoder(made, config, ensemble.decoder.state_dict())
        write_file(made / CARD_FILE, card(run, config, encoding).encode(), option="DIR")
        sizes = [file.stat().st_size for file in made.iterdir()]
    return DecoderExport(
        path=str(out), key=run.key, seeds=seeds, files=len(sizes), bytes=sum(sizes)
    )


def _config(run: RunResult, seeds: tuple[int, ...], encoding: Encoding) -> DecoderConfig:
    return DecoderConfig(
        attention=run.attention,
        head=run.head,
        layers=places_of(run),
        num_layers=run.cache["layers"],
        hidden_size=run.cache["hidden_size"],
        pooling=run.recipe["pool"],
        class_names=tuple(run.cache["class_names"]),
        seeds=seeds,
        dtype=evaluated_in(run.recipe),
        plugins=dict(run.recipe.get("plugins", {})),
        fingerprint=run.cache["fingerprint"],
        key=run.key,
        encoding=encoding.portable().to_dict(),
        signature={
            "gaam": gaam_cache.__version__,
            "attention": run.attention,
            "head": run.head,
            "recipe": run.recipe,
            "seeds": list(run.seeds),
            "labels_shuffled": run.shuffled,
        },
    )
