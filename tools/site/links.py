# SPDX-License-Identifier: Apache-2.0
"""Every link of a built site: each leads to a file that is there, and to an anchor that it has."""
import html.parser
import posixpath
import re


class Links(html.parser.HTMLParser):
    """Anchors and links of one page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id":
                self.anchors.add(value)
            elif key in ("href", "src") and value is not None:
                self.links.append(value)


def check(out):
    """(links within the site, links to elsewhere, the broken ones as text)."""
    pages = {str(path.relative_to(out)): Links(path.read_text()) for path in sorted(out.rglob("*.html"))}
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    inside, outside, broken = 0, 0, []

    def follow(page, target):
        path, _, anchor = target.partition("#")
        to = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if to not in files:
            broken.append(f"{page}: {target}: there is no {to}")
        elif anchor and to in pages and anchor not in pages[to].anchors:
            broken.append(f"{page}: {target}: {to} has no #{anchor}")
    for page, found in pages.items():
        for target in found.links:
            if re.match(r"(https?|mailto):", target):
                outside += 1
            else:
                inside += 1
                follow(page, target)
    index = (out / "search-index.js").read_text()
    for target in re.findall(r'"((?:\w[^"\\]*)?\.html(?:#[^"\\]*)?)"', index):
        inside += 1
        follow("search.html", target)
    return inside, outside, broken
