"""The benchmark of reward models: its data, its differences and its page."""

import pandas as pd
import pytest

from benchmarks import reward_models, simulated_people
from tasks.common import tables
from tasks.language.judgements import judgement_log
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses


def answers(n):
    """Four answers to the sum of n and 1: two right ones, of which one is clearer, a wrong one and nothing."""
    texts = [f"{n} + 1 = {n + 1}\n#### {n + 1}", f"#### {n + 1}", f"{n} + 1 = {n + 9}\n#### {n + 9}", ""]
    return [
        {
            "prompt_id": f"train-{n}",
            "prompt": f"What is {n} + 1?",
            "sample": sample,
            "response": text,
            "ended": True,
            "tokens": [5, n, sample],
            "logps": [-1.0] * 3,
        }
        for sample, text in enumerate(texts)
    ]


@pytest.fixture
def folder(tmp_path):
    problems = [
        {
            "problem_id": f"train-{n}",
            "question": f"What is {n} + 1?",
            "solution": f"{n} + 1 = {n + 1}\n#### {n + 1}",
            "answer": f"{n + 1}",
            "steps": 1,
        }
        for n in range(20)
    ]
    tables.write_table(Problems, pd.DataFrame(problems), tmp_path / "data/problems/train.parquet")
    rows = [row for n in range(20) for row in answers(n)]
    tables.write_table(Responses, pd.DataFrame(rows), tmp_path / "data/responses/responses.parquet")
    return tmp_path


@pytest.mark.parametrize(("accuracies", "overlap", "low", "high"), [((1.0,), 1, 1, 1), ((0.8, 0.8, 0.8), 3, 0.7, 0.9)])
def test_simulated_people_are_as_accurate_as_they_are_said_to_be(folder, accuracies, overlap, low, high):
    simulated_people.make_judgements_writer(accuracies, 300, overlap)(folder)
    found = judgement_log.read_judgement_record(folder / simulated_people.PLACE)
    assert len(found.judgements) == 300
    assert {line.person for line in found.judgements} == {f"person-{n + 1}" for n in range(len(accuracies))}
    assert len({(line.item, line.person) for line in found.judgements}) <= 300
    right = [
        max(found.items[line.item].answers, key=lambda answer: -answer.sample).sample
        == found.items[line.item].answers["ab".index(line.value.strength[0])].sample
        for line in found.judgements
    ]
    assert low <= sum(right) / 300 <= high  # the answers are in the rubric's order


def test_an_eighth_of_the_prompts_with_their_pairs_together_or_apart(tmp_path):
    rows = [{"prompt_id": f"p-{n}", "comparison_id": f"p-{n}/{pair}"} for n in range(16) for pair in range(3)]
    (tmp_path / "data/preferences").mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(tmp_path / "data/preferences/train.parquet")
    reward_models.make_eighth_pairs_writer(False)(tmp_path)
    together = pd.read_parquet(tmp_path / "data/eighth/train.parquet")
    reward_models.make_eighth_pairs_writer(True)(tmp_path)
    apart = pd.read_parquet(tmp_path / "data/eighth/train.parquet")
    assert together["prompt_id"].nunique() == 2
    assert apart["comparison_id"].tolist() == together["comparison_id"].tolist() == apart["prompt_id"].tolist()


def test_differences_are_paired_by_problem():
    base = pd.DataFrame(dict.fromkeys(reward_models.BEST, [1.0, 0.0, 0.0, 1.0] * 50))
    better = base.assign(**{name: base[name].clip(lower=0.5) for name in base})
    for mean, low, high in reward_models.compare_best_of_8(better, base).values():
        assert mean == 0.25
        assert 0.2 < low < mean < high < 0.3


def row(shift, interval):
    numbers = dict.fromkeys((*reward_models.BEST, *reward_models.CONTROLS, *reward_models.RANKED), 0.5 + shift)
    return {
        "cpu_seconds": 10.0,
        "reward_model": {"accuracy": 0.7, "loss": 0.5},
        "trained": {"loss": 0.4},
        "evaluated": numbers,
        "over_pairs": {key: [shift, *interval] for key in reward_models.BEST},
    }


def test_the_page_has_means_over_seeds_and_marks_what_all_seeds_say():
    zero = row(0.0, (0.0, 0.0))
    results = {
        "pairs": {"0": zero, "1": zero},
        "ranking": {"0": row(0.1, (0.05, 0.15)), "1": row(0.2, (0.1, 0.3))},
        "outcome": {"0": row(0.1, (-0.05, 0.25)), "1": row(-0.3, (-0.4, -0.2))},
    }
    page = reward_models.render(results)
    assert "| ranking | mean | 65.0 % | 65.0 % | 65.0 % | **+15.0** |" in page
    assert "| outcome | mean | 40.0 % | 40.0 % | 40.0 % | -10.0 |" in page
    assert "| outcome | 1 | 20.0 % | 20.0 % | 20.0 % | -30.0 [-40.0, -20.0] |" in page
