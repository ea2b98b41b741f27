//! Charts: measurements as points, the model as a line.

use std::collections::BTreeSet;
use std::io;

use plotters::prelude::*;

use super::report::Mean;
use super::{Experiment, Fit};

const SIZE: (u32, u32) = (720, 440);
/// How finely the model's line is drawn.
const STEPS: u32 = 100;
/// One colour for each replication grade.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0x94, 0x67, 0xbd),
];

/// Throughput over the experiment's variable, as SVG. The horizontal axis is logarithmic, with zero
/// at its left end.
///
/// # Errors
/// The drawing library failed.
pub(super) fn draw(experiment: Experiment, means: &[Mean], model: Option<&Fit>) -> io::Result<String> {
    let mut svg = String::new();
    let drawn = draw_into(&mut svg, experiment, means, model);
    drawn.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(svg)
}

fn draw_into(
    svg: &mut String,
    experiment: Experiment,
    means: &[Mean],
    model: Option<&Fit>,
) -> Result<(), Box<dyn std::error::Error>> {
    let x_max = means.iter().map(|mean| mean.x).max().unwrap_or(1).max(1);
    let y_max = means.iter().map(|mean| mean.received_per_second).fold(1.0, f64::max) * 1.1;
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(experiment.name(), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..log(x_max), 0.0..y_max)?;
    chart
        .configure_mesh()
        .x_desc(experiment.axis())
        .y_desc("messages received per second")
        .x_label_formatter(&|x| format!("{:.0}", x.exp() - 1.0))
        .draw()?;
    let grades: BTreeSet<u32> = match experiment {
        Experiment::Subscribers => BTreeSet::from([0]),
        _ => means.iter().map(|mean| mean.subscribers).collect(),
    };
    for (colour, grade) in COLOURS.iter().cycle().zip(grades) {
        let of_grade = means.iter().filter(|mean| grade == 0 || mean.subscribers == grade);
        let points = of_grade.map(|mean| (log(mean.x), mean.received_per_second));
        let series = chart.draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))?;
        series
            .label(if grade == 0 { "measured".to_owned() } else { format!("{grade} subscribers") })
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
        if let Some(model) = model.filter(|_| has_model(experiment)) {
            let line = (0..=STEPS).map(|step| {
                let at = log(x_max) * f64::from(step) / f64::from(STEPS);
                (at, 1e6 / service_us(model, experiment, at.exp() - 1.0, grade))
            });
            chart.draw_series(LineSeries::new(line.filter(|(_, y)| (0.0..=y_max).contains(y)), colour))?;
        }
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE.mix(0.8)).draw()?;
    root.present()?;
    Ok(())
}

fn log(x: u32) -> f64 {
    f64::from(x).ln_1p()
}

/// Whether the model has the experiment's variable.
fn has_model(experiment: Experiment) -> bool {
    matches!(experiment, Experiment::Subscribers | Experiment::Filters | Experiment::Grid)
}

fn service_us(model: &Fit, experiment: Experiment, x: f64, grade: u32) -> f64 {
    match experiment {
        Experiment::Subscribers => model.service_us(0.0, x),
        _ => model.service_us(x, f64::from(grade)),
    }
}
