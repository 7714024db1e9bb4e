"""Rows of a head that no token has: never sampled, without probability and gradient, and left as they were."""

import copy

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from tasks.algorithms.agents.transcripts import compute_action_distributions
from tasks.algorithms.common import linear
from tasks.algorithms.language import lm_head, rollouts, sft
from tasks.algorithms.language.completions import compute_token_logps
from tasks.algorithms.language.lm_head import mask_spare_tokens
from tests.tasks.algorithms.agents.test_transcripts import two
from tests.tasks.algorithms.language.test_lm_head import BATCH, COMPLETIONS, MODELS, VOCABULARY
from tests.tasks.tiny import SIZES, llama

SPARE = [5, 61, 62, 63]  # one within the others, as where a vocabulary has a gap; no response has it


def capped():
    """Gemma 2 squeezes its logits behind the head: what stands at -inf before that does not afterwards."""
    torch.manual_seed(0)
    config = Gemma2Config(**{**SIZES, "vocab_size": VOCABULARY, "head_dim": 8, "final_logit_softcapping": 3.0})
    return Gemma2ForCausalLM(config).eval()


EVERY = {**MODELS, "gemma2, capped": capped}


def by_hand(model, temperature):
    """Each response token's log-probability over the rows that are left, from whole sequences of the model as it
    was.
    """
    left = [row for row in range(VOCABULARY) if row not in SPARE]
    found = torch.zeros(COMPLETIONS.mask.shape)
    for row, owner in enumerate(COMPLETIONS.owner.tolist()):
        prompt = COMPLETIONS.prompts[owner][COMPLETIONS.prompt_mask[owner]]
        answer = COMPLETIONS.tokens[row][COMPLETIONS.mask[row]]
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, answer]).unsqueeze(0)).logits[0, len(prompt) - 1 : -1]
        logps = (logits[:, left] / temperature).log_softmax(-1)
        for at, token in enumerate(answer.tolist()):
            found[row, at] = logps[at, left.index(token)]
    return found


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", EVERY)
def test_probabilities_are_those_over_the_tokens_that_there_are(name, large, monkeypatch):
    monkeypatch.setattr(linear, "SMALLEST", 1)  # so that fast products are taken
    model = EVERY[name]()
    wanted = by_hand(model, 0.7)
    mask_spare_tokens(model, torch.tensor(SPARE))
    if large:
        monkeypatch.setattr(lm_head, "LARGE", 1)
        monkeypatch.setattr(lm_head, "CHUNK", 3 * VOCABULARY)
    found = compute_token_logps(model, COMPLETIONS, temperature=0.7)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
    (found.sum() + sft.cross_entropy_and_accuracy(model, BATCH)[0]).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    if not model.config.tie_word_embeddings:
        assert not gradients["lm_head.weight"][SPARE].any()
        assert gradients["lm_head.weight"][[2, 7, 8]].any()


@pytest.mark.parametrize("name", ["llama, fast products", "gemma2, capped"])
def test_none_is_sampled_and_the_ratio_is_1(name):
    """Their logits are the largest by far, as those of rows that were never trained may be."""
    model = EVERY[name]()
    with torch.no_grad():
        model.get_output_embeddings().weight[SPARE] *= 20
    settings = {"samples": 8, "max_new_tokens": 6, "end_tokens": (0,), "seed": 0, "batch_size": 4}
    asked = [[3, 4, 6], [7]]

    def draw(model, **changes):
        return next(iter(rollouts.sample_rollouts(model, asked, **{**settings, "temperature": 1.0, **changes})))

    assert torch.isin(draw(model).tokens, torch.tensor(SPARE)).any()
    mask_spare_tokens(model, torch.tensor(SPARE))
    model = copy.deepcopy(model)
    for changes in ({}, {"temperature": 0.0}, {"top_p": 0.9}):
        drawn = draw(model, **changes)
        assert not torch.isin(drawn.tokens, torch.tensor(SPARE)).any()
    drawn = draw(model)
    again = compute_token_logps(model, drawn.completions(asked, 0))
    torch.testing.assert_close(again.detach(), drawn.logps, rtol=1e-4, atol=1e-5)
    streamed = [*rollouts.stream_response_tokens(model, [7], max_new_tokens=20, temperature=1.0, end_tokens=(), seed=0)]
    assert not {*streamed} & {*SPARE}
    out = model.generate(torch.tensor([[7]]), do_sample=False, max_new_tokens=5, pad_token_id=0)
    assert not torch.isin(out, torch.tensor(SPARE)).any(), "nor by transformers' own generate"


def test_a_divergence_of_whole_distributions_is_a_number():
    """Between two models, as the trust region takes it: by hand, from the 12 tokens that there are."""
    transcripts, _ = two()
    models, spare = [llama(seed) for seed in (0, 1)], [12, 13, 14, 15]
    plain = [compute_action_distributions(model, transcripts, 1.0)[:, :12].log_softmax(-1) for model in models]
    for model in models:
        mask_spare_tokens(model, torch.tensor(spare))
    before, now = (compute_action_distributions(model, transcripts, 1.0) for model in models)
    divergence = (before.exp() * (before - now)).sum(1).mean()
    wanted = (plain[0].exp() * (plain[0] - plain[1])).sum(1).mean()
    torch.testing.assert_close(divergence, wanted)
    divergence.backward()
    assert all(p.grad.isfinite().all() for p in models[0].parameters() if p.grad is not None)


def test_the_rows_are_saved_as_they_were(tmp_path):
    model = llama()
    before = copy.deepcopy(model.state_dict())
    mask_spare_tokens(model, torch.tensor([14, 15]))
    assert model.state_dict().keys() == before.keys()
    model.save_pretrained(tmp_path)
    saved = type(model).from_pretrained(tmp_path).state_dict()
    for name, weight in before.items():
        assert torch.equal(saved[name], weight)
