"""The edits that the campaign of mutants tries, and how their outcomes are counted."""

import ast

from benchmarks import code_mutants, random_edits

SOURCE = b'''"""A text that nobody uses."""
LIMIT = 3

def area(side: int, whole: bool = True) -> int:
    print(f"{side} and {LIMIT}")
    if side < LIMIT and not whole:
        return side * 2
    return "\xc3\xa9", "wide"[0]
'''


def test_each_edit_changes_the_syntax_where_it_stands(tmp_path):
    (tmp_path / "areas.py").write_bytes(SOURCE)
    edits = random_edits.list_edits_by_kind(tmp_path, {"areas.py": {*range(1, 9)}})
    assert {kind: len(some) for kind, some in edits.items()} == {
        "comparison": 3,
        "constant": 4,
        "operator": 1,
        "statement": 4,
        "text": 2,
    }
    texts = {random_edits.apply_edit(SOURCE, edit) for some in edits.values() for edit in some}
    assert len(texts) == 14
    for text, _ in texts:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE))
    assert "areas.py:6: side < LIMIT -> (side <= LIMIT)" in {line for _, line in texts}


def test_lines_that_were_not_executed_are_not_edited(tmp_path):
    (tmp_path / "areas.py").write_bytes(SOURCE)
    assert set(random_edits.list_edits_by_kind(tmp_path, {"areas.py": {2}})) == {"constant", "statement"}


def test_what_changed_an_out_and_no_hash_is_counted_apart():
    rows = [["same", False], ["changed", True], ["changed", False], ["failed", True]]
    counts = code_mutants.count_mutant_outcomes(rows)
    assert counts == {"failed": 1, "took too long": 0, "same": 1, "changed": 2, "seen": 1}
    table = code_mutants.render({"kinds": {"text": counts}})
    assert "| all | 4 | 1 | 0 | 1 | 2 | 1 |" in table
