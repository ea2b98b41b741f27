//! Dead letters go back to the queues that they came from.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Event, Redrive, ToSession};
use serde::{Deserialize, Serialize};

use super::lists::existing;
use super::messages::read_json;
use super::problem::Problem;
use super::{Api, Caller, queue_of};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// A queue to go to, instead of that where each was.
    to: Option<String>,
    /// Only messages that were in this queue.
    origin: Option<String>,
    /// Only messages that this condition selects.
    selector: Option<String>,
    /// Not more messages than this.
    max: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Redriven {
    /// Messages that went back.
    moved: u64,
    /// Messages that stayed: not asked for, or without a queue to go back to.
    stayed: u64,
}

pub async fn redrive(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Redriven>, Problem> {
    let from = queue_of(&name)?;
    let Wanted { to, origin, selector, max } = match body.is_empty() {
        true => Wanted::default(),
        false => read_json(&body)?,
    };
    let wanted = Box::new(Redrive {
        from: from.clone(),
        to: to.as_deref().map(queue_of).transpose()?,
        origin: origin.as_deref().map(queue_of).transpose()?,
        selector: selector.unwrap_or_default().into(),
        messages_max: max.unwrap_or(u64::MAX),
    });
    let client = api.client(&caller).await?;
    existing(&client, &from).await?;
    let make = |connection, ticket| Event::Redrive { wanted, connection, ticket };
    let answer = client.request(make).await?;
    let counts = answer.collected.iter().find_map(|message| match message {
        ToSession::Redriven { moved, stayed, .. } => Some((*moved, *stayed)),
        _ => None,
    });
    let (moved, stayed) = counts.unwrap_or_default();
    match answer.result {
        Ok(()) => Ok(Json(Redriven { moved, stayed })),
        Err(refusal) => {
            let Problem { status, message, .. } = refusal.into();
            Err(Problem::new(status, format!("{message} ({moved} went back before)")))
        }
    }
}
