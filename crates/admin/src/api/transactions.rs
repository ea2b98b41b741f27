//! Branches of distributed transactions that wait for their managers, and their end by an operator.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::{BranchId, BranchStanding, Decision, Event, RowKey, ToSession};
use serde::Serialize;

use super::lists::{List, Which, query};
use super::problem::Problem;
use super::{Api, Caller};

#[derive(Clone, Debug, Serialize)]
pub struct Branch {
    /// Format, transaction and qualifier.
    branch: String,
    /// `prepared`, or how an operator has ended it: `committed`, `rolled back`.
    state: &'static str,
}

impl Branch {
    fn of((branch, standing): &(BranchId, BranchStanding)) -> Branch {
        let state = match standing {
            BranchStanding::Prepared => "prepared",
            BranchStanding::Overruled { committed: true } => "committed",
            BranchStanding::Overruled { committed: false } => "rolled back",
        };
        Branch { branch: branch.to_string(), state }
    }

    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.branch.as_str().into(), detail: "".into() }
    }
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Branch>>, Problem> {
    let all = branches(&api, &caller).await?;
    query(which)?.page_of(all.iter().map(Branch::of).collect(), Branch::key).map(Json)
}

async fn branches(api: &Api, caller: &Caller) -> Result<Vec<(BranchId, BranchStanding)>, Problem> {
    let make = |connection, ticket| Event::ListBranches { connection, ticket };
    let answer = api.client(caller).await?.request(make).await?;
    answer.result?;
    let branches = answer.collected.into_iter().filter_map(|message| match message {
        ToSession::Branches { branches, .. } => Some(branches),
        _ => None,
    });
    Ok(branches.flatten().collect())
}

pub async fn commit(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(branch): Path<String>,
) -> Result<StatusCode, Problem> {
    overrule(&api, &caller, &branch, true).await
}

pub async fn rollback(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(branch): Path<String>,
) -> Result<StatusCode, Problem> {
    overrule(&api, &caller, &branch, false).await
}

async fn overrule(api: &Api, caller: &Caller, branch: &str, commit: bool) -> Result<StatusCode, Problem> {
    let branch = existing(api, caller, branch).await?;
    let decision = Decision::Overrule { commit };
    let make = move |connection, ticket| Event::DecideBranch { branch, decision, connection, ticket };
    api.client(caller).await?.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn forget(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(branch): Path<String>,
) -> Result<StatusCode, Problem> {
    let branch = existing(&api, &caller, &branch).await?;
    let make = |connection, ticket| Event::ForgetBranch { branch, connection, ticket };
    api.client(&caller).await?.request(make).await?.result?;
    Ok(StatusCode::NO_CONTENT)
}

async fn existing(api: &Api, caller: &Caller, text: &str) -> Result<BranchId, Problem> {
    let branch: BranchId = text.parse().map_err(|error| Problem::new(400, format!("{error}")))?;
    match branches(api, caller).await?.iter().any(|(there, _)| *there == branch) {
        true => Ok(branch),
        false => Err(Problem::new(404, format!("no branch {branch}; GET /api/v1/transactions lists all"))),
    }
}
