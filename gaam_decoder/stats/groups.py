"""Rows that belong together, such as the clips of a speaker: groups as units of a test.

Ten clips of one speaker are not ten independent draws: another test set would have
other speakers. The total of a group then replaces the value of a row. The mean is still
the mean of all rows, so a group counts by its number of rows. The variance of the mean
is estimated by::

    sum_g q_g^2 / (1 - 2 p_g + Q)

with ``p_g = n_g / N`` the share of group g in all rows,
``q_g = (sum of its values - n_g mean) / N`` and ``Q = sum_g p_g^2``. For groups of
equal size this is the variance of the group means divided by G. For groups of one row
it is the variance of the rows divided by N.

S seeds, N rows, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_GROUPS = 6
"""With fewer groups no sign-flip test over groups can give p < 0.05."""
UNSEEN_CORRELATION = 0.05
"""Correlation of rows of one group, as far as the test rows lack them. In simulations
with effects of groups, it keeps intervals of accuracies near 1 at their level."""


@dataclass(frozen=True, eq=False, repr=False)
class RowGroups:
    """The group of every row; at least one group has two rows.

    Source: the estimate is CR2 of a mean under the working model that the rows of a
        group do not vary beside their group. It is unbiased under this model, and
        otherwise too large, never too small. Bell and McCaffrey 2002, "Bias reduction
        in standard errors for linear regression with multi-stage samples"; Pustejovsky
        and Tipton 2018, "Small-sample methods for cluster-robust variance estimation
        and hypothesis testing in fixed effects models".
    """

    group_N: NDArray[np.int64]  # number of the group of every row, from 0 without gaps

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.rows_G)

    @cached_property
    def rows_G(self) -> NDArray[np.int64]:
        """Number of rows of every group."""
        return np.bincount(self.group_N)

    @cached_property
    def variance_factor_G(self) -> NDArray[np.float64]:
        """Factor of each squared effect on the mean (``effects_on_mean``).

        The sum of the products is the variance of the mean. The squares alone are too
        small, because every group draws the mean towards itself. For G groups of one
        size the factor is ``G / (G - 1)``; in general it is ``1 / (1 - 2 p_g + Q)``,
        with ``p_g`` the share of group g in all rows, and ``Q = sum_g p_g^2``.
        """
        share_G = self.rows_G / self.rows_G.sum()
        sum_of_squares = np.sum(share_G**2)
        factor_G: NDArray[np.float64] = 1 / (1 - 2 * share_G + sum_of_squares)
        return factor_G

    @cached_property
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of the variance of the mean: ``1 / Q - 1``, at least 1.

        Q is the sum of the squared shares of the groups in all rows. ``1 / Q`` is the
        effective number of groups: if the rows of a group are alike, the mean of so
        many groups of one size has the same variance. For groups of one size it is G.

        Source: Kish 1965, "Survey sampling", section 11.7; as degrees of freedom:
            Carter, Schnepel and Steigerwald 2017, "Asymptotic behavior of a t-test
            robust to cluster heterogeneity".
        """
        share_G = self.rows_G / self.rows_G.sum()
        effective_groups = 1 / float(np.sum(share_G**2))
        return max(1.0, effective_groups - 1)

    @cached_property
    def least_design_effect(self) -> float:
        """Variance of a sum of unseen rows, as a multiple of that of independent rows.

        It is ``1 + (n - 1) UNSEEN_CORRELATION``, n the size of the group of a row, as a
        mean over the rows. Where all rows are right, they do not tell how alike wrong
        rows of a group are.

        Source: Kish 1965, "Survey sampling", section 5.4.
        """
        mean_size = float(np.sum(self.rows_G**2) / self.rows_G.sum())
        return 1 + (mean_size - 1) * UNSEEN_CORRELATION

    @cached_property
    def _order_N(self) -> NDArray[np.int64]:
        """Indices that sort the rows by their groups."""
        return np.argsort(self.group_N, kind="stable")

    @cached_property
    def _start_G(self) -> NDArray[np.int64]:
        """The first row of every group, after the rows are sorted by their groups."""
        return np.concatenate([[0], np.cumsum(self.rows_G)[:-1]])

    def totals(self, value_SN: NDArray[Any]) -> NDArray[Any]:
        """Sum of the values over the rows of every group, (S, G).

        Sums of whole numbers and of true or false are int64.
        """
        is_whole = value_SN.dtype.kind in "biu"
        dtype = np.int64 if is_whole else np.float64
        sorted_SN = value_SN[:, self._order_N]
        total_SG: NDArray[Any] = np.add.reduceat(
            sorted_SN, self._start_G, axis=1, dtype=dtype
        )
        return total_SG

    def effects_on_mean(self, value_SN: NDArray[Any]) -> NDArray[np.float64]:
        """By how much every group raises the mean of each seed, ``q_g``, (S, G).

        It is ``(total of the group - its number of rows * mean of all rows) / N``. The
        effects of all groups have the sum 0.
        """
        num_rows = value_SN.shape[1]
        mean_S = value_SN.mean(1, dtype=np.float64)
        # the total that a group would have if its rows were like all rows
        average_total_SG = np.outer(mean_S, self.rows_G)
        effect_SG: NDArray[np.float64] = (
            self.totals(value_SN) - average_total_SG
        ) / num_rows
        return effect_SG


def row_groups(names: Sequence[object] | NDArray[Any] | None) -> RowGroups | None:
    """Group the rows by their names; None if no two rows share a name."""
    if names is None:
        return None
    distinct_names, group_N = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct_names) == len(group_N):
        return None
    return RowGroups(group_N.astype(np.int64))


def join_relations(relations: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Join rows that share a group in any relation, directly or through other rows.

    A relation says which rows belong together, such as those of one speaker.

    Args:
        relations: at least one, each (N,): the group of every row, numbered from 0.

    Returns:
        The joined group of every row, (N,).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # a graph with a node for every row and one for every group of every relation
    num_rows = len(relations[0])
    num_nodes = num_rows
    row_ends = []
    group_ends = []
    for group_N in relations:
        row_ends.append(np.arange(num_rows))
        group_ends.append(num_nodes + group_N)
        num_nodes += int(group_N.max()) + 1

    # rows that any path of links connects belong together
    ends = (np.concatenate(row_ends), np.concatenate(group_ends))
    link_values = np.ones(len(ends[0]), np.int8)
    links = coo_array((link_values, ends), shape=(num_nodes, num_nodes))
    _num_components, component_of_nodes = connected_components(links, directed=False)
    component_N: NDArray[np.int64] = component_of_nodes[:num_rows].astype(np.int64)
    return component_N
