"""Rows of comparisons from several sources, with the same columns in all of them."""

from tasks.language.data.comparison_rows import unify_comparison_columns


def test_verdicts_are_left_out_where_a_row_has_none():
    judged = {"chosen": "1", "chosen_right": True, "rejected_right": False}
    assert unify_comparison_columns([judged]) == [judged]
    assert unify_comparison_columns([judged, {"chosen": "2"}]) == [{"chosen": "1"}, {"chosen": "2"}]
