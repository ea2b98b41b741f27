//! The configuration: the settings in force, plans, changes, and the versions that are kept.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use postroad_model::RowKey;
use serde::{Deserialize, Serialize};

use super::audit::{Detail, peer_text};
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::{Api, Caller, Peer};
use crate::configuration::{
    ConfigurationAnswer, ConfigurationAuthor, ConfigurationFault, ConfigurationOrder, ConfigurationPlan,
    ConfigurationSource, ConfigurationVersion, Setting,
};

impl From<ConfigurationFault> for Problem {
    fn from(fault: ConfigurationFault) -> Problem {
        let (status, message) = match fault {
            ConfigurationFault::Invalid(message) => (400, message),
            ConfigurationFault::Missing(message) => (404, message),
            ConfigurationFault::Conflict(message) => (409, message),
            ConfigurationFault::Failed(message) => (500, message),
            ConfigurationFault::Ended => (503, "the broker is shutting down".to_owned()),
        };
        Problem::new(status, message)
    }
}

/// Another answer than that of the order.
fn unexpected() -> Problem {
    Problem::new(500, "the broker gave another answer than expected".to_owned())
}

pub async fn get(
    State(api): State<Api>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<Setting>>, Problem> {
    let which = query(which)?;
    let settings = settings(&api).await?;
    let key = |setting: &Setting| RowKey { rank: 0, name: setting.key.as_str().into(), detail: "".into() };
    which.page_of(settings, key).map(Json)
}

/// All settings in force.
pub async fn settings(api: &Api) -> Result<Vec<Setting>, Problem> {
    match give(api, ConfigurationOrder::Get).await? {
        ConfigurationAnswer::Settings(settings) => Ok(settings),
        _ => Err(unexpected()),
    }
}

pub async fn diff(State(api): State<Api>) -> Result<Json<ConfigurationPlan>, Problem> {
    planned(give(&api, ConfigurationOrder::Diff).await?).map(Json)
}

/// A configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The text of a file.
    text: Option<String>,
    /// Instead of a text: a version that is kept.
    version: Option<u64>,
}

fn source(body: &Bytes) -> Result<ConfigurationSource, Problem> {
    match read_json::<Wanted>(body)? {
        Wanted { text: Some(text), version: None } => Ok(ConfigurationSource::Text(text)),
        Wanted { text: None, version: Some(version) } => Ok(ConfigurationSource::Version(version)),
        _ => Err(Problem::new(400, "expected either text or version".to_owned())),
    }
}

pub async fn plan(State(api): State<Api>, body: Bytes) -> Result<Json<ConfigurationPlan>, Problem> {
    planned(give(&api, ConfigurationOrder::Plan(source(&body)?)).await?).map(Json)
}

pub async fn apply(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Peer>>,
    body: Bytes,
) -> Result<(Extension<Detail>, Json<ConfigurationPlan>), Problem> {
    change(&api, ConfigurationOrder::Apply(source(&body)?, author(&caller, peer))).await
}

pub async fn reload(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Peer>>,
) -> Result<(Extension<Detail>, Json<ConfigurationPlan>), Problem> {
    change(&api, ConfigurationOrder::Reload(author(&caller, peer))).await
}

fn author(caller: &Caller, peer: Option<Extension<Peer>>) -> ConfigurationAuthor {
    let user = caller.principal.user().map(|user| user.to_string());
    ConfigurationAuthor { user, peer: peer_text(peer.map(|Extension(peer)| peer)) }
}

async fn change(
    api: &Api,
    order: ConfigurationOrder,
) -> Result<(Extension<Detail>, Json<ConfigurationPlan>), Problem> {
    let plan = planned(give(api, order).await?)?;
    let detail = Detail(format!("version {}, {} changes", plan.version, plan.changes.len()));
    Ok((Extension(detail), Json(plan)))
}

pub async fn history(
    State(api): State<Api>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<List<ConfigurationVersion>>, Problem> {
    let which = query(which)?;
    let ConfigurationAnswer::Versions(versions) = give(&api, ConfigurationOrder::History).await? else {
        return Err(unexpected());
    };
    // The newest first.
    let key = |of: &ConfigurationVersion| {
        let name = of.author.as_ref().and_then(|author| author.user.as_deref()).unwrap_or(&of.cause);
        RowKey { rank: u64::MAX - of.version, name: name.into(), detail: "".into() }
    };
    which.page_of(versions, key).map(Json)
}

/// A version with its text.
#[derive(Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    version: ConfigurationVersion,
    text: String,
}

pub async fn version(State(api): State<Api>, Path(version): Path<String>) -> Result<Json<Shown>, Problem> {
    let missing =
        || Problem::new(404, format!("no version {version:?}; GET /api/v1/configuration/history lists all"));
    let number = version.parse().map_err(|_| missing())?;
    match give(&api, ConfigurationOrder::Version(number)).await? {
        ConfigurationAnswer::Version(version, text) => Ok(Json(Shown { version, text })),
        _ => Err(unexpected()),
    }
}

fn planned(answer: ConfigurationAnswer) -> Result<ConfigurationPlan, Problem> {
    match answer {
        ConfigurationAnswer::Plan(plan) => Ok(plan),
        _ => Err(unexpected()),
    }
}

async fn give(api: &Api, order: ConfigurationOrder) -> Result<ConfigurationAnswer, Problem> {
    Ok((api.0.options.configuration)(order).await?)
}
