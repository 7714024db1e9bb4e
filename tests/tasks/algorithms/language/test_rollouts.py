import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MptConfig, MptForCausalLM, TopPLogitsWarper

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language import rollouts
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tests.tasks.tiny import ARCHITECTURES, llama

PROMPTS = [[3, 4, 5, 6, 7], [8], [9, 3, 1], [2, 2]]  # of different lengths, so that rows are padded on the left
ENDS = [0, 5, 11]


def draw(model, prompts=PROMPTS, **changes):
    settings = {"samples": 1, "max_new_tokens": 12, "temperature": 1.0, "end_tokens": ENDS, "seed": 0, "batch_size": 8}
    return list(rollouts.sample_rollouts(model, prompts, **{**settings, **changes}))


def generated(model, prompts, ends, length):
    """Transformers' own greedy answers, cut after the first end token."""
    width = max(map(len, prompts))
    padded = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    attention = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(
        padded, attention_mask=attention, do_sample=False, max_new_tokens=length, eos_token_id=ends, pad_token_id=0
    )
    answers = []
    for row in out[:, width:].tolist():
        stops = [place for place, token in enumerate(row) if token in ends]
        answers.append(row[: stops[0] + 1] if stops else row)
    return answers


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("seed", range(3))
def test_greedy_tokens_are_those_of_generate(architecture, seed):
    model = ARCHITECTURES[architecture](seed)
    [drawn] = draw(model, temperature=0.0)
    assert drawn.responses() == generated(model, PROMPTS, ENDS, 12)


def test_the_greedy_cases_end_early_and_late():
    """Otherwise the comparison above would not test ending, compaction and truncation."""
    found = [
        drawn for make in ARCHITECTURES.values() for seed in range(3) for drawn in draw(make(seed), temperature=0.0)
    ]
    ended = torch.cat([drawn.ended for drawn in found])
    assert ended.any()
    assert not ended.all()
    ends = {row[-1] for drawn in found for row, end in zip(drawn.responses(), drawn.ended, strict=True) if end}
    assert len(ends) > 1, "more than one of the end tokens occurs"


def test_one_end_token_of_several_is_not_enough():
    """Stopping at the first declared end token only (trl#7039) gives other answers."""
    assert any(
        draw(make(seed), temperature=0.0)[0].responses()
        != draw(make(seed), temperature=0.0, end_tokens=ENDS[:1])[0].responses()
        for make in ARCHITECTURES.values()
        for seed in range(3)
    )


@pytest.mark.parametrize(("architecture", "temperature"), [*zip(ARCHITECTURES, (0.7, 0.0, 0.7), strict=True)])
def test_a_streamed_response_is_the_one_that_is_sampled(architecture, temperature):
    """Token by token, up to the end token or the limit, whichever comes first."""
    model, ended = ARCHITECTURES[architecture](), set()
    for seed, (prompt, ends) in enumerate(zip(PROMPTS, (ENDS, ENDS[:1], [], ENDS), strict=True)):
        settings = {"max_new_tokens": 12, "temperature": temperature, "end_tokens": ends, "seed": seed}
        [drawn] = draw(model, [prompt], **settings)
        assert [[*rollouts.stream_response_tokens(model, prompt, **settings)]] == drawn.responses()
        ended.add(bool(drawn.ended))
    assert ended == {True, False}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_log_probabilities_are_those_recomputed(architecture, temperature):
    """Log-probabilities from a cache, with rows leaving the batch, compared with one pass over whole sequences."""
    model = ARCHITECTURES[architecture]()
    [drawn] = draw(model, samples=8, temperature=temperature)
    assert len(set(drawn.mask.sum(1).tolist())) > 3, "rows end at different times"
    owner = [prompt for prompt in range(len(PROMPTS)) for _ in range(8)]
    batch = make_completions(PROMPTS, owner, drawn.responses(), pad=0)
    with torch.no_grad():
        again = compute_token_logps(model, batch, temperature)[batch.mask]
        other = compute_token_logps(model, batch, 1.7 - temperature)[batch.mask]
    torch.testing.assert_close(drawn.logps[drawn.mask], again, rtol=1e-4, atol=1e-5)
    assert (drawn.logps[drawn.mask] - other).abs().max() > 0.1, "another temperature's are not"
    assert not drawn.logps[~drawn.mask].any()
    assert not drawn.tokens[~drawn.mask].any()


def test_rows_that_leave_the_batch_change_no_other():
    model = llama(1)
    [together] = draw(model, temperature=0.0)
    alone = [draw(model, [prompt], temperature=0.0)[0].responses()[0] for prompt in PROMPTS]
    assert together.responses() == alone
    assert len({len(row) for row in alone}) > 1


def test_truncation_is_reported():
    model = llama(1)
    for length in (1, 3, 12):
        [drawn] = draw(model, samples=8, max_new_tokens=length)
        for row, ended in zip(drawn.responses(), drawn.ended.tolist(), strict=True):
            assert not set(row[:-1]) & set(ENDS), "nothing follows an end token"
            assert (row[-1] in ENDS) == ended
            assert ended or len(row) == length
    assert not all(draw(model, max_new_tokens=1, samples=8)[0].ended)


def test_without_end_tokens_every_row_is_cut_off():
    [drawn] = draw(llama(), end_tokens=[])
    assert drawn.mask.all()
    assert drawn.tokens.shape == (4, 12)
    assert not drawn.ended.any()


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    return ((counts - expected) ** 2 / expected).sum().item()


def test_sampled_frequencies_are_the_model_s_probabilities():
    """First and second tokens of 20,000 responses. 0.999 quantiles of chi-square: 24.3 (7 degrees), 97 (56 degrees)."""
    model = llama(vocab_size=8, initializer_range=0.15)
    [drawn] = draw(model, [[3, 1]], samples=20_000, max_new_tokens=2, temperature=0.7, end_tokens=[], seed=5)
    first = torch.bincount(drawn.tokens[:, 0], minlength=8)
    with torch.no_grad():
        logits = model(torch.tensor([[3, 1]])).logits[0, -1]
        after = model(torch.tensor([[3, 1, token] for token in range(8)])).logits[:, -1]
    probabilities = (logits / 0.7).softmax(-1)
    assert chi_square(first, probabilities) < 24.3
    assert chi_square(first, logits.softmax(-1)) > 100, "the temperature shows"
    pairs = torch.bincount(drawn.tokens[:, 0] * 8 + drawn.tokens[:, 1], minlength=64)
    joint = (probabilities[:, None] * (after / 0.7).softmax(-1)).flatten()
    assert chi_square(pairs, joint) < 103.4  # 63 degrees
    assert chi_square(pairs, (probabilities[:, None] * probabilities).flatten()) > 200, "the second reads the first"


def test_a_nucleus_by_hand():
    distribution = torch.tensor([[0.1, 0.5, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25]]).log()
    expected = [[0, 0.625, 0.375, 0], [0.5, 0.5, 0, 0]]  # of equals the first are kept
    torch.testing.assert_close(rollouts.apply_top_p(distribution, 0.5001).exp()[0], torch.tensor(expected[0]))
    torch.testing.assert_close(rollouts.apply_top_p(distribution, 0.49).exp()[1], torch.tensor(expected[1]))
    torch.testing.assert_close(rollouts.apply_top_p(distribution, 1e-9).exp()[0], torch.tensor([0.0, 1, 0, 0]))


@given(
    st.lists(st.integers(-400, 400), min_size=5, max_size=5, unique=True), st.floats(0.01, 0.99), st.integers(0, 2**20)
)
def test_a_nucleus_is_transformers_own(logits, top_p, seed):
    """Logits that differ, and no share near an edge, where rounding decides."""
    row = (torch.tensor([logits]) / 100.0).log_softmax(-1)
    edges = row.exp().sort(descending=True).values.cumsum(-1)
    if (edges - top_p).abs().min() < 1e-4:
        return
    expected = TopPLogitsWarper(top_p)(None, row.clone()).log_softmax(-1)
    torch.testing.assert_close(rollouts.apply_top_p(row, top_p), expected)


def test_frequencies_of_top_p_are_those_of_the_nucleus():
    """0.999 quantile of chi-square with 7 degrees: 24.3; the nucleus has fewer tokens, so that the bound is
    generous.
    """
    model = llama(vocab_size=8, initializer_range=0.15)
    settings = {"samples": 20_000, "max_new_tokens": 1, "temperature": 0.7, "end_tokens": [], "seed": 5}
    [drawn] = draw(model, [[3, 1]], top_p=0.7, **settings)
    counts = torch.bincount(drawn.tokens[:, 0], minlength=8)
    with torch.no_grad():
        inside = rollouts.apply_top_p((model(torch.tensor([[3, 1]])).logits[:, -1] / 0.7).log_softmax(-1), 0.7)[0]
    held = inside.isfinite()
    assert 1 < held.sum() < 8
    assert not counts[~held].any()
    assert chi_square(counts[held], inside[held].exp()) < 24.3
    torch.testing.assert_close(drawn.logps[:, 0], inside[drawn.tokens[:, 0]])
    [whole] = draw(model, [[3, 1]], **settings)
    assert torch.bincount(whole.tokens[:, 0], minlength=8)[~held].any(), "without top-p the others occur"


def test_greedy_answers_do_not_depend_on_top_p():
    found = [draw(llama(1), temperature=0.0, top_p=top_p)[0] for top_p in (1.0, 0.1)]
    assert found[0].responses() == found[1].responses()
    assert torch.equal(found[0].logps, found[1].logps)


def test_a_prompt_s_samples_are_adjacent_and_differ():
    model = llama(vocab_size=16, initializer_range=0.05)
    [drawn] = draw(model, samples=5, end_tokens=[])
    assert drawn.tokens.shape == (20, 12)
    assert len({tuple(row) for row in drawn.responses()}) == 20


def test_seeds_and_batches():
    """A batch's draws depend on the seed and its position, not on earlier draws."""
    model = llama()
    once, again, other = draw(model, batch_size=2), draw(model, batch_size=2), draw(model, batch_size=2, seed=1)
    assert [part.responses() for part in once] == [part.responses() for part in again]
    assert [part.responses() for part in once] != [part.responses() for part in other]
    assert [len(part.ended) for part in once] == [2, 2]
    first, second = draw(model, [PROMPTS[0]] * 2, batch_size=1)
    assert first.responses() != second.responses(), "no batch repeats another's draws"
    fewer = draw(model, PROMPTS, batch_size=2, max_new_tokens=1)
    assert [row[0] for part in fewer for row in part.responses()] == [
        row[0] for part in once for row in part.responses()
    ]


def test_rollouts_as_completions():
    """Each response has its own prompt: log-probabilities recomputed from the batch equal those of sampling."""
    model, prompts = llama(), [[3, 4, 5], [6]]
    [drawn] = draw(model, prompts, samples=3)
    batch = drawn.completions(prompts, pad=2)
    assert batch.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(batch.mask, drawn.mask)
    with torch.no_grad():
        again, other = (
            compute_token_logps(model, drawn.completions(asked, pad=2)) for asked in (prompts, prompts[::-1])
        )
    torch.testing.assert_close(drawn.logps, again, rtol=1e-4, atol=1e-4)
    assert (drawn.logps - other).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("max_position_embeddings", lambda: llama(max_position_embeddings=8)),
        ("n_positions", lambda: ARCHITECTURES["gpt2"](0, n_positions=8)),
        (
            "max_seq_len",
            lambda: MptForCausalLM(MptConfig(vocab_size=16, d_model=32, n_heads=4, n_layers=1, max_seq_len=8)),
        ),
    ],
)
def test_a_prompt_longer_than_the_model_s_positions_is_one_line(name, make):
    """Whatever config.json calls them; rotary embeddings make no error of their own."""
    model = make().eval()
    assert draw(model, [[3] * 7, [4]], max_new_tokens=1)
    with pytest.raises(
        TrainingError, match="a prompt has 9 tokens, and the model 8 positions; expected at most as many"
    ):
        draw(model, [[4], [3] * 9], max_new_tokens=1, batch_size=1)
    with pytest.raises(TrainingError, match="a prompt has 9 tokens"):
        next(rollouts.stream_response_tokens(model, [3] * 9, max_new_tokens=1, temperature=1.0, end_tokens=(), seed=0))
