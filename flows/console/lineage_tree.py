"""A chain of lineage as a tree in the terminal: what each output was made from, down to raw data."""

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text
from rich.tree import Tree

from flows.engine.lineage import Link


def tree(link: Link) -> Tree:
    """The output at the root, its inputs below it; a link that was shown before is only named."""
    seen: set[tuple[str, str]] = set()
    return _grown(Tree(_label(link), guide_style="dim"), link, seen)


def _grown(branch: Tree, link: Link, seen: set[tuple[str, str]]) -> Tree:
    for below in link.inputs:
        if (below.path, below.hash) in seen and below.inputs:
            branch.add(Text(f"{below.path}  {below.hash}  as above", "dim", overflow="fold"))
        else:
            seen.add((below.path, below.hash))
            _grown(branch.add(_label(below)), below, seen)
    return branch


def _label(link: Link) -> Group:
    return Group(Text.assemble((link.path, "bold"), f"  {link.hash}", overflow="fold"), *_facts(link))


def _facts(link: Link) -> Iterator[Text]:
    if link.run_id:
        made = f" at {link.made_at:%Y-%m-%d %H:%M:%S}" if link.made_at else ""
        yield Text(f"made by {link.stage}{made}, run {link.run_id}", overflow="fold")
        dirty = f", changed: {link.dirty}" if link.dirty not in (None, "no") else ""
        yield Text(f"commit {link.commit or 'none'}{dirty}", "dim", overflow="fold")
    if link.code:
        yield Text("code: " + ", ".join(f"{path} {md5[:8]}" for path, md5 in link.code.items()), "dim", overflow="fold")
    if link.params:
        yield Text(", ".join(f"{key}={value}" for key, value in link.params.items()), "dim", overflow="fold")
    if link.note:
        yield Text(link.note, "yellow" if "breaks" in link.note else "green")
