"""`posttrain chat` as a process of its own: through a pipe, and at a terminal with Ctrl-C and two columns."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.common import models
from tasks.language.data import chat
from tests.flows.toy_pipeline import call, environ
from tests.tasks.chats import chat_tokenizer
from tests.tasks.tiny import llama


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository without stages, with two models that never come to an end by themselves."""
    root = tmp_path_factory.mktemp("chat")
    (root / "dvc.yaml").write_text("stages: {}\n")
    for seed, name in enumerate(("new", "old")):
        words = chat_tokenizer("ChatML")
        model = llama(seed, vocab_size=len(words), max_position_embeddings=10**6)
        model.get_output_embeddings().weight.data[sorted(chat.end_tokens(model, words))] = 0  # other logits are above 0
        models.save_model(model, words, root / name)
    return root


def test_a_model_that_is_not_there_is_one_line(root: Path) -> None:
    for arguments in (["nosuch"], ["new", "--against", "nosuch"]):
        assert call(root, "chat", *arguments) == (
            2,
            "",
            "posttrain: nosuch: neither a folder nor a stage that has run\n",
        )
    code, _, error = call(root, "chat", "new", "--temperature", "-1")
    assert (code, error.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_script_gets_an_answer_a_line_and_the_child_s_exit_code(root: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "chat", "new", "--temperature=0", "--max-new-tokens=3"]

    def asked(*arguments: str, text: str = "One?\nTwo?\n") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=root, env=environ(), input=text, capture_output=True, text=True, check=False
        )

    one, both = asked(), asked("--against", str(root / "old"), "--system", "Be brief.")
    assert (one.returncode, one.stderr) == (0, "posttrain: new: cut off after 3 tokens (--max-new-tokens)\n" * 2)
    assert len(one.stdout.splitlines()) == 2
    assert re.findall(r"^\w+: ", both.stdout, re.MULTILINE) == ["new: ", "old: ", "new: ", "old: "]
    wrong = asked(text="/nosuch\n")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_ctrl_c_ends_a_child_that_has_no_answer_to_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)")
    start = (
        "from pathlib import Path; from flows import model_commands;"
        "model_commands.run_module_in_terminal(Path(), 'sleeper')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start],
        cwd=tmp_path,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"up\n"
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does: to the command and its child
        assert command.communicate() == (b"", b"")
    assert command.returncode == 130


class Terminal:
    """The command at a terminal of its own, as a person has it."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.shown = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(root)
            command = [sys.executable, "-m", "flows.cli", "chat", *arguments]
            os.execve(sys.executable, command, {**environ(), "TERM": "xterm", "OMP_NUM_THREADS": "1"})
        termios.tcsetwinsize(self.master, (24, 80))

    def until(self, text: str) -> str:
        """What is shown until this text appears, without the sequences that move the cursor."""
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], 60)
            assert ready, self.shown
            self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.master, 4096).decode(errors="replace"))
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def leave(self) -> int:
        self.type("\x04")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(root: Path) -> Iterator[Terminal]:
    terminal = Terminal(root, "new", "--temperature=0", "--max-new-tokens=1000000", "--against", "old")
    yield terminal
    os.close(terminal.master)  # which ends the command, if it has not ended


@pytest.mark.slow
def test_at_a_terminal_ctrl_c_ends_the_answer_and_ctrl_d_the_program(terminal: Terminal) -> None:
    assert "new: 35,168 weights, a context of 1000000 tokens\r\nold: " in terminal.until("Ctrl-D leaves")
    terminal.until("> ")
    for question in ("One?", "Two?"):
        terminal.type(f"{question}\r")
        shown = terminal.until("new")
        assert question in shown
        assert re.match(" +old", terminal.until("\n")), "the names stand side by side"
        time.sleep(0.5)
        terminal.type("\x03")
        assert "^C" not in terminal.until("(stopped)")
        terminal.until("> ")
    time.sleep(0.5)  # until `input` waits; a signal just before that waits for the next key
    terminal.type("\x03")
    terminal.until("Ctrl-D or /quit leaves")
    terminal.until("> ")
    terminal.type("/system Be brief.\r")
    terminal.until("begins anew with this system prompt")
    terminal.until("> ")
    assert terminal.leave() == 0
