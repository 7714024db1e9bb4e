"""The pages of docs/parameters and docs/metrics: one for each stage, and an index grouped by flow and extension."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INDEX = "README.md"
NOTE = "<!-- written by `make contract` -->"


@dataclass(frozen=True)
class DocumentedStage:
    """What dvc.yaml says of a stage.

    `branches` has the section and the key of params.yaml whose entries the stage runs for, such as `branches`, `cql`;
    None for a stage that runs once.
    """

    purpose: str
    module: str
    branches: tuple[str, str] | None


def replace_reference_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages by their names, and delete the other pages of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.md"):
        if file.name not in pages:
            file.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text)


def render_index_lines(stages: Mapping[str, DocumentedStage]) -> list[str]:
    """A heading for each flow and then for each extension, with a link to each of its stages."""
    lines = []
    for heading, names in _group_stages_by_package(stages).items():
        lines += ["", f"## {heading}", ""]
        lines += [f"- [{name}]({name}.md): {stages[name].purpose}." for name in names]
    return lines


def _group_stages_by_package(stages: Mapping[str, DocumentedStage]) -> dict[str, list[str]]:
    """Heading -> names of stages. A module is tasks.FLOW.STAGE or tasks.extensions.NAME.STAGE."""
    flows: dict[str, list[str]] = {}
    extensions: dict[str, list[str]] = {}
    for name, stage in stages.items():
        _, *packages, _ = stage.module.split(".")
        if packages[0] == "extensions":
            extensions.setdefault(f"Extension {packages[1]}", []).append(name)
        else:
            flows.setdefault(f"{packages[0].capitalize()} flow", []).append(name)
    return flows | extensions


def render_reference_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, without the columns that are empty in every row."""
    used = [column for column, _ in enumerate(header) if any(row[column] for row in rows)]
    lines = [_render_table_row(header, used), f"|{'---|' * len(used)}"]
    return lines + [_render_table_row(row, used) for row in rows]


def _render_table_row(cells: Sequence[str], columns: Sequence[int]) -> str:
    escaped = [cells[column].replace("|", "\\|") for column in columns]
    return f"| {' | '.join(escaped)} |"
