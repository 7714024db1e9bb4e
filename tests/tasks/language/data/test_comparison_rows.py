"""Rows of comparisons from several sources, with the same columns in all of them."""

from tasks.language.data.comparison_rows import alike


def test_verdicts_are_left_out_where_a_row_has_none():
    judged = {"chosen": "1", "chosen_right": True, "rejected_right": False}
    assert alike([judged]) == [judged]
    assert alike([judged, {"chosen": "2"}]) == [{"chosen": "1"}, {"chosen": "2"}]
