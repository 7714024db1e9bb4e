"""Two clones that run at once with one MLflow server and one Prefect server, both on PostgreSQL; skipped where that is
not installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import join_out_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.lineage.auditing import audit_lineage
from flows.lineage.chain import trace_lineage
from tasks.common import mlflow_address
from tests import postgres
from tests.clone import ROOT, Clone
from tests.flows.engine.records.test_mlflow_remote_reader import entry
from tests.flows.lineage.test_chain import flat
from tests.postgres import AUTHORISED, PASSWORD, Cluster
from tests.test_pipeline import TINY

pytestmark = pytest.mark.slow
LAST = "pretrained"
STAGES = {"code", "problems", "corpus", "tokenizer", "pretrained"}


@dataclass(frozen=True)
class Shared:
    """The cluster, the servers' addresses, the clones, and what each said of its run."""

    cluster: Cluster
    home: Path
    variables: Mapping[str, str]
    clones: tuple[Clone, Clone]
    results: tuple[dict[str, dict[str, str]], ...]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Two clones, of which the second trains with another seed, have run at the same time."""
    home = tmp_path_factory.mktemp("servers")
    with postgres.cluster("mlflow", "prefect", "direct") as cluster, postgres.servers(cluster, home) as variables:
        first = Clone.of_this(tmp_path_factory.mktemp("first") / "clone", TINY)
        second = first.twin(tmp_path_factory.mktemp("second") / "clone")
        second.edit({LAST: {"seed": 7}})
        clones = (first, second)
        for clone in clones:
            clone.variables |= variables
        with ThreadPoolExecutor(2) as pool:
            results = tuple(pool.map(lambda clone: clone.posttrain("run", LAST), clones))
        yield Shared(cluster, home, variables, clones, results)


def test_both_run_to_the_end_and_none_ends_the_other_s_runs(shared: Shared) -> None:
    for result in shared.results:
        assert {stage: facts["state"] for stage, facts in result.items()} == dict.fromkeys(STAGES, "ran")
    statuses = shared.cluster.sql("mlflow", "SELECT status FROM runs")
    assert statuses == ["FINISHED"] * (2 * len(STAGES) + 2)
    states = shared.cluster.sql("prefect", "SELECT state_type FROM flow_run")
    assert states == ["COMPLETED"] * 2


@pytest.fixture
def of_server(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """This process too asks the server."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", shared.variables["MLFLOW_TRACKING_URI"])
    return shared


def test_each_clone_s_lineage_leads_to_its_own_runs_and_is_audited_clean(of_server: Shared) -> None:
    ids, seeds = set[str](), set[str]()
    for clone, result in zip(of_server.clones, of_server.results, strict=True):
        own = {facts["mlflow_run_id"] for facts in result.values()}
        links = flat(trace_lineage(clone.root, LAST))
        made = {facts["mlflow_run_id"] for stage, facts in result.items() if stage != "code"}
        assert {link.run_id for link in links.values() if link.stage} == made
        found = audit_lineage(clone.root, everything=True, full=True)
        assert [fault.line for fault in found.faults] == []
        assert found.counts["runs"] == len(STAGES) + 1
        seeds |= {link.params["pretrained.seed"] for link in links.values() if link.stage == LAST}
        ids |= own
        assert not (clone.root / "mlruns/mlflow.db").exists()
    assert len(ids) == 2 * len(STAGES)
    assert len(seeds) == 2


def test_the_commands_ask_the_server(shared: Shared) -> None:
    first, second = shared.clones
    asked = {
        command: json.loads(first.call(sys.executable, "-m", "flows.cli", *command.split(), "--json"))
        for command in ("runs", f"audit {LAST}", f"lineage {shared.results[1][LAST]['mlflow_run_id']}")
    }
    runs, audited, lineage = asked.values()
    assert len(runs) == 2, "of both clones"
    assert audited["faults"] == []
    [md5] = [out["md5"] for out in second.lock[LAST]["outs"] if out["path"] == "data/pretrained"]
    assert lineage["of"] == f"data/pretrained@{md5}", "what the other clone made"
    assert shared.cluster.sql("mlflow", "SELECT version FROM model_versions ORDER BY 1") == ["1", "2"]
    page = first.call(sys.executable, "-m", "flows.cli", "ui")
    mlflow, prefect = (shared.variables[name] for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL"))
    assert (
        page == f"Prefect  {prefect.removesuffix('/api')} (PREFECT_API_URL)\nMLflow   {mlflow} (MLFLOW_TRACKING_URI)\n"
    )


def test_plain_dvc_repro_records_there_and_is_adopted(of_server: Shared) -> None:
    clone = of_server.clones[0]
    clone.dvc("repro", "--single-item", "demonstrations")
    result = clone.posttrain("run", "demonstrations")
    run_id = result["demonstrations"]["mlflow_run_id"]
    tags = mlflow_run_lookup.get_finished_run(clone.root, run_id).tags
    assert tags["posttrain.adopted"] == "true"
    assert tags["posttrain.clone"] == mlflow_address.load_or_create_clone_id(clone.root)
    assert audit_lineage(clone.root, "demonstrations").faults == []


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PREFECT_API_AUTH_STRING", "somebody:wr0ng-made-up", "it asks who this is: set PREFECT_API_AUTH_STRING"),
        (
            "PREFECT_API_URL",
            "http://who:wr0ng-made-up@127.0.0.1:9/api",
            "http://127.0.0.1:9/api: [Errno 111] Connection refused",
        ),
        (
            "MLFLOW_TRACKING_URI",
            "http://who:wr0ng-made-up@127.0.0.1:9",
            "http://127.0.0.1:9: cannot be reached: [Errno 111] Connection refused",
        ),
        ("MLFLOW_TRACKING_URI", "PREFECT_API_URL", "it asks for a user: set MLFLOW_TRACKING_USERNAME"),
    ],
)
def test_a_server_that_does_not_answer_is_one_line_before_anything_runs(
    shared: Shared, variable: str, value: str, said: str
) -> None:
    clone = shared.clones[1]
    lock = (clone.root / "dvc.lock").read_bytes()
    wrong = {variable: shared.variables[value].removesuffix("/api") if value in shared.variables else value}
    done = posttrain(clone, wrong, "run", "problems", "--force", "problems")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "wr0ng" not in done.stdout + done.stderr
    assert (clone.root / "dvc.lock").read_bytes() == lock
    assert shared.cluster.sql("mlflow", "SELECT count(*) FROM runs WHERE status = 'RUNNING'") == ["0"]


def posttrain(clone: Clone, variables: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(clone.root), **clone.variables, **variables}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, cwd=clone.root, env=environ, capture_output=True, text=True, check=False)


RECORD = (
    "from pathlib import Path; from tests.flows.engine.records.test_mlflow_remote_reader import recorded; "
    "recorded(Path(), 'a')"
)


def test_a_database_is_used_directly_and_its_password_is_nowhere(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes begin with an empty database at once: one makes the tables.

    The files are in the folder of one of them.
    """
    address = shared.cluster.address("direct")
    environ = {**os.environ, "MLFLOW_TRACKING_URI": address}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        command = [sys.executable, "-c", RECORD]
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path / name, env=environ, text=True, stderr=subprocess.STDOUT, stdout=subprocess.PIPE
            )
        )
    for process in started:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert PASSWORD not in said
    assert shared.cluster.sql("direct", "SELECT count(*) FROM runs WHERE status = 'FINISHED'") == ["2"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    key, outs = compute_run_cache_key(entry("a")), join_out_hashes(entry("a"))
    makers = {mlflow_run_lookup.find_maker_run(tmp_path / name, key, outs) for name in ("first", "second")}
    assert len(makers) == 2, "each its own"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", shared.cluster.address("nowhere"))
    with pytest.raises(
        PlanError, match=r'^postgresql://127\.0\.0\.1:\d+/nowhere: .*database "nowhere" does not exist'
    ) as caught:
        mlflow_client.open_mlflow_client_after_recording(tmp_path)
    assert quote(PASSWORD, safe="") not in str(caught.value)
    shared.cluster.sql("direct", "UPDATE alembic_version SET version_num = '0123456789ab'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address + "?application_name=x")  # MLflow looks once in each process
    with pytest.raises(PlanError, match="are not known to MLflow") as caught:
        mlflow_client.open_mlflow_client_after_recording(tmp_path)
    assert quote(PASSWORD, safe="") not in str(caught.value)


def test_no_password_is_written_anywhere(shared: Shared, tmp_path: Path) -> None:
    """Neither in the clones, nor in what the servers keep and log."""
    secrets = [text.encode() for text in (PASSWORD, quote(PASSWORD, safe=""), AUTHORISED, AUTHORISED.partition(":")[2])]
    folders = [shared.home, tmp_path.parent, *(clone.root.parent for clone in shared.clones)]
    written = [
        str(file)
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and any(secret in file.read_bytes() for secret in secrets)
    ]
    assert written == []
    for database in ("mlflow", "prefect", "direct"):
        dumped = shared.cluster.dump(database)
        assert not [secret for secret in secrets if secret in dumped], database
