//! Links to other brokers.

use axum::Json;
use axum::extract::{Query, State};
use postroad_model::RowKey;
use serde::Serialize;

use super::Api;
use super::lists::{List, Which, query};
use super::problem::Problem;
use crate::figures::{BridgeFigures, BridgeWait};

#[derive(Debug, Serialize)]
pub struct Bridge {
    name: String,
    number: u16,
    direction: &'static str,
    state: &'static str,
    since_ms: u64,
    profile: &'static str,
    address: String,
    peer: String,
    peer_id: String,
    swimlane: String,
    duplex: bool,
    demand: u64,
    in_flight: u64,
    oldest_in_flight_ms: u64,
    dispatched: u64,
    dispatched_bytes: u64,
    forwarded: u64,
    refused: u64,
    received: u64,
    reconnects: u64,
    #[serde(flatten)]
    wait: BridgeWait,
    reason: String,
    retry_seconds: u64,
}

impl From<BridgeFigures> for Bridge {
    fn from(of: BridgeFigures) -> Bridge {
        Bridge {
            name: of.bridge,
            number: of.number,
            direction: of.direction,
            state: of.state,
            since_ms: of.since_ms,
            profile: of.profile,
            address: of.address,
            peer: of.peer,
            peer_id: of.peer_id,
            swimlane: of.swimlane,
            duplex: of.is_duplex,
            demand: of.demand,
            in_flight: of.in_flight,
            oldest_in_flight_ms: of.oldest_in_flight_ms,
            dispatched: of.dispatched,
            dispatched_bytes: of.dispatched_bytes,
            forwarded: of.forwarded,
            refused: of.refused,
            received: of.received,
            reconnects: of.reconnects,
            wait: of.wait,
            reason: of.reason,
            retry_seconds: of.retry_seconds,
        }
    }
}

impl Bridge {
    fn key(&self) -> RowKey {
        let detail = format!("{}/{}/{:05}", self.direction, self.peer_id, self.number);
        RowKey { rank: 0, name: self.name.as_str().into(), detail: detail.into() }
    }
}

pub async fn list(
    State(api): State<Api>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Bridge>>, Problem> {
    let all = (api.0.options.bridges)().into_iter().map(Bridge::from).collect();
    query(which)?.page_of(all, Bridge::key).map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_page_by_page_in_the_order_of_their_names() {
        let named =
            |name: &str| Bridge::from(BridgeFigures { bridge: name.into(), ..BridgeFigures::default() });
        let page = |text: &str| {
            let which = Query::<Which>::try_from_uri(&text.parse().unwrap()).unwrap().0;
            let all = ["west", "east", "north"].map(named).into_iter().collect();
            let List { items, next, .. } = which.page_of(all, Bridge::key).unwrap();
            (items.into_iter().map(|bridge| bridge.name).collect::<Vec<_>>(), next)
        };
        let (first, next) = page("/?limit=2");
        assert_eq!(first, ["east", "north"]);
        assert_eq!(page(&format!("/?limit=2&cursor={}", next.unwrap())), (vec!["west".to_owned()], None));
        assert_eq!(page("/?filter=st").0, ["east", "west"]);
    }
}
