"""Loops over counts in CSR form: tallies of genes, columns of chosen genes, moments and extremes of columns.

Results have the same bits for any number of threads and any cut into blocks of rows. Sums across rows are of whole
numbers or run over `N_CHUNKS` fixed parts; every other loop writes only a row's own entries. Nothing here may know
which genes are fitted, or why.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.dispatch import parallel_if_large
from spatialpdvi.kernels.mixture import N_CHUNKS

__all__ = [
    "SLOTS",
    "VALUES",
    "column_extremes",
    "column_moments",
    "column_products",
    "count_kept",
    "group_moments",
    "keep_columns",
    "normalise_rows",
    "project_rows",
    "scale_columns",
    "tally_values",
]

VALUES = 256  # smaller counts are tallied value by value; larger ones are rare
SLOTS = 4  # parts of the rows that are tallied, or multiplied, in parallel
_SMALL = 64  # the logarithms of smaller counts are looked up in a table made for their row
_SQUARE_ROOT = 2
_LOGARITHM = 1
_FEW_ROWS = 512  # whose products are added together


@parallel_if_large(lambda data, *rest: data.size)
def tally_values(data, indices, indptr, histogram, totals):
    """Add up how often each gene has each count below `VALUES`, and write the total of each row.

    Most counts are small, so that the lines of the histogram that hold them, for all genes, stay in the cache.
    """
    # IN CSR of whole numbers >= 0; IN/OUT histogram (SLOTS, VALUES, genes) int32; OUT totals (n,) float64
    n = indptr.size - 1
    for slot in prange(SLOTS):
        for i in range(slot * n // SLOTS, (slot + 1) * n // SLOTS):
            total = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                value = np.float64(data[e])
                total += value
                if 0.0 < value < VALUES:
                    histogram[slot, np.uint64(value), np.uint64(indices[e])] += 1
            totals[i] = total


@parallel_if_large(lambda indices, *rest: indices.size)
def count_kept(indices, indptr, column, lengths):
    """Count the entries of each row whose column is kept."""
    # IN CSR without data, column (genes,) new column number or -1; OUT lengths (n,) int64
    for i in prange(indptr.size - 1):
        found = 0
        for e in range(indptr[i], indptr[i + 1]):
            if column[indices[e]] >= 0:
                found += 1
        lengths[i] = found


@parallel_if_large(lambda data, *rest: data.size)
def keep_columns(data, indices, indptr, column, starts, kept_data, kept_indices):
    """Copy the entries of chosen columns, row by row, in their order."""
    # IN CSR, column (genes,) new column number or -1, starts (n,) first entry of each row; OUT kept_* (entries kept,)
    for i in prange(indptr.size - 1):
        place = starts[i]
        for e in range(indptr[i], indptr[i + 1]):
            new = column[indices[e]]
            if new >= 0:
                kept_data[place] = data[e]
                kept_indices[place] = new
                place += 1


@parallel_if_large(lambda data, *rest: 4 * data.size)
def normalise_rows(data, indptr, factor, transform, out):
    """Multiply every value by its row's factor; then take ``log(1 + x)`` (1), the square root (2), or nothing (0)."""
    # IN CSR without indices, factor (n,) float64, transform 0, 1 or 2; OUT out (nnz,) float32, may be data itself
    for i in prange(indptr.size - 1):
        for e in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[e]) * factor[i]
            if transform == _LOGARITHM:
                value = np.log1p(value)
            elif transform == _SQUARE_ROOT:
                value = np.sqrt(value)
            out[e] = value


@parallel_if_large(lambda data, *rest: data.size)
def column_moments(data, indices, indptr, first, n, sums, squares):
    """Add each column's values and their squares to sums over fixed parts of all rows."""
    # IN CSR of the rows that begin with `first`, n rows in all; IN/OUT sums, squares (N_CHUNKS, columns) float64
    last = first + indptr.size - 1
    for c in prange(N_CHUNKS):
        for i in range(max(first, c * n // N_CHUNKS) - first, min(last, (c + 1) * n // N_CHUNKS) - first):
            for e in range(indptr[i], indptr[i + 1]):
                value = np.float64(data[e])
                sums[c, indices[e]] += value
                squares[c, indices[e]] += value * value


@parallel_if_large(lambda data, *rest: data.size)
def scale_columns(data, indices, factor, most):
    """Multiply every value by its column's factor and clip it at ``most``, in place."""
    # IN indices (nnz,), factor (columns,) float64; IN/OUT data (nnz,) float32
    for e in prange(data.size):
        data[e] = min(np.float64(data[e]) * factor[indices[e]], most)


@parallel_if_large(lambda data, *rest: data.size)
def column_extremes(data, indices, indptr, least, most, present):
    """Find the smallest and largest stored value of each column, and count its stored values."""
    # IN CSR; IN/OUT least, most (N_CHUNKS, columns) float64, present (N_CHUNKS, columns) int64
    n = indptr.size - 1
    for c in prange(N_CHUNKS):
        for i in range(c * n // N_CHUNKS, (c + 1) * n // N_CHUNKS):
            for e in range(indptr[i], indptr[i + 1]):
                f = indices[e]
                value = np.float64(data[e])
                least[c, f] = min(least[c, f], value)
                most[c, f] = max(most[c, f], value)
                present[c, f] += 1


@parallel_if_large(lambda data, *rest: data.size)
def group_moments(data, indices, indptr, rows, starts, teams, target_sum, sums, squares, present):
    """Add up ``y = log(1 + target_sum x / total of the row)``, y^2 and ``x > 0``, by group of rows and by column.

    Each group belongs to one team, which visits its rows in order: sums have the same bits for any teams and blocks.
    """
    # IN CSR, rows (n,) sorted by group, starts (groups + 1,) of each group in rows, teams (groups,) team of each group
    # IN/OUT sums, squares (groups, columns) float64, present (groups, columns) int64
    for team in prange(teams.max() + 1):
        logarithm = np.empty(_SMALL)
        for group in range(teams.size):
            if teams[group] != team:
                continue
            total_of, square_of, present_of = sums[group], squares[group], present[group]
            for place in range(starts[group], starts[group + 1]):
                i = rows[place]
                total, largest = 0.0, 0.0
                for e in range(indptr[i], indptr[i + 1]):
                    value = np.float64(data[e])
                    total += value
                    largest = max(largest, value)
                if total <= 0.0:
                    continue
                factor = target_sum / total
                known = min(np.int64(largest), _SMALL - 1, indptr[i + 1] - indptr[i])
                for count in range(known + 1):  # float32, as in a normalised matrix
                    logarithm[count] = np.float32(np.log1p(count * factor))
                for e in range(indptr[i], indptr[i + 1]):
                    value = np.float64(data[e])
                    if value <= 0.0:
                        continue
                    # rounded to float32, since other libraries compute from a float32 matrix
                    y = (
                        logarithm[np.int64(value)]
                        if value <= known
                        else np.float64(np.float32(np.log1p(value * factor)))
                    )
                    f = indices[e]
                    total_of[f] += y
                    square_of[f] += y * y
                    present_of[f] += 1


@parallel_if_large(lambda data, indices, indptr, *rest: data.size * (data.size // max(1, indptr.size - 1)))
def column_products(data, indices, indptr, n_teams, products):
    """Add the products of all pairs of columns, summed over the rows in their order, to the upper triangle.

    Each column belongs to one team, so that sums have the same bits for any number of teams and any cut into blocks. A
    few rows at a time are visited column by column: one line of the products, and a copy of these rows, then stay in
    the cache. Unsigned columns need no test for negative ones.
    """
    # IN CSR with ascending columns; IN/OUT products (columns, columns) float64, of which entries f <= g are added to
    n, n_columns = indptr.size - 1, products.shape[0]
    for team in prange(n_teams):
        ends = np.empty(n_columns + 1, dtype=np.int64)
        stops, places = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        columns, values = np.empty(0, dtype=np.uint32), np.empty(0, dtype=data.dtype)
        for first in range(0, n, _FEW_ROWS):
            last = min(n, first + _FEW_ROWS)
            begin = indptr[first]
            size = indptr[last] - begin
            if size > places.size:
                stops, places = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
                columns, values = np.empty(size, dtype=np.uint32), np.empty(size, dtype=data.dtype)
            ends[:] = 0
            for e in range(size):
                columns[e], values[e] = indices[begin + e], data[begin + e]
                ends[columns[e] + 1] += 1
            for f in range(n_columns):
                ends[f + 1] += ends[f]
            for i in range(first, last):  # sorted by column; each ends[f] moves from where f begins to its end
                for e in range(indptr[i] - begin, indptr[i + 1] - begin):
                    f = columns[e]
                    stops[ends[f]], places[ends[f]] = indptr[i + 1] - begin, e
                    ends[f] += 1
            for f in range(team, n_columns, n_teams):
                own = products[f]
                for place in range(ends[f - 1] if f else 0, ends[f]):
                    value = np.float64(values[places[place]])
                    for e in range(np.uint64(places[place]), np.uint64(stops[place])):
                        own[columns[e]] += value * values[e]


@parallel_if_large(lambda data, indices, indptr, loadings, *rest: data.size * loadings.shape[1])
def project_rows(data, indices, indptr, loadings, shift, out):
    """Multiply each row by the loadings, and add the shift."""
    # IN CSR, loadings (columns, p) float64, shift (p,) float64; OUT out (n, p) float32
    for i in prange(indptr.size - 1):
        sums = shift.copy()
        for e in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[e])
            own = loadings[indices[e]]
            for j in range(sums.size):
                sums[j] += value * own[j]
        for j in range(sums.size):
            out[i, j] = sums[j]
