"""Image encoders of the transformers library: BEiT, ViT, DINOv2, DeiT, CLIP's, SigLIP's, ..."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._model.choices import check_reads
from gaam_cache.encoders._model.encoder import ModelEncoder
from gaam_cache.encoders._model.forward import Unusable
from gaam_cache.encoders._model.probe import Items
from gaam_cache.encoders._model.weights import skeleton
from gaam_cache.encoders._vision.forward import VisionForward, vision_part
from gaam_cache.encoders._vision.patches import count_patches
from gaam_cache.encoders._vision.processor import ImageProcessor
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._base import Rows

POOLED = "patches, not class token, distillation token or registers (first: the class token)"
"""What is pooled, as the fingerprint and ``gaam inspect`` have it."""
PICTURES = 4
"""That the probe reads, in batches of ``ROWS`` and more."""


class VisionEncoder(ModelEncoder):
    """Pictures in, pooled states of every layer out.

    Of a model of pictures and texts, the part that reads pictures. All pictures come out of the
    encoder's own image processor in one size, so that no batch is padded; ``mean``, ``max`` and
    ``last`` are over patches alone, ``first`` is the class token. Where those stand is measured.
    """

    noun: ClassVar[str] = "picture"
    unit: ClassVar[str] = "patches"
    reads: ClassVar[str] = "an image encoder and image processor"
    _processor: ImageProcessor

    @classmethod
    def _read(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Self:
        check_reads(model_config, config.encoder, "pixel_values", cls.reads)
        processor = ImageProcessor(located.path, config.encoder)
        part = vision_part(skeleton(model_config))
        if part is None:
            raise ConfigError(
                f"'{config.encoder}' has no part that reads pictures alone",
                expected=cls.reads,
                found=f"model_type: {model_config.model_type}",
                where=str(located.path),
            )
        patches = count_patches(part.config, processor.shape, config.encoder)
        if config.max_length not in (None, patches):
            raise ConfigError(
                "--max-length is for texts",
                expected=f"none: '{config.encoder}' makes {patches} patches of every picture",
                found=f"--max-length {config.max_length}",
            )
        encoder = cls(located, config, model_config, patches)
        encoder._processor = processor
        return encoder

    def _settings(self) -> dict[str, Any]:
        return {"pooled": POOLED, "image_processor": self._processor.settings()}

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Refuse pictures that no memory is enough for, before anything is computed.

        Raises:
            DataError: one is too long and thin.
        """
        for part in rows.values():
            for item in part.inputs:
                self._processor.check(item.width, item.height, item.blob.where)

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Pictures, which are decoded, resized and normalised when they are asked for."""
        return Inputs(
            items=_Processed(rows, self._processor),
            lengths=np.full(len(rows), self.max_length),
            truncated=[False] * len(rows),
            decoded=True,
        )

    def refuse_empty(self, row: Any, where: str) -> DataError:
        """Never called for: a picture has patches."""
        return DataError("a picture without a patch", found=row.blob.where, where=where)

    def _without_numbers(self) -> dict[str, Tensor]:
        shape = (1, *self._processor.shape)
        return {"pixel_values": torch.zeros(shape, dtype=torch.bfloat16, device="meta")}

    def _part_of(self, model: Any) -> Any:
        return vision_part(model)

    def _forward_of(self, part: Any, model: Any) -> VisionForward:  # noqa: ARG002
        forward = VisionForward(part, device=self.device, pooling=self._config.pool)
        beside = self._processor.gives_beside()
        if more := sorted(name for name in beside if name in forward.takes or "mask" in name):
            raise Unusable(
                f"its image processor gives {', '.join(more)} beside the picture, which would have "
                "to reach the model"
            )
        forward.measure(self._processor.shape, self.dtype)
        start, stop = forward.layout
        if stop - start != self.max_length:
            raise Unusable(
                f"{stop - start} positions depend on the picture, of which its configuration makes "
                f"{self.max_length} patches"
            )
        if not start and (summaries := forward.summaries()):
            raise ConfigError(
                f"'{self.name}' has no class token",
                expected="--pool mean, max or last: over patches",
                found=f"--pool {','.join(summaries)}",
            )
        return forward

    def _candidates(self, part: Any, model: Any) -> tuple[Sequence[Items], int]:  # noqa: ARG002
        """Noise: all pictures are of one length."""
        shape = self._processor.shape
        rng = np.random.default_rng(0)
        pictures = rng.standard_normal((PICTURES, *shape), dtype=np.float32)
        return [list(pictures)], len(pictures[0])

    def _failed(self, reason: Unusable) -> ConfigError:
        return ConfigError(
            f"'{self.name}' does not yield a state for every layer and patch",
            expected="an image encoder whose hidden states transformers returns from pixel values "
            "alone, all layers of one size",
            found=str(reason),
            hint="choose another encoder",
        )


class _Processed(Sequence[NDArray[np.float32]]):
    """What a model is given of every picture: (C, H, W); made anew whenever it is asked for."""

    def __init__(self, rows: Sequence[Any], processor: ImageProcessor) -> None:
        self._rows = rows
        self._processor = processor

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: Any) -> Any:
        item = self._rows[row]
        return self._processor(item.pixels(), item.blob.where)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return (self[row] for row in range(len(self)))
