//! Alerts: messages about the size of a queue, which go to another queue of its project.
//!
//! The thresholds of an alert divide sizes into regions. An alert fires when the size enters a
//! higher region (ascending) or a lower one (descending); several regions at once are one message.

use postroad_model::rfc3339;
use serde_json::{Value, json};

use crate::ApiError;
use crate::fields::Fields;

/// Alerts of one queue, at most.
pub(crate) const ALERTS_MAX: usize = 20;
/// Seconds between two messages of one alert, at most: a year.
pub(crate) const SNOOZE_S_MAX: u64 = 31_536_000;
/// A trigger is not larger.
pub(crate) const TRIGGER_MAX: u64 = 1 << 48;

/// Which sizes are thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The trigger alone.
    Fixed,
    /// Each multiple of the trigger.
    Progressive,
}

/// In which direction the size passes a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

/// An alert of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Unique in the queue; 0 before the broker has numbered it.
    id: u64,
    kind: Kind,
    direction: Direction,
    trigger: u64,
    /// The queue of the same project that its messages go to.
    pub queue: String,
    snooze_s: u64,
}

/// Lengths of a queue: it enters another region at or above the first, and at or below the second.
pub type Bounds = (Option<u64>, Option<u64>);

impl Alert {
    fn parse(item: Value) -> Result<Alert, ApiError> {
        let mut fields = Fields::of(item, "each of alerts")?;
        let kind = match fields.text("type")?.as_deref() {
            Some("fixed") => Kind::Fixed,
            Some("progressive") => Kind::Progressive,
            other => return Err(wrong("type", "fixed or progressive", other)),
        };
        let direction = match fields.text("direction")?.as_deref() {
            None | Some("asc") => Direction::Ascending,
            Some("desc") => Direction::Descending,
            other => return Err(wrong("direction", "asc or desc", other)),
        };
        let trigger = fields.number("trigger", 1, TRIGGER_MAX)?;
        let trigger = trigger.ok_or_else(|| wrong("trigger", "a whole number from 1", None))?;
        let queue = fields.text("queue")?.filter(|queue| !queue.is_empty());
        let queue = queue.ok_or_else(|| wrong("queue", "the name of a queue", None))?;
        let snooze_s = fields.number("snooze", 0, SNOOZE_S_MAX)?.unwrap_or(0);
        Ok(Alert { id: 0, kind, direction, trigger, queue, snooze_s })
    }

    /// Whether both are about the same thresholds and queue.
    fn is_like(&self, other: &Alert) -> bool {
        let about = |of: &Alert| (of.kind, of.direction, of.trigger);
        about(self) == about(other) && self.queue == other.queue
    }

    fn shown(&self) -> Value {
        json!({
            "id": self.id.to_string(),
            "type": self.kind_name(),
            "direction": self.direction_name(),
            "trigger": self.trigger,
            "queue": self.queue,
            "snooze": self.snooze_s,
        })
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Fixed => "fixed",
            Kind::Progressive => "progressive",
        }
    }

    fn direction_name(&self) -> &'static str {
        match self.direction {
            Direction::Ascending => "asc",
            Direction::Descending => "desc",
        }
    }

    /// The body of its message.
    pub fn body(&self, source: &str, size: u64, wall_ms: u64) -> String {
        let body = json!({
            "source_queue": source,
            "queue_size": size,
            "alert_id": self.id.to_string(),
            "alert_type": self.kind_name(),
            "alert_direction": self.direction_name(),
            "alert_trigger": self.trigger,
            "created_at": rfc3339(wall_ms / 1000),
        });
        body.to_string()
    }

    /// The number of thresholds that a size has reached (ascending) or lies above (descending).
    fn region(&self, size: u64) -> u64 {
        let reached = match self.direction {
            Direction::Ascending => size / self.trigger,
            Direction::Descending => size.saturating_sub(1) / self.trigger,
        };
        if self.kind == Kind::Fixed { reached.min(1) } else { reached }
    }

    /// Where the regions next to that of this size begin.
    fn bounds(&self, size: u64) -> Bounds {
        let region = self.region(size);
        let is_last = self.kind == Kind::Fixed && region == 1;
        let above = (region + 1).saturating_mul(self.trigger);
        let below = (region * self.trigger).checked_sub(1).filter(|_| 0 < region);
        let beyond = u64::from(self.direction == Direction::Descending);
        (Some(above + beyond).filter(|_| !is_last), below.map(|below| below + beyond))
    }

    fn fires(&self, before: u64, now: u64) -> bool {
        match self.direction {
            Direction::Ascending => self.region(before) < self.region(now),
            Direction::Descending => self.region(now) < self.region(before),
        }
    }
}

fn wrong(name: &str, wanted: &str, got: Option<&str>) -> ApiError {
    let got = got.map_or("is missing".to_owned(), |got| format!("is {got}"));
    ApiError::bad(format!("{name} of each of alerts is to be {wanted}, and {got}"))
}

/// The alerts of a queue, numbered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alerts {
    alerts: Vec<Alert>,
    last_id: u64,
}

/// A change of the alerts of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertChange {
    /// Adds these, in place of those with the same thresholds, direction and queue.
    Add(Vec<Alert>),
    /// These are all.
    Replace(Vec<Alert>),
    /// Removes those with these ids, or like these.
    Remove(Vec<Chosen>),
}

/// An alert as a client that removes it names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// By its id.
    Id(String),
    /// By its thresholds, direction and queue.
    Like(Alert),
}

impl Chosen {
    pub(crate) fn parse(item: Value) -> Result<Chosen, ApiError> {
        if let Value::String(id) = item {
            return Ok(Chosen::Id(id));
        }
        match Fields::of(item.clone(), "each of alerts")?.id("id")? {
            Some(id) => Ok(Chosen::Id(id)),
            None => Alert::parse(item).map(Chosen::Like),
        }
    }

    fn is(&self, alert: &Alert) -> bool {
        match self {
            Chosen::Id(id) => *id == alert.id.to_string(),
            Chosen::Like(other) => alert.is_like(other),
        }
    }
}

impl Alerts {
    /// The alerts in a request.
    pub(crate) fn parse(items: Vec<Value>) -> Result<Vec<Alert>, ApiError> {
        items.into_iter().map(Alert::parse).collect()
    }

    /// Reads what `document` writes.
    pub(crate) fn of(document: &Value) -> Alerts {
        let items = document["alerts"].as_array().into_iter().flatten();
        let alert = |item: &Value| {
            let id = item["id"].as_str().and_then(|id| id.parse().ok())?;
            Alert::parse(item.clone()).ok().map(|alert| Alert { id, ..alert })
        };
        let alerts: Vec<Alert> = items.filter_map(alert).collect();
        let highest = alerts.iter().map(|alert| alert.id).max().unwrap_or(0);
        Alerts { alerts, last_id: document["last_alert"].as_u64().unwrap_or(0).max(highest) }
    }

    /// Adds its fields to the document of a queue.
    pub(crate) fn document(&self, document: &mut Value) {
        if 0 < self.last_id {
            document["alerts"] = self.shown();
            document["last_alert"] = json!(self.last_id);
        }
    }

    /// As clients see them.
    pub(crate) fn shown(&self) -> Value {
        self.alerts.iter().map(Alert::shown).collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.alerts.is_empty()
    }

    /// The queues that their messages go to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        self.alerts.iter().map(|alert| &*alert.queue)
    }

    pub(crate) fn change(&mut self, change: &AlertChange) -> Result<(), ApiError> {
        match change {
            AlertChange::Add(more) => more.iter().for_each(|alert| self.add(alert)),
            AlertChange::Replace(all) => {
                let before = std::mem::take(&mut self.alerts);
                for alert in all {
                    match before.iter().find(|known| known.is_like(alert)) {
                        Some(known) => self.alerts.push(Alert { id: known.id, ..alert.clone() }),
                        None => self.add(alert),
                    }
                }
            }
            AlertChange::Remove(chosen) => {
                let is_there = |chosen: &Chosen| self.alerts.iter().any(|alert| chosen.is(alert));
                if !chosen.iter().all(is_there) {
                    return Err(ApiError { status: 404, msg: "Alert not found".to_owned() });
                }
                self.alerts.retain(|alert| !chosen.iter().any(|chosen| chosen.is(alert)));
            }
        }
        match self.alerts.len() <= ALERTS_MAX {
            true => Ok(()),
            false => Err(ApiError::bad(format!("a queue has at most {ALERTS_MAX} alerts"))),
        }
    }

    fn add(&mut self, alert: &Alert) {
        if let Some(known) = self.alerts.iter_mut().find(|known| known.is_like(alert)) {
            known.snooze_s = alert.snooze_s;
            return;
        }
        self.last_id += 1;
        self.alerts.push(Alert { id: self.last_id, ..alert.clone() });
    }
}

/// The alerts of one queue at work: they see its size change.
#[derive(Debug, Default)]
pub struct Watching {
    alerts: Vec<Watched>,
    /// The last size seen; `None` before the first.
    size: Option<u64>,
}

#[derive(Debug)]
struct Watched {
    alert: Alert,
    fired_ms: Option<u64>,
}

impl Watching {
    /// These are the alerts from now on. Those that stay keep their snooze.
    pub fn set(&mut self, alerts: &Alerts) {
        let before = std::mem::take(&mut self.alerts);
        let fired = |id| before.iter().find(|known| known.alert.id == id).and_then(|known| known.fired_ms);
        let watched = |alert: &Alert| Watched { fired_ms: fired(alert.id), alert: alert.clone() };
        self.alerts = alerts.alerts.iter().map(watched).collect();
    }

    /// The sizes that are to be waited for.
    pub fn bounds(&self) -> Bounds {
        // The first size is where the alerts begin.
        let Some(size) = self.size else { return (Some(0), None) };
        let all = || self.alerts.iter().map(|watched| watched.alert.bounds(size));
        (all().filter_map(|(above, _)| above).min(), all().filter_map(|(_, below)| below).max())
    }

    /// The size is this now: returns the alerts whose messages are to be sent.
    pub fn observe(&mut self, size: u64, now_ms: u64) -> Vec<Alert> {
        let Some(before) = self.size.replace(size) else { return Vec::new() };
        let mut fired = Vec::new();
        for Watched { alert, fired_ms } in &mut self.alerts {
            let is_snoozing = fired_ms.is_some_and(|at_ms| now_ms < at_ms + alert.snooze_s * 1000);
            if alert.fires(before, size) && !is_snoozing {
                *fired_ms = Some(now_ms);
                fired.push(alert.clone());
            }
        }
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alerts(items: &[(&str, &str, u64, u64)]) -> Alerts {
        let item = |(kind, direction, trigger, snooze): &(&str, &str, u64, u64)| json!({ "type": kind, "direction": direction, "trigger": trigger, "queue": "t", "snooze": snooze });
        let mut alerts = Alerts::default();
        let parsed = Alerts::parse(items.iter().map(item).collect()).unwrap();
        alerts.change(&AlertChange::Add(parsed)).unwrap();
        alerts
    }

    /// At which of these sizes one alert fires; the first size is where it begins.
    fn fires(kind: &str, direction: &str, trigger: u64, sizes: &[u64]) -> Vec<u64> {
        let mut watching = Watching::default();
        watching.set(&alerts(&[(kind, direction, trigger, 0)]));
        let fired = |size: &u64| (!watching.observe(*size, 0).is_empty()).then_some(*size);
        sizes.iter().filter_map(fired).collect()
    }

    #[test]
    fn an_alert_fires_when_the_size_passes_a_threshold_in_its_direction() {
        let sizes = [0, 4, 5, 9, 12, 9, 10, 35, 11, 10, 6, 5, 4, 0, 5];
        for (kind, direction, want) in [
            ("fixed", "asc", vec![5, 5]),
            ("fixed", "desc", vec![5]),
            ("progressive", "asc", vec![5, 12, 10, 35, 5]),
            ("progressive", "desc", vec![9, 11, 10, 5]),
        ] {
            assert_eq!(fires(kind, direction, 5, &sizes), want, "{kind} {direction}");
        }
        assert_eq!(fires("fixed", "desc", 1, &[3, 2, 1, 0]), [1]);
        assert_eq!(fires("fixed", "asc", 10, &[20, 5]), [0; 0], "it was above from the start");
    }

    #[test]
    fn no_size_within_the_bounds_fires_and_those_at_them_change_the_region() {
        for (kind, direction) in
            [("fixed", "asc"), ("fixed", "desc"), ("progressive", "asc"), ("progressive", "desc")]
        {
            let alert = &alerts(&[(kind, direction, 5, 0)]).alerts[0];
            for size in 0..40 {
                let (above, below) = alert.bounds(size);
                let region = alert.region(size);
                for other in 0..60 {
                    let is_outside = above.is_some_and(|above| above <= other)
                        || below.is_some_and(|below| other <= below);
                    assert_eq!(
                        region != alert.region(other),
                        is_outside,
                        "{kind} {direction} {size} {other}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_snoozing_alert_is_silent_and_keeps_its_snooze_when_others_change() {
        let mut watching = Watching::default();
        watching.set(&alerts(&[("fixed", "asc", 5, 10)]));
        assert_eq!(watching.bounds(), (Some(0), None));
        watching.observe(0, 0);
        assert_eq!(watching.bounds(), (Some(5), None));
        assert_eq!(watching.observe(5, 1000).len(), 1);
        assert_eq!(watching.bounds(), (None, Some(4)));
        watching.observe(0, 2000);
        watching.set(&alerts(&[("fixed", "asc", 5, 10), ("fixed", "desc", 7, 0)]));
        assert_eq!(watching.observe(6, 10_999).len(), 0);
        watching.observe(0, 10_999);
        assert_eq!(watching.observe(6, 11_000).len(), 1);
    }

    #[test]
    fn ids_stay_and_are_not_given_twice() {
        let mut all = alerts(&[("fixed", "asc", 5, 0), ("fixed", "asc", 6, 0)]);
        let six = Chosen::Id("2".to_owned());
        all.change(&AlertChange::Remove(vec![six.clone()])).unwrap();
        assert_eq!(all.change(&AlertChange::Remove(vec![six])).unwrap_err().status, 404);
        let mut document = json!({});
        all.document(&mut document);
        assert_eq!(Alerts::of(&document), all);
        let parsed = |trigger: u64| {
            let item = json!({ "type": "fixed", "trigger": trigger, "queue": "t", "snooze": 3 });
            Alerts::parse(vec![item]).unwrap()
        };
        all.change(&AlertChange::Add([parsed(5), parsed(7)].concat())).unwrap();
        let ids: Vec<(u64, u64, u64)> =
            all.alerts.iter().map(|alert| (alert.id, alert.trigger, alert.snooze_s)).collect();
        assert_eq!(ids, [(1, 5, 3), (3, 7, 3)]);
        let many: Vec<Alert> = (1..=20).flat_map(parsed).collect();
        all.change(&AlertChange::Replace(many.clone())).unwrap();
        let more = AlertChange::Add(parsed(21));
        assert!(all.change(&more).unwrap_err().msg.contains("at most 20"));
    }

    #[test]
    fn bad_alerts_are_refused_with_the_field() {
        for (item, want) in [
            (json!({}), "type of each of alerts is to be fixed or progressive, and is missing"),
            (json!({ "type": "x" }), "and is x"),
            (json!({ "type": "fixed", "direction": "up" }), "asc or desc, and is up"),
            (json!({ "type": "fixed" }), "trigger of each"),
            (json!({ "type": "fixed", "trigger": 0 }), "trigger is to be a whole number from 1"),
            (json!({ "type": "fixed", "trigger": 1 }), "the name of a queue"),
            (json!({ "type": "fixed", "trigger": 1, "queue": "q", "snooze": -1 }), "snooze"),
            (json!(5), "each of alerts is to be a JSON object"),
        ] {
            let msg = Alerts::parse(vec![item.clone()]).unwrap_err().msg;
            assert!(msg.contains(want), "{item}: {msg}");
        }
    }

    #[test]
    fn the_message_is_as_the_api_documents_it() {
        let alert = &alerts(&[("progressive", "asc", 5, 0)]).alerts[0];
        let body: Value = serde_json::from_str(&alert.body("test_queue", 12, 1_392_743_443_000)).unwrap();
        let want = json!({
            "source_queue": "test_queue", "queue_size": 12, "alert_id": "1", "alert_type": "progressive",
            "alert_direction": "asc", "alert_trigger": 5, "created_at": "2014-02-18T17:10:43Z",
        });
        assert_eq!(body, want);
    }
}
