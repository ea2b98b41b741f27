//! Messages that are due later, case by case. See `bench` for the words: `at=50 every=10 times=2`
//! is due at 50, 60 and 70.

mod bench;

use bench::{Bench, settings};
use postroad_core::{HeldJob, Partition, encode_record, held_jobs_in_record, sent_in_record};
use postroad_model::{Command, Compression, Position, Recurrence, Schedule, Sent};

/// Runs each case on one partition; compares the answers.
fn check(cases: &[(&str, &str, &str)]) {
    for (name, script, want) in cases {
        assert_eq!(&Bench::new(settings(1)).run(script), want, "case: {name}");
    }
}

#[test]
fn a_message_is_there_when_it_is_due() {
    check(&[
        (
            "not before",
            "attach 1.1 a 9\nsend 1 a m at=1000\ntime 999\nsend 1 a n\ntime 1000",
            "ok ok 1.1<n ok 1.1<m",
        ),
        (
            "in the order of time",
            "attach 1.1 a 9\nsend 1 a m at=30\nsend 1 a n at=20\ntime 50",
            "ok ok ok 1.1<n 1.1<m",
        ),
        ("at once if it is due already", "time 9\nattach 1.1 a 9\nsend 1 a m at=5\ntime 10", "ok ok 1.1<m"),
        (
            "on every address",
            "attach 1.1 a 9\nattach 1.2 #t 9\nsend 1 a,#t m at=5\ntime 5",
            "ok ok ok 1.1<m 1.2<m",
        ),
        (
            "not persistent, it waits in the log too",
            "send 1 a m volatile at=5\nattach 1.1 a 9\ntime 5",
            "ok ok 1.1<m",
        ),
        (
            "in a transaction, if that is committed",
            "attach 1.1 a 9
             send 1 a m tx=1 at=5
             send 1 a n tx=2 at=5
             commit 1 1
             rollback 1 2
             time 5",
            "ok ok ok ok ok 1.1<m",
        ),
        (
            "in a branch, if that is committed",
            "attach 1.1 a 9
             send 1 a m tx=1 at=5
             end 1 1 x
             prepare 1 x
             time 9
             decide 1 x commit
             time 10",
            "ok ok ok ok 1/1 done ok 1.1<m",
        ),
        (
            "not on a temporary destination",
            "make 1 ~q\nsend 1 ~q m at=5",
            "ok no: cannot schedule a message to temp-queue://q: a temporary destination may be gone by then",
        ),
    ]);
}

#[test]
fn a_job_goes_on_as_often_as_it_was_told() {
    check(&[
        (
            "period and times",
            "attach 1.1 a 9\nsend 1 a m at=10 every=5 times=2\ntime 10\ntime 14\ntime 15\ntime 20\ntime 25\ntime 99",
            "ok ok 1.1<m 1.1<m 1.1<m",
        ),
        (
            "what was missed is not made up",
            "attach 1.1 a 9\nsend 1 a m at=10 every=5\ntime 100\ntime 104\ntime 105",
            "ok ok 1.1<m 1.1<m",
        ),
        (
            "a period is needed",
            "send 1 a m at=10 every=0",
            "no: cannot schedule a message to queue://a: it repeats without a period",
        ),
    ]);
}

#[test]
fn no_restart_loses_a_job_or_fires_it_twice() {
    let mut bench = Bench::new(settings(2));
    assert_eq!(bench.run("send 1 a m at=10 every=5 times=1\nsend 1 b n at=10"), "ok ok");
    for (now, held) in [(9, ""), (10, "a:1 b:1"), (14, "a:1 b:1"), (15, "a:2 b:1"), (99, "a:2 b:1")] {
        bench.restart();
        bench.run(&format!("time {now}"));
        assert_eq!(bench.held(), held, "at {now}");
    }
    let left: usize = bench.partitions.iter().map(Partition::scheduled).sum();
    assert_eq!(left, 0);
}

#[test]
fn a_snapshot_keeps_jobs() {
    let mut bench = Bench::new(settings(1));
    bench.run(
        "send 1 a m at=10 every=5 times=3\nsend 1 a n at=7\nsend 1 a o tx=1 at=8\nend 1 1 x\nprepare 1 x",
    );
    let snapshot = bench.partitions[0].snapshot();
    let restored = Partition::restore(settings(1), &snapshot).expect("a sound snapshot");
    assert_eq!(restored.snapshot(), snapshot);
    let live = |partition: &Partition| {
        let mut live: Vec<_> = partition.live_messages().collect();
        live.sort_unstable();
        live
    };
    assert_eq!(live(&restored), live(&bench.partitions[0]));
    assert_eq!((live(&restored).len(), restored.scheduled(), restored.next_due_ms()), (3, 2, Some(0)));
    bench.partitions[0] = bench::equipped(restored);
    assert_eq!(bench.run("decide 1 x commit"), "ok");
    bench.run("time 10\ntime 15");
    assert_eq!(bench.held(), "a:4");
}

fn record(bench: &Bench, position: Position) -> &bytes::Bytes {
    &bench.log[0][position.get() as usize - 1]
}

/// A bench that was sent just these.
fn sent_anew(sends: impl IntoIterator<Item = Sent>) -> Bench {
    let mut bench = Bench::new(settings(1));
    let record = |sent| encode_record(&Command::Enqueue(sent), Compression::None).concat().into();
    bench.log[0].extend(sends.into_iter().map(record));
    bench.positions[0] = Position::new(bench.log[0].len() as u64 + 1).expect("not zero");
    bench.restart();
    bench
}

/// Another one, with the schedule of this one.
fn copied(bench: &Bench) -> Bench {
    let partition = &bench.partitions[0];
    let shelves = partition.held_shelves().flat_map(|(position, count)| {
        let jobs = held_jobs_in_record(record(bench, position)).expect("a record of ours");
        let jobs = jobs.expect("one with jobs");
        assert_eq!(jobs.len(), count as usize);
        jobs
    });
    let jobs: Vec<HeldJob> = partition.held_jobs().chain(shelves).collect();
    assert_eq!(jobs.len(), partition.scheduled());
    sent_anew(jobs.into_iter().map(|job| {
        let stored = sent_in_record(record(bench, job.due.position), job.due.ordinal);
        let stored = stored.expect("a record of ours").expect("it has the message");
        let began = stored.schedule.clone().expect("it is due later");
        Sent { schedule: Some(Box::new(job.schedule(&began))), ..stored }
    }))
}

#[test]
fn what_the_schedule_holds_can_be_sent_anew() {
    for (name, script, times) in [
        ("once", "send 1 a m at=10\nsend 1 a,#t n at=20", [9, 10, 20, 99]),
        ("again", "send 1 a m at=10 every=5 times=2", [10, 15, 20, 99]),
        ("with some behind it", "send 1 a m at=10 every=5 times=2\ntime 10", [14, 15, 20, 99]),
        ("committed", "send 1 a m tx=1 at=10\nsend 1 a n tx=1 at=15 every=9\ncommit 1 1", [10, 15, 24, 33]),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(script);
        let mut benches = [copied(&bench), bench];
        for now in times {
            let said = benches.each_mut().map(|bench| {
                bench.run("attach 1.1 a 99");
                let said = bench.run(&format!("time {now}"));
                bench.run("detach 1.1 all");
                (said, bench.partitions[0].scheduled(), bench.partitions[0].next_due_ms())
            });
            assert_eq!(said[0], said[1], "case: {name}, at {now}");
        }
    }
    let mut bench = Bench::new(pinched());
    let all = schedule_many(&mut bench, 300);
    assert!(shelved(&bench) > 200);
    let mut copy = copied(&bench);
    copy.run("attach 1.1 r 2000");
    let want: String = all.iter().map(|(_, number)| format!(" 1.1<{number}")).collect();
    assert_eq!(copy.run("jobs 1 r"), format!("ok{want}"), "from shelves too");
}

#[test]
fn a_job_by_an_expression_comes_in_a_copy_when_it_would_here() {
    const HOUR_MS: u64 = 3_600_000;
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m at=10");
    let stored = sent_in_record(record(&bench, Position::FIRST), 0).expect("a record of ours");
    let again = Recurrence { period_ms: 0, times: None, cron: Some("0 * * * *".into()), delay_ms: 0 };
    let schedule = Schedule { job: "m".into(), due_ms: HOUR_MS / 2, again: Some(again), retry: None };
    let stored = Sent { schedule: Some(Box::new(schedule)), ..stored.expect("it has the message") };
    let bench = sent_anew([stored]);
    let copy = copied(&bench);
    let held = |bench: &Bench| bench.partitions[0].held_jobs().map(|job| job.due.at_ms).collect::<Vec<_>>();
    assert_eq!((held(&bench), held(&copy)), (vec![HOUR_MS], vec![HOUR_MS]));
    assert_eq!(held(&copied(&copy)), [HOUR_MS], "and in a copy of that");
}

#[test]
fn what_the_log_refuses_is_fired_later() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m at=10");
    bench.broken = Some(postroad_model::PartitionId(0));
    bench.run("time 10\ntime 11");
    bench.broken = None;
    bench.run("time 1009");
    assert_eq!(bench.held(), "", "it rests");
    bench.run("time 1011");
    assert_eq!(bench.held(), "a:1");
}

#[test]
fn jobs_are_seen_and_ended() {
    check(&[
        (
            "copies go where they are wanted, by time",
            "attach 1.1 r 9\nsend 1 a m at=3000\nsend 1 a n at=2000\njobs 1 r",
            "ok ok ok ok 1.1<n 1.1<m",
        ),
        ("nobody is there", "send 1 a m at=3000\njobs 1 r", "ok ok"),
        (
            "one is ended by name",
            "attach 1.1 a 9\nsend 1 a m at=30\nsend 1 a n at=30\ncancel 1 m\ntime 40",
            "ok ok ok ok 1.1<n",
        ),
        (
            "all are ended that are due until then",
            "attach 1.1 a 9\nsend 1 a m at=30\nsend 1 a n at=31\ncancel 1 until=30\ntime 40",
            "ok ok ok ok 1.1<n",
        ),
        (
            "one that goes on does not",
            "attach 1.1 a 9\nsend 1 a m at=10 every=5\ntime 10\ncancel 1 m\ntime 40",
            "ok ok 1.1<m ok",
        ),
    ]);
}

#[test]
fn a_job_that_is_ended_while_it_is_fired_ends() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m at=1000 every=5");
    assert_eq!(bench.run_late("time 1000", "cancel 1 m"), "ok");
    bench.run("time 2000");
    assert_eq!(bench.held(), "a:1", "it was fired once, and is over");
    bench.run("send 1 a n at=5000");
    assert_eq!(bench.run_late("cancel 1 n", "time 5000"), "ok");
    assert_eq!((bench.held().as_str(), bench.partitions[0].scheduled()), ("a:1", 0));
}

/// Of jobs that are due once at most 32 are in memory, and a shelf has 2.
fn pinched() -> postroad_core::Settings {
    postroad_core::Settings { resident_bytes_max: 0, page_entries: 2, ..settings(1) }
}

/// This many jobs, due in no order between 100 s and 10,000 s; returns when each is due, in order.
fn schedule_many(bench: &mut Bench, jobs: u64) -> Vec<(u64, u64)> {
    let due_ms = |number: u64| 100_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 9_900_000;
    for number in 0..jobs {
        assert_eq!(bench.run(&format!("send 1 a {number} at={}", due_ms(number))), "ok");
    }
    let mut all: Vec<(u64, u64)> = (0..jobs).map(|number| (due_ms(number), number)).collect();
    all.sort_unstable();
    all
}

fn shelved(bench: &Bench) -> usize {
    bench.partitions[0].scheduled() - bench.partitions[0].jobs_in_memory()
}

#[test]
fn jobs_that_are_due_late_leave_memory_and_come_in_time() {
    for restarts in [false, true] {
        let mut bench = Bench::new(pinched());
        let mut all = schedule_many(&mut bench, 400);
        assert_eq!(bench.partitions[0].scheduled(), 400);
        assert!(
            bench.partitions[0].jobs_in_memory() <= 32,
            "{} in memory",
            bench.partitions[0].jobs_in_memory()
        );
        assert_eq!(bench.run("attach 1.1 a 2000"), "ok");
        for now in (0..=10_000_000).step_by(250_000) {
            if restarts {
                bench.restart();
                bench.run("attach 1.1 a 2000");
            }
            // The requested wake-up comes then.
            let mut said = String::new();
            while let Some(due_ms) = bench.partitions[0].next_due_ms().filter(|due_ms| *due_ms <= now) {
                said += " ";
                said += &bench.run(&format!("time {due_ms}"));
            }
            let due: Vec<(u64, u64)> = all.extract_if(.., |(due_ms, _)| *due_ms <= now).collect();
            let came: Vec<u64> =
                said.split_whitespace().filter_map(|word| word.strip_prefix("1.1<")?.parse().ok()).collect();
            assert_eq!(came, due.iter().map(|(_, number)| *number).collect::<Vec<_>>(), "until {now}");
            bench.run(&came.iter().map(|number| format!("accept 1.1 {number}\n")).collect::<String>());
            assert!(bench.partitions[0].jobs_in_memory() <= 32 + 4 * 2, "what comes back is bounded");
        }
        assert_eq!((bench.partitions[0].scheduled(), bench.held().as_str()), (0, ""));
        assert_eq!(bench.partitions[0].live_messages().count(), 0, "records of shelves go, too");
    }
}

#[test]
fn jobs_that_are_due_together_do_not_come_back_together() {
    let mut bench = Bench::new(pinched());
    for number in 0..1000 {
        bench.run(&format!("send 1 a {number} at=5000"));
    }
    assert!(shelved(&bench) > 900);
    bench.run("time 4000");
    assert!(bench.partitions[0].jobs_in_memory() <= 32, "as many as before");
    bench.run("time 5000");
    while bench.partitions[0].next_due_ms().is_some() {
        bench.run("time 5001");
    }
    assert_eq!((bench.held().as_str(), bench.partitions[0].scheduled()), ("a:1000", 0));
}

#[test]
fn jobs_on_shelves_are_seen_and_ended() {
    let mut bench = Bench::new(pinched());
    let all = schedule_many(&mut bench, 500);
    assert!(shelved(&bench) > 400);
    bench.run("attach 1.1 r 2000");
    let names =
        |jobs: &[(u64, u64)]| jobs.iter().map(|(_, number)| format!(" 1.1<{number}")).collect::<String>();
    assert_eq!(bench.run("jobs 1 r"), format!("ok{}", names(&all)), "by time");
    let ended = all[450].1;
    assert_eq!(bench.run(&format!("cancel 1 {ended}")), "ok");
    assert_eq!(bench.partitions[0].scheduled(), 499);
    assert_eq!(bench.run(&format!("cancel 1 {ended}")), "ok", "there is none of this name");
    bench.restart();
    assert_eq!(bench.partitions[0].scheduled(), 499);
    bench.run("attach 1.1 r 2000");
    let left: Vec<(u64, u64)> = all.iter().copied().filter(|(_, number)| *number != ended).collect();
    assert_eq!(bench.run("jobs 1 r"), format!("ok{}", names(&left)));
    assert_eq!(bench.run(&format!("cancel 1 until={}", all[399].0)), "ok");
    assert_eq!(bench.run("jobs 1 r"), format!("ok{}", names(&left[400..])));
    assert_eq!(bench.run("cancel 1"), "ok");
    assert_eq!((bench.partitions[0].scheduled(), bench.partitions[0].live_messages().count()), (0, 0));
}

#[test]
fn a_snapshot_keeps_jobs_on_shelves() {
    let mut bench = Bench::new(pinched());
    schedule_many(&mut bench, 700);
    let snapshot = bench.partitions[0].snapshot();
    let restored = Partition::restore(pinched(), &snapshot).expect("a sound snapshot");
    assert_eq!(restored.snapshot(), snapshot);
    let needed = |partition: &Partition| {
        let mut keys: Vec<_> = partition.live_messages().flat_map(|row| row.keys()).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(needed(&restored), needed(&bench.partitions[0]));
    assert_eq!(
        (restored.scheduled(), restored.jobs_in_memory()),
        (700, bench.partitions[0].jobs_in_memory())
    );
}

#[test]
fn a_shelf_that_the_log_refuses_is_tried_again() {
    let mut bench = Bench::new(pinched());
    for number in 0..32 {
        bench.run(&format!("send 1 a {number} at={}", 1_000_000 + number));
    }
    assert_eq!(shelved(&bench), 0);
    bench.run("send 1 a 32 at=9");
    let on_shelves = shelved(&bench);
    assert_eq!(on_shelves, 18, "the last ones, by twos: half of what may be there is left");
    bench.broken = Some(postroad_model::PartitionId(0));
    bench.run("time 1000031");
    assert_eq!((shelved(&bench), bench.held().as_str()), (on_shelves, ""), "nothing comes back");
    assert_eq!(
        bench.run("cancel 1 31"),
        "no: the store could not write: broken",
        "nobody is told that it has ended"
    );
    bench.broken = None;
    bench.run("time 1001070\ntime 1001071\ntime 1001072");
    assert_eq!((bench.partitions[0].scheduled(), bench.held().as_str()), (0, "a:33"));
}

/// Jobs cost entries, not bodies.
#[test]
fn bodies_of_jobs_stay_on_the_disk() {
    let mut bench = Bench::new(settings(1));
    for number in 0..1000 {
        bench.run(&format!("send 1 a {number}{} at={}", "x".repeat(2000), 1_000_000 + number));
    }
    assert_eq!(bench.partitions[0].memory(), postroad_core::Memory::default());
    assert_eq!((bench.partitions[0].scheduled(), bench.partitions[0].next_due_ms()), (1000, Some(999_750)));
    bench.run("time 1000499");
    assert_eq!(bench.held(), "a:500");
}
