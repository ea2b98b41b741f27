//! Who has signed a request. Where the broker lets everybody in, requests without a signature and
//! with unknown keys are anonymous; a known key is verified in any case.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_security::{AccessKeys, Door, FailedLogin, Text, TextStamp};
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
        let Some(credentials) = Credentials::of(request)? else {
            return match door.asks() {
                false => Ok(None),
                true => Err(Code::MissingAuthenticationToken.because(
                    "Request is missing Authentication Token: sign it with a key of `postroad ctl key new`.",
                )),
            };
        };
        let keys = self.keys(text).await?;
        let checked = check(&keys, &credentials, request, door);
        if let Err(error) = &checked {
            let (key, reason) = (Some(&*credentials.key_id), &*error.message);
            door.failures().add(FailedLogin::new("SQS", key, peer.to_string(), reason));
        }
        checked
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

/// The user whose key has signed the request.
fn check(
    keys: &AccessKeys,
    credentials: &Credentials,
    request: &Signed<'_>,
    door: &Door,
) -> Result<Option<String>, SqsError> {
    match keys.get(&credentials.key_id) {
        Some(key) if door.knows(&key.user) => {
            credentials.verify(request, &key.secret, now_ms() / 1000)?;
            Ok(Some(key.user.clone()))
        }
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
