# SPDX-License-Identifier: Apache-2.0
"""Markdown as HTML: what README.md and docs/ use of GitHub's form. What it does not know is an error, with its line."""
import html
import re

import highlight

INLINE = re.compile(r"(?P<escape>\\[\\`*_{}\[\]()#+.!|<>-])|(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)|"
                    r"!\[(?P<alt>[^\]]*)\]\((?P<image>[^)\s]+)\)|"
                    r"\[(?P<text>(?:`[^`]*`|!?\[[^\]]*\]|[^\]`])*)\]\((?P<target>[^)\s]*)\)|"
                    r"<(?P<address>https?://[^>\s]+)>|\*\*(?P<bold>.+?)\*\*|"
                    r"(?<![\w*])\*(?P<stressed>[^\s*](?:[^*]*[^\s*])?)\*(?![\w*])", re.S)
ITEM = re.compile(r"^( *)([*-]|\d+\.) +")


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")


def plain(text):
    """A text without its marks, for titles and search."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\\([*|_<>\[\]])", r"\1", re.sub(r"\*\*|`", "", text)).strip()


class Page:
    """One page. `sections` are (level, anchor, title, text) for the table of contents and for search."""

    def __init__(self, name, text, link=lambda target, page: target, name_link=lambda name: None):
        self.name, self.link, self.name_link = name, link, name_link
        self.lines = text.split("\n")
        self.sections, self.anchors = [(1, "", "", [])], {}
        self.html = self.blocks(self.lines)
        self.title = next((title for level, _, title, _ in self.sections if level == 1 and title), name)

    def inline(self, text):
        out, last = [], 0
        for found in INLINE.finditer(text):
            out.append(html.escape(text[last:found.start()], quote=False))
            last = found.end()
            if found["escape"]:
                out.append(html.escape(found["escape"][1], quote=False))
            elif found["ticks"]:
                code = " ".join(found["code"].split()) if "\n" in found["code"] else found["code"].strip()
                address = self.name_link(code)
                shown = f"<code>{html.escape(code, quote=False)}</code>"
                out.append(f'<a class="name" href="{address}">{shown}</a>' if address else shown)
            elif found["image"]:
                out.append(f'<img src="{self.link(found["image"], self.name)}" alt="{html.escape(found["alt"])}">')
            elif found["text"] is not None:
                name_link, self.name_link = self.name_link, lambda name: None          # no link within a link
                target = html.escape(self.link(found["target"], self.name))
                out.append(f'<a href="{target}">{self.inline(found["text"])}</a>')
                self.name_link = name_link
            elif found["address"]:
                out.append(f'<a href="{html.escape(found["address"])}">{html.escape(found["address"])}</a>')
            elif found["bold"]:
                out.append(f"<strong>{self.inline(found['bold'])}</strong>")
            else:
                out.append(f"<em>{self.inline(found['stressed'])}</em>")
        return "".join(out) + html.escape(text[last:], quote=False)

    def heading(self, level, text):
        title, anchor = plain(text), slug(plain(text))
        seen = self.anchors.setdefault(anchor, 0)
        self.anchors[anchor] += 1
        anchor += f"-{seen}" if seen else ""
        self.sections.append((level, anchor, title, []))
        return f'<h{level} id="{anchor}">{self.inline(text)}<a class="anchor" href="#{anchor}" ' \
               f'aria-label="link to this section">#</a></h{level}>'

    def say(self, text):
        self.sections[-1][3].append(plain(text))

    def blocks(self, lines):
        out, i = [], 0
        while i < len(lines):
            line = lines[i]
            if not line.strip():
                i += 1
            elif found := re.match(r"^(`{3,}|~{3,})\s*([\w+]*)", line):
                end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == found[1])
                out.append(self.code_block("\n".join(lines[i + 1:end]), found[2]))
                i = end + 1
            elif found := re.match(r"^(#{1,6}) +(.*?)(?: +#+)?$", line):
                out.append(self.heading(len(found[1]), found[2]))
                i += 1
            elif line.startswith("<!--"):
                while "-->" not in lines[i]:
                    i += 1
                i += 1
            elif line.startswith("|"):
                end = i
                while end < len(lines) and lines[end].startswith("|"):
                    end += 1
                out.append(self.table(lines[i:end], i))
                i = end
            elif ITEM.match(line) and not line.startswith("    "):
                end = self.list_end(lines, i)
                out.append(self.list(lines[i:end]))
                i = end
            elif line.startswith("    "):
                end = i
                while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                    end += 1
                out.append(self.code_block("\n".join(part[4:] for part in lines[i:end]).rstrip(), ""))
                i = end
            elif line.startswith(("<", ">", "===")) and not re.match(r"<https?://", line):
                raise ValueError(f"{self.name}:{i + 1}: this form is not known to tools/site/markdown.py: {line[:60]}")
            else:
                end = i + 1
                while end < len(lines) and lines[end].strip() and not re.match(r"#{1,6} |```|\||<!--", lines[end]) \
                        and not re.match(r"[*-] ", lines[end]):
                    end += 1
                text = "\n".join(part.strip() for part in lines[i:end])
                self.say(text)
                out.append(f"<p>{self.inline(text)}</p>")
                i = end
        return "\n".join(out)

    def code_block(self, text, language):
        self.say(text)
        return f"<pre><code>{highlight.code(text, language, self.name_link)}\n</code></pre>"

    def list_end(self, lines, i):
        """The line after a list: items, and what is indented below them."""
        while i < len(lines):
            blank = i
            while blank < len(lines) and not lines[blank].strip():
                blank += 1
            if blank == len(lines) or not (ITEM.match(lines[blank]) or lines[blank].startswith(" ") or blank == i and
                                           not re.match(r"#|```|\|", lines[i])):
                return i
            i = blank + 1
        return i

    def list(self, lines):
        first = ITEM.match(lines[0])
        ordered, items = first[2][0].isdigit(), []
        for line in lines:
            found = ITEM.match(line)
            if found and found[1] == first[1]:
                items.append([line[found.end():]])
                width = found.end()
            else:
                items[-1].append(line[width:] if line[:width].strip() == "" else line.strip())
        shown = []
        for item in items:
            body = self.blocks(item)
            only = re.fullmatch(r"<p>((?:(?!</?p>).)*)</p>(.*)", body, re.S)   # one paragraph needs no space around it
            shown.append(f"<li>{only[1] + only[2] if only and '<p>' not in only[2] else body}</li>")
        start = f' start="{first[2][:-1]}"' if ordered and first[2] != "1." else ""
        return f"<{'ol' if ordered else 'ul'}{start}>{''.join(shown)}</{'ol' if ordered else 'ul'}>"

    def table(self, lines, at):
        def cells(line):
            parts = [""]                                                   # a | within `code` divides, as on GitHub
            for piece in re.findall(r"\\.|[^\\|]+|\||\\", line.strip().strip("|") if not line.rstrip().endswith("\\|")
                                    else line.strip().lstrip("|")):
                if piece == "|":
                    parts.append("")
                else:
                    parts[-1] += "|" if piece == "\\|" else piece
            return [part.strip() for part in parts]
        if len(lines) < 2 or not re.fullmatch(r"[|:\- ]+", lines[1]):
            raise ValueError(f"{self.name}:{at + 1}: a table without a line of dashes")
        sides = ["right" if cell.endswith(":") and not cell.startswith(":") else "center" if cell.endswith(":") else ""
                 for cell in cells(lines[1])]

        def row(line, tag):
            some = cells(line)
            some += [""] * (len(sides) - len(some))
            return "<tr>" + "".join(
                f"<{tag}{f' class={side}' if side else ''}>{self.inline(cell)}</{tag}>"
                for cell, side in zip(some, sides)) + "</tr>"
        for line in lines[:1] + lines[2:]:
            self.say(" ".join(cells(line)))
        head = row(lines[0], "th") if any(cells(lines[0])) else ""
        body = "".join(row(line, "td") for line in lines[2:])
        return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
