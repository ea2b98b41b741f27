//! The web console: static files from the binary, with a strict policy of content and compressed
//! ahead of time.
//!
//! The pages hold no data: everything that they show comes from the admin API, which asks who the
//! caller is.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

/// A file of the console.
struct Asset {
    path: &'static str,
    etag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/console_assets.rs"));

const INDEX: &str = "index.html";

/// Shown by a binary that was built without the console.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Postroad</title>\
    <h1>This binary has no console</h1>\
    <p>Build it with <code>make run</code>, or with <code>npm ci &amp;&amp; npm run build</code> in \
    <code>console/</code> and then <code>cargo build</code>. It needs Node.js 20.19 or newer.</p>\
    <p>The admin API works without it: <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a></p></html>";

/// Sent with every file: only the console's own scripts and styles run, and no page can frame it.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("vary", "accept-encoding"),
];

/// The console under `/console/`, and the way there from `/`.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/console/") }))
        .route("/console", get(|| async { Redirect::permanent("/console/") }))
        .route("/console/", get(|headers: HeaderMap| async move { file(INDEX, &headers) }))
        .route(
            "/console/{*path}",
            get(|Path(path): Path<String>, headers: HeaderMap| async move { file(&path, &headers) }),
        )
}

/// A file by its path; pages of the console are all made by the first one.
fn file(path: &str, request: &HeaderMap) -> Response {
    let find = |path: &str| ASSETS.iter().find(|asset| asset.path == path);
    let is_file = path.starts_with("assets/");
    match find(path).or_else(|| find(INDEX).filter(|_| !is_file)) {
        Some(asset) => with_headers(asset.answer(request)),
        None if is_file => with_headers((StatusCode::NOT_FOUND, "no such file\n").into_response()),
        None => {
            let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            with_headers((kind, NOT_BUILT).into_response())
        }
    }
}

fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

impl Asset {
    fn answer(&self, request: &HeaderMap) -> Response {
        // The names of these files change with their content.
        let caching = match self.path.starts_with("assets/") {
            true => "public, max-age=31536000, immutable",
            false => "no-cache",
        };
        let about = [(header::ETAG, self.etag), (header::CACHE_CONTROL, caching)];
        let known = request.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
        if known
            .is_some_and(|known| known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == self.etag))
        {
            return (StatusCode::NOT_MODIFIED, about).into_response();
        }
        let (bytes, encoding) = self.encoded(request);
        let mut response = (about, Body::from(bytes)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(self.path)));
        if let Some(encoding) = encoding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        response
    }

    /// The smallest form that the client takes.
    fn encoded(&self, request: &HeaderMap) -> (&'static [u8], Option<&'static str>) {
        let takes = |encoding: &str| {
            let accepted = request.get(header::ACCEPT_ENCODING).and_then(|accepted| accepted.to_str().ok());
            accepted.is_some_and(|accepted| {
                accepted.split(',').any(|one| {
                    let (name, weight) = one.split_once(';').unwrap_or((one, ""));
                    name.trim() == encoding && weight.trim() != "q=0"
                })
            })
        };
        match (self.brotli, self.gzip) {
            (Some(bytes), _) if takes("br") => (bytes, Some("br")),
            (_, Some(bytes)) if takes("gzip") => (bytes, Some("gzip")),
            _ => (self.plain, None),
        }
    }
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    const SCRIPT: Asset = Asset {
        path: "assets/index-1.js",
        etag: "\"1\"",
        plain: b"plain",
        brotli: Some(b"br"),
        gzip: Some(b"gz"),
    };

    #[test]
    fn the_smallest_form_that_the_client_takes_is_sent() {
        for (accepts, want) in [
            ("gzip, deflate, br", Some("br")),
            ("br;q=0, gzip;q=0.5", Some("gzip")),
            ("gzip", Some("gzip")),
            ("identity", None),
        ] {
            let request = headers(&[(header::ACCEPT_ENCODING, accepts)]);
            assert_eq!(SCRIPT.encoded(&request).1, want, "{accepts}");
        }
        assert_eq!(SCRIPT.encoded(&HeaderMap::new()).1, None);
    }

    #[test]
    fn a_known_file_is_not_sent_again_and_named_ones_never_change() {
        let answer = SCRIPT.answer(&headers(&[(header::IF_NONE_MATCH, "\"0\", W/\"1\"")]));
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED);
        let answer = SCRIPT.answer(&HeaderMap::new());
        assert_eq!(answer.headers()[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
        let index = Asset { path: INDEX, ..SCRIPT }.answer(&HeaderMap::new());
        assert_eq!(index.headers()[header::CACHE_CONTROL], "no-cache");
    }

    #[test]
    fn every_answer_has_the_policy_and_missing_files_are_not_pages() {
        for (path, status) in [(INDEX, 200), ("queues/a", 200), ("assets/none.js", 404)] {
            let answer = file(path, &HeaderMap::new());
            assert_eq!(answer.status().as_u16(), status, "{path}");
            let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap_or_default();
            assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        }
    }
}
