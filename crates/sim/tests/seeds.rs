//! Runs seeds. `POSTROAD_SEED=n` replays one with a trace, of which `POSTROAD_MESSAGE=n` leaves the
//! lines about one message. `POSTROAD_SEEDS=n` runs the first n, `POSTROAD_SEEDS=m..n` those from
//! m; each for as many steps as `POSTROAD_STEPS` says.

use std::ops::Range;

use postroad_sim::{Mistake, Options, Report, Simulation};

const SEEDS: u64 = 2000;
const EXPLAINED_SEEDS: u64 = 300;

/// A mistake shows in one of the first seeds: it is there whenever something waits for that cause.
const MISTAKEN_SEEDS: u64 = 60;

const NIGHTLY_SEEDS: u64 = 100_000;

/// Seeds that once broke a promise, by its cause.
const ONCE_BROKEN: [(&str, &[u64]); 5] = [
    (
        "an acknowledgement of many messages was carried out by half",
        &[
            5338, 8853, 15454, 15816, 17408, 19748, 20429, 33182, 38342, 38589, 44135, 46429, 48120, 51081,
            54482, 57084, 57384, 61719, 62852, 67381, 70343, 77723, 78091, 78986, 80198, 80813, 87441, 94069,
        ],
    ),
    (
        "a transaction without memory confirmed acknowledgements that it did not take",
        &[42000, 46008, 47118, 47956],
    ),
    ("a later message overtook those that a rollback was about to return", &[34037, 56838, 91318]),
    ("the oracle expected dead letters of a refused verdict", &[44582]),
    ("the simulator gave an event to a partition that had it wait", &[81336]),
];

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

/// The options of each run.
fn options() -> Options {
    let usual = Options::default();
    let steps = number("POSTROAD_STEPS").unwrap_or(usual.steps);
    let (trace, trace_message) = (number("POSTROAD_SEED").is_some(), number("POSTROAD_MESSAGE"));
    Options { trace, trace_message, steps, ..usual }
}

fn try_run(seed: u64, options: Options) -> Result<Report, String> {
    match std::panic::catch_unwind(|| Simulation::run(seed, options)) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(violation)) => Err(violation.to_string()),
        Err(_) => Err(format!(
            "seed {seed} panicked; again: POSTROAD_SEED={seed} cargo test -p postroad-sim --test seeds -- --nocapture"
        )),
    }
}

fn run(seed: u64, options: Options) -> Report {
    try_run(seed, options).unwrap_or_else(|violation| panic!("{violation}"))
}

/// A night must not end with the first bad seed: all are reported.
fn run_all(seeds: Range<u64>, options: Options) -> Report {
    let mut total = Report::default();
    let mut violations: Vec<String> = Vec::new();
    for seed in seeds {
        match try_run(seed, options) {
            Ok(report) => total.add(&report),
            Err(violation) => {
                eprintln!("{violation}");
                violations.push(violation);
            }
        }
    }
    eprintln!("{total:?}");
    assert!(violations.is_empty(), "{} seeds broke a promise:\n{}", violations.len(), violations.join("\n"));
    total
}

#[test]
fn promises_hold_for_every_seed() {
    let options = options();
    let seeds = chosen(SEEDS);
    let many = seeds.end - seeds.start >= SEEDS;
    let total = run_all(seeds, options);
    let rare = [
        2 * total.prepared,
        total.fed,
        total.resent,
        total.scheduled,
        total.delivered,
        total.confirmed,
        total.refused,
        total.commits,
        total.crashes,
        total.fetched,
        total.doubted,
        total.pages.packed,
        total.pages.opened,
        total.dropped,
        // One run in three keeps last values.
        2 * total.replaced,
        // One run in nine or so has consumers that must not be slow, and takes something back.
        8 * total.slow,
        2 * total.timed_out,
        // One run in four has queues that move, if there are several partitions.
        total.moved,
        // One run in three has dead letters go back, as far as there are any.
        8 * total.revived,
        // In one run of three things rest, and some of them fail too often.
        total.rested,
        8 * total.given_up,
        // In one run of seven jobs go on.
        4 * total.repeated,
        // One run in five is encrypted.
        5 * total.rotations,
        // One in four schedules enough.
        4 * total.shelves_read,
    ];
    for (phase, count) in total.ends.all() {
        assert!(!many || count > SEEDS / 40, "the broker hardly ever ended in {phase:?}: {total:?}");
    }
    assert!(!many || rare.iter().all(|count| *count > SEEDS), "hardly anything happened: {total:?}");
}

#[test]
fn promises_hold_for_clients_that_commit_without_waiting() {
    let options = Options { hasty_commits: true, ..options() };
    let seeds = chosen(SEEDS);
    let many = seeds.end - seeds.start >= SEEDS;
    let total = run_all(seeds, options);
    assert!(!many || total.commits > SEEDS, "hardly anything was committed: {total:?}");
}

#[test]
fn explanations_name_the_causes() {
    let options = Options { explains: true, ..options() };
    let seeds = chosen(EXPLAINED_SEEDS);
    let many = seeds.end - seeds.start >= EXPLAINED_SEEDS;
    let total = run_all(seeds, options);
    let explained = total.explained;
    let rare = [explained.delivered, explained.gone, 4 * explained.sends];
    assert!(!many || rare.iter().all(|count| *count > EXPLAINED_SEEDS), "hardly anything waited: {total:?}");
    assert!(explained.without_room * 50 <= explained.delivered, "many are not delivered: {total:?}");
}

#[test]
fn wrong_explanations_are_found() {
    for mistake in Mistake::ALL {
        let options = Options { explains: true, mistake: Some(mistake), ..Options::default() };
        let is_found = |seed| Simulation::run(seed, options).is_err();
        assert!((0..MISTAKEN_SEEDS).any(is_found), "not found: {mistake:?}");
    }
}

#[test]
fn promises_hold_for_seeds_that_once_broke_one() {
    for (cause, seeds) in ONCE_BROKEN {
        let broken = seeds.iter().filter_map(|seed| try_run(*seed, Options::default()).err());
        assert_eq!(broken.collect::<Vec<_>>(), Vec::<String>::new(), "{cause}");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [1, 7, 23] {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()), "seed {seed}");
    }
}

#[test]
#[ignore = "for the night"]
fn promises_hold_for_a_hundred_thousand_seeds() {
    run_all(chosen(NIGHTLY_SEEDS), options());
}
