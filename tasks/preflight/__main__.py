"""`python -m tasks.preflight STAGE...`: what can be known of a run before it begins. `posttrain check` starts it.

With --data it only reads the user's files, as `posttrain run` does before a run that reads them; --needed leaves out
files that only later runs read. Exit code 2, with one line on standard error, at the first fault that would make a
stage fail.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tasks.common.config import Config
from tasks.common.errors import StageError
from tasks.preflight import extensions, previews, trials, user_files
from tasks.preflight.data import POLICIES
from tasks.stage import PARAMS, read_section

SECTIONS = (
    "corpus",
    "problems",
    "tokenizer",
    "demonstrations",
    "preferences",
    "solutions",
    "mixture",
    "responses",
    "evaluate",
    "pretrained",
    "sft",
)
PAIRWISE = ("reward_model", "dpo")


OTHERS = {"behaviour": "offline", "transitions": "offline", "expert_episodes": "agents"}  # sections of other flows


def read_preflight_sections(params: Path = PARAMS) -> dict[str, Config]:
    """The sections that say what is read before a run."""
    from importlib import import_module

    section_configs = {}
    modules = {name: f"tasks.language.configs.{name}" for name in (*SECTIONS, *PAIRWISE, *POLICIES)}
    modules |= {
        name: f"tasks.{flow}.configs.{name}" for name, flow in OTHERS.items()
    } | extensions.map_extension_sections_to_modules()
    for name, module in modules.items():
        kind = getattr(import_module(module), "".join(map(str.title, name.split("_"))) + "Config")
        section_configs[name] = read_section(name, kind, params)
    return section_configs


def iterate_language_checks(
    section_configs: Mapping[str, Any], stages: Collection[str], colours: bool, durations: Mapping[str, str]
) -> Iterator[str]:
    """All that can be said, a line each; most of it needs a tokenizer, which a run from scratch makes first."""
    from tasks.language.data import chat
    from tasks.language.training.supervised import encode_demonstration
    from tasks.memory import sources
    from tasks.preflight import estimates, examples, model_trial, rewards, tokens

    at_work = {name.partition("@")[0] for name in stages}
    if not at_work.intersection((*SECTIONS, *PAIRWISE, *POLICIES, *extensions.map_extension_sections_to_modules())):
        return
    if section_configs["pretrained"].init != "scratch":
        yield from model_trial.iterate_model_trial_lines(section_configs["pretrained"])
    sampled = examples.load_prompt_examples(section_configs) if at_work.intersection(POLICIES) else []
    tested = examples.load_test_examples(section_configs) if "evaluate" in at_work else []
    shown = examples.load_demonstration_examples(section_configs)
    compared = examples.load_pair_examples(section_configs)
    yield from examples.iterate_test_leakage_lines(shown, compared, sampled, tested)
    for section in POLICIES:
        if section in at_work:
            yield from rewards.iterate_reward_trial_lines(section, section_configs[section], sampled)
    loaded = _load_tokenizer_and_context(section_configs["pretrained"])
    if loaded is None:
        yield "no tokenizer yet: `posttrain run tokenizer` makes it, and then lengths and masks can be checked"
        return
    tokenizer, context = loaded
    if chat.build_fixed_date_template(tokenizer) != tokenizer.chat_template:
        yield (
            f"the chat template writes today's date: in all stages it is {chat.TODAY:%d %b %Y}, so that outs do "
            "not vary with the day"
        )
    marked = f"trained tokens {'in green' if colours else 'in brackets'}"
    work: dict[str, tuple[int, float]] = {}  # section: its examples, and the tokens of a typical one
    if "sft" in at_work and shown:
        lengths, notes = tokens.measure_demonstration_lengths(tokenizer, shown, section_configs["sft"], context)
        work["sft"] = len(shown), statistics.median(lengths)
        example = encode_demonstration(
            tokenizer, shown[0]["messages"], shown[0]["text"], section_configs["sft"].learn_end
        )
        yield from notes
        yield f"an example, {marked}:"
        yield tokens.split_into_spans(tokenizer, *example).mark_trained_text(colours)
    elif "sft" in at_work:
        yield "no demonstrations yet: `posttrain run demonstrations` makes them"
    learning = [section for section in PAIRWISE if section in at_work and is_trained_on_pairs(section_configs[section])]
    for section in learning if compared else ():
        lengths, line = tokens.measure_pair_lengths(tokenizer, compared, section, section_configs[section], context)
        work[section] = len(compared), statistics.median(lengths)
        yield line
        for side, shown_pair in zip(
            ("chosen", "rejected"),
            tokens.encode_first_fitting_pair(tokenizer, compared, section_configs[section]),
            strict=False,
        ):
            yield f"{section}: an example's {side} side, {marked}: {shown_pair.mark_trained_text(colours)}"
    if learning and not compared:
        yield f"no pairs yet for {' and '.join(learning)}: `posttrain run preferences` makes them"
    for what, rows, sections in (
        ("problems", examples.load_problem_examples() if "responses" in at_work else [], ("responses",)),
        ("prompts", sampled, POLICIES),
        ("test problems", tested, ("evaluate",)),
    ):
        asking = {name: section_configs[name] for name in sections if name in at_work}
        if asking and rows:
            lengths, notes = tokens.measure_prompt_lengths(tokenizer, what, rows, asking, context)
            work |= {name: (len(rows), statistics.median(lengths)) for name in asking}
            yield from notes
    yield from estimates.iterate_cost_estimate_lines(
        section_configs, stages, sources.resolve_starting_model_shape(section_configs), work, durations
    )


def is_trained_on_pairs(config: Any) -> bool:
    """Whether a section of PAIRWISE is of a stage that learns from pairs: a reward model may learn from labels."""
    from tasks.language.configs.reward_model import SOLUTIONS

    return getattr(config, "objective", "pairs") not in SOLUTIONS


def _load_tokenizer_and_context(pretrained: Any) -> Any:
    """The tokenizer and the positions of the model that the flow starts from; None where a run has to make them
    first.
    """
    from tasks.common import model_files, models
    from tasks.language.data import chat

    if pretrained.init == "scratch":
        if not Path("data/tokenizer/tokenizer_config.json").is_file():
            return None
        return models.load_tokenizer(Path("data/tokenizer")), pretrained.context
    source: Any = Path(pretrained.path) if pretrained.init == "directory" else pretrained.hub_id
    at = {"local_files_only": True} if pretrained.init == "directory" else {"revision": pretrained.hub_revision}
    tokenizer = model_files.load_tokenizer(source, **at)
    tokenizer.chat_template = tokenizer.chat_template or chat.PLAIN_TEMPLATE
    config = model_files.load_model_config(source, **at).get_text_config()
    return tokenizer, getattr(config, "max_position_embeddings", None)


def main() -> None:
    """Print what was found; exit code 2 with one line where something would fail."""
    parser = argparse.ArgumentParser(prog="python -m tasks.preflight", description=__doc__)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--data", action="store_true")
    parser.add_argument("--needed", action="store_true")
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument(
        "--durations", type=json.loads, default={}, help="JSON: how long each stage is expected to take"
    )
    parser.add_argument(
        "--preview", action="append", default=[], help="show rows of files of this kind, and run nothing of the user's"
    )
    arguments = parser.parse_args()
    try:
        section_configs = read_preflight_sections(arguments.params)
        for line in user_files.iterate_user_file_checks(section_configs, arguments.stages, later=not arguments.needed):
            print(line, flush=True)
        colours = sys.stdout.isatty()
        checks: Iterator[str] = iter(())
        if arguments.preview:  # nothing of the user's is run
            checks = chain(
                previews.iterate_preview_lines(arguments.preview, section_configs),
                previews.iterate_memory_lines(section_configs, arguments.stages),
            )
        elif not arguments.data:
            checks = chain(
                trials.iterate_environment_trial_lines(arguments.params, arguments.stages),
                iterate_language_checks(section_configs, arguments.stages, colours, arguments.durations),
            )
        for line in checks:
            print(line, flush=True)
    except StageError as error:
        print(json.dumps(str(error)) if arguments.data else f"posttrain: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
