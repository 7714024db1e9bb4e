import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from tasks import artifacts, prompts, schemas
from tasks.language import tokenizer
from tasks.language.evaluate import EvaluateConfig, run, summary

CONFIG = EvaluateConfig(
    seed=1, problems=5, samples=4, temperature=1.0, pass_at=[1, 2], max_new_tokens=8, batch_size=2, bootstrap=200
)


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
    artifacts.save_model(kind(config), words, path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Six test problems, and a policy, a reference and a reward model of some thousand weights with random ones."""
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
    for split in ("train", "test"):
        artifacts.write(schemas.Problems, pd.DataFrame(rows), home / "problems" / f"{split}.parquet")
    texts = pd.DataFrame({"kind": "facts", "text": [row["question"] for row in rows]})
    artifacts.write(schemas.Documents, texts, home / "corpus" / "corpus.parquet")
    config = tokenizer.TokenizerConfig(vocabulary=300)
    tokenizer.run(config, home / "corpus", home / "problems", home / "tokenizer")
    words = artifacts.load_tokenizer(home / "tokenizer")
    save_tiny(LlamaForCausalLM, words, home / "policy", seed=1)
    save_tiny(LlamaForCausalLM, words, home / "reference", seed=2)
    save_tiny(LlamaForSequenceClassification, words, home / "reward_model", seed=3)
    return home


def evaluate(home, out, reference="reference", **changes):
    config = CONFIG.model_copy(update=changes)
    paths = [home / name for name in ("policy", reference, "reward_model", "problems")]
    return run(config, *paths, home / out)


@pytest.fixture(scope="module")
def table(home):
    evaluate(home, "one")
    return artifacts.read(schemas.Generations, home / "one" / "generations.parquet")


def test_one_row_an_answer(table):
    expected = [(f"test-{n}", -1) for n in range(5)] + [(f"test-{n}", k) for n in range(5) for k in range(4)]
    assert list(zip(table["problem_id"], table["sample"], strict=True)) == expected
    assert table["length"].max() <= 8
    assert (table["ended"] | (table["length"] == 8)).all()


def test_kl_and_reward_are_those_of_each_sequence_alone(home, table):
    """Recomputed one by one, without padding or a cache, from the greedy tokens."""
    words = artifacts.load_tokenizer(home / "policy")
    policy, reference = (artifacts.load_model(home / name) for name in ("policy", "reference"))
    scorer = artifacts.load_reward_model(home / "reward_model")
    for n, row in enumerate(table.head(5).to_dict("records")):
        asked = prompts.encode_prompt(words, f"Ada has {n} pens and buys 4. How many has she?")
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
            assert row["response"] == prompts.decode(words, tokens[len(asked) :])


def test_kl_to_itself_is_zero_and_to_another_is_not(home):
    itself = evaluate(home, "itself", reference="policy")["kl_sampled"]
    other = evaluate(home, "other", samples=16)["kl_sampled"]
    assert max(map(abs, itself.values())) < 1e-3
    assert other["low"] > 0.1  # an expected log-ratio under the policy is positive


def test_same_seed_same_bytes(home, table):
    evaluate(home, "two")
    evaluate(home, "three", seed=2)
    one, two, three = ((home / out / "generations.parquet").read_bytes() for out in ("one", "two", "three"))
    assert one == two != three


def test_wrong_use(home):
    with pytest.raises(SystemExit, match=r"evaluate\.pass_at: 9 is not within 1 and evaluate\.samples, 4"):
        evaluate(home, "wrong", pass_at=[1, 9])
    words = artifacts.load_tokenizer(home / "tokenizer")
    words.add_tokens(["<|more|>"])
    save_tiny(LlamaForCausalLM, words, home / "stranger", seed=1)
    with pytest.raises(SystemExit, match="the tokenizers differ"):
        evaluate(home, "wrong", reference="stranger")


def row(problem, sample, response, **changes):
    strict, lenient = response == f"#### {problem}", response.endswith(problem)
    return {
        "problem_id": problem,
        "sample": sample,
        "response": response,
        "length": 3,
        "ended": True,
        "strict": strict,
        "lenient": lenient,
        "correctness": 5 * lenient,
        "reasoning": 0,
        "clarity": 0,
        "rubric": 5 * lenient,
        "reward": 0.0,
        "kl": 0.0,
    } | changes


def test_summary_by_hand():
    """Problem 7: one of two samples right, and not strictly; problem 8: both right; greedy right for 8 alone."""
    generations = pd.DataFrame(
        [
            row("7", -1, "#### 9", ended=False),
            row("8", -1, "so 8"),
            row("7", 0, "it is 7", kl=1.0, length=9),
            row("7", 1, "#### 6", kl=-0.5, length=5),
            row("8", 0, "#### 8", kl=0.5),
            row("8", 1, "#### 8", kl=0.0),
        ]
    )
    config = CONFIG.model_copy(update={"samples": 2, "pass_at": [1, 2]})
    found = {name: estimate.mean for name, estimate in summary(generations, {"7": "7", "8": "8"}, config).items()}
    expected = {
        "strict_greedy": 0.0,
        "lenient_greedy": 0.5,
        "strict_mean_at_2": 0.5,
        "lenient_mean_at_2": 0.75,
        "strict_pass_at_1": 0.5,
        "lenient_pass_at_1": 0.75,
        "strict_pass_at_2": 0.5,
        "lenient_pass_at_2": 1.0,
        "strict_majority_at_2": 0.5,  # of 7's samples only "#### 6" votes
        "lenient_majority_at_2": 0.75,  # 7 against 6: half
        "ended_greedy": 0.5,
        "rubric_greedy": 2.5,
        "rubric_sampled": 3.75,
        "kl_sampled": 0.25,
        "length_sampled": 5.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
