"""The documentation: each algorithm has a page, every link has a target, and the site has all pages."""

import re
from pathlib import Path

import pytest

from benchmarks.claims import COMMENT, FENCED
from tests import repository

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
PAGES = repository.files("*.md", "docs/**/*.md", "tasks/extensions/*/*.md", "benchmarks/*.md")
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(#[^)\s]+)?\)")


def test_every_algorithm_has_a_page():
    """Each module with a `fit` is linked from a page of docs/algorithms, or of its extension."""
    pages = "".join(file.read_text() for file in repository.files("docs/algorithms/*.md"))
    modules = [file for file in repository.files("tasks/algorithms/*/*.py") if "\ndef fit(" in file.read_text()]
    assert len(modules) > 12
    assert not [file for file in modules if f"](../../{file.relative_to(ROOT)})" not in pages]
    for file in repository.files("tasks/extensions/*/algorithms/*.py"):
        own_pages = "".join(page.read_text() for page in file.parents[1].glob("*.md"))
        assert "\ndef fit(" not in file.read_text() or f"](algorithms/{file.name})" in own_pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_goes_somewhere(page):
    for link, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), link
        assert not anchor or anchor[1:] in anchors(target), f"{link}{anchor}"


def test_the_site_has_every_page():
    listed = set(re.findall(r"[\w/.]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]))
    pages = {str(page.relative_to(ROOT)) for page in PAGES}
    assert pages == listed


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and MkDocs make of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", COMMENT.sub("", FENCED.sub("", page.read_text())), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
