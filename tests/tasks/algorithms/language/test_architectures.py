"""Sampling, training and saving by architecture, against whole sequences one by one, and against transformers'
`generate`.
"""

import logging

import pytest
import torch

from tasks.algorithms.language import rollouts, shared_prompts
from tasks.algorithms.language.completions import compute_token_logps
from tasks.common import models
from tasks.language.training.architectures import check_shared_prompt_sampling
from tests.tasks.architectures import SHAPES, SLIDING, VOCABULARY, WINDOW
from tests.tasks.chats import chat_tokenizer

PROMPTS = [[5, 6, 7, 9, 11, 3, 2, 8, 30, 31], [8], [9, 10, 40]]  # one longer than the window, one far shorter
LENGTH = 16
ENDS = [0, 5, 11, 17, 23]


def draw(model, **changes):
    settings = {"samples": 1, "max_new_tokens": LENGTH, "temperature": 0.0, "end_tokens": ENDS, "seed": 0}
    [drawn] = rollouts.sample_rollouts(model, PROMPTS, batch_size=len(PROMPTS), **{**settings, **changes})
    return drawn


def generated(model, prompt):
    """Transformers' own greedy answer to one prompt, without padding; it never ends."""
    tokens, attention = torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.long)
    out = model.generate(
        tokens, attention_mask=attention, do_sample=False, max_new_tokens=LENGTH, eos_token_id=None, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


def ended(answer):
    """The answer up to its first end token."""
    return answer[: next((place for place, token in enumerate(answer, 1) if token in ENDS), len(answer))]


def alone(model, prompt, response):
    """Log-probabilities of one response in a pass over the whole sequence."""
    logits = model(input_ids=torch.tensor([prompt + response]), use_cache=False).logits[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(response)[:, None]).squeeze(1)


@pytest.mark.parametrize("name", SHAPES)
def test_greedy_tokens_are_those_of_generate(name):
    model = SHAPES[name]()
    expected = [ended(generated(model, prompt)) for prompt in PROMPTS]
    assert draw(model, samples=3).responses() == [answer for answer in expected for _ in range(3)]
    assert max(map(len, expected)) > 2 * WINDOW


@pytest.mark.parametrize("name", SHAPES)
def test_log_probabilities_are_those_of_whole_sequences(name):
    """When sampling, when training, and their gradients; rows end at different times and leave the batch."""
    model = SHAPES[name]()
    drawn = draw(model, samples=4, temperature=1.0, end_tokens=range(0, VOCABULARY, 3))
    assert len({*drawn.mask.sum(1).tolist()}) > 3
    batch = drawn.completions(PROMPTS, pad=0)
    weight = torch.linspace(0.5, 2.0, len(batch))
    found = []
    for compute in (
        lambda: compute_token_logps(model, batch)[batch.mask],
        lambda: torch.cat([alone(model, PROMPTS[o], r) for o, r in zip(batch.owner, drawn.responses(), strict=True)]),
    ):
        model.zero_grad()
        values = compute()
        (weight[batch.mask.nonzero()[:, 0]] * values).sum().backward()
        found.append((values.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    torch.testing.assert_close(drawn.logps[drawn.mask], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("name", SLIDING)
def test_the_window_matters(name):
    """Otherwise the comparisons above would say nothing of it."""
    model = SHAPES[name]()
    wide = SHAPES[name](sliding_window=128)
    wide.load_state_dict(model.state_dict())
    response = list(range(20))
    with torch.no_grad():
        near, far = (alone(one, PROMPTS[0], response) for one in (model, wide))
    assert (near - far).abs().max() > 0.1


@pytest.mark.parametrize("name", SHAPES)
def test_saved_and_loaded_it_samples_the_same(name, tmp_path):
    model, words = SHAPES[name](), chat_tokenizer("ChatML")
    check_shared_prompt_sampling(name, model)
    models.save_model(model, words, tmp_path)
    loaded = models.load_model(tmp_path)
    assert type(loaded) is type(model)
    for weights, again in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert torch.equal(weights, again)
    one, other = (draw(each, temperature=1.0, max_new_tokens=6).responses() for each in (loaded, model))
    assert one == other


OWN_COPIES = {
    "gemma2": "gemma2: its attention is not sdpa",
    "gemma3": "gemma3_text: 1 of 2 layers have a sliding window, or an attention of their own",
    "mistral": "mistral: 2 of 2 layers have a sliding window, or an attention of their own",
}


@pytest.mark.parametrize("name", SHAPES)
def test_where_prompts_are_not_shared_one_line_says_so(name, monkeypatch):
    messages = []
    monkeypatch.setattr(logging.getLogger("tasks"), "handlers", [handler := logging.Handler(logging.WARNING)])
    handler.emit = lambda record: messages.append(record.getMessage())
    shared_prompts._warn_once_per_architecture.cache_clear()
    model = SHAPES[name]()
    draw(model, samples=1, max_new_tokens=2)
    assert not messages, "with one sample a prompt there is nothing to share"
    for seed in range(2):
        draw(model, samples=3, seed=seed, max_new_tokens=2)
    why = [OWN_COPIES[name]] if name in OWN_COPIES else []
    end = ", so every sample has its own copy of its prompt's keys and values; sampling is slower"
    assert messages == [line + end for line in why]
