#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""code_blocks_test.py [PAGE..]: compiles every block of C++ in README.md and docs/*.md, and links the programs.

The line before a block is a comment that says what it is; a block without one fails:

  <!-- name -->               compiles as it stands, after the beginning of its page if there is one
  <!-- name (beginning) -->   what the page says that its other blocks begin with
  <!-- name (fragment) -->    the same, but what stands inside a function
  <!-- excerpt of FILE -->    lines of a file that is compiled, test/docs/excerpts.cpp or an example; `// ..` stands for
                              other lines, and only spaces and comments may differ

All are compiled as one program, each in a namespace; the compiler's errors name the page and its line. Programs, those
with `main`, are linked as one, with the libraries that README.md names. A namespace hides what a reader's file, which has
none, would meet: so no block may declare a name of namespace chorale; and with CHORALE_SLOW each is compiled as a file of
its own, too, with its own includes. A block with a module of libtorch is compiled, where libtorch is, by //test/libtorch.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, "test/support")
from compilers import FLAGS, installed, precompiled, run_compiler                 # pylint: disable=wrong-import-position

BLOCK = re.compile(r"(?:^<!-- (?P<name>[^\n]+?) -->\n)?^```(?:cpp|c\+\+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
MAIN = re.compile(r"^int main\(", re.MULTILINE)
# What a block declares at the beginning of a line: a type, an alias, a concept, a function, a variable.
DECLARED = re.compile(r"^(?:template <.*?>\s+)?(?:(?:inline |constexpr |static )*(?:struct|class|enum(?: class)?|using|concept|"
                      r"union) (?P<type>(?!namespace)\w+)|(?!namespace|using|return)\w[\w:<>,&* ]*?[ &*](?P<value>\w+)(?:\(| *=|;|\{))", re.MULTILINE)
EXCERPT = "excerpt of "
EXCERPTS = pathlib.Path("test/docs/excerpts.cpp")
failed = 0


def verdict(good, name, why=""):
    global failed
    failed += not good
    if not good and why:
        print(why[:6000])
    print(f"{'PASSED' if good else 'FAILED'}: {name}")


def squeezed(text):
    """A text without comments and spaces."""
    return "".join(re.sub(r"//[^\n]*", "", text).split())


class Block:
    """Code that is compiled: lines first to last of a page."""

    def __init__(self, page, title, code, first):
        self.page, self.title = str(page), title
        self.name = f"{page}: {title}"
        self.first, self.last = first, first + code.count("\n")
        lines = code.splitlines()
        self.includes = [line for line in lines if line.startswith("#include")]
        code = "".join("\n" if line.startswith("#include") else line + "\n" for line in lines)
        self.is_beginning = title.endswith("(beginning)")
        self.is_program = MAIN.search(code) is not None
        begin, end = ("void fragment() {\n", "}\n") if title.endswith("(fragment)") else ("", "")
        self.code = f'{begin}#line {first} "{page}"\n{code}{end}'


def has_excerpt(file, code):
    """True if a file has each part of an excerpt, in their order."""
    rest = squeezed(file.read_text()) if file.is_file() else ""
    for part in code.split("// ..\n"):
        _, found, rest = rest.partition(squeezed(part))
        if not found:
            return False
    return True


def blocks(pages):
    """Every block that is compiled; excerpts are compared here, and test/docs/excerpts.cpp is one block."""
    for page in pages:
        text = page.read_text()
        if page == EXCERPTS:
            yield Block(page, "all excerpts", text, 1)
            continue
        has_beginning = "(beginning) -->\n```cpp" in text
        for found in BLOCK.finditer(text):
            title, code = found["name"], found["code"]
            begin = " ".join(code.split())[:60]
            if title is None:
                verdict(False, f"{page}: a block of C++ has no name on the line before it: {begin}")
            elif title.startswith(EXCERPT):
                verdict(has_excerpt(pathlib.Path(title.removeprefix(EXCERPT)), code), f"{page}: {title}: {begin}")
            elif "#include" not in code and not has_beginning:
                verdict(False, f"{page}: {title}: includes nothing, so that it does not compile as it stands")
            elif "#include <chorale/libtorch/" not in code:
                yield Block(page, title, code, text[:found.start("code")].count("\n") + 1)


def together(all_blocks):
    """One program of all: includes first, then each in a namespace, within that of the beginning of its page."""
    includes = dict.fromkeys(line for block in all_blocks for line in block.includes)
    text, page = "\n".join(includes) + "\n", None
    for i, block in enumerate(all_blocks):
        if page not in (None, block.page):
            text, page = text + "}\n", None
        if block.is_beginning:
            text, page = text + f"namespace page_{i} {{\n{block.code}", block.page
        else:
            text += f"namespace block_{i} {{\n{block.code}}}\n"
    return text + ("}\n" if page else "")


def check_compiled(all_blocks):
    run = subprocess.run(["g++", *FLAGS, "-fsyntax-only", "-x", "c++", "-"], input=together(all_blocks), capture_output=True,
                         text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    places = {(page, int(line)) for page, line in
              re.findall(r"([\w./-]+\.(?:md|cpp)):(\d+):\d+: +(?:\w+ )?(?:error|required)", run.stderr)}
    wrong = [block for block in all_blocks
             if any(page == block.page and block.first <= line <= block.last for page, line in places)]
    if run.returncode:
        print(run.stderr[:20000])
        verdict(bool(wrong), "errors of the compiler have a place in a page")
    for block in all_blocks:
        verdict(run.returncode == 0 or block not in wrong, block.name)


def check_names(all_blocks):
    """No block declares what namespace chorale has: `using namespace chorale` would make the reader's name ambiguous."""
    declared = {}
    for block in all_blocks:
        if not block.title.endswith("(fragment)") and block.page != str(EXCERPTS):
            for found in DECLARED.finditer(block.code):
                name = found["type"] or found["value"]
                if name != "main":
                    declared.setdefault(name, []).append(block.name)
    includes = dict.fromkeys(line for block in all_blocks for line in block.includes)
    lines = list(includes) + [f"using chorale::{name};" for name in declared]
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        compiler = installed("names of blocks")[-1]
        run      = run_compiler(compiler, file.name, "-ferror-limit=0" if "clang" in compiler else "-fmax-errors=0")
    missing = r"^[^\n:]*:(\d+):\d+: error: [^\n]*(?:has not been declared|no member named)"
    unknown = {int(line) for line in re.findall(missing, run.stderr, re.MULTILINE)}
    for at, (name, where) in enumerate(declared.items(), len(includes) + 1):
        if at not in unknown:
            verdict(False, f"chorale::{name} exists, and {', '.join(where)} declares {name}, too")
    verdict(len(declared) > 60 and len(unknown) <= len(declared), f"{len(declared)} names that blocks declare were looked for")


def check_alone(all_blocks):
    """Each block is a file of its own, after the beginning of its page."""
    compiler = installed("blocks as files")[-1]                            # clang++ reads the precompiled header faster
    header = precompiled(compiler)
    beginnings = {block.page: block for block in all_blocks if block.is_beginning}

    def read(block):
        begin = beginnings.get(block.page)
        parts = [begin, block] if begin not in (None, block) else [block]
        includes = [line for part in parts for line in part.includes]
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write("\n".join(includes + [part.code for part in parts]))
            file.flush()
            umbrella = any(name in line for line in includes for name in ("chorale/chorale.hpp", "chorale/processes.hpp"))
            return run_compiler(compiler, file.name, header=header if umbrella else ())

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for block, run in zip(all_blocks, pool.map(read, all_blocks)):
            verdict(run.returncode == 0, f"{block.name}, a file of its own", run.stderr)


def check_linked(programs, libraries):
    """Compiles some programs once more, as one, and links it."""
    text = together(programs).replace("int main(int argc, char** argv)", "int main(int argc = 0, char** argv = {})")
    text = MAIN.sub("int one_of_all(", text)
    calls = [f"block_{i}::one_of_all();" for i in range(len(programs))]
    with tempfile.TemporaryDirectory() as folder:
        whole, source = pathlib.Path(folder, "all"), pathlib.Path(folder, "all.cpp")
        source.write_text(text + "int main() {\n" + "\n".join(calls) + "\n}\n")
        run = subprocess.run(["g++", "-std=c++20", "-Iinclude", "-I.", "-O0", str(source), *libraries, "-o", str(whole)], capture_output=True,
                             text=True, check=False)
    verdict(run.returncode == 0, f"{len(programs)} programs link with {' '.join(libraries)}", run.stderr)


def main(names):
    readme = pathlib.Path("README.md")
    pages = [pathlib.Path(name) for name in names] or [readme, *sorted(pathlib.Path("docs").glob("*.md")), EXCERPTS]
    all_blocks = list(blocks(pages))
    line = re.search(r"^g\+\+ .* main\.cpp (-l.*)$", readme.read_text(), re.MULTILINE)
    verdict(line is not None, "README.md names the libraries that a program links with")
    libraries = line[1].split() if line else []
    programs = [block for block in all_blocks if block.is_program]
    with_tcp = [block for block in programs if "#include <chorale/transport/tcp.hpp>" in block.includes]
    plain = [block for block in programs if block not in with_tcp]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(check_compiled, all_blocks)] if all_blocks else []
        jobs += [pool.submit(check_linked, some, libraries + more)
                 for some, more in ((plain, []), (with_tcp, ["-lcrypto"])) if some]
        jobs += [pool.submit(check_names, all_blocks)] if not names else []
        for job in jobs:
            job.result()
    if os.environ.get("CHORALE_SLOW"):
        check_alone(all_blocks)
    else:
        print(f"SKIPPED: each of {len(all_blocks)} blocks as a file of its own: this takes minutes: tools/test --slow")
    if not names:
        verdict(len(all_blocks) > 60, f"README.md and docs/ have {len(all_blocks)} blocks that are compiled")
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
