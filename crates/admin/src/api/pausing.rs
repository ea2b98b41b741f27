//! Pause and resume a queue.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use postroad_model::Event;

use super::lists::existing;
use super::problem::Problem;
use super::{Api, Caller, queue_of};

pub async fn pause(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, &name, true).await
}

pub async fn resume(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    set(&api, &caller, &name, false).await
}

async fn set(api: &Api, caller: &Caller, name: &str, paused: bool) -> Result<StatusCode, Problem> {
    let queue = queue_of(name)?;
    let client = api.client(caller).await?;
    existing(&client, &queue).await?;
    let make = move |connection, ticket| Event::Pause { queue, paused, connection, ticket };
    client.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}
