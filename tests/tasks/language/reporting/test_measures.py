import pandas as pd
import pytest

from tasks.language.reporting import measures


def row(problem, temperature, sample, response, **changes):
    strict, lenient = response == f"#### {problem}", response.endswith(problem)
    return {
        "problem_id": problem,
        "temperature": temperature,
        "sample": sample,
        "response": response,
        "length": 3,
        "ended": True,
        "steps": "=" in response,
        "strict": strict,
        "lenient": lenient,
        "correctness": 5 * lenient,
        "reasoning": 0,
        "clarity": 0,
        "rubric": 5 * lenient,
        "reward": 0.0,
        "kl": 0.0,
    } | changes


# Problem 7: one sample of two is right, but not strictly; problem 8: both are right; greedily only 8 is.
# At the lower temperature all are right.
GENERATIONS = pd.DataFrame(
    [
        row("8", 0.0, 0, "so 8"),
        row("7", 0.0, 0, "#### 9", ended=False),
        row("7", 1.0, 0, "it is 7", kl=1.0, length=9, reward=2.0),
        row("7", 1.0, 1, "#### 6", kl=-0.5, length=5, reward=1.0),
        row("8", 1.0, 0, "#### 8", kl=0.5),
        row("8", 1.0, 1, "#### 8", kl=0.0),
        *(row(problem, 0.25, sample, f"#### {problem}") for problem in "87" for sample in (0, 1)),
    ]
)
REFERENCES = {"7": "7", "8": "8"}


def test_measures_by_hand():
    temperatures = {"t1.0": 1.0, "tbest": 0.25}
    values = measures.compute_problem_measures(GENERATIONS, REFERENCES, temperatures, [1, 2])
    assert list(values.index) == ["7", "8"]
    expected = {
        "strict_greedy": (0, 0),
        "lenient_greedy": (0, 1),
        "strict_mean_at_2_t1.0": (0, 1),
        "lenient_mean_at_2_t1.0": (1 / 2, 1),
        "strict_pass_at_1_t1.0": (0, 1),
        "lenient_pass_at_1_t1.0": (1 / 2, 1),
        "lenient_pass_at_2_t1.0": (1, 1),
        "strict_majority_at_2_t1.0": (0, 1),  # of 7's samples only "#### 6" has a vote
        "lenient_majority_at_2_t1.0": (1 / 2, 1),  # 7 against 6
        "strict_best_of_2_t1.0": (0, 1),  # for 7 the lenient answer has the higher reward
        "lenient_best_of_2_t1.0": (1, 1),
        "ended_greedy": (0, 1),
        "rubric_greedy": (0, 5),
        "rubric_sampled_t1.0": (2.5, 5),
        "kl_sampled_t1.0": (0.25, 0.25),
        "length_sampled_t1.0": (7, 3),
        "strict_mean_at_2_tbest": (1, 1),
        "strict_best_of_2_tbest": (1, 1),
        "kl_sampled_tbest": (0, 0),
    }
    assert {name: tuple(values[name]) for name in expected} == expected
    assert "kl_greedy" not in values
    found = measures.summarise_measures(values, seed=0, resamples=50)
    assert found["lenient_majority_at_2_t1.0"].mean == 0.75
    assert found["rubric_sampled_t1.0"].mean == 3.75
    assert (found["strict_mean_at_2_tbest"].mean, found["strict_mean_at_2_tbest"].high) == (1, 1)
    assert found["strict_mean_at_2_tbest"].low < 0.5, "Wilson's interval of a share leaves room beyond 2 of 2"


def test_at_temperature_0_every_sample_is_the_greedy_answer():
    values = measures.compute_problem_measures(GENERATIONS, REFERENCES, {"t1.0": 1.0, "tbest": 0.0}, [1, 2])
    for kind in ("strict", "lenient"):
        for how in ("mean_at_2", "pass_at_1", "pass_at_2", "majority_at_2", "best_of_2"):
            assert (values[f"{kind}_{how}_tbest"] == values[f"{kind}_greedy"]).all(), (kind, how)
    assert (values["length_sampled_tbest"] == values["length_greedy"]).all()
    assert "kl_sampled_tbest" not in values, "of greedy answers there is none"


def test_without_rewards_there_is_no_best_of():
    values = measures.compute_problem_measures(GENERATIONS.drop(columns="reward"), REFERENCES, {"t1.0": 1.0}, [2])
    whole = measures.compute_problem_measures(GENERATIONS, REFERENCES, {"t1.0": 1.0}, [2])
    left_out = {"strict_best_of_2_t1.0", "lenient_best_of_2_t1.0", "reward_greedy", "reward_sampled_t1.0"}
    assert set(whole) - set(values) == left_out


def test_an_answer_shows_steps_where_it_has_an_equation():
    belongs = measures.STRATA["steps"]
    assert belongs("3 + 4 = 7\n#### 7")
    assert belongs("3 plus 4 is 7")
    assert not belongs("#### 7")
    assert not belongs("it is 7, as 3 and 4 are")


def test_ranking_by_hand():
    """Problem a: answers with steps rightly beat those without, but of two with steps the worse is preferred; b: all
    are equal.
    """
    rows = [
        ("a", 0, "3 + 4 = 7\n#### 7", 10, 1.0),
        ("a", 1, "3 + 4 = 8\n#### 8", 4, 2.0),
        ("a", 2, "#### 9", 1, 0.0),
        ("b", 0, "#### 1", 5, 1.0),
        ("b", 1, "#### 1", 5, 0.0),
        ("b", 2, "#### 1", 5, 0.5),
    ]
    columns = ["problem_id", "sample", "response", "rubric", "reward"]
    table = pd.DataFrame(rows, columns=columns).assign(temperature=1.0)
    found = measures.compute_ranking_accuracies(table, {"t1.0": 1.0}, 0, 50)
    assert found["ranking_sampled_t1.0"].mean == pytest.approx(2 / 3)
    assert found["ranking_with_steps_sampled_t1.0"].mean == 0
    assert measures.compute_ranking_accuracies(table.drop(columns="reward"), {"t1.0": 1.0}, 0, 50) == {}
    assert measures.compute_ranking_accuracies(table[table["problem_id"] == "b"], {"t1.0": 1.0}, 0, 50) == {}
