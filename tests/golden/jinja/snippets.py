"""Small templates, one construct each, and the context they all see.  make_goldens.py records what jinja2 does."""

CONTEXT = {
    "s": "Hello, World", "empty": "", "n": 7, "neg": -3, "f": 2.5, "t": True, "no": False, "nil": None,
    "u": "Größe 日本語 🎉é", "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": 2, "items": "shadow", "C": None}, "e": {}, "el": [],
    "msgs": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\nthere "},
             {"role": "assistant", "content": "Yo", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
             {"role": "user", "content": "Bye"}],
    "html": "<a href=\"x\">T&amp;C's</a>", "lines": "one\ntwo\n\nthree", "tree": [{"v": 1, "k": [{"v": 2, "k": []}]}, {"v": 3, "k": []}],
    "long": {"wei": 1000000000000000000001, "low": -9223372036854775809},
}

EXPRESSIONS = """
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
1 / 2
4 / 2
1 / 0
1 // 0
1 % 0
2 ** -1
2 ** 0.5
10 - 2 - 3
1 + true
true + true
'a' + 'b'
'a' * 3
3 * 'ab'
[1] * 2
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 1
1 + 'a'
none + 1
'a' ~ 1 ~ none ~ true ~ 1.0
1 ~ 2
1.0
1e3
1e16
1e22
123456789.123
0.1 + 0.2
1e-5
100000000000000000000.0
1_000
0x1f
0b101
0o17
true
True
none
None
not true
not none
not 0
not ''
not []
1 == 1.0
1 == true
'1' == 1
none == false
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
1 != 2
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
none < 1
'a' in 'abc'
'' in 'abc'
1 in [1, 2]
1 not in [1, 2]
'a' in {'a': 1}
'b' not in {'a': 1}
1 in 'abc'
1 in 5
missing in [1]
'x' in missing
'b' in d
true and false
true and 'x'
0 or 'y'
none or false
missing or 'z'
missing and 1
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
'a' if n > 5 else 'b' if n > 3 else 'c'
missing
missing.x
missing['x']
missing()
missing + 1
missing ~ 'x'
missing == missing
missing == none
missing < 1
missing|length
missing|list
missing|default('d')
missing is defined
missing is undefined
missing.x is defined
missing|upper
missing|int
missing|tojson
-missing
d.b
d['b']
d.zzz
d.zzz.y
d['items']
d.get('b')
d.get('zzz')
d.get('zzz', 5)
d.get()
d.keys()
d.values()
d.items()
d.items() | list
d.keys() | list
d.copy()
d.update({'x': 1})
d.pop('b')
d.update is defined
d.__class__
d|length
d|list
d.C is none
e.items()
l
l[0]
l[-1]
l[10]
l[1:]
l[:-1]
l[::-1]
l[::2]
l[5:]
l['0']
l.0
l[1:2][0]
l[none:]
l['a':]
l[::0]
l.append(4)
l.append is defined
l.index(1)
l.index(9)
l.count(3)
l.sort()
l.copy()
(1, 2)[0]
(1,)
()
(1, 2, 3)[1:]
s[0]
s[-1]
s[1:4]
s[::-1]
s[100]
s[100:]
s[-3:]
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
'ΟΔΟΣ ΣΟΦΟΣ Σ ΑΣ.'.lower()
'ΟΔΟΣ ΣΟΦΟΣ Σ ΑΣ.'.title()
'ΟΔΟΣ ΣΟΦΟΣ Σ ΑΣ.'.capitalize()
'ΟΔΟΣ ΣΟΦΟΣ Σ ΑΣ.'.swapcase()
'ΑΣ'.capitalize()
'ΑΣ'.title()
'日Σ 日Σ日 ΑΣ日 ΑΣ:Α ΑΣ:1 ʰΣ ΑʰΣ 1Σ 🄰Σ'.lower()
'日Σ 日Σ日 ΑΣ日 ΑΣ:Α ΑΣ:1 ʰΣ ΑʰΣ 1Σ'.title()
'日Σ 日Σ日 ΑΣ日 ΑΣ:Α ΑΣ:1 ʰΣ ΑʰΣ 1Σ'.swapcase()
s.strip('Hd')
s.lstrip('H')
s.rstrip('d')
'  x '.strip()
'xxax'.strip('x')
s.split()
s.split(',')
s.split(', ', 1)
s.split('')
s.split(none)
s.rsplit('o', 1)
s.rsplit('l')
' a  b '.split()
' a  b c'.split(none, 1)
' a  b c '.rsplit(none, 1)
'a,b,,c'.split(',')
'a,b'.split(sep=',', maxsplit=1)
''.split()
''.split(',')
lines.splitlines()
lines.splitlines(true)
'a\\r\\nb\\rc'.splitlines()
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith(['H'])
s.endswith('ld')
s.endswith('lo', 0, 5)
s.replace('l', 'L')
s.replace('l', 'L', 2)
s.replace('', '-')
s.replace('l')
s.find('o')
s.find('zz')
s.rfind('o')
s.index('zz')
s.find('o', 5)
s.count('l')
s.count('')
'-'.join(['a', 'b'])
'-'.join([1])
'-'.join('abc')
'x'.join([])
s.isdigit()
'12'.isdigit()
'ab'.isalpha()
' '.isspace()
''.isspace()
'AB'.isupper()
'Ab'.isupper()
'ab1'.islower()
'Ab Cd'.istitle()
'a1'.isalnum()
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removeprefix('z')
'7'.zfill(3)
'-7'.zfill(4)
'ab'.center(7)
'ab'.center(7, '*')
'ab'.ljust(4) ~ '|'
'ab'.rjust(4, '.')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'a\\tb'.expandtabs(4)
'{} and {}'.format(1, 'x')
'{1} {0}'.format('a', 'b')
'{a} {b}'.format(a=1, b=2)
'{:>5}|{:<5}|{:^5}'.format(1, 'a', 'b')
'{:05d} {:.2f} {:x}'.format(42, 3.14159, 255)
'{0[0]} {1.b}'.format(l, d)
'{!r}'.format('x')
'{{}}'.format()
'{'.format()
'{}'.format()
'{:,}'.format(1234567)
'{:%}'.format(0.25)
'{:e}'.format(12345.678)
'%s and %d' % ('a', 5)
'%s' % 'x'
'%05.1f|%-5s|%+d' % (3.14159, 'ab', 5)
'%(a)s' % {'a': 1}
'%d' % 'x'
'%s %s' % ('a',)
'%%' % ()
'%x %o %e' % (255, 8, 1.5)
'%r' % 'q'
'x' % missing
'x' % range(3)
'x' % namespace(a=1)
'x' % [1]
'x' % 1
u
u|length
u[0]
u[-1]
u[2:5]
u.upper()
u|lower
u.find('日')
u[::-1]
u|tojson
u|tojson(ensure_ascii=true)
[u]
'straße'.upper()
'ΑΣ'.lower()
'éa'|capitalize
'\\u00e9\\x41\\n'
'\\q'
"it's"
["it's", 'say "x"', 'both \\' and "']
['\\n\\t\\\\']
'a' 'b'
[1, 'a', none, true, 1.5, [2], (3,), {'k': 'v'}]
{'a': 1, 'b': [1, 2]}
{1: 'a', none: 'b', 'x': {}}
{'a': 1, 'a': 2}
{[1]: 2}
{}
[]
{'a': 1}.a
{'a': {'b': 1}}['a']['b']
[1, 2,]
[[1, 2], [3]][0][1]
n|abs
neg|abs
-3|abs
'x'|abs
s|trim
'  x '|trim
'xax'|trim('x')
s|upper
5|upper
s|lower
'hello wORLD-foo (bar)'|title
'hELLO'|capitalize
'ΟΔΟΣ ΣΟΦΟΣ ΑΣ'|capitalize
'ΟΔΟΣ ΣΟΦΟΣ ΑΣ'|title
'ΟΔΟΣ ΣΟΦΟΣ ΑΣ'|lower
s|replace('o', '0')
s|replace('o', '0', 1)
5|replace(5, 6)
l|join
l|join(', ')
msgs|join(',', attribute='role')
el|join('x')
l|length
s|count
5|length
l|first
el|first
el|first is defined
l|last
s|first
s|last
d|first
el|last
s|list
'ab'|list
d.items()|list
l|sort
l|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
msgs|sort(attribute='role')|map(attribute='content')|list
msgs|sort(attribute='role,content')|map(attribute='content')|list
[1, 'a']|sort
l|min
l|max
words|min
words|max(case_sensitive=true)
el|min
msgs|max(attribute='content')
l|sum
[1.5, 2]|sum
msgs|map(attribute='content')|map('length')|sum
l|sum(start=10)
['a']|sum
l|reverse|list
s|reverse
words|unique|list
[(1, {})]|unique|list
{(1, []): 1}
words|unique(case_sensitive=true)|list
[1, 1.0, 2, true]|unique|list
l|batch(2)|list
l|batch(2, 'x')|list
range(7)|slice(3)|list
range(7)|slice(3, 'x')|list
d|items|list
missing|items|list
5|items|list
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
{'b': 2, 'a': 3}|dictsort(by='value', reverse=true)
{'b': 2, 'a': 3}|dictsort(by='x')
words|map('upper')|list
words|map('replace', 'p', 'P')|list
msgs|map(attribute='role')|list
msgs|map(attribute='tool_calls', default='none')|list
msgs|map(attribute='content.0')|list
words|map('nosuch')|list
words|map|list
l|select('odd')|list
l|reject('odd')|list
l|select('gt', 1)|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
msgs|selectattr('role', 'equalto', 'user')|list|length
msgs|selectattr('tool_calls')|list|length
msgs|selectattr('tool_calls', 'defined')|map(attribute='role')|list
msgs|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|list
msgs|selectattr('role', 'nosuch')|list
(msgs|selectattr('role', 'equalto', 'zzz')) is defined
'yes' if msgs|selectattr('role', 'equalto', 'zzz') else 'no'
msgs|selectattr('role', 'equalto', 'zzz')|list|length
msgs|groupby('role')|map(attribute='grouper')|list
msgs|groupby('role')|map('last')|map('length')|list
(msgs|groupby('role'))[0].list|length
nil|default('x')
nil|default('x', true)
''|d('x', boolean=true)
no|default('x')
d.zzz|default
d|tojson
msgs|tojson
msgs[2]|tojson(indent=2)
msgs[2]|tojson(indent=4, sort_keys=true)
{'b': 1, 'a': [1, {}, []]}|tojson(separators=(',', ':'))
{'b': 1, 'a': 2}|tojson(sort_keys=true)
{'a': []}|tojson(indent=1)
{'a': 1}|tojson(indent='->')
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
'</script>&\\'"\\\\/\\b\\f\\n\\u0001'|tojson
[1.0, 1e100, -0.0, 0.1]|tojson
(1, 2)|tojson
range(3)|tojson
range(3)|list|tojson
nil|tojson
'5'|int
'5.7'|int
'x'|int
'x'|int(default=9)
'0x1f'|int(base=16)
'1f'|int(0, 16)
2.9|int
-2.9|int
nil|int
true|int
' 12 '|int
'1_000'|int
'5'|float
'x'|float
'1e3'|float
'inf'|float
3|float
nil|float(1.5)
2.5|round
3.5|round
2.567|round(2)
2.4|round(0, 'ceil')
2.567|round(1, 'floor')
1234|round(-2)
2.5|round(method='bad')
7|round
5|string
nil|string
[1]|string
lines|indent
lines|indent(2, true)
lines|indent(2, blank=true)
lines|indent('> ')
'a b  c-d'|wordcount
'abc def ghi'|truncate(9)
'x&y &amp; z'|striptags
'abc def ghi'|truncate(7, leeway=0)
'abc def ghi'|truncate(7, true, leeway=0)
'abc def ghi'|truncate(7, true, '', 0)
s|center(20)
html|e
html|escape|upper
html|safe
html|striptags
html|forceescape
('<'|safe) + '<'
'<' ~ ('<'|safe)
['<'|safe]
'a b/c?d=é'|urlencode
{'a': 'x y', 'b': 1}|urlencode
'%s-%s'|format(1, 'b')
'%(x)s'|format(x=5)
d|attr('b')
d|attr('keys') is callable
'a <!-- x > y --> b  <i>c</i> < d'|striptags
1000|filesizeformat
1500000|filesizeformat
2048|filesizeformat(true)
1|filesizeformat
{'class': 'x', 'id': none, 'n': 1}|xmlattr
n is number
n is integer
f is float
n is float
t is boolean
t is number
t is integer
1 is true
t is true
no is false
0 is false
s is string
s is iterable
s is sequence
5 is iterable
d is mapping
l is mapping
d is iterable
d is sequence
l is sequence
nil is none
n is odd
n is even
'x' is odd
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is gt 5
n is lt(5)
n is ge 7
n is le 7
n is in [7, 8]
n is not in [7]
'a' is lower
'A' is upper
'upper' is filter
'nosuch' is filter
'odd' is test
n is sameas 7
n is not none
nil is not none
range is callable
n is callable
d.get is callable
not n is odd
n is odd and n is gt 3
n is odd or false
'x' if n is none else 'y'
n is nosuch
n|nosuch
range(3)
range(3)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(0)|list
range(1000000)
range(1, 2, 0)
range('a')
range(3)[1]
range(10)[2:5]
range(3)|length
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1), ('b', 2)])
dict([1])
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace().a
namespace(_a=1)
cycler('a', 'b').current
joiner(',')()
raise_exception('stop')
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y %H:%M:%S %A %B %j %p %I %y %%')
strftime_now('%-d %e %f|%z|%Z|')
strftime_now(5)
'a'.nosuch
'a'.nosuch()
'a'()
n()
n.real
n.x
nil.x
nil.x.y
nil['x']
[1, 2].__len__()
''.join(['a', 'b'])|upper
s.split(',')[0].strip()|lower
(s ~ '!')|length
msgs[0].content
msgs[0]['content'][:2]
msgs[-1].role
msgs[99].role
msgs[2].tool_calls[0].function.name
msgs[2].tool_calls[0]['function']['arguments']|tojson
msgs|length - 1
msgs[1:]|length
msgs[0].role == 'system' and msgs|length > 1
[msgs[0].role, msgs[1].role]
{'a': 1, **{}}
1,
1, 2
n if n
[n for n in l]
lambda: 1
s|upper|lower|title
s | replace('l', '') | trim('H')
-n|abs
-(n|abs)
- 5
+5
--5
not not 5
1 - -1
2 * -3
'a' not in 'b' not in 'c'
1 == 1 == 1
d.b + d.a * 2
d['b' if t else 'a']
d[missing]
l[missing]
l[t]
l[1.0]
s[none]
x.y if x is defined else 'no'
[1, 2, 3][::-1]|join('-')
'%.3f' % f
'%s' % nil
'%s' % l
'%s' % (l,)
f|string ~ 's'
3 is divisibleby(0)
'abc'|first ~ 'abc'|last
(l|sort)[0]
l|sort|first
1 in d.values()
('b', 1) in d.items()
d.keys() == d.keys()
el == []
el|default('x', true)
' a  b c '.split(none, 1)
'abc def'|safe|list
(html|safe)[1:3]
5|truncate(3)
words|truncate(9)
'ab'|truncate(1, true, '..')
d[1:2]
missing[1:2]
nil[1:]
(1.5).is_integer()
n.bit_length()
'a%b'|urlencode
'x'.join(d)
'x'.join(words|map('upper'))
words|map('upper')|join(',')
words|map('first')|join
[[1, 2], [3]]|sum(start=[])
[{'a': 1}, {'a': 2}]|sum('a')
[{'a': {'b': 1}}, {'a': {'b': 3}}]|map(attribute='a.b')|max
'ab'|batch(1)|list
{'a': 1}|list|first
{'b': 1, 'a': 2}|sort
{'b': 1, 'a': 2}|max
[none, 1]|max
[true, 2]|sum
true|string ~ false
-0.0
1e308 * 10
7.0 // 2
-7 // 2.0
7.5 % -2
5 % 2.5
2 ** 10
2 ** 62
(-8) ** 2
0 ** 0
0 ** -1
10 / 4 * 2
'5' * '5'
'ab' * -1
[] * 3
'%c%c' % (65, 'b')
'%5.2f%%' % 12.345
'%-8s|' % 'ab'
'%08.3f' % -3.14159
'%+.1e' % 12345.678
'%i' % 3.9
'%s %s' % {'a': 1}
'%s' % {'a': 1}
'%s' % []
'a' % []
'a' % 5
'{:d}'.format('x')
'{:s}'.format(5)
'{:>{w}}'.format('x', w=4)
'{:*^9}'.format('mid')
'{:+}'.format(5)
'{:b} {:#x} {:o}'.format(5, 255, 8)
'{:.3}'.format('abcdef')
'{:g}'.format(0.00001)
'{:.0f}'.format(2.5)
'{:10.3f}|'.format(3.14159)
'{:08.2f}'.format(-3.14159)
'{a[k]}'.format(a={'k': 1})
'{0}{}'.format(1, 2)
'}'.format()
'{x.y}'.format(x={'y': 2})
s.center(3)
s.find('')
s.rfind('')
'aXbX'.replace('X', '', 1)
'aaa'.replace('aa', 'b')
'a.b.c'.rsplit('.', 1)[0]
'a\n'.splitlines()
''.splitlines()
'\n'.splitlines()
' \t\n'.strip() == ''
'\u00a0x\u2003'.strip()
'ǆ'.upper()
'ŉ'.title()
'İ'.lower()
'ß'.title()
'①'.isdigit()
'½'.isnumeric()
'٣'.isdecimal()
'aé'.isalpha()
"they're bill's".title()
"they're bill's"|title
'a-b c_d'|title
['\x7f', '\u200b', 'é', '\U0001f600', '\x00']
'tab\there'|tojson
'\x7f\u2028'|tojson
{'é': 'ü'}|tojson(ensure_ascii=true)
'😀'|tojson(ensure_ascii=true)
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}, [1]]|tojson(indent=2)
{'a': 1, 'b': [1, 2]}|tojson(indent=0)
{'a': 1}|tojson(indent=-1)
{'a': 1}|tojson(indent=true)
{'a': 1}|tojson(2)
{'a': 1}|tojson(nosuch=1)
{(1, 2): 3}|tojson
loop.index
varargs
caller
"""

TEMPLATES = [
    # integers past 64 bits
    "{{ long.wei }}", "{{ long }}", "{{ long|tojson }}", "{{ [long.wei, long.low]|join(' ') }}", "{{ long.wei ~ '' }}", "{{ '%s' % long.low }}",
    "{{ '{}'.format(long.wei) }}", "{{ long.wei|string|length }}", "{{ long.wei|int }}", "{{ long.wei is integer }} {{ long.wei is float }} {{ long.wei is number }}",
    "{{ long.wei > n }} {{ long.low < 0 }} {{ long.wei == long.wei }}", "{{ long.wei is mapping }} {{ long.wei is string }}", "{{ long.wei.x }}", "{{ long.wei|length }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}{% endif %}{{ x }}",
    "{% for i in l %}{% if loop.first %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}{% endfor %}{{ q }}",
    "{% for i in l %}{% for j in l %}{% set n = n + j %}{% endfor %}{{ n }},{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro f(x) %}{% set y = x %}{% macro g() %}{{ y }}{% endmacro %}{{ g() }}{% endmacro %}{{ f(1) }}{{ f(2) }}",
    "{% macro f(n) %}{{ n }}{% endmacro %}{{ f() }}{{ n }}",
    "{% macro f() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ f() }}{{ n }}",
    "{% macro f(a, a2=l|length, b=a2 + 1) %}{{ a }}{{ a2 }}{{ b }}{% endmacro %}{{ f(0) }}{{ f(0, 5) }}",
    "{% macro f() %}{{ caller('x') }}{% endmacro %}{% for i in l %}{% call(v) f() %}{{ v }}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% macro f(caller=1) %}{{ caller }}{% endmacro %}{{ f() }}",
    "{% macro f(a) %}{{ kwargs.z }}{{ kwargs|length }}{% endmacro %}{{ f(1, z=2) }}",
    "{% macro f() %}{{ varargs|join('-') }}{% endmacro %}{{ f(1, 2) }}{{ f() }}",
    "{% set f = 5 %}{% macro f() %}m{% endmacro %}{{ f() }}",
    "{% for i in l %}{% set ns = namespace(k=i) %}{% endfor %}{{ ns is defined }}",
    "{% with a = n %}{% set n = 2 %}{{ a }}{{ n }}{% endwith %}{{ n }}",
    "{% for x in l %}{% with x = x * 2 %}{{ x }}{% endwith %}{{ x }} {% endfor %}",
    "{% filter upper %}{% set q = 'a' %}{{ q }}{% endfilter %}{{ q }}",
    "{% set x %}{% set q = 'a' %}{{ q }}{% endset %}{{ q }}{{ x }}",
    "{% for i in l %}{% set x %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ x }}{% endfor %}|{{ x }}",
    "{% for i in range(5) if i is odd %}{{ loop.revindex }}{{ loop.previtem }}{% endfor %}",
    "{% for i in l recursive %}{{ i }}{% if loop.depth < 3 %}{{ loop(l[:1]) }}{% endif %}{% endfor %}",
    "{% for k, v in d.items() recursive %}{{ k }}{% endfor %}",
    "{% for i in [[1, [2]], [3, []]] recursive %}{% set a, b = i if i is sequence else (i, []) %}{{ a }}{% endfor %}",
    "{% for a in l %}{% for b in l %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
    "{% for a in l %}{% for b in l %}{% else %}{% break %}{% endfor %}{{ a }}{% endfor %}",
    "{% for a in l %}{% else %}{% break %}{% endfor %}",
    "{%- if t -%}\n a \n{%- else -%} b {%- endif -%}\n c",
    "{{ 'a' }}\n\n{%- if t %}\n\nb{% endif %}",
    "  {%- if t %}x{% endif -%}  ",
    "x{% if t %}\n{% endif %}\ny",
    "{% if t %}\n\n\nx\n\n{% endif %}\n\ny",
    "a{# c #}\n{# d #}\nb",
    "   {# c #}   \n x",
    "{% raw -%}\n a {%- endraw %}",
    "{%- raw %} a {% endraw -%} \n b",
    "{% raw %}\na{% endraw %}\nb",
    "{{ [1,\n 2,\n 3] }}",
    "{% set x = {\n 'a': 1,\n 'b': 2\n} %}{{ x }}",
    "{{ 'a\nb' }}",
    "{{\n  n\n}}",
    "{%\n if t\n%}x{%\nendif\n%}",
    "{% if t: %}x{% endif %}",
    "{% for x in l: %}{{ x }}{% endfor %}",
    "{{ s.split(', ')[0] + '}}' + \"{{\" }}",
    "{{ '%}' }}{% set a = '%}' %}{{ a }}",
    "{{ \"a'b\" + 'c\\'d' }}",
    "{% set s = 'x' if no %}[{{ s }}]{{ s is defined }}",
    "{% set s = n|default(0) + 1 if n is defined else 0 %}{{ s }}",
    "{% for m in msgs %}{% if m.role == 'user' and loop.index0 > 0 and not loop.last %}U{% elif m.tool_calls %}T{% else %}.{% endif %}{% endfor %}",
    "{% set ids = msgs|map(attribute='role')|map('first')|list %}{{ ids }}{{ ids.index('u') }}",
    "{% set last = (msgs|selectattr('role', 'equalto', 'user')|list)[-1] %}{{ last.content }}",
    "{% set last = msgs|selectattr('role', 'equalto', 'user')|list|last %}{{ last.content }}",
    "{{ msgs|selectattr('role', 'equalto', 'nobody')|first is defined }}",
    "{{ msgs|selectattr('role', 'in', ('user', 'system'))|map(attribute='content')|map('trim')|join('; ') }}",
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc",
    "a  {%- if t -%}  b  {%- endif -%}  c",
    "a\n  {%+ if t %}\nb\n{% endif +%}\nc",
    "  {{ n }}  \n  {{- n -}}  \n x",
    "{# c #}\nx\n  {# d #}\ny{#- e -#}  z",
    "x {#- a #} y {# b -#} z {#+ c +#} w",
    "{% raw %}{{ x }}{% y %}{% endraw %}",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "a {%- raw -%}  {{ x }}  {%- endraw -%} b",
    "{% raw %}a{% endraw",
    "{{ '{{' }}{{ '%}' }}{{ '}}' }}",
    "{{ {'a': {'b': 1}}}}",
    "{{ {'a': 1}['a'] }}}",
    "a\r\nb\rc{% if t %}\r\nd{% endif %}\r\n",
    "x\n\n",
    "{% if t %}  {% endif %}|",
    "\t {% if t %}x{% endif %}\t \n y",
    "{{ n }}\n{{ n }}\n",
    "{% set x = 1 %}\n\n{{ x }}",
    "{%- set x = 1 -%}\n\n{{ x }}",
    "{% for i in l %}{{ i }}{% endfor %}",
    "{% for i in l -%}\n {{ i }}\n{%- endfor %}",
    "{% for i in el %}x{% else %}none{% endfor %}",
    "{% for i in l %}x{% else %}none{% endfor %}",
    "{% for i in l %}{% continue %}{% else %}none{% endfor %}",
    "{% for i in l %}{% break %}{% else %}none{% endfor %}",
    "{% for i in l %}{{ i }}{% if i == 1 %}{% break %}{% endif %},{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }},{% endfor %}",
    "{% break %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem.x }}{% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2, 2] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in l %}{{ loop }}{% endfor %}",
    "{% for i in l %}{{ loop.nosuch }}{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ loop.last }} {% endfor %}",
    "{% for i in l if i > 5 %}x{% else %}none{% endfor %}",
    "{% for m in msgs if m.role == 'user' %}{{ m.content|trim }};{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2, 3, 4] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2, 3, 4] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{{ loop.last }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for a, b in nested %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for c in 'abc' %}{{ c }}-{% endfor %}",
    "{% for c in u %}{{ c }}-{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{% for x in nil %}{% endfor %}",
    "{% for x in missing %}x{% else %}e{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in range(3) %}{% set outer = loop %}{% for j in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}{% if n.k %}({{ loop(n.k) }}){% endif %}{{ loop.depth }}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}{{ loop(n.k) }}{% else %}.{% endfor %}",
    "{% for n in tree %}{{ loop(n.k) }}{% endfor %}",
    "{% for loop in l %}{% endfor %}",
    "{% for i in l %}{% endfor %}{{ i }}",
    "{% set i = 9 %}{% for i in l %}{{ i }}{% endfor %}{{ i }}",
    "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}",
    "{% for i in l %}{% set x = (x or 0) + i %}{{ x }},{% endfor %}{{ x }}",
    "{% for i in l %}{{ y }}{% set y = i %}{% endfor %}",
    "{% if t %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% if no %}{% set x = 5 %}{% endif %}{{ x is defined }}",
    "{% if no %}{% set n = 5 %}{% endif %}{{ n }}",
    "{% set n = n + 1 %}{{ n }}",
    "{{ n }}{% set n = 1 %}{{ n }}",
    "{% set n = 1 %}{% for i in l %}{{ n }}{% endfor %}",
    "{% for i in l %}{{ n }}{% set n = i %}{% endfor %}{{ n }}",
    "{% for i in l %}{% if i == 3 %}{% set z = i %}{% endif %}{{ z }},{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% set n = i %}{% endif %}{{ n }},{% endfor %}",
    "{% if no %}a{% elif t %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if 1, 2 %}a{% endif %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a = b = 1 %}",
    "{% set (a, b) = l[:2] %}{{ a }}{{ b }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} abc {% endset %}[{{ x }}]",
    "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{% set ns.b = 3 %}{{ ns.a }}{{ ns.b }}{{ ns }}",
    "{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns.x %}body{% endset %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set d.x = 1 %}",
    "{% set missing.x = 1 %}",
    "{% set ns = namespace(a=1) %}{% set ns.a, y = 5, 6 %}{{ ns.a }}{{ y }}",
    "{% set true = 1 %}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=5) }}|{{ f(a=1, b=2) }}|{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}",
    "{% macro f(a=n) %}{{ a }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "{% set x = 1 %}{% macro f() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}",
    "{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in {{ n }}{% endcall %}",
    "{% macro f() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro f() %}[{{ caller is defined }}]{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}",
    "{% macro f(a, b) %}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.caller }}",
    "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'b': 4}) }}",
    "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ f(1) }}]",
    "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% set x = 5 %}{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% print n, s %}",
    "{% autoescape false %}{{ html }}{% endautoescape %}",
    "{% generation %}abc{{ n }}{% endgeneration %}",
    "a{% generation %}b{% endgeneration %}c{% generation %}d{% endgeneration %}",
    "ü{% generation %}日{% endgeneration %}c{% for m in msgs %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "{% macro f() %}x{% generation %}y{% endgeneration %}{% endmacro %}ab{{ f() }}{% generation %}z{{ f() }}{% endgeneration %}",
    "{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
    "{% for i in l %}{% generation %}{{ loop.index }}{{ i }}{% endgeneration %}{% endfor %}",
    "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{% set g = l|select('odd') %}{% for i in g %}{{ loop.length }}{{ i }}{% endfor %}",
    "{% set g = l|map('string') %}{{ 'x' if g else 'y' }}",
    "{% for i in l|reverse %}{{ loop.index }}{{ i }}{{ loop.last }}{% endfor %}",
    "{% for g in msgs|groupby('role') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}",
    "{% for role, ms in msgs|groupby('role') %}{{ role }}:{{ ms|length }} {% endfor %}",
    "{% for m in msgs %}{{ m['role'] }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for m in msgs[::-1] %}{% set i = (msgs|length - 1) - loop.index0 %}{{ i }}{{ m.role[0] }}{% endfor %}",
    "{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=[]) %}{% for i in l %}{% set ns.x = ns.x + [i] %}{% endfor %}{{ ns.x }}",
    "{% if 'tool_calls' in msgs[2] and msgs[2]['tool_calls'] %}y{% endif %}",
    "{% if msgs[0].tool_calls is defined %}y{% else %}n{% endif %}",
    "{% if msgs[0]['tool_calls'] is defined and msgs[0].tool_calls %}y{% else %}n{% endif %}",
    "{{ msgs[0].content.split('.')[0] ~ '!' }}",
    "{% set parts = 'a</think>b'.split('</think>') %}{{ parts[0] }}|{{ parts[-1] }}",
    "{{ 'x</think>y'.split('</think>')[-1].lstrip('\\n') }}",
    "{{ 'a' if }}", "{{ }}", "{% %}", "{% if t %}", "{% endif %}", "{% for %}{% endfor %}", "{{ 'abc }}", "{{ a b }}", "{{ (1 }}", "{% set %}",
    "{{ [1, 2 }}", "{{ {'a' 1} }}", "{{ a. }}", "{{ 1.a }}", "{{ a..b }}", "{# abc", "{{ x", "{% if x", "{{ x }", "{{ @ }}", "{% nosuch %}",
    "{% if t %}{% endfor %}", "{% macro %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% call x %}{% endcall %}", "{{ f(a=1, 2) }}",
    "{{ f(a=1, a=2) }}", "{% for x in l recursive %}{{ x }}{% endfor %}", "{{ x is }}", "{{ x | }}", "{{ x is is y }}", "{{ 1 is odd is even }}",
    "{% include 'x' %}", "{% if no %}{{ x|nosuch }}{% endif %}ok", "{% if t %}{{ x|nosuch }}{% endif %}ok", "{% if no %}{{ x is nosuch }}{% endif %}ok",
    "{{ '\\x4' }}", "{{ loop.index }}", "{% set loop = 1 %}{{ loop }}", "{% for i in l %}{% set loop = i %}{{ loop }}{% endfor %}",
    "{% do 1 %}", "{% set x = 1 -%}  {{ x }}", "{{- ' x ' -}}", " {{- 1 }} ", "a{{ 1 -}} \n b", "{%- if t %} a {%- endif %} b ",
]


def all_templates():
    for e in EXPRESSIONS.strip().split("\n"):
        yield "{{ " + e + " }}"
    yield from TEMPLATES
