//! `postroad serve`: assembles the broker, prints its endpoints, and runs until it is stopped.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use postroad_admin::{ApiOptions, ListenerRow, Totals};
use postroad_amqp::{AmqpOptions, AmqpSession};
use postroad_model::{ConnectionId, Endpoint, Session};
use postroad_net::{Listener, Places};
use postroad_node::{OfflineEnds, TenantMeters, TraceBook};
use postroad_openwire::network::DialOptions;
use postroad_openwire::{OpenWireOptions, OpenWireSession};
use postroad_routing::{FIRST_STORE, Policies};
use postroad_security::{Door, Visit, set_password_checks_max};
use postroad_store::broker_id;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::cli::ServeArguments;
use crate::cli::admission::Admission;
use crate::cli::alerts;
use crate::cli::listeners::Listeners;
use crate::cli::node::{self, Follower, LeaderTerm, Open, Opened};
use crate::cli::reload::{self, Changed, Declared, Reloader, Reread, RulesAnswered, RulesChange};
use crate::cli::several;
use crate::cli::store_count;
use crate::config::{Config, OpenTo, OpenWireConfig, Shares, password_checks_max};
use crate::control;
use crate::runtime::{
    ClusterView, Diallers, Dials, DocumentContents, DocumentWriter, Following, Forwarded, ForwardedClients,
    HttpSocket, NewSocket, Origins, PushOptions, Runtime, RuntimeOptions, Service, SpanPoster, SpreadOptions,
    SqsOptions, StatsCollector, StorePart, TenantKeys, descriptors_max, export_spans, keep_balanced, now_ms,
    now_us, other_store, publish_documents, read_portable, spread_clients, ticks_us, watch_links,
};

/// Descriptors that connections may not take: the journal keeps 64 sealed segments open for
/// reading, and the rest is for its current and next segment, checkpoints, directory and lock, the
/// standard streams, listeners and signals. Without them no segment can be made, and durable sends
/// end for all because some are idle.
const DESCRIPTOR_RESERVE: u64 = 96;

/// HTTP connections at a time, and requests that push queues have under way: a quarter and an
/// eighth of the descriptors, within these limits.
const HTTP_CONNECTIONS: (u64, u64) = (256, 4096);
const PUSH_REQUESTS: (u64, u64) = (64, 1024);

/// A core's runtime has a poller and a waker, each with a copy for a moment.
const DESCRIPTORS_PER_CORE: u64 = 4;

/// The journal of each further store keeps as many sealed segments open, with its current and next
/// one, checkpoints and directory.
const DESCRIPTORS_PER_STORE: u64 = 80;

/// Clients gather frames in a message.
const WEBSOCKET_BYTES_MAX_MIN: usize = 16 << 20;

/// Runs the broker.
pub fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    log_to_stderr();
    let config = Config::load(arguments)?;
    warn_of_open_doors(&config);
    set_password_checks_max(password_checks_max(config.memory_bytes));
    let descriptors = raise_descriptor_limit();
    let further = config.store.further.len().max(usize::from(config.cluster.stores.saturating_sub(1)));
    let places = connections_max(descriptors, config.runtime.cores, further);
    let places = places.saturating_sub(node::sealed_descriptors(&config, descriptors)).max(1);
    if config.cluster.has_several_stores() {
        return several::run(&config, arguments, (places, descriptors));
    }
    let admin = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    admin.block_on(async {
        store_count::check(&config)?;
        check_directory(&config)?;
        let (listeners, http) = bind(&config)?;
        let (part, sockets) = (StorePart::default(), (listeners, http));
        serve(&config, arguments, (Places::new(places), descriptors), (sockets, part)).await
    })
}

/// Opens all ports of clients. Call within a runtime.
pub(super) fn bind(config: &Config) -> anyhow::Result<(Listeners, Listener)> {
    let listeners = Listeners::bind(config)?;
    let http = Listener::bind("HTTP", SocketAddr::new(config.bind, config.port(config.ports.http)?))?;
    Ok((listeners, http))
}

fn check_directory(config: &Config) -> anyhow::Result<()> {
    if config.data.exists() && !config.data.is_dir() {
        bail!("the store {} is a file; name a directory with --data", config.data.display());
    }
    Ok(())
}

/// Says who needs no password.
fn warn_of_open_doors(config: &Config) {
    let right = "security.users names the users who are let in";
    match config.open_to() {
        None => {}
        Some(OpenTo::Machine) => tracing::info!("every client of this machine is let in; {right}"),
        Some(OpenTo::Network) => tracing::warn!("every client of the network is let in; {right}"),
        Some(OpenTo::Unnamed) => {
            tracing::warn!("clients without a user name are let in (security.anonymous)")
        }
    }
}

/// Serves the clients of one store, until the broker ends.
pub(super) async fn serve(
    config: &Config,
    arguments: &ServeArguments,
    (places, descriptors): (Places, u64),
    ((mut listeners, http), part): ((Listeners, Listener), StorePart),
) -> anyhow::Result<()> {
    // A clear error at once, rather than spans that are refused later.
    config.runtime.tracing.headers()?;
    let (keys, reloader) = (config.keys()?, Reloader::new(arguments, config)?);
    let (policies, http) = (Arc::new(reloader.identities()?.0), Arc::new(http));
    let mut opened = node::open(config, &policies, keys, (&mut listeners, &http, &part)).await?;
    while let Some(open) = opened {
        let ways = (&mut listeners, &http, &part);
        let follower = serve_clients(config, open, ways, &reloader, (&places, descriptors)).await?;
        let Some(follower) = follower else { return Ok(()) };
        opened = node::follow(config, &policies, follower, (&mut listeners, &http)).await?;
    }
    Ok(())
}

/// Serves clients until the broker ends; or, in a node of a cluster, until another node leads.
async fn serve_clients(
    config: &Config,
    open: Open,
    (listeners, http, part): (&mut Listeners, &Arc<Listener>, &StorePart),
    reloader: &Reloader<'_>,
    (places, descriptors): (&Places, u64),
) -> anyhow::Result<Option<Follower>> {
    let Open { opened, keys, view, signals, endpoints: advertised, http: forwarded_http } = open;
    let is_node = view.is_some();
    let mut documents = further_documents(part);
    let Reread { policies, alerts: rules, tls, door, bridges } =
        of_leader(reloader, (&opened, &documents), is_node)?;
    let partitions = opened.partitions();
    let broker_id = broker_id::read_or_make(&config.data, &config.broker_name)?;
    let openwire = openwire_options(config, (partitions, broker_id), listeners.address(Service::OpenWire)?);
    let (http_max, push_max) = http_shares(descriptors);
    let push = config.push.options(&format!("http://{}", http.address()?), push_max as usize)?;
    let spread = spread_options(config, &openwire).zip(openwire.spread.clone());
    let options = runtime_options(config, &openwire, keys.clone(), (push, Arc::new(policies.clone())));
    let amqp = amqp_options(config, partitions);
    let dials = Dials::default();
    let make = sessions((openwire, amqp), &advertised, dials.clone());
    let (runtime, mut leading) = opened.start(&options, make)?;
    if is_node {
        runtime.follow(policies);
    }
    let writer = lead_documents(reloader, &runtime, (&mut leading, documents.is_none())).await?;
    let admission = Admission::new(places.clone(), tls, Arc::new(door), websocket_bytes_max(config));
    let (orders, changes, further_changes) = reload::channel();
    reloader.keep_first();
    runtime.alerts().follow(rules);
    let everybody = part.leads(StatsCollector { cluster: view.clone(), ..runtime.everybody() });
    let endpoints = node::endpoints(listeners, http)?;
    let api = api_options((config, part), &runtime, &admission, (orders, reloader.texts()), &endpoints);
    let api = postroad_admin::router(api, node::further_api(view.clone()));
    let control = serve_control(&config.data, &runtime, (everybody.clone(), api.clone()));
    // A reader of the line that we are ready may send a signal at once.
    let mut signals = signals.map_or_else(Signals::listen, Ok)?;
    let (cores, door, sqs) = (runtime.http(), admission.door(), SqsOptions::new(reloader.access_keys()));
    let limits = (sqs, Places::new(http_max as usize), config.http.origins());
    let (operators, ends) = (Operators::new(cores, everybody, (door, api), limits), Arc::new(Notify::new()));
    let http = tokio::spawn(serve_http((http.clone(), forwarded_http), operators, ends.clone()));
    if !is_node {
        announce(&endpoints, config).context("cannot write to standard output")?;
    }
    let links = Diallers::start(runtime.links(), dials, bridges);
    let mut watches = watches(config, &runtime);
    watch_cluster(&mut watches, view, (part, reloader));
    if let Some((options, spread)) = spread {
        watches.spawn(spread_clients(options, runtime.links(), spread));
    }
    let (runtime, end) = accept_until_ended(
        (listeners, links),
        admission,
        runtime,
        (&mut signals, &mut leading),
        (reloader, changes, Committer { writer, done: further_changes }, &mut documents),
    )
    .await;
    part.leads_no_more();
    reloader.own_documents().follow();
    control.into_iter().for_each(control::Listening::end);
    watches.abort_all();
    ends.notify_one();
    let none = || mpsc::channel(1).1;
    let http = http.await.unwrap_or_else(|_| none());
    let sessions = listeners.release_forwarded().unwrap_or_else(none);
    let following = ended(end, leading, runtime, ForwardedClients { sessions, http }).await?;
    Ok(following.map(|following| Follower { following, keys, signals, endpoints: advertised }))
}

/// Tasks that go on as long as clients are served.
fn watches(config: &Config, runtime: &Runtime) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    watches.spawn(alerts::watch_rules(config, runtime));
    watches.spawn(watch_links(runtime.clients(), runtime.links()));
    let tracing = &config.runtime.tracing;
    if let (Some(traces), Some(url)) = (runtime.traces(), tracing.spans_url()) {
        match tracing.headers() {
            Ok(headers) => {
                let poster = SpanPoster::new(url, headers);
                watches.spawn(export_spans(traces, poster, config.broker_name.clone()));
            }
            Err(error) => tracing::error!(error = format!("{error:#}"), "spans are not exported"),
        }
    }
    watches
}

/// Further ones of a node of a cluster.
fn watch_cluster(
    watches: &mut JoinSet<()>,
    view: Option<ClusterView>,
    (part, reloader): (&StorePart, &Reloader<'_>),
) {
    view.into_iter().for_each(|view| drop(watches.spawn(keep_balanced(view))));
    if part.is_one_of_several() && part.number() == FIRST_STORE {
        watches.spawn(publish_documents(part.clone(), reloader.documents().clone()));
    }
}

/// Clients are served no more. A node that was deposed follows.
async fn ended(
    end: End,
    leading: Option<LeaderTerm>,
    runtime: Runtime,
    clients: ForwardedClients,
) -> anyhow::Result<Option<Following>> {
    match (end, leading) {
        (_, None) => runtime.stop(),
        (End::Stopped, Some(leading)) => leading.end(runtime).await,
        (End::Deposed, Some(leading)) => return Ok(Some(leading.step_down(runtime, clients).await?)),
    }
    Ok(None)
}

/// The configuration with which a broker begins to serve. A node of a cluster may have followed for
/// a long time: it reads the file again.
fn of_leader(
    reloader: &Reloader<'_>,
    (opened, documents): (&Opened, &Option<watch::Receiver<DocumentContents>>),
    is_node: bool,
) -> anyhow::Result<Reread> {
    if !is_node {
        return reloader.in_force();
    }
    if let Some(documents) = documents {
        reloader.documents().read(documents.borrow().iter().cloned());
    }
    opened.read_documents(reloader.own_documents());
    reloader.follow_documents().context("the documents of the cluster cannot be read")?;
    reloader.reread().or_else(|error| {
        tracing::error!(
            error = format!("{error:#}"),
            "reloading the configuration failed; the old one stays in use"
        );
        reloader.in_force()
    })
}

/// The documents of the first store, for another one.
fn further_documents(part: &StorePart) -> Option<watch::Receiver<DocumentContents>> {
    part.documents().filter(|_| part.number() != FIRST_STORE)
}

fn api_options(
    (config, part): (&Config, &StorePart),
    runtime: &Runtime,
    admission: &Admission,
    (orders, texts): (reload::Orders, reload::Texts),
    endpoints: &[(&str, String)],
) -> ApiOptions {
    let (everybody, of_policies, board) = (runtime.everybody(), runtime.everybody(), runtime.links());
    let barring = runtime.links();
    let listener =
        |(protocol, url): &(&str, String)| ListenerRow { protocol: (*protocol).to_owned(), url: url.clone() };
    let reload::Orders { reload, configuration, tenant_rules } = orders;
    ApiOptions {
        broker_name: config.broker_name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        clients: runtime.clients(),
        routes: Arc::new(move || everybody.routes()),
        bridges: Arc::new(move || board.figures()),
        barring: Arc::new(move |queue| barring.barring(queue)),
        offline_ends: runtime.offline_ends(),
        draining: runtime.draining(),
        door: admission.door(),
        now_ms,
        totals: totals(runtime.everybody()),
        memory_bytes_max: config.memory_bytes,
        alerts: runtime.alerts(),
        policies: Arc::new(move || of_policies.policies()),
        made_tenants: texts.made_tenants,
        redrives: texts.redrives,
        other_store: other_store(part),
        access_keys: texts.access_keys,
        sessions: texts.sessions,
        entry_of: |id| postroad_ironmq::MessageId::parse(id).map(|id| (id.queue, id.tag)),
        reload,
        configuration,
        tenant_rules,
        listeners: endpoints.iter().map(listener).collect(),
        traces: runtime.traces(),
    }
}

fn totals(everybody: StatsCollector) -> Totals {
    Arc::new(move || {
        let everybody = everybody.clone();
        Box::pin(async move { everybody.totals().await })
    })
}

fn runtime_options(
    config: &Config,
    openwire: &OpenWireOptions,
    keys: Arc<TenantKeys>,
    (push, policies): (PushOptions, Arc<Policies>),
) -> RuntimeOptions {
    let tenants = TenantMeters::default();
    tenants.follow(&policies);
    RuntimeOptions {
        broker_name: openwire.broker_name.clone(),
        broker_id: openwire.broker_id.clone(),
        broker_url: openwire.broker_url.clone(),
        cores: config.runtime.cores,
        pin: config.runtime.pin,
        outstanding_bytes_max: Shares::of(config.memory_bytes).outstanding,
        sync_within: Duration::from_millis(config.store.main.async_sync_ms),
        keys,
        push,
        policies,
        tenants,
        traces: traces_of(config),
        offline_ends: OfflineEnds::default(),
    }
}

/// The book of traced messages, if any are traced.
fn traces_of(config: &Config) -> Option<TraceBook> {
    let replicated = !config.cluster.node.is_empty();
    config.runtime.tracing.options((ticks_us, now_us), replicated).map(TraceBook::new)
}

/// The sessions of all services. Clients of this node's cluster know it by `endpoints`.
fn sessions(
    (openwire, amqp): (OpenWireOptions, AmqpOptions),
    endpoints: &[Endpoint],
    of_links: Dials,
) -> impl Fn(Service, ConnectionId, &Visit) -> Box<dyn Session> + Clone + Send + 'static {
    let forwarded = node::forwarded_openwire(&openwire, endpoints);
    move |service: Service, id: ConnectionId, visit: &Visit| match service {
        Service::Link { number } => link_session(id, &openwire, of_links.of(number)),
        Service::OpenWire => openwire_session(id, visit, &openwire),
        Service::ForwardedOpenWire { tls } => openwire_session(id, visit, &forwarded[usize::from(tls)]),
        Service::Amqp => amqp_session(id, visit, &amqp),
    }
}

pub(super) fn openwire_session(
    id: ConnectionId,
    visit: &Visit,
    options: &OpenWireOptions,
) -> Box<dyn Session> {
    let options = OpenWireOptions { asks_login: visit.has_users(), ..options.clone() };
    Box::new(OpenWireSession::new(id, options, read_portable))
}

fn link_session(id: ConnectionId, options: &OpenWireOptions, dial: DialOptions) -> Box<dyn Session> {
    Box::new(OpenWireSession::dial(id, options.clone(), read_portable, dial))
}

pub(super) fn amqp_session(id: ConnectionId, visit: &Visit, options: &AmqpOptions) -> Box<dyn Session> {
    let (mechanisms, must_login, has_users) = (visit.mechanisms(), visit.must_login(), visit.has_users());
    let options = AmqpOptions { mechanisms, must_login, has_users, ..options.clone() };
    Box::new(AmqpSession::new(id, options, read_portable))
}

pub(super) fn openwire_options(
    config: &Config,
    (partitions, broker_id): (u16, String),
    address: SocketAddr,
) -> OpenWireOptions {
    OpenWireOptions {
        max_frame_bytes: config.openwire.max_frame_bytes,
        large_message_bytes: config.limits.large_message_bytes,
        tight_encoding: config.openwire.tight_encoding,
        cache: config.openwire.cache,
        max_inactivity_ms: config.openwire.max_inactivity_ms,
        broker_name: config.broker_name.clone(),
        broker_id,
        broker_url: match &*config.openwire.published_url {
            "" => format!("tcp://{address}"),
            url => url.to_owned(),
        },
        partitions,
        asks_login: false,
        forwarder: Some(postroad_bridge::forwarders(&config.openwire.swimlane)),
        elsewhere: None,
        spread: config.openwire.update_clients.then(Arc::default),
    }
}

/// `None` if clients are not spread.
fn spread_options(config: &Config, openwire: &OpenWireOptions) -> Option<SpreadOptions> {
    let OpenWireConfig { rebalance_clients, update_clients_on_remove, update_clients_filter, .. } =
        &config.openwire;
    openwire.spread.as_ref().map(|_| SpreadOptions {
        own_url: openwire.broker_url.clone(),
        rebalances: *rebalance_clients,
        removes: *update_clients_on_remove,
        names: update_clients_filter.clone(),
    })
}

pub(super) fn amqp_options(config: &Config, partitions: u16) -> AmqpOptions {
    AmqpOptions {
        large_message_bytes: config.limits.large_message_bytes,
        max_frame_bytes: config.amqp.max_frame_bytes,
        max_message_bytes: config.amqp.max_message_bytes,
        max_inactivity_ms: config.amqp.max_inactivity_ms,
        broker_name: config.broker_name.clone(),
        mechanisms: Vec::new(),
        must_login: true,
        has_users: true,
        partitions,
        elsewhere: None,
    }
}

/// Answers commands on this machine; a broker that cannot serves its clients all the same.
fn serve_control(
    data: &Path,
    runtime: &Runtime,
    (everybody, api): (StatsCollector, Router),
) -> Option<control::Listening> {
    let (journals, orders) = (runtime.journals(), runtime.orders());
    let served = control::Served { journals, orders, everybody, api };
    let control = control::serve(data, served);
    control.inspect_err(|error| tracing::warn!(%error, "no control socket: backups and `postroad transactions` are unavailable")).ok()
}

/// Services of HTTP connections.
struct Operators {
    cores: Vec<tokio::sync::mpsc::Sender<HttpSocket>>,
    everybody: StatsCollector,
    door: watch::Receiver<Arc<Door>>,
    api: Router,
    origins: Origins,
    /// Connections at a time.
    places: Places,
    sqs: SqsOptions,
}

impl Operators {
    fn new(
        cores: Vec<mpsc::Sender<HttpSocket>>,
        everybody: StatsCollector,
        (door, api): (watch::Receiver<Arc<Door>>, Router),
        (sqs, places, origins): (SqsOptions, Places, Origins),
    ) -> Operators {
        Operators { cores, everybody, door, api, origins, places, sqs }
    }
}

/// Deals HTTP connections to the cores in turn, until it is to end. Gives back the way of those
/// that other nodes carry here.
async fn serve_http(
    (listener, forwarded): (Arc<Listener>, Option<mpsc::Receiver<Forwarded>>),
    operators: Operators,
    ends: Arc<Notify>,
) -> mpsc::Receiver<Forwarded> {
    let mut forwarded = forwarded.unwrap_or_else(|| mpsc::channel(1).1);
    let Operators { cores, everybody, door, api, origins, places, sqs } = operators;
    let mut turns = (0..cores.len()).cycle();
    loop {
        let mut is_of_node = false;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(Forwarded { socket, client, login, .. }) = forwarded.recv() => {
                is_of_node = login.is_some();
                Ok((socket, client))
            }
            () = ends.notified() => return forwarded,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Beyond that it is closed.
                let Some(place) = places.take() else { continue };
                let Some(core) = turns.next().and_then(|turn| cores.get(turn)) else { return forwarded };
                let (everybody, door, api) = (everybody.clone(), door.clone(), api.clone());
                let (origins, sqs) = (origins.clone(), sqs.clone());
                let socket =
                    HttpSocket { stream, peer, place, everybody, door, api, origins, sqs, is_of_node };
                // A core that is gone takes its sockets with it; the process is about to end then.
                let _ = core.send(socket).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(control::ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A message inside of WebSockets may hold any number of frames, but must hold the largest one.
pub(super) fn websocket_bytes_max(config: &Config) -> usize {
    usize::try_from(config.amqp.max_frame_bytes).unwrap_or(usize::MAX).max(WEBSOCKET_BYTES_MAX_MIN)
}

/// The table of endpoints, then the one line that scripts wait for.
pub(super) fn announce(endpoints: &[(&str, String)], config: &Config) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "postroad {}, store {}", env!("CARGO_PKG_VERSION"), config.data.display())?;
    for (protocol, url) in endpoints {
        writeln!(out, "  {protocol:<10} {url}")?;
    }
    writeln!(out, "postroad ready")?;
    out.flush()?;
    Ok(())
}

/// Signals that stop the broker or make it read its configuration again.
pub(super) struct Signals {
    pub terminate: Signal,
    pub interrupt: Signal,
    pub hangup: Signal,
}

impl Signals {
    /// From now on they do not end the process.
    pub fn listen() -> std::io::Result<Signals> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = signal(SignalKind::hangup())?;
        Ok(Signals { terminate, interrupt, hangup })
    }
}

/// Why clients are served no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The broker ends.
    Stopped,
    /// Another node leads.
    Deposed,
}

async fn accept_until_ended(
    (listeners, (mut diallers, mut dialled)): (&mut Listeners, (Diallers, mpsc::Receiver<NewSocket>)),
    mut admission: Admission,
    mut runtime: Runtime,
    (signals, leading): (&mut Signals, &mut Option<LeaderTerm>),
    (reloader, mut changes, committer, documents): (
        &Reloader<'_>,
        mpsc::Receiver<Changed>,
        Committer,
        &mut Option<watch::Receiver<DocumentContents>>,
    ),
) -> (Runtime, End) {
    let draining = runtime.draining();
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return (runtime, End::Stopped),
            _ = signals.interrupt.recv() => return (runtime, End::Stopped),
            () = LeaderTerm::ended(leading) => return (runtime, End::Deposed),
            _ = signals.hangup.recv() => match reloader.reread() {
                Ok(reread) => {
                    follow(reread, (&mut diallers, &mut runtime, &mut admission));
                    tracing::info!("configuration reloaded");
                }
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "reloading the configuration failed; the old one stays in use");
                }
            },
            Some(changed) = changes.recv() => {
                carry_out(changed, (reloader, &committer), (&mut diallers, &mut runtime, &mut admission));
            }
            Some(reread) = reread_documents(reloader, documents) => {
                follow(reread, (&mut diallers, &mut runtime, &mut admission));
            }
            Some(socket) = dialled.recv() => runtime.serve(socket).await,
            accepted = listeners.accept() => match accepted {
                // Closed at once while the broker is drained.
                Ok(_) if draining.is_on() => {}
                Ok(accepted) => {
                    if let Some(place) = admission.ask(accepted.peer) {
                        runtime.serve(admission.dress(accepted, place)).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(control::ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Comes back once the first store has other documents, with the configuration by these; `None` if
/// there is nothing to follow.
pub(super) async fn reread_documents(
    reloader: &Reloader<'_>,
    documents: &mut Option<watch::Receiver<DocumentContents>>,
) -> Option<Reread> {
    let documents = documents.as_mut()?;
    if documents.changed().await.is_err() {
        return std::future::pending().await;
    }
    reloader.documents().read(documents.borrow_and_update().iter().cloned());
    let reread = reloader.follow_documents().and_then(|()| reloader.in_force());
    let told = |error: &anyhow::Error| {
        tracing::error!(error = format!("{error:#}"), "the documents of the first store cannot be followed");
    };
    reread.inspect_err(told).ok()
}

/// Commits rules of tenants, while the main thread does other work.
struct Committer {
    writer: DocumentWriter,
    done: mpsc::Sender<Changed>,
}

impl Committer {
    fn commit(&self, rules: Box<RulesChange>, answer: RulesAnswered) {
        let (writer, done) = (self.writer.clone(), self.done.clone());
        tokio::spawn(async move {
            let result = writer.commit(rules.change.clone()).await;
            // If another node leads by now, the request ends with the receiver.
            let _ = done.send(Changed::RulesCommitted(rules, result, answer)).await;
        });
    }
}

/// Documents may be changed from now on; before that files are imported, if no node has done so.
///
/// # Errors
/// A file cannot be read.
async fn lead_documents(
    reloader: &Reloader<'_>,
    runtime: &Runtime,
    (leading, has_documents): (&mut Option<LeaderTerm>, bool),
) -> anyhow::Result<DocumentWriter> {
    let writer = DocumentWriter::new(runtime.clients());
    writer.write(reloader.own_documents());
    if !has_documents {
        return Ok(writer);
    }
    tokio::select! {
        imported = import(reloader, &writer) => imported?,
        () = LeaderTerm::ended(leading) => {}
    }
    Ok(writer)
}

/// Makes documents of the files that this node had before its cluster had such documents.
///
/// # Errors
/// A file cannot be read.
async fn import(reloader: &Reloader<'_>, writer: &DocumentWriter) -> anyhow::Result<()> {
    for change in reloader.imports()? {
        let document = change.name.clone();
        match writer.commit(change.clone()).await {
            Ok(()) => {
                reloader.documents().committed(change);
                tracing::info!(%document, "imported into the cluster from the files of this node");
            }
            Err(reason) => {
                tracing::warn!(%document, %reason, "not imported from the files of this node");
                break;
            }
        }
    }
    Ok(())
}

/// The parts of the broker that follow changes of the configuration.
type Followers<'f> = (&'f mut Diallers, &'f mut Runtime, &'f mut Admission);

fn follow(reread: Reread, (diallers, runtime, admission): Followers<'_>) {
    let Reread { policies, alerts, bridges, tls, door } = reread;
    diallers.follow(bridges);
    runtime.follow(policies);
    runtime.alerts().follow(alerts);
    admission.follow(tls, door);
}

/// Answers a request about users or the configuration. The request may have ended meanwhile.
fn carry_out(
    changed: Changed,
    (reloader, committer): (&Reloader<'_>, &Committer),
    (diallers, runtime, admission): Followers<'_>,
) {
    match changed {
        Changed::Identities(answer) => {
            let followed = reloader.identities().map(|(policies, door)| {
                runtime.follow(policies);
                admission.follow(None, door);
            });
            let _ = answer.send(followed.map_err(|error| format!("{error:#}")));
        }
        Changed::Configuration(order, answer) => {
            let done = reloader.carry_out(order).map(|(done, reread)| {
                if let Some(reread) = reread {
                    follow(reread, (diallers, runtime, admission));
                    tracing::info!("a new configuration was applied");
                }
                done
            });
            let _ = answer.send(done);
        }
        Changed::Rules(order, answer) => match reloader.declare(order) {
            Ok(Declared::Commit(change)) => committer.commit(change, answer),
            Ok(Declared::Done(done, reread)) => {
                if let Some(reread) = reread {
                    follow(*reread, (diallers, runtime, admission));
                }
                let _ = answer.send(Ok(done));
            }
            Err(fault) => drop(answer.send(Err(fault))),
        },
        Changed::RulesCommitted(change, result, answer) => {
            let done = reloader.declared(*change, result).map(|(done, reread)| {
                follow(reread, (diallers, runtime, admission));
                done
            });
            let _ = answer.send(done);
        }
    }
}

/// `POSTROAD_LOG` chooses the log level, as in `info` or `postroad=debug`.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("POSTROAD_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// A connection is a descriptor: take as many as the system lets us have. Returns how many that
/// are.
fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
    descriptors_max()
}

/// Descriptors for HTTP connections, and for requests of push queues.
fn http_shares(descriptors_max: u64) -> (u64, u64) {
    let http = (descriptors_max / 4).clamp(HTTP_CONNECTIONS.0, HTTP_CONNECTIONS.1);
    let push = (descriptors_max / 8).clamp(PUSH_REQUESTS.0, PUSH_REQUESTS.1);
    (http, push)
}

/// Connections served at once under a limit on open files. Where the limit is too small for the
/// reserve, a quarter of it: a smaller number would be useless.
fn connections_max(descriptors_max: u64, cores: u16, further_stores: usize) -> usize {
    let stores = DESCRIPTORS_PER_STORE * further_stores as u64;
    let (http, push) = http_shares(descriptors_max);
    let reserve = DESCRIPTOR_RESERVE + http + push + DESCRIPTORS_PER_CORE * u64::from(cores) + stores;
    let connections = descriptors_max.saturating_sub(reserve).max(descriptors_max / 4).max(1);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_store() {
        for (name, descriptors_max, cores, further_stores, want) in [
            ("a common limit", 1024, 2, 0, 1024 - 96 - 256 - 128 - 8),
            ("two more stores", 1024, 2, 2, 1024 - 96 - 256 - 128 - 8 - 160),
            ("no limit", u64::MAX, 2, 0, usize::MAX - 96 - 4096 - 1024 - 8),
            ("less than the reserve", 64, 2, 0, 16),
            ("next to nothing", 1, 2, 0, 1),
        ] {
            assert_eq!(connections_max(descriptors_max, cores, further_stores), want, "case: {name}");
        }
    }
}
