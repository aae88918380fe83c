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
    def correction_G(self) -> NDArray[np.float64]:
        """Factor ``1 / (1 - 2 p_g + Q)`` of ``q_g^2`` in the variance of the mean."""
        share_G = self.rows_G / self.rows_G.sum()
        correction_G: NDArray[np.float64]
        correction_G = 1 / (1 - 2 * share_G + np.sum(share_G**2))
        return correction_G

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of the variance: ``1 / Q - 1``, at least 1.

        For groups of one size they are G - 1. ``1 / Q`` is the effective number of
        groups: the mean of so many groups of one size has the same variance.
        Satterthwaite's number for independent rows is nearly the same, and slightly
        larger.

        Source: Kish 1965, "Survey sampling", section 11.7; as degrees of freedom:
            Carter, Schnepel and Steigerwald 2017, "Asymptotic behavior of a t-test
            robust to cluster heterogeneity".
        """
        share_G = self.rows_G / self.rows_G.sum()
        return max(1.0, 1 / float(np.sum(share_G**2)) - 1)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices that sort the rows by group, and where each group then starts."""
        order_N = np.argsort(self.group_N, kind="stable")
        starts_G = np.concatenate([[0], np.cumsum(self.rows_G)[:-1]])
        return order_N, starts_G

    def totals(self, value_SN: NDArray[Any]) -> NDArray[Any]:
        """Sum of the values over the rows of every group, (S, G).

        Sums of whole numbers and of true or false are int64.
        """
        is_whole = value_SN.dtype.kind in "biu"
        dtype = np.int64 if is_whole else np.float64
        order_N, starts_G = self._sorted
        total_SG: NDArray[Any] = np.add.reduceat(
            value_SN[:, order_N], starts_G, 1, dtype=dtype
        )
        return total_SG

    def excess(self, value_SN: NDArray[Any]) -> NDArray[np.float64]:
        """By how much every group raises the mean of each seed, ``q_g``, (S, G).

        It is ``(total of the group - its number of rows * mean of all rows) / N``.
        """
        num_rows = value_SN.shape[1]
        mean_S = value_SN.mean(1, dtype=np.float64)
        expected_SG = np.outer(mean_S, self.rows_G)
        excess_SG: NDArray[np.float64] = (
            self.totals(value_SN) - expected_SG
        ) / num_rows
        return excess_SG


def row_groups(names: Sequence[object] | NDArray[Any] | None) -> RowGroups | None:
    """Group the rows by their names; None if no two rows share a name."""
    if names is None:
        return None
    distinct_names, group_N = np.unique(np.asarray(names), return_inverse=True)
    if len(distinct_names) == len(group_N):
        return None
    return RowGroups(group_N.astype(np.int64))


def joined(relations: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
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
    _, component_of_nodes = connected_components(links, directed=False)
    component_N: NDArray[np.int64] = component_of_nodes[:num_rows].astype(np.int64)
    return component_N
