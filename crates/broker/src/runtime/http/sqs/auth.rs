//! Who has signed a request. Where the broker lets everybody in, requests without a signature and
//! with unknown keys are anonymous; a known key is verified in any case.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_security::{AccessKey, AccessKeys, Door, FailedLogin, Text, TextStamp};
use postroad_sqs::{Code, Credentials, Signed, SqsError};

use super::now_ms;

/// How often the text of access keys is looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// The access keys, as they were read last.
#[derive(Default)]
pub struct KeyRing(RefCell<Option<Read>>);

#[derive(Clone)]
struct Read {
    keys: Arc<AccessKeys>,
    stamp: TextStamp,
    at: Instant,
}

impl KeyRing {
    /// The user who has signed the request; `None` for anonymous.
    ///
    /// # Errors
    /// The signature is not good, or missing where one is needed.
    pub async fn user_of(
        &self,
        (request, peer): (&Signed<'_>, IpAddr),
        door: &Door,
        text: &Text,
    ) -> Result<Option<String>, SqsError> {
        let Some(credentials) = credentials_of(request, door)? else { return Ok(None) };
        let keys = self.keys(text).await?;
        let key = noted(key_of(&keys, &credentials, door), &credentials, peer, door)?;
        let Some(key) = key else { return Ok(None) };
        let verified = credentials.verify(request, &key.secret, now_ms() / 1000);
        noted(verified, &credentials, peer, door)?;
        Ok(Some(key.user.clone()))
    }

    /// Checks what can be checked before the body has arrived: `request` has none.
    ///
    /// # Errors
    /// As [`KeyRing::user_of`], but for a signature that is not good.
    pub async fn admit(
        &self,
        (request, peer): (&Signed<'_>, IpAddr),
        door: &Door,
        text: &Text,
    ) -> Result<(), SqsError> {
        let Some(credentials) = credentials_of(request, door)? else { return Ok(()) };
        let keys = self.keys(text).await?;
        noted(key_of(&keys, &credentials, door), &credentials, peer, door).map(drop)
    }

    /// All access keys.
    ///
    /// # Errors
    /// The text cannot be read.
    pub async fn keys(&self, text: &Text) -> Result<Arc<AccessKeys>, SqsError> {
        let known = self.0.borrow().clone();
        if let Some(read) = known.as_ref().filter(|read| read.at.elapsed() < LOOKED_AT_EVERY) {
            return Ok(read.keys.clone());
        }
        let text = text.clone();
        let read = tokio::task::spawn_blocking(move || look_at(&text, known)).await;
        let read = read.map_err(|error| error.to_string()).and_then(|read| read);
        let read = read.map_err(|error| {
            tracing::error!(error, "the access keys cannot be read");
            Code::InternalFailure.because("The access keys cannot be read: see the log of the broker.")
        })?;
        let keys = read.keys.clone();
        *self.0.borrow_mut() = Some(read);
        Ok(keys)
    }
}

/// The credentials of a request; `None` for one without, which is anonymous.
fn credentials_of(request: &Signed<'_>, door: &Door) -> Result<Option<Credentials>, SqsError> {
    match Credentials::of(request)? {
        None if door.asks() => Err(Code::MissingAuthenticationToken.because(
            "Request is missing Authentication Token: sign it with a key of `postroad ctl key new`.",
        )),
        credentials => Ok(credentials),
    }
}

/// An error of a request with credentials is a failed login.
fn noted<T>(
    checked: Result<T, SqsError>,
    credentials: &Credentials,
    peer: IpAddr,
    door: &Door,
) -> Result<T, SqsError> {
    checked.inspect_err(|error| {
        let (key, reason) = (Some(&*credentials.key_id), &*error.message);
        door.failures().add(FailedLogin::new("SQS", key, peer.to_string(), reason));
    })
}

/// The key that the credentials name, of a user who is let in; `None`: the request is anonymous.
fn key_of<'k>(
    keys: &'k AccessKeys,
    credentials: &Credentials,
    door: &Door,
) -> Result<Option<&'k AccessKey>, SqsError> {
    match keys.get(&credentials.key_id) {
        Some(key) if door.knows(&key.user) => Ok(Some(key)),
        None if door.is_open() => Ok(None),
        _ => {
            let message =
                "The security token included in the request is invalid: there is no such access key.";
            Err(Code::InvalidClientTokenId.because(message))
        }
    }
}

fn look_at(text: &Text, known: Option<Read>) -> Result<Read, String> {
    let (at, stamp) = (Instant::now(), text.stamp());
    if let Some(known) = known.filter(|known| known.stamp == stamp) {
        return Ok(Read { at, ..known });
    }
    let keys = AccessKeys::load(text).map_err(|error| error.to_string())?;
    Ok(Read { keys: Arc::new(keys), stamp, at })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use postroad_security::{AccessKeyBook, Users};

    use super::*;

    fn code<T>(checked: Result<T, SqsError>) -> Option<Code> {
        checked.err().map(|error| error.code)
    }

    #[tokio::test]
    async fn before_the_body_comes_it_is_known_who_signs_but_not_whether_the_signature_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let text = Text::of_file(&folder.path().join("access-keys"));
        let book = AccessKeyBook::new(text.clone());
        let [(alice, _), (mallory, _)] = ["alice", "mallory"].map(|user| book.add(user).unwrap());
        let secured = |anonymous| {
            let mut users = Users::default();
            users.set("alice", "secret").unwrap();
            Door::of(users, anonymous).unwrap()
        };
        let (open, secured, both) = (Door::open(), secured(false), secured(true));
        let (missing, unknown) = (Code::MissingAuthenticationToken, Code::InvalidClientTokenId);
        let (malformed, wrong) = (Code::IncompleteSignature, Code::InvalidSignature);
        let (keys, peer) = (KeyRing::default(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        for (case, key, door, before, after) in [
            ("unsigned, all are let in", None, &open, None, None),
            ("unsigned, users are needed", None, &secured, Some(missing), Some(missing)),
            ("unsigned, users or none", None, &both, None, None),
            ("an unknown key is anonymous", Some("AKID"), &open, None, None),
            ("an unknown key", Some("AKID"), &secured, Some(unknown), Some(unknown)),
            ("an unknown key of users or none", Some("AKID"), &both, Some(unknown), Some(unknown)),
            ("an unknown user", Some(&*mallory), &secured, Some(unknown), Some(unknown)),
            ("malformed credentials", Some(""), &secured, Some(malformed), Some(malformed)),
            ("malformed, all are let in", Some(""), &open, Some(malformed), Some(malformed)),
            ("a known user, a wrong signature", Some(&*alice), &secured, None, Some(wrong)),
            ("the same, all are let in", Some(&*alice), &open, None, Some(wrong)),
        ] {
            let authorization = key.map(|key| match key {
                "" => "AWS4-HMAC-SHA256".to_owned(),
                key => format!(
                    "AWS4-HMAC-SHA256 Credential={key}/20150830/r/sqs/aws4_request, SignedHeaders=host, \
                     Signature=00"
                ),
            });
            let mut headers = vec![("x-amz-date", "20150830T123600Z")];
            headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
            let request = Signed { method: "POST", path: "/", query: "", headers: &headers, body: b"" };
            assert_eq!(code(keys.admit((&request, peer), door, &text).await), before, "before: {case}");
            let request = Signed { body: b"{}", ..request };
            assert_eq!(code(keys.user_of((&request, peer), door, &text).await), after, "after: {case}");
        }
    }
}
