"""The benchmark against Minari's reader at toy size: everything runs, and both sides read the same."""

import re
import sys

import numpy as np
from minari.dataset.minari_storage import MinariStorage

from benchmarks import episodes as benchmark
from benchmarks import result_files
from tasks.offline.datasets import dataset_files, episodes
from tasks.offline.datasets.dataset_files import ScoreReference


def test_the_command(tmp_path, monkeypatch):
    out = tmp_path / "episodes.json"
    monkeypatch.setattr(sys, "argv", ["episodes", "--quick", "--out", str(out)])
    benchmark.main()
    rows = [line for line in result_files.load_result(out)["page"] if re.match(r"\| \w", line)]
    assert [row.split("|")[1].strip() for row in rows] == [case.name for case in benchmark.CASES]
    assert all(float(cell.split()[0]) >= 0 for row in rows for cell in row.split("|")[2:-1])


def test_a_line_of_the_table():
    seconds = {"minari": [4.0, 6.0, 5.0], "ours": [1.0, 2.0, 3.0], "stage": [3.0]}
    expected = "| x | 5.00 (4.00 to 6.00) | 2.00 (1.00 to 3.00) | 2.5 | 3.00 (3.00 to 3.00) |"
    assert benchmark.format_reading_row(benchmark.Case("x", 1, 1, 1), seconds) == expected


def test_both_sides_read_the_same_episodes(tmp_path):
    case = benchmark.CASES[0]
    dataset_files.write_offline_dataset(
        tmp_path / "it", benchmark.ENVIRONMENT, benchmark.make_random_episodes(case, 30), ScoreReference(0.0, 1.0), {}
    )
    theirs = MinariStorage.read(tmp_path / "it" / "data").get_episodes(range(30))
    ours = list(episodes.read_episode_file(tmp_path / "it" / dataset_files.DATA))
    for one, other in zip(ours, theirs, strict=True):
        assert case.shortest <= len(one) <= case.longest
        for field in episodes.FIELDS:
            np.testing.assert_array_equal(getattr(one, field), other[field])
            assert getattr(one, field).dtype == other[field].dtype
