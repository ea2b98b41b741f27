//! Consumers of a queue that select get all that they want, however they come to it. See `bench`
//! for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

/// Runs each case in a new broker, and compares all that it said.
fn check(cases: &[(&str, &str, &str)]) {
    for (name, script, want) in cases {
        assert_eq!(&Bench::new(settings(1)).run(script), want, "case: {name}");
    }
}

#[test]
fn idle_consumers_look_again_when_something_comes_that_they_want() {
    check(&[
        (
            "equals take turns",
            "make 9 a
             attach 1.1 a 9 where=k=1
             attach 1.2 a 9 where=k=1
             send 2 a m?k=1
             send 2 a n?k=1
             send 2 a o?k=1",
            "ok ok ok 1.1<m?k=1 ok 1.2<n?k=1 ok 1.1<o?k=1 ok",
        ),
        (
            "the one of higher priority first, though it fell idle later",
            "make 9 a
             attach 1.1 a 9 where=k=1
             attach 1.2 a 9 where=k=1 priority=3
             send 2 a m?k=1
             send 2 a n?k=1",
            "ok ok ok 1.2<m?k=1 ok 1.2<n?k=1 ok",
        ),
        (
            "what comes back ahead of what was looked at",
            "make 9 a
             attach 1.1 a 9
             send 2 a m?k=1
             send 2 a n?k=2
             attach 1.2 a 9 where=k=1
             send 2 a o?k=2
             detach 1.1 none",
            "ok ok 1.1<m?k=1 ok 1.1<n?k=2 ok ok 1.1<o?k=2 ok 1.2<m?k=1",
        ),
        (
            "what stayed is there for whoever comes, and is not looked at twice",
            "make 9 a
             attach 1.1 a 9 where=k=1
             send 2 a m?k=2
             send 2 a n?k=1
             attach 1.2 a 9 where=k=2
             send 2 a o?k=2",
            "ok ok ok 1.1<n?k=1 ok ok 1.2<m?k=2 1.2<o?k=2 ok",
        ),
        (
            "without credit it gets what it missed once it has some",
            "make 9 a
             attach 1.1 a 1 where=k=1
             send 2 a m?k=1
             send 2 a n?k=1
             send 2 a o?k=1
             credit 1.1 5",
            "ok ok 1.1<m?k=1 ok ok ok 1.1<n?k=1 1.1<o?k=1",
        ),
        (
            "an exclusive consumer comes between, and goes",
            "make 9 a
             attach 1.1 a 9 where=k=1
             attach 1.2 a 9 exclusive
             send 2 a m?k=1
             detach 1.2 none
             send 2 a n?k=1",
            "ok ok ok 1.2<m?k=1 ok 1.1<m?k=1 1.1<n?k=1 ok",
        ),
        (
            "groups begin while it is idle",
            "make 9 a
             attach 1.1 a 9 where=k=1
             attach 1.2 a 9 where=k=1
             send 2 a m?k=1 group=g
             send 2 a n?k=1 group=g
             send 2 a o?k=1 group=h",
            "ok ok ok 1.1<m?k=1* ok 1.1<n?k=1 ok 1.2<o?k=1* ok",
        ),
        (
            "a drain finds it idle, and it gets nothing until there is credit again",
            "make 9 a
             attach 1.1 a 9 where=k=1
             drain 1.1
             send 2 a m?k=1
             credit 1.1 1",
            "ok ok 1.1 drained ok 1.1<m?k=1",
        ),
        (
            "one that leaves is not asked any more",
            "make 9 a
             attach 1.1 a 9 where=k=1
             detach 1.1 none
             send 2 a m?k=1
             attach 1.1 a 9 where=k=1",
            "ok ok ok ok 1.1<m?k=1",
        ),
    ]);
}

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn whatever_happens_nothing_waits_that_somebody_with_credit_wants() {
    for seed in 0..60 {
        // Every other time bodies must be read again, and pages are packed.
        let bytes = if seed % 2 == 0 { 1 << 20 } else { 0 };
        let mut bench = Bench::new(Settings { resident_bytes_max: bytes, page_entries: 2, ..settings(1) });
        let mut numbers = Numbers(seed);
        bench.run("make 9 a");
        // Consumer n of 0 to 7 wants k = n modulo 4.
        let mut held: Vec<Vec<String>> = vec![Vec::new(); 8];
        let mut there = [false; 8];
        let mut sent = Vec::new();
        for step in 0..120 {
            let consumer = numbers.below(8) as usize;
            let line = match numbers.below(8) {
                0 if there[consumer] => {
                    there[consumer] = false;
                    held[consumer].clear();
                    format!("detach 1.{consumer} none")
                }
                0 | 1 if !there[consumer] => {
                    there[consumer] = true;
                    format!("attach 1.{consumer} a 1000 where=k={}", consumer % 4)
                }
                2 if !held[consumer].is_empty() => {
                    format!("accept 1.{consumer} {}", held[consumer].remove(0))
                }
                3 if !held[consumer].is_empty() => {
                    format!("release 1.{consumer} {}", held[consumer].pop().unwrap_or_default())
                }
                _ => {
                    let name = format!("m{step}?k={}", numbers.below(5));
                    sent.push(name.clone());
                    let volatile = if numbers.below(3) == 0 { " volatile" } else { "" };
                    format!("send 2 a {name} priority={}{volatile}", numbers.below(3) + 3)
                }
            };
            let said = bench.run(&line);
            for word in said.split(' ') {
                let Some((to, name)) = word.split_once('<') else { continue };
                let to: usize = to.trim_start_matches("1.").parse().expect("a consumer");
                let name = name.split(['!', '*']).next().unwrap_or_default();
                held[to].push(name.to_owned());
            }
        }
        // A later consumer finds nothing of theirs: all of it had an owner already.
        for wanted in 0..4 {
            if there[wanted] || there[wanted + 4] {
                let said = bench.run(&format!("attach 3.{wanted} a 1000 where=k={wanted}"));
                assert_eq!(said, "ok", "seed {seed}: k={wanted} waited, of {sent:?}");
            }
        }
    }
}

#[test]
fn a_selector_sees_how_often_the_broker_has_delivered_a_message() {
    let m = "m?JMSXDeliveryCount=1&JMSRedelivered=0";
    for (case, script, want) in [
        (
            "poison goes to a consumer for it, idle until then",
            "attach 3.1 a 9 where=JMSXDeliveryCount>2
             attach 1.1 a 1 where=JMSXDeliveryCount<=2
             send 2 a M
             fail 1.1 M
             credit 1.1 1
             fail 1.1 M",
            "ok ok 1.1<M ok ok 1.1<M!1 ok 3.1<M!2",
        ),
        (
            "a consumer that comes later",
            "send 2 a M
             attach 1.1 a 1
             fail 1.1 M
             attach 3.1 a 1 where=JMSXDeliveryCount=1
             attach 3.2 a 1 where=JMSXDeliveryCount=2",
            "ok ok 1.1<M ok ok ok 3.2<M!1",
        ),
        (
            "a browser",
            "send 2 a M
             attach 1.1 a 1
             fail 1.1 M
             attach 3.1 a 1 browse where=JMSXDeliveryCount=1
             attach 3.2 a 1 browse where=JMSXDeliveryCount=2",
            "ok ok 1.1<M ok ok 3.1 drained ok 3.2<M!1",
        ),
        (
            "whether it was delivered before",
            "send 2 a M
             attach 1.1 a 1
             fail 1.1 M
             attach 3.1 a 1 where=JMSRedelivered=0
             attach 3.2 a 1 where=JMSRedelivered=TRUE",
            "ok ok 1.1<M ok ok ok 3.2<M!1",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        let said = bench.run(&script.replace(" M", &format!(" {m}")));
        assert_eq!(said.replace(m, "M"), want, "case: {case}");
    }
}
