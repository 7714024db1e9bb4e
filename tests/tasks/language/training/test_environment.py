import json
import shutil

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tasks.algorithms.language.advantages import put_scores_at_last_token
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import Experience
from tasks.common import models, tables
from tasks.common.errors import DataError, StageError
from tasks.language.configs.parts.names import list_reward_names
from tasks.language.configs.parts.policies import SamplingConfig
from tasks.language.data import chat
from tasks.language.rewards import rubric, weighted_rewards
from tasks.language.tables.problems import Prompts
from tasks.language.training.environment import SamplingEnvironment
from tasks.language.training.judge import open_judge
from tests.conftest import PARAMS
from tests.tasks.policies import NO_FILES

OWN = {"verifiable": 2.0, "format": 0.5}
REWARDS = ("policy", *(name for name in list_reward_names() if name not in ("outcome", "process")))
CHECKED = {
    "instruction_id_list": ["keywords:existence"],
    "kwargs": [{"keywords": ["#"]}],
    "inputs": [""],
    "outputs": [""],
}
ANSWERS = ("#### {answer}", "#### 1000", "{solution}", "no idea")


def config(**changes):
    values = {
        "reward_model_path": "data/raw/reward_model",
        "seed": 0,
        "samples": 2,
        "temperature": 1.0,
        "max_new_tokens": 6,
        "reward": OWN,
        "reward_files": "rewards/none",
        "reward_seconds": 10.0,
        "reward_none_limit": 0.9,
        "strip_thinking": False,
        "top_p": 1.0,
        "training": PARAMS["grpo"]["training"],
    }
    return SamplingConfig.model_validate({**values, **changes})


@pytest.fixture
def words(ready):
    return models.load_tokenizer(ready / "pretrained")


@pytest.fixture
def table(ready):
    return tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(7)


@pytest.fixture
def world(ready, words, table):
    """An environment over seven prompts whose policy is the pretrained model."""
    with open_judge(config(), {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        yield SamplingEnvironment(models.load_model(ready / "pretrained"), words, table, judge, config())


def answered(words, rows):
    """Each of ANSWERS to each row: (the row of each answer, their texts, the responses as tokens)."""
    owner = [place for place in range(len(rows)) for _ in ANSWERS]
    texts = [text.format(**row) for row in rows for text in ANSWERS]
    asked = [chat.encode_prompt(words, row["question"]) for row in rows]
    tokens = [chat.encode_response(words, text) for text in texts]
    return [rows[place] for place in owner], texts, make_completions(asked, owner, tokens, words.pad_token_id)


def by_hand(ready, words, row, text):
    """The response's reward, of the kind that its prompt asks for; the reward model reads one conversation at a
    time.
    """
    right = float(text.endswith(f"#### {row['answer']}"))
    if row["reward"] == "reward_model":
        scorer = AutoModelForSequenceClassification.from_pretrained(ready / "reward_model")
        tokens = chat.encode_prompt(words, row["question"]) + chat.encode_response(words, text)
        with torch.no_grad():
            return scorer(torch.tensor([tokens])).logits.item()
    if row["reward"] == "rubric":
        return rubric.score_response(row["question"], row["solution"], row["answer"], text, True).total / 10
    own = {"verifiable": right, "format": float("####" in text)}
    own |= {
        "constraints": own["format"],
        "code": float(text.startswith("#")),
    }  # as Python, a line of comment: it prints nothing
    return own.get(row["reward"], 2.0 * own["verifiable"] + 0.5 * own["format"])


def test_each_prompt_is_judged_as_its_data_set_asks(ready, words, table):
    rows = table.assign(reward=REWARDS, columns=json.dumps(CHECKED)).to_dict("records")
    asked, texts, responses = answered(words, rows)
    with open_judge(config(), REWARDS, words, ready / "reward_model", NO_FILES) as judge:
        found = judge(asked, responses, [True] * len(texts))
    expected = [by_hand(ready, words, row, text) for row, text in zip(asked, texts, strict=True)]
    assert found.total.tolist() == pytest.approx(expected, abs=1e-4)
    assert len(set(expected)) > 6
    points = [by_hand(ready, words, {**row, "reward": "rubric"}, text) for row, text in zip(asked, texts, strict=True)]
    assert found.parts["rubric"].tolist() == pytest.approx(points), "of all, also where it does not count"
    assert found.parts["verifiable"].tolist() == [1.0, 0.0, 1.0, 0.0] * 7


def test_a_special_token_within_an_answer_is_seen_by_those_who_judge_it(ready, words, table):
    """Such an answer once earned full points, since the token vanished from the text; only the token that ends the
    answer vanishes.
    """
    row = table.iloc[0].to_dict()
    asked, user = chat.encode_prompt(words, row["question"]), words.convert_tokens_to_ids("<|user|>")
    good = chat.encode_response(words, row["solution"])
    bad = [token for token in good[:-1] for token in (token, user)] + good[-1:]
    responses = make_completions([asked], [0, 0], [good, bad], words.pad_token_id)
    points = []
    for kind in ("verifiable", "rubric", "format"):
        with open_judge(config(reward={kind: 1.0}), {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
            points.append(judge([row, row], responses, [True, True]).total.tolist())
    assert points[0] == [1.0, 0.0]
    assert points[1][0] == 1.0
    assert points[1][1] < 0.5
    assert points[2] == [1.0, 0.0]


def test_a_reference_that_cannot_be_read_is_told_once_and_no_wrong_answer(ready, words, table, capsys):
    rows = table.head(2).assign(answer=["garbage (", "12"]).to_dict("records")
    asked, _, responses = answered(words, rows)
    with open_judge(config(), {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        for _ in range(2):
            found = judge(asked, responses, [True] * 8)
    assert found.total.isnan().tolist() == [True] * 4 + [False] * 4
    first = rows[0]["prompt_id"]
    assert (
        capsys.readouterr().err
        == f"prompts: {first}: the answer 'garbage (' cannot be read: its responses have no reward\n"
    )


@pytest.mark.parametrize(
    ("own", "kinds", "loaded"),
    [
        (0.0, {"policy"}, False),
        (0.0, {"policy", "verifiable", "rubric"}, False),
        (0.5, {"verifiable"}, False),
        (0.5, {"policy"}, True),
        (0.0, {"policy", "reward_model"}, True),
    ],
)
def test_the_reward_model_is_loaded_only_where_it_counts(ready, words, tmp_path, own, kinds, loaded):
    weights = {**OWN, "reward_model": own}
    with open_judge(config(reward=weights), kinds, words, ready / "reward_model", NO_FILES) as judge:
        assert (judge.scorer is not None) == loaded
    if not loaded:
        with open_judge(config(reward=weights), kinds, words, tmp_path / "nowhere", NO_FILES):
            pass


def test_a_reward_model_that_is_asked_for_and_missing_is_one_line(words, tmp_path):
    with (
        pytest.raises(StageError) as stopped,
        open_judge(config(), {"reward_model"}, words, tmp_path / "nowhere", NO_FILES),
    ):
        pass
    assert str(stopped.value) == (
        f"params.yaml: reward_model_path: {tmp_path / 'nowhere'} holds no config.json, but the "
        "reward asks for a reward "
        "model; that of the pipeline is in data/reward_model"
    )


def test_a_reward_model_with_another_tokenizer_is_refused(ready, words, tmp_path):
    scorer = shutil.copytree(ready / "reward_model", tmp_path / "scorer")
    other = AutoTokenizer.from_pretrained(scorer)
    other.add_tokens(["<|else|>"])
    other.save_pretrained(scorer)
    with pytest.raises(StageError) as stopped, open_judge(config(), {"reward_model"}, words, scorer, NO_FILES):
        pass
    assert str(stopped.value) == f"{scorer}: the reward model has another tokenizer than the policy that it is to score"


@pytest.mark.parametrize("count", [1, 3, 7, 10])
def test_each_prompt_comes_once_an_epoch_in_a_new_order(world, count):
    drawn = [place for step in range(1, 22) for place in world.get_step_indices(step, count)]
    epochs = [drawn[start : start + 7] for start in range(0, 21, 7)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 3
    assert len(set(map(tuple, epochs))) == 3


def test_a_step_draws_the_same_whatever_was_drawn_before(world):
    def step(number):
        return world.sample(world.get_step_indices(number, 3), 2, number)

    first = step(2)
    step(1)
    torch.rand(3)
    again, other = step(2), step(3)
    assert torch.equal(first.completions.tokens, again.completions.tokens)
    assert torch.equal(first.logps, again.logps)
    assert not torch.equal(first.completions.tokens, other.completions.tokens)


def test_samples_belong_to_their_prompts(world, words, table):
    found = world.sample([4, 1], 3, 1)
    batch, asked = found.completions, [chat.encode_prompt(words, table["question"].iloc[place]) for place in (4, 1)]
    assert batch.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert [row[kept].tolist() for row, kept in zip(batch.prompts, batch.prompt_mask, strict=True)] == asked
    shown = world.shown([4, 1], found)
    assert shown["prompt"].tolist() == [table["question"].iloc[place] for place in (4, 4, 4, 1, 1, 1)]
    assert shown["reward"].tolist() == found.rewards.tolist()


def test_a_reward_paid_by_line_is_what_each_line_adds(ready, words, table):
    """Compared with the judge on the text up to each line's end; two lines add nothing, and the sum is the reward."""
    own = {"verifiable": 1.0, "rubric": 1.0, "reward_model": 0.5}
    rows = table.to_dict("records")[:2]
    texts = ["{solution}", "no idea\n\nnone", "\n{solution}\nAnd so on.", "no line"]
    texts = [text.format(**row) for row in rows for text in texts]
    owner = [place for place in range(2) for _ in range(4)]
    tokens = [chat.encode_response(words, text) for text in texts]
    asked = [chat.encode_prompt(words, row["question"]) for row in rows]
    batch = make_completions(asked, owner, tokens, words.pad_token_id)
    with open_judge(config(reward=own), {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        world = SamplingEnvironment(None, words, table, judge, config(reward=own))
        ended = torch.tensor([True, False] * 4)
        earned = judge([rows[place] for place in owner], batch, ended.tolist()).total
        before = Experience(batch, torch.zeros(batch.mask.shape), earned, ended)
        found = world.add_line_rewards([0, 1], before)
        for row, (text, line) in enumerate(zip(texts, tokens, strict=True)):
            ends = [t for t, token in enumerate(line[:-1]) if "\n" in words.decode([token])]
            assert len(ends) >= text.count("\n") - text.count("\n\n") > -1
            last, expected = 0.0, torch.zeros(batch.mask.shape[1])
            for t in ends:
                cut = make_completions(asked, [owner[row]], [line[: t + 1]], words.pad_token_id)
                worth = judge([rows[owner[row]]], cut, [False]).total.item()
                expected[t], last = worth - last, worth
            expected[len(line) - 1] = earned[row].item() - last
            torch.testing.assert_close(found.paid[row], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.paid.sum(1), earned, rtol=1e-4, atol=1e-5)
    assert found.rewards is earned
    assert torch.equal(found.paid[3], put_scores_at_last_token(earned, batch.mask)[3]), "of one line"
    assert found.paid[0, : len(tokens[0]) - 1].any(), "a worked line is worth something by itself"


@pytest.mark.parametrize("seed", [20261120, 2**31 - 1, 2**32 - 1])
def test_any_seed_will_do(world, seed):
    """A date is a common seed; torch's seeds have 64 bits, and mixing in other numbers must not exceed them."""
    world.config = config(seed=seed)
    first, again = (world.sample(world.get_step_indices(1, 2), 2, 1) for _ in range(2))
    assert torch.equal(first.completions.tokens, again.completions.tokens)


def test_weights_that_are_all_0_are_refused():
    for weights in ({}, {"verifiable": 0.0, "format": 0.0}):
        with pytest.raises(ValidationError, match="expected one weight above 0"):
            config(reward=weights)


def test_prompts_that_ask_for_an_unknown_reward_are_refused(words, tmp_path):
    with (
        pytest.raises(DataError, match="the reward of some is praise"),
        open_judge(config(), {"praise"}, words, tmp_path, NO_FILES),
    ):
        pass


def test_an_environment_of_one_data_set_logs_its_parts(world):
    found = world.sample([0, 1], 2, 1)
    assert found.logged.keys() == {"rewards/verifiable", "rewards/format"}
    assert pd.Series(found.logged).between(0, 1).all()


def test_the_temperature_is_that_of_the_sampling(ready, words, table):
    """Near 0 all samples of a prompt are the greedy answer; at 1 they differ."""
    found = {}
    for temperature in (1e-4, 1.0):
        with open_judge(config(), {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
            policy = models.load_model(ready / "pretrained")
            drawn = SamplingEnvironment(policy, words, table, judge, config(temperature=temperature)).sample(
                [0, 1], 4, 1
            )
        responses = drawn.completions
        answers = [
            (int(owner), *row[kept].tolist())
            for owner, row, kept in zip(responses.owner, responses.tokens, responses.mask, strict=True)
        ]
        found[temperature] = len(set(answers))
    assert found == {1e-4: 2, 1.0: 8}


def test_rewards_by_columns_count_where_a_prompt_has_them(ready, words, table):
    rows = table.head(2).assign(reward="policy", columns=[json.dumps(CHECKED), ""]).to_dict("records")
    asked, texts, responses = answered(words, rows)
    own = config(reward={"constraints": 1.0, "code": 0.5, "format": 0.25})
    with open_judge(own, {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        found = judge(asked, responses, [True] * len(texts))
    expected = [
        by_hand(ready, words, {**row, "reward": "constraints"}, text) for row, text in zip(asked, texts, strict=True)
    ]
    programs = [float(text.startswith("#")) for text in texts]
    form = [float("####" in text) for text in texts]
    assert found.parts["constraints"][:4].tolist() == found.parts["all_constraints"][:4].tolist() == expected[:4]
    assert found.parts["code"][:4].tolist() == programs[:4] == [1, 1, 0, 0]
    assert found.parts["code"][4:].isnan().all()
    assert found.parts["constraints"][4:].isnan().all()
    sums = [a + 0.5 * b + 0.25 * c for a, b, c in zip(expected[:4], programs[:4], form[:4], strict=True)]
    assert found.total.tolist() == [*sums, *(0.25 * c for c in form[4:])]
    means = weighted_rewards.average_reward_parts(found.parts)
    assert means["rewards/code"] == 0.5, "of the prompts that have tests"
    assert means["rewards/constraints"] == sum(expected[:4]) / 4


@pytest.mark.parametrize(
    ("kind", "columns", "said"),
    [
        ("constraints", {}, "reward constraints: instruction_id_list: expected a list of names"),
        (
            "policy",
            {"instruction_id_list": ["no:such"], "kwargs": [{}]},
            r"reward constraints: instruction_id_list\[0\]: 'no:such'",
        ),
        ("code", {"level": 3}, "reward code: expected tests as .*; the columns are level"),
        ("policy", {"tests": ["assert f("]}, r"reward code: tests\[0\]: expected Python code"),
    ],
)
def test_columns_that_a_reward_cannot_read_are_said_before_training(ready, words, table, kind, columns, said):
    rows = table.assign(reward=kind, columns=json.dumps(columns))
    own = config(reward={"constraints": 1.0, "code": 1.0})
    model = models.load_model(ready / "pretrained")
    first = table["prompt_id"].iloc[0]
    with (
        open_judge(own, {kind}, words, ready / "reward_model", NO_FILES) as judge,
        pytest.raises(DataError, match=f"prompts: {first}: {said}"),
    ):
        SamplingEnvironment(model, words, rows, judge, own)
