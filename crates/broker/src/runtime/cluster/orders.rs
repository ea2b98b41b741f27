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
use postroad_cluster::{ChangeError, ChosenStores, MemberChange, NodeId, NodeRecord, Role};
use postroad_replication::ReplicaStatus;
use postroad_routing::FIRST_STORE;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::runtime::cluster::mirrored_stores::mirrored_stores;
use crate::runtime::cluster::newcomer::Asker;
use crate::runtime::cluster::steward::Group;
use crate::runtime::cluster::view::ClusterView;
use crate::runtime::cluster::waits::Votes;
use crate::runtime::journal::JournalDoor;

/// A node that lags by more entries is not made the leader: clients would wait while it gets them.
pub const LAG_MAX: u64 = 1000;

/// Whether a node could lead as far as its log is concerned; only a leader knows.
pub fn has_caught_up(replica: &ReplicaStatus, node: NodeId) -> bool {
    replica.lag_of(node).is_some_and(|lag| lag <= LAG_MAX)
}

/// The answer to an order to hand over leaves within this time: the connection ends with the
/// leadership.
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);

/// A mirror looks for leaders for this long before it takes their place: it may have started a
/// moment ago, or they may be replaced just now.
const LEADERS_WITHIN: Duration = Duration::from_secs(5);

const JOIN: &str = r#"{"node": NODE, "mirror": BOOLEAN, "stores": [NUMBER]}"#;

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

/// The node that joins, whether it never gets a vote, and its stores if not all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    node: String,
    #[serde(default)]
    mirror: bool,
    #[serde(default)]
    stores: Vec<u16>,
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
        .route(&path("join"), ordered(&view, JOIN, join))
        .route(&path("promote"), promotes(&view))
        .route(&path("leave"), ordered(&view, r#"{"node": NODE}"#, leave))
        .route(&path("replace"), ordered(&view, r#"{"old": NODE, "new": NODE}"#, replace))
}

/// The orders that a node takes while it follows: it is promoted, or drained. It knows no users, so
/// they come by the socket in its data directory alone.
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
    let drains = |drains: bool| {
        let view = view.clone();
        post(move || async move { Json(drained(&view, drains)) }).layer(local.clone())
    };
    let draining = Router::new().route("/api/v1/broker/drain", drains(true));
    let draining = draining.route("/api/v1/broker/resume", drains(false));
    draining.route(&path("promote"), promotes(view).layer(local))
}

/// Begins or ends the draining of a node that follows.
fn drained(view: &ClusterView, drains: bool) -> Value {
    view.draining.set(drains);
    tracing::info!(drains, "draining: new connections and messages are refused while it lasts");
    json!({ "name": &*view.node, "version": env!("CARGO_PKG_VERSION"), "draining": drains })
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

/// Members change in the first store, and the others follow.
fn is_of_first(view: &ClusterView) -> Result<(), Refused> {
    match view.part.number() {
        FIRST_STORE => Ok(()),
        store => conflict(format!(
            "this is store {store}: give the order to the leader of store {FIRST_STORE}, and the other stores follow"
        )),
    }
}

/// The order to change one of several stores is refused: the reason names it.
fn of_store<T>(store: u16, checked: Result<T, Refused>) -> Result<T, Refused> {
    checked.map_err(|(status, reason)| (status, format!("store {store}: {reason}")))
}

/// Whether each of several stores has all members, so that another one can come.
fn are_complete(view: &ClusterView) -> Result<(), Refused> {
    view.part.views().try_for_each(|(store, of)| match (of.known_leader(), of.difference()) {
        (None, _) => of_store(store, conflict("it has no leader: try again once it has one")),
        (_, Some(difference)) => {
            of_store(store, conflict(format!("{difference}: members change one at a time")))
        }
        _ => Ok(()),
    })
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
    if peer.leaving.says_damaged() {
        return conflict(format!("the store of {to} is damaged: it can lead once it is filled"));
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

async fn join(view: ClusterView, Join { node, mirror, stores }: Join) -> Result<Value, Refused> {
    is_of_first(&view)?;
    let (part, level) = (&view.part, view.peers.members().level);
    let stores = match mirrored_stores(&stores, mirror, (part.here(), part.count()), level) {
        Ok(stores) => stores,
        Err(reason) => return conflict(reason),
    };
    add(view, node, None, (mirror, stores)).await
}

/// Makes this mirror take the place of all other nodes.
async fn promote(view: ClusterView, Promote { node, force }: Promote) -> Result<Value, Refused> {
    is_of_first(&view)?;
    if node != *view.node {
        let reason = format!("this is {}: give the order to {node} itself, by its --data", view.node);
        return conflict(reason);
    }
    let looks_until = (!force).then(|| Instant::now() + LEADERS_WITHIN);
    let succeed = match view.part.is_one_of_several() {
        false => may_succeed(&view, looks_until).await?.map(|door| (FIRST_STORE, door)).into_iter().collect(),
        true => stores_to_succeed(&view, looks_until).await?,
    };
    if succeed.is_empty() {
        return conflict(format!("{node} has taken the place of all others already"));
    }
    let here = view.part.here();
    let absent: Vec<u16> = (FIRST_STORE..=view.part.count()).filter(|store| !here.have(*store)).collect();
    if !absent.is_empty() {
        tracing::warn!(
            stores = ?absent,
            "these stores stay with the former nodes, whose data directories have to be kept"
        );
    }
    match tokio::task::spawn_blocking(move || JournalDoor::succeed(&succeed)).await {
        Ok(Ok(())) => Ok(json!({ "node": node, "absent": absent })),
        Ok(Err(error)) => conflict(format!("{error:#}")),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// The stores in which this mirror has still to take the place of all others: all of them, or, if
/// it was stopped before the last one, the rest.
async fn stores_to_succeed(
    view: &ClusterView,
    looks_until: Option<Instant>,
) -> Result<Vec<(u16, JournalDoor)>, Refused> {
    let mut doors = Vec::new();
    for (store, of) in view.part.views() {
        let door = may_succeed(of, looks_until).await;
        doors.extend(of_store(store, door)?.map(|door| (store, door)));
    }
    Ok(doors)
}

/// The way to a mirror's store, if it may take the place of all others; `None` if it has done so.
/// It looks for a leader, unless the order says not to.
async fn may_succeed(
    view: &ClusterView,
    looks_until: Option<Instant>,
) -> Result<Option<JournalDoor>, Refused> {
    let (members, own, node) = (view.peers.members(), view.shared.own(), &view.node);
    if !members.is_mirror(own) {
        return match 0 < members.era && members.voters == [own] && view.part.is_one_of_several() {
            true => Ok(None),
            false => conflict(format!(
                "{node} is no mirror: nodes with a vote replace a lost leader by themselves"
            )),
        };
    }
    if let Some(until) = looks_until
        && let Some(leader) = view.leader_by(until).await
    {
        let leader = view.name(leader.node);
        return conflict(format!(
            "{leader} leads and is reached: its clients would be cut off, and what it confirmed and {node} does not \
             have is lost to them. To do so say so by --force"
        ));
    }
    Ok(Some(view.door.clone()))
}

async fn replace(view: ClusterView, Replace { old, new, force }: Replace) -> Result<Value, Refused> {
    let stores = view.part.here();
    add(view, new, Some((old, force)), (false, stores)).await
}

/// Adds a node that asks to join, in place of another one if that is named.
async fn add(
    view: ClusterView,
    name: String,
    old: Option<(String, bool)>,
    (mirrors, stores): (bool, ChosenStores),
) -> Result<Value, Refused> {
    is_of_first(&view)?;
    leading(&view)?;
    are_complete(&view)?;
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
    let others = view.part.views().map(|(_, view)| view.peers.members().next());
    // The same number is free in all stores.
    let Some(number) = others.chain([view.peers.members().next()]).max().flatten() else {
        return conflict("there are no numbers left for nodes");
    };
    let Asker { name: asked, address, identity, .. } = asker;
    let record =
        NodeRecord { name: asked, address, identity, replaces, mirrors, stores, ..NodeRecord::default() };
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
    may_go_from_all(view, node, old)?;
    Ok(node)
}

/// Whether all stores can go on without this node.
fn may_go_from_all(view: &ClusterView, node: NodeId, name: &str) -> Result<(), Refused> {
    may_go(view, node, name)?;
    view.part.views().try_for_each(|(store, of)| of_store(store, may_go(of, node, name)))
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
    let group = Group {
        own,
        members,
        last: Default::default(),
        stored: &[],
        reached: &reached,
        damaged: &[],
        elsewhere: &[],
        common_level: None,
    };
    let votes = group.votes_without(node);
    if !votes.suffice() {
        let Votes { reached, all, needed } = votes;
        return conflict(format!(
            "without {name}, {reached} of the other {all} nodes with a vote is reached, and {needed} are needed: \
             nothing would be confirmed any more"
        ));
    }
    Ok(())
}

/// Removes a node. If it is this one, another leads first, which finds in the list of members that
/// this one is to go; if there are several stores, the others remove it before this one does.
async fn leave(view: ClusterView, Named { node: name }: Named) -> Result<Value, Refused> {
    is_of_first(&view)?;
    leading(&view)?;
    let node = member(&view, &name)?;
    may_go_from_all(&view, node, &name)?;
    let leaves = match node == view.shared.own() || view.part.is_one_of_several() {
        true => MemberChange::Retire(node),
        false => MemberChange::Remove(node),
    };
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
