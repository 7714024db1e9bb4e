import json
import shutil
from dataclasses import asdict
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from tasks.common import estimates, models, tables
from tasks.common.documents import Documents
from tasks.common.errors import StageError
from tasks.common.estimates import Estimate
from tasks.language import evaluate as stage
from tasks.language import tokenizer
from tasks.language.configs.evaluate import EvaluateConfig
from tasks.language.data import chat
from tasks.language.evaluate import Models, run, score_candidate_temperatures, select_best_temperature
from tasks.language.rewards import reward_model_files
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import Problems
from tests.tasks.tiny import Bigrams

CONFIG = EvaluateConfig(
    **{"seed": 1, "source": "problems", "path": "data/raw/test_problems", "hub_id": "some/problems"},
    **{"hub_config": None, "hub_revision": "main", "hub_split": "test"},
    problems=3,
    samples=4,
    temperatures=[0.5, 1.0],
    candidates=[0.5, 2.0],
    validation_problems=3,
    validation_samples=2,
    pass_at=[1, 2],
    max_new_tokens=8,
    batch_size=2,
    reward_model_path="data/reward_model",
    pairs_path="data/raw/test_pairs",
    strip_thinking=False,
    bootstrap=100,
)
# For what is the same however many answers there are.
FEW = {"temperatures": [1.0], "candidates": [1.0], "samples": 2, "validation_problems": 1, "validation_samples": 1}


def save_tiny(kind, words, path, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
        num_labels=1,
        initializer_range=0.5,
    )
    models.save_model(kind(config), words, path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Six test problems, and a policy, a reference and a reward model, each with some thousand random weights."""
    home = tmp_path_factory.mktemp("evaluate")
    rows = [
        {
            "problem_id": f"test-{n}",
            "question": f"Ada has {n} pens and buys 4. How many has she?",
            "solution": f"{n} + 4 = {n + 4}\n#### {n + 4}",
            "answer": str(n + 4),
            "steps": 1,
        }
        for n in range(6)
    ]
    for split in ("train", "validation", "test"):
        tables.write_table(Problems, pd.DataFrame(rows), home / "problems" / f"{split}.parquet")
    texts = pd.DataFrame({"kind": "facts", "text": [row["question"] for row in rows]})
    tables.write_table(Documents, texts, home / "corpus" / "corpus.parquet")
    config = tokenizer.TokenizerConfig(vocabulary=300)
    tokenizer.run(config, home / "corpus", home / "problems", home / "tokenizer")
    words = models.load_tokenizer(home / "tokenizer")
    save_tiny(LlamaForCausalLM, words, home / "policy", seed=1)
    save_tiny(LlamaForCausalLM, words, home / "reference", seed=2)
    save_tiny(LlamaForSequenceClassification, words, home / "reward_model", seed=3)
    return home


def evaluate(home, out, reference="reference", policy="policy", reward_model="reward_model", **changes):
    """The stage on the test problems of `home`; `asked` and `pairs` name files or folders of the user's own."""
    (home / "nothing").mkdir(exist_ok=True)
    own = [home / changes.pop(name, "nothing") for name in ("asked", "pairs")]
    config = CONFIG.model_copy(update=changes)
    paths = [home / name for name in (policy, reference, reward_model, "problems")]
    return run(config, *paths, *own, home / "curve.csv", home / out)


@pytest.fixture(scope="module")
def metrics(home):
    return evaluate(home, "one")


@pytest.fixture(scope="module")
def table(home, metrics):
    return tables.read_table(Generations, home / "one" / "generations.parquet")


def test_one_row_an_answer(table, metrics):
    """The samples of each temperature are drawn once, even if it is the best one."""
    temperatures = sorted({0.5, 1.0, metrics["best_temperature"]})
    expected = [(f"test-{n}", 0.0, 0) for n in range(3)]
    expected += [(f"test-{n}", t, k) for t in temperatures for n in range(3) for k in range(4)]
    assert list(zip(table["problem_id"], table["temperature"], table["sample"], strict=True)) == expected
    assert table["length"].max() <= 8
    assert (table["ended"] | (table["length"] == 8)).all()


def test_sets_of_another_kind_are_answered_greedily(home):
    """Where the folder of problems has them; the answers stand beside those to the test problems."""
    for name in ("longer", "sums"):
        rows = tables.read_table(Problems, home / "problems/test.parquet").head(3 if name == "longer" else 5)
        rows["problem_id"] = [f"{name}-{number}" for number in range(len(rows))]
        tables.write_table(Problems, rows, home / f"kinds/{name}.parquet")
    for name in ("validation", "test"):
        shutil.copyfile(home / f"problems/{name}.parquet", home / f"kinds/{name}.parquet")
    config = CONFIG.model_copy(update=FEW)
    paths = [home / name for name in ("policy", "reference", "reward_model", "kinds", "nothing", "nothing")]
    (home / "nothing").mkdir(exist_ok=True)
    metrics = run(config, *paths, home / "curve.csv", home / "kinds-out")
    answers = tables.read_table(Generations, home / "kinds-out/other_kinds.parquet")
    assert answers["problem_id"].tolist() == [*(f"longer-{n}" for n in range(3)), *(f"sums-{n}" for n in range(5))]
    assert set(answers["temperature"]) == {0.0}
    for name in ("longer", "sums"):
        right = answers["strict"][answers["problem_id"].str.startswith(name)]
        assert metrics[f"strict_greedy_{name}"] == asdict(estimates.estimate_share(right.astype(float)))
    assert not {"strict_greedy_larger", "strict_greedy_words"} & {*metrics}
    ours = tables.read_table(Generations, home / "kinds-out/generations.parquet")
    same = ours[ours["temperature"] == 0].head(3)["response"].tolist()
    assert answers["response"].tolist() == [*same, *same, *answers["response"].tolist()[6:]]


def test_kl_and_reward_are_those_of_each_sequence_alone(home, table):
    """They are recomputed one by one from the greedy tokens, without padding or a cache."""
    words = models.load_tokenizer(home / "policy")
    policy, reference = (models.load_model(home / name) for name in ("policy", "reference"))
    scorer = reward_model_files.load_reward_model(home / "reward_model")
    for n, row in enumerate(table.head(3).to_dict("records")):
        asked = chat.encode_prompt(words, f"Ada has {n} pens and buys 4. How many has she?")
        tokens = list(asked)
        with torch.no_grad():
            kl = 0.0
            for _ in range(row["length"]):
                ours, theirs = (m(torch.tensor([tokens])).logits[0, -1].log_softmax(-1) for m in (policy, reference))
                kl += float(ours.max() - theirs[ours.argmax()])
                tokens.append(int(ours.argmax()))
            last = scorer.model(torch.tensor([tokens])).last_hidden_state[0, -1]
            assert row["kl"] == pytest.approx(kl, abs=1e-3)
            assert row["reward"] == pytest.approx(float(scorer.score(last)), abs=1e-3)
            assert row["response"] == chat.decode_response(words, tokens[len(asked) :])


@pytest.fixture(scope="module")
def itself(home):
    """The metrics of a policy that is its own reference, with eight samples at low and high temperatures, and pairs."""
    pairs = [{"prompt": "Which?", "chosen": f"Ada has {n} pens", "rejected": f"{n} 4 4"} for n in range(4)]
    (home / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    changes = {**FEW, "temperatures": [0.01, 0.3, 3.0], "samples": 8, "pairs": "pairs.jsonl"}
    return evaluate(home, "itself", reference="policy", **changes)


def test_kl_to_itself_is_zero_at_every_temperature_and_to_another_is_not(metrics, itself):
    for how in ("t0.3", "t3.0", "tbest"):
        assert max(map(abs, itself[f"kl_sampled_{how}"].values())) < 1e-3
    assert itself["best_temperature"] == 1.0
    assert all(metrics[f"kl_sampled_{how}"]["low"] > 0.1 for how in ("t0.5", "t1.0")), "above 0 under the policy"


def test_each_temperature_acts(home, itself):
    """The colder the samples, the more they are alike."""
    table = tables.read_table(Generations, home / "itself" / "generations.parquet")
    kinds = table.groupby(["temperature", "problem_id"])["response"].nunique().groupby("temperature").mean()
    assert kinds[0.01] < 3 < 7 < kinds[3.0]
    assert itself["reward_sampled_t0.01"] != itself["reward_sampled_t3.0"]


def test_without_a_reward_model_there_are_no_rewards_and_all_else_is_the_same(home, metrics, table):
    (home / "none").mkdir()
    found = evaluate(home, "unscored", reward_model="none")
    plain = tables.read_table(Generations, home / "unscored" / "generations.parquet")
    assert plain.equals(table.drop(columns="reward"))
    left_out = {name for name in metrics if name.startswith("reward_") or "_best_of_" in name}
    assert len(left_out) == 1 + 3 + 2 * 3
    ranking = {name for name in metrics if name.startswith("ranking_")}
    assert ranking
    left_out |= ranking
    assert found == {name: value for name, value in metrics.items() if name not in left_out}


# Of the first test problem the answer is 4; the thinking says 5, or does not end.
THOUGHT, UNENDED = "<think>0 + 5 = 5</think>#### 4", "<think>#### 4"


def test_an_answer_is_right_where_the_reward_says_so(home, monkeypatch):
    """Also for other forms than plain numbers: accuracy is the verifiable reward's judgement of eight answers."""
    texts = ["#### 6", r"\boxed{\frac{12}{2}}", "So it is 7.", r"#### 7\n\boxed{6}", "6", "", THOUGHT, UNENDED]
    answers = cycle(texts)
    monkeypatch.setattr(chat, "decode_response", lambda *_: next(answers))
    evaluate(home, "said", **{**FEW, "samples": 8})
    table = tables.read_table(Generations, home / "said" / "generations.parquet")
    golds = tables.read_table(Problems, home / "problems/test.parquet").set_index("problem_id")["answer"]
    with Verifier() as verifier:
        verdicts = verifier([golds[name] for name in table["problem_id"]], table["response"].tolist())
    assert table["lenient"].tolist() == [verdict == 1.0 for verdict in verdicts]
    drawn = table[table["temperature"] == 1.0].set_index("problem_id")
    of_six = drawn.loc["test-2"]
    assert sorted(of_six["response"]) == sorted(texts)
    assert {*of_six["response"][~of_six["lenient"]]} == {"So it is 7.", "", THOUGHT, UNENDED}
    whole = drawn.loc["test-0"].set_index("response").loc[THOUGHT]
    assert whole[["strict", "steps"]].tolist() == [False, True], "thinking is left in"


def test_thinking_is_stripped_before_an_answer_is_judged(home, monkeypatch):
    answers = cycle([THOUGHT, UNENDED])
    monkeypatch.setattr(chat, "decode_response", lambda *_: next(answers))
    evaluate(home, "thought", strip_thinking=True, problems=1, **FEW)
    table = tables.read_table(Generations, home / "thought" / "generations.parquet")
    stripped = table[table["temperature"] == 1.0].sort_values("response", ascending=False)
    assert stripped[["response", "strict", "steps"]].iloc[0].tolist() == ["#### 4", True, False]
    assert not stripped["lenient"].iloc[1]


def test_wrong_use(home):
    with pytest.raises(ValidationError, match="expected at most samples = 4 in each place"):
        EvaluateConfig.model_validate({**CONFIG.model_dump(), "pass_at": [1, 9]})
    words = models.load_tokenizer(home / "tokenizer")
    words.add_tokens(["<|more|>"])
    save_tiny(LlamaForCausalLM, words, home / "stranger", seed=1)
    with pytest.raises(StageError, match="the tokenizers differ"):
        evaluate(home, "wrong", reference="stranger")
    with pytest.raises(
        StageError, match=r"stranger: lacks weights of the model that config\.json describes: score\.weight"
    ):
        evaluate(home, "wrong", reward_model="stranger")  # a language model is none
    save_tiny(LlamaForSequenceClassification, words, home / "judge", seed=1)
    with pytest.raises(StageError, match="the tokenizers differ"):
        evaluate(home, "wrong", reward_model="judge")
    with pytest.raises(ValidationError, match=r"greater than 0"):
        EvaluateConfig.model_validate({**CONFIG.model_dump(), "temperatures": [0.0]})
    with pytest.raises(ValidationError, match=r"greater than or equal to 0"):
        EvaluateConfig.model_validate({**CONFIG.model_dump(), "candidates": [-0.1]})


def spied(monkeypatch, *names):
    """The number of prompts and the options `names` of each sampling from now on."""
    calls, sample = [], stage.rollouts.sample_rollouts

    def spy(model, encoded, **options):
        calls.append((len(encoded), *(options[name] for name in names)))
        return sample(model, encoded, **options)

    monkeypatch.setattr(stage.rollouts, "sample_rollouts", spy)
    return calls


def test_each_key_acts(home, metrics, table, monkeypatch):
    """Four validation problems make two batches, at two candidates, before the first test problem is seen.

    `temperatures` has a test of its own; `batch_size` may change nothing but speed and the draws.
    """
    asked = spied(monkeypatch, "samples", "temperature", "seed", "batch_size")
    numbers = {"problems": 2, "validation_problems": 4, "samples": 5, "max_new_tokens": 3, "validation_samples": 3}
    found = evaluate(home, "other_keys", **numbers, pass_at=[3], candidates=[2.0, 1.0], seed=7, batch_size=3)
    assert asked[:2] == [(4, 3, temperature, 7, 3) for temperature in (2.0, 1.0)]
    assert asked[2:] == [(2, 1, 0.0, 7, 3)] + [(2, 5, temperature, 7, 3) for temperature in (0.5, 1.0)]
    drawn = tables.read_table(Generations, home / "other_keys" / "generations.parquet")
    assert not set(drawn["reward"][drawn["temperature"] > 0]) & set(table["reward"]), "another seed, other answers"
    assert found["asked"] == 2
    assert found["strict_greedy"] == asdict(estimates.estimate_share(np.zeros(2))), "this policy is never right"
    assert found["strict_validation_t1.0"] == asdict(estimates.estimate_share(np.zeros(4)))
    assert found["best_temperature"] == 1.0
    for name in ("strict_mean_at_5_t1.0", "strict_pass_at_3_t0.5"):
        assert name in found
        assert name not in metrics
    assert "strict_pass_at_2_t0.5" not in found
    assert 0 < found["length_greedy"]["mean"] <= 3 < metrics["length_greedy"]["mean"]


def test_greedy_answers_may_be_best_and_are_drawn_once(home, monkeypatch, metrics, table):
    """The same seed draws the same answers; fewer resamples change intervals alone."""
    asked = spied(monkeypatch, "samples", "temperature")
    found = evaluate(home, "greedy", candidates=[2.0, 0.0], bootstrap=20)
    assert asked == [(3, 2, 2.0), (3, 1, 0.0), (3, 1, 0.0), (3, 4, 0.5), (3, 4, 1.0)]
    assert found["best_temperature"] == 0.0, "of equals the lowest: this policy is never right"
    assert found["length_sampled_tbest"]["mean"] == found["length_greedy"]["mean"]
    assert found["strict_mean_at_4_tbest"] == found["strict_greedy"]
    kl, before = found["kl_sampled_t1.0"], metrics["kl_sampled_t1.0"]
    assert kl["mean"] == before["mean"]
    assert (kl["low"], kl["high"]) != (before["low"], before["high"])
    again = tables.read_table(Generations, home / "greedy" / "generations.parquet")
    assert again.equals(table[table["temperature"].isin([0.0, 0.5, 1.0])].reset_index(drop=True))


def test_the_best_temperature_is_the_most_accurate_one_and_of_equals_the_lowest():
    def accuracies(**means):
        return {float(t.removeprefix("t")) / 10: Estimate(mean, 0.0, 1.0) for t, mean in means.items()}

    assert select_best_temperature(accuracies(t3=0.5, t7=0.6, t10=0.4)) == 0.7
    assert select_best_temperature(accuracies(t10=0.4, t7=0.6, t3=0.6)) == 0.3
    assert select_best_temperature(accuracies(t10=0.0, t5=0.0)) == 0.5


def test_the_choice_finds_the_temperature_that_is_best(home):
    """A policy that answers `#### 3` with logit 6, the right `#### 4` with 5.5, and 280 other texts with 0.

    At a low temperature it is always wrong, at a high one it answers anything; in between it is right most often, by
    the softmax.
    """
    words = models.load_tokenizer(home / "tokenizer")
    marks, right, end = chat.encode_response(words, "#### 4")
    _, wrong, _ = chat.encode_response(words, "#### 3")
    table = np.zeros((len(words), len(words)))
    table[chat.encode_prompt(words, "Why?")[-1], marks] = 1
    table[marks] = 1
    table[marks, [wrong, right, end]] = np.exp(6), np.exp(5.5), 0
    table[table.sum(axis=1) == 0, end] = 1
    policy = Bigrams(table)
    policy.generation_config = SimpleNamespace(eos_token_id=None)
    asked = pd.DataFrame({"question": [f"What is {n}?" for n in range(6)], "answer": "4"})
    config = CONFIG.model_copy(update={"candidates": [2.5, 0.7, 0.2], "validation_samples": 200, "batch_size": 4})
    with Verifier() as verifier:
        found = score_candidate_temperatures(config, Models(policy, None, None, words), asked, verifier)
    for temperature, estimate in found.items():
        weights = table[marks][table[marks] > 0] ** (1 / temperature)
        expected = np.exp(5.5) ** (1 / temperature) / weights.sum()
        assert estimate.mean == pytest.approx(expected, abs=0.05)
        assert estimate.low < expected < estimate.high
    assert select_best_temperature(found) == 0.7


def test_test_problems_of_ones_own_need_no_stage_before(home, tmp_path):
    """Rows in MATH's form: a right answer is marked, and a file of one's own replaces the pipeline's problems."""
    rows = [{"problem": f"What is {n}?", "solution": f"It is $\\boxed{{\\frac{{{n}}}{{7}}}}$."} for n in range(3)]
    (home / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    metrics = evaluate(home, tmp_path, source="files", path="mine.jsonl", asked="mine.jsonl", **FEW)
    table = tables.read_table(Problems, tmp_path / "asked.parquet")
    assert table["answer"].tolist() == [f"\\frac{{{n}}}{{7}}" for n in range(3)]
    assert metrics["asked"] == 3
    assert ("strict_greedy" in metrics, "rubric_greedy" in metrics) == (True, False), (
        "the rubric reads GSM8K's form only"
    )


def test_without_answers_likelihoods_and_pairs_are_measured(home, itself, tmp_path):
    """The loss on references is that of each sequence alone; a policy prefers what it has made more likely than the
    reference did.
    """
    rows = [{"prompt": f"Say {n}.", "response": f"{n} pens"} for n in range(3)]
    (home / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own = {"asked": "asked.jsonl", "pairs": "pairs.jsonl", "source": "files", "path": "asked.jsonl", **FEW}
    metrics = evaluate(home, tmp_path / "out", **own)
    assert not any(name.startswith(("strict", "lenient", "rubric", "best")) for name in metrics)
    words = models.load_tokenizer(home / "policy")
    policy, reference = (models.load_model(home / name) for name in ("policy", "reference"))

    def logps(model, prompt, response):
        asked, answer = chat.encode_prompt(words, prompt), chat.encode_response(words, response)
        found = model(input_ids=torch.tensor([asked + answer])).logits[0].log_softmax(-1)
        return [found[len(asked) + at - 1, token].item() for at, token in enumerate(answer)]

    def gained(text):
        return sum(logps(policy, "Which?", text)) - sum(logps(reference, "Which?", text))

    expected = [-np.mean(logps(policy, row["prompt"], row["response"])) for row in rows]
    assert metrics["reference_loss"]["mean"] == pytest.approx(np.mean(expected), rel=1e-5)
    pairs = map(json.loads, (home / "pairs.jsonl").read_text().splitlines())
    won = [gained(row["chosen"]) > gained(row["rejected"]) for row in pairs]
    assert metrics["pair_accuracy"]["mean"] == pytest.approx(np.mean(won))
    assert itself["pair_accuracy"]["mean"] == 0.5


def test_what_is_left_out_of_ones_own_pairs_is_said(tmp_path, capsys):
    file = tmp_path / "pairs.jsonl"
    unanswered = json.dumps({"prompt": "Why?", "chosen": "", "rejected": "No."})
    file.write_text(
        json.dumps({"prompt": "How?", "chosen": "So.", "rejected": "No.", "note": "x"}) + f"\n{unanswered}\n"
    )
    assert len(stage.read_held_out_pairs(file)) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{file}: rows left out: 1 without an answer",
        f"{file}: not read: note (1 rows)",
    ]
    file.write_text(unanswered)
    with pytest.raises(StageError, match=r"expected pairs, found none; rows left out: 1 without an answer$"):
        stage.read_held_out_pairs(file)
