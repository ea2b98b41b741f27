//! Sessions and producers of clients.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use postroad_model::{ProducerRow, Question, Row, SessionRow};
use serde::Serialize;

use super::lists::{List, Which, connection_text, list as page, query};
use super::problem::Problem;
use super::{Api, Caller};

#[derive(Debug, Serialize)]
pub struct Session {
    /// Its connection and its own number, as the client has them.
    session: String,
    connection: String,
    consumers: u64,
    producers: u64,
    credit: u64,
    held: u64,
}

#[derive(Debug, Serialize)]
pub struct Producer {
    name: String,
    connection: String,
    destination: String,
    window_bytes: u32,
}

impl From<SessionRow> for Session {
    fn from(row: SessionRow) -> Session {
        let SessionRow { connection, name, consumers, producers, credit, held } = row;
        let (session, connection) = (name.to_string(), connection_text(connection));
        Session { session, connection, consumers, producers, credit, held }
    }
}

impl From<ProducerRow> for Producer {
    fn from(row: ProducerRow) -> Producer {
        Producer {
            name: row.name.to_string(),
            connection: connection_text(row.connection),
            destination: row.destination.to_string(),
            window_bytes: row.window_bytes,
        }
    }
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Session>>, Problem> {
    let which = query(which)?;
    let name_part = which.filter().unwrap_or_default().into();
    let ask = which.ask(Question::Sessions { name_part })?;
    let rows = api.client(&caller).await?.ask(ask).await?;
    Ok(page(rows, |row| match row {
        Row::Session(row) => Some(row.into()),
        _ => None,
    }))
}

pub async fn producers(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Producer>>, Problem> {
    let which = query(which)?;
    let (name_part, of) = (which.filter().unwrap_or_default().into(), which.destination()?);
    let ask = which.ask(Question::Producers { name_part, of })?;
    let rows = api.client(&caller).await?.ask(ask).await?;
    Ok(page(rows, |row| match row {
        Row::Producer(row) => Some(row.into()),
        _ => None,
    }))
}
