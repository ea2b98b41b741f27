//! Where a traced message spent its time.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Action, Destination, rfc3339};
use postroad_trace::{Report, Stage as StageOf};
use serde::Serialize;

use super::problem::Problem;
use super::{Api, Caller};

#[derive(Debug, Serialize)]
pub struct Trace {
    id: String,
    /// 32 hexadecimal digits.
    trace_id: String,
    /// The sender's span, 16 hexadecimal digits.
    parent_span_id: Option<String>,
    destination: String,
    bytes: u64,
    received_at: String,
    /// From the read until it was gone, or until now.
    micros: u64,
    /// No queue has it any more.
    is_gone: bool,
    /// The name of the longest stage.
    longest: Option<&'static str>,
    stages: Vec<Stage>,
    /// Reasons why stages are missing.
    gaps: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Stage {
    stage: &'static str,
    queue: Option<String>,
    connection: Option<String>,
    consumer: Option<u32>,
    offset_micros: u64,
    micros: u64,
    /// It goes on.
    is_open: bool,
    is_longest: bool,
    note: String,
}

pub async fn of_message(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Trace>, Problem> {
    let Some(traces) = &api.0.options.traces else {
        let text = "messages are not traced: set enabled = true in [runtime.tracing] and restart the broker";
        return Err(Problem::new(404, text.to_owned()));
    };
    let by_entry = || traces.report_of_entry((api.0.options.entry_of)(&id)?);
    let Some(mut report) = traces.report(&id).or_else(by_entry) else {
        let text = format!(
            "there is no trace of {id}: only messages with a sampled traceparent and the share \
             sample of the others are traced, and the last kept_messages are kept"
        );
        return Err(Problem::new(404, text));
    };
    let grants = api.permissions().grants_of(&caller.principal);
    let may_see = |destination: &Destination| {
        grants.permit(Action::Manage, destination) || grants.permit(Action::Read, destination)
    };
    if !may_see(&report.destination) {
        let text = format!("no permission to manage or read {}", report.destination);
        return Err(Problem::new(403, text));
    }
    // A route may have copied it to queues of another tenant.
    if report.message_id.is_empty() {
        report.message_id = id.into();
    }
    report.stages.iter_mut().for_each(|stage| stage.queue = stage.queue.take().filter(may_see));
    Ok(Json(Trace::of(report)))
}

impl Trace {
    fn of(report: Report) -> Trace {
        let Report { stages, longest, .. } = report;
        let rows = stages.iter().enumerate().map(|(place, stage)| Stage::of(stage, longest == Some(place)));
        Trace {
            id: report.message_id.into(),
            trace_id: format!("{:032x}", report.trace_id),
            parent_span_id: report.parent_id.map(|parent| format!("{parent:016x}")),
            destination: report.destination.to_string(),
            bytes: report.bytes,
            received_at: rfc3339(report.read_wall_us / 1000),
            micros: report.micros,
            is_gone: report.is_gone,
            longest: longest.and_then(|place| stages.get(place)).map(|stage| stage.kind.name()),
            stages: rows.collect(),
            gaps: report.gaps,
        }
    }
}

impl Stage {
    fn of(stage: &StageOf, is_longest: bool) -> Stage {
        Stage {
            stage: stage.kind.name(),
            queue: stage.queue.as_ref().map(ToString::to_string),
            connection: stage.consumer.map(|key| super::lists::connection_text(key.connection)),
            consumer: stage.consumer.map(|key| key.number),
            offset_micros: stage.offset_us,
            micros: stage.micros,
            is_open: stage.is_open,
            is_longest,
            note: stage.note.clone(),
        }
    }
}
