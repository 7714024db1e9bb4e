"""What ends a stage is one line, whatever raised it."""

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from tasks.stage import run_in_single_process


def test_a_tokenizer_s_expression_that_takes_too_long_ends_the_stage_with_one_line():
    """tokenizers gives up by itself, in an error that is no Exception."""
    tokenizer = Tokenizer(WordLevel({"x": 0}, unk_token="x"))
    tokenizer.pre_tokenizer = Split(Regex(r"(x+x+)+y"), "isolated")
    with pytest.raises(SystemExit) as stopped:
        run_in_single_process(lambda: {"tokens": len(tokenizer.encode("x" * 40).ids)})
    assert str(stopped.value).startswith("a library could not go on: ")
    assert str(stopped.value).isprintable()
    with pytest.raises(KeyboardInterrupt):
        run_in_single_process(interrupted)


def interrupted():
    raise KeyboardInterrupt
