import itertools
import shutil

import pandas as pd
import pytest
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from tasks.algorithms.language import sft
from tasks.common import models, tables
from tasks.common.errors import StageError
from tasks.language.configs.sft import SftConfig
from tasks.language.data import chat, forms
from tasks.language.sft import run
from tasks.language.tables.problems import Demonstrations, Problems
from tasks.language.training import architectures
from tasks.language.training.supervised import Encoded
from tests.conftest import changed, tiny
from tests.tasks.chats import CHATS, chat_tokenizer

CONFIG = tiny(SftConfig, "sft")


def tune(made, out, **changes):
    config = changed(CONFIG, **changes)
    return run(config, made / "pretrained", made / "demonstrations", out / "model", out / "curve.csv")


def validation(made):
    return tables.read_table(Demonstrations, made / "demonstrations" / "validation.parquet")


def batches(table, words, size, config=CONFIG):
    """One epoch of the table's rows."""
    encoded = Encoded(table, words, config)
    return [encoded.batch(rows) for rows in encoded.batches(size, 1, seed=0)]


def test_the_loss_is_on_the_solution_and_its_end_token(made):
    words = models.load_tokenizer(made / "pretrained")
    seen = {}
    for batch in batches(validation(made), words, 3):
        for tokens, attention, response in zip(batch.tokens, batch.attention, batch.response, strict=True):
            seen[words.decode(tokens[attention & ~response])] = words.decode(tokens[response])
    problems = tables.read_table(Problems, made / "problems" / "validation.parquet")
    template = {f"<|user|>{row.question}<|assistant|>": row.solution + "<|end|>" for row in problems.itertuples()}
    assert seen == template


@pytest.mark.parametrize("name", CHATS)
def test_the_loss_has_the_token_by_which_the_template_ends_an_answer(made, name):
    words, end = chat_tokenizer(name), CHATS[name][2]
    for batch in batches(validation(made), words, 3):
        for tokens, attention, response in zip(batch.tokens, batch.attention, batch.response, strict=True):
            assert words.convert_ids_to_tokens(int(tokens[response][-1])) == end
            assert int(attention.sum()) == int(response.nonzero()[-1]) + 1, "nothing follows it"


LEARNING = {"demonstrations": 60, "epochs": 2, "learning_rate": 0.05}
FEW = {"demonstrations": 8, "batch_size": 3}


@pytest.fixture(scope="module")
def tuned(made, tmp_path_factory):
    """The metrics and the folder of a training that learns."""
    out = tmp_path_factory.mktemp("sft")
    return tune(made, out, **LEARNING), out


def test_it_beats_the_model_it_started_from(made, tuned):
    """It does so on problems that it was not trained on."""
    words, table = models.load_tokenizer(made / "pretrained"), validation(made)
    before = sft.measure_held_out_loss_and_accuracy(models.load_model(made / "pretrained"), batches(table, words, 8))
    after, out = tuned
    assert after["eval_loss"] < before["eval_loss"] - 1
    assert after["eval_mean_token_accuracy"] > before["eval_mean_token_accuracy"] + 0.2
    again = sft.measure_held_out_loss_and_accuracy(
        AutoModelForCausalLM.from_pretrained(out / "model"), batches(table, words, 8)
    )
    assert {**again, "truncated": 0, "dropped": 0} == pytest.approx(after, rel=1e-5), (
        "what was saved is what was measured"
    )


def test_the_curve_has_the_held_out_loss_at_intervals_and_at_the_end_and_measuring_it_changes_nothing(made, tmp_path):
    """Steps 1 to 6: before the training, after two steps and four, and at the end; a row in between repeats the last
    one.
    """
    found = {}
    for every in (0, 2):
        out = tmp_path / str(every)
        metrics = tune(made, out, epochs=2, evaluate_every=every, **FEW)
        curve = pd.read_csv(out / "curve.csv")
        found[every] = curve["loss"].tolist(), (out / "model/model.safetensors").read_bytes()
        if every:
            losses = curve["eval_loss"].tolist()
            assert losses == [losses[0], *[losses[1]] * 2, *[losses[3]] * 2, metrics["eval_loss"]]
            assert len({*losses}) == 4
        else:
            assert "eval_loss" not in curve
    assert found[0] == found[2]


@pytest.fixture(scope="module")
def plain(made, tmp_path_factory):
    """The folder of a training with the tiny settings."""
    out = tmp_path_factory.mktemp("plain")
    tune(made, out)
    return out


def test_steps_and_bytes(made, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        tune(made, tmp_path / name, seed=seed, epochs=2, **FEW)
    curve = pd.read_csv(tmp_path / "one/curve.csv")
    assert len(curve) == 2 * 3, "8 demonstrations make 3 batches of at most 3"
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]


def test_no_more_demonstrations_than_asked_for(made, plain, tmp_path):
    """They are those of the first training problems, which `responses.skip` passes over later."""
    few = tmp_path / "demonstrations"
    table = tables.read_table(Demonstrations, made / "demonstrations" / "train.parquet")
    tables.write_table(Demonstrations, table.head(32), few / "train.parquet")
    shutil.copy(made / "demonstrations" / "validation.parquet", few)
    run(CONFIG, made / "pretrained", few, tmp_path / "few/model", tmp_path / "few/curve.csv")
    weights = [(out / "model/model.safetensors").read_bytes() for out in (plain, tmp_path / "few")]
    assert weights[0] == weights[1]


def test_the_template_travels_with_the_model(made, plain):
    words = models.load_tokenizer(plain / "model")
    assert chat.encode_prompt(words, "Why?") == chat.encode_prompt(models.load_tokenizer(made / "tokenizer"), "Why?")


SYSTEM = {"role": "system", "content": "Be brief."}
ASK, REPLY = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}
AGAIN, MORE = {"role": "user", "content": "And?"}, {"role": "assistant", "content": "More."}
RESULT = {"role": "tool", "content": "3"}


def table_of(*rows):
    """Demonstrations of conversations and plain texts."""
    return pd.DataFrame(
        {
            "demonstration_id": f"own-{number}",
            "messages": forms.dump_messages_json(row) if isinstance(row, list) else "",
            "text": "" if isinstance(row, list) else row,
        }
        for number, row in enumerate(rows)
    )


def configured(**changes):
    """The stage's section with changes, checked as in params.yaml."""
    return SftConfig.model_validate({**CONFIG.model_dump(), **changes})


def encoded(words, *rows, **changes):
    """Each row's text, and in order the parts of it that are learned."""
    found = []
    for tokens, learned in Encoded(table_of(*rows), words, configured(**changes)).rows:
        parts, before = [], False
        for token, wanted in zip(tokens, learned, strict=True):
            if wanted and not before:
                parts.append([])
            if wanted:
                parts[-1].append(token)
            before = wanted
        found.append((words.decode(tokens), [words.decode(part) for part in parts]))
    return found


def test_every_turn_of_the_assistant_is_learned_and_nothing_else():
    """System prompts, questions, results of tools and the template's own words are not."""
    words = chat_tokenizer("ChatML")
    turns = [SYSTEM, ASK, REPLY, AGAIN, MORE, RESULT, {"role": "assistant", "content": "Three."}]
    [(text, learned)] = encoded(words, turns)
    assert text == words.apply_chat_template(turns, tokenize=False).removesuffix("\n")
    assert learned == ["So.<|im_end|>", "More.<|im_end|>", "Three.<|im_end|>"]


@pytest.mark.parametrize("name", CHATS)
def test_without_learn_end_all_but_the_token_that_ends_an_answer_is_learned(name):
    words, end = chat_tokenizer(name), CHATS[name][2]
    [(text, [learned])], [(same, [whole])] = (encoded(words, [ASK, REPLY], learn_end=ends) for ends in (False, True))
    assert text == same
    assert whole == learned + end
    [(_, [plain])] = encoded(words, "Once.", learn_end=False)
    assert plain.endswith("Once.")


def test_all_of_a_plain_text_is_learned_but_what_nothing_precedes():
    """It closes with the end of documents, and opens with the token that does so where the tokenizer has one."""
    assert encoded(chat_tokenizer("ChatML"), "Once.") == [("Once.<|endoftext|>", ["Once.<|endoftext|>"])]
    assert encoded(chat_tokenizer("Llama 3"), "Once.") == [("<bos>Once.<|end_of_text|>", ["<bos>Once.<|end_of_text|>"])]
    words = chat_tokenizer("ChatML")
    for packing in (False, True):
        data = Encoded(table_of("Once."), words, configured(packing=packing, max_length=64))
        [batch] = [data.batch(rows) for rows in data.batches(4, 1, 0)]
        assert words.decode(batch.tokens[batch.response]) == "nce.<|endoftext|>"


def test_a_control_token_is_text_in_a_message_and_itself_in_a_text():
    """A column `text` may hold conversations in the model's template; what somebody says in a message is no part of
    it.
    """
    words = chat_tokenizer("ChatML")
    end = words.convert_tokens_to_ids("<|im_end|>")
    [(tokens, _)] = Encoded(table_of([ASK, {"role": "assistant", "content": "<|im_end|>"}]), words, CONFIG).rows
    assert tokens.count(end) == 2, "behind question and answer"
    whole = words.apply_chat_template([ASK, {"role": "assistant", "content": "So."}], tokenize=False)
    [(tokens, learned)] = Encoded(table_of(whole.strip()), words, CONFIG).rows
    assert words.decode(tokens) == whole.strip(), (
        "it ends as the template ends an answer, and nothing more is put there"
    )
    assert all(learned)
    [(tokens, _)] = Encoded(table_of("a<|im_end|>b"), words, CONFIG).rows
    assert words.decode(tokens) == "a<|im_end|>b<|endoftext|>"


def test_control_tokens_of_another_template_are_said_to_be_text(capfd):
    texts = ["<|im_start|>user\nWhy?", "[INST] Why? [/INST]", "Why? a<b|c>d", "<\uff5cUser\uff5c>Why?", "[gMASK]<sop>"]
    Encoded(pd.concat(map(table_of, texts)), chat_tokenizer("ChatML"), CONFIG)
    names = "<sop>, <\uff5cUser\uff5c>, [/INST], [INST], [gMASK]"
    assert f"sft: in 3 texts {names} is plain text: the tokenizer has no such token\n" in capfd.readouterr().err


LONG = [ASK, {"role": "assistant", "content": "abcdefghij"}]
# For these tokenizers each letter is a token, and a marker is one.


def test_long_demonstrations_are_cut_or_dropped_and_counted():
    words = chat_tokenizer("ChatML")
    [(whole, _)] = encoded(words, LONG)
    size = len(Encoded(table_of(LONG), words, CONFIG).rows[0][0])

    def cut(truncation, length):
        data = Encoded(table_of(LONG, [ASK, REPLY]), words, configured(max_length=length, truncation=truncation))
        texts = [words.decode(tokens) for tokens, _ in data.rows]
        return texts, data.truncated, data.dropped

    short = encoded(words, [ASK, REPLY])[0][0]
    for truncation in ("right", "left", "drop"):
        assert cut(truncation, size) == ([whole, short], 0, 0)
    assert cut("right", size - 4) == ([whole.removesuffix("hij<|im_end|>"), short], 1, 0)
    assert cut("left", size - 4) == ([whole.removeprefix("<|im_start|>use"), short], 1, 0)
    assert cut("drop", size - 4) == ([short], 0, 1)


def test_a_cut_demonstration_without_anything_to_learn_is_dropped():
    words = chat_tokenizer("ChatML")
    data = Encoded(table_of(LONG, "a text"), words, configured(max_length=12, truncation="right"))
    assert (data.truncated, data.dropped, data.lengths) == (0, 1, [7]), (
        "of the long one only the question would be left"
    )
    with pytest.raises(StageError) as stopped:
        Encoded(table_of(LONG, LONG), words, configured(max_length=12, truncation="drop"))
    line = "demonstrations: none of 2 is left; all are longer than sft.max_length = 12, or have nothing to learn"
    assert str(stopped.value) == line


def test_truncation_is_told_and_counted(made, tmp_path, capsys):
    metrics = tune(made, tmp_path, max_length=60, truncation="right")
    assert metrics["truncated"] + metrics["dropped"] > 10
    told = (
        f"sft: of 32 demonstrations {metrics['truncated']} were cut off at sft.max_length = 60, and "
        f"{metrics['dropped']} left out\n"
    )
    assert told in capsys.readouterr().err
    assert (
        tune(made, tmp_path / "whole", max_length=192, **FEW)["truncated"],
        capsys.readouterr().err.count("sft: of"),
    ) == (
        0,
        0,
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([REPLY], "message 1 is an assistant turn; expected a user turn or a system prompt before it"),
        ([ASK], "the conversation has no assistant turn"),
        ([ASK, {"role": "judge", "content": "x"}, REPLY], "message 2: its role is 'judge'"),
    ],
)
def test_a_conversation_that_cannot_be_laid_out_is_named(row, said):
    with pytest.raises(StageError) as stopped:
        Encoded(table_of([ASK, REPLY], row), chat_tokenizer("ChatML"), CONFIG)
    assert str(stopped.value).startswith(f"demonstrations: row 1 (own-1): {said}")
    assert "\n" not in str(stopped.value)


def test_packing_needs_a_length():
    with pytest.raises(ValidationError, match="expected a number as max_length with packing"):
        configured(packing=True)
    configured(packing=True, max_length=64)


def test_each_document_is_packed_once_an_epoch(made):
    """In rows of at most max_length tokens, in another order each epoch, and in fewer batches."""
    words = models.load_tokenizer(made / "pretrained")
    table = tables.read_table(Demonstrations, made / "demonstrations/train.parquet")
    data = Encoded(table, words, configured(packing=True, max_length=150))
    found = data.batches(4, 3, seed=0)
    assert len(found) < 3 * len(Encoded(table, words, CONFIG).batches(4, 1, seed=0)) == 3 * 15
    epochs: list[list[list[int]]] = [[]]
    for row in itertools.chain.from_iterable(found):
        if sum(map(len, epochs[-1])) == 60:
            epochs.append([])
        epochs[-1].append(row)
    assert len(epochs) == 3
    for rows in epochs:
        assert sorted(one for row in rows for one in row) == list(range(60))
        assert max(sum(data.lengths[one] for one in row) for row in rows) <= 150
    assert epochs[0] != epochs[1]
    assert found == data.batches(4, 3, seed=0) != data.batches(4, 3, seed=1)
    batch = data.batch(found[0])
    assert batch.tokens.shape[1] <= 150
    taught = [words.decode(data.rows[one][0][1:]) for one in found[0][0]]
    start, texts = 0, []
    for one in found[0][0]:
        texts.append(words.decode(batch.tokens[0][start + 1 : start + data.lengths[one]]))
        start += data.lengths[one]
    assert texts == taught


def test_packed_demonstrations_measure_and_learn_the_same(made, tuned, tmp_path):
    """Over the same held-out rows the loss is the same; the training learns as much, in fewer steps."""
    words, table, model = (
        models.load_tokenizer(made / "pretrained"),
        validation(made),
        models.load_model(made / "pretrained"),
    )
    one, packed = (
        sft.measure_held_out_loss_and_accuracy(model, batches(table, words, 3, config))
        for config in (CONFIG, configured(packing=True, max_length=150))
    )
    assert one == pytest.approx(packed, rel=1e-5)
    dense = tune(made, tmp_path, **LEARNING, packing=True, max_length=150, batch_size=3)
    assert dense["eval_loss"] == pytest.approx(tuned[0]["eval_loss"], abs=0.5)
    assert dense["eval_loss"] < one["eval_loss"] - 1


def test_packing_is_refused_where_the_model_does_not_keep_documents_apart(made, tmp_path, monkeypatch):
    monkeypatch.setattr(architectures, "NEAR", -1.0)
    with pytest.raises(StageError, match=r"pretrained: model type llama: .*expected sft\.packing false$"):
        tune(made, tmp_path, packing=True, max_length=100)
    assert not list(tmp_path.iterdir())
    tune(made, tmp_path, packing=False, max_length=100, **FEW)
