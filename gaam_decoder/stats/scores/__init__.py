"""Scores of a decoder: a module in this folder is a name of ``gaam report --score``.

They are our own functions and not those of scikit-learn: a claim needs the value of
every row beside the mean, which scikit-learn does not give, and a report should need
nothing that training does not. The tests compare every one of them with scikit-learn.
"""

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore

__all__ = ["Answers", "Score", "SeedScore"]
