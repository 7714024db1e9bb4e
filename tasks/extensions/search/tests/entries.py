"""What the tests that go through all stages need to know of `search` (tests/extensions.py)."""

BRANCHED = {"search": {"policies": ["sft"]}}
BASE = {
    "search": {
        **{"policies": ["sft"], "problems": 6, "samples": 4, "max_new_tokens": 8, "batch_size": 4, "subsets": 20},
        "beam_widths": [1],
    },
}
ONE_BRANCH = {"search": "sft"}
ELSEWHERE = {
    **{
        f"search.{key}": ("needs a process reward model", "tasks/extensions/search/tests/test_search.py")
        for key in ("beam_expansions", "beam_widths")
    },
    "search.bootstrap": ("a model this small is never right", "tasks/extensions/search/tests/test_search_page.py"),
}
METRICS = {"search": {"problems": 2, "max_new_tokens": 4, "subsets": 2, "bootstrap": 5}}
WITH_STEPS = {"search": "data/raw/search/process"}  # stages that also read a process reward model -> from where
