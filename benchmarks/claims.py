"""Checks the numbers of pages against the results that they come from: `python -m benchmarks.claims` fails on a difference.

A benchmark writes its measurements to benchmarks/results/NAME.json, and benchmarks/NAME.md is what `render` makes of that file, byte
for byte. In README.md and LOG.md a comment after a sentence names the source of a number. The number in the sentence must be
the source's, rounded as it is written:

    <!-- claim: 60.3 % = seeds.json: policies / grpo / 0 / strict_mean_at_8 / mean -->
    <!-- claim: 3.8 times = max rl.md: Rollouts, tokens a second * / * / times as fast -->

A source is a file of benchmarks/results or benchmarks (a table's cell by heading, row and column; its first number counts),
then keys, where `*` stands for anything; min, max or mean chooses among several values. A table between `<!-- made: NAME.FUNCTION -->`
and `<!-- end -->` must be what FUNCTION makes of the result. In README.md and in the pages on algorithms every number with a
unit of measurement needs a claim in its paragraph, or `<!-- given: 95 % -->` if it was set and not measured, or `<!-- logged:
24 min 55 s -->` if only LOG.md has it. The rows of a table below `<!-- quoted: benchmarks/seeds.md -->` must stand
in that page. A paragraph of LOG.md that cites a page of benchmarks must have a claim, or name the commit of its numbers.
`--write` renders the pages anew.
"""

import argparse
import importlib
import json
import re
import statistics
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CLAIM = re.compile(r"<!-- claim: (?P<text>[^=]+?) = (?:(?P<of>min|max|mean) )?(?P<file>\S+): (?P<path>.+?) -->")
GIVEN = re.compile(r"<!-- (?:given|logged): (.+?) -->")
QUOTED = re.compile(r"<!-- quoted: (\S+) -->\n((?:\|.*\n?)+)")
LOGGED = re.compile(r"<!-- logged: (.+?) -->")
MADE = re.compile(r"(<!-- made: (\w+)\.(\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
QUANTITY = re.compile(
    r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)? ?(?:%|points\b|times\b|ms\b|s\b|min(?: \d+ s)?\b|minutes\b|seconds\b)(?![A-Z])"
)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
BACKED = ("README.md", "docs/why.md", "docs/algorithms/*.md")  # pages on which every measured number has a source
PICK: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "mean": statistics.mean}


def tables(markdown: str) -> dict[str, Any]:
    """The tables of a page: (heading, row, column) -> the cell's first number."""
    found: dict[str, Any] = {}
    heading, columns = "", None
    for line in markdown.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if columns is None:
            columns = cells[1:]
            continue
        for column, cell in zip(columns, cells[1:], strict=False):
            if number := NUMBER.search(cell):
                row = found.setdefault(heading, {}).setdefault(cells[0], {})
                row.setdefault(column, float(number[0].replace(",", "")))
    return found


def values(tree: Any, path: list[str]) -> Iterator[float]:
    """The numbers at `path`, whose keys may hold `*`; the keys of a list are its indices."""
    if not path:
        if isinstance(tree, int | float):
            yield float(tree)
        return
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, branch in branches:
        if fnmatchcase(str(key), path[0]):
            yield from values(branch, path[1:])


def measured(root: Path, of: str | None, file: str, path: str) -> float:
    """The value of a source; ValueError in one line if there is none, or several and none is chosen."""
    place = root / "benchmarks" / ("results" if file.endswith(".json") else "") / file
    if not place.is_file():
        raise ValueError(f"{place.relative_to(root)} is not there")
    tree = json.loads(place.read_text()) if file.endswith(".json") else tables(place.read_text())
    found = list(values(tree, path.split(" / ")))
    if not found or (of is None and len(found) > 1):
        raise ValueError(f"{file} has {len(found)} values at {path}")
    return PICK[of](found) if of else found[0]


def agrees(text: str, value: float) -> bool:
    """Whether `text`, such as `60.3 %`, `10 min 39 s` or `1,578`, is `value` rounded to its digits; times have values in seconds."""
    parts = NUMBER.findall(text)
    if len(parts) == 2 and "min" in text:
        return int(parts[0]) * 60 + int(parts[1]) == round(value)
    if len(parts) != 1:
        return False
    scale = 100 if "%" in text or "points" in text else 1 / 60 if "min" in text else 1
    plain = parts[0].replace(",", "")
    decimals = len(plain.partition(".")[2])
    return abs(value * scale - float(plain)) <= 0.5 * 10**-decimals + 1e-9


def wrong_claims(root: Path, page: str) -> Iterator[str]:
    """A line for each claim of a page that disagrees with its source or its sentence."""
    for paragraph in paragraphs(root, page):
        plain = COMMENT.sub("", paragraph)
        for claim in CLAIM.finditer(paragraph):
            if not re.search(rf"(?<![\w.,]){re.escape(claim['text'])}(?![\w%])", plain):
                yield f"{page}: {claim['text']} is claimed and not said"
            try:
                value = measured(root, claim["of"], claim["file"], claim["path"])
            except ValueError as error:
                yield f"{page}: {claim['text']}: {error}"
                continue
            if not agrees(claim["text"], value):
                yield f"{page}: {claim['text']}, but {claim['file']} says {value:.6g} at {claim['path']}"
        if paragraph.count("<!-- claim:") != len(CLAIM.findall(paragraph)):
            yield f"{page}: a claim cannot be read: {paragraph[paragraph.find('<!-- claim:') :][:100]}"


def unbacked(root: Path, page: str) -> Iterator[str]:
    """A line for each number with a unit that has no claim or other source in its paragraph."""
    for paragraph in paragraphs(root, page):
        if QUOTED.match(paragraph):
            continue
        backed = [claim["text"] for claim in CLAIM.finditer(paragraph)]
        backed += [text.strip() for given in GIVEN.findall(paragraph) for text in given.split(";")]
        for quantity in QUANTITY.findall(COMMENT.sub("", paragraph)):
            if quantity not in backed:
                yield f"{page}: nothing backs {quantity}: {' '.join(COMMENT.sub('', paragraph).split())[:60]}"


def misquoted(root: Path, page: str) -> Iterator[str]:
    """A line for each quoted row or logged text that is missing in its source or its own paragraph."""
    for source, table in QUOTED.findall((root / page).read_text()):
        there = (root / source).read_text().splitlines() if (root / source).is_file() else []
        rows = [row for row in table.splitlines() if set(row) - {*"|- "} and row not in there]
        yield from (f"{page}: {source} has no line {row}" for row in rows)
    log = (root / "LOG.md").read_text()
    for paragraph in paragraphs(root, page):
        plain = COMMENT.sub("", paragraph)
        for text in (text for entry in LOGGED.findall(paragraph) for text in entry.split("; ")):
            if text not in log:
                yield f"{page}: {text} is not in LOG.md"
            elif text not in plain:
                yield f"{page}: {text} is logged and not said"


def uncertain(root: Path) -> Iterator[str]:
    """A line for each paragraph of the log that cites a benchmark's page but has neither claim nor commit; such pages change."""
    for paragraph in paragraphs(root, "LOG.md"):
        cited = re.search(r"benchmarks/\w+\.md", COMMENT.sub("", paragraph))
        if cited and not CLAIM.search(paragraph) and not re.search(r"commit [0-9a-f]{7}", paragraph):
            yield f"LOG.md: cites {cited[0]} without a claim or a commit: {' '.join(paragraph.split())[:60]}"


def paragraphs(root: Path, page: str) -> list[str]:
    """A page's paragraphs, tables and items, without code and rendered tables."""
    return re.split(r"\n\s*\n", MADE.sub("", FENCED.sub("", (root / page).read_text())))


def rendered(root: Path) -> dict[Path, str]:
    """Every page that is made of results, wholly or in part, with the text that it should have."""
    pages: dict[Path, str] = {}
    for result in sorted((root / "benchmarks/results").glob("*.json")):
        module = importlib.import_module(f"benchmarks.{result.stem}")
        pages[result.parents[1] / f"{result.stem}.md"] = module.render(json.loads(result.read_text()))

    def made(block: re.Match[str]) -> str:
        result = root / f"benchmarks/results/{block[2]}.json"
        if not result.is_file():
            raise SystemExit(f"README.md: {result.relative_to(root)} is not there")
        table = getattr(importlib.import_module(f"benchmarks.{block[2]}"), block[3])
        return block[1] + table(json.loads(result.read_text())) + block[5]

    pages[root / "README.md"] = MADE.sub(made, (root / "README.md").read_text())
    return pages


def faults(root: Path) -> list[str]:
    """One line for each difference from the results."""
    changed = [
        f"{page.relative_to(root)}: not what is made of its result"
        for page, text in rendered(root).items()
        if not page.is_file() or page.read_text() != text
    ]
    pages = [file.relative_to(root).as_posix() for pattern in BACKED for file in sorted(root.glob(pattern))]
    claims = [fault for page in (*pages, "LOG.md") for fault in wrong_claims(root, page)]
    sources = [fault for page in pages for find in (misquoted, unbacked) for fault in find(root, page)]
    return [*changed, *claims, *sources, *uncertain(root)]


def main() -> None:
    """Check; with --write render anew first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--write", action="store_true", help="render the pages and tables that are made of results")
    if parser.parse_args().write:
        for page, text in rendered(ROOT).items():
            page.write_text(text)
    if found := faults(ROOT):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
