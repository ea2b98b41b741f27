//! The counts of each queue go on over restarts, snapshots and changes of the leader, and add up.
//! See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::{Partition, QueueCounts};

/// Of five messages in a, two are consumed, one is given up and one expires. One in memory alone is
/// there besides.
const SCRIPT: &str = "time 1\nsend 1 a m\nsend 1 a n\nsend 1 a o\nsend 1 a p\nsend 1 a q until=50\nsend 1 a v volatile\n\
                      attach 1.1 a 3\naccept 1.1 m n\nreject 1.1 o\ndetach 1.1 all\ntime 60";

/// A way in which a partition begins again.
type Begin = fn(&mut Bench);

fn counts(partition: &Partition, name: &str) -> (QueueCounts, u64) {
    let mut flows = partition.flows().filter(|(queue, ..)| &*queue.name == name);
    flows.next().map(|(_, counts, held)| (counts, held)).expect("the queue")
}

fn check_all(partition: &Partition, case: &str) {
    for (queue, counts, held) in partition.flows() {
        assert_eq!(counts.difference(held), 0, "case: {case}: {queue}: {counts:?}, {held} are there");
    }
}

#[test]
fn counts_go_on_and_those_of_messages_in_memory_end_with_them() {
    let mut bench = Bench::new(settings(1));
    bench.run(SCRIPT);
    let (before, held) = counts(&bench.partitions[0], "a");
    let lasting =
        QueueCounts { enqueued: 5, consumed: 2, expired: 1, dead_lettered: 1, ..QueueCounts::default() };
    assert_eq!((before, held), (QueueCounts { enqueued: 6, ..lasting }, 2));
    check_all(&bench.partitions[0], "before");
    let replica = bench.replica(0);
    assert_eq!(counts(&replica, "a"), (lasting, 1), "a replica counts what is in the log");
    assert_eq!(replica.snapshot(), bench.partitions[0].snapshot());

    let ways: [(&str, Begin); 3] = [
        ("records", Bench::restart),
        ("a snapshot", Bench::reload),
        ("another leader", |bench| {
            bench.stop();
            bench.lead();
        }),
    ];
    let mut want = lasting;
    for ((case, begins_again), (first, next)) in ways.into_iter().zip([("p", "r"), ("r", "s"), ("s", "t")]) {
        begins_again(&mut bench);
        assert_eq!(counts(&bench.partitions[0], "a"), (want, 1), "case: {case}");
        check_all(&bench.partitions[0], case);
        bench.run(&format!("time 60\nsend 1 a {next}\nattach 1.1 a 1"));
        bench.run(&format!("accept 1.1 {first}\ndetach 1.1 all"));
        check_all(&bench.partitions[0], case);
        let (now, held) = counts(&bench.partitions[0], "a");
        assert_eq!((now.enqueued, held, now.left()), (want.enqueued + 1, 1, want.left() + 1), "case: {case}");
        want = now;
    }
}

#[test]
fn a_message_that_a_snapshot_has_lost_is_a_difference() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m\nsend 1 a n");
    let whole = bench.partitions[0].snapshot();
    bench.run("attach 1.1 a 1\naccept 1.1 m\ndetach 1.1 all");
    let one = bench.partitions[0].snapshot();
    // The entries of the later one, and the counts of the earlier one.
    let count = |consumed: u64| [2_u64, consumed].map(u64::to_le_bytes).concat();
    let place = one.windows(16).position(|bytes| bytes == count(1)).expect("its counts");
    assert!(whole.windows(16).any(|bytes| bytes == count(0)));
    let mut lost = one.to_vec();
    lost[place..place + 16].copy_from_slice(&count(0));
    for (snapshot, want) in [(whole, 0), (one, 0), (lost.into(), 1)] {
        let partition = Partition::restore(settings(1), &snapshot).expect("a sound snapshot");
        let (counts, held) = counts(&partition, "a");
        assert_eq!(counts.difference(held), want);
    }
}

#[test]
fn a_snapshot_with_counts_of_no_queue_is_refused() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m");
    let good = bench.partitions[0].snapshot();
    let counts = [1_u64, 0, 0].map(u64::to_le_bytes).concat();
    let place = good.windows(24).rposition(|bytes| bytes == counts).expect("its counts");
    let mut wrong = good.to_vec();
    wrong[place - 8] += 1;
    let error = Partition::restore(settings(1), &wrong.into()).err().expect("refused").to_string();
    assert_eq!(error, "damaged snapshot: queue of counts 1 does not exist");
}
