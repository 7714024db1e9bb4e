"""A conversation with one model: its turns, the prompt that they make, and the answer as it is sampled."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoModelForCausalLM

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import model_files, models
from tasks.common.config_faults import describe_missing_model
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, conversations

Message = dict[str, str]  # `role` and `content`
UNFINISHED = "\ufffd"  # what a decoder shows for a character of which a token is still missing
KEPT = 4  # at least 1 / KEPT of the context is kept for an answer, or --max-new-tokens if that is less


@dataclass(frozen=True)
class ChatSampling:
    """How answers are drawn; temperature 0 is greedy."""

    temperature: float
    max_new_tokens: int
    seed: int


class Conversation:
    """The turns of a person with one model. After an answer `notes` say what there is to know of it."""

    def __init__(self, name: str, model: PretrainedCausalLM, tokenizer: Tokenizer, sampling: ChatSampling) -> None:
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._ends = chat.end_tokens(model, tokenizer)
        self.system: list[Message] = []
        self.turns: list[Message] = []
        self.notes: list[str] = []
        self.single_turn = False  # whether each question is sent without the turns before it
        self._answers = 0

    def reset(self) -> None:
        """Forget all turns. The system prompt stays, and the same questions get the same answers again."""
        self.turns = []
        self.notes = []
        self._answers = 0

    def set_system(self, text: str) -> None:
        """Begin anew with this system prompt; an empty one is none.

        DataError where the chat template has no place for it.
        """
        self.check_system(text)
        self.system = [{"role": "system", "content": text}] if text else []
        self.reset()

    def check_system(self, text: str) -> None:
        """Raise DataError unless the template shows the system prompt, and not as if the user or the model had said
        it.
        """

        def rendered(role: str) -> str | None:
            messages = [{"role": role, "content": text}, {"role": "user", "content": "A question."}]
            try:
                return self.tokenizer.apply_chat_template(messages, tokenize=False)
            except Exception:  # a template raises what it likes; one without system prompts does so on purpose
                return None

        shown = rendered("system")
        if text and (shown is None or text.strip() not in shown or shown in (rendered("user"), rendered("assistant"))):
            raise DataError(f"{self.name}: its chat template has no place for a system prompt")

    def ask(self, question: str) -> Generator[str, None, None]:
        """The answer so far, each time that it has grown. What was drawn is kept as a turn, where the caller stops
        early too.

        The oldest turns are forgotten if the context has no room for them. DataError, at once, if it has none for the
        question.
        """
        self.notes = []
        if self.single_turn:
            self.turns = []
        turn = {"role": "user", "content": question}
        prompt = self._drop_turns_and_encode_prompt(turn)
        room = self.sampling.max_new_tokens if self.limit is None else self.limit - len(prompt)
        return self._answer(turn, prompt, room)

    def _answer(self, turn: Message, prompt: list[int], room: int) -> Generator[str, None, None]:
        tokens: list[int] = []
        shown = ""
        ended = False
        most = min(room, self.sampling.max_new_tokens)
        drawn = rollouts.stream_response_tokens(
            self.model,
            prompt,
            max_new_tokens=most,
            temperature=self.sampling.temperature,
            end_tokens=self._ends,
            seed=self.sampling.seed + self._answers,
        )
        try:
            for token in drawn:
                tokens.append(token)
                ended = token in self._ends
                text = chat.decode_response(self.tokenizer, tokens, ended).rstrip(UNFINISHED).rstrip()
                if len(text) > len(shown):
                    shown = text
                    yield shown
            if not ended and most < self.sampling.max_new_tokens:
                self.notes.append(f"cut off: the context of {self.limit} tokens is full")
            elif not ended:
                self.notes.append(f"cut off after {most} tokens (--max-new-tokens)")
            elif not shown:
                self.notes.append("an empty answer")
        finally:
            if tokens:
                answer = chat.decode_response(self.tokenizer, tokens, ended)
                self.turns += [turn, {"role": "assistant", "content": answer}]
                self._answers += 1

    def _drop_turns_and_encode_prompt(self, turn: Message) -> list[int]:
        """The prompt of this turn, with as many turns before it as the context has room for."""
        prompt = self._encode_messages([*self.system, *self.turns, turn])
        forgotten = 0
        if self.limit is None:
            return prompt
        kept = min(self.sampling.max_new_tokens, self.limit // KEPT)
        while len(prompt) + kept > self.limit:
            if not self.turns:
                raise DataError(
                    f"{self.name}: the question has {len(prompt)} tokens with what the chat template adds; the "
                    "context of "
                    f"{self.limit} has room for {self.limit - kept} beside an answer"
                )
            del self.turns[:2]
            forgotten += 1
            prompt = self._encode_messages([*self.system, *self.turns, turn])
        if forgotten:
            what = "the oldest turn was" if forgotten == 1 else f"the {forgotten} oldest turns were"
            self.notes.append(f"{what} forgotten: the context of {self.limit} tokens is full")
        return prompt

    def _encode_messages(self, messages: list[Message]) -> list[int]:
        """What these messages are in tokens, up to where the answer begins; special tokens in their text are plain
        text.
        """
        try:
            return conversations.encode_conversation_prompt(self.tokenizer, messages)
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from None


def start_model_conversation(folder: Path, sampling: ChatSampling) -> Conversation:
    """A conversation with the model in a folder in Hugging Face layout; DataError with one line if it cannot answer."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: {describe_missing_model(folder)}")
    if "ForSequenceClassification" in (folder / "config.json").read_text(errors="replace"):
        raise DataError(f"{folder}: a classifier, such as a reward model, does not answer; expected a language model")
    loaded: PretrainedCausalLM = model_files.load_checked_model(AutoModelForCausalLM, folder, dtype="auto")
    tokenizer = model_files.load_tokenizer(folder)
    model_files.check_tokenizer(folder, tokenizer, loaded.get_input_embeddings().num_embeddings)
    model = models.prepare_model_on_device(loaded, tokenizer)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = chat.PLAIN_TEMPLATE
    return Conversation(str(folder), model, tokenizer, sampling)
