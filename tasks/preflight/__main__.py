"""`python -m tasks.preflight STAGE...`: what can be known of a run before it begins. `posttrain check` starts it.

With --data only the user's files are read, which `posttrain run` does before a run that would read them. Exit code 2, with one
line on standard error, at the first thing that would make a stage fail.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.common.config import Config
from tasks.common.errors import StageError
from tasks.common.tables import Record
from tasks.preflight import data
from tasks.stage import read_section

SECTIONS = ("problems", "demonstrations", "preferences", "mixture", "responses", "evaluate", "pretrained", "sft")
TRAINING = ("reward_model", "dpo", "rejection_sft", "reinforce", "ppo", "grpo")


def configs() -> dict[str, Config]:
    """The sections of the language flow."""
    from importlib import import_module

    found = {}
    for name in (*SECTIONS, *TRAINING):
        module = import_module(f"tasks.language.configs.{name}")
        kind = getattr(module, "".join(map(str.title, name.split("_"))) + "Config")
        found[name] = read_section(name, kind)
    return found


def whole(
    given: Mapping[str, Any], stages: Sequence[str], kept: Mapping[str, list[Record]], colours: bool
) -> Iterator[str]:
    """All that can be said, a line each; most of it needs a tokenizer, which a run from scratch makes first.

    `kept` are the demonstrations and pairs of the files that were just read.
    """
    from tasks.language.data import chat, prompts
    from tasks.language.sft import encode
    from tasks.language.tables.preferences import Comparisons
    from tasks.language.tables.problems import Demonstrations
    from tasks.preflight import asked, estimates, rewards, tokens

    sampled = [section for section in data.POLICIES if section in stages]
    judged = any(name.startswith("evaluate@") for name in stages)
    mixed = asked.of_mixture(given["mixture"]) if sampled else []
    tested = asked.of_test(given["evaluate"]) if judged else []
    yield from asked.leaks(tested, asked.learned_from(kept, mixed))
    shown_to = [row for row in mixed if row["reward"] == "policy"]
    for section in sampled:
        yield from rewards.lines(section, given[section], shown_to)
    found = _tokenizer(given["pretrained"])
    if found is None:
        yield "no tokenizer yet: `posttrain run tokenizer` makes it, and then lengths and masks can be checked"
        return
    tokenizer, size, context = found
    if chat.template(tokenizer) != tokenizer.chat_template:
        yield f"the chat template writes today's date: in all stages it is {chat.TODAY:%d %b %Y}, so that outs do not vary with the day"
    lengths = [64]
    rows: dict[str, int] = {}
    if shown := kept.get("demonstrations") or asked.made(Demonstrations, "demonstrations/train"):
        yield from tokens.demonstrations(tokenizer, shown, given["sft"].max_length, context)
        example = encode(tokenizer, shown[0]["messages"], shown[0]["text"])
        lengths = [len(encode(tokenizer, row["messages"], row["text"])[0]) for row in shown[:100]]
        rows["sft"] = len(shown)
        yield f"an example, trained tokens {'in green' if colours else 'in brackets'}:"
        yield tokens.spans(tokenizer, *example).coloured(colours)
    else:
        yield "no demonstrations yet: `posttrain run demonstrations` makes them"
    yield from tokens.mixed([*map(len, prompts.encode_rows(tokenizer, mixed))], context, given, stages)
    yield from tokens.answers(tokenizer, mixed, given, [*sampled, *({"responses"} & {*stages})])
    yield from tokens.tested([*map(len, prompts.encode_rows(tokenizer, tested))], context, given["evaluate"])
    yield from tokens.answers(tokenizer, tested, given, ["evaluate"])
    pairs = kept.get("preferences") or asked.made(Comparisons, "preferences/train")
    yield from tokens.paired(tokenizer, pairs, context, given, stages)
    for section, file in (
        ("dpo", "preferences/train"),
        ("reward_model", "preferences/train"),
        ("rejection_sft", "mixture/prompts"),
    ):
        path = Path(f"data/{file}.parquet")
        rows[section] = _rows(path) if path.is_file() else 0
    if size is not None:
        yield from estimates.lines(given, stages, size, rows, round(statistics.median(lengths)))


def _tokenizer(own: Any) -> Any:
    """The tokenizer, sizes and positions of the model that the flow starts from; None where a run has to make them first."""
    from transformers import AutoConfig

    from tasks.common import model_files, models
    from tasks.language.data import chat
    from tasks.preflight.estimates import Size

    if own.init == "scratch":
        if not Path("data/tokenizer/tokenizer_config.json").is_file():
            return None
        weights = own.layers * 12 * own.width**2
        return models.load_tokenizer(Path("data/tokenizer")), Size(weights, own.layers, own.width), own.context
    source: Any = Path(own.path) if own.init == "directory" else own.hub_id
    at = {"local_files_only": True} if own.init == "directory" else {"revision": own.hub_revision}
    tokenizer = model_files.load_tokenizer(source, **at)
    tokenizer.chat_template = tokenizer.chat_template or chat.PLAIN_TEMPLATE
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **at).get_text_config()
    layers, width = (getattr(config, name, 0) for name in ("num_hidden_layers", "hidden_size"))
    size = Size(12 * layers * width**2 + config.vocab_size * width, layers, width)
    return tokenizer, size, getattr(config, "max_position_embeddings", None)


def _rows(path: Path) -> int:
    from pyarrow.parquet import ParquetFile

    count: int = ParquetFile(path).metadata.num_rows
    return count


def main() -> None:
    """Print what was found; exit code 2 with one line where something would fail."""
    parser = argparse.ArgumentParser(prog="python -m tasks.preflight", description=__doc__)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--data", action="store_true")
    arguments = parser.parse_args()
    kept: dict[str, list[Record]] = {}
    try:
        given = configs()
        for line in data.read(given, arguments.stages, kept):
            print(line, flush=True)
        if not arguments.data:
            for line in whole(given, arguments.stages, kept, sys.stdout.isatty()):
                print(line, flush=True)
    except StageError as error:
        print(json.dumps(str(error)) if arguments.data else f"posttrain: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
