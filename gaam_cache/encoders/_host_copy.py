"""Tensors on their way from the encoder's device to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class CopyBack:
    """Brings tensors to the host on a stream of their own, so that the device need not wait."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, x: Tensor) -> Tensor:
        """The tensor on the host; its content is there after ``wait``."""
        if self._stream is None:
            return x.cpu()
        self._stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self._stream):
            host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            host.copy_(x, non_blocking=True)
        x.record_stream(self._stream)  # its memory is not reused before the copy is done
        return host

    def wait(self) -> None:
        """Wait for every copy that was started."""
        if self._stream is not None:
            self._stream.synchronize()


def bits(states: Tensor) -> NDArray[Any]:
    """The tensor as NumPy sees it; bfloat16, which NumPy lacks, as its raw bits."""
    if states.dtype == torch.bfloat16:
        return states.view(torch.int16).numpy().view(np.uint16)
    return states.numpy()
