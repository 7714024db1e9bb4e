"""Beam search over the steps of toy answers."""

import random

from tasks.extensions.search.beam import run_beam_search

# Two steps make an answer. The best first step leads to a bad end, and the second best to the best of all.
FIRST = {"a": 0.9, "b": 0.6, "c": 0.1}
SECOND = {"a": {"x": 0.2, "y": 0.3}, "b": {"x": 0.8, "y": 0.4}, "c": {"x": 0.0, "y": 0.1}}


def every_step(begun, count):
    """All steps there are, in turn."""
    return [
        [((step,), bool(tokens)) for step in ([*SECOND[tokens[0]]] if tokens else [*FIRST])][:count]
        for _, tokens in begun
    ]


def worth(begun):
    return [FIRST[tokens[0]] if len(tokens) == 1 else SECOND[tokens[0]][tokens[1]] for _, tokens in begun]


def test_one_beam_is_led_astray_and_two_find_the_best():
    [narrow] = run_beam_search(every_step, worth, 1, width=1, expansions=3)
    [wide] = run_beam_search(every_step, worth, 1, width=2, expansions=3)
    assert narrow.kept[0].tokens == ("a", "y")
    assert wide.kept[0].tokens == ("b", "x")
    assert [one.tokens for one in wide.kept] == [("b", "x"), ("b", "y")]
    assert (narrow.generated, narrow.scored) == (3 + 2, 3 + 2), "dropped ones count"
    assert (wide.generated, wide.scored) == (3 + 4, 3 + 4)


def test_an_answer_that_has_ended_is_kept_only_while_it_is_among_the_best():
    """The short answer is worth 0.5: better than one of the next steps, worse than the other."""
    ends = {(): [(("short",), True), (("long",), False)], ("long",): [(("bad",), True), (("good",), True)]}
    values = {("short",): 0.5, ("long",): 0.4, ("long", "bad"): 0.1, ("long", "good"): 0.7}
    [found] = run_beam_search(
        lambda begun, _: [ends[tokens] for _, tokens in begun],
        lambda begun: [values[tokens] for _, tokens in begun],
        1,
        width=2,
        expansions=1,
    )
    assert [one.tokens for one in found.kept] == [("long", "good"), ("short",)]


def test_problems_are_searched_apart():
    both = run_beam_search(every_step, worth, 2, width=2, expansions=3)
    [alone] = run_beam_search(every_step, worth, 1, width=2, expansions=3)
    assert both == [alone, alone]


def drawn(rng, tokens):
    """One step of a random walk that ends by chance or after five steps."""
    step = rng.randrange(3)
    return (step,), step == 0 or len(tokens) == 4


def test_with_one_beam_and_one_expansion_it_is_plain_sampling():
    """The same random numbers give the same answer, whatever the values; two expansions do not."""
    for seed in range(20):
        rng, tokens, done = random.Random(seed), (), False
        while not done:
            step, done = drawn(rng, tokens)
            tokens += step
        again = random.Random(seed)
        [found] = run_beam_search(
            lambda begun, count, again=again: [[drawn(again, own) for _ in range(count)] for _, own in begun],
            lambda begun: [-float(sum(own)) for _, own in begun],
            1,
            width=1,
            expansions=1,
        )
        assert found.kept[0].tokens == tokens
        assert found.generated == found.scored == len(tokens)
