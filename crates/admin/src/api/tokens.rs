//! Tokens of users: made, listed and revoked. The text of a token is in one answer only.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postroad_model::{Principal, RowKey};
use postroad_routing::Permissions;
use postroad_security::{Scopes, Token, TokenBook, UserError};
use serde::{Deserialize, Serialize};

use super::audit::Detail;
use super::lists::{List, Which, query};
use super::messages::read_json;
use super::problem::Problem;
use super::tenants::Reach;
use super::{Api, Caller};

/// A longer expiry is a mistake: about a hundred years.
const EXPIRES_SECONDS_MAX: u64 = 100 * 365 * 24 * 60 * 60;

/// A token in a list, without its secret.
#[derive(Debug, Serialize)]
pub struct Row {
    id: String,
    user: String,
    scope: String,
    created_ms: u64,
    expires_ms: Option<u64>,
}

impl From<Token> for Row {
    fn from(Token { id, user, scopes, created_ms, expires_ms, .. }: Token) -> Row {
        let (id, user) = (id.to_string(), user.to_string());
        Row { id, user, scope: scopes.to_string(), created_ms, expires_ms }
    }
}

impl Row {
    fn key(&self) -> RowKey {
        RowKey { rank: 0, name: self.user.as_str().into(), detail: self.id.as_str().into() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Whose; the caller's own without it.
    user: Option<String>,
    /// Names with commas between them.
    scope: Option<String>,
    expires_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Made {
    /// Shown this once.
    token: String,
    #[serde(flatten)]
    row: Row,
}

/// Tokens of all users in reach, and its own for another user.
pub async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<List<Row>>, Problem> {
    let which = query(which)?;
    let (book, now_ms) = (book(&api)?, api.now_ms());
    let reach = Seen::by(&api, &caller);
    let is_shown = |token: &&Token| !token.has_expired(now_ms) && reach.has(&token.user);
    let rows = book.all().values().filter(is_shown).cloned().map(Row::from).collect();
    which.page_of(rows, Row::key).map(Json)
}

pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<(StatusCode, Extension<Detail>, Json<Made>), Problem> {
    let Wanted { user, scope, expires_seconds } = match body.is_empty() {
        true => Wanted::default(),
        false => read_json(&body)?,
    };
    // Otherwise a token could outlive its revocation by another one.
    if caller.token.is_some() {
        return Err(Problem::new(403, "a token cannot make tokens: use the user's password".to_owned()));
    }
    let own = || caller.principal.user().map(|user| user.to_string());
    let missing = || Problem::new(400, "user is missing: name the user of the token".to_owned());
    let user = user.or_else(own).ok_or_else(missing)?;
    let book = book(&api)?;
    check(&api, &caller, &user)?;
    let door = api.0.options.door.borrow().clone();
    let user = door.known(&user).ok_or_else(|| Problem::new(404, format!("there is no user {user:?}")))?;
    let scopes = scope.map_or_else(|| Ok(Scopes::default()), |scope| scope.parse()).map_err(problem)?;
    if expires_seconds.is_some_and(|seconds| !(1..=EXPIRES_SECONDS_MAX).contains(&seconds)) {
        let right = format!("expires_seconds must be 1 to {EXPIRES_SECONDS_MAX}");
        return Err(Problem::new(400, right));
    }
    let (lasts, user) = (expires_seconds.map(Duration::from_secs), user.to_owned());
    let (token, text) = writing(move || book.issue(&user, scopes, lasts)).await?;
    let detail = Detail(format!("token {} of {}, scope {}", token.id, token.user, token.scopes));
    Ok((StatusCode::CREATED, Extension(detail), Json(Made { token: text, row: token.into() })))
}

pub async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Extension<Detail>), Problem> {
    let (book, unknown) = (book(&api)?, || Problem::new(404, format!("there is no token {id:?}")));
    let user = book.all().get(&*id).map(|token| token.user.clone()).ok_or_else(unknown)?;
    // Ids of other users' tokens are not for everybody to try.
    if !may(&api, &caller, &user) {
        return Err(unknown());
    }
    let which = id.clone();
    match writing(move || book.revoke(&which)).await? {
        true => Ok((StatusCode::NO_CONTENT, Extension(Detail(format!("token {id} of {user}"))))),
        false => Err(unknown()),
    }
}

/// Users whose tokens and access keys the caller may see and end: its own, those of the tenant that
/// it administers, or all.
pub struct Seen {
    own: Option<Arc<str>>,
    reach: Option<Reach>,
    permissions: Arc<Permissions>,
}

impl Seen {
    pub fn by(api: &Api, caller: &Caller) -> Seen {
        let (own, reach) = (caller.principal.user().cloned(), Reach::of(api, caller).ok());
        Seen { own, reach, permissions: api.permissions() }
    }

    pub fn has(&self, user: &Arc<str>) -> bool {
        let in_reach = || match &self.reach {
            Some(Reach::Broker) => true,
            Some(Reach::Tenant(tenant)) => {
                let membership = self.permissions.membership_of(&Principal::User(user.clone()));
                membership.is_some_and(|of| of.tenant == *tenant)
            }
            None => false,
        };
        self.own.as_ref() == Some(user) || in_reach()
    }
}

pub fn may(api: &Api, caller: &Caller, user: &str) -> bool {
    Seen::by(api, caller).has(&user.into())
}

pub fn check(api: &Api, caller: &Caller, user: &str) -> Result<(), Problem> {
    match may(api, caller, user) {
        true => Ok(()),
        false => Err(api.not_administrator(caller)),
    }
}

/// Ends all tokens and access keys of users who are removed: before they are, so that a failure
/// leaves none that is good again once the name is; and after, for those made meanwhile.
pub async fn end_all_of(api: &Api, users: Vec<String>) -> Result<(), Problem> {
    let (keys, tokens) = (api.0.options.access_keys.clone(), api.0.options.door.borrow().tokens().cloned());
    writing(move || {
        users.iter().try_for_each(|user| tokens.iter().try_for_each(|tokens| tokens.revoke_all_of(user)))?;
        keys.remove_all_of(&users)
    })
    .await
}

fn book(api: &Api) -> Result<Arc<TokenBook>, Problem> {
    let right = "without users every client is let in and needs no token: set security.users first";
    let door = api.0.options.door.borrow().clone();
    door.tokens().cloned().ok_or_else(|| Problem::new(409, right.to_owned()))
}

/// Writes a file on a thread that may wait for the disk.
pub async fn writing<T: Send + 'static>(
    write: impl FnOnce() -> Result<T, UserError> + Send + 'static,
) -> Result<T, Problem> {
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(|_| Problem::new(500, "the file could not be written".to_owned()))?.map_err(problem)
}

/// The status says whose fault it is.
pub fn problem(error: UserError) -> Problem {
    let status = match &error {
        UserError::Refused(refusal) => return refusal.clone().into(),
        UserError::TooManyTokens { .. }
        | UserError::TooManyKeys { .. }
        | UserError::TooManyTenants { .. }
        | UserError::TooManyUsers { .. }
        | UserError::SessionTooLarge { .. } => 409,
        UserError::File { .. } | UserError::Line { .. } | UserError::NoChance | UserError::NoMemory => 500,
        _ => 400,
    };
    Problem::new(status, error.to_string())
}
