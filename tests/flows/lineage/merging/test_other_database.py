"""A stranger's database: what is wrong in it is named and left there, what is right comes over, and nothing of it is run."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from flows.console import merged_runs
from flows.engine.dvc_repository import PlanError
from flows.lineage.merging.runs import merge
from tests.flows.lineage.merging.merge_cases import Repository

LOOSE = """
    CREATE TABLE loose AS SELECT * FROM tags; DROP TABLE tags; ALTER TABLE loose RENAME TO tags;
    INSERT INTO tags SELECT * FROM tags WHERE run_uuid = '{bad}' LIMIT 1
"""
WRONG = {
    "UPDATE tags SET value = printf('%.9000c', 'x') WHERE run_uuid = '{bad}'": "tags: value is str of 9000 letters; expected VARCHAR, at most 8000 letters",
    "UPDATE tags SET value = x'00' WHERE run_uuid = '{bad}'": "tags: value is bytes; expected VARCHAR",
    "UPDATE params SET value = CAST(x'ff41' AS TEXT) WHERE run_uuid = '{bad}'": "params: value is str of 2 letters",
    "UPDATE metrics SET value = 'much' WHERE run_uuid = '{bad}'": "metrics: value is str of 4 letters; expected FLOAT",
    "UPDATE metrics SET value = 9e999 WHERE run_uuid = '{bad}'": "metrics: value is float; expected FLOAT",
    "UPDATE metrics SET step = 'one' WHERE run_uuid = '{bad}'": "metrics: step is str of 3 letters; expected BIGINT",
    "UPDATE latest_metrics SET value = 7 WHERE run_uuid = '{bad}' AND key = 'loss'": "the latest value of metric loss is none of its values",
    "UPDATE runs SET start_time = NULL WHERE run_uuid = '{bad}'": "its times are none",
    "UPDATE runs SET end_time = 1 << 60 WHERE run_uuid = '{bad}'": "its times are none",
    "UPDATE runs SET status = NULL WHERE run_uuid = '{bad}'": "its status or lifecycle_stage is none of MLflow's",
    "UPDATE runs SET name = printf('%.300c', 'x') WHERE run_uuid = '{bad}'": "runs: name is str of 300 letters",
    "UPDATE runs SET experiment_id = 77 WHERE run_uuid = '{bad}'": "its experiment is not there",
    "UPDATE inputs SET source_id = 'x' WHERE destination_id = '{bad}'": "a data set that it read is not there",
    LOOSE: "UNIQUE constraint failed: tags.key, tags.run_uuid",
}


@pytest.fixture
def repository(tmp_path: Path, empty_mlflow: Path) -> Callable[[str], Repository]:
    return lambda name: Repository(tmp_path / name, empty_mlflow)


@pytest.fixture
def ours(repository: Callable[[str], Repository]) -> Repository:
    return repository("ours")


@pytest.fixture
def theirs(repository: Callable[[str], Repository]) -> Repository:
    return repository("theirs")


def script(clone: Repository, text: str) -> None:
    with closing(sqlite3.connect(clone.file)) as records:
        records.executescript(text)


def test_a_run_with_a_wrong_value_is_refused_and_the_others_come(
    tmp_path: Path, empty_mlflow: Path, theirs: Repository
) -> None:
    good, bad = theirs.run("good"), theirs.run("bad")
    kept = theirs.file.read_bytes()
    for number, (change, said) in enumerate(WRONG.items()):
        theirs.file.write_bytes(kept)
        script(theirs, change.format(bad=bad))
        ours = Repository(tmp_path / str(number), empty_mlflow)
        merged = merge(ours.root, theirs.root)
        assert (merged.taken, merged.whole) == ({good: "good"}, False), change
        assert merged.refused.keys() == {bad}
        assert merged.refused[bad].startswith(said), merged.refused[bad]
        assert bad not in ours.dump()


@pytest.mark.parametrize("name", ["x", "A" * 32, "../" * 10 + "ab", "\x1b[31m" + "a" * 27, "a" * 31 + "\n"])
def test_a_run_s_name_is_never_a_path(ours: Repository, theirs: Repository, name: str) -> None:
    run_id = theirs.run()
    for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
        theirs.sql(f"UPDATE {table} SET run_uuid = ? WHERE run_uuid = ?", name, run_id)
    merged = merge(ours.root, theirs.root)
    assert (merged.taken, [*merged.refused.values()]) == ({}, ["a run's id has 32 hexadecimal digits"])
    assert all(line.isprintable() for line in merged_runs.lines(merged, False))
    assert ours.files() == {}


def test_its_triggers_and_views_are_not_run(ours: Repository, theirs: Repository) -> None:
    theirs.run()
    before = ours.dump()
    script(theirs, "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END; CREATE VIEW v AS SELECT 1")
    assert len(merge(ours.root, theirs.root).taken) == 1
    assert before.count("CREATE") == ours.dump().count("CREATE")
    script(theirs, "ALTER TABLE tags RENAME TO other; CREATE VIEW tags AS SELECT * FROM other")
    with pytest.raises(PlanError, match="this is not MLflow's database, or of another version"):
        merge(ours.root, theirs.root)


def test_another_version_of_the_tables_is_one_line(ours: Repository, theirs: Repository) -> None:
    theirs.sql("UPDATE alembic_version SET version_num = '0123'")
    with pytest.raises(PlanError, match=r"of the versions 0123 and \w+; `mlflow db upgrade sqlite:///FILE`"):
        merge(ours.root, theirs.root)


def test_a_file_that_is_no_database_or_a_damaged_one_is_one_line(ours: Repository, theirs: Repository) -> None:
    for number in range(20):
        theirs.run(str(number))
    before = ours.dump()
    whole = theirs.file.read_bytes()
    for content in (b"", b"no database" * 100, whole[:-9000]):
        theirs.file.write_bytes(content)
        with pytest.raises(PlanError, match=r"mlruns/mlflow\.db: \S") as caught:
            merge(ours.root, theirs.root)
        assert "\n" not in str(caught.value)
    torn = bytearray(whole)
    for place in range(len(whole) // 2, len(whole) // 2 + 40 * 4096, 4096):
        torn[place : place + 64] = b"\xff" * 64
    theirs.file.write_bytes(torn)
    with pytest.raises(PlanError, match=r"damaged|malformed"):
        merge(ours.root, theirs.root)
    assert ours.dump() == before


def test_a_half_written_database_says_how_it_is_mended(ours: Repository, theirs: Repository) -> None:
    """A reader that may not write cannot play back the journal that a `kill -9` leaves."""
    theirs.run()
    journal = theirs.file.with_name("mlflow.db-journal")
    with sqlite3.connect(theirs.file) as writer:
        writer.execute("PRAGMA cache_size = 1")
        for number in range(2000):
            writer.execute("INSERT INTO params VALUES (?, ?, ?)", (f"p{number}", "x" * 500, "r"))
        half, log = theirs.file.read_bytes(), journal.read_bytes()
        writer.rollback()
    theirs.file.write_bytes(half)
    journal.write_bytes(log)
    with pytest.raises(PlanError, match="half written: `posttrain runs` there, once, mends it"):
        merge(ours.root, theirs.root)
    assert (theirs.file.read_bytes(), journal.read_bytes()) == (half, log)


def test_only_plain_files_below_a_run_s_folder_are_copied(ours: Repository, theirs: Repository, tmp_path: Path) -> None:
    run_id, linked = theirs.run("dpo"), theirs.run("sft")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("mine")
    folder = theirs.root / "mlruns/artifacts" / run_id / "artifacts"
    (folder / "key").symlink_to(secret / "key")
    (folder / "folder").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    (folder.parent / "beside").write_text("outside of artifacts")
    other = theirs.root / "mlruns/artifacts" / linked
    other.rename(tmp_path / "moved")
    other.symlink_to(tmp_path / "moved")
    merged = merge(ours.root, theirs.root)
    assert ours.files().keys() == {f"{run_id}/artifacts/record.json", f"{run_id}/artifacts/samples/step-1.json"}
    assert merged.left_out == {
        f"{run_id}/artifacts/key": "a link, or no plain file",
        f"{run_id}/artifacts/folder": "a link",
        f"{run_id}/artifacts/pipe": "a link, or no plain file",
        f"artifacts/{linked}": "a link",
    }
    assert (merged.taken.keys(), merged.whole) == ({run_id, linked}, False)


def test_a_file_that_lies_here_is_never_written_over(ours: Repository, theirs: Repository) -> None:
    run_id, good = theirs.run("dpo"), theirs.run("sft")
    ours.artifact(run_id, "record.json", "mine")
    merged = merge(ours.root, theirs.root)
    place = f"mlruns/artifacts/{run_id}/artifacts/record.json"
    assert merged.refused == {run_id: f"{place} lies here already, with another content"}
    assert merged.taken.keys() == {good}
    assert (ours.root / place).read_text() == "mine"


def test_files_that_come_after_the_database_complete_its_runs(ours: Repository, theirs: Repository) -> None:
    run_id = theirs.run()
    artifacts = theirs.root / "mlruns/artifacts"
    artifacts.rename(theirs.root / "later")
    assert merge(ours.root, theirs.root).files == 0
    (theirs.root / "later").rename(artifacts)
    merged = merge(ours.root, theirs.root)
    assert (merged.taken, merged.same, merged.files) == ({}, 1, 2)
    assert ours.files() == theirs.files()
    assert run_id in next(iter(ours.files()))


def test_a_model_s_name_and_numbers_are_checked(ours: Repository, theirs: Repository) -> None:
    run_id = theirs.run()
    theirs.model(run_id, "a")
    for column in ("registered_models", "model_versions", "model_version_tags", "registered_model_tags"):
        theirs.sql(f"UPDATE {column} SET name = 'a/../b'")
    merged = merge(ours.root, theirs.root)
    assert merged.refused == {"a/../b version 1": "the name is not one that MLflow allows"}
    assert (merged.taken.keys(), ours.client.search_registered_models()) == ({run_id}, [])


def test_what_is_printed_has_no_power_over_a_terminal(ours: Repository, theirs: Repository) -> None:
    run_id = theirs.run()
    merge(ours.root, theirs.root)
    theirs.client.set_tag(run_id, "note", "new")
    theirs.sql("UPDATE tags SET key = char(27) || ']0;x' WHERE key = 'note'")
    theirs.artifact(run_id, "\x1b[2J", "x").unlink()
    (theirs.root / "mlruns/artifacts" / run_id / "artifacts/\x1b[2J").symlink_to("/etc/passwd")
    merged = merge(ours.root, theirs.root)
    lines = list(merged_runs.lines(merged, False))
    assert merged.differing == {run_id: ["tag '\\x1b]0;x'"]}
    assert lines
    assert all(line.isprintable() for line in lines)
