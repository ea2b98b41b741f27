//! The last changes that operators made: who, when, from where, and with which result.
//!
//! Failed logins of every protocol are here too. Bounded, and gone with the process; the log of the
//! broker has the same lines.

use std::collections::VecDeque;

use axum::Json;
use axum::extract::{Query, State};
use postroad_model::OfflineEnd;
use postroad_security::FailedLogin;
use serde::{Deserialize, Serialize};

use super::lists::query;
use super::problem::Problem;
use super::{Api, Peer};

/// Rows that are kept.
const CHANGES_MAX: usize = 1000;

/// Failed logins among them: a flood does not push the changes out.
const FAILURES_MAX: usize = 250;

/// A path is kept to this length.
const PATH_BYTES_MAX: usize = 512;

/// A change, or an attempt at one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Rises by one with each.
    pub number: u64,
    pub at_ms: u64,
    pub user: Option<String>,
    /// The address of the client, or `control socket`.
    pub peer: String,
    pub method: String,
    pub path: String,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The id of the token that the user has shown.
    pub token: Option<String>,
    /// The object of the change, where the path does not name it.
    pub detail: Option<String>,
    #[serde(skip)]
    pub is_failed_login: bool,
}

impl Change {
    fn of(failed: FailedLogin) -> Change {
        let FailedLogin { at_ms, user, peer, method, path, status, reason } = failed;
        let (token, detail, is_failed_login) = (None, Some(reason), true);
        Change { number: 0, at_ms, user, peer, method, path, status, token, detail, is_failed_login }
    }

    fn of_ended((at_ms, ended): (u64, OfflineEnd)) -> Change {
        let OfflineEnd { name, topic, messages, offline_ms } = ended;
        let seconds = offline_ms / 1000;
        Change {
            number: 0,
            at_ms,
            user: None,
            peer: "limits.offline_subscription_ms".to_owned(),
            method: "DELETE".to_owned(),
            path: format!("/api/v1/subscriptions/{name}"),
            status: 204,
            token: None,
            detail: Some(format!("{messages} messages of {topic}; {seconds} s without a reader")),
            is_failed_login: false,
        }
    }
}

/// Adds the rows that are not requests: logins that have failed since the last time, in every
/// protocol, and subscriptions that have ended without a reader.
pub async fn take_others(api: &Api) {
    let mut changes = api.0.changes.lock().await;
    let failed = api.0.options.door.borrow().failures().take();
    failed.into_iter().map(Change::of).for_each(|change| changes.add(change));
    let ended = api.0.options.offline_ends.take();
    ended.into_iter().map(Change::of_ended).for_each(|change| changes.add(change));
}

/// The object of a change, for the audit: an extension of the answer.
#[derive(Clone, Debug)]
pub struct Detail(pub String);

/// See the head of this file.
#[derive(Default)]
pub struct Changes {
    last: u64,
    all: VecDeque<Change>,
    /// Rows that are failed logins.
    failures: usize,
}

impl Changes {
    pub fn add(&mut self, change: Change) {
        self.last += 1;
        if change.is_failed_login && FAILURES_MAX <= self.failures {
            let oldest = self.all.iter().position(|change| change.is_failed_login);
            self.forget(oldest);
        }
        if CHANGES_MAX <= self.all.len() {
            self.forget(Some(0));
        }
        self.failures += usize::from(change.is_failed_login);
        let end = change.path.floor_char_boundary(PATH_BYTES_MAX);
        let path = change.path[..end].to_owned();
        self.all.push_back(Change { number: self.last, path, ..change });
    }

    fn forget(&mut self, index: Option<usize>) {
        let forgotten = index.and_then(|index| self.all.remove(index));
        self.failures -= usize::from(forgotten.is_some_and(|change| change.is_failed_login));
    }

    /// The newest first, before this number.
    fn before(&self, number: u64, which: &Which, rows: usize) -> Vec<Change> {
        let rows_before = self.all.iter().rev().filter(|change| change.number < number && which.has(change));
        rows_before.take(rows).cloned().collect()
    }
}

pub fn peer_text(peer: Option<Peer>) -> String {
    match peer {
        Some(Peer::Network(address)) => address.to_string(),
        Some(Peer::ControlSocket) => "control socket".to_owned(),
        Some(Peer::Node(address)) => format!("node {address}"),
        None => "-".to_owned(),
    }
}

/// Which rows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    limit: Option<usize>,
    /// Only rows with this text in their path, peer or detail.
    filter: Option<String>,
    /// Only rows of this user.
    user: Option<String>,
    /// Only attempts that were refused, or only changes that were carried out.
    failed: Option<bool>,
    /// Only rows at or after this time, in milliseconds since 1970.
    from_ms: Option<u64>,
    /// Only rows before this time.
    to_ms: Option<u64>,
    /// The `number` of the last change of the page before.
    cursor: Option<u64>,
}

impl Which {
    fn has(&self, row: &Change) -> bool {
        let Which { filter, user, failed, from_ms, to_ms, .. } = self;
        let has_text = |text: &str| {
            let members = [Some(&*row.path), Some(&*row.peer), row.detail.as_deref()];
            members.into_iter().flatten().any(|member| member.contains(text))
        };
        filter.as_deref().is_none_or(has_text)
            && user.as_ref().is_none_or(|user| row.user.as_ref() == Some(user))
            && failed.is_none_or(|failed| failed == (400 <= row.status))
            && from_ms.is_none_or(|from_ms| from_ms <= row.at_ms)
            && to_ms.is_none_or(|to_ms| row.at_ms < to_ms)
    }
}

#[derive(Serialize)]
pub struct Page {
    items: Vec<Change>,
    next: Option<String>,
    total: u64,
}

pub async fn list(
    State(api): State<Api>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let which = query(which)?;
    let rows = which.limit.unwrap_or(100);
    if !(1..=500).contains(&rows) {
        return Err(Problem::new(400, format!("limit is {rows}; use 1 to 500")));
    }
    take_others(&api).await;
    let changes = api.0.changes.lock().await;
    let items = changes.before(which.cursor.unwrap_or(u64::MAX), &which, rows);
    let last = items.last().map(|change| change.number);
    let next = last.filter(|last| !changes.before(*last, &which, 1).is_empty()).map(|last| last.to_string());
    let total = changes.all.iter().filter(|change| which.has(change)).count() as u64;
    Ok(Json(Page { items, next, total }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_text_user_result_and_time() {
        let row = |at_ms, user: Option<&str>, path: &str, status| Change {
            number: 0,
            at_ms,
            user: user.map(str::to_owned),
            peer: "127.0.0.1:5".to_owned(),
            method: "POST".to_owned(),
            path: path.to_owned(),
            status,
            token: None,
            detail: Some(format!("detail of {path}")),
            is_failed_login: false,
        };
        let mut changes = Changes::default();
        changes.add(row(10, Some("ann"), "/queues/a/purge", 200));
        changes.add(row(20, Some("bob"), "/queues/b/purge", 403));
        changes.add(row(30, None, "/queues/a/pause", 200));
        let none = Which::default;
        for (case, which, want) in [
            ("all", none(), vec![3, 2, 1]),
            ("a text of the path", Which { filter: Some("/a/".to_owned()), ..none() }, vec![3, 1]),
            ("a text of the detail", Which { filter: Some("of /queues/b".to_owned()), ..none() }, vec![2]),
            ("a text of the peer", Which { filter: Some(":5".to_owned()), ..none() }, vec![3, 2, 1]),
            ("a user", Which { user: Some("ann".to_owned()), ..none() }, vec![1]),
            ("refused", Which { failed: Some(true), ..none() }, vec![2]),
            ("carried out", Which { failed: Some(false), ..none() }, vec![3, 1]),
            ("from", Which { from_ms: Some(20), ..none() }, vec![3, 2]),
            ("to", Which { to_ms: Some(20), ..none() }, vec![1]),
            ("none", Which { user: Some("cleo".to_owned()), ..none() }, vec![]),
        ] {
            let rows = changes.before(u64::MAX, &which, 9);
            assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), want, "case: {case}");
        }
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let mut changes = Changes::default();
        for _ in 0..CHANGES_MAX + 5 {
            changes.add(Change {
                number: 0,
                at_ms: 1,
                user: None,
                peer: "-".to_owned(),
                method: "POST".to_owned(),
                path: "ä".repeat(PATH_BYTES_MAX),
                status: 200,
                token: None,
                detail: None,
                is_failed_login: false,
            });
        }
        for number in 0..2 * FAILURES_MAX as u64 {
            let failed = FailedLogin::new("AMQP", Some("ann"), number.to_string(), "wrong");
            changes.add(Change::of(failed));
        }
        let failures = changes.all.iter().filter(|change| change.is_failed_login);
        let peers: Vec<&str> = failures.map(|change| &*change.peer).collect();
        assert_eq!((peers.len(), peers[0]), (FAILURES_MAX, "250"), "changes stay in a flood of failures");
        assert_eq!(changes.all.len(), CHANGES_MAX);
        changes.all.retain(|change| !change.is_failed_login);
        let numbers = |before| {
            let rows = changes.before(before, &Which::default(), 2);
            rows.iter().map(|change| change.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(u64::MAX), [1005, 1004]);
        assert_eq!(numbers(257), [256], "the oldest have gone");
        assert_eq!(changes.all[0].path.len(), PATH_BYTES_MAX);
    }
}
