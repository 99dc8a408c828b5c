"""The best one-to-one assignment, exactly: shortest augmenting paths (the Hungarian method)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def best_assignment(values: Floats) -> list[tuple[int, int]]:
    """Pair rows with columns, each at most once, so that the sum of their values is the highest.

    The time grows as the square of the fewer of them times the more.

    Args:
        values: What each pair is worth, `(rows, columns)`.

    Returns:
        As many pairs `(row, column)` as there are rows or columns, whichever are fewer; by row.
    """
    if values.shape[0] > values.shape[1]:
        return sorted((row, column) for column, row in best_assignment(values.T))
    n_rows, n_columns = values.shape
    cost = -values
    row_price = np.zeros(n_rows)
    column_price = np.zeros(n_columns)
    row_of = np.full(n_columns, -1)
    for row in range(n_rows):
        _assign(row, cost, row_price, column_price, row_of)
    return sorted((int(row), column) for column, row in enumerate(row_of) if row >= 0)


def _assign(
    row: int, cost: Floats, row_price: Floats, column_price: Floats, row_of: npt.NDArray[np.int_]
) -> None:
    """Find a column for one more row along the cheapest path; others move on where they must.

    Prices of rows `(rows,)` and of columns `(columns,)` keep every reduced cost at 0 or above, and
    at 0 for pairs; `row_of (columns,)` is the row of each column, -1 for none. All are changed.
    """
    n_columns = cost.shape[1]
    distance = np.full(n_columns, np.inf)
    before = np.full(n_columns, -1)  # the column from whose row this one was reached
    done = np.zeros(n_columns, dtype=bool)
    column, current, so_far = -1, row, 0.0
    while True:
        reached = so_far + cost[current] - row_price[current] - column_price
        closer = ~done & (reached < distance)
        distance[closer] = reached[closer]
        before[closer] = column
        column = int(np.where(done, np.inf, distance).argmin())
        so_far = distance[column]
        done[column] = True
        if row_of[column] < 0:
            break
        current = int(row_of[column])
    row_price[row] += so_far
    taken = done & (row_of >= 0)
    row_price[row_of[taken]] += so_far - distance[taken]
    column_price[done] -= so_far - distance[done]
    while column >= 0:
        previous = int(before[column])
        row_of[column] = row if previous < 0 else row_of[previous]
        column = previous
