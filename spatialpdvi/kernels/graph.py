"""Loops over edges and neighbourhoods: border normals, gradients, edge weights, ordered neighbours, greedy colouring.

Every iteration writes only the entries of one spot or one edge, so the number of threads cannot change a bit.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.dispatch import compiled, parallel_if_large

__all__ = [
    "border_normals",
    "colour_greedily",
    "cosine_csr",
    "cosine_dense",
    "flow_term",
    "follows_other_cells",
    "gradient_products",
    "means_over_neighbours",
    "order_neighbours",
    "quadratic_form",
]


@parallel_if_large(lambda coordinates, neighbours, *rest: 9 * neighbours.size)
def border_normals(coordinates, neighbours, labels, own_labels, own, ridge, min_side, out):
    """Find the normal of the local border at each spot: Fisher's linear discriminant direction of its neighbours.

    The two sides are the neighbours with the spot's own start label and those with another. The direction is
    ``w = (S_w + ridge I)^-1 (mean_same - mean_other)`` with the pooled within-side covariance ``S_w``, scaled to
    length 1; it is 0 where a side has fewer than ``min_side`` spots. Plane coordinates have a zero third axis.
    """
    # IN coordinates (n, 3), neighbours (b, q) row numbers, labels (n,), own_labels (b,), own (b,) row numbers,
    # ridge > 0 in squared units of the coordinates; OUT out (b, 3)
    b, q = neighbours.shape
    for i in prange(b):
        out[i, :] = 0.0
        same = 0
        for e in range(q):
            same += labels[neighbours[i, e]] == own_labels[i]
        if same < min_side or q - same < min_side:
            continue  # inside a domain, as most spots are
        centre = coordinates[own[i]]
        mean = np.zeros((2, 3))
        count = (same, q - same)
        for e in range(q):
            j = neighbours[i, e]
            side = 0 if labels[j] == own_labels[i] else 1
            for a in range(3):
                mean[side, a] += coordinates[j, a] - centre[a]
        for side in range(2):
            for a in range(3):
                mean[side, a] /= count[side]
        s = np.zeros((3, 3))
        for e in range(q):
            j = neighbours[i, e]
            side = 0 if labels[j] == own_labels[i] else 1
            for a in range(3):
                da = coordinates[j, a] - centre[a] - mean[side, a]
                for c in range(a, 3):
                    s[a, c] += da * (coordinates[j, c] - centre[c] - mean[side, c])
        for a in range(3):
            for c in range(a, 3):
                s[a, c] /= q
            s[a, a] += ridge
        # the adjugate in place of the inverse: the determinant is positive and does not change the direction
        xx = s[1, 1] * s[2, 2] - s[1, 2] * s[1, 2]
        xy = s[0, 2] * s[1, 2] - s[0, 1] * s[2, 2]
        xz = s[0, 1] * s[1, 2] - s[0, 2] * s[1, 1]
        yy = s[0, 0] * s[2, 2] - s[0, 2] * s[0, 2]
        yz = s[0, 1] * s[0, 2] - s[0, 0] * s[1, 2]
        zz = s[0, 0] * s[1, 1] - s[0, 1] * s[0, 1]
        dx = mean[0, 0] - mean[1, 0]
        dy = mean[0, 1] - mean[1, 1]
        dz = mean[0, 2] - mean[1, 2]
        wx = xx * dx + xy * dy + xz * dz
        wy = xy * dx + yy * dy + yz * dz
        wz = xz * dx + yz * dy + zz * dz
        length = np.sqrt(wx * wx + wy * wy + wz * wz)
        if length > 0.0:
            out[i, 0] = wx / length
            out[i, 1] = wy / length
            out[i, 2] = wz / length


@parallel_if_large(lambda values, indptr, indices, out: indices.size * values.shape[1])
def means_over_neighbours(values, indptr, indices, out):
    """Average the values of each spot and its neighbours in a graph."""
    # IN values (n, p), CSR pattern of the graph; OUT out (n, p) of their type
    n, p = values.shape
    for i in prange(n):
        out[i, :] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            for f in range(p):
                out[i, f] += values[j, f]
        for f in range(p):
            out[i, f] = (values[i, f] + out[i, f]) / (1.0 + indptr[i + 1] - indptr[i])


@parallel_if_large(lambda distance, *rest: 4 * distance.size)
def order_neighbours(distance, index, spots, n_neighbors, digits, rank, near):
    """Sort each spot's neighbours, without the spot itself, by distance and, where distances tie, by row number.

    Distances are rounded to multiples of ``1 / digits`` of the ``n_neighbors``-th one, or of the smallest beyond it
    where that one is 0, so ties survive rounding errors.
    Insertion sort suits rows that a tree search returns almost sorted.
    """
    # IN distance, index (b, q + 1) by distance, spots (b,) row numbers; OUT rank (b, q) float64, near (b, q) int64
    b, q = near.shape
    kth = min(n_neighbors, q) - 1
    for i in prange(b):
        itself = 0  # spots at the same place may have pushed it out of the row; then the last entry is left out
        while itself < q and index[i, itself] != spots[i]:
            itself += 1
        last = kth if kth < itself else kth + 1
        while last < q and distance[i, last] == 0.0:  # so many spots at one place: the first that lies elsewhere
            last += 1
        scale = distance[i, last]
        n_sorted = 0
        for e in range(q + 1):
            if e == itself:
                continue
            j = index[i, e]
            value = np.rint(distance[i, e] / scale * digits) if scale > 0.0 else 0.0
            place = n_sorted
            while place > 0 and (
                rank[i, place - 1] > value or (rank[i, place - 1] == value and near[i, place - 1] > j)
            ):
                rank[i, place] = rank[i, place - 1]
                near[i, place] = near[i, place - 1]
                place -= 1
            rank[i, place] = value
            near[i, place] = j
            n_sorted += 1


@parallel_if_large(lambda coordinates, normals, rows, cols, out: 30 * rows.size)
def flow_term(coordinates, normals, rows, cols, out):
    """Measure how well each edge runs along the local border: ``|sin|`` of its angle to the normal, mean of both ends.

    In the plane this is ``|g . u|``, the geometry term of the paper, with the flow direction g (the normal turned by 90
    degrees) and the unit vector u of the edge; in three dimensions it is the length of the projection of u onto the
    plane of the border. The paper takes the g of i for r_ij, and of j for r_ji; here both are their mean. The part of
    an end is 0 where either vector is 0.
    """
    # IN coordinates, normals (n, 3), rows, cols (n_edges,); OUT out (n_edges,)
    for e in prange(rows.size):
        i = rows[e]
        j = cols[e]
        out[e] = 0.0
        ux = coordinates[j, 0] - coordinates[i, 0]
        uy = coordinates[j, 1] - coordinates[i, 1]
        uz = coordinates[j, 2] - coordinates[i, 2]
        uu = ux * ux + uy * uy + uz * uz
        for end in (i, j):
            nx = normals[end, 0]
            ny = normals[end, 1]
            nz = normals[end, 2]
            nn = nx * nx + ny * ny + nz * nz
            if nn > 0.0 and uu > 0.0:
                # the cross product, because 1 - cos^2 loses half the digits at small angles
                cx = ny * uz - nz * uy
                cy = nz * ux - nx * uz
                cz = nx * uy - ny * ux
                out[e] += 0.5 * min(1.0, np.sqrt((cx * cx + cy * cy + cz * cz) / (nn * uu)))


@parallel_if_large(lambda coordinates, neighbours, own, x, *rest: 8 * neighbours.size * x.shape[1])
def gradient_products(coordinates, neighbours, own, x, out, subtracted):
    """Sum the products of the gradients of all features around each spot, less what noise adds to them on average.

    The gradient of a feature is its linear regression on the coordinates of the spot and its neighbours. The result is
    0 where these lie on a line, or in a tilted plane of three dimensions. Where the third coordinate is the same for
    all of them, the entries of the result for it are not positive.
    """
    # IN coordinates (n, 3), neighbours (b, q) row numbers, own (b,) row numbers, x (n, d);
    # OUT out (b, 3, 3), subtracted (b,) the trace of what noise adds
    b, q = neighbours.shape
    d = x.shape[1]
    for i in prange(b):
        centre = coordinates[own[i]]
        place = np.empty((q + 1, 3))
        mean = np.zeros(3)
        for e in range(q + 1):
            j = own[i] if e == q else neighbours[i, e]
            for a in range(3):
                place[e, a] = coordinates[j, a] - centre[a]
                mean[a] += place[e, a] / (q + 1)
        s = np.zeros((3, 3))
        for e in range(q + 1):
            for a in range(3):
                place[e, a] -= mean[a]
                for c in range(a + 1):
                    s[a, c] += place[e, a] * place[e, c]
        size = s[0, 0] + s[1, 1] + s[2, 2]
        n_axes = 3
        if s[2, 2] == 0.0:  # the plane: the third axis has a unit of its own, and no slope
            s[2, 2] = 0.5 * size
            n_axes = 2
        inverse = np.empty((3, 3))
        inverse[0, 0] = s[1, 1] * s[2, 2] - s[2, 1] * s[2, 1]
        inverse[1, 0] = s[2, 0] * s[2, 1] - s[1, 0] * s[2, 2]
        inverse[2, 0] = s[1, 0] * s[2, 1] - s[2, 0] * s[1, 1]
        inverse[1, 1] = s[0, 0] * s[2, 2] - s[2, 0] * s[2, 0]
        inverse[2, 1] = s[1, 0] * s[2, 0] - s[0, 0] * s[2, 1]
        inverse[2, 2] = s[0, 0] * s[1, 1] - s[1, 0] * s[1, 0]
        determinant = s[0, 0] * inverse[0, 0] + s[1, 0] * inverse[1, 0] + s[2, 0] * inverse[2, 0]
        out[i] = 0.0
        subtracted[i] = 0.0
        if not determinant > 1e-9 * size * size * size or q <= n_axes:
            continue
        for a in range(3):
            for c in range(a + 1):
                inverse[a, c] /= determinant
                inverse[c, a] = inverse[a, c]
        level = np.zeros(d)
        for e in range(q + 1):
            j = own[i] if e == q else neighbours[i, e]
            for f in range(d):
                level[f] += x[j, f]
        for f in range(d):
            level[f] /= q + 1
        square = np.zeros(d)
        product = np.zeros((3, d))
        for e in range(q + 1):
            j = own[i] if e == q else neighbours[i, e]
            for f in range(d):
                value = x[j, f] - level[f]
                square[f] += value * value
                for a in range(3):
                    product[a, f] += place[e, a] * value
        noise = 0.0
        slope = np.empty(3)
        for f in range(d):
            noise += square[f]
            for a in range(3):
                slope[a] = 0.0
                for c in range(3):
                    slope[a] += inverse[a, c] * product[c, f]
                noise -= slope[a] * product[a, f]
            for a in range(3):
                for c in range(3):
                    out[i, a, c] += slope[a] * slope[c]
        noise /= q - n_axes
        for a in range(3):
            subtracted[i] += noise * inverse[a, a] if a < n_axes else 0.0
            for c in range(3):
                out[i, a, c] -= noise * inverse[a, c]


@parallel_if_large(lambda coordinates, forms, rows, cols, out: 20 * rows.size)
def quadratic_form(coordinates, forms, rows, cols, out):
    """Compute ``u' Q u`` of each edge, with its unit vector u and the mean Q of the forms at both ends; 0 without u."""
    # IN coordinates (n, D), forms (n, D, D) symmetric, rows, cols (n_edges,); OUT out (n_edges,)
    n_axes = coordinates.shape[1]
    for e in prange(rows.size):
        i = rows[e]
        j = cols[e]
        length = 0.0
        total = 0.0
        for a in range(n_axes):
            da = coordinates[j, a] - coordinates[i, a]
            length += da * da
            for c in range(n_axes):
                total += 0.5 * (forms[i, a, c] + forms[j, a, c]) * da * (coordinates[j, c] - coordinates[i, c])
        out[e] = total / length if length > 0.0 else 0.0


@parallel_if_large(lambda x, rows, cols, out: rows.size * x.shape[1])
def cosine_dense(x, rows, cols, out):
    """Compute the cosine similarity of the features at both ends of each edge; NaN where either is the zero vector."""
    # IN x (n, d), rows, cols (n_edges,); OUT out (n_edges,)
    d = x.shape[1]
    for e in prange(rows.size):
        dot = 0.0
        aa = 0.0
        bb = 0.0
        for f in range(d):
            a = np.float64(x[rows[e], f])
            b = np.float64(x[cols[e], f])
            dot += a * b
            aa += a * a
            bb += b * b
        if aa > 0.0 and bb > 0.0:
            out[e] = max(-1.0, min(1.0, dot / np.sqrt(aa) / np.sqrt(bb)))
        else:
            out[e] = np.nan


@parallel_if_large(lambda data, indices, indptr, rows, cols, out: data.size + rows.size)
def cosine_csr(data, indices, indptr, rows, cols, out):
    """`cosine_dense` for CSR features with sorted indices."""
    # IN data, indices (nnz,), indptr (n + 1,), rows, cols (n_edges,); OUT out (n_edges,)
    n = indptr.size - 1
    norm = np.zeros(n)
    for i in prange(n):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * np.float64(data[p])
        norm[i] = np.sqrt(total)
    for e in prange(rows.size):
        i = rows[e]
        j = cols[e]
        if norm[i] == 0.0 or norm[j] == 0.0:
            out[e] = np.nan
            continue
        p = indptr[i]
        q = indptr[j]
        dot = 0.0
        while p < indptr[i + 1] and q < indptr[j + 1]:
            if indices[p] == indices[q]:
                dot += np.float64(data[p]) * np.float64(data[q])
                p += 1
                q += 1
            elif indices[p] < indices[q]:
                p += 1
            else:
                q += 1
        out[e] = max(-1.0, min(1.0, dot / norm[i] / norm[j]))


@compiled
def colour_greedily(indptr, indices, group, out):
    """Give each spot, in row order, the smallest colour that no neighbour in its own group has."""
    # IN CSR graph of all spots, group (n,) patch of each spot; OUT out (n,) int32
    n = indptr.size - 1
    widest = 0
    for i in range(n):
        widest = max(widest, indptr[i + 1] - indptr[i])
    taken_by = np.full(widest + 2, -1, dtype=np.int64)
    for i in range(n):
        out[i] = -1
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if group[j] == group[i] and j != i and out[j] >= 0 and out[j] < taken_by.size:
                taken_by[out[j]] = i
        colour = 0
        while taken_by[colour] == i:
            colour += 1
        out[i] = colour


@compiled
def follows_other_cells(indptr, indices, colour, cell, out):
    """Mark the spots that a sweep by colour may update only after a spot of another cell.

    A spot depends on its neighbours of lower colours, and through them on theirs. Rows must be sorted by colour.
    """
    # IN CSR graph of a patch (columns from n on are spots of other patches), colour, cell (n,); OUT out (n,) bool
    n = indptr.size - 1
    for i in range(n):
        out[i] = False
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j < n and colour[j] < colour[i] and (out[j] or cell[j] != cell[i]):
                out[i] = True
