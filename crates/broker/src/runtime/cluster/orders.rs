//! Orders of operators to the leader of the store.

use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use postroad_cluster::{NodeId, Role};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::runtime::cluster::view::ClusterView;

/// A node that lags by more entries is not made the leader: clients would wait while it gets them.
pub const LAG_MAX: u64 = 1000;

/// Why an order is not carried out: status and reason.
type Refused = (StatusCode, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    /// Name of the node that is to lead.
    to: String,
}

/// The paths of the orders.
pub fn cluster_orders(view: ClusterView) -> Router {
    Router::new().route(
        "/api/v1/cluster/transfer",
        post(move |body: Result<Json<Transfer>, _>| async move { answer(&view, body).await }),
    )
}

async fn answer(
    view: &ClusterView,
    body: Result<Json<Transfer>, axum::extract::rejection::JsonRejection>,
) -> Response {
    let ordered = match body {
        Ok(Json(Transfer { to })) => order(view, &to).await,
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("expected {{\"to\": NODE}}: {error}"))),
    };
    match ordered {
        Ok(begun) => (StatusCode::ACCEPTED, Json(begun)).into_response(),
        Err((status, reason)) => (status, Json(json!({ "error": reason }))).into_response(),
    }
}

/// Begins a transfer of leadership: this node may answer no more once it has ended.
async fn order(view: &ClusterView, to: &str) -> Result<Value, Refused> {
    let target = target(view, to)?;
    if let Some(target) = target {
        tracing::info!(to, "leadership is handed over by order");
        let door = view.door.clone();
        // It waits for the journal's turn.
        let _ = tokio::task::spawn_blocking(move || door.transfer(Some(target))).await;
    }
    Ok(json!({ "from": &*view.node, "to": to, "begun": target.is_some() }))
}

/// The node of this name; `None` if it leads already.
fn target(view: &ClusterView, to: &str) -> Result<Option<NodeId>, Refused> {
    let shown = view.status.borrow().clone();
    let conflict = |reason: String| Err((StatusCode::CONFLICT, reason));
    let Some(shown) = shown.filter(|shown| shown.replica.group.role == Role::Leader) else {
        return conflict(view.elsewhere("http").reason);
    };
    if to == &*view.node {
        return Ok(None);
    }
    let Some(peer) = view.peers.iter().find(|peer| view.name(peer.node) == to) else {
        let names: Vec<String> = view.peers.iter().map(|peer| view.name(peer.node)).collect();
        let reason = format!("there is no node {to:?}: the others are {}", names.join(", "));
        return Err((StatusCode::NOT_FOUND, reason));
    };
    if !peer.connected.load(Ordering::Acquire) {
        return conflict(format!("{to} is not reached"));
    }
    let replica = shown.replica;
    let stored = replica.stored.iter().find(|(node, _)| *node == peer.node);
    let lag = stored.map_or(u64::MAX, |(_, index)| replica.group.last.0.saturating_sub(index.0));
    if LAG_MAX < lag {
        return conflict(format!(
            "{to} lags by {lag} entries; it can lead once it lags by {LAG_MAX} or less"
        ));
    }
    Ok(Some(peer.node))
}
