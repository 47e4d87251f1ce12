set(sources arith.c attr.c call.c chars.c compare.c eval.c exec.c filter.c filter_each.c filter_list.c filter_text.c
    filter_value.c format.c global.c iter.c jinja.c lexer.c loop.c method.c method_ask.c method_split.c method_str.c
    object.c parse_expr.c parse_primary.c parse_stmt.c parser.c percent.c repr.c scope.c test.c tojson.c)
