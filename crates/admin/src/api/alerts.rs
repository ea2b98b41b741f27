//! Alerts that are pending or fire.

use axum::Json;
use axum::extract::{Query, State};
use postroad_model::RowKey;
use serde::Serialize;

use super::Api;
use super::lists::{List, Which, query};
use super::problem::Problem;
use crate::alerts::{Alerts, ListedAlert, Measure, Severity};

#[derive(Debug, Serialize)]
pub struct Alert {
    alert: String,
    severity: Severity,
    on: Measure,
    subject: String,
    /// `pending`, `firing`, or `clearing`: it fires, and its condition is over.
    state: &'static str,
    value: u64,
    above: u64,
    since_ms: u64,
    fired_ms: Option<u64>,
    text: String,
}

impl From<ListedAlert> for Alert {
    fn from(ListedAlert { rule, subject, alert }: ListedAlert) -> Alert {
        let state = match (alert.fired_ms, alert.clear_ms) {
            (None, _) => "pending",
            (Some(_), None) => "firing",
            (Some(_), Some(_)) => "clearing",
        };
        Alert {
            alert: rule.name.to_string(),
            severity: rule.severity,
            on: rule.on,
            text: rule.on.text(alert.value),
            subject: subject.to_string(),
            state,
            value: alert.value,
            above: rule.above,
            since_ms: alert.since_ms,
            fired_ms: alert.fired_ms,
        }
    }
}

impl Alert {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.alert.as_str().into(), detail: self.subject.as_str().into() }
    }
}

pub async fn list(
    State(api): State<Api>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Alert>>, Problem> {
    let all = api.0.options.alerts.list().into_iter().map(Alert::from).collect();
    query(which)?.page_of(all, Alert::key).map(Json)
}

/// Of the alerts that fire: severity, subject, and the alert in words; the critical ones first. And
/// the number of others.
pub fn firing(alerts: &Alerts, max: usize) -> (Vec<(Severity, String, String)>, usize) {
    let mut firing = alerts.list();
    firing.retain(|listed| listed.alert.fired_ms.is_some());
    firing.sort_by_key(|listed| std::cmp::Reverse(listed.rule.severity));
    let more = firing.len().saturating_sub(max);
    let in_words = |ListedAlert { rule, subject, alert }: ListedAlert| {
        (rule.severity, subject.to_string(), format!("{} (alert {})", rule.on.text(alert.value), rule.name))
    };
    (firing.into_iter().take(max).map(in_words).collect(), more)
}
