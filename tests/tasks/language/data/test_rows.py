"""Rows of files and of a hub: every file type gives the same rows, and every fault is one line with file and line."""

import json
import re
import threading

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common import tables
from tasks.common.errors import DataError, StageError
from tasks.language.data import forms, rows
from tasks.language.data.rows import (
    Row,
    fetch_hub_row_count,
    fetch_hub_rows,
    parse_row,
    read_file,
    read_files,
    read_test_files,
    read_training_files,
)

GOOD = {"question": "Why?", "answer": "#### 3"}
LINE = json.dumps(GOOD).encode()
KINDS = {
    "jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    "parquet": lambda path, rows: pd.DataFrame(rows).to_parquet(path),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def told(path):
    """The one line that says what is wrong with a file."""
    with pytest.raises(StageError) as stopped:
        list(read_file(path))
    line = str(stopped.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert len(line) < 400
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_keep_their_place(tmp_path, kind):
    rows = [{"text": "one"}, {"text": "two"}]
    KINDS[kind](tmp_path / f"x.{kind}", rows)
    found = list(read_file(tmp_path / f"x.{kind}"))
    assert [row.values for row in found] == rows
    assert [row.name for row in found] == ["x-0", "x-1"]
    places = ["line 1", "line 2"] if kind == "jsonl" else ["row 0", "row 1"]
    assert [row.where for row in found] == [f"{tmp_path}/x.{kind}: {place}" for place in places]


@given(st.lists(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none(), st.booleans(), st.lists(TEXTS)))))
@settings(max_examples=25)
def test_lines_and_lists_of_json_give_the_same_rows(tmp_path_factory, rows):
    """U+2028, U+0085 and other separators inside a text end no line."""
    folder = tmp_path_factory.mktemp("rows")
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / "x.jsonl").write_bytes(lines.encode())
    (folder / "x.json").write_bytes(json.dumps(rows, ensure_ascii=False).encode())
    for kind in ("jsonl", "json"):
        assert [row.values for row in read_file(folder / f"x.{kind}")] == rows


def test_parquet_gives_lists_and_objects_and_all_of_its_row_groups(tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"{n}"}], "score": {"a": n}} for n in range(7)]
    pd.DataFrame(rows).to_parquet(tmp_path / "x.parquet", row_group_size=3)
    found = list(read_file(tmp_path / "x.parquet"))
    assert [row.values for row in found] == rows
    assert found[6].name == "x-6"


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(LINE + b"\n\n   \r\n" + LINE + b"\n\n")
    assert [(row.name, row.where.rpartition(": ")[2]) for row in read_file(tmp_path / "x.jsonl")] == [
        ("x-0", "line 1"),
        ("x-3", "line 4"),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_a_byte_order_mark_is_passed_over(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    path.write_bytes(b"\xef\xbb\xbf" + (LINE if kind == "jsonl" else b"[" + LINE + b"]"))
    assert [row.values for row in read_file(path)] == [GOOD]


def test_an_empty_file_of_lines_has_no_rows(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b"")
    (tmp_path / "x.json").write_bytes(b"[]")
    assert list(read_files(tmp_path)) == []


BAD_LINES = {
    b'{"question": "Why?"': "line 3: expected JSON: Expecting ',' delimiter",
    b"{'question': 'Why?'}": "line 3: expected JSON: Expecting property name",
    b"[1, 2]": "line 3: expected an object with columns, got list",
    b"3": "line 3: expected an object with columns, got int",
    b"null": "line 3: expected an object with columns, got NoneType",
    b"[" * 100_000: "line 3: expected JSON: maximum recursion depth exceeded",
    b'{"a":' * 100_000: "line 3: expected JSON: maximum recursion depth exceeded",
    b'{"n": ' + b"9" * 5000 + b"}": "line 3: expected JSON: Exceeds the limit",
    b'{"question": "caf\xe9"}': "line 3: expected UTF-8, found byte 0xe9 at 17",
    b'{"question": "Why?", "answer": "3", "question": "How?"}': (
        "line 3: expected JSON: 'question' is there twice; expected it once"
    ),
    b'{"messages": [{"role": "user", "role": "tool"}]}': "line 3: expected JSON: 'role' is there twice",
    b"\xff\xfe" + '{"a": 1}'.encode("utf-16-le"): "line 3: expected UTF-8, found UTF-16",
}


@pytest.mark.parametrize(
    ("line", "said"), BAD_LINES.items(), ids=[said.split(": ")[1][:40] for said in BAD_LINES.values()]
)
def test_a_bad_line_is_named(tmp_path, line, said):
    path = tmp_path / "train.jsonl"
    path.write_bytes(LINE + b"\n\n" + line + b"\n" + LINE)
    assert told(path).startswith(said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.json", b"", "expected JSON: Expecting value"),
        ("x.json", LINE + b"\n" + LINE, "expected JSON: Extra data"),
        ("x.json", LINE, "expected a list of objects; lines of objects are a .jsonl file"),
        ("x.json", b"[" + LINE + b", 3]", "row 1: expected an object with columns, got int"),
        ("x.json", '[{"a": 1}]'.encode("utf-16"), "expected UTF-8, found UTF-16"),
        ("x.jsonl", '{"a": 1}\n'.encode("utf-16"), "line 1: expected UTF-8, found UTF-16"),
        ("x.json", b'["\xe9"]', "expected UTF-8, found byte 0xe9 at 2"),
        ("x.json", b'\xef\xbb\xbf["\xe9"]', "expected UTF-8, found byte 0xe9 at 5"),
        ("x.parquet", b"", "cannot be read as parquet: "),
        ("x.parquet", b"PAR1 but no more", "cannot be read as parquet: "),
        ("x.parquet", LINE, "cannot be read as parquet: "),
        ("x.csv", b"question,answer\n", "expected a file of type .jsonl, .json, .parquet"),
        ("x.jsonl.gz", b"", "expected a file of type .jsonl, .json, .parquet"),
    ],
    ids=str,
)
def test_a_bad_file_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert told(tmp_path / name).startswith(said)


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.99])
def test_a_parquet_file_that_is_cut_off_is_named(tmp_path, kept):
    whole = tmp_path / "whole.parquet"
    pd.DataFrame([{"text": f"{n} " * 50} for n in range(300)]).to_parquet(whole)
    (tmp_path / "x.parquet").write_bytes(whole.read_bytes()[: int(kept * whole.stat().st_size)])
    assert told(tmp_path / "x.parquet").startswith("cannot be read as parquet: ")


def test_a_parquet_file_with_spoiled_pages_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame([{"text": f"{n} " * 50} for n in range(300)]).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[8:400] = bytes(392)
    path.write_bytes(content)
    assert told(path).startswith("cannot be read as parquet: ")


MANY = 400_000
PACKED = {  # at most some thousand bytes each, and what is said of them
    "rows": (lambda: pa.table({"text": pa.repeat("a", MANY)}), r"400,000 rows are said to be in [\d,]+ bytes; "),
    "nulls": (lambda: pa.table({"text": pa.nulls(MANY, pa.string())}), r"400,000 rows are said to be in "),
    "text": (lambda: pa.table({"text": ["a" * 20 * MANY]}), r"8,000,[\d,]+ bytes of values are in "),
    "list": (
        lambda: pa.table({"list": pa.array([np.zeros(10 * MANY, np.int8)])}),
        r"32,000,[\d,]+ bytes of values are in ",
    ),
    "words": (lambda: pa.table({"text": pa.repeat("a" * MANY, 20)}), r"3,200,[\d,]+ bytes of values are in "),
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_parquet_file_that_unpacks_to_far_more_than_it_holds_is_refused(tmp_path, monkeypatch, kind):
    """`words` says less of itself: what it unpacks to is known as it is read."""
    monkeypatch.setattr(tables, "ALWAYS", 2**20)
    make, line = PACKED[kind]
    path = tmp_path / "x.parquet"
    pq.write_table(make(), path, compression="zstd")
    assert path.stat().st_size < 5_000
    assert re.match(line, told(path))


def test_equal_rows_of_a_small_file_are_read(tmp_path):
    rows = [{"text": "What is 1 + 1? " * 30}] * 5000
    pd.DataFrame(rows).to_parquet(tmp_path / "x.parquet")
    assert [row.values for row in read_file(tmp_path / "x.parquet")] == rows


def test_walks_that_are_all_the_same_are_a_table_like_any_other(tmp_path):
    """Ten steps over and over take less than a byte a row."""
    steps = [number % 10 for number in range(100_000)]
    path = tmp_path / "x.parquet"
    pd.DataFrame({"state": steps, "action": 1, "reward": -1.0}).to_parquet(path)
    assert path.stat().st_size < len(steps) / 4
    assert tables.open_parquet(path).metadata.num_rows == len(steps)


@pytest.mark.parametrize("levels", [90, 200, 900, 100_000])
@pytest.mark.parametrize("as_text", [False, True])
def test_values_that_are_nested_too_deeply_are_named(tmp_path, levels, as_text):
    value = "[" * levels + "]" * levels
    (tmp_path / "x.jsonl").write_text(json.dumps({"messages": value}) if as_text else f'{{"messages": {value}}}')
    with pytest.raises(DataError, match=r"^\S+x.jsonl: line 1: .*(nested|recursion|expected)"):
        [parse_row(row, forms.parse_demonstration) for row in read_file(tmp_path / "x.jsonl")]


def test_what_no_row_can_hold_is_named(tmp_path):
    """Columns of one name, of which a row would keep the last; and a date after the last one of Python's calendar."""
    path = tmp_path / "x.parquet"
    texts = pa.array(["a", "b"])
    pq.write_table(pa.table([texts, texts], names=["prompt", "prompt"]), path)
    assert told(path) == "cannot be read as parquet: 'prompt' is there twice; expected it once"
    pq.write_table(pa.table({"prompt": texts, "at": pa.array([2**62] * 2, pa.timestamp("us"))}), path)
    assert told(path) == "cannot be read as parquet: date value out of range"


def test_a_folders_files_come_by_name_and_others_are_passed_over(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "c.json"):
        KINDS[name.partition(".")[2]](tmp_path / name, [{"text": name}])
    (tmp_path / "README.md").write_text("not read")
    (tmp_path / ".gitignore").write_text("*")
    assert [row.values["text"] for row in read_files(tmp_path)] == ["a.jsonl", "b.jsonl", "c.json"]
    assert [row.name for row in read_files(tmp_path / "b.jsonl")] == ["b-0"]


def test_names_of_files_say_what_is_trained_on_and_what_is_tested(tmp_path):
    """A file that is named itself is read whatever it is called; a folder without held-out files is tested on whole."""
    for name in ("train", "test", "validation-1", "dev", "eval", "latest"):
        KINDS["jsonl"](tmp_path / f"{name}.jsonl", [{"text": name}])

    def texts(read, path=tmp_path):
        return [row.values["text"] for row in read(path)]

    assert texts(read_training_files) == ["latest", "train"]
    assert texts(read_test_files) == ["dev", "eval", "test", "validation-1"]
    assert (
        texts(read_training_files, tmp_path / "test.jsonl")
        == texts(read_test_files, tmp_path / "test.jsonl")
        == ["test"]
    )
    for name in ("test", "validation-1", "dev", "eval"):
        (tmp_path / f"{name}.jsonl").unlink()
    assert texts(read_test_files) == ["latest", "train"]


def test_names_of_rows_differ_within_a_folder(tmp_path):
    """`train.json` beside `train.jsonl`: the ids of all rows are different ones."""
    for kind, write in KINDS.items():
        write(tmp_path / f"train.{kind}", [{"text": kind}])
    names = [row.name for row in read_files(tmp_path)]
    assert names == ["train.json-0", "train.jsonl-0", "train.parquet-0"]


def test_what_is_not_there_is_named(tmp_path):
    assert told(tmp_path / "x.jsonl") == "no such file; expected one of type .jsonl, .json, .parquet"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/README.md").write_text("no data")
    with pytest.raises(StageError) as stopped:
        list(read_files(tmp_path / "folder"))
    expected = "expected a file, or a folder with files, of type .jsonl, .json, .parquet; found none"
    assert str(stopped.value) == f"{tmp_path}/folder: {expected}"
    with pytest.raises(StageError, match="no such file"):
        list(read_files(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"question": "half \ud800"}, "question"),
        ({"a": 1, "messages": [{"role": "user", "content": "\udfff"}]}, "messages"),
        ({"metadata": {"source": ["fine", "\ud83d"]}}, "metadata"),
    ],
)
def test_half_a_character_is_named_by_its_field(values, field):
    """Half of a pair can be spelt in JSON, but no file can keep it."""
    row = Row(json.loads(json.dumps(values)), "x-0", "x.jsonl: line 1")
    with pytest.raises(DataError, match=rf"^x\.jsonl: line 1: field '{field}' has half a character \(a surrogate\)"):
        parse_row(row, dict)
    assert parse_row(Row({"question": "whole \U0001f600"}, "x-0", ""), dict) == {"question": "whole \U0001f600"}


def test_a_fault_of_the_form_names_the_row_and_others_pass():
    def form(values):
        raise values["error"]

    with pytest.raises(DataError, match=r"^x\.jsonl: line 7: field 'a' is empty$"):
        parse_row(Row({"error": ValueError("field 'a' is empty")}, "x-6", "x.jsonl: line 7"), form)
    with pytest.raises(ZeroDivisionError):
        parse_row(Row({"error": ZeroDivisionError()}, "x-6", ""), form)


def test_a_hub_data_set_is_read_at_a_revision_and_its_rows_named(monkeypatch):
    asked, splits = [], {"train": [GOOD, GOOD], "test": [GOOD]}

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return splits

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = list(fetch_hub_rows("some/sums", "main", "abc", "train"))
    assert found == [Row(GOOD, f"train-{n}", f"some/sums: train, row {n}") for n in range(2)]
    assert asked == [(("some/sums", "main"), {"revision": "abc"})]
    with pytest.raises(StageError, match=r"^some/sums: there is no split 'dev'; expected 'train' or 'test'$"):
        list(fetch_hub_rows("some/sums", None, "abc", "dev"))


def test_how_many_rows_a_hub_set_has_by_its_card(tmp_path, monkeypatch):
    """A set's card names the rows of each split, so that they can be counted without the files; or it does not."""
    (tmp_path / "train.jsonl").write_bytes(LINE)
    for card, known in (
        ("dataset_info: {splits: [{name: train, num_examples: 7473, num_bytes: 1}]}", 7473),
        ("license: mit", None),
    ):
        (tmp_path / "README.md").write_text(f"---\n{card}\n---\n")
        assert fetch_hub_row_count(str(tmp_path), None, "main", "train") == known
        assert fetch_hub_row_count(str(tmp_path), None, "main", "no such split") is None
    monkeypatch.setattr(rows, "SECONDS", 0.05)
    released, ended = threading.Event(), []

    def slow(*_, **__):
        released.wait(60)
        ended.append(True)
        raise ConnectionError

    monkeypatch.setattr(datasets, "load_dataset_builder", slow)
    assert fetch_hub_row_count("slow/set", None, "main", "train") is None
    assert not ended
    released.set()


@pytest.mark.parametrize(
    "error",
    [ConnectionError("no route\nto host"), ValueError("Config name is missing.\nPick one"), RuntimeError("x")],
    ids=str,
)
def test_a_hub_that_gives_nothing_is_one_line(monkeypatch, error):
    def load_dataset(*_, **__):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(StageError) as stopped:
        list(fetch_hub_rows("some/sums", None, "abc", "train"))
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    assert str(stopped.value) == f"some/sums: cannot be read from the hub at revision abc ({said})"
