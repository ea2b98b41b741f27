//! The results of the experiments: tables, the fitted model, charts.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use super::figure;
use super::{Constant, Experiment, Fit, Measurement, fit};

/// Filters whose cost the project has a goal for.
const MANY_FILTERS: u32 = 100_000;

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of measurement.
    pub measurements: Vec<Measurement>,
}

/// One point of an experiment, over all rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean {
    pub subscribers: u32,
    pub publishers: u32,
    pub x: u32,
    pub received_per_second: f64,
    pub dispatched_per_second: f64,
    pub server_cpu_us: Option<f64>,
    pub load_cpu_us: Option<f64>,
    pub lost: u64,
}

impl Report {
    /// The model by throughput: a saturated server's time for one message is the inverse of its
    /// rate.
    pub fn fit_by_throughput(&self) -> Option<Fit> {
        self.fit(|measurement| Some(1e6 / measurement.received_per_second))
    }

    /// The model by the server's processor time, which other work on the machine disturbs less.
    pub fn fit_by_server_time(&self) -> Option<Fit> {
        self.fit(|measurement| measurement.server_cpu_us)
    }

    /// Filters of one term, and the number of publishers of all experiments but one: the range of
    /// the model.
    fn fit(&self, service_us: impl Fn(&Measurement) -> Option<f64>) -> Option<Fit> {
        let plain = [Experiment::Subscribers, Experiment::Filters, Experiment::Grid];
        let of_model = self.measurements.iter().filter(|one| plain.contains(&one.point.experiment));
        let points: Vec<_> = of_model
            .filter_map(|one| {
                let service = service_us(one).filter(|service| service.is_finite() && *service > 0.0)?;
                Some((f64::from(one.point.filters), f64::from(one.point.subscribers), service))
            })
            .collect();
        fit(&points)
    }

    /// Throughput with 100,000 filters that do not match, as a share of that without any.
    pub fn throughput_with_many_filters(&self) -> Option<f64> {
        let means = self.means(Experiment::Filters);
        let rate = |x| means.iter().find(|mean| mean.x == x).map(|mean| mean.received_per_second);
        Some(rate(MANY_FILTERS)? / rate(0)?)
    }

    /// Processor time of the server for each message with 100,000 filters that do not match, as a
    /// multiple of that with none and of that with one: other programs disturb it less than the
    /// throughput.
    pub fn cpu_with_many_filters(&self) -> Option<(f64, f64)> {
        let means = self.means(Experiment::Filters);
        let cpu = |x| means.iter().find(|mean| mean.x == x).and_then(|mean| mean.server_cpu_us);
        let many = cpu(MANY_FILTERS)?;
        Some((many / cpu(0)?, many / cpu(1)?))
    }

    pub(super) fn means(&self, experiment: Experiment) -> Vec<Mean> {
        let mut keys: Vec<(u32, u32)> = Vec::new();
        for one in self.measurements.iter().filter(|one| one.point.experiment == experiment) {
            let key = (one.point.subscribers, one.point.x);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys.into_iter().map(|key| self.mean(experiment, key)).collect()
    }

    fn mean(&self, experiment: Experiment, (subscribers, x): (u32, u32)) -> Mean {
        let same = |one: &&Measurement| {
            one.point.experiment == experiment && (one.point.subscribers, one.point.x) == (subscribers, x)
        };
        let rounds: Vec<&Measurement> = self.measurements.iter().filter(same).collect();
        let mean = |value: &dyn Fn(&Measurement) -> f64| {
            rounds.iter().map(|one| value(one)).sum::<f64>() / rounds.len().max(1) as f64
        };
        let cpu = |value: fn(&Measurement) -> Option<f64>| {
            let all = rounds.iter().map(|one| value(one)).collect::<Option<Vec<f64>>>()?;
            Some(all.iter().sum::<f64>() / all.len().max(1) as f64)
        };
        Mean {
            subscribers,
            x,
            publishers: rounds.first().map_or(0, |one| one.point.publishers),
            received_per_second: mean(&|one| one.received_per_second),
            dispatched_per_second: mean(&|one| one.dispatched_per_second),
            server_cpu_us: cpu(|one| one.server_cpu_us),
            load_cpu_us: cpu(|one| one.load_cpu_us),
            lost: rounds.iter().map(|one| one.lost).sum(),
        }
    }

    fn experiments(&self) -> impl Iterator<Item = Experiment> {
        let measured =
            |experiment: &Experiment| self.measurements.iter().any(|one| one.point.experiment == *experiment);
        Experiment::ALL.into_iter().filter(measured)
    }

    /// The tables and the model, as markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        for experiment in self.experiments() {
            self.table(experiment, &mut out);
        }
        for (by, fit) in [("throughput", self.fit_by_throughput()), ("server CPU", self.fit_by_server_time())]
        {
            if let Some(fit) = fit {
                let text =
                    |constant: Constant| format!("{:.4} ± {:.4}", constant.value_us, constant.error_us);
                let (receive, filter, transmit) = (text(fit.receive), text(fit.filter), text(fit.transmit));
                let _ = writeln!(
                    out,
                    "By {by}, over {} points: t_rcv = {receive} µs, t_fltr = {filter} µs, t_tx = {transmit} µs.",
                    fit.points
                );
            }
        }
        if let Some(share) = self.throughput_with_many_filters() {
            let _ = writeln!(
                out,
                "\nWith {MANY_FILTERS} filters that do not match: {:.1} % of the throughput without any.",
                share * 100.0
            );
        }
        if let Some((of_none, of_one)) = self.cpu_with_many_filters() {
            let _ = writeln!(
                out,
                "Server CPU for each message: {of_none:.2} times that without any, {of_one:.2} times that with one."
            );
        }
        out
    }

    fn table(&self, experiment: Experiment, out: &mut String) {
        let _ = writeln!(out, "### {}\n", experiment.name());
        let _ = writeln!(
            out,
            "| {} | subscribers | publishers | received/s | dispatched/s | server CPU µs/message | load CPU µs/message | lost |",
            experiment.axis()
        );
        let _ = writeln!(out, "|---:|---:|---:|---:|---:|---:|---:|---:|");
        for mean in self.means(experiment) {
            let cpu = |cpu: Option<f64>| cpu.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.1}"));
            let (server, load) = (cpu(mean.server_cpu_us), cpu(mean.load_cpu_us));
            let Mean { x, subscribers, publishers, lost, .. } = mean;
            let (received, dispatched) = (mean.received_per_second, mean.dispatched_per_second);
            let _ = writeln!(
                out,
                "| {x} | {subscribers} | {publishers} | {received:.0} | {dispatched:.0} | {server} | {load} | {lost} |"
            );
        }
        let _ = writeln!(out);
    }

    /// One figure for each experiment, in this folder; the names of the files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn draw(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)?;
        let model = self.fit_by_throughput();
        let mut files = Vec::new();
        for experiment in self.experiments() {
            let file = folder.join(format!("{}.svg", experiment.name()));
            std::fs::write(&file, figure::draw(experiment, &self.means(experiment), model.as_ref())?)?;
            files.push(file);
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::{Filter, Point};

    fn report() -> Report {
        let measurement = |experiment, x, subscribers: u32, filters, service_us: f64| Measurement {
            point: Point { experiment, x, publishers: 5, subscribers, filters, filter: Filter::Equality },
            round: 0,
            received_per_second: 1e6 / service_us,
            dispatched_per_second: 1e6 / service_us * f64::from(subscribers),
            server_cpu_us: None,
            load_cpu_us: None,
            lost: 0,
        };
        Report {
            measurements: vec![
                measurement(Experiment::Filters, 0, 1, 0, 25.0),
                measurement(Experiment::Filters, 1000, 1, 1000, 35.0),
                measurement(Experiment::Filters, 100_000, 1, 100_000, 1025.0),
                measurement(Experiment::Subscribers, 1, 1, 0, 25.0),
                measurement(Experiment::Subscribers, 10, 10, 0, 70.0),
            ],
        }
    }

    #[test]
    fn tables_and_model_say_what_was_measured() {
        let text = report().markdown();
        for line in [
            "| 0 | 1 | 5 | 40000 | 40000 | – | – | 0 |",
            "| 10 | 10 | 5 | 14286 | 142857 | – | – | 0 |",
            "t_rcv = 20.0000",
            "t_fltr = 0.0100",
            "t_tx = 5.0000",
            "With 100000 filters that do not match: 2.4 % of the throughput without any.",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_many_filters_cost_is_said_by_processor_time_where_it_is_known() {
        assert_eq!(report().cpu_with_many_filters(), None);
        let mut report = report();
        let template = report.measurements.remove(0);
        report.measurements = [(0, 5.0), (1, 6.0), (100_000, 6.6)]
            .into_iter()
            .map(|(x, cpu)| Measurement {
                point: Point { x, filters: x, ..template.point },
                server_cpu_us: Some(cpu),
                ..template.clone()
            })
            .collect();
        let line = "Server CPU for each message: 1.32 times that without any, 1.10 times that with one.";
        assert!(report.markdown().contains(line), "{}", report.markdown());
    }

    #[test]
    fn figures_are_drawn_for_what_was_measured() {
        let figures: Vec<_> = report()
            .experiments()
            .map(|experiment| figure::draw(experiment, &report().means(experiment), None).expect("drawn"))
            .collect();
        assert_eq!(figures.len(), 2);
        assert!(figures.iter().all(|svg| svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>")));
    }
}
