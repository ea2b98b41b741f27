//! The admin API: lists, browsing and message actions as JSON over HTTP, under `/api/v1`.
//!
//! One router serves the HTTP port and the control socket. The assembly says with each request who
//! its peer is: see [`Peer`]. Everything is done by a client inside the process
//! ([`postroad_node::Client`]), one for each request.

mod access;
mod access_keys;
mod alerts;
mod audit;
mod bridges;
mod configuration;
mod explain;
mod jolokia;
mod key_waits;
mod known;
mod ledger;
mod lists;
mod messages;
mod openapi;
mod overview;
mod pausing;
mod planner;
mod policies;
mod problem;
mod process;
mod queries;
mod redrive;
mod redrives;
mod resources;
mod routes;
mod schedules;
mod session;
mod sessions;
mod shown;
mod stores;
mod subscriptions;
mod tenants;
mod tokens;
mod topics;
mod trace;
mod transactions;
mod users;

pub use session::session_principal;
pub use shown::structured;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router, middleware};
use postroad_model::{Action, Destination, DestinationKind, EntryTag, LinkBar, Principal, QueueId, Refusal};
use postroad_node::{Client, ClientOptions, Clients, Draining, OfflineEnds, TraceBook};
use postroad_routing::{Membership, Permissions, Policies};
use postroad_security::{AccessKeyBook, ConsoleSession, Door, SessionBook, TenantBook, Text};
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore, watch};

use overview::Seen;
use problem::Problem;
pub(crate) use process::Process;

use crate::alerts::Alerts;
use crate::configuration::Configuration;
use crate::console;
use crate::figures::{BridgeFigures, Figures, RouteFigures};
use crate::http::permits_metrics;
use crate::planner::Planner;
use crate::tenant_rules::TenantRulesKeeper;

/// A request's body is not larger.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Passwords that are looked at at the same time: each keeps a processor busy.
const LOGINS_MAX: usize = 1;

/// Who speaks, as the assembly knows it: an extension of each request. A request without it is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client on the network.
    Network(SocketAddr),
    /// A user of the control socket, who may open the store's files too.
    ControlSocket,
    /// Another node of the cluster, which has proved that, or this one: for its control socket.
    Node(SocketAddr),
}

/// Who asks, once that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    principal: Principal,
    /// The token that it has shown in place of a password.
    token: Option<Arc<str>>,
    /// The session of the console that it is in.
    session: Option<ConsoleSession>,
}

impl Caller {
    /// A caller without a name.
    fn anonymous() -> Caller {
        Caller { principal: Principal::Anonymous, token: None, session: None }
    }
}

/// Gathers the figures of the whole broker, without those of each queue.
pub type Totals = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Figures> + Send>> + Send + Sync>;

/// Has the broker follow a change of its users; `Err` with the reason if it cannot.
pub type Reload = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The links that do not serve a queue which consumers at the peer read: name and number of each,
/// and why not.
pub type LinksBarring = dyn Fn(&Destination) -> Vec<(String, u16, LinkBar)> + Send + Sync;

/// Settings and seams that the API gets from the assembly.
pub struct ApiOptions {
    /// Name of the broker.
    pub broker_name: String,
    /// The version of this build.
    pub version: &'static str,
    /// Makes clients inside the process.
    pub clients: Clients,
    /// How links to other brokers are.
    pub bridges: Arc<dyn Fn() -> Vec<BridgeFigures> + Send + Sync>,
    /// Links that do not serve a queue, though consumers at the peer read it.
    pub barring: Arc<LinksBarring>,
    /// Durable subscriptions that ended without a reader.
    pub offline_ends: OfflineEnds,
    /// The routes, with their counts.
    pub routes: Arc<dyn Fn() -> Vec<RouteFigures> + Send + Sync>,
    /// Whether the broker is being drained.
    pub draining: Draining,
    /// Who is let in, as it was read last.
    pub door: watch::Receiver<Arc<Door>>,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: fn() -> u64,
    /// Gathers figures.
    pub totals: Totals,
    /// The memory budget.
    pub memory_bytes_max: u64,
    /// Alerts that are pending or fire.
    pub alerts: Alerts,
    /// The policies in force, with permissions and tenants.
    pub policies: Arc<dyn Fn() -> Arc<Policies> + Send + Sync>,
    /// Tenants that are made while the broker runs.
    pub made_tenants: Arc<TenantBook>,
    /// Follows a change of users or groups.
    pub reload: Reload,
    /// Shows and changes the configuration.
    pub configuration: Configuration,
    /// Keeps the routes and alerts of tenants.
    pub tenant_rules: TenantRulesKeeper,
    /// The addresses that clients connect to.
    pub listeners: Vec<ListenerRow>,
    /// Traced messages, if any are traced.
    pub traces: Option<TraceBook>,
    /// The record of redrives.
    pub redrives: Text,
    /// Asks the leaders of other stores of the cluster, if it has several.
    pub other_store: Option<OtherStore>,
    /// Access keys of users.
    pub access_keys: Arc<AccessKeyBook>,
    /// Sessions of the console.
    pub sessions: Arc<SessionBook>,
    /// The entry of a queue that an HTTP client knows by this id.
    pub entry_of: fn(&str) -> Option<(QueueId, EntryTag)>,
}

/// Gets what the leader of a store answers to a path, or the reason for which it does not.
pub type OtherStore = Arc<
    dyn Fn(u16, String) -> Pin<Box<dyn Future<Output = Result<serde_json::Value, String>> + Send>>
        + Send
        + Sync,
>;

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerRow {
    /// As in the table that `postroad serve` prints.
    pub protocol: String,
    /// Its URL.
    pub url: String,
}

/// The state of the API.
#[derive(Clone)]
struct Api(Arc<Shared>);

struct Shared {
    options: ApiOptions,
    begun: Instant,
    begun_ms: u64,
    /// Messages that were sent by the API.
    sent: AtomicU64,
    logins: Semaphore,
    known: Mutex<known::Known>,
    seen: Mutex<Seen>,
    changes: Mutex<audit::Changes>,
    planner: Mutex<Planner>,
    redrives: redrives::RedriveBook,
    key_waits: key_waits::KeyWaits,
}

/// Why messages are not delivered, and where they spent their time.
fn diagnoses() -> Router<Api> {
    Router::new()
        .route("/api/v1/queues/{queue}/explain", get(explain::of_queue))
        .route("/api/v1/queues/{queue}/messages/{id}/explain", get(explain::of_message))
        .route("/api/v1/messages/{id}/explain", get(explain::of_id))
        .route("/api/v1/messages/{id}/trace", get(trace::of_message))
}

/// What clients log in with, beside passwords.
fn credentials() -> Router<Api> {
    Router::new()
        .route("/api/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/api/v1/tokens/{id}", delete(tokens::revoke))
        .route("/api/v1/access-keys", get(access_keys::list).post(access_keys::create))
        .route("/api/v1/access-keys/{id}", delete(access_keys::remove))
}

/// The admin API and the console. Serve it for every path that nothing else answers. To be called
/// on the runtime whose tasks keep the history of figures. Routes of the assembly, `further`, are
/// guarded as those of the API.
pub fn router(options: ApiOptions, further: Router) -> Router {
    let begun_ms = (options.now_ms)();
    let redrives = redrives::RedriveBook::new(options.redrives.clone());
    let shared = Shared {
        options,
        begun: Instant::now(),
        begun_ms,
        sent: AtomicU64::new(0),
        logins: Semaphore::new(LOGINS_MAX),
        known: Mutex::default(),
        seen: Mutex::default(),
        changes: Mutex::default(),
        planner: Mutex::default(),
        redrives,
        key_waits: key_waits::KeyWaits::default(),
    };
    let api = Api(Arc::new(shared));
    tokio::spawn(overview::keep_history(Arc::downgrade(&api.0)));
    tokio::spawn(planner::observe(Arc::downgrade(&api.0)));
    let queue = get(lists::queue).put(messages::declare).delete(messages::delete_queue);
    let message = get(messages::one).delete(messages::remove);
    let tenant = get(tenants::one).put(tenants::set).delete(tenants::remove);
    Router::new()
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/api/v1/broker", get(broker))
        .route("/api/v1/broker/drain", post(drain))
        .route("/api/v1/broker/resume", post(resume))
        .route("/api/v1/overview", get(overview::overview))
        .route("/api/v1/queues", get(lists::queues))
        .route("/api/v1/queues/{queue}", queue)
        .route("/api/v1/queues/{queue}/consumers", get(lists::consumers_of))
        .route("/api/v1/queues/{queue}/messages", get(messages::browse).post(messages::send))
        .route("/api/v1/queues/{queue}/messages/{id}", message)
        .route("/api/v1/queues/{queue}/messages/{id}/copy", post(messages::copy_to))
        .route("/api/v1/queues/{queue}/messages/{id}/move", post(messages::move_to))
        .route("/api/v1/queues/{queue}/purge", post(messages::purge))
        .route("/api/v1/queues/{queue}/pause", post(pausing::pause))
        .route("/api/v1/queues/{queue}/resume", post(pausing::resume))
        .route("/api/v1/queues/{queue}/redrive", post(redrive::redrive))
        .merge(diagnoses())
        .route("/api/v1/connections", get(lists::connections))
        .route("/api/v1/consumers", get(lists::consumers))
        .route("/api/v1/sessions", get(sessions::list))
        .route("/api/v1/producers", get(sessions::producers))
        .route("/api/v1/topics", get(topics::list))
        .route("/api/v1/topics/{topic}", get(topics::one))
        .route("/api/v1/bindings", get(topics::bindings))
        .route("/api/v1/schedules", get(schedules::list))
        .route("/api/v1/schedules/{id}", get(schedules::one).delete(schedules::end))
        .route("/api/v1/queues/{queue}/policy", get(policies::of_queue))
        .route("/api/v1/session", get(session::show).delete(session::sign_out))
        .merge(credentials())
        .route("/api/v1/tenants", get(tenants::list).post(tenants::create))
        .route("/api/v1/tenants/{name}", tenant)
        .route("/api/v1/tenants/{name}/apply", post(resources::apply))
        .route("/api/v1/users", get(users::list).post(users::create))
        .route("/api/v1/users/{name}", delete(users::remove))
        .route("/api/v1/users/{name}/password", put(users::password))
        .route("/api/v1/users/{name}/groups", put(users::groups))
        .route("/api/jolokia/read/{*path}", get(jolokia::read))
        .merge(of_broker())
        .merge(further.with_state(()))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), access::admit))
        .merge(console::router())
        .with_state(api)
}

/// The paths of the broker as a whole and of its parts.
fn of_broker() -> Router<Api> {
    Router::new()
        .merge(permits_metrics())
        .route("/api/v1/alerts", get(alerts::list))
        .route("/api/v1/redrives", get(redrives::list))
        .route("/api/v1/redrives/{id}", get(redrives::one))
        .route("/api/v1/redrives/{id}/undo", post(redrives::undo))
        .route("/api/v1/audit", get(audit::list))
        .route("/api/v1/ledger", get(ledger::show))
        .route("/api/v1/configuration", get(configuration::get))
        .route("/api/v1/configuration/diff", get(configuration::diff))
        .route("/api/v1/configuration/plan", post(configuration::plan))
        .route("/api/v1/configuration/apply", post(configuration::apply))
        .route("/api/v1/configuration/reload", post(configuration::reload))
        .route("/api/v1/configuration/history", get(configuration::history))
        .route("/api/v1/configuration/history/{version}", get(configuration::version))
        .route("/api/v1/bridges", get(bridges::list))
        .route("/api/v1/listeners", get(stores::listeners))
        .route("/api/v1/planner", get(planner::plan))
        .route("/api/v1/routes", get(routes::list))
        .route("/api/v1/stores", get(stores::stores))
        .route("/api/v1/subscriptions", get(subscriptions::list))
        .route("/api/v1/subscriptions/{name}", delete(subscriptions::end))
        .route("/api/v1/transactions", get(transactions::list))
        .route("/api/v1/transactions/{branch}", delete(transactions::forget))
        .route("/api/v1/transactions/{branch}/commit", post(transactions::commit))
        .route("/api/v1/transactions/{branch}/rollback", post(transactions::rollback))
}

impl Api {
    /// A client for one request.
    async fn client(&self, caller: &Caller) -> Result<Client, Problem> {
        let options =
            ClientOptions { principal: caller.principal.clone(), ..ClientOptions::named("admin-api") };
        Ok(self.0.options.clients.connect(options).await?)
    }

    /// Whether the caller may look at, and change, the whole broker.
    fn administers(&self, caller: &Caller) -> bool {
        self.permissions().grants_of(&caller.principal).permit_everywhere(Action::Admin)
    }

    fn permissions(&self) -> Arc<Permissions> {
        (self.0.options.policies)().permissions.clone()
    }

    /// The tenant that the caller belongs to.
    fn membership_of(&self, caller: &Caller) -> Option<Membership> {
        self.permissions().membership_of(&caller.principal)
    }

    /// Refuses a request that needs `admin` on every destination.
    fn not_administrator(&self, caller: &Caller) -> Problem {
        let (user, destination) = (caller.principal.user().cloned(), Destination::queue(">"));
        Refusal::NotPermitted { user, action: Action::Admin, destination }.into()
    }

    fn about(&self) -> Broker {
        let ApiOptions { broker_name, version, listeners, .. } = &self.0.options;
        let (uptime_seconds, draining) = (self.0.begun.elapsed().as_secs(), self.0.options.draining.is_on());
        let (name, endpoints) = (broker_name.clone(), listeners.clone());
        Broker { name, version, uptime_seconds, draining, endpoints }
    }

    fn now_ms(&self) -> u64 {
        (self.0.options.now_ms)()
    }

    /// An id that no other message has.
    fn message_id(&self) -> String {
        let number = self.0.sent.fetch_add(1, Ordering::Relaxed);
        format!("ID:postroad-api-{:x}-{number}", self.0.begun_ms)
    }
}

#[derive(Serialize)]
struct Broker {
    name: String,
    version: &'static str,
    uptime_seconds: u64,
    /// An operator drains it.
    draining: bool,
    endpoints: Vec<ListenerRow>,
}

async fn broker(State(api): State<Api>) -> Json<Broker> {
    Json(api.about())
}

async fn drain(State(api): State<Api>) -> Json<Broker> {
    set_draining(&api, true)
}

async fn resume(State(api): State<Api>) -> Json<Broker> {
    set_draining(&api, false)
}

fn set_draining(api: &Api, drains: bool) -> Json<Broker> {
    api.0.options.draining.set(drains);
    tracing::info!(drains, "draining: new connections and messages are refused while it lasts");
    Json(api.about())
}

async fn unknown() -> Problem {
    let right =
        "there is /console/, /metrics, /health/live, /health/ready and what /api/v1/openapi.json lists";
    Problem::new(404, format!("no such path; {right}"))
}

async fn not_allowed() -> Problem {
    Problem::new(405, "the path exists, but not with this method; see /api/v1/openapi.json".to_owned())
}

/// A queue by its name, or by `queue://` and its name.
fn queue_of(text: &str) -> Result<Destination, Problem> {
    let destination = destination_of(text)?;
    match destination.kind {
        DestinationKind::Queue => Ok(destination),
        DestinationKind::Topic => Err(Problem::new(400, format!("{text} is a topic; expected a queue"))),
    }
}

/// A destination: `queue://NAME`, `topic://NAME`, or `NAME` for a queue.
fn destination_of(text: &str) -> Result<Destination, Problem> {
    let destination = match text.split_once("://") {
        None => Destination::queue(text),
        Some(("queue", name)) => Destination::queue(name),
        Some(("topic", name)) => Destination::topic(name),
        Some(("temp-queue", name)) => Destination { temporary: true, ..Destination::queue(name) },
        Some((kind, _)) => {
            let right = "queue://NAME, topic://NAME or NAME is right";
            return Err(Problem::new(400, format!("{kind:?} is not a type of destination; {right}")));
        }
    };
    match destination.name.is_empty() {
        true => Err(Problem::new(400, "the name of the destination is missing".to_owned())),
        false => Ok(destination),
    }
}
