# SPDX-License-Identifier: Apache-2.0
"""Code as HTML: comments, strings, numbers and keywords in spans, names of types as links."""
import html
import re

WORDS = {
    "cpp": "alignas alignof auto bool break case catch char class concept const consteval constexpr constinit "
           "continue co_await co_return co_yield decltype default delete do double else enum explicit extern "
           "false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator "
           "override private protected public requires return short signed sizeof static static_assert "
           "static_cast reinterpret_cast const_cast struct switch template this thread_local throw true try "
           "typedef typename union unsigned using virtual void volatile while",
    "python": "and as assert async await break class continue def del elif else except False finally for from global "
              "if import in is lambda None nonlocal not or pass raise return True try while with yield",
    "sh": "if then else elif fi for while do done case esac in function return local export exec set",
    "cmake": "PRIVATE PUBLIC INTERFACE REQUIRED COMPONENTS SOURCE_DIR",
    "json": "true false null",
}
COMMENT = {"cpp": r"//[^\n]*|/\*.*?\*/", "json": r"(?!)"}
STRING = {"cpp": r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'',
          "python": r'[rbf]?""".*?"""|[rbf]?"(?:\\.|[^"\\\n])*"|[rbf]?\'(?:\\.|[^\'\\\n])*\''}
KIND = {".hpp": "cpp", ".cpp": "cpp", ".cuh": "cpp", ".cu": "cpp", ".py": "python", ".bzl": "python", ".sh": "sh",
        ".json": "json", ".cmake": "cmake", "BUILD": "python", "WORKSPACE": "python"}
ALIASES = {"c++": "cpp", "starlark": "python", "bash": "sh"}


def pattern(language):
    comment = COMMENT.get(language, r"(?<![\w$])\#[^\n]*")
    string = STRING.get(language, r'"(?:\\.|[^"\\])*"|\'[^\'\n]*\'')
    directive = r"^[ \t]*\#[ \t]*\w+(?:[ \t]*<[^>\n]*>)?" if language == "cpp" else r"(?!)"
    return re.compile(rf"(?P<directive>{directive})|(?P<comment>{comment})|(?P<string>{string})|"
                      r"(?P<number>\b\d(?:[\w.']|(?<=e)-)*)|(?P<name>(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*)", re.S | re.M)


PATTERNS = {language: pattern(language) for language in WORDS}
KEYWORDS = {language: set(words.split()) for language, words in WORDS.items()}


def code(text, language="cpp", link=lambda name: None):
    """HTML of a text; `link` gives the address of a name, or None."""
    language = ALIASES.get(language, language)
    if language not in PATTERNS:
        return html.escape(text, quote=False)
    out, last = [], 0
    for found in PATTERNS[language].finditer(text):
        kind, word = found.lastgroup, found[0]
        shown = html.escape(word, quote=False)
        if kind == "name":
            if word in KEYWORDS[language]:
                shown = f'<span class="k">{shown}</span>'
            elif language == "cpp" and (address := link(word)):
                shown = f'<a href="{address}">{shown}</a>'
        else:
            header = re.search(r"<chorale/[\w/]+\.hpp>", word) if kind == "directive" else None
            if header and (address := link(header[0])):
                shown = shown.replace(html.escape(header[0]), f'<a href="{address}">{html.escape(header[0])}</a>')
            shown = f'<span class="{kind[0]}">{shown}</span>'
        out += [html.escape(text[last:found.start()], quote=False), shown]
        last = found.end()
    return "".join(out) + html.escape(text[last:], quote=False)


def lines(text, language):
    """HTML of each line of a text: a span that goes over several lines is closed and opened again."""
    out, open_ = [], ""
    for line in code(text, language).split("\n"):
        shown = open_ + line
        for tag in re.findall(r"<span class=\"\w\">|</span>", line):
            open_ = tag if tag != "</span>" else ""
        out.append(shown + ("</span>" if open_ else ""))
    return out
