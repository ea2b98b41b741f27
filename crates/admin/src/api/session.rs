//! Sessions of the web console: a user signs in once, and a cookie stands for the password from
//! then on.
//!
//! The cookie is `HttpOnly` and `SameSite=Strict`; requests that change something also need the
//! session's CSRF token in a header, which no page of another site can read or set. In a cluster
//! each node knows the session: see [`postroad_security::SessionBook`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use postroad_model::Principal;
use postroad_routing::StorePlaces;
use postroad_security::{ConsoleSession, Door, SessionSearch, claimed_principal, digest_of};
use serde::{Deserialize, Serialize};

use super::access::{check_origin, is_safe, password_of};
use super::audit::Detail;
use super::messages::read_json;
use super::problem::Problem;
use super::tokens::writing;
use super::{Api, Caller, Peer, queries};

/// The name of the cookie.
const COOKIE: &str = "postroad-session";

/// The header with the CSRF token.
const CSRF_HEADER: &str = "x-postroad-csrf";

/// A user name and a password, or a token in its place, fit in this.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Requests with this header are the console's own rounds, which keep no session alive.
const ROUND_HEADER: &str = "x-postroad-round";

/// The caller of a request with a session's cookie; `None` without one that is good.
///
/// # Errors
/// The request would change something, and lacks the CSRF token; or too many requests wait for keys
/// of their sessions.
pub async fn caller(
    api: &Api,
    door: &Arc<Door>,
    headers: &HeaderMap,
    method: &Method,
) -> Option<Result<Caller, Problem>> {
    let session = match find(api, door, cookie(headers)?).await {
        Ok(found) => found?,
        Err(problem) => return Some(Err(problem)),
    };
    let shown = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Digests, so that the comparison takes the same time for each wrong text.
    if !is_safe(method) && digest_of(shown) != digest_of(&session.csrf) {
        let right = format!("the header {CSRF_HEADER} must have the csrf of GET /api/v1/session");
        return Some(Err(Problem::new(403, right)));
    }
    Some(Ok(Caller { principal: session.principal.clone(), token: None, session: Some(session) }))
}

async fn find(api: &Api, door: &Door, text: &str) -> Result<Option<ConsoleSession>, Problem> {
    let book = &api.0.options.sessions;
    let mut search = book.find(text, door, api.now_ms());
    if let SessionSearch::UnknownKey { key } = &search
        && book.is_replicated()
        && api.0.key_waits.wait(|| book.knows_key(key, api.now_ms())).await?
    {
        search = book.find(text, door, api.now_ms());
    }
    Ok(match search {
        SessionSearch::Found(session) => Some(session),
        SessionSearch::UnknownKey { .. } | SessionSearch::Ended => None,
    })
}

/// The principal that the session of a request claims to be of. It is not checked: the leader of
/// its store does that.
pub fn session_principal(headers: &HeaderMap) -> Option<Principal> {
    claimed_principal(cookie(headers)?)
}

/// Whether, and how, the session of a request is kept alive by its answer.
pub struct Renewal {
    is_use: bool,
    is_secure: bool,
}

impl Renewal {
    /// Of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Renewal {
        Renewal { is_use: !headers.contains_key(ROUND_HEADER), is_secure: is_secure(headers) }
    }

    /// The session's user has caused a request, and this is its answer.
    pub fn renew(&self, api: &Api, session: &ConsoleSession, response: &mut Response) {
        // That of a sign-out ends it.
        if !self.is_use || response.headers().contains_key(header::SET_COOKIE) {
            return;
        }
        let (door, now_ms) = (api.0.options.door.borrow().clone(), api.now_ms());
        if let Some(text) = api.0.options.sessions.renewed(session, &door, now_ms) {
            set_cookie(response, &text, lasts(session, now_ms), self.is_secure);
        }
    }
}

fn lasts(session: &ConsoleSession, now_ms: u64) -> Duration {
    Duration::from_millis(session.lasts_ms(now_ms))
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
    /// How many stores the cluster has, each at a path of its own.
    stores: u16,
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
        stores: api.permissions().places().map_or(1, StorePlaces::count),
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
    let (book, of, now_ms) = (api.0.options.sessions.clone(), principal.clone(), api.now_ms());
    let (session, text) = writing(move || book.begin(of, &door, now_ms)).await?;
    let lasts = lasts(&session, now_ms);
    let caller = Caller { principal, token: None, session: Some(session) };
    let mut response = Json(shown(api, &caller)).into_response();
    set_cookie(&mut response, &text, lasts, is_secure(headers));
    Ok((caller, response))
}

/// Signs the caller out, at all nodes.
///
/// # Errors
/// The nodes of the cluster have not committed that: the session goes on.
pub async fn sign_out(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(session) = caller.session {
        let (book, now_ms) = (api.0.options.sessions.clone(), api.now_ms());
        writing(move || book.end(&session, now_ms)).await?;
    }
    let mut response = (StatusCode::NO_CONTENT, Extension(Detail("signed out".to_owned()))).into_response();
    set_cookie(&mut response, "", Duration::ZERO, is_secure(&headers));
    Ok(response)
}

/// A proxy with TLS in front of the port names it.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https")
}

fn set_cookie(response: &mut Response, text: &str, lasts: Duration, is_secure: bool) {
    let (seconds, secure) = (lasts.as_secs(), if is_secure { "; Secure" } else { "" });
    let cookie = format!("{COOKIE}={text}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

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
