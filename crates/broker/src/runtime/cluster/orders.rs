//! Orders of operators to the leader of the store.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::Request;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post};
use axum::{Extension, Json, Router};
use postroad_admin::Peer;
use postroad_cluster::{ChangeError, MemberChange, NodeId, NodeRecord, Role};
use postroad_replication::ReplicaStatus;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::runtime::cluster::newcomer::Asker;
use crate::runtime::cluster::steward::Group;
use crate::runtime::cluster::view::ClusterView;

/// A node that lags by more entries is not made the leader: clients would wait while it gets them.
pub const LAG_MAX: u64 = 1000;

/// The answer to an order to hand over leaves within this time: the connection ends with the
/// leadership.
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);

/// Why an order is not carried out: status and reason.
type Refused = (StatusCode, String);

/// The node that is to lead.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    to: String,
}

/// The node that leaves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    node: String,
}

/// The node that joins, and whether it never gets a vote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    node: String,
    #[serde(default)]
    mirror: bool,
}

/// The mirror that takes the place of all others, and whether it does so although they are there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Promote {
    node: String,
    #[serde(default)]
    force: bool,
}

/// A node, the one in its place, and whether it goes although it is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replace {
    old: String,
    new: String,
    #[serde(default)]
    force: bool,
}

/// The paths of the orders.
pub fn cluster_orders(view: ClusterView) -> Router {
    Router::new()
        .route(&path("transfer"), ordered(&view, r#"{"to": NODE}"#, transfer))
        .route(&path("join"), ordered(&view, r#"{"node": NODE, "mirror": BOOLEAN}"#, join))
        .route(&path("promote"), promotes(&view))
        .route(&path("leave"), ordered(&view, r#"{"node": NODE}"#, leave))
        .route(&path("replace"), ordered(&view, r#"{"old": NODE, "new": NODE}"#, replace))
}

/// The orders that a node takes while it follows. It knows no users, so they come by the socket in
/// its data directory alone.
pub fn orders_to_follower(view: &ClusterView) -> Router {
    let local =
        middleware::from_fn(|Extension(peer): Extension<Peer>, request: Request, next: Next| async move {
            match peer {
                Peer::ControlSocket => next.run(request).await,
                _ => {
                    let reason = "a node that follows takes this order by --data, on its own machine, alone";
                    (StatusCode::FORBIDDEN, Json(json!({ "error": reason }))).into_response()
                }
            }
        });
    Router::new().route(&path("promote"), promotes(view).layer(local))
}

fn path(order: &str) -> String {
    format!("/api/v1/cluster/{order}")
}

fn promotes(view: &ClusterView) -> MethodRouter {
    ordered(view, r#"{"node": NODE, "force": BOOLEAN}"#, promote)
}

/// The requests of one kind, whose body has this form.
fn ordered<Order, Answer>(
    view: &ClusterView,
    form: &'static str,
    carry_out: fn(ClusterView, Order) -> Answer,
) -> MethodRouter
where
    Order: DeserializeOwned + Send + 'static,
    Answer: Future<Output = Result<Value, Refused>> + Send + 'static,
{
    let view = view.clone();
    post(move |body: Result<Json<Order>, JsonRejection>| async move {
        let ordered = match body {
            Ok(Json(order)) => carry_out(view, order).await,
            Err(error) => Err((StatusCode::BAD_REQUEST, format!("expected {form}: {error}"))),
        };
        match ordered {
            Ok(begun) => (StatusCode::ACCEPTED, Json(begun)).into_response(),
            Err((status, reason)) => (status, Json(json!({ "error": reason }))).into_response(),
        }
    })
}

fn conflict<T>(reason: impl Into<String>) -> Result<T, Refused> {
    Err((StatusCode::CONFLICT, reason.into()))
}

/// Begins a transfer of leadership, which begins with clients: the order is answered long before
/// the connection ends with the leadership.
async fn transfer(view: ClusterView, Transfer { to }: Transfer) -> Result<Value, Refused> {
    let node = view.node.clone();
    if let Some(target) = target(&view, &to)? {
        let Some(turn) = view.handover.take_turn() else {
            return conflict("leadership is being handed over already");
        };
        tracing::info!(to, "leadership is handed over by order");
        tokio::spawn(async move {
            // The answer leaves first.
            tokio::time::sleep(ANSWERED_WITHIN).await;
            view.hand_over(turn, Some(target)).await;
        });
        return Ok(json!({ "from": &*node, "to": to, "begun": true }));
    }
    Ok(json!({ "from": &*node, "to": to, "begun": false }))
}

/// A node of several stores would have to change in all of their groups.
fn members_may_change(view: &ClusterView) -> Result<(), Refused> {
    match view.part.is_one_of_several() {
        true => conflict("the nodes of a cluster with several stores cannot be changed yet"),
        false => Ok(()),
    }
}

/// The state of the replica, which leads.
fn leading(view: &ClusterView) -> Result<ReplicaStatus, Refused> {
    let shown = view.status.borrow().clone();
    match shown.filter(|shown| shown.replica.group.role == Role::Leader) {
        Some(shown) => Ok(shown.replica),
        None => conflict(view.elsewhere("http").reason),
    }
}

/// The node of this name; `None` if it leads already.
fn target(view: &ClusterView, to: &str) -> Result<Option<NodeId>, Refused> {
    let replica = leading(view)?;
    if to == &*view.node {
        return Ok(None);
    }
    let members = view.peers.members();
    let node = member(view, to)?;
    let Some(peer) = view.peers.find(node).filter(|peer| peer.connected.load(Ordering::Acquire)) else {
        return conflict(format!("{to} is not reached"));
    };
    if !members.voters.contains(&node) {
        return conflict(match members.is_mirror(node) {
            true => {
                format!("{to} is a mirror: it leads once it has taken the place of all others, by `promote`")
            }
            false => format!("{to} has no vote yet"),
        });
    }
    let lag = replica.lag_of(peer.node).unwrap_or(u64::MAX);
    if LAG_MAX < lag {
        return conflict(format!(
            "{to} lags by {lag} entries; it can lead once it lags by {LAG_MAX} or less"
        ));
    }
    Ok(Some(peer.node))
}

/// The member of this name.
fn member(view: &ClusterView, name: &str) -> Result<NodeId, Refused> {
    let members = view.peers.members().all();
    members.iter().find(|node| view.name(**node) == name).copied().ok_or_else(|| {
        let others: Vec<String> =
            members.iter().map(|node| view.name(*node)).filter(|name| *name != *view.node).collect();
        let reason = format!("there is no node {name:?}: the others are {}", others.join(", "));
        (StatusCode::NOT_FOUND, reason)
    })
}

async fn join(view: ClusterView, Join { node, mirror }: Join) -> Result<Value, Refused> {
    members_may_change(&view)?;
    add(view, node, None, mirror).await
}

/// Makes this mirror take the place of all other nodes.
async fn promote(view: ClusterView, Promote { node, force }: Promote) -> Result<Value, Refused> {
    members_may_change(&view)?;
    if node != *view.node {
        let reason = format!("this is {}: give the order to {node} itself, by its --data", view.node);
        return conflict(reason);
    }
    if !view.peers.members().is_mirror(view.shared.own()) {
        return conflict(format!(
            "{node} is no mirror: nodes with a vote replace a lost leader by themselves"
        ));
    }
    if let Some(leader) = view.leader().filter(|_| !force) {
        let leader = view.name(leader.node);
        return conflict(format!(
            "{leader} leads and is reached: its clients would be cut off, and what it confirmed and {node} does not \
             have is lost to them. To do so say so by --force"
        ));
    }
    let door = view.door.clone();
    match tokio::task::spawn_blocking(move || door.succeed()).await {
        Ok(Ok(())) => Ok(json!({ "node": node })),
        Ok(Err(error)) => conflict(format!("{error:#}")),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

async fn replace(view: ClusterView, Replace { old, new, force }: Replace) -> Result<Value, Refused> {
    members_may_change(&view)?;
    add(view, new, Some((old, force)), false).await
}

/// Adds a node that asks to join, in place of another one if that is named.
async fn add(
    view: ClusterView,
    name: String,
    old: Option<(String, bool)>,
    mirrors: bool,
) -> Result<Value, Refused> {
    leading(&view)?;
    if member(&view, &name).is_ok() {
        return conflict(format!("{name} is a node of the cluster already"));
    }
    let replaces = match &old {
        Some((old, force)) => Some(replaced(&view, old, *force)?),
        None => None,
    };
    let Some(asker) = view.shared.askers().all().into_iter().find(|asker| asker.name == name) else {
        let (node, listen) = (&name, &view.listen);
        let reason = format!(
            "{node} does not ask to join: start it with an empty data directory, --node {node}, its own \
             --cluster-listen, and --cluster-seeds {listen}"
        );
        return Err((StatusCode::NOT_FOUND, reason));
    };
    let members = view.peers.members();
    let Some(number) = members.next() else { return conflict("there are no numbers left for nodes") };
    let Asker { name: asked, address, identity, .. } = asker;
    let record = NodeRecord { name: asked, address, identity, replaces, mirrors, ..NodeRecord::default() };
    change(&view, MemberChange::Add(number), [(number, record)].into()).await?;
    tracing::info!(node = name, number = number.get(), mirrors, "a node joins by order");
    Ok(json!({ "node": name, "number": number.get() }))
}

/// The node that another one is to replace.
fn replaced(view: &ClusterView, old: &str, force: bool) -> Result<NodeId, Refused> {
    let node = member(view, old)?;
    let is_there = view.peers.find(node).is_none_or(|peer| peer.connected.load(Ordering::Acquire));
    if is_there && !force {
        return conflict(format!(
            "{old} is connected, and would be removed although it works: to do so say so by --force"
        ));
    }
    may_go(view, node, old)?;
    Ok(node)
}

/// Whether the others can go on without this node.
fn may_go(view: &ClusterView, node: NodeId, name: &str) -> Result<(), Refused> {
    let (members, reached) = (view.peers.members(), view.peers.reached());
    if !members.voters.contains(&node) {
        return Ok(());
    }
    if members.voters == [node] {
        return conflict(format!("{name} is the last node with a vote"));
    }
    let (own, members) = (view.shared.own(), &*members);
    let group =
        Group { own, members, last: Default::default(), stored: &[], reached: &reached, common_level: None };
    let (votes, needed) = group.votes_without(node);
    if votes < needed {
        let others = members.voters.len() - 1;
        return conflict(format!(
            "without {name}, {votes} of the other {others} nodes with a vote is reached, and {needed} are needed: \
             nothing would be confirmed any more"
        ));
    }
    Ok(())
}

/// Removes a node. If it is this one, another leads first, which finds in the list of members that
/// this one is to go.
async fn leave(view: ClusterView, Named { node: name }: Named) -> Result<Value, Refused> {
    members_may_change(&view)?;
    leading(&view)?;
    let node = member(&view, &name)?;
    may_go(&view, node, &name)?;
    let leaves =
        if node == view.shared.own() { MemberChange::Retire(node) } else { MemberChange::Remove(node) };
    change(&view, leaves, BTreeMap::new()).await?;
    tracing::info!(node = name, "a node leaves by order");
    Ok(json!({ "node": name }))
}

/// Proposes a change of members.
async fn change(
    view: &ClusterView,
    change: MemberChange,
    more: BTreeMap<NodeId, NodeRecord>,
) -> Result<(), Refused> {
    let (door, mut records) = (view.door.clone(), view.shared.names());
    records.extend(more);
    let changed = tokio::task::spawn_blocking(move || door.change_members(change, &records)).await;
    match changed.ok().flatten() {
        Some(Ok(())) => Ok(()),
        Some(Err(error @ ChangeError::Busy)) => conflict(format!("{error}: try again in a moment")),
        Some(Err(error)) => conflict(error.to_string()),
        None => Err((StatusCode::INTERNAL_SERVER_ERROR, "the journal thread has ended".to_owned())),
    }
}
