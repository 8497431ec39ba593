"""The geometry of a simulated section: the outline of an embryo, its bins, its organs, and their layers.

The unit of length is about half an embryo. The y axis points down, as in an image, so the head has the smallest y.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError
from spatialpdvi.runtime.rows import slices

__all__ = ["Neighbours", "Tissue", "draw_tissue", "smooth_field"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]


class Tissue(NamedTuple):
    """The bins of a section, sorted by column, and the domain of each; then the bins off the tissue."""

    bins: Ints  # (n_spots + n_background, 2), column and row on the lattice, from 0
    position: Floats  # (n_spots, 2), x and y in the units of the outline
    domain: Ints  # (n_spots,), 0..k-1; every domain occurs
    names: list[str]  # (k,) of the domains


class Neighbours:
    """Bins of a lattice, sorted by column and then by row, and the bins that share a side or a corner with each.

    Parameters
    ----------
    bins
        (n, 2), column and row of each.
    """

    def __init__(self, bins: Ints) -> None:
        # with an empty column or row on every side, so that each bin has eight places around it
        self._bins = (bins - bins.min(axis=0) + 1).astype(np.int32)
        self._number = np.full(self._bins.max(axis=0) + 2, -1, dtype=np.int32)
        self._number[tuple(self._bins.T)] = np.arange(len(bins), dtype=np.int32)

    def of(self, rows: slice, *, later: bool = False) -> Numbers:
        """Return the numbers of the bins around some bins, (m, 8), ascending, with -1 where there is none.

        With ``later`` only those that come after the bin itself, (m, 4), so that each pair of bins occurs once.
        """
        column, row = self._bins[rows].T
        steps = _AROUND[len(_AROUND) // 2 :] if later else _AROUND
        return np.stack([self._number[column + across, row + down] for across, down in steps], axis=1)


class _Organ(NamedTuple):
    name: str
    x: float
    y: float
    radius: float


# The place of each organ in the outline, and how far its head start reaches. The first organs cover the body, so that a
# section with few domains still looks like an embryo; small organs come later.
_ORGANS = (
    _Organ("brain", 0.10, -0.95, 0.28),
    _Organ("liver", -0.16, 0.10, 0.26),
    _Organ("muscle", 0.38, 0.18, 0.20),
    _Organ("intestine", -0.08, 0.50, 0.20),
    _Organ("heart", -0.24, -0.22, 0.15),
    _Organ("spinal cord", 0.47, -0.25, 0.10),
    _Organ("lung", 0.06, -0.22, 0.16),
    _Organ("jaw", -0.42, -0.64, 0.14),
    _Organ("tail", -0.10, 1.12, 0.08),
    _Organ("skin", 0.20, 0.78, 0.10),
    _Organ("hindbrain", 0.34, -0.68, 0.14),
    _Organ("nasal cavity", -0.52, -0.86, 0.10),
    _Organ("kidney", 0.22, 0.40, 0.10),
    _Organ("stomach", 0.12, 0.14, 0.10),
    _Organ("forelimb", -0.58, 0.00, 0.09),
    _Organ("hindlimb", -0.46, 0.60, 0.10),
    _Organ("eye", -0.24, -0.88, 0.06),
    _Organ("tongue", -0.26, -0.56, 0.07),
    _Organ("thymus", -0.08, -0.42, 0.05),
    _Organ("pancreas", 0.06, 0.32, 0.05),
)

# capsules: two ends (x, y), and the radius at each end
_CAPSULES = (
    ((0.12, -0.98), (-0.02, -0.88), 0.40, 0.38),  # skull
    ((-0.20, -0.78), (-0.52, -0.74), 0.28, 0.14),  # snout
    ((0.26, -0.70), (0.24, -0.28), 0.22, 0.28),  # neck and shoulders
    ((0.06, -0.10), (0.02, 0.34), 0.42, 0.44),  # chest and belly
    ((0.16, 0.40), (0.14, 0.70), 0.34, 0.22),  # rump
    ((0.16, 0.82), (0.07, 1.06), 0.12, 0.09),  # tail, in three pieces
    ((0.07, 1.06), (-0.22, 1.18), 0.085, 0.065),
    ((-0.22, 1.18), (-0.46, 1.04), 0.065, 0.035),
    ((-0.30, -0.06), (-0.64, 0.04), 0.10, 0.075),  # forelimb
    ((-0.26, 0.52), (-0.60, 0.66), 0.12, 0.08),  # hindlimb
)
_AROUND = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
_BLOCK = 1 << 17  # bins whose waves and distances are in memory at a time
_BOX = ((-1.05, -1.65), (0.95, 1.45))  # corners of a box that contains the outline
_WAVES = 24  # of a smooth field
_BLEND = 0.05  # width of the smooth transition between two shapes
_THICKNESS = 0.025  # of the skin and of each layer: two bins of a section of 20,000
_THINNEST = 1.2  # bins: the same where bins are large
_LAYERED_ORGANS = 2
_MOST_LAYERS = 4  # of each
_FEWEST_LAYERED = 6  # domains
_BINS_OF_LAYERED = 40  # for each domain, at least


def draw_tissue(n_spots: int, k: int, rng: np.random.Generator, *, layered: bool, n_background: int) -> Tissue:
    """Draw the bins of a section in the shape of an embryo, and their domains.

    Parameters
    ----------
    n_spots
        Number of bins of the tissue.
    k
        Number of domains, at most ``n_spots``.
    rng
        Random generator.
    layered
        Whether the embryo has a thin skin, and thin layers inside its two largest organs. Below 6 domains, or 40 bins
        for each, there is no room for them, and all domains are organs.
    n_background
        Number of bins off the tissue: those nearest to it.
    """
    warp = [smooth_field(rng, scale=0.35) for _ in range(2)]
    bins, position, pitch = _lattice(n_spots, n_background, warp)
    position, of_tissue = position[:n_spots], bins[:n_spots]
    if not layered or k < _FEWEST_LAYERED or n_spots < _BINS_OF_LAYERED * k:
        return Tissue(bins, position, _grow_organs(of_tissue, position, k, rng), _organ_names(k))
    n_layers = min(k // 5, _MOST_LAYERS)
    names = [name for name in _organ_names(k) if name != "skin"][: k - 1 - _LAYERED_ORGANS * n_layers]
    domain = _grow_organs(of_tissue, position, len(names), rng)
    n_organs = len(names)
    thickness = max(_THICKNESS, _THINNEST * pitch)
    _peel(domain, np.arange(n_spots), -_outline(position, warp), new=n_organs, thickness=thickness)
    names.append("skin")
    for organ in np.argsort(-np.bincount(domain)[:n_organs], kind="stable")[:_LAYERED_ORGANS]:
        members = np.flatnonzero(domain == organ)
        depth = _depth(position, members, n_layers * thickness)
        for layer in range(1, n_layers + 1):  # from the outermost; each takes a share of what would leave equal parts
            left = domain[members] == organ
            share = 1 / (n_layers + 2 - layer)
            _peel(domain, members[left], depth[left], new=len(names), thickness=layer * thickness, most=share)
            names.append(f"{names[organ]} layer {layer}")
    return Tissue(bins, position, domain, names)


def _organ_names(k: int) -> list[str]:
    """Names for ``k`` organs, then ``organ 21``, ``organ 22`` and so on."""
    named = [organ.name for organ in _ORGANS[:k]]
    return named + [f"organ {number}" for number in range(len(_ORGANS) + 1, k + 1)]


def _depth(position: Floats, members: Ints, deepest: float) -> Floats:
    """Distance of each member to the nearest bin that is none; infinite from ``deepest`` on."""
    own = position[members]
    (low, high), others = (own.min(axis=0) - deepest, own.max(axis=0) + deepest), np.ones(len(position), dtype=bool)
    others[members] = False
    for axis, values in enumerate(position.T):
        others &= (values >= low[axis]) & (values <= high[axis])
    return np.asarray(cKDTree(position[others]).query(own, distance_upper_bound=deepest)[0])


def _peel(domain: Ints, bins: Ints, depth: Floats, *, new: int, thickness: float, most: float = 0.5) -> None:
    """Turn those of some bins that have little depth into the domain ``new``.

    At most a share of each old domain, so that none ends.
    """
    sizes, thin = np.bincount(domain), depth < thickness
    bins, depth = bins[thin], depth[thin]
    olds = domain[bins]
    for old in np.unique(olds):
        own = olds == old
        domain[bins[own][np.argsort(depth[own], kind="stable")][: int(most * sizes[old])]] = new


class _Field(NamedTuple):
    """A sum of plane waves with variance of about 1; callable with positions (n, 2)."""

    frequency: Floats  # (2, waves)
    phase: Floats  # (waves,)

    def __call__(self, position: Floats) -> Floats:
        found = np.empty(len(position))
        for rows in slices(len(position), _BLOCK):
            waves = np.cos(position[rows] @ self.frequency + self.phase)
            found[rows] = waves.sum(axis=1) * np.sqrt(2 / self.phase.size)
        return found


def smooth_field(rng: np.random.Generator, *, scale: float) -> _Field:
    """Draw a random smooth function that varies over distances of about ``scale``, in units of the outline."""
    frequency = rng.normal(scale=1 / scale, size=(2, _WAVES))
    return _Field(frequency, rng.uniform(0, 2 * np.pi, size=_WAVES))


def _outline(position: Floats, warp: list[_Field]) -> Floats:
    """Approximate signed distance to the edge of the embryo; negative inside."""
    found = np.empty(len(position))
    for rows in slices(len(position), _BLOCK):
        found[rows] = _outline_of_block(position[rows], warp)
    return found


def _outline_of_block(position: Floats, warp: list[_Field]) -> Floats:
    bent = position + 0.018 * np.stack([field(position) for field in warp], axis=1)
    total = np.zeros(len(position))
    for (x0, y0), (x1, y1), radius_0, radius_1 in _CAPSULES:
        start, axis = np.array([x0, y0]), np.array([x1 - x0, y1 - y0])
        along = np.clip((bent - start) @ axis / (axis @ axis), 0, 1)
        distance = np.hypot(*(bent - start - along[:, None] * axis).T)
        # a soft minimum over the shapes; clipping prevents an overflow of exp deep inside or far outside
        depth = (distance - radius_0 - along * (radius_1 - radius_0)) / _BLEND
        total += np.exp(-np.clip(depth, -12, 12))
    return np.asarray(-_BLEND * np.log(total))


class _Grid(NamedTuple):
    """The bins of the box around the outline, numbered by column and then by row."""

    columns: int
    rows: int
    pitch: float

    def bins(self, numbers: Ints) -> Ints:
        """Column and row of some bins, (m, 2)."""
        return np.stack(np.divmod(numbers, self.rows), axis=1)

    def outline(self, warp: list[_Field]) -> Floats:
        """`_outline` of every bin."""
        found = np.empty(self.columns * self.rows)
        for rows in slices(found.size, _BLOCK):
            found[rows] = _outline_of_block(self.position(self.bins(np.arange(rows.start, rows.stop))), warp)
        return found

    def position(self, bins: Ints) -> Floats:
        """Place of some bins, (m, 2), in the units of the outline."""
        return np.array(_BOX[0]) + self.pitch * bins


def _grid(pitch: float) -> _Grid:
    (x0, y0), (x1, y1) = _BOX
    return _Grid(int((x1 - x0) / pitch) + 1, int((y1 - y0) / pitch) + 1, pitch)


def _lattice(n_spots: int, n_background: int, warp: list[_Field]) -> tuple[Ints, Floats, float]:
    """The ``n_spots`` bins of a square lattice that lie deepest in the outline, those that follow, and the pitch."""
    coarse = 0.01
    area = np.count_nonzero(_grid(coarse).outline(warp) < 0) * coarse**2
    grid = _grid(float(np.sqrt(area / n_spots)))
    n_bins = grid.columns * grid.rows
    if n_spots + n_background > n_bins:
        room = n_bins - n_spots
        raise InputError(
            f"at most {room:,} spots off the tissue", f"{n_background:,}", "Lower it.", option="background"
        )
    ranked = np.argsort(grid.outline(warp), kind="stable")
    chosen = np.concatenate([np.sort(ranked[:n_spots]), np.sort(ranked[n_spots : n_spots + n_background])])
    bins = grid.bins(chosen)
    return bins - bins.min(axis=0), grid.position(bins), grid.pitch


def _grow_organs(bins: Ints, position: Floats, k: int, rng: np.random.Generator) -> Ints:
    """Find the organ of each bin: the seed whose front reaches the bin first through tissue of uneven resistance.

    Fronts travel from bin to bin, so an organ is connected for any resistance; the head start of a seed makes its organ
    larger. A head start can swallow a nearby seed, so all head starts are halved until this does not happen.
    """
    seeds, radius = _seeds(position, k, rng)
    graph = _resistance(bins, position, rng)
    label = np.full(len(position), -1)
    for attempt in range(8):
        head_start = radius * (0.5**attempt if attempt < 7 else 0.0)
        label = _first_arrival(graph, seeds, head_start.max() - head_start)
        if np.unique(label[label >= 0]).size == k:
            break
    lost = label < 0  # bins of a small lattice that touch no other bin
    if lost.any():
        reached = np.flatnonzero(~lost)
        _, nearest = cKDTree(position[reached]).query(position[lost])
        label[lost] = label[reached[nearest]]
    return label


def _seeds(position: Floats, k: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw a free bin for each organ, near its place in the body, and the radius of the organ."""
    taken = np.zeros(len(position), dtype=bool)
    seeds, radii = np.empty(k, dtype=np.int64), np.empty(k)
    gap = np.full(len(position), np.inf)  # distance to the nearest seed so far
    for organ in range(k):
        if organ < len(_ORGANS):
            _, x, y, radius = _ORGANS[organ]
            wanted = np.array([x, y]) + rng.normal(scale=0.03, size=2)
            radii[organ] = radius * np.exp(0.2 * rng.standard_normal())
            badness = np.hypot(*(position - wanted).T)
        else:  # an organ without a name is placed in one of the widest gaps
            radii[organ] = 0.05 * np.exp(0.5 * rng.standard_normal())
            badness = -gap * rng.uniform(0.8, 1, size=len(position))
        badness[taken] = np.inf
        seeds[organ] = int(np.argmin(badness))
        taken[seeds[organ]] = True
        gap = np.minimum(gap, np.hypot(*(position - position[seeds[organ]]).T))
    return seeds, radii


def _resistance(bins: Ints, position: Floats, rng: np.random.Generator) -> csr_array:
    """Cost of each step from a bin to a later one that touches it, (n, n); it varies with place and direction."""
    n, neighbours = len(bins), Neighbours(bins)
    wide, fine, turn = (smooth_field(rng, scale=scale) for scale in (0.18, 0.05, 0.5))
    ends, costs, counts = [], [], np.zeros(n + 1, dtype=np.int32)
    for rows in slices(n, _BLOCK):
        later = neighbours.of(rows, later=True)
        there = later >= 0
        counts[rows.start + 1 : rows.stop + 1] = there.sum(axis=1)
        end = later[there]
        start = rows.start + np.nonzero(there)[0]
        step = position[end] - position[start]
        middle = (position[start] + position[end]) / 2
        angle = np.pi / 2 + 0.8 * turn(middle)  # roughly along the body
        along = step[:, 0] * np.cos(angle) + step[:, 1] * np.sin(angle)
        across = step[:, 1] * np.cos(angle) - step[:, 0] * np.sin(angle)
        ends.append(end)
        costs.append(np.hypot(along, 1.6 * across) * np.exp(0.4 * wide(middle) + 0.5 * fine(middle)))
    return csr_array((np.concatenate(costs), np.concatenate(ends), np.cumsum(counts, dtype=np.int32)), shape=(n, n))


def _first_arrival(graph: csr_array, seeds: Ints, delay: Floats) -> Ints:
    """Number of the seed whose front reaches each bin first; -1 where none does."""
    n = graph.shape[0]
    # an additional node, the origin, reaches every seed after its delay, which is never 0, since 0 means no edge
    order = np.argsort(seeds)
    cost = np.concatenate([graph.data, delay[order] + 1e-9])
    ends = np.concatenate([graph.indices, seeds[order].astype(np.int32)])
    starts = np.append(graph.indptr, np.int32(cost.size))
    joined = csr_array((cost, ends, starts), shape=(n + 1, n + 1))
    _, parent = dijkstra(joined, directed=False, indices=n, return_predecessors=True)
    parent = parent.astype(np.int64)
    root = np.where((parent == n) | (parent < 0), np.arange(n + 1), parent)
    while not np.array_equal(root, above := root[root]):
        root = above
    label = np.full(n + 1, -1, dtype=np.int64)
    label[seeds] = np.where(parent[seeds] == n, np.arange(seeds.size), -1)
    return label[root][:n]
