//! `postroad-bench filters`: the cost of selectors on a running broker.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use postroad_bench::Stop;
use postroad_bench::filters::{self, Experiment, Measurement, Plan};

use crate::cli::Target;

/// Arguments of `filters`.
#[derive(Debug, Args)]
pub struct FiltersArguments {
    #[command(flatten)]
    target: Target,
    /// Experiments: publishers, subscribers, filters, or, and-first, and-middle, and-last, grid
    /// [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_experiment)]
    experiments: Vec<Experiment>,
    /// Number of measurements of each load.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Warm-up before each measurement, in seconds.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warmup: f64,
    /// Duration of each measurement, in seconds.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,
    /// Skip loads with more filters.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    filters_max: u32,
    /// Directory for charts (SVG).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn parse_experiment(text: &str) -> Result<Experiment, String> {
    let found = Experiment::ALL.into_iter().find(|experiment| experiment.name() == text);
    found.ok_or_else(|| {
        let known = Experiment::ALL.map(Experiment::name).join(", ");
        format!("`{text}` is not an experiment: {known}")
    })
}

/// Measures, and prints the tables and the model.
pub fn run(arguments: &FiltersArguments) -> anyhow::Result<()> {
    let seconds = |name: &str, seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .with_context(|| format!("--{name} {seconds} is not a valid duration"))
    };
    let all = arguments.experiments.is_empty();
    let plan = Plan {
        url: arguments.target.url.clone(),
        server: arguments.target.server()?,
        experiments: if all { Experiment::ALL.to_vec() } else { arguments.experiments.clone() },
        rounds: arguments.rounds,
        warmup: seconds("warmup", arguments.warmup)?,
        window: seconds("seconds", arguments.seconds)?,
        filters_max: arguments.filters_max,
    };
    let stop = Stop::on_signal()?;
    let mut out = std::io::stdout();
    let report = filters::run(&plan, &stop.flag(), |measurement| {
        show(measurement);
        let line = arguments.target.json.then(|| serde_json::to_string(measurement).unwrap_or_default());
        // Standard output is closed: the measurements are in the report, whose failure will say so.
        let _ = line.map(|line| writeln!(out, "{line}"));
    })?;
    if !arguments.target.json {
        write!(out, "{}", report.markdown())?;
    }
    if let Some(folder) = &arguments.out {
        for file in report.draw(folder).with_context(|| format!("cannot write into {}", folder.display()))? {
            eprintln!("wrote {}", file.display());
        }
    }
    Ok(())
}

fn show(measurement: &Measurement) {
    let Measurement { point, received_per_second, .. } = measurement;
    eprintln!(
        "{:<11} {:>6}: {received_per_second:>8.0}/s received, {} publishers, {} subscribers, {} filters",
        point.experiment.name(),
        point.x,
        point.publishers,
        point.subscribers,
        point.filters
    );
}
