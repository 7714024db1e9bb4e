"""Each way to falsify a result, done for real; `audit` names what was changed, and nothing else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.engine import mlflow_seal
from tests.flows.lineage.audited import Audited, flip, replace


def only(audited: Audited, *parts: str, of: str | None = None, **options: bool) -> str:
    """The one fault, which has all these parts."""
    faults = audited.faults(of, **options)
    assert len(faults) == 1, faults
    assert all(part in faults[0] for part in parts), faults[0]
    return faults[0]


def test_a_byte_in_a_checkpoint(audited: Audited) -> None:
    audited.audit()
    flip(audited.root / "data/b/model.bin")
    only(audited, "data/b/model.bin: its bytes are ", ", which b made (b, run ")
    only(audited, "data/b/model.bin", of="evaluate@b")
    assert audited.faults("c") == [], "b is not behind c"


def test_a_byte_with_size_and_time_as_before(audited: Audited) -> None:
    file = audited.root / "data/b/model.bin"
    audited.audit()
    before = file.stat()
    flip(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    only(audited, "data/b/model.bin")


def test_a_byte_in_the_cache(audited: Audited) -> None:
    audited.audit()
    flip(audited.cached("data/b/model.bin"))
    only(audited, ".dvc/cache/files/md5/", "expected ", "by its name: it is the cache's copy of data/b/model.bin")


def test_a_byte_in_the_cache_of_an_earlier_result(audited: Audited, thrice: Audited) -> None:
    flip(thrice.root / audited.cached("data/b/model.bin").relative_to(audited.root))
    assert thrice.faults() == [], "not behind the current results"
    only(thrice, "the cache's copy of data/b/model.bin", everything=True)


def test_the_cache_s_list_of_a_folder(audited: Audited) -> None:
    [listed] = [out["md5"] for out in audited.lock["stages"]["b"]["outs"] if out["path"] == "data/b"]
    file = audited.root / ".dvc/cache/files/md5" / listed[:2] / listed[2:]
    file.chmod(0o644)
    replace(file, '"table.csv"', '"tables.csv"')
    only(audited, "it is the cache's copy of the list of data/b's files")


@pytest.mark.parametrize("what", ["missing", "more"])
def test_files_of_a_folder(audited: Audited, what: str) -> None:
    if what == "missing":
        (audited.root / "data/b/table.csv").unlink()
        only(audited, "data/b/table.csv: is missing; expected ")
    else:
        audited.write("data/b/other.bin", "x")
        only(audited, "data/b/other.bin: is not among the files that b made")


def test_a_reordered_row_in_a_table(audited: Audited) -> None:
    table = audited.root / "data/b/table.csv"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(reversed(rows)))
    only(audited, "data/b/table.csv: its bytes are ")


def test_two_data_sets_swapped(audited: Audited) -> None:
    for one, other in (("data/b", "data/c"), ("data/raw/x.txt", "data/raw/y.txt")):
        Path(audited.root, one).rename(audited.root / "aside")
        Path(audited.root, other).rename(audited.root / one)
        Path(audited.root / "aside").rename(audited.root / other)
    first, second = audited.faults()
    assert "data/b: has the bytes of data/c, and data/c has those of data/b: they were swapped (b, run " in first
    assert "data/raw/x.txt: has the bytes of data/raw/y.txt" in second


def test_two_files_of_a_folder_swapped(audited: Audited) -> None:
    folder = audited.root / "data/b"
    (folder / "model.bin").rename(folder / "aside")
    (folder / "table.csv").rename(folder / "model.bin")
    (folder / "aside").rename(folder / "table.csv")
    only(audited, "data/b/model.bin: has the bytes of table.csv, and that has its: they were swapped")


def test_an_out_of_another_run(audited: Audited, thrice: Audited) -> None:
    """As an out that was restored from another branch: the bytes are right, but not of this result."""
    first = audited.run_of("b")
    shutil.rmtree(thrice.root / "data/b")
    shutil.copytree(audited.root / "data/b", thrice.root / "data/b")
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
    assert any("dvc.lock of other records these bytes" in line for line in thrice.faults())


@pytest.mark.parametrize(
    ("statement", "values", "expected"),
    [
        (
            "UPDATE metrics SET value = 0.9 WHERE key = 'strict_greedy/mean' AND run_uuid = ?",
            "evaluate@b",
            ["metric strict_greedy/mean is 0.9, data/metrics/evaluate@b.json has 0.5 (evaluate@b, run "],
        ),
        (
            "UPDATE latest_metrics SET value = 0.9 WHERE key = 'strict_greedy/mean' AND run_uuid = ?",
            "evaluate@b",
            ["MLflow's pages show metric strict_greedy/mean as 0.9, its history ends with 0.5"],
        ),
        (
            "UPDATE metrics SET value = 0.01 WHERE key = 'train/loss' AND step = 1 AND run_uuid = ?",
            "b",
            ["a tag, a parameter, a metric or record.json of the run was changed after it ended"],
        ),
        (
            "DELETE FROM metrics WHERE key = 'rows' AND run_uuid = ?",
            "b",
            ["metric rows is missing, data/metrics/b.json has 3.0"],
        ),
        (
            "UPDATE params SET value = '0.7' WHERE key = 'b.beta' AND run_uuid = ?",
            "b",
            ["parameter b.beta is 0.7, its record.json has 0.2"],
        ),
        (
            "UPDATE tags SET value = 'clean' WHERE key = 'posttrain.git_dirty' AND run_uuid = ?",
            "b",
            ["tag posttrain.git_dirty is clean, its record.json has no"],
        ),
        (
            "UPDATE tags SET value = 'H200' WHERE key = 'posttrain.env.platform' AND run_uuid = ?",
            "b",
            ["tag posttrain.env.platform is H200, its record.json has "],
        ),
        (
            "UPDATE tags SET value = 'a better reason' WHERE key = 'posttrain.reason' AND run_uuid = ?",
            "b",
            ["a tag, a parameter, a metric or record.json of the run was changed after it ended"],
        ),
        (
            "UPDATE tags SET value = '0123' WHERE key = 'posttrain.key' AND run_uuid = ?",
            "b",
            ["tag posttrain.key is 0123, its record.json has "],
        ),
        (
            "UPDATE tags SET value = '0123' WHERE key = 'posttrain.out.data/b' AND run_uuid = ?",
            "b",
            ["tag posttrain.out.data/b is 0123, its record.json has "],
        ),
        (
            "UPDATE tags SET value = '0123' WHERE key = 'posttrain.outs' AND run_uuid = ?",
            "b",
            ["tag posttrain.outs is 0123, its record.json has "],
        ),
        ("DELETE FROM tags WHERE key = 'posttrain.seal' AND run_uuid = ?", "b", ["its seal is gone"]),
    ],
)
def test_a_value_in_mlflow_s_database(audited: Audited, statement: str, values: str, expected: list[str]) -> None:
    assert audited.sql(statement, audited.run_of(values)) == 1
    faults = [line for line in audited.faults() if not line.startswith("pipeline run")]
    assert len(faults) == len(expected), faults
    assert all(part in line for part, line in zip(expected, faults, strict=True)), faults
    assert faults[0].startswith(f"MLflow's run of {values}: ")


def test_a_run_that_was_changed_and_sealed_anew(audited: Audited) -> None:
    """The seal of the pipeline run has the seal of before."""
    run_id = audited.run_of("b")
    audited.sql("UPDATE metrics SET value = 0.01 WHERE key = 'train/loss' AND step = 1 AND run_uuid = ?", run_id)
    seal = mlflow_seal.compute(audited.root, run_id)
    audited.sql("UPDATE tags SET value = ? WHERE key = 'posttrain.seal' AND run_uuid = ?", seal, run_id)
    only(audited, "pipeline run ", f"the run of b has another seal than when it ended: {seal[:12]}, it was ")


@pytest.mark.parametrize("table", ["metrics", "latest_metrics"])
def test_the_headline_of_a_pipeline_run(audited: Audited, table: str) -> None:
    changed = audited.sql(f"UPDATE {table} SET value = 0.9 WHERE key = 'b/strict_greedy'")
    assert changed in (1, 2)
    line = next(iter(audited.faults()))
    assert "metric b/strict_greedy is 0.9, data/metrics/evaluate@b.json has 0.5" in line


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


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda entry: entry["params"]["params.yaml"]["b"].update(beta=0.9), "b.beta is 0.9; record.json and the run cache have 0.2"),
        (lambda entry: entry.update(cmd="python work.py other"), "its command is python work.py other; record.json and the run cache have "),
        (lambda entry: entry["deps"][0].update(md5="0" * 32), f"dep data/a is {'0' * 32}; record.json and the run cache have "),
        (lambda entry: entry["outs"][1].update(md5="0" * 32), f"out data/metrics/b.json is {'0' * 32}; record.json and the run cache have "),
    ],
)  # fmt: skip
def test_a_value_in_dvc_lock(audited: Audited, change: Callable[[dict], None], expected: str) -> None:
    content = audited.lock
    change(content["stages"]["b"])
    audited.root.joinpath("dvc.lock").write_text(json.dumps(content))
    faults = audited.faults()
    assert sum(f"dvc.lock: b: {expected}" in line for line in faults) == 1, faults
    others = [line for line in faults if not line.startswith("dvc.lock: b: ")]
    assert not [line for line in others if "0" * 32 not in line], others


def test_record_json_of_a_run(audited: Audited) -> None:
    run_id = audited.run_of("b")
    replace(audited.root / f"mlruns/artifacts/{run_id}/artifacts/record.json", '"beta": 0.2', '"beta": 0.9')
    faults = audited.faults()
    assert "record.json: b: b.beta is 0.9; dvc.lock and the run cache have 0.2 (b, run " in faults[0]


def test_an_entry_of_the_run_cache(audited: Audited) -> None:
    [file] = [
        file
        for file in (audited.root / ".dvc/cache/runs").rglob("*")
        if file.is_file() and "beta: 0.2" in file.read_text()
    ]
    file.chmod(0o644)
    replace(file, "beta: 0.2", "beta: 0.9")
    only(audited, ".dvc/cache/runs/", "this entry of the run cache is not the one that its name is the hash of")


def test_a_code_file_after_the_run(audited: Audited) -> None:
    file = audited.root / "helper.py"
    file.write_text(file.read_text() + "# changed\n")
    only(audited, "helper.py: was changed after a, ", " ran with it: they are out of date")


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


@pytest.mark.parametrize("how", ["soft", "hard", "hard, with its files"])
def test_a_deleted_run(audited: Audited, how: str) -> None:
    run_id = audited.run_of("b")
    if how == "soft":
        audited.sql("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", run_id)
    else:
        for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
            audited.sql(f"DELETE FROM {table} WHERE run_uuid = ?", run_id)
    if how == "hard, with its files":
        shutil.rmtree(audited.root / "mlruns/artifacts" / run_id)
    faults = audited.faults()
    word = "was deleted in MLflow; its pages can restore it" if how == "soft" else "was deleted from MLflow's database"
    assert faults
    assert all(word in line and run_id[:8] in line for line in faults), faults
    assert audited.faults("c") == []


def test_a_deleted_pipeline_run(audited: Audited) -> None:
    query = "SELECT run_uuid FROM tags WHERE key = 'posttrain.previous'"
    audited.sql(f"UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid IN ({query})")
    faults = audited.faults()
    assert any("it made b, evaluate@b, and was deleted in MLflow" in line for line in faults), faults


def test_a_parameter_after_the_run(audited: Audited) -> None:
    audited.change("b", beta=0.7)
    only(audited, "params.yaml: param b.beta changed 0.2 -> 0.7 since b ran: it is out of date (b, run ")
