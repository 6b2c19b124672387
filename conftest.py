"""Makes hypothesis's examples depend on nothing but a seed and the name of the test, in `tests/` and `e2e/`.

`npm test` has the same examples on every machine; `npm run test:random` has others and prints their seed.

The files of unit tests that take longest come first, so that the processes which share them end at about the
same time.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, seed, settings
from hypothesis.internal.conjecture import providers

FIXED_SEED = "0"

#: The files of unit tests that take longest, longest first. What takes less fills the gaps in any order.
LONGEST = (
    "tests/test_shaders.py",
    "tests/test_adapters.py",
    "tests/test_out_of_memory.py",
    "tests/test_models_smollm2_reference.py",
    "tests/test_tuning.py",
    "tests/test_turboquant.py",
)

# No limits on time and nothing kept from earlier runs: machines that run tests are busy, and differ.
settings.register_profile(
    "py_attn", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("py_attn")

# Hypothesis also draws constants from the source of every local module that has been imported so far, and has
# no setting for that. Examples would depend on which tests were selected and on where the checkout lies.
providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first; tests of a file stay in their order."""
    places = {config.rootpath / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed a test's examples by its name, so that they survive an edit or a move to another module."""
    test = getattr(item, "obj", None)
    if is_hypothesis_test(test):
        run_seed = item.config.getoption("--hypothesis-seed") or FIXED_SEED
        seed(f"{run_seed} {item.name}")(test)
