//! The seam to the rules of tenants: routes and alerts that a tenant declares by a file. The
//! assembly, which knows the configuration, checks and keeps them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::configuration::ConfigurationFault;

/// Carries out orders about the rules of tenants, one after the other.
pub type TenantRulesKeeper = Arc<
    dyn Fn(RulesOrder) -> Pin<Box<dyn Future<Output = Result<RulesAnswer, ConfigurationFault>> + Send>>
        + Send
        + Sync,
>;

/// The rules of one tenant, as members of the configuration file's tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantRules {
    /// As in `[[route]]`.
    pub routes: Vec<Value>,
    /// As in `[[alert]]`.
    pub alerts: Vec<Value>,
}

impl TenantRules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.alerts.is_empty()
    }
}

/// An order.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesOrder {
    /// That a tenant has these rules.
    Declare {
        /// The tenant.
        tenant: String,
        /// Its rules.
        rules: TenantRules,
        /// Whether other rules of the tenant go.
        prunes: bool,
        /// Whether nothing is to be changed.
        is_dry_run: bool,
    },
    /// That a tenant has no rules, as it is gone.
    Forget {
        /// The tenant.
        tenant: String,
    },
}

/// The answer to an order; with faults nothing was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesAnswer {
    /// All rules of the tenant, before and after.
    pub changes: Vec<RuleChange>,
    /// Why it cannot be so.
    pub faults: Vec<RuleFault>,
}

/// Which table of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleKind {
    /// `[[route]]`.
    Route,
    /// `[[alert]]`.
    Alert,
}

impl RuleKind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            RuleKind::Route => "route",
            RuleKind::Alert => "alert",
        }
    }
}

/// One rule before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    /// Of which kind.
    pub kind: RuleKind,
    /// Its name.
    pub name: String,
    /// As JSON; `None` if it is new.
    pub from: Option<String>,
    /// As JSON; `None` if it goes.
    pub to: Option<String>,
}

/// Why a rule cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFault {
    /// Of which kind.
    pub kind: RuleKind,
    /// Which of those that were declared, from 1 on; 0 for all of them together.
    pub number: usize,
    /// The reason, and what would be right.
    pub reason: String,
}
