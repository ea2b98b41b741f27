//! The stores, with the state of their journals, and the addresses that clients connect to.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use postroad_model::RowKey;
use serde::Serialize;

use super::lists::{List, Which, query};
use super::overview::figures;
use super::problem::Problem;
use super::{Api, ListenerRow};
use crate::figures::JournalFigures;

#[derive(Debug, Serialize)]
pub struct Store {
    name: String,
    /// `running`, `full`, `broken`, `damaged` or `follower`.
    state: &'static str,
    /// Why it is not `running`.
    reason: Option<String>,
    segments: u64,
    file_bytes: u64,
    live_bytes: u64,
    index_bytes: u64,
    written_bytes: u64,
    syncs: u64,
    checkpoints: u64,
    compactions: u64,
    failed_jobs: u64,
    damaged_places: u64,
}

impl From<&JournalFigures> for Store {
    fn from(of: &JournalFigures) -> Store {
        let (state, reason) = match (&of.follows, &of.broken, of.stopped.first(), of.full) {
            (Some(reason), ..) => ("follower", Some(reason.clone())),
            (None, Some(reason), ..) => ("broken", Some(reason.clone())),
            (None, None, Some(damage), _) => ("damaged", Some(damage.clone())),
            (None, None, None, true) => {
                let reason = "the disk, or disk_bytes_max, is full: persistent messages are refused";
                ("full", Some(reason.to_owned()))
            }
            (None, None, None, false) => ("running", None),
        };
        Store {
            name: of.store.clone(),
            state,
            reason,
            segments: of.segments,
            file_bytes: of.file_bytes,
            live_bytes: of.live_bytes,
            index_bytes: of.index_bytes,
            written_bytes: of.bytes,
            syncs: of.syncs,
            checkpoints: of.checkpoints,
            compactions: of.compactions,
            failed_jobs: of.failed_jobs,
            damaged_places: of.damaged_places,
        }
    }
}

pub async fn stores(
    State(api): State<Api>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Store>>, Problem> {
    let which = query(which)?;
    let figures = figures(&api).await?;
    let key = |store: &Store| RowKey { rank: 0, name: store.name.as_str().into(), detail: "".into() };
    which.page_of(figures.journals.iter().map(Store::from).collect(), key).map(Json)
}

pub async fn listeners(
    State(api): State<Api>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<ListenerRow>>, Problem> {
    let all = api.0.options.listeners.clone();
    let key = |row: &ListenerRow| RowKey {
        rank: 0,
        name: row.protocol.as_str().into(),
        detail: row.url.as_str().into(),
    };
    query(which)?.page_of(all, key).map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_store_is_one_word_with_its_reason() {
        let of = |journal: JournalFigures| {
            let Store { state, reason, .. } = Store::from(&journal);
            (state, reason.is_some())
        };
        let (full, base) = (true, JournalFigures::default);
        assert_eq!(of(base()), ("running", false));
        assert_eq!(of(JournalFigures { full, ..base() }), ("full", true));
        let stopped = vec!["one".to_owned()];
        assert_eq!(of(JournalFigures { stopped, full, ..base() }), ("damaged", true));
        let broken = Some("EIO".to_owned());
        assert_eq!(of(JournalFigures { broken, full, ..base() }), ("broken", true));
        let follows = Some("n1 leads".to_owned());
        assert_eq!(of(JournalFigures { follows, ..base() }), ("follower", true));
    }
}
