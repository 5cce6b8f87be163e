# SPDX-License-Identifier: Apache-2.0
"""The reference: a page for each header that declares something public, and an index of them by folder."""
import collections
import html
import json
import re

import headers
import highlight
from docstring import Docstring

TOP = "include/chorale/"
# What each layer has for the library and not for a program.
OF_LAYERS = {"apply", "check", "stage", "text", "over_last_dimension"}
# As a program puts them together; the sentence is for the index.
FOLDERS = {
    ".": "What a program includes.", "trainer": "Trains, evaluates, predicts; callbacks and what a run leaves behind.",
    "strategy": "Which devices take part, and what each holds.",
    "nn": "Networks: layers, losses, metrics, and compile.",
    "optim": "Optimizers, and schedules of their rates.", "model": "What a Trainer trains, by nn::compile or by hand.",
    "data": "Datasets, stages, and readers of files.", "reduce": "How gradients are combined.",
    "transport": "How bytes travel between ranks.", "checkpoint": "Files of weights, and folders to go on from.",
    "cluster": "The tasks of a job, and how it starts.", "placement": "Which rank has what of a variable.",
    "tensor": "Variables and shapes, and the kernels of each device.", "device": "What computes.",
    "observe": "Curves, timelines and counters.", "libtorch": "Modules of libtorch as models.",
    "pjrt": "Networks on plug-ins of PJRT: TPUs.", "advice": "What a step would take, before it runs.",
    "core": "Errors, types, random numbers and threads."}


class Reference:
    """All headers. `names` is where each name is: {name: address below the site's root}."""

    def __init__(self, root, docs, said):
        """docs: pages of docs/. said: text of pages and examples; a header that they include is for programs."""
        self.docs = docs
        files = {str(file.relative_to(root / TOP)): file for file in sorted((root / TOP).rglob("*.hpp"))}
        self.headers = {name: headers.Header(name, file.read_text()) for name, file in files.items()}
        self.for_programs = self.direct(root, said)
        self.contents = {one.full for one in headers.public(self.headers["fwd.hpp"].declarations)}
        self.pages = {}
        for name, header in self.headers.items():
            shown = [one for one in headers.public(header.declarations) if one.kind != "other"]
            if re.search(r"(^|/)refused", name):                           # texts of errors
                continue
            if any(one.docs for one in shown) or header.about and "/" not in name:
                self.pages[name] = shown
        self.names = self.find_names()

    def direct(self, root, said):
        texts = said + "".join((root / TOP / name).read_text() for name in ("chorale.hpp", "processes.hpp"))
        texts += json.dumps([component.get("headers", "") for component in json.loads(
            (root / "third_party/packages.json").read_text())["components"].values()])
        found = set(re.findall(r"<chorale/([\w/]+\.hpp)>", texts))
        return found | set(re.findall(r"// ([\w/]+\.hpp)$", (root / TOP / "fwd.hpp").read_text(), re.M))

    def address(self, name):
        return "api/" + name.removesuffix(".hpp") + ".html"

    def find_names(self):
        """Full names, and those without scope that only one thing has; what programs include goes first."""
        full, short = {}, collections.defaultdict(list)
        for name in sorted(self.pages, key=lambda one: one not in self.for_programs):
            for one, anchor, documented in self.entities(self.pages[name]):
                if not documented and not one.body:
                    continue
                address = f"{self.address(name)}#{anchor}"
                full.setdefault(one.full, address)
                told_apart = name in self.for_programs or re.search(r"[a-z0-9][A-Z]", one.name)     # Net is a program's
                if one.kind in ("type", "concept", "alias", "macro") and told_apart:
                    short[one.name].append((name in self.for_programs, one.full))
                for child in one.children:
                    if child.access == "public" and child.name and child.kind in ("function", "value", "type", "alias"):
                        full.setdefault(f"{one.full}::{child.name}",
                                        f"{self.address(name)}#{anchor}.{child.name}" if child.docs else address)
        names = dict(full)
        for word, found in short.items():
            best = {one for first, one in found if first == max(first for first, _ in found)}
            if len(best) == 1:
                names.setdefault(word, full[best.pop()])
        for one, address in full.items():                                  # Trainer::fit, Cluster::from_env
            parts = one.split("::")
            if len(parts) > 2 and "::".join(parts[:-1]) in full:
                names.setdefault("::".join(parts[-2:]), address)
        return names

    def find(self, text):
        """The address of what a piece of code names: `nn::Dense<64>`, `Cluster::from_env()`, `Trainer`."""
        if text.endswith((".hpp", ".hpp>")):
            name = text.strip("<>").removeprefix("include/").removeprefix("chorale/")
            return self.address(name) if name in self.pages else None
        if text.startswith("docs/"):
            return text.removesuffix(".md") + ".html" if text in self.docs else None
        found = re.fullmatch(r"(?:chorale::)?((?:\w+::)*\w+)(<.*>)?(\(.*\)|\{.*\})?", text, re.S)
        if not found or not re.search(r"[A-Z]|::", found[1]) and not found[3]:
            return None
        return self.names.get(found[1])

    def entities(self, declarations):
        """(declaration, anchor, whether it has a section of its own)."""
        seen = collections.Counter()
        for one in declarations:
            documented = bool(one.docs)
            anchor = one.name if not documented or not seen[one.name] else f"{one.name}-{seen[one.name] + 1}"
            seen[one.name] += documented
            yield one, anchor, documented

    def title(self, name):
        """What a page is about: its types: the one with the header's own name, then those in fwd.hpp."""
        shown = [one for one in self.pages[name] if one.docs]
        types = [one.full for one in shown if one.kind in ("type", "concept")]
        some = list(dict.fromkeys(types or [one.full for one in shown]))
        own = name.rsplit("/")[-1].removesuffix(".hpp").replace("_", "")
        some.sort(key=lambda one: (one.split("::")[-1].lower() != own, one not in self.contents))
        return some or [f"<chorale/{name}>"]

    def label(self, name):
        """A name for the contents: the type that the header is named after, else the header."""
        first, stem = self.title(name)[0].split("::")[-1], name.rsplit("/")[-1].removesuffix(".hpp")
        return first if first.lower().startswith(stem.replace("_", "")) else stem

    def summary(self, name):
        docs = Docstring(lambda word: None)
        first = self.title(name)[0]
        lines = next((one.docs for one in self.pages[name] if one.docs and one.full == first), self.headers[name].about)
        return docs.first(lines)


class ApiPage:
    """The page of one header. `entries` are for the search: (name, kind, anchor, text)."""

    def __init__(self, reference, name, to_root):
        self.reference, self.name, self.header = reference, name, reference.headers[name]
        self.link = lambda word: to_root + address if (address := reference.find(word)) else None
        self.docs = Docstring(self.link)
        self.to_source = f"{to_root}source/{TOP}{name}.html"
        self.entries, self.sections = [], []
        self.html = self.render()

    def render(self):
        titles = self.reference.title(self.name)
        shown = ", ".join(titles[:3]) + (", …" if len(titles) > 3 else "")
        include = self.code(f"#include <chorale/{self.name}>")
        out = [f"<h1>{html.escape(shown)}</h1>",
               f'<pre class="include"><code>{include}</code><a href="{self.to_source}">the whole header</a></pre>']
        if self.header.about:
            out.append(self.docs.html(self.header.about))
            self.entries.append((f"<chorale/{self.name}>", "header", "", " ".join(self.header.about)))
        if not any(one.docs for one in self.reference.pages[self.name]):   # a list of headers, or of names
            return "\n".join([*out, f"<pre><code>{self.code(self.below_about())}</code></pre>"])
        rest, last = [], None
        main = lambda found: found[0].full != titles[0]                    # what the page is about goes first
        for one, anchor, documented in sorted(self.reference.entities(self.reference.pages[self.name]), key=main):
            if documented:
                out.append(self.entity(one, anchor))
                last = one.name
            elif one.name == last and one.kind == "function":              # an overload of the one above
                out.append(self.block(one))
            elif one.kind == "alias" and "=" not in self.header.text[one.begin:one.end]:
                continue                                                   # a name of elsewhere
            elif one.body or one.kind != "type":
                rest.append((one, anchor))
        if rest:
            out.append('<h2 id="also-here">Also here</h2>')
            self.sections.append((2, "also-here", "Also here"))
            taken = {anchor for _, anchor, documented in self.reference.entities(self.reference.pages[self.name])
                     if documented}
            for one, anchor in rest:
                mark = "" if anchor in taken else f' id="{html.escape(anchor)}"'
                taken.add(anchor)
                out.append(f"<div{mark}>{self.block(one)}</div>")
        return "\n".join(out)

    def below_about(self):
        """The header after its first comments."""
        lines = self.header.text.split("\n")
        last = max((n for n, line in enumerate(lines) if line.startswith("///")), default=0)
        return "\n".join(lines[last + 1:]).strip()

    def entity(self, one, anchor, outer="", level=2):
        name = f"{outer}{one.name}" if outer else one.full
        kind = one.word or one.kind
        title = name.split("::")[-1] if outer else name
        if not self.sections or self.sections[-1][2] != title:             # one for all overloads
            self.sections.append((level, anchor, title))
        self.entries.append((f"{one.full}", kind, anchor, " ".join(one.docs)))
        mark = html.escape(anchor)
        out = [f'<section><h{level} id="{mark}">{html.escape(name)} <small>{kind}</small>'
               f'<a class="anchor" href="#{mark}" aria-label="link to this section">#</a>'
               f'<a class="source" href="{self.to_source}#L{one.line}">source</a></h{level}>']
        docs = self.docs.html(one.docs)
        is_type = one.kind == "type" and not one.word.startswith("enum")
        out += [docs, self.block(one)] if is_type else [self.block(one), docs]
        if is_type:
            seen = collections.Counter()
            for child in one.children:
                if child.docs and child.access == "public" and child.name and child.kind != "other":
                    seen[child.name] += 1
                    inner = f"{anchor}.{child.name}" + (f"-{seen[child.name]}" if seen[child.name] > 1 else "")
                    out.append(self.entity(child, inner, f"{one.name}::", min(level + 1, 5)))
        return "\n".join(out) + "</section>"

    def code(self, text):
        own = set()                                                        # names of template parameters are no links
        for found in re.finditer(r"\btemplate <", text):
            try:
                head = text[found.end():headers.after_template(text, found.start()) - 1]
            except (IndexError, ValueError):
                continue
            own |= set(re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", head))
        return highlight.code(text, "cpp", lambda word: None if word in own else self.link(word))

    def block(self, one):
        text = self.synopsis(one) if one.kind == "type" and one.body else self.declared(one)
        lines = text.split("\n")
        width = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return f"<pre><code>{self.code(chr(10).join(line[width:] for line in lines))}</code></pre>"

    def indented(self, begin):
        """The spaces before a place that is the first on its line."""
        start = self.header.text.rfind("\n", 0, begin) + 1
        return self.header.text[start:begin] if self.header.text[start:begin].isspace() else ""

    def declared(self, one):
        """A declaration with the comment behind it, and without a body."""
        text = self.indented(one.begin) + self.header.text[one.begin:one.stop].rstrip()
        if one.kind == "concept" or one.kind == "macro":
            return text
        if one.stop < one.end:                                             # a body, or members that a constructor sets
            return text + ";"
        if text.count("\n") > 12 and one.kind == "value":
            text = text[:text.index("=")].rstrip() + " = ..;"
        return text + self.behind(one.end)

    def behind(self, end):
        """The comment on the rest of a line, with the lines that continue it."""
        lines = self.header.text[end:].split("\n", 30)
        found = re.match(r"\s*//(?!/)", lines[0])
        if not found:
            return ""
        taken = [lines[0]]
        for line in lines[1:]:
            if not re.match(r"\s{24,}//", line):
                break
            taken.append(line)
        return "\n".join(taken)

    def synopsis(self, one):
        """A type as it is written, but for docstrings, bodies, and what is private."""
        text = self.header.text
        if one.word.startswith("enum"):
            return text[one.begin:one.end] + self.behind(one.end)
        is_layer = any(child.name == "apply" for child in one.children)
        out, last, access = [], None, "private" if one.word == "class" else "public"
        for child in one.children:
            if child.access != "public" or child.kind == "other" or child.name == "refused" or (
                    is_layer and not child.docs and (child.name in OF_LAYERS or child.name == "Layer")):
                last = None
                continue
            if child.access != access:
                out.append(self.indented(one.begin) + " public:")
                access = child.access
            gap = last is not None and "\n\n" in text[last:child.begin]
            nested = child.kind == "type" and child.body
            if out and (gap or last is None and not out[-1].endswith(":")):
                out.append("")
            out.append(self.nested(child) if nested else self.declared(child))
            last = child.end
        head = self.indented(one.begin) + text[one.begin:one.body].rstrip()
        if not out:
            return head + " {};"
        return head + " {\n" + "\n".join(out) + f"\n{self.indented(one.begin)}}};"

    def nested(self, child):
        text = self.indented(child.begin) + self.header.text[child.begin:child.end]
        plain = not any(part.kind == "function" for part in child.children) and text.count("\n") < 16
        return text + ";" + self.behind(child.end + 1) if plain and "///" not in text else \
            self.indented(child.begin) + self.header.text[child.begin:child.body].rstrip() + " { .. };"
