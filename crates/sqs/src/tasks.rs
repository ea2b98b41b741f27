//! Message move tasks: kept with the queue that they empty.

use serde_json::{Value, json};

use crate::id::{arn, task_handle};

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It moves messages.
    Running,
    /// It is to stop.
    Cancelling,
    /// It has stopped.
    Cancelled,
    /// It has moved all messages.
    Completed,
    /// It has ended early.
    Failed,
}

impl TaskStatus {
    const ALL: [TaskStatus; 5] = [
        TaskStatus::Running,
        TaskStatus::Cancelling,
        TaskStatus::Cancelled,
        TaskStatus::Completed,
        TaskStatus::Failed,
    ];

    /// As the API names it.
    pub fn name(self) -> &'static str {
        match self {
            TaskStatus::Running => "RUNNING",
            TaskStatus::Cancelling => "CANCELLING",
            TaskStatus::Cancelled => "CANCELLED",
            TaskStatus::Completed => "COMPLETED",
            TaskStatus::Failed => "FAILED",
        }
    }
}

/// A task that moves messages out of a dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number among the tasks of the queue.
    pub number: u64,
    /// Its state.
    pub status: TaskStatus,
    /// Where messages go; `None` for the queues that they came from.
    pub destination: Option<String>,
    /// Messages that it moves in a second, at most.
    pub per_second: Option<u64>,
    /// Messages that it has moved.
    pub moved: u64,
    /// Messages that were there when it began.
    pub to_move: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// Why it failed.
    pub failure: Option<String>,
}

impl Task {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "number": self.number,
            "status": self.status.name(),
            "destination": self.destination,
            "per_second": self.per_second,
            "moved": self.moved,
            "to_move": self.to_move,
            "started_ms": self.started_ms,
            "failure": self.failure,
        })
    }

    pub(crate) fn of_json(value: &Value) -> Option<Task> {
        let status = value["status"].as_str()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        Some(Task {
            number: value["number"].as_u64()?,
            status: TaskStatus::ALL.into_iter().find(|known| known.name() == status)?,
            destination: text("destination"),
            per_second: value["per_second"].as_u64(),
            moved: value["moved"].as_u64()?,
            to_move: value["to_move"].as_u64()?,
            started_ms: value["started_ms"].as_u64()?,
            failure: text("failure"),
        })
    }

    /// As clients see it.
    pub fn to_answer(&self, source: &str) -> Value {
        let mut answer = json!({
            "Status": self.status.name(),
            "SourceArn": arn(source),
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "StartedTimestamp": self.started_ms,
        });
        if self.status == TaskStatus::Running {
            answer["TaskHandle"] = json!(task_handle(source, self.number));
        }
        if let Some(destination) = &self.destination {
            answer["DestinationArn"] = json!(arn(destination));
        }
        if let Some(per_second) = self.per_second {
            answer["MaxNumberOfMessagesPerSecond"] = json!(per_second);
        }
        if let Some(failure) = &self.failure {
            answer["FailureReason"] = json!(failure);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_come_back_as_they_were_kept() {
        for status in TaskStatus::ALL {
            let task = Task {
                number: 3,
                status,
                destination: Some("d".to_owned()),
                per_second: Some(5),
                moved: 1,
                to_move: 2,
                started_ms: 9,
                failure: None,
            };
            assert_eq!(Task::of_json(&task.to_json()), Some(task.clone()));
            let answer = task.to_answer("s");
            assert_eq!(answer.get("TaskHandle").is_some(), status == TaskStatus::Running);
            assert_eq!(answer["DestinationArn"], arn("d"));
        }
        assert_eq!(Task::of_json(&json!({})), None);
    }
}
