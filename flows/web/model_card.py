"""The model card of an exported model: README.md as the Hugging Face hub shows it, with all that its lineage knows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.lineage.chain import Link

SHOWN = ("strict_greedy", "lenient_greedy", "rubric_greedy", "ended_greedy", "strict_mean_at_")  # above the others
BASE = "pretrained"  # the stage whose parameters say which model this one began from
USE = {
    "policy": """\
tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForCausalLM.from_pretrained({name})
messages = [{{"role": "user", "content": "How many apples are 2 and 3 apples?"}}]
prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answer = model.generate(**prompt, max_new_tokens=256)
print(tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))""",
    "classifier": """\
tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForSequenceClassification.from_pretrained({name})
messages = [
    {{"role": "user", "content": "How many apples are 2 and 3 apples?"}},
    {{"role": "assistant", "content": "2 + 3 = 5\\n#### 5"}},
]
tokens = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)
print(model(**tokens).logits)""",
}
USE["log_probability"] = USE["policy"].partition("messages")[0].rstrip()
AUTO = {"classifier": "AutoModelForSequenceClassification"}  # the others are AutoModelForCausalLM


@dataclass(frozen=True)
class Made:
    """One output on the way to the model: its link, what its stage does, and the parameters that it was made with."""

    link: Link
    description: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Card:
    """What the card tells. `made` ends with the model itself; `evaluation` is None where none has run on this model."""

    name: str
    stage: str
    link: Link
    facts: Mapping[str, Any]
    made: Sequence[Made]
    metrics: Mapping[str, Any]
    evaluation: Mapping[str, Any] | None
    evaluated_with: Mapping[str, Any]  # the parameters of the evaluation
    out_of_date: str | None


def render_model_card(card: Card) -> str:
    """The card as Markdown, with its head in YAML."""
    return (
        "\n".join(
            [
                *_render_yaml_head(card),
                *_render_introduction(card),
                *_render_evaluation(card),
                *render_training_section(card),
                *render_lineage_section(card),
                *LICENSE,
            ]
        )
        + "\n"
    )


LICENSE = (
    "## License",
    "",
    "None was chosen when this folder was written. Choose one that the model and the data that this one was made "
    "from allow, and add it as",
    "`license: ...` to the head of this file.",
)


def _render_yaml_head(card: Card) -> Iterator[str]:
    kind = card.facts["kind"]
    yield "---"
    yield "library_name: transformers"
    yield f"pipeline_tag: {'text-classification' if kind == 'classifier' else 'text-generation'}"
    if base := _find_base_model(card):
        yield f"base_model: {json.dumps(base)}"
    yield "tags:"
    for tag in ("posttrain", card.stage, *(["reward-model"] if kind != "policy" else [])):
        yield f"- {json.dumps(tag)}"
    yield "# license: none was chosen; add one before you upload this"
    yield from ("---", "")


def _find_base_model(card: Card) -> str:
    """The hub's name of the model that this one began from, if it came from there."""
    params = next((made.params for made in card.made if made.link.stage == BASE), {})
    return str(params[f"{BASE}.hub_id"]) if params.get(f"{BASE}.init") == "hub" else ""


def _render_introduction(card: Card) -> Iterator[str]:
    facts = card.facts
    base = _find_base_model(card)
    context = f" and a context of {facts['context']} tokens" if facts["context"] else ""
    yield from (f"# {' '.join(card.name.split())}", "")
    yield (
        f"{card.made[-1].description or card.stage}. {facts['architecture']} with {facts['weights']:,} weights in "
        f"{facts['dtype']}{context}{f', from [{base}](https://huggingface.co/{base})' if base else ''}. The stage "
        f"`{card.stage}` of a Posttrain pipeline made it; everything below was taken from the pipeline's own records."
    )
    yield from render_staleness_warning(card)
    yield from ("", "## Use", "", "```python")
    yield f"from transformers import {AUTO.get(facts['kind'], 'AutoModelForCausalLM')}, AutoTokenizer"
    yield from ("", USE[facts["kind"]].format(name=json.dumps(card.name, ensure_ascii=False)), "```", "")
    if facts["kind"] == "log_probability" and facts.get("objective"):
        part, what = ("a step", "not being bad") if facts["objective"] == "process" else ("an answer", "being right")
        yield (
            f"This language model gives {part} a probability of {what}: sigmoid({facts['beta']:g} (m + "
            f"{facts['threshold']:g})), with m "
            "the mean log-probability of its tokens, the end token included."
        )
        yield ""
    elif facts["kind"] == "log_probability":
        yield (
            f"This language model scores an answer: {facts['beta']:g} times the mean log-probability of the "
            "answer's tokens, the "
            "end token included. Only differences between scores mean something."
        )
        yield ""


def render_staleness_warning(card: Card) -> Iterator[str]:
    """That the stage is out of date, where it is."""
    if card.out_of_date:
        yield from (
            "",
            f"> **Out of date.** When this was exported, `{card.stage}` would have run again: "
            f"{card.out_of_date}. What is "
            "told below is what this model was made with.",
        )


def _render_evaluation(card: Card) -> Iterator[str]:
    if card.facts["kind"] != "policy":  # a reward model is measured by its own stage
        return
    yield from ("## Evaluation", "")
    if card.evaluation is None:
        yield from (f"`evaluate@{card.stage}` has not run on this model.", "")
        return
    meanings = card.facts["meanings"].get(f"evaluate@{card.stage}", {})
    first = [name for name in card.evaluation if name.startswith(SHOWN)]
    yield from ("Means over test problems, each with its 95 % interval over problems.", "")
    yield from render_metrics_table(card.evaluation, first, meanings)
    if rest := [name for name in card.evaluation if name not in first]:
        yield from ("<details><summary>All other measures</summary>", "")
        yield from render_metrics_table(card.evaluation, rest, meanings)
        yield from ("</details>", "")
    yield from ("Measured with:", "", "```yaml", *_format_yaml_lines(card.evaluated_with), "```", "")


def render_training_section(card: Card) -> Iterator[str]:
    """What the stage measured, and the parameters of all stages on the way."""
    yield from ("## Training", "", f"Results of `{card.stage}`:", "")
    yield from render_metrics_table(card.metrics, [*card.metrics], card.facts["meanings"].get(card.stage, {}))
    yield from ("Parameters of each stage, in the order in which they ran:", "", "```yaml")
    for made in card.made:
        if made.params:
            yield f"# {made.link.stage}: {made.description}"
            yield from _format_yaml_lines(made.params)
    yield from ("```", "")


def _format_yaml_lines(params: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in params.items())


def render_metrics_table(
    numbers: Mapping[str, Any], names: Sequence[str], meanings: Mapping[str, str]
) -> Iterator[str]:
    """A row for each number; one with an interval is a dictionary of mean, low and high."""
    yield from ("| measure | value | 95 % interval | meaning |", "|---|---|---|---|")
    for name in names:
        value = numbers[name]
        if isinstance(value, Mapping) and value.keys() >= {"mean", "low", "high"}:
            meaning = meanings.get(f"{name}/mean", "")
            interval = f"{value['low']:.4g} to {value['high']:.4g}"
            yield f"| `{_escape_table_cell(name)}` | {value['mean']:.4g} | {interval} | {_escape_table_cell(meaning)} |"
        else:
            for key, number in _iterate_leaf_numbers(value, name):
                yield f"| `{_escape_table_cell(key)}` | {number:.4g} |  | {_escape_table_cell(meanings.get(key, ''))} |"
    yield ""


def _iterate_leaf_numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _iterate_leaf_numbers(inner, f"{name}/{key}")
    else:
        yield name, value


def render_lineage_section(card: Card) -> Iterator[str]:
    """Raw data, the code's state, and every output on the way."""
    link = card.link
    raw = [made.link for made in card.made if made.link.stage is None]
    yield from ("## Data", "", "Files that no stage made, with their hashes by DVC:", "")
    for artifact in raw:
        yield f"- `{artifact.path}` {artifact.hash}"
    yield from (*([] if raw else ["No raw data: the pipeline generated all of it."]), "")
    yield from ("## Lineage", "")
    state = {None: "It is not known which files differed from it.", "no": "No file differed from it."}
    yield (
        f"`{link.path}` has the hash {link.hash}. Code: commit {link.commit or 'not recorded'}. "
        f"{state.get(link.dirty) or f'Files that differed from it: {link.dirty}.'}"
    )
    yield from ("", "| output | hash | stage | commit | differed | MLflow run |", "|---|---|---|---|---|---|")
    for made in card.made:
        artifact = made.link
        run = artifact.run_id or artifact.note
        cells = (
            f"`{artifact.path}`",
            artifact.hash,
            artifact.stage or "",
            (artifact.commit or "")[:12],
            artifact.dirty or "",
            run,
        )
        yield f"| {' | '.join(map(_escape_table_cell, cells))} |"
    yield ""


def _escape_table_cell(content: str) -> str:
    return content.replace("|", "\\|").replace("\n", " ")
