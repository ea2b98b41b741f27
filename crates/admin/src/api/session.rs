//! Sessions of the web console: a user signs in once, and a cookie stands for the password from
//! then on.
//!
//! The cookie is `HttpOnly` and `SameSite=Strict`; requests that change something also need the
//! session's CSRF token in a header, which no page of another site can read or set. Sessions live
//! in memory and end with the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use postroad_model::Principal;
use postroad_security::{Credential, Door, digest_of, secret};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::access::{check_origin, is_safe, password_of};
use super::audit::Detail;
use super::messages::read_json;
use super::problem::Problem;
use super::tokens::problem;
use super::{Api, Caller, Peer, queries};

/// The name of the cookie.
const COOKIE: &str = "postroad-session";

/// The header with the CSRF token.
const CSRF_HEADER: &str = "x-postroad-csrf";

/// A session ends after this time without a request that its user caused, and after this time in
/// any case.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
const LASTS_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions at a time, and of one user; beyond that the one that was idle longest ends.
const SESSIONS_MAX: usize = 1_024;
const SESSIONS_OF_USER_MAX: usize = 16;

/// A user name and a password, or a token in its place, fit in this.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Requests with this header are the console's own rounds, which keep no session alive.
const ROUND_HEADER: &str = "x-postroad-round";

/// See the head of this file. Keys are digests of what is in the cookie.
#[derive(Default)]
pub struct Sessions(BTreeMap<[u8; 32], Session>);

struct Session {
    principal: Principal,
    csrf: Arc<str>,
    begun: Instant,
    used: Instant,
    /// The users when it was checked last, and the mark of the user's password.
    door: Arc<Door>,
    password_mark: Option<[u8; 32]>,
}

impl Session {
    /// The session of an identity provider's user ends with the token that began it.
    fn has_ended(&self, now: Instant) -> bool {
        let lasts = match &self.principal {
            Principal::Federated(federated) => self.door.honours(&Credential::Federated(federated.clone())),
            _ => true,
        };
        !lasts || IDLE_MAX <= now.duration_since(self.used) || LASTS_MAX <= now.duration_since(self.begun)
    }
}

/// The session of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSession {
    key: [u8; 32],
    csrf: Arc<str>,
}

impl Sessions {
    /// Begins a session, and returns the text of its cookie.
    fn begin(&mut self, principal: Principal, door: Arc<Door>) -> Result<(String, Arc<str>), Problem> {
        let now = Instant::now();
        self.0.retain(|_, session| !session.has_ended(now));
        let is_same = |session: &Session| session.principal.user() == principal.user();
        if SESSIONS_OF_USER_MAX <= self.0.values().filter(|session| is_same(session)).count() {
            self.end_oldest(is_same);
        } else if SESSIONS_MAX <= self.0.len() {
            self.end_oldest(|_| true);
        }
        let (text, csrf) = (secret().map_err(problem)?, secret().map_err(problem)?);
        let (csrf, password_mark): (Arc<str>, _) = (csrf.into(), mark(&principal, &door));
        let session = Session { principal, csrf: csrf.clone(), begun: now, used: now, door, password_mark };
        self.0.insert(digest_of(&text), session);
        Ok((text, csrf))
    }

    fn end_oldest(&mut self, of: impl Fn(&Session) -> bool) {
        let some = self.0.iter().filter(|(_, session)| of(session));
        if let Some(key) = some.min_by_key(|(_, session)| session.used).map(|(key, _)| *key) {
            self.0.remove(&key);
        }
    }

    /// The user of the session with this cookie. Another password or the user's removal ends it.
    /// `is_use` keeps it alive.
    fn find(&mut self, text: &str, door: &Arc<Door>, is_use: bool) -> Option<(Principal, InSession)> {
        let (key, now) = (digest_of(text), Instant::now());
        let session = self.0.get_mut(&key)?;
        if !Arc::ptr_eq(&session.door, door) {
            session.door = door.clone();
        }
        if session.has_ended(now) || session.password_mark != mark(&session.principal, door) {
            self.0.remove(&key);
            return None;
        }
        if is_use {
            session.used = now;
        }
        Some((session.principal.clone(), InSession { key, csrf: session.csrf.clone() }))
    }

    fn end(&mut self, session: &InSession) {
        self.0.remove(&session.key);
    }
}

/// The caller of a request with a session's cookie; `None` without one that is good.
///
/// # Errors
/// The request would change something, and lacks the CSRF token.
pub async fn caller(
    api: &Api,
    door: &Arc<Door>,
    headers: &HeaderMap,
    method: &Method,
) -> Option<Result<Caller, Problem>> {
    let is_use = !headers.contains_key(ROUND_HEADER);
    let (principal, session) = api.0.sessions.lock().await.find(cookie(headers)?, door, is_use)?;
    let shown = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Digests, so that the comparison takes the same time for each wrong text.
    if !is_safe(method) && digest_of(shown) != digest_of(&session.csrf) {
        let right = format!("the header {CSRF_HEADER} must have the csrf of GET /api/v1/session");
        return Some(Err(Problem::new(403, right)));
    }
    Some(Ok(Caller { principal, token: None, session: Some(session) }))
}

/// See [`Door::password_mark`].
fn mark(principal: &Principal, door: &Door) -> Option<[u8; 32]> {
    door.password_mark(principal.user()?)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    user: String,
    password: String,
}

/// Who asks, and what the console needs to know of it.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// `None` without users, and at the control socket.
    user: Option<String>,
    /// To be sent with each change, in a session.
    csrf: Option<String>,
    /// Whether it may see and change the whole broker.
    administers: bool,
    /// Whether it may sign out.
    is_session: bool,
}

/// Who the caller is.
pub async fn show(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Json<Shown> {
    Json(shown(&api, &caller))
}

fn shown(api: &Api, caller: &Caller) -> Shown {
    Shown {
        user: caller.principal.user().map(|user| user.to_string()),
        csrf: caller.session.as_ref().map(|session| session.csrf.to_string()),
        administers: api.administers(caller),
        is_session: caller.session.is_some(),
    }
}

/// Signs a user in. Ahead of it no caller is known: it checks for itself who asks.
pub async fn sign_in(api: Api, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().copied();
    let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        Problem::new(413, format!("the body has more than {BODY_BYTES_MAX} bytes, or did not arrive"))
    });
    let signed = match queries::check(&parts).and(body).and_then(|body| credentials(&parts.headers, &body)) {
        Ok(Credentials { user, password }) => {
            let named = user.clone();
            signed_in(&api, peer, (user, password), &parts.headers)
                .await
                .map_err(|error| (Some(named), error))
        }
        Err(error) => Err((None, error)),
    };
    let (caller, detail, response) = match signed {
        Ok((caller, response)) => (Some(caller), "signed in".to_owned(), response),
        Err((user, error)) => {
            let of = user.map(|user| format!(" as {}", &user[..user.floor_char_boundary(64)]));
            (None, format!("sign-in failed{}", of.unwrap_or_default()), error.into_response())
        }
    };
    let answer = (response.status().as_u16(), Some(detail));
    super::access::record(&api, (peer, caller), (Method::POST, parts.uri.path().to_owned()), answer).await;
    response
}

fn credentials(headers: &HeaderMap, body: &Bytes) -> Result<Credentials, Problem> {
    check_origin(headers, &Method::POST)?;
    // A form of another site cannot send this type without asking first.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        return Err(Problem::new(415, "send {\"user\":…,\"password\":…} as application/json".to_owned()));
    }
    read_json(body)
}

async fn signed_in(
    api: &Api,
    peer: Option<Peer>,
    (user, password): (String, String),
    headers: &HeaderMap,
) -> Result<(Caller, Response), Problem> {
    let Some(Peer::Network(address)) = peer else {
        return Err(Problem::new(409, "the control socket needs no session".to_owned()));
    };
    let door = api.0.options.door.borrow().clone();
    if door.is_open() {
        return Err(Problem::new(409, "without users there is no sign-in: set security.users".to_owned()));
    }
    let principal = password_of(api, &door, address.ip(), (user, password)).await?;
    let (text, csrf) = api.0.sessions.lock().await.begin(principal.clone(), door)?;
    let session = InSession { key: digest_of(&text), csrf };
    let caller = Caller { principal, token: None, session: Some(session) };
    let mut response = Json(shown(api, &caller)).into_response();
    set_cookie(&mut response, &text, LASTS_MAX, headers);
    Ok((caller, response))
}

/// Signs the caller out.
pub async fn sign_out(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    if let Some(session) = &caller.session {
        api.0.sessions.lock().await.end(session);
    }
    let mut response = (StatusCode::NO_CONTENT, Extension(Detail("signed out".to_owned()))).into_response();
    set_cookie(&mut response, "", Duration::ZERO, &headers);
    response
}

fn set_cookie(response: &mut Response, text: &str, lasts: Duration, headers: &HeaderMap) {
    // A proxy with TLS in front of the port names it.
    let proto = headers.get("x-forwarded-proto").and_then(|proto| proto.to_str().ok());
    let secure = if proto == Some("https") { "; Secure" } else { "" };
    let seconds = lasts.as_secs();
    let cookie = format!("{COOKIE}={text}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(sessions: &mut Sessions, user: &str, door: &Arc<Door>) -> String {
        sessions.begin(Principal::User(user.into()), door.clone()).expect("random numbers").0
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_and_in_any_case() {
        let (door, mut sessions) = (Arc::new(Door::open()), Sessions::default());
        let text = begin(&mut sessions, "ann", &door);
        let mut passed = Duration::ZERO;
        while passed + IDLE_MAX < LASTS_MAX {
            tokio::time::advance(IDLE_MAX - Duration::from_secs(1)).await;
            passed += IDLE_MAX - Duration::from_secs(1);
            assert!(sessions.find(&text, &door, true).is_some(), "in use after {passed:?}");
        }
        tokio::time::advance(LASTS_MAX - passed).await;
        assert!(sessions.find(&text, &door, true).is_none(), "it lasts no longer");
        let text = begin(&mut sessions, "ann", &door);
        tokio::time::advance(IDLE_MAX - Duration::from_secs(1)).await;
        assert!(sessions.find(&text, &door, false).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sessions.find(&text, &door, true).is_none(), "rounds of the console are no use");
        assert!(sessions.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded_and_the_one_idle_longest_ends() {
        let (door, mut sessions) = (Arc::new(Door::open()), Sessions::default());
        let first = begin(&mut sessions, "ann", &door);
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = begin(&mut sessions, "ann", &door);
        for _ in 0..SESSIONS_OF_USER_MAX - 1 {
            begin(&mut sessions, "ann", &door);
        }
        assert!(sessions.find(&first, &door, true).is_none());
        assert!(sessions.find(&second, &door, false).is_some());
        for user in 0..SESSIONS_MAX {
            begin(&mut sessions, &user.to_string(), &door);
        }
        assert_eq!(sessions.0.len(), SESSIONS_MAX);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        for (value, want) in [
            ("postroad-session=a", Some("a")),
            ("b=c; postroad-session=a; d=e", Some("a")),
            ("xpostroad-session=a", None),
            ("postroad-session", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_static(value));
            assert_eq!(cookie(&headers), want, "{value}");
        }
    }
}
