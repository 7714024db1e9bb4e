"""`python -m tasks.chat`: lines in, answers out, commands, and text that has no power over a terminal."""

import io
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.chat import __main__ as chat
from tasks.chat.screen import Pipe
from tasks.common.errors import DataError
from tasks.common.terminal import escape_control_characters
from tests.tasks import forks


class Parrot:
    """In place of a Conversation: it says how many turns it has had and what it was asked, in two parts."""

    def __init__(self, name, notes=()):
        self.name, self.notes, self.asked, self.system = name, list(notes), [], ""

    def ask(self, question):
        if question == "too long":
            raise DataError(f"{self.name}: too long")
        self.asked.append(question)
        answer = f"{len(self.asked)}{self.system} {question}"
        return (part for part in (answer[:1], answer))

    def reset(self):
        self.asked = []

    def check_system(self, text):
        if text == self.name:
            raise DataError(f"{self.name}: no place")

    def set_system(self, text):
        self.system, self.asked = text, []


@pytest.fixture
def typed(monkeypatch):
    """Lets `talk` read these lines from a pipe."""
    return lambda *lines: monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))


def test_one_line_is_one_turn_and_answers_alone_stand_on_standard_output(typed, capsys):
    typed("one", "", "  two ", "/reset", "three", "/system !", "four", "/quit", "five")
    chat.run_chat_loop([Parrot("m", ["cut off"])], Pipe())
    out, error = capsys.readouterr()
    assert out == "1 one\n2 two\n1 three\n1! four\n"
    assert error.count("posttrain: m: cut off\n") == 4
    assert error.count("begins anew") == 2


def test_against_another_model_each_answer_has_its_name_and_each_its_own_turns(typed, capsys):
    typed("one", "two")
    new, old = Parrot("new"), Parrot("old")
    chat.run_chat_loop([new, old], Pipe())
    assert capsys.readouterr().out == "new: 1 one\nold: 1 one\nnew: 2 two\nold: 2 two\n"
    assert new.asked == old.asked == ["one", "two"]


def test_a_system_prompt_is_for_all_models_or_none(typed):
    typed("one", "/system old")
    new, old = Parrot("new"), Parrot("old")
    with pytest.raises(DataError, match="old: no place"):
        chat.run_chat_loop([new, old], Pipe())
    assert (new.system, new.asked) == ("", ["one"])


@pytest.mark.parametrize(
    ("line", "message"),
    [("/rest", "^/rest: no such command; there are /reset, .* and /quit$"), ("too long", "^m: too long$")],
)
def test_a_script_is_stopped_by_an_error_and_a_person_is_told(typed, capsys, line, message):
    typed(line, "one")
    with pytest.raises(DataError, match=message):
        chat.run_chat_loop([Parrot("m")], Pipe())
    typed(line, "one")
    screen = Pipe()
    screen.interactive = True
    chat.run_chat_loop([Parrot("m")], screen)
    out, error = capsys.readouterr()
    assert out == "1 one\n"
    assert error.startswith(f"posttrain: {message.strip('^$')[:6]}")


def test_escape_sequences_of_an_answer_reach_the_terminal_as_text(typed, capsys):
    typed("\x1b]0;title\x07 \x1b[2J \x9b31m \u202egnp.exe")
    chat.run_chat_loop([Parrot("m")], Pipe())
    assert capsys.readouterr().out == "1 \\x1b]0;title\\x07 \\x1b[2J \\x9b31m \\u202egnp.exe\n"


@given(st.text())
@example("\x1b[31mred\x1b[0m\r\n")
@example("👨‍👩‍👧 \u00a0 नमस्ते")
def test_no_character_with_power_over_a_terminal_is_left(text):
    shown = escape_control_characters(text)
    kinds = {unicodedata.category(char) for char in shown if char not in "\n\t\u200c\u200d"}
    assert not kinds & {"Cc", "Cf", "Cs"}
    assert escape_control_characters(shown) == shown
    assert text.isprintable() <= (shown == text)


def test_a_model_answers_through_a_pipe(made, monkeypatch, capsys):
    forks.render_templates(monkeypatch)
    folder = made / "pretrained"
    arguments = ["--temperature=0", "--max-new-tokens=4", "--seed=0"]
    for line in (b"How many apples?\n", b"How many apples?\n\xff\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line)))
        assert chat.main([str(folder), *arguments]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == second != ""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert chat.main([str(folder), *arguments, "--against", str(made / "problems")]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error == f"posttrain: {made / 'problems'}: holds no config.json; expected a model in Hugging Face layout\n"
