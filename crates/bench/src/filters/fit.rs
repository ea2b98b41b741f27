//! The model's three constants, from measurements: weighted linear least squares.

use serde::Serialize;

/// How many constants the model has.
const UNKNOWNS: usize = 3;

/// Standard errors to each side that hold 95 % of a normal distribution.
const INTERVAL: f64 = 1.96;

/// One constant of the model, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// The most likely value.
    pub value_us: f64,
    /// Half of the interval of 95 % confidence around it.
    pub error_us: f64,
}

/// The model `B = t_rcv + n · t_fltr + r · t_tx`, fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// To receive a message.
    pub receive: Constant,
    /// To test it against one installed filter.
    pub filter: Constant,
    /// To send it to one subscriber.
    pub transmit: Constant,
    /// Points that it rests on.
    pub points: usize,
}

impl Fit {
    /// The model's time for `n` filters and `r` subscribers, in microseconds.
    pub fn service_us(&self, filters: f64, subscribers: f64) -> f64 {
        self.receive.value_us + filters * self.filter.value_us + subscribers * self.transmit.value_us
    }
}

/// Fits service times in microseconds, each at a number of filters and of subscribers. Errors are
/// taken to be proportional to the time, as noise on a shared machine is. `None` if the points do
/// not determine the constants.
pub fn fit(points: &[(f64, f64, f64)]) -> Option<Fit> {
    let mut normal = [[0.0; UNKNOWNS]; UNKNOWNS];
    let mut right = [0.0; UNKNOWNS];
    for (filters, subscribers, service_us) in points {
        let weight = 1.0 / (service_us * service_us);
        let row = [1.0, *filters, *subscribers];
        for i in 0..UNKNOWNS {
            right[i] += weight * row[i] * service_us;
            for j in 0..UNKNOWNS {
                normal[i][j] += weight * row[i] * row[j];
            }
        }
    }
    let inverse = inverse(normal)?;
    let solution = inverse.map(|row| row.iter().zip(&right).map(|(a, b)| a * b).sum::<f64>());
    let freedom = points.len().checked_sub(UNKNOWNS).filter(|freedom| *freedom > 0)? as f64;
    let residual = |(filters, subscribers, service_us): &(f64, f64, f64)| {
        let model = solution[0] + filters * solution[1] + subscribers * solution[2];
        ((service_us - model) / service_us).powi(2)
    };
    let variance = points.iter().map(residual).sum::<f64>() / freedom;
    let constant = |index: usize| Constant {
        value_us: solution[index],
        error_us: INTERVAL * (variance * inverse[index][index]).max(0.0).sqrt(),
    };
    Some(Fit { receive: constant(0), filter: constant(1), transmit: constant(2), points: points.len() })
}

/// Gauss and Jordan, with the largest pivot; `None` if the matrix is singular.
fn inverse(mut matrix: [[f64; UNKNOWNS]; UNKNOWNS]) -> Option<[[f64; UNKNOWNS]; UNKNOWNS]> {
    let mut inverse = [[0.0; UNKNOWNS]; UNKNOWNS];
    for (index, row) in inverse.iter_mut().enumerate() {
        row[index] = 1.0;
    }
    for column in 0..UNKNOWNS {
        let larger = |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..UNKNOWNS).max_by(larger)?;
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let scale = matrix[column][column];
        if scale.abs() < f64::MIN_POSITIVE || !scale.is_finite() {
            return None;
        }
        for j in 0..UNKNOWNS {
            matrix[column][j] /= scale;
            inverse[column][j] /= scale;
        }
        for row in (0..UNKNOWNS).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for j in 0..UNKNOWNS {
                matrix[row][j] -= factor * matrix[column][j];
                inverse[row][j] -= factor * inverse[column][j];
            }
        }
    }
    inverse.iter().flatten().all(|value| value.is_finite()).then_some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(filters: f64, subscribers: f64) -> (f64, f64, f64) {
        (filters, subscribers, 20.0 + 0.16 * filters + 5.0 * subscribers)
    }

    #[test]
    fn exact_points_give_their_constants() {
        let points =
            [exact(0.0, 1.0), exact(100.0, 1.0), exact(1000.0, 1.0), exact(0.0, 10.0), exact(10.0, 5.0)];
        let fit = fit(&points).expect("determined");
        for (name, constant, want) in
            [("receive", fit.receive, 20.0), ("filter", fit.filter, 0.16), ("transmit", fit.transmit, 5.0)]
        {
            assert!((constant.value_us - want).abs() < 1e-6, "{name}: {constant:?}");
            assert!(constant.error_us < 1e-3, "{name}: {constant:?}");
        }
        assert!((fit.service_us(10.0, 5.0) - 46.6).abs() < 1e-6);
    }

    #[test]
    fn noise_shows_in_the_errors() {
        let mut points = vec![exact(0.0, 1.0), exact(100.0, 1.0), exact(1000.0, 1.0), exact(0.0, 10.0)];
        points[1].2 *= 1.2;
        points.push((0.0, 1.0, 22.0));
        let fit = fit(&points).expect("determined");
        assert!(fit.filter.error_us > 0.001, "{fit:?}");
    }

    #[test]
    fn points_that_say_too_little_give_nothing() {
        for (case, points) in [
            ("none", vec![]),
            ("three, so no freedom", vec![exact(0.0, 1.0), exact(9.0, 1.0), exact(0.0, 2.0)]),
            ("all alike", vec![exact(1.0, 1.0); 9]),
        ] {
            assert_eq!(fit(&points), None, "case: {case}");
        }
    }
}
