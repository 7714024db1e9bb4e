"""A pytest plugin (`-p tests.kept`) that keeps which tests have passed and how long each took.

With `--passed FILE`, tests whose names stand in FILE are not run again, and each that passes is added to it at once, so
that a run that was stopped goes on from there. With `--seconds FILE`, the seconds of each test function (summed over
its parameters, with what it set up) are laid over those in FILE, a JSON object. With `--no-later SECONDS`, tests that
would begin later than that are skipped.
"""

import json
import time
from collections import defaultdict
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", type=Path, help="file of tests that need not run again")
    parser.addoption("--seconds", type=Path, help="JSON file of each test function's seconds")
    parser.addoption("--no-later", type=float, metavar="SECONDS", help="skip tests that would begin later than this")


def function(nodeid: str) -> str:
    """The test function, without its parameters."""
    return nodeid.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file = config.getoption("--passed")
    passed = set(file.read_text().splitlines()) if file and file.exists() else set()
    again = [item for item in items if item.nodeid in passed]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item.nodeid not in passed]


BEGAN = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[BEGAN] = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = item.config.getoption("--no-later")
    if limit is not None and time.monotonic() - item.config.stash[BEGAN] > limit:
        pytest.skip("left out: the time for further slow tests is over")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # in xdist's controller, or without xdist
        config.pluginmanager.register(Recorder(config.getoption("--passed"), config.getoption("--seconds")))


class Recorder:
    """Writes what the reports say, in the process that gets those of all workers."""

    def __init__(self, passed: Path | None, seconds: Path | None) -> None:
        self.passed, self.seconds = passed, seconds
        self.taken: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.skipped: set[str] = set()  # functions of which a test was skipped, so that its seconds say little

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.taken[function(report.nodeid)] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)
        if report.skipped:
            self.skipped.add(function(report.nodeid))
        if report.when == "teardown" and self.passed and report.nodeid not in self.failed:
            self.passed.parent.mkdir(parents=True, exist_ok=True)
            with self.passed.open("a") as file:
                file.write(f"{report.nodeid}\n")

    def pytest_sessionfinish(self) -> None:
        if self.seconds and self.taken:
            before = json.loads(self.seconds.read_text()) if self.seconds.exists() else {}
            timed = self.taken.keys() - self.skipped
            rounded = {name: round(seconds, 1) for name, seconds in self.taken.items() if name in timed}
            self.seconds.parent.mkdir(parents=True, exist_ok=True)
            self.seconds.write_text(json.dumps({**before, **rounded}, indent=0, sort_keys=True) + "\n")
