"""The record: what counts, in whatever order files are merged; nothing acknowledged is lost; faults are FILE:LINE and
one line.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common.errors import DataError
from tasks.language.judgements import judgement_log as module
from tasks.language.judgements.judgement_log import JudgementRecord, Writer, read_judgement_record
from tasks.language.judgements.lines import format_line_as_json
from tests.tasks.language.judgements import writing_to_kill
from tests.tasks.language.judgements.samples import flag, item, judgement, skip, undo

ROOT = Path(__file__).parents[4]
PAIR, FOUR = item("yes", "no"), item("a", "b", "c", "d", mode="ranking", prompt="Moon?")
FIRST, SECOND = (
    judgement(PAIR, "a better"),
    judgement(FOUR, (3, 2, 1, 1), person="bert", order=(3, 1, 0, 2)),
)
LINES = [PAIR, FIRST, FOUR, SECOND, skip(PAIR, "bert"), flag(FOUR), undo(FIRST), judgement(PAIR, "tie")]


def write(path, lines):
    path.write_text("".join(format_line_as_json(line) + "\n" for line in lines))
    return path


def told(path):
    with pytest.raises(DataError) as stopped:
        read_judgement_record(path)
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


def held(record):
    return record.items, {line.judgement: line for line in record.judgements}, set(record.skips), set(record.flags)


def test_what_was_taken_back_does_not_count(tmp_path):
    record = read_judgement_record(write(tmp_path / "anna.jsonl", LINES))
    assert record.items == {PAIR.item: PAIR, FOUR.item: FOUR}
    assert record.judgements == [SECOND, LINES[-1]]
    assert record.skips == [LINES[4]]
    assert record.flags == [LINES[5]]


def test_the_table_has_a_row_for_each_judgement_that_counts(tmp_path):
    table = read_judgement_record(write(tmp_path / "anna.jsonl", LINES)).table()
    assert table["person"].tolist() == ["bert", "anna"]
    assert table["order"].tolist() == [[3, 1, 0, 2], [0, 1]]
    assert [json.loads(value) for value in table["value"]] == [
        {"ranks": [3, 2, 1, 1], "scores": None},
        {"strength": "tie"},
    ]
    assert table["prompt_id"].tolist() == ["id of Moon?", "id of Why?"]
    assert JudgementRecord().table().empty
    assert list(JudgementRecord().table()) == list(table)


@given(st.permutations(range(len(LINES))), st.lists(st.integers(0, 2), min_size=len(LINES), max_size=len(LINES)))
@settings(max_examples=25)
def test_the_files_of_a_folder_are_one_record_in_whatever_order(tmp_path_factory, order, files):
    """As git merges leave them: lines in any order over several files, some of them twice."""
    folder = tmp_path_factory.mktemp("judgements")
    for number in range(3):
        lines = [LINES[place] for place, file in zip(order, files, strict=True) if file in (number, number - 1)]
        write(folder / f"{number}.jsonl", lines)
    whole = write(folder / "whole.txt", LINES)
    assert held(read_judgement_record(folder)) == held(read_judgement_record(whole))


def test_an_item_that_stands_twice_is_as_it_stands_last(tmp_path):
    golden = item("yes", "no", gold={"strength": "a better"})
    assert golden.item == PAIR.item
    assert read_judgement_record(write(tmp_path / "a.jsonl", [PAIR, FIRST, golden])).items[PAIR.item].gold is not None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (judgement(FOUR, (1, 1, 1, 1)), f"item: unknown item {FOUR.item}; its own line should stand before"),
        (skip(FOUR), "item: unknown item"),
        (flag(FOUR), "item: unknown item"),
        (undo(SECOND), f"judgement: there is none with id {SECOND.judgement} to take back"),
        (undo(FIRST, "bert"), "person: 'bert' takes back a judgement of 'anna'"),
        (judgement(PAIR, "tie", order=(0, 0)), "order: expected 0 to 1 in some order, got [0, 0]"),
        (judgement(PAIR, "tie", order=(0,)), "order: expected 0 to 1 in some order, got [0]"),
        (judgement(PAIR, (1, 2)), "value: expected a value of mode pairwise, got one of mode ranking"),
        (FIRST.model_copy(update={"mode": "ranking"}), "mode: expected 'pairwise', the item's, got 'ranking'"),
        (
            FIRST.model_copy(update={"value": LINES[-1].value}),
            "stands before another judgement; expected an id of its own",
        ),
    ],
)
def test_a_line_that_does_not_fit_is_refused_by_reader_and_writer(tmp_path, line, words):
    path = write(tmp_path / "anna.jsonl", [PAIR, FIRST, line])
    assert told(tmp_path) == f"{path}:3: {told(path).removeprefix(f'{path}:3: ')}"
    assert words in told(path)
    write(path, [PAIR, FIRST])
    before = path.read_bytes()
    with Writer(path) as writer, pytest.raises(DataError, match="not written: "):
        writer.append(line)
    assert path.read_bytes() == before


def test_a_judgement_that_was_read_in_twice_counts_once_as_it_was_first(tmp_path):
    """Another tool's file, taken in on two branches at two times: the id follows from what was said."""
    later = FIRST.model_copy(update={"at": "2026-02-01T12:00:00Z"})
    assert read_judgement_record(write(tmp_path / "a.jsonl", [PAIR, FIRST, later])).judgements == [FIRST]
    assert read_judgement_record(write(tmp_path / "a.jsonl", [PAIR, FIRST, undo(FIRST), later])).judgements == []


@pytest.mark.parametrize(
    ("item_of", "said", "words"),
    [
        (FOUR, (1, 2), "ranks: expected one for each of 4 answers, got 2"),
        (item("a\nb", mode="steps"), [1], "labels: expected one for each of 2 steps, got 1"),
    ],
)
def test_a_value_fits_its_item(tmp_path, item_of, said, words):
    assert words in told(write(tmp_path / "anna.jsonl", [item_of, judgement(item_of, said)]))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "expected JSON"),
        (b"\x00", "expected JSON"),
        (b"[" * 10**6, "not nested so deeply"),
        (b"<<<<<<< HEAD", "a conflict of git stands here"),
        (b"\xff\xfe", "expected UTF-8"),
        (b"[]", "expected an object, got list"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_line(tmp_path, line, words):
    path = write(tmp_path / "anna.jsonl", LINES)
    path.write_bytes(path.read_bytes() + line + b"\n" + format_line_as_json(FIRST).encode() + b"\n")
    assert told(path).startswith(f"{path}:{len(LINES) + 1}: ")
    assert words in told(path)


def test_what_is_no_record_is_one_line(tmp_path, monkeypatch):
    assert told(tmp_path / "none").endswith("none: no such file or folder; expected a record of judgements (.jsonl)")
    (tmp_path / "folder.jsonl").mkdir()
    assert told(tmp_path).endswith("folder.jsonl: expected a file of JSON lines")
    long = write(tmp_path / "long.txt", [flag(PAIR, reason="x" * 5000)])
    monkeypatch.setattr(module, "LONGEST", 4000)
    assert told(long) == f"{long}:1: expected at most 4000 bytes in a line"
    monkeypatch.setattr(module, "LARGEST", 4000)
    assert told(long).startswith(f"{long}: expected at most 4000 bytes; ")
    assert held(read_judgement_record(write(tmp_path / "empty.txt", []))) == held(JudgementRecord())


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path):
    """Wherever it was torn; and what was written before it stays."""
    path = tmp_path / "anna.jsonl"
    whole = "".join(format_line_as_json(line) + "\n" for line in LINES)
    before = whole[: whole[:-1].rindex("\n") + 1]
    for end in range(len(before), len(whole)):
        path.write_text(whole[:end])
        assert read_judgement_record(path).judgements == [SECOND]
    with Writer(path) as writer:
        assert path.read_text() == before
        writer.append(LINES[-1])
    assert path.read_text() == whole
    path.write_bytes(b"x" * 200_000)
    Writer(path).close()
    assert path.read_bytes() == b""


def test_the_writer_writes_what_it_is_given_and_knows_the_folder(tmp_path):
    path = tmp_path / "new/anna.jsonl"
    with Writer(path) as writer:
        for line in LINES:
            writer.append(line)
        assert held(writer.record) == held(read_judgement_record(path))
    assert path.read_text() == "".join(format_line_as_json(line) + "\n" for line in LINES)
    with Writer(tmp_path / "new/bert.jsonl") as writer:
        assert held(writer.record) == held(read_judgement_record(path))
        writer.append(judgement(PAIR, "tie", person="bert"))
    assert len(read_judgement_record(path.parent).judgements) == 3


def test_what_cannot_be_written_or_read_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder").mkdir()
    for name, words in (
        ("file/a.jsonl", "cannot be written"),
        ("pipe.jsonl", "expected a file"),
        ("folder", "cannot be written"),
    ):
        with pytest.raises(DataError, match=words):
            Writer(tmp_path / name)
    assert told(tmp_path / "pipe.jsonl").endswith("pipe.jsonl: expected a file of JSON lines")
    path = write(tmp_path / "folder/a.jsonl", LINES)

    def refused(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refused)
    assert told(path) == f"{path}: cannot be read: Permission denied"


def test_one_process_at_a_time_writes_a_file(tmp_path):
    path = tmp_path / "anna.jsonl"
    with Writer(path), pytest.raises(DataError, match="another process is writing this file"):
        Writer(path)
    Writer(path).close()
    path.write_text("{}\n")
    for _ in range(2):  # what could not be opened is not held either
        with pytest.raises(DataError, match=":1: kind: expected"):
            Writer(path)


@pytest.mark.parametrize("torn", [0, 1, 40])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_or_broken_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch, call, torn):
    path = write(tmp_path / "anna.jsonl", LINES)
    before, real = path.read_bytes(), os.write

    def full(file, text):
        if torn:
            return real(file, text[:torn])  # the rest does not fit
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def broken(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Writer(path) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full if call == "write" else broken)
            with pytest.raises(DataError, match=r"not written: (No space|Input/output|only)"):
                writer.append(judgement(PAIR, "b better", number=1))
        assert path.read_bytes() == before
        assert held(writer.record) == held(read_judgement_record(path))
        writer.append(judgement(PAIR, "b better", number=2))
    assert len(read_judgement_record(path).judgements) == 3


def test_a_file_that_another_program_replaced_is_not_written_to(tmp_path):
    """As git does in a checkout or a merge: what was written to the old file would be lost."""
    path = write(tmp_path / "anna.jsonl", LINES)
    with Writer(path) as writer:
        path.rename(tmp_path / "old")
        with pytest.raises(DataError, match="the file is gone"):
            writer.append(judgement(PAIR, "b better"))
        write(path, LINES)
        with pytest.raises(DataError, match="another program has changed the file"):
            writer.append(judgement(PAIR, "b better"))


def test_a_line_that_is_too_long_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 1000)
    with Writer(tmp_path / "anna.jsonl") as writer:
        writer.append(PAIR)
        with pytest.raises(DataError, match="expected at most 1000 bytes in a line"):
            writer.append(flag(PAIR, reason="x" * 900))
    assert read_judgement_record(tmp_path).flags == []


def test_git_keeps_the_judgements_of_both_sides_of_a_merge(tmp_path):
    """The repository's own .gitignore and .gitattributes; on both sides lines were appended to one file."""
    path = tmp_path / "data/raw/judgements/anna.jsonl"
    path.parent.mkdir(parents=True)
    for name in (".gitignore", ".gitattributes"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    def git(*arguments):
        options = ("-c", "user.name=anna", "-c", "user.email=anna@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *options, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(lines):
        with Writer(path) as writer:
            for line in lines:
                writer.append(line)
        git("add", ".")
        git("commit", "-m", "labels")

    git("init", "-b", "main")
    commit([PAIR, FIRST])
    git("checkout", "-b", "side")
    commit([FOUR, SECOND, undo(FIRST)])
    git("checkout", "main")
    third = judgement(FOUR, (1, 1, 1, 1), "carl")
    commit([FOUR, third])
    git("merge", "side")
    assert read_judgement_record(path).judgements in ([SECOND, third], [third, SECOND])


def kills(path, count):
    done = subprocess.run(
        [sys.executable, "-m", "tests.tasks.language.judgements.writing_to_kill", path, str(count), "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_that_was_acknowledged_is_lost_in_kills(tmp_path, capsys):
    writing_to_kill.main(tmp_path / "anna.jsonl", 4, 0)
    assert capsys.readouterr().out.startswith("4 kills, ")


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_in_100_kills(tmp_path):
    assert kills(tmp_path / "anna.jsonl", 100).endswith("none lost\n")
