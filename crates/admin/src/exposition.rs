//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

use crate::figures::Figures;
use crate::metrics::METRICS;

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: String,
}

impl Sample {
    pub(crate) fn of(value: u64) -> Sample {
        Sample { suffix: "", labels: Vec::new(), value: value.to_string() }
    }

    pub(crate) fn of_f64(value: f64) -> Sample {
        Sample { value: value.to_string(), ..Sample::of(0) }
    }

    pub(crate) fn label(mut self, name: &'static str, value: &str) -> Sample {
        self.labels.push((name, value.to_owned()));
        self
    }

    pub(crate) fn suffix(mut self, suffix: &'static str) -> Sample {
        self.suffix = suffix;
        self
    }
}

/// All metrics, each with its help and type.
pub(crate) fn write(figures: &Figures) -> String {
    let mut text = String::new();
    for metric in METRICS {
        let (name, kind) = (metric.name, metric.kind.word());
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
        for Sample { suffix, labels, value } in (metric.samples)(figures) {
            text.push_str(name);
            text.push_str(suffix);
            for (index, (label, value)) in labels.iter().enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                let _ = write!(text, "{before}{label}=\"{}\"", escape(value));
            }
            text.push_str(if labels.is_empty() { " " } else { "} " });
            text.push_str(&value);
            text.push('\n');
        }
    }
    text
}

/// A label's value: backslash, quote and line feed are escaped.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{ConnectionFigures, Distribution, JournalFigures, QueueFigures};

    #[test]
    fn values_have_their_labels_and_buckets_add_up() {
        let queue = QueueFigures {
            destination: "queue://a\"b\\c\nd".to_owned(),
            subscription: "s".to_owned(),
            depth: 3,
            ..QueueFigures::default()
        };
        let figures = Figures {
            connections: vec![ConnectionFigures { protocol: "AMQP", open: 1, opened: 2 }],
            queues: vec![queue],
            journals: vec![
                JournalFigures {
                    store: "main".to_owned(),
                    group_micros: Distribution { counts: vec![1, 0, 2], sum: 9 },
                    bytes_by_key: vec![("none".to_owned(), 5)],
                    ..JournalFigures::default()
                },
                JournalFigures { store: "fast".to_owned(), full: true, ..JournalFigures::default() },
            ],
            ..Figures::default()
        };
        let text = write(&figures);
        for want in [
            "# TYPE postroad_connections gauge\npostroad_connections{protocol=\"AMQP\"} 1\n",
            "postroad_queue_depth{destination=\"queue://a\\\"b\\\\c\\nd\",subscription=\"s\"} 3\n",
            "postroad_journal_group_seconds_bucket{store=\"main\",le=\"0.000001\"} 1\n",
            "postroad_journal_group_seconds_bucket{store=\"main\",le=\"0.000004\"} 3\n",
            "postroad_journal_group_seconds_bucket{store=\"main\",le=\"+Inf\"} 3\npostroad_journal_group_seconds_sum{store=\"main\"} 0.000009\n",
            "postroad_journal_group_seconds_count{store=\"main\"} 3\n",
            "\npostroad_journal_full{store=\"main\"} 0\npostroad_journal_full{store=\"fast\"} 1\n",
            "\npostroad_journal_key_bytes{store=\"main\",key=\"none\"} 5\n",
        ] {
            assert!(text.contains(want), "{want} is missing in\n{text}");
        }
    }
}
