//! Runs seeds. `POSTROAD_CLUSTER_SEEDS=n` runs the first n, `POSTROAD_CLUSTER_SEEDS=m..n` those
//! from m.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::simulation::{Broken, Report, Simulation};

const SEEDS: u64 = 2000;
/// Without a number that is asked for, slow machines run fewer.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Number of seeds within which a broken rule must be found.
const BROKEN_SEEDS: u64 = 10_000;

pub fn asked_for() -> Option<Range<u64>> {
    let text = std::env::var("POSTROAD_CLUSTER_SEEDS").ok()?;
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    Some(from.parse().expect("a number")..to.parse().expect("a number"))
}

#[test]
fn acknowledged_batches_survive_every_seed() {
    let began = Instant::now();
    let asked = asked_for();
    let mut total = Report::default();
    let (mut runs, mut broken) = (0, 0);
    for seed in asked.clone().unwrap_or(0..SEEDS) {
        if asked.is_none() && began.elapsed() > TIME_MAX {
            break;
        }
        match std::panic::catch_unwind(|| Simulation::run(seed, Broken::Nothing)) {
            Ok(Ok(report)) => total.add(&report),
            Ok(Err(wrong)) => {
                eprintln!("{wrong}");
                broken += 1;
            }
            Err(_) => {
                eprintln!("seed {seed}: an assertion");
                broken += 1;
            }
        }
        runs += 1;
    }
    eprintln!("{runs} seeds in {:?}: {total:?}", began.elapsed());
    assert_eq!(broken, 0, "that many of {runs} seeds break a rule");
    let often = [
        total.terms,
        total.crashes,
        total.cuts,
        total.pauses,
        total.transfers,
        total.changes,
        total.snapshots,
        total.damages,
        total.fills,
    ];
    let enough = often.iter().all(|count| 4 * count > runs) && total.acknowledged > 20 * runs;
    assert!(runs < 20 || enough, "hardly anything happened in {runs} runs: {total:?}");
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [1, 7, 23, 99] {
        let run = || Simulation::run(seed, Broken::Nothing).unwrap();
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn broken_rules_are_found() {
    // A rare one begins shortly before a seed that finds it.
    for (broken, from) in [
        (Broken::CommitsAlone, 0),
        (Broken::ForgetsVote, 0),
        (Broken::AnswersUnsynced, 0),
        (Broken::ForgetsMembers, 0),
        (Broken::TrustsShortLogs, 0),
        (Broken::FillsFromFormerLeaders, 2090),
        (Broken::DamagedCampaigns, 0),
    ] {
        let found = (from..from + BROKEN_SEEDS).find_map(|seed| {
            let run = || Simulation::run(seed, broken);
            match std::panic::catch_unwind(run) {
                Ok(Ok(_)) => None,
                Ok(Err(wrong)) => Some((seed, wrong)),
                Err(_) => Some((seed, "an assertion".to_owned())),
            }
        });
        let (seed, wrong) = found.unwrap_or_else(|| panic!("{broken:?} was not found"));
        eprintln!("{broken:?}: seed {seed}: {wrong}");
    }
}
