//! Routes, with the counts of their messages.

use axum::Json;
use axum::extract::{Query, State};
use postroad_model::RowKey;
use serde::Serialize;

use super::Api;
use super::lists::{List, Which, query};
use super::problem::Problem;
use crate::figures::{RouteFigures, RouteTargetFigures};

#[derive(Debug, Serialize)]
pub struct Route {
    name: String,
    from: String,
    mode: &'static str,
    matched: u64,
    unmatched: u64,
    dead_lettered: u64,
    cut: u64,
    copies: u64,
    retried: u64,
    targets: Vec<RouteTarget>,
}

#[derive(Debug, Serialize)]
pub struct RouteTarget {
    destination: String,
    copies: u64,
    retried: u64,
    refused: u64,
}

impl From<RouteFigures> for Route {
    fn from(of: RouteFigures) -> Route {
        Route {
            name: of.route,
            from: of.from,
            mode: if of.consumes { "consume" } else { "copy" },
            matched: of.matched,
            unmatched: of.unmatched,
            dead_lettered: of.dead_lettered,
            cut: of.cut,
            copies: of.targets.iter().map(|target| target.copies).sum(),
            retried: of.targets.iter().map(|target| target.retried).sum(),
            targets: of.targets.into_iter().map(RouteTarget::from).collect(),
        }
    }
}

impl From<RouteTargetFigures> for RouteTarget {
    fn from(of: RouteTargetFigures) -> RouteTarget {
        let RouteTargetFigures { destination, copies, retried, refused } = of;
        RouteTarget { destination, copies, retried, refused }
    }
}

impl Route {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.name.as_str().into(), detail: "".into() }
    }
}

pub async fn list(
    State(api): State<Api>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Route>>, Problem> {
    let all = (api.0.options.routes)().into_iter().map(Route::from).collect();
    query(which)?.page_of(all, Route::key).map(Json)
}
