"""One torch thread per worker, shapes checked at every call, and the same hypothesis examples on every machine."""

import gc
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import jaxtyping
import pytest
import support.shapes  # noqa: F401 (jaxtyping finds the checker by its name)
import torch

jaxtyping.install_import_hook(["fillin", "fillin_studies"], "support.shapes.check")  # every call checks its shapes
torch.set_num_threads(1)


def pytest_sessionstart() -> None:
    """Refuse to test another checkout, whose editable install precedes PYTHONPATH."""
    import fillin

    tested, here = Path(fillin.__file__).resolve().parents[2], Path(__file__).resolve().parents[1]
    if tested != here and (tested / "pyproject.toml").exists():
        pytest.exit(f"fillin is installed from {tested}, and these are the tests of {here}: run `make setup` here", 4)


def pytest_configure(config: pytest.Config) -> None:
    """Three examples of each property in `make test`, six in `make test-all`: a battery runs over every model."""
    hypothesis.settings.register_profile(
        "suite",
        max_examples=3 if config.getoption("markexpr") == "not slow" else 6,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        deadline=None,
        derandomize=True,
        database=None,
    )
    hypothesis.settings.load_profile("suite")


def pytest_collection_finish() -> None:
    """Exclude imported modules from garbage collection, which would take a third of a second each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


# Tests of applications call the functions whose shapes the tests of attention, layers, models, data and training check.
# There the checks would take a fifth of the time of `make test`; `make test-all` checks shapes everywhere.
_APPLICATIONS = ("estimators", "fill", "play", "studies")


@pytest.fixture(autouse=True, scope="module")
def _shape_checks(request):
    """Shape checks are off in tests of applications, unless the slow tests run too."""
    quick = request.config.getoption("markexpr") == "not slow" and request.path.parent.name in _APPLICATIONS
    jaxtyping.config.update("jaxtyping_disable", quick)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def unchecked():
    """As users have it: without the shape checks of the test run, which would complain first."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def play_server():
    """A running `fillin play` without tight limits."""
    from support.play_server import run_server

    with run_server() as server:
        yield server


@pytest.fixture(scope="session")
def client(play_server):
    import httpx
    from support.helpers import TIMEOUT

    with httpx.Client(base_url=play_server.url, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture(scope="module")
def browser():
    """Chromium. Not for the whole session: while Playwright runs, no test may run an event loop of its own."""
    from support.browser import launch_chromium

    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # the tests of the API check shapes; here they take time
    with launch_chromium() as browser:
        yield browser
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def visitor(browser, play_server):
    """Visitor of the page for all tests of a module. Console messages and requests to other servers fail."""
    from support.browser import Visitor

    visitor = Visitor(browser, play_server.url)
    visitor.page.goto(play_server.url)
    yield visitor
    assert visitor.problems == []
    assert visitor.max_in_flight == 1


@pytest.fixture(scope="module")
def page(visitor):
    return visitor.page
