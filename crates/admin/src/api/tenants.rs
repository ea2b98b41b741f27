//! Tenants: made, listed, changed and deleted while the broker runs, with their quotas.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::{Ask, Question, Row as AskRow, RowKey};
use postroad_routing::{FIRST_STORE, Membership, Permissions, Policies, SHARE_MAX, StorePlaces, Tenant};
use postroad_security::{TenantEntry, UserError, UserFile, Users, check_tenant_name, secret};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::Detail;
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::tokens::{end_all_of, problem, writing};
use super::{Api, Caller};
use crate::figures::{Figures, TenantFigures};
use crate::tenant_rules::RulesOrder;

#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    /// Patterns of its destinations.
    destinations: Vec<String>,
    /// Whether it is in the configuration file, which alone changes it then.
    is_configured: bool,
    quotas: BTreeMap<&'static str, Option<u64>>,
    /// Empty if it is in another store, which knows it.
    usage: BTreeMap<&'static str, u64>,
    users: usize,
    /// Its store, in a cluster of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<u16>,
}

impl Row {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.name.as_str().into(), detail: "".into() }
    }

    /// Queues that it may have; `None` for any number.
    pub fn queues_max(&self) -> Option<u64> {
        self.quotas.get("queues_max").copied().flatten()
    }

    /// Queues that it may have beside those there are.
    pub fn queue_room(&self) -> Option<u64> {
        let queues = self.usage.get("queues").copied().unwrap_or_default();
        self.queues_max().map(|most| most.saturating_sub(queues))
    }
}

#[derive(Debug, Serialize)]
pub struct Made {
    #[serde(flatten)]
    row: Row,
    /// The user who administers it; `None` where clients log in without users.
    administrator: Option<String>,
    /// Shown this once.
    password: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    /// Its store, in a cluster of several; that with the fewest tenants without it.
    store: Option<u16>,
    #[serde(flatten)]
    quotas: Map<String, Value>,
}

/// All tenants for those who administer the broker; for another user its own.
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Row>>, Problem> {
    let which = query(which)?;
    let view = View::of(&api).await?;
    let (all, own) = (api.administers(&caller), api.membership_of(&caller));
    let is_shown = |name: &str| all || own.as_ref().is_some_and(|own| *own.tenant == *name);
    let tenants = view.policies.tenants.iter().filter(|tenant| is_shown(&tenant.name));
    which.page_of(tenants.map(|tenant| view.row(tenant)).collect(), Row::key).map(Json)
}

pub async fn one(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Row>, Problem> {
    let is_own = api.membership_of(&caller).is_some_and(|own| *own.tenant == *name);
    if !is_own && !api.administers(&caller) {
        return Err(api.not_administrator(&caller));
    }
    View::of(&api).await?.named(&name).map(Json)
}

pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<(StatusCode, Extension<Detail>, Json<Made>), Problem> {
    administered(&api, &caller)?;
    let Named { name, store, quotas } = read_json(&body)?;
    check_tenant_name(&name).map_err(problem)?;
    let entry = changed(TenantEntry::default(), &quotas)?;
    let entry = TenantEntry { store: store_of_new(&api, &caller, &name, store).await?, ..entry };
    if policies(&api).tenants.named(&name).is_some() {
        return Err(Problem::new(409, format!("the tenant {name} exists already")));
    }
    let (book, of) = (api.0.options.made_tenants.clone(), name.clone());
    writing(move || book.change(|tenants| Ok(tenants.insert(of.as_str().into(), entry)))).await?;
    let made = match file_of_users(&api) {
        None => reload(&api).await.map(|()| None),
        Some(file) => add_administrator(&api, file, &name).await.map(Some),
    };
    let (administrator, password) = match made {
        Ok(made) => made.unzip(),
        Err(problem) => {
            // Without its administrator it would be of no use, and its name taken.
            let (book, of) = (api.0.options.made_tenants.clone(), name.clone());
            writing(move || book.change(|tenants| Ok(tenants.remove(of.as_str())))).await?;
            reload(&api).await?;
            return Err(problem);
        }
    };
    let row = View::of(&api).await?.named(&name)?;
    let detail = Detail(format!("tenant {name}"));
    Ok((StatusCode::CREATED, Extension(detail), Json(Made { row, administrator, password })))
}

/// The store of a new tenant; `None` if there is one store.
async fn store_of_new(
    api: &Api,
    caller: &Caller,
    name: &str,
    wanted: Option<u16>,
) -> Result<Option<u16>, Problem> {
    let policies = policies(api);
    let (places, of_one) = match (policies.permissions.places(), wanted) {
        (Some(places), _) => (places, false),
        (None, None) => return Ok(None),
        (None, Some(_)) => (&StorePlaces::of_store(FIRST_STORE, 1), true),
    };
    let count = places.count();
    if let Some(store) = wanted.filter(|store| of_one || !(FIRST_STORE..=count).contains(store)) {
        let text = match count {
            1 => format!("store is {store}, and this broker has one store; leave it out"),
            _ => format!("store is {store}; the stores of this cluster are 1 to {count}"),
        };
        return Err(Problem::new(400, text));
    }
    // Names that belonged to no tenant are in the first store.
    let has_names = has_names(api, caller, name).await?;
    match wanted {
        Some(store) if store != FIRST_STORE && has_names => Err(Problem::new(
            409,
            format!(
                "there are queues whose names begin with {name}. in store {FIRST_STORE}, and they do not move: \
                 delete them, or give the tenant store {FIRST_STORE}"
            ),
        )),
        Some(store) => Ok(Some(store)),
        None if has_names => Ok(Some(FIRST_STORE)),
        None => Ok(Some(places.for_new_tenant())),
    }
}

/// Whether there are queues, in this store, with the names of a tenant.
async fn has_names(api: &Api, caller: &Caller, tenant: &str) -> Result<bool, Problem> {
    let prefix = format!("{tenant}.");
    let question = Question::Queues { name_part: prefix.as_str().into(), only: None };
    let (client, mut after) = (api.client(caller).await?, None);
    loop {
        let (question, rows, order) = (question.clone(), Ask::ROWS_MAX, Default::default());
        let page = client.ask(Ask { question, after, rows, order }).await?;
        let is_its =
            |row: &AskRow| matches!(row, AskRow::Queue(row) if row.destination.name.starts_with(&prefix));
        if page.rows.iter().any(is_its) {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

/// Changes the quotas that the body names; `null` or 0 lifts one.
pub async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(Extension<Detail>, Json<Row>), Problem> {
    administered(&api, &caller)?;
    let quotas: Map<String, Value> = read_json(&body)?;
    let entry = changed(made(&api, &name)?, &quotas)?;
    let (book, of) = (api.0.options.made_tenants.clone(), name.clone());
    writing(move || book.change(|tenants| Ok(tenants.insert(of.as_str().into(), entry)))).await?;
    reload(&api).await?;
    let row = View::of(&api).await?.named(&name)?;
    Ok((Extension(Detail(format!("quotas {}", Value::Object(quotas)))), Json(row)))
}

/// Deletes a tenant without queues, with its users, their tokens and their access keys.
pub async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    administered(&api, &caller)?;
    made(&api, &name)?;
    let row = View::of(&api).await?.named(&name)?;
    let queues = match (row.usage.get("queues"), row.store) {
        (None, Some(store)) => queues_elsewhere(&api, &name, store).await?,
        (queues, _) => queues.copied().unwrap_or_default(),
    };
    if 0 < queues {
        let right = format!("delete them first: postroad ctl queues --filter {name}.");
        return Err(Problem::new(409, format!("the tenant {name} has {queues} queues; {right}")));
    }
    if let Some(file) = file_of_users(&api) {
        remove_members(&api, file, &name).await?;
    }
    (api.0.options.tenant_rules)(RulesOrder::Forget { tenant: name.clone() }).await?;
    let (book, of) = (api.0.options.made_tenants.clone(), name.clone());
    writing(move || book.change(|tenants| Ok(tenants.remove(of.as_str())))).await?;
    reload(&api).await.map(|()| StatusCode::NO_CONTENT)
}

/// Removes the users of a tenant, with their tokens and access keys.
async fn remove_members(api: &Api, file: Arc<UserFile>, tenant: &str) -> Result<(), Problem> {
    let (reader, of) = (file.clone(), tenant.to_owned());
    let known = writing(move || Ok(members(&reader.users()?, &of))).await?;
    end_all_of(api, known).await?;
    let of = tenant.to_owned();
    let gone = writing(move || {
        let mut gone = Vec::new();
        file.change(|users| {
            gone = members(users, &of);
            for user in &gone {
                users.remove(user);
            }
            Ok(!gone.is_empty())
        })?;
        Ok(gone)
    });
    end_all_of(api, gone.await?).await
}

/// How many queues a tenant of another store has.
async fn queues_elsewhere(api: &Api, name: &str, store: u16) -> Result<u64, Problem> {
    let unknown = |reason: String| {
        Problem::new(503, format!("whether {name} has queues in store {store} is not known: {reason}"))
    };
    let ask = api.0.options.other_store.clone().ok_or_else(|| unknown("it is not reached".to_owned()))?;
    let row = ask(store, format!("/api/v1/tenants/{name}")).await.map_err(unknown)?;
    row["usage"]["queues"].as_u64().ok_or_else(|| unknown("its leader does not know the tenant".to_owned()))
}

/// The users of a tenant.
pub fn members(users: &Users, tenant: &str) -> Vec<String> {
    let is_own = |group: &str| Membership::of_group(group).is_some_and(|of| *of.tenant == *tenant);
    let all = users.groups_of_all().filter_map(|(user, mut groups)| groups.any(is_own).then_some(user));
    all.map(str::to_owned).collect()
}

/// Makes the first user of a tenant, who administers it, and returns it with its password.
async fn add_administrator(
    api: &Api,
    file: Arc<UserFile>,
    tenant: &str,
) -> Result<(String, String), Problem> {
    let (user, password) = (format!("{tenant}.admin"), secret().map_err(problem)?);
    let membership = Membership { tenant: tenant.into(), administers: true };
    let (name, shown) = (user.clone(), password.clone());
    let add = move |users: &mut Users| match users.known(&name) {
        Some(_) => Ok(false),
        None => users.set(&name, &password).and_then(|()| users.set_groups(&name, &[membership.group()])),
    };
    match writing(move || file.change(add)).await? {
        true => reload(api).await.map(|()| (user, shown)),
        false => Err(Problem::new(409, format!("the user {user} exists already: remove it first"))),
    }
}

/// The quotas with these changes.
fn changed(mut entry: TenantEntry, quotas: &Map<String, Value>) -> Result<TenantEntry, Problem> {
    for (name, value) in quotas {
        let names: Vec<&str> = TenantEntry::default().quotas().iter().map(|(name, _)| *name).collect();
        if name == "store" {
            return Err(Problem::new(
                409,
                "a tenant stays in its store: its messages do not move".to_owned(),
            ));
        }
        let wrong = |text: String| Problem::new(400, text);
        let quota = entry
            .quota_mut(name)
            .ok_or_else(|| wrong(format!("{name:?} is not a quota: expected one of {}", names.join(", "))))?;
        let max = match value {
            Value::Null => Some(0),
            value => value.as_u64(),
        };
        let max = max.ok_or_else(|| wrong(format!("{name} is {value}; use a number, or 0 for no limit")))?;
        if name == "share" && SHARE_MAX < max {
            return Err(wrong(format!("share is {max}; the maximum is {SHARE_MAX}")));
        }
        *quota = Some(max).filter(|max| 0 < *max);
    }
    Ok(entry)
}

/// A tenant that the API may change.
fn made(api: &Api, name: &str) -> Result<TenantEntry, Problem> {
    if let Some(entry) = api.0.options.made_tenants.all().get(name) {
        return Ok(*entry);
    }
    match policies(api).tenants.named(name) {
        Some(_) => {
            let right = "change it there, and send SIGHUP";
            Err(Problem::new(409, format!("the tenant {name} is in the configuration file; {right}")))
        }
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Problem {
    Problem::new(404, format!("there is no tenant {name:?}; GET /api/v1/tenants lists all"))
}

fn administered(api: &Api, caller: &Caller) -> Result<(), Problem> {
    match api.administers(caller) {
        true => Ok(()),
        false => Err(api.not_administrator(caller)),
    }
}

fn policies(api: &Api) -> Arc<Policies> {
    (api.0.options.policies)()
}

fn file_of_users(api: &Api) -> Option<Arc<UserFile>> {
    api.0.options.door.borrow().file().cloned()
}

async fn reload(api: &Api) -> Result<(), Problem> {
    (api.0.options.reload)().await.map_err(|reason| Problem::new(500, reason))
}

/// Tenants as they are now.
pub struct View {
    policies: Arc<Policies>,
    figures: Figures,
    made: BTreeMap<Arc<str>, TenantEntry>,
    users: Users,
}

impl View {
    pub async fn of(api: &Api) -> Result<View, Problem> {
        let users = match file_of_users(api) {
            Some(file) => writing(move || file.users()).await?,
            None => Users::default(),
        };
        let figures = (api.0.options.totals)().await;
        let made = BTreeMap::clone(&api.0.options.made_tenants.all());
        Ok(View { policies: policies(api), figures, made, users })
    }

    pub fn permissions(&self) -> &Permissions {
        &self.policies.permissions
    }

    /// # Errors
    /// There is no such tenant.
    pub fn named(&self, name: &str) -> Result<Row, Problem> {
        let tenant = self.policies.tenants.named(name).ok_or_else(|| unknown(name))?;
        Ok(self.row(tenant))
    }

    fn row(&self, tenant: &Tenant) -> Row {
        let Tenant { name, limit, quota, .. } = tenant;
        let figures = self.figures.tenants.iter().find(|figures| *figures.tenant == **name);
        let TenantFigures { messages, bytes, disk_bytes, queues, connections, waiting, .. } =
            figures.cloned().unwrap_or_default();
        let quotas = [
            ("connections_max", quota.connections_max),
            ("queues_max", quota.queues_max),
            ("messages_max", limit.messages_max),
            ("bytes_max", limit.bytes_max),
            ("disk_bytes_max", limit.disk_bytes_max),
            ("messages_per_second_max", quota.messages_per_second_max),
            ("share", quota.share),
        ];
        let places = self.policies.permissions.places();
        let store = places.map(|places| places.of_tenant(name));
        let is_here = places.is_none_or(|places| places.of_tenant(name) == places.own());
        let usage = [
            ("connections", connections),
            ("queues", queues),
            ("messages", messages),
            ("bytes", bytes),
            ("disk_bytes", disk_bytes),
            ("waiting", waiting),
        ];
        Row {
            name: name.to_string(),
            destinations: self.policies.permissions.destinations_of(name).map(|of| of.to_string()).collect(),
            is_configured: !self.made.contains_key(name),
            quotas: quotas.into(),
            usage: if is_here { usage.into() } else { BTreeMap::new() },
            store,
            users: members(&self.users, name).len(),
        }
    }
}

/// Users of one tenant, at most, that its administrators may make.
pub const USERS_MAX: usize = 1_000;

/// Who may change users: those who administer the broker, and for its own users the administrator
/// of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Broker,
    Tenant(Arc<str>),
}

impl Reach {
    /// How far the caller reaches.
    ///
    /// # Errors
    /// It administers nothing.
    pub fn of(api: &Api, caller: &Caller) -> Result<Reach, Problem> {
        match api.membership_of(caller).filter(|own| own.administers) {
            _ if api.administers(caller) => Ok(Reach::Broker),
            Some(own) => Ok(Reach::Tenant(own.tenant)),
            None => Err(api.not_administrator(caller)),
        }
    }

    /// The groups of a new user of this name.
    ///
    /// # Errors
    /// A tenant's users have names that begin with its own, and no other groups.
    pub fn groups(&self, name: &str, mut groups: Vec<String>) -> Result<Vec<String>, Problem> {
        let Reach::Tenant(tenant) = self else { return Ok(groups) };
        let member = Membership { tenant: tenant.clone(), administers: false }.group();
        let administrator = Membership { tenant: tenant.clone(), administers: true }.group();
        if !name.strip_prefix(&**tenant).is_some_and(|rest| rest.starts_with('.')) {
            let right = format!("a user of the tenant {tenant} has a name such as {tenant}.app");
            return Err(Problem::new(403, format!("{name:?} is not such a name; {right}")));
        }
        if let Some(other) = groups.iter().find(|group| **group != member && **group != administrator) {
            let right = format!("users of the tenant {tenant} are in {member} and {administrator} only");
            return Err(Problem::new(403, format!("the group {other:?} is not yours to give; {right}")));
        }
        if groups.is_empty() {
            groups.push(member);
        }
        Ok(groups)
    }

    /// Whether users of this name, with these groups, are in reach.
    pub fn has(&self, users: &Users, name: &str) -> bool {
        let Reach::Tenant(tenant) = self else { return true };
        users.known(name).is_some_and(|known| {
            users
                .groups(known)
                .any(|group| Membership::of_group(group).is_some_and(|of| of.tenant == *tenant))
        })
    }

    /// Refuses one user more than a tenant may have.
    ///
    /// # Errors
    /// [`UserError::TooManyUsers`].
    pub fn check_room(&self, users: &Users) -> Result<(), UserError> {
        match self {
            Reach::Tenant(tenant) if USERS_MAX <= members(users, tenant).len() => {
                Err(UserError::TooManyUsers { max: USERS_MAX })
            }
            _ => Ok(()),
        }
    }
}
