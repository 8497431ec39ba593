"""What ``states="auto"`` and the search stand for in a section of a given size."""

__all__ = [
    "OF_STATES",
    "ONE_BY_ONE",
    "SAMPLED",
    "SAMPLED_FROM",
    "SMALL",
    "are_communities",
    "most_states",
    "n_deciding_sets",
    "n_mixtures",
    "n_state_sets",
    "search_rounds",
    "states_of_section",
    "wanted_states",
]

OF_STATES = ("anisotropy",)  # options that hold only where domains are compositions: others have no such edges
ONE_BY_ONE = 1_000  # spots: searches of fewer run in turn, since the interpreter, which threads share, takes most time
SMALL = 10_000  # spots at most of a section that is searched with all sets of states, without brief fits beside
SAMPLED_FROM = 20_000  # spots of a section on: a sample of it is searched, smaller ones are searched as a whole
SAMPLED = 5_000  # spots of such a sample
_ROUNDS, _ROUNDS_OF_SAMPLE = 10, 3  # of proposals
_STATES, _FEWER_STATES = 24, 20  # of `auto`: communities, and the mixture of few spots (docs/lab_notebook.md)
_SPOTS_EACH = 20  # at least, on average
_OF_COMMUNITY = 40  # spots at least, on average, where states are communities
_SETS = 15  # that are learnt and searched: which answer a search finds is partly chance, and F does not tell it all
_FEWER_SETS = 3  # of sections that are not small
_DECIDING_SETS, _FEWER_DECIDING_SETS = 8, 3  # on whose ambiguity `auto` decides; the fewer where a sample is searched


def states_of_section(n_spots: int, k: int) -> int:
    """Return the number of states that ``auto`` stands for, or 0 where a section is too small for them.

    There are 24, of fewer than 960 spots 20, or two more than domains where these are many. Where a state would have
    fewer than 20 spots on average, too little is known about each, and small domains lose all their spots.

    Parameters
    ----------
    n_spots
        n.
    k
        K.
    """
    few = not are_communities(_STATES, n_spots)
    n_states = max(_FEWER_STATES if few else _STATES, k + 2)
    return n_states if n_states <= most_states(n_spots) else 0


def most_states(n_spots: int) -> int:
    """Return how many states so many spots tell enough about: with more, a state has fewer than 20 on average."""
    return n_spots // _SPOTS_EACH


def are_communities(n_states: int, n_spots: int) -> bool:
    """Return whether states are communities of spots with like features; of fewer spots they are those of a mixture.

    Where a state has few spots, its nearest others are often of another state.
    """
    return n_spots >= _OF_COMMUNITY * n_states


def wanted_states(states: int | str, n_spots: int, k: int) -> int:
    """Return the number of states that the option ``states`` asks for in a section of this size; 0 for none.

    Parameters
    ----------
    states
        A number, "auto" or "off".
    n_spots, k
        As for `states_of_section`.
    """
    if states == "off":
        return 0
    return states_of_section(n_spots, k) if states == "auto" else int(states)


def n_state_sets(n_spots: int) -> int:
    """Return how many sets of states are learnt from so many spots.

    There are 15 of at most 10,000 spots, then three, and one from 20,000 on. States that are learnt from many spots
    vary less from seed to seed, and searches take most of a large fit's time.
    """
    if n_spots <= SMALL:
        return _SETS
    return _FEWER_SETS if n_spots < SAMPLED_FROM else 1


def n_deciding_sets(n_spots: int) -> int:
    """Return how many sets of states ``auto`` looks at to decide whether single spots tell states apart.

    By one set alone, the model of a section near the limit would depend on the seed. There are eight, and three from
    20,000 spots on.
    """
    return _FEWER_DECIDING_SETS if n_spots >= SAMPLED_FROM else _DECIDING_SETS


def n_mixtures(n_states: int, n_spots: int, n_sets: int, *, if_distinct: bool = True) -> int:
    """Return how many mixtures are learnt, to decide on and to find trends within.

    Where these are also the states of the fit, there are as many as it searches with, at least.

    Parameters
    ----------
    n_states, n_spots
        As for `are_communities`.
    n_sets
        Sets of states that the fit searches with.
    if_distinct
        Whether ``auto`` decides.
    """
    n_learnt = n_deciding_sets(n_spots)
    if not if_distinct:
        n_learnt = min(n_learnt, n_sets)
    return n_learnt if are_communities(n_states, n_spots) else max(n_learnt, n_sets)


def search_rounds(search: int | None, n_spots: int) -> int:
    """Return how many rounds of proposals the option ``search`` asks for in a section of this size.

    By default these are 10, and 3 from 20,000 spots on, of which a sample is searched.

    Parameters
    ----------
    search
        A number; None for the default.
    n_spots
        n.
    """
    if search is not None:
        return search
    return _ROUNDS if n_spots < SAMPLED_FROM else _ROUNDS_OF_SAMPLE
