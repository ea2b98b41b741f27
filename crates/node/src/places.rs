//! Where addresses live, and the rules that all connections of a core share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use postroad_model::{Destination, PartitionId, Placement, Principal, Refusal};
use postroad_routing::{Addressing, Permissions};

use crate::draining::Draining;
use crate::offline_ends::OfflineEnds;
use crate::tenant_keys::TenantKeys;
use crate::tenant_meters::{ConnectionPermit, TenantMeters};
use crate::tracer::TraceBook;

/// Where addresses live.
#[derive(Clone)]
pub struct Places {
    /// How many partitions there are.
    pub placement: Placement,
    /// Rules by which names decide where addresses live.
    pub addressing: Arc<Addressing>,
    /// Keys by which tenants' messages are encrypted.
    pub keys: Arc<TenantKeys>,
    /// Which user may do which action.
    pub permissions: Arc<Permissions>,
    /// Whether messages of clients are refused.
    pub draining: Draining,
    /// Connections and rates of tenants.
    pub tenants: TenantMeters,
    /// Traced messages, if any are traced.
    pub traces: Option<TraceBook>,
    /// Subscriptions that ended without a reader, for operators.
    pub offline_ends: OfflineEnds,
}

/// The places as one core knows them, shared with its connections.
pub type SharedPlaces = Rc<RefCell<Places>>;

impl Places {
    /// For all who are on one core.
    pub fn shared(self) -> SharedPlaces {
        Rc::new(RefCell::new(self))
    }

    /// The right to a connection of this principal; `None` if it belongs to no tenant.
    ///
    /// # Errors
    /// [`Refusal::TooManyConnections`].
    pub fn permit(&self, principal: &Principal) -> Result<Option<ConnectionPermit>, Refusal> {
        self.permissions.membership_of(principal).map_or(Ok(None), |of| self.tenants.permit(&of.tenant))
    }

    /// The partition that owns the address.
    pub fn partition_of(&self, destination: &Destination) -> PartitionId {
        self.addressing.partition_of(self.placement, destination)
    }

    /// A message that passes a route may go to any partition: which is known once its headers are.
    fn add_homes_of_routes(
        &self,
        addresses: &[Destination],
        homes: &mut BTreeMap<PartitionId, Vec<Destination>>,
    ) {
        let mut possible = self.addressing.possible_targets_of(addresses.iter());
        possible.extend_from_slice(addresses);
        if possible.iter().any(|to| self.addressing.routes.takes_from(to)) {
            for number in 0..self.placement.partitions {
                homes.entry(PartitionId(number)).or_default();
            }
        }
    }

    /// The partitions that a message for these addresses may be for, whatever it says, each with
    /// where it goes there; at least one.
    pub fn possible_homes(&self, addresses: &[Destination]) -> BTreeMap<PartitionId, Arc<[Destination]>> {
        let mut homes: BTreeMap<PartitionId, Vec<Destination>> = BTreeMap::new();
        for target in self.addressing.possible_targets_of(addresses.iter()) {
            homes.entry(self.partition_of(&target)).or_default().push(target);
        }
        self.add_homes_of_routes(addresses, &mut homes);
        if homes.is_empty() {
            homes.insert(PartitionId(0), Vec::new());
        }
        homes.into_iter().map(|(home, targets)| (home, targets.into())).collect()
    }
}
