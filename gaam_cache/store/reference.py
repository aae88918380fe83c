"""States of a few fixed rows in a few numbers: enough to notice that other states are computed.

Of every state K sums with fixed signs are kept, a random projection: the distance of two of these
is the distance of the states, to about a fifth (Johnson and Lindenstrauss 1984).

R reference rows, L layers, D hidden size, K numbers of a sketch.
"""

import base64
import hashlib
import json
import math

import numpy as np
from numpy.typing import NDArray

SKETCH_SIZE = 32
SIGNS = b"gaam reference states"
"""What the signs are drawn from, by SHAKE-256: they depend on no library's random numbers."""


def sketch(states_RLD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fixed random projections of states, (R, L, K)."""
    hidden_size = states_RLD.shape[-1]
    num_bytes = -(-hidden_size * SKETCH_SIZE // 8)
    drawn = np.frombuffer(hashlib.shake_256(SIGNS).digest(num_bytes), np.uint8)
    bits = np.unpackbits(drawn)[: hidden_size * SKETCH_SIZE]
    sign_DK = bits.reshape(hidden_size, SKETCH_SIZE).astype(np.float64) * 2 - 1
    sketch_RLK = states_RLD.astype(np.float64) @ sign_DK / math.sqrt(SKETCH_SIZE)
    return sketch_RLK.astype(np.float32)


def encode_sketch(sketch_RLK: NDArray[np.float32]) -> str:
    """A sketch as text: its shape, and its float32 numbers, little-endian, in base64."""
    numbers = np.ascontiguousarray(sketch_RLK, "<f4").tobytes()
    shape = "x".join(map(str, sketch_RLK.shape))
    return f"{shape}:{base64.b64encode(numbers).decode()}"


def decode_sketch(text: str) -> NDArray[np.float32]:
    """What ``encode_sketch`` was given; ValueError where the text is none of it."""
    shape, _, numbers = text.partition(":")
    flat = np.frombuffer(base64.b64decode(numbers, validate=True), "<f4")
    return flat.reshape([int(length) for length in shape.split("x")])


def largest_deviation(now: str, then: str) -> tuple[float, int]:
    """The largest ``|now - then| / |then|`` of a state, and its layer, from 0.

    Infinite where the shapes differ, or a number is not finite.
    """
    now_RLK, then_RLK = decode_sketch(now).astype(np.float64), decode_sketch(then)
    if now_RLK.shape != then_RLK.shape:
        return math.inf, 0
    norm_RL = np.linalg.norm(then_RLK.astype(np.float64), axis=-1)
    distance_RL = np.linalg.norm(now_RLK - then_RLK, axis=-1)
    share_RL = distance_RL / np.where(norm_RL > 0, norm_RL, 1.0)
    share_L = np.where(np.isfinite(share_RL), share_RL, math.inf).max(axis=0)
    layer = int(share_L.argmax())
    return float(share_L[layer]), layer


def states_digest(fingerprint: str, reference: dict[str, str]) -> str:
    """The name of the very states of a cache: its fingerprint, and what its encoder computed."""
    if not reference:
        return fingerprint
    text = json.dumps([fingerprint, reference], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
