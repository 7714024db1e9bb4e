"""What the tests that go through all stages need to know of `reviews` and `steering` (tests/extensions.py)."""

PAGE = {"pages": {"reviews": {"policies": ["reinforce", "ppo", "grpo"]}}}
BRANCHED = {"steering": PAGE}
BASE = {
    "reviews": {"corpus": 10, "train": 10, "test": 4, "reward": 20, "second": 40, "held_out": 20},
    "steering": {
        **PAGE,
        **{"reward_model_path": "data/outcome", "openings": 4, "samples": 2, "max_new_tokens": 8, "batch_size": 3},
        **{"bootstrap": 20, "shown": 2},
    },
}
ONE_BRANCH = {"steering": "reviews"}
VALUES = {"reviews.text_column": "other", "reviews.label_column": "right"}
UNDER = {f"reviews.{key}": {"reviews.source": "files"} for key in ("text_column", "label_column", "opening_words")}
METRICS = {
    "steering": {"pages": {"reviews": {"policies": ["reinforce"]}}, "openings": 2, "max_new_tokens": 4},
}
FILES = {  # stage -> rows of a file that it can read
    "reviews": [
        {"sentence": f"film {n} was so so", "label": n % 2, "other": f"a film {n} is", "right": n < 40}
        for n in range(80)
    ],
}
FAULTY = {"reviews": [{"sentence": "Fine.", "label": "so so"}]}
