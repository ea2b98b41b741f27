//! Topics, and the queues and subscriptions that they feed.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use postroad_model::{Ask, BindingRow, Destination, DestinationKind, Order, Question, Row, TopicRow};
use serde::Serialize;

use super::lists::{List, Which, list as page, query};
use super::problem::Problem;
use super::{Api, Caller, destination_of};

#[derive(Debug, Serialize)]
pub struct Topic {
    name: String,
    bindings: u64,
    selectors: u64,
}

/// A topic, or pattern of topics, that feeds a queue or subscription.
#[derive(Debug, Serialize)]
pub struct Binding {
    topic: String,
    /// `queue`, `durable subscription` or `subscription`.
    kind: &'static str,
    /// The queue, the durable subscription, or the consumer of a volatile one.
    to: String,
    durable: bool,
    /// Only messages that match one of these; without any, all.
    selectors: Vec<String>,
    messages: u64,
}

impl From<TopicRow> for Topic {
    fn from(row: TopicRow) -> Topic {
        let TopicRow { destination, bindings, selectors } = row;
        Topic { name: destination.name.to_string(), bindings, selectors }
    }
}

impl From<BindingRow> for Binding {
    fn from(row: BindingRow) -> Binding {
        let kind = match (&row.queue, &row.subscription) {
            (Some(_), _) => "queue",
            (None, Some(_)) => "durable subscription",
            (None, None) => "subscription",
        };
        Binding {
            topic: row.topic.name.to_string(),
            kind,
            to: match &row.queue {
                Some(queue) => queue.name.to_string(),
                None => row.target(),
            },
            durable: !row.id.is_volatile(),
            selectors: row.selectors.iter().map(ToString::to_string).collect(),
            messages: row.messages,
        }
    }
}

/// A topic by its name, or by `topic://` and its name.
fn topic_of(text: &str) -> Result<Destination, Problem> {
    match text.contains("://") {
        false => destination_of(&format!("topic://{text}")),
        true => destination_of(text).and_then(|named| match named.kind {
            DestinationKind::Topic => Ok(named),
            DestinationKind::Queue => Err(Problem::new(400, format!("{text} is a queue; expected a topic"))),
        }),
    }
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Topic>>, Problem> {
    let which = query(which)?;
    let name_part = which.filter().unwrap_or_default().into();
    let ask = which.ask(Question::Topics { name_part, only: None })?;
    let rows = api.client(&caller).await?.ask(ask).await?;
    Ok(page(rows, |row| match row {
        Row::Topic(row) => Some(row.into()),
        _ => None,
    }))
}

pub async fn one(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Topic>, Problem> {
    let topic = topic_of(&name)?;
    let question = Question::Topics { name_part: "".into(), only: Some(topic.clone()) };
    let ask = Ask { question, after: None, rows: 1, order: Order::default() };
    let rows = api.client(&caller).await?.ask(ask).await?.rows;
    let found = rows.into_iter().find_map(|row| match row {
        Row::Topic(row) => Some(Json(row.into())),
        _ => None,
    });
    found.ok_or_else(|| Problem::new(404, format!("there is no {topic}; GET /api/v1/topics lists all")))
}

pub async fn bindings(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Binding>>, Problem> {
    let which = query(which)?;
    let name_part = which.filter().unwrap_or_default().into();
    let of = which.destination_text().map(topic_of).transpose()?;
    let ask = which.ask(Question::Bindings { name_part, of })?;
    let rows = api.client(&caller).await?.ask(ask).await?;
    Ok(page(rows, |row| match row {
        Row::Binding(row) => Some(row.into()),
        _ => None,
    }))
}
