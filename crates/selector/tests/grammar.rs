//! Which texts are selectors (JMS 3.8.1, ActiveMQ's grammar), and the errors of the others.

use postroad_selector::{Reason, Selector};

/// Name, text and, for a refusal, the character and the words.
type Case<'a> = (&'a str, &'a str, Option<(usize, &'a str)>);

fn check(cases: &[Case<'_>]) {
    for (name, text, want) in cases {
        let found = Selector::parse(text).map_err(|error| (error.position, error.reason.to_string()));
        let want = want.map_or(Ok(()), |(position, reason)| Err((position, reason.to_owned())));
        assert_eq!(found.map(drop), want, "case: {name}: {text}");
    }
}

#[test]
fn legal_selectors() {
    let texts = [
        "a",
        "TRUE",
        "false",
        "NULL",
        "NOT a",
        "not not a",
        "(a)",
        "a AND b OR NOT c",
        "a=1",
        "a<>1",
        "1 = a",
        "a = b",
        "a = b = TRUE",
        "a = 1 = b",
        "TRUE = TRUE",
        "a = TRUE",
        "FALSE <> a",
        "'x' = 'x'",
        "'a' = 1",
        "a < 1",
        "a<=1",
        "1 >= a",
        "a > b",
        "a BETWEEN 1 AND 2",
        "a not between b and c + 1",
        "a BETWEEN 1 AND 2 AND b",
        "a LIKE 'x'",
        "a NOT LIKE 'x%' ESCAPE '%'",
        "a like '' escape 'é'",
        "a IN ('x')",
        "a NOT IN ('x', 'y','z')",
        "(a) IN ('x')",
        "a IS NULL",
        "a is not null",
        "1 IS NULL",
        "(a = 1) IS NULL",
        "a + 1 = 2",
        "a + b * c - d / e % f > -1",
        "- - + a = 1",
        "a--1 = 0",
        "-a < +b",
        "name + '!' = 'x'",
        "'a' + b = 'ab'",
        "a = NOT b",
        "NOT a = 1",
        "$ = 1",
        "_a$9 = 1",
        "a.b.c = 1",
        "größe = 1",
        "JMSXGroupID = 'g'",
        "like_ = 1",
        "XPATH = 1",
        "a\t=\n1\r\u{c}",
        "a /* = 2 */ = 1",
        "a = 1 /***/",
        "-- first\na = 1",
        "a = 1 -- last\n",
        "a = 5AND b = 6",
        "a = 5LIKE 'x' = TRUE",
        "convert_string_expressions:a = 1",
        "no_convert_string_expressions:a = 1",
        "a = ''",
        "a = ''''",
        "a = 'it''s'",
        "a = 'line\nbreak'",
        "a = '\u{1f600}'",
    ];
    for text in texts {
        let parsed = Selector::parse(text);
        assert_eq!(parsed.as_ref().map(Selector::text), Ok(text));
    }
}

#[test]
fn numbers_in_every_form() {
    let texts = [
        "a = 0",
        "a = 0L",
        "a = 7l",
        "a = 017",
        "a = 0x1F",
        "a = 0XaBcL",
        "a = 9223372036854775807",
        "a = -9223372036854775808",
        "a = - 9223372036854775808L",
        "a = 0x7fffffffffffffff",
        "a = 5.",
        "a = .5",
        "a = 5.5",
        "a = 5E10",
        "a = 5.E+1",
        "a = .5e-1",
        "a = 5d",
        "a = 5F",
        "a = 5.5D",
        "a = 08.5",
        "a = 09D",
        "a = 1E999",
    ];
    for text in texts {
        assert_eq!(Selector::parse(text).map(drop), Ok(()), "{text}");
    }
}

#[test]
fn malformed_selectors_of_the_jms_suite() {
    const VALUE: &str = "expected a property, a literal or `(`, found ";
    let value = |found: &str| format!("{VALUE}{found}");
    let (at_end, equals, and, hash) = (value("the end"), value("`=`"), value("`AND`"), value("`#`"));
    check(&[
        ("no right side", "a =", Some((3, &at_end))),
        ("no left side", "= 1", Some((0, &equals))),
        ("open string", "a = 'open", Some((4, "the string has no closing quote"))),
        ("BETWEEN without AND", "a BETWEEN 1", Some((11, "expected AND and the upper bound, found the end"))),
        ("LIKE takes strings", "a LIKE 5", Some((7, "expected a string in quotes, found `5`"))),
        ("IN takes members", "a IN ()", Some((6, "expected a string in quotes, found `)`"))),
        ("NOT what", "NOT", Some((3, &at_end))),
        ("two values", "a b", Some((2, "expected an operator or the end, found `b`"))),
        ("open parenthesis", "(a = 1", Some((6, "expected an operator or `)`, found the end"))),
        ("closed twice", "a = 1)", Some((5, "expected an operator or the end, found `)`"))),
        ("long escape", "a LIKE 'x' ESCAPE 'yy'", Some((18, "ESCAPE takes one character, not 2"))),
        ("no second summand", "1 +", Some((3, &at_end))),
        ("IS what", "a IS", Some((4, "expected NULL or NOT NULL, found the end"))),
        ("comma and nothing", "a IN ('x',)", Some((10, "expected a string in quotes, found `)`"))),
        ("no token", "a = #", Some((4, &hash))),
        ("AND first", "AND a = 1", Some((0, &and))),
    ]);
}

#[test]
fn other_malformed_selectors() {
    check(&[
        ("empty", "", Some((0, "expected a property, a literal or `(`, found the end"))),
        ("blank", " \t", Some((2, "expected a property, a literal or `(`, found the end"))),
        (
            "a number is no condition",
            "3+5",
            Some((0, "expected a condition, which is true or false, found `3`")),
        ),
        (
            "nor beside AND",
            "True AND 3+5",
            Some((9, "expected a condition, which is true or false, found `3`")),
        ),
        ("nor behind NOT", "NOT 'a'", Some((4, "expected a condition, which is true or false, found `'a'`"))),
        ("misspelt AND", "a = 1 AMD  b = 2", Some((6, "expected an operator or the end, found `AMD`"))),
        (
            "NULL has no equal",
            "NULL = zero",
            Some((0, "expected a value; NULL is compared by IS NULL, found `NULL`")),
        ),
        ("TRUE has no order", "TRUE > 0", Some((0, "expected a number, found `TRUE`"))),
        ("strings have no order", "a > '5'", Some((4, "expected a number, found `'5'`"))),
        ("nor between", "a BETWEEN 'a' AND 'b'", Some((10, "expected a number, found `'a'`"))),
        ("conditions have no order", "1 < a < 5", Some((0, "expected a number, found `1`"))),
        ("TRUE is no number", "TRUE = 5", Some((7, "expected a literal of the same type, found `5`"))),
        ("strings are not subtracted", "a - 'b' = 1", Some((4, "expected a number, found `'b'`"))),
        ("strings have no sign", "-'b' = 1", Some((1, "expected a number, found `'b'`"))),
        ("numbers are no members", "a IN (1, 2)", Some((6, "expected a string in quotes, found `1`"))),
        ("literals are in no list", "'a' IN ('a')", Some((0, "expected a property before IN, found `'a'`"))),
        ("IN what", "a IN 'x'", Some((5, "expected `(` and a list of strings, found `'x'`"))),
        ("members end", "a IN ('x' 'y')", Some((10, "expected `,` or `)`, found `'y'`"))),
        ("NOT which", "a NOT = 1", Some((6, "expected LIKE, BETWEEN or IN, found `=`"))),
        ("IS NOT what", "a IS NOT 5", Some((9, "expected NULL, found `5`"))),
        ("== is Java", "a == 1", Some((3, "expected a property, a literal or `(`, found `=`"))),
        ("!= is Java", "a != 1", Some((2, "expected an operator or the end, found `!`"))),
        ("quotes are single", "a = \"b\"", Some((4, "expected a property, a literal or `(`, found `\"`"))),
        ("hyphens are minus", "content-type = 'x' - 1", Some((15, "expected a number, found `'x'`"))),
        ("open comment", "a = 1 /* b", Some((6, "the comment has no closing */"))),
        (
            "a line comment ends its line",
            "a = 1 -- why not",
            Some((16, "expected LIKE, BETWEEN or IN, found the end")),
        ),
        ("empty escape", "a LIKE 'x' ESCAPE ''", Some((18, "ESCAPE takes one character, not 0"))),
        (
            "too large",
            "a = 9223372036854775808",
            Some((4, "the number is outside the range of a 64-bit integer")),
        ),
        (
            "far too large",
            "a = -99999999999999999999",
            Some((5, "the number is outside the range of a 64-bit integer")),
        ),
        (
            "hex is not signed",
            "a = 0x8000000000000000",
            Some((4, "the number is outside the range of a 64-bit integer")),
        ),
        ("octal digits", "a = 08", Some((5, "expected an operator or the end, found `8`"))),
        ("characters, not bytes", "größe = é é", Some((10, "expected an operator or the end, found `é`"))),
        (
            "the prefix counts",
            "convert_string_expressions:a =",
            Some((30, "expected a property, a literal or `(`, found the end")),
        ),
        (
            "XPath",
            "a = 1 AND XPATH '//a['",
            Some((
                16,
                "the XPATH is wrong at its character 4: unexpected end of input, expected an expression",
            )),
        ),
        ("XPath without string", "XPATH", None),
        ("XQuery", "a AND xquery 'b'", Some((6, "`xquery` is not supported yet"))),
        ("functions", "REGEX('a', b)", Some((0, "`REGEX` is not supported yet"))),
    ]);
}

#[test]
fn nothing_is_too_deep_or_too_long_to_refuse() {
    let deep = Reason::TooDeep { max: 100 };
    let times = |text: &str, count: usize| text.repeat(count);
    for (name, text, want) in [
        ("parentheses", times("(", 100) + "a" + &times(")", 100), None),
        ("too many", times("(", 101) + "a" + &times(")", 101), Some((101, deep.clone()))),
        ("far too many", times("(", 500_000), Some((101, deep.clone()))),
        ("NOT", times("NOT ", 100_000) + "a", Some((404, deep.clone()))),
        ("signs", times("- ", 100_000) + "a = 1", Some((202, deep.clone()))),
        ("sums", "a".to_owned() + &times("+a", 100_000) + " = 1", Some((0, deep.clone()))),
        ("equalities", "a".to_owned() + &times("=a", 100_000), Some((0, deep.clone()))),
        ("minus signs that begin no comment", times("-", 500_000), Some((101, deep.clone()))),
        ("LIKE of LIKE", "a".to_owned() + &times(" LIKE 'x'", 100_000), Some((0, deep))),
        ("AND is flat", "a".to_owned() + &times(" AND a", 100_000), None),
        ("OR is flat", "a = 1".to_owned() + &times(" OR a=1", 100_000), None),
    ] {
        let found = Selector::parse(&text).err().map(|error| (error.position, error.reason));
        assert_eq!(found, want, "case: {name}");
    }
    let long = " ".repeat(1 << 20) + "a";
    let reason = Reason::TooLong { got_bytes: (1 << 20) + 1, max_bytes: 1 << 20 };
    assert_eq!(Selector::parse(&long).map_err(|error| error.reason), Err(reason));
}
