//! The record of redrives: where messages went to, so that a redrive can be undone.
//!
//! It is a text beside those of users and tokens, so a cluster replicates it. The messages have
//! the number of their redrive themselves; the record says in which queues to look for them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use postroad_model::{RedriveCounts, RedriveId};
use postroad_security::Text;
use serde::{Deserialize, Serialize};

use super::super::problem::Problem;
use super::super::tokens::writing;

/// Redrives that are kept: older ones cannot be undone.
pub const RECORDS_MAX: usize = 100;

/// The whole record is not longer: the oldest go first. A document of a cluster may be twice that.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// A longer selector is kept by its beginning.
const SELECTOR_BYTES_MAX: usize = 1024;

/// The format that this build writes and reads.
const FORMAT: u32 = 1;

/// One redrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: u64,
    pub at_ms: u64,
    pub user: Option<String>,
    pub from: String,
    /// A queue that all messages went to, if one was named.
    pub to: Option<String>,
    /// Only dead letters of this queue.
    pub origin: Option<String>,
    pub selector: String,
    pub state: State,
    pub moved: u64,
    pub targets: Vec<Target>,
    /// Messages that an undo has moved back.
    pub undone: u64,
}

/// Messages that went to one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub destination: String,
    pub messages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has begun, and has not ended yet.
    Running,
    /// It began, and its request or its broker ended first: where messages went to is not known.
    Interrupted,
    Done,
    /// A part was moved, and then the broker refused.
    Failed,
}

#[derive(Serialize, Deserialize)]
struct Whole {
    format: u32,
    redrives: Vec<Record>,
}

/// See the head of this file.
pub struct RedriveBook {
    text: Text,
    /// One change at a time.
    writing: tokio::sync::Mutex<()>,
    /// Those whose requests are under way in this process.
    running: Arc<Mutex<BTreeSet<u64>>>,
}

/// A redrive whose request is under way, until this is dropped.
pub struct UnderWay {
    id: u64,
    running: Arc<Mutex<BTreeSet<u64>>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl RedriveBook {
    pub fn new(text: Text) -> RedriveBook {
        RedriveBook { text, writing: tokio::sync::Mutex::default(), running: Arc::default() }
    }

    /// All redrives, the oldest first.
    pub async fn all(&self) -> Result<Vec<Record>, Problem> {
        let text = self.text.clone();
        let text = writing(move || text.read()).await?;
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = parse(&text.unwrap_or_default())?;
        for record in &mut all {
            if record.state == State::Running && !running.contains(&record.id) {
                record.state = State::Interrupted;
            }
        }
        Ok(all)
    }

    /// The redrive of this number.
    pub async fn one(&self, id: u64) -> Result<Record, Problem> {
        let all = self.all().await?;
        all.into_iter().find(|record| record.id == id).ok_or_else(|| unknown(id))
    }

    /// A redrive begins; durable before it moves the first message. Its number is made here.
    pub async fn begin(&self, record: Record) -> Result<UnderWay, Problem> {
        let _writing = self.writing.lock().await;
        let mut all = self.all().await?;
        // The clock may have been set back.
        let id = all.last().map_or(0, |last| last.id + 1).max(record.at_ms);
        all.push(Record { id, ..record });
        self.begun(all, id).await
    }

    /// A redrive goes on, with a further request.
    pub async fn go_on(&self, id: u64, from: &str) -> Result<UnderWay, Problem> {
        let _writing = self.writing.lock().await;
        let mut all = self.all().await?;
        let record = all.iter_mut().find(|record| record.id == id).ok_or_else(|| unknown(id))?;
        if record.from != from {
            return Err(Problem::new(409, format!("the redrive {id} is of {}", record.from)));
        }
        if record.state == State::Running {
            return Err(Problem::new(409, format!("the redrive {id} is under way")));
        }
        record.state = State::Running;
        self.begun(all, id).await
    }

    /// The request of a redrive has ended.
    pub async fn end(&self, id: RedriveId, counts: &RedriveCounts, state: State) -> Result<(), Problem> {
        let _writing = self.writing.lock().await;
        let mut all = self.all().await?;
        if let Some(record) = all.iter_mut().find(|record| record.id == id.0) {
            record.add(counts, state);
        }
        self.write(all).await
    }

    /// An undo has moved this number of messages.
    pub async fn undone(&self, id: u64, messages: u64) -> Result<(), Problem> {
        let _writing = self.writing.lock().await;
        let mut all = self.all().await?;
        if let Some(record) = all.iter_mut().find(|record| record.id == id) {
            record.undone += messages;
        }
        self.write(all).await
    }

    /// The request of this redrive is under way, as the record says.
    async fn begun(&self, all: Vec<Record>, id: u64) -> Result<UnderWay, Problem> {
        self.write(all).await?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Ok(UnderWay { id, running: self.running.clone() })
    }

    async fn write(&self, all: Vec<Record>) -> Result<(), Problem> {
        let text = self.text.clone();
        writing(move || text.replace(&written(all))).await
    }
}

impl UnderWay {
    pub fn id(&self) -> RedriveId {
        RedriveId(self.id)
    }
}

impl Record {
    pub fn new(from: String, at_ms: u64, user: Option<String>, selector: &str) -> Record {
        let end = selector.floor_char_boundary(SELECTOR_BYTES_MAX);
        Record {
            id: 0,
            at_ms,
            user,
            from,
            to: None,
            origin: None,
            selector: selector[..end].to_owned(),
            state: State::Running,
            moved: 0,
            targets: Vec::new(),
            undone: 0,
        }
    }

    fn add(&mut self, counts: &RedriveCounts, state: State) {
        self.state = state;
        self.moved += counts.moved;
        for (to, messages) in &counts.targets {
            let destination = to.to_string();
            match self.targets.iter_mut().find(|target| target.destination == destination) {
                Some(target) => target.messages += messages,
                None => self.targets.push(Target { destination, messages: *messages }),
            }
        }
    }
}

fn unknown(id: u64) -> Problem {
    let right = format!("the last {RECORDS_MAX} are kept, and GET /api/v1/redrives lists them");
    Problem::new(404, format!("there is no redrive {id}: {right}"))
}

fn parse(text: &str) -> Result<Vec<Record>, Problem> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let wrong =
        |reason: String| Problem::new(500, format!("the record of redrives cannot be read: {reason}"));
    let whole: Whole = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    match whole.format {
        FORMAT => Ok(whole.redrives),
        other => Err(wrong(format!("its format is {other}, and this build reads {FORMAT}"))),
    }
}

/// The text of the newest records, as many as there is room for.
fn written(mut redrives: Vec<Record>) -> String {
    redrives.drain(..redrives.len().saturating_sub(RECORDS_MAX));
    loop {
        let whole = Whole { format: FORMAT, redrives };
        let text = serde_json::to_string(&whole).unwrap_or_default();
        redrives = whole.redrives;
        if text.len() <= TEXT_BYTES_MAX || redrives.is_empty() {
            return text + "\n";
        }
        redrives.drain(..redrives.len().div_ceil(4));
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::*;

    fn book() -> (tempfile::TempDir, RedriveBook) {
        let folder = tempfile::tempdir().unwrap();
        let text = Text::of_file(&folder.path().join("redrives"));
        (folder, RedriveBook::new(text))
    }

    fn record(at_ms: u64) -> Record {
        Record::new("queue://dead".to_owned(), at_ms, Some("ann".to_owned()), "")
    }

    fn counts(moved: u64, to: &[(&str, u64)]) -> RedriveCounts {
        let targets = to.iter().map(|(name, messages)| (Destination::queue(name), *messages)).collect();
        RedriveCounts { moved, targets, ..RedriveCounts::default() }
    }

    #[tokio::test]
    async fn a_redrive_is_recorded_before_and_after() {
        let (_folder, book) = book();
        let under_way = book.begin(record(5)).await.unwrap();
        let id = under_way.id();
        assert_eq!(book.one(id.0).await.unwrap().state, State::Running);
        assert_eq!(book.go_on(id.0, "queue://dead").await.err().unwrap().status, 409, "it is under way");
        book.end(id, &counts(3, &[("a", 1), ("b", 2)]), State::Done).await.unwrap();
        drop(under_way);
        let under_way = book.go_on(id.0, "queue://dead").await.unwrap();
        assert_eq!(book.go_on(id.0, "queue://other").await.err().unwrap().status, 409);
        drop(under_way);
        assert_eq!(book.one(id.0).await.unwrap().state, State::Interrupted, "its request was dropped");
        book.end(id, &counts(2, &[("b", 1), ("c", 1)]), State::Failed).await.unwrap();
        book.undone(id.0, 4).await.unwrap();
        let found = book.one(id.0).await.unwrap();
        let to: Vec<_> = found.targets.iter().map(|to| (&*to.destination, to.messages)).collect();
        assert_eq!(to, [("queue://a", 1), ("queue://b", 3), ("queue://c", 1)]);
        assert_eq!((found.moved, found.undone, found.state), (5, 4, State::Failed));
        assert_eq!(book.one(6).await.unwrap_err().status, 404);
    }

    #[tokio::test]
    async fn the_newest_are_kept_and_numbers_rise_whatever_the_clock_says() {
        let (_folder, book) = book();
        for at_ms in [1000, 500, 1000] {
            drop(book.begin(record(at_ms)).await.unwrap());
        }
        let ids = |all: Vec<Record>| all.iter().map(|record| record.id).collect::<Vec<_>>();
        assert_eq!(ids(book.all().await.unwrap()), [1000, 1001, 1002]);
        for _ in 0..RECORDS_MAX {
            drop(book.begin(record(1)).await.unwrap());
        }
        let ids = ids(book.all().await.unwrap());
        assert_eq!((ids.len(), ids[0]), (RECORDS_MAX, 1003));
    }

    #[test]
    fn the_record_has_a_size_at_most_and_a_format() {
        let target = |number: u64| Target { destination: format!("{number:0>1000}"), messages: 1 };
        let large = |id: u64| Record { id, targets: (0..256).map(target).collect(), ..record(id) };
        let text = written((0..100).map(large).collect());
        let kept = parse(&text).unwrap();
        assert!(text.len() <= TEXT_BYTES_MAX + 1 && kept.len() > 10, "{} of {}", text.len(), kept.len());
        assert_eq!(kept.last().map(|record| record.id), Some(99));
        for text in ["{", r#"{"format":2,"redrives":[]}"#] {
            assert_eq!(parse(text).unwrap_err().status, 500, "{text}");
        }
    }
}
