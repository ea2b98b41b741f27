//! What a tenant declares by a file: its queues, users, routes and alerts. Compared with what there
//! is, and applied.

use std::collections::BTreeSet;
use std::fmt;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use postroad_model::{Destination, Event, Principal};
use postroad_node::Client;
use postroad_routing::{Membership, Pattern, Permissions};
use postroad_security::{Users, secret};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::audit::Detail;
use super::lists::find;
use super::messages::read_json;
use super::problem::Problem;
use super::tenants::{Reach, USERS_MAX, View, members};
use super::tokens::{problem, writing};
use super::{Api, Caller, queue_of};
use crate::tenant_rules::{RuleKind, RulesOrder, TenantRules};

/// Queues in one request: each is a question to a partition.
const QUEUES_MAX: usize = 1_000;

/// Users in one request: each new password keeps a processor busy for a while.
const WANTED_USERS_MAX: usize = 100;

/// The text for the audit is kept to this length.
const DETAIL_BYTES_MAX: usize = 512;

/// The declaration. Each entry is read by itself, so that a fault is named with its number.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    #[serde(default)]
    queues: Vec<Value>,
    #[serde(default)]
    users: Vec<Value>,
    #[serde(default)]
    routes: Vec<Value>,
    #[serde(default)]
    alerts: Vec<Value>,
    /// Routes and alerts of the tenant that are not named go.
    #[serde(default)]
    prune: bool,
    /// Nothing is changed.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedQueue {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedUser {
    name: String,
    /// It administers the tenant.
    #[serde(default)]
    administrator: bool,
    /// A new user without one gets one that is made up.
    password: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Applied {
    changes: Vec<Change>,
    /// Only of a dry run: without it the first one is the error.
    faults: Vec<Fault>,
}

/// One of the tenant's resources, before and after.
#[derive(Debug, Serialize)]
struct Change {
    kind: Kind,
    name: String,
    action: Action,
    from: Option<String>,
    to: Option<String>,
    /// Of a new user, if it was made up; shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
}

/// Why an entry cannot be.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Fault {
    kind: Kind,
    /// Which of the entries of this kind, from 1 on; 0 for all of them together.
    number: usize,
    error: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Queue,
    User,
    Route,
    Alert,
}

impl From<RuleKind> for Kind {
    fn from(kind: RuleKind) -> Kind {
        match kind {
            RuleKind::Route => Kind::Route,
            RuleKind::Alert => Kind::Alert,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::Queue => "queue",
            Kind::User => "user",
            Kind::Route => "route",
            Kind::Alert => "alert",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Create,
    Change,
    Delete,
    Keep,
}

impl Change {
    fn new(kind: Kind, name: &str, (from, to): (Option<String>, Option<String>)) -> Change {
        let action = match (&from, &to) {
            (None, _) => Action::Create,
            (_, None) => Action::Delete,
            (from, to) if from == to => Action::Keep,
            _ => Action::Change,
        };
        Change { kind, name: name.to_owned(), action, from, to, password: None }
    }
}

impl Applied {
    fn fault(&mut self, kind: Kind, number: usize, error: String) {
        self.faults.push(Fault { kind, number, error });
    }

    /// The entries that can be read, with their numbers. A name is there once.
    fn read<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        values: &[Value],
        name: fn(&T) -> &str,
    ) -> Vec<(usize, T)> {
        let (mut names, mut entries) = (BTreeSet::new(), Vec::with_capacity(values.len()));
        for (number, value) in (1..).zip(values) {
            match T::deserialize(value) {
                Ok(entry) if !names.insert(name(&entry).to_owned()) => {
                    let error = format!("name {:?} is already that of another one in the file", name(&entry));
                    self.fault(kind, number, error);
                }
                Ok(entry) => entries.push((number, entry)),
                Err(error) => self.fault(kind, number, error.to_string()),
            }
        }
        entries
    }

    /// In a few words, for the audit.
    fn detail(&self, is_dry_run: bool) -> Detail {
        let changed = self.changes.iter().filter(|change| change.action != Action::Keep);
        let word = |action| match action {
            Action::Create => "create",
            Action::Change => "change",
            Action::Delete => "delete",
            Action::Keep => "keep",
        };
        let parts: Vec<String> = changed
            .map(|change| format!("{} {} {}", word(change.action), change.kind, change.name))
            .collect();
        let begin = if is_dry_run { "dry run: " } else { "" };
        let mut text =
            format!("{begin}{}", if parts.is_empty() { "no change".to_owned() } else { parts.join(", ") });
        text.truncate(text.floor_char_boundary(DETAIL_BYTES_MAX));
        Detail(text)
    }
}

/// Plans, or applies, the declaration of a tenant.
pub async fn apply(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(tenant): Path<String>,
    body: Bytes,
) -> Result<(Extension<Detail>, Json<Applied>), Problem> {
    let reach = Reach::of(&api, &caller)?;
    if !matches!(&reach, Reach::Tenant(own) if **own == *tenant) && reach != Reach::Broker {
        return Err(api.not_administrator(&caller));
    }
    let declared: Declared = read_json(&body)?;
    for (what, count, most) in
        [("queues", declared.queues.len(), QUEUES_MAX), ("users", declared.users.len(), WANTED_USERS_MAX)]
    {
        if most < count {
            let error = format!("{count} {what} are declared; the most is {most} at a time");
            return Err(Problem::new(400, error));
        }
    }
    let view = View::of(&api).await?;
    let mut plan = Applied::default();
    let client = api.client(&caller).await?;
    let queues = plan_queues(&view, &client, (&tenant, &declared.queues), &mut plan).await?;
    let users = plan_users(&api, &caller, (&tenant, &declared.users), &mut plan).await?;
    let Declared { routes, alerts, prune: prunes, dry_run: is_dry_run, .. } = declared;
    let order = |is_dry_run| RulesOrder::Declare {
        tenant: tenant.clone(),
        rules: TenantRules { routes: routes.clone(), alerts: alerts.clone() },
        prunes,
        is_dry_run,
    };
    let rules = (api.0.options.tenant_rules)(order(true)).await?;
    let changes = rules.changes.into_iter();
    plan.changes.extend(changes.map(|rule| Change::new(rule.kind.into(), &rule.name, (rule.from, rule.to))));
    let faults = rules.faults.into_iter();
    plan.faults.extend(faults.map(|fault| Fault {
        kind: fault.kind.into(),
        number: fault.number,
        error: fault.reason,
    }));
    if is_dry_run {
        return Ok((Extension(plan.detail(true)), Json(plan)));
    }
    refuse(&plan.faults)?;
    for destination in queues {
        let make = |connection, ticket| Event::Declare { destination, connection, steals: None, ticket };
        client.request(make).await?.result?;
    }
    let rules = (api.0.options.tenant_rules)(order(false)).await?;
    let faults: Vec<Fault> = rules
        .faults
        .into_iter()
        .map(|fault| Fault { kind: fault.kind.into(), number: fault.number, error: fault.reason })
        .collect();
    refuse(&faults)?;
    // Last, so that the passwords of new users are in a good answer.
    make_users(&api, users, &mut plan).await?;
    Ok((Extension(plan.detail(false)), Json(plan)))
}

/// The first fault is the error.
fn refuse(faults: &[Fault]) -> Result<(), Problem> {
    let Some(Fault { kind, number, error }) = faults.first() else { return Ok(()) };
    let place = if *number == 0 { format!("{kind}s") } else { format!("{kind} {number}") };
    Err(Problem::new(400, format!("{place}: {error}; nothing is changed")))
}

/// The queues that are to be made.
async fn plan_queues(
    view: &View,
    client: &Client,
    (tenant, values): (&str, &[Value]),
    plan: &mut Applied,
) -> Result<Vec<Destination>, Problem> {
    let row = view.named(tenant)?;
    let mut room = row.queue_room();
    let mut missing = Vec::new();
    for (number, WantedQueue { name }) in plan.read(Kind::Queue, values, |queue: &WantedQueue| &queue.name) {
        let destination = match queue_of(&name) {
            Ok(destination) => destination,
            Err(problem) => {
                plan.fault(Kind::Queue, number, problem.message);
                continue;
            }
        };
        if let Err(error) = check_own(view.permissions(), tenant, &destination) {
            plan.fault(Kind::Queue, number, error);
            continue;
        }
        let is_there = find(client, destination.clone()).await?.is_some();
        let shown = Some("queue".to_owned());
        let from = shown.clone().filter(|_| is_there);
        plan.changes.push(Change::new(Kind::Queue, &destination.name, (from, shown)));
        if is_there {
            continue;
        }
        match room.as_mut() {
            Some(0) => {
                let most = row.queues_max().unwrap_or_default();
                let error = format!("the tenant {tenant} has its maximum of {most} queues");
                plan.fault(Kind::Queue, number, error);
            }
            Some(room) => *room -= 1,
            None => {}
        }
        missing.push(destination);
    }
    Ok(missing)
}

/// A lasting queue with one name, which is the tenant's.
fn check_own(permissions: &Permissions, tenant: &str, queue: &Destination) -> Result<(), String> {
    let owns: Vec<String> = permissions.destinations_of(tenant).map(ToString::to_string).collect();
    let is_name = !queue.temporary && Pattern::parse(&queue.name).is_ok_and(|name| !name.is_wildcard());
    let is_own = permissions
        .destinations_of(tenant)
        .any(|own| own.kind == queue.kind && !own.temporary && own.name.matches(&queue.name));
    match is_name && is_own {
        true => Ok(()),
        false => Err(format!(
            "name {:?} is not that of a queue of the tenant, which has {}",
            &*queue.name,
            owns.join(" and ")
        )),
    }
}

/// A user that is to be made or changed.
struct UserChange {
    name: String,
    group: String,
    /// Its new password.
    password: Option<String>,
    /// Where its change is in the plan.
    place: usize,
    is_made_up: bool,
}

async fn plan_users(
    api: &Api,
    caller: &Caller,
    (tenant, values): (&str, &[Value]),
    plan: &mut Applied,
) -> Result<Vec<UserChange>, Problem> {
    let wanted = plan.read(Kind::User, values, |user: &WantedUser| &user.name);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let Some(file) = api.0.options.door.borrow().file().cloned() else {
        let error = "the broker has no users: every client is let in (security.users)".to_owned();
        plan.fault(Kind::User, 0, error);
        return Ok(Vec::new());
    };
    // Passwords that are named are compared: they take their time.
    let (of, asked) = (wanted.clone(), tenant.to_owned());
    let found: Vec<Found> = writing(move || {
        let users = file.users()?;
        Ok(of.iter().map(|(_, user)| Found::of(&users, &asked, user)).collect())
    })
    .await?;
    let reach = Reach::Tenant(tenant.into());
    let mut changes = Vec::new();
    let mut room = found.first().map_or(0, |found| found.room);
    for ((number, user), found) in wanted.into_iter().zip(found) {
        let group = Membership { tenant: tenant.into(), administers: user.administrator }.group();
        let checked = reach.groups(&user.name, vec![group.clone()]).map_err(|problem| problem.message);
        let is_self = matches!(&caller.principal, Principal::User(own) if **own == *user.name);
        let new_groups = vec![group.clone()];
        let error = match (checked, &found.groups) {
            (Err(error), _) => Some(error),
            (_, Some(_)) if !found.is_member => {
                Some(format!("name {:?} is that of a user outside of the tenant", user.name))
            }
            (_, Some(groups)) if is_self && *groups != new_groups => {
                Some("administrator: you cannot change your own groups".to_owned())
            }
            (_, None) if room == 0 => Some(format!("the tenant has the maximum of {USERS_MAX} users")),
            _ => None,
        };
        if let Some(error) = error {
            plan.fault(Kind::User, number, error);
            continue;
        }
        let role = |groups: &[String]| groups.join(",");
        let is_new = found.groups.is_none();
        room -= usize::from(is_new);
        let from = found.groups.as_deref().map(role);
        let mut to = role(&new_groups);
        let password = user.password.filter(|_| !found.has_password);
        if !is_new && password.is_some() {
            to += ", another password";
        }
        let change = Change::new(Kind::User, &user.name, (from, Some(to)));
        if change.action != Action::Keep {
            let is_made_up = is_new && password.is_none();
            let password = match is_made_up {
                true => Some(secret().map_err(problem)?),
                false => password,
            };
            let place = plan.changes.len();
            changes.push(UserChange { name: user.name, group, password, place, is_made_up });
        }
        plan.changes.push(change);
    }
    Ok(changes)
}

/// A user as it is.
struct Found {
    /// `None`: there is none of this name.
    groups: Option<Vec<String>>,
    is_member: bool,
    /// Whether it has the password that is wanted.
    has_password: bool,
    /// Users that the tenant may have beside those there are.
    room: usize,
}

impl Found {
    fn of(users: &Users, tenant: &str, wanted: &WantedUser) -> Found {
        let known = users.known(&wanted.name);
        let groups = known.map(|name| users.groups(name).map(str::to_owned).collect());
        let is_wanted = |password: &str| known.is_some_and(|name| users.has_password(name, password));
        Found {
            groups,
            is_member: Reach::Tenant(tenant.into()).has(users, &wanted.name),
            has_password: wanted.password.as_deref().is_some_and(is_wanted),
            room: USERS_MAX.saturating_sub(members(users, tenant).len()),
        }
    }
}

async fn make_users(api: &Api, changes: Vec<UserChange>, plan: &mut Applied) -> Result<(), Problem> {
    let Some(file) = api.0.options.door.borrow().file().cloned().filter(|_| !changes.is_empty()) else {
        return Ok(());
    };
    for change in changes.iter().filter(|change| change.is_made_up) {
        plan.changes[change.place].password.clone_from(&change.password);
    }
    writing(move || {
        file.change(|users| {
            for UserChange { name, group, password, .. } in &changes {
                if let Some(password) = password {
                    users.set(name, password)?;
                }
                users.set_groups(name, std::slice::from_ref(group))?;
            }
            Ok(true)
        })
    })
    .await?;
    (api.0.options.reload)().await.map_err(|reason| Problem::new(500, reason))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postroad_routing::DestinationPattern;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_queue_is_one_of_the_tenant_and_has_one_name() {
        let mut permissions = Permissions::default();
        let owns = ["queue://acme.>", "topic://acme.>"]
            .map(|text| DestinationPattern::parse(text).expect("a pattern"));
        permissions.add_tenant(&Arc::from("acme"), owns.to_vec());
        for (name, want) in [
            ("acme.a", true),
            ("acme.a.b", true),
            ("acmes.a", false),
            ("lab.a", false),
            ("acme.*", false),
            ("acme.>", false),
        ] {
            assert_eq!(check_own(&permissions, "acme", &Destination::queue(name)).is_ok(), want, "{name}");
        }
        assert!(check_own(&permissions, "acme", &Destination::topic("x")).is_err());
        let error = check_own(&permissions, "acme", &Destination::queue("a")).expect_err("refused");
        assert!(error.ends_with("which has queue://acme.> and topic://acme.>"), "{error}");
    }

    #[test]
    fn entries_that_cannot_be_read_are_named_by_number() {
        let mut plan = Applied::default();
        let values =
            [json!({ "name": "a" }), json!({ "nam": "b" }), json!({ "name": "a" }), json!({ "name": "c" })];
        let read = plan.read(Kind::Queue, &values, |queue: &WantedQueue| &queue.name);
        assert_eq!(read.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 4]);
        let errors: Vec<(usize, &str)> =
            plan.faults.iter().map(|fault| (fault.number, &*fault.error)).collect();
        assert!(errors[0].1.starts_with("unknown field `nam`, expected `name`"), "{errors:?}");
        assert_eq!(errors[1], (3, "name \"a\" is already that of another one in the file"));
        let refused = refuse(&plan.faults).expect_err("refused");
        assert!(refused.message.starts_with("queue 2: unknown field"), "{}", refused.message);
    }

    #[test]
    fn the_audit_has_what_changes() {
        let mut plan = Applied::default();
        assert_eq!(plan.detail(false).0, "no change");
        let some = || Some("x".to_owned());
        plan.changes = vec![
            Change::new(Kind::Queue, "a", (None, some())),
            Change::new(Kind::Queue, "b", (some(), some())),
            Change::new(Kind::Route, "c", (some(), Some("y".to_owned()))),
            Change::new(Kind::Alert, "d", (some(), None)),
        ];
        assert_eq!(plan.detail(true).0, "dry run: create queue a, change route c, delete alert d");
    }
}
