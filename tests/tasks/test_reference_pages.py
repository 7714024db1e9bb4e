"""The pages of docs/parameters and docs/metrics: their index, and the cells of parameters."""

from tasks import parameters, reference_pages
from tasks.reference_pages import DocumentedStage

MANY = [f"policy_{number}" for number in range(9)]
SCHEMA = {
    "properties": {
        "seed": {"description": "The seed."},
        "toy": {
            "description": "What is trained.\n\nMore.",
            "properties": {
                "policy": {"enum": MANY, "description": "Which policy."},
                "steps": {"type": "integer", "minimum": 1, "description": "How many | steps."},
            },
        },
        "branches": {
            "description": "What stages are run for.",
            "properties": {
                "clone": {
                    "description": "Games.",
                    "additionalProperties": {"properties": {"rooms": {"type": "integer", "description": "Rooms."}}},
                },
                "learner": {"description": "Data sets.", "items": {"type": "string"}},
            },
        },
    },
    "patternProperties": {"^x-": {"description": "What sections take in."}},
    "$defs": {},
}
VALUES = {
    "seed": 0,
    "x-shared": {"steps": 1},
    "toy": {"policy": "policy_1", "steps": 1},
    "branches": {"clone": {"small": {"rooms": 3}}, "learner": ["data_set_of_a_long_name"] * 5},
}
STAGES = {
    "probe": DocumentedStage("Another", "tasks.extensions.probing.probe", ("branches", "clone")),
    "toy": DocumentedStage("A toy", "tasks.language.toy", None),
    "learner": DocumentedStage("A learner", "tasks.offline.learner", ("branches", "learner")),
    "clone": DocumentedStage("A clone", "tasks.offline.clone", ("branches", "clone")),
    "returns": DocumentedStage("Returns", "tasks.offline.returns", ("report", "policies")),
}
PAGES = parameters.render_parameter_pages(SCHEMA, VALUES, STAGES)


def test_the_index_has_flows_and_then_extensions():
    headings = [line for line in PAGES["README.md"].splitlines() if line.startswith(("## ", "- ["))]
    assert headings == [
        "## Language flow",
        "- [toy](toy.md): A toy.",
        "## Offline flow",
        "- [learner](learner.md): A learner.",
        "- [clone](clone.md): A clone.",
        "- [returns](returns.md): Returns.",
        "## Extension probing",
        "- [probe](probe.md): Another.",
        "## Shared by several stages",
    ]


def test_the_index_has_what_sections_share():
    lines = PAGES["README.md"].splitlines()
    assert "- `seed`, by default `0`: The seed." in lines
    assert "    - `x-shared`: `steps`" in lines
    [entries] = [line for line in lines if line.startswith("- `branches`")]
    assert entries.endswith("[clone](clone.md#branches), [learner](learner.md#branches).")


def test_a_page_has_the_keys_of_its_section():
    assert "| `steps` | `1` | a whole number of at least 1 | How many \\| steps. |" in PAGES["toy.md"]


def test_long_texts_are_in_the_wide_column():
    [row] = [line for line in PAGES["toy.md"].splitlines() if "`policy`" in line]
    assert row.startswith("| `policy` | `\"policy_1\"` | see meaning | Which policy. It may be 'policy_0' or ")
    assert all(name in row for name in MANY)


def test_a_page_says_what_its_stage_runs_for():
    assert "| `*.rooms` | `3` | a whole number | Rooms. |" in PAGES["clone.md"]
    assert "each entry of [branches.clone](clone.md#branches)." in PAGES["probe.md"]
    assert "each entry of [report.policies](report.md)." in PAGES["returns.md"]
    assert PAGES["learner.md"].endswith("...`.\n"), "a long default is cut off"


def test_pages_of_stages_that_are_gone_are_deleted(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/gone.md").write_text("")
    reference_pages.replace_reference_pages(tmp_path / "docs", {"README.md": "index"})
    assert {file.name: file.read_text() for file in (tmp_path / "docs").iterdir()} == {"README.md": "index"}
