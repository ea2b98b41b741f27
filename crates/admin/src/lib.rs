//! Admin room: the HTTP port for operators and their tools: the admin API, metrics, health.
//!
//! In: accepted connections, and a [`Source`] of the broker's state. Out: metrics in the text
//! format of Prometheus, health, and the answers of the admin API (`api`).
//! Never here: listening, the broker's threads, protocols of its clients, decisions about the
//! broker.
//! Start at [`serve`]; every metric is in the table of `metrics`, and in docs/features/metrics.md.

mod alerts;
mod api;
mod configuration;
mod console;
mod figures;
mod login;
mod metrics;
mod planner;
mod stall_timeout;
mod tenant_rules;

mod exposition;
mod http;

pub use alerts::{
    AlertRule, AlertSources, Alerts, Disks, Ledger, LedgerSums, Measure, Post, Posted, RULES_MAX, Recipient,
    Severity, WatchCursor, WatchPage, WatchQueues, WatchRequest, watch,
};
pub use api::{
    ApiOptions, ListenerRow, OtherStore, Peer, Reload, Totals, router, session_principal, structured,
};
pub use axum::body::Body;
pub use configuration::{
    Configuration, ConfigurationAnswer, ConfigurationAuthor, ConfigurationFault, ConfigurationOrder,
    ConfigurationPlan, ConfigurationSource, ConfigurationVersion, Setting, SettingChange, SettingOrigin,
};
pub use figures::{
    AlertFigures, BRIDGE_STATES, BridgeFigures, BridgeWait, CLUSTER_ROLES, ClusterFigures, ConnectionFigures,
    Distribution, Figures, IntakeFigures, JournalFigures, PartitionFigures, PeerFigures, QueueFigures,
    RouteFigures, RouteTargetFigures, StepFigures, StoreFigures, TenantFigures, WatchedQueue,
};
pub use http::{Source, permits_metrics, respond, serve, serve_on};
pub use login::answer_of;
pub use metrics::{METRICS, Metric, QUEUES_MAX};
pub use stall_timeout::StallTimeout;
pub use tenant_rules::{
    RuleChange, RuleFault, RuleKind, RulesAnswer, RulesOrder, TenantRules, TenantRulesKeeper,
};
