//! Runs seeds of the process: `node` with several cores, routers and clients. `POSTROAD_SEED=n`
//! runs one,
//! `POSTROAD_SEEDS=n` the first n.

use postroad_sim::{ProcessReport, ProcessRun};

const SEEDS: u64 = 200;
const STEPS: u64 = 3000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run(seed: u64) -> ProcessReport {
    let again = format!("POSTROAD_SEED={seed} cargo test -p postroad-sim --test process");
    ProcessRun::run(seed, STEPS).unwrap_or_else(|broken| panic!("seed {seed}: {broken}; again: {again}"))
}

#[test]
fn promises_hold_in_a_process_with_several_cores() {
    let seeds = match number("POSTROAD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTROAD_SEEDS").unwrap_or(SEEDS),
    };
    let (mut total, mut runs) = (ProcessReport::default(), 0);
    for seed in seeds {
        total.add(&run(seed));
        runs += 1;
    }
    eprintln!("{total:?}");
    let least = [total.confirmed, total.delivered, total.settled];
    assert!(least.iter().all(|count| *count > 20 * runs), "hardly anything happened: {total:?}");
    let transacted = [total.committed, total.rolled_back, total.moves];
    assert!(transacted.iter().all(|count| *count > runs), "hardly any transaction or move: {total:?}");
    assert!(total.crashes > runs, "hardly any crash: {total:?}");
}

/// Two messages are settled in a transaction over partitions that the end of the process leaves in
/// doubt. They come again after a later one.
#[test]
fn a_settlement_in_doubt_comes_late_and_once() {
    let report = run(1873);
    assert!(report.crashes > 0 && report.committed > 0, "{report:?}");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [1, 7, 23] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
