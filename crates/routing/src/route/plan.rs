//! The plan for one message: which addresses get it, with which headers, and when.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::{
    DeadLetter, Destination, DestinationKind, HeaderChanges, HeaderValue, Hold, LookupMap, Pace,
};
use postroad_selector::{Properties, Value};

use crate::addressing::Addressing;
use crate::policy::DestinationPattern;
use crate::route::header::{Changed, changed_by};
use crate::route::rule::{Distribution, Recipients, Route, RouteTarget};
use crate::route::{Compiled, Routes};

/// Routes that one message passes one after the other. Cycles are refused at load, but for those
/// that messages make by their recipient lists.
pub const HOPS_MAX: usize = 16;

/// Addresses that one message may name.
pub const RECIPIENTS_MAX: usize = 1_000;

/// Steps that a plan takes at most, over all routes: a bound for the message's record. A message
/// that would take more passes no route.
const STEPS_MAX: usize = 16_384;

/// Where a message goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// Copies that differ, each with its addresses. None: the message has no target.
    pub copies: Vec<RoutedCopy>,
}

/// One version of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedCopy {
    /// The addresses that get it; at least one.
    pub to: Vec<Destination>,
    /// Differences from the message as it was sent.
    pub changes: HeaderChanges,
    /// How long it waits there.
    pub hold: Hold,
}

/// A version of the message on its way to an address.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    to: Destination,
    version: u32,
    /// The routes that it has passed.
    passed: Arc<[u32]>,
}

/// The work on one message.
struct Planner<'a> {
    routes: &'a Routes,
    addressing: &'a Addressing,
    message: &'a dyn Properties,
    counts: bool,
    /// The differences between copies, by number.
    versions: Vec<(Arc<HeaderChanges>, Hold)>,
    known: LookupMap<(Arc<HeaderChanges>, Hold), u32>,
    waiting: VecDeque<Step>,
    seen: LookupMap<Step, ()>,
    kept: Vec<(Destination, u32)>,
    is_too_much: bool,
}

impl Routes {
    /// Where a message goes that is sent to these addresses: composite destinations stand for their
    /// targets, and each route that takes it sends it on, until no further route does.
    pub fn plan<'a>(
        &self,
        addressing: &Addressing,
        sent_to: impl Iterator<Item = &'a Destination>,
        message: &dyn Properties,
    ) -> Routed {
        self.planned(addressing, sent_to, message, true)
    }

    /// As [`Routes::plan`], for a message that is not sent: nothing is counted.
    pub fn dry_run<'a>(
        &self,
        addressing: &Addressing,
        sent_to: impl Iterator<Item = &'a Destination>,
        message: &dyn Properties,
    ) -> Routed {
        self.planned(addressing, sent_to, message, false)
    }

    fn planned<'a>(
        &self,
        addressing: &Addressing,
        sent_to: impl Iterator<Item = &'a Destination>,
        message: &dyn Properties,
        counts: bool,
    ) -> Routed {
        let mut planner = Planner {
            routes: self,
            addressing,
            message,
            counts,
            versions: Vec::new(),
            known: LookupMap::default(),
            waiting: VecDeque::new(),
            seen: LookupMap::default(),
            kept: Vec::new(),
            is_too_much: false,
        };
        let plain = planner.version(Arc::default(), Hold::default());
        let nothing_passed: Arc<[u32]> = Arc::new([]);
        let sent_to: Vec<&Destination> = sent_to.collect();
        for to in &sent_to {
            planner.put(Destination::clone(to), plain, &nothing_passed);
        }
        while let Some(step) = planner.waiting.pop_front().filter(|_| !planner.is_too_much) {
            planner.take(&step);
        }
        if planner.is_too_much {
            planner.count(|| self.all.iter().take(1).for_each(|route| route.counters.note_cut()));
            let to = addressing.targets_of(sent_to.into_iter(), message);
            let plain = RoutedCopy { to, changes: HeaderChanges::default(), hold: Hold::default() };
            return Routed { copies: vec![plain] };
        }
        planner.routed()
    }
}

impl Planner<'_> {
    /// The number of a version.
    fn version(&mut self, changes: Arc<HeaderChanges>, hold: Hold) -> u32 {
        let (versions, key) = (&mut self.versions, (changes, hold));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        versions.push(key.clone());
        *self.known.get_or_insert_with(key, || versions.len() as u32 - 1)
    }

    /// A version is to be taken at an address, or at those that it stands for.
    fn put(&mut self, to: Destination, version: u32, passed: &Arc<[u32]>) {
        if !self.addressing.passes_on() {
            return self.put_one(to, version, passed);
        }
        let changes = self.versions[version as usize].0.clone();
        let changed = Changed { message: self.message, changes: &changes };
        for to in self.addressing.targets_of(std::iter::once(&to), &changed) {
            self.put_one(to, version, passed);
        }
    }

    fn put_one(&mut self, to: Destination, version: u32, passed: &Arc<[u32]>) {
        let step = Step { to, version, passed: passed.clone() };
        if self.seen.len() >= STEPS_MAX {
            self.is_too_much = true;
        } else if self.seen.insert(step.clone(), ()).is_none() {
            self.waiting.push_back(step);
        }
    }

    /// Asks the routes of an address; a message that none of them consumes stays there.
    fn take(&mut self, step: &Step) {
        let routes = self.routes;
        let changes = self.versions[step.version as usize].0.clone();
        let changed = Changed { message: self.message, changes: &changes };
        let mut is_consumed = false;
        for number in routes.matching(&step.to, &changed) {
            let route = &routes.all[number as usize];
            if step.passed.contains(&number) {
                continue;
            }
            if HOPS_MAX <= step.passed.len() {
                self.count(|| route.counters.note_cut());
                continue;
            }
            is_consumed |= self.send_on(step, number, route) && route.rule.consumes;
        }
        if !is_consumed {
            self.kept.push((step.to.clone(), step.version));
        }
    }

    fn count(&self, note: impl FnOnce()) {
        if self.counts {
            note();
        }
    }

    /// Whether the route has sent the message on.
    fn send_on(&mut self, step: &Step, number: u32, route: &Compiled) -> bool {
        let (so_far, hold) = self.versions[step.version as usize].clone();
        let rule = &route.rule;
        let changes = match rule.headers.is_empty() {
            true => so_far.clone(),
            false => Arc::new(changed_by(&rule.headers, &so_far, self.message)),
        };
        let hold = held_by(rule, hold);
        let passed: Arc<[u32]> = step.passed.iter().copied().chain([number]).collect();
        let changed = Changed { message: self.message, changes: &changes };
        let named = match &rule.recipients {
            None => Vec::new(),
            Some(recipients) => match recipients_of(recipients, &changed) {
                Ok(named) => named,
                Err(cause) => return self.send_to_dead_letters(step, route, &cause, &passed),
            },
        };
        let mut found = Vec::new();
        self.choose(route, &changed, &mut found);
        found.retain(|target| rule_target(rule, *target).destination != step.to);
        if found.is_empty() && named.is_empty() {
            self.count(|| route.counters.note_unmatched());
            return false;
        }
        self.count(|| route.counters.note_matched());
        for target in found {
            self.count(|| route.counters.note_target(Some(target)));
            let target = rule_target(rule, target);
            let changes = match target.headers.is_empty() {
                true => changes.clone(),
                false => Arc::new(changed_by(&target.headers, &changes, self.message)),
            };
            let delay_ms = hold.delay_ms.saturating_add(target.delay_ms);
            let version = self.version(changes, Hold { delay_ms, ..hold.clone() });
            self.put(target.destination.clone(), version, &passed);
        }
        if !named.is_empty() {
            let version = self.version(changes, hold);
            for to in named.into_iter().filter(|to| *to != step.to) {
                self.count(|| route.counters.note_target(None));
                self.put(to, version, &passed);
            }
        }
        true
    }

    /// The targets that the message goes to, by number, in order.
    fn choose(&self, route: &Compiled, message: &dyn Properties, found: &mut Vec<u32>) {
        route.targets.matching(message, found);
        if found.is_empty() {
            let behind = route.rule.targets.len() as u32;
            route.otherwise.matching(message, found);
            found.iter_mut().for_each(|number| *number += behind);
            found.sort_unstable();
            return;
        }
        found.sort_unstable();
        match route.rule.distribution {
            Distribution::All => {}
            Distribution::First => found.truncate(1),
            Distribution::Balance => {
                let turn = if self.counts { route.counters.turn(found.len()) } else { 0 };
                *found = vec![found[turn]];
            }
        }
    }

    /// The route cannot send the message on: whether it goes to the dead letters of the route.
    fn send_to_dead_letters(
        &mut self,
        step: &Step,
        route: &Compiled,
        cause: &str,
        passed: &Arc<[u32]>,
    ) -> bool {
        self.count(|| route.counters.note_dead_lettered());
        let Some(to) = &route.rule.dead_letter else { return false };
        let (so_far, hold) = self.versions[step.version as usize].clone();
        let mut changes = HeaderChanges::clone(&so_far);
        let text = format!("route {}: {cause} (at {})", route.rule.name, step.to);
        changes.put(DeadLetter::CAUSE.into(), Some(HeaderValue::String(text.into())));
        let version = self.version(Arc::new(changes), hold);
        self.put(to.clone(), version, passed);
        // A copy of it is there, and it stays where it is unless the route consumes.
        true
    }

    /// One copy for each version, in the order in which they came up.
    fn routed(self) -> Routed {
        let mut copies: Vec<Option<RoutedCopy>> = self.versions.iter().map(|_| None).collect();
        let mut seen = LookupMap::default();
        for (to, version) in self.kept {
            if seen.insert((to.clone(), version), ()).is_some() {
                continue;
            }
            let (changes, hold) = &self.versions[version as usize];
            let copy = copies[version as usize].get_or_insert_with(|| RoutedCopy {
                to: Vec::new(),
                changes: HeaderChanges::clone(changes),
                hold: hold.clone(),
            });
            copy.to.push(to);
        }
        Routed { copies: copies.into_iter().flatten().collect() }
    }
}

fn rule_target(rule: &Route, number: u32) -> &RouteTarget {
    let number = number as usize;
    rule.targets.get(number).unwrap_or_else(|| &rule.otherwise[number - rule.targets.len()])
}

/// How long messages of this route wait, added to an earlier delay; the last throttle counts.
fn held_by(rule: &Route, hold: Hold) -> Hold {
    let pace = rule.throttle.map(|throttle| Pace {
        route: rule.name.clone(),
        messages: throttle.messages,
        period_ms: throttle.period_ms,
    });
    let retry = rule.redelivery.map(|_| rule.name.clone());
    Hold { delay_ms: hold.delay_ms.saturating_add(rule.delay_ms), pace: pace.or(hold.pace), retry }
}

/// The addresses that a message names, each once; or why they cannot be used.
fn recipients_of(recipients: &Recipients, message: &dyn Properties) -> Result<Vec<Destination>, String> {
    let Recipients { header, delimiter, allow } = recipients;
    let list = match message.property(header) {
        Some(Value::String(list)) => list,
        Some(_) => return Err(format!("the header {header} is not text")),
        None => return Err(format!("the header {header} is missing")),
    };
    let mut named: Vec<Destination> = Vec::new();
    let mut seen = BTreeSet::new();
    for text in list.split(&**delimiter).map(str::trim).filter(|text| !text.is_empty()) {
        let to = recipient(text)
            .ok_or_else(|| format!("{text:?} in the header {header} is not a queue:// or topic://"))?;
        let allows = |pattern: &DestinationPattern| {
            (pattern.kind, pattern.temporary) == (to.kind, false) && pattern.name.matches(&to.name)
        };
        if !allow.is_empty() && !allow.iter().any(allows) {
            return Err(format!("{to} in the header {header} is not allowed"));
        }
        if seen.insert(to.clone()) {
            named.push(to);
        }
        if RECIPIENTS_MAX < named.len() {
            return Err(format!("the header {header} names more than {RECIPIENTS_MAX} addresses"));
        }
    }
    match named.is_empty() {
        true => Err(format!("the header {header} names no address")),
        false => Ok(named),
    }
}

/// `queue://a`, `topic://b`, or the name of a queue.
fn recipient(text: &str) -> Option<Destination> {
    let to = match (text.strip_prefix("queue://"), text.strip_prefix("topic://")) {
        (Some(name), _) => Destination::queue(name),
        (_, Some(name)) => Destination::topic(name),
        _ if text.contains("://") => return None,
        _ => Destination::queue(text),
    };
    let is_own = to.kind == DestinationKind::Topic && crate::pattern::is_own_topic(&to.name);
    (!to.name.is_empty() && !is_own && !crate::pattern::is_wildcard(&to.name)).then_some(to)
}
