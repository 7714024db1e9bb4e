"""Good rows of the tables of `search`, and changes that make them bad."""

from tasks.extensions.search.tables import Accuracies, SampledAnswers

GOOD = {
    SampledAnswers: {
        "model": "sft",
        "problem_id": "test-0",
        "greedy": False,
        "sample": 3,
        "tokens": [5, 6],
        "logp": -1.5,
        "ended": True,
        "right": True,
        "vote": 0,
        "likelihood": -0.75,
        "pairs": -1.0,
        "outcome": 0.5,
        "process_minimum": 0.5,
        "process_product": 0.25,
        "process_last": 1.0,
    },
    Accuracies: {
        "model": "sft",
        "method": "majority",
        "ties": "first",
        "budget": 4,
        "accuracy": 0.5,
        "low": 0.25,
        "high": 0.75,
        "tokens": 100.5,
        "passes": 0.0,
    },
}
BAD = {
    SampledAnswers: [
        ({"tokens": []}, "token ids"),
        ({"tokens": [5, -1]}, "token ids"),
        ({"logp": 0.5}, "logp"),
        ({"vote": -2}, "vote"),
        ({"outcome": 1.5}, "outcome"),
        ({"likelihood": float("nan")}, "likelihood"),
    ],
    Accuracies: [
        ({"ties": "last"}, "ties"),
        ({"accuracy": 1.5}, "accuracy"),
        ({"budget": 0}, "budget"),
        ({"tokens": -1.0}, "tokens"),
    ],
}
