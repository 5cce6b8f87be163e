# SPDX-License-Identifier: Apache-2.0
"""Reads a header: its declarations, each with the docstring above it, as they are written.

It knows the form of our headers and no more of C++: a docstring is lines of /// right above a declaration, which ends
with a semicolon or a body in braces, and types, namespaces and enumerations have declarations in their braces.
"""
import dataclasses
import re

PAIRS = {"(": ")", "[": "]", "{": "}"}
TYPE = re.compile(r"\b(class|struct|union|enum class|enum struct|enum)\s+"
                  r"(?:\[\[.*?\]\]\s*|alignas\([^)]*\)\s*)*([A-Za-z_]\w*)")
NO_PARAMETERS = ("decltype", "alignas", "explicit", "noexcept", "static_assert", "requires")    # words before a (
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
WORD = re.compile(r"[A-Za-z_]\w*")


@dataclasses.dataclass
class Declaration:
    """A declaration: `code` as written, without its docstring and the body of a function."""
    kind: str                                    # namespace, type, concept, function, value, alias, other
    name: str
    docs: list                                   # lines of the docstring, without ///
    line: int                                    # 1-based
    begin: int                                   # places in the text
    end: int
    body: int = 0                                # the place of its opening brace, or 0
    stop: int = 0                                # where what a caller needs ends: before a body and its members
    access: str = "public"
    children: list = dataclasses.field(default_factory=list)
    scope: str = ""                              # such as nn or optim; without chorale
    word: str = ""                               # struct, class, ...

    @property
    def full(self):
        return f"{self.scope}::{self.name}" if self.scope else self.name


def blank(text):
    """The text without comments, strings and directives: spaces in their places."""
    def spaces(found):
        return re.sub(r"[^\n]", " ", found[0])

    def no_code(found):
        return found[0][0] + "_" * (len(found[0]) - 2) + found[0][-1] if found[0][0] in "\"'" else spaces(found)
    return DIRECTIVE.sub(spaces, SKIPPED.sub(no_code, text))


def closing(code, at):
    """The place of the bracket that closes the one at a place."""
    open_, close, depth = code[at], PAIRS[code[at]], 0
    for found in re.compile(f"[{re.escape(open_ + close)}]").finditer(code, at):
        depth += 1 if found[0] == open_ else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"no {close} for the {open_} at {at}")


def after_template(code, at):
    """The place after the template<...> that begins at a place."""
    at, depth = code.index("<", at), 0
    while True:
        if code[at] in PAIRS:
            at = closing(code, at)
        depth += {"<": 1, ">": -1}.get(code[at], 0)
        at += 1
        if depth == 0:
            return at


class Header:
    """One header. `declarations` are those of its outermost scope; `docstrings` counts runs of ///."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        self.code = blank(text)
        self.starts = [0] + [found.end() for found in re.finditer("\n", text)]
        self.lines = text.split("\n")
        self.used = set()                                                  # lines of docstrings that a declaration has
        try:
            self.declarations = self.scope(0, len(text), "", "", "public")
        except (ValueError, IndexError) as error:
            raise ValueError(f"{name}: tools/site/headers.py does not know its form: {error}") from error
        self.docstrings = {n for n, line in enumerate(self.lines, 1) if line.strip().startswith("///")
                           and not (n > 1 and self.lines[n - 2].strip().startswith("///"))}
        self.macros = [one for first in sorted(self.docstrings - self.used) for one in self.macro(first)]
        self.declarations += self.macros
        self.about = self.lone_docstring()

    def line_of(self, at):
        return self.text.count("\n", 0, at) + 1

    def docs_above(self, line):
        """The docstring that ends on the line before, and the number of its first line."""
        first = line
        while first > 1 and self.lines[first - 2].strip().startswith("///"):
            first -= 1
        if first < line:
            self.used.add(first)
        return [text.strip()[3:].removeprefix(" ").rstrip() for text in self.lines[first - 1:line - 1]]

    def macro(self, first):
        """The macro below a docstring, if one is there."""
        last = first
        while self.lines[last - 1].strip().startswith("///"):
            last += 1
        found = re.match(r"#define (\w+)", self.lines[last - 1])
        if found:
            at = self.starts[last - 1]
            yield Declaration("macro", found[1], self.docs_above(last), last, at, DIRECTIVE.match(self.text, at).end())

    def lone_docstring(self):
        """The docstring of the header itself: one that has no declaration below it, before any."""
        for first in sorted(self.docstrings - self.used):
            last = first
            while self.lines[last - 1].strip().startswith("///"):
                last += 1
            if self.lines[last - 1].strip() == "" and not any(d.line < first for d in self.declarations):
                return self.docs_above(last)
        return []

    def scope(self, at, end, path, of_type, access):
        """The declarations between two places; `of_type` is the name of the type whose braces these are."""
        found = []
        while True:
            while at < end and (self.code[at].isspace() or self.code[at] == ";"):
                at += 1
            if at >= end:
                return found
            label = re.compile(r"(public|private|protected)\s*:(?!:)").match(self.code, at)
            if label:
                access, at = label[1], label.end()
                continue
            one = self.declaration(at, end, path, of_type, access)
            found.append(one)
            at = one.end

    def declaration(self, begin, end, path, of_type, access):
        line = self.line_of(begin)
        one = Declaration("other", "", self.docs_above(line), line, begin, end, access=access, scope=path)
        at, parameters, assigned, members = begin, 0, False, 0
        while self.code.startswith("template", at):
            at = after_template(self.code, at)
            while self.code[at].isspace():
                at += 1
            at = self.after_requires(at)
        named = self.code[at:at + 300]
        head = at
        while at < end:
            c = self.code[at]
            if c == ";":
                one.end = at + 1
                break
            if c == "(" or c == "[":
                word = re.search(r"(\w+)\s*$", self.code[head:at])
                if c == "(" and not parameters and not assigned and not (word and word[1] in NO_PARAMETERS):
                    parameters = at
                    if self.code[at:closing(self.code, at) + 1] == "()" and word and word[1] == "operator":
                        at, parameters = closing(self.code, at) + 1, 0                # operator()
                        continue
                at = closing(self.code, at)
            elif c == "<" and not assigned and re.search(r"\w$", self.code[head:at]) and not re.search(
                    r"\boperator$", self.code[head:at]):
                at = after_template(self.code, at) - 1
            elif c == "=" and not assigned and not re.search(r"operator\s*[^\s\w(]*$", self.code[head:at + 1]):
                assigned = True
            elif c == ":" and parameters and not assigned and self.code[at - 1] != ":" and self.code[at + 1] != ":":
                members = at                                               # of a constructor: a{...}, b{...} { body }
            elif c == "{":
                before = self.code[head:at].rstrip()
                close = closing(self.code, at)
                if assigned or re.search(r"(=|&&|\|\||!|requires|\()\s*requires\s*(\(.*\))?$", before, re.S) or (
                        members and re.search(r"[\w>]$", before)) or (
                        re.search(r"\w$", self.code[head:at]) and TYPE.match(self.code[head:at])):      # a base<Tag{1}>
                    at = close
                elif not parameters and not re.match(r"(inline\s+)?namespace|extern\b", before) and not TYPE.match(
                        re.sub(r"^(inline|static|constexpr|typedef|friend)\s+", "", self.code[head:at])):
                    at = close                                             # a value with an initializer in braces
                else:
                    one.body, one.end = at, close + 1
                    break
            at += 1
        one.stop = members or one.body or one.end
        self.describe(one, head, named, parameters, assigned, of_type)
        return one

    def after_requires(self, at):
        """The place after a requires clause of a template: terms, each perhaps with !, joined by && or ||."""
        if not re.compile(r"requires\b").match(self.code, at):
            return at
        at += len("requires")
        while True:
            while self.code[at].isspace() or self.code[at] == "!":
                at += 1
            if re.compile(r"requires\b").match(self.code, at):             # a requires expression
                at += len("requires")
                while self.code[at] != "{":
                    at = closing(self.code, at) + 1 if self.code[at] == "(" else at + 1
                at = closing(self.code, at) + 1
            elif self.code[at] == "(":
                at = closing(self.code, at) + 1
            else:                                                          # a::b<...>, a<...>::template b<...>
                while WORD.match(self.code, at):
                    at = WORD.match(self.code, at).end()
                    if self.code[at] == "<":
                        at = after_template(self.code, at)
                    at = re.compile(r"(::(\s*template\b\s*)?)?").match(self.code, at).end()
            rest = re.compile(r"\s*(&&|\|\|)").match(self.code, at)
            if not rest:
                while self.code[at].isspace():
                    at += 1
                return at
            at = rest.end()

    def describe(self, one, head, named, parameters, assigned, of_type):
        """Sets the kind and name of a declaration, and reads what is in its braces."""
        code = self.code[head:one.end]
        start = re.sub(r"^(?:(?:inline|static|constexpr|typedef|extern|\[\[.*?\]\])\s+)+", "", named)
        space = re.match(r"namespace\s*([\w:]*)", start)
        kind = TYPE.match(start)
        if start.startswith('"') and one.body:                              # extern "C"
            one.kind, one.name = "namespace", "detail"
            one.children = self.scope(one.body + 1, one.end - 1, one.scope, "", "public")
        elif space and one.body:
            inner = "::".join(part for part in (one.scope, space[1]) if part).removeprefix("chorale").removeprefix("::")
            one.kind, one.name = "namespace", space[1] or "(unnamed)"
            one.children = self.scope(one.body + 1, one.end - 1, inner, "", "public")
        elif kind and (one.body or not parameters) and not assigned:
            one.kind, one.word, one.name = "type", kind[1], kind[2]
            if one.body and not kind[1].startswith("enum"):
                one.children = self.scope(one.body + 1, one.end - 1, one.full, one.name,
                                          "private" if kind[1] == "class" else "public")
        elif start.startswith("concept"):
            one.kind, one.name = "concept", WORD.findall(start)[1]
        elif start.startswith(("using", "typedef")):
            words = WORD.findall(start.split(";")[0])                       # using a = b, or using a::b
            one.kind, one.name = "alias", words[1 if assigned or len(words) < 3 or words[1] == "enum" else -1]
        elif start.startswith(("static_assert", "friend")):
            one.kind = "other"
        elif parameters:
            one.kind = "function"
            name = re.search(r"(operator\s*\S+?|~?\w+)\s*(?:<[^()]*>)?\s*$", self.code[head:parameters])
            one.name = name[1].replace(" ", "") if name else ""
            if one.name == of_type and of_type:
                one.word = "constructor"
            if re.match(r"(explicit\s*(\(.*?\)\s*)?)?\w+\s*\([^{;]*\)\s*->\s*\w+\s*<", code) and not one.body:
                one.word = "guide"
        else:
            one.kind = "value"
            words = WORD.findall(re.split(r"=|\{|;|\[(?!\[)", re.sub(r"<[^=;{]*>|\[\[.*?\]\]", "", code))[0])
            one.name = words[-1] if words else ""


def public(declarations):
    """Every declaration that a program may name: not in a namespace called detail, not private, not without name."""
    for one in declarations:
        if one.kind == "namespace":
            if "detail" not in one.name.split("::") and one.name != "(unnamed)":
                yield from public(one.children)
        elif one.access == "public" and one.name:
            yield one


def every(declarations):
    """All of them, also what is not public, in their order."""
    for one in declarations:
        yield one
        yield from every(one.children)
