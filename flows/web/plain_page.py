"""A self-contained page for a reader: its style, and a policy by which it may load and run nothing."""

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #666; --line: #ddd; --paper: #fff; --up: #1f8a3b; --down: #b0522a; --sure: #2a6fc9; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.1rem 4rem; max-width: 58rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .6rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.4rem 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
.lead { font-size: 1.1rem; }
.note { color: var(--soft); font-size: .88rem; }
.warning { border-left: 3px solid var(--down); padding: .1rem 0 .1rem .9rem; font-size: .92rem; }
.holds, .fails { font-size: .92rem; } .holds b { color: var(--up); } .fails b { color: var(--down); }
.wide { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: .82rem; line-height: 1.35; margin: .6rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
.numbers th, .numbers td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.numbers th:first-child { text-align: left; } th { font-weight: 500; } thead th { font-weight: 600; border-color: var(--soft); }
.stages td { overflow-wrap: anywhere; }
details { margin: .6rem 0; } summary { cursor: pointer; font-size: .88rem; color: var(--soft); }
.flip { margin: 1.1rem 0 1.6rem; break-inside: avoid; }
.answers { display: grid; align-items: start; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .7rem; margin: .5rem 0; }
.answer { border: 1px solid var(--line); border-radius: 4px; padding: .4rem .7rem .5rem; min-width: 0; }
.answer header { font-size: .8rem; display: flex; justify-content: space-between; gap: .5rem; }
.right { color: var(--up); } .wrong { color: var(--down); }
pre { margin: .3rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; font: .8rem/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --soft: #9a9a9a; --line: #3a3a3a; --paper: #161616; --up: #5cc77a; --down: #e59266; --sure: #79aef0; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } }
"""  # noqa: E501
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # no script, no picture, no address


def render_html_page(title: str, body: str, style: str = "") -> str:
    """The page as HTML; `body` is HTML, in which whatever people or models wrote is escaped already."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}</body>
</html>
"""
