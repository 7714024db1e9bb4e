"""Cross-entropy of labels at tokens: of answers that are right or wrong, and of steps."""

from math import exp, log

import pytest
import torch

from tasks.algorithms.language import labelled_reward_model, reward_model
from tasks.algorithms.language.completions import make_completions
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama, llama_scorer

ANSWERS = make_completions([[3, 4], [5]], [0, 0, 1], [[7, 8, 9, 2], [6, 2], [10, 11, 2]], pad=0)
RIGHT = [True, False, True]
ENDS = [[1, 3], [1], [0, 2]]
GOOD, NEUTRAL, BAD = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)
TARGETS = [
    [GOOD, BAD],
    [NEUTRAL],
    [GOOD, (0.75, 0.0, 0.25)],
]  # the last is a soft estimate: a quarter reached the answer


class Still:
    """An optimizer that changes nothing."""

    def step(self):
        return 0.0


def test_losses_by_hand():
    """-log p of a right answer and -log(1 - p) of a wrong one; of steps the sum over classes."""
    logits, target = torch.tensor([[0.3], [-1.2]]), torch.tensor([[1.0], [0.0]])
    assert labelled_reward_model.compute_label_losses(logits, target).tolist() == pytest.approx(
        [log(1 + exp(-0.3)), log(1 + exp(-1.2))]
    )
    logits = torch.tensor([[1.0, 0.0, 2.0]] * 3)
    total = log(exp(1) + 1 + exp(2))
    found = labelled_reward_model.compute_label_losses(logits, torch.tensor([BAD, GOOD, (0.75, 0.0, 0.25)]))
    assert found.tolist() == pytest.approx([total - 1, total - 2, 0.75 * (total - 1) + 0.25 * (total - 2)])


def test_a_step_is_right_where_its_likeliest_class_is_its_label():
    logits = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 3.0, 1.0]])
    assert labelled_reward_model.compute_right_prediction_mask(logits, torch.tensor([BAD, BAD, NEUTRAL])).tolist() == [
        True,
        False,
        True,
    ]
    logits = torch.tensor([[0.2], [0.2], [-0.2]])
    assert labelled_reward_model.compute_right_prediction_mask(
        logits, torch.tensor([[1.0], [0.0], [0.0]])
    ).tolist() == [
        True,
        False,
        True,
    ]


def sequences(model):
    """What the head says of each token of each answer, one sequence at a time."""
    found = []
    for owner, tokens, mask in zip(ANSWERS.owner, ANSWERS.tokens, ANSWERS.mask, strict=True):
        prompt = ANSWERS.prompts[owner][ANSWERS.prompt_mask[owner]]
        hidden = model.base_model(torch.cat([prompt, tokens[mask]]).unsqueeze(0)).last_hidden_state[0]
        found.append(model.score(hidden[len(prompt) :]))
    return found


@pytest.mark.parametrize("tokens", ["all", "last"])
def test_an_answer_weighs_the_same_however_long_it_is(tokens):
    model = llama_scorer()
    row = next(
        labelled_reward_model.fit(model, [labelled_reward_model.label_outcomes(ANSWERS, RIGHT, tokens)], Still())
    )
    costs, hits = [], []
    for logits, right in zip(sequences(model), RIGHT, strict=True):
        p = logits.sigmoid().flatten() if right else 1 - logits.sigmoid().flatten()
        costs.append((-p.log() if tokens == "all" else -p[-1:].log()).mean().item())
        hits.append(p[-1].item() > 0.5)
    assert row["loss"] == pytest.approx(sum(costs) / 3, rel=1e-4)
    assert row["accuracy"] == pytest.approx(sum(hits) / 3), "by the last token alone"


def test_a_step_weighs_the_same_however_many_its_answer_has():
    """And not 1 / (the steps of its answer), which another mean would give."""
    model = llama_scorer(num_labels=3)
    row = next(labelled_reward_model.fit(model, [labelled_reward_model.label_steps(ANSWERS, ENDS, TARGETS)], Still()))
    costs = [
        [
            -(torch.tensor(label) * logits[end].log_softmax(-1)).sum().item()
            for end, label in zip(ends, labels, strict=True)
        ]
        for logits, ends, labels in zip(sequences(model), ENDS, TARGETS, strict=True)
    ]
    assert row["loss"] == pytest.approx(sum(map(sum, costs)) / 5, rel=1e-4)
    assert row["loss"] != pytest.approx(sum(sum(one) / len(one) for one in costs) / 3, rel=1e-2)


@pytest.mark.parametrize(
    "mistaken",
    [
        lambda: labelled_reward_model.label_steps(
            ANSWERS, [[end - 1 if end else end for end in one] for one in ENDS], TARGETS
        ),  # before the end
        lambda: labelled_reward_model.label_steps(
            ANSWERS, ENDS, [[label[::-1] for label in one] for one in TARGETS]
        ),  # good for bad
    ],
)
def test_known_mistakes_give_another_loss(mistaken):
    model = llama_scorer(num_labels=3)
    loss = next(labelled_reward_model.fit(model, [labelled_reward_model.label_steps(ANSWERS, ENDS, TARGETS)], Still()))[
        "loss"
    ]
    assert abs(next(labelled_reward_model.fit(model, [mistaken()], Still()))["loss"] - loss) > 0.02


def by_log_probabilities(**changes):
    model = llama(**changes)
    model.config.reward_beta, model.config.reward_threshold = 1.5, 2.0
    return model


def spans(model, ends):
    """P(right) of the tokens up to each end, by their mean log-probability, one sequence at a time."""
    found = []
    for owner, tokens, mask, places in zip(ANSWERS.owner, ANSWERS.tokens, ANSWERS.mask, ends, strict=True):
        prompt, answer = ANSWERS.prompts[owner][ANSWERS.prompt_mask[owner]], tokens[mask]
        logits = model(torch.cat([prompt, answer]).unsqueeze(0)).logits[0, len(prompt) - 1 : -1]
        logps, start = logits.log_softmax(-1)[range(len(answer)), answer], 0
        for end in places:
            found.append(torch.sigmoid(1.5 * (logps[start : end + 1].mean() + 2.0)).item())
            start = end + 1
    return found


NOT_BAD = [[(1.0 - bad,) for bad, _, _ in one] for one in TARGETS]


@pytest.mark.parametrize(
    ("batch", "ends", "labels"),
    [
        (labelled_reward_model.label_steps(ANSWERS, ENDS, NOT_BAD), ENDS, [1.0, 0.0, 1.0, 1.0, 0.25]),
        (labelled_reward_model.label_outcomes(ANSWERS, RIGHT, "last"), [[3], [1], [2]], [1.0, 0.0, 1.0]),
    ],
    ids=["process", "outcome"],
)
def test_log_probabilities_say_what_is_right_by_hand(batch, ends, labels):
    model = by_log_probabilities()
    row = next(labelled_reward_model.fit(model, [batch], Still()))
    said = spans(model, ends)
    costs = [-label * log(p) - (1 - label) * log(1 - p) for p, label in zip(said, labels, strict=True)]
    hits = [(p > 0.5) == (label > 0.5) for p, label in zip(said, labels, strict=True)]
    assert row["loss"] == pytest.approx(sum(costs) / len(costs), rel=1e-4)
    assert row["accuracy"] == pytest.approx(sum(hits) / len(hits))
    assert labelled_reward_model.predict_label_logits(model, [batch]).sigmoid().flatten().tolist() == pytest.approx(
        said, rel=1e-4
    )
    kept = next(labelled_reward_model.fit(model, [batch], Still(), likelihood=0.7))
    unlikely = [label * (2.0 - log(p / (1 - p)) / 1.5) for p, label in zip(said, labels, strict=True)]
    assert kept["loss"] == pytest.approx((sum(costs) + 0.7 * sum(unlikely)) / len(costs), rel=1e-4)
    assert kept["accuracy"] == row["accuracy"]


def test_predictions_stand_in_order():
    model = llama_scorer(num_labels=3)
    batch = labelled_reward_model.label_steps(ANSWERS, ENDS, TARGETS)
    expected = torch.cat([logits[ends] for logits, ends in zip(sequences(model), ENDS, strict=True)])
    torch.testing.assert_close(
        labelled_reward_model.predict_label_logits(model, [batch]), expected.detach(), rtol=1e-4, atol=1e-5
    )
    rows = [batch.rows(torch.tensor([row])) for row in range(3)]
    torch.testing.assert_close(
        labelled_reward_model.predict_label_logits(model, rows), expected.detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("kind", "steps", "learning_rate"), [("head", 30, 0.01), ("log_probability", 25, 0.02)])
def test_it_is_learnt_which_steps_are_bad(kind, steps, learning_rate):
    """A step is bad where its first token is not the question's; the model has never seen the held-out pairs of
    tokens.
    """
    cases = [(asked, given) for asked in range(5, 15) for given in range(5, 15)]
    cases += [(asked, asked) for asked in range(5, 15) for _ in range(6)]
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0)).tolist()
    cases = [cases[place] for place in order]

    def batch(some):
        answers = [[given, 1, asked, 2] for asked, given in some]
        prompts = [[asked] for asked, _ in some]
        responses = make_completions(prompts, [*range(len(some))], answers, pad=0)
        labels = [[GOOD if asked == given else BAD, GOOD] for asked, given in some]
        if kind == "log_probability":
            labels = [[(1.0 - bad,) for bad, _, _ in one] for one in labels]
        return labelled_reward_model.label_steps(responses, [[1, 3]] * len(some), labels)

    train, held_out = batch(cases[:130]), batch(cases[130:])
    if kind == "head":
        model = llama_scorer(num_labels=3, initializer_range=0.1, num_hidden_layers=1)
        reward_model.initialise_score_head(model, torch.Generator().manual_seed(0))
    else:
        model = by_log_probabilities(initializer_range=0.1, num_hidden_layers=1)
    rows = list(
        labelled_reward_model.fit(model, [train] * steps, make_optimizer(model, learning_rate, steps, clip=1.0))
    )
    found = labelled_reward_model.predict_label_logits(model, [held_out])
    accuracy = labelled_reward_model.compute_right_prediction_mask(found, held_out.target[held_out.at]).float().mean()
    first = labelled_reward_model.compute_right_prediction_mask(found[::2], held_out.target[held_out.at][::2])
    assert rows[0]["loss"] > 3 * rows[-1]["loss"]
    assert accuracy > 0.9
    assert first.float().mean() > 0.85
