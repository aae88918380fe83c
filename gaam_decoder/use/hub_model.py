"""Exported decoders as the hub's client loads and sends them.

S seeds, B batch, L layers, D hidden size, C classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn

from gaam_cache.errors import ConfigError
from gaam_cache.store.files import write_file
from gaam_decoder.use.decoder_config import DecoderConfig
from gaam_decoder.use.ensemble import Ensemble
from gaam_decoder.use.exported import (
    CARD_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    read_decoder,
    write_decoder,
)
from gaam_decoder.use.hub_files import files_of


class HubDecoder(nn.Module, PyTorchModelHubMixin, library_name="gaam", tags=["gaam"]):
    """Decoders of several seeds, whose probabilities are averaged.

    Formula: ``p = 1/S sum_s softmax(head_s(attention_s(x)))``

    ``gaam_decoder.load`` of an exported folder predicts from texts, sounds and pictures; this takes
    their states.

    Shape:
        x (B, L, D), all layers of the encoder as the cache pools and stores them -> probabilities
        (B, C), float32, in the order of ``config.class_names``.

    Args:
        config: what the decoder is.
        ensemble: its weights; None: zeros, to be loaded.
        card: its card in Markdown, which goes with it; None: what the hub's client writes.
    """

    def __init__(
        self, config: DecoderConfig, ensemble: Ensemble | None = None, card: str | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.card = card
        built = ensemble or Ensemble(config.spec, len(config.seeds), dtype=config.dtype)
        self.ensemble = built
        self._layers = list(config.layers)
        self.eval()

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, C)."""
        logits_SBC: Tensor = self.ensemble(x_BLD[:, self._layers])
        return logits_SBC.softmax(-1).mean(0)

    @classmethod
    def from_pretrained(  # type: ignore[override]  # without arguments for other models
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        map_location: str = "cpu",
        strict: bool = True,
    ) -> Self:
        """Load an exported decoder; of the hub the three files of one, and no others.

        Only safetensors are read, and every byte is checked.

        Args:
            pretrained_model_name_or_path: an exported folder, or its id on the hub.
            revision: branch, tag or commit on the hub.
            token: for the hub; default: the one that is stored.
            cache_dir: where the hub's client keeps its files.
            force_download: fetch what is there already too.
            local_files_only: fetch nothing.
            map_location: device of the weights.
            strict: must be true: weights that are missing or too many are refused.

        Raises:
            NotFoundError: no such folder or repository, or one without a decoder.
            CacheError: a damaged or foreign one.
            ConfigError: a mechanism or head that is not installed, or ``strict`` is false.
            HubError: the hub cannot be reached or refuses.
        """
        if not strict:
            raise ConfigError(
                "weights are never left out", expected="strict=True", found="strict=False"
            )
        places = files_of(
            pretrained_model_name_or_path,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
        )
        config, ensemble = read_decoder(places[CONFIG_FILE].parent, weights=places[WEIGHTS_FILE])
        card = places[CARD_FILE]
        text = card.read_text("utf-8") if card.is_file() else None
        return cls(config, ensemble, text).to(map_location)

    def _save_pretrained(self, save_directory: Path) -> None:
        write_decoder(save_directory, self.config, self.ensemble.decoder.state_dict())
        if self.card is not None:  # else the hub's client writes one
            write_file(save_directory / CARD_FILE, self.card.encode(), option="DIR")
