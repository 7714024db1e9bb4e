"""A chain of lineage in the terminal, as a tree down to raw data: one line a link, or all that is known of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import TextWrapper

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from flows.lineage.chain import Link
from flows.lineage.document import CLEAN, format_artifact_id, iterate_links, replace_control_characters
from tasks.common.source_code import NO_COMMIT

# letters of each that are shown
HASH = 8
RUN = 8
COMMIT = 7
APART = "  "


@dataclass(frozen=True)
class TreeLine:
    """One link in the tree: the guides that lead to it, its path and hash, and its columns or a remark in their
    place.
    """

    guides: str
    path: str
    hash: str
    stage: str = ""
    date: str = ""
    time: str = ""
    run: str = ""
    commit: str = ""
    code: str = ""
    remark: str = ""
    style: str = ""  # of the remark; of the path where nothing else is in the line


def format_compact_lineage(link: Link, width: int) -> list[Text]:
    """The tree with one line a link.

    Where lines are wider than `width`, what they all say, or their path says, is left out of them.
    """
    lines = list(_iterate_tree_lines(link, width))
    heading = ""
    if _compute_total_width(lines) > width:
        lines = [
            replace(line, stage="" if _is_stage_named_in_path(line.path, line.stage) else line.stage) for line in lines
        ]
    for column, word in (("commit", "commit "), ("date", "made on ")):
        distinct = {getattr(line, column) for line in lines if line.run}
        if _compute_total_width(lines) > width and len(distinct) == 1:
            lines = [replace(line, **{column: ""}) for line in lines]
            heading += f"{', ' if heading else 'every output: '}{word}{distinct.pop()}"
    made_elsewhere = {run.run_id: run.elsewhere for run in iterate_links(link) if run.elsewhere}
    if made_elsewhere:
        who = ", ".join(sorted(set(made_elsewhere.values())))
        count = len(made_elsewhere)
        heading += (
            f"{'; ' if heading else ''}{count} run{'s' * (count > 1)} made in another clone by "
            f"{replace_control_characters(who)}"
        )
    widths = _compute_column_widths(lines)
    return [*([Text(heading, "dim")] if heading else []), *(_format_tree_line(line, widths) for line in lines)]


def build_lineage_tree(link: Link) -> Tree:
    """The output at the root, its inputs below it, all that is known of each; a link that was shown before is only
    named.
    """
    seen: set[tuple[str, str]] = set()
    return _add_inputs_to_tree(Tree(_format_link_label(link), guide_style="dim"), link, seen)


def _iterate_tree_lines(link: Link, width: int) -> Iterator[TreeLine]:
    """Every link once, as near to the root as the inputs of what is above it allow; elsewhere it is only named.

    The inputs of a run stand below the first of its outputs.
    """
    placed = {format_artifact_id(link)}
    shown = set[str]()
    expanded = set[str]()
    hashes: dict[str, set[str]] = {}
    for node in iterate_links(link):
        hashes.setdefault(node.path, set()).add(node.hash)

    def called(node: Link) -> str:
        return replace_control_characters(
            node.path if len(hashes[node.path]) == 1 else f"{node.path} {node.hash[:HASH]}"
        )

    def walk(node: Link, guides: str, below: str) -> Iterator[TreeLine]:
        yield _build_tree_line(node, guides)
        shown.add(format_artifact_id(node))
        first = node.run_id not in expanded
        inputs = node.inputs if first else ()
        for line in node.accepted if first else ():
            yield TreeLine(below + ("│ " if inputs else "  "), replace_control_characters(line), "", style="yellow")
        expanded.update({node.run_id} if node.run_id else ())
        new = [inner for inner in inputs if format_artifact_id(inner) not in placed]
        placed.update(map(format_artifact_id, new))
        others = [inner for inner in inputs if inner not in new]
        for index, inner in enumerate(new):
            last = index == len(new) - 1 and not others
            yield from walk(inner, *((below + "└ ", below + "  ") if last else (below + "├ ", below + "│ ")))
        groups = {
            "as above: ": [called(inner) for inner in others if format_artifact_id(inner) in shown],
            "as below: ": [called(inner) for inner in others if format_artifact_id(inner) not in shown],
        }
        for word, names in groups.items():
            last = word == "as below: " or not groups["as below: "]
            for index, text in enumerate(_wrap_name_list(word, names, width - len(below) - 2)):
                yield TreeLine(
                    below + ("  " if last else "│ ") if index else below + ("└ " if last else "├ "),
                    text,
                    "",
                    style="dim",
                )

    return walk(link, "", "")


def _wrap_name_list(text: str, names: list[str], width: int) -> Iterator[str]:
    """The names after the text, on as many lines as they need, the later ones indented by it."""
    if names:
        wrapper = TextWrapper(
            max(width, 30), subsequent_indent=" " * len(text), break_long_words=False, break_on_hyphens=False
        )
        yield from wrapper.wrap(text + ", ".join(names))


def _build_tree_line(link: Link, guides: str) -> TreeLine:
    line = TreeLine(
        guides, replace_control_characters(link.path), link.hash[:HASH], replace_control_characters(link.stage or "")
    )
    if link.run_id is None:
        broken = link.stage is not None or "breaks" in link.note
        remark = link.note or f"folder of {len(link.inputs)} outputs"
        style = "bold red" if broken else "yellow" if link.note and link.inputs else "" if link.inputs else "green"
        return replace(line, stage="", remark=replace_control_characters(remark), style=style)
    dirty = "" if link.dirty in CLEAN or link.commit in NO_COMMIT else " dirty"
    return replace(
        line,
        date=f"{link.made_at:%Y-%m-%d}" if link.made_at else "",
        time=f"{link.made_at:%H:%M}" if link.made_at else "",
        run=replace_control_characters(link.run_id[:RUN]),
        commit=replace_control_characters((link.commit or "none")[:COMMIT]) + dirty,
        code=f"{link.code_hash[:HASH]} {len(link.code)} file{'s' * (len(link.code) > 1)}" if link.code else "",
    )


def _is_stage_named_in_path(path: str, stage: str) -> bool:
    """Whether the path says which stage made it: data/sft, data/evaluate/dpo, data/curves/sft.csv."""
    name, _, branch = stage.partition("@")
    end = path.rpartition("/")[2].partition(".")[0]
    return path == f"data/{name}/{branch}" if branch else end == name


COLUMNS = ("stage", "date", "time", "run", "commit", "code")


def _compute_column_widths(lines: list[TreeLine]) -> dict[str, int]:
    widths = {column: max(len(getattr(line, column)) for line in lines) for column in COLUMNS}
    return {"path": max(len(line.guides + line.path) for line in lines if line.hash), "hash": HASH, **widths}


def _compute_total_width(lines: list[TreeLine]) -> int:
    """Of the widest line that has columns; a remark may run over the end."""
    return sum(width + len(APART) for width in _compute_column_widths(lines).values() if width) - len(APART)


def _format_tree_line(line: TreeLine, widths: dict[str, int]) -> Text:
    text = Text.assemble((line.guides, "dim"), (line.path, "bold" if line.hash else line.style))
    if not line.hash:
        return text
    text.pad_right(widths["path"] - len(text))
    text.append(APART + line.hash)
    if line.remark:
        return text.append(APART).append(line.remark, line.style)
    for column in COLUMNS:
        if widths[column]:
            style = "yellow" if column == "commit" and line.commit.endswith("dirty") else ""
            text.append(" " if column == "time" and widths["date"] else APART)
            text.append(getattr(line, column).ljust(widths[column]), style)
    text.rstrip()
    return text


def _add_inputs_to_tree(branch: Tree, link: Link, seen: set[tuple[str, str]]) -> Tree:
    for below in link.inputs:
        if (below.path, below.hash) in seen and below.inputs:
            branch.add(
                Text(f"{replace_control_characters(below.path)}  {below.hash}  as above", "dim", overflow="fold")
            )
        else:
            seen.add((below.path, below.hash))
            _add_inputs_to_tree(branch.add(_format_link_label(below)), below, seen)
    return branch


def _format_link_label(link: Link) -> Group:
    return Group(
        Text.assemble((replace_control_characters(link.path), "bold"), f"  {link.hash}", overflow="fold"),
        *_iterate_link_details(link),
    )


def _iterate_link_details(link: Link) -> Iterator[Text]:
    if link.run_id:
        made = f" at {link.made_at:%Y-%m-%d %H:%M:%S}" if link.made_at else ""
        elsewhere = f", in another clone by {link.elsewhere}" if link.elsewhere else ""
        yield Text(
            replace_control_characters(f"made by {link.stage}{made}, run {link.run_id}{elsewhere}"), overflow="fold"
        )
        dirty = "" if link.dirty in CLEAN else f", changed: {link.dirty}"
        note = f" ({link.source_note})" if link.source_note else ""
        yield Text(replace_control_characters(f"commit {link.commit or 'none'}{dirty}{note}"), "dim", overflow="fold")
    for line in link.accepted:
        yield Text(replace_control_characters(line), "yellow", overflow="fold")
    if link.code:
        yield Text(
            "code: " + replace_control_characters(", ".join(f"{path} {md5[:8]}" for path, md5 in link.code.items())),
            "dim",
            overflow="fold",
        )
    if link.params:
        yield Text(
            replace_control_characters(", ".join(f"{key}={value}" for key, value in link.params.items())),
            "dim",
            overflow="fold",
        )
    if link.note:
        yield Text(link.note, "yellow" if "breaks" in link.note else "green")
