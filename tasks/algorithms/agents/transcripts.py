"""Episodes of several turns as rows of tokens: what was observed and what the policy said, one behind the other.

A turn is an observation and the action that answers it. The policy is trained on its own tokens alone; those of the
environment are read, and masked from every loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import Body, CausalLM, Parametrised
from tasks.algorithms.language.lm_head import compute_chunked_logps, defer_large_head
from tasks.algorithms.language.sequences import SequenceBatch


@dataclass
class Transcript:
    """One episode, as it grows."""

    tokens: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # of each token: the number of its turn
    acts: list[bool] = field(default_factory=list)  # whether the policy said it
    logps: list[float] = field(default_factory=list)  # under the distribution sampled from; 0 where it did not

    def observe(self, tokens: Sequence[int], turn: int) -> None:
        """Append what the environment says at the start of a turn."""
        self._add(tokens, turn, False, [0.0] * len(tokens))

    def act(self, tokens: Sequence[int], turn: int, logps: Sequence[float]) -> None:
        """Append what the policy says in a turn."""
        self._add(tokens, turn, True, logps)

    def action(self, turn: int) -> list[int]:
        """The policy's tokens in a turn."""
        return [
            token for token, at, acts in zip(self.tokens, self.turns, self.acts, strict=True) if acts and at == turn
        ]

    def _add(self, tokens: Sequence[int], turn: int, acts: bool, logps: Sequence[float]) -> None:
        self.tokens += tokens
        self.turns += [turn] * len(tokens)
        self.acts += [acts] * len(tokens)
        self.logps += logps


@dataclass(frozen=True)
class Transcripts:
    """N transcripts of up to T tokens and K turns, padded on the right."""

    tokens: Tensor  # (N, T) long
    mask: Tensor  # (N, T) bool, True on real tokens
    acts: Tensor  # (N, T) bool, True on the policy's
    turns: Tensor  # (N, T) long, each token's turn

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def taken(self) -> Tensor:
        """Whether row n has a turn k: (N, K) bool."""
        counts = self.turns.masked_fill(~self.acts, -1).amax(1) + 1
        return torch.arange(int(counts.max()), device=counts.device) < counts.unsqueeze(1)

    @property
    def before(self) -> Tensor:
        """The place of the token before each turn's action, from which the state's value is read: (N, K) long, 0
        without a turn.
        """
        first = self.acts & ~self.acts.roll(1, dims=1)
        return self._compute_turn_positions(first) - self.taken.long()

    @property
    def last(self) -> Tensor:
        """The place of each action's last token, from which the action's value is read: (N, K) long, 0 without a
        turn.
        """
        last = self.acts.clone()
        last[:, :-1] &= ~self.acts[:, 1:]
        return self._compute_turn_positions(last)

    def on(self, model: Parametrised) -> "Transcripts":
        """The same on the model's device."""
        device = next(model.parameters()).device
        return Transcripts(*(part.to(device) for part in (self.tokens, self.mask, self.acts, self.turns)))

    def rows(self, index: Tensor) -> "Transcripts":
        """The transcripts at `index` (long), padded no further than needed."""
        width = int(self.mask[index].sum(1).max())
        return Transcripts(*(part[index, :width] for part in (self.tokens, self.mask, self.acts, self.turns)))

    def parts(self, rows: Tensor, size: int) -> Sequence[Tensor]:
        """`rows` (long) in parts of `size`, each of transcripts of similar lengths, which need little padding."""
        order = self.mask[rows].sum(1).argsort(stable=True)
        parts: Sequence[Tensor] = rows[order.to(rows.device)].split(size)
        return parts

    def batch(self) -> SequenceBatch:
        """The same for supervised learning: the policy's tokens are learned."""
        return SequenceBatch(self.tokens, self.mask, self.acts)

    def expand_to_tokens(self, values: Tensor) -> Tensor:
        """Values of turns (N, K) at each of the turns' action tokens: (N, T), zero elsewhere."""
        gathered = values.gather(1, self.turns.clamp(max=values.shape[1] - 1))
        return gathered * self.acts

    def _compute_turn_positions(self, marked: Tensor) -> Tensor:
        """Where each turn's marked token is: (N, K)."""
        positions = torch.zeros_like(self.taken, dtype=torch.long)
        rows, columns = marked.nonzero(as_tuple=True)
        positions[rows, self.turns[rows, columns]] = columns
        return positions


def make_transcripts(episodes: Sequence[Transcript], pad: int) -> Transcripts:
    """Pad episodes to one batch."""
    shape = len(episodes), max(len(episode.tokens) for episode in episodes)
    tokens = torch.full(shape, pad)
    turns = torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    acts = torch.zeros(shape, dtype=torch.bool)
    for row, episode in enumerate(episodes):
        length = len(episode.tokens)
        tokens[row, :length], turns[row, :length] = torch.tensor(episode.tokens), torch.tensor(episode.turns)
        acts[row, :length] = torch.tensor(episode.acts)
        mask[row, :length] = True
    return Transcripts(tokens, mask, acts, turns)


def stack_sampled_logps(episodes: Sequence[Transcript]) -> Tensor:
    """The log-probabilities with which the episodes were sampled: (N, T), zero where the policy did not speak."""
    logps = torch.zeros(len(episodes), max(len(episode.tokens) for episode in episodes))
    for row, episode in enumerate(episodes):
        logps[row, : len(episode.logps)] = torch.tensor(episode.logps)
    return logps


def compute_action_logps(model: CausalLM, transcripts: Transcripts, temperature: float = 1.0) -> Tensor:
    """Log-probability of each token of the policy given all that stands before it: (N, T), zero elsewhere."""
    transcripts = transcripts.on(model)
    wanted = transcripts.acts[:, 1:]
    with defer_large_head(model, wanted.numel()) as head:
        logits = model(**transcripts.batch().inputs(), use_cache=False).logits[:, :-1]
    picked = logits[wanted]
    tokens = transcripts.tokens[:, 1:][wanted]
    if head is None:
        values = torch.log_softmax(picked.float() / temperature, dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
    else:
        values, _ = compute_chunked_logps(head, picked, tokens, temperature)
    logps = values.new_zeros(wanted.shape).masked_scatter(wanted, values)
    return torch.nn.functional.pad(logps, (1, 0))


def compute_action_distributions(model: CausalLM, transcripts: Transcripts, temperature: float) -> Tensor:
    """The log-probabilities of all tokens where the policy chose one: (A, V), A being all action tokens in their order.

    Rows of the head that no token has get the least finite number, so that differences of two distributions are 0
    there.
    """
    transcripts = transcripts.on(model)
    logits = model(**transcripts.batch().inputs(), use_cache=False).logits[:, :-1]
    logps = torch.log_softmax(logits[transcripts.acts[:, 1:]].float() / temperature, dim=-1)
    return logps.clamp(min=torch.finfo(logps.dtype).min)


def compute_transcript_states(body: Body, transcripts: Transcripts) -> Tensor:
    """The hidden states of a model without its head, after each token: (N, T, D)."""
    mask = transcripts.mask.long()
    hidden_states: Tensor = body(
        input_ids=transcripts.tokens,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
    ).last_hidden_state
    return hidden_states
