//! Signatures, version 4 (`AWS4-HMAC-SHA256`): in the header `Authorization`, or in the query.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use postroad_model::Date;
use ring::{digest, hmac};

use crate::error::{Code, SqsError};
use crate::form::decoded;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Seconds that the time of a signature may differ from the broker's.
const SKEW_S_MAX: u64 = 900;

/// Seconds that a signature in a query is good for, at most.
const EXPIRES_S_MAX: u64 = 604_800;

/// Headers that a signature names, at most.
const HEADERS_MAX: usize = 64;

/// The parts of a request that are signed.
#[derive(Clone, Copy)]
pub struct Signed<'r> {
    /// The method.
    pub method: &'r str,
    /// The path, as it came.
    pub path: &'r str,
    /// The query, as it came.
    pub query: &'r str,
    /// Headers, with names in lower case, in the order in which they came.
    pub headers: &'r [(&'r str, &'r str)],
    /// The body.
    pub body: &'r [u8],
}

/// Who has signed a request, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The id of the access key.
    pub key_id: String,
    /// `DATE/REGION/SERVICE/aws4_request`.
    scope: String,
    /// The names of the signed headers.
    headers: Vec<String>,
    /// `YYYYMMDDTHHMMSSZ`.
    time: String,
    /// Seconds that it is good for, if it is in the query.
    expires_s: Option<u64>,
    signature: Vec<u8>,
}

impl Credentials {
    /// Reads the signature of a request; `None` if it has none.
    ///
    /// # Errors
    /// It has one that cannot be read.
    pub fn of(request: &Signed<'_>) -> Result<Option<Credentials>, SqsError> {
        let incomplete = |reason: &str| Code::IncompleteSignature.because(format!("{reason}."));
        if let Some(authorization) = header(request, "authorization") {
            let Some(fields) = authorization.strip_prefix(ALGORITHM) else {
                return Err(incomplete("Authorization must be AWS4-HMAC-SHA256"));
            };
            let field = |name: &str| {
                let mut pairs = fields.split(',').filter_map(|field| field.trim().split_once('='));
                pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
            };
            let missing =
                |name: &str| incomplete(&format!("Authorization header requires '{name}' parameter"));
            let time = header(request, "x-amz-date").or_else(|| header(request, "date"));
            let time = time.ok_or_else(|| incomplete("X-Amz-Date is missing"))?.to_owned();
            let get = |name: &str| field(name).ok_or_else(|| missing(name));
            return parse(&get("Credential")?, &get("SignedHeaders")?, &get("Signature")?, time, None)
                .map(Some);
        }
        if query_field(request.query, "X-Amz-Signature")?.is_none() {
            return Ok(None);
        }
        let get = |name: &str| {
            query_field(request.query, name)?.ok_or_else(|| incomplete(&format!("{name} is missing")))
        };
        if get("X-Amz-Algorithm")? != ALGORITHM {
            return Err(incomplete("X-Amz-Algorithm must be AWS4-HMAC-SHA256"));
        }
        let expires = get("X-Amz-Expires")?.parse().ok().filter(|seconds| *seconds <= EXPIRES_S_MAX);
        let expires = expires.ok_or_else(|| incomplete("X-Amz-Expires must be at most 604800"))?;
        let (credential, headers) = (get("X-Amz-Credential")?, get("X-Amz-SignedHeaders")?);
        let (signature, time) = (get("X-Amz-Signature")?, get("X-Amz-Date")?);
        parse(&credential, &headers, &signature, time, Some(expires)).map(Some)
    }

    /// Whether the request was signed with this secret, at about this time (seconds since 1970).
    ///
    /// # Errors
    /// It was not, or too long ago.
    pub fn verify(&self, request: &Signed<'_>, secret: &str, now_s: u64) -> Result<(), SqsError> {
        let signed_s = seconds(&self.time)
            .ok_or_else(|| Code::IncompleteSignature.because("X-Amz-Date must be YYYYMMDDTHHMMSSZ."))?;
        let lasts_s = self.expires_s.unwrap_or(SKEW_S_MAX);
        if signed_s + lasts_s < now_s || now_s + SKEW_S_MAX < signed_s {
            let message = format!(
                "Signature expired: it was made at {}, and now it is {now_s} seconds since 1970. Set the clock of \
                 the client or of the broker.",
                self.time
            );
            return Err(match self.expires_s {
                Some(_) => Code::RequestExpired.because(message),
                None => Code::InvalidSignature.because(message),
            });
        }
        let to_sign = format!(
            "{ALGORITHM}\n{}\n{}\n{}",
            self.time,
            self.scope,
            HEXLOWER.encode(digest::digest(&digest::SHA256, self.canonical(request)?.as_bytes()).as_ref())
        );
        let first = format!("AWS4{secret}");
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, first.as_bytes());
        for part in self.scope.split('/') {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        hmac::verify(&key, to_sign.as_bytes(), &self.signature).map_err(|_| {
            Code::InvalidSignature.because(
                "The request signature we calculated does not match the signature you provided. Check your secret \
                 access key.",
            )
        })
    }

    /// The request as its signer has written it down.
    fn canonical(&self, request: &Signed<'_>) -> Result<String, SqsError> {
        let mut text = format!("{}\n", request.method);
        text.push_str(&encoded(request.path, true));
        text.push('\n');
        let mut pairs = Vec::new();
        for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if name != "X-Amz-Signature" || self.expires_s.is_none() {
                pairs.push((encoded(&name, false), encoded(&value, false)));
            }
        }
        // By name first: `a.10` follows `a.1`, though `a.10=` as text would come before `a.1=`.
        pairs.sort_unstable();
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.push_str(&pairs.join("&"));
        text.push('\n');
        for name in &self.headers {
            let values = request.headers.iter().filter(|(known, _)| known == name);
            let values: Vec<String> =
                values.map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            text.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        let body = digest::digest(&digest::SHA256, request.body);
        text.push_str(&format!("\n{}\n{}", self.headers.join(";"), HEXLOWER.encode(body.as_ref())));
        Ok(text)
    }
}

fn parse(
    credential: &str,
    headers: &str,
    signature: &str,
    time: String,
    expires_s: Option<u64>,
) -> Result<Credentials, SqsError> {
    let incomplete = |reason: &str| Code::IncompleteSignature.because(format!("{reason}."));
    let (key_id, scope) =
        credential.split_once('/').ok_or_else(|| incomplete("Credential must be KEY/SCOPE"))?;
    let parts: Vec<&str> = scope.split('/').collect();
    let is_scope = matches!(&parts[..], [date, region, "sqs", "aws4_request"]
        if !region.is_empty() && time.get(..8) == Some(*date));
    if !is_scope {
        return Err(incomplete(
            "Credential should be scoped to the date of the request, a region, the service sqs and aws4_request",
        ));
    }
    let headers: Vec<String> = headers.split(';').map(str::to_owned).collect();
    if HEADERS_MAX < headers.len() || !headers.iter().any(|name| name == "host") {
        return Err(incomplete("SignedHeaders must contain host, and at most 64 headers"));
    }
    let signature = HEXLOWER_PERMISSIVE.decode(signature.as_bytes());
    let signature = signature.map_err(|_| incomplete("Signature must be hexadecimal"))?;
    Ok(Credentials {
        key_id: key_id.to_owned(),
        scope: scope.to_owned(),
        headers,
        time,
        expires_s,
        signature,
    })
}

fn header<'r>(request: &Signed<'r>, name: &str) -> Option<&'r str> {
    request.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn query_field(query: &str, name: &str) -> Result<Option<String>, SqsError> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| decoded(value)).transpose()
}

/// Text, percent-encoded but for unreserved characters (RFC 3986) and, in a path, slashes.
fn encoded(text: &str, is_path: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if is_path => out.push('/'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

/// Seconds since 1970 of `YYYYMMDDTHHMMSSZ`.
fn seconds(time: &str) -> Option<u64> {
    let bytes = time.as_bytes();
    let is_time = bytes.len() == 16 && bytes[8] == b'T' && bytes[15] == b'Z';
    let number = |from: usize, to: usize| -> Option<u64> {
        let text = time.get(from..to)?;
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    if !is_time {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    if 23 < hour || 59 < minute || 60 < second {
        return None;
    }
    Some(Date { year, month, day }.days()? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2015-08-30 12:36:00, the time of the examples of AWS.
    const NOW_S: u64 = 1_440_938_160;
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    /// Computed with botocore 1.44 for this request.
    const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/sqs/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=30485b338dc2d36eea284b39f971b847f339562d985a94d324c5cd3a86e4680d";

    fn signed<'r>(headers: &'r [(&'r str, &'r str)], body: &'r [u8]) -> Signed<'r> {
        Signed { method: "POST", path: "/", query: "", headers, body }
    }

    fn code(headers: &[(&str, &str)], body: &[u8], secret: &str, now_s: u64) -> Result<String, Code> {
        let request = signed(headers, body);
        let credentials = Credentials::of(&request).map_err(|error| error.code)?;
        let credentials = credentials.ok_or(Code::MissingAuthenticationToken)?;
        credentials.verify(&request, secret, now_s).map_err(|error| error.code)?;
        Ok(credentials.key_id)
    }

    #[test]
    fn a_signature_is_good_for_its_request_key_and_time() {
        let headers = [
            ("host", "127.0.0.1:8161"),
            ("x-amz-date", "20150830T123600Z"),
            ("x-amz-target", "AmazonSQS.ListQueues"),
            ("content-type", "application/x-amz-json-1.0"),
            ("authorization", AUTHORIZATION),
        ];
        let good = Ok("AKIDEXAMPLE".to_owned());
        assert_eq!(code(&headers, b"{}", SECRET, NOW_S), good);
        assert_eq!(code(&headers, b"{}", SECRET, NOW_S + 900), good);
        assert_eq!(code(&headers, b"{}", SECRET, NOW_S - 900), good);
        for (case, body, secret, now_s) in [
            ("another body", &b"{ }"[..], SECRET, NOW_S),
            ("another secret", b"{}", "x", NOW_S),
            ("too late", b"{}", SECRET, NOW_S + 901),
            ("too early", b"{}", SECRET, NOW_S - 901),
        ] {
            assert_eq!(code(&headers, body, secret, now_s), Err(Code::InvalidSignature), "{case}");
        }
        for (index, (name, _)) in headers.iter().enumerate().filter(|(_, (name, _))| *name != "authorization")
        {
            let mut changed = headers;
            changed[index].1 = "20150830T123601Z";
            assert!(code(&changed, b"{}", SECRET, NOW_S).is_err(), "{name}");
        }
    }

    #[test]
    fn signatures_that_cannot_be_read_are_incomplete() {
        let scope = "AKID/20150830/us-east-1/sqs/aws4_request";
        for authorization in [
            "Basic x".to_owned(),
            ALGORITHM.to_owned(),
            format!("{ALGORITHM} Credential={scope}, SignedHeaders=host"),
            format!("{ALGORITHM} Credential={scope}, SignedHeaders=host, Signature=xyz"),
            format!("{ALGORITHM} Credential={scope}, SignedHeaders=date, Signature=00"),
            format!("{ALGORITHM} Credential=AKID, SignedHeaders=host, Signature=00"),
            format!(
                "{ALGORITHM} Credential=AKID/20150831/r/sqs/aws4_request, SignedHeaders=host, Signature=00"
            ),
            format!(
                "{ALGORITHM} Credential=AKID/20150830/r/s3/aws4_request, SignedHeaders=host, Signature=00"
            ),
        ] {
            let headers = [("authorization", &*authorization), ("x-amz-date", "20150830T123600Z")];
            assert_eq!(code(&headers, b"", SECRET, NOW_S), Err(Code::IncompleteSignature), "{authorization}");
        }
        assert_eq!(code(&[], b"", SECRET, NOW_S), Err(Code::MissingAuthenticationToken));
    }

    #[test]
    fn the_query_is_in_the_order_of_names_and_then_of_values() {
        let authorization = AUTHORIZATION;
        let headers = [("x-amz-date", "20150830T123600Z"), ("authorization", authorization)];
        let credentials = Credentials::of(&signed(&headers, b"")).unwrap().unwrap();
        for (case, query, want) in [
            ("none", "", ""),
            ("names", "b=1&a=2", "a=2&b=1"),
            ("a name that begins with another", "A.10=x&A.1=y&A.2=z", "A.1=y&A.10=x&A.2=z"),
            ("a name that continues by `-`", "a-b=1&a=2", "a=2&a-b=1"),
            ("values of one name", "a=2&a=10&a=", "a=&a=10&a=2"),
            ("upper case comes first", "a=1&B=2", "B=2&a=1"),
            ("names as they are encoded", "%C3%A4=1&%7E=2&z=3", "%C3%A4=1&z=3&~=2"),
            ("no value", "b&a", "a=&b="),
        ] {
            let request = Signed { method: "GET", query, ..signed(&headers, b"") };
            let text = credentials.canonical(&request).unwrap();
            assert_eq!(text.lines().nth(2), Some(want), "case: {case}");
        }
    }

    #[test]
    fn times_are_seconds_since_1970() {
        for (time, want) in [
            ("19700101T000000Z", Some(0)),
            ("20150830T123600Z", Some(NOW_S)),
            ("20240229T235959Z", Some(1_709_251_199)),
            ("20150830T123600", None),
            ("20151330T123600Z", None),
            ("2015083äT12360Z", None),
        ] {
            assert_eq!(seconds(time), want, "{time}");
        }
    }
}
