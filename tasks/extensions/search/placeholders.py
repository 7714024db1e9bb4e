"""Capital words in names of metrics (tasks/metrics.py)."""

PLACEHOLDERS = {
    "MODEL": ("[a-z_]+", "a model that searches: the policy by its stage's name, or `small`"),
    "SCORE": (
        "likelihood|pairs|outcome|process_minimum|process_product|process_last",
        "what answers are chosen by: `likelihood`, the policy's own log-probability a token, or the score of a "
        "reward model of `pairs`, `outcome` or `process`",
    ),
}
