//! Lists: queues, connections, consumers; filtered, in the order of their names, page by page.

use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use data_encoding::BASE64URL_NOPAD;
use postroad_model::{
    Action, Ask, ConnectionRow, ConsumerMode, ConsumerRow, Destination, Order, Page, Principal, Question,
    QueueRow, Row, RowKey, SortBy, Subscription,
};
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::{Api, Caller, destination_of, queue_of};
use crate::figures::BridgeFigures;

/// Rows of a page, if nothing else is asked for.
const ROWS: u32 = 100;

/// Pages of all queues that are searched for those of one user, in one request.
const SCANNED_PAGES_MAX: usize = 100;

/// Which page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Only names that have this in them.
    filter: Option<String>,
    /// Only consumers of this destination.
    destination: Option<String>,
    /// Rows to a page.
    limit: Option<u32>,
    /// The order of the rows: `name`, or a figure of the rows; the highest first with `-` before
    /// it.
    sort: Option<String>,
    /// Where the page before this one ended.
    cursor: Option<String>,
}

/// A page.
#[derive(Debug, Serialize)]
pub struct List<T> {
    pub items: Vec<T>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
    /// Rows of all pages.
    pub total: u64,
}

#[derive(Debug, Serialize)]
pub struct Queue {
    name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    pub messages: u64,
    pub bytes: u64,
    pub in_flight: u64,
    pub consumers: u64,
    pub enqueued: u64,
    pub consumed: u64,
    pub expired: u64,
    dead_lettered: u64,
    dropped: u64,
    moved: u64,
    /// 0, unless counts and content differ.
    difference: i64,
    is_moving: bool,
    /// An operator has paused it.
    is_paused: bool,
    /// Of a durable subscription that a link has made for subscribers of its peer: the peer.
    pub link_peer: Option<String>,
    /// `linked`, `down`, or `none`: no link to that peer is configured, or has been there since the
    /// start, or this broker had another name when it was made.
    pub link_state: Option<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct Connection {
    connection: String,
    name: String,
    client_id: String,
    user: Option<String>,
    consumers: u64,
    transactions: u64,
    unwritten_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Consumer {
    connection: String,
    consumer: u32,
    name: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    mode: &'static str,
    selector: String,
    priority: i8,
    credit: u32,
    held: u64,
}

impl From<QueueRow> for Queue {
    fn from(row: QueueRow) -> Queue {
        let kind = match (&row.subscription, row.destination.temporary) {
            (Some(_), _) => "subscription",
            (None, true) => "temporary queue",
            (None, false) => "queue",
        };
        Queue {
            name: row.destination.name.to_string(),
            kind,
            subscription: row.subscription.map(|name| name.to_string()),
            messages: row.messages,
            bytes: row.bytes,
            in_flight: row.in_flight,
            consumers: row.consumers,
            enqueued: row.enqueued,
            consumed: row.consumed,
            expired: row.expired,
            dead_lettered: row.dead_lettered,
            dropped: row.dropped,
            moved: row.moved,
            difference: row.difference,
            is_moving: row.is_moving,
            is_paused: row.is_paused,
            link_peer: None,
            link_state: None,
        }
    }
}

impl Queue {
    /// A row, with the link that has made it if it is a durable subscription of one.
    pub fn with_link(row: QueueRow, broker_name: &str, links: &[BridgeFigures]) -> Queue {
        let link = row.subscription.as_deref().and_then(Subscription::link_of);
        let link = link.map(|(peer, here)| {
            let is_its = |link: &&BridgeFigures| [&link.peer_id, &link.peer].contains(&&peer.to_owned());
            let its: Vec<&BridgeFigures> = match here == broker_name {
                true => links.iter().filter(is_its).collect(),
                false => Vec::new(),
            };
            let name = its.iter().map(|link| link.peer.as_str()).find(|name| !name.is_empty());
            let state = match its.iter().any(|link| link.state == "linked") {
                true => "linked",
                false if its.is_empty() => "none",
                false => "down",
            };
            (name.unwrap_or(peer).to_owned(), state)
        });
        let (link_peer, link_state) = link.unzip();
        Queue { link_peer, link_state, ..row.into() }
    }
}

impl From<ConnectionRow> for Connection {
    fn from(row: ConnectionRow) -> Connection {
        Connection {
            connection: connection_text(row.connection),
            name: row.name.to_string(),
            client_id: row.client_id.to_string(),
            user: row.user.map(|user| user.to_string()),
            consumers: row.consumers,
            transactions: row.transactions,
            unwritten_bytes: row.unwritten_bytes,
        }
    }
}

impl From<ConsumerRow> for Consumer {
    fn from(row: ConsumerRow) -> Consumer {
        Consumer {
            connection: connection_text(row.consumer.connection),
            consumer: row.consumer.number,
            name: row.name.to_string(),
            destination: row.destination.to_string(),
            subscription: row.subscription.map(|name| name.to_string()),
            mode: match row.mode {
                ConsumerMode::Shared => "shared",
                ConsumerMode::Exclusive => "exclusive",
                ConsumerMode::Browse => "browser",
                ConsumerMode::Operator => "operator",
            },
            selector: row.selector.to_string(),
            priority: row.priority,
            credit: row.credit,
            held: row.held,
        }
    }
}

/// The core that serves it, and its number there.
pub fn connection_text(connection: postroad_model::ConnectionId) -> String {
    format!("{}-{}", connection.core(), connection.number())
}

impl Which {
    /// The rows of a list that is all there, after the cursor.
    pub fn page_of<T>(&self, rows: Vec<T>, key: impl Fn(&T) -> RowKey) -> Result<List<T>, Problem> {
        if let Some(sort) = &self.sort {
            order_of(sort, &[])?;
        }
        let (after, limit) = (self.after()?, self.rows()? as usize);
        let matches = |row: &T| self.filter.as_deref().is_none_or(|part| key(row).name.contains(part));
        let mut items: Vec<T> = rows.into_iter().filter(matches).collect();
        let total = items.len() as u64;
        items.retain(|row| after.as_ref().is_none_or(|after| *after < key(row)));
        items.sort_by_key(&key);
        let goes_on = limit < items.len();
        items.truncate(limit);
        let next = items.last().filter(|_| goes_on).map(|last| write_cursor(&key(last)));
        Ok(List { items, next, total })
    }

    fn after(&self) -> Result<Option<RowKey>, Problem> {
        self.cursor.as_deref().map(read_cursor).transpose()
    }

    fn rows(&self) -> Result<u32, Problem> {
        let rows = self.limit.unwrap_or(ROWS);
        if !(1..=Ask::ROWS_MAX).contains(&rows) {
            return Err(Problem::new(400, format!("limit is {rows}; use 1 to {}", Ask::ROWS_MAX)));
        }
        Ok(rows)
    }

    /// Only those of the destination with this name.
    pub fn destination_text(&self) -> Option<&str> {
        self.destination.as_deref()
    }

    /// Only those of this destination.
    pub fn destination(&self) -> Result<Option<Destination>, Problem> {
        self.destination.as_deref().map(destination_of).transpose()
    }

    /// Only names that have this in them.
    pub fn filter(&self) -> Option<&str> {
        self.filter.as_deref()
    }

    pub fn ask(&self, question: Question) -> Result<Ask, Problem> {
        let columns = columns_of(&question);
        let order = self.sort.as_deref().map(|sort| order_of(sort, columns)).transpose()?.unwrap_or_default();
        Ok(Ask { question, after: self.after()?, rows: self.rows()?, order })
    }
}

/// Figures that a list can be ordered by.
fn columns_of(question: &Question) -> &'static [(&'static str, SortBy)] {
    match question {
        Question::Queues { .. } => &[
            ("messages", SortBy::Messages),
            ("bytes", SortBy::Bytes),
            ("in_flight", SortBy::InFlight),
            ("consumers", SortBy::Consumers),
            ("enqueued", SortBy::Enqueued),
            ("consumed", SortBy::Consumed),
            ("expired", SortBy::Expired),
            ("dead_lettered", SortBy::DeadLettered),
        ],
        Question::Connections => &[
            ("consumers", SortBy::Consumers),
            ("transactions", SortBy::Transactions),
            ("unwritten_bytes", SortBy::Bytes),
        ],
        Question::Consumers { .. } => &[("credit", SortBy::Credit), ("held", SortBy::Held)],
        Question::Sessions { .. } => {
            &[("consumers", SortBy::Consumers), ("credit", SortBy::Credit), ("held", SortBy::Held)]
        }
        Question::Producers { .. }
        | Question::Subscriptions { .. }
        | Question::Topics { .. }
        | Question::Bindings { .. }
        | Question::Schedules(_)
        | Question::Explain { .. } => &[],
    }
}

fn order_of(sort: &str, columns: &[(&str, SortBy)]) -> Result<Order, Problem> {
    let (name, descending) = sort.strip_prefix('-').map_or((sort, false), |name| (name, true));
    if sort == "name" {
        return Ok(Order::default());
    }
    let found = columns.iter().find(|(column, _)| *column == name);
    found.map(|(_, figure)| Order { by: Some(*figure), descending }).ok_or_else(|| {
        let names: Vec<&str> = columns.iter().map(|(column, _)| *column).collect();
        let right = match names[..] {
            [] => "name".to_owned(),
            _ => format!("name, or one of {} with or without a - ahead of it", names.join(", ")),
        };
        Problem::new(400, format!("sort is {sort:?}; right is {right}"))
    })
}

pub fn read_cursor(text: &str) -> Result<RowKey, Problem> {
    let read = || {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (rank, name, detail): (u64, String, String) = serde_json::from_slice(&bytes).ok()?;
        Some(RowKey { rank, name: name.into(), detail: detail.into() })
    };
    read().ok_or_else(|| Problem::new(400, "cursor is not the \"next\" of an earlier page".to_owned()))
}

pub fn write_cursor(key: &RowKey) -> String {
    let text = serde_json::to_vec(&(key.rank, &*key.name, &*key.detail)).unwrap_or_default();
    BASE64URL_NOPAD.encode(&text)
}

/// A page as the API answers it.
pub fn list<T>(page: Page, of: impl Fn(Row) -> Option<T>) -> Json<List<T>> {
    let Page { rows, next, total } = page;
    Json(List {
        items: rows.into_iter().filter_map(of).collect(),
        next: next.as_ref().map(write_cursor),
        total,
    })
}

pub async fn queues(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Queue>>, Problem> {
    let which = query(which)?;
    let name_part = which.filter.clone().unwrap_or_default().into();
    let ask = which.ask(Question::Queues { name_part, only: None })?;
    let page = match api.administers(&caller) {
        true => api.client(&caller).await?.ask(ask).await?,
        false => permitted(&api, &caller, ask).await?,
    };
    // Links belong to the operators of the broker.
    let links = api.administers(&caller).then(|| (api.0.options.bridges)());
    let broker_name = &api.0.options.broker_name;
    Ok(list(page, |row| match (row, &links) {
        (Row::Queue(row), Some(links)) => Some(Queue::with_link(row, broker_name, links)),
        (Row::Queue(row), None) => Some(row.into()),
        _ => None,
    }))
}

/// Queues that the caller may read or write.
async fn permitted(api: &Api, caller: &Caller, ask: Ask) -> Result<Page, Problem> {
    let grants = api.permissions().grants_of(&caller.principal);
    let is_shown = |row: &Row| match row {
        Row::Queue(row) => {
            [Action::Read, Action::Write].iter().any(|&action| grants.permit(action, &row.destination))
                && !row.destination.temporary
        }
        _ => false,
    };
    let client = api.client(&Caller { principal: Principal::Operator, ..Caller::anonymous() }).await?;
    page_where(&client, ask, is_shown).await
}

/// Those rows of a list that are shown. A page may be short while others follow, as few of many
/// rows may be shown; its total is its own.
pub async fn page_where(
    client: &postroad_node::Client,
    ask: Ask,
    is_shown: impl Fn(&Row) -> bool,
) -> Result<Page, Problem> {
    let (rows_max, mut after) = (ask.rows as usize, ask.after.clone());
    let mut shown = Page { rows: Vec::new(), next: None, total: 0 };
    for _ in 0..SCANNED_PAGES_MAX {
        let rows = (rows_max - shown.rows.len()) as u32;
        let page = client.ask(Ask { after: after.take(), rows, ..ask.clone() }).await?;
        shown.rows.extend(page.rows.into_iter().filter(&is_shown));
        shown.next = page.next;
        if shown.next.is_none() || rows_max <= shown.rows.len() {
            break;
        }
        after.clone_from(&shown.next);
    }
    shown.total = shown.rows.len() as u64;
    Ok(shown)
}

/// One queue; `None` if there is none of this name.
pub async fn find(client: &postroad_node::Client, queue: Destination) -> Result<Option<Queue>, Problem> {
    let question = Question::Queues { name_part: "".into(), only: Some(queue) };
    let page = client.ask(Ask { question, after: None, rows: 1, order: Order::default() }).await?;
    Ok(page.rows.into_iter().find_map(|row| match row {
        Row::Queue(row) => Some(row.into()),
        _ => None,
    }))
}

/// One queue.
pub async fn existing(client: &postroad_node::Client, queue: &Destination) -> Result<Queue, Problem> {
    let found = find(client, queue.clone()).await?;
    found.ok_or_else(|| Problem::new(404, format!("there is no {queue}; GET /api/v1/queues lists all")))
}

pub async fn queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Queue>, Problem> {
    let queue = queue_of(&name)?;
    let client = api.client(&caller).await?;
    Ok(Json(existing(&client, &queue).await?))
}

pub async fn connections(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Connection>>, Problem> {
    let ask = query(which)?.ask(Question::Connections)?;
    let page = api.client(&caller).await?.ask(ask).await?;
    Ok(list(page, |row| match row {
        Row::Connection(row) => Some(row.into()),
        _ => None,
    }))
}

pub async fn consumers(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Consumer>>, Problem> {
    let which = query(which)?;
    let of = which.destination()?;
    list_consumers(&api, &caller, &which, of).await
}

pub async fn consumers_of(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Consumer>>, Problem> {
    let queue = queue_of(&name)?;
    existing(&api.client(&caller).await?, &queue).await?;
    list_consumers(&api, &caller, &query(which)?, Some(queue)).await
}

async fn list_consumers(
    api: &Api,
    caller: &Caller,
    which: &Which,
    of: Option<Destination>,
) -> Result<Json<List<Consumer>>, Problem> {
    let ask = which.ask(Question::Consumers { of })?;
    let page = api.client(caller).await?.ask(ask).await?;
    Ok(list(page, |row| match row {
        Row::Consumer(row) => Some(row.into()),
        _ => None,
    }))
}

/// The parameters of a request, or their fault.
pub fn query<T>(read: Result<Query<T>, axum::extract::rejection::QueryRejection>) -> Result<T, Problem> {
    read.map(|Query(read)| read).map_err(|error| Problem::new(400, error.body_text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_others_are_refused() {
        let key = RowKey { rank: u64::MAX, name: "a/ä \u{1F600}".into(), detail: "s".into() };
        assert_eq!(read_cursor(&write_cursor(&key)), Ok(key));
        for text in ["", "!", "e30", "W10"] {
            assert_eq!(read_cursor(text).map_err(|problem| problem.status), Err(400), "{text}");
        }
    }
}
