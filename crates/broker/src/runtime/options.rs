//! How the runtime is laid out.

use std::sync::Arc;
use std::time::Duration;

use postroad_node::{OfflineEnds, TenantKeys, TenantMeters, TraceBook, read_portable};
use postroad_openwire::Advisories;
use postroad_routing::{Addressing, Policies};
use tokio::sync::Notify;

use crate::runtime::http::PushOptions;

/// How the runtime is laid out.
#[derive(Clone)]
pub struct RuntimeOptions {
    /// Name of the broker.
    pub broker_name: String,
    /// Id that distinguishes it from all other brokers.
    pub broker_id: String,
    /// Where clients reach it.
    pub broker_url: String,
    /// Threads that serve connections and own partitions.
    pub cores: u16,
    /// Whether each of them stays on one processor.
    pub pin: bool,
    /// The longest time from a write to its sync.
    pub sync_within: Duration,
    /// Limit in bytes of the input of all connections that the broker has not finished.
    pub outstanding_bytes_max: u64,
    /// Keys by which tenants' messages are encrypted.
    pub keys: Arc<TenantKeys>,
    /// To which endpoints messages are pushed.
    pub push: PushOptions,
    /// The policies, until later ones.
    pub policies: Arc<Policies>,
    /// Connections and rates of tenants.
    pub tenants: TenantMeters,
    /// Traced messages, if any are traced.
    pub traces: Option<TraceBook>,
    /// Durable subscriptions that ended without a reader, for the audit.
    pub offline_ends: OfflineEnds,
}

impl RuntimeOptions {
    /// The partitions of the store know their first policies, and look only at later ones: these
    /// are for requests that show policies or routes, or check permissions.
    pub(super) fn first_policies(&self, addressing: &Addressing) -> Arc<Policies> {
        let mut policies = Policies::clone(&self.policies);
        policies.routes = addressing.routes.clone();
        Arc::new(policies)
    }

    /// What wakes each core.
    pub(super) fn wakers(&self) -> Vec<Arc<Notify>> {
        (0..self.cores.max(1)).map(|_| Arc::new(Notify::new())).collect()
    }

    /// The encoder of the advisories of one core.
    pub(super) fn advisories(&self, core: u16) -> Advisories {
        Advisories::new((&self.broker_name, &self.broker_id), &self.broker_url, core, read_portable)
    }
}
