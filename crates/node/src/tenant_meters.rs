//! Meters of tenants: connections that are open, the messages of this second, and waits for fair
//! shares.
//!
//! Shared by all cores: each meter is a few atomic numbers, and the table of quotas is replaced as
//! a whole under a lock that is held for no longer than a pointer is copied. The rate is a generic
//! cell rate algorithm (ITU-T I.371): a number is kept, the time at which all that was sent so far
//! would have been due at the rate, and a sender waits while that is more than a second ahead.
//!
//! Never here: clocks (the time comes in as a number), waiting, the contents of queues.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use postroad_model::{Destination, Refusal};
use postroad_routing::{Policies, Quota, SHARE_DEFAULT, Tenants};

/// A tenant may send as many messages at once as in this time at its rate.
const BURST: Duration = Duration::from_secs(1);

/// Meters of all tenants, with the quotas in force. Clones are the same meters.
#[derive(Clone, Debug, Default)]
pub struct TenantMeters(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    quotas: RwLock<Arc<Quotas>>,
    /// Whether any tenant has a rate.
    any_rate: AtomicBool,
    /// Of work that belongs to no tenant.
    rest: Arc<ShareMeter>,
}

#[derive(Debug, Default)]
struct Quotas {
    by_name: BTreeMap<Arc<str>, (Quota, Arc<Meter>)>,
    tenants: Tenants,
}

/// The counts of one tenant, which outlive a change of its quota.
#[derive(Debug, Default)]
struct Meter {
    connections: AtomicU64,
    /// Nanoseconds since the start of the process; see the head of this file.
    due_ns: AtomicU64,
    share: Arc<ShareMeter>,
}

/// The work of one tenant under its fair share, on all cores.
#[derive(Debug, Default)]
pub struct ShareMeter {
    /// Cost of records on their way to the journal.
    pub in_flight: Arc<AtomicU64>,
    waits: AtomicU64,
    waited_us: AtomicU64,
}

/// Waits for a fair share so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareWaits {
    /// How often a connection waited.
    pub waits: u64,
    /// How long, together.
    pub micros: u64,
}

impl ShareMeter {
    /// A connection has waited this long for its turn.
    pub fn note_wait(&self, micros: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waited_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// The right to one connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Meter>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A tenant sends faster than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// How long it has to wait until it may send more.
    pub wait: Duration,
    /// The refusal of one that cannot wait.
    pub refusal: Refusal,
}

impl TenantMeters {
    /// From now on the tenants of these policies; those that were there before keep their counts.
    pub fn follow(&self, policies: &Policies) {
        let before = self.quotas();
        let meter = |name: &Arc<str>| before.by_name.get(name).map(|(_, meter)| meter.clone());
        let all = policies.tenants.iter().map(|tenant| {
            let meter = meter(&tenant.name).unwrap_or_default();
            (tenant.name.clone(), (tenant.quota, meter))
        });
        let any_rate = policies.tenants.iter().any(|tenant| tenant.quota.messages_per_second_max.is_some());
        let quotas = Quotas { by_name: all.collect(), tenants: policies.tenants.clone() };
        *self.0.quotas.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(quotas);
        self.0.any_rate.store(any_rate, Ordering::Release);
    }

    fn quotas(&self) -> Arc<Quotas> {
        self.0.quotas.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The right to a connection of this tenant; none is needed for a tenant that is not known.
    ///
    /// # Errors
    /// [`Refusal::TooManyConnections`].
    pub fn permit(&self, tenant: &str) -> Result<Option<ConnectionPermit>, Refusal> {
        let quotas = self.quotas();
        let Some((name, (quota, meter))) = quotas.by_name.get_key_value(tenant) else { return Ok(None) };
        let open = meter.connections.fetch_add(1, Ordering::AcqRel);
        let permit = ConnectionPermit(meter.clone());
        match quota.connections_max {
            Some(max) if max <= open => Err(Refusal::TooManyConnections { tenant: name.clone(), max }),
            _ => Ok(Some(permit)),
        }
    }

    /// Connections of each tenant.
    pub fn connections(&self) -> BTreeMap<Arc<str>, u64> {
        let open = |meter: &Meter| meter.connections.load(Ordering::Acquire);
        self.quotas().by_name.iter().map(|(name, (_, meter))| (name.clone(), open(meter))).collect()
    }

    /// Whether there is a tenant.
    pub fn any(&self) -> bool {
        !self.quotas().by_name.is_empty()
    }

    /// The owner of the destination.
    pub fn owner_of(&self, destination: &Destination) -> Option<Arc<str>> {
        Some(self.quotas().tenants.owner_of(destination)?.name.clone())
    }

    /// The weight of a tenant's share, and its meter; of all other work for a name that is unknown.
    pub fn share_of(&self, tenant: &str) -> (u64, Arc<ShareMeter>) {
        match self.quotas().by_name.get(tenant) {
            Some((quota, meter)) => (quota.share(), meter.share.clone()),
            None => (SHARE_DEFAULT, self.0.rest.clone()),
        }
    }

    /// Waits of each tenant for its share.
    pub fn share_waits(&self) -> BTreeMap<Arc<str>, ShareWaits> {
        let waits = |meter: &ShareMeter| ShareWaits {
            waits: meter.waits.load(Ordering::Relaxed),
            micros: meter.waited_us.load(Ordering::Relaxed),
        };
        self.quotas().by_name.iter().map(|(name, (_, meter))| (name.clone(), waits(&meter.share))).collect()
    }

    /// Whether messages must be counted.
    pub fn any_rate(&self) -> bool {
        self.0.any_rate.load(Ordering::Acquire)
    }

    /// Messages are sent here, `now` after the start of the process: they count, and with them the
    /// tenant may be ahead of its rate.
    pub fn sent(&self, to: &Destination, messages: u64, now: Duration) -> Option<Ahead> {
        let quotas = self.quotas();
        let (name, quota, meter) = quotas.metered(to)?;
        let max = quota.messages_per_second_max?.max(1);
        let cost_ns = (nanoseconds(Duration::from_secs(1)) / max).max(1).saturating_mul(messages);
        let now_ns = nanoseconds(now);
        let add = |due_ns: u64| Some(due_ns.max(now_ns).saturating_add(cost_ns));
        let before = meter.due_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let due_ns = before.unwrap_or_else(|due_ns| due_ns).max(now_ns).saturating_add(cost_ns);
        let wait = Duration::from_nanos(due_ns - now_ns).checked_sub(BURST)?;
        let refusal = Refusal::TooFast { tenant: name.clone(), max };
        (!wait.is_zero()).then_some(Ahead { wait, refusal })
    }
}

impl Quotas {
    fn metered(&self, to: &Destination) -> Option<(&Arc<str>, &Quota, &Arc<Meter>)> {
        let tenant = self.tenants.owner_of(to)?;
        let (name, (quota, meter)) = self.by_name.get_key_value(&tenant.name)?;
        Some((name, quota, meter))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use postroad_routing::{DestinationPattern, Limit, Tenant};

    use super::*;

    fn policies(quota: Quota) -> Policies {
        let mut policies = Policies::default();
        let owns = [DestinationPattern::parse("queue://acme.>").expect("a pattern")];
        let tenant = Tenant { quota, ..Tenant::new("acme", Limit::default()) };
        policies.tenants.add(tenant, &owns).expect("one tenant");
        policies
    }

    #[test]
    fn a_tenant_has_so_many_connections_and_keeps_its_count_when_policies_change() {
        let quota = |max| Quota { connections_max: max, ..Quota::default() };
        let meters = TenantMeters::default();
        meters.follow(&policies(quota(Some(2))));
        let one = meters.permit("acme").expect("room");
        let two = meters.permit("acme").expect("room");
        let refusal = Refusal::TooManyConnections { tenant: "acme".into(), max: 2 };
        assert_eq!(meters.permit("acme").map(|permit| permit.is_some()), Err(refusal.clone()));
        assert_eq!(meters.connections(), BTreeMap::from([("acme".into(), 2)]));
        assert!(meters.permit("other").expect("no quota").is_none());
        meters.follow(&policies(quota(Some(2))));
        assert_eq!(meters.permit("acme").map(|permit| permit.is_some()), Err(refusal));
        drop(one);
        let three = meters.permit("acme").expect("room again");
        assert!(three.is_some() && meters.permit("acme").is_err());
        meters.follow(&policies(quota(None)));
        assert!(meters.permit("acme").expect("no quota").is_some());
        drop((two, three));
        assert_eq!(meters.connections(), BTreeMap::from([("acme".into(), 0)]));
    }

    #[test]
    fn a_burst_of_a_second_is_free_and_then_the_rate_counts() {
        let quota = Quota { messages_per_second_max: Some(10), ..Quota::default() };
        let meters = TenantMeters::default();
        assert!(!meters.any_rate());
        meters.follow(&policies(quota));
        let (own, other) = (Destination::queue("acme.a"), Destination::queue("b"));
        let send = |to, messages, ms| {
            let ahead = meters.sent(to, messages, Duration::from_millis(ms));
            ahead.map(|ahead| ahead.wait.as_millis())
        };
        assert!(meters.any_rate());
        for number in 0..10 {
            assert_eq!(send(&own, 1, 5000), None, "message {number}");
        }
        assert_eq!((send(&own, 1, 5000), send(&own, 1, 5000)), (Some(100), Some(200)));
        assert_eq!(send(&other, 1, 5000), None, "it has no tenant");
        assert_eq!(send(&own, 0, 5000), Some(200), "a look counts nothing");
        assert_eq!(send(&own, 1, 5300), None, "later there is room for one");
        assert_eq!(send(&own, 1, 5300), Some(100));
        assert_eq!(send(&own, 10, 60_000), None, "and after a while the burst is there again");
        assert_eq!(send(&own, 100, 60_000), Some(10_000), "a batch counts as a whole");
    }
}
