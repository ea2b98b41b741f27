//! The policy in force for a destination, and where it comes from.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Action, Refusal};
use postroad_routing::is_wildcard;
use serde::Serialize;

use super::configuration::settings;
use super::problem::Problem;
use super::{Api, Caller, destination_of};
use crate::configuration::Setting;

#[derive(Debug, Serialize)]
pub struct PolicyInForce {
    destination: String,
    /// The pattern of the `[[policy]]`; none if no policy matches, and the defaults are in force.
    pattern: Option<String>,
    /// The owner of the destination.
    tenant: Option<String>,
    /// Settings of the policy and of the tenant in the configuration, without the defaults.
    settings: Vec<Setting>,
}

pub async fn of_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<PolicyInForce>, Problem> {
    let destination = destination_of(&name)?;
    let grants = api.permissions().grants_of(&caller.principal);
    if ![Action::Read, Action::Write].iter().any(|&action| grants.permit(action, &destination)) {
        let user = caller.principal.user().cloned();
        return Err(Refusal::NotPermitted { user, action: Action::Read, destination }.into());
    }
    if is_wildcard(&destination.name) {
        return Err(Problem::new(400, format!("{destination} has wildcards; expected one destination")));
    }
    let policies = (api.0.options.policies)();
    let pattern = policies.pattern_of(&destination);
    let tenant = policies.tenants.owner_of(&destination).map(|tenant| tenant.name.to_string());
    let all = settings(&api).await?;
    let prefixes: Vec<String> = pattern
        .iter()
        .map(|pattern| last_of(&all, &format!("policy[{pattern}")))
        .chain(tenant.iter().map(|tenant| format!("tenant[{tenant}].")))
        .collect();
    let is_meant = |setting: &Setting| {
        setting.key == "dead_letter_queue" || prefixes.iter().any(|prefix| setting.key.starts_with(prefix))
    };
    let settings = all.into_iter().filter(is_meant).collect();
    Ok(Json(PolicyInForce { destination: destination.to_string(), pattern, tenant, settings }))
}

/// The prefix of the keys of the last element of a list with this name: it is the one in force.
fn last_of(all: &[Setting], element: &str) -> String {
    let numbered = (2_u32..).map(|number| format!("{element}#{number}]."));
    let exists = |prefix: &String| all.iter().any(|setting| setting.key.starts_with(prefix));
    numbered.take_while(exists).last().unwrap_or_else(|| format!("{element}]."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::SettingOrigin;

    #[test]
    fn the_last_element_of_a_name_is_in_force() {
        let setting = |key: &str| Setting {
            key: key.to_owned(),
            value: "1".to_owned(),
            origin: SettingOrigin::File,
            needs_restart: false,
        };
        let all = ["policy[a].x", "policy[a#2].x", "policy[a#3].x", "policy[b].x"].map(setting);
        assert_eq!(last_of(&all, "policy[a"), "policy[a#3].");
        assert_eq!(last_of(&all, "policy[b"), "policy[b].");
    }
}
