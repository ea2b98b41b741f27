//! `postroad-bench http`: queues over HTTP, in the shape of the published figures of IronMQ, and
//! SQS.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::http::{self, HttpLoad, HttpRate, HttpUrl, Shape};
use postroad_bench::{ServerTime, Stop};

use crate::cli::run_name;

/// Arguments of `http`.
#[derive(Debug, Args)]
pub struct HttpArguments {
    /// URL of the broker's HTTP port.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8161")]
    url: HttpUrl,
    /// URL of another server of SQS, such as ElasticMQ, measured in turn with the broker.
    #[arg(long, value_name = "URL")]
    sqs_peer: Option<HttpUrl>,
    /// Process id of the broker on this machine, to measure its processor time.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Duration of each measurement of producers, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Number of rounds; the result is their median.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Body sizes in bytes for the API of IronMQ, measured in turn.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = [1, 1024])]
    body_bytes: Vec<usize>,
    /// Body size in bytes for SQS.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    sqs_body_bytes: usize,
    /// Print JSON, one object per line, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Measures, and prints a table.
pub fn run(arguments: &HttpArguments) -> anyhow::Result<()> {
    let server = arguments.server_pid.map(ServerTime::of);
    if let Some(server) = server {
        server.spent().context("--server-pid: no such process on this machine")?;
    }
    let seconds = arguments.seconds;
    let load = HttpLoad {
        url: arguments.url.clone(),
        sqs_peer: arguments.sqs_peer.clone(),
        server,
        rounds: arguments.rounds,
        window: Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("--seconds {seconds} is not a valid duration"))?,
        body_bytes: arguments.body_bytes.clone(),
        sqs_body_bytes: arguments.sqs_body_bytes,
        run: run_name(),
    };
    let rates = http::run(&load, &Stop::on_signal()?.flag())?;
    let mut out = std::io::stdout();
    if arguments.json {
        for rate in &rates {
            writeln!(out, "{}", serde_json::to_string(rate)?)?;
        }
        return Ok(());
    }
    print(&mut out, &rates)?;
    Ok(())
}

fn print(out: &mut impl Write, rates: &[HttpRate]) -> std::io::Result<()> {
    let columns = "messages/s | MB/s | request p50 ms | request p99 ms | server CPU µs/message | lost";
    writeln!(out, "| measurement | body bytes | {columns} |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    for rate in rates {
        let HttpRate { body_bytes, per_second, mb_per_second, lost, .. } = rate;
        let (p50, p99) = (rate.p50_us as f64 / 1000.0, rate.p99_us as f64 / 1000.0);
        let cpu = rate.server_cpu_us.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.1}"));
        let name = name_of(rate);
        writeln!(
            out,
            "| {name} | {body_bytes} | {per_second:.0} | {mb_per_second:.1} | {p50:.2} | {p99:.2} | {cpu} | {lost} |"
        )?;
    }
    for shape in [Shape::SqsProducers, Shape::SqsConsumers] {
        let of = |is_peer| rates.iter().find(|rate| (rate.shape, rate.is_peer) == (shape, is_peer));
        if let (Some(own), Some(peer)) = (of(false), of(true)) {
            let ratio = own.per_second / peer.per_second;
            writeln!(out, "\n{}: {ratio:.2} times the peer", name_of(own))?;
        }
    }
    Ok(())
}

fn name_of(rate: &HttpRate) -> String {
    let name = match rate.shape {
        Shape::ManyProducers => "IronMQ: 7 queues × 12 producers",
        Shape::OneProducer => "IronMQ: 1 producer",
        Shape::OneConsumer => "IronMQ: 1 consumer with deletes",
        Shape::SqsProducers => "SQS: 12 producers",
        Shape::SqsConsumers => "SQS: 12 consumers with deletes",
    };
    if rate.is_peer { format!("peer, {name}") } else { name.to_owned() }
}
