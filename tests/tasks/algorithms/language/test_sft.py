from math import log

import pytest
import torch

from tasks.algorithms.language import rollouts, sft
from tasks.algorithms.language.sequences import SequenceBatch, make_sequence_batch
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import BIGRAMS, END, Bigrams, gpt2, llama

# Prompt 0 0 1, response 1 end; prompt 1, response 0 0 end. The padding is the end token.
BATCH = make_sequence_batch([[0, 0, 1], [1]], [[1, END], [0, 0, END]], pad=END)
BY_HAND = -(log(0.6) + log(0.3) + log(0.1) + log(0.5) + log(0.2)) / 5


def test_loss_by_hand():
    loss, accuracy = sft.cross_entropy_and_accuracy(Bigrams(BIGRAMS), BATCH)
    assert loss.item() == pytest.approx(BY_HAND)
    assert accuracy.item() == pytest.approx(2 / 5), "1 after 1 and 0 after 0 are the likeliest tokens"


@pytest.mark.parametrize(
    "response",
    [
        BATCH.response & (BATCH.tokens != END),  # padding taken for the end token: stopping is never learnt
        BATCH.attention,  # the prompt as well
        ~BATCH.attention | BATCH.response,  # the padding as well
        BATCH.response.roll(-1, dims=1),  # one off
    ],
)
def test_a_wrong_mask_gives_another_loss(response):
    loss, _ = sft.cross_entropy_and_accuracy(Bigrams(BIGRAMS), SequenceBatch(BATCH.tokens, BATCH.attention, response))
    assert abs(loss.item() - BY_HAND) > 0.05


def test_no_gradient_comes_from_the_prompt_or_the_padding():
    model = Bigrams(BIGRAMS)
    batch = make_sequence_batch([[0, 0, 1]], [[1, END]], pad=END)
    parts = (batch.tokens, batch.attention, batch.response)
    wider = SequenceBatch(
        *(torch.nn.functional.pad(part, (0, 3), value=END * (part is batch.tokens)) for part in parts)
    )
    loss, _ = sft.cross_entropy_and_accuracy(model, wider)
    loss.backward()
    assert model.logits.grad[0].abs().max() == 0, "what follows 0 stands in the prompt only"
    assert model.logits.grad[END].abs().max() == 0, "nothing follows the end"
    expected = torch.tensor([0.1, 0.6 - 0.5, 0.3 - 0.5])  # softmax minus how often 1 and end follow 1
    torch.testing.assert_close(model.logits.grad[1], expected)


def test_evaluation_counts_tokens_not_batches():
    batches = [make_sequence_batch([[0]], [[1]], pad=END), make_sequence_batch([[1]], [[1, 1, END]], pad=END)]
    found = sft.measure_held_out_loss_and_accuracy(Bigrams(BIGRAMS), batches)
    assert found["eval_loss"] == pytest.approx(-(log(0.3) + 2 * log(0.6) + log(0.3)) / 4)
    assert found["eval_mean_token_accuracy"] == pytest.approx(2 / 4)
    means = (-log(0.3) - (2 * log(0.6) + log(0.3)) / 3) / 2
    assert found["eval_loss"] != pytest.approx(means, abs=0.05), "not a mean of batch means"


def test_every_token_counts_in_pretraining():
    """With an empty prompt all tokens count except the first, which nothing precedes."""
    loss, _ = sft.cross_entropy_and_accuracy(Bigrams(BIGRAMS), make_sequence_batch([[]], [[0, 1, 1]], pad=END))
    assert loss.item() == pytest.approx(-(log(0.3) + log(0.6)) / 2)


def test_it_learns_an_answer_and_to_stop():
    """Each of eight questions has its own answer; a model that does not read the question is right once in eight."""
    model = llama(initializer_range=0.1)
    asked = [[8 + n] for n in range(8)]
    answers = [[(3 * n + 1) % 8, (n + 2) % 8, 15] for n in range(8)]
    batch = make_sequence_batch(asked, answers, pad=15)  # the padding is the end token
    optimizer = make_optimizer(model, 0.01, 60, clip=1.0)
    rows = list(sft.fit(model, [batch] * 60, optimizer))
    assert len(rows) == 60
    assert set(rows[0]) == {"loss", "mean_token_accuracy", "grad_norm", "learning_rate"}
    assert rows[0]["loss"] > 2
    assert sft.measure_held_out_loss_and_accuracy(model, [batch])["eval_mean_token_accuracy"] == 1
    assert not model.training
    [drawn] = rollouts.sample_rollouts(
        model, asked, samples=1, max_new_tokens=6, temperature=0.0, end_tokens={15}, seed=0, batch_size=8
    )
    assert drawn.responses() == answers
    assert drawn.ended.all()


def test_dropout_is_on_in_training_only():
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    batch = make_sequence_batch([[8], [9]], [[1, 2, 15], [2, 1, 15]], pad=15)
    frozen = make_optimizer(model, 1e-12, 4, clip=1.0)
    losses = {round(row["loss"], 4) for row in sft.fit(model, [batch] * 4, frozen)}
    assert len(losses) == 4, "each step drops other units"
    assert not model.training
    assert sft.measure_held_out_loss_and_accuracy(model.train(), [batch]) == sft.measure_held_out_loss_and_accuracy(
        model, [batch]
    )


def test_without_the_end_token_in_the_loss_it_never_stops():
    """This is the effect of the mask `token != pad` if padding is the end token."""
    model = llama(initializer_range=0.1)
    batch = make_sequence_batch([[8], [9]], [[1, 2, 15], [2, 1, 15]], pad=15)
    wrong = SequenceBatch(batch.tokens, batch.attention, batch.response & (batch.tokens != 15))
    list(sft.fit(model, [wrong] * 60, make_optimizer(model, 0.01, 60, clip=1.0)))
    [drawn] = rollouts.sample_rollouts(
        model, [[8], [9]], samples=1, max_new_tokens=6, temperature=0.0, end_tokens={15}, seed=0, batch_size=2
    )
    assert not drawn.ended.any()
