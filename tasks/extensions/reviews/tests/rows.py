"""Good rows of the tables of `reviews` and `steering`, and changes that make them bad."""

from tasks.extensions.reviews.tables.reviews import Reviews
from tasks.extensions.reviews.tables.steering import Continuations, SteeringMeasures

GOOD = {
    Reviews: {
        "review_id": "review-0",
        "part": "train",
        "opening": "We saw a fable.",
        "continuation": "It was fresh.",
        "positive": True,
    },
    Continuations: {
        "policy": "ppo",
        "opening_id": "test-0",
        "opening": "We saw a fable.",
        "sample": 0,
        "continuation": "It was fresh.",
        "tokens": 5,
        "ended": True,
        "logp": -2.5,
        "reference": -3.0,
        "first": 0.75,
        "second": 1.0,
    },
    SteeringMeasures: {"policy": "ppo", "measure": "kl", "mean": 0.5, "low": 0.25, "high": 0.75},
}
BAD = {
    Reviews: [
        ({"part": "validation"}, "part"),
        ({"continuation": ""}, "continuation"),
        ({"part": "reward"}, "both sentiments"),
    ],
    Continuations: [({"tokens": 0}, "tokens"), ({"logp": 0.5}, "logp"), ({"second": 1.5}, "second")],
    SteeringMeasures: [({"low": 0.6}, "within its interval"), ({"high": float("nan")}, "high")],
}
