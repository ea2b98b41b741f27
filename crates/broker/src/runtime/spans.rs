//! Sends the spans of traced messages to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! A collector that does not answer costs memory up to a bound, and nothing else: the spans that
//! have no room are dropped, and counted.

use std::time::Duration;

use bytes::Bytes;
use postroad_ironmq::push::Answer;
use postroad_node::TraceBook;
use postroad_trace::otlp_request;

use super::http::SpanPoster;

/// How often new spans are looked for.
const EVERY: Duration = Duration::from_secs(1);

/// Spans of one request: some 700 KB.
const BATCH_MAX: usize = 512;

/// A request that failed is sent again after these times. After the last one its spans are dropped.
const RETRIES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10)];

/// A collector may ask for a longer pause, up to this one: further spans wait meanwhile.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Statuses after which a request may be sent again (OTLP 1.5, "Retryable Response Codes"). Others
/// say that it will never be taken.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];

/// Sends spans until the task ends.
pub async fn export_spans(traces: TraceBook, poster: SpanPoster, broker: String) {
    let mut failing = false;
    let url = &*poster.url;
    loop {
        tokio::time::sleep(EVERY).await;
        loop {
            let spans = traces.take_spans(BATCH_MAX);
            if spans.is_empty() {
                break;
            }
            let body = Bytes::from(otlp_request(&spans, &broker, env!("CARGO_PKG_VERSION")));
            let sent = send(|| poster.post(body.clone())).await;
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

/// Posts until the collector takes it, refuses it for good, or has failed as often as it may.
async fn send<F: Future<Output = Answer>>(post: impl Fn() -> F) -> Result<(), String> {
    let mut pauses = RETRIES.iter();
    loop {
        let answer = post().await;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let pause = pauses.next().and_then(|pause| pause_after(&answer, *pause));
        match (pause, answer.status) {
            (Some(pause), _) => tokio::time::sleep(pause).await,
            (None, 0) => return Err(answer.error),
            (None, status) => return Err(format!("{status} {}", answer.error)),
        }
    }
}

/// The pause before the request is sent again; `None` if it is not.
fn pause_after(answer: &Answer, pause: Duration) -> Option<Duration> {
    match answer.status {
        // The collector was not reached, or did not answer.
        0 => Some(pause),
        status if RETRYABLE.contains(&status) => {
            let asked = answer.retry_after_ms.map(Duration::from_millis);
            Some(asked.map_or(pause, |asked| asked.min(PAUSE_MAX)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;

    fn answer(status: u16, retry_after_ms: Option<u64>) -> Answer {
        Answer { status, error: "why".to_owned(), retry_after_ms }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_sent_again_where_the_protocol_says_so() {
        let refused = |status: u16| Err(format!("{status} why"));
        for (case, answers, want, requests, seconds) in [
            ("taken", vec![answer(200, None)], Ok(()), 1, 0),
            ("a bad request", vec![answer(400, None)], refused(400), 1, 0),
            ("a wrong secret", vec![answer(401, None)], refused(401), 1, 0),
            ("a bad request with a pause", vec![answer(404, Some(1000))], refused(404), 1, 0),
            ("a broken collector", vec![answer(500, None)], refused(500), 1, 0),
            ("too fast, with a pause", vec![answer(429, Some(7000)), answer(200, None)], Ok(()), 2, 7),
            ("busy, without one", vec![answer(503, None), answer(202, None)], Ok(()), 2, 1),
            ("a pause is bounded", vec![answer(503, Some(u64::MAX)), answer(200, None)], Ok(()), 2, 60),
            ("then refused", vec![answer(502, None), answer(403, None)], refused(403), 2, 1),
            ("never there", vec![answer(0, None)], Err("why".to_owned()), 4, 14),
            ("always busy", vec![answer(503, Some(2000))], refused(503), 4, 6),
        ] {
            let (left, count) = (RefCell::new(answers.into_iter()), RefCell::new((None, 0)));
            let began = Instant::now();
            let post = || async {
                let mut count = count.borrow_mut();
                // The last one stays.
                let next = left.borrow_mut().next().or_else(|| count.0.take());
                count.0.clone_from(&next);
                count.1 += 1;
                next.unwrap_or_default()
            };
            assert_eq!(send(post).await, want, "case: {case}");
            assert_eq!((count.borrow().1, began.elapsed().as_secs()), (requests, seconds), "case: {case}");
        }
    }
}
