"""Files of suites are read before a run that would read them, and before a model is trained."""

import pytest

from flows.params import data_files
from flows.params.files import ParameterError
from tasks.preflight import user_files
from tests import repository
from tests.flows.params.test_data_files import add_reader
from tests.tasks.preflight.test_data import given, write
from tests.tasks.preflight.test_user_files import fault


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ({"suite": "gsm9k"}, "suite 'gsm9k': expected one of "),
        ({"revision": "main"}, "suite gsm8k: revision 'main': expected a commit"),
        ({}, "line 1: field 'answer' does not end in '#### N'"),
        ({"shots": 2, "revision": "a" * 40}, "gsm8k/train has 1 examples; expected 2"),
    ],
)
def test_suites_are_known_and_their_files_read(tmp_path, cell, expected):
    write(tmp_path / "gsm8k/test.jsonl", [{"question": "2?", "answer": "two"}])
    write(tmp_path / "gsm8k/train.jsonl", [{"question": "2?", "answer": "#### 2"}])
    whole = {"policy": "sft", "suite": "gsm8k", "revision": None, "shots": 0, "samples": 0, **cell}
    configs = given(benchmarks={"folder": str(tmp_path), "cells": {"one": whole}})
    assert expected in fault(configs, {"sft", "benchmarks@one"})
    [line] = user_files.iterate_user_file_checks(configs, {"sft"})
    assert expected in line


def test_suites_are_files_that_are_read_before_a_model_is_trained(tmp_path):
    repository.write_params(tmp_path)
    add_reader(tmp_path)
    for file in ("configs/benchmarks.py", "configs/benchmark_pages.py", "preflight.py"):
        path = tmp_path / "tasks/extensions/suites" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    data_files.check_data_files(tmp_path, {"dpo"})
    params = tmp_path / "params.yaml"
    cell = "benchmarks: {one: {policy: sft, suite: gsm8k, revision: null, shots: 0, samples: 0}}"
    params.write_text(params.read_text().replace("benchmarks: {}", cell))
    with pytest.raises(ParameterError, match=r"^--data dpo$"):
        data_files.check_data_files(tmp_path, {"dpo"})
    with pytest.raises(ParameterError, match=r"^--data benchmarks@one$"):
        data_files.check_data_files(tmp_path, {"benchmarks@one"})
    data_files.check_data_files(tmp_path, {"benchmark_pages@all"})
