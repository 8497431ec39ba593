"""Real sections are fitted as users fit them."""

import pytest

from spatialpdvi.options import states


@pytest.fixture(scope="session", autouse=True)
def usual_searches(defaults_of_toys):
    """As many searches as by default, which floors of accuracy are about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_SETS", defaults_of_toys[states, "_SETS"])
        yield
