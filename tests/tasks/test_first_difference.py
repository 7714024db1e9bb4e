"""The first difference of two files: in each format by hand, and for tensors against a count by numpy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from safetensors.torch import save_file

from tasks.first_difference import find_first_difference

ROOT = Path(__file__).parents[2]


def difference(folder: Path, name: str, before: str | bytes, after: str | bytes) -> dict[str, Any]:
    files = folder / f"before-{name}", folder / f"after-{name}"
    for file, content in zip(files, (before, after), strict=True):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return find_first_difference(name, *files)


def test_the_first_tensor_in_the_order_of_the_file_and_how_far_it_is_off(tmp_path):
    before = {"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.float32), "c": np.ones(2, np.float32)}
    after = {**before, "b": np.array([1, 1.5, 1, 0.75], np.float32), "c": np.zeros(2, np.float32)}
    found = difference(tmp_path, "model.safetensors", save(before), save(after))
    assert found["what"] == "tensor b (F32 4): 2 of 4 values differ, by 0.5 at most; 2 of 3 tensors differ"
    assert (found["tensor"], found["shape"], found["dtype"]) == ("b", [4], "F32")
    assert (found["values"], found["of"], found["largest"], found["tensors"]) == (2, 4, 0.5, 2)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=40, max_size=40),
    st.sampled_from([np.float32, np.float64, np.float16]),
)
def test_values_are_counted_as_numpy_counts_them(tmp_path, numbers, others, dtype):
    with np.errstate(over="ignore"):
        one, two = np.array(numbers).astype(dtype), np.array(others[: len(numbers)]).astype(dtype)
    one, two = np.nan_to_num(one, posinf=0, neginf=0) + dtype(0), np.nan_to_num(two, posinf=0, neginf=0) + dtype(0)
    found = difference(tmp_path, "x.safetensors", save({"w": one}), save({"w": two}))
    count = int(np.sum(one != two))
    if count:
        assert found["values"] == count
        assert found["largest"] == np.max(np.abs(one.astype(np.float64) - two.astype(np.float64)))
    else:
        assert "tensor" not in found


def test_bfloat16_and_numbers_that_are_none(tmp_path):
    before = torch.tensor([1.0, 2.0, float("nan"), 4.0], dtype=torch.bfloat16)
    after = torch.tensor([1.0, 2.5, 3.0, 4.0], dtype=torch.bfloat16)
    for name, tensor in (("one", before), ("two", after)):
        save_file({"w": tensor}, tmp_path / name)
    found = find_first_difference("w.safetensors", tmp_path / "one", tmp_path / "two")
    assert (found["values"], found["largest"], found["dtype"]) == (2, 0.5, "BF16")


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ({"a": np.zeros((3, 2), np.float32)}, "tensor a: F32 2x3 recorded, F32 3x2 made"),
        ({"a": np.zeros((2, 3), np.float64)}, "tensor a: F32 2x3 recorded, F64 2x3 made"),
        ({"b": np.zeros((2, 3), np.float32)}, "tensor a: only in the recorded file; 2 of 2 tensors differ"),
        (
            {"a": np.zeros((2, 3), np.float32), "z": np.zeros(1, np.float32)},
            "tensor z: only in the made file",
        ),
    ],
)
def test_other_tensors(tmp_path, after, what):
    before = {"a": np.zeros((2, 3), np.float32)}
    assert difference(tmp_path, "x.safetensors", save(before), save(after))["what"] == what


@pytest.mark.parametrize("broken", [b"", b"\xff" * 40, b"\x08" + bytes(7) + b"[1,2,3] ", b"\x02" + bytes(7) + b"{}"])
def test_a_broken_file_is_compared_byte_by_byte(tmp_path, broken):
    found = difference(tmp_path, "x.safetensors", save({"a": np.zeros(2, np.float32)}), broken)
    assert "byte" in found or "tensor a: only in the recorded file" in found["what"]


def test_tables(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"step": range(3000), "x": np.arange(3000.0), "words": [["a", "b"]] * 3000})
    other = frame.copy()
    other.loc[2100, "x"] = 7.0
    other.loc[2500, "step"] = 0
    for name, table in (("one", frame), ("two", other), ("short", frame[:2999]), ("less", frame[["step", "x"]])):
        table.to_parquet(tmp_path / name)
    found = find_first_difference("t.parquet", tmp_path / "one", tmp_path / "two")
    assert found == {
        "what": "row 2100 (step 2100), column x: 2100.0 recorded, 7.0 made",
        "row": 2100,
        "column": "x",
        "step": 2100,
    }
    assert (
        find_first_difference("t.parquet", tmp_path / "one", tmp_path / "short")["what"]
        == "only the recorded table has row 2999"
    )
    assert find_first_difference("t.parquet", tmp_path / "one", tmp_path / "less")["column"] == "words"
    frame.to_parquet(tmp_path / "packed", compression="gzip")
    same = find_first_difference("t.parquet", tmp_path / "one", tmp_path / "packed")
    assert same == {"what": "its content is the same; only the encoding differs"}


def test_curves(tmp_path):
    before, after = "step,loss,eval\n1,0.5,\n2,0.25,nan\n", "step,loss,eval\n1,0.5,\n2,0.2,nan\n"
    found = difference(tmp_path, "c.csv", before, after)
    assert found == {
        "what": "row 1 (step 2), column loss: 0.25 recorded, 0.2 made",
        "row": 1,
        "column": "loss",
        "step": "2",
    }
    assert "its columns" in difference(tmp_path, "c.csv", before, "step,loss\n1,0.5\n")["what"]
    assert difference(tmp_path, "c.csv", before, before + "3,0,0\n")["what"] == "only the made table has row 2"


def test_keys(tmp_path):
    before, after = {"a": {"b": [1, 2, {"c": 1}]}, "d": 1}, {"a": {"b": [1, 2, {"c": True}]}, "d": 2}
    found = difference(tmp_path, "m.json", json.dumps(before), json.dumps(after))
    assert found == {"what": "key a.b.2.c: 1 recorded, True made", "key": "a.b.2.c"}
    less = difference(tmp_path, "m.json", json.dumps({"a": 1, "b": 2}), json.dumps({"a": 1}))
    assert less["what"] == "key b: 2 recorded, nothing made"
    assert "encoding" in difference(tmp_path, "m.json", '{"a": NaN}', '{"a":  NaN}')["what"]
    lines = difference(tmp_path, "m.jsonl", '{"a": 1}\n{"a": 2}\n', '{"a": 1}\n{"a": 3}\n')
    assert (lines["what"], lines["line"]) == ("line 2, key a: 2 recorded, 3 made", 2)


def test_texts_and_bytes(tmp_path):
    found = difference(tmp_path, "report.md", "one\ntwo\nthree\n", "one\ntwo\nthRee\n")
    assert found == {"what": "line 3: three recorded, thRee made", "line": 3, "byte": 10}
    found = difference(tmp_path, "image.png", b"\0" * 2**20 + b"\0a", b"\0" * 2**20 + b"\0b")
    assert found["byte"] == 2**20 + 1
    assert difference(tmp_path, "notes.txt", "one\n", "one\ntwo\n")["line"] == 2
    assert "\x1b" not in difference(tmp_path, "notes.txt", "one\n", "\x1b[31mred\n")["what"], "no control characters"


def test_the_command_answers_for_each_pair(tmp_path):
    for name, text in (("a", "1"), ("b", "2"), ("c", "3")):
        (tmp_path / name).write_text(text)
    asked = [["x.json", str(tmp_path / "a"), str(tmp_path / "b")], ["x", str(tmp_path / "a"), str(tmp_path / "c")]]
    command = [sys.executable, "-m", "tasks.first_difference"]
    done = subprocess.run(command, input=json.dumps(asked), cwd=ROOT, capture_output=True, text=True, check=True)
    assert [answer["what"] for answer in json.loads(done.stdout)] == [
        "its value: 1 recorded, 2 made",
        "line 1: 1 recorded, 3 made",
    ]
