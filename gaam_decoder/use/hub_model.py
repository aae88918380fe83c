"""Exported decoders as the hub's client loads and sends them.

B batch, L layers, D hidden size, C classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import PyTorchModelHubMixin
from torch import Tensor, nn

from gaam_cache.hub.fetch import fetch
from gaam_cache.store.files import write_file
from gaam_decoder.use.ensemble import Ensemble
from gaam_decoder.use.exported import (
    CARD_FILE,
    OWN_FILES,
    DecoderConfig,
    read_decoder,
    write_decoder,
)


class HubDecoder(nn.Module, PyTorchModelHubMixin, library_name="gaam", tags=["gaam"]):
    """Decoders of several seeds, whose probabilities are averaged: see ``from_pretrained``.

    Formula: ``p = 1/S sum_s softmax(head_s(attention_s(x)))``

    ``gaam_decoder.load`` of an exported folder predicts from texts, sounds and pictures; this takes
    their states.

    Shape:
        x (B, L, D), all layers of the encoder as the cache pools and stores them -> probabilities
        (B, C), float32, in the order of ``config.class_names``.
    """

    def __init__(self, config: DecoderConfig, ensemble: Ensemble, card: str | None = None) -> None:
        super().__init__()
        self.config = config
        self.card = card
        self.ensemble = ensemble
        self.eval()

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, C)."""
        logits_SBC: Tensor = self.ensemble(x_BLD[:, list(self.config.layers)])
        return logits_SBC.softmax(-1).mean(0)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        map_location: str = "cpu",
        **options: Any,
    ) -> Self:
        """Load an exported decoder; of the hub the three files of one, and no others.

        Args:
            pretrained_model_name_or_path: a folder, or an id.
            revision: branch, tag or commit on the hub.
            map_location: device.
            **options: of the hub's client: token, cache_dir, force_download, local_files_only.
        """
        name = pretrained_model_name_or_path
        folder = Path(name).expanduser()
        if not (folder.is_dir() or isinstance(name, Path) or name.startswith((".", "/", "~"))):
            folder, _ = fetch(name, revision, OWN_FILES, kind="model", **options)
        card = folder / CARD_FILE
        text = card.read_text("utf-8") if card.is_file() else None
        return cls(*read_decoder(folder), text).to(map_location)

    def _save_pretrained(self, save_directory: Path) -> None:
        write_decoder(save_directory, self.config, self.ensemble.decoder.state_dict())
        if self.card is not None:  # else the hub's client writes one
            write_file(save_directory / CARD_FILE, self.card.encode(), option="DIR")
