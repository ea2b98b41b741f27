//! Routing room: names with wildcards, and the operators' policies for the destinations that they
//! match.
//!
//! In: patterns such as `orders.*.>` and the names of destinations. Out: the values of the patterns
//! that match a name ([`PatternMap`]), and the [`Policy`] of a destination ([`Policies`]).
//! Never here: messages' bodies, queues, files and their syntax, IO, clocks.
//! Start at [`Pattern`].

mod name_map;
mod pattern;
mod pattern_map;
mod permission;
mod policy;
mod route;
mod store_places;
mod tenant;
mod virtual_topic;

mod composite;

mod addressing;
mod homes;

pub use addressing::{Addressing, Feed};
pub use composite::{Composite, MirroredQueues, Target};
pub use homes::{Homes, MAIN_STORE};
pub use name_map::NameMap;
pub use pattern::{Pattern, PatternError, is_own_topic, is_wildcard};
pub use pattern_map::PatternMap;
pub use permission::{Actions, Grantee, Grants, Membership, Permission, Permissions};
pub use policy::{
    Advised, AtLimit, DeadLetterQueue, DeadLetters, DestinationPattern, DestinationPatternError, Evicted,
    Factor, Gathering, LeaseLimit, Limit, Pending, Policies, Policy, Prefetch, Recovery, Redelivery,
    Returning, Slow, SlowAction, TimeToLive,
};
pub use route::{
    Changed, Cycle, Distribution, HOPS_MAX, HeaderChange, HeaderRule, NamedRoute, RECIPIENTS_MAX, Recipients,
    Route, RouteCounters, RouteFigures, RouteTarget, RouteTargetFigures, Routed, RoutedCopy, Routes,
    Template, TemplateError, Throttle,
};
pub use store_places::{FIRST_STORE, StorePlaces};
pub use tenant::{Quota, SHARE_DEFAULT, SHARE_MAX, Tenant, TenantError, Tenants};
pub use virtual_topic::VirtualTopic;
