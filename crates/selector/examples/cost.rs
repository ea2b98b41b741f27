//! Nanoseconds per message, by selectors installed: `cargo run --release -p postroad-selector
//! --example cost`.
#![allow(clippy::print_stdout, reason = "a measuring tool")]

use std::{hint::black_box, time::Instant};

use postroad_selector::{Properties, Selector, SelectorError, SelectorIndex, Value};

/// Different ones, so that the processor's caches hold no answer ready.
const MESSAGES: i64 = 10_000;

/// The best of this many runs, because the machine has other load.
const BATCHES: usize = 20;

struct Message {
    number: i64,
    customer: String,
}

impl Properties for Message {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "t" => Some("order".into()),
            "k" => Some(self.number.into()),
            "s" => Some(self.customer.as_str().into()),
            _ => None,
        }
    }
}

fn main() -> Result<(), SelectorError> {
    type Text = fn(i64) -> String;
    let kinds: [(&str, Text); 5] = [
        ("k = N", |number| format!("k = {number}")),
        ("s = 'customer-N'", |number| format!("s = 'customer-{number}-end'")),
        ("k BETWEEN N AND N + 0.5", |number| format!("k BETWEEN {number} AND {number}.5")),
        ("s LIKE 'customer-N-%'", |number| format!("s LIKE 'customer-{number}-%'")),
        ("t = 'order' AND k = N", |number| format!("t = 'order' AND k = {number}")),
    ];
    println!("{:<24} {:>10} {:>13} {:>12}", "selectors", "installed", "none matches", "one matches");
    for (name, text) in kinds {
        for installed in [10, 1_000, 100_000] {
            let mut index = SelectorIndex::new();
            for number in 0..installed {
                index.insert(number, Selector::parse(&text(number))?);
            }
            let none = nanoseconds(&index, &messages(installed, -1), 0);
            let one = nanoseconds(&index, &messages(installed, 1), MESSAGES);
            println!("{name:<24} {installed:>10} {none:>10.0} ns {one:>9.0} ns");
        }
    }
    Ok(())
}

/// Spread over all selectors; a negative sign makes them match none.
fn messages(installed: i64, sign: i64) -> Vec<Message> {
    let message = |round: i64| {
        let number = sign * (round * 7_919 % installed) - i64::from(sign < 0);
        Message { number, customer: format!("customer-{number}-end") }
    };
    (0..MESSAGES).map(message).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
fn nanoseconds(index: &SelectorIndex<i64>, messages: &[Message], matches: i64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..BATCHES {
        let mut found = 0;
        let begin = Instant::now();
        for message in messages {
            index.matching(black_box(message), |_| found += 1);
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / messages.len() as f64);
        assert_eq!(found, matches);
    }
    best
}
