"""Fixed texts, sounds and pictures; their tokens and states identify an encoder.

``extraction.behaviour`` compares these states. Never change a row here: the fingerprint
of every cache would change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TEXTS = {
    "plain": (
        "The cat sat on the mat, and 3 dogs (aged 2.5) ran away!",
        "don't stop",
        "",
    ),
    "case": ("The CAT Sat ON the Mat", "iPhone McDonald USA"),
    "accents": (
        "Crème brûlée, façade, naïve, Zürich, Ångström",
        "Cafe\u0301 and Cafu\u0308",
        "\uff21\uff22\uff23 \uff11\uff12\uff13, o\ufb03ce",
    ),
    "space": ("  two  spaces ", "a\nb\n\nc\td", "a\u00a0b\u200bc"),
    "markup": (
        "<s> a </s><unk><pad><mask>",
        "[CLS] a [SEP] [MASK] [PAD] [UNK]",
        "<|im_start|>user\na<|im_end|><|endoftext|>",
        "<|begin_of_text|>a<|eot_id|> [INST] a [/INST]",
    ),
    "scripts": (
        (
            "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 "
            "\u043c\u0438\u0440, \u0419\u043e\u0434"
        ),
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
        "\u4e16\u754c\u4f60\u597d \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
        "\U0001f600\U0001f44d\U0001f3fd",
    ),
}
"""Rule of a tokenizer -> texts that test it.

They have composed and decomposed accents, full-width letters, a ligature, and so on.
The fingerprint holds a digest of the token ids for every rule.
"""
SHORT_TEXTS = ("The cat sat on the mat.", "Prices rose by 3% in Zürich, again")
"""Texts whose states a plan keeps."""
CUT_LENGTHS = (-3, -2, -1, 0, 1, 2)
"""Lengths of the texts around the cut, in words more than the maximum length."""
LONGEST_CUT = 8192
"""Largest maximum length for which such texts are made: longer ones would take time."""


def texts_around_the_cut(max_length: int) -> list[str]:
    """Make texts a little shorter and longer than the maximum length of an encoder.

    Their tokens show how the tokenizer cuts a text. Lengths are counted in words, since
    most tokenizers make one token of each of these words.

    Returns:
        The texts; an empty list for a maximum length above ``LONGEST_CUT``.
    """
    if max_length > LONGEST_CUT:
        return []

    texts = []
    # an offset is added to the maximum length; negative ones give shorter texts
    for offset in CUT_LENGTHS:
        num_words = max(1, max_length + offset)
        words = [("a", "the")[number % 2] for number in range(num_words)]
        texts.append(" ".join(words))
    return texts


@dataclass(frozen=True, slots=True)
class FixedSound:
    """A sound as an encoder takes one: silence, then a rising tone, and a beat."""

    rate: int
    seconds: float

    @property
    def frames(self) -> int:
        return round(self.rate * self.seconds)

    def samples(self) -> NDArray[np.float32]:
        """The samples of the sound's only channel: float32, (frames,)."""
        # t is the time in seconds; the frequency rises from 200 Hz
        t = np.arange(self.frames) / self.rate
        tone = 0.3 * np.sin(2 * np.pi * (200 + 300 * t) * t)
        # the beat: 50 Hz, for the first 0.1 s of every quarter of a second
        tone += 0.1 * np.sin(2 * np.pi * 50 * t) * (t % 0.25 < 0.1)
        # the silence at the beginning
        tone[: self.frames // 8] = 0
        return tone.astype(np.float32)


@dataclass(frozen=True, slots=True)
class FixedPicture:
    """A picture as an encoder takes one: colour gradients and blue squares."""

    height: int
    width: int
    square_side: int  # side of a blue square, in pixels
    where: str = "a fixed picture that gaam tests every encoder with"

    def pixels(self) -> NDArray[np.uint8]:
        """Red, green and blue of every pixel, 0 to 255: (H, W, 3).

        Red grows from left to right, and green from top to bottom. Blue is a chessboard
        of squares that have all of it or nothing.
        """
        y_H1 = np.arange(self.height)[:, None]
        x_1W = np.arange(self.width)[None]

        # adding zeros of the other axis makes a full (H, W) channel
        red = (255 * x_1W // self.width) + 0 * y_H1
        green = (255 * y_H1 // self.height) + 0 * x_1W
        blue = 255 * ((x_1W // self.square_side + y_H1 // self.square_side) % 2)
        return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def fixed_sounds(rate: int) -> Sequence[FixedSound]:
    """Two short sounds at the rate of an encoder, so that nothing is resampled."""
    return FixedSound(rate, seconds=1.0), FixedSound(rate, seconds=0.6)


def fixed_pictures() -> Sequence[FixedPicture]:
    """Two small pictures, one upright and one wide; all sizes are in pixels."""
    return (
        FixedPicture(height=64, width=48, square_side=8),
        FixedPicture(height=48, width=96, square_side=5),
    )
