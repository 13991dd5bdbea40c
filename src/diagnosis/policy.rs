use std::collections::BTreeSet;

use super::Code;
use crate::units::MIB;

/// The thresholds of the rules, as data. Every sentence of evidence that rests on one says it.
///
/// # Examples
///
/// ```
/// use phasescope::diagnosis::{Code, Policy};
///
/// let mut policy = Policy::default();
/// policy.activations_share = 0.25;
/// policy.switch_off(Code::CacheOnly);
/// assert!(policy.is_off(Code::CacheOnly));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Activations are named from this share of the peak on. Default 0.1.
    pub activations_share: f64,
    /// Backward must free at least this share of forward's rise for it to count as freed. Default
    /// 0.5.
    pub backward_frees_share: f64,
    /// A rise in the first optimizer step is state from this multiple of the parameters on. Default
    /// 0.1, so that low-precision state is seen.
    pub state_min_ratio: f64,
    /// State beyond this multiple of the parameters is only suspected to be state. Default 3.5.
    pub state_max_ratio: f64,
    /// A growth of the level between steps is a graph from this share of forward's rise on. Default
    /// 0.25.
    pub graph_share_of_forward: f64,
    /// Growth is judged from this many increments between steps on. Default 5: a warm-up of four
    /// steps is none.
    pub growth_min_increments: usize,
    /// From this many increments on a growth is confirmed. Default 8.
    pub growth_confirmed_increments: usize,
    /// So many steps without growth at the end do not clear a growth before them. Default 2.
    pub plateau_tolerance: usize,
    /// Retained tensors are worth a warning from this many bytes a step on. Default 64 KiB.
    pub retained_warning_per_step: u64,
    /// Retained graphs are critical from this share of the peak a step on. Default 0.01: the run
    /// doubles its memory within a hundred steps.
    pub graph_critical_share: f64,
    /// Gradients are of the parameters' size within this share. Default 0.25.
    pub gradient_tolerance: f64,
    /// Gradients that live through forward are worth a warning from this share of the peak on.
    /// Default 0.1.
    pub gradients_warning_share: f64,
    /// What first forward and backward leave behind is named from this many bytes on. Default 1 MiB.
    pub workspace_min: u64,
    /// Reserved over the level after cleanup from which the cache is worth a word. Default 1.5.
    pub cache_ratio: f64,
    /// Reserved over the step's peak up to which that is the normal cache. Default 1.25.
    pub cache_peak_ratio: f64,
    /// Input sizes vary when the largest is this multiple of the smallest. Default 1.1.
    pub shapes_ratio: f64,
    /// Forward's rise follows the input from this correlation on. Default 0.9.
    pub shapes_correlation: f64,
    /// Share of the device in use that is worth a warning. Default 0.9.
    pub capacity_warning: f64,
    /// Share of the device in use that is critical. Default 0.97.
    pub capacity_critical: f64,
    /// Steps until out of memory at the measured growth that are worth a warning. Default 10 000;
    /// a tenth of it is critical.
    pub capacity_warning_steps: u64,
    off: BTreeSet<Code>,
}

impl Policy {
    /// Switches a rule off: its cause is neither found nor cleared.
    pub fn switch_off(&mut self, code: Code) {
        self.off.insert(code);
    }

    /// Whether a rule is off.
    #[must_use]
    pub fn is_off(&self, code: Code) -> bool {
        self.off.contains(&code)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            activations_share: 0.1,
            backward_frees_share: 0.5,
            state_min_ratio: 0.1,
            state_max_ratio: 3.5,
            graph_share_of_forward: 0.25,
            growth_min_increments: 5,
            growth_confirmed_increments: 8,
            plateau_tolerance: 2,
            retained_warning_per_step: 64 * 1024,
            graph_critical_share: 0.01,
            gradient_tolerance: 0.25,
            gradients_warning_share: 0.1,
            workspace_min: MIB,
            cache_ratio: 1.5,
            cache_peak_ratio: 1.25,
            shapes_ratio: 1.1,
            shapes_correlation: 0.9,
            capacity_warning: 0.9,
            capacity_critical: 0.97,
            capacity_warning_steps: 10_000,
            off: BTreeSet::new(),
        }
    }
}
