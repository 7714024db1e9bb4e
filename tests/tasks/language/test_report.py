import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tasks.common import plots, tables
from tasks.language.configs.report import ReportConfig
from tasks.language.report import run
from tasks.language.reporting import measures
from tasks.language.tables.evaluation import Generations, Measures
from tasks.language.tables.problems import Problems

CONFIG = ReportConfig(
    seed=2,
    policies=["pretrained", "sft", "dpo"],
    baseline="sft",
    controls=[],
    margin=3.0,
    best_by="strict_validation",
    samples=2,
    bootstrap=200,
)
RIGHT = {"pretrained": 0.02, "sft": 0.5, "dpo": 0.8}
BEST = {"pretrained": 0.5, "sft": 0.3, "dpo": 0.5}
OTHER = {"seed": 3, "policies": ["sft", "dpo"]}
DRAWN = ("changes", "learning-sft-0", "reward-kl")  # figures that some page has as SVG


def generation(rng, name, problem, temperature, sample):
    right = bool(rng.random() < RIGHT[name])
    return {
        "problem_id": f"test-{problem}",
        "temperature": temperature,
        "sample": sample,
        "response": f"<b>3 + {problem}</b> = {problem + 3}\n#### {problem + 3 if right else 1000}",
        "length": int(rng.integers(5, 9)),
        "ended": bool(rng.random() < 0.9),
        "steps": bool(rng.random() < 0.8),
        "strict": right,
        "lenient": right,
        "correctness": 5 * right,
        "reasoning": 3,
        "clarity": 2,
        "rubric": 5 + 5 * right,
        "reward": float(rng.normal()) + right,
        "kl": float(rng.normal(2 * RIGHT[name], 0.3)),
    }


def put(frame, path):
    """Write a table, which is validated when it is read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.reset_index(drop=True).to_parquet(path, index=False)


def write(table, asked, best, out):
    """Write the evaluation's outs for a table of answers to the problems `asked`."""
    references = dict(zip(asked["problem_id"], asked["answer"], strict=True))
    named = {"t0.5": 0.5, "t1.0": 1.0, "tbest": best}
    values = measures.compute_problem_measures(table, references, named, [2, 4])
    values["gold_greedy"] = values["strict_greedy"] * (values["length_greedy"] < 7)
    put(table, out / "generations.parquet")
    long = values.rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
    put(long, out / "measures.parquet")
    put(asked, out / "asked.parquet")
    found = measures.summarise_measures(values, 0, 100)
    chosen = {f"strict_validation_t{t}": {"mean": 0.5, "low": 0.4, "high": 0.6} for t in (0.3, 0.5)}
    numbers = {"best_temperature": best, **{key: vars(value) for key, value in found.items()}, **chosen}
    (out / "evaluation.json").write_text(json.dumps(numbers))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return outs(tmp_path_factory.mktemp("report"), np.random.default_rng(1))


def outs(home, rng, policies=tuple(RIGHT)):
    """The outs of the stages before the report for these policies, with random numbers, the same whichever they are."""
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
    for name in RIGHT:
        drawn = [(0.0, 0), *((t, k) for t in sorted({0.5, 1.0, BEST[name]}) for k in range(4))]
        table = pd.DataFrame([generation(rng, name, n, *draw) for draw in drawn for n in range(30)])
        if name in policies:
            write(table, pd.DataFrame(problems), BEST[name], home / "evaluate" / name)
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
        tables.write_curves(
            pd.DataFrame({"loss": falling + 1 + rng.normal(0, 0.1, 40), **extra}).to_dict("records"),
            home / "evaluate" / name / "curve.csv",
        )
    if "pretrained" in policies:
        tables.write_curves([], home / "evaluate/pretrained/curve.csv")
    calibration = pd.DataFrame({"predicted": [0.1, 0.5, 0.9], "observed": [0.15, 0.5, 0.8], "pairs": [9.0, 5.0, 20.0]})
    (home / "reward_model").mkdir(parents=True)
    calibration.to_csv(home / "reward_model" / "calibration.csv", index=False)
    return home


def report(home: Path, out: Path, drawn: tuple[str, ...] = (), **changes):
    """The stage; figures other than `drawn` are made but not written out as SVG, which takes most of the time."""
    config, write_out = CONFIG.model_copy(update=changes), plots.render_svg

    def svg(figure, name):
        return write_out(figure, name) if name in drawn else f'<svg id="{name}"></svg>'

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "render_svg", svg)
        return run(config, evaluations=home / "evaluate", reward_model=home / "reward_model", out=out)


@pytest.fixture(scope="module")
def pages(home):
    """The metrics, and both pages with some of their figures."""
    metrics = report(home, home / "out", drawn=DRAWN)
    return metrics, (home / "out" / "report.html").read_text(), (home / "out" / "report.md").read_text()


class Elements(HTMLParser):
    """Collects ids, resources and unclosed elements of a page."""

    VOID = ("meta", "br", "path", "use", "image", "link", "img", "input")

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
    assert html.count("<dc:format>image/svg+xml</dc:format>") == len(DRAWN)
    assert len(set(elements.ids)) == len(elements.ids)
    assert all(resource.startswith("#") for resource in elements.resources)
    assert not re.search(r"@import|url\((?!#)", html)


def test_the_browser_may_run_the_pages_own_script_and_nothing_else(pages):
    _, html, _ = pages
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)[1]
    [script] = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert html.index(policy) < html.index("<script")
    script = script.replace("http://www.w3.org/2000/svg", "")  # names a kind of elements; nothing is loaded from it
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?:", script)


def test_what_models_say_is_text_and_not_markup(pages):
    assert "<b>3 + " not in pages[1]
    assert "&lt;b&gt;3 + " in pages[1]


def test_both_pages_have_the_same_numbers(pages, home):
    metrics, html, markdown = pages
    judged = {name: json.loads((home / "evaluate" / name / "evaluation.json").read_text()) for name in RIGHT}
    for page in (html, markdown):
        assert page.count("<!-- posttrain:run -->") == 1
        assert all(f"{100 * judged[name]['strict_greedy']['mean']:.1f} %" in page for name in RIGHT)
        assert f"{judged['dpo']['kl_sampled_t1.0']['mean']:.2f}" in page
        assert f"{100 * metrics['dpo']['win_rate_greedy']['mean']:.1f} %" in page
        assert "dpo: the chosen answers became less likely, by 0.96 nats" in page
        assert "With sft, accuracy of the greedy answers was raised from pretrained" in page
        assert f"{100 * metrics['dpo']['change']['gold_by_manner']['mean']:+.1f} of them by manner" in page


def test_markdown_tables_are_whole_and_plots_exist(pages, home):
    shown = re.findall(r"(?:^\|.*\n)+", pages[2] + "\n", re.MULTILINE)
    titles = re.findall("^### (.*)", pages[2], re.MULTILINE)
    assert len(shown) == 9
    assert titles[0] == "At a glance"
    assert "What sft reaches without training" in titles
    for table in shown:
        head, *rows = table.splitlines()
        assert len(rows) > 1
        assert {row.count("|") for row in rows} == {head.count("|")}
    linked = re.findall(r"\((\S+\.svg)\)", pages[2])
    assert len(linked) == 5
    assert all(Path(path).is_file() for path in linked)
    assert not (home / "out" / "curves-pretrained.svg").exists()  # no steps, no plot


@pytest.fixture(scope="module")
def another_seed(home):
    """The metrics and the HTML page with seed 3, without the policy before the baseline."""
    metrics = report(home, home / "seed-3", **OTHER)
    return metrics, (home / "seed-3" / "report.html").read_text()


def test_same_inputs_same_bytes_whatever_the_order_of_measures(home, another_seed, tmp_path):
    """That equal numbers are drawn alike is tested in tests/tasks/common/test_plots.py."""
    shutil.copytree(home / "evaluate", tmp_path / "home/evaluate")
    shutil.copytree(home / "reward_model", tmp_path / "home/reward_model")
    path = tmp_path / "home/evaluate/dpo/measures.parquet"
    tables.write_table(Measures, tables.read_table(Measures, path).sample(frac=1, random_state=0), path)
    assert report(tmp_path / "home", home / "again", **OTHER) == another_seed[0]
    written = [path for path in (home / "seed-3").rglob("*") if path.is_file()]
    assert {"report.html", "report.md", "dpo.json", "temperatures.svg"} <= {path.name for path in written}
    for path in written:
        again = home / "again" / path.relative_to(home / "seed-3")
        assert again.read_text().replace("/again/", "/seed-3/") == path.read_text()


def test_samples_are_the_seeds_choice(pages, another_seed):
    metrics, html = another_seed
    assert pages[0]["dpo"]["win_rate_greedy"] == metrics["dpo"]["win_rate_greedy"]
    ids = [re.findall(r"<h3>(test-\d+)", page) for page in (pages[1], html)]
    assert len(ids[0]) == 2
    assert ids[0] != ids[1]


def test_differences_are_paired_by_problem(home, pages):
    metrics, *_ = pages
    sft, dpo = (
        tables.read_table(Generations, home / "evaluate" / name / "generations.parquet").query("temperature == 0")
        for name in ("sft", "dpo")
    )
    both = sft.merge(dpo, on="problem_id")
    change = metrics["dpo"]["change"]["strict_greedy"]
    assert change["mean"] == pytest.approx(both["strict_y"].mean() - both["strict_x"].mean())
    assert change["gained"] == (both["strict_y"] & ~both["strict_x"]).sum()
    assert change["lost"] == (both["strict_x"] & ~both["strict_y"]).sum()


@pytest.fixture(scope="module")
def cut_off(home, tmp_path_factory):
    """The metrics by 20 resamples and the report's folder, where dpo took no step and sft, the baseline, is cut off.

    Greedy answers are its best, and there is no reward model.
    """
    folder = tmp_path_factory.mktemp("cut_off")
    shutil.copytree(home / "evaluate", folder / "evaluate")
    shutil.copytree(home / "reward_model", folder / "reward_model")
    for name in OTHER["policies"]:
        answers = folder / "evaluate" / name
        table = tables.read_table(Generations, answers / "generations.parquet").drop(columns="reward")
        best = 0.0 if name == "sft" else BEST[name]
        write(table, tables.read_table(Problems, answers / "asked.parquet"), best, answers)
    tables.write_curves([], folder / "evaluate/dpo/curve.csv")
    file = folder / "evaluate/sft/evaluation.json"
    numbers = json.loads(file.read_text())
    numbers |= {"ended_greedy": {"mean": 0.2, "low": 0.1, "high": 0.3}, "asked": 30, "too_long": 12}
    file.write_text(json.dumps(numbers))
    return report(folder, folder / "out", bootstrap=20, policies=OTHER["policies"]), folder / "out"


def test_no_interval_of_a_difference_is_drawn_by_the_seed(pages, another_seed, cut_off):
    changes = [metrics["dpo"]["change"]["strict_greedy"] for metrics in (pages[0], another_seed[0], cut_off[0])]
    assert changes[1] == changes[2], "seeds 3 and 2"
    assert [changes[0][name] for name in ("mean", "gained", "lost")] == [
        changes[1][name] for name in ("mean", "gained", "lost")
    ]
    assert changes[0]["low"] <= changes[1]["low"], "corrected for two policies, and for one"


def test_what_the_baseline_reaches_untrained_is_told(home, pages):
    metrics, html, markdown = pages
    judged = json.loads((home / "evaluate/sft/evaluation.json").read_text())
    names = {"strict_mean_at_4_tbest": "sampled at 0.3, its best"}
    for how in ("0.5", "1.0"):
        names |= {f"strict_majority_at_4_t{how}": f"majority@4 at {how}"}
        names |= {f"strict_best_of_4_t{how}": f"best of 4 at {how}"}
    assert metrics["untrained"].keys() == names.keys()
    for metric, name in names.items():
        gain = judged[metric]["mean"] - judged["strict_greedy"]["mean"]
        assert metrics["untrained"][metric]["mean"] == pytest.approx(gain)
        assert f"<th>{name}</th>" in html
        assert f"| {name} | **{100 * judged[metric]['mean']:.1f} %**" in markdown
    assert "the highest, 0.5, for pretrained, dpo; the lowest, 0.3, for sft" in markdown


def test_a_baseline_that_is_best_greedily_and_no_reward_model(cut_off):
    """Greedy answers are no control of themselves; without rewards there is no best of several."""
    found, out = cut_off
    assert "strict_mean_at_4_tbest" not in found["untrained"]
    assert "strict_majority_at_4_t1.0" in found["untrained"]
    assert found["dpo"]["win_rate_sampled_tbest"]["mean"] > 0.5
    assert not any("best_of" in metric for metric in found["untrained"])
    assert "greedily" in (out / "report.md").read_text()
    page = (out / "report.html").read_text()
    assert "majority@4" in page
    assert "best of 4" not in page
    assert (out / "temperatures.svg").exists()
    assert not (out / "reward-kl.svg").exists()


def without_answers(home, folder):
    """The evaluations as they are where no right answers are known: likelihoods, rewards and lengths are left."""
    for name in ("evaluate", "reward_model"):
        shutil.copytree(home / name, folder / name)
    for number, name in enumerate(RIGHT):
        place = folder / "evaluate" / name
        if not place.exists():
            continue
        judged = ["strict", "lenient", "rubric", "correctness", "reasoning", "clarity"]
        table = tables.read_table(Generations, place / "generations.parquet").drop(columns=judged)
        table = table[table["temperature"].isin((0.0, 0.5, 1.0))]
        asked = tables.read_table(Problems, place / "asked.parquet")
        values = measures.compute_problem_measures(table, {}, {"t0.5": 0.5, "t1.0": 1.0}, [2, 4])
        values["reference_loss"] = 2.0 - number / 2 + np.arange(len(values)) / 100
        put(table, place / "generations.parquet")
        long = values.rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
        put(long, place / "measures.parquet")
        put(asked.assign(answer="", solution="Any."), place / "asked.parquet")
        found = {key: vars(value) for key, value in measures.summarise_measures(values, 0, 100).items()}
        pairs = {"pair_accuracy": {"mean": 0.5 + number / 10, "low": 0.4, "high": 0.9}}
        (place / "evaluation.json").write_text(json.dumps({**found, **pairs}))
    return folder


@pytest.fixture(scope="module")
def unanswered(home, tmp_path_factory):
    """The metrics where no right answers are known, and a folder with home/ and the report in out/."""
    root = tmp_path_factory.mktemp("unanswered")
    return report(without_answers(home, root / "home"), root / "out"), root


def test_what_cannot_be_measured_is_left_out_of_the_report(unanswered):
    """No answers to compare with: the loss on references, pairs and rewards are told, and no word of accuracy."""
    metrics, root = unanswered
    page = (root / "out/report.md").read_text()
    told = "No policy has a metric strict_validation, by which report.best_by would name the best."
    assert told in page
    page = page.replace(told, "")
    assert "The reference responses cost sft 1.65 nats a token; this was lowered by dpo (-0.50)." in page
    assert "With sft, the loss on the reference responses was lowered from pretrained's 2.15 to 1.65 nats" in page
    assert "it tells 70.0 % (40.0 to 90.0) of the held-out pairs apart" in page
    assert "compared by the reward model" in page
    for word in ("accuracy against", "strict", "rubric", "McNemar", "best temperature"):
        assert word not in page, word
    assert not (root / "out/temperatures.svg").exists()
    assert metrics["untrained"] == {}
    assert metrics["dpo"]["change"]["reference_loss"]["mean"] == pytest.approx(-0.5)
    row = json.loads((root / "out/metrics/dpo.json").read_text())
    assert (row["reference_loss"], row["change"], row["pair_accuracy"]) == pytest.approx((1.145, -0.5, 0.7))


def test_the_reward_decides_who_wins_where_there_are_no_points(unanswered):
    metrics, root = unanswered
    sft, dpo = (
        tables.read_table(Generations, root / "home/evaluate" / name / "generations.parquet").query("temperature == 0")
        for name in ("sft", "dpo")
    )
    both = sft.merge(dpo, on="problem_id")
    won = (both["reward_y"] > both["reward_x"]).mean()
    assert metrics["dpo"]["win_rate_greedy"]["mean"] == pytest.approx(won)


def test_a_policy_that_took_no_step_and_one_that_is_cut_off_are_told(cut_off):
    page = (cut_off[1] / "report.md").read_text()
    assert " 12 of the 42 test problems were left out: the models have no positions for" in page
    assert " dpo: there was nothing to learn from, so that it is the policy that it started from" in page
    assert "The length limit cut off greedy answers: 80 % of those of sft." in page
