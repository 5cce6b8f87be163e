#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pages name is there: links and their headings, files in backquotes, flags of benchmarks and tools, and the names
of tests that docs/65-robustness.md and docs/38-checkpoints.md list in their tables."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path("WORKSPACE").resolve().parent
TOPS = ("docs", "test", "bench", "tools", "examples", "include", "third_party")
failed = 0


def report(rule, found):
    global failed
    failed += bool(found)
    for place in found:
        print(f"  {place}")
    print(("FAILED: " if found else "PASSED: ") + rule)


def listed():
    """The files of the repository."""
    found = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True)
    return {name for name in found.stdout.splitlines() if (ROOT / name).is_file()}


def headings(text):
    """The anchors of a page, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}


def is_there(name, page, files, folders):
    """True if a path is that of a file or folder, perhaps without the end of its name, or under include/chorale."""
    for start in ("", "include/", "include/chorale/", "include/chorale/tensor/", f"{pathlib.Path(page).parent}/"):
        path = (start + name).removeprefix("./").rstrip("/")
        if path in folders or any(path + end in files for end in ("", ".cpp", ".hpp", ".py", ".sh", ".md")):
            return True
    return False


def alternatives(name):
    """a/{b,c} as a/b and a/c."""
    some = re.search(r"\{([^}]*)\}", name)
    return [name.replace(some[0], one) for one in some[1].split(",")] if some else [name]


def main():
    if not (ROOT / ".git").exists():
        print("SKIPPED: what pages name: this is no checkout of git")
        return 0
    files = listed()
    folders = {str(parent) for name in files for parent in pathlib.Path(name).parents}
    pages = {name: (ROOT / name).read_text() for name in sorted(files)
             if name in ("README.md", "SECURITY.md") or re.fullmatch(r"docs/[^/]*\.md", name)}
    sources = "".join((ROOT / name).read_text(errors="replace") for name in sorted(files)
                      if name.startswith(("bench/", "examples/", "tools/", "test/")) and not name.endswith(
                          (".safetensors", ".svg", ".json")) and "fuzz/" not in name)
    links, heads, paths, flags, tests = [], [], [], [], []
    for page, text in pages.items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", prose):
            if target.startswith("http"):
                continue
            at = (ROOT / page).parent / target if target else ROOT / page
            if not at.exists():
                links.append(f"{page}: {target}")
            elif anchor and at.suffix == ".md" and anchor[1:] not in headings(at.read_text()):
                heads.append(f"{page}: {target}{anchor}")
        if page.endswith("80-decisions.md"):                               # has names of earlier releases
            continue
        for code in re.findall(r"`([^`\n]+)`", prose):
            words = code.split()
            if len(words) == 1 and re.fullmatch(r"[\w.{},-]+(/[\w.{},-]+)+/?", code):
                known = code.startswith(tuple(top + "/" for top in TOPS)) or re.search(r"\.(hpp|cpp|cuh|cu|py|sh)$", code)
                if known and not all(is_there(one, page, files, folders) for one in alternatives(code)):
                    paths.append(f"{page}: {code}")
            if words[0].startswith(("tools/", "bench/")):
                flags += [f"{page}: {code}" for word in words[1:] if word.startswith("--") and len(word) > 2
                          and word.partition("=")[0] not in sources]
    for page in ("docs/65-robustness.md", "docs/38-checkpoints.md"):
        for line in pages[page].splitlines():
            if line.startswith("|"):
                tests += [f"{page}: {name}" for name in re.findall(r'"([^"]+)"', line)
                          if name.rstrip(",") not in re.sub(r'"\s*"', "", sources)]
    contents, table = (ROOT / "include/chorale/fwd.hpp").read_text(), pages["docs/28-models.md"]
    unlisted = []
    for room in ("loss", "metric"):
        names = re.search(rf"^namespace {room} {{.*?^}}", contents, re.M | re.S)[0]
        unlisted += [f"docs/28-models.md: {room}::{name}" for name in re.findall(r"^(?:template <.*> )?(?:struct|class) (\w+);", names, re.M)
                     if not re.search(rf"`(?:{room}::)?{name}[`<(]", table) and name not in ("Counts",)]
    report("docs/28-models.md has every loss and metric", unlisted)
    report(f"the links of {len(pages)} pages lead to files", links)
    report("links within pages lead to headings", heads)
    report("files that pages name are there", paths)
    report("flags that pages name are known", flags)
    report("tests that pages name are there", tests)
    return 1 if failed or len(pages) < 20 else 0


sys.exit(main())
