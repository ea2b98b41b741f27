//! The wall clock is set while something waits. See `bench` for the words: `time 7 wall=9` is tick
//! 7, at 9 ms since 1970.

mod bench;

use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_routing::{Policies, Policy, Redelivery};

/// Failed messages are delivered again after 10 ms; transactions may be open for a second.
fn rested() -> Settings {
    let fallback = Policies::default().fallback().clone();
    let redelivery = Redelivery { count_max: 2, delay_ms: 10, delay_ms_max: 1000, ..Redelivery::default() };
    let policies = Arc::new(Policies::new(Policy { redelivery, ..fallback }));
    Settings { policies, transaction_ms_max: Some(1000), ..settings(1) }
}

/// Each script begins at tick 100, at noon; its `SET` is one more tick, with the clock set. `+5` is
/// noon and 5 ms, and so on.
fn check(cases: &[(&str, &str, &str)]) {
    const NOON_MS: u64 = 100_000_000;
    const HOUR_MS: u64 = 3_600_000;
    for (way, set_to_ms) in [("back", NOON_MS - HOUR_MS), ("forward", NOON_MS + HOUR_MS)] {
        for (name, script, want) in cases {
            let wall = |base_ms: u64, ticks: &str| {
                let ticks: u64 = ticks.parse().expect("a sound script");
                format!("time {ticks} wall={}", base_ms + ticks - 100)
            };
            let mut base_ms = NOON_MS;
            let mut lines = vec![wall(base_ms, "100")];
            for line in script.lines().map(str::trim) {
                match line.split_once(' ') {
                    Some(("set", _)) => base_ms = set_to_ms,
                    Some(("reset", _)) => base_ms = NOON_MS,
                    _ => {}
                }
                let words = line.split(' ').map(|word| match word.split_once("=+") {
                    Some((option, ms)) => {
                        format!("{option}={}", base_ms + ms.parse::<u64>().expect("a sound script"))
                    }
                    None => word.to_owned(),
                });
                lines.push(match line.split_once(' ') {
                    Some(("time" | "set" | "reset", ticks)) => wall(base_ms, ticks),
                    _ => words.collect::<Vec<_>>().join(" "),
                });
            }
            let said = Bench::new(rested()).run(&lines.join("\n"));
            assert_eq!(&said, want, "case: {name}, set {way}");
        }
    }
}

#[test]
fn what_waits_when_the_clock_is_set_waits_as_long_as_before() {
    check(&[
        (
            "a redelivery",
            "attach 1.1 a 9
             send 1 a m
             reject 1.1 m
             set 105
             time 109
             send 1 a n
             time 110",
            "ok 1.1<m ok ok 1.1<n ok 1.1<m!1",
        ),
        (
            "a message that is due later",
            "attach 1.1 a 9
             send 1 a m at=+50
             set 101
             time 149
             send 1 a n
             time 150",
            "ok ok 1.1<n ok 1.1<m",
        ),
        (
            "each message of a job that repeats",
            "attach 1.1 a 9
             send 1 a m at=+50 every=10 times=1
             set 101
             time 150
             time 159
             send 1 a n
             time 160",
            "ok ok 1.1<m 1.1<n ok 1.1<m",
        ),
        (
            "a message that expires",
            "send 1 a m until=+50
             send 1 a n until=+60
             set 101
             time 149
             time 151
             attach 1.1 a 9",
            "ok ok ok 1.1<n",
        ),
        (
            "a transaction that may be open for so long",
            "send 1 a m tx=1
             set 101
             time 1099
             commit 1 1
             send 1 a n tx=2
             reset 1100
             time 2101
             commit 1 2",
            "ok ok ok no: rolled back: the transaction was open for longer than 1000 ms",
        ),
    ]);
}

#[test]
fn what_comes_when_the_clock_was_set_goes_by_the_new_time_of_day() {
    check(&[
        (
            "a message that is due later",
            "set 101
             attach 1.1 a 9
             send 1 a m at=+50
             time 149
             send 1 a n
             time 150",
            "ok ok 1.1<n ok 1.1<m",
        ),
        (
            "a message that expires",
            "set 101
             send 1 a m until=+50
             send 1 a n until=+60
             time 151
             attach 1.1 a 9",
            "ok ok ok 1.1<n",
        ),
        (
            "and goes on when it is set back to what it was",
            "send 1 a k at=+40
             set 101
             send 1 a l at=+50
             reset 102
             send 1 a m at=+60
             attach 1.1 a 9
             time 140
             time 150
             time 160",
            "ok ok ok ok 1.1<k 1.1<l 1.1<m",
        ),
    ]);
}

#[test]
fn a_job_that_names_a_time_of_day_goes_by_the_clock_as_it_is_set() {
    // Noon of 2 January 1970, and a job at five past each hour.
    const NOON_MS: u64 = 129_600_000;
    let mut bench = Bench::new(rested());
    let minute = |minute: u64| NOON_MS + minute * 60_000;
    let wall = |ticks: u64, wall_ms: u64| format!("time {ticks} wall={wall_ms}");
    bench.run(&wall(100, minute(0)));
    bench.run(&format!("attach 1.1 a 9\nsend 1 a m at={} cron=5", minute(0)));
    // The clock was an hour and ten minutes slow.
    assert_eq!(bench.run(&wall(101, minute(70))), "1.1<m", "five past was over by then");
    assert_eq!(bench.run(&wall(102, minute(70) + 1)), "");
    let to_next_ms = minute(125) - minute(70);
    assert_eq!(bench.run(&wall(100 + to_next_ms, minute(125) - 1)), "");
    assert_eq!(bench.run(&wall(102 + to_next_ms, minute(125) + 1)), "1.1<m");
}
