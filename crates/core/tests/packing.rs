//! Packed pages: clients see no difference, and unused pages are packed. See `bench` for the words.

mod bench;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bench::{Bench, settings};
use bytes::Bytes;
use postroad_core::{Memory, Partition, Settings};
use postroad_model::{Spill, Spilled};
use postroad_routing::{DestinationPattern, Policies, Policy, Recovery};

/// Pages of two entries, and no memory for more than needs be.
fn pinched() -> Settings {
    Settings { resident_bytes_max: 0, page_entries: 2, ..settings(1) }
}

/// Nine messages, as `m0 … m8`.
fn fill(queue: &str) -> String {
    (0..9).map(|number| format!("send 1 {queue} m{number}?k={number}\n")).collect()
}

fn packed(bench: &Bench) -> u64 {
    bench.partitions[0].memory().packed_messages
}

#[test]
fn a_backlog_is_packed_but_for_its_last_page_and_read_in_order() {
    for (case, words, want) in [
        ("by one consumer", "attach 1.1 a 9", "0 1 2 3 4 5 6 7 8"),
        ("with little room", "attach 1.1 a 3\naccept 1.1 m0?k=0 m1?k=1\ncredit 1.1 2", "0 1 2 3 4"),
        (
            "by a browser, and then a consumer",
            "attach 1.1 a 9 browse\nattach 1.2 a 2",
            "0 1 2 3 4 5 6 7 8 0 1",
        ),
        ("by a selector", "attach 1.1 a 9 where=k>5", "6 7 8"),
        ("by two selectors in turn", "attach 1.1 a 1 where=k>6\nattach 1.2 a 1 where=k>2", "7 3"),
        (
            "again, after its consumer left",
            "attach 1.1 a 5\ndetach 1.1 none\nattach 1.2 a 2",
            "0 1 2 3 4 0 1",
        ),
        ("what came back first", "attach 1.1 a 4\nrelease 1.1 m2?k=2\ncredit 1.1 2", "0 1 2 3 2 4"),
    ] {
        let mut bench = Bench::new(pinched());
        bench.run(&fill("a"));
        assert_eq!(packed(&bench), 8, "case: {case}");
        let said = bench.run(words);
        let numbers: Vec<&str> =
            said.split(' ').filter_map(|word| word.split_once("?k=")).map(|(_, k)| k).collect();
        assert_eq!(numbers.join(" "), want, "case: {case}");
    }
}

#[test]
fn many_pages_are_one_until_somebody_comes_to_them() {
    let fill: String = (0..41).map(|number| format!("send 1 a m{number}?k={number}\n")).collect();
    let upto = |numbers: std::ops::Range<u32>| -> Vec<String> { numbers.map(|n| n.to_string()).collect() };
    for (case, words, want, opened) in [
        ("the front", "attach 1.1 a 3", upto(0..3), 2),
        ("all of it", "attach 1.1 a 41", upto(0..41), 20),
        ("one far behind", "attach 1.1 a 9 where=k=37", upto(37..38), 20),
        (
            "a browser, and the front",
            "attach 1.1 a 41 browse\nattach 1.2 a 2",
            [upto(0..41), upto(0..2)].concat(),
            20,
        ),
    ] {
        for restarted in [false, true] {
            let mut bench = Bench::new(pinched());
            // Pages of two; eight to a wide one.
            bench.run(&fill);
            if restarted {
                bench.reload();
            }
            assert_eq!((packed(&bench), bench.held().as_str()), (40, "a:41"), "case: {case}");
            let said = bench.run(words);
            let numbers: Vec<&str> =
                said.split(' ').filter_map(|word| word.split_once("?k=")).map(|(_, k)| k).collect();
            assert_eq!(numbers, want, "case: {case}, restarted: {restarted}");
            let counters = bench.partitions[0].counters();
            assert!(counters.opened_pages >= opened, "case: {case}: {}", counters.opened_pages);
            assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
            let held = bench.partitions[0].live_messages().flat_map(|row| row.keys()).count();
            assert_eq!(held, 41, "case: {case}");
        }
    }
}

/// Pages of two become wide ones of sixteen, and these wider ones.
#[test]
fn wide_pages_become_wider_ones_and_come_apart_where_somebody_is() {
    let fill: String = (0..401).map(|number| format!("send 1 a m{number}?k={number}\n")).collect();
    let mut bench = Bench::new(pinched());
    bench.run(&fill);
    let said = bench.run("attach 1.1 a 401 where=k=200");
    assert!(said.contains("m200?k=200"), "{said}");
    assert_eq!(bench.partitions[0].miscounted(), None);
    bench.run("detach 1.1 none\nsend 1 a last?k=401\nsend 1 a last?k=402");
    assert_eq!(bench.partitions[0].miscounted(), None);
    bench.reload();
    let said = bench.run("attach 1.2 a 500");
    let numbers = said.split(' ').filter_map(|word| Some(word.split_once("?k=")?.1.to_owned()));
    assert_eq!(numbers.collect::<Vec<_>>(), (0..403).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(bench.partitions[0].miscounted(), None);
}

#[test]
fn what_a_reader_has_passed_is_packed_again() {
    let mut bench = Bench::new(pinched());
    let fill: String = (0..17).map(|number| format!("send 1 a m{number}?k={number}\n")).collect();
    bench.run(&fill);
    bench.run("attach 1.1 a 17 where=k=16");
    assert_eq!(packed(&bench), 12, "all but the first two pages, and the newest");
    bench.run("attach 1.2 a 17 browse");
    assert_eq!(packed(&bench), 10, "the browser's pages too, but for the one that it came to last");
    bench.run("close 1");
    assert_eq!(bench.held(), "a:17");
}

#[test]
fn what_is_needed_elsewhere_stays_open() {
    for (case, words, want) in [
        (
            "those due next, if somebody reads",
            "attach 1.1 a 0\nsend 1 a m\nsend 1 a n\nsend 1 a o\nsend 1 a p\nsend 1 a q",
            0,
        ),
        ("non-persistent", "send 1 a m volatile\nsend 1 a n volatile\nsend 1 a o volatile", 0),
        (
            "a consumer has one",
            "attach 1.1 a 1\nsend 1 a m\nsend 1 a n\nsend 1 a o\nsend 1 a p\nsend 1 a q\nsend 1 a r\nsend 1 a s",
            2,
        ),
    ] {
        let mut bench = Bench::new(pinched());
        bench.run(words);
        assert_eq!(packed(&bench), want, "case: {case}");
    }
}

/// Nine messages, each for both queues, and two for one of them.
fn fill_both() -> String {
    let both: String = (0..9).map(|number| format!("send 1 a,b m{number}\n")).collect();
    format!("{both}send 1 a n\nsend 1 a o\n")
}

/// Consumes whatever the queue has.
fn drain(bench: &mut Bench, queue: &str) {
    let said = bench.run(&format!("attach 1.9 {queue} 99"));
    let names: Vec<&str> = said.split(' ').filter_map(|word| word.strip_prefix("1.9<")).collect();
    let accept = names.iter().fold("accept 1.9".to_owned(), |line, name| line + " " + name);
    bench.run(&format!("{accept}\ndetach 1.9 none"));
}

#[test]
fn what_several_queues_hold_is_packed_in_each_and_gone_with_the_last() {
    let accept = |queue: &str| -> String {
        let all: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
        format!("attach 1.1 {queue} 9\naccept 1.1 {}\ndetach 1.1 none", all.join(" "))
    };
    for (case, words, held, live) in [
        ("in both", String::new(), "a:11 b:9", 11),
        ("one has consumed them", accept("b"), "a:11", 11),
        ("the other has", accept("a"), "a:2 b:9", 11),
        ("both have", accept("a") + "\n" + &accept("b"), "a:2", 2),
        ("one is deleted", "unmake 1 a".to_owned(), "b:9", 9),
        ("and the other", "unmake 1 b\nunmake 1 a".to_owned(), "", 0),
        ("consumed in one, and deleted", accept("a") + "\nunmake 1 b", "a:2", 2),
    ] {
        let mut bench = Bench::new(pinched());
        bench.run(&fill_both());
        assert_eq!(packed(&bench), 9, "case: {case}: all but m8, which b has open, and o");
        bench.run(&words);
        let check = |bench: &Bench, when: &str| {
            let mut positions: Vec<_> =
                bench.partitions[0].live_messages().flat_map(|row| row.keys()).collect();
            positions.dedup();
            let messages = bench.partitions[0].memory().messages;
            assert_eq!(
                (bench.held().as_str(), positions.len(), messages),
                (held, live, live as u64),
                "case: {case}, {when}"
            );
        };
        check(&bench, "then");
        bench.reload();
        check(&bench, "after a restart");
        bench.settings.page_entries = 4;
        bench.reload();
        check(&bench, "with larger pages");
        bench.settings.resident_bytes_max = 1 << 20;
        bench.settings.page_entries = 8;
        bench.reload();
        check(&bench, "with memory for all");
        for queue in ["a", "b"] {
            drain(&mut bench, queue);
        }
        let memory = Memory::default();
        assert_eq!(
            (bench.held().as_str(), bench.partitions[0].memory()),
            ("", memory),
            "case: {case}, in the end"
        );
    }
}

/// More queues than packed pages can be counted: for the last of them a message is there as for the
/// first.
#[test]
fn what_hundreds_of_queues_hold_is_gone_with_the_last() {
    const QUEUES: usize = 300;
    let mut bench = Bench::new(pinched());
    let queues: Vec<String> = (0..QUEUES).map(|number| format!("q{number}")).collect();
    bench.run(&format!("send 1 {0} m0\nsend 1 {0} m1\nsend 1 {0} m2", queues.join(",")));
    for when in ["with some pages packed", "behind a start", "behind another"] {
        let live: Vec<_> = bench.partitions[0].live_messages().flat_map(|row| row.keys()).collect();
        assert_eq!((live.len(), bench.partitions[0].memory().messages), (3, 3), "{when}");
        bench.reload();
    }
    for (queue, left) in queues.iter().zip((0..QUEUES).rev()) {
        let got = bench.run(&format!("attach 1.1 {queue} 9\naccept 1.1 m0 m1 m2\ndetach 1.1 none"));
        assert!(got.contains("m0") && got.contains("m1") && got.contains("m2"), "{queue}: {got}");
        let live = bench.partitions[0].live_messages().flat_map(|row| row.keys()).count();
        assert_eq!(live, if left == 0 { 0 } else { 3 }, "{left} queues have them");
    }
    assert_eq!(bench.partitions[0].memory(), Memory::default());
}

#[test]
fn a_packed_message_whose_body_is_here_for_another_queue_is_judged() {
    let mut bench = Bench::new(pinched());
    bench.run(&(0..9).map(|number| format!("send 1 a,b m{number}?k={number}\n")).collect::<String>());
    bench.run("attach 1.1 a 9");
    assert!(
        packed(&bench) == 0 && bench.partitions[0].memory().resident_bytes > 0,
        "a's reader has all bodies"
    );
    assert_eq!(bench.run("attach 1.2 b 9 where=k>5"), "ok 1.2<m6?k=6 1.2<m7?k=7 1.2<m8?k=8");
}

/// Of a page that cannot be packed a queue that becomes deep leaves the bodies to the disk, that of
/// a message on its way to others too.
#[test]
fn a_message_is_judged_at_each_of_its_addresses_by_its_body() {
    for (case, page_entries, before, sends, want) in [
        (
            "the second entry begins a page",
            2,
            "send 2 a m\nsend 2 a m\nsend 2 a l upload=7",
            "send 2 a,a,#t n?k=5",
            "n?k=5",
        ),
        ("a page for itself", 1, "send 2 a m", "send 2 a,#t n?k=5 upload=7", "n?k=5+abc"),
    ] {
        let mut bench = Bench::new(Settings { page_entries, ..pinched() });
        // Pages stay open as long as their queue has a consumer.
        bench.run(&format!("attach 3.1 a 0\npiece 2 7 a abc\n{before}"));
        bench.run("attach 1.1 #t 9 where=k=5\nattach 1.2 #t 9 where=k=5 sub=s\ndetach 3.1 none");
        let said = bench.run(sends);
        for consumer in ["1.1", "1.2"] {
            assert!(said.contains(&format!("{consumer}<{want}")), "case: {case}: {said}");
        }
        bench.restart();
        let said = bench.run("attach 1.2 #t 9 where=k=5 sub=s");
        assert_eq!(said, format!("ok 1.2<{want}"), "case: {case}, carried out again");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

#[test]
fn what_only_a_subscription_of_the_last_run_had_is_gone() {
    let mut bench = Bench::new(pinched());
    let said = bench.run("attach 2.1 #t 9\nattach 1.1 a 9\nsend 1 a,#t m\naccept 1.1 m");
    assert_eq!(said, "ok ok 1.1<m 2.1<m ok ok");
    assert_eq!(bench.partitions[0].live_messages().count(), 1, "the subscription has it");
    bench.reload();
    let live = bench.partitions[0].live_messages().count();
    assert_eq!((live, bench.partitions[0].memory()), (0, Memory::default()));
}

#[test]
fn messages_in_memory_keep_their_turn_among_packed_ones() {
    let mut bench = Bench::new(pinched());
    bench.run("send 1 a m\nsend 1 a n volatile\nsend 1 a o\nsend 1 a p volatile\nsend 1 a q\nsend 1 a r\nsend 1 a s");
    assert_eq!(packed(&bench), 4);
    assert_eq!(bench.run("attach 1.1 a 9"), "ok 1.1<m 1.1<n 1.1<o 1.1<p 1.1<q 1.1<r 1.1<s");
}

#[test]
fn packed_messages_expire_at_their_time_and_not_with_their_page() {
    let mut bench = Bench::new(pinched());
    bench.run("send 1 a m until=50\nsend 1 a n until=20\nsend 1 a o until=9000\nsend 1 a p\nsend 1 a q");
    assert_eq!(packed(&bench), 4);
    bench.run("time 19");
    assert_eq!((packed(&bench), bench.held().as_str()), (4, "a:5"));
    for (time, want) in [
        ("time 20", "a:4 dead:1"),
        ("time 49", "a:4 dead:1"),
        ("time 50", "a:3 dead:2"),
        ("time 9000", "a:2 dead:3"),
    ] {
        bench.run(time);
        assert_eq!(bench.held(), want, "{time}");
    }
}

#[test]
fn a_deleted_queue_gives_back_what_its_pages_held() {
    let mut bench = Bench::new(pinched());
    bench.run(&fill("a"));
    bench.run("send 1 a m until=70\nunmake 1 a");
    assert_eq!((bench.partitions[0].counters().discarded, bench.held().as_str()), (10, ""));
    assert_eq!(bench.partitions[0].memory(), Memory::default());
    assert_eq!(bench.partitions[0].live_messages().flat_map(|row| row.keys()).count(), 0);
}

#[test]
fn a_long_queue_that_is_deleted_is_gone_at_once_and_its_messages_in_steps() {
    for (case, settings) in
        [("packed", pinched()), ("open", Settings { resident_bytes_max: 1 << 20, ..pinched() })]
    {
        let mut bench = Bench::new(settings);
        let fill: String = (0..2500).map(|number| format!("send 1 a m{number} until=900\n")).collect();
        bench.run(&fill);
        assert_eq!(bench.run("unmake 1 a\nsend 1 a new\nattach 1.1 a 9"), "ok ok ok 1.1<new", "case: {case}");
        assert_eq!(bench.partitions[0].counters().discarded, 2500, "case: {case}");
        let mut left = Vec::new();
        while let Some(due_ms) = bench.partitions[0].next_due_ms().filter(|due_ms| *due_ms < 900) {
            left.push(bench.partitions[0].memory().messages - 1);
            bench.run(&format!("time {due_ms}"));
        }
        // A packed page has sixteen entries, an open one two.
        assert_eq!(left, [2500 - 1024, 2500 - 2048], "case: {case}");
        assert_eq!(bench.partitions[0].memory().messages, 1, "case: {case}");
        assert_eq!(bench.partitions[0].next_due_ms(), None, "case: {case}");

        // A snapshot does not have entries that are not released yet.
        bench.run(&fill);
        bench.run("accept 1.1 new\ndetach 1.1 all\nunmake 1 a");
        bench.reload();
        assert_eq!(bench.partitions[0].memory(), Memory::default(), "case: {case}");
        assert_eq!(bench.partitions[0].live_messages().count(), 0, "case: {case}");
    }
}

#[test]
fn pages_outlive_a_restart_and_records_behind_it_find_their_entries() {
    let mut bench = Bench::new(pinched());
    bench.run(&fill("a"));
    let (packed_before, live) =
        (packed(&bench), bench.partitions[0].live_messages().flat_map(|row| row.keys()).count());
    bench.reload();
    assert_eq!(
        (packed(&bench), bench.partitions[0].live_messages().flat_map(|row| row.keys()).count()),
        (packed_before, live)
    );
    bench.run("attach 1.1 a 4\naccept 1.1 m1?k=1 m2?k=2\nfail 1.1 m3?k=3");
    bench.restart();
    assert_eq!(bench.run("attach 1.2 a 3"), "ok 1.2<m0?k=0 1.2<m3?k=3!1 1.2<m4?k=4");
}

#[test]
fn what_is_written_ahead_of_a_snapshot_is_what_it_would_write() {
    let roomy = || Settings { resident_bytes_max: 1 << 20, ..pinched() };
    let words = format!(
        "{}attach 1.1 a 5\naccept 1.1 m0?k=0 m3?k=3\nfail 1.1 m1?k=1\ndetach 1.1 all\nsend 1 a last\nunmake 1 a\nsend 1 a new",
        fill("a")
    );
    let (mut ahead, mut so_far) = (Bench::new(roomy()), String::new());
    for line in words.lines() {
        let mut begun = ahead.partitions[0].unwritten_pages();
        ahead.run(line);
        // A step begun before a change ends after it.
        while ahead.partitions[0].write_pages(&mut begun) {}
        let mut rest = ahead.partitions[0].unwritten_pages();
        while ahead.partitions[0].write_pages(&mut rest) {}
        let left = format!("{:?}", ahead.partitions[0].unwritten_pages());
        assert_eq!(left, "UnwrittenPages([])", "behind {line}");
        so_far += &format!("{line}\n");
        let mut late = Bench::new(roomy());
        late.run(&so_far);
        assert_eq!(ahead.partitions[0].snapshot(), late.partitions[0].snapshot(), "behind {line}");
    }
}

#[test]
fn bodies_are_read_ahead_as_far_as_consumers_have_credit_and_again_when_half_are_gone() {
    let mut fill: String = (0..600).map(|number| format!("send 1 a m{number}\n")).collect();
    // Room for the bodies, but not for their entries beside the contents of others.
    fill.extend((0..400).map(|number| format!("send 1 b{} m{number}\n", number % 20)));
    let limits = || Settings { resident_bytes_max: 64 << 10, page_entries: 512, ..settings(1) };
    for (case, credit, want) in [
        ("little credit", 1, vec![64]),
        ("as far as they have credit", 200, vec![200, 100, 100]),
        ("no further than is read at once, and than there are any", 2000, vec![512, 88]),
    ] {
        let mut bench = Bench::new(limits());
        bench.run(&fill);
        bench.reload();
        bench.run(&format!("attach 1.1 a {credit}"));
        assert_eq!(bench.fetched, want, "case: {case}");
    }
    let mut bench = Bench::new(limits());
    bench.run(&fill);
    bench.reload();
    bench.run("attach 1.1 a 1");
    bench.run("credit 1.1 31");
    assert_eq!(bench.fetched, [64], "half of them are there still");
    bench.run("credit 1.1 1");
    assert_eq!(bench.fetched, [64, 32], "nobody waits for those yet");
}

/// A reader with memory to spare reads further, and each body once; many that read at the same time
/// do not exceed the limit.
#[test]
fn readers_go_further_ahead_while_there_is_memory_for_it() {
    let limits = Settings { resident_bytes_max: 1 << 20, page_entries: 512, ..settings(1) };
    let mut bench = Bench::new(limits);
    for number in 0..1500 {
        let sends = (0..20).map(|queue| format!("send 1 q{queue} m{number}\n"));
        bench.run(&sends.collect::<String>());
    }
    bench.reload();
    bench.run("attach 1.1 q0 1000");
    assert_eq!(bench.fetched, [1000, 500], "alone");
    for number in 0..1500 {
        bench.run(&format!("accept 1.1 m{number}\ncredit 1.1 1"));
    }
    assert_eq!(bench.fetched.iter().sum::<usize>(), 1500, "each once");
    bench.run("close 1");
    for queue in 1..20 {
        bench.run(&format!("attach 2.{queue} q{queue} 1000"));
    }
    let firsts: Vec<usize> = bench.fetched.iter().copied().filter(|count| *count >= 512).collect();
    assert_eq!((firsts[1], firsts[18]), (1000, 512), "among many");
}

/// Bodies that are not due for long would be there by chance, here and there.
#[test]
fn a_deep_queue_that_nobody_reads_has_bodies_in_memory_in_its_last_page_alone() {
    let body = "a-message-of-thirty-bytes";
    let send = |bench: &mut Bench, queue: &str, messages: u64| {
        (0..messages).for_each(|number| drop(bench.run(&format!("send 1 {queue} {body}-{number:04}"))));
    };
    for (case, reader, bodies) in
        [("nobody reads it", "", 20..=28), ("somebody does", "attach 1.1 deep 50", 70..=2000)]
    {
        let limits = Settings { resident_bytes_max: 1 << 19, page_entries: 8, ..settings(1) };
        let mut bench = Bench::new(limits);
        send(&mut bench, "shallow", 20);
        let each = bench.partitions[0].memory().resident_bytes / 20;
        bench.run(reader);
        send(&mut bench, "deep", 3000);
        let memory = bench.partitions[0].memory();
        assert!(1000 < memory.packed_messages, "case: {case}: {memory:?}");
        assert!(bodies.contains(&(memory.resident_bytes / each)), "case: {case}: {memory:?}");
    }
}

/// Each of many readers gets a message of its queue and goes on or goes away: bodies read ahead for
/// all of them have a bound, and their leftovers, too.
#[test]
fn what_is_read_ahead_for_many_readers_has_a_bound() {
    let (readers, body) = (40_u64, "a-message-of-thirty-bytes-or-so");
    let queue = |reader: u64, number: u64| format!("send 9 q{reader} {body}-{number:02}-{reader:02}\n");
    for (case, last) in
        [("they stay", ""), ("they detach", "detach R.1 none"), ("their connections end", "close R")]
    {
        let limits = Settings { resident_bytes_max: 4000, page_entries: 8, ..settings(1) };
        let mut bench = Bench::new(limits);
        for reader in 0..readers {
            bench.run(&(0..60).map(|number| queue(reader, number)).collect::<String>());
        }
        for reader in 0..readers {
            let said = bench.run(&format!("attach {}.1 q{reader} 1", reader + 10));
            assert!(said.contains(&format!("{body}-00-{reader:02}")), "case: {case}: {said}");
        }
        for reader in 0..readers {
            bench.run(&last.replace('R', &(reader + 10).to_string()));
        }
        bench.run("time 1000");
        assert_eq!(bench.partitions[0].overstayed(), None, "case: {case}");
        let in_hand = if last.is_empty() { readers } else { 0 };
        let bytes_max = 4000 + 1000 + in_hand * 400;
        let memory = bench.partitions[0].memory();
        assert!(memory.resident_bytes <= bytes_max, "case: {case}: {memory:?}, {bytes_max} at most");
        // The next reader gets all of it, in order.
        bench.run("close 10");
        let said = bench.run("attach 5.1 q0 60");
        let numbers: Vec<String> = (0..60).map(|number| format!("{body}-{number:02}-00")).collect();
        let got = said.split(' ').filter_map(|word| Some(word.split_once('<')?.1.trim_end_matches("!1")));
        let got: Vec<&str> = got.filter(|word| word.starts_with(body)).collect();
        assert_eq!(got, numbers, "case: {case}");
    }
}

/// Bodies read ahead for inactive readers block active ones for a short time only.
#[test]
fn readers_that_take_nothing_leave_room_for_one_who_does() {
    let mut bench = Bench::new(Settings { resident_bytes_max: 64 << 10, page_entries: 8, ..settings(1) });
    for reader in 0..60 {
        let body = "a-message-of-thirty-bytes-or-so";
        bench.run(&(0..60).map(|number| format!("send 9 q{reader} {body}-{number}\n")).collect::<String>());
    }
    bench.run(&(0..60).map(|reader| format!("attach {}.1 q{reader} 1\n", reader + 10)).collect::<String>());
    bench.run("time 1000");
    bench.run("close 69");
    bench.fetched.clear();
    bench.run("attach 5.1 q59 60");
    assert!(bench.fetched.iter().any(|count| 8 <= *count), "{:?}", bench.fetched);
}

/// One of two subscriptions is read: messages that its reader has had take no memory for the other.
#[test]
fn what_one_queue_has_sent_leaves_memory_though_another_has_it() {
    for (case, script) in [
        ("accepted", "accept 1.1 M"),
        ("in a transaction", "accept 1.1 M tx=1\ncommit 1 1"),
        ("dead", "reject 1.1 M"),
    ] {
        let mut bench = Bench::new(Settings { resident_bytes_max: 1000, ..settings(1) });
        bench.run("attach 1.1 #t 9 sub=s1\nattach 2.1 #t 9 sub=s2\nclose 2");
        for number in 0..100 {
            let body = format!("a-message-of-thirty-bytes--{number:03}");
            bench.run(&format!("send 3 #t M\n{script}\ncredit 1.1 1").replace('M', &body));
        }
        let memory = bench.partitions[0].memory();
        assert!(memory.resident_bytes < 200, "case: {case}: {memory:?}");
        assert!(70 < memory.packed_messages, "case: {case}: {memory:?}");
    }
}

/// The end of a message in one queue keeps its body for consumers that have it in flight from
/// another.
#[test]
fn a_body_stays_for_whoever_has_the_message_in_hand() {
    let mut settings = settings(1);
    settings.resident_bytes_max = 0;
    for (case, begin, fails) in [
        ("expired in the other queue", "send 1 a,b m?k=4 until=50\nattach 1.1 a 9", "time 60"),
        ("sent back", "send 1 a,b m?k=4\nattach 1.1 a 9", "redrive 2 b to=c\ntime 10\ntime 20"),
    ] {
        let mut bench = Bench::new(settings.clone());
        bench.run(begin);
        bench.late_from_now_on();
        bench.run(fails);
        bench.all_fail();
        // It matches none of the messages, and memory is short.
        assert_eq!(bench.run("attach 2.1 b 9 where=k=5\nreject 1.1 m?k=4"), "ok ok", "case: {case}");
        assert_eq!(bench.held(), "b:1 dead:1", "case: {case}");
    }
    let mut bench = Bench::new(settings);
    bench.run("send 1 a,b m?k=4\nattach 1.1 a 9\naccept 1.1 m?k=4 tx=1\nend 1 1 x\nprepare 1 x");
    bench.restart();
    bench.run("attach 3.1 b 9\ndecide 1 x rollback\nattach 2.1 a 9 where=k=5\nreject 3.1 m?k=4");
    assert_eq!(bench.held(), "a:1 dead:1", "a branch that was in doubt over a restart is rolled back");
}

/// Takes everything, and knows how much of it is still in flight.
#[derive(Debug, Default)]
struct Shelf {
    held: Arc<AtomicUsize>,
    /// How often something was read.
    reads: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct OnShelf {
    bytes: Bytes,
    held: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

impl Spill for Shelf {
    fn put(&self, bytes: &Bytes) -> Option<Arc<dyn Spilled>> {
        self.held.fetch_add(bytes.len(), Ordering::Relaxed);
        let (held, reads) = (self.held.clone(), self.reads.clone());
        Some(Arc::new(OnShelf { bytes: bytes.clone(), held, reads }))
    }
}

impl Spilled for OnShelf {
    fn byte_length(&self) -> usize {
        self.bytes.len()
    }

    fn read(&self) -> Bytes {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.clone()
    }
}

impl Drop for OnShelf {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[test]
fn what_is_spilled_takes_no_memory_and_changes_nothing() {
    let fill: String = (0..41).map(|number| format!("send 1 a m{number}?k={number}\n")).collect();
    for (case, words, is_left) in [
        ("nobody comes", "", true),
        ("the front", "attach 1.1 a 3\naccept 1.1 m0?k=0 m1?k=1", true),
        ("one far behind", "attach 1.1 a 9 where=k=37", true),
        ("a browser", "attach 1.1 a 9 browse", true),
        ("its end", "unmake 1 a", false),
    ] {
        let shelf = Shelf::default();
        let held = shelf.held.clone();
        let mut bench = Bench::new(Settings { spill: Some(Arc::new(shelf)), ..pinched() });
        let mut without = Bench::new(pinched());
        let said = [&mut bench, &mut without].map(|bench| bench.run(&format!("{fill}{words}")));
        assert_eq!(said[0], said[1], "case: {case}");
        let [own, other] = [&bench, &without].map(|bench| &bench.partitions[0]);
        assert_eq!(own.snapshot(), other.snapshot(), "case: {case}");
        let rows = |partition: &Partition| {
            let mut keys: Vec<_> = partition.live_messages().flat_map(|row| row.keys()).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(rows(own), rows(other), "case: {case}");
        let spilled = held.load(Ordering::Relaxed) as u64;
        let (memory, without) = (own.memory(), other.memory());
        assert_eq!(memory.page_bytes + spilled, without.page_bytes, "case: {case}");
        let packed = (memory.packed_messages, memory.packed_messages > 0);
        assert_eq!(packed, (without.packed_messages, is_left), "case: {case}");
        assert_eq!(spilled > 0, is_left, "case: {case}");
        // A snapshot holds its unwritten pieces.
        let pieces = own.snapshot_pieces();
        let restored = Partition::restore(bench.settings.clone(), &pieces.to_bytes()).expect("its own");
        assert_eq!(restored.snapshot(), own.snapshot(), "case: {case}");
        drop((restored, bench));
        assert_eq!(held.load(Ordering::Relaxed) as u64, spilled, "case: {case}");
        drop(pieces);
        assert_eq!(held.load(Ordering::Relaxed), 0, "case: {case}");
    }
}

/// One of several pieces, and how many of them are in use.
struct Cut(Bytes, Arc<AtomicUsize>);

impl AsRef<[u8]> for Cut {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_snapshot_is_read_without_being_in_memory() {
    let mut bench = Bench::new(Settings { spill: Some(Arc::new(Shelf::default())), ..pinched() });
    // Fifteen pages, which become no wider one.
    bench.run(&(0..480).map(|number| format!("send 1 a m{number}?k={number}\n")).collect::<String>());
    let snapshot = bench.partitions[0].snapshot();
    let whole = Partition::restore(bench.settings.clone(), &snapshot).expect("its own");
    for piece_bytes in [1, 7, 64] {
        let shelf = Shelf::default();
        let (spilled, reads) = (shelf.held.clone(), shelf.reads.clone());
        let (held, most) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        // The contents of the shelf after this number of requests.
        let (mut asked, mut halfway) = (0, 0);
        let mut pieces = snapshot.chunks(piece_bytes).map(|piece| {
            if asked < snapshot.len() / 2 {
                halfway = spilled.load(Ordering::Relaxed);
            }
            asked += piece.len();
            most.fetch_max(held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Bytes::from_owner(Cut(Bytes::copy_from_slice(piece), held.clone()))
        });
        let settings = Settings { spill: Some(Arc::new(shelf)), ..bench.settings.clone() };
        let restored = Partition::restore_pieces(settings, &mut pieces).expect("its own");
        assert_eq!(reads.load(Ordering::Relaxed), 0, "pieces of {piece_bytes}: nothing is read back");
        let in_all = spilled.load(Ordering::Relaxed);
        assert!(in_all / 4 < halfway && halfway < in_all, "pieces of {piece_bytes}: {halfway} of {in_all}");
        assert_eq!(restored.snapshot(), snapshot, "pieces of {piece_bytes}");
        assert_eq!(restored.memory().page_bytes, whole.memory().page_bytes, "pieces of {piece_bytes}");
        assert_eq!(held.load(Ordering::Relaxed), 0, "pieces of {piece_bytes}: nothing shares them");
        assert!(most.into_inner() <= 2, "pieces of {piece_bytes}: the one that is read and the next");
    }
}

/// Policies by which these topics keep their last messages for subscribers that come later.
fn keeping(topics: &str, messages_max: u64) -> Arc<Policies> {
    let mut all = Policies::with_dead_letters_in("dead");
    let recovery = Recovery { messages_max, ..Recovery::default() };
    let policy = Policy { recovery, ..all.fallback().clone() };
    all.set(&DestinationPattern::parse(topics).expect("a pattern"), policy);
    Arc::new(all)
}

/// Messages in memory alone have no other place: durable messages make way for them, but for their
/// own part, and come again in order.
#[test]
fn durable_messages_make_way_for_what_has_nowhere_else_to_be() {
    const ALL: u64 = 64 << 10;
    let body = |number: usize| format!("{number:02}{}", "x".repeat(1000));
    let many = |words: &str| -> String {
        (0..40).map(|number| format!("send 1 {words}\n").replace('M', &body(number))).collect()
    };
    for (case, others, ends, left) in [
        ("in memory alone", many("v M volatile"), "attach 3.1 v 99\nclose 1", 24),
        ("in a transaction", many("v M tx=1"), "rollback 1 1", 24),
        ("kept by a topic", many("#t M"), "attach 3.1 #t 99 retroactive", 24),
        (
            "more than there is for all",
            many("v M volatile") + &many("w M volatile"),
            "attach 3.1 v 99\nattach 3.2 w 99",
            16,
        ),
    ] {
        let limits = Settings {
            resident_bytes_max: ALL,
            messages_bytes_max: ALL,
            page_entries: 8,
            policies: keeping("topic://t", 40),
            ..settings(1)
        };
        let mut bench = Bench::new(limits);
        bench.run(&(many("a M") + &many("b M")));
        let resident = |bench: &Bench| bench.partitions[0].memory().resident_bytes >> 10;
        assert!((24..64).contains(&resident(&bench)), "case: {case}: {} KiB before", resident(&bench));
        bench.run(&others);
        bench.run("time 10");
        assert!(resident(&bench) < left, "case: {case}: {} KiB beside them", resident(&bench));
        assert_eq!(bench.partitions[0].overstayed(), None, "case: {case}");
        let said = bench.run("attach 2.1 a 99");
        let got: Vec<&str> = said.split(' ').filter_map(|word| word.strip_prefix("2.1<")).collect();
        assert_eq!(got, (0..40).map(body).collect::<Vec<_>>(), "case: {case}");
        bench.run("close 2\ntime 200");
        bench.run(ends);
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

/// Others take most of the memory, and time goes by until nothing more is due, or for ten seconds;
/// returns when that was.
fn crowded(bench: &mut Bench) -> u64 {
    let large = "y".repeat(1000);
    bench.run(
        &(0..850)
            .map(|number| format!("send 1 v{} {number:04}{large} volatile\n", number % 5))
            .collect::<String>(),
    );
    let mut now_ms = 0;
    while let Some(due_ms) = bench.partitions[0].next_due_ms().filter(|_| now_ms < 10_000) {
        now_ms = due_ms;
        bench.run(&format!("time {now_ms}"));
    }
    now_ms
}

/// One queue of many pages makes way as well, some pages at a time, also while nothing else
/// happens.
#[test]
fn a_long_queue_makes_way_until_it_has() {
    const ALL: u64 = 1 << 20;
    let limits =
        Settings { resident_bytes_max: ALL, messages_bytes_max: ALL, page_entries: 64, ..settings(1) };
    let mut bench = Bench::new(limits);
    let body = "x".repeat(60);
    bench.run(&(0..2600).map(|number| format!("send 1 a {number:04}{body}\n")).collect::<String>());
    let before = packed(&bench);
    let now_ms = crowded(&mut bench);
    assert!(before < 600 && 2000 < packed(&bench), "{before}, {} of 2600 are packed", packed(&bench));
    assert!(now_ms < 10_000, "and that is all");
}

/// Pages whose entries are in flight block none of the others, though they are the newest.
#[test]
fn what_is_in_hand_holds_up_nothing_that_makes_way() {
    const ALL: u64 = 1 << 20;
    let limits =
        Settings { resident_bytes_max: ALL, messages_bytes_max: ALL, page_entries: 16, ..settings(1) };
    let mut bench = Bench::new(limits);
    let body = "x".repeat(60);
    bench
        .run(&(0..2000).map(|number| format!("send 1 a {number:04}{body}?k={number}\n")).collect::<String>());
    // Of some pages one entry is in hand, of others all.
    bench.run("attach 1.1 a 300 where=k>1699\nattach 1.2 a 30 where='x'=x");
    let before = packed(&bench);
    crowded(&mut bench);
    assert!(before < 200 && 1500 < packed(&bench), "{before}, {} of 1700 are packed", packed(&bench));
}
