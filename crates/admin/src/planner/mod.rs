//! The capacity planner: B = t_rcv + n·t_fltr + r·t_tx, with terms for bytes and syncs, fitted to
//! the broker's own counters; headroom, and forecasts for other loads.
//!
//! B is the processor time of the process for each second. Counters come in; nothing else.
//! Never here: clocks, and how counters are gathered.

mod fit;

use std::collections::VecDeque;

use fit::{Fit, Forecast, Observed, TERMS, Vector};

/// Names of the terms, in their order.
pub const NAMES: [&str; TERMS] = ["base", "receive", "filter", "transmit", "byte", "sync"];

/// Costs that no term exceeds, in microseconds: a second for everything, a millisecond for each
/// message or delivery, 100 for a filter, 1 for a byte, 10 milliseconds for a sync.
const SCALES: Vector = [1e6, 1e3, 1e2, 1e3, 1.0, 1e4];

/// The share of the processors up to which a load is said to fit: above it, queues of work grow.
pub const LOAD_MAX: f64 = 0.8;

/// Observations after which an earlier fit is compared with the truth: ten minutes of two seconds.
const LATER: usize = 300;

/// Earlier fits that wait for it, one from each minute: the oldest must live for longer.
const FITS_MAX: usize = 12;
const FIT_EVERY: u64 = 30;

/// Intervals at the start that are not looked at: a process that starts works much for few
/// messages, and the fit would take that for the base, and the costs of messages for nothing.
const STARTING: u32 = 3;

/// The weight of a new error in the mean of all.
const NEW_ERROR: f64 = 0.02;

/// A shorter interval between two observations has too few ticks of the processor's clock.
const INTERVAL_MS_MIN: u64 = 900;

/// Counters of the broker at one moment, all of which only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub at_ms: u64,
    /// Messages that came.
    pub received: u64,
    /// Selectors installed at the addresses of these messages, for each message.
    pub filters: u64,
    /// Messages that were sent to consumers.
    pub delivered: u64,
    /// Bytes written to journals.
    pub written_bytes: u64,
    pub syncs: u64,
    /// Processor time of the process.
    pub cpu_micros: u64,
}

/// A load, for each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    pub received: f64,
    pub filters: f64,
    pub delivered: f64,
    pub written_bytes: f64,
    pub syncs: f64,
}

/// Another load than the present one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WhatIf {
    /// More subscribers for each message.
    pub subscribers: f64,
    /// The share of the messages that each of them gets.
    pub matching: f64,
    /// Messages are this many times as large.
    pub size: f64,
    /// There are this many times as many messages.
    pub rate: f64,
}

/// A cost, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    pub name: &'static str,
    pub micros: f64,
    /// One standard error.
    pub error: f64,
    /// The error is small enough for the cost to be of use.
    pub is_known: bool,
}

/// How far forecasts were from the truth, relative to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checked {
    pub forecasts: u64,
    /// The mean of the absolute errors.
    pub error: f64,
    /// The mean of the errors: forecasts were too high if it is above zero.
    pub bias: f64,
}

/// See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    last: Option<Counted>,
    intervals: u32,
    load: Load,
    /// Microseconds of processor time for each second.
    busy: f64,
    observed: Observed,
    fit: Option<Fit>,
    earlier: VecDeque<(u64, Fit)>,
    next: Checked,
    later: Checked,
}

impl Load {
    fn between(before: &Counted, now: &Counted, seconds: f64) -> Load {
        let rate = |of: fn(&Counted) -> u64| of(now).saturating_sub(of(before)) as f64 / seconds;
        Load {
            received: rate(|counted| counted.received),
            filters: rate(|counted| counted.filters),
            delivered: rate(|counted| counted.delivered),
            written_bytes: rate(|counted| counted.written_bytes),
            syncs: rate(|counted| counted.syncs),
        }
    }

    fn terms(&self) -> Vector {
        [1.0, self.received, self.filters, self.delivered, self.written_bytes, self.syncs]
    }

    /// The load after a change. More messages share the syncs of their groups, up to twice as many
    /// to a sync; larger ones need no more syncs.
    pub fn after(&self, what_if: &WhatIf) -> Load {
        let WhatIf { subscribers, matching, size, rate } = *what_if;
        Load {
            received: self.received * rate,
            filters: (self.filters + self.received * subscribers) * rate,
            delivered: (self.delivered + self.received * subscribers * matching) * rate,
            written_bytes: self.written_bytes * size * rate,
            syncs: self.syncs * rate.max(1.0).sqrt().min(rate),
        }
    }
}

impl Checked {
    fn add(&mut self, forecast: f64, truth: f64) {
        if truth <= 0.0 {
            return;
        }
        let error = (forecast - truth) / truth;
        self.forecasts += 1;
        let weight = NEW_ERROR.max(1.0 / self.forecasts as f64);
        self.error += weight * (error.abs() - self.error);
        self.bias += weight * (error - self.bias);
    }
}

impl Planner {
    /// Takes the counters at a moment.
    pub fn observe(&mut self, now: Counted) {
        let Some(before) = self.last else {
            self.last = Some(now);
            return;
        };
        let elapsed_ms = now.at_ms.saturating_sub(before.at_ms);
        if elapsed_ms < INTERVAL_MS_MIN {
            return;
        }
        self.last = Some(now);
        let seconds = elapsed_ms as f64 / 1000.0;
        self.load = Load::between(&before, &now, seconds);
        self.busy = now.cpu_micros.saturating_sub(before.cpu_micros) as f64 / seconds;
        self.intervals = self.intervals.saturating_add(1);
        if self.intervals <= STARTING {
            return;
        }
        self.check();
        self.observed.add(&self.load.terms(), self.busy);
        self.fit = self.observed.fit(&SCALES);
        if self.observed.count().is_multiple_of(FIT_EVERY) {
            if FITS_MAX <= self.earlier.len() {
                self.earlier.pop_front();
            }
            self.earlier.extend(self.fit.clone().map(|fit| (self.observed.count(), fit)));
        }
    }

    /// Compares forecasts of this load with the truth. Without messages there is nothing to learn.
    fn check(&mut self) {
        if self.load.received + self.load.delivered < 1.0 {
            return;
        }
        let terms = self.load.terms();
        if let Some(fit) = &self.fit {
            self.next.add(fit.forecast(&terms).cost, self.busy);
        }
        let is_later = |(at, _): &&(u64, Fit)| *at + LATER as u64 <= self.observed.count();
        if let Some((_, fit)) = self.earlier.iter().rfind(is_later) {
            self.later.add(fit.forecast(&terms).cost, self.busy);
        }
    }

    pub fn observations(&self) -> u64 {
        self.observed.count()
    }

    pub fn load(&self) -> Load {
        self.load
    }

    /// Microseconds of processor time for each second, at present.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// Forecasts of the next two seconds, and those made ten minutes before.
    pub fn checked(&self) -> (Checked, Checked) {
        (self.next, self.later)
    }

    /// The costs of the terms; none before there are enough observations.
    pub fn costs(&self) -> Vec<Cost> {
        let Some(fit) = &self.fit else { return Vec::new() };
        let cost = |((name, &micros), error): ((&'static str, &f64), f64)| Cost {
            name,
            micros,
            error,
            is_known: error < micros / 2.0,
        };
        NAMES.into_iter().zip(&fit.costs).zip(fit.errors()).map(cost).collect()
    }

    /// The processor time that a load takes.
    pub fn forecast(&self, load: &Load) -> Option<Forecasted> {
        let Forecast { cost, error } = self.fit.as_ref()?.forecast(&load.terms());
        Some(Forecasted { busy: cost, error })
    }

    /// How many times the present load fits into [`LOAD_MAX`] of the processors: the least, the
    /// likely and the most. `None` without a load. If the fit sees no cost of the load, as when
    /// other work rises while it falls, all work is counted as the load's: at least that fits.
    pub fn headroom(&self, processors: f64) -> Option<[f64; 3]> {
        let fit = self.fit.as_ref()?;
        let load = self.load;
        if load.received + load.delivered < 1.0 {
            return None;
        }
        let whole = fit.forecast(&load.terms()).cost;
        let (base, of_load) = match fit.costs[0] {
            base if base < whole => (base, whole - base),
            _ if whole <= 0.0 => return None,
            _ => (0.0, whole),
        };
        let room = (LOAD_MAX * processors * 1e6 - base).max(0.0);
        let likely = room / of_load;
        // The error of the load that would fill it.
        let full = load.terms().map(|term| term * likely);
        let error = fit.forecast(&full).error / (of_load * likely).max(1.0);
        Some([likely / (1.0 + 2.0 * error), likely, likely * (1.0 + 2.0 * error)])
    }
}

/// A forecast, in microseconds of processor time for each second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecasted {
    pub busy: f64,
    /// One standard error.
    pub error: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL: WhatIf = WhatIf { subscribers: 0.0, matching: 1.0, size: 1.0, rate: 1.0 };

    /// A broker whose costs are known, under a load that changes.
    struct Synthetic {
        counted: Counted,
        step: u64,
    }

    impl Synthetic {
        fn new() -> Synthetic {
            Synthetic { counted: Counted { at_ms: 1_000_000, ..Counted::default() }, step: 0 }
        }

        /// Two seconds with this many messages a second, each to this many consumers.
        fn run(&mut self, planner: &mut Planner, rate: u64, subscribers: u64) {
            self.step += 1;
            let (received, noise) = (2 * rate, 97 + self.step * 31 % 7);
            let delivered = received * subscribers;
            let Counted { at_ms, received: r, delivered: d, written_bytes, syncs, cpu_micros, filters } =
                self.counted;
            let cost = 10_000 + received * 5 + delivered * 8 + received * 2;
            self.counted = Counted {
                at_ms: at_ms + 2000,
                received: r + received,
                filters,
                delivered: d + delivered,
                written_bytes: written_bytes + received * 1000,
                syncs: syncs + 100,
                cpu_micros: cpu_micros + cost * noise / 100,
            };
            planner.observe(self.counted);
        }
    }

    #[test]
    fn a_change_is_forecast_and_the_forecast_holds() {
        let (mut planner, mut broker) = (Planner::default(), Synthetic::new());
        assert!(planner.forecast(&Load::default()).is_none() && planner.costs().is_empty());
        for step in 0..600 {
            broker.run(&mut planner, 500 + 137 * (step % 11), 1 + step % 3);
        }
        broker.run(&mut planner, 1000, 2);
        let [least, likely, most] = planner.headroom(2.0).unwrap();
        // 1000 messages to 2 consumers: 5,000 for the base, 7 and 16 for each message.
        let want = (LOAD_MAX * 2e6 - 5_000.0) / 23_000.0;
        assert!((likely - want).abs() < 0.1 * want, "{likely}, want {want}");
        assert!(least < likely && likely < most && most < 1.3 * least, "{least} {likely} {most}");

        let more = planner.load().after(&WhatIf { subscribers: 40.0, ..STILL });
        let forecast = planner.forecast(&more).unwrap();
        broker.run(&mut planner, 1000, 42);
        let truth = planner.busy();
        assert!((forecast.busy - truth).abs() < 0.1 * truth, "{forecast:?}, in truth {truth}");
        assert!((forecast.busy - truth).abs() < 4.0 * forecast.error + 0.03 * truth, "{forecast:?}, {truth}");
        let (next, later) = planner.checked();
        assert!(next.forecasts > 500 && next.error < 0.05 && next.bias.abs() < 0.03, "{next:?}");
        assert!(later.forecasts > 200 && later.error < 0.06, "{later:?}");
    }

    #[test]
    fn the_work_of_a_start_is_not_taken_for_a_base() {
        let (mut planner, mut broker) = (Planner::default(), Synthetic::new());
        for step in 0..40 {
            broker.counted.cpu_micros += if step <= STARTING { 3_000_000 } else { 0 };
            broker.run(&mut planner, if step <= STARTING { 20 } else { 500 + 70 * u64::from(step % 5) }, 1);
            if planner.observations() < 10 {
                continue;
            }
            let [_, likely, _] = planner.headroom(2.0).unwrap_or_else(|| panic!("none at {step}"));
            let want = (LOAD_MAX * 2e6 - 5_000.0) / (planner.load().received * 15.0);
            assert!(want / 1.5 < likely && likely < want * 1.5, "{step}: {likely}, want {want}");
        }
    }

    #[test]
    fn a_load_that_falls_while_other_work_rises_has_a_headroom() {
        let (mut planner, mut broker) = (Planner::default(), Synthetic::new());
        broker.counted.syncs = 1_000_000;
        for step in 0..30 {
            // The syncs of a load, and requests of operators that slow it down.
            let rate = 20 + 15 * (step % 5);
            broker.counted.syncs = broker.counted.syncs + 2 * rate - 100 + 20;
            broker.counted.cpu_micros += 400_000 - 4_000 * rate;
            broker.run(&mut planner, rate, 1);
        }
        assert!(planner.costs()[1..].iter().all(|cost| cost.micros == 0.0), "{:?}", planner.costs());
        let [least, likely, most] = planner.headroom(2.0).unwrap();
        // The mean of the work: 50 messages a second.
        let want = LOAD_MAX * 2e6 / 105_750.0;
        assert!(want / 1.1 < likely && likely < want * 1.1, "{likely}, want {want}");
        assert!(least < likely && likely < most, "{least} {likely} {most}");
    }

    #[test]
    fn a_broker_without_load_has_no_headroom_to_tell() {
        let (mut planner, mut broker) = (Planner::default(), Synthetic::new());
        for _ in 0..20 {
            broker.run(&mut planner, 0, 0);
        }
        assert_eq!(planner.headroom(2.0), None);
        assert_eq!(planner.checked().0.forecasts, 0);
    }

    #[test]
    fn loads_change_as_asked_for() {
        let load = Load { received: 100.0, filters: 0.0, delivered: 200.0, written_bytes: 1e5, syncs: 10.0 };
        let of = |what_if| load.after(&what_if);
        assert_eq!(of(STILL), load);
        let more = of(WhatIf { subscribers: 40.0, matching: 0.5, ..STILL });
        assert_eq!((more.delivered, more.filters, more.received), (2200.0, 4000.0, 100.0));
        assert_eq!(of(WhatIf { size: 2.0, ..STILL }), Load { written_bytes: 2e5, ..load });
        let faster = of(WhatIf { rate: 4.0, ..STILL });
        assert_eq!((faster.received, faster.delivered, faster.syncs), (400.0, 800.0, 20.0));
    }

    #[test]
    fn counters_that_begin_again_or_come_too_soon_do_no_harm() {
        let (mut planner, mut broker) = (Planner::default(), Synthetic::new());
        for _ in 0..=STARTING {
            broker.run(&mut planner, 1000, 1);
        }
        planner.observe(Counted { at_ms: broker.counted.at_ms + 1, ..Counted::default() });
        assert_eq!(planner.observations(), 0);
        planner.observe(Counted { at_ms: broker.counted.at_ms + 2000, ..Counted::default() });
        assert_eq!((planner.observations(), planner.load()), (1, Load::default()));
    }
}
