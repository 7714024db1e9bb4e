"""Capital words in names of metrics (tasks/metrics.py)."""

PLACEHOLDERS = {"SUITE": ("[a-z0-9_-]+", "a benchmark suite, by its name in tasks/extensions/suites/README.md")}
