"""Sketches of the states of a few fixed rows: they show that an encoder has changed.

For every state gaam keeps a random projection: K sums of its features with fixed random
signs. The distance of two projections is about that of the two states, with an error of
a fifth (Johnson and Lindenstrauss 1984).

R reference rows, L layers, D hidden size, K numbers of a sketch.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

SKETCH_SIZE = 32  # K
SIGN_SEED = b"gaam reference states"
"""SHAKE-256 draws the signs from this seed, without any library's random numbers."""


def sketch(states_RLD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Random projections of states: K numbers in place of the D features of a state.

    Formula: ``sketch_k = sum_d state_d sign_dk / sqrt(K)``, with fixed random signs.

    Shape:
        states_RLD: (R, L, D). Result: (R, L, K).
    """
    hidden_size = states_RLD.shape[-1]
    num_signs = hidden_size * SKETCH_SIZE

    # One bit of the hash is one sign: 0 is -1, 1 is +1.
    num_bytes = math.ceil(num_signs / 8)
    digest = hashlib.shake_256(SIGN_SEED).digest(num_bytes)
    bits = np.unpackbits(np.frombuffer(digest, np.uint8))[:num_signs]
    bit_DK = bits.reshape(hidden_size, SKETCH_SIZE).astype(np.float64)
    sign_DK = bit_DK * 2 - 1

    sketch_RLK = states_RLD.astype(np.float64) @ sign_DK / math.sqrt(SKETCH_SIZE)
    return sketch_RLK.astype(np.float32)


def encode_sketch(sketch_RLK: NDArray[np.float32]) -> str:
    """A sketch as text: its shape, ':', and its little-endian float32 in base64.

    A sketch is K random projections of every state of R rows and L layers, (R, L, K).
    """
    numbers = np.ascontiguousarray(sketch_RLK, "<f4").tobytes()
    shape = "x".join(map(str, sketch_RLK.shape))
    return f"{shape}:{base64.b64encode(numbers).decode()}"


def decode_sketch(text: str) -> NDArray[np.float32]:
    """The sketch that ``encode_sketch`` wrote as text, (R, L, K).

    A sketch is K random projections of every state of R rows and L layers.

    Raises:
        ValueError: the text is not a sketch.
    """
    shape, _, numbers = text.partition(":")
    flat = np.frombuffer(base64.b64decode(numbers, validate=True), "<f4")
    return flat.reshape([int(length) for length in shape.split("x")])


def largest_deviation(now: str, then: str) -> tuple[float, int]:
    """The largest deviation between two sketches, and the layer where it is.

    A sketch has K random projections of every state, whose distances are about those of
    the states.

    Formula: ``|now - then| / |then|`` for each state, with norms over the K numbers. A
    state whose sketch was zero has the deviation ``|now|``.

    Args:
        now: sketch of the states of today, from ``encode_sketch``.
        then: the same for the states when the cache was begun.

    Returns:
        The deviation and the layer, from 0. The deviation is infinite if a number is
        not finite. If the shapes of the sketches differ, the result is (inf, 0).
    """
    # R reference rows, L layers, K numbers of a state's sketch
    now_RLK = decode_sketch(now).astype(np.float64)
    then_RLK = decode_sketch(then)
    if now_RLK.shape != then_RLK.shape:
        return math.inf, 0

    norm_RL = np.linalg.norm(then_RLK.astype(np.float64), axis=-1)
    distance_RL = np.linalg.norm(now_RLK - then_RLK, axis=-1)
    deviation_RL = distance_RL / np.where(norm_RL > 0, norm_RL, 1.0)

    # NaN counts as infinite, or the maximum would hide it.
    finite_RL = np.isfinite(deviation_RL)
    deviation_L = np.where(finite_RL, deviation_RL, math.inf).max(axis=0)
    layer = int(deviation_L.argmax())
    return float(deviation_L[layer]), layer


def states_digest(fingerprint: str, reference: Mapping[str, str]) -> str:
    """Hash the fingerprint of a cache together with the sketches of its states.

    Args:
        fingerprint: of the cache.
        reference: pooling -> sketch of the states of the reference rows; empty for
            imported states, which have no reference rows.

    Returns:
        The hash; without sketches it is the fingerprint itself.
    """
    if not reference:
        return fingerprint
    text = json.dumps([fingerprint, reference], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
