//! Dead letters go back to the queues that they came from.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Action, Destination, Redrive, RedriveWay};
use postroad_routing::Grants;
use serde::{Deserialize, Serialize};

use super::audit::Detail;
use super::lists::existing;
use super::messages::{read_json, redrivable};
use super::problem::Problem;
use super::redrives::{Record, State as Ending, redriven};
use super::{Api, Caller, queue_of};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// A queue to go to, instead of that where each was.
    to: Option<String>,
    /// Only messages that were in this queue.
    origin: Option<String>,
    /// Only messages that this condition selects.
    selector: Option<String>,
    /// Not more messages than this.
    max: Option<u64>,
    /// Only count the messages that would go.
    #[serde(default)]
    dry_run: bool,
    /// The number of an earlier redrive that this one goes on with.
    continues: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Redriven {
    /// Messages that went back.
    moved: u64,
    /// Messages that stayed: not asked for, without a queue to go back to, or from a queue that the
    /// caller may not write to.
    stayed: u64,
    /// Its number, by which it can be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    redrive: Option<u64>,
    /// Of a dry run: what would go, and where to.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<Plan>,
}

#[derive(Debug, Serialize)]
pub struct Plan {
    messages: u64,
    to: Vec<Target>,
    /// Messages without a queue to go back to.
    without_origin: u64,
    /// Messages from queues that the caller may not write to.
    not_permitted: u64,
    /// Whether all messages were counted: a search ends after some seconds.
    is_complete: bool,
}

#[derive(Debug, Serialize)]
struct Target {
    destination: String,
    messages: u64,
}

/// The messages that would go, by target, with these permissions of the caller.
fn plan(
    grants: &Grants,
    (origins, is_complete): (BTreeMap<String, u64>, bool),
    to: Option<&Destination>,
    origin: Option<&Destination>,
) -> Plan {
    let origin = origin.map(ToString::to_string);
    let wanted = |(from, _): &(String, u64)| origin.as_ref().is_none_or(|origin| origin == from);
    let mut plan = Plan { messages: 0, to: Vec::new(), without_origin: 0, not_permitted: 0, is_complete };
    let mut targets: BTreeMap<String, u64> = BTreeMap::new();
    for (from, count) in origins.into_iter().filter(wanted) {
        // Dead letters of a subscription stay: all others of the topic would get them too.
        let own = from.strip_prefix("queue://").map(Destination::queue);
        match to.cloned().or_else(|| own.clone()) {
            Some(target) if to.is_some() || grants.permit(Action::Write, &target) => {
                *targets.entry(target.to_string()).or_insert(0) += count;
            }
            Some(_) => plan.not_permitted += count,
            None => plan.without_origin += count,
        }
    }
    plan.messages = targets.values().sum();
    plan.to = targets.into_iter().map(|(destination, messages)| Target { destination, messages }).collect();
    plan
}

pub async fn redrive(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(Extension<Detail>, Json<Redriven>), Problem> {
    let from = queue_of(&name)?;
    let Wanted { to, origin, selector, max, dry_run, continues } = match body.is_empty() {
        true => Wanted::default(),
        false => read_json(&body)?,
    };
    let (to, origin) =
        (to.as_deref().map(queue_of).transpose()?, origin.as_deref().map(queue_of).transpose()?);
    let (selector, max) = (selector.unwrap_or_default(), max.unwrap_or(u64::MAX));
    let client = api.client(&caller).await?;
    existing(&client, &from).await?;
    if dry_run {
        let counted =
            client.run(move |local| async move { redrivable(&local, from, selector, max).await }).await??;
        let grants = api.permissions().grants_of(&caller.principal);
        let plan = plan(&grants, counted, to.as_ref(), origin.as_ref());
        let detail = Detail(format!("dry run: {} messages of {name}", plan.messages));
        let counted = Redriven { moved: 0, stayed: 0, redrive: None, plan: Some(plan) };
        return Ok((Extension(detail), Json(counted)));
    }
    let text = |of: &Option<Destination>| of.as_ref().map(ToString::to_string);
    let under_way = match continues {
        Some(id) => api.0.redrives.go_on(id, &from.to_string()).await?,
        None => {
            let user = caller.principal.user().map(|user| user.to_string());
            let record = Record::new(from.to_string(), api.now_ms(), user, &selector);
            api.0.redrives.begin(Record { to: text(&to), origin: text(&origin), ..record }).await?
        }
    };
    let (id, selector) = (under_way.id(), selector.into());
    let way = RedriveWay::Back(Some(id));
    let wanted = Box::new(Redrive { from, to, origin, selector, messages_max: max, way, by: None });
    let (counts, result) = redriven(&client, wanted).await?;
    let ending = if result.is_ok() { Ending::Done } else { Ending::Failed };
    api.0.redrives.end(id, &counts, ending).await?;
    let (moved, stayed) = (counts.moved, counts.stayed);
    match result {
        Ok(()) => {
            let detail = Detail(format!("redrive {}: {moved} messages went back, {stayed} stayed", id.0));
            Ok((Extension(detail), Json(Redriven { moved, stayed, redrive: Some(id.0), plan: None })))
        }
        Err(refusal) => {
            let Problem { status, message, .. } = refusal.into();
            Err(Problem::new(status, format!("{message} ({moved} went back before)")))
        }
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Principal;
    use postroad_routing::{DestinationPattern, Grantee, Permission, Permissions};

    use super::*;

    #[test]
    fn a_plan_counts_by_target() {
        let origins = || {
            let all = [("", 2), ("queue://a", 3), ("queue://b", 4), ("topic://t", 5)];
            (all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(), true)
        };
        let mut permissions = Permissions::default();
        permissions.add(Permission {
            grantees: vec![Grantee::User("ann".into())],
            destinations: vec![DestinationPattern::parse("queue://a").unwrap()],
            actions: [Action::Write].into_iter().collect(),
        });
        let ann = permissions.grants_of(&Principal::User("ann".into()));
        let of = |grants: &Grants, to: Option<Destination>, origin: Option<Destination>| {
            let plan = plan(grants, origins(), to.as_ref(), origin.as_ref());
            let to = plan.to.iter().map(|to| format!("{} {}", to.destination, to.messages));
            let to = to.collect::<Vec<_>>().join(", ");
            (plan.messages, to, plan.without_origin, plan.not_permitted)
        };
        let (all, queue) = (&Grants::ALL, Destination::queue);
        assert_eq!(of(all, None, None), (7, "queue://a 3, queue://b 4".to_owned(), 7, 0));
        assert_eq!(of(all, Some(queue("x")), None), (14, "queue://x 14".to_owned(), 0, 0));
        assert_eq!(of(all, None, Some(queue("b"))), (4, "queue://b 4".to_owned(), 0, 0));
        assert_eq!(of(&ann, None, None), (3, "queue://a 3".to_owned(), 7, 4));
        assert_eq!(of(&ann, None, Some(queue("b"))), (0, String::new(), 0, 4));
    }
}
