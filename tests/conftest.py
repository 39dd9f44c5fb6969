"""Fixtures of the suite: an engine for each test, bodies that the test steers, and a hard time limit that shows
every stack.
"""

import faulthandler
import os

import pytest
from steering import Steered

import shoal

HARD_LIMIT = 120
_stderr = None


def pytest_configure(config):
    global _stderr
    _stderr = os.fdopen(os.dup(2), "w")
    config.addinivalue_line("markers", "hard_limit(seconds): after these the process shows all stacks and ends")


@pytest.fixture(autouse=True)
def hard_limit(request):
    """A hang ends the run, with the stack of every thread."""
    marker = request.node.get_closest_marker("hard_limit")
    faulthandler.dump_traceback_later(marker.args[0] if marker else HARD_LIMIT, exit=True, file=_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def make_engine():
    """Makes engines that are closed, and what runs on them cancelled, when the test ends."""
    engines = []

    def make(workers=2, **options):
        engines.append(shoal.Engine(workers=workers, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close(cancel=True)


@pytest.fixture
def engine(make_engine):
    return make_engine(workers=4)


@pytest.fixture
def steered(make_engine):
    """Makes steered bodies; those that still block are let go before the engines are closed."""
    bodies = []

    def make():
        bodies.append(Steered())
        return bodies[-1]

    yield make
    for body in bodies:
        body.release_all()


@pytest.fixture
def held(steered, make_engine):
    """Spawns a steered set on an engine of its own (`held.engine`): `held(count, workers=..., **options)` gives
    body and set.
    """

    def make(count=None, *, workers=4, items=None, **options):
        body = steered()
        options.setdefault("chunk", 1)
        make.engine = make_engine(workers=workers)
        instances = shoal.spawn(body, items, count=count, engine=make.engine, **options)
        return body, instances

    return make
