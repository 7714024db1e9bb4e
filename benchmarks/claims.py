"""Measured numbers on pages: `python -m benchmarks.claims` fails where one is not what its result file says.

A number that was measured stands in a block, which a function of benchmarks makes whole of one result file:

    <!-- block draws.over_draws | default_draws | dpo -->
    ..
    <!-- /block -->

is `benchmarks.draws.over_draws(result, "dpo")` of the result in benchmarks/results/default_draws.json. Every block is
made again and compared; `--write` writes them. Outside of blocks README.md, docs and the pages of benchmarks have no
number with a unit, but in code, where parameters and limits stand, and in a paragraph that ends with `<!-- quoted:
SOURCE -->`, whose numbers are other people's. Below each heading the log names the result files of an entry or says
that there is none. Result files have a hash and commits (benchmarks/result_files.py).
"""

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks import result_files

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/**/*.md", "tasks/extensions/*/*.md", "benchmarks/*.md")
LOG = "log/*.md"  # a diary, of which the blocks alone are checked
BLOCK = re.compile(r"^<!-- block (.+?) -->\n(.*?)^<!-- /block -->$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
QUOTED = re.compile(
    r"(?:^[^\n]+\n)*^[^\n]*<!-- quoted: \S.*? -->$", re.MULTILINE
)  # a paragraph and the comment that ends it
CODE = re.compile(r"``.*?``|`[^`\n]*`|\]\([^)\n]*\)")  # and the targets of links
LEVEL = re.compile(r"\b95 % (?=(?:bootstrap )?intervals?\b)")
NUMBER = r"(?<![\w.,/#:-])[-+±]?\d+(?:,\d{3})*(?:\.\d+)?"
UNIT = r"%(?!\w)|(?:percent|points?|times|(?:CPU-)?s|ms|us|min(?: \d+ s)?|h|minutes?|seconds?|hours?|nats?|[kMGT]i?B)\b"
MEASURED = re.compile(
    rf"{NUMBER} ?(?:{UNIT})|\bp [=<>]? ?0\.\d+|{NUMBER} ?(?:±|\+-) ?\d|\[{NUMBER}(?:,| to) {NUMBER}\]|\({NUMBER} "
    rf"to {NUMBER}\)"
)
SOURCED = re.compile(r"(?:Result files?: .+|No result file\b.*)")


def render_block(root: Path, call: str) -> str:
    """What the block with this call should hold."""
    function, name, *arguments = call.split(" | ")
    module, _, attribute = function.rpartition(".")
    result = result_files.load_result(root / result_files.FOLDER / f"{name}.json")
    text: str = getattr(importlib.import_module(f"benchmarks.{module}"), attribute)(result, *arguments)
    return text


def render_page_with_blocks(root: Path, page: Path) -> str:
    """A page with its blocks made again."""
    return BLOCK.sub(
        lambda block: f"<!-- block {block[1]} -->\n{render_block(root, block[1])}<!-- /block -->", page.read_text()
    )


def find_changed_blocks(root: Path, page: Path) -> Iterator[str]:
    """A line for each block of a page that is not what is made of its result file."""
    name = page.relative_to(root)
    text = page.read_text()
    blocks = BLOCK.findall(text)
    if len(blocks) != text.count("<!-- block") or len(blocks) != text.count("<!-- /block"):
        yield f"{name}: a block has no beginning or no end"
    for call, held in blocks:
        try:
            expected = render_block(root, call)
        except Exception as error:  # whatever a function stumbles over in its result is a fault of the page
            yield f"{name}: block {call} cannot be made: {type(error).__name__}: {error}"
            continue
        if held != expected:
            yield (
                f"{name}: block {call} is not what is made of its result file: "
                f"{format_first_difference(held, expected)}"
            )


def format_first_difference(held: str, expected: str) -> str:
    """The first line that differs, as it is and as it should be."""
    pairs = zip([*held.splitlines(), ""], [*expected.splitlines(), ""], strict=False)
    line, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    start = next((index for index, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), 0)
    return f"{line[max(0, start - 20) : start + 40]!r}, not {other[max(0, start - 20) : start + 40]!r}"


def find_numbers_outside_blocks(root: Path, page: Path) -> Iterator[str]:
    """A line for each number with a unit outside of blocks."""
    text = page.read_text()
    for pattern in (BLOCK, FENCED, QUOTED, COMMENT, CODE, LEVEL):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for number, line in enumerate(text.split("\n"), 1):
        for match in MEASURED.finditer(line):
            yield f"{page.relative_to(root)}:{number}: {match[0]} stands outside of a block"


def find_unsourced_log_entries(root: Path) -> Iterator[str]:
    """A line for each entry of the log that does not say where its numbers are kept, or names a file that is not
    there.
    """
    for page in sorted(root.glob(LOG)):
        for entry in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
            heading, *lines = entry.splitlines()
            name = f"{page.relative_to(root)}: {heading}"
            source = next((line for line in lines if line), "")
            if not SOURCED.fullmatch(source):
                yield f"{name}: the first line neither names a result file nor says that there is none"
            for file in re.findall(r"benchmarks/results/[\w/.-]+\.json", source):
                if not (root / file).is_file():
                    yield f"{name}: {file} is not there"


def find_claim_faults(root: Path) -> list[str]:
    """One line for each number, block, entry and result file that is not as it should be."""
    pages = [page for pattern in PAGES for page in sorted(root.glob(pattern))]
    lines = [line for page in (*pages, *sorted(root.glob(LOG))) for line in find_changed_blocks(root, page)]
    lines += [line for page in pages for line in find_numbers_outside_blocks(root, page)]
    return [*lines, *find_unsourced_log_entries(root), *result_files.find_result_file_faults(root)]


def rewrite_page_blocks(root: Path = ROOT) -> None:
    """Make the blocks of all pages again."""
    for page in [page for pattern in (LOG, *PAGES) for page in sorted(root.glob(pattern))]:
        page.write_text(render_page_with_blocks(root, page))


def main() -> None:
    """Check; with --write make the blocks again first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make all blocks again")
    if parser.parse_args().write:
        rewrite_page_blocks()
    if lines := find_claim_faults(ROOT):
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
