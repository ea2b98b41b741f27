//! The stores of `postroad serve`: opened at once, or followed until this node of a cluster leads.

use std::sync::Arc;

use axum::Router;
use postroad_model::{ConnectionId, Session};
use postroad_net::Listener;
use postroad_node::Clients;
use postroad_routing::{Addressing, Policies};
use postroad_security::Visit;
use tokio::sync::watch;

use crate::cli::listeners::Listeners;
use crate::cli::serve::{Signals, announce};
use crate::cli::stores;
use crate::config::{Config, StoreKeys};
use crate::control;
use crate::runtime::{
    ClusterOptions, ClusterView, Everybody, Following, Led, LinkBoard, Orders, Stores, TenantKeys,
    cluster_api,
};
use crate::runtime::{Runtime, RuntimeOptions, Service};

/// Stores that are open, with all that belongs to them.
pub struct Open {
    /// The stores.
    pub opened: Opened,
    /// The keys of tenants.
    pub keys: TenantKeys,
    /// The state of the cluster, in a node of one.
    pub view: Option<ClusterView>,
    /// The signals of the process, where they were listened to already.
    pub signals: Option<Signals>,
}

/// Opens the stores. A node of a cluster takes part, and comes back once it leads; `None` if it was told to stop first.
///
/// # Errors
/// A store cannot be opened, or a port is not to be had.
pub async fn open(
    config: &Config,
    policies: &Arc<Policies>,
    keys: StoreKeys,
    (listeners, http): (&mut Listeners, &Listener),
) -> anyhow::Result<Option<Open>> {
    let Some(cluster) = config.cluster()? else {
        let (stores, keys) = stores::open(config, policies, keys)?;
        return Ok(Some(Open { opened: Opened::Alone(stores), keys, view: None, signals: None }));
    };
    let mut signals = Signals::listen()?;
    let (following, keys) = stores::follow(config, policies, keys, &cluster)?;
    let view = following.view.clone();
    announce(&cluster_endpoints(listeners, http, &cluster)?, config)?;
    let addressing = Addressing { routes: policies.routes.clone(), ..config.addressing()? };
    let led = follow_until_led((config, addressing), following, (listeners, http), &mut signals).await?;
    Ok(led.map(|led| {
        tracing::info!(term = led.term, "this node is the leader and serves clients");
        Open { opened: Opened::Led(led), keys, view: Some(view), signals: Some(signals) }
    }))
}

/// The stores of the broker.
pub enum Opened {
    /// Stores of its own.
    Alone(Stores),
    /// The store of a cluster that this node leads.
    Led(Led),
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
    ) -> std::io::Result<Runtime> {
        match self {
            Opened::Alone(stores) => Runtime::start(stores, options, make),
            Opened::Led(led) => Runtime::lead(led, options, make),
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

/// Further routes of the admin API of a node: the state of its cluster.
pub fn further_api(view: Option<ClusterView>) -> Router {
    view.map_or_else(Router::new, cluster_api)
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

/// Where a node is reached, by clients once it leads.
fn cluster_endpoints(
    listeners: &Listeners,
    http: &Listener,
    cluster: &ClusterOptions,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut endpoints = endpoints(listeners, http)?;
    endpoints.push(("node", format!("{} of {}, {}", cluster.node, cluster.cluster, cluster.listen)));
    Ok(endpoints)
}

/// Takes part until this node leads; `None` if it is to stop. Clients that come are closed, so that they try another node.
async fn follow_until_led(
    (config, addressing): (&Config, Addressing),
    mut following: Following,
    (listeners, http): (&mut Listeners, &Listener),
    signals: &mut Signals,
) -> anyhow::Result<Option<Led>> {
    let (view, door) = (following.view.clone(), following.door.clone());
    let api = cluster_api(view.clone());
    let links = LinkBoard::default();
    let policies = watch::channel(Arc::default()).1;
    let everybody = Everybody { cores: Vec::new(), journals: vec![door], links, policies };
    let (clients, _) = Clients::over(0);
    let (orders, journals) = (Orders::new(clients), Vec::new());
    let served = control::Served { journals, orders, everybody: everybody.clone(), api: api.clone() };
    let control = control::serve(&config.data, served);
    let control = control.inspect_err(|error| tracing::warn!(%error, "no control socket")).ok();
    let led = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break Err(following),
            _ = signals.interrupt.recv() => break Err(following),
            _ = signals.hangup.recv() => tracing::info!("the configuration is read when this node becomes the leader"),
            () = following.led() => match following.lead(addressing.clone())? {
                Ok(led) => break Ok(led),
                Err(not_yet) => following = not_yet,
            },
            accepted = http.accept() => match accepted {
                Ok((stream, peer)) => {
                    let served = postroad_admin::serve(stream, peer, everybody.clone(), api.clone());
                    // Operators alone come here, and few.
                    drop(tokio::spawn(served));
                }
                Err(error) => tracing::warn!(%error, "cannot accept an HTTP connection"),
            },
            accepted = listeners.accept() => match accepted {
                Ok((_, _, peer)) => tracing::debug!(%peer, leader = view.leader(), "redirecting a client to another node failed"),
                Err(error) => tracing::warn!(%error, "cannot accept a connection"),
            },
        }
    };
    if let Some(control) = control {
        control.end();
    }
    Ok(led.map_err(Following::stop).ok())
}
