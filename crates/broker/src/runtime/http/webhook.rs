//! Webhooks of alert rules: a JSON document is posted to a URL that the operator has configured.
//!
//! Push queues refuse private addresses, because any client may subscribe a URL. The URLs here come
//! from the configuration alone, so any address is allowed. The same thread posts the spans of
//! traced messages.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use postroad_admin::Post;
use postroad_ironmq::push::Answer;
use tokio::sync::{mpsc, oneshot};

use super::push::{Network, Networks, Outgoing, start_sender};

/// An endpoint answers within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Posts documents. Its thread begins with the first of them.
pub fn webhooks() -> Post {
    let sender: std::sync::Arc<OnceLock<Option<mpsc::Sender<Outgoing>>>> = std::sync::Arc::default();
    std::sync::Arc::new(move |url, text| {
        let sender = sender.get_or_init(|| start_sender(anywhere()).ok()).clone();
        Box::pin(async move {
            let sender = sender.ok_or_else(|| "the system starts no thread for requests".to_owned())?;
            post(&sender, url, text).await
        })
    })
}

/// Posts the spans of traced messages to a collector.
pub struct SpanPoster {
    sender: Option<mpsc::Sender<Outgoing>>,
    /// Where.
    pub url: String,
    headers: HeaderMap,
}

impl SpanPoster {
    /// To this URL, with these headers beside those of every request.
    pub fn new(url: String, mut headers: HeaderMap) -> SpanPoster {
        headers.extend(usual_headers());
        SpanPoster { sender: start_sender(anywhere()).ok(), url, headers }
    }

    /// The answer; its status is 0 without one.
    pub async fn post(&self, body: Bytes) -> Answer {
        let gone = || Answer { error: "requests cannot be sent".to_owned(), ..Answer::default() };
        let Some(sender) = &self.sender else { return gone() };
        let (url, headers) = (self.url.clone(), self.headers.clone());
        ask(sender, (url, headers, body)).await.unwrap_or_else(gone)
    }
}

fn usual_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static("postroad"));
    headers
}

/// The answer of the endpoint; `None` if the thread has ended.
async fn ask(
    sender: &mpsc::Sender<Outgoing>,
    (url, headers, body): (String, HeaderMap, Bytes),
) -> Option<Answer> {
    let (answer, answered) = oneshot::channel();
    let outgoing = Outgoing { url, headers, body, within: ANSWER_WITHIN, answer };
    sender.send(outgoing).await.ok()?;
    answered.await.ok()
}

fn anywhere() -> Networks {
    let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|text| text.parse::<Network>().ok());
    Networks(all.collect())
}

async fn post(sender: &mpsc::Sender<Outgoing>, url: String, text: String) -> Result<(), String> {
    let answer = ask(sender, (url, usual_headers(), Bytes::from(text))).await;
    let answer = answer.ok_or_else(|| "requests cannot be sent".to_owned())?;
    match answer.status {
        200..300 => Ok(()),
        0 => Err(answer.error),
        status => Err(format!("{status} {}", answer.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_called() {
        for address in ["127.0.0.1", "10.1.2.3", "::1", "fd00::1", "8.8.8.8"] {
            assert!(anywhere().allow(address.parse().unwrap()), "{address}");
        }
    }
}
