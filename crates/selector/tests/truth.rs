//! The matches of selectors (JMS 3.8.1), as tables over one message.

use postroad_selector::{Properties, Selector, Value};

struct Message;

impl Properties for Message {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        Some(match name {
            "t" => true.into(),
            "f" => false.into(),
            "one" => 1.into(),
            "seven" => 7.into(),
            "huge" => 9_000_000_000_000_000_003.into(),
            "min" => i64::MIN.into(),
            "half" => 0.5.into(),
            "single" => f64::from(0.1_f32).into(),
            "nan" => f64::NAN.into(),
            "s" => "text".into(),
            "digits" => "7".into(),
            "point" => "7.5".into(),
            "yes" => "TRUE".into(),
            "quote" => "it's".into(),
            "under" => "_a%".into(),
            "lines" => "a\nb".into(),
            "wide" => "x\u{1f600}y".into(),
            "bytes" => Value::Other,
            "a.b" => 1.into(),
            "JMSDeliveryMode" => "PERSISTENT".into(),
            "JMSPriority" => 4.into(),
            _ => return None,
        })
    }
}

/// `Some(truth)`, or `None` for unknown: neither the selector nor its negation matches.
fn truth(text: &str) -> Option<bool> {
    let matches = |text: &str| Selector::parse(text).expect(text).matches(&Message);
    let plain = text.strip_prefix("convert_string_expressions:");
    let negated = match plain {
        Some(plain) => format!("convert_string_expressions:NOT ({plain})"),
        None => format!("NOT ({text})"),
    };
    match (matches(text), matches(&negated)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
        (true, true) => panic!("{text} is true and false"),
    }
}

fn check(want: Option<bool>, texts: &[&str]) {
    for text in texts {
        assert_eq!(truth(text), want, "{text}");
    }
}

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);
const UNKNOWN: Option<bool> = None;

#[test]
fn three_values_and_the_tables_of_section_3_8_1_2() {
    for (left, right, and, or) in [
        ("t", "t", TRUE, TRUE),
        ("t", "f", FALSE, TRUE),
        ("t", "no", UNKNOWN, TRUE),
        ("f", "t", FALSE, TRUE),
        ("f", "f", FALSE, FALSE),
        ("f", "no", FALSE, UNKNOWN),
        ("no", "t", UNKNOWN, TRUE),
        ("no", "f", FALSE, UNKNOWN),
        ("no", "no", UNKNOWN, UNKNOWN),
        ("TRUE", "no", UNKNOWN, TRUE),
        ("FALSE", "no", FALSE, UNKNOWN),
        ("NULL", "f", FALSE, UNKNOWN),
        ("NULL", "t", UNKNOWN, TRUE),
    ] {
        assert_eq!(truth(&format!("{left} AND {right}")), and, "{left} AND {right}");
        assert_eq!(truth(&format!("{left} OR {right}")), or, "{left} OR {right}");
    }
    check(
        TRUE,
        &["t", "NOT f", "NOT NOT t", "t = TRUE", "f = FALSE", "t <> f", "f OR t AND t", "t OR t AND f"],
    );
    check(FALSE, &["f", "NOT t", "s", "one", "bytes", "(t OR t) AND f"]);
    check(UNKNOWN, &["no", "NOT no", "NULL", "no = TRUE"]);
}

#[test]
fn missing_is_unknown_in_every_operator() {
    check(
        UNKNOWN,
        &[
            "no = 0",
            "0 = no",
            "no <> 0",
            "one = no",
            "no = no",
            "no > 0",
            "no >= 0",
            "no < 0",
            "no <= 0",
            "no LIKE 'x'",
            "no NOT LIKE 'x'",
            "no IN ('x')",
            "no NOT IN ('x')",
            "no BETWEEN 1 AND 2",
            "no NOT BETWEEN 1 AND 2",
            "-no = 0",
            "+no = 0",
            "no * 2 = 0",
            "2 / no = 0",
            "no + 2 = 0",
            "no - 2 = 0",
            "no + 'x' = 'x'",
            "one BETWEEN 0 AND no",
            "one NOT BETWEEN 0 AND no",
            "s IN ('text') AND no",
        ],
    );
    check(
        TRUE,
        &["no IS NULL", "one IS NOT NULL", "bytes IS NOT NULL", "(no = 1) IS NULL", "NOT no IS NOT NULL"],
    );
    check(FALSE, &["no IS NOT NULL", "one IS NULL", "one BETWEEN 2 AND no", "(one = 1) IS NULL"]);
    check(TRUE, &["one NOT BETWEEN 2 AND no", "one NOT BETWEEN no AND 0"]);
}

#[test]
fn numbers_compare_and_calculate() {
    check(
        TRUE,
        &[
            "one = 1",
            "one = 1.0",
            "1 < seven",
            "seven >= 7",
            "seven <= 7.0",
            "half = .5",
            "half < one",
            "huge = 9000000000000000003",
            "huge <> 9000000000000000004",
            "huge = 9000000000000000003.0",
            "min = -9223372036854775808",
            "single = 0.1F",
            "single <> 0.1",
            "seven = 0x7",
            "seven = 07",
            "8 = 010",
            "seven = 7L",
            "seven = 7D",
            "seven / 2 = 3.5",
            "seven % 4 = 3",
            "-seven % 4 = -3",
            "seven * 2 + 1 = 15",
            "1 + seven * 2 = 15",
            "(1 + seven) * 2 = 16",
            "seven - 2 - 1 = 4",
            "--seven = 7",
            "-seven = -7",
            "+seven = 7",
            "min - 1 = 9223372036854775807",
            "-min = min",
            "half + half = one",
            "seven BETWEEN 7 AND 7",
            "seven NOT BETWEEN 8 AND 9",
            "seven BETWEEN 6.5 AND one * 8",
            "one / 0 > 1E308",
            "4E10 < 5E10",
            "-.5E1 < .1E1",
            "5.E1 = 50",
            "a.b = 1",
            "nan <> nan",
            "0.0 = -0.0",
            "JMSPriority > 3",
            "seven * half = 3.5",
            "5.5 % 2 = 1.5",
            "min % -1 = 0",
        ],
    );
    check(
        FALSE,
        &[
            "one = 2",
            "one <> 1",
            "seven > 7",
            "seven < 7",
            "seven BETWEEN 8 AND 6",
            "nan = nan",
            "nan < 1",
            "nan >= 1",
            "one % 0 = 0",
            "one / 0 - one / 0 = 0",
            "seven NOT BETWEEN 1 AND 8",
        ],
    );
}

#[test]
fn unlike_types_are_unequal_and_have_no_order() {
    check(
        FALSE,
        &[
            "one = '1'",
            "'1' = one",
            "digits = 7",
            "t = 1",
            "t = 'TRUE'",
            "s > 5",
            "s < 5",
            "s <= s",
            "t < f",
            "s BETWEEN 1 AND 5",
            "s NOT BETWEEN 1 AND 5",
            "bytes = 1",
            "bytes = bytes",
            "bytes LIKE '%'",
            "one LIKE '1'",
            "'a' = 1",
            "(one = 1) = 1",
        ],
    );
    check(
        TRUE,
        &["one <> '1'", "t <> 'TRUE'", "bytes <> 1", "one NOT LIKE '1'", "(one = 1) = t", "t = NOT f"],
    );
    check(UNKNOWN, &["one IN ('1')", "one NOT IN ('1')", "s * 2 = 0", "-s = 0", "1 + s = 's'", "t + 1 = 2"]);
}

#[test]
fn strings() {
    check(
        TRUE,
        &[
            "s = 'text'",
            "quote = 'it''s'",
            "s <> 'Text'",
            "s + '!' = 'text!'",
            "s + one = 'text1'",
            "s + half + t = 'text0.5true'",
            "s + 1E7 = 'text1.0E7'",
            "s + 1.5E-4 = 'text1.5E-4'",
            "s + 100.0 = 'text100.0'",
            "s IN ('a', 'text')",
            "s NOT IN ('a', 'b')",
            "JMSDeliveryMode = 'PERSISTENT'",
            "'a' + 'b' = 'ab'",
        ],
    );
    check(FALSE, &["s = 'tex'", "s NOT IN ('text')", "s IN ('Text')", "S = 'text' AND f"]);
}

#[test]
fn like_patterns() {
    check(
        TRUE,
        &[
            "s LIKE 'text'",
            "s LIKE 't%'",
            "s LIKE '%t'",
            "s LIKE '%'",
            "s LIKE '%%'",
            "s LIKE '____'",
            "s LIKE 't_xt'",
            "s LIKE '%e%t%'",
            "s LIKE '%t%t'",
            "under LIKE '!_a!%' ESCAPE '!'",
            "under LIKE '$_%' ESCAPE '$'",
            "under LIKE '__%%' ESCAPE '_'",
            "s LIKE 'te!xt' ESCAPE '!' OR t",
            "lines LIKE 'a_b'",
            "lines LIKE 'a%'",
            "wide LIKE 'x_y'",
            "s NOT LIKE 'T%'",
            "under LIKE '%a%' ESCAPE '%'",
            "'x' LIKE 'x'",
            "s + '_' LIKE 'text!_' ESCAPE '!'",
            "s NOT LIKE 'te!xt' ESCAPE '!'",
        ],
    );
    check(
        FALSE,
        &[
            "s LIKE 'tex'",
            "s LIKE 'text_'",
            "s LIKE '_____'",
            "s LIKE '%x'",
            "s LIKE ''",
            "s LIKE '!%' ESCAPE '!'",
            "s LIKE 't.xt'",
            "s NOT LIKE 't%'",
            "s LIKE '%e%e%'",
        ],
    );
}

#[test]
fn strings_are_converted_where_the_prefix_says_so() {
    for (text, want) in [
        ("digits = 7", TRUE),
        ("7 = digits", TRUE),
        ("digits <> 7", FALSE),
        ("digits > 6.5", TRUE),
        ("digits BETWEEN 1 AND 7", TRUE),
        ("digits NOT BETWEEN 1 AND 7", FALSE),
        ("point > 7.0", TRUE),
        ("point > 7", FALSE),
        ("seven = '7'", TRUE),
        ("half = '0.5'", TRUE),
        ("s = 7", FALSE),
        ("s <> 7", TRUE),
        ("yes = TRUE", TRUE),
        ("s = FALSE", TRUE),
        ("t = 'true'", TRUE),
        ("digits = '7'", TRUE),
        ("digits = '7.0'", FALSE),
        ("no = 7", UNKNOWN),
        ("bytes = '7'", FALSE),
        ("digits IN ('7')", TRUE),
        ("digits < point", FALSE),
    ] {
        assert_eq!(truth(&format!("convert_string_expressions:{text}")), want, "{text}");
    }
    let plain = Selector::parse("no_convert_string_expressions:digits = 7");
    assert_eq!(plain.map(|selector| selector.matches(&Message)), Ok(false));
}

#[test]
fn not_binds_looser_than_a_comparison() {
    check(TRUE, &["NOT one = 2", "NOT no IS NOT NULL", "NOT s LIKE 'x' AND t", "NOT one BETWEEN 2 AND 3"]);
    check(FALSE, &["NOT one = 1", "NOT s IN ('text')", "NOT (f OR t) AND t"]);
}

#[test]
fn equal_selectors_are_equal_as_written() {
    for (left, right, want) in [
        ("a = 1", "a=1 /* same */", true),
        ("a = 1 and b", "(a = 1) AND (b)", true),
        ("a IN ('x', 'y')", "a IN ('y','x','y')", true),
        ("a = 1 + 1", "a = 2", true),
        ("a = 1", "a = 1.0", false),
        ("a = 1", "A = 1", false),
        ("a = 1", "convert_string_expressions:a = 1", false),
        ("a = 1", "no_convert_string_expressions:a = 1", true),
    ] {
        assert_eq!(Selector::parse(left) == Selector::parse(right), want, "{left} and {right}");
    }
}

#[test]
fn the_deepest_selectors_are_evaluated() {
    let signs = format!("{}one = -1", "-".repeat(97));
    let sum = format!("one{} = 98", " + one".repeat(97));
    let likes = format!("s{}", " LIKE 'x'".repeat(97));
    let unfolded = format!("{}one = 1{}", "(one = 1 AND NOT (t AND ".repeat(30), "))".repeat(30));
    let wide = format!("one = 2{}", " OR one = 2".repeat(50_000));
    check(TRUE, &[&signs, &sum, &unfolded]);
    check(FALSE, &[&likes, &wide]);
    check(FALSE, &[&format!("s LIKE '{}'", "%a".repeat(50_000))]);
}
