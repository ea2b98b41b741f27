//! The capacity planner: costs of messages, headroom, and the forecast for another load.

use std::sync::Weak;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::lists::query;
use super::overview;
use super::problem::Problem;
use super::{Api, Shared};
use crate::planner::{Checked, Cost, LOAD_MAX, Load, Planner, WhatIf};

/// Time between two observations.
const EVERY: Duration = Duration::from_secs(2);

/// A larger change is a mistake.
const SUBSCRIBERS_MAX: f64 = 1e6;
const FACTOR_MAX: f64 = 1e6;

/// Observes the broker as long as the API is there.
pub async fn observe(api: Weak<Shared>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(api) = api.upgrade().map(Api) else { return };
        if let Ok(counted) = overview::counted(&api).await {
            api.0.planner.lock().await.observe(counted);
        }
    }
}

/// Another load.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// More subscribers for each message.
    subscribers: Option<f64>,
    /// The share of messages that each of them gets.
    matching: Option<f64>,
    /// Messages are this many times as large.
    size: Option<f64>,
    /// There are this many times as many.
    rate: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Plan {
    /// Observations that the costs are fitted to.
    observations: u64,
    processors: f64,
    /// The share of the processors up to which a load is said to fit.
    load_max: f64,
    now: Loaded,
    /// Costs in microseconds of processor time; empty before there are enough observations.
    costs: Vec<ShownCost>,
    /// How many times the present load fits; none without a load.
    headroom: Option<Headroom>,
    /// The load that was asked for.
    forecast: Option<Loaded>,
    /// The present load, as the model has it: its distance to `now` is the model's error.
    model: Option<Loaded>,
    /// How far forecasts of the next two seconds were from the truth.
    error_next: ShownChecked,
    /// How far forecasts made ten minutes before were from the truth.
    error_later: ShownChecked,
}

/// A load for each second, and the share of the processors that it takes.
#[derive(Debug, Serialize)]
pub struct Loaded {
    received: f64,
    filters: f64,
    delivered: f64,
    written_bytes: f64,
    syncs: f64,
    busy: f64,
    /// Two standard errors of `busy`, of a forecast.
    busy_error: Option<f64>,
    /// Whether a forecast stays below `load_max` with its error.
    fits: Option<bool>,
}

#[derive(Debug, Serialize)]
struct ShownCost {
    term: &'static str,
    micros: f64,
    /// Two standard errors.
    error: f64,
    is_known: bool,
}

#[derive(Debug, Serialize)]
struct Headroom {
    least: f64,
    likely: f64,
    most: f64,
}

#[derive(Debug, Serialize)]
struct ShownChecked {
    forecasts: u64,
    error: f64,
    bias: f64,
}

impl From<Checked> for ShownChecked {
    fn from(Checked { forecasts, error, bias }: Checked) -> ShownChecked {
        ShownChecked { forecasts, error, bias }
    }
}

impl From<Cost> for ShownCost {
    fn from(Cost { name, micros, error, is_known }: Cost) -> ShownCost {
        ShownCost { term: name, micros, error: 2.0 * error, is_known }
    }
}

impl Which {
    fn what_if(&self) -> Result<Option<WhatIf>, Problem> {
        let Which { subscribers, matching, size, rate } = self;
        let checked = |name: &str, value: Option<f64>, fallback: f64, max: f64| {
            let value = value.unwrap_or(fallback);
            match (0.0..=max).contains(&value) {
                true => Ok(value),
                false => Err(Problem::new(400, format!("{name} is {value}; 0 to {max} is right"))),
            }
        };
        let what_if = WhatIf {
            subscribers: checked("subscribers", *subscribers, 0.0, SUBSCRIBERS_MAX)?,
            matching: checked("matching", *matching, 1.0, 1.0)?,
            size: checked("size", *size, 1.0, FACTOR_MAX)?,
            rate: checked("rate", *rate, 1.0, FACTOR_MAX)?,
        };
        let is_asked = [subscribers, size, rate].iter().any(|value| value.is_some());
        Ok(is_asked.then_some(what_if))
    }
}

pub async fn plan(
    State(api): State<Api>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Plan>, Problem> {
    let what_if = query(which)?.what_if()?;
    let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    let planner = api.0.planner.lock().await;
    Ok(Json(Plan::of(&planner, processors as f64, what_if.as_ref())))
}

impl Plan {
    fn of(planner: &Planner, processors: f64, what_if: Option<&WhatIf>) -> Plan {
        let full = processors * 1e6;
        let load = planner.load();
        let forecast = |load: Load| {
            let forecasted = planner.forecast(&load)?;
            let (busy, error) = (forecasted.busy / full, 2.0 * forecasted.error / full);
            Some(Loaded {
                busy_error: Some(error),
                fits: Some(busy + error < LOAD_MAX),
                ..loaded(load, busy)
            })
        };
        let (next, later) = planner.checked();
        Plan {
            observations: planner.observations(),
            processors,
            load_max: LOAD_MAX,
            now: loaded(load, planner.busy() / full),
            costs: planner.costs().into_iter().map(ShownCost::from).collect(),
            headroom: planner.headroom(processors).map(|[least, likely, most]| Headroom {
                least,
                likely,
                most,
            }),
            forecast: what_if.and_then(|what_if| forecast(load.after(what_if))),
            model: forecast(load),
            error_next: next.into(),
            error_later: later.into(),
        }
    }
}

fn loaded(load: Load, busy: f64) -> Loaded {
    let Load { received, filters, delivered, written_bytes, syncs } = load;
    Loaded { received, filters, delivered, written_bytes, syncs, busy, busy_error: None, fits: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_checked() {
        let which = |subscribers, rate| Which { subscribers, rate, ..Which::default() }.what_if();
        assert_eq!(which(None, None), Ok(None));
        let asked = WhatIf { subscribers: 40.0, matching: 1.0, size: 1.0, rate: 1.0 };
        assert_eq!(which(Some(40.0), None), Ok(Some(asked)));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e7] {
            assert_eq!(which(Some(wrong), None).map_err(|problem| problem.status), Err(400), "{wrong}");
            assert_eq!(which(None, Some(wrong)).map_err(|problem| problem.status), Err(400), "{wrong}");
        }
    }
}
