"""Chat templates that write today's date: what is trained and sampled is the same on every day."""

import json
from datetime import datetime

import pytest
from transformers.utils import chat_template_utils

from tasks.language.data import chat
from tasks.language.data.conversations import encode_conversation, encode_conversation_prompt
from tests.tasks.chats import CHATML, chat_tokenizer

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Which day is it?"},
    {"role": "assistant", "content": "Friday."},
]
DATES = {  # how well-known templates ask for the date -> what they write
    "strftime_now('%d %b %Y')": "26 Jul 2024",
    'strftime_now("%Y-%m-%d")': "2024-07-26",
    "strftime_now('%B %d, %Y')": "July 26, 2024",
    "strftime_now('%A, %-d.%-m.%y, %H:%M:%S')": "Friday, 26.7.24, 00:00:00",
}


@pytest.fixture
def on(monkeypatch):
    """Let transformers believe that it is another day."""

    def go(year, month, day):
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(year, month, day, tzinfo=tz)

        monkeypatch.setattr(chat_template_utils, "datetime", Clock)

    return go


def test_tokens_and_masks_are_the_same_on_every_day(on):
    found, own = [], []
    for day in ((2025, 1, 2), (2031, 12, 24)):
        on(*day)
        tokenizer = chat_tokenizer("Llama 3.2")
        asked = chat.encode_prompt(tokenizer, "Which day is it?")
        assert "Today Date: 26 Jul 2024\n" in tokenizer.decode(asked)
        found.append((asked, encode_conversation_prompt(tokenizer, TURNS[:2]), encode_conversation(tokenizer, TURNS)))
        assert chat.end_token(tokenizer) == tokenizer.convert_tokens_to_ids("<|eot_id|>")
        own.append(tokenizer.apply_chat_template(TURNS, tokenize=False))
    assert found[0] == found[1]
    assert "Today Date: 02 Jan 2025" in own[0], (
        "the tokenizer's own template, which is saved with a model, knows the day"
    )
    assert "Today Date: 24 Dec 2031" in own[1]


@pytest.mark.parametrize("asked", DATES)
@pytest.mark.parametrize("before", ["", "\n", "  "])
def test_the_date_is_all_that_differs(on, asked, before):
    """Spaces and newlines at the template's beginning, in blocks and in macros stay what they are."""
    tokenizer = chat_tokenizer("ChatML")
    shown = (
        f"{{% macro day() %}}\n  Day: {{{{ {asked} }}}}\n{{% endmacro %}}{{% if true %}}\n  {{{{ day() "
        f"}}}}\n{{% endif %}}\n"
    )
    tokenizer.chat_template = before + shown + CHATML
    on(2024, 7, 26)
    expected = tokenizer.apply_chat_template(TURNS, tokenize=False)
    assert f"  Day: {DATES[asked]}\n" in expected
    on(2030, 1, 1)
    assert tokenizer.apply_chat_template(TURNS, tokenize=False) != expected
    assert (
        tokenizer.apply_chat_template(TURNS, tokenize=False, chat_template=chat.build_fixed_date_template(tokenizer))
        == expected
    )


def test_a_template_without_a_date_is_as_it_was(tmp_path):
    tokenizer = chat_tokenizer("ChatML")
    assert chat.build_fixed_date_template(tokenizer) == tokenizer.chat_template == CHATML
    dated = chat_tokenizer("Llama 3.2")
    before = dated.chat_template
    chat.encode_prompt(dated, "Why?")
    dated.save_pretrained(tmp_path)
    assert dated.chat_template == before
    saved = tmp_path / "chat_template.jinja"
    kept = (
        saved.read_text()
        if saved.is_file()
        else json.loads((tmp_path / "tokenizer_config.json").read_text())["chat_template"]
    )
    assert kept == before
