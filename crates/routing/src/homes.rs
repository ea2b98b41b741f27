//! Homes: which addresses live in a store of their own, as policies and tenants say it.
//!
//! Never here: existing destinations elsewhere, which stay there (see
//! [`crate::Addressing::settle`]), directories.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{DestinationKind, PartitionId, PartitionRange, Placement};

use crate::pattern_map::PatternMap;
use crate::policy::{DestinationPattern, place};

/// The name of the store in the data directory. It has all destinations that are not placed
/// elsewhere.
pub const MAIN_STORE: &str = "main";

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// By kind; see [`place`]. A policy that names no store is here too: it hides the wider ones.
    policies: [PatternMap<Option<Arc<str>>>; 4],
    /// As the policies.
    tenants: [PatternMap<Option<Arc<str>>>; 4],
    /// The partitions of each store beside the main one.
    ranges: BTreeMap<Arc<str>, PartitionRange>,
}

impl Homes {
    /// A policy's store for the destinations of its pattern, if it names one. Of two for the same
    /// pattern the last counts, as with everything in policies.
    pub fn set_policy(&mut self, pattern: &DestinationPattern, store: Option<&str>) {
        let map = &mut self.policies[place(pattern.kind, pattern.temporary)];
        *map.get_or_insert_with(&pattern.name, || None) = store.map(Arc::from);
    }

    /// The store of a tenant's destinations, if it has one, unless a policy names another.
    pub fn set_tenant(&mut self, pattern: &DestinationPattern, store: Option<&str>) {
        let map = &mut self.tenants[place(pattern.kind, pattern.temporary)];
        *map.get_or_insert_with(&pattern.name, || None) = store.map(Arc::from);
    }

    /// The partitions of a store beside the main one.
    pub fn place(&mut self, store: &str, partitions: PartitionRange) {
        self.ranges.insert(store.into(), partitions);
    }

    /// The partitions of this store; `None` if there is none of this name.
    pub fn range_of(&self, placement: Placement, store: &str) -> Option<PartitionRange> {
        match store {
            MAIN_STORE => Some(PartitionRange { first: PartitionId(0), count: placement.hashed }),
            other => self.ranges.get(other).copied(),
        }
    }

    /// The store that has this partition.
    pub fn store_of(&self, partition: PartitionId) -> &str {
        let found = self.ranges.iter().find(|(_, range)| range.contains(partition));
        found.map_or(MAIN_STORE, |(name, _)| name)
    }

    /// The partitions among which a destination has its home; `None` for the main store's.
    pub(crate) fn of(&self, kind: DestinationKind, temporary: bool, name: &str) -> Option<PartitionRange> {
        if self.ranges.is_empty() {
            return None;
        }
        let place = place(kind, temporary);
        let said = |map: &'_ [PatternMap<Option<Arc<str>>>; 4]| map[place].narrowest(name)?.1.clone();
        let store = said(&self.policies).or_else(|| said(&self.tenants))?;
        self.ranges.get(&store).copied()
    }
}
