//! Spreads clients over the brokers of a network: keeps the broker list for `failover:` clients,
//! and decides how many clients move.
//!
//! A broker with more clients than the average of its network by a tenth, and by one at least, asks
//! some to move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postroad_openwire::ClientSpread;
use tokio::time::{MissedTickBehavior, interval};

use crate::runtime::links::{LinkBoard, LinkedBroker};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// Limit of the brokers in the list for clients.
const BROKERS_MAX: usize = 64;

/// Clients that are asked to move at once.
const MOVES_MAX: u64 = 64;

/// The settings of operators.
#[derive(Clone, Debug)]
pub struct SpreadOptions {
    /// Where clients reach this broker.
    pub own_url: String,
    /// Whether clients move.
    pub rebalances: bool,
    /// Whether a broker whose link has ended leaves the list.
    pub removes: bool,
    /// Patterns of the names of brokers that count; all without any.
    pub names: Vec<String>,
}

/// Looks after the list until the broker ends.
pub async fn spread_clients(options: SpreadOptions, board: LinkBoard, spread: Arc<ClientSpread>) {
    let mut known = BTreeMap::new();
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        note(&mut known, board.brokers(), &options);
        spread.set_brokers(&urls_of(&known, &options.own_url));
        if options.rebalances {
            let (moves, urls) = moves_of(&known, spread.clients());
            spread.set_moves(moves, &urls);
        }
    }
}

/// Adds brokers that have come, and removes those that have gone.
fn note(known: &mut BTreeMap<String, LinkedBroker>, linked: Vec<LinkedBroker>, options: &SpreadOptions) {
    let is_named = |broker: &LinkedBroker| {
        options.names.is_empty() || options.names.iter().any(|pattern| name_matches(pattern, &broker.name))
    };
    let linked = linked.into_iter().filter(|broker| leads_anywhere(&broker.url) && is_named(broker));
    let linked: BTreeMap<String, LinkedBroker> = linked.map(|broker| (broker.url.clone(), broker)).collect();
    if options.removes {
        known.clear();
    } else {
        // One that is not there takes no clients.
        known.values_mut().for_each(|broker| broker.clients = None);
    }
    for (url, broker) in linked {
        if known.len() < BROKERS_MAX || known.contains_key(&url) {
            known.insert(url, broker);
        }
    }
    known.remove(&options.own_url);
}

/// A client that connects to an address such as 0.0.0.0 stays on its own machine.
fn leads_anywhere(url: &str) -> bool {
    url.contains("://") && !url.contains("://0.0.0.0:") && !url.contains("://[::]:")
}

/// A `*` in a pattern stands for any text.
fn name_matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            (0..=name.len()).any(|at| name.get(at..).is_some_and(|behind| name_matches(rest, behind)))
        }),
    }
}

fn urls_of(known: &BTreeMap<String, LinkedBroker>, own_url: &str) -> Vec<String> {
    std::iter::once(own_url.to_owned()).chain(known.keys().cloned()).collect()
}

/// How many clients are to move, and the other brokers in the order of their clients.
fn moves_of(known: &BTreeMap<String, LinkedBroker>, own: u64) -> (u64, Vec<String>) {
    let mut peers: Vec<(u64, &String)> =
        known.iter().filter_map(|(url, broker)| Some((broker.clients?, url))).collect();
    peers.sort();
    let all = own + peers.iter().map(|(clients, _)| clients).sum::<u64>();
    let fair = all.div_ceil(peers.len() as u64 + 1);
    let tolerance = (fair / 10).max(1);
    let moves = if fair + tolerance < own { (own - fair).min(MOVES_MAX) } else { 0 };
    (moves, peers.into_iter().map(|(_, url)| url.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(name: &str, clients: Option<u64>) -> LinkedBroker {
        LinkedBroker { name: name.to_owned(), url: format!("tcp://{name}:1"), clients }
    }

    fn options(removes: bool, names: &[&str]) -> SpreadOptions {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        SpreadOptions { own_url: "tcp://own:1".to_owned(), rebalances: true, removes, names }
    }

    #[test]
    fn the_list_has_brokers_that_count() {
        for (case, options, second, want) in [
            ("those that have gone stay", options(false, &[]), vec![broker("c", None)], "own a b c"),
            ("or leave", options(true, &[]), vec![broker("c", None)], "own c"),
            ("by name", options(true, &["c*", "x"]), vec![broker("c1", None), broker("d", None)], "own c1"),
            (
                "each once, without this one",
                options(true, &[]),
                vec![broker("own", None), broker("c", None), broker("c", None)],
                "own c",
            ),
        ] {
            let mut known = BTreeMap::new();
            note(&mut known, vec![broker("a", None), broker("b", None)], &options);
            note(&mut known, second, &options);
            let urls = urls_of(&known, &options.own_url);
            let names: Vec<&str> =
                urls.iter().map(|url| url.trim_start_matches("tcp://").trim_end_matches(":1")).collect();
            assert_eq!(names.join(" "), want, "case: {case}");
        }
        let mut known = BTreeMap::new();
        for url in ["tcp://0.0.0.0:1", "tcp://[::]:1", ""] {
            let anywhere = LinkedBroker { url: url.to_owned(), ..broker("a", None) };
            note(&mut known, vec![anywhere], &options(true, &[]));
            assert!(known.is_empty(), "{url}");
        }
        let many = (0..2 * BROKERS_MAX).map(|number| broker(&format!("b{number}"), None)).collect();
        note(&mut known, many, &options(false, &[]));
        assert_eq!(known.len(), BROKERS_MAX);
    }

    #[test]
    fn clients_move_from_a_broker_that_has_more_than_its_share() {
        for (case, own, peers, moves, first) in [
            ("alone", 100, vec![], 0, ""),
            ("a peer that does not count", 100, vec![None], 0, ""),
            ("all are here", 10, vec![Some(0)], 5, "p0"),
            ("one more is balanced", 6, vec![Some(5)], 0, "p0"),
            ("a tenth more is balanced", 110, vec![Some(100)], 0, "p0"),
            ("fewer than elsewhere", 5, vec![Some(50)], 0, "p0"),
            ("to the one with the fewest", 30, vec![Some(9), Some(3)], 16, "p1"),
            ("not all at once", 10_000, vec![Some(0)], MOVES_MAX, "p0"),
        ] {
            let peers = (0..).zip(peers).map(|(number, clients)| broker(&format!("p{number}"), clients));
            let known = peers.map(|broker| (broker.url.clone(), broker)).collect();
            let (got, urls) = moves_of(&known, own);
            let got_first = urls.first().map_or("", |url| url.trim_start_matches("tcp://"));
            assert_eq!((got, got_first.trim_end_matches(":1")), (moves, first), "case: {case}");
        }
    }

    #[test]
    fn patterns_of_names_match_any_text_at_a_star() {
        for (pattern, name, want) in [
            ("east", "east", true),
            ("east-*", "east-1", true),
            ("*-1", "east-1", true),
            ("e*t-*", "east-12", true),
            ("east-*", "west-1", false),
            ("east", "east-1", false),
        ] {
            assert_eq!(name_matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
