import io
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tasks.common import tables
from tasks.common.errors import StageError
from tasks.offline import offline_report
from tasks.offline.configs.offline_report import OfflineExpectation, OfflineReportConfig
from tasks.offline.offline_report import run
from tasks.offline.reporting import measurements
from tasks.offline.reporting import tables as measured_tables
from tests.conftest import PARAMS

# dataset -> (environment, reference, D4RL's, mean and best of the data)
DATA = {
    "graph-60": ("graph", (-9.0, -3.0), None, (-8.2, -1.0)),
    "LunarLander-v3-medium": ("LunarLander-v3", (-180.0, 270.0), None, (80.0, 260.0)),
    "Hopper-v5-medium-expert": ("Hopper-v5", (20.0, 3200.0), (-20.272305, 3234.3), (1900.0, 3300.0)),
}
# policy -> method, data set, variant -> (mean return, deviation between seeds), targets
POLICIES = {
    "tabular_q-graph-60": ("tabular_q", "graph-60", {"Q-learning": (-3.0, 0.0)}, []),
    "bc-lander": ("bc", "LunarLander-v3-medium", {"BC": (60.0, 5.0), "10%BC": (95.0, 30.0)}, []),
    "dqn-lander": ("dqn", "LunarLander-v3-medium", {"DQN": (-300.0, 60.0)}, []),
    "cql-lander": ("cql", "LunarLander-v3-medium", {"CQL": (150.0, 5.0)}, []),
    "dt-lander": ("decision_transformer", "LunarLander-v3-medium", {"DT": (110.0, 8.0)}, [200.0, 250.0, 100.0]),
    "bc-hopper": ("bc", "Hopper-v5-medium-expert", {"BC": (1300.0, 300.0), "10%BC": (3100.0, 40.0)}, []),
    "dt-hopper": ("decision_transformer", "Hopper-v5-medium-expert", {"DT": (2100.0, 300.0)}, [3600.0, 1800.0]),
}
CONFIG = OfflineReportConfig(
    policies={name: {"method": method, "dataset": data} for name, (method, data, *_) in POLICIES.items()},
    selected={},
    best_by="score",
    expectations=[
        OfflineExpectation(dataset="LunarLander-v3-medium", higher="data mean", lower="DQN"),
        OfflineExpectation(dataset="LunarLander-v3-medium", higher="CQL", lower="DQN"),
        OfflineExpectation(dataset="LunarLander-v3-medium", higher="DT", lower="10%BC"),
        OfflineExpectation(dataset="Hopper-v5-medium-expert", higher="DT", lower="10%BC"),
    ],
)
SEEDS, EPISODES = (0, 1, 2), 5


def picture():
    buffer = io.BytesIO()
    frames = [Image.new("RGB", (30, 20), colour) for colour in ("red", "blue")]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=100, loop=0)
    return buffer.getvalue()


def measure(rng, name, out):
    """The outs of `returns`, with random numbers."""
    method, dataset, variants, targets = POLICIES[name]
    environment, reference, d4rl, (mean, best) = DATA[dataset]
    episodes, values, starts, progress, fits = [], [], [], [], []
    seeds = (0,) if method == "tabular_q" else SEEDS
    for variant, (centre, deviation) in variants.items():
        for seed in seeds:
            of_seed = centre + deviation * (seed - 1)
            for place, target in enumerate(targets or [np.nan]):
                key = {"variant": variant, "seed": seed, "target": target}
                for episode in range(EPISODES):
                    total = of_seed - 20 * place + (0 if method == "tabular_q" else 2.0 * (episode - 2))
                    episodes.append({**key, "episode": episode, "total": total, "length": 40})
            for step in range(2500 if method == "tabular_q" else 500, 2501, 500):
                reached = of_seed - 100 * np.exp(-step / 700) + rng.normal(0, 3)
                progress.append({"variant": variant, "seed": seed, "step": step, "return": reached})
            belief = {"variant": variant, "seed": seed, "gamma": 0.99, "truth": of_seed / 2, "cut": 0.0}
            if not targets:
                estimate = of_seed / 2 + rng.normal(0, 9)
                values.append({**belief, "source": measured_tables.FITTED, "value": estimate, "converged": seed != 1})
                for step in range(100, 900 + 100 * seed, 100):
                    on_the_way = estimate * (1 - np.exp(-step / 200))
                    fits.append({"variant": variant, "seed": seed, "step": step, "loss": 1.0, "estimate": on_the_way})
            if method in ("tabular_q", "dqn", "cql"):
                worth = {"tabular_q": -1.5, "dqn": 4000.0 + 90 * seed, "cql": of_seed / 2 + 3 * (seed - 1)}[method]
                values.append({**belief, "source": measured_tables.CLAIMED, "value": worth, "converged": True})
            if environment == "graph":
                for start in range(6):
                    key = {"variant": variant, "seed": seed, "target": np.nan, "start": start, "optimum": -3.0}
                    starts.append(
                        {**key, "recorded": -3.0 if start < 2 else -7.0 if start < 5 else np.nan, "total": -3.0}
                    )
    tables.write_table(measured_tables.PlayedEpisodes, pd.DataFrame(episodes), out / measured_tables.EPISODES)
    for schema, rows, file in (
        (measured_tables.Values, values, measured_tables.VALUES),
        (measured_tables.Starts, starts, measured_tables.STARTS),
    ):
        kinds = {key: column.dtype.type for key, column in schema.to_schema().columns.items()}
        tables.write_table(schema, pd.DataFrame(rows, columns=list(kinds)).astype(kinds), out / file)
    pd.DataFrame(progress).to_csv(out / measurements.PROGRESS, index=False)
    pd.DataFrame(progress).assign(loss=0.5).to_csv(out / measurements.CURVES, index=False)
    columns = ["variant", "seed", "step", "loss", "estimate"]
    pd.DataFrame(fits, columns=columns).to_csv(out / measurements.FITS, index=False)
    (out / measurements.PICTURE).write_bytes(picture())
    described = {
        "method": method,
        "dataset": dataset,
        "environment": environment,
        "reference": dict(zip(("minimum", "maximum"), reference, strict=True)),
        "d4rl": dict(zip(("minimum", "maximum"), d4rl, strict=True)) if d4rl else None,
        "data": {"episodes": 60, "transitions": 5000, "mean": mean, "best": best},
        "behaviour": None if environment == "graph" else {"policy": "medium", "return": mean + 45},
        "cost": {variant: {"steps": 2500, "parameters": 68_000 if targets else 70_000} for variant in variants},
        "picture": {
            "variant": next(iter(variants)),
            "seed": 0,
            "target": targets[0] if targets else None,
            "return": 123.0,
            "steps": 40,
        },
    }
    (out / measurements.DESCRIPTION).write_text(json.dumps(described))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home, rng = tmp_path_factory.mktemp("offline_report"), np.random.default_rng(0)
    for name in POLICIES:
        measure(rng, name, home / "returns" / name)
    (home / "metrics.json").write_text(json.dumps(run(CONFIG, home / "returns", home / "out")))
    return home


class Page(HTMLParser):
    """Collects a page's references, and checks that its tags are closed."""

    VOID = ("meta", "br", "img", "link", "path", "use", "rect", "line")

    def __init__(self, text):
        super().__init__()
        self.open, self.references, self.ids = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.references += [given[key] for key in ("src", "href", "xlink:href") if key in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(home):
    return (home / "out" / "offline_report.html").read_text()


def plain(html):
    """The page's text without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", "", html, flags=re.S)).split())


def test_the_page_is_whole_and_needs_nothing_else(html):
    page = Page(html)
    assert page.open == []
    assert all(reference.startswith(("#", "data:image/gif;base64,")) for reference in page.references)
    assert "url(http" not in html
    assert len(page.ids) == len(set(page.ids))
    assert html.count("<!-- posttrain:run -->") == 1


def test_every_data_set_and_method_has_its_score(html, home):
    rows = dict(re.findall(r"<tr><th>([^<]+)</th>(.*?)</tr>", html[: html.index("<h3>Return</h3>")]))
    assert set(rows) >= set(DATA)
    cells = [re.sub("<[^>]+>", " ", cell).split() for cell in rows["Hopper-v5-medium-expert"].split("</td>")[:-1]]
    assert ["95.9", "±", "3.1"] in cells  # the last table before Return is D4RL's
    metrics = json.loads((home / "metrics.json").read_text())
    assert metrics["LunarLander-v3-medium"]["BC"]["score"] == pytest.approx(100 * 240 / 450)
    assert metrics["LunarLander-v3-medium"]["BC"]["half_width"] == pytest.approx(100 * 4.30265 * 5 / 3**0.5 / 450)
    assert metrics["graph-60"] == {"Q-learning": {"score": 100.0}}


def test_dvc_has_a_row_for_each_data_set_and_variant(home):
    metrics, folder = json.loads((home / "metrics.json").read_text()), home / "out/metrics"
    rows = {(path.parent.name, path.stem): json.loads(path.read_text()) for path in folder.rglob("*.json")}
    assert rows == {(dataset, variant): row for dataset, of in metrics.items() for variant, row in of.items()}


def test_the_decision_transformer_stands_with_its_first_target_not_the_best(home):
    metrics = json.loads((home / "metrics.json").read_text())
    assert metrics["LunarLander-v3-medium"]["DT"]["score"] == pytest.approx(100 * (110 + 180) / 450)
    text = (home / "out" / "offline_report.md").read_text()
    asked = [line for line in text.splitlines() if line.startswith("| LunarLander-v3-medium | DT |")]
    assert [line.split("|")[3].strip() for line in asked] == ["250", "200", "100"]
    assert [line.split("|")[4].split()[0] for line in asked] == ["90.0", "110", "70.0"]


def test_only_a_clearly_best_number_is_bold(html):
    score = html[html.index("<h3>Score</h3>") : html.index("<h3>D4RL score</h3>")]
    assert re.findall(r"<b>([^<]+)</b>", score) == ["96.9"]  # 10%BC on Hopper; CQL's interval touches 10%BC's


def test_expectations_are_judged_and_counted(html):
    text = plain(html).replace("\N{MINUS SIGN}", "-")
    assert "Of 4 expectations 2 hold, 1 is undecided, and 1 does not hold." in text
    assert (
        "✓ LunarLander-v3-medium: data mean 57.8, DQN -26.7 ± 33.1. As expected, data mean is higher, by 84.4 "
        "(51.3 to 118)."
    ) in text
    assert "Against what was expected, DT is lower, by " in text


def test_over_estimation_is_told(home):
    lines = (home / "out" / "offline_report.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| 0.99 |" in line]
    told = {(row[0], row[1]): row for row in rows}
    assert told["LunarLander-v3-medium", "DQN"][6] == "over-estimated"
    assert told["LunarLander-v3-medium", "CQL"][6] == "not clearly off"
    assert told["graph-60", "Q-learning"][6] == ""  # one seed says nothing
    assert told["LunarLander-v3-medium", "BC"][5:7] == ["", ""]  # logits claim nothing
    assert ("LunarLander-v3-medium", "DT") not in told


def test_each_environment_shows_its_best_policy(html, home):
    captions = re.findall(r'<img src="data:image/gif;base64,[^"]+" alt="([^"]+)"><figcaption>([^<]+)', html)
    assert dict(captions) == {
        "graph": "graph: Q-learning on graph-60, seed 0. Return 123 in 40 steps.",
        "LunarLander-v3": "LunarLander-v3: CQL on LunarLander-v3-medium, seed 0. Return 123 in 40 steps.",
        "Hopper-v5": "Hopper-v5: BC on Hopper-v5-medium-expert, seed 0. Return 123 in 40 steps.",
    }
    assert (home / "out" / "Hopper-v5.gif").read_bytes() == picture()


def test_what_stands_in_one_page_stands_in_the_other(html, home):
    markdown = (home / "out" / "offline_report.md").read_text()
    for heading in re.findall(r"<h[23]>([^<]+)</h[23]>", html):
        assert re.search(rf"^##+ {re.escape(heading)}$", markdown, re.M), heading
    for file in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", markdown):
        assert (home / "out" / file.rsplit("/", 1)[1]).is_file()


FEW = CONFIG.model_copy(update={"policies": ["bc-lander"], "expectations": []})


@pytest.fixture(scope="module")
def few(home, tmp_path_factory):
    """The report of one policy, and the stage's metrics."""
    out = tmp_path_factory.mktemp("few") / "out"
    return out, run(FEW, home / "returns", out)


def test_equal_numbers_are_equal_bytes(home, few, tmp_path):
    out, _ = few
    run(FEW, home / "returns", tmp_path / "out")
    for file in (path for path in out.rglob("*") if path.is_file()):
        if file.suffix != ".md":  # names the folder it is in
            assert file.read_bytes() == (tmp_path / "out" / file.relative_to(out)).read_bytes(), file.name


def test_what_is_not_listed_is_not_shown(few):
    """An earlier run's policy may still lie in data/returns."""
    out, metrics = few
    assert list(metrics) == ["LunarLander-v3-medium"]
    text = (out / "offline_report.html").read_text()
    assert "Hopper" not in text
    assert "What was expected" not in text
    assert "Asked for and reached" not in text


@pytest.fixture
def no_plots(monkeypatch):
    """Pages without their plots, which take most of a page's time."""
    monkeypatch.setattr(offline_report, "_render_figures", lambda *_: {})


def test_what_returns_in_the_environment_chose_is_marked_in_every_table(home, tmp_path, no_plots):
    """DQN stands in the tables of scores, of values and of costs, the Decision Transformer in that of targets too."""
    why = {"DQN": "its rate was chosen by returns", "DT": "its width was chosen by returns", "BRAC-v": "not shown"}
    chosen = {"selected": why, "policies": ["bc-lander", "dqn-lander", "cql-lander", "dt-lander"], "expectations": []}
    run(CONFIG.model_copy(update=chosen), home / "returns", tmp_path)
    markdown, page = ((tmp_path / f"offline_report.{kind}").read_text() for kind in ("md", "html"))
    for text in (markdown, plain(page)):
        assert "DQN† Selected: its rate was chosen by returns." in text
        assert "BRAC-v" not in text
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    cells = {cell.strip() for row in rows for cell in row.split("|")}
    assert {"DQN†", "DT†", "CQL", "BC"} <= cells
    assert not {"DQN", "DT"} & cells
    in_page = {cell.strip() for cell in re.findall(r"<t[hd]>([^<]*)</t[hd]>", page)}
    assert {"DQN†", "DT†", "CQL", "BC"} <= in_page
    assert not {"DQN", "DT"} & in_page
    assert "†" not in (home / "out" / "offline_report.md").read_text()


def test_the_default_report_marks_what_was_selected():
    assert {"AWR", "CQL"} <= set(PARAMS["offline_report"]["selected"])


def test_an_environment_of_another_package_has_a_picture(home, tmp_path, no_plots):
    """Its id holds a colon and a slash."""
    described = home / "returns" / "tabular_q-graph-60" / measurements.DESCRIPTION
    before = described.read_text()
    described.write_text(json.dumps(json.loads(before) | {"environment": "theirs:ns/Lander-v0"}))
    try:
        run(
            CONFIG.model_copy(update={"policies": ["tabular_q-graph-60"], "expectations": []}),
            home / "returns",
            tmp_path,
        )
    finally:
        described.write_text(before)
    assert [file.name for file in tmp_path.glob("*.gif")] == ["theirs-ns-Lander-v0.gif"]
    assert "/theirs-ns-Lander-v0.gif)" in (tmp_path / "offline_report.md").read_text()


def test_one_clear_line_for_what_was_not_measured(home, tmp_path):
    with pytest.raises(StageError, match=r"offline_report\.policies: ppo-lander was not measured"):
        run(CONFIG.model_copy(update={"policies": ["ppo-lander"]}), home / "returns", tmp_path)


def test_a_cost_stands_once_for_all_of_an_environment_or_for_the_data_sets_it_is_of():
    def of(dataset, **parameters):
        cost = {variant: {"steps": 9, "parameters": count} for variant, count in parameters.items()}
        return SimpleNamespace(description={"dataset": dataset, "environment": dataset.split("-")[0], "cost": cost})

    measured = [of("pole-medium", BC=5, DT=7), of("hopper-medium", BC=5, DT=7), of("hopper-expert", BC=5, DT=8)]
    assert offline_report._list_training_costs(measured) == [
        ("BC", "pole, hopper", 9, 5),
        ("DT", "pole, hopper-medium", 9, 7),
        ("DT", "hopper-expert", 9, 8),
    ]


def test_the_yardstick_stands_in_every_table(html):
    heads = re.findall(r"<thead>.*?</thead>", html[: html.index("<h2>What was expected")])
    assert len(heads) == 3
    assert all("<th>greedy behaviour</th>" in head for head in heads)
    lander = re.search(r"<tr><th>LunarLander-v3-medium</th>(.*?)</tr>", html[html.index("<h3>Return</h3>") :])[1]
    assert re.findall(r"<td>([^<]*)</td>", lander)[:3] == ["80.0", "260", "125"]


def test_the_page_says_what_it_does_not_show(html):
    text = plain(html)
    assert "Evaluated only once, at the end, and so without a curve: Q-learning on graph-60." in text
    assert "not settled in 1 of 3 seeds" in text
    assert "past the time limit" in text
