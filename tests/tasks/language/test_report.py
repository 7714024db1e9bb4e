import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tasks import artifacts, schemas
from tasks.language import evaluate
from tasks.language.report import ReportConfig, run, warnings, win_rates

CONFIG = ReportConfig(seed=2, policies=["pretrained", "sft", "dpo"], baseline="sft", samples=2)
EVALUATE = evaluate.EvaluateConfig(
    seed=0, problems=30, samples=4, temperature=1.0, pass_at=[2, 4], max_new_tokens=9, batch_size=9, bootstrap=100
)
RIGHT = {"pretrained": 0.02, "sft": 0.5, "dpo": 0.8}
STAGES = {
    "problems": {"train": 4000},
    "sft": {"loss": 0.25},
    "reward_model": {"accuracy": 0.81, "pairs": {"test": 900}},
    "dpo": {"rewards": {"margins": 1.5}},
}


def generation(rng, name, problem, sample):
    right = bool(rng.random() < RIGHT[name])
    return {
        "problem_id": f"test-{problem}",
        "sample": sample,
        "response": f"<b>3 + {problem}</b> = {problem + 3}\n#### {problem + 3 if right else 1000}",
        "length": int(rng.integers(5, 9)),
        "ended": bool(rng.random() < 0.9),
        "strict": right,
        "lenient": right,
        "correctness": 5 * right,
        "reasoning": 3,
        "clarity": 2,
        "rubric": 5 + 5 * right,
        "reward": float(rng.normal()) + right,
        "kl": float(rng.normal(2 * RIGHT[name], 0.3)),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """What the stages before the report would have written, with drawn numbers."""
    home, rng = tmp_path_factory.mktemp("report"), np.random.default_rng(1)
    problems = [
        {
            "problem_id": f"test-{n}",
            "question": f"Ada has 3 pens & buys {n}?",
            "solution": f"3 + {n} = {n + 3}\n#### {n + 3}",
            "answer": str(n + 3),
            "steps": 1,
        }
        for n in range(30)
    ]
    artifacts.write(schemas.Problems, pd.DataFrame(problems), home / "problems" / "test.parquet")
    (home / "metrics").mkdir()
    for name, metrics in STAGES.items():
        (home / "metrics" / f"{name}.json").write_text(json.dumps(metrics))
    references = {row["problem_id"]: row["answer"] for row in problems}
    for name in RIGHT:
        table = pd.DataFrame([generation(rng, name, n, sample) for n in range(30) for sample in (-1, 0, 1, 2, 3)])
        artifacts.write(schemas.Generations, table, home / "evaluate" / name / "generations.parquet")
        metrics = {key: vars(value) for key, value in evaluate.summary(table, references, EVALUATE).items()}
        (home / "metrics" / f"evaluate@{name}.json").write_text(json.dumps(metrics))
    falling = np.linspace(0, -1, 40)
    for name, extra in {
        "sft": {"mean_token_accuracy": -falling},
        "dpo": {
            "rewards/chosen": falling / 10,
            "rewards/rejected": falling / 5,
            "logps/chosen": falling - 20,
            "logps/rejected": 2 * falling - 22,
            "logps/chosen_change": falling,
        },
    }.items():
        artifacts.write_curves(
            pd.DataFrame({"loss": falling + 1 + rng.normal(0, 0.1, 40), **extra}).to_dict("records"),
            home / "curves" / f"{name}.csv",
        )
    artifacts.write_curves([], home / "curves" / "pretrained.csv")
    calibration = pd.DataFrame({"predicted": [0.1, 0.5, 0.9], "observed": [0.15, 0.5, 0.8], "pairs": [9.0, 5.0, 20.0]})
    calibration.to_csv(home / "calibration.csv", index=False)
    return home


def report(home: Path, out: Path, **changes):
    metrics = [*STAGES, *(f"evaluate@{name}" for name in RIGHT)]
    return run(
        CONFIG.model_copy(update=changes),
        evaluations=home / "evaluate",
        curves=home / "curves",
        calibration=home / "calibration.csv",
        stage_metrics=[home / "metrics" / f"{name}.json" for name in metrics],
        problems=home / "problems",
        out=out,
    )


@pytest.fixture(scope="module")
def pages(home):
    metrics = report(home, home / "out")
    return metrics, (home / "out" / "report.html").read_text(), (home / "out" / "report.md").read_text()


class Elements(HTMLParser):
    """Collects ids, resources and unclosed elements of a page."""

    VOID = ("meta", "br", "path", "use", "image", "link", "img")

    def __init__(self):
        super().__init__()
        self.ids, self.resources, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.ids += [known["id"]] if "id" in known else []
        self.resources += [known[key] for key in ("src", "href", "xlink:href", "data") if key in known]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_self_contained_and_well_formed(pages):
    _, html, _ = pages
    elements = Elements()
    elements.feed(html)
    assert elements.open == []
    assert len(set(elements.ids)) == len(elements.ids)
    assert all(resource.startswith("#") for resource in elements.resources)
    assert not re.search(r"<script|@import|url\((?!#)", html)


def test_what_models_say_is_text_and_not_markup(pages):
    assert "<b>3 + " not in pages[1]
    assert "&lt;b&gt;3 + " in pages[1]


def test_both_pages_have_the_same_numbers(pages, home):
    metrics, html, markdown = pages
    judged = {name: json.loads((home / "metrics" / f"evaluate@{name}.json").read_text()) for name in RIGHT}
    for page in (html, markdown):
        assert page.count("<!-- posttrain:run -->") == 1
        assert all(f"{100 * judged[name]['strict_greedy']['mean']:.1f} %" in page for name in RIGHT)
        assert f"{judged['dpo']['kl_sampled']['mean']:.2f}" in page
        assert f"{100 * metrics['dpo']['win_rate_greedy']['mean']:.1f} %" in page
        assert "0.81" in page
        assert "dpo: the chosen answers became less likely, by 0.96 nats" in page
        assert "With sft, strict accuracy (mean@4) was raised from" in page


def test_the_warning_is_given_only_when_the_chosen_answers_fell():
    def curve(chosen, rejected):
        steps = np.linspace(0, 1, 20)
        return pd.DataFrame(
            {
                "logps/chosen_change": chosen * steps,
                "rewards/chosen": 0.1 * chosen * steps,
                "rewards/rejected": 0.1 * rejected * steps,
            }
        )

    both, chosen_only = (list(warnings({"dpo": curve(-2.0, rejected)})) for rejected in (-9.0, 0.0))
    assert "by 1.95 nats an answer" in both[0]
    assert "the rejected ones fell further" in both[0]
    assert len(chosen_only) == 1
    assert "fell further" not in chosen_only[0]
    assert list(warnings({"dpo": curve(0.5, -9.0), "sft": pd.DataFrame({"loss": [1.0]})})) == []


def test_markdown_tables_are_whole_and_plots_exist(pages, home):
    tables = re.findall(r"(?:^\|.*\n)+", pages[2] + "\n", re.MULTILINE)
    assert len(tables) == 6, "five of policies, one of stages"
    for table in tables:
        head, *rows = table.splitlines()
        assert len(rows) > 1
        assert {row.count("|") for row in rows} == {head.count("|")}
    linked = re.findall(r"\((\S+\.svg)\)", pages[2])
    assert len(linked) == 4
    assert all(Path(path).is_file() for path in linked)
    assert not (home / "out" / "curves-pretrained.svg").exists()  # no steps, no plot


def test_same_inputs_same_bytes(home, pages):
    (home / "again").mkdir()
    report(home, home / "again")
    for path in (home / "out").iterdir():
        assert (home / "again" / path.name).read_text().replace("/again/", "/out/") == path.read_text()


def test_samples_are_the_seeds_choice(home, tmp_path, pages):
    shown = {seed: report(home, tmp_path / str(seed), seed=seed) for seed in (2, 3)}
    assert shown[2] == shown[3]
    ids = {seed: re.findall(r"<h3>(test-\d+)", (tmp_path / str(seed) / "report.html").read_text()) for seed in (2, 3)}
    assert len(ids[2]) == 2
    assert ids[2] == re.findall(r"<h3>(test-\d+)", pages[1])
    assert ids[2] != ids[3]


def answers(greedy, *sampled):
    """One problem a column; rubric points of its greedy and its sampled answers."""
    rows = [
        {"problem_id": f"{problem}", "sample": sample - 1, "rubric": points}
        for sample, scores in enumerate([greedy, *sampled])
        for problem, points in enumerate(scores)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_win_rates_by_hand():
    base = answers([5, 5, 5], [0, 9, 2], [9, 9, 2])
    other = answers([5, 6, 4], [9, 9, 9], [8, 9, 0])
    found = win_rates({"sft": base, "dpo": other}, "sft")
    assert list(found) == ["dpo"]
    assert found["dpo"]["win_rate_greedy"].mean == pytest.approx((0.5 + 1 + 0) / 3)
    # Problem 0: 9 beats 0 and ties with 9, 8 beats 0 and loses to 9 (paired by place it would be 1/2); problem 1: ties;
    # problem 2: 9 wins twice, 0 loses twice.
    assert found["dpo"]["win_rate_sampled"].mean == pytest.approx((2.5 / 4 + 1 / 2 + 1 / 2) / 3)
