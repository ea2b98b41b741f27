//! Durable subscriptions: a list, and their end by an operator.

use axum::Extension;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use postroad_model::{Event, Question, Row};
use serde::Serialize;

use super::lists::{List, Queue, Which, page_where, query, write_cursor};
use super::problem::Problem;
use super::{Api, Caller};

/// A durable subscription with its counts.
#[derive(Debug, Serialize)]
pub struct Subscription {
    topic: String,
    #[serde(flatten)]
    queue: Queue,
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
    let items = page.rows.into_iter().filter_map(|row| match row {
        Row::Queue(row) => Some(Subscription { topic: row.destination.name.to_string(), queue: row.into() }),
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
