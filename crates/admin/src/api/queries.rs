//! Query parameters: a request with one that its operation does not have is refused. Ignored, a
//! misspelt filter would return, or change, more than was meant.

use axum::extract::{MatchedPath, Query};
use axum::http::Uri;
use axum::http::request::Parts;

use super::openapi::OPERATIONS;
use super::problem::Problem;

/// A longer name is shown by its beginning.
const SHOWN_BYTES_MAX: usize = 100;

/// Checks the query of a request.
///
/// # Errors
/// It is malformed, or has a parameter that the operation does not have.
pub fn check(request: &Parts) -> Result<(), Problem> {
    // Others have clients with habits of their own: Prometheus, Jolokia.
    match request.extensions.get::<MatchedPath>().map(MatchedPath::as_str) {
        Some(path) if path.starts_with("/api/v1/") => {
            check_query(request.method.as_str(), path, &request.uri)
        }
        _ => Ok(()),
    }
}

fn check_query(method: &str, path: &str, uri: &Uri) -> Result<(), Problem> {
    if uri.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    let method = if method == "HEAD" { "GET" } else { method };
    let is_asked = |path_of: &str, method_of: &str| path_of == path && method.eq_ignore_ascii_case(method_of);
    let operation = OPERATIONS.iter().find(|known| is_asked(known.path, known.method));
    let known = operation.map_or(&[][..], |operation| operation.query);
    let given = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(given) = given.map_err(|error| Problem::new(400, error.body_text()))?;
    let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(&&**name)) else { return Ok(()) };
    let name = &name[..name.floor_char_boundary(SHOWN_BYTES_MAX)];
    let right = match known {
        [] => "the operation has no query parameters".to_owned(),
        known => format!("the operation has {}", known.join(", ")),
    };
    Err(Problem::new(400, format!("unknown query parameter {name:?}; {right}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_the_operation_does_not_have_is_named_with_those_it_has() {
        let page = "the operation has sort, limit, cursor";
        let long = format!("/q?{}=1", "x".repeat(500));
        for (case, method, path, uri, want) in [
            ("none", "GET", "/api/v1/connections", "/q", None),
            ("empty", "GET", "/api/v1/connections", "/q?", None),
            ("all known", "GET", "/api/v1/connections", "/q?sort=x&limit=1&cursor=y", None),
            ("HEAD is GET", "HEAD", "/api/v1/connections", "/q?limit=1", None),
            (
                "unknown",
                "GET",
                "/api/v1/connections",
                "/q?limit=1&page=2",
                Some(format!("unknown query parameter \"page\"; {page}")),
            ),
            (
                "of another operation",
                "GET",
                "/api/v1/connections",
                "/q?filter=a",
                Some(format!("unknown query parameter \"filter\"; {page}")),
            ),
            (
                "encoded",
                "GET",
                "/api/v1/connections",
                "/q?f%69lter=a",
                Some(format!("unknown query parameter \"filter\"; {page}")),
            ),
            (
                "a change",
                "POST",
                "/api/v1/queues/{queue}/purge",
                "/q?selector=x",
                Some(
                    "unknown query parameter \"selector\"; the operation has no query parameters".to_owned(),
                ),
            ),
            (
                "a route of the assembly",
                "GET",
                "/api/v1/cluster",
                "/q?x",
                Some("unknown query parameter \"x\"; the operation has no query parameters".to_owned()),
            ),
            (
                "a long name",
                "GET",
                "/api/v1/connections",
                &*long,
                Some(format!("unknown query parameter {:?}; {page}", "x".repeat(SHOWN_BYTES_MAX))),
            ),
        ] {
            let got = check_query(method, path, &uri.parse().unwrap());
            assert_eq!(got, want.map_or(Ok(()), |want| Err(Problem::new(400, want))), "case: {case}");
        }
    }
}
