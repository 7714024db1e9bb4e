"""A run that is killed with -9, at every moment that leaves something else behind, leaves nothing that an audit calls
wrong.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.lineage.audited import Audited
from tests.flows.toy_pipeline import REPOSITORY

MOMENTS = [
    "flows.engine.mlflow_flow_recorder.FlowRecorder.start before 1",
    "flows.engine.mlflow_flow_recorder.FlowRecorder.start after 1",
    "flows.engine.dvc_stage.StageRecords.make_way after 1",
    "flows.engine.dvc_stage.StageRecords.save_outs after 2",
    "tests.flows.lineage.audited.Recorder.made after 1",
    "flows.engine.dvc_stage.write_entry before 2",
    "flows.engine.dvc_stage.write_entry after 1",
    "flows.engine.mlflow_client.seal_run before 1",
    "flows.engine.mlflow_client.seal_run after 2",
    "flows.engine.mlflow_flow_recorder.FlowRecorder.close before 1",
    "flows.engine.mlflow_flow_recorder.FlowRecorder.close after 1",
    "flows.web.run_page.write before 2",
    "flows.web.run_page.write after 2",
    "flows.engine.mlflow_client.log_params_and_metrics after 1",
    "flows.engine.mlflow_client.seal_run before 3",
]
RUNS = """
import os, pkgutil, signal, sys
from pathlib import Path
from tests.flows.lineage.audited import Audited

def strikes(moment):
    place, when, count = moment.split()
    owner, _, name = place.rpartition(".")
    owner, left = pkgutil.resolve_name(owner), [int(count)]
    before = getattr(owner, name)
    def call(*given, **options):
        left[0] -= 1
        if not left[0] and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = before(*given, **options)
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, call)

for moment, root in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if not child:
        os.chdir(root)
        strikes(moment)
        toy = Audited.opened(Path(root))
        toy.change("b", beta=0.3)
        toy.pipeline()
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_no_fault(audited_once: Audited, tmp_path: Path) -> None:
    copies = [audited_once.at(tmp_path / str(index)) for index in range(len(MOMENTS))]
    given = [text for moment, toy in zip(MOMENTS, copies, strict=True) for text in (moment, str(toy.root))]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", RUNS, *given], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["9"] * len(MOMENTS), (done.stdout, done.stderr)
    faults, said, later = {}, {}, {}
    for moment, toy in zip(MOMENTS, copies, strict=True):
        audit = toy.audit()
        faults[moment] = [finding.line for finding in audit.faults]
        said[moment] = [finding.line for finding in audit.remarks]
        toy.pipeline()
        audit = toy.audit(everything=True)
        later[moment] = [finding.line for finding in audit.faults]
    assert not {moment: found for moment, found in faults.items() if found}
    assert not {moment: found for moment, found in later.items() if found}
    assert any("did not finish" in line for found in said.values() for line in found)
