//! Cycles: routes whose targets lead back to them.

use std::collections::BTreeMap;

use postroad_model::Destination;

use crate::addressing::Addressing;
use crate::route::rule::Route;

/// Routes that a message would pass again and again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routes form a cycle: {}", .0.join(" -> "))]
pub struct Cycle(pub Vec<String>);

/// Finds a cycle among routes, through composite destinations too, whatever selectors say.
/// `takers_of` are the routes that take the messages of an address.
///
/// A route whose own pattern matches its target is none: it does not take a message that it has
/// sent there itself. One that names its target alone is.
pub(super) fn find_cycle(
    routes: &[&Route],
    takers_of: impl Fn(&Destination) -> Vec<usize>,
    addressing: &Addressing,
) -> Option<Cycle> {
    let next_of = |route: &&Route| next_of(route, &takers_of, addressing);
    let edges: Vec<Vec<Edge>> = routes.iter().map(next_of).collect();
    let own = edges.iter().enumerate().find_map(|(from, next)| {
        let (_, through) = next.iter().find(|(to, _)| *to == from)?;
        (!routes[from].from.name.is_wildcard()).then(|| vec![(from, through.clone())])
    });
    own.or_else(|| walk(&edges)).map(|path| named(&path, routes))
}

/// A route, and an address through which a message gets to it or from it.
type Edge = (usize, Destination);

/// The routes that take messages of this one, each with one address where they do.
fn next_of(
    route: &Route,
    takers_of: impl Fn(&Destination) -> Vec<usize>,
    addressing: &Addressing,
) -> Vec<Edge> {
    let fixed = route.fixed_targets().map(|target| &target.destination).chain(&route.dead_letter);
    let sent_to: Vec<Destination> = fixed.cloned().collect();
    let mut reached = addressing.possible_targets_of(sent_to.iter());
    reached.extend(sent_to);
    let mut next: BTreeMap<usize, Destination> = BTreeMap::new();
    for address in reached {
        for taker in takers_of(&address) {
            next.entry(taker).or_insert_with(|| address.clone());
        }
    }
    next.into_iter().collect()
}

/// Depth first, without recursion; the path of the first cycle of two routes or more.
fn walk(edges: &[Vec<Edge>]) -> Option<Vec<Edge>> {
    let mut is_done = vec![false; edges.len()];
    for start in 0..edges.len() {
        // The route, and how many of its edges have been followed.
        let mut path: Vec<(usize, usize)> = if is_done[start] { Vec::new() } else { vec![(start, 0)] };
        while let Some((at, followed)) = path.last_mut() {
            let at = *at;
            let Some((next, _)) = edges[at].get(*followed) else {
                is_done[at] = true;
                path.pop();
                continue;
            };
            *followed += 1;
            if *next == at || is_done[*next] {
                continue;
            }
            match path.iter().position(|(on_path, _)| on_path == next) {
                Some(first) => {
                    let edge = |(at, followed): &(usize, usize)| (*at, edges[*at][followed - 1].1.clone());
                    return Some(path[first..].iter().map(edge).collect());
                }
                None => path.push((*next, 0)),
            }
        }
    }
    None
}

/// `a (queue://x) -> b (queue://y) -> a`.
fn named(path: &[Edge], routes: &[&Route]) -> Cycle {
    let mut names: Vec<String> =
        path.iter().map(|(route, through)| format!("{} ({through})", routes[*route].name)).collect();
    names.extend(path.first().map(|(route, _)| routes[*route].name.to_string()));
    Cycle(names)
}
