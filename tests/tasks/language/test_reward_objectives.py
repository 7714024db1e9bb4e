"""The stage reward_model on rankings, answers and steps."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tasks.algorithms.language import reward_model
from tasks.algorithms.language.completions import make_completions
from tasks.common import models, tables
from tasks.common.errors import DataError, StageError
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.data import chat
from tasks.language.reward_modelling import solution_measures
from tasks.language.rewards import reward_model_files
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.preferences import Rankings
from tasks.language.tables.solutions import Solutions
from tests.tasks.language.test_reward_model import fit

ON_SOLUTIONS = {
    "outcome": {"centering": 0.0, "epochs": 12, "learning_rate": 0.01},
    "process": {"centering": 0.0, "epochs": 6, "learning_rate": 0.01},
}
BY_LOG_PROBABILITIES = {"kind": "log_probability", "beta": 3.0, "threshold": 3.0}


def learn(home, out, objective, **changes):
    """Train on home/preferences or home/solutions."""
    folder = "solutions" if objective in ON_SOLUTIONS else "preferences"
    return fit(home, home / folder, out, objective=objective, **{**ON_SOLUTIONS.get(objective, {}), **changes})


@pytest.fixture(scope="module")
def home(easy_sums):
    """A policy, and solutions and rankings of sums."""
    return easy_sums


@pytest.fixture(scope="module")
def learnt(home, tmp_path_factory):
    """Metrics and folder of each objective."""
    found = {}
    for objective in ("ranking", "outcome", "process"):
        out = tmp_path_factory.mktemp(objective)
        found[objective] = learn(home, out, objective), out
    return found


@pytest.fixture(scope="module")
def by_log_probabilities(home, tmp_path_factory):
    """Metrics and folder of each objective on solutions."""
    found = {}
    for objective in ("outcome", "process"):
        out = tmp_path_factory.mktemp(objective)
        found[objective] = learn(home, out, objective, **BY_LOG_PROBABILITIES, epochs=6), out
    return found


def alone(model, words, row):
    """What Transformers' own class says of each token of a solution, one sequence at a time: (T, outputs)."""
    asked = chat.encode_prompt(words, row.prompt)
    ids = torch.tensor([[*asked, *row.tokens]])
    with torch.no_grad():
        states = model.base_model(ids).last_hidden_state[0, len(asked) :]
        last = model(ids).logits[0]
        found = model.score(states)
    torch.testing.assert_close(found[-1], last, rtol=1e-4, atol=1e-5)
    return found


def test_rankings_teach_what_their_pairs_do(learnt):
    metrics, out = learnt["ranking"]
    assert metrics["accuracy"] > 0.9
    assert {"loss", "accuracy", "margin", "grad_norm"} <= set(pd.read_csv(out / "curve.csv"))


def test_ties_count_or_are_dropped(home, learnt, tmp_path):
    """At the end all of a prompt's pairs are told apart, of which one is a tie that counts half, or is none."""
    dropped = learn(home, tmp_path, "ranking", ties="drop")
    assert dropped["accuracy"] > 0.9
    last = [pd.read_csv(out / "curve.csv").iloc[-1] for out in (learnt["ranking"][1], tmp_path)]
    assert [row["accuracy"] for row in last] == pytest.approx([5 / 6, 1.0])
    assert last[0]["loss"] > np.log(2) / 3 > last[1]["loss"], "a tie costs log 2 at least"


def test_the_held_out_rankings_are_not_learnt_from(home, learnt, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    table = tables.read_table(Rankings, copy / "preferences/rankings.parquet")
    tables.write_table(Rankings, table[~table["held_out"]], copy / "preferences/rankings.parquet")
    learn(copy, tmp_path, "ranking")
    files = [folder / "model/model.safetensors" for folder in (tmp_path, learnt["ranking"][1])]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("kind", ["learnt", "by_log_probabilities"])
@pytest.mark.parametrize("objective", ["outcome", "process"])
def test_answers_and_steps_are_told_apart(request, kind, objective):
    """Wrong answers end in another number, which begins with the right one."""
    metrics, out = request.getfixturevalue(kind)[objective]
    assert metrics["accuracy"] > metrics["untrained"]["accuracy"]
    assert metrics["accuracy"] > 0.85
    assert metrics["auc"] > 0.9
    assert metrics["best_of"]["reward"] > metrics["best_of"]["chance"] == pytest.approx(2 / 3)
    before = metrics["untrained"]
    assert before["best_of"] == {**metrics["best_of"], "reward": before["best_of"]["reward"]}
    assert ("first_error" in before, metrics["auc"] > before["auc"]) == (objective == "process", True)
    curve = pd.read_csv(out / "curve.csv")
    assert list(curve) == ["step", "loss", "accuracy", "grad_norm"]
    assert curve["loss"].iloc[-1] < 0.5 * curve["loss"].iloc[0]


def labels(row, objective):
    """The right class at each place where a solution has a label."""
    return [int(label) + 1 for label in row.labels] if objective == "process" else [int(row.right)]


@pytest.mark.parametrize("objective", ["outcome", "process"])
def test_what_is_written_is_what_the_saved_model_says(home, learnt, objective):
    metrics, out = learnt[objective]
    found = tables.read_table(HeldOut, out / "model/held_out.parquet").set_index("solution_id")
    table = tables.read_table(Solutions, home / "solutions/test.parquet")
    assert set(found.index) == set(table["solution_id"])
    model = AutoModelForSequenceClassification.from_pretrained(out / "model")
    words = models.load_tokenizer(out / "model")
    costs, right = [], []
    for row in table.itertuples():
        said = alone(model, words, row)
        if objective == "outcome":
            worth = said[-1].sigmoid().item()
            assert found.loc[row.solution_id, "reward"] == pytest.approx(worth, rel=1e-4)
            steps = torch.tensor([[1 - worth, worth]])
        else:
            steps = said[[int(end) for end in row.ends]].softmax(-1)
            for number, name in enumerate(("bad", "neutral", "good")):
                assert found.loc[row.solution_id, name] == pytest.approx(steps[:, number].tolist(), rel=1e-3, abs=1e-6)
            assert found.loc[row.solution_id, "reward"] == pytest.approx(1 - steps[:, 0].max().item(), rel=1e-4)
        for probabilities, label in zip(steps, labels(row, objective), strict=True):
            costs.append(-np.log(probabilities[label].item()))
            right.append(probabilities.argmax().item() == label)
    assert metrics["loss"] == pytest.approx(np.mean(costs), rel=1e-3)
    assert metrics["accuracy"] == pytest.approx(np.mean(right))
    measured = solution_measures.compute_solution_measures(found.reset_index())
    assert {name: metrics[name] for name in measured} == measured


@pytest.mark.parametrize("objective", ["outcome", "process"])
def test_what_is_written_is_what_the_saved_log_probabilities_say(home, by_log_probabilities, objective):
    """By Transformers' own class, one sequence at a time, in a loop over the steps of the table."""
    metrics, out = by_log_probabilities[objective]
    found = tables.read_table(HeldOut, out / "model/held_out.parquet").set_index("solution_id")
    table = tables.read_table(Solutions, home / "solutions/test.parquet")
    assert set(found.index) == set(table["solution_id"])
    model, words = AutoModelForCausalLM.from_pretrained(out / "model"), models.load_tokenizer(out / "model")
    costs, right = [], []
    for row in table.itertuples():
        asked, answer = chat.encode_prompt(words, row.prompt), [*map(int, row.tokens)]
        with torch.no_grad():
            logits = model(torch.tensor([[*asked, *answer]])).logits[0, len(asked) - 1 : -1]
        logps, start, worth = logits.log_softmax(-1)[range(len(answer)), answer], 0, []
        for end in [*map(int, row.ends)] if objective == "process" else [len(answer) - 1]:
            worth.append(torch.sigmoid(3.0 * (logps[start : end + 1].mean() + 3.0)).item())
            start = end + 1
        assert found.loc[row.solution_id, "reward"] == pytest.approx(min(worth), rel=1e-3)
        if objective == "process":
            assert found.loc[row.solution_id, "good"] == pytest.approx(worth, rel=1e-3)
            assert found.loc[row.solution_id, "bad"] == pytest.approx([1 - p for p in worth], abs=1e-3)
            assert found.loc[row.solution_id, "neutral"].tolist() == [0.0] * len(worth)
        for p, label in zip(worth, labels(row, objective), strict=True):
            costs.append(-np.log(p if label else 1 - p))
            right.append((p > 0.5) == bool(label))
    assert metrics["loss"] == pytest.approx(np.mean(costs), rel=1e-3)
    assert metrics["accuracy"] == pytest.approx(np.mean(right))
    measured = solution_measures.compute_solution_measures(found.reset_index())
    assert {name: metrics[name] for name in measured} == measured


def test_a_log_probability_has_one_label_for_an_answer(home, tmp_path):
    """So the two are the same training, which leaves the same bytes again."""
    for tokens in ("last", "all"):
        learn(home, tmp_path / tokens, "outcome", outcome_tokens=tokens, epochs=1, **BY_LOG_PROBABILITIES)
    files = [tmp_path / tokens / "model/model.safetensors" for tokens in ("last", "all")]
    assert files[0].read_bytes() == files[1].read_bytes()


def assert_policies_are_paid_what_is_written(home, out):
    """`score` finds the steps by the tokens; the table says where they end."""
    model, words = reward_model_files.load_reward_model(out / "model"), models.load_tokenizer(out / "model")
    rows = tables.list_records(tables.read_table(Solutions, home / "solutions/test.parquet"))
    prompts = [chat.encode_prompt(words, row["prompt"]) for row in rows]
    answers = [row["tokens"].tolist() for row in rows]
    batch = make_completions(prompts, [*range(len(rows))], answers, words.pad_token_id)
    held_out = tables.read_table(HeldOut, out / "model/held_out.parquet").set_index("solution_id")
    expected = [held_out.loc[row["solution_id"], "reward"] for row in rows]
    with torch.no_grad():
        assert reward_model.score_responses(model, batch).tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["learnt", "by_log_probabilities"])
def test_rewards_are_those_that_policies_are_paid(request, home, kind):
    assert_policies_are_paid_what_is_written(home, request.getfixturevalue(kind)["process"][1])


@pytest.mark.parametrize(("how", "kind"), [("product", BY_LOG_PROBABILITIES), ("last", {})])
def test_rewards_by_another_step_score_are_those_that_policies_are_paid(home, tmp_path, how, kind):
    learn(home, tmp_path, "process", step_score=how, epochs=1, **kind)
    assert reward_model_files.load_reward_model(tmp_path / "model").config.reward_step_score == how
    assert_policies_are_paid_what_is_written(home, tmp_path)


def test_held_out_comparisons_are_written(learnt):
    metrics, out = learnt["ranking"]
    found = tables.read_table(HeldOut, out / "model/held_out.parquet")
    margins = found["chosen_reward"] - found["rejected_reward"]
    assert metrics["accuracy"] == (margins > 0).mean()
    assert metrics["by_level"] == pytest.approx(
        {
            "slightly": (margins > 0)[found["strength"] == "b slightly better"].mean(),
            "better": (margins > 0)[found["strength"] == "a better"].mean(),
        }
    )
    words = models.load_tokenizer(out / "model")
    assert found["chosen_length"].tolist() == [len(chat.encode_response(words, text)) for text in found["chosen"]]


def test_calibration_counts_every_answer_and_every_step(home, learnt):
    table = tables.read_table(Solutions, home / "solutions/test.parquet")
    for objective, count in (("outcome", len(table)), ("process", table["ends"].map(len).sum())):
        written = pd.read_csv(learnt[objective][1] / "model/calibration.csv")
        assert written["labels"].sum() == count
        assert written["predicted"].is_monotonic_increasing
        assert written[["predicted", "observed"]].to_numpy().min() >= 0


def test_the_tokens_that_say_it_decide(home, tmp_path):
    for tokens in ("all", "last"):
        learn(home, tmp_path / tokens, "outcome", epochs=1, outcome_tokens=tokens)
    paths = [tmp_path / tokens / "model/model.safetensors" for tokens in ("all", "last")]
    assert paths[0].read_bytes() != paths[1].read_bytes()


@pytest.mark.parametrize("kind", [{}, BY_LOG_PROBABILITIES])
def test_soft_labels_teach_shares(home, tmp_path, kind):
    """Of a step that reaches the answer in a quarter of the roll-outs the model comes to say so."""
    copy = shutil.copytree(home, tmp_path / "home")
    for name in ("train", "test"):
        table = tables.read_table(Solutions, home / f"solutions/{name}.parquet")
        table["good"] = [[0.25] * len(ends) for ends in table["ends"]]
        tables.write_table(Solutions, table, copy / f"solutions/{name}.parquet")
    learn(copy, tmp_path, "process", epochs=7, **kind)
    found = tables.read_table(HeldOut, tmp_path / "model/held_out.parquet")
    assert 1 - np.concatenate([*found["bad"]]).mean() == pytest.approx(0.25, abs=0.05)


ROUNDED = {"training": {"precision": "bf16", "gradient_checkpointing": True, "accumulate": 3}}
LORA = {"lora": {"rank": 4, "alpha": 8.0, "targets": "all-linear", "merge": True, "dropout": 0.0}}
CUT = {"max_length": 18, "truncation": "right"}


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("process", ROUNDED),
        ("process", {**BY_LOG_PROBABILITIES, **LORA}),
        ("process", CUT),
        ("outcome", {**BY_LOG_PROBABILITIES, **CUT}),
    ],
)
def test_with_all_that_trainings_have(home, tmp_path, objective, changes):
    metrics = learn(home, tmp_path, objective, epochs=2, **changes)
    assert metrics["loss"] < metrics["untrained"]["loss"]
    assert metrics["truncated"] > 0 if "max_length" in changes else metrics["truncated"] == 0
    assert reward_model_files.load_reward_model(tmp_path / "model").config.reward_objective == objective


def test_a_policy_that_is_a_reward_model_of_another_objective(home, learnt, tmp_path):
    """Its marks are taken off, and it gets a new head, or the head over tokens."""
    copy = shutil.copytree(home, tmp_path / "home", ignore=shutil.ignore_patterns("pretrained"))
    shutil.copytree(learnt["process"][1] / "model", copy / "pretrained")
    learn(copy, tmp_path, "pairs", epochs=1)
    scorer = reward_model_files.load_reward_model(tmp_path / "model")
    assert scorer.score.weight.shape[0] == 1
    assert not [name for name in vars(scorer.config) if name.startswith("reward_")]
    learn(copy, tmp_path / "outcome", "outcome", epochs=1)
    assert reward_model_files.load_reward_model(tmp_path / "outcome/model").config.reward_objective == "outcome"


def test_a_policy_whose_body_does_not_fit_its_config_is_one_line(home, tmp_path):
    """Only a head may be another one."""
    copy = shutil.copytree(home, tmp_path / "home")
    config = json.loads((copy / "pretrained/config.json").read_text())
    (copy / "pretrained/config.json").write_text(json.dumps(config | {"intermediate_size": 4}))
    with pytest.raises(DataError, match=r"has weights of other shapes than config.json says: model\.layers"):
        learn(copy, tmp_path, "outcome")


@pytest.mark.parametrize(
    ("objective", "changes", "line"),
    [
        ("outcome", {"reward_objective": "praise"}, "reward_objective: expected outcome or process, got 'praise'"),
        (
            "outcome",
            {"reward_objective": ["outcome"]},
            r"reward_objective: expected outcome or process, got \['outcome'\]",
        ),
        ("outcome", {"reward_objective": "process"}, "num_labels: expected 3 with reward_objective process, got 1"),
        (
            "process",
            {"reward_step_score": "mean"},
            "reward_step_score: expected minimum or product or last, got 'mean'",
        ),
        ("process", {"reward_breaks": "all"}, "reward_breaks: expected a list of token ids"),
        ("process", {"reward_breaks": [-1]}, "reward_breaks: expected a list of token ids"),
        ("process", {"reward_blanks": [True]}, "reward_blanks: expected a list of token ids"),
        ("process", {"reward_blanks": [2**70]}, "reward_blanks: expected a list of token ids"),
        ("process", {"reward_objective": None}, "has weights of other shapes than config.json says"),
    ],
)
def test_a_config_that_lies_is_one_line(learnt, tmp_path, objective, changes, line):
    model = shutil.copytree(learnt[objective][1] / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(StageError, match=line) as stopped:
        reward_model_files.load_reward_model(model)
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("objective", "changes", "line"),
    [
        *(
            (objective, {"reward_threshold": value}, f"reward_threshold: expected a number above 0, got {value!r}")
            for objective in ("outcome", "process")
            for value in (0, -0.3, "0.3", True, None, [0.3], float("nan"), float("inf"), 10**400)
        ),
        ("outcome", {"reward_beta": 10**400}, f"reward_beta: expected a number above 0, got {10**400}"),
        ("process", {"reward_step_score": None}, "reward_step_score: expected minimum or product or last, got None"),
        ("process", {"reward_breaks": [1.5]}, "reward_breaks: expected a list of token ids"),
        ("outcome", {"reward_objective": 3}, "reward_objective: expected outcome or process, got 3"),
    ],
)
def test_a_config_of_log_probabilities_that_lies_is_one_line(by_log_probabilities, tmp_path, objective, changes, line):
    model = shutil.copytree(by_log_probabilities[objective][1] / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(StageError) as stopped:
        reward_model_files.load_reward_model(model)
    assert str(stopped.value) == f"{model}: config.json: {line}"


def test_what_the_config_of_log_probabilities_says(by_log_probabilities):
    for objective, (_, out) in by_log_probabilities.items():
        config = json.loads((out / "model/config.json").read_text())
        assert {"reward_beta": 3.0, "reward_threshold": 3.0, "reward_objective": objective}.items() <= config.items()
        assert ("reward_step_score" in config) == ("reward_blanks" in config) == (objective == "process")
        assert config["architectures"][0].endswith("ForCausalLM")


def test_examples_of_another_kind_are_one_line(home, tmp_path):
    with pytest.raises(DataError, match="not a Solutions table"):
        fit(home, home / "preferences", tmp_path, objective="process", centering=0.0)
    with pytest.raises(DataError, match="not a Comparisons table"):
        fit(home, home / "solutions", tmp_path, objective="pairs")
    pairs = shutil.copytree(home / "preferences", tmp_path / "pairs", ignore=shutil.ignore_patterns("rankings*"))
    with pytest.raises(DataError, match=r"rankings.parquet: no such file; objective ranking learns from the rankings"):
        fit(home, pairs, tmp_path, objective="ranking")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "outcome", "likelihood": 0.5}, "expected 0.0 with kind head"),
        ({"objective": "process", "centering": 0.1}, "expected 0.0 with objective outcome or process"),
        ({"objective": "process", "corrupted": 0.1}, "expected 0.0 with objective outcome or process"),
    ],
)
def test_keys_without_an_effect_are_refused(changes, said):
    from tests.tasks.language.test_reward_model import CONFIG

    given = {**CONFIG.model_dump(warnings=False), "centering": 0.0, **changes}
    with pytest.raises(ValueError, match=said):
        RewardModelConfig.model_validate(given)
