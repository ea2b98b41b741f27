//! The stores of `postroad serve`: opened at once, or followed until this node of a cluster leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use postroad_admin::Alerts;
use postroad_amqp::AmqpOptions;
use postroad_cluster::Term;
use postroad_model::{ConnectionId, Elsewhere, Endpoint, Session};
use postroad_net::{Listener, Places};
use postroad_node::Clients;
use postroad_node::TenantMeters;
use postroad_openwire::OpenWireOptions;
use postroad_routing::{Addressing, Policies};
use postroad_security::{Documents, Visit};
use postroad_store::{Stores, broker_id};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::cli::admission::Admission;
use crate::cli::listeners::Listeners;
use crate::cli::serve::{
    Signals, amqp_options, amqp_session, announce, openwire_options, openwire_session, websocket_bytes_max,
};
use crate::cli::stores;
use crate::config::{Config, StoreKeys};
use crate::control;
use crate::runtime::{
    self, Admitted, ClientRedirect, ClusterOptions, ClusterView, Following, Forwarded, ForwardedClients,
    LeaderStore, LinkBoard, NodeReplica, Orders, StatsCollector, StorePart, TenantKeys, admin_elsewhere,
    cluster_api, cluster_orders, descriptors_max, restart, sealed_clients_max, store_requests,
};
use crate::runtime::{Runtime, RuntimeOptions, Service};

/// Clients of a follower at a time that it carries to the leader, unless the limit of descriptors
/// is lower.
const VISITORS_MAX: u64 = 8192;

/// Connections that other nodes carry here are closed within this time if this node does not lead.
const STALE_EVERY: Duration = Duration::from_millis(500);

/// A leader that was elected again takes its partitions over once its cores have given them back.
const NOT_YET: Duration = Duration::from_millis(10);

/// A deposed leader that knows no other one after this time closes its clients' connections without
/// naming one.
const ONWARD_WITHIN: Duration = Duration::from_millis(200);

/// Stores that are open, with all that belongs to them.
pub struct Open {
    /// The stores.
    pub opened: Opened,
    /// The keys of tenants.
    pub keys: Arc<TenantKeys>,
    /// The state of the cluster, in a node of one.
    pub view: Option<ClusterView>,
    /// The signals of the process, where they were listened to already.
    pub signals: Option<Signals>,
    /// Where clients on other machines reach this node of a cluster.
    pub endpoints: Vec<Endpoint>,
    /// HTTP connections that other nodes carry here.
    pub http: Option<mpsc::Receiver<Forwarded>>,
}

/// A node that follows, with all that belongs to it.
pub struct Follower {
    /// The replica.
    pub following: Following,
    /// As in [`Open`].
    pub keys: Arc<TenantKeys>,
    /// As in [`Open`].
    pub signals: Signals,
    /// As in [`Open`].
    pub endpoints: Vec<Endpoint>,
}

/// Opens the stores. A node of a cluster takes part, and returns once it leads; `None` if it was
/// stopped first.
///
/// # Errors
/// A store cannot be opened, or a port is not available.
pub async fn open(
    config: &Config,
    policies: &Arc<Policies>,
    keys: StoreKeys,
    (listeners, http, part): (&mut Listeners, &Listener, &StorePart),
) -> anyhow::Result<Option<Open>> {
    let Some(cluster) = config.cluster()? else {
        let (stores, keys) = stores::open(config, policies, keys)?;
        let (opened, endpoints, keys) = (Opened::Alone(stores), Vec::new(), Arc::new(keys));
        return Ok(Some(Open { opened, keys, view: None, signals: None, endpoints, http: None }));
    };
    let (endpoints, part) = (advertised(listeners, http, &cluster)?, part.clone());
    let cluster = ClusterOptions { endpoints, part, ..cluster };
    let mut signals = Signals::listen()?;
    let Some(admitted) = admitted(config, &cluster, &mut signals).await? else { return Ok(None) };
    let (following, keys) = stores::follow(config, policies, keys, (&cluster, &admitted))?;
    tokio::spawn(following.replica.view.clone().hand_over_by_itself());
    cluster.part.open(following.replica.view.clone());
    if !cluster.part.is_one_of_several() {
        announce(&cluster_endpoints(listeners, http, &cluster)?, config)?;
    }
    let follower = Follower { following, keys: Arc::new(keys), signals, endpoints: cluster.endpoints };
    follow(config, policies, follower, (listeners, http)).await
}

/// The place of this node in its cluster, once it has one; `None` if it was stopped first.
async fn admitted(
    config: &Config,
    cluster: &ClusterOptions,
    signals: &mut Signals,
) -> anyhow::Result<Option<Admitted>> {
    if let Some(founder) = cluster.founder()? {
        return Ok(Some(founder));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (cluster, data, stops) = (cluster.clone(), config.data.clone(), stop.clone());
    let mut asks = tokio::task::spawn_blocking(move || runtime::admitted(&cluster, &data, &stops));
    tokio::select! {
        admitted = &mut asks => return admitted?,
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
    }
    stop.store(true, Ordering::Release);
    asks.await?.map(|_| None)
}

/// Follows until this node leads; `None` if it was stopped first.
///
/// # Errors
/// The control socket, or the configuration of addresses.
pub async fn follow(
    config: &Config,
    policies: &Policies,
    follower: Follower,
    (listeners, http): (&mut Listeners, &Listener),
) -> anyhow::Result<Option<Open>> {
    let Follower { following, keys, mut signals, endpoints } = follower;
    let view = following.replica.view.clone();
    let addressing = Addressing { routes: policies.routes.clone(), ..config.addressing()? };
    // Clients that are still being sent on end with it.
    let visitors = LocalSet::new();
    let led = follow_until_led((config, addressing), following, (&mut *listeners, http), &mut signals);
    let mut led = visitors.run_until(led).await?;
    drop(visitors);
    let Some(LeaderStore { clients, .. }) = &mut led else { return Ok(None) };
    let none = || mpsc::channel(1).1;
    listeners.take_forwarded(std::mem::replace(&mut clients.sessions, none()));
    let http = Some(std::mem::replace(&mut clients.http, none()));
    Ok(led.map(|led| {
        tracing::info!(term = led.term.0, "this node is the leader and serves clients");
        let opened = Opened::Led(Box::new(led));
        Open { opened, keys, view: Some(view), signals: Some(signals), endpoints, http }
    }))
}

/// The stores of the broker.
pub enum Opened {
    /// Stores of its own.
    Alone(Stores),
    /// The store of a cluster that this node leads.
    Led(Box<LeaderStore>),
}

/// A node that leads, for as long as it does.
pub struct LeaderTerm {
    /// Its replica.
    pub replica: NodeReplica,
    /// Its term.
    pub term: Term,
}

impl Opened {
    /// Starts the threads over them: see [`Runtime::start`].
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start(
        self,
        options: &RuntimeOptions,
        make: impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + Send + 'static,
    ) -> std::io::Result<(Runtime, Option<LeaderTerm>)> {
        match self {
            Opened::Alone(stores) => Ok((Runtime::start(stores, options, make)?, None)),
            Opened::Led(led) => {
                let LeaderStore { stores, term, replica, .. } = *led;
                let runtime = Runtime::lead((stores, &replica), options, make)?;
                Ok((runtime, Some(LeaderTerm { replica, term })))
            }
        }
    }

    /// Reads the documents that the nodes of a cluster replicate.
    pub fn read_documents(&self, into: &Documents) {
        if let Opened::Led(led) = self {
            runtime::read_documents(led, into);
        }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        match self {
            Opened::Alone(stores) => stores.placement.partitions,
            Opened::Led(led) => led.stores.placement.partitions,
        }
    }
}

impl LeaderTerm {
    /// Comes back once another node leads.
    pub async fn ended(leading: &mut Option<LeaderTerm>) {
        match leading {
            Some(LeaderTerm { replica, term }) => replica.deposed(*term).await,
            None => std::future::pending().await,
        }
    }

    /// Another node leads: clients are answered and sent away, and this one follows, while its
    /// cores are still about it.
    pub async fn step_down(self, runtime: Runtime, clients: ForwardedClients) -> std::io::Result<Following> {
        tracing::info!(term = self.term.0, "this node leads no more, and follows");
        let onward = self.replica.view.onward(ONWARD_WITHIN).await;
        let door = self.replica.door.door.clone();
        let steps = move || match runtime.step_down(onward) {
            Ok(partitions) => door.return_partitions(partitions),
            Err(reason) => restart(&reason),
        };
        std::thread::Builder::new().name("stepping-down".to_owned()).spawn(steps)?;
        Ok(Following { replica: self.replica, clients })
    }

    /// The node ends. Another one takes over first, if there is any.
    pub async fn end(mut self, runtime: Runtime) {
        if self.replica.hands_over(self.term).await {
            let onward = self.replica.view.onward(ONWARD_WITHIN).await;
            match runtime.step_down(onward) {
                Ok(partitions) => self.replica.door.door.return_partitions(partitions),
                Err(reason) => tracing::error!(reason, "a core did not end in order"),
            }
        } else {
            runtime.stop();
        }
        self.replica.stop();
    }
}

/// The options for clients that came through another node, without and with TLS: those that
/// reconnect
/// by themselves are sent here, and the others are served.
pub fn forwarded_openwire(options: &OpenWireOptions, endpoints: &[Endpoint]) -> [OpenWireOptions; 2] {
    ["tcp", "ssl"].map(|scheme| {
        let served_at = endpoints.iter().find(|endpoint| endpoint.scheme == scheme).cloned();
        let reason = "this node serves clients".to_owned();
        let elsewhere = Elsewhere { reason, served_at, serves_others: true };
        OpenWireOptions { elsewhere: Some(Arc::new(elsewhere)), ..options.clone() }
    })
}

/// Further routes of the admin API of a node: the state of its cluster, and orders to it.
pub fn further_api(view: Option<ClusterView>) -> Router {
    view.map_or_else(Router::new, |view| {
        let stores = store_requests(view.part());
        cluster_api(view.clone()).merge(cluster_orders(view)).merge(stores)
    })
}

/// Where the broker is reached.
///
/// # Errors
/// The system does not say.
pub fn endpoints(listeners: &Listeners, http: &Listener) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut endpoints = listeners.endpoints()?;
    endpoints.push(("HTTP", format!("http://{}", http.address()?)));
    Ok(endpoints)
}

/// Where clients on other machines reach a node.
fn advertised(
    listeners: &Listeners,
    http: &Listener,
    cluster: &ClusterOptions,
) -> anyhow::Result<Vec<Endpoint>> {
    let host = cluster.advertised_host();
    let mut endpoints = listeners.advertised(host)?;
    let port = http.address()?.port();
    endpoints.push(Endpoint { scheme: "http".to_owned(), host: host.to_owned(), port });
    Ok(endpoints)
}

/// Where a node is reached, by clients once it leads.
///
/// # Errors
/// As [`endpoints`].
pub fn cluster_endpoints(
    listeners: &Listeners,
    http: &Listener,
    cluster: &ClusterOptions,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut endpoints = endpoints(listeners, http)?;
    endpoints.push(("node", format!("{} of {}, {}", cluster.node, cluster.name, cluster.listen)));
    Ok(endpoints)
}

/// Takes part until this node leads; `None` if it is to stop. Clients that come are sent to the
/// leader.
async fn follow_until_led(
    (config, addressing): (&Config, Addressing),
    mut following: Following,
    (listeners, http): (&mut Listeners, &Listener),
    signals: &mut Signals,
) -> anyhow::Result<Option<LeaderStore>> {
    let (view, door) = (following.replica.view.clone(), following.replica.door.clone());
    let api = admin_elsewhere(view.clone());
    let (links, policies) = (LinkBoard::default(), watch::channel(Arc::default()).1);
    let (cluster, alerts, draining) = (Some(view.clone()), Alerts::default(), view.draining.clone());
    let (cores, journals, tenants) = (Vec::new(), vec![door], TenantMeters::default());
    let everybody =
        StatsCollector { cores, journals, links, policies, cluster, alerts, draining, tenants, traces: None };
    let (orders, journals) = (Orders::new(Clients::over(0).0), Vec::new());
    let served = control::Served { journals, orders, everybody: everybody.clone(), api: api.clone() };
    let control = control::serve(&config.data, served);
    let control = control.inspect_err(|error| tracing::warn!(%error, "no control socket")).ok();
    let (redirect, max) = (ClientRedirect::new(view.clone()), visitors_max());
    let (visitors, http_places) = (Places::new(max), Places::new(max));
    let mut stale = tokio::time::interval(STALE_EVERY);
    let mut admission = visitors_admission(config, visitors)?;
    let make = visitor_sessions(config, listeners)?;
    let led = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break Err(following),
            _ = signals.interrupt.recv() => break Err(following),
            _ = signals.hangup.recv() => tracing::info!("the configuration is read when this node becomes the leader"),
            () = following.led() => match following.lead(addressing.clone())? {
                Ok(led) => break Ok(led),
                Err(not_yet) => {
                    following = not_yet;
                    tokio::time::sleep(NOT_YET).await;
                }
            },
            _ = stale.tick() => if !view.is_elected() {
                following.clients.close();
            },
            accepted = http.accept(), if !view.is_elected() => match accepted {
                Ok(accepted) => {
                    if let Some(place) = http_places.take() {
                        redirect.receive_http(accepted, place, (everybody.clone(), api.clone()));
                    }
                }
                Err(error) => pause(&error).await,
            },
            accepted = listeners.accept(), if !view.is_elected() => match accepted {
                // Closed at once while the node is drained.
                Ok(_) if view.draining.is_on() => {}
                Ok(accepted) => {
                    if let Some(place) = admission.ask(accepted.peer) {
                        let (make, endpoint) = (make.clone(), accepted.endpoint);
                        let make = move |elsewhere, visit: &Visit| make(endpoint.service, elsewhere, visit);
                        redirect.receive(admission.dress(accepted, place), endpoint.scheme(), make);
                    }
                }
                Err(error) => pause(&error).await,
            },
        }
    };
    if let Some(control) = control {
        control.end();
    }
    Ok(led.map_err(|following: Following| following.replica.stop()).ok())
}

/// Visitors log in as at the leader.
pub fn visitors_admission(config: &Config, places: Places) -> anyhow::Result<Admission> {
    let door = Arc::new(config.door()?);
    Ok(Admission::new(places, config.tls()?, door, websocket_bytes_max(config)))
}

/// A connection was not accepted: too many files are open, for instance.
pub async fn pause(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(control::ACCEPT_PAUSE).await;
}

/// Each takes two descriptors, and half of them are for others.
pub fn visitors_max() -> usize {
    (descriptors_max() / 8).min(VISITORS_MAX) as usize
}

/// Descriptors of clients that other nodes carry here inside of TLS, besides those of the clients.
pub fn sealed_descriptors(config: &Config, descriptors: u64) -> usize {
    if config.cluster.has_tls() { 2 * sealed_clients_max(descriptors) } else { 0 }
}

/// The sessions of clients that are sent to another node.
fn visitor_sessions(
    config: &Config,
    listeners: &Listeners,
) -> anyhow::Result<impl Fn(Service, Arc<Elsewhere>, &Visit) -> Box<dyn Session> + Clone + 'static> {
    let broker_id = broker_id::read_or_make(&config.data, &config.broker_name)?;
    let openwire = openwire_options(config, (1, broker_id), listeners.address(Service::OpenWire)?);
    let (amqp, id) = (amqp_options(config, 1), ConnectionId::new(0, 0));
    Ok(move |service: Service, elsewhere: Arc<Elsewhere>, visit: &Visit| match service {
        Service::Amqp => amqp_session(id, visit, &AmqpOptions { elsewhere: Some(elsewhere), ..amqp.clone() }),
        // A follower opens no links.
        Service::OpenWire | Service::ForwardedOpenWire { .. } | Service::Link { .. } => {
            openwire_session(id, visit, &OpenWireOptions { elsewhere: Some(elsewhere), ..openwire.clone() })
        }
    })
}
