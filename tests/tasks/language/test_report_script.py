"""What a browser may run of the report: its own script, which makes text of text."""

import base64
import hashlib
import re

from tests.tasks.language.test_report import home, pages

__all__ = ["home", "pages"]  # fixtures


def test_the_browser_may_run_the_pages_own_script_and_nothing_else(pages):
    _, html, _ = pages
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)[1]
    [script] = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert html.index(policy) < html.index("<script")
    script = script.replace(
        "http://www.w3.org/2000/svg", ""
    )  # the name of a kind of elements, which nothing is loaded from
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|https?:", script)
