"""Each way to falsify a result, done for real; `audit` names what was changed, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.engine import mlflow_seal
from tests.flows.lineage.audited import Audited, flip, replace


def only(audited: Audited, *parts: str, of: str | None = None, **options: bool) -> str:
    """The one fault, which has all these parts."""
    faults = audited.faults(of, **options)
    assert len(faults) == 1, faults
    assert all(part in faults[0] for part in parts), faults[0]
    return faults[0]


def exactly(faults: Sequence[str], *parts: str) -> None:
    """There is one fault for each of the parts, and no other."""
    assert len(faults) == len(parts), faults
    for part in parts:
        assert sum(part in line for line in faults) == 1, (part, faults)


def test_a_byte_in_a_checkpoint(audited: Audited) -> None:
    """Of b; of c with its size and time as before; and of a in the cache. Each is behind some results alone."""
    kept = audited.root / "data/c/model.bin"
    audited.audit()
    flip(audited.root / "data/b/model.bin")
    before = kept.stat()
    flip(kept)
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (kept.stat().st_size, kept.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    flip(audited.cached("data/a/model.bin"))
    of_a = "by its name: it is the cache's copy of data/a/model.bin"
    exactly(audited.faults(), "data/b/model.bin: its bytes are ", "data/c/model.bin: its bytes are ", of_a)
    behind_b = audited.faults("evaluate@b")
    exactly(behind_b, ", which b made (b, run ", of_a)
    assert any(line.startswith("data/b/model.bin: its bytes are ") for line in behind_b)
    line = only(audited, ".dvc/cache/files/md5/", "expected ", of_a, of="a")
    assert line.startswith(".dvc/cache/files/md5/")


def test_a_byte_in_the_cache_of_an_earlier_result(audited_once: Audited, thrice: Audited) -> None:
    flip(thrice.root / audited_once.cached("data/b/model.bin").relative_to(audited_once.root))
    assert thrice.faults() == [], "not behind the current results"
    only(thrice, "the cache's copy of data/b/model.bin", everything=True)


def test_the_cache_s_list_of_a_folder_and_code_and_a_parameter_after_the_run(audited: Audited) -> None:
    [listed] = [out["md5"] for out in audited.lock["stages"]["b"]["outs"] if out["path"] == "data/b"]
    file = audited.root / ".dvc/cache/files/md5" / listed[:2] / listed[2:]
    file.chmod(0o644)
    replace(file, '"table.csv"', '"tables.csv"')
    code = audited.root / "helper.py"
    code.write_text(code.read_text() + "# changed\n")
    audited.change("c", beta=0.7)
    faults = audited.faults()
    exactly(
        faults,
        "it is the cache's copy of the list of data/b's files",
        "helper.py: was changed after a, ",
        "params.yaml: param c.beta changed 0.1 -> 0.7 since c ran: it is out of date (c, run ",
    )
    assert any(" ran with it: they are out of date" in line for line in faults)


def test_files_of_a_folder(audited: Audited) -> None:
    """One is missing, one is more, and one has its rows in another order."""
    (audited.root / "data/b/table.csv").unlink()
    audited.write("data/c/other.bin", "x")
    table = audited.root / "data/a/table.csv"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(reversed(rows)))
    exactly(
        audited.faults(),
        "data/b/table.csv: is missing; expected ",
        "data/c/other.bin: is not among the files that c made",
        "data/a/table.csv: its bytes are ",
    )


def test_two_data_sets_swapped(audited: Audited) -> None:
    """Two folders, two raw files, and two files of a folder."""
    for left, right in (("data/b", "data/c"), ("data/raw/x.txt", "data/raw/y.txt")):
        swap(audited.root / left, audited.root / right)
    swap(audited.root / "data/a/model.bin", audited.root / "data/a/table.csv")
    faults = audited.faults()
    exactly(
        faults,
        "data/b: has the bytes of data/c, and data/c has those of data/b: they were swapped (b, run ",
        "data/raw/x.txt: has the bytes of data/raw/y.txt",
        "data/a/model.bin: has the bytes of table.csv, and that has its: they were swapped",
    )


def swap(left: Path, right: Path) -> None:
    """Give two files or folders each other's name."""
    aside = left.with_name("aside")
    left.rename(aside)
    right.rename(left)
    aside.rename(right)


def test_an_out_of_another_run(audited_once: Audited, thrice: Audited) -> None:
    """As an out that was restored from another branch: the bytes are right, but not of this result."""
    first = audited_once.run_of("b")
    shutil.rmtree(thrice.root / "data/b")
    shutil.copytree(audited_once.root / "data/b", thrice.root / "data/b")
    only(thrice, "data/b: its bytes are ", f"the bytes that run {first[:8]} of b made with b.beta 0.2 (b, run ")


def test_an_out_checked_out_from_another_branch(audited_once: Audited, thrice: Audited) -> None:
    """dvc.lock is of the branch as well, for that stage alone."""
    audited = thrice
    audited.git("checkout", "--quiet", "-b", "other")
    audited.commit()
    entry = audited.lock["stages"]["b"]
    audited.root.joinpath("dvc.lock").write_text(audited_once.root.joinpath("dvc.lock").read_text())
    audited.change("b", beta=0.2)
    audited.dvc("checkout")
    assert audited.faults() == []
    with_other = json.dumps({"schema": "2.0", "stages": {**audited.lock["stages"], "b": entry}})
    audited.root.joinpath("dvc.lock").write_text(with_other)
    audited.dvc("checkout")
    faults = audited.faults()
    assert any(
        "dvc.lock: evaluate@b: it read data/b " in line and "evaluate@b is out of date" in line for line in faults
    )
    assert any("params.yaml: param b.beta changed 0.3 -> 0.2 since b ran" in line for line in faults)


def test_without_a_run_a_branch_names_the_bytes(audited_once: Audited, thrice: Audited) -> None:
    now = thrice.root.joinpath("dvc.lock").read_text()
    thrice.root.joinpath("dvc.lock").write_text(audited_once.root.joinpath("dvc.lock").read_text())
    thrice.git("checkout", "--quiet", "-b", "other")
    thrice.git("add", "--force", "dvc.lock")
    thrice.commit()
    thrice.root.joinpath("dvc.lock").write_text(now)
    (thrice.root / "mlruns/mlflow.db").unlink()
    shutil.rmtree(thrice.root / "data/b")
    shutil.copytree(audited_once.root / "data/b", thrice.root / "data/b")
    assert any("that run " in line and "of b made with b.beta 0.2" in line for line in thrice.faults()), "by its record"
    shutil.rmtree(thrice.root / ".dvc/cache/runs/provenance")
    assert any("dvc.lock of other records these bytes" in line for line in thrice.faults())


SEALED = "a tag, a parameter, a metric or record.json of the run was changed after it ended"


@pytest.mark.parametrize(
    "changes",
    [
        {
            "a": ("UPDATE metrics SET value = 0.01 WHERE key = 'train/loss' AND step = 1", SEALED),
            "b": ("UPDATE params SET value = '0.7' WHERE key = 'b.beta'", "parameter b.beta is 0.7, its record.json has 0.2"),  # noqa: E501
            "c": ("DELETE FROM metrics WHERE key = 'rows'", "metric rows is missing, data/metrics/c.json has 3.0"),
            "report": ("UPDATE tags SET value = 'clean' WHERE key = 'posttrain.git_dirty'", "tag posttrain.git_dirty is clean, its record.json has no"),  # noqa: E501
            "evaluate@b": (
                "UPDATE metrics SET value = 0.9 WHERE key = 'strict_greedy/mean'",
                "metric strict_greedy/mean is 0.9, data/metrics/evaluate@b.json has 0.5 (evaluate@b, run ",
            ),
            "evaluate@c": (
                "UPDATE latest_metrics SET value = 0.9 WHERE key = 'strict_greedy/mean'",
                "MLflow's pages show metric strict_greedy/mean as 0.9, its history ends with 0.5",
            ),
        },
        {
            "a": ("UPDATE tags SET value = 'a better reason' WHERE key = 'posttrain.reason'", SEALED),
            "b": ("UPDATE tags SET value = '0123' WHERE key = 'posttrain.out.data/b'", "tag posttrain.out.data/b is 0123, its record.json has "),  # noqa: E501
            "c": ("UPDATE tags SET value = '0123' WHERE key = 'posttrain.key'", "tag posttrain.key is 0123, its record.json has "),  # noqa: E501
            "report": ("UPDATE tags SET value = 'H200' WHERE key = 'posttrain.env.platform'", "tag posttrain.env.platform is H200, its record.json has "),  # noqa: E501
            "evaluate@b": ("UPDATE tags SET value = '0123' WHERE key = 'posttrain.outs'", "tag posttrain.outs is 0123, its record.json has "),  # noqa: E501
            "evaluate@c": ("DELETE FROM tags WHERE key = 'posttrain.seal'", "its seal is gone"),
        },
    ],
    ids=["numbers", "tags"],
)  # fmt: skip
def test_values_in_mlflow_s_database(audited: Audited, changes: dict[str, tuple[str, str]]) -> None:
    """One of each run."""
    for stage, (statement, _) in changes.items():
        assert audited.sql(f"{statement} AND run_uuid = ?", audited.run_of(stage)) == 1
    faults = [line for line in audited.faults() if not line.startswith("pipeline run")]
    assert len(faults) == len(changes), faults
    for stage, (_, expected) in changes.items():
        [line] = [line for line in faults if line.startswith(f"MLflow's run of {stage}: ")]
        assert expected in line


def test_a_run_that_was_changed_and_sealed_anew(audited: Audited) -> None:
    """The seal of the pipeline run has the seal of before."""
    run_id = audited.run_of("b")
    audited.sql("UPDATE metrics SET value = 0.01 WHERE key = 'train/loss' AND step = 1 AND run_uuid = ?", run_id)
    seal = mlflow_seal.compute_run_seal(audited.root, run_id)
    audited.sql("UPDATE tags SET value = ? WHERE key = 'posttrain.seal' AND run_uuid = ?", seal, run_id)
    only(audited, "pipeline run ", f"the run of b has another seal than when it ended: {seal[:12]}, it was ")


def test_the_headline_of_a_pipeline_run(audited: Audited) -> None:
    """Of one policy its history, and of the other what MLflow's pages show."""
    for table, policy in (("metrics", "b"), ("latest_metrics", "c")):
        assert audited.sql(f"UPDATE {table} SET value = 0.9 WHERE key = '{policy}/strict_greedy'") in (1, 2)
    faults = audited.faults()
    for policy in ("b", "c"):
        line = f"metric {policy}/strict_greedy is 0.9, data/metrics/evaluate@{policy}.json has 0.5"
        assert any(line in fault for fault in faults), faults


def test_a_tag_of_a_pipeline_run(audited: Audited) -> None:
    query = "SELECT run_uuid FROM tags WHERE key = 'posttrain.previous'"
    audited.sql(f"UPDATE tags SET value = 'none' WHERE key = 'posttrain.changes' AND run_uuid IN ({query})")
    only(audited, "pipeline run ", "a tag, a parameter or a metric of the pipeline run was changed after it ended")


def test_a_tag_of_the_pipeline_run_before(audited: Audited) -> None:
    query = "SELECT run_uuid FROM tags WHERE key = 'posttrain.previous'"
    flow = "SELECT run_uuid FROM tags WHERE key = 'posttrain.flow'"
    before = f"run_uuid IN ({flow}) AND run_uuid NOT IN ({query})"
    assert audited.sql(f"UPDATE tags SET value = 'none' WHERE key = 'posttrain.changes' AND {before}") == 1
    only(audited, "a tag, a parameter or a metric of the pipeline run was changed after ", " had seen its seal")
    audited.sql(f"DELETE FROM runs WHERE {before}")
    faults = audited.faults()
    assert any(
        "the pipeline run before it, " in line and "was deleted from MLflow's database" in line for line in faults
    )


Change = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    "changes",
    [
        {
            "b": (lambda entry: entry["params"]["params.yaml"]["b"].update(beta=0.9), "b.beta is 0.9; record.json and the run cache have 0.2"),  # noqa: E501
            "c": (lambda entry: entry.update(cmd="python work.py other"), "its command is python work.py other; record.json and the run cache have "),  # noqa: E501
        },
        {
            "b": (lambda entry: entry["outs"][1].update(md5="0" * 32), f"out data/metrics/b.json is {'0' * 32}; record.json and the run cache have "),  # noqa: E501
            "c": (lambda entry: entry["deps"][0].update(md5="0" * 32), f"dep data/a is {'0' * 32}; record.json and the run cache have "),  # noqa: E501
        },
    ],
    ids=["values", "hashes"],
)  # fmt: skip
def test_values_in_dvc_lock(audited: Audited, changes: dict[str, tuple[Change, str]]) -> None:
    content = audited.lock
    for stage, (change, _) in changes.items():
        change(content["stages"][stage])
    audited.root.joinpath("dvc.lock").write_text(json.dumps(content))
    faults = audited.faults()
    for stage, (_, expected) in changes.items():
        assert sum(f"dvc.lock: {stage}: {expected}" in line for line in faults) == 1, faults
    others = [line for line in faults if not line.startswith(("dvc.lock: b: ", "dvc.lock: c: "))]
    assert not [line for line in others if "0" * 32 not in line], others


def test_record_json_of_a_run_and_an_entry_of_the_run_cache(audited: Audited) -> None:
    """The record of c, and the run cache's entry of b."""
    run_id = audited.run_of("c")
    replace(audited.root / f"mlruns/artifacts/{run_id}/artifacts/record.json", '"beta": 0.1', '"beta": 0.9')
    [file] = [
        file
        for file in (audited.root / ".dvc/cache/runs").rglob("*")
        if file.is_file() and "beta: 0.2" in file.read_text()
    ]
    file.chmod(0o644)
    replace(file, "beta: 0.2", "beta: 0.9")
    faults = audited.faults()
    assert sum("record.json: c: c.beta is 0.9; dvc.lock and the run cache have 0.1 (c, run " in f for f in faults) == 1
    [of_cache] = [line for line in faults if line.startswith(".dvc/cache/runs/")]
    assert "this entry of the run cache is not the one that its name is the hash of" in of_cache
    assert all(line == of_cache or "(c, run " in line for line in faults), faults


def test_code_of_the_record_that_is_not_the_commit_s(audited: Audited) -> None:
    """A commit that was rewritten: the record names another one, which has other code."""
    file = audited.root / "helper.py"
    before = file.read_text()
    file.write_text(before + "# changed\n")
    audited.commit()
    other = audited.git("rev-parse", "HEAD").strip()
    file.write_text(before)
    audited.sql("UPDATE tags SET value = ? WHERE key = 'posttrain.git_commit'", other)
    faults = [line for line in audited.faults("a") if line.startswith("helper.py")]
    assert len(faults) == 1
    assert f"helper.py: commit {other[:12]} has " in faults[0]


def test_a_deleted_run(audited: Audited) -> None:
    run_id = audited.run_of("b")
    audited.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
    faults = audited.faults()
    assert faults
    assert all("was deleted in MLflow; its pages can restore it" in line and run_id[:8] in line for line in faults)


def test_a_run_that_was_deleted_for_good(audited: Audited) -> None:
    """Of b in the database alone, of the report with its files."""
    gone = {stage: audited.run_of(stage) for stage in ("b", "report")}
    for run_id in gone.values():
        for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
            audited.sql(f"DELETE FROM {table} WHERE run_uuid = ?", run_id)
    shutil.rmtree(audited.root / "mlruns/artifacts" / gone["report"])
    faults = audited.faults()
    for run_id in gone.values():
        assert any(run_id[:8] in line for line in faults), faults
    assert all("was deleted from MLflow's database" in line for line in faults), faults
    assert all(any(run_id[:8] in line for run_id in gone.values()) for line in faults), faults
    assert audited.faults("c") == []


def test_a_deleted_pipeline_run(audited: Audited) -> None:
    query = "SELECT run_uuid FROM tags WHERE key = 'posttrain.previous'"
    audited.sql(f"UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid IN ({query})")
    faults = audited.faults()
    assert any("it made b, evaluate@b, and was deleted in MLflow" in line for line in faults), faults
