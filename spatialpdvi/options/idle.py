"""Options of a fit that were set but have no effect, which a warning names."""

from dataclasses import fields

from spatialpdvi.errors import option
from spatialpdvi.options.fit import KMEANS, FitOptions

__all__ = ["idle_options", "idle_options_of", "option_as_set"]

# an option -> those that have no effect when it is given
_IDLE = {
    "rep": ("layer", "n_top_genes", "totals", "target_sum", "transform", "clip"),
    "init": ("n_init", "restarts", "search"),
    "graph": ("n_neighbors",),
}
_IDLE_WITH_STATES = ("whiten", "tau", "step_mean", "step_log_variance")  # states are held
_IDLE_WITHOUT_STATES = ("detrend", "anisotropy", "search")


def idle_options(options: FitOptions) -> list[tuple[str, str]]:
    """Return the options that were set but have no effect, each with the option that is the reason, by name."""
    chosen = [name for name in _IDLE if getattr(options, name) is not None]
    found = [(idle, name) for name in chosen for idle in _set_among(options, _IDLE[name])]
    if options.states != "auto":
        found += [(idle, "states") for idle in idle_options_of(options, with_states=options.states != "off")]
    genes = options.n_pcs == 0 and options.rep is None
    transform = options.transform if options.rep is None else None
    others = (
        # what is fitted then is sparse: it is neither rotated nor averaged, and averages serve restarts alone
        ("whiten", "n_pcs", genes and not options.whiten),
        ("n_pcs", "rep", options.n_pcs == 0 and options.rep is not None),  # no genes are fitted themselves
        ("smooth", "init", genes and options.smooth is not None and options.init is not None),
        ("totals", "transform", options.transform == "pearson" and options.totals != "all"),
        # a gene is scaled by its standard deviation afterwards, or its residuals are
        ("target_sum", "transform", transform in ("none", "pearson") and options.target_sum != FitOptions.target_sum),
        ("clip", "transform", transform == "pearson" and options.clip != FitOptions.clip),
        ("step_factor", "step_size", options.step_factor is not None and options.step_size is not None),
        ("step_factor", "step_mean", options.step_factor is not None and _has_fixed_steps(options)),
    )
    return found + [(idle, name) for idle, name, is_idle in others if is_idle]


def _has_fixed_steps(options: FitOptions) -> bool:
    """Whether every block has a step that the user fixed; compositions have a block without such an option."""
    return options.states == "off" and options.step_mean is not None and options.step_log_variance is not None


def idle_options_of(options: FitOptions, *, with_states: bool) -> list[str]:
    """Return the options that were set but have no effect where domains have states, or where they have none."""
    if not with_states:
        return _set_among(options, _IDLE_WITHOUT_STATES)
    flow = () if options.save_graph else ("flow_neighbors",)  # edges along layers need none, but it may be stored
    averages = () if options.init in (None, KMEANS) else ("smooth",)  # they serve restarts alone
    return _set_among(options, _IDLE_WITH_STATES + flow + averages)


def _set_among(options: FitOptions, names: tuple[str, ...]) -> list[str]:
    return [f.name for f in fields(options) if f.name in names and getattr(options, f.name) != f.default]


def option_as_set(options: FitOptions, name: str) -> str:
    """Return the placeholder of an option for a text, with its value where that turns something off."""
    value = getattr(options, name)
    turns_off = value is False or value in ("off", "none") or (name == "n_pcs" and value == 0)
    return option(name, value) if turns_off else option(name)
