#!/usr/bin/env python3
"""Random templates from a grammar, rendered by jinja2 (as transformers sets it up) and by us.

    cc -O2 -std=c17 -D_DEFAULT_SOURCE -Isrc tests/golden/jinja/render_main.c build/libmt.a -lutf8proc -lm -lpthread -o render_main
    python3 tests/golden/jinja/compare_fuzz.py ./render_main [cases] [seed]

A case differs when the texts differ, or when one side fails and the other does not."""
import json
import random
import re
import subprocess
import sys

import make_goldens
import snippets

NAMES = ["s", "empty", "n", "neg", "f", "t", "no", "nil", "u", "l", "words", "nested", "d", "e", "el", "msgs", "lines", "html", "x", "y", "missing"]
STRINGS = ["''", "'a'", "'ab c'", "'\\n'", "' x '", "'l'", "'role'", "'content'", "','", "'é'", "'%s'", "'b'", "'user'", "'1'", "'{}'"]
FILTERS = ["upper", "lower", "trim", "length", "first", "last", "list", "join", "join(',')", "sort", "reverse|list", "unique|list", "string", "int", "float",
           "abs", "round", "round(1)", "tojson", "tojson(indent=2)", "default('d')", "default('d', true)", "title", "capitalize", "replace('a', 'b')",
           "batch(2)|list", "slice(2)|list", "map('upper')|list", "map('string')|join('-')", "select|list", "select('string')|list", "reject('none')|list",
           "selectattr('role')|list", "map(attribute='role')|list", "items|list", "dictsort", "sum", "min", "max", "indent", "indent(2, true)", "wordcount",
           "count", "e", "striptags", "safe", "attr('upper') is defined", "groupby('role')|list|length", "center(9)", "truncate(5, true, '', 0)", "urlencode"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "true", "false", "odd", "even",
         "divisibleby(2)", "eq(1)", "in [1, 2]", "gt(1)", "lower", "upper", "callable", "sameas none", "equalto 'a'"]
METHODS = ["upper()", "lower()", "strip()", "lstrip('a')", "rstrip('\\n')", "split()", "split(',')", "split('l', 1)", "rsplit('o', 1)", "splitlines()", "startswith('H')",
           "endswith(('d', 'e'))", "replace('l', 'L')", "title()", "capitalize()", "find('l')", "rfind('o')", "count('l')", "join(['a', 'b'])", "isdigit()", "isalpha()",
           "isspace()", "isupper()", "zfill(5)", "center(9, '*')", "ljust(7)", "removeprefix('He')", "get('a')", "get('q', 1)", "items()|list", "keys()|list",
           "values()|list", "index(1)", "count(1)", "partition('l')", "format(1)", "append(1)", "update({})", "copy()", "swapcase()", "expandtabs()"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return items[self.rng.randrange(len(items))]

    def atom(self):
        r = self.rng.random()
        if r < 0.45:
            return self.pick(NAMES)
        if r < 0.6:
            return self.pick(STRINGS)
        if r < 0.75:
            return self.pick(["0", "1", "2", "3", "10", "1.5", "0.1", "-1", "true", "false", "none", "1e3"])
        if r < 0.82:
            return "[" + ", ".join(self.expr(3) for _ in range(self.rng.randrange(4))) + "]"
        if r < 0.86:
            return "(" + "".join(self.expr(3) + ", " for _ in range(self.rng.randrange(3))) + ")"
        if r < 0.9:
            return "{" + ", ".join(self.pick(STRINGS) + ": " + self.expr(3) for _ in range(self.rng.randrange(3))) + "}"
        return self.pick(["msgs[0]", "msgs[1].content", "msgs[-1]['role']", "d.a", "d['b']", "l[0]", "s[1:3]", "u[2]", "words[-1]", "range(3)", "range(5, 0, -2)|list",
                          "msgs[2].tool_calls[0].function.name", "msgs|length", "nested[1]", "dict(a=1)", "l[::-1]", "u[::-1]", "s[::2]"])

    def typed(self, kind, depth=0):
        """An expression that most likely works: filters and methods fit what they are applied to."""
        t, leaf = self.typed, depth >= 3 or self.rng.random() < 0.2
        if kind == "str":
            if leaf:
                return self.pick(["s", "u", "empty", "lines", "html", "msgs[0].content", "msgs[1]['role']", "words[1]"] + STRINGS[:12])
            return self.pick([
                lambda: f"{t('str', depth + 1)} + {t('str', depth + 1)}", lambda: f"{t('any', depth + 1)} ~ {t('any', depth + 1)}",
                lambda: f"({t('str', depth + 1)})|{self.pick(['upper', 'lower', 'trim', 'title', 'capitalize', 'e', 'safe', 'string', 'indent', 'indent(2, true)', 'reverse', 'striptags', 'forceescape'])}",
                lambda: f"({t('str', depth + 1)})|replace({self.pick(STRINGS)}, {self.pick(STRINGS)})", lambda: f"({t('str', depth + 1)})|center({t('int', 3)})",
                lambda: f"({t('str', depth + 1)}).{self.pick(['upper()', 'lower()', 'strip()', 'title()', 'capitalize()', 'swapcase()', 'zfill(6)', 'ljust(5)', 'expandtabs()'])}",
                lambda: f"({t('str', depth + 1)}).{self.pick(['lstrip', 'rstrip', 'strip', 'removeprefix', 'removesuffix'])}({self.pick(STRINGS)})",
                lambda: f"({t('str', depth + 1)})[{self.slice()}]", lambda: f"({t('list', depth + 1)})|join({self.pick(STRINGS)})", lambda: f"({t('any', depth + 1)})|tojson",
                lambda: f"({t('any', depth + 1)})|string", lambda: f"({t('str', depth + 1)} if {t('any', depth + 1)} else {t('str', depth + 1)})", lambda: f"{t('str', depth + 1)} * 2",
                lambda: f"'%s|%5s|%-4s|%r' % ({t('any', depth + 1)}, {t('str', 3)}, {t('int', 3)}, {t('any', 3)})", lambda: f"'{{}}-{{:>6}}-{{!r}}'.format({t('any', 3)}, {t('str', 3)}, {t('any', 3)})",
                lambda: f"({t('list', depth + 1)})|tojson(indent={self.pick(['none', '0', '2'])})", lambda: f"({t('str', depth + 1)}).center(9, '*')", lambda: f"({t('str', 3)})|truncate(6, {self.pick(['true', 'false'])}, '..', 0)",
            ])()
        if kind == "int":
            if leaf:
                return self.pick(["n", "neg", "0", "1", "2", "7", "d.a", "l[0]", "msgs|length", "f", "1.5", "loop.index if loop is defined else 3"])
            return self.pick([
                lambda: f"({t('int', depth + 1)} {self.pick(['+', '-', '*', '/', '//', '%'])} {t('int', depth + 1)})", lambda: f"({t('list', depth + 1)})|length", lambda: f"({t('str', depth + 1)})|length",
                lambda: f"({t('str', depth + 1)}).{self.pick(['find', 'rfind', 'count'])}({self.pick(STRINGS)})", lambda: f"({t('int', depth + 1)})|abs", lambda: f"({t('int', depth + 1)})|round({self.pick(['', '1', '2, ' + repr('ceil'), '0, ' + repr('floor')])})",
                lambda: f"({t('any', depth + 1)})|int(5)", lambda: f"({t('str', depth + 1)})|float", lambda: f"-({t('int', depth + 1)})", lambda: f"({t('str', depth + 1)})|wordcount", lambda: f"[{t('int', 3)}, {t('int', 3)}]|{self.pick(['sum', 'min', 'max'])}",
            ])()
        if kind == "list":
            if leaf:
                return self.pick(["l", "words", "el", "nested", "msgs", "d.items()|list", "d|list", "range(4)|list", "[1, 'a', none]", "[3, 1, 2]"])
            return self.pick([
                lambda: f"({t('str', depth + 1)}).split({self.pick(STRINGS[1:])})", lambda: f"({t('str', depth + 1)}).{self.pick(['split()', 'splitlines()', 'rsplit(none, 1)', 'split(none, 1)', 'rsplit(chr, 1)'.replace('chr', repr('l')), 'splitlines(true)'])}",
                lambda: f"({t('list', depth + 1)})[{self.slice()}]", lambda: f"({t('list', depth + 1)})|map('string')|{self.pick(['list', 'sort', 'map(' + repr('upper') + ')|list', 'unique|list', 'reverse|list', 'batch(2)|list', 'slice(2)|list', 'select|list', 'reject(' + repr('lower') + ')|list'])}",
                lambda: f"[{t('any', depth + 1)}, {t('any', depth + 1)}]", lambda: f"({t('list', depth + 1)}) + [{t('any', 3)}]", lambda: f"({t('list', depth + 1)})|select({self.pick([repr('string'), repr('defined'), repr('number'), repr('iterable')])})|list",
                lambda: f"msgs|{self.pick(['selectattr', 'rejectattr'])}({self.pick([repr('role') + ', ' + repr('equalto') + ', ' + t('str', 3), repr('tool_calls') + ', ' + repr('defined'), repr('content')])})|map(attribute={self.pick([repr('role'), repr('content'), repr('content.0')])})|list",
                lambda: f"msgs|groupby('role')|map('first')|list", lambda: f"({t('list', depth + 1)})|reverse|list", lambda: f"({t('str', depth + 1)})|list", lambda: f"({t('dict', depth + 1)})|dictsort", lambda: f"({t('dict', depth + 1)})|items|list",
            ])()
        if kind == "dict":
            return self.pick(["d", "e", "msgs[0]", "msgs[2]", "{'k': " + t("any", depth + 1) + "}" if depth < 3 else "d", "dict(a=1, b=n)", "{'z': 1, 'y': {'x': []}}"])
        return self.pick([lambda: t("str", depth + 1), lambda: t("int", depth + 1), lambda: t("list", depth + 1), lambda: t("dict", depth + 1), lambda: self.pick(["t", "no", "nil", "missing", "x", "y"]),
                          lambda: f"{t('any', depth + 2)} {self.pick(['==', '!=', 'and', 'or'])} {t('any', depth + 2)}", lambda: f"{t('str', depth + 1)} {self.pick(['in', 'not in', '<', '>='])} {t('str', depth + 1)}",
                          lambda: f"({t('any', depth + 2)}) is {self.pick(TESTS[:13])}", lambda: f"({t('dict', depth + 1)}).get({self.pick(STRINGS)}{self.pick(['', ', 1'])})",
                          lambda: f"({t('dict', depth + 1)})[{self.pick(STRINGS)}]", lambda: f"({t('list', depth + 1)})[{self.pick(['0', '-1', '9'])}]", lambda: f"({t('any', depth + 1)})|default({t('any', 3)}, {self.pick(['true', 'false'])})",
                          lambda: f"{t('int', depth + 1)} {self.pick(['<', '<=', '==', '>'])} {t('int', depth + 1)}", lambda: f"not {t('any', depth + 2)}"])()

    def slice(self):
        part = lambda: self.pick(["", "", "0", "1", "2", "-1", "-2", "7", "none"])
        return part() + ":" + part() + (":" + self.pick(["", "1", "2", "-1", "-2", "3"]) if self.rng.random() < 0.4 else "")

    def expr(self, depth=0):
        if self.rng.random() < 0.9:
            return self.typed(self.pick(["str", "str", "int", "list", "any", "dict"]), depth)
        r = self.rng.random()
        if depth >= 3 or r < 0.25:
            return self.atom()
        a = self.expr(depth + 1)
        if r < 0.5:
            return f"{a} {self.pick(OPERATORS)} {self.expr(depth + 1)}"
        if r < 0.65:
            return f"({a})|{self.pick(FILTERS)}"
        if r < 0.72:
            return f"({a}) is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if r < 0.82:
            return f"({a}).{self.pick(METHODS)}"
        if r < 0.88:
            return f"({a} if {self.expr(depth + 1)}{' else ' + self.expr(depth + 1) if self.rng.random() < 0.8 else ''})"
        if r < 0.92:
            return f"({a})[{self.pick(['0', '-1', '1:', ':-1', '::-1', '::2', '1:3', chr(39) + 'a' + chr(39), '5', 'n'])}]"
        if r < 0.95:
            return self.pick(["not ", "-", "+"]) + f"({a})"
        return f"({a})"

    def text(self):
        return self.pick(["", "", "a", " ", "\n", "  \n", " b\n", "\n  ", "x y", "\t", "é\n\n"])

    def tag(self, body):
        return "{%" + self.pick(["", "", "", "-", "+"]) + " " + body + " " + self.pick(["", "", "", "-", "+"]) + "%}"

    def block(self, depth, in_loop):
        return "".join(self.text() + self.statement(depth, in_loop) for _ in range(self.rng.randrange(1, 4))) + self.text()

    def statement(self, depth=0, in_loop=False):
        r = self.rng.random()
        if depth >= 3 or r < 0.35:
            return "{{" + self.pick(["", "", "-"]) + " " + self.expr() + " " + self.pick(["", "", "-"]) + "}}"
        if r < 0.5:
            out = self.tag("if " + self.expr()) + self.block(depth + 1, in_loop)
            if self.rng.random() < 0.3:
                out += self.tag("elif " + self.expr()) + self.block(depth + 1, in_loop)
            if self.rng.random() < 0.5:
                out += self.tag("else") + self.block(depth + 1, in_loop)
            return out + self.tag("endif")
        if r < 0.68:
            target = self.pick(["x", "x", "y", "n", "n"])
            over = self.typed("list", 2) if self.rng.random() < 0.5 else self.pick(["l", "words", "msgs", "d", "nested", "d.items()", "range(3)", "el", "s", "words|reverse", "l|select('odd')"])
            test = " if " + self.expr(2) if self.rng.random() < 0.25 else ""
            out = self.tag(f"for {target} in {over}{test}") + self.block(depth + 1, True)
            if self.rng.random() < 0.6:
                out += "{{ loop." + self.pick(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth", "cycle('a', 'b')", "changed(x)"]) + " }}"
            if self.rng.random() < 0.3:
                out += self.tag("else") + self.block(depth + 1, in_loop)
            return out + self.tag("endfor")
        if r < 0.78:
            return self.tag(self.pick(["set x = ", "set y = ", "set n = ", "set z = "]) + self.expr())
        if r < 0.82:
            return self.tag("set x" + self.pick(["", " | upper", " | trim | title"])) + self.block(depth + 1, in_loop) + self.tag("endset")
        if r < 0.87:
            return (self.tag("macro m(x, y=" + self.expr(2) + ")") + self.block(depth + 1, False) + self.pick(["", "{{ caller() if caller }}", "{{ varargs }}", "{{ kwargs }}"])
                    + self.tag("endmacro") + "{{ m(" + self.expr(2) + self.pick(["", ", 2", ", y=3", ", 2"]) + ") }}")
        if r < 0.9:
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')|title"])) + self.block(depth + 1, in_loop) + self.tag("endfilter")
        if r < 0.93:
            return self.tag("with x = " + self.expr(2) + ", y = x") + self.block(depth + 1, in_loop) + self.tag("endwith")
        if r < 0.95:
            return "{% set ns = namespace(v=0) %}{% for q in l %}" + self.tag("set ns.v = ns.v + q") + self.block(depth + 1, True) + "{% endfor %}{{ ns.v }}"
        if r < 0.97:
            return self.tag("generation") + self.block(depth + 1, False) + self.tag("endgeneration")
        if r < 0.98:
            return "{#" + self.pick(["", "-", "+"]) + " c " + self.pick(["", "-", "+"]) + "#}"
        return self.tag("if " + self.expr(2)) + self.tag(self.pick(["break", "continue"])) + self.tag("endif") if in_loop else self.text()


# Python shows addresses and big integers; neither is ours to match.  Nor is a slice of a number: jinja2 raises, except
# where it can fold the expression before rendering, which makes it undefined.
UNCOMPARABLE = re.compile(r"0x[0-9a-f]{6,}|<(generator|built-in|function|bound)|\d{19,}|<Cycler|<jinja2|e\+\d\d\d")


def same(want, got):
    if "error" in want or "error" in got:
        return ("error" in want) == ("error" in got)
    if want["out"] != got["out"]:
        return False
    data = got["out"].encode()
    spans = [[len(data[:a].decode("utf-8", "replace")), len(data[:b].decode("utf-8", "replace"))] for a, b in got["spans"]]
    n = len(want["out"])  # blocks inside a macro can be placed past the end; ours are kept inside
    return spans == [[min(a, n), min(b, n)] for a, b in want.get("spans", [])]


def main():
    cases, seed = int((sys.argv + [0, 0, 2000])[2] if len(sys.argv) > 2 else 2000), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    maker = Maker(random.Random(seed))
    ours = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    differ = skipped = failed = 0
    for i in range(cases):
        template = maker.block(0, False)
        want = make_goldens.outcome(template, snippets.CONTEXT)
        ours.stdin.write(json.dumps({"template": template, "context": snippets.CONTEXT}, ensure_ascii=False) + "\n")
        ours.stdin.flush()
        got = json.loads(ours.stdout.readline())
        if UNCOMPARABLE.search(str(want)) or re.search("64 bits|cannot be sliced", got.get("error", "")):
            skipped += 1
            continue
        failed += "error" in want
        if not same(want, got):
            differ += 1
            print(f"--- case {i}\n{template}\n  jinja2: {want}\n  ours:   {got}")
    print(f"{cases} cases, seed {seed}: {differ} differ, {failed} fail on both sides, {skipped} not comparable")
    return differ != 0


if __name__ == "__main__":
    sys.exit(main())
