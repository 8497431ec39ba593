"""Loops over edges and neighbourhoods: flow directions, edge weights, greedy colouring.

Every loop writes one spot's or one edge's own entries, so threads cannot change a bit.
"""

import numpy as np
from numba import prange

from spatialpdvi.kernels.compile import compiled
from spatialpdvi.kernels.dispatch import twins

__all__ = [
    "border_normals",
    "colour_greedily",
    "cosine_csr",
    "cosine_dense",
    "flow_term",
    "follows_other_cells",
    "order_neighbours",
]


@twins(lambda coordinates, neighbours, *rest: 9 * neighbours.size)
def border_normals(coordinates, neighbours, labels, own_labels, own, ridge, min_side, out):
    """Fisher's direction between "same start label" and "another" around each spot, length 1, or 0 if undefined.

    ``w = (S_w + ridge I)^-1 (mean_same - mean_other)`` with the pooled within-side covariance ``S_w``. Two
    dimensions are treated as three with a zero third axis, which changes nothing.
    """
    # IN coordinates (n, 3), neighbours (b, q) spot indices, labels (n,), own_labels (b,), own (b,) spot indices,
    # ridge > 0 in squared units of the coordinates; OUT out (b, 3)
    b, q = neighbours.shape
    for i in prange(b):
        out[i, :] = 0.0
        same = 0
        for e in range(q):
            same += labels[neighbours[i, e]] == own_labels[i]
        if same < min_side or q - same < min_side:
            continue  # within a domain, as most spots are
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
        # the adjugate of the symmetric 3 x 3 matrix; its determinant is positive and drops out of the direction
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


@twins(lambda distance, *rest: 4 * distance.size)
def order_neighbours(distance, index, spots, n_neighbors, digits, rank, near):
    """Each spot's neighbours without itself, by distance and, where distances tie, by number.

    Distances are whole multiples of ``1 / digits`` of the ``n_neighbors``-th one. What a tree finds is all but sorted:
    insertion moves hardly anything.
    """
    # IN distance, index (b, q + 1) by distance, spots (b,); OUT rank (b, q) float64, near (b, q) int64
    b, q = near.shape
    kth = min(n_neighbors, q) - 1
    for i in prange(b):
        itself = 0  # not always there: others may share its place and push it out; then the last is left out
        while itself < q and index[i, itself] != spots[i]:
            itself += 1
        scale = distance[i, kth if kth < itself else kth + 1]
        held = 0
        for e in range(q + 1):
            if e == itself:
                continue
            j = index[i, e]
            value = np.rint(distance[i, e] / scale * digits) if scale > 0.0 else 0.0
            place = held
            while place > 0 and (
                rank[i, place - 1] > value or (rank[i, place - 1] == value and near[i, place - 1] > j)
            ):
                rank[i, place] = rank[i, place - 1]
                near[i, place] = near[i, place - 1]
                place -= 1
            rank[i, place] = value
            near[i, place] = j
            held += 1


@twins(lambda coordinates, normals, rows, cols, out: 30 * rows.size)
def flow_term(coordinates, normals, rows, cols, out):
    """How well each edge runs along the local border: ``|sin|`` of its angle to the averaged normal.

    In the plane this is ``|g . u|`` of the flow direction g (the normal turned by 90 degrees) and the edge's unit
    vector u, the paper's geometry term; in space it is the length of u's projection on the border's plane.
    The normals of both ends are averaged after their signs are aligned. 0 where either vector is 0.
    """
    # IN coordinates, normals (n, 3), rows, cols (n_edges,); OUT out (n_edges,)
    for e in prange(rows.size):
        i = rows[e]
        j = cols[e]
        out[e] = 0.0
        agreement = 0.0
        for a in range(3):
            agreement += normals[i, a] * normals[j, a]
        sign = -1.0 if agreement < 0.0 else 1.0
        nn = 0.0
        uu = 0.0
        for a in range(3):
            normal = normals[i, a] + sign * normals[j, a]
            step = coordinates[j, a] - coordinates[i, a]
            nn += normal * normal
            uu += step * step
        if nn > 0.0 and uu > 0.0:
            # the cross product rather than 1 - cos^2, which loses half the digits at small angles
            nx = normals[i, 0] + sign * normals[j, 0]
            ny = normals[i, 1] + sign * normals[j, 1]
            nz = normals[i, 2] + sign * normals[j, 2]
            ux = coordinates[j, 0] - coordinates[i, 0]
            uy = coordinates[j, 1] - coordinates[i, 1]
            uz = coordinates[j, 2] - coordinates[i, 2]
            cx = ny * uz - nz * uy
            cy = nz * ux - nx * uz
            cz = nx * uy - ny * ux
            out[e] = min(1.0, np.sqrt((cx * cx + cy * cy + cz * cz) / (nn * uu)))


@twins(lambda x, rows, cols, out: rows.size * x.shape[1])
def cosine_dense(x, rows, cols, out):
    """Cosine of the features at both ends of each edge, NaN where either is the zero vector."""
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


@twins(lambda data, indices, indptr, rows, cols, out: data.size + rows.size)
def cosine_csr(data, indices, indptr, rows, cols, out):
    """Twin of ``cosine_dense`` for CSR features with sorted indices."""
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
    """Give each spot the first colour that no neighbour of its own group has, in the order of the rows."""
    # IN CSR graph of all spots, group (n,) the patch of each spot; OUT out (n,) int32
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
    """Whether a spot of a sweep by colour waits, by neighbours of lower colours, for a spot of another cell.

    In the order of the rows, which are sorted by colour.
    """
    # IN CSR graph of a patch, columns from n on are other patches', colour, cell (n,); OUT out (n,) bool
    n = indptr.size - 1
    for i in range(n):
        out[i] = False
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j < n and colour[j] < colour[i] and (out[j] or cell[j] != cell[i]):
                out[i] = True
