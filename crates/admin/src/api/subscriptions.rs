//! Durable subscriptions: a list, and their end by an operator.

use axum::Extension;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use postroad_model::{Event, Question, QueueRow, Row};
use serde::Serialize;

use super::lists::{List, Queue, Which, page_where, query, write_cursor};
use super::problem::Problem;
use super::{Api, Caller};
use crate::figures::BridgeFigures;

/// A durable subscription with its counts.
#[derive(Debug, Serialize)]
pub struct Subscription {
    topic: String,
    #[serde(flatten)]
    queue: Queue,
}

impl Subscription {
    fn of(row: QueueRow, broker_name: &str, links: &[BridgeFigures]) -> Subscription {
        let topic = row.destination.name.to_string();
        Subscription { topic, queue: Queue::with_link(row, broker_name, links) }
    }
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Subscription>>, Problem> {
    let which = query(which)?;
    let name_part = which.filter().unwrap_or_default().into();
    let ask = which.ask(Question::Queues { name_part, only: None })?;
    let is_shown = |row: &Row| matches!(row, Row::Queue(row) if row.subscription.is_some());
    let page = page_where(&api.client(&caller).await?, ask, is_shown).await?;
    let links = (api.0.options.bridges)();
    let items = page.rows.into_iter().filter_map(|row| match row {
        Row::Queue(row) => Some(Subscription::of(row, &api.0.options.broker_name, &links)),
        _ => None,
    });
    Ok(Json(List { items: items.collect(), next: page.next.as_ref().map(write_cursor), total: page.total }))
}

/// Ends a subscription without consumers, with all that it holds.
pub async fn end(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let name = name.into();
    let make = |connection, ticket| Event::Unsubscribe { name, connection, ticket };
    api.client(&caller).await?.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use postroad_model::{Destination, Subscription as Named};

    use super::*;

    #[test]
    fn a_subscription_of_a_link_names_its_peer_and_whether_there_is_such_a_link() {
        let link = |peer: &str, peer_id: &str, state| BridgeFigures {
            peer: peer.into(),
            peer_id: peer_id.into(),
            state,
            ..BridgeFigures::default()
        };
        let links = [
            link("east", "ID:east", "linked"),
            link("", "ID:south", "waiting"),
            link("west", "ID:west", "ended"),
        ];
        for (case, client, name, want) in [
            ("a client's", "client", "news", None),
            ("a client's that looks like it", "client", "NC-DS_here_news", None),
            ("a Postroad's", "ID:east_inbound_here", "NC-DS_here_news", Some(("east", "linked"))),
            ("ActiveMQ's", "east_inbound_here", "NC-DS_here_news", Some(("east", "linked"))),
            ("a link that is down", "ID:south_inbound_here", "NC-DS_here_news", Some(("ID:south", "down"))),
            ("one that has ended", "ID:west_inbound_here", "NC-DS_here_news", Some(("west", "down"))),
            ("no such peer", "north_inbound_here", "NC-DS_here_news", Some(("north", "none"))),
            ("renamed", "ID:east_inbound_former", "NC-DS_former_news", Some(("ID:east", "none"))),
        ] {
            let name = Named::name_of("", client, name);
            let row = QueueRow::idle(Destination::topic("news"), Some(name));
            let shown = Subscription::of(row, "here", &links);
            assert_eq!(shown.queue.link_peer.as_deref().zip(shown.queue.link_state), want, "case: {case}");
        }
    }
}
