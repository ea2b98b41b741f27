//! `postroad bench`: measurements of a broker, or of this machine.

mod filters;

use clap::Subcommand;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The cost of selectors on a running broker: six experiments, a fitted model, figures.
    Filters(Box<filters::FiltersArguments>),
}

/// Measures.
pub fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Filters(arguments) => filters::run(arguments),
    }
}
