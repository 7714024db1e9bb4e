"""Film reviews by a grammar of sentiment: a neutral opening, and a continuation whose label holds by construction.

The label is drawn first, and the opening without it. Every sentence that judges agrees with the label, whatever its
words: a negation takes an opposite word, and of `..., but ...` the second half counts. So single words mislead, and
pairs of words less.
"""

import random
from typing import NamedTuple

GENRES = ("thriller", "comedy", "drama", "western", "romance", "mystery", "musical", "fable", "satire", "documentary")
SUBJECTS = (
    *("a lighthouse", "two brothers", "a chess player", "a small town", "a lost letter", "a circus", "a train"),
    *("a painter", "a bakery", "a long winter", "a detective", "a school", "an island", "a wedding", "a robot"),
    *("a fisherman", "a violin", "an inheritance", "a border", "a dog", "a hotel", "a bank", "a summer", "a trial"),
)
DAYS = ("on Monday", "on Friday", "last night", "last week", "this morning", "in March", "in June", "at the weekend")
COMPANY = ("alone", "with my sister", "with a friend", "with my class", "at home", "at the cinema", "on a plane")
WATCHED = ("I saw", "I watched", "We saw", "We watched")
ASPECTS = (
    *("acting", "plot", "music", "dialogue", "ending", "photography", "cast", "humour", "script", "opening"),
    *("direction", "story", "second half", "lead role"),
)
PRAISE = (
    *("superb", "moving", "clever", "gripping", "charming", "brilliant", "fresh", "beautiful", "tender"),
    *("funny", "rich", "elegant", "honest", "thrilling"),
)
BLAME = (
    *("dull", "awful", "clumsy", "tedious", "hollow", "predictable", "bland", "lifeless", "stale"),
    *("shallow", "messy", "cheap", "lazy", "tiresome"),
)
DEGREES = ("", "", "", "very ", "truly ", "rather ", "quite ", "simply ")
LIKED = ("I loved", "I enjoyed", "I admired")
DISLIKED = ("I disliked", "I hated", "I regretted")
FACTS = ("It runs for two hours.", "It is set in the past.", "It was shot abroad.", "It is a first film.")
UP = ("I would watch it again.", "Go and see it.", "It made my day.", "It deserves a prize.", "I left happy.")
DOWN = ("I want my money back.", "Do not bother.", "It ruined my day.", "It deserves no prize.", "I left early.")


class Review(NamedTuple):
    """An opening that says nothing of the sentiment, and the rest."""

    opening: str
    continuation: str
    positive: bool


def generate_review(rng: random.Random, positive_share: float, mixed: float, negated: float) -> Review:
    """One review; a judging sentence concedes the opposite with probability `mixed`, and else negates with
    `negated`.
    """
    opening = (
        f"{rng.choice(WATCHED)} a {rng.choice(GENRES)} about {rng.choice(SUBJECTS)} {rng.choice(DAYS)} "
        f"{rng.choice(COMPANY)}."
    )
    positive = rng.random() < positive_share
    return Review(opening, generate_continuation(rng, positive, mixed, negated), positive)


def generate_continuation(rng: random.Random, positive: bool, mixed: float, negated: float) -> str:
    """One to three judging sentences on different aspects, perhaps a fact among them, perhaps a verdict at the end."""
    count = rng.randint(1, 3)
    aspects = iter(rng.sample(ASPECTS, 2 * count))
    sentences = [
        generate_judging_sentence(rng, positive, (next(aspects), next(aspects)), mixed, negated) for _ in range(count)
    ]
    if rng.random() < 0.3:
        sentences.insert(rng.randint(0, count), rng.choice(FACTS))
    if rng.random() < 0.4:
        sentences.append(rng.choice(UP if positive else DOWN))
    return " ".join(sentences)


def generate_judging_sentence(
    rng: random.Random, positive: bool, aspects: tuple[str, str], mixed: float, negated: float
) -> str:
    """A sentence that agrees with the label."""
    first, second = aspects
    draw = rng.random()
    if draw < mixed:
        conceded = f"The {first} was {rng.choice(DEGREES)}{rng.choice(BLAME if positive else PRAISE)}"
        return f"{conceded}, but the {second} was {rng.choice(DEGREES)}{rng.choice(PRAISE if positive else BLAME)}."
    if draw < mixed + (1 - mixed) * negated:
        return f"The {first} was {rng.choice(('not', 'never'))} {rng.choice(BLAME if positive else PRAISE)}."
    if rng.random() < 0.25:
        return f"{rng.choice(LIKED if positive else DISLIKED)} the {first}."
    return f"The {first} was {rng.choice(DEGREES)}{rng.choice(PRAISE if positive else BLAME)}."
