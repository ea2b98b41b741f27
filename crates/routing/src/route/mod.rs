//! Routes: rules that move or copy the messages of some addresses to others, with changed headers.
//!
//! In: [`Route`]s, and for each message its addresses and headers. Out: [`Routed`], where it goes
//! instead. The rules are found by address and selector: a message costs the targets that match,
//! not those that exist.
//! Never here: the encoding of messages, queues, clocks; delays and throttles
//! are carried out by the core.
//! Start at [`Routes::plan`].

mod counters;
mod cycle;
mod header;
mod plan;
mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{Destination, DestinationKind};
use postroad_selector::{Properties, Selector, SelectorIndex};

use crate::addressing::Addressing;
use crate::pattern_map::PatternMap;

pub use counters::{RouteCounters, RouteFigures, RouteTargetFigures};
pub use cycle::Cycle;
pub use header::{Changed, HeaderChange, HeaderRule, Template, TemplateError};
pub use plan::{HOPS_MAX, RECIPIENTS_MAX, Routed, RoutedCopy};
pub use rule::{Distribution, Recipients, Route, RouteTarget, Throttle};

/// All routes of a broker, indexed.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    all: Vec<Compiled>,
    by_name: BTreeMap<Arc<str>, u32>,
    /// Routes by where they take messages from: of queues, and of topics.
    by_address: [PatternMap<Choices>; 2],
}

/// One route with the index of its targets.
#[derive(Clone, Debug)]
struct Compiled {
    rule: Route,
    targets: Choices,
    otherwise: Choices,
    counters: Arc<RouteCounters>,
}

/// One route, to count what becomes of its copies.
#[derive(Clone, Copy, Debug)]
pub struct NamedRoute<'r> {
    /// The route.
    pub rule: &'r Route,
    counters: &'r RouteCounters,
}

impl NamedRoute<'_> {
    /// The target refused a copy, which is sent to it once more, later.
    pub fn note_retried(&self, target: &Destination) {
        self.counters.note_retried(self.place_of(target));
    }

    /// The target refused a copy for the last time.
    pub fn note_refused(&self, target: &Destination) {
        self.counters.note_refused(self.place_of(target));
    }

    /// The target's number; `None` for one that messages name.
    fn place_of(&self, target: &Destination) -> Option<u32> {
        let mut targets = (0..).zip(self.rule.fixed_targets());
        targets.find(|(_, fixed)| fixed.destination == *target).map(|(number, _)| number)
    }
}

/// Things with selectors: those that a message matches are found without asking each.
#[derive(Clone, Debug, Default)]
struct Choices {
    always: Vec<u32>,
    by_selector: SelectorIndex<u32>,
}

impl Choices {
    fn over<'a>(selectors: impl Iterator<Item = &'a Option<Selector>>) -> Choices {
        let mut choices = Choices::default();
        for (number, selector) in (0..).zip(selectors) {
            choices.add(number, selector.as_ref());
        }
        choices
    }

    fn add(&mut self, number: u32, selector: Option<&Selector>) {
        match selector {
            None => self.always.push(number),
            Some(selector) => drop(self.by_selector.insert(number, selector.clone())),
        }
    }

    /// Adds the numbers that this message matches to `found`, in no order.
    fn matching(&self, message: &dyn Properties, found: &mut Vec<u32>) {
        found.extend_from_slice(&self.always);
        if !self.by_selector.is_empty() {
            self.by_selector.matching(message, |number| found.push(*number));
        }
    }
}

impl PartialEq for Routes {
    fn eq(&self, other: &Routes) -> bool {
        self.rules().eq(other.rules())
    }
}

impl Eq for Routes {}

fn place(kind: DestinationKind) -> usize {
    match kind {
        DestinationKind::Queue => 0,
        DestinationKind::Topic => 1,
    }
}

impl Routes {
    /// Indexes these rules.
    ///
    /// # Errors
    /// [`Cycle`]: a message could pass some of them again and again.
    pub fn new(rules: Vec<Route>, addressing: &Addressing) -> Result<Routes, Cycle> {
        let mut routes = Routes::default();
        for (number, rule) in (0..).zip(rules) {
            let by_address = &mut routes.by_address[place(rule.from.kind)];
            let choices = by_address.get_or_insert_with(&rule.from.name, Choices::default);
            choices.add(number, rule.selector.as_ref());
            let targets = Choices::over(rule.targets.iter().map(|target| &target.selector));
            let otherwise = Choices::over(rule.otherwise.iter().map(|target| &target.selector));
            let counters = Arc::new(RouteCounters::new(rule.fixed_targets().count()));
            routes.by_name.insert(rule.name.clone(), number);
            routes.all.push(Compiled { rule, targets, otherwise, counters });
        }
        let rules: Vec<&Route> = routes.rules().collect();
        match cycle::find_cycle(&rules, |address| routes.takers_of(address), addressing) {
            Some(cycle) => Err(cycle),
            None => Ok(routes),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The rules, in the order of the configuration.
    pub fn rules(&self) -> impl Iterator<Item = &Route> {
        self.all.iter().map(|route| &route.rule)
    }

    /// Each rule with its counters.
    pub fn counted(&self) -> impl Iterator<Item = (&Route, &Arc<RouteCounters>)> {
        self.all.iter().map(|route| (&route.rule, &route.counters))
    }

    /// The route of this name.
    pub fn named(&self, name: &str) -> Option<NamedRoute<'_>> {
        let route = self.all.get(*self.by_name.get(name)? as usize)?;
        Some(NamedRoute { rule: &route.rule, counters: &route.counters })
    }

    /// Goes on with the counters of earlier routes of the same names, as far as these have the same
    /// targets.
    pub fn count_on_from(&mut self, earlier: &Routes) {
        let known: BTreeMap<&str, &Compiled> =
            earlier.all.iter().map(|route| (route.rule.name.as_ref(), route)).collect();
        for route in &mut self.all {
            let targets = route.rule.fixed_targets().map(|target| &target.destination);
            if let Some(former) = known.get(&*route.rule.name)
                && former.counters.has_places_for(route.rule.fixed_targets().count())
                && former.rule.fixed_targets().map(|target| &target.destination).eq(targets)
            {
                route.counters = former.counters.clone();
            }
        }
    }

    /// Whether any route takes messages of this address, whatever selectors say.
    pub fn takes_from(&self, address: &Destination) -> bool {
        let mut takes = false;
        if !self.is_empty() && !address.temporary {
            self.by_address[place(address.kind)].each_match(&address.name, &mut |_, _| takes = true);
        }
        takes
    }

    /// Whether a message may name its own targets.
    pub fn any_recipients(&self) -> bool {
        self.rules().any(|rule| rule.recipients.is_some())
    }

    /// The routes that take the messages of this address, whatever selectors say.
    fn takers_of(&self, address: &Destination) -> Vec<usize> {
        let mut takers = Vec::new();
        if !address.temporary {
            self.by_address[place(address.kind)].each_match(&address.name, &mut |_, choices: &Choices| {
                takers.extend_from_slice(&choices.always);
                choices.by_selector.keys().for_each(|number| takers.push(*number));
            });
        }
        takers.into_iter().map(|number| number as usize).collect()
    }

    /// The routes that take this message at this address, in the order of the configuration.
    fn matching(&self, address: &Destination, message: &dyn Properties) -> Vec<u32> {
        let mut found = Vec::new();
        if !address.temporary {
            self.by_address[place(address.kind)]
                .each_match(&address.name, &mut |_, choices: &Choices| choices.matching(message, &mut found));
        }
        found.sort_unstable();
        found
    }
}
