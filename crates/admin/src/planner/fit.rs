//! A linear model of costs, fitted to observations as they come: weighted least squares that
//! forgets old observations, with a weak prior, and no cost below zero.
//!
//! Never here: what the terms mean.

/// Terms of the model.
pub const TERMS: usize = 6;

/// One value for each term.
pub type Vector = [f64; TERMS];

/// The weight of an observation falls by this factor with each one that follows: those of the last
/// hour or so decide, if one comes every two seconds.
const FORGETTING: f64 = 0.9994;

/// Observations without which there is no fit.
const OBSERVATIONS_MIN: u64 = 4;

/// Observations as sums, for the normal equations.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    count: u64,
    weight: f64,
    /// Sum of the products of each two terms.
    products: [Vector; TERMS],
    /// Sum of the products of each term and the cost.
    with_cost: Vector,
    /// Sum of the squares of costs.
    cost_squares: f64,
    costs: f64,
}

/// Costs of the terms, with what is known of their errors.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub costs: Vector,
    /// Covariances of the costs.
    covariance: [Vector; TERMS],
    /// The variance of a single observation.
    noise: f64,
}

/// A forecast: the cost, and one standard error of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub cost: f64,
    pub error: f64,
}

impl Observed {
    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes one in. Values that are not finite are left out.
    pub fn add(&mut self, terms: &Vector, cost: f64) {
        if !cost.is_finite() || terms.iter().any(|term| !term.is_finite()) {
            return;
        }
        self.count += 1;
        let older = |sum: &mut f64, new: f64| *sum = *sum * FORGETTING + new;
        older(&mut self.weight, 1.0);
        older(&mut self.cost_squares, cost * cost);
        older(&mut self.costs, cost);
        for (row, &left) in terms.iter().enumerate() {
            older(&mut self.with_cost[row], left * cost);
            for (column, &right) in terms.iter().enumerate() {
                older(&mut self.products[row][column], left * right);
            }
        }
    }

    /// The costs that fit best; `None` before there are enough observations. `scales` are costs
    /// that no term exceeds: the prior of a cost is that it is not far above zero on this scale.
    pub fn fit(&self, scales: &Vector) -> Option<Fit> {
        if self.count < OBSERVATIONS_MIN {
            return None;
        }
        // The noise is needed for the weight of the prior, and known after a first fit only.
        let mean = self.costs / self.weight;
        let floor = (mean * 0.01).powi(2).max(1.0);
        let first = self.solve(scales, floor)?;
        let noise = self.noise_of(&first.costs).max(floor);
        self.solve(scales, noise)
    }

    fn solve(&self, scales: &Vector, noise: f64) -> Option<Fit> {
        let mut is_free = [true; TERMS];
        // At most one term is fixed at zero in each round.
        for _ in 0..=TERMS {
            let covariance = inverse(&self.precision(scales, noise, &is_free))?;
            let costs = std::array::from_fn(|row| {
                let pairs = covariance[row].iter().zip(&self.with_cost).zip(&is_free);
                let sum: f64 = pairs.filter(|(_, free)| **free).map(|((c, with), _)| c * with / noise).sum();
                if is_free[row] { sum } else { 0.0 }
            });
            match lowest(&costs, scales, &is_free) {
                Some(term) => is_free[term] = false,
                None => return Some(Fit { costs, covariance, noise }),
            }
        }
        None
    }

    /// The inverse of the covariance, with the prior. A term that is fixed is bound to its prior
    /// alone, so that its error stays that of the prior seen from zero.
    fn precision(&self, scales: &Vector, noise: f64, is_free: &[bool; TERMS]) -> [Vector; TERMS] {
        std::array::from_fn(|row| {
            std::array::from_fn(|column| {
                let prior = if row == column { scales[row].powi(-2) } else { 0.0 };
                let seen = self.products[row][column] / noise;
                let both_free = is_free[row] && is_free[column];
                prior + if both_free || row == column { seen } else { 0.0 }
            })
        })
    }

    /// The variance of the observations around the model.
    fn noise_of(&self, costs: &Vector) -> f64 {
        let explained: f64 = costs.iter().zip(&self.with_cost).map(|(cost, with)| cost * with).sum();
        let squared: f64 = costs
            .iter()
            .zip(&self.products)
            .map(|(left, row)| left * row.iter().zip(costs).map(|(both, right)| both * right).sum::<f64>())
            .sum();
        let residual = (self.cost_squares - 2.0 * explained + squared).max(0.0);
        residual / (self.weight - TERMS as f64).max(1.0)
    }
}

/// The term that is furthest below zero on its scale, if one is.
fn lowest(costs: &Vector, scales: &Vector, is_free: &[bool; TERMS]) -> Option<usize> {
    let below = |term: &usize| is_free[*term] && costs[*term] < 0.0;
    let on_scale = |term: usize| costs[term] / scales[term];
    (0..TERMS).filter(below).min_by(|one, other| on_scale(*one).total_cmp(&on_scale(*other)))
}

impl Fit {
    /// The cost of these terms. Its error has the noise of a single observation in it.
    pub fn forecast(&self, terms: &Vector) -> Forecast {
        let cost = self.costs.iter().zip(terms).map(|(cost, term)| cost * term).sum();
        let spread: f64 = terms
            .iter()
            .zip(&self.covariance)
            .map(|(left, row)| left * row.iter().zip(terms).map(|(both, right)| both * right).sum::<f64>())
            .sum();
        Forecast { cost, error: (spread.max(0.0) + self.noise).sqrt() }
    }

    /// One standard error of each cost.
    pub fn errors(&self) -> Vector {
        std::array::from_fn(|term| self.covariance[term][term].max(0.0).sqrt())
    }
}

/// The inverse of a symmetric positive matrix (Gauss and Jordan, with pivots); `None` if there is
/// none.
fn inverse(matrix: &[Vector; TERMS]) -> Option<[Vector; TERMS]> {
    // Rows and columns are scaled, since bytes and seconds are far apart.
    let scale: Vector = std::array::from_fn(|row| matrix[row][row].sqrt().recip());
    let mut left = *matrix;
    for (row, values) in left.iter_mut().enumerate() {
        values.iter_mut().zip(&scale).for_each(|(value, column)| *value *= scale[row] * column);
    }
    let mut right: [Vector; TERMS] =
        std::array::from_fn(|row| std::array::from_fn(|column| f64::from(u8::from(row == column))));
    for pivot in 0..TERMS {
        let best = (pivot..TERMS)
            .max_by(|&one, &other| left[one][pivot].abs().total_cmp(&left[other][pivot].abs()))?;
        left.swap(pivot, best);
        right.swap(pivot, best);
        let divisor = left[pivot][pivot];
        if !divisor.is_finite() || divisor.abs() < 1e-14 {
            return None;
        }
        for values in [&mut left[pivot], &mut right[pivot]] {
            values.iter_mut().for_each(|value| *value /= divisor);
        }
        let (of_left, of_right) = (left[pivot], right[pivot]);
        for row in (0..TERMS).filter(|row| *row != pivot) {
            let factor = left[row][pivot];
            left[row].iter_mut().zip(&of_left).for_each(|(value, own)| *value -= factor * own);
            right[row].iter_mut().zip(&of_right).for_each(|(value, own)| *value -= factor * own);
        }
    }
    for (row, values) in right.iter_mut().enumerate() {
        values.iter_mut().zip(&scale).for_each(|(value, column)| *value *= scale[row] * column);
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALES: Vector = [1e6, 1e3, 1e2, 1e3, 1.0, 1e4];

    /// A cheap generator of numbers from 0 to 1, the same each time.
    fn numbers() -> impl FnMut() -> f64 {
        let mut state = 7_u64;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(u32::MAX >> 1)
        }
    }

    #[test]
    fn costs_are_found_within_their_error_bars() {
        let truth = [5_000.0, 4.0, 0.2, 7.0, 0.002, 30.0];
        let (mut next, mut observed) = (numbers(), Observed::default());
        for _ in 0..400 {
            let received = 1000.0 + 9000.0 * next();
            let terms = [
                1.0,
                received,
                received * 40.0 * next(),
                received * 5.0 * next(),
                1e6 * next(),
                200.0 * next(),
            ];
            let exact: f64 = truth.iter().zip(&terms).map(|(cost, term)| cost * term).sum();
            observed.add(&terms, exact * (1.0 + 0.02 * (next() - 0.5)));
        }
        let fit = observed.fit(&SCALES).unwrap();
        for ((got, error), want) in fit.costs.iter().zip(fit.errors()).zip(truth) {
            assert!((got - want).abs() < 4.0 * error, "{got} ± {error}, in truth {want}");
        }
        assert!(fit.errors()[1] < 0.4 && fit.errors()[3] < 0.1, "{:?}", fit.errors());
        // Twice the highest load that was seen.
        let terms = [1.0, 20_000.0, 400_000.0, 100_000.0, 2e6, 400.0];
        let want: f64 = truth.iter().zip(&terms).map(|(cost, term)| cost * term).sum();
        let Forecast { cost, error } = fit.forecast(&terms);
        assert!((cost - want).abs() < 3.0 * error && error < 0.05 * want, "{cost} ± {error}, want {want}");
    }

    #[test]
    fn terms_that_never_came_apart_have_wide_bars_and_their_sum_a_narrow_one() {
        let mut next = numbers();
        let mut observed = Observed::default();
        for _ in 0..100 {
            let rate = 1000.0 + 9000.0 * next();
            observed.add(&[1.0, rate, 0.0, rate, 0.0, 0.0], 10.0 * rate * (1.0 + 0.02 * (next() - 0.5)));
        }
        let fit = observed.fit(&SCALES).unwrap();
        let errors = fit.errors();
        assert!((fit.costs[1] + fit.costs[3] - 10.0).abs() < 0.5, "{:?}", fit.costs);
        assert!(errors[1] > 50.0 && errors[3] > 50.0, "not apart: {errors:?}");
        assert!(errors[2] > 90.0, "never seen: as wide as the prior: {errors:?}");
        let more = fit.forecast(&[1.0, 20_000.0, 0.0, 20_000.0, 0.0, 0.0]);
        assert!((more.cost - 200_000.0).abs() < 4.0 * more.error && more.error < 10_000.0, "{more:?}");
        let apart = fit.forecast(&[1.0, 5_000.0, 0.0, 50_000.0, 0.0, 0.0]);
        assert!(apart.error > 1e6, "many more copies are unknown ground: {apart:?}");
    }

    #[test]
    fn no_cost_is_below_zero_and_few_observations_give_none() {
        let mut observed = Observed::default();
        for rate in [1.0, 2.0, 3.0] {
            observed.add(&[1.0, rate, 0.0, 0.0, 0.0, 0.0], rate);
        }
        observed.add(&[1.0, f64::NAN, 0.0, 0.0, 0.0, 0.0], 1.0);
        assert_eq!(observed.fit(&SCALES), None);
        for rate in [100.0, 200.0, 300.0] {
            observed.add(&[1.0, rate, 0.0, rate * rate, 0.0, 0.0], 1000.0 - rate);
        }
        let fit = observed.fit(&SCALES).unwrap();
        assert!(fit.costs.iter().all(|cost| *cost >= 0.0), "{:?}", fit.costs);
    }

    #[test]
    fn what_changes_is_followed() {
        let (mut next, mut observed) = (numbers(), Observed::default());
        for cost in [10.0, 20.0] {
            for _ in 0..6000 {
                let rate = 1000.0 + 9000.0 * next();
                observed.add(&[1.0, rate, 0.0, 0.0, 0.0, 0.0], cost * rate);
            }
        }
        let fit = observed.fit(&SCALES).unwrap();
        assert!((fit.costs[1] - 20.0).abs() < 1.0, "{:?}", fit.costs);
    }
}
