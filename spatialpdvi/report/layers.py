"""The maps of a section as data for the script of the page: every spot, or squares of spots if there are too many."""

import base64
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spatialpdvi.palette import UNLABELLED, palette
from spatialpdvi.plotting.labels import printable
from spatialpdvi.plotting.maps import CONFIDENCE
from spatialpdvi.plotting.spots import Marker
from spatialpdvi.plotting.tissue import Cell
from spatialpdvi.report.content import Material, shown
from spatialpdvi.report.pictures import LabelMap, Maps, ValueMap, gradient
from spatialpdvi.runtime.rows import slices

__all__ = ["MOST_SPOTS", "map_data"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_SPOTS = 150_000  # of one page that are embedded one by one, and squares of one page where there are more spots
_BLOCK = 1 << 20  # spots whose square is found at a time
_FINEST = 65_535  # steps of a coordinate along the longer side of the picture
_HUNDREDTHS, _TENTHS = 100, 10
_LIKELIEST = 3  # states of a spot that are embedded
_LONG, _SHORT = 200, 80  # characters of a label, and of the name of a spot
# how far a marker that tiles reaches from the centre of its spot, to its corners, by its number of sides; in spacings
_REACH = {4: np.sqrt(1 / 2), 6: np.sqrt(1 / 3)}


class _Rows(Protocol):
    """What is drawn as one marker each: the spots, or squares of spots."""

    @property
    def position(self) -> Floats:
        """Inches from the upper left corner of the picture, (rows, 2)."""

    def labels(self, codes: Ints) -> tuple[Ints, Floats | None]:
        """Return the most frequent code in each row (rows,), and its share where rows have several spots."""

    def means(self, values: NDArray[Any]) -> Floats:
        """Return the mean of each row, (rows,)."""


class _Each(NamedTuple):
    """Every spot is a row."""

    position: Floats
    order: Ints  # (rows,) into the spots

    def labels(self, codes: Ints) -> tuple[Ints, Floats | None]:
        return codes[self.order], None

    def means(self, values: NDArray[Any]) -> Floats:
        return np.asarray(values[self.order], dtype=np.float64)


class _Squares(NamedTuple):
    """Every square with spots is a row."""

    position: Floats
    of: Ints  # (n,) square of each spot
    sizes: Ints  # (rows,) spots

    def labels(self, codes: Ints) -> tuple[Ints, Floats | None]:
        width = int(codes.max(initial=0)) + 2
        pairs, counts = np.unique(self.of * width + codes + 1, return_counts=True)
        squares = pairs // width
        # the pairs of each square with the largest count first; equal counts stay in the order of the codes
        ordered = np.lexsort((-counts, squares))
        first = ordered[np.searchsorted(squares, np.arange(self.sizes.size))]
        return pairs[first] % width - 1, counts[first] / self.sizes

    def means(self, values: NDArray[Any]) -> Floats:
        return np.asarray(np.bincount(self.of, weights=values, minlength=self.sizes.size) / self.sizes)


class _Placed(NamedTuple):
    """The rows of one section."""

    name: str  # empty where there is one section
    left: float  # of its map, inches
    top: float
    start: int  # its first row
    reach: float  # of a marker from its centre, inches
    shape: str  # "square", "tile" (what is nearest to the centre, within reach) or "disc"
    side: int  # of a square, in spots; 0 where a row is a spot

    def in_steps(self, finest: float) -> dict[str, Any]:
        """Return the fields by name, with lengths in steps of the coordinates, of which an inch has ``finest``."""
        lengths = {name: round(finest * getattr(self, name), 3) for name in ("left", "top", "reach")}
        return self._asdict() | lengths


def map_data(material: Material, drawn: Maps, *, most: int = MOST_SPOTS) -> dict[str, Any]:
    """Return what the script of the page needs to draw the maps of a section again, as values for JSON.

    Coordinates are whole numbers from 0 to 65,535 along the longer side of the picture, sorted by rows of the picture
    and written as differences, which compresses well. Shares are in hundredths and expression is in tenths, which is
    all that the page shows of them. Columns follow one another, each from a multiple of four bytes; all together are
    compressed (zlib) and written in base64.

    Parameters
    ----------
    material
        The fitted section.
    drawn
        Its maps.
    most
        Spots that are embedded one by one. Where there are more, squares with the most frequent labels and the means of
        their spots are embedded instead, and at most this many.
    """
    cells, n = drawn.tissue.cells(), len(drawn.domains.codes)
    rows, placed = _each(cells) if n <= most else _squares(cells, most)
    finest = _FINEST / max(drawn.tissue.size)
    steps = np.clip(np.rint(rows.position * finest), 0, _FINEST).astype(np.int64)
    columns = {axis: np.diff(steps[:, i], prepend=0).astype("<u2") for i, axis in enumerate("xy")}  # modulo 65,536
    if isinstance(rows, _Squares):
        columns["spots"] = _smallest(rows.sizes)
    layers = []
    if drawn.annotation is not None:
        layers.append(_label_layer("annotation", drawn.annotation, rows, columns))
    layers.append(_label_layer("domain", drawn.domains, rows, columns))
    word = "confidence" if material.fitted.calibrated is None else "calibrated confidence"
    layers.append(_share_layer("confidence", word, drawn.confidence, rows, columns))
    if drawn.agreement is not None:
        layers.append(_share_layer("agreement", "agreement of restarts", drawn.agreement, rows, columns))
    if material.states is not None:
        layers.append(_state_layer(material.states, rows, columns))
    layers += _gene_layers(material, rows, columns)
    composition = None if material.composition is None else material.composition.round(3).tolist()
    return {
        "size": [round(finest * inches, 2) for inches in drawn.tissue.size],
        "sections": [own.in_steps(finest) for own in placed],
        "spots": n,
        "rows": len(steps),
        "columns": [[name, values.itemsize] for name, values in columns.items()],
        "layers": layers,
        "composition": composition,
        "unlabelled": UNLABELLED,
        "names": _packed(_names(material.spot_names, rows.order)) if isinstance(rows, _Each) else None,
        "data": _packed(b"".join(map(_aligned, columns.values()))),
    }


def _each(cells: Sequence[Cell]) -> tuple[_Each, list[_Placed]]:
    """Return the spots as rows, section by section and from top to bottom."""
    positions, orders, placed, start = [], [], [], 0
    for cell in cells:
        position, spacing = cell.spots.on_map, cell.spots.spacing / cell.spots.units_per_inch
        order = np.lexsort((position[:, 0], np.floor(position[:, 1] / spacing)))
        positions.append(position[order] + np.array([cell.left, cell.top]))
        orders.append(_numbers(cell)[order])
        wide = spacing if cell.spots.diameter is None else cell.spots.diameter / cell.spots.units_per_inch
        placed.append(_placed(cell, start, *_marker(cell.spots.marker, wide), side=0))
        start += len(order)
    return _Each(np.concatenate(positions), np.concatenate(orders)), placed


def _squares(cells: Sequence[Cell], most: int) -> tuple[_Squares, list[_Placed]]:
    """Return the squares that hold spots as rows, section by section and from top to bottom."""
    n = sum(len(cell.spots.position) for cell in cells)
    positions, placed, start, of = [], [], 0, np.empty(n, dtype=np.int64)
    for cell in cells:
        position, spacing = cell.spots.on_map, cell.spots.spacing / cell.spots.units_per_inch
        own = max(1, most * len(position) // n)
        side, square, squares = _grid(position, spacing, own)
        of[_numbers(cell)] = square + start
        positions.append(squares + np.array([cell.left, cell.top]))
        placed.append(_placed(cell, start, side * spacing / 2, "square", side=side))
        start += len(squares)
    return _Squares(np.concatenate(positions), of, np.bincount(of, minlength=start)), placed


def _grid(position: Floats, spacing: float, most: int) -> tuple[int, Ints, Floats]:
    """Return the smallest side, in spots, that makes at most ``most`` squares, the square of each spot, and centres."""
    # no finer than the steps of the coordinates, however near some spots are to each other
    finest = np.ptp(position, axis=0).max() / _FINEST
    side = int(np.ceil(max(np.sqrt(len(position) / most), finest / spacing)))
    low = position.min(axis=0) - spacing / 2  # borders of squares lie between the spots of a lattice
    while True:
        across, down = (np.floor((position.max(axis=0) - low) / (side * spacing)).astype(np.int64) + 1).tolist()
        code = np.empty(len(position), dtype=np.int64)
        for rows in slices(len(position), _BLOCK):
            column, row = np.floor((position[rows] - low) / (side * spacing)).astype(np.int64).T
            code[rows] = row * across + column
        found, square = _numbered(code, across * down)
        if len(found) <= most:
            centres = np.column_stack([found % across, found // across]) + 0.5
            return side, square, low + side * spacing * centres
        side += 1 + side // 4  # where spots are scattered many squares hold one spot


def _numbered(codes: Ints, n: int) -> tuple[Ints, Ints]:
    """Return the distinct codes, of 0..n-1, and the place of each spot's own among them, as `numpy.unique` does."""
    if n > codes.size:
        found, numbers = np.unique(codes, return_inverse=True)
        return found, numbers
    there = np.bincount(codes, minlength=n) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _numbers(cell: Cell) -> Ints:
    return np.arange(len(cell.spots.position)) if isinstance(cell.chosen, slice) else cell.chosen


def _placed(cell: Cell, start: int, reach: float, shape: str, *, side: int) -> _Placed:
    return _Placed(_text(cell.name), cell.left, cell.top, start, reach, shape, side)


def _marker(marker: Marker, wide: float) -> tuple[float, str]:
    """Return the reach of a marker that is so wide, inches, and its shape."""
    if isinstance(marker, str):
        return wide / 2, "square" if marker == "s" else "disc"
    return _REACH[marker[0]] * wide, "tile"


def _label_layer(name: str, labels: LabelMap, rows: _Rows, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add the columns of the labels, from 1 and with 0 for none, and return how they are drawn."""
    codes, share = rows.labels(labels.codes)
    columns[name] = _smallest(codes + 1)
    if share is not None:
        columns[f"share of {name}"] = _hundredths(share)
    title, *names = [_text(text) for text in (labels.caption, *labels.names)]
    return {"column": name, "title": title, "word": name, "names": names, "colours": list(labels.colours)}


def _share_layer(name: str, word: str, values: ValueMap, rows: _Rows, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    columns[name] = _hundredths(rows.means(values.values))
    return {
        "column": name,
        "title": values.caption,
        "word": word,
        "unit": values.unit,
        "low": values.low,
        "high": values.high,
        "gradient": values.gradient,
        "steps": _HUNDREDTHS,
    }


def _state_layer(states: np.ndarray, rows: _Rows, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add the columns of the likeliest states and their shares, and return how the likeliest one is drawn."""
    shares = np.column_stack([rows.means(own) for own in states.T])
    order = np.argsort(-shares, axis=1, kind="stable")[:, :_LIKELIEST]
    for place, state in enumerate(order.T):
        columns[f"state {place}" if place else "state"] = _smallest(state + 1)
        columns[f"share of state {place}"] = _hundredths(np.take_along_axis(shares, state[:, None], axis=1)[:, 0])
    n = states.shape[1]
    names = [str(state) for state in range(n)]
    return {
        "column": "state",
        "title": "Likeliest cell state",
        "word": "state",
        "names": names,
        "colours": list(palette(n)),
    }


def _gene_layers(material: Material, rows: _Rows, columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Add a column for each gene, and return how they are drawn: up to the 99th percentile where they are expressed."""
    made = []
    for number, gene in enumerate(material.mapped):
        name, tenths = f"gene {number}", np.rint(rows.means(gene.tenths)).astype(np.int64)
        columns[name] = _smallest(tenths)
        positive = tenths[tenths > 0]
        made.append(
            {
                "column": name,
                "title": f"{_text(gene.name)} (marker of domain {_text(gene.domain)})",
                "word": _text(gene.name),
                "unit": "log(1 + counts per 10,000)",
                "low": 0.0,
                "high": float(np.percentile(positive, 99)) / _TENTHS if positive.size else 1.0,
                "gradient": gradient(CONFIDENCE.colours),
                "steps": _TENTHS,
            }
        )
    return made


def _text(text: str, *, most: int = _LONG) -> str:
    """Return a text that fits a line and has nothing that no font can draw."""
    text = shown(text, most=most)
    return text if text.isprintable() else printable(text)


def _hundredths(shares: Floats) -> np.ndarray:
    return np.rint(_HUNDREDTHS * np.clip(shares, 0, 1)).astype(np.uint8)


def _smallest(values: np.ndarray) -> np.ndarray:
    """Return whole numbers >= 0 in the smallest type that holds them, which the script can read up to 32 bits."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))).newbyteorder("<"))


def _aligned(values: np.ndarray) -> bytes:
    raw = values.tobytes()
    return raw + bytes(-len(raw) % 4)


def _names(names: Sequence[str], order: Ints) -> bytes:
    """Return the names of spots in the order of rows, one a line."""
    return "\n".join(_text(str(name), most=_SHORT) for name in np.asarray(names, dtype=object)[order]).encode()


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode("ascii")
