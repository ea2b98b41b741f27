//! A node of a cluster with several stores: a thread for each of them, as for a broker of its own,
//! and one place where clients come in.
//!
//! Never here: sessions, and the choice of a client's store.

use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;

use anyhow::{Context, anyhow, bail};
use postroad_amqp::AmqpOptions;
use postroad_model::{ConnectionId, Session};
use postroad_net::{Listener, Places};
use postroad_node::Draining;
use postroad_openwire::OpenWireOptions;
use postroad_routing::FIRST_STORE;
use postroad_security::Visit;
use postroad_store::broker_id;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::cli::ServeArguments;
use crate::cli::admission::Admission;
use crate::cli::listeners::{Accepted, Listeners};
use crate::cli::node::{cluster_endpoints, pause, visitors_admission, visitors_max};
use crate::cli::reload::{Reloader, Reread};
use crate::cli::serve::{
    Signals, amqp_options, amqp_session, announce, bind, openwire_options, openwire_session,
    reread_documents, serve,
};
use crate::cli::store_count;
use crate::config::Config;
use crate::runtime::{ClientEntry, DocumentContents, HttpEntry, NodePort, Service, StorePart};

/// HTTP connections that wait for the first store.
const OWN_REQUESTS_MAX: usize = 256;

/// A store has ended: its number, and the reason if it was not told to.
type Ended = (u16, anyhow::Result<()>);

/// Serves all stores until the broker ends.
///
/// # Errors
/// One of them cannot be served.
pub fn run(config: &Config, arguments: &ServeArguments, limits: (usize, u64)) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve_all(config, arguments, limits))
}

async fn serve_all(
    config: &Config,
    arguments: &ServeArguments,
    (connections, descriptors): (usize, u64),
) -> anyhow::Result<()> {
    store_count::check(config)?;
    let cluster = config.cluster()?.context("no node of a cluster")?;
    let (mut listeners, http) = bind(config)?;
    let endpoints = cluster_endpoints(&listeners, &http, &cluster)?;
    // From now on they do not end the process: each store hears them, too.
    let mut signals = Signals::listen()?;
    let numbers = FIRST_STORE..=config.cluster.stores;
    let port =
        NodePort::of_groups(&cluster, numbers.clone().map(|store| config.cluster.group_of(store)).collect())?;
    let part = StorePart::first(port, config.cluster.stores);
    // A client in transit takes a place, too.
    let places = Places::new((connections / 2).max(1));
    let (ends, mut ended) = mpsc::channel(usize::from(config.cluster.stores));
    let start = |store: u16, http: Listener| {
        let sockets = ((listeners.silent(), http), part.of(store));
        let arguments = ServeArguments { store, ..arguments.clone() };
        let (limits, ends) = ((places.clone(), descriptors), ends.clone());
        let named = thread::Builder::new().name(format!("store-{store}"));
        named.spawn(move || {
            let serve = AssertUnwindSafe(|| serve_store(&arguments, limits, sockets));
            let end = catch_unwind(serve).unwrap_or_else(|_| Err(anyhow!("its thread had panicked")));
            let _ = ends.blocking_send((store, end));
        })
    };
    let (own_http, own) = http.passed(OWN_REQUESTS_MAX);
    // The others have their directories in that of the first.
    start(FIRST_STORE, own_http)?;
    opened(&part, 1, &mut ended).await?;
    let here = stores_here(&part, numbers);
    let count = here.len();
    for store in here.into_iter().skip(1) {
        start(store, http.silent())?;
    }
    drop(ends);
    opened(&part, count, &mut ended).await?;
    check_numbers(&part)?;
    announce(&endpoints, config)?;
    let mut front = Front::new(config, arguments, (&listeners, &part, own))?;
    let mut left = count;
    loop {
        tokio::select! {
            end = ended.recv() => {
                has_ended(end)?;
                left -= 1;
                if left == 0 {
                    return Ok(());
                }
            }
            _ = signals.terminate.recv() => front.accepts = false,
            _ = signals.interrupt.recv() => front.accepts = false,
            _ = signals.hangup.recv() => front.reread(),
            Some(reread) = reread_documents(&front.reloader, &mut front.documents) => front.followed(reread),
            accepted = listeners.accept(), if front.accepts => match accepted {
                Ok(accepted) => front.receive(accepted),
                Err(error) => pause(&error).await,
            },
            accepted = http.accept(), if front.accepts => match accepted {
                Ok(accepted) => front.receive_http(accepted),
                Err(error) => pause(&error).await,
            },
        }
    }
}

/// The stores that this node has, once the first one has said so.
fn stores_here(part: &StorePart, numbers: RangeInclusive<u16>) -> Vec<u16> {
    let (here, absent): (Vec<u16>, Vec<u16>) = numbers.partition(|store| part.here().have(*store));
    if !absent.is_empty() {
        tracing::info!(?here, ?absent, "this node has only some of the stores, as its cluster says");
    }
    here
}

/// Serves one of the stores, in a thread of its own.
fn serve_store(
    arguments: &ServeArguments,
    limits: (Places, u64),
    sockets: ((Listeners, Listener), StorePart),
) -> anyhow::Result<()> {
    let config = Config::load(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&config, arguments, limits, sockets))
}

/// Waits until this number of stores is open.
async fn opened(part: &StorePart, count: usize, ended: &mut mpsc::Receiver<Ended>) -> anyhow::Result<()> {
    tokio::select! {
        () = part.are_open(count) => Ok(()),
        end = ended.recv() => {
            has_ended(end)?;
            bail!("stopped before all stores were open")
        }
    }
}

/// A node has the same number in all groups, as leaderships are counted by it.
fn check_numbers(part: &StorePart) -> anyhow::Result<()> {
    let mut numbers = part.views().map(|(store, view)| (store, view.number()));
    let Some((_, first)) = numbers.next() else { return Ok(()) };
    match numbers.find(|(_, number)| *number != first) {
        None => Ok(()),
        Some((store, number)) => bail!(
            "this node has number {} in store {store} and number {} in store {FIRST_STORE}: the directories are of \
             different nodes",
            number.get(),
            first.get()
        ),
    }
}

/// A store has ended, as it was told to.
fn has_ended(end: Option<Ended>) -> anyhow::Result<()> {
    let (store, end) = end.ok_or_else(|| anyhow!("no store is left"))?;
    end.with_context(|| format!("store {store}"))
}

/// Where clients come in.
struct Front<'a> {
    reloader: Reloader<'a>,
    documents: Option<watch::Receiver<DocumentContents>>,
    admission: Admission,
    entry: Rc<ClientEntry>,
    sessions: Sessions,
    http: Rc<HttpEntry>,
    http_places: Places,
    /// Clients are closed at once while the node is drained.
    draining: Draining,
    /// Whether the broker goes on.
    accepts: bool,
}

impl<'a> Front<'a> {
    fn new(
        config: &Config,
        arguments: &'a ServeArguments,
        (listeners, part, own): (&Listeners, &StorePart, mpsc::Sender<(TcpStream, SocketAddr)>),
    ) -> anyhow::Result<Front<'a>> {
        let (reloader, documents) = (Reloader::new(arguments, config)?, part.documents());
        if let Some(documents) = &documents {
            reloader.documents().read(documents.borrow().iter().cloned());
            reloader.follow_documents()?;
        }
        let Reread { policies, tls, door, .. } = reloader.in_force()?;
        let mut admission = visitors_admission(config, Places::new(visitors_max()))?;
        admission.follow(tls, door);
        let entry = Rc::new(ClientEntry::new(part, policies.permissions));
        let sessions = Sessions::new(config, listeners)?;
        let keys = reloader.access_keys();
        let http = Rc::new(HttpEntry::new(entry.clone(), (admission.door(), keys), own));
        let http_places = Places::new(visitors_max());
        let (draining, accepts) = (part.draining(), true);
        Ok(Front { reloader, documents, admission, entry, sessions, http, http_places, draining, accepts })
    }

    fn receive_http(&self, accepted: (TcpStream, SocketAddr)) {
        if let Some(place) = self.http_places.take() {
            self.http.receive(accepted, place);
        }
    }

    fn receive(&mut self, accepted: Accepted) {
        if self.draining.is_on() {
            return;
        }
        let Some(place) = self.admission.ask(accepted.peer) else { return };
        let (sessions, service) = (self.sessions.clone(), accepted.endpoint.service);
        self.entry.receive(self.admission.dress(accepted, place), move |visit| sessions.of(service, visit));
    }

    /// The configuration file may be another now. Errors are logged by the stores.
    fn reread(&mut self) {
        if let Ok(reread) = self.reloader.reread() {
            self.followed(reread);
            if let Err(error) = self.reloader.record_tenants() {
                tracing::error!(error = format!("{error:#}"), "the stores of tenants are not recorded");
            }
        }
    }

    fn followed(&mut self, Reread { policies, tls, door, .. }: Reread) {
        self.entry.follow(policies.permissions);
        self.admission.follow(tls, door);
    }
}

/// The sessions of clients up to their login.
#[derive(Clone)]
struct Sessions(Rc<(OpenWireOptions, AmqpOptions)>);

impl Sessions {
    fn new(config: &Config, listeners: &Listeners) -> anyhow::Result<Sessions> {
        let broker_id = broker_id::read_or_make(&config.data, &config.broker_name)?;
        let openwire = openwire_options(config, (1, broker_id), listeners.address(Service::OpenWire)?);
        Ok(Sessions(Rc::new((openwire, amqp_options(config, 1)))))
    }

    fn of(&self, service: Service, visit: &Visit) -> Box<dyn Session> {
        let (id, (openwire, amqp)) = (ConnectionId::new(0, 0), &*self.0);
        match service {
            Service::Amqp => amqp_session(id, visit, amqp),
            // There is no listener for links.
            Service::OpenWire | Service::ForwardedOpenWire { .. } | Service::Link { .. } => {
                openwire_session(id, visit, openwire)
            }
        }
    }
}
