import math
import sys
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.common.errors import ConfigError
from tasks.language.configs.parts.names import list_reward_names
from tasks.language.configs.parts.python_rewards import BY_MODEL
from tasks.language.rewards import rubric
from tasks.language.rewards.python_functions import FunctionRewards
from tasks.language.rewards.reward import AnsweredProblem, load, reward
from tasks.language.rewards.verifier import Verifier
from tasks.language.rewards.weighted_rewards import ORDER, compute_weighted_rewards, list_counted_reward_names
from tests.tasks.language import math_workers

TRAIN = AnsweredProblem(
    question="If a train travels 120 km in 2 hours, what is its average speed?",
    solution="The train covers 120 / 2 = <<120/2=60>>60 km each hour.\n#### 60",
    answer="60",
    response="The average speed is 60 km/h because speed equals distance divided by time.",
    ended=True,
)


def answering(response, answer="60", ended=True):
    return AnsweredProblem(TRAIN.question, TRAIN.solution, answer, response, ended)


# right without the line; right with line and working; wrong with the line; right but cut off
FOUR = [
    TRAIN,
    answering("120 / 2 = 60\n#### 60"),
    answering("#### 61"),
    answering("120 / 2 = 60\n#### 60", ended=False),
]


@pytest.fixture
def verifier(idle_math_workers):
    with math_workers.kept(idle_math_workers), Verifier(workers=1) as judge:
        yield judge


def test_the_lectures_example(verifier):
    """A train, 120 km in 2 hours: 5 + 3 + 2 = 10 points, reward 10 / 10 = 1.0."""
    found = compute_weighted_rewards([TRAIN], {"rubric": 1}, verifier)
    assert found.total.tolist() == [1.0]


def test_parts(verifier):
    found = compute_weighted_rewards(FOUR, {"verifiable": 1, "rubric": 1}, verifier)
    assert found.parts["verifiable"].tolist() == [1, 1, 0, 1]
    assert found.parts["format"].tolist() == [0, 1, 1, 1]
    assert found.parts["rubric"].tolist() == pytest.approx([1.0, 1.0, 0.2, 0.9])  # clear but wrong; does not end


def test_weighted_sum_by_hand(verifier):
    scores = torch.tensor([-1.0, 2.0, 0.5, 0.0])
    weights = {"verifiable": 1.0, "rubric": 0.5, "reward_model": 0.1, "format": 0.25}
    found = compute_weighted_rewards(FOUR, weights, verifier, {"reward_model": scores})
    expected = [1 + 0.5 - 0.1 + 0, 1 + 0.5 + 0.2 + 0.25, 0 + 0.1 + 0.05 + 0.25, 1 + 0.45 + 0 + 0.25]
    assert found.total.tolist() == pytest.approx(expected)
    assert set(found.parts) == {"verifiable", "rubric", "reward_model", "format"}


def test_format_does_not_count_unless_asked(verifier):
    found = compute_weighted_rewards(FOUR, {"verifiable": 1}, verifier)
    assert found.total.tolist() == found.parts["verifiable"].tolist()


def test_what_has_no_weight_is_not_asked(verifier, monkeypatch):
    monkeypatch.setattr(rubric, "score_response", lambda *_: pytest.fail("the rubric has no weight"))
    found = compute_weighted_rewards(FOUR, {"verifiable": 1}, verifier)
    assert set(found.parts) == {"verifiable", "format"}


def test_an_unreadable_reference_makes_nan_where_it_counts(verifier):
    answered = [answering("#### 60", answer="garbage ("), answering("#### 60")]
    counted = compute_weighted_rewards(answered, {"verifiable": 1, "format": 0.5}, verifier)
    assert math.isnan(counted.total[0])
    assert counted.total[1] == 1.5
    ignored = compute_weighted_rewards(answered, {"format": 0.5}, verifier)
    assert ignored.total.tolist() == [0.5, 0.5]
    assert math.isnan(ignored.parts["verifiable"][0])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_model_that_says_no_number_is_broken(verifier, bad):
    """It is a fault of the model, not a response without a reward."""
    with pytest.raises(TrainingError, match=rf"^the reward outcome of response 1 is {bad:g} \(1 of 4 scores"):
        compute_weighted_rewards(
            FOUR, {"verifiable": 1, "outcome": 0.1}, verifier, {"outcome": torch.tensor([0.5, bad, 1.0, 1.0])}
        )


NAME = "rewards/mine.py:f"


def test_without_one_of_its_rewards_a_response_has_none(verifier):
    """The others add up to 0.25 and 1.25. In TRL they would be the first one's reward, and 2.25 the second's."""
    found = compute_weighted_rewards(
        [answering("#### 61"), answering("#### 60")], {"verifiable": 1, NAME: 0.5, "format": 0.25}, verifier, None,
        {NAME: lambda *_: FunctionRewards([math.nan, 2.0], [False, False])},
    )  # fmt: skip
    assert found.total.tolist() == pytest.approx([math.nan, 2.25], nan_ok=True)
    assert found.others.tolist() == pytest.approx([math.nan, 2.25], nan_ok=True)


def test_where_no_reward_that_counts_applies_there_is_none(verifier):
    """A prompt without constraints earns 0 for none of its responses; one with them earns its share."""
    kinds = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    answered = [answering("#### 60"), AnsweredProblem("?", "", "60", "a, b", True, kinds)]
    assert compute_weighted_rewards(answered, {"constraints": 1}, verifier).total.tolist() == pytest.approx(
        [math.nan, 0.0], nan_ok=True
    )
    with_code = compute_weighted_rewards(
        answered, {"constraints": 1, "code": 1}, verifier, helpers={"code": lambda jobs: [0.0] * len(jobs)}
    )
    assert with_code.total.tolist() == pytest.approx([math.nan, 0.0], nan_ok=True)


def test_a_program_that_nobody_could_judge_has_no_reward(verifier):
    answered = [
        AnsweredProblem("?", "", "60", text, True, {"inputs": [""], "outputs": [""]}) for text in ("a", "b", "c")
    ]
    helpers = {"code": lambda _: [1.0, math.nan, 0.0]}
    found = compute_weighted_rewards(answered, {"code": 1, "format": 0.5}, verifier, helpers=helpers)
    assert found.total.tolist() == pytest.approx([1.0, math.nan, 0.0], nan_ok=True)


def test_what_a_prompt_has_not_adds_nothing(verifier):
    kinds = {"instruction_id_list": ["punctuation:no_comma", "detectable_format:title"], "kwargs": [{}, {}]}
    answered = [AnsweredProblem("?", "", "60", "#### 60", True, kinds), answering("#### 60")]
    weights, judged = {"constraints": 1, NAME: 0.5, "format": 0.25}, FunctionRewards([1.0, 2.0], [True, False])
    found = compute_weighted_rewards(answered, weights, verifier, None, {NAME: lambda *_: judged})
    assert found.total.tolist() == [0.5 + 0.5 + 0.25, 0 + 1 + 0.25]
    assert found.parts["constraints"].tolist() == pytest.approx([0.5, math.nan], nan_ok=True)
    assert found.parts["all_constraints"].tolist() == pytest.approx([0, math.nan], nan_ok=True), "one of two is not all"
    assert found.parts[f"{NAME}/failed"].tolist() == [1, 0]


def test_scores_that_are_missing_or_of_the_wrong_number(verifier):
    weights = {"verifiable": 1, "reward_model": 0.1}
    with pytest.raises(ValueError, match=r"reward_model has weight 0\.1, and no scores"):
        compute_weighted_rewards(FOUR, weights, verifier)
    with pytest.raises(ValueError, match="4 responses and scores of shape"):
        compute_weighted_rewards(FOUR, weights, verifier, {"reward_model": torch.ones(1)})


def test_every_name_is_of_a_reward():
    assert {*ORDER} <= {*list_reward_names()}
    loaded = {name: load(name) for name in list_reward_names() if name not in BY_MODEL}
    assert [loaded[name].needs_answer for name in ("verifiable", "rubric", "format")] == [True, True, False]


def test_a_file_without_its_reward_is_one_line(monkeypatch):
    name = "tasks.language.rewards.by_name.brevity"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(brevity=lambda answered: 1.0))
    with pytest.raises(
        ConfigError, match=r"^tasks/language/rewards/by_name/brevity\.py: expected a function brevity that"
    ):
        load("brevity")


def test_a_further_reward_is_added_up_behind_the_others(verifier, monkeypatch):
    name = "tasks.language.rewards.by_name.brevity"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(brevity=reward()(lambda answered: 0.25)))
    assert list_counted_reward_names({"brevity": 1.0, NAME: 1.0, "process": 1.0, "code": 0.0, "format": 1.0}) == [
        "format",
        "process",
        "brevity",
    ]
    judged = compute_weighted_rewards(FOUR, {"brevity": 2.0, "format": 1.0}, verifier)
    assert judged.total.tolist() == [0.5, 1.5, 1.5, 1.5]
    assert judged.parts["brevity"].tolist() == [0.25] * 4


def test_the_order_of_the_weights_is_none_of_the_sum(verifier):
    """3 + 3 + 1e8 is 1e8 + 8 in single precision, and 3 + 1e8 + 3 is 1e8."""
    weights = {"verifiable": 3.0, "format": 3.0, "reward_model": 1.0}
    orders, scores = (list(weights), ["verifiable", "reward_model", "format"]), torch.full((4,), 1e8)
    one, other = (
        compute_weighted_rewards(FOUR, {name: weights[name] for name in order}, verifier, {"reward_model": scores})
        for order in orders
    )
    assert torch.equal(one.total, other.total)


def test_the_reward_without_that_of_the_steps(verifier):
    """What the other rewards add up to is computed, not subtracted: equal sums stay equal to the bit."""
    scores = {"process": torch.tensor([0.1, 0.7, 0.3, 0.9])}
    found = compute_weighted_rewards(FOUR, {"verifiable": 1.0, "format": 0.5, "process": 2.0}, verifier, scores)
    assert found.others.tolist() == [1.0, 1.5, 0.5, 1.5]
    assert found.total.tolist() == pytest.approx([1.2, 2.9, 1.1, 3.3])
    assert not compute_weighted_rewards(FOUR, {"process": 2.0}, verifier, scores).others.any()
    apart = compute_weighted_rewards(
        FOUR, {"verifiable": 1.0, "outcome": 0.5}, verifier, {"outcome": scores["process"]}
    )
    assert torch.equal(apart.others, apart.total)
