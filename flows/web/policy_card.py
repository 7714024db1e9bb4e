"""The card of an exported offline policy: README.md with how it is called, what it earned, and all that its lineage
knows.
"""

from collections.abc import Iterator, Mapping

from flows.web.model_card import (
    Card,
    render_lineage_section,
    render_metrics_table,
    render_staleness_warning,
    render_training_section,
)

LICENSE = (
    "## License",
    "",
    "None was chosen when this folder was written. Choose one that the data that this policy was made from allow, "
    "and write it here.",
)


def render_policy_card(card: Card) -> str:
    """The card as Markdown."""
    return (
        "\n".join(
            [
                *_render_introduction(card),
                *_render_usage(card),
                *_render_returns(card),
                *render_training_section(card),
                *render_lineage_section(card),
                *LICENSE,
            ]
        )
        + "\n"
    )


def _render_introduction(card: Card) -> Iterator[str]:
    facts = card.facts
    acts = f"one of {facts['action']} actions" if facts["discrete"] else f"{facts['action']} numbers from -1 to 1"
    yield from (f"# {' '.join(card.name.split())}", "")
    yield (
        f"{card.made[-1].description or card.stage}. {facts['architecture']} with {facts['weights']:,} weights: "
        "from an observation of "
        f"{facts['observation']} numbers, as the environment gives it, to {acts}. The stage `{card.stage}` of a "
        "Posttrain pipeline made it; "
        "everything below was taken from the pipeline's own records."
    )
    yield from render_staleness_warning(card)


def _render_usage(card: Card) -> Iterator[str]:
    yield from ("", "## Use", "")
    yield "The observations' scaling is inside. Actions are greedy: the best, the most probable or the mean one."
    yield from ("", "```python", "import torch", "", 'policy = torch.jit.load("policy.pt")')
    yield f"print(policy(torch.zeros(1, {card.facts['observation']})))"
    yield from ("```", "")
    files = "TorchScript (`policy.pt`)"
    if card.facts["missing"]:
        left_out = f"ONNX was left out: {', '.join(card.facts['missing'])} are not installed where it was exported."
    else:
        yield from ("```python", "import numpy", "import onnxruntime", "")
        yield 'session = onnxruntime.InferenceSession("policy.onnx")'
        observation = f"numpy.zeros((1, {card.facts['observation']}), numpy.float32)"
        yield f'print(session.run(None, {{"observations": {observation}}})[0])'
        yield from ("```", "")
        files = f"{files} and ONNX (`policy.onnx`)"
        left_out = ""
    yield f"{files} acted as the policy does on {card.facts['checked']:,} random observations. {left_out}".rstrip()
    yield ""


def _render_returns(card: Card) -> Iterator[str]:
    yield from ("## Returns", "")
    if card.evaluation is None:
        yield from ("Its returns were not measured.", "")
        return
    yield "Means over all seeds of this variant, from whole episodes in the environment."
    yield from ("", *render_metrics_table(card.evaluation, [*card.evaluation], _get_return_meanings(card)))


def _get_return_meanings(card: Card) -> Mapping[str, str]:
    """Of the measured returns, whose stage is the one beside the training."""
    return next((texts for stage, texts in card.facts["meanings"].items() if stage != card.stage), {})
