//! Runs seeds of leases in a process of several cores. `POSTROAD_SEED=n` runs one,
//! `POSTROAD_SEEDS=n` the first n, `POSTROAD_SEEDS=m..n` those from m.

use std::ops::Range;

use postroad_sim::{LeaseReport, ProcessRun};

const SEEDS: u64 = 100;
const STEPS: u64 = 4000;

/// All bodies stay in memory.
const ALL_RESIDENT: u64 = 1 << 20;

/// Most bodies are on the disk.
const FEW_RESIDENT: u64 = 2 << 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds that are asked for, or the first `unless`.
fn chosen(unless: u64) -> Range<u64> {
    if let Some(seed) = number("POSTROAD_SEED") {
        return seed..seed + 1;
    }
    let Ok(text) = std::env::var("POSTROAD_SEEDS") else { return 0..unless };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn run(seed: u64, resident_bytes_max: u64) -> LeaseReport {
    let again = format!("POSTROAD_SEED={seed} cargo test -p postroad-sim --test leases");
    ProcessRun::run_leases(seed, STEPS, resident_bytes_max)
        .unwrap_or_else(|broken| panic!("seed {seed}: {broken}; again: {again}"))
}

fn run_all(seeds: Range<u64>, resident_bytes_max: u64) {
    let runs = seeds.end - seeds.start;
    let mut total = LeaseReport::default();
    seeds.for_each(|seed| total.add_all(&run(seed, resident_bytes_max)));
    eprintln!("{total:#?}");
    if runs < 20 {
        return;
    }
    // At least so often in ten runs.
    let least = [
        ("posted", 150),
        ("granted", 120),
        ("granted again", 40),
        ("granted in time", 60),
        ("consumed", 3),
        ("extended", 3),
        ("renewed", 3),
        ("released", 8),
        ("deleted", 20),
        ("reserves without answer", 20),
        ("stale: gone", 30),
        ("stale: expired", 25),
        ("stale: taken", 15),
        ("stale: held", 2),
        ("judged valid", 12),
        ("judged taken", 5),
        ("judged expired", 8),
        ("judged gone", 20),
        ("crashes", 15),
        ("crashes with leases", 8),
        ("kept leases", 7),
        ("clock steps", 20),
        ("not carried out", 8),
        ("read out", 100),
        ("buried", 3),
        ("described", 40),
        ("selected", 20),
        ("grouped", 15),
        ("moves", 2),
        ("judged elsewhere", 5),
    ];
    assert!(
        0 < total.times("granted elsewhere"),
        "no message was given where its queue has moved: {total:#?}"
    );
    for (what, times) in least {
        assert!(times * runs <= 10 * total.times(what), "hardly any {what:?}: {total:#?}");
    }
}

#[test]
fn leases_hold_and_deletes_are_final() {
    run_all(chosen(SEEDS), ALL_RESIDENT);
}

#[test]
fn leases_hold_while_bodies_are_read() {
    run_all(chosen(SEEDS), FEW_RESIDENT);
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [1, 7, 23] {
        assert_eq!(run(seed, ALL_RESIDENT), run(seed, ALL_RESIDENT), "seed {seed}");
    }
}
