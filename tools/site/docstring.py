# SPDX-License-Identifier: Apache-2.0
"""A docstring as HTML: sentences, then chapters such as `keeps` and `throws`, tables, and lines that are shown as they
stand because they are indented."""
import html
import re

import highlight
import markdown

CHAPTER = re.compile(r"^([\w:~.,<>()\[\]&*%/+-]+(?: [\w.,()<>&:-]+){0,3}?) {2,}(\S.*)$")
# A name in a sentence that is not in backquotes: two capitals, or a scope.
NAME = re.compile(r"(?<![.\w])(?:(?:[a-z_]\w*|[A-Z]\w*)::)+\w+|(?<![.\w])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b|"
                  r"\b[a-z]\w*_\w+(?=\(\))|\bdocs/[\w-]+\.md")


def is_table(lines):
    return all(line.startswith("|") for line in lines) and len(lines) > 1 and set(lines[1]) <= set("|-: ")


class Docstring:
    """`link` gives the address of a name in the reference, or None."""

    def __init__(self, link):
        self.link = link

    def sentence(self, text, thrown=False):
        """One line of text, with its names as links; of what is thrown, names of errors, too."""
        if thrown:
            text = re.sub(r"(?<![\w`:])[A-Z]\w+", lambda found: f"`{found[0]}`" if "core/error.html" in (
                self.link(found[0]) or "") else found[0], text)
        out, last = [], 0
        for found in re.finditer(r"`([^`]+)`|(\[[^\]`]+\]\([^)\s]+\))", text):
            out += [self.names(text[last:found.start()]), self.code(found[1]) if found[1] else html.escape(found[2])]
            last = found.end()
        return "".join(out) + self.names(text[last:])

    def code(self, text):
        shown = f"<code>{html.escape(text, quote=False)}</code>"
        address = self.link(text)
        return f'<a class="name" href="{address}">{shown}</a>' if address else shown

    def names(self, text):
        def linked(found):
            address = self.link(found[0])
            return f'<a class="name" href="{address}">{found[0]}</a>' if address else found[0]
        return NAME.sub(linked, html.escape(text, quote=False))

    def html(self, lines):
        """The whole docstring."""
        out, i = [], 0
        while i < len(lines):
            line = lines[i]
            if not line.strip():
                i += 1
            elif line.startswith("  "):
                end = i
                while end < len(lines) and (lines[end].startswith("  ") or not lines[end].strip()):
                    end += 1
                while not lines[end - 1].strip():
                    end -= 1
                out.append(self.shown_as_is(lines[i:end]))
                i = end
            elif CHAPTER.match(line):
                end = i + 1
                while end < len(lines) and (lines[end].startswith("  ") or CHAPTER.match(lines[end])):
                    end += 1
                out.append(self.chapters(lines[i:end]))
                i = end
            else:
                end = i + 1
                while end < len(lines) and lines[end].strip() and not lines[end].startswith("  ") \
                        and not CHAPTER.match(lines[end]):
                    end += 1
                out.append(self.prose(lines[i:end]))
                i = end
        return "\n".join(out)

    def prose(self, lines):
        if is_table(lines):
            return markdown.Page("a docstring", "\n".join(lines), name_link=self.link).html
        return f"<p>{self.sentence(' '.join(lines))}</p>"

    def shown_as_is(self, lines):
        width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        lines = [line[width:] for line in lines]
        if is_table(lines):
            return markdown.Page("a docstring", "\n".join(lines), name_link=self.link).html
        text = "\n".join(lines)
        if re.search(r"[;{}]|\w::\w|\w[<(]\w|//", text):
            return f"<pre><code>{highlight.code(text, 'cpp', self.link)}</code></pre>"
        return f"<pre><code>{self.names(text)}</code></pre>"                # columns of words

    def chapters(self, lines):
        """Lines "word   text", each with lines that are indented below it."""
        out, i = [], 0
        while i < len(lines):
            found = CHAPTER.match(lines[i])
            column = found.start(2)
            texts, below = [found[2]], []
            for i in range(i + 1, len(lines) + 1):
                if i == len(lines) or not lines[i].startswith("  "):
                    break
                at = len(lines[i]) - len(lines[i].lstrip())
                if at > column + 1 or below:                               # an example, or a table of its own
                    below.append(lines[i])
                else:
                    texts.append(lines[i].strip())
            parts = '<span class="gap"></span>'.join(
                self.sentence(part, found[1] == "throws") for part in re.split(r" {2,}", " ".join(texts)))
            out.append(f"<dt>{self.term(found[1])}</dt><dd>{parts}"
                       f"{self.shown_as_is(below) if below else ''}</dd>")
        return f"<dl>{''.join(out)}</dl>"

    def term(self, word):
        kind = "chapter" if word in ("keeps", "cost", "order", "throws", "source", "returns", "waits") else "parameter"
        return f'<span class="{kind}">{html.escape(word)}</span>'

    def first(self, lines):
        """The first sentence, as text."""
        prose = []
        for line in lines:
            if not line.strip() or line.startswith("  ") or CHAPTER.match(line):
                break
            prose.append(line.strip())
        text = " ".join(prose)
        found = re.match(r"(.+?[.:;])(?:\s+[A-Z(`]|$)", text)
        return (found[1] if found else text).rstrip(":;")
