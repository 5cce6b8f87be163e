#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compiled.py INCLUDE OUT: the compiled form of the library, made from the headers in INCLUDE/chorale.

OUT/include    the headers, where functions that are no templates are declared: who changes a body changes none of them
OUT/bodies     the same, where the functions of CHORALE_PART_.. are defined
OUT/PART.cpp   the parts: compiled with -DCHORALE_COMPILED -IOUT/bodies -IOUT/include, these are the library

A function stays in its header if it is a template, in a class template, constexpr, virtual or a friend, if its return
type is deduced, or if its body has one line or follows a comment `// hot`: what a step calls for each element. A header
that brings what not every program has (MPI, CUDA, libtorch, pictures) stays as it is.
"""
import pathlib
import re
import sys

PARTS = {"base": ("core", "device", "tensor", "model", "optim", "placement", "observe"),
         "data": ("data", "checkpoint"),
         "travel": ("transport", "reduce", "cluster"),
         "train": ("nn", "strategy", "trainer", "advice", "pjrt"),
         "network": ()}                                                    # what brings Asio and OpenSSL
CONFIG = "chorale/config.hpp"                                              # says which form it is
# What not every program has: a header that includes it, or another header that does, stays as it is.
OPTIONAL = re.compile(r"mpi\.h|cuda|cublas|cudnn|nvrtc|nccl|torch|jpeglib\.h|png\.h|^chorale/c/")
# Headers that only bodies need, unless a declaration mentions this.
FOR_BODIES = {"nlohmann/json.hpp": r"\bnlohmann\b|\bjson\b", "regex": r"\bregex", "sstream": r"stringstream",
              "zlib.h": r"\bz_stream|\bgz[A-Z_o]|\bBytef|\bu[Ll]ong", "fstream": r"\b[io]?f?stream(off|size)?\b",
              "iostream": r"\bstd::(cout|cerr|clog|cin)\b"}
JSON_BY_NAME = re.compile(r"nlohmann::json const\s*[&*]|(?m:^)\s*(static )?nlohmann::json \w+\(")     # needs no more

JSON_MEMBER = re.compile(r"nlohmann::json const\s*[&*]\s*\w+_;")
NETWORK = re.compile(r"boost/|openssl/")
INCLUDE = re.compile(r"(?m)^#include [<\"]([^>\"]+)[>\"]")
LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:[^\n\\]|\\.|\\\n)*")
ATTRIBUTE = re.compile(r"alignas\([^()]*\)|\[\[.*?\]\]", re.DOTALL)
CLOSES = {"(": ")", "[": "]", "{": "}"}


def spaces(text):
    return re.sub(r"[^\n]", " ", text)


def code_of(text):
    """The text with blanks for comments, for what is in literals, and for lines of the preprocessor."""
    def blank(match):
        found = match[0]
        return spaces(found) if found[0] == "/" else found[0] + spaces(found[1:-1]) + found[-1]

    return LITERAL.sub(blank, DIRECTIVE.sub(lambda match: spaces(match[0]), text))


def end_of(code, begin):
    """Where the bracket at `begin` is closed."""
    opened, closed, depth = code[begin], CLOSES[code[begin]], 0
    for i in range(begin, len(code)):
        depth += (code[i] == opened) - (code[i] == closed)
        if depth == 0:
            return i
    raise SystemExit(f"compiled.py: a bracket is not closed: {code[begin:begin + 60]}")


def without_template(head):
    """A declaration without its template<..>, and whether it had one with parameters."""
    is_template = False
    while found := re.match(r"\s*template\s*<", head):
        is_template |= not re.match(r"\s*template\s*<\s*>", head)
        i, depth = found.end() - 1, 0
        while True:
            if head[i] in CLOSES:
                i = end_of(head, i)
            depth += (head[i] == "<") - (head[i] == ">" and head[i - 1] != "-")
            i += 1
            if depth == 0:
                break
        head = head[i:]
    return head, is_template


def without_brackets(head):
    """A declaration with @ for what is in round brackets."""
    head = re.sub(r"operator\s*(\(\)|\[\]|[^\s\w(]+)", "operator_", ATTRIBUTE.sub("", head))
    out, i = "", 0
    while i < len(head):
        if head[i] == "(":
            i = end_of(head, i)
            out += "@"
        else:
            out += head[i]
        i += 1
    return out


class Function:
    """A definition: code[begin:body] declares it, code[body:end] is its body. Of a member: the names of its classes, and
    where the outermost one ends."""

    def __init__(self, begin, body, end, classes, end_of_classes):
        self.begin, self.body, self.end = begin, body, end
        self.classes, self.end_of_classes = classes, end_of_classes


def begin_of_list(code, begin, end):
    """Where the list of a constructor's members begins in a declaration, or its end."""
    i, had = begin, False
    while i < end:
        if code[i] in CLOSES:
            had |= code[i] == "("
            i = end_of(code, i)
        elif code[i:i + 2] == "::":
            i += 1
        elif code[i] == ":" and had:
            return i
        i += 1
    return end


def without_defaults(parameters):
    """A list of parameters without their default values."""
    out, i = "", 0
    while i < len(parameters):
        if parameters[i] == "=" and parameters[i + 1] != "=":
            depth = 0
            while i < len(parameters) and not (parameters[i] in ",)" and depth == 0):
                depth += (parameters[i] in "([{<") - (parameters[i] in ")]}>")
                i += 1
            out = out.rstrip()
            continue
        out += parameters[i]
        i += 1
    return out


def functions_in(code, begin, end, scope="namespace", classes="", end_of_classes=0):
    """The functions of code[begin:end] whose bodies may stand elsewhere; scope: namespace, class or template."""
    i = start = begin
    while i < end:
        if code[i] in "([":
            i = end_of(code, i) + 1
            continue
        if code[i] in ";}" or (scope != "namespace" and code[i] == ":" and
                               re.fullmatch(r"\s*(public|private|protected)\s*", code[start:i])):
            i = start = i + 1
            continue
        if code[i] != "{":
            i += 1
            continue
        close = end_of(code, i)
        head, is_template = without_template(code[start:i])
        flat = without_brackets(head)
        if re.match(r"\s*(inline\s+)?namespace\b", flat):
            yield from functions_in(code, i + 1, close)
            i = start = close + 1
            continue
        if re.match(r"\s*(class|struct|union)\b", flat) and not re.search("[=@]", flat.split(":")[0]):
            name = re.match(r"\s*(?:class|struct|union)\s+(.+?)\s*(\bfinal\b|(?<!:):(?!:)|$)", flat, re.DOTALL)
            yield from functions_in(code, i + 1, close, "template" if is_template or scope == "template" else "class",
                                    f"{classes}{name[1] if name else ''}::", end_of_classes or code.index(";", close) + 1)
            i = close + 1                                                  # the declaration goes on until ;
            continue
        if re.match(r"\s*enum\b", flat) or "@" not in flat or "=" in flat.split("@")[0]:
            i = close + 1                                                  # an enumeration, or an initializer
            continue
        after = flat.split("@", 1)[1]
        if re.match(r"\s*(noexcept\s*@?\s*)?:(?!:)", after) and code[:i].rstrip()[-1] not in ")}":
            i = close + 1                                                  # a member of a constructor's list
            continue
        if re.search(r"\brequires\b", flat):
            i = close + 1
            continue
        parameters = ATTRIBUTE.sub("", head)
        parameters = parameters[parameters.index("("):]
        stays = (is_template or scope == "template" or
                 re.search(r"\b(constexpr|consteval|friend|virtual|override|static_assert|using|concept)\b", flat) or
                 re.search(r"\bauto\b", re.sub(r"->.*", "", parameters, flags=re.DOTALL)) or
                 (re.search(r"\bauto\b", flat.split("@")[0]) and "->" not in after) or "decltype(auto)" in head or
                 (scope == "namespace" and not re.search(r"\binline\b", flat)))
        if not stays:
            first = start + len(code[start:i]) - len(code[start:i].lstrip())
            yield Function(first, i, close + 1, classes, end_of_classes)
        i = start = close + 1


NAME = re.compile(r"([\w:~]+|operator\s*\S+?)\s*$")


def either(part, here, elsewhere):
    """Lines for a part of the library, and for all that includes it."""
    return f"#ifdef CHORALE_PART_{part.upper()}\n{here}\n#else\n{elsewhere}\n#endif\n" if elsewhere else \
        f"#ifdef CHORALE_PART_{part.upper()}\n{here}\n#endif\n"


def edited(text, edits):
    """A text with new ones in place of [begin, end)."""
    for begin, end, new in sorted(edits, key=lambda edit: -edit[0]):
        text = text[:begin] + new + text[end:]
    return text


def converted(text, part):
    """A header for who includes it, where functions are declared, and for the part that defines them; their names, and
    their number."""
    code = code_of(text)
    all_bodies = JSON_MEMBER.search(code)                  # which use what is only declared elsewhere
    names, declarations, bodies, number = set(), [], [], 0
    for function in functions_in(code, 0, len(code)):
        body = text[function.body:function.end]
        before = text[:function.begin].rstrip().splitlines()
        if ("\n" not in body and not all_bodies) or (before and before[-1].strip() == "// hot"):
            continue
        number += 1
        signature = ATTRIBUTE.sub(lambda match: spaces(match[0]), code[function.begin:function.body])
        opens = signature.index("(")
        name = NAME.search(signature[:opens])[1]
        begin = text.rindex("\n", 0, function.begin) + 1
        end = function.end + (text[function.end:function.end + 1] == "\n")
        indent = text[begin:function.begin]
        head = re.sub(r"\binline\s+", "", text[function.begin:function.body], count=1)
        here = indent + ("[[gnu::used]] " if function.classes else "") + head + body
        if re.search(r"\w::~?\w+$|\w::operator", signature[:opens].rstrip()):  # declared in its class
            elsewhere = ""
        else:
            to_list = begin_of_list(code, function.begin, function.body)
            elsewhere = indent + re.sub(r"\binline\s+", "", text[function.begin:to_list].rstrip(), count=1) + ";"
            names.add(name)
        if re.search(rf"(^|::){re.escape(name.lstrip('~'))}(<[^<>]*>)?::$", function.classes):
            # Of a constructor that stands in its class clang makes one of two symbols, whatever is said of it.
            closes = end_of(signature, opens)
            parameters = without_defaults(text[function.begin + opens:function.begin + closes])
            definition = f"{function.classes}{name}{parameters}{text[function.begin + closes:function.end]}"
            bodies.append((function.end_of_classes, function.end_of_classes, "\n" + either(part, definition, "")))
            bodies.append((begin, end, elsewhere + "\n"))
        else:
            bodies.append((begin, end, either(part, here, elsewhere)))
        declarations.append((begin, end, elsewhere + "\n" if elsewhere else ""))
    return edited(text, declarations), edited(text, bodies), names, number


def without_inline(text, names):
    """Declarations of these functions without `inline`: they are defined in the library."""
    def plain(match):
        return match[0].replace("inline ", "", 1) if match[2] in names else match[0]

    return re.sub(r"(?m)^inline ([^;{}()=]*?)\b(\w+)\([^;{}]*\)( noexcept| const)*;", plain, text)


def without_headers(declarations, bodies, part):
    """Both without the headers that only bodies need."""
    code = code_of(declarations)
    new  = {}
    if "nlohmann" in code and not re.search(r"\bjson\b", JSON_BY_NAME.sub("", code)):
        new["#include <nlohmann/json.hpp>\n"] = "#include <nlohmann/json_fwd.hpp>\n"
    for name, mention in FOR_BODIES.items():
        if not re.search(mention, code):
            new.update((line, "") for line in re.findall(rf"(?m)^#include <{re.escape(name)}>.*\n", declarations))
    for line, instead in new.items():
        declarations = declarations.replace(line, instead)
        bodies       = bodies.replace(line, either(part, line.rstrip(), instead.rstrip()))
    return declarations, bodies


def bringing(what, texts):
    """The names of the headers that bring an include that matches."""
    includes = {name: INCLUDE.findall(text) for name, text in texts.items()}
    found = {name for name in texts if what.search(name) or any(map(what.search, includes[name]))}
    while more := {name for name in texts if name not in found and not found.isdisjoint(includes[name])}:
        found |= more
    return found


def main(include, out):
    headers = sorted(pathlib.Path(include, "chorale").rglob("*.hpp"))
    texts = {str(path.relative_to(include)): path.read_text() for path in headers}
    network = bringing(NETWORK, texts)
    stay = bringing(OPTIONAL, texts) | {CONFIG}
    texts[CONFIG] = texts[CONFIG].replace("FORM_COMPILED 0", "FORM_COMPILED 1")
    part_of = {folder: part for part, folders in PARTS.items() for folder in folders}
    included, bodies, all_names, total = {part: [] for part in PARTS}, {}, set(), 0
    for name, text in texts.items():
        part = "network" if name in network else part_of.get(name.split("/")[1])
        if name not in stay and part:
            texts[name], with_bodies, names, number = converted(text, part)
            if number:
                texts[name], bodies[name] = without_headers(texts[name], with_bodies, part)
                included[part].append(f"#include <{name}>\n")
            all_names |= names
            total += number
    for folder, made in (("include", texts), ("bodies", bodies)):
        for name, text in made.items():
            write(out / folder / name, without_inline(text, all_names))
    for part, lines in included.items():
        write(out / f"{part}.cpp", f"#define CHORALE_PART_{part.upper()}\n" + "".join(lines))
    print(f"{total} functions are compiled once")


def write(path, text):
    """Files that have not changed keep their time, so that what includes them is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
