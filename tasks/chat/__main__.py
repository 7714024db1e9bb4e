"""`python -m tasks.chat FOLDER`: a chat with a model in a terminal or through a pipe. `posttrain chat` starts it.

Exit codes as of posttrain: 0 at the end of the conversation, 2 where the model cannot be used, 130 after Ctrl-C outside
of an answer.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.chat.conversation import Conversation
    from tasks.chat.screen import Screen

CLEAR = "\r\033[K"  # what stands in the terminal's line
HELP = """\
/reset          forget the conversation
/system TEXT    begin anew with this system prompt; without a text, with none
/help           this list
/quit           leave, as Ctrl-D does; Ctrl-C stops an answer"""


def run_chat_loop(conversations: Sequence["Conversation"], screen: "Screen") -> None:
    """Answer until the questions end or one is /quit. Where nobody could react to an error it is raised."""
    from tasks.algorithms.common.errors import TrainingError
    from tasks.common.errors import DataError

    for line in screen.read_questions():
        text = line.strip()
        try:
            if text == "/quit":
                return
            if text.startswith("/"):
                screen.say(run_chat_command(conversations, text))
            elif text:
                screen.show(conversations, text)
        except (DataError, TrainingError) as error:
            if not screen.interactive:
                raise
            screen.say(str(error))


def run_chat_command(conversations: Sequence["Conversation"], text: str) -> str:
    """Carry out a line that begins with `/`; returns what to say."""
    from tasks.common.errors import DataError

    name, _, rest = text.partition(" ")
    if name == "/help":
        return HELP
    if name == "/reset":
        for conversation in conversations:
            conversation.reset()
        return "the conversation begins anew"
    if name == "/system":
        for conversation in conversations:  # all of them or none
            conversation.check_system(rest.strip())
        for conversation in conversations:
            conversation.set_system(rest.strip())
        return "the conversation begins anew with this system prompt" if rest else "there is no system prompt now"
    raise DataError(f"{name}: no such command; there are /reset, /system TEXT, /help and /quit")


def main(arguments: Sequence[str]) -> int:
    """Load the models and talk."""
    parser = argparse.ArgumentParser(prog="python -m tasks.chat", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--demonstrations", type=Path, help="what the models were fine-tuned on")
    parser.add_argument("--system", default="")
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--max-new-tokens", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args(arguments)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a byte that is no text is no reason to stop
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    folders = [folder for folder in (options.model, options.against) if folder is not None]
    if at_terminal:
        print(f"loading {' and '.join(map(str, folders))} ...", end="", flush=True)

    from transformers.utils import logging

    from tasks.algorithms.common.errors import TrainingError
    from tasks.chat import conversation
    from tasks.chat.screen import Pipe, Terminal
    from tasks.chat.training_data import describe_training_data, summarize_training_data
    from tasks.common.errors import DataError

    logging.disable_progress_bar()
    try:
        sampling = conversation.ChatSampling(options.temperature, options.max_new_tokens, options.seed)
        conversations = [conversation.start_model_conversation(folder, sampling) for folder in folders]
        data = summarize_training_data(options.demonstrations) if options.demonstrations else None
        for each in conversations:
            each.set_system(options.system)
            each.single_turn = data is not None and data.most_turns == 1
        screen: Screen = Terminal() if at_terminal else Pipe()
        if at_terminal:
            print(CLEAR, end="")
            screen.say(
                "\n".join(
                    [
                        *map(describe_model, conversations),
                        *([describe_training_data(data)] if data else []),
                        "/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves",
                    ]
                )
            )
        elif data:
            screen.say(describe_training_data(data))
        run_chat_loop(conversations, screen)
    except (DataError, TrainingError) as error:
        print(f"{CLEAR * at_terminal}posttrain: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the answers has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def describe_model(conversation: "Conversation") -> str:
    """The model in one line."""
    context = f", a context of {conversation.limit} tokens" if conversation.limit else ""
    return f"{conversation.name}: {conversation.model.num_parameters():,} weights{context}"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored until here, as posttrain starts it
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print()
        sys.exit(130)
