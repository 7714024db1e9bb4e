"""Tables that a result file keeps as they were written down, cell by cell: results whose single values were not kept.

`{"rows": [[cell, ..], ..]}` is one table, its first row the columns; `{"page": [line, ..]}` is a page with some of
them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Table = list[list[str]]


def parse_tables(markdown: str) -> dict[str, Table]:
    """The tables of a page, each under the last heading before it."""
    tables: dict[str, Table] = {}
    heading = ""
    for line in markdown.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
            if set("".join(cells)) - {"-", ":"} or not cells:
                tables.setdefault(heading, []).append(cells)
    return tables


def table(result: Mapping[str, Any]) -> str:
    """The whole table."""
    return render_markdown_table(result["rows"])


def columns(result: Mapping[str, Any], *names: str) -> str:
    """These columns of the table, and the rows that have a value in the first of them."""
    return render_markdown_table(select_columns(result["rows"], names))


def select_columns(whole: Table, columns: Sequence[str]) -> Table:
    """These columns of a table, in this order, and the rows that have a value in the first of them."""
    kept = [0, *(whole[0].index(column, 1) for column in columns)]
    return [[row[index] for index in kept] for row in whole if row[kept[1]]]


def render_markdown_table(whole: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *body = ["|" + "|".join(f" {text} " if text else " " for text in row) + "|" for row in whole]
    return "\n".join([head, "|" + "---|" * len(whole[0]), *body]) + "\n"


def page(result: Mapping[str, Any]) -> str:
    """A page that was kept as it was written."""
    return "\n".join(result["page"]) + "\n"


def lines(result: Mapping[str, Any], heading: str, *firsts: str) -> str:
    """Of the table under a heading of a page the rows with these first cells, or all."""
    head, *body = parse_tables(page(result))[heading]
    return render_markdown_table([head, *(row for row in body if not firsts or row[0] in firsts)])
