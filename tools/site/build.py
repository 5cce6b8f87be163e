# SPDX-License-Identifier: Apache-2.0
"""The whole site: pages of docs/, the reference, and the files that they name, as HTML that needs no server."""
import html
import json
import pathlib
import posixpath
import re
import shutil
import subprocess

import api
import highlight
import markdown

HERE = pathlib.Path(__file__).resolve().parent
# Pages by the first digit of their names.
GROUPS = {"0": "Start", "1": "Start", "2": "Programs", "3": "Programs", "4": "Ranks", "5": "Ranks", "6": "Further",
          "7": "Further", "8": "Further"}
SHORT = {"README.md": "Overview", "SECURITY.md": "Security"}
ENTRY = tuple[str, str, str, str, int]


def to_root(address):
    """From a page to the root of the site."""
    return "../" * address.count("/")


class Site:
    """build() writes it. `entries` are what the search knows: (title, where, address, text, weight)."""

    def __init__(self, root, out):
        self.root, self.out = root, out
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root,
                                capture_output=True, text=True, check=False)
        self.files = {name for name in listed.stdout.splitlines() if (root / name).is_file()} or {
            str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}
        self.pages = ["README.md", *sorted(name for name in self.files if re.fullmatch(r"docs/\d\d-[^/]*\.md", name)),
                      "SECURITY.md"]
        self.texts = {name: (root / name).read_text() for name in self.pages}
        said = "".join(self.texts.values()) + "".join(
            (root / name).read_text() for name in sorted(self.files) if re.fullmatch(r"examples/[^/]*\.cpp", name))
        self.reference = api.Reference(root, self.texts, said)
        self.entries: list[ENTRY] = []
        self.navs = {}                                                     # by depth of a page and open folder
        self.wanted = []                                                   # files that pages link to
        self.written = {}

    def build(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        for file in ("site.css", "site.js"):
            shutil.copy(HERE / file, self.out / file)
        titles = {name: SHORT.get(name) or markdown.plain(re.search(r"^# (.*)$", text, re.M)[1])
                  for name, text in self.texts.items()}
        groups = {"README.md": "Start", "SECURITY.md": "Further"}
        self.nav_pages = [(groups.get(name) or GROUPS[name[len("docs/")]], titles[name], self.address_of(name))
                          for name in self.pages]
        for name in self.pages:
            self.page(name)
        for name in self.reference.pages:
            self.api_page(name)
        self.api_index()
        self.search_page()
        for name in self.reference.pages:
            self.want(api.TOP + name)
        for name in self.files:
            if re.fullmatch(r"examples/[^/]*\.cpp", name):
                self.want(name)
        while self.wanted:
            self.source(self.wanted.pop())
        index = json.dumps(self.entries, ensure_ascii=False, separators=(",", ":"))
        (self.out / "search-index.js").write_text(f"window.searchIndex = {index};\n")

    def address_of(self, name):
        """Where a file of the repository is on the site."""
        if name == "README.md":
            return "index.html"
        if name in self.texts:
            return name.removesuffix(".md") + ".html"
        if name.endswith((".svg", ".png")):
            return name
        if (header := name.removeprefix(api.TOP)) in self.reference.pages and name.startswith(api.TOP):
            return self.reference.address(header)
        if not (self.root / name).exists():
            return name                                                    # the check of links says so
        return f"source/{name}" + (".html" if name in self.files else "/index.html")

    def want(self, name):
        if name not in self.written:
            self.written[name] = True
            self.wanted.append(name)

    def link(self, target, page):
        """A link of a page as one of the site; what it leads to is written, too."""
        if re.match(r"\w+:", target) or target.startswith("#"):
            return target
        path, _, anchor = target.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if name not in self.texts:
            self.want(name)
        address = self.address_of(name) + (f"#{anchor}" if anchor else "")
        return posixpath.relpath(address, posixpath.dirname(self.here) or ".")

    def page(self, name, indexed=True):
        """A page of docs, or another file of Markdown that one links to."""
        address = self.here = self.address_of(name)
        text = (self.root / name).read_text()
        root = to_root(address)

        def name_link(code):
            found = self.reference.find(code)
            return root + found if found else None
        made = markdown.Page(name, text, self.link, name_link)
        if indexed:
            for _, anchor, title, texts in made.sections:
                if anchor:
                    self.entries.append((title, "" if title == made.title else made.title,
                                         f"{address}#{anchor}", " ".join(texts), 3 if title == made.title else 2))
        toc = [(level, anchor, title) for level, anchor, title, _ in made.sections if level in (2, 3)]
        body = f"<article>{made.html}</article>" + (self.turn(address) if indexed else "")
        self.write(address, made.title, body, toc)

    def turn(self, address):
        """Links to the page before and the one after."""
        at = next(i for i, one in enumerate(self.nav_pages) if one[2] == address)
        out = []
        for way, word in ((-1, "before"), (1, "after")):
            if 0 <= at + way < len(self.nav_pages):
                _, title, to = self.nav_pages[at + way]
                out.append(f'<a class="{word}" href="{to_root(address)}{to}">{html.escape(title)}</a>')
        return f'<nav class="turn">{"".join(out)}</nav>'

    def api_page(self, name):
        address = self.here = self.reference.address(name)
        made = api.ApiPage(self.reference, name, to_root(address))
        for full, kind, anchor, text in made.entries:
            weight = 4 if name in self.reference.for_programs and "." not in anchor else 1
            self.entries.append((full, f"{kind} in {name}", f"{address}#{anchor}".rstrip("#"), text.replace("`", ""),
                                 weight))
        toc = [section for section in made.sections if section[0] <= 3]
        self.write(address, self.reference.title(name)[0], f'<article class="api">{made.html}</article>', toc)

    def by_folder(self):
        """(folder, sentence, headers that programs include, the others)."""
        for folder, sentence in api.FOLDERS.items():
            some = [name for name in self.reference.pages if (name.split("/")[0] if "/" in name else ".") == folder]
            own = [name for name in some if name in self.reference.for_programs or folder == "."]
            yield folder, sentence, own, [name for name in some if name not in own]

    def api_index(self):
        self.here = "api/index.html"
        out = ["<h1>Reference</h1><p>A page for each header. <code>#include &lt;chorale/chorale.hpp&gt;</code> has "
               "what a program needs. Below each table are the headers that only the library itself includes.</p>"]
        toc = []

        def link(name):
            titles = self.reference.title(name)
            return "".join(f'<a href="../{self.reference.address(name)}"><code>{html.escape(one)}</code></a> '
                           for one in titles[:6]) + ("…" if len(titles) > 6 else "")
        for folder, sentence, own, others in self.by_folder():
            title = folder if folder != "." else "chorale"
            toc.append((2, title, title))
            rows = "".join(f"<tr><td>{link(name)}</td><td>{html.escape(self.reference.summary(name))}</td>"
                           f"<td><code>{name.split('/', 1)[-1]}</code></td></tr>" for name in own)
            out.append(f'<h2 id="{title}">{title}</h2><p>{sentence}</p>'
                       f'<div class="wide all"><table>{rows}</table></div>')
            if others:
                out.append('<details><summary>Headers of the machinery</summary><p class="others">' + " · ".join(
                    f'<a href="../{self.reference.address(name)}">{name.split("/", 1)[-1]}</a>' for name in others) +
                    "</p></details>")
        self.entries.append(("Reference", "", "api/index.html", "all headers by folder", 2))
        self.write("api/index.html", "Reference", f'<article class="api">{"".join(out)}</article>', toc)

    def search_page(self):
        body = '<article><h1>Search</h1><div id="found"><p>The search needs JavaScript.</p></div></article>'
        self.write("search.html", "Search", body, [])

    def source(self, name):
        """A file as it is, each line with an anchor; a picture or a page of Markdown; a folder as a list."""
        if name.endswith((".svg", ".png")):
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / name, self.out / name)
            return
        if name not in self.files:
            inside = sorted(file for file in self.files if file.startswith(name + "/"))
            if not inside:
                return
            self.here = self.address_of(name)
            links = "".join(f'<li><a href="{self.link(file, "")}">{file[len(name):].lstrip("/")}</a></li>'
                            for file in inside)
            self.write(self.here, name, f"<article><h1>{name}</h1><ul>{links}</ul></article>", [])
            return
        if name.endswith(".md"):
            self.page(name, indexed=False)
            return
        path = self.root / name
        address = self.here = f"source/{name}.html"
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            text = f"({path.stat().st_size} bytes that are no text)"
        language = highlight.KIND.get(path.suffix or path.name) or ("sh" if text.startswith("#!/bin/") else
                                                                     "python" if "python" in text[:40] else "text")
        lines = highlight.lines(text.rstrip("\n"), language)
        shown = "\n".join(f'<span id="L{n}">{line}</span>' for n, line in enumerate(lines, 1))
        self.write(address, name, f'<article class="file"><h1>{name}</h1><pre><code>{shown}</code></pre></article>', [])

    def nav(self, address):
        """All pages by group; of the reference its folders, and the headers of the one that is open."""
        open_folder = None
        if address.startswith("api/") and address != "api/index.html":
            open_folder = address.split("/")[1] if address.count("/") > 1 else "."
        key = (to_root(address), open_folder, address if self.is_of_machinery(address) else "")
        if key not in self.navs:
            self.navs[key] = self.make_nav(key[0], open_folder, address)
        here = f'href="{key[0]}{address}"'
        return self.navs[key].replace(here, here + ' aria-current="page"', 1)

    def is_of_machinery(self, address):
        name = address.removeprefix("api/").removesuffix(".html") + ".hpp"
        return name in self.reference.pages and name not in self.reference.for_programs

    def make_nav(self, root, open_folder, address):
        out = []
        for group in dict.fromkeys(GROUPS.values()):
            items = "".join(self.item(root, to, title) for of, title, to in self.nav_pages if of == group)
            out.append(f"<h2>{group}</h2><ul>{items}</ul>")
        items = [self.item(root, "api/index.html", "All headers")]
        for folder, _, own, others in self.by_folder():
            title = folder if folder != "." else "chorale"
            items.append(self.item(root, f"api/index.html#{title}", title))
            if folder == open_folder:
                here = [name for name in own + others if name in own or self.reference.address(name) == address]
                here.sort(key=lambda name: self.reference.label(name).lower())
                inner = "".join(self.item(root, self.reference.address(name), self.reference.label(name))
                                for name in here)
                items.append(f"<li><ul>{inner}</ul></li>")
        out.append(f'<h2>Reference</h2><ul class="names">{"".join(items)}</ul>')
        examples = sorted(name for name in self.files if re.fullmatch(r"examples/[^/]*\.cpp", name))
        items = "".join(self.item(root, f"source/{name}.html", name.split("/")[1]) for name in examples)
        out.append(f'<h2>Examples</h2><ul class="names">{items}</ul>')
        return "".join(out)

    @staticmethod
    def item(root, to, title):
        return f'<li><a href="{root}{to}">{html.escape(title)}</a></li>'

    def write(self, address, title, body, toc):
        root = to_root(address)
        inside = "".join(f'<li class="l{level}"><a href="#{html.escape(anchor)}">{html.escape(text)}</a></li>'
                         for level, anchor, text in toc)
        aside = f'<aside><h2>On this page</h2><ul>{inside}</ul></aside>' if len(toc) > 1 else ""
        page = TEMPLATE.format(title=html.escape(title), root=root, nav=self.nav(address), body=body, aside=aside)
        path = self.out / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)


TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · chorale</title>
<link rel="stylesheet" href="{root}site.css">
<script src="{root}site.js" data-root="{root}" defer></script>
</head>
<body>
<header>
<button id="menu" aria-label="contents" aria-expanded="false">☰</button>
<a class="home" href="{root}index.html">chorale</a>
<div class="search">
<input type="search" placeholder="Search  /" aria-label="search" autocomplete="off"><div id="results" hidden></div>
</div>
<button id="theme" aria-label="light or dark">◐</button>
</header>
<div class="columns">
<nav class="contents">{nav}</nav>
<main>{body}</main>
{aside}
</div>
</body>
</html>
"""
