//! Scheduled messages: a list, one of them, and its end by an operator.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::{
    Ask, Event, JobsWanted, Order, Question, Row, RowKey, ScheduleId, ScheduleRecord, ScheduleRow,
};
use postroad_node::Client;
use serde::{Deserialize, Serialize};

use super::lists::{List, page_where, query, read_cursor, write_cursor};
use super::problem::Problem;
use super::shown::Shown;
use super::{Api, Caller};

/// Bytes of a body that are shown.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Which page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhichSchedules {
    /// Only messages to destinations that have this in their name.
    filter: Option<String>,
    /// Only those that their clients know by this name.
    job: Option<String>,
    /// Only those that are due at or after this time, in milliseconds since 1970.
    from_ms: Option<u64>,
    /// Only those that are due before this time.
    to_ms: Option<u64>,
    /// `due`: there is no other order.
    sort: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Schedule {
    id: String,
    due_ms: u64,
    /// Its client's name for it; `None` if its record cannot be read.
    job: Option<String>,
    destinations: Vec<String>,
    /// The route that sends a copy again which its target refused.
    route: Option<String>,
    bytes: Option<u64>,
    /// Between two of its messages.
    period_ms: Option<u64>,
    /// How many more messages come; `None` for one, or for no end.
    times: Option<u32>,
    /// It repeats each time that this expression matches.
    cron: Option<String>,
}

/// One, with its message.
#[derive(Debug, Serialize)]
pub struct Whole {
    #[serde(flatten)]
    schedule: Schedule,
    message: Option<Shown>,
}

impl From<&ScheduleRow> for Schedule {
    fn from(row: &ScheduleRow) -> Schedule {
        let (record, again) = (row.record.as_ref(), row.again.as_ref());
        let destinations = record.into_iter().flat_map(|record| &record.to);
        let period_ms = again.map(|again| again.period_ms).filter(|period_ms| 0 < *period_ms);
        Schedule {
            id: row.id.to_string(),
            due_ms: row.id.due.at_ms,
            job: record.map(|record| record.job.to_string()),
            destinations: destinations.map(ToString::to_string).collect(),
            route: record.and_then(|record| Some(record.route.as_ref()?.to_string())),
            bytes: record.map(|_| row.bytes),
            period_ms,
            times: again.and_then(|again| again.times),
            cron: again.and_then(|again| Some(again.cron.as_ref()?.to_string())),
        }
    }
}

impl WhichSchedules {
    fn ask(&self) -> Result<Ask, Problem> {
        if let Some(sort) = self.sort.as_deref().filter(|sort| *sort != "due") {
            return Err(Problem::new(400, format!("sort is {sort:?}; due is right")));
        }
        let rows = self.limit.unwrap_or(Ask::SCHEDULES_MAX);
        if !(1..=Ask::ROWS_MAX).contains(&rows) {
            return Err(Problem::new(400, format!("limit is {rows}; use 1 to {}", Ask::ROWS_MAX)));
        }
        let after = self.cursor.as_deref().map(read_cursor).transpose()?;
        if after.as_ref().is_some_and(|after: &RowKey| ScheduleId::of_key(after).is_none()) {
            return Err(Problem::new(400, "cursor is not the \"next\" of an earlier page".to_owned()));
        }
        let due_ms = self.from_ms.unwrap_or(0)..=self.to_ms.map_or(u64::MAX, |to| to.saturating_sub(1));
        let job = self.job.as_deref().map(Into::into);
        let question = Question::Schedules(JobsWanted { job, due_ms, only: None });
        Ok(Ask { question, after, rows, order: Order::default() })
    }

    fn shows(&self, row: &ScheduleRow) -> bool {
        let Some(part) = self.filter.as_deref() else { return true };
        row.record.as_ref().is_some_and(|record| record.to.iter().any(|to| to.name.contains(part)))
    }
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<WhichSchedules>, QueryRejection>,
) -> Result<Json<List<Schedule>>, Problem> {
    let which = query(which)?;
    let (ask, client) = (which.ask()?, api.client(&caller).await?);
    let page = match which.filter {
        None => client.ask(ask).await?,
        Some(_) => {
            let is_shown = |row: &Row| matches!(row, Row::Schedule(row) if which.shows(row));
            page_where(&client, ask, is_shown).await?
        }
    };
    let items = page.rows.iter().filter_map(|row| match row {
        Row::Schedule(row) => Some(Schedule::from(&**row)),
        _ => None,
    });
    Ok(Json(List { items: items.collect(), next: page.next.as_ref().map(write_cursor), total: page.total }))
}

pub async fn one(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Whole>, Problem> {
    let row = existing(&api.client(&caller).await?, &id).await?;
    let schedule = Schedule::from(&row);
    let shown = row.record.and_then(|record| {
        let ScheduleRecord { to, message, .. } = record;
        Some(Shown::of_message(&message?, to.first(), 0, BODY_BYTES_MAX))
    });
    Ok(Json(Whole { schedule, message: shown }))
}

pub async fn end(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let client = api.client(&caller).await?;
    let only = Some(existing(&client, &id).await?.id);
    let wanted = JobsWanted { only, ..JobsWanted::all() };
    let make = |connection, ticket| Event::EndJobs { wanted, connection, ticket };
    client.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}

async fn existing(client: &Client, text: &str) -> Result<ScheduleRow, Problem> {
    let id: ScheduleId = text.parse().map_err(|error| Problem::new(400, format!("{text:?} is {error}")))?;
    let question = Question::Schedules(JobsWanted { only: Some(id), ..JobsWanted::all() });
    let ask = Ask { question, after: None, rows: 1, order: Order::default() };
    let rows = client.ask(ask).await?.rows;
    let found = rows.into_iter().find_map(|row| match row {
        Row::Schedule(row) => Some(*row),
        _ => None,
    });
    let none = || format!("there is no scheduled message {id}; GET /api/v1/schedules lists all");
    found.ok_or_else(|| Problem::new(404, none()))
}
