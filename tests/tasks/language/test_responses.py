import pytest
import torch

from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.common import models, tables
from tasks.common.errors import StageError
from tasks.language.configs.responses import ResponsesConfig
from tasks.language.data import chat
from tasks.language.responses import run
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses

CONFIG = ResponsesConfig(seed=0, skip=50, prompts=6, samples=3, temperature=0.8, max_new_tokens=10, batch_size=4)


def respond(made, out, **changes):
    metrics = run(CONFIG.model_copy(update=changes), made / "pretrained", made / "problems", out)
    return metrics, tables.read_table(Responses, out / "responses.parquet")


@pytest.fixture(scope="module")
def drawn(made, tmp_path_factory):
    return respond(made, tmp_path_factory.mktemp("responses"))


def test_k_responses_for_each_prompt_behind_those_that_are_skipped(made, drawn):
    _, table = drawn
    problems = tables.read_table(Problems, made / "problems" / "train.parquet").iloc[50:56]
    assert table["prompt_id"].tolist() == [name for name in problems["problem_id"] for _ in range(3)]
    assert table["prompt"].tolist() == [question for question in problems["question"] for _ in range(3)]
    assert table["sample"].tolist() == [0, 1, 2] * 6


def test_texts_and_log_probabilities_belong_to_the_tokens(made, drawn):
    _, table = drawn
    model, words = models.load_model(made / "pretrained"), models.load_tokenizer(made / "pretrained")
    for row in table.itertuples():
        asked, tokens = chat.encode_prompt(words, row.prompt), list(row.tokens)
        batch = make_completions([asked], [0], [tokens], pad=0)
        with torch.no_grad():
            logps = compute_token_logps(model, batch, CONFIG.temperature)[0]
        assert list(row.logps) == pytest.approx(logps.tolist(), abs=1e-4)
        assert row.response == chat.decode_response(words, tokens, row.ended)
        assert row.ended == (tokens[-1] == words.eos_token_id)
        assert row.ended or len(tokens) == CONFIG.max_new_tokens


def test_metrics_by_hand(drawn):
    metrics, table = drawn
    lengths = [len(tokens) for tokens in table["tokens"]]
    assert metrics == {
        "responses": 18,
        "completions/mean_length": pytest.approx(sum(lengths) / 18),
        "completions/clipped_ratio": pytest.approx(1 - table["ended"].mean()),
        "mean_token_logp": pytest.approx(sum(sum(row) for row in table["logps"]) / sum(lengths)),
    }


def test_the_seed_decides(made, drawn, tmp_path):
    same, other = (respond(made, tmp_path / str(seed), seed=seed)[1] for seed in (0, 1))
    assert same.equals(drawn[1])
    assert not other["response"].equals(same["response"])


def test_skipping_everything_is_named(made, tmp_path):
    with pytest.raises(
        StageError,
        match=r"^params\.yaml: responses\.skip: expected less than the 60 training problems that there are, got 60$",
    ):
        respond(made, tmp_path, skip=60)
