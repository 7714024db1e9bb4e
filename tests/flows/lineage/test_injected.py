"""Code that Python runs in every process beside what is on record: it is named, and `verify` and the audit's own runs
go without it.
"""

import os
import sys
from pathlib import Path

import pytest

from flows.lineage import execution_record, verifying
from flows.lineage.reproduction import command
from tasks.common import run_environment
from tests.flows import unsupervised
from tests.flows.lineage.audited import Audited

PATCH = """
import json
plain = json.dumps
json.dumps = lambda content, **more: plain(content, **more).replace("0.5", "0.7")
"""
DEBIAN = """\
# install the apport exception handler if available
try:
    import apport_python_hook
except ImportError:
    pass
else:
    apport_python_hook.install()
"""


@pytest.fixture(autouse=True)
def _no_module_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in run_environment.STARTUP:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def patched(audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audited:
    """All stages ran while a sitecustomize in PYTHONPATH made 0.7 of each 0.5 that they wrote."""
    folder = tmp_path / "customized"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PATCH)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(unsupervised, "PYTHON", unsupervised.PYTHON.replace(" -S ", " "))  # as Python starts otherwise
    audited.pipeline(force=[*audited.lock["stages"]])
    assert '"mean": 0.7' in audited.read("data/metrics/evaluate@b.json")
    return audited


def test_what_ran_first_is_recorded_and_named(patched: Audited, tmp_path: Path) -> None:
    folder = tmp_path / "customized"
    said = {finding.where: finding.what for finding in patched.audit().remarks}
    assert said.keys() == {"sitecustomize", "PYTHONPATH"}
    assert said["sitecustomize"].startswith(f"{folder / 'sitecustomize.py'} (SHA-256 ")
    assert "could change what a, b, c and 3 more did; `posttrain verify` runs without it" in said["sitecustomize"]
    assert said["PYTHONPATH"].startswith(f"{folder} (SHA-256 ")


def test_verify_runs_without_it_and_differs(patched: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    for still_set in (True, False):
        if not still_set:
            monkeypatch.delenv("PYTHONPATH")
        wanted = verifying.resolve_execution_record(patched.root, "evaluate@b")
        found = verifying.verify_execution(patched.root, wanted, lambda line: None, lambda *steps: None)
        assert found.verdict == "differs"
        assert [line.path for line in found.differences] == ["data/metrics/evaluate@b.json"]
        assert {found.environment[name][1] for name in ("sitecustomize", "PYTHONPATH")} == {"left out"}


@pytest.mark.parametrize("name", run_environment.STARTUP)
def test_a_module_that_runs_first_is_found_and_hashed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.ENABLE_USER_SITE", True)
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path))
    monkeypatch.setattr("site.getsitepackages", lambda: [])
    assert run_environment.find_injected_code() == {}
    file = tmp_path / f"{name}.py"
    file.write_text("print()\n")
    first = run_environment.find_injected_code()
    assert first[name].startswith(f"{file} ")
    file.write_text("print(1)\n")
    assert run_environment.find_injected_code()[name] != first[name]
    assert run_environment.filter_foreign_injections(first) == first


def test_a_distribution_s_own_is_recorded_and_no_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    (tmp_path / "sitecustomize.py").write_text(DEBIAN)
    found = run_environment.find_injected_code()
    assert found["sitecustomize"].startswith(str(tmp_path))
    assert run_environment.filter_foreign_injections(found) == {}
    (tmp_path / "sitecustomize.py").write_text(DEBIAN + "import os\n")
    assert run_environment.filter_foreign_injections(run_environment.find_injected_code()).keys() == {"sitecustomize"}


def test_modules_in_the_folders_of_pythonpath_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), "", str(Path(run_environment.__file__).parents[2])])
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/module.py").write_text("VALUE = 1\n")
    first = run_environment.find_injected_code()["PYTHONPATH"]
    assert first.startswith(f"{tmp_path} "), "without this package's own folder"
    (tmp_path / "notes.txt").write_text("no module")
    assert run_environment.find_injected_code()["PYTHONPATH"] == first
    (tmp_path / "inner/module.py").write_text("VALUE = 2\n")
    assert run_environment.find_injected_code()["PYTHONPATH"] != first


def test_the_command_of_a_copy_has_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = command.build_reproduction_environment(execution_record.ExecutionRecord("a", {}), tmp_path)
    assert "/elsewhere" not in variables["PYTHONPATH"].split(os.pathsep)
    assert variables["PYTHONPATH"].split(os.pathsep)[1:] == [str(tmp_path)]


REPORT_PATCH = """
import pathlib
plain = pathlib.Path.write_text
pathlib.Path.write_text = lambda file, text: plain(file, text.replace("<td>0.5</td>", "<td>0.7</td>"))
"""


def test_a_headline_that_a_sitecustomize_changed(
    audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report alone ran with it: its number is another than the evaluations'."""
    (tmp_path / "sitecustomize.py").write_text(REPORT_PATCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(unsupervised, "PYTHON", unsupervised.PYTHON.replace(" -S ", " "))
    audited.pipeline(force=["report"])
    assert "<td>0.7</td>" in audited.read("report.html")
    [fault] = audited.faults()
    assert fault.startswith("data/report/report.html: made again from what report read, it differs: line 3: ")
    assert all(part in fault for part in ("0.7", "0.5"))
    monkeypatch.delenv("PYTHONPATH")
    assert audited.faults() == [fault], "as noted"
    assert audited.faults(full=True) == [fault]


def test_what_verify_made_otherwise_is_a_fault_of_the_audit(patched: Audited) -> None:
    assert patched.faults() == [], "an evaluation takes minutes and is not made again by an audit"
    wanted = verifying.resolve_execution_record(patched.root, "evaluate@b")
    verifying.verify_execution(patched.root, wanted, lambda line: None, lambda *steps: None)
    [fault] = patched.faults()
    assert fault.startswith("data/metrics/evaluate@b.json: made again from what evaluate@b read, it differs: ")
