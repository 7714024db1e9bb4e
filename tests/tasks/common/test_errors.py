"""What a stage raises is one line, whatever it quotes."""

from tasks.common.errors import DataError


def test_a_message_is_one_line_without_power_over_a_terminal():
    assert (
        str(DataError("file.json: got a\r\nb\tc\u2028\x1b[2J\x9b é 三")) == "file.json: got a b\tc \\x1b[2J\\x9b é 三"
    )


def test_a_long_message_is_cut():
    assert str(DataError("x" * 3 * 10**7)) == "x" * 1997 + "..."
    assert len(str(DataError("\x1b" * 1000))) == 2000, "counted as it is shown"
