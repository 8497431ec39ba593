"""What tests read from a figure: its panels, their headings and legends, and the colour of each spot."""

import itertools

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.legend import Legend
from matplotlib.text import Annotation


def lattice(columns, rows):
    return np.indices((columns, rows)).reshape(2, -1).T.astype(np.float64)


def panels(figure):
    """Axes by the title above them."""
    return {text.get_text(): axes for axes in figure.axes for text in axes.texts if text.get_fontsize() == 10}


def heading(axes):
    """Title and note of a panel."""
    return [text.get_text() for text in axes.texts if isinstance(text, Annotation)]


def are_apart(boxes):
    """Whether no two of the boxes overlap or touch."""
    return not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def legend_of(axes):
    (legend,) = [child for child in axes.get_children() if isinstance(child, Legend)]
    return legend


def legend_colours(axes):
    legend = legend_of(axes)
    handles = [to_rgba(handle.get_color()) for handle in legend.legend_handles]
    return dict(zip([text.get_text() for text in legend.get_texts()], handles, strict=True))


def drawn_colours(axes, n):
    """Colour of each spot, in the order of the spots, found by position."""
    found = {}
    for collection in axes.collections:
        collection.update_scalarmappable()
        colours = np.resize(collection.get_facecolor(), (len(collection.get_offsets()), 4))
        found |= {
            tuple(place): tuple(colour)
            for place, colour in zip(np.asarray(collection.get_offsets()), colours, strict=True)
        }
    assert len(found) == n
    return found
