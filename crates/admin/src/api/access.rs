//! Who may use the API: users with their passwords; without users, only processes of this machine.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use postroad_model::{Login, LoginAnswer, Principal};
use postroad_security::ldap::DIRECTORY_AWAY;
use postroad_security::{Door, FailedLogin, Scope, TOKEN_PREFIX, Visit};

use super::audit::{self, Change, Detail, peer_text};
use super::problem::Problem;
use super::session::Renewal;
use super::{Api, Caller, Peer, queries, session};
use crate::login::answer_of;

pub async fn admit(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_of_console = request.headers().contains_key(CONSOLE_HEADER);
    let mut response = match (request.method(), request.uri().path()) {
        (&Method::POST, "/api/v1/session") => session::sign_in(api, request).await,
        (_, "/metrics") if !api.0.options.door.borrow().guards_metrics() => next.run(request).await,
        _ => serve(api, request, next).await,
    };
    if is_of_console {
        response.headers_mut().remove(header::WWW_AUTHENTICATE);
    }
    response
}

async fn serve(api: Api, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let peer = parts.extensions.get::<Peer>().copied();
    let checked = check(&api, &parts).await.and_then(|caller| permit(&api, caller, &path));
    let checked = checked.and_then(|caller| queries::check(&parts).map(|()| caller));
    // Failed logins are kept even where nothing would have been changed.
    let failed = checked.as_ref().is_err_and(|problem| matches!(problem.status, 401 | 429 | 503))
        && parts.headers.contains_key(header::AUTHORIZATION);
    let renewal = Renewal::of(&parts.headers);
    let (caller, response) = match checked {
        Ok(caller) => {
            parts.extensions.insert(caller.clone());
            let mut response = next.run(Request::from_parts(parts, body)).await;
            caller.session.iter().for_each(|session| renewal.renew(&api, session, &mut response));
            (Some(caller), response)
        }
        Err(problem) => {
            let detail = failed.then(|| Detail(format!("login failed: {}", problem.message)));
            let mut response = problem.into_response();
            detail.map(|detail| response.extensions_mut().insert(detail));
            (None, response)
        }
    };
    if failed || !is_safe(&method) || response.status() == StatusCode::FORBIDDEN {
        let detail = response.extensions().get().map(|Detail(detail)| detail.clone());
        let answer = (response.status().as_u16(), detail);
        record(&api, (peer, caller), (method, path), answer).await;
    }
    response
}

/// Keeps a request for the audit.
pub async fn record(
    api: &Api,
    (peer, caller): (Option<Peer>, Option<Caller>),
    (method, path): (Method, String),
    (status, detail): (u16, Option<String>),
) {
    let user = caller.as_ref().and_then(|caller| caller.principal.user()).map(|user| user.to_string());
    let token = caller.and_then(|caller| caller.token).map(|token| token.to_string());
    let (peer, method, at_ms) = (peer_text(peer), method.to_string(), api.now_ms());
    if user.is_none() && matches!(status, 401 | 429 | 503) {
        let reason = detail.unwrap_or_else(|| "login failed".to_owned());
        let failed = FailedLogin { at_ms, user, peer, method, path, status, reason };
        api.0.options.door.borrow().failures().add(failed);
        return audit::take_others(api).await;
    }
    let name = user.as_deref().unwrap_or("-");
    tracing::info!(method, path, user = name, token, peer, status, detail, "an operator's request");
    let change =
        Change { number: 0, at_ms, user, peer, method, path, status, token, detail, is_failed_login: false };
    api.0.changes.lock().await.add(change);
}

/// Requests with this header come from the console, which has a page for the sign-in: browsers are
/// not to ask.
const CONSOLE_HEADER: &str = "x-postroad-console";

/// Lists of the whole broker that no client inside the process asks a partition for: those check
/// permissions themselves.
const OF_BROKER: &[&str] = &[
    "/api/v1/alerts",
    "/api/v1/audit",
    "/api/v1/bridges",
    "/api/v1/broker/drain",
    "/api/v1/broker/resume",
    "/api/v1/cluster",
    "/api/v1/configuration",
    "/api/v1/ledger",
    "/api/v1/listeners",
    "/api/v1/planner",
    "/api/v1/routes",
    "/api/v1/stores",
    "/api/v1/subscriptions",
    "/api/v1/transactions",
    "/metrics",
];

/// As those, with all paths below.
const BELOW_BROKER: [&str; 4] =
    ["/api/v1/cluster/", "/api/v1/configuration/", "/api/v1/subscriptions/", "/api/v1/transactions/"];

/// Refuses lists of the whole broker to users without `admin` on every destination.
fn permit(api: &Api, caller: Caller, path: &str) -> Result<Caller, Problem> {
    let is_of_broker = OF_BROKER.contains(&path) || BELOW_BROKER.iter().any(|above| path.starts_with(above));
    if !is_of_broker || api.administers(&caller) {
        return Ok(caller);
    }
    Err(api.not_administrator(&caller))
}

async fn check(api: &Api, request: &Parts) -> Result<Caller, Problem> {
    let address = match request.extensions.get::<Peer>() {
        Some(Peer::ControlSocket | Peer::Node(_)) => {
            return Ok(Caller { principal: Principal::Operator, ..Caller::anonymous() });
        }
        Some(Peer::Network(address)) => address.ip(),
        None => return Err(Problem::new(403, "the peer's address is unknown".to_owned())),
    };
    check_origin(&request.headers, &request.method)?;
    let door = api.0.options.door.borrow().clone();
    match door.is_open() {
        false => login(api, (&door, address), &request.headers, &request.method).await,
        true => check_local(address, &request.headers).map(|()| Caller::anonymous()),
    }
}

pub fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A page of another site must not give orders through its reader's browser.
pub fn check_origin(headers: &HeaderMap, method: &Method) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN).filter(|_| !is_safe(method)) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match origin.split_once("://").is_some_and(|(_, of)| of == host) {
        true => Ok(()),
        false => Err(Problem::new(403, format!("requests of {origin:?} are not served"))),
    }
}

/// Without users the API is served on this machine alone, by a name that other sites cannot have
/// for it.
fn check_local(address: IpAddr, headers: &HeaderMap) -> Result<(), Problem> {
    if !address.to_canonical().is_loopback() {
        let right = "add users with `postroad user add`, or ask from the broker's own machine";
        return Err(Problem::new(403, format!("without users the API is served on loopback only: {right}")));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let is_local = name.is_empty()
        || name == "localhost"
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match is_local {
        true => Ok(()),
        false => Err(Problem::new(403, format!("the host {host:?} is not this machine's loopback name"))),
    }
}

async fn login(
    api: &Api,
    (door, address): (&Arc<Door>, IpAddr),
    headers: &HeaderMap,
    method: &Method,
) -> Result<Caller, Problem> {
    let credentials = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(credentials) = credentials else {
        return session::caller(api, door, headers, method).await.unwrap_or_else(|| Err(unknown()));
    };
    if let Some(text) = bearer(credentials).filter(|text| door.takes_jwt(text)) {
        let principal = password_of(api, door, address, (String::new(), text.to_owned())).await?;
        return Ok(Caller { principal, ..Caller::anonymous() });
    }
    if let Some(text) = bearer(credentials) {
        return by_token((door, address), (None, text), method);
    }
    if let Some(principal) = api.0.known.lock().await.principal(credentials, door) {
        return Ok(Caller { principal, ..Caller::anonymous() });
    }
    let (user, password) = basic(headers).ok_or_else(unknown)?;
    if password.starts_with(TOKEN_PREFIX) {
        return by_token((door, address), (Some(&user), &password), method);
    }
    let principal = password_of(api, door, address, (user, password)).await?;
    // A token is cheap to check, and may expire; a directory has a memory of its own.
    if matches!(principal, Principal::User(_)) {
        api.0.known.lock().await.add(credentials, principal.clone(), door.clone());
    }
    Ok(Caller { principal, ..Caller::anonymous() })
}

fn unknown() -> Problem {
    let right = "a user and its password, or a token, are needed (basic or bearer authentication)";
    Problem::new(401, right.to_owned())
}

/// The user with this name and password; or with a token of an identity provider for a password.
///
/// # Errors
/// One of them is wrong, the password is a token of the broker, or there were too many failures.
pub async fn password_of(
    api: &Api,
    door: &Arc<Door>,
    address: IpAddr,
    (user, password): (String, String),
) -> Result<Principal, Problem> {
    check_no_token(&password)?;
    let mut visit = Visit::new(door.clone(), None).at(address);
    let (is_jwt, counted) = (door.takes_jwt(&password), door.counted_user(&user, &password));
    let said = Login::Password { user: Some(user.into()), password: Some(password.into()) };
    let refusal = match answer_of(visit.step(said), &api.0.logins).await {
        LoginAnswer::Welcome { principal, .. } if principal.user().is_some() => return Ok(principal),
        LoginAnswer::Refused { reason } if is_jwt => Problem::new(401, reason),
        LoginAnswer::Refused { reason } if reason == DIRECTORY_AWAY => return Err(Problem::away(reason)),
        _ => unknown(),
    };
    Err(door.locked_for(&counted, address).map_or(refusal, Problem::locked))
}

/// Refuses a token in place of a password: what is made by it, a session or another password, would
/// have all rights of the user, whatever the scope of the token, and outlive it.
fn check_no_token(password: &str) -> Result<(), Problem> {
    match password.starts_with(TOKEN_PREFIX) {
        true => {
            Err(Problem::new(401, "a token is no password here: sign in with the user's password".to_owned()))
        }
        false => Ok(()),
    }
}

/// The caller with this token, whose user may be named with it.
fn by_token(
    (door, address): (&Arc<Door>, IpAddr),
    (user, text): (Option<&str>, &str),
    method: &Method,
) -> Result<Caller, Problem> {
    let user = user.filter(|user| !user.is_empty());
    let counted = Visit::new(door.clone(), None).at(address).token_of(user, text);
    let token = counted.map_err(|left| left.map_or_else(unknown, Problem::locked))?;
    let scope = if is_safe(method) { Scope::Read } else { Scope::Manage };
    match token.scopes.permit(scope) {
        true => Ok(Caller { principal: Principal::User(token.user), token: Some(token.id), session: None }),
        false => {
            let (had, needed) = (token.scopes, scope.name());
            Err(Problem::new(403, format!("the token {} has the scope {had}; {needed} is needed", token.id)))
        }
    }
}

/// The token of a request (RFC 6750, section 2.1).
fn bearer(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The user and password of a request (RFC 7617).
fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim().as_bytes()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter()
            .map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn without_users_only_this_machine_by_its_own_name_is_served() {
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        for (case, address, host, want) in [
            ("loopback", here, "127.0.0.1:8161", true),
            ("by name", here, "localhost", true),
            ("version 6", here, "[::1]:8161", true),
            ("a mapped address", mapped, "localhost:8161", true),
            ("another machine", there, "127.0.0.1:8161", false),
            ("a name that another site has for it", here, "evil.example:8161", false),
        ] {
            assert_eq!(check_local(address, &headers(&[("host", host)])).is_ok(), want, "case: {case}");
        }
    }

    #[test]
    fn other_sites_give_no_orders() {
        for (case, method, origin, want) in [
            ("its own", Method::POST, "http://localhost:8161", true),
            ("another", Method::POST, "http://evil.example", false),
            ("none in particular", Method::DELETE, "null", false),
            ("reads are harmless, as they cannot be seen", Method::GET, "http://evil.example", true),
        ] {
            let headers = headers(&[("host", "localhost:8161"), ("origin", origin)]);
            assert_eq!(check_origin(&headers, &method).is_ok(), want, "case: {case}");
        }
    }

    #[test]
    fn a_token_is_no_password_for_a_session_or_another_password() {
        let refused = "a token is no password here: sign in with the user's password";
        for (case, password, want) in [
            ("a password", "secret-a", None),
            ("none", "", None),
            ("a token", "prt_abc_def", Some(refused)),
            ("one that was never made", "prt_", Some(refused)),
            ("its prefix further on", "my-prt_abc_def", None),
            ("a token of an identity provider", "eyJh.eyJz.c2ln", None),
        ] {
            let got = check_no_token(password).map_err(|problem| (problem.status, problem.message));
            assert_eq!(got.err(), want.map(|text| (401, text.to_owned())), "case: {case}");
        }
    }

    #[test]
    fn basic_authentication_is_read() {
        for (value, want) in [
            ("Basic YTpiOmM=", Some(("a", "b:c"))),
            ("basic YTo=", Some(("a", ""))),
            ("Basic YQ==", None),
            ("Basic !", None),
            ("Bearer YTpi", None),
        ] {
            let got = basic(&headers(&[("authorization", value)]));
            let want = want.map(|(user, password)| (user.to_owned(), password.to_owned()));
            assert_eq!(got, want, "{value}");
        }
    }
}
