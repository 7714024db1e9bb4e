"""The campaign of faults: a sample of it passes, and it notices the damage that it should notice."""

import json
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from dvc.repo import Repo

from benchmarks import fault_edges, fault_inputs, fault_runs, fault_strangers, faults
from benchmarks.fault_runs import Toy
from tests.flows.unsupervised import without_supervisors

SECTIONS = [name for name in fault_edges.PARAMS if name != fault_edges.SEED]
SAMPLE = {"kills": 6, "errors": 6, "signals": 2, "flows": 1, "together": 3}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_random_sample_of_faults_leaves_nothing_broken(name: str) -> None:
    """A new sample each time, or the one of SEED_OF_TESTS; the seed is printed with each failure, so that it can be
    repeated.
    """
    seed = int(os.environ.get("SEED_OF_TESTS") or random.SystemRandom().randrange(10**6))
    outcome = faults.run_campaigns([name], SAMPLE[name], seed)[name]
    assert outcome.trials == SAMPLE[name]
    assert outcome.failures == [], f"--seed {seed} --sample {SAMPLE[name]}"


@pytest.mark.slow
def test_every_bad_value_is_refused_in_one_line() -> None:
    outcome = faults.run_campaigns(["inputs"], None, 0)["inputs"]
    assert outcome.failures == []
    assert outcome.trials > 2000


def test_some_bad_values_are_refused_in_one_line() -> None:
    assert faults.run_campaigns(["inputs"], 60, 1)["inputs"].failures == []


@pytest.mark.slow
def test_whatever_strangers_write_is_right_or_one_line() -> None:
    outcome = faults.run_campaigns(["strangers"], None, 0)["strangers"]
    assert outcome.failures == []
    assert outcome.trials > 90


def test_some_of_what_strangers_write_is_right_or_one_line() -> None:
    assert faults.run_campaigns(["strangers"], 6, 1)["strangers"].failures == []


def test_values_of_another_call_and_long_lines_are_noticed() -> None:
    late = SimpleNamespace(values=[3.0, 1.0], failed=[False, False])
    assert fault_strangers._find_call_faults(lambda *_: late, [3, 2]) == ["responses of [3, 2] letters got [3.0, 1.0]"]
    assert fault_strangers._find_line_faults("x" * 2101)
    assert fault_strangers._find_line_faults("a\x1b[31m")
    assert not fault_strangers._find_line_faults("expected a number")


def test_some_values_at_the_edges_of_parameters_are_refused_in_one_line_or_read_by_dvc_as_the_same() -> None:
    """All of them: `python -m benchmarks.fault_edges`."""
    trials = [(key, text) for name in SECTIONS for key, text in fault_edges.iterate_edge_values(name)]
    assert len({key for key, _ in trials}) > 800
    assert min(Counter(key for key, _ in trials).values()) >= 20
    rng, failures = random.Random(2), []
    plain = [trial for trial in trials if not fault_edges.is_key_in_pipeline(trial[0])]
    for key, text in rng.sample(plain, 60):
        failures += fault_edges.try_edge_value(key, text)[1]
    assert failures == []


@pytest.mark.slow
def test_values_at_the_edges_of_what_dvc_yaml_names_are_refused_in_one_line_or_planned() -> None:
    trials = [(key, text) for name in SECTIONS for key, text in fault_edges.iterate_edge_values(name)]
    named = [trial for trial in trials if fault_edges.is_key_in_pipeline(trial[0])]
    for key, text in random.Random(3).sample(named, 60):
        assert fault_edges.try_edge_value(key, text)[1] == [], f"{key}={text}"


def test_deep_and_aliased_yaml_is_one_line() -> None:
    assert faults.run_campaigns(["yaml"], 12, 4)["yaml"].failures == []


@pytest.mark.slow
def test_all_deep_and_aliased_yaml_is_one_line() -> None:
    assert faults.run_campaigns(["yaml"], None, 0)["yaml"].failures == []


def test_a_value_that_dvc_reads_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_edges, "dumps_yaml", lambda data: json.dumps({**data, "train": 1}))
    assert fault_edges.try_edge_value("problems.train", "5") == (True, ["DVC reads something else from its own record"])


def test_a_value_that_is_taken_is_noticed(tmp_path: Path) -> None:
    assert fault_inputs.find_refusal_faults(tmp_path, "dpo.beta", 0.2) == ["taken", "params.yaml was changed"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path) -> Iterator[Toy]:
    """A pipeline that ran once, without supervisors, with a database made before; what its runs import is imported
    here, and not in each child.
    """
    from flows.engine.mlflow_flow_recorder import FlowRecorder  # noqa: F401
    from flows.lineage.chain import trace_lineage  # noqa: F401

    folder, make = tmp_path_factory.mktemp("faults"), fault_runs.create_toy_pipeline

    def run(command: list[object], **options: object) -> None:
        if "dvc" in command:
            Repo.init(str(options["cwd"])).close()  # in this process: its imports take longest
        else:
            subprocess.run(command, **options)

    def with_database(root: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fault_runs, "subprocess", SimpleNamespace(run=run))
            make(root)
        (root / "mlruns").mkdir()
        shutil.copy(empty_mlflow, root / "mlruns/mlflow.db")

    with pytest.MonkeyPatch.context() as patch:
        without_supervisors(patch)
        patch.setattr(fault_runs, "create_toy_pipeline", with_database)
        patch.setenv("DVC_SITE_CACHE_DIR", str(folder / "site"))  # as `prepared` does
        patch.setenv("DVC_NO_ANALYTICS", "1")
        yield Toy.prepared(folder, "again")


def test_a_kill_comes_where_it_is_asked_for_and_what_a_fault_may_leave_is_noticed(toy: Toy) -> None:
    """A kill before the first change leaves nothing done; the 10,000th change never comes.

    Then each kind of damage, made by hand.
    """
    with toy.copy() as root:

        def stopped(at: int) -> int:
            def act(count: int) -> None:
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)

            def run() -> None:
                fault_runs.call_before_file_changes(root, act)
                fault_runs.run_pipeline_in_process(root)

            return fault_runs.run_in_child_process(run)[0]

        def found() -> list[str]:
            return fault_runs.find_pipeline_faults(root, lineage=True)

        lock = (root / "dvc.lock").read_bytes()
        assert stopped(1) == -signal.SIGKILL
        assert (root / "dvc.lock").read_bytes() == lock
        assert stopped(10_000) == 0
        assert (root / "dvc.lock").read_bytes() != lock
        assert found() == []
        (root / ".dvc/tmp/posttrain/previous/b").mkdir(parents=True)
        assert found() == [".dvc/tmp/posttrain/previous is not empty"]
        (root / ".dvc/tmp/posttrain/previous/b").rmdir()
        (root / ".dvc/tmp/rwlock").write_text(json.dumps({"read": {"a": []}}))
        assert found()[0].startswith("still reserved: ")
        (root / ".dvc/tmp/rwlock").unlink()
        text = root / "data/c/text"
        text.unlink()  # a link into the cache
        text.write_text("other")
        assert [line.split(" ")[0] for line in found()] == ["data/c", "c", "d"]
        fault_runs.execute_mlflow_sql(root, "UPDATE runs SET status = 'RUNNING' WHERE name = 'd'")
        broken = found()
        assert "the run of d is left as running" in broken
        assert any("the chain breaks here" in line for line in broken)


def test_the_page_shows_what_failed() -> None:
    one = {
        "trials": 3,
        "failures": ["first, kill at change 7: data/a holds None"],
        "seconds": 90.0,
        "sample": 3,
        "seed": 5,
    }
    page = faults.render({"conditions": "A machine.", "campaigns": {"kills": one}, "untried": ["Not tried: much."]})
    assert "| 3 | a sample | 1 | 1.5 | 5 |" in page
    assert "- kills: first, kill at change 7: data/a holds None" in page
    assert page.endswith("Not tried: much.\n")
