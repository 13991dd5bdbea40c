//! Does the level between steps grow? The one question that must not be answered by noise.

use super::Policy;

/// The level at the end of one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) step: u64,
    pub(super) bytes: u64,
    pub(super) input_elements: Option<u64>,
    /// Allocated at forward's start and end.
    pub(super) forward: Option<(u64, u64)>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// It grows now, and has for `increments` steps.
    Growing { per_step: f64, first: usize, last: usize, increments: usize },
    /// It does not.
    Flat,
    /// Too few steps.
    TooFew { found: usize },
}

/// Points from which a growth hidden in noise is looked for.
const STATISTICAL_MIN_POINTS: usize = 20;
/// Shortest run of increments that may differ by a factor of two; shorter runs must agree closely,
/// since six noisy levels are in ascending order once in 720 times.
const LOOSE_RUN: usize = 8;
/// A run must rise by this multiple of everything seen before it.
const NOVELTY: f64 = 3.0;
/// A noisy growth must be this multiple of the spread inside a quarter of the run.
const QUARTER_SPREADS: f64 = 4.0;
/// The rise between neighbouring quarters must be this share of the largest such rise.
const QUARTER_EVENNESS: f64 = 0.4;

/// Judges the levels of a run: `levels` are all that are known, the last ones whole; `even` are the
/// ones among them that are equally far apart. Both are in the order of their steps.
pub(super) fn judge(levels: &[Level], even: &[Level], policy: &Policy) -> Growth {
    if levels.len() <= policy.growth_min_increments {
        return Growth::TooFew { found: levels.len() };
    }
    steady_run(levels, &without_input(levels, policy), policy)
        .or_else(|| noisy_growth(levels, even, &without_input(even, policy)))
        .unwrap_or(Growth::Flat)
}

/// The levels with what follows the size of the input taken off: sorted lengths are no leak.
fn without_input(levels: &[Level], policy: &Policy) -> Vec<f64> {
    let plain = || levels.iter().map(|level| level.bytes as f64).collect();
    let inputs: Option<Vec<f64>> =
        levels.iter().map(|level| level.input_elements.map(|elements| elements as f64)).collect();
    let Some(inputs) = inputs else { return plain() };
    let (smallest, largest) = range(&inputs);
    if largest < smallest * policy.shapes_ratio {
        return plain();
    }
    let values: Vec<f64> = plain();
    let slope = slope(&inputs, &values).max(0.0);
    values.iter().zip(&inputs).map(|(value, input)| value - slope * (input - smallest)).collect()
}

/// The longest run of even rises at the end, a short plateau after it allowed.
fn steady_run(levels: &[Level], values: &[f64], policy: &Policy) -> Option<Growth> {
    let rises: Vec<f64> = values
        .windows(2)
        .zip(levels.windows(2))
        .map(|(value, level)| {
            (value[1] - value[0]) / (level[1].step.saturating_sub(level[0].step).max(1)) as f64
        })
        .collect();
    let flat = rises.iter().rev().take_while(|rise| **rise == 0.0).count();
    if flat > policy.plateau_tolerance {
        return None;
    }
    let end = rises.len() - flat;
    let positive = rises[..end].iter().rev().take_while(|rise| **rise > 0.0).count();
    (policy.growth_min_increments..=positive)
        .rev()
        .find(|&length| even(&rises[end - length..end]) && novel(&values[..=end], length))
        .map(|length| {
            let (first, last) = (end - length, end);
            let steps = levels[last].step.saturating_sub(levels[first].step).max(1);
            Growth::Growing {
                per_step: (values[last] - values[first]) / steps as f64,
                first,
                last,
                increments: length,
            }
        })
}

/// Whether the rises are alike.
fn even(rises: &[f64]) -> bool {
    let middle = median(rises);
    let (low, high) = if rises.len() >= LOOSE_RUN { (0.5, 2.0) } else { (0.8, 1.25) };
    rises.iter().all(|rise| *rise >= low * middle && *rise <= high * middle)
}

/// Whether the run of `length` rises at the end of `values` leaves everything before it behind.
fn novel(values: &[f64], length: usize) -> bool {
    let start = values.len() - 1 - length;
    let (run_start, run_end) = (values[start], values[values.len() - 1]);
    let before = &values[..=start];
    let (low, high) = range(before);
    run_end > high && (before.len() < 4 || run_end - run_start > NOVELTY * (high - low))
        // A run that begins at the very first level has nothing to be compared with.
        || start == 0
}

/// A rise through all four quarters of a long series, far above what the quarters scatter.
fn noisy_growth(levels: &[Level], even: &[Level], values: &[f64]) -> Option<Growth> {
    if values.len() < STATISTICAL_MIN_POINTS {
        return None;
    }
    let size = values.len() / 4;
    let quarters: Vec<&[f64]> = values[values.len() - 4 * size..].chunks(size).collect();
    let middles: Vec<f64> = quarters.iter().map(|quarter| median(quarter)).collect();
    let rises: Vec<f64> = middles.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = range(&rises);
    let spread = quarters
        .iter()
        .map(|quarter| {
            let (low, high) = range(&detrended(quarter));
            high - low
        })
        .fold(0.0, f64::max);
    let total = middles[3] - middles[0];
    let growing =
        least > 0.0 && least >= QUARTER_EVENNESS * most && total > QUARTER_SPREADS * spread;
    growing.then(|| {
        let steps: Vec<f64> = even.iter().map(|level| level.step as f64).collect();
        let increments = even.len() - 1;
        let last = levels.len() - 1;
        Growth::Growing { per_step: slope(&steps, values), first: 0, last, increments }
    })
}

/// The values with their straight line taken off.
fn detrended(values: &[f64]) -> Vec<f64> {
    let places: Vec<f64> = (0..values.len()).map(|place| place as f64).collect();
    let slope = slope(&places, values);
    values.iter().zip(&places).map(|(value, place)| value - slope * place).collect()
}

/// Least-squares slope of `y` over `x`; 0 where `x` does not vary.
pub(super) fn slope(x: &[f64], y: &[f64]) -> f64 {
    let (covariance, variance, _) = moments(x, y);
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

/// Pearson's correlation; 0 where one of them does not vary.
pub(super) fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let (covariance, variance_x, variance_y) = moments(x, y);
    let scale = (variance_x * variance_y).sqrt();
    if scale > 0.0 { covariance / scale } else { 0.0 }
}

fn moments(x: &[f64], y: &[f64]) -> (f64, f64, f64) {
    let count = x.len().max(1) as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / count, y.iter().sum::<f64>() / count);
    x.iter().zip(y).fold((0.0, 0.0, 0.0), |(xy, xx, yy), (x, y)| {
        let (dx, dy) = (x - mean_x, y - mean_y);
        (xy + dx * dy, xx + dx * dx, yy + dy * dy)
    })
}

/// The middle value; of an even number the lower of the two; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    })
}
