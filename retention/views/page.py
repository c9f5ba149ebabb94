"""Pages of reports: one HTML file, light or dark as its reader prefers, without scripts, fonts or requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape as html_escape

from retention.core.display import readable_instant
from retention.errors.printable import visible
from retention.plots.wording import short_name

LONGEST = 120
"""The characters of a name that a page shows; the middle of a longer one is cut."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """\
:root{color-scheme:light dark;--ink:#1f2328;--muted:#59636e;--line:#d1d9e0;--page:#fff;--card:#f6f8fa;
--bad:#b42318;--good:#1a7f37}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--muted:#9198a1;--line:#3d444d;--page:#0d1117;--card:#151b23;
--bad:#ff7b72;--good:#57c26b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:66rem;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem}
h2{font-size:1.25rem;margin:2.5rem 0 .4rem;padding-top:1rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.4rem 0}ul{margin:.4rem 0;padding-left:1.2rem}a{color:inherit}
.muted{color:var(--muted)}.bad{color:var(--bad);font-weight:600}.good{color:var(--good)}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--card);
border:1px solid var(--line);border-radius:4px;padding:.05em .3em}
.numbers{display:flex;flex-wrap:wrap;gap:.6rem;margin:.8rem 0}
.numbers div{flex:1 1 8.5rem;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem .8rem}
.numbers b{display:block;font-size:1.3rem;font-weight:600;line-height:1.3;white-space:nowrap}
.pictures{display:flex;flex-wrap:wrap;gap:1.5rem}
.pictures figure{flex:1 1 20rem;margin:.5rem 0;max-width:40rem}
.retention-picture{color:var(--ink)}
table{border-collapse:collapse;width:100%;margin:.4rem 0}
table.pair{width:auto;min-width:min(32rem,100%)}
th{text-align:left;font-weight:600;color:var(--muted);font-size:.85rem;white-space:nowrap}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th:last-child,td:last-child{padding-right:0}
td:first-child{min-width:7rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--muted)}
.once{white-space:nowrap}
@media (max-width:40rem){
body{padding:1rem}h1{font-size:1.3rem}.numbers div{flex-basis:6.5rem;padding:.4rem .6rem}
.rows thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.rows tr{display:block;padding:.5rem 0;border-bottom:1px solid var(--line)}
.rows td{display:flex;justify-content:space-between;gap:1rem;text-align:right;white-space:normal;border:0;
padding:.1rem 0}
.rows td::before{content:attr(data-name);color:var(--muted);flex:none;text-align:left;font-weight:400}
.rows td:empty{display:none}.rows td:first-child{font-weight:600}
}
@media print{:root{--ink:#000;--muted:#444;--line:#bbb;--page:#fff;--card:#fff}
body{max-width:none;padding:0;font-size:11px}
.pictures figure{max-width:45%;break-inside:avoid}details::details-content{content-visibility:visible;block-size:auto}
summary{display:none}tr,.numbers{break-inside:avoid}h2,h3{break-after:avoid}}
"""
_PAIR = 2
"""The columns of a table that stays one on a narrow display."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(content: str, longest: int | None = None) -> Html:
    """Text as HTML, in which no name is markup, controls a display or reorders a line.

    Args:
        content: any text.
        longest: the characters after which its middle is cut; None: it is shown whole.
    """
    if isinstance(content, Html):
        return content
    shown = visible(content) if longest is None else short_name(content, longest)
    return Html(html_escape(shown.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")))


def name(content: str) -> Html:
    """The name of a stream, subject or consumer, of any length."""
    return text(content, LONGEST)


def code(content: str) -> Html:
    """A command to copy."""
    return Html(f"<code>{text(content)}</code>")


def instant(ns: int) -> Html:
    """An instant to the second, in one line."""
    return Html(f'<span class="once">{readable_instant(ns)}</span>')


def sentence(content: str) -> Html:
    """A sentence, its commands between backticks as such."""
    parts = content.split("`")
    if len(parts) % 2 == 0:
        return text(content)
    return Html("".join(code(part) if at % 2 else text(part) for at, part in enumerate(parts)))


def muted(content: str) -> Html:
    """A sentence of less weight."""
    return Html(f'<p class="muted">{sentence(content)}</p>')


def items(contents: Iterable[str]) -> Html:
    """A list of sentences; empty without any."""
    lines = "".join(f"<li>{sentence(content)}</li>" for content in contents)
    return Html(f"<ul>{lines}</ul>" if lines else "")


def numbers(pairs: Iterable[tuple[str, str]]) -> Html:
    """The main numbers, each over its name."""
    boxes = "".join(
        f'<div><b>{text(value)}</b><span class="muted">{text(label)}</span></div>'
        for value, label in pairs
    )
    return Html(f'<div class="numbers">{boxes}</div>')


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> Iterator[Html]:
    """A table, row by row; on a narrow display each row is a list of its cells with their names.

    Args:
        head: the names of the columns.
        rows: a cell for each; text, or `Html`.
        right: columns of numbers.
    """
    sides = [' class="n"' if column in right else "" for column in head]
    cells = "".join(
        f"<th{side}>{text(column)}</th>" for side, column in zip(sides, head, strict=True)
    )
    kind = "rows" if len(head) > _PAIR else "pair"
    yield Html(f'<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>\n')
    names = [html_escape(column) for column in head]
    for row in rows:
        shown = "".join(
            f'<td{side} data-name="{column}">{text(cell)}</td>'
            for side, column, cell in zip(sides, names, row, strict=True)
        )
        yield Html(f"<tr>{shown}</tr>\n")
    yield Html("</tbody></table>\n")


def folded(title: str, content: Iterable[str]) -> Iterator[str]:
    """Content that a reader unfolds; printed, it is unfolded."""
    yield f"<details><summary>{text(title)}</summary>\n"
    yield from content
    yield "</details>\n"


def page(kind: str, title: str, body: Iterable[str]) -> Iterator[str]:
    """A whole page in pieces.

    Args:
        kind: the kind of its file, which its first line names.
        title: its title, plain text.
        body: its content, as HTML.
    """
    yield f'<!doctype html>\n<html lang="en" data-kind="{html_escape(kind)}">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{text(title)}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n"
    yield from body
    yield "</body>\n</html>\n"


def begins_with(kind: str) -> str:
    """The regular expression of the beginning of a page of a kind."""
    return rf'<!doctype html>\s*<html lang="en" data-kind="{kind}"'
