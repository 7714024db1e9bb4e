import json
import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from tasks import check
from tasks.check import find_file_problems
from tasks.common.tables import Table
from tasks.language.tables.judgements import Judgements
from tests.tasks import forks

PROBLEM = {"problem_id": "a", "question": "3 + 4?", "solution": "3 + 4 = 7\n#### 7", "answer": "7", "steps": 1}


def table(path: Path, **changes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([PROBLEM | changes]).to_parquet(path)
    return path


def leaves(schema: type[Table]) -> Iterator[type[Table]]:
    """The tables below a schema that no other one is made of."""
    below = schema.__subclasses__()
    for inner in below:
        yield from leaves(inner)
    if not below:
        yield schema


def test_sound_outs_pass(tmp_path):
    table(tmp_path / "problems" / "test.parquet")
    save_file({"w": np.ones((2, 2), np.float32), "ids": np.arange(3)}, tmp_path / "model.safetensors")
    save_torch_file({"w": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "half.safetensors")
    (tmp_path / "metrics.json").write_text('{"a": {"mean": 0.5, "of": [1, 2]}, "name": "x"}')
    (tmp_path / "sft.csv").write_text("step,loss\n1,0.5\n")
    (tmp_path / "none.csv").write_text("step\n")
    (tmp_path / "README.md").write_text("not checked")
    assert list(find_file_problems(tmp_path)) == []


def test_tables(tmp_path):
    (problem,) = find_file_problems(table(tmp_path / "problems" / "test.parquet", answer="8"))
    assert "test.parquet: not a Problems table:" in problem
    assert "a solution's last line '#### ..' names the answer" in problem
    other = list(find_file_problems(table(tmp_path / "preferences" / "test.parquet")))
    assert "not a Comparisons table" in other[0]
    assert len(other) == 6  # five told, the rest counted
    (unknown,) = find_file_problems(table(tmp_path / "other.parquet"))
    assert "no schema is known" in unknown


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights(tmp_path, bad):
    save_file({"good": np.ones(2, np.float32), "w": np.array([1, bad, bad], np.float32)}, tmp_path / "m.safetensors")
    assert list(find_file_problems(tmp_path)) == [f"{tmp_path}/m.safetensors: tensor w: 2 of 3 values are not finite"]
    save_torch_file({"w": torch.tensor([1, bad], dtype=torch.bfloat16)}, tmp_path / "m.safetensors")
    assert list(find_file_problems(tmp_path)) == [f"{tmp_path}/m.safetensors: tensor w: 1 of 2 values are not finite"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("m.json", '{"a": {"b": [0.5, NaN]}}', "a.b[1]: expected a finite number, got nan"),
        ("m.json", '{"a": ', "cannot be read: Expecting value"),
        ("c.csv", "step,loss\n1,0.5\n2,\n", "column loss, line 3: expected a finite number, got nan"),
        ("c.csv", "step,loss\n1,inf\n", "column loss, line 2: expected a finite number, got inf"),
        ("c.csv", "", "cannot be read: No columns to parse from file"),
        ("t.parquet", "torn", "no schema is known"),
        ("test.parquet", "torn", "cannot be read"),
        ("m.safetensors", "torn", "cannot be read"),
    ],
)
def test_numbers_and_torn_files(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    (problem,) = find_file_problems(tmp_path / name)
    assert problem.startswith(f"{tmp_path / name}: {told}")


def test_as_a_command(tmp_path, monkeypatch, capsys):
    good, bad = table(tmp_path / "problems" / "test.parquet"), tmp_path / "m.json"
    bad.write_text("[Infinity]")
    monkeypatch.delitem(sys.modules, "tasks.check")
    for files, status, line in (([good], 0, ""), ([good, bad], 1, f"{bad}: [0]: expected a finite number, got inf\n")):
        monkeypatch.setattr(sys, "argv", ["check", *map(str, files)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("tasks.check", run_name="__main__", alter_sys=True)
        assert (ended.value.code, capsys.readouterr().err) == (status, line)


def test_one_process_answers_for_many_outs(tmp_path):
    good, bad = table(tmp_path / "problems" / "test.parquet"), tmp_path / "m.json"
    bad.write_text("[Infinity]")
    questions = "".join(json.dumps([str(path) for path in paths]) + "\n" for paths in ([good], [good, bad], [good]))
    (asked, asking), (answered, answering) = os.pipe(), os.pipe()

    def serve():
        os.close(asking)
        sys.argv, sys.stdin, sys.stdout = ["check", "-"], os.fdopen(asked), os.fdopen(answering, "w")
        del sys.modules["tasks.check"]
        runpy.run_module("tasks.check", run_name="__main__", alter_sys=True)

    child = forks.start(serve)
    os.close(asked)
    os.close(answering)
    os.write(asking, questions.encode())
    with os.fdopen(answered) as lines:
        answers = [json.loads(lines.readline()) for _ in range(3)]
    os.close(asking)
    assert forks.ended(child) == 0
    assert answers == [[], [f"{bad}: [0]: expected a finite number, got inf"], []]


def fails(path):
    return 1 / 0


@pytest.mark.parametrize(("answer", "status"), [(lambda _: time.sleep(600), 0), (fails, 1)], ids=["busy", "broken"])
def test_it_ends_with_its_input_or_with_its_own_error(answer, status, tmp_path):
    """Even during a check. The input of one that fails stays open."""
    reading, writing = os.pipe()

    def serve():
        os.close(writing)
        check.find_file_problems = answer
        sys.stdin, sys.stderr = os.fdopen(reading), (tmp_path / "error").open("w", buffering=1)
        check.serve_check_requests()

    child = forks.start(serve)
    os.close(reading)
    os.write(writing, b'["x"]\n')
    if status == 0:
        os.close(writing)
    assert forks.ended(child) == status
    if status:
        os.close(writing)
    assert ("ZeroDivisionError" in (tmp_path / "error").read_text()) == (status == 1)


def test_every_schema_has_a_file():
    """But that of judgements, which people write and no stage does."""
    assert set(check.collect_table_schemas().values()) == set(leaves(Table)) - {Judgements}


def recorded(path: Path) -> Path:
    """A small data set of transitions; the path of its HDF5 file."""
    from tasks.offline.datasets import dataset_files
    from tasks.offline.datasets.episodes import make_episode

    walk = make_episode(np.eye(20, dtype=np.float32)[[0, 1, 2, 3]], np.array([0, 1, 2]), -np.ones(3), True)
    dataset_files.write_offline_dataset(path, "graph", [walk, walk], dataset_files.ScoreReference(-10.0, -2.0), {})
    return path / dataset_files.DATA


def test_transitions(tmp_path):
    file = recorded(tmp_path / "graph-60")
    assert list(find_file_problems(tmp_path)) == []
    with h5py.File(file, "a") as content:
        content["episode_1"]["rewards"][2] = 5
    assert list(find_file_problems(tmp_path)) == [f"{file}: episode 1: rewards: they sum to 3, but the return is -3"]
    with h5py.File(file, "a") as content:
        del content["episode_1"]
    assert list(find_file_problems(tmp_path)) == [
        f"{file}: total_episodes: 1 here, but 2 in metadata.json",
        f"{file}: total_steps: 3 here, but 6 in metadata.json",
    ]
    file.write_bytes(b"torn")
    (torn,) = find_file_problems(tmp_path)
    assert torn.startswith(f"{file}: cannot be read: ")
    recorded(tmp_path / "graph-60")
    (file.parent / "metadata.json").unlink()
    (lonely,) = find_file_problems(tmp_path)
    assert "cannot be read: [Errno 2]" in lonely


def test_what_one_variant_alone_measures_is_no_gap(tmp_path):
    file = tmp_path / "curves.csv"
    file.write_text("variant,loss,language_loss\nDT,1,\nDT,2,\nDT-text,1,3\nDT-text,2,4\n")
    assert not [*find_file_problems(file)]
    file.write_text("variant,loss,language_loss\nDT,1,\nDT,2,\nDT-text,1,3\nDT-text,2,\n")
    assert [*find_file_problems(file)] == [f"{file}: column language_loss, line 5: expected a finite number, got nan"]
    file.write_text("variant,loss,language_loss\nDT,1,inf\nDT,2,\nDT-text,1,3\n")
    assert [*find_file_problems(file)] == [f"{file}: column language_loss, line 2: expected a finite number, got inf"]
