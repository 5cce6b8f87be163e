#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/docs builds the site: no link is broken, each page is in its contents, each docstring and public type in its
reference. Its colours have contrast. Where chromium is installed, the search finds Trainer, and pages are drawn as they
should be, on a screen and on a phone."""
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path("WORKSPACE").resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools/site"))
import headers
import links

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
failed = 0


def verdict(good, name, why=""):
    global failed
    failed += not good
    if not good and why:
        print(str(why)[:4000])
    print(f"{'PASSED' if good else 'FAILED'}: {name}")


def check_build(site):
    done = subprocess.run([ROOT / "tools/docs", "--check", "--out", site], capture_output=True, text=True, check=False)
    told = re.search(r"(\d+) pages in [\d.]+ s\n(?s:.*)^(\d+) links, 0 broken", done.stdout, re.M)
    counts = f"{told[1]} pages, {told[2]} links, 0 broken" if told else "no counts"
    verdict(done.returncode == 0 and told and int(told[1]) > 800 and int(told[2]) > 50_000,
            f"the site is built: {counts}", done.stdout + done.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdict(used.ru_utime + used.ru_stime < 30, "the site takes less than 30 s of processor time", used)
    pages = sorted(ROOT.glob("docs/*.md"))
    contents = re.search(r'<nav class="contents">.*?</nav>', (site / "index.html").read_text(), re.S)[0]
    missing = [page.name for page in pages if f'href="docs/{page.stem}.html"' not in contents]
    verdict(len(pages) > 20 and not missing, f"the contents of the start page have the {len(pages)} pages of docs/",
            missing)


def check_links_are_followed(folder):
    """The check of links itself: what leads nowhere is found."""
    (folder / "a.html").write_text('<a id="x" href="b.html#y">b</a> <a href="#x">x</a> <a href="#z">z</a> '
                                   '<img src="c.svg">')
    (folder / "b.html").write_text("<p id=here>b</p>")
    (folder / "search-index.js").write_text('[["A","","a.html#gone","",1]]')
    inside, outside, broken = links.check(folder)
    verdict((inside, outside) == (5, 0) and [text.rpartition(": ")[2] for text in broken] == [
        "b.html has no #y", "a.html has no #z", "there is no c.svg", "a.html has no #gone"],
            "a link to a file or an anchor that is not there is broken", broken)


def check_reference(site):
    lost, count = [], 0
    for file in sorted((ROOT / "include").rglob("*.hpp")):
        header = headers.Header(file.name, file.read_text())
        count += len(header.docstrings)
        bodies = [(header.line_of(one.body), header.line_of(one.end)) for one in headers.every(header.declarations)
                  if one.kind == "function" and one.body]
        lost += [f"{file}:{line}" for line in header.docstrings - header.used
                 if not any(begin <= line <= end for begin, end in bodies)]
    verdict(count > 4000 and not lost, f"the reference reads {count} docstrings, each of a declaration", lost)

    api = {str(path.relative_to(site / "api")): path.read_text() for path in (site / "api").rglob("*.html")}
    anchors = {name: set(re.findall(r'id="([^"]+)"', text)) for name, text in api.items()}
    header, wanted = "", []
    for line in (ROOT / "include/chorale/fwd.hpp").read_text().splitlines():
        named = re.search(r"// ([\w/]+)\.hpp$", line)
        header = named[1] if named else header
        if declared := re.match(r"(?:template <.*> )?(?:class|struct|enum class) (\w+);", line):
            wanted.append((f"{header}.html", declared[1]))
    missing = [f"{name} in {page}" for page, name in wanted if name not in anchors.get(page, ())]
    verdict(len(wanted) > 200 and not missing, f"the reference has the {len(wanted)} types of fwd.hpp", missing)

    trainer = api["trainer/trainer.html"]
    text = re.sub(r"<[^>]*>", "", trainer)
    verdict("Trains one model under one strategy" in text and '<span class="chapter">throws</span>' in trainer and
            "replicas_;" not in text and 'href="../../api/trainer/history.html#History"' in trainer,
            "the page of Trainer has its sentence, its chapters, links to types, and nothing private", text[:3000])
    strategy = re.sub(r"<[^>]*>", "", api["strategy/strategy.html"])
    verdict("concept Strategy =" in strategy, "a concept is shown with what it requires", strategy[:3000])
    inner = [f"{name}: {anchor}" for name, some in anchors.items() for anchor in some if re.match(r"detail\b", anchor)]
    verdict(not inner, "no section is about a namespace of details", inner)


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def check_colours(site):
    """WCAG's contrast of text, at least 4.5 to 1, in both themes."""
    css = (site / "site.css").read_text()
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r"--paper:[^}]*", css)]
    verdict(len(themes) == 3 and themes[1] == themes[2], "the dark theme is one, by the button and by the system")
    for name, theme in zip(("light", "dark"), themes):
        ratios = {}
        for text in ("ink", "quiet", "link", "keyword", "string", "number", "comment", "chapter"):
            for ground in ("paper", "raised", "mark"):
                low, high = sorted((luminance(theme[text]), luminance(theme[ground])))
                ratios[f"{text} on {ground}"] = (high + 0.05) / (low + 0.05)
        worst = min(ratios, key=ratios.get)
        verdict(ratios[worst] >= 4.5, f"the {name} theme is legible: {worst} has {ratios[worst]:.1f} to 1, 4.5 needed")


def browse(work, *arguments):
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
             "--force-device-scale-factor=1", "--allow-file-access-from-files", "--virtual-time-budget=4000",
             f"--user-data-dir={work}/browser"]
    return subprocess.run([BROWSER, *flags, *arguments], capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "HOME": str(work)})


def pixels(path):
    """(width, height, rows of (r, g, b)) of a PNG of 8 bits a channel."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    each, raw, rows = {2: 3, 6: 4}[colour], zlib.decompress(packed), []
    before, length = bytearray(width * each), width * each
    for y in range(height):
        how, line = raw[y * (length + 1)], bytearray(raw[y * (length + 1) + 1:(y + 1) * (length + 1)])
        for i in range(length):
            left, up, corner = (line[i - each], before[i], before[i - each]) if i >= each else (0, before[i], 0)
            near = left + up - corner
            line[i] = (line[i] + (0, left, up, (left + up) // 2, min(
                (left, up, corner), key=lambda one: abs(near - one)))[how]) & 255 if how else line[i]
        rows.append([tuple(line[i:i + 3]) for i in range(0, length, each)])
        before = line
    return width, height, rows


def check_pictures(site, work):
    """Each is of its size, has the theme's ground, and as much on it as a page of text has."""
    pictures = [("index.html", 1280, 420, "light"), ("api/trainer/trainer.html", 1280, 420, "dark"),
                ("index.html", 390, 600, "dark"), ("api/trainer/trainer.html", 390, 600, "light")]
    grounds = {"light": (255, 255, 255), "dark": (0x15, 0x18, 0x1d)}
    for page, width, height, theme in pictures:
        file = work / f"{width}-{theme}.png"
        run = browse(work, f"--window-size={width},{height}", f"--screenshot={file}",
                     f"file://{site}/{page}?theme={theme}")
        what = f"{page} is drawn, {width} wide, {theme}"
        if not file.exists():
            verdict(False, what, run.stderr)
            continue
        got_width, got_height, rows = pixels(file)
        counts = {}
        for row in rows:
            for one in row:
                counts[one] = counts.get(one, 0) + 1
        ground = max(counts, key=counts.get)
        inked = sum(n for colour, n in counts.items() if max(abs(a - b) for a, b in zip(colour, ground)) > 80)
        share = inked / (got_width * got_height)
        verdict((got_width, got_height) == (width, height) and ground == grounds[theme] and 0.01 < share < 0.3 and
                len(counts) > 50, f"{what}: {100 * share:.0f} % of it is text",
                f"{got_width} x {got_height}, ground {ground}, {len(counts)} colours, {share} inked")


def check_widths(site, work):
    """No page is wider than a phone: what is wide moves within itself."""
    pages = ["index.html", "docs/10-words.html", "docs/70-numbers.html", "docs/75-simulation.html", "api/index.html",
             "api/trainer/trainer.html", "api/strategy/strategy.html", "search.html?q=fit"]
    probe = site / "probe.html"
    probe.write_text("".join(f'<iframe width=390 height=800 src="{page}"></iframe>' for page in pages) + """
<pre id=out></pre>
<script>onload = () => setTimeout(() => out.textContent = [...document.querySelectorAll("iframe")].map((one) =>
    "width " + one.contentDocument.documentElement.scrollWidth).join("\\n"), 1500)</script>""")
    run = browse(work, "--window-size=1280,900", "--dump-dom", f"file://{site}/probe.html")
    probe.unlink()
    widths = list(map(int, re.findall(r"width (\d+)", run.stdout.partition("<pre")[2])))
    verdict(len(widths) == len(pages) and max(widths) <= 390, f"{len(pages)} pages fit a phone",
            f"{dict(zip(pages, widths))} {run.stderr}")


def check_search(site, work):
    index = (site / "search-index.js").read_text()
    verdict('["Trainer","class in trainer/trainer.hpp","api/trainer/trainer.html#Trainer",' in index,
            "the index of the search has Trainer")
    if BROWSER is None:
        print("SKIPPED: the search and the pictures of the site: there is no chromium. Try: apt-get install chromium")
        return
    run = browse(work, "--dump-dom", f"file://{site}/search.html?q=Trainer")
    hits = re.findall(r'<a class="hit" href="([^"]+)"><b>([^<]+)</b>', run.stdout.partition('id="found"')[2])
    verdict(hits[:1] == [("api/trainer/trainer.html#Trainer", "Trainer")] and len(hits) > 10,
            f"the search for Trainer finds its page first, of {len(hits)}", hits or run.stderr)
    run = browse(work, "--dump-dom", f"file://{site}/search.html?q=gradients+mirrored")
    verdict('class="hit"' in run.stdout.partition('id="found"')[2], "the search finds words of pages", run.stderr)
    run = browse(work, "--dump-dom", f"file://{site}/index.html")
    verdict("What cannot work does not compile" in run.stdout and 'aria-current="page"' in run.stdout,
            "the start page has its text, and is marked in the contents", run.stderr)
    check_pictures(site, work)
    check_widths(site, work)


def main():
    with tempfile.TemporaryDirectory(prefix="chorale-", dir=os.environ.get("TEST_TMPDIR")) as folder:
        work = pathlib.Path(folder)
        (work / "links").mkdir()
        check_links_are_followed(work / "links")
        site = work / "site"
        check_build(site)
        if not (site / "search-index.js").exists():
            return 1
        check_reference(site)
        check_colours(site)
        check_search(site, work)
    return 1 if failed else 0


sys.exit(main())
