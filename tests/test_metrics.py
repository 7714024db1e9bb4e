"""Exactly the metrics that stages log are explained: all stages run at tiny size, and their outs are read."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tasks import check, contract, metrics
from tasks.common import pages, plots, tables
from tasks.language import solutions
from tasks.language.configs.parts.names import list_reward_names
from tasks.language.reporting import comparing
from tasks.language.rewards import ranking_accuracy, rubric, verifier
from tasks.language.tables.solutions import split_steps
from tasks.language.training import judge
from tasks.offline import behaviour
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.environments import rendering
from tasks.reference_pages import DocumentedStage
from tests import extensions, seams
from tests.seam_params import CONTINUOUS, DISCRETE, TRAINING
from tests.tasks import solved
from tests.tasks.agents import small
from tests.tasks.language import judged
from tests.test_seams import TINY, laid_over

ROOT = seams.ROOT
PIPELINE = {"stages": seams.PIPELINE}
KINDS = ("CURVES", "METRICS", "HEADLINE")
FUNCTION = "rewards/mine.py:length"
REWARD = {
    "reward": dict.fromkeys((*list_reward_names(), FUNCTION), 1.0),
    "reward_files": "rewards/mine.py",
}
EVALUATED = ("sft", "dpo")  # of the policies of dvc.yaml
SMALL = ("dqn", "cql", "awr", "iql", "decision_transformer")
SHORT = 4  # tokens of an answer or of an action
FEW = {"steps": 2, "evaluate_prompts": 2, "max_new_tokens": SHORT}
WHOLE = {"micro_batch": 9}  # all answers of a step at once
# With these values each metric appears, and no stage runs longer than for that.
PARAMS = laid_over(
    TINY,
    {
        "pretrained": {"steps": 2},
        "responses": {"max_new_tokens": SHORT},
        "preferences": {"criteria": "rubric"},  # by their manner answers this short are all alike
        "solutions": {"prompts": 2, "max_new_tokens": SHORT},
        "rejection_sft": {"minimum_reward": -999.0, "prompts": 4, "max_new_tokens": SHORT},
        "reinforce": {**FEW, **REWARD, **WHOLE, "importance_cap": 2.0, "kl_coefficient": 0.1, "variance_parts": 2},
        "ppo": {**FEW, **REWARD, **WHOLE, "importance_cap": 2.0},
        "grpo": {**FEW, **REWARD, **WHOLE, "importance_cap": 2.0, "beta": 0.1},
        "evaluate": {
            **{"problems": 8, "samples": 8, "temperatures": [1.0], "candidates": [1.0], "bootstrap": 5},
            "max_new_tokens": SHORT,
        },
        "reward_model": {"prompts_per_batch": 16},
        **extensions.entries("METRICS"),
        "report": {"policies": ["sft", "dpo"], "bootstrap": 5},
        "behaviour": {"environments": {**TINY["behaviour"]["environments"], "CartPole-v1": {"steps": 512, **TRAINING}}},
        "transitions": {
            "datasets": {
                name: {**entry, "episodes": entry["episodes"] // 2}
                for name, entry in TINY["transitions"]["datasets"].items()
            }
        },
        **{name: {"seeds": [0], "steps": 10, "log_every": 5} for name in SMALL},
        "returns": {"episodes": 2, "fitted_q": {**TINY["returns"]["fitted_q"], "most_steps": 60}},
        "decision_transformer": {
            "seeds": [0],
            "steps": 10,
            "log_every": 5,
            "variants": {"DT": {"init": "random", "text": 0.5}},
        },
        "offline_report": {
            "policies": {
                f"bc-{DISCRETE}": {"method": "bc", "dataset": DISCRETE},
                f"cql-{CONTINUOUS}": {"method": "cql", "dataset": CONTINUOUS},
            },
            "expectations": [],
        },
        "behaviour_cloning": {"epochs": 2},
        "budgets": {
            **{"epochs": 1, "games": 2},
            "policies": {
                name: {**entry, "dollars": 120.0 if name == "comparisons" else 60.0}  # so that not all of them are ties
                for name, entry in TINY["budgets"]["policies"].items()
                if name != "one"
            },
        },
        "agents": {
            **{"steps": 1, "games": 2, "max_action_tokens": SHORT, "iterations": 1},
            "policies": {**TINY["agents"]["policies"], "trpo": {**small.ENTRY, "update": "trust_region"}},
        },
        "agent_episodes": {"sets": {"mixed": {**small.MIXED, "episodes": 4, "expert": 4}}},
        "agent_returns": {"games": 2, "max_action_tokens": SHORT},
        "agents_report": {"policies": {name: small.MEASURED[name] for name in ("clone", "reinforce")}},
    },
)
WITH_STEPS = extensions.entries("WITH_STEPS")
WHOSE = {"step", "variant", "seed"}  # columns that identify a row
CURVES_OF = {"sft_control": "sft_matched"}  # a control is a policy, and its curve is that policy's
HANDED_ON = {
    "returns": {"curves.csv", "returns.csv"},
    "evaluate": {"curve.csv"},
    "agent_returns": {"curves.csv"},
}  # files of another stage


def points_by_length(_question, _solution, _answer, response, _ended):
    return rubric.RubricScore(
        len(response) % 6, "by length", len(response) % 4, "by length", len(response) % 3, "by length"
    )


class Wrong:
    """What judges answers in place of math-verify's process, which takes seconds to start: models this small are never
    right.
    """

    def __init__(self, seconds: float) -> None:
        pass

    def judge(self, gold: str, answer: str, near: bool = False) -> float:
        return 0.0

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


def without_pages(patch: pytest.MonkeyPatch) -> None:
    """No metric is in a page or a picture, and none depends on the checks of a table's columns."""
    for name in (
        "render_metric_curves",
        "render_curve_panel",
        "render_scatter_plot",
        "render_lines_with_levels",
        "render_calibration_plot",
        "render_category_intervals",
        "render_small_multiples",
    ):
        patch.setattr(plots, name, lambda *_, **__: "<svg></svg>")
    patch.setattr(Figure, "savefig", lambda _, file, **__: file.write("<svg></svg>"))
    patch.setattr(rendering.Camera, "__call__", lambda *_: None)
    patch.setattr(rendering.Camera, "encode_gif", lambda _: b"")
    patch.setattr(pages, "write_report_pages", lambda *given: given[-1].mkdir(parents=True, exist_ok=True))
    patch.setattr(tables, "_validate_table", lambda _schema, frame, _path: frame)


@pytest.fixture(scope="module")
def stages():
    """What dvc.yaml says of each stage."""
    return contract.collect_documented_stages(PIPELINE)


@pytest.fixture(scope="module")
def modules(stages):
    """The module of each stage."""
    return {name: importlib.import_module(stage.module) for name, stage in stages.items()}


@pytest.fixture(scope="module")
def home(one_thread, tmp_path_factory):
    """A folder in which each stage has run once.

    Models this small never show a step and never earn a point, so all rewards would be equal; lengths decide in their
    place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("metrics"))
        patch.setattr(ranking_accuracy, "parse_equations", lambda response: len(response) % 2)
        patch.setattr(rubric, "score_response", points_by_length)
        patch.setattr(judge, "check_reward_model_objective", lambda *_: None)
        patch.setattr(verifier, "VerifierWorker", Wrong)
        patch.setattr(
            behaviour, "compute_score_reference", lambda *_: ScoreReference(0.0, 1.0)
        )  # so short a training may make it worse
        without_pages(patch)
        patch.setattr(comparing, "FEWEST", 2)  # so few problems have no intervals otherwise
        patch.setattr(
            solutions, "compute_step_labels", lambda *given: [1 - 2 * (len(one) % 2) for one in split_steps(given[-1])]
        )
        Path("rewards").mkdir()
        Path("rewards/mine.py").write_text("def length(responses, **columns): return [len(one) for one in responses]")
        for name, lines in extensions.entries("RAW").items():
            file = Path(f"data/raw/{name}.jsonl")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines))
        for stage in (stage for stage in PARAMS if stage not in WITH_STEPS):
            run(stage, PARAMS)
            if stage == "pretrained":
                shutil.copytree("data/pretrained", "data/raw/models")
                solved.outcome_model(Path("data/pretrained"), Path("data/outcome"))
        pairs = [
            {"prompt": f"{n}?", "chosen": "a", "rejected": "b", "score_chosen": 2, "score_rejected": n}
            for n in range(4)
        ]
        Path("pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
        given = laid_over(PARAMS, {"preferences": {"source": "files", "path": "pairs.jsonl"}})
        seams.run("preferences", given, Path("given"))
        judged.two_people(Path("judgements.jsonl"))
        people = {"judgements": "judgements.jsonl", "pairs_path": "pairs.jsonl", "minimum": 1}
        shares = {"annotator": 1.0, "people": 1.0, "files": 1.0, "hub": 0.0}
        mixed = laid_over(PARAMS, {"preferences": {**people, "source": "mixture", "mixture": shares}})
        seams.run("preferences", mixed, Path("mixed"))
        shutil.copy("mixed/data/metrics/preferences.json", "data/metrics/preferences@mixed.json")
        for stage, rows in extensions.entries("FILES").items():
            Path(f"{stage}.jsonl").write_text("\n".join(map(json.dumps, rows)))
            of_file = laid_over(PARAMS, {stage: {"source": "files", "path": f"{stage}.jsonl"}})
            seams.run(stage, of_file, Path("read"))
            shutil.copy(f"read/data/metrics/{stage}.json", f"data/metrics/{stage}@files.json")
        asked = [{"question": f"{n}?", "answer": f"#### {n}"} for n in range(30)]
        for name in ("train", "test"):
            Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, asked)))
            asked = [{**row, "question": f"and {row['question']}"} for row in asked]
        files = {"name": "own", "source": "file", "location": "train.jsonl", "weight": 1.0, "reward": "policy"}
        hub = {"hub_config": None, "hub_revision": None, "hub_split": None}
        given["problems"] |= {"source": "files", "path": "."}
        given["mixture"] |= {"path": ".", "datasets": [{**files, **hub}]}
        given["solutions"]["source"] = "rollouts"
        for stage in ("problems", "mixture", "solutions"):
            seams.run(stage, given, Path("given"))
        for stage in ("preferences", "problems", "mixture", "solutions"):
            shutil.copy(f"given/data/metrics/{stage}.json", f"data/metrics/{stage}@given.json")
        on_solutions()
        without_answers()
        yield Path.cwd()


def run(stage, params):
    """Run a stage, of the evaluations two."""
    for branch in EVALUATED if stage == "evaluate" else (None,):
        seams.run(stage, params, Path.cwd(), branch)


def on_solutions():
    """Reward models of answers and of steps, beside the one of pairs."""
    solved.write(Path("data/problems/train.parquet"), Path("data/pretrained"), Path("data/solved"))
    own = {"kind": "head", "likelihood": 0.0, "data": "data/solved"}
    for objective in ("outcome", "process"):
        seams.run("reward_model", laid_over(PARAMS, {"reward_model": {**own, "objective": objective}}), Path(objective))
        shutil.copy(f"{objective}/data/metrics/reward_model.json", f"data/metrics/reward_model@{objective}.json")
        shutil.copytree(f"{objective}/data/reward_model", f"data/reward_model/{objective}")
    for stage, folder in WITH_STEPS.items():
        shutil.copytree("process/data/reward_model", folder)
        seams.run(stage, PARAMS, Path.cwd())


def without_answers():
    """Evaluation and report once more, on prompts that have a reference response and no answer, beside what they wrote
    before.
    """
    for file in Path("data/metrics").glob("evaluate@*.json"):
        shutil.copy(file, file.with_name(f"evaluate@answered-{file.stem.partition('@')[2]}.json"))
    shutil.copy("data/metrics/report.json", "data/metrics/report@answered.json")
    shutil.copytree("data/report/metrics", "data/report/metrics/answered")
    asked = [{"prompt": f"How many are {n} pens?", "response": "Some."} for n in range(4)]
    asked.insert(0, {"prompt": "Why? " * 400, "response": "It is too long."})
    Path("asked.jsonl").write_text("\n".join(map(json.dumps, asked)))
    own = {"source": "files", "path": "asked.jsonl", "pairs_path": "pairs.jsonl"}
    for stage in ("evaluate", "report"):
        run(stage, laid_over(PARAMS, {"evaluate": own}))


def names(file):
    return set(pd.json_normalize(json.loads(file.read_text()), sep="/").columns)


def logged(home, stage):
    """The names that the stage wrote, by the constant that explains them."""
    curves = CURVES_OF.get(stage, stage)
    files = [*home.glob(f"data/curves/{curves}.csv"), *home.glob(f"data/{stage}/**/*.csv")]
    own = [pd.read_csv(file) for file in files if file.name not in HANDED_ON.get(stage, ())]
    return {
        "CURVES": {name for table in own if "step" in table for name in table} - WHOSE,
        "METRICS": {
            name
            for file in home.glob("data/metrics/*.json")
            if file.stem.split("@")[0] == stage
            for name in names(file)
        },
        "HEADLINE": {name for file in home.glob(f"data/{stage}/metrics/**/*.json") for name in names(file)},
    }


def faults(found, explained):
    """Names in `found` without exactly one match in `explained`, and names in `explained` without a match in
    `found`.
    """
    patterns = {name: metrics.compile_metric_pattern(name) for name in explained}
    unclear = [one for one in sorted(found) if sum(bool(pattern.fullmatch(one)) for pattern in patterns.values()) != 1]
    unlogged = [name for name, pattern in patterns.items() if not any(map(pattern.fullmatch, found))]
    return {"logged, not explained once": unclear, "explained, not logged": unlogged} if unclear or unlogged else None


@pytest.mark.parametrize("stage", [stage for stage in seams.PIPELINE if stage != "code"])
def test_what_a_stage_logs_is_what_it_explains(home, modules, stage):
    module = modules[stage]
    for kind, found in logged(home, stage).items():
        assert faults(found, metrics.expand_reward_names(getattr(module, kind, {}))) is None, (
            f"{kind} of {module.__name__}"
        )


@pytest.mark.parametrize(
    ("found", "explained", "unclear", "unlogged"),
    [
        ({"loss", "pass_at_8_tbest"}, ["loss"], ["pass_at_8_tbest"], []),
        ({"loss"}, ["loss", "pass_at_K_T"], [], ["pass_at_K_T"]),
        ({"pass_at_t1_tbest"}, ["pass_at_K_T"], ["pass_at_t1_tbest"], ["pass_at_K_T"]),
        ({"BC/loss"}, ["VARIANT/loss", "DATASET/loss"], ["BC/loss"], []),
    ],
)
def test_what_is_not_explained_and_what_is_not_logged_would_be_noticed(found, explained, unclear, unlogged):
    assert faults(found, explained) == {"logged, not explained once": unclear, "explained, not logged": unlogged}


def test_every_table_that_a_stage_writes_has_a_schema(home):
    """By its place: otherwise `tasks.check` would refuse it, and a run would end there."""
    files = [file.relative_to(home) for file in (home / "data").rglob("*.parquet")]
    assert len(files) > 30
    assert not [file for file in files if file.parts[1] != "raw" and check.find_table_schema(file) is None]


def test_what_is_logged_and_explained_is_no_fault():
    assert faults({"loss", "pass_at_8_tbest"}, ["loss", "pass_at_K_T"]) is None


@pytest.mark.tree
def test_every_metric_has_a_sentence_of_its_own(modules):
    for stage, module in modules.items():
        for kind in KINDS:
            texts = [*metrics.expand_reward_names(getattr(module, kind, {})).values()]
            assert not [text for text in texts if len(text) < 12 or not text[0].isupper() or text[-1] != "."], stage
            assert len(texts) == len(set(texts)), f"{stage}: two metrics are explained by one sentence"


@pytest.mark.tree
def test_the_pages_are_what_the_stages_say(stages):
    pages = {file.name: file.read_text() for file in (ROOT / "docs/metrics").glob("*.md")}
    assert pages == metrics.render_metric_pages(stages), "`make contract`"


@pytest.mark.tree
def test_each_capital_word_is_explained_and_used(modules):
    explained = [
        metrics.expand_reward_names(getattr(module, kind, {})) for module in modules.values() for kind in KINDS
    ]
    names = [name for of_stage in explained for name in of_stage]
    assert {word for name in names for word in re.findall("[A-Z]+", name)} == set(metrics.load_all_placeholders())


@pytest.fixture
def page(monkeypatch):
    """The page of a stage whose module explains these metrics."""

    def written(**explained):
        monkeypatch.setitem(sys.modules, "tasks.extensions.toy.bc", SimpleNamespace(**explained))
        stage = DocumentedStage("Cloning", "tasks.extensions.toy.bc", None)
        return metrics.render_metric_pages({"bc": stage})["bc.md"].splitlines()

    return written


def test_a_row_names_a_curve_and_the_result_that_is_its_end(page):
    results = {"VARIANT/loss": "The loss.", "size": "The number of |weights|."}
    lines = page(CURVES={"loss": "The loss.", "q": "The mean Q."}, METRICS=results)
    table = lines.index("| curve | result | meaning |")
    assert lines[table + 2 : table + 5] == [
        "| `loss` | `VARIANT/loss` | The loss. |",
        "| `q` |  | The mean Q. |",
        r"|  | `size` | The number of \|weights\|. |",
    ]
    assert lines[-1].startswith("| VARIANT | a variant of the method")


def test_a_name_that_curve_and_result_share_stands_once(page):
    lines = page(CURVES={"loss": "The loss.", "q": "The mean Q."}, METRICS={"loss": "The loss.", "size": "The size."})
    assert lines[-5:] == [
        "| metric | reported as | meaning |",
        "|---|---|---|",
        "| `loss` | curve and result | The loss. |",
        "| `q` | curve | The mean Q. |",
        "| `size` | result | The size. |",
    ]


def test_a_table_without_curves_has_no_column_for_them(page):
    assert page(METRICS={"size": "The size."})[-3:] == ["| result | meaning |", "|---|---|", "| `size` | The size. |"]
