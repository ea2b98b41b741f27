//! Sends the spans of traced messages to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! A collector that does not answer costs memory up to a bound, and nothing else: the spans that
//! have no room are dropped, and counted.

use std::time::Duration;

use postroad_admin::Post;
use postroad_node::TraceBook;
use postroad_trace::otlp_request;

/// How often new spans are looked for.
const EVERY: Duration = Duration::from_secs(1);

/// Spans of one request: some 700 KB.
const BATCH_MAX: usize = 512;

/// A request that failed is sent again after these times. After the last one its spans are dropped.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];

/// Sends spans until the task ends.
pub async fn export_spans(traces: TraceBook, (post, url): (Post, String), broker: String) {
    let mut failing = false;
    loop {
        tokio::time::sleep(EVERY).await;
        loop {
            let spans = traces.take_spans(BATCH_MAX);
            if spans.is_empty() {
                break;
            }
            let body = otlp_request(&spans, &broker, env!("CARGO_PKG_VERSION"));
            let sent = send(&post, &url, &body).await;
            traces.note_exported(spans.len() as u64, sent.is_ok());
            match (sent, failing) {
                (Err(reason), false) => {
                    tracing::warn!(url, reason, "the collector of traces takes no spans: they are dropped");
                    failing = true;
                }
                (Ok(()), true) => {
                    tracing::info!(url, "the collector of traces takes spans again");
                    failing = false;
                }
                _ => {}
            }
        }
    }
}

async fn send(post: &Post, url: &str, body: &str) -> Result<(), String> {
    let mut sent = post(url.to_owned(), body.to_owned()).await;
    for pause in RETRIES {
        if sent.is_ok() {
            break;
        }
        tokio::time::sleep(pause).await;
        sent = post(url.to_owned(), body.to_owned()).await;
    }
    sent
}
