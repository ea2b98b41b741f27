//! The layers of HTTP around a request of the queues: compressed bodies, and pages of other
//! origins.

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hyper::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CONTENT_ENCODING, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use postroad_ironmq::ApiError;

/// Smaller answers are not compressed: it would gain nothing.
const COMPRESSED_BYTES_MIN: usize = 1024;

/// A browser asks again after this number of seconds.
const PREFLIGHT_S: &str = "600";

/// The body of a request without its compression.
///
/// # Errors
/// It is compressed in another way, it is damaged, or it is larger than `bytes_max`.
pub fn decompressed(headers: &HeaderMap, body: Bytes, bytes_max: usize) -> Result<Bytes, ApiError> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(body) };
    match encoding.to_str().unwrap_or_default().trim() {
        "" | "identity" => return Ok(body),
        "gzip" | "x-gzip" => {}
        other => {
            let msg = format!("Content-Encoding {other} is not understood: use gzip");
            return Err(ApiError { status: 415, msg });
        }
    }
    let mut plain = Vec::new();
    let limit = bytes_max as u64 + 1;
    GzDecoder::new(&body[..])
        .take(limit)
        .read_to_end(&mut plain)
        .map_err(|error| ApiError::bad(format!("the body is not gzip: {error}")))?;
    if bytes_max < plain.len() {
        let msg = format!("the body has more than {bytes_max} bytes");
        return Err(ApiError { status: 413, msg });
    }
    Ok(plain.into())
}

/// Whether the client reads gzip.
pub fn reads_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let is_refused = weight.replace(' ', "").strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// The body of an answer in gzip, if that makes it shorter.
pub fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() < COMPRESSED_BYTES_MIN {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().filter(|bytes| bytes.len() < body.len())
}

/// Origins whose pages may use the queues from a browser.
#[derive(Clone, Debug, Default)]
pub struct Origins(Arc<[String]>);

impl Origins {
    /// These; `*` is any.
    pub fn new(origins: Vec<String>) -> Origins {
        Origins(origins.into())
    }

    /// The origin of the request, if it is one of them.
    fn allowed<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        self.0
            .iter()
            .any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes())
            .then_some(origin)
    }

    /// Headers that let the page read the answer; `is_preflight`: and send its request.
    pub fn headers(&self, request: &HeaderMap, is_preflight: bool, answer: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("Origin"));
        let Some(origin) = self.allowed(request) else { return };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if is_preflight {
            let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
            let names = "Authorization, Content-Type, Content-Encoding, X-HTTP-Method-Override";
            answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
            answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_S));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: hyper::header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn bodies_come_out_of_gzip_within_their_limit() {
        let text = "a".repeat(5000);
        let packed = Bytes::from(compressed(text.as_bytes()).unwrap());
        assert!(packed.len() < 100 && compressed(b"short").is_none());
        let gzip = headers(CONTENT_ENCODING, "gzip");
        assert_eq!(decompressed(&gzip, packed.clone(), 5000).unwrap(), text.as_bytes());
        assert_eq!(decompressed(&gzip, packed.clone(), 4999).unwrap_err().status, 413);
        assert_eq!(decompressed(&gzip, Bytes::from_static(b"plain"), 4999).unwrap_err().status, 400);
        assert_eq!(decompressed(&headers(CONTENT_ENCODING, "br"), packed, 9).unwrap_err().status, 415);
    }

    #[test]
    fn gzip_is_sent_to_clients_that_read_it() {
        for (accepted, want) in [
            ("gzip, deflate", true),
            ("br;q=1, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip/deflate", false),
        ] {
            assert_eq!(reads_gzip(&headers(ACCEPT_ENCODING, accepted)), want, "{accepted}");
        }
    }
}
