//! Users: added, listed and removed while the broker runs, with their passwords and groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::{Principal, RowKey};
use postroad_security::{TOKEN_PREFIX, UserError, UserFile, Users, secret};
use serde::{Deserialize, Serialize};

use super::access::password_of;
use super::audit::{Detail, peer_text};
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::tenants::Reach;
use super::tokens::{end_all_of, problem, writing};
use super::{Api, Caller, Peer};

#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    groups: Vec<String>,
    tokens: usize,
}

impl Row {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.name.as_str().into(), detail: "".into() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    name: String,
    /// One is made up and returned without it.
    password: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Made {
    name: String,
    groups: Vec<String>,
    /// Only if it was made up; shown this once.
    password: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
    /// The old one, if a user changes its own.
    current: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    groups: Vec<String>,
}

pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Row>>, Problem> {
    let which = query(which)?;
    let (file, reach) = reached(&api, &caller)?;
    let users = writing(move || file.users()).await?;
    let mut tokens = BTreeMap::new();
    let door = api.0.options.door.borrow().clone();
    for token in door.tokens().map(|book| book.all()).iter().flat_map(|all| all.values()) {
        *tokens.entry(token.user.clone()).or_insert(0) += 1;
    }
    let row = |name: &str| Row {
        name: name.to_owned(),
        groups: users.groups(name).map(str::to_owned).collect(),
        tokens: tokens.get(name).copied().unwrap_or(0),
    };
    let names = users.names().filter(|name| reach.has(&users, name));
    which.page_of(names.map(row).collect(), Row::key).map(Json)
}

pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<(StatusCode, Extension<Detail>, Json<Made>), Problem> {
    let (file, reach) = reached(&api, &caller)?;
    let Wanted { name, password, groups } = read_json(&body)?;
    let groups = reach.groups(&name, groups)?;
    let made_up = match password {
        Some(_) => None,
        None => Some(secret().map_err(problem)?),
    };
    let password = password.or(made_up.clone()).unwrap_or_default();
    let (of, in_groups) = (name.clone(), groups.clone());
    let add = move |users: &mut Users| match users.known(&of) {
        Some(_) => Ok(false),
        None => {
            reach.check_room(users)?;
            users.set(&of, &password).and_then(|()| users.set_groups(&of, &in_groups))
        }
    };
    if !change(&api, file, add).await? {
        return Err(Problem::new(409, format!("the user {name:?} exists already")));
    }
    let detail = Detail(format!("user {name}, groups {}", groups.join(",")));
    Ok((StatusCode::CREATED, Extension(detail), Json(Made { name, groups, password: made_up })))
}

pub async fn remove(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let (file, reach) = reached(&api, &caller)?;
    if matches!(&caller.principal, Principal::User(own) if **own == *name) {
        return Err(Problem::new(409, "users cannot remove themselves".to_owned()));
    }
    let reader = file.clone();
    let users = writing(move || reader.users()).await?;
    // As it stands in the file: tokens are of that name.
    let known = users.known(&name).filter(|_| reach.has(&users, &name)).map(str::to_owned);
    existing(known.is_some(), &name)?;
    let gone = Vec::from_iter(known);
    end_all_of(&api, gone.clone()).await?;
    let of = name.clone();
    existing(change(&api, file, move |users| Ok(reach.has(users, &of) && users.remove(&of))).await?, &name)?;
    end_all_of(&api, gone).await.map(|()| StatusCode::NO_CONTENT)
}

/// Of any user for those who administer the broker; its own for a user who shows the old one.
pub async fn password(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let NewPassword { password, current } = read_json(&body)?;
    let is_own = matches!(&caller.principal, Principal::User(own) if **own == *name);
    let (file, reach) = if is_own { (users_file(&api)?, Reach::Broker) } else { reached(&api, &caller)? };
    if let (true, Peer::Network(address)) = (is_own, peer) {
        let missing = || Problem::new(403, "current is missing: send the old password".to_owned());
        let door = api.0.options.door.borrow().clone();
        let current = current.ok_or_else(missing)?;
        let is_token = current.starts_with(TOKEN_PREFIX);
        let checked = password_of(&api, &door, address.ip(), (name.clone(), current)).await;
        checked.map_err(|error| match error.status {
            401 if is_token => Problem::new(403, "current is a token: send the old password".to_owned()),
            401 => Problem::new(403, "current is not the old password".to_owned()),
            _ => error,
        })?;
        tracing::info!(user = name, peer = peer_text(Some(peer)), "a user has changed its password");
    }
    let of = name.clone();
    let set = move |users: &mut Users| match users.known(&of) {
        Some(_) if reach.has(users, &of) => users.set(&of, &password).map(|()| true),
        _ => Ok(false),
    };
    existing(change(&api, file, set).await?, &name).map(|()| StatusCode::NO_CONTENT)
}

pub async fn groups(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Extension<Detail>), Problem> {
    let (file, reach) = reached(&api, &caller)?;
    let Groups { groups } = read_json(&body)?;
    let groups = reach.groups(&name, groups)?;
    let (of, detail) = (name.clone(), Detail(format!("groups {}", groups.join(","))));
    let set = move |users: &mut Users| Ok(reach.has(users, &of) && users.set_groups(&of, &groups)?);
    existing(change(&api, file, set).await?, &name)?;
    Ok((StatusCode::NO_CONTENT, Extension(detail)))
}

/// Changes the file, and has the broker follow it before the answer.
async fn change(
    api: &Api,
    file: Arc<UserFile>,
    change: impl FnOnce(&mut Users) -> Result<bool, UserError> + Send + 'static,
) -> Result<bool, Problem> {
    let changed = writing(move || file.change(change)).await?;
    if changed {
        (api.0.options.reload)().await.map_err(|reason| Problem::new(500, reason))?;
    }
    Ok(changed)
}

fn existing(exists: bool, name: &str) -> Result<(), Problem> {
    match exists {
        true => Ok(()),
        false => Err(Problem::new(404, format!("there is no user {name:?}"))),
    }
}

/// The file of users, and which of them the caller may change.
fn reached(api: &Api, caller: &Caller) -> Result<(Arc<UserFile>, Reach), Problem> {
    let reach = Reach::of(api, caller)?;
    Ok((users_file(api)?, reach))
}

fn users_file(api: &Api) -> Result<Arc<UserFile>, Problem> {
    let right = "there are no users yet: set security.users in the configuration, and add the first one by \
                 `postroad user add`";
    let door = api.0.options.door.borrow().clone();
    door.file().cloned().ok_or_else(|| Problem::new(409, right.to_owned()))
}
