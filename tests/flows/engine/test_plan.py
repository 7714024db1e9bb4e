import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.engine.plan import PlanError, plan_stages
from tests.flows.engine.toy import Toy

pytestmark = pytest.mark.usefixtures("plain_commands")


def test_a_plan_is_in_topological_order_and_says_why(toy: Toy) -> None:
    toy.diamond()
    planned = toy.plan("d")
    assert planned[0].name == "a"
    assert planned[-1].name == "d"
    assert {stage.reason for stage in planned} == {"never run"}
    assert {stage.name: stage.upstream for stage in planned} == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    assert toy.reasons("b").keys() == {"a", "b"}


def test_reasons_name_what_changed(toy: Toy) -> None:
    toy.diamond()
    toy.set(b={"beta": 0.1, "deep": {"x": 1}})
    toy.run()
    assert set(toy.reasons().values()) == {None}

    toy.set(b={"beta": 0.2, "deep": {"x": 1}})
    assert toy.reasons() == {
        "a": None,
        "b": "param b.beta changed 0.1 -> 0.2",
        "c": None,
        "d": "upstream b will run",
    }
    toy.set(b={"beta": 0.1, "deep": {"x": 1}})
    (toy.root / "data/c").unlink()
    assert toy.reasons()["c"] == "out data/c missing"
    toy.write("data/c", "edited by hand")
    assert toy.reasons()["c"] == "out data/c changed since"
    toy.stages["a"]["cmd"] += " "
    toy.stages["a"]["cmd"] = "true; " + toy.stages["a"]["cmd"]
    toy.save()
    assert toy.reasons("a") == {"a": "command changed"}


def test_a_changed_dep_and_force(toy: Toy) -> None:
    toy.diamond()
    toy.run()
    assert toy.reasons(force=["b"]) == {"a": None, "b": "forced", "c": None, "d": "upstream b will run"}
    toy.write("work.py", toy.read("work.py") + "# touched\n")
    assert set(toy.reasons().values()) == {"dep work.py changed"}


def test_that_there_is_work_is_told_before_the_plan_is_made_and_not_where_there_is_none(toy: Toy) -> None:
    toy.diamond()
    calls: list[str] = []
    plan_stages(toy.root, ["d"], on_work=lambda: calls.append("work"))
    assert calls
    toy.run()
    calls.clear()
    plan_stages(toy.root, ["d"], on_work=lambda: calls.append("work"))
    assert calls == []


def test_a_matrix_stage_stands_for_all_of_it(toy: Toy) -> None:
    toy.stage("a")
    toy.stages["evaluate"] = {
        "matrix": {"policy": ["x", "y"]},
        "cmd": "python work.py data/${item.policy} data/a",
        "deps": ["data/a"],
        "outs": ["data/${item.policy}"],
    }
    toy.save()
    assert toy.reasons("evaluate").keys() == {"a", "evaluate@x", "evaluate@y"}
    assert toy.reasons("evaluate@y").keys() == {"a", "evaluate@y"}


def test_resources_are_clamped_to_the_machine(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.stage("a", meta={"resources": {"cpu": 4096, "gpu": 1}})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (stage,) = toy.plan()
    assert 1 <= stage.cpu < 4096
    assert stage.gpu == 0, "without a GPU the stage runs on the CPU"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert toy.plan()[0].gpu == 1


@pytest.mark.parametrize(
    ("resources", "visible", "cpu", "gpu"),
    [
        ({"cpu": 2, "processes": 3}, "", 6, 0),
        ({"cpu": 2, "gpu": 2}, "", 2, 0),
        ({"cpu": 2, "gpu": 2}, "0,1", 4, 2),
        ({"cpu": 2, "gpu": 1, "processes": 3}, "0,1", 2, 1),
        ({"cpu": 2, "gpu": 1, "processes": 3}, "", 6, 0),
    ],
)
def test_each_of_several_processes_has_its_cores(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, resources: dict[str, int], visible: str, cpu: int, gpu: int
) -> None:
    monkeypatch.setattr("flows.engine.plan.count_cores", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    toy.stage("a", meta={"resources": resources})
    (stage,) = toy.plan()
    assert (stage.cpu, stage.gpu) == (cpu, gpu)


TORN = 'schema: "2.0"\nstages:\n  a:\n    cmd: "python wo'
STAGE = {"cmd": "true", "outs": ["data/x"]}
BAD_PIPELINES = [
    ('{"stages": {"a": {"cmd": ', "dvc.yaml: broken YAML in line 2"),
    ('{"stages": {"a": {"cmdd": "true"}}}', "dvc.yaml: stages.a.cmdd: extra keys not allowed"),
    (json.dumps({"stages": {"a": {**STAGE, "cmd": "true ${nope}"}}}), "'stages.a.cmd' in 'dvc.yaml'"),
    (json.dumps({"stages": {"a": STAGE, "b": STAGE}}), "dvc.yaml: out data/x: made by more than one stage: a, b"),
    (
        json.dumps({"stages": {"a": {**STAGE, "deps": ["gone.txt"]}}}),
        "dvc.yaml: stage 'a': dep gone.txt does not exist",
    ),
    (
        json.dumps({"stages": {"a": {**STAGE, "params": ["gone"]}}}),
        "params.yaml: gone: missing, and stage 'a' needs it",
    ),
    (
        json.dumps({"stages": {"a": {**STAGE, "meta": {"resources": {"cpu": "all"}}}}}),
        "expected a number of at least 1",
    ),
    (
        json.dumps({"stages": {"a": {**STAGE, "meta": {"resources": {"shard": "gradients"}}}}}),
        "meta.resources.shard: expected optimizer or model, got 'gradients'",
    ),
    (
        json.dumps({"stages": {"a": {**STAGE, "meta": {"resources": {"processes": 0}}}}}),
        "meta.resources.processes: expected a number of at least 1, got 0",
    ),
    (json.dumps({"stages": {"a": {**STAGE, "meta": {"resources": {"gpu": 9}}}}}), "asks for 9, this machine has 2"),
]


@pytest.mark.parametrize(("pipeline", "expected"), BAD_PIPELINES)
def test_a_broken_pipeline_is_one_clear_line(
    toy: Toy, pipeline: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    toy.save()
    toy.write("dvc.yaml", pipeline)
    with pytest.raises(PlanError) as error:
        toy.plan("a")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("dvc.lock", TORN, "dvc.lock: broken YAML in line 4"),
        ("dvc.lock", "sch", "dvc.lock: content: expected a dictionary (restore it with `git checkout dvc.lock`"),
        ("params.yaml", '{"a": [1\nb: 2', "params.yaml: broken YAML in line 2: "),
        ("params.yaml", "", "params.yaml: a: missing, and stage 'a' needs it"),
    ],
)
def test_a_broken_file_is_one_clear_line(toy: Toy, file: str, content: str, expected: str) -> None:
    toy.stage("a")
    toy.write(file, content)
    with pytest.raises(PlanError) as error:
        toy.plan("a")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_stage_gets_a_suggestion(toy: Toy) -> None:
    toy.stage("tokenizer")
    with pytest.raises(PlanError, match="no stage 'tokeniser'; did you mean 'tokenizer'"):
        toy.plan("tokeniser")


@pytest.mark.parametrize("content", ["", '{"read": {"x', "[]"])
def test_a_damaged_rwlock_is_mended(toy: Toy, content: str) -> None:
    toy.stage("a")
    toy.write(".dvc/tmp/rwlock", content)
    assert toy.states() == {"a": "ran"}


def test_missing_repositories_are_named(toy: Toy) -> None:
    toy.stage("a")
    (toy.root / ".git").rename(toy.root / "git")
    with pytest.raises(PlanError, match="git init"):
        toy.plan()
    (toy.root / "git").rename(toy.root / ".git")
    (toy.root / ".dvc").rename(toy.root / "dvc")
    with pytest.raises(PlanError, match="dvc init"):
        toy.plan()


def test_planning_imports_neither_prefect_nor_mlflow(toy: Toy) -> None:
    toy.stage("a")
    program = (
        "import sys; from pathlib import Path; from flows.engine.plan import plan_stages;"
        "plan_stages(Path(sys.argv[1]), ['a']);"
        "print(sorted({'prefect', 'mlflow', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(toy.root)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_data_behind_a_link_is_told_at_once(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Git ignores nothing behind a link, and DVC's error says only that it finds no repository."""
    toy.diamond()
    away = tmp_path_factory.mktemp("another disk")
    (toy.root / "data").symlink_to(away)
    with pytest.raises(
        PlanError, match=rf"^data: a link to {away}, behind which DVC keeps nothing; to have the data on"
    ):
        toy.plan()
    assert not any(away.iterdir())


def test_a_path_with_braces_is_told_at_once(tmp_path: Path) -> None:
    """With braces DVC fails with a KeyError when it hashes an out."""
    (tmp_path / "{a}").mkdir()
    with pytest.raises(
        PlanError, match=r"DVC takes braces in a path for the fields of its progress bars; move the repository$"
    ):
        plan_stages(tmp_path / "{a}", ["a"])
