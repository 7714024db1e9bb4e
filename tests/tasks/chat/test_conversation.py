"""A conversation's turns, its prompt, its answer as it is drawn, and what cannot be talked with."""

import json
import shutil
from contextlib import closing

import pytest

from tasks.algorithms.language import rollouts
from tasks.chat import conversation
from tasks.chat.conversation import ChatSampling, Conversation
from tasks.common import models
from tasks.common.errors import DataError
from tests.tasks import forks
from tests.tasks.chats import chat_tokenizer
from tests.tasks.tiny import llama

GREEDY = ChatSampling(temperature=0.0, max_new_tokens=6, seed=0)


def talk(template="ChatML", sampling=GREEDY, positions=512, answers=None, monkeypatch=None):
    """A conversation with a random model; with `answers` it says these texts one after the other, each followed by its
    end.
    """
    words = chat_tokenizer(template)
    model = llama(vocab_size=len(words), max_position_embeddings=positions)
    made = Conversation("m", model, words, sampling)
    if answers is not None:
        left = iter(answers)

        def said(model, prompt, *, max_new_tokens, end_tokens, seed, **_):
            made.prompts.append(words.decode(prompt))
            made.seeds.append(seed)
            tokens = [*words.encode(next(left), add_special_tokens=False), words.convert_tokens_to_ids("<|im_end|>")]
            yield from tokens[:max_new_tokens]

        made.prompts, made.seeds = [], []
        monkeypatch.setattr(rollouts, "stream_response_tokens", said)
    return made


def say(made, question):
    for _ in made.ask(question):
        pass
    return made.turns[-1]["content"]


def test_the_model_reads_all_turns_as_its_template_writes_them():
    """The prompt of the second turn is written by hand; what is drawn from it is the second answer."""
    made = talk()
    first, second = say(made, "How many?"), say(made, "And now?")
    prompt = (
        f"<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n"
        "<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = made.tokenizer.encode(prompt, add_special_tokens=False)
    drawn = rollouts.sample_rollouts(
        made.model, [ids], samples=1, max_new_tokens=6, temperature=0, end_tokens=[], seed=0, batch_size=1
    )
    assert made.tokenizer.decode(next(drawn).responses()[0]).strip() == second
    assert first != second
    assert made.notes == ["cut off after 6 tokens (--max-new-tokens)"]
    made.reset()
    assert say(made, "How many?") == first


def test_a_seed_draws_the_same_answers_and_each_turn_draws_anew(monkeypatch):
    first, again, other = (say(talk(sampling=ChatSampling(1.0, 6, seed)), "Hi") for seed in (0, 0, 1))
    assert first == again != other
    made = talk(sampling=ChatSampling(1.0, 6, 7), answers=["a", "b", "c"], monkeypatch=monkeypatch)
    for reset in (False, True, False):
        say(made, "Hi")
        if reset:
            made.reset()
    assert made.seeds == [7, 8, 7]


def test_what_a_person_types_is_text_and_never_ends_a_turn(monkeypatch):
    made = talk(answers=["a<|im_end|>b", "c"], monkeypatch=monkeypatch)
    end = made.tokenizer.convert_tokens_to_ids("<|im_end|>")
    prompt = made._drop_turns_and_encode_prompt({"role": "user", "content": "x<|im_end|>y"})
    assert prompt.count(end) == 1, "the one that the template writes"
    assert "x<|im_end|>y" in made.tokenizer.decode(prompt)


def test_a_system_prompt_stands_first_in_every_prompt_and_stays_at_a_reset(monkeypatch):
    made = talk(answers=["one", "two", "three"], monkeypatch=monkeypatch)
    made.set_system("Be brief.")
    say(made, "A?")
    say(made, "B?")
    made.reset()
    say(made, "C?")
    system = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    assert [prompt.startswith(system) for prompt in made.prompts] == [True] * 3
    assert "A?" in made.prompts[1]
    assert "A?" not in made.prompts[2]


@pytest.mark.parametrize("template", ["Llama 2"])
def test_a_template_that_shows_a_system_prompt_as_somebody_else_s_words_is_refused(template):
    with pytest.raises(DataError, match=r"^m: its chat template has no place for a system prompt$"):
        talk(template).set_system("Be brief.")
    talk("Llama 3").set_system("Be brief.")


def test_a_template_that_raises_is_one_line():
    made = talk()
    made.tokenizer.chat_template = "{{ raise_exception('never\ntwice') }}"
    with pytest.raises(DataError, match=r"^m: the chat template refuses the conversation: never twice$"):
        made.ask("Hi")
    with pytest.raises(DataError, match="no place for a system prompt"):
        made.set_system("Be brief.")


def test_the_oldest_turns_are_forgotten_where_the_context_is_full(monkeypatch):
    """ChatML makes 18 tokens of a question of ten letters, 17 of an answer of four, 11 of an opening: three questions
    need 99 and 6.
    """
    made = talk(positions=104, answers=["good"] * 4, monkeypatch=monkeypatch)
    for letter in "abcd":
        assert say(made, letter * 10) == "good"
        forgotten = ["the oldest turn was forgotten: the context of 104 tokens is full"]
        assert made.notes == (forgotten if letter in "cd" else [])
    assert [letter for letter in "abcd" if letter * 10 in made.prompts[-1]] == ["c", "d"]


def test_a_question_that_alone_is_too_long_is_refused_and_leaves_the_turns():
    made = talk(positions=64, sampling=ChatSampling(0.0, 100, 0))
    with pytest.raises(DataError, match=r"^m: the question has 59 tokens .* the context of 64 has room for 48 beside"):
        made.ask("x" * 40)
    assert made.turns == []
    made._ends = set()
    say(made, "x")
    assert made.notes == ["cut off: the context of 64 tokens is full"]


def test_a_character_of_several_tokens_appears_when_it_is_whole(monkeypatch):
    made = talk(answers=["né 🙂 ok"], monkeypatch=monkeypatch)
    made.sampling = ChatSampling(0.0, 99, 0)
    assert [*made.ask("Hi")] == ["n", "né", "né 🙂", "né 🙂 o", "né 🙂 ok"]
    assert made.notes == []


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_was_drawn(monkeypatch):
    made = talk(answers=["abcdef", "x", ""], monkeypatch=monkeypatch)
    with closing(made.ask("Go")) as drawn:
        assert [next(drawn), next(drawn)] == ["a", "ab"]
    say(made, "On")
    assert "assistant\nab<|im_end|>" in made.prompts[1]
    with closing(made.ask("Never drawn")):
        pass
    assert made.turns[-2]["content"] == "On"
    assert say(made, "Empty") == ""
    assert made.notes == ["an empty answer"]


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A model to change, whose chat template is rendered without a fresh process."""
    forks.render_templates(monkeypatch)
    return shutil.copytree(made / "pretrained", tmp_path / "model")


def edited(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


FAULTS = {
    "no config.json": lambda folder: (folder / "config.json").unlink(),
    "a pickle": lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
    "holds no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "a classifier": lambda folder: edited(folder / "config.json", architectures=["LlamaForSequenceClassification"]),
    "no end token": lambda folder: edited(folder / "tokenizer_config.json", eos_token=None),
    "drops the question": lambda folder: (folder / "chat_template.jinja").write_text("hello"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_cannot_answer_is_one_line(folder, fault):
    FAULTS[fault](folder)
    with pytest.raises(DataError) as error:
        conversation.start_model_conversation(folder, GREEDY)
    assert fault in str(error.value)
    assert str(error.value).startswith(f"{folder}: ")
    assert "\n" not in str(error.value)


def test_remote_code_is_never_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    edited(folder / "config.json", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    edited(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]})
    assert conversation.start_model_conversation(folder, GREEDY).limit == 192


def test_a_base_model_without_a_template_gets_the_plain_one(folder):
    (folder / "chat_template.jinja").unlink()
    made = conversation.start_model_conversation(folder, GREEDY)
    assert made.tokenizer.decode(made._drop_turns_and_encode_prompt({"role": "user", "content": "Why?"})).endswith(
        "Question: Why?\nAnswer:\n"
    )
    assert models.load_tokenizer(folder).chat_template is None, "the folder stays as it is"


def test_a_model_of_single_questions_reads_each_alone(monkeypatch):
    made = talk(answers=["1", "2"], monkeypatch=monkeypatch)
    made.single_turn = True
    say(made, "How many?")
    say(made, "And now?")
    assert made.prompts[1] == "<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
