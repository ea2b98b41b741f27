//! Redrives that were made, and their undo.

mod book;

use axum::body::Bytes;
use axum::extract::{Path, Query, State as Of};
use axum::{Extension, Json};
use postroad_model::{
    Action, Ask, Destination, Event, Order, Question, Redrive, RedriveCounts, RedriveId, RedriveWay, Refusal,
    Row, RowKey, ToSession,
};
use postroad_node::{Answer, Client};
use serde::{Deserialize, Serialize};

pub use book::{Record, RedriveBook, State};

use super::audit::Detail;
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::{Api, Caller, destination_of, queue_of};

/// Queues that are searched for the messages of an interrupted redrive, at most.
const SEARCHED_QUEUES_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Only count the messages that would be moved.
    #[serde(default)]
    dry_run: bool,
}

/// The result of an undo.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    redrive: u64,
    /// Messages that are among the dead letters again; of a dry run those that would be.
    moved: u64,
    /// Messages that a consumer, a lease or a transaction has: they stay.
    in_flight: u64,
    /// Messages that could not be processed again, and are dead letters already.
    dead_again: u64,
    /// Messages that are in none of the queues: consumed, expired or moved elsewhere. `None` where
    /// it is not known how many the redrive had moved.
    gone: Option<u64>,
    /// The same by queue.
    queues: Vec<UndoneQueue>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct UndoneQueue {
    destination: String,
    moved: u64,
    in_flight: u64,
}

/// The newest first, of the dead-letter queues that the caller manages.
pub async fn list(
    Of(api): Of<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Record>>, Problem> {
    let which = query(which)?;
    let from = which.destination()?;
    let mut rows = api.0.redrives.all().await?;
    let is_of = |row: &Record| from.as_ref().is_none_or(|from| row.from == from.to_string());
    rows.retain(|row| is_of(row) && manages(&api, &caller, row).is_ok());
    let key =
        |row: &Record| RowKey { rank: u64::MAX - row.id, name: row.from.as_str().into(), detail: "".into() };
    which.page_of(rows, key).map(Json)
}

pub async fn one(
    Of(api): Of<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Record>, Problem> {
    let record = api.0.redrives.one(number(&id)?).await?;
    manages(&api, &caller, &record)?;
    Ok(Json(record))
}

fn number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| Problem::new(400, format!("{id:?} is not the number of a redrive")))
}

pub async fn undo(
    Of(api): Of<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<(Extension<Detail>, Json<Undone>), Problem> {
    let Wanted { dry_run } = if body.is_empty() { Wanted::default() } else { read_json(&body)? };
    let id = number(&id)?;
    let record = api.0.redrives.one(id).await?;
    let from = manages(&api, &caller, &record)?;
    if record.state == State::Running {
        return Err(Problem::new(409, format!("the redrive {id} is under way: undo it once it has ended")));
    }
    let client = api.client(&caller).await?;
    let way = if dry_run { RedriveWay::Count(RedriveId(id)) } else { RedriveWay::Undo(RedriveId(id)) };
    let (mut undone, mut failed) = (Undone { redrive: id, ..Undone::default() }, None);
    for queue in targets(&client, &record).await? {
        let (counts, result) = ask(&client, queue.clone(), way).await?;
        undone.add(&queue, &counts);
        if let Err(refusal) = result {
            failed = Some(refusal);
            break;
        }
    }
    if !dry_run && 0 < undone.moved {
        api.0.redrives.undone(id, undone.moved).await?;
    }
    if let Some(refusal) = failed {
        let Problem { status, message, .. } = refusal.into();
        return Err(Problem::new(status, format!("{message} ({} were moved before)", undone.moved)));
    }
    undone.dead_again = ask(&client, from, RedriveWay::Count(RedriveId(id))).await?.0.moved;
    undone.gone = undone.gone_of(&record);
    let verb = if dry_run { "would be moved" } else { "moved" };
    let Undone { moved, in_flight, dead_again, .. } = &undone;
    let detail = format!(
        "redrive {id}: {moved} of {} {verb} to {}, {in_flight} in flight, {dead_again} dead letters again",
        record.moved, record.from
    );
    Ok((Extension(Detail(detail)), Json(undone)))
}

impl Undone {
    fn add(&mut self, queue: &Destination, counts: &RedriveCounts) {
        self.moved += counts.moved;
        self.in_flight += counts.held;
        if 0 < counts.moved + counts.held {
            let (destination, moved, in_flight) = (queue.to_string(), counts.moved, counts.held);
            self.queues.push(UndoneQueue { destination, moved, in_flight });
        }
    }

    fn gone_of(&self, record: &Record) -> Option<u64> {
        let there = record.undone + self.moved + self.in_flight + self.dead_again;
        (record.state != State::Interrupted).then(|| record.moved.saturating_sub(there))
    }
}

/// The dead-letter queue of a redrive, if the caller may manage it.
fn manages(api: &Api, caller: &Caller, record: &Record) -> Result<Destination, Problem> {
    let from = destination_of(&record.from)?;
    api.permissions().grants_of(&caller.principal).check(&caller.principal, Action::Manage, &from)?;
    Ok(from)
}

/// The queues that its messages may be in.
async fn targets(client: &Client, record: &Record) -> Result<Vec<Destination>, Problem> {
    if record.state != State::Interrupted {
        return record.targets.iter().map(|target| queue_of(&target.destination)).collect();
    }
    if let Some(only) = record.to.as_ref().or(record.origin.as_ref()) {
        return Ok(vec![queue_of(only)?]);
    }
    let (mut found, mut after) = (Vec::new(), None);
    let question = Question::Queues { name_part: "".into(), only: None };
    loop {
        let ask = Ask { question: question.clone(), after, rows: Ask::ROWS_MAX, order: Order::default() };
        let page = client.ask(ask).await?;
        found.extend(page.rows.into_iter().filter_map(|row| match row {
            Row::Queue(row) if row.subscription.is_none() && !row.destination.temporary => {
                Some(row.destination)
            }
            _ => None,
        }));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
        if SEARCHED_QUEUES_MAX < found.len() {
            let id = record.id;
            let reason = format!("the redrive {id} was interrupted, and there are more than");
            return Err(Problem::new(409, format!("{reason} {SEARCHED_QUEUES_MAX} queues to search")));
        }
    }
}

/// Moves or counts messages; the counts are good even with a refusal.
async fn ask(
    client: &Client,
    from: Destination,
    way: RedriveWay,
) -> Result<(RedriveCounts, Result<(), Refusal>), Problem> {
    let (to, origin, selector, messages_max) = (None, None, "".into(), u64::MAX);
    let wanted = Box::new(Redrive { from, to, origin, selector, messages_max, way, by: None });
    redriven(client, wanted).await
}

/// Carries out a redrive, whichever way.
pub async fn redriven(
    client: &Client,
    wanted: Box<Redrive>,
) -> Result<(RedriveCounts, Result<(), Refusal>), Problem> {
    let make = |connection, ticket| Event::Redrive { wanted, connection, ticket };
    let Answer { result, collected } = client.request(make).await?;
    let counts = collected.into_iter().find_map(|message| match message {
        ToSession::Redriven { counts, .. } => Some(*counts),
        _ => None,
    });
    Ok((counts.unwrap_or_default(), result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_nowhere_are_gone_and_unknown_numbers_are_not_guessed() {
        let record = |state, moved, undone| Record {
            state,
            moved,
            undone,
            ..Record::new("queue://dead".to_owned(), 1, None, "")
        };
        let undone = Undone { moved: 3, in_flight: 2, dead_again: 1, ..Undone::default() };
        for (case, record, want) in [
            ("all are found", record(State::Done, 6, 0), Some(0)),
            ("two are gone", record(State::Done, 8, 0), Some(2)),
            ("two were undone before", record(State::Failed, 8, 2), Some(0)),
            ("more than there were", record(State::Done, 1, 0), Some(0)),
            ("not known", record(State::Interrupted, 0, 0), None),
        ] {
            assert_eq!(undone.gone_of(&record), want, "case: {case}");
        }
    }
}
