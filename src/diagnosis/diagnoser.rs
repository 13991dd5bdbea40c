use super::growth::Level;
use super::profile::Profile;
use super::step::{StepSummary, difference};
use super::{Diagnosis, PhasePeak, Policy, RunFacts, causes};
use crate::counters::Counters;
use crate::phase::{Phase, PhaseRecord};

/// Finished steps that are kept whole; of older ones only the first, the one with the highest peak
/// and [`HISTORY`] levels remain.
pub(super) const RECENT_STEPS: usize = 16;

/// Levels that are kept; when they are full every second one is dropped, so that they always cover
/// the whole run, and only every second, fourth, eighth ... step is kept from then on.
pub(super) const HISTORY: usize = 64;

/// The levels of the last steps, kept beside the thinned history: a late leak is seen in them.
pub(super) const RECENT_LEVELS: usize = 32;

/// Judges one device of one rank from its phase records.
///
/// State is bounded whatever the number of steps (below 32 KiB); a record costs well under a
/// microsecond, a [`diagnosis`](Self::diagnosis) some microseconds. Records come in the order
/// in which their phases ended; a record of an earlier step than the one before it is counted and
/// passed over.
///
/// # Examples
///
/// ```
/// use phasescope::diagnosis::{Diagnoser, Policy, RunFacts};
/// use phasescope::{Counters, Phase, PhaseRecord};
///
/// let mut diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
/// let mut level = 100 << 20;
/// for step in 0..8 {
///     for (phase, change) in [(Phase::Forward, 50 << 20), (Phase::Backward, -(50_i64 << 20))] {
///         let mut record = PhaseRecord::new(Some(step), phase);
///         record.start = Counters { allocated: Some(level), ..Counters::default() };
///         level = level.saturating_add_signed(change);
///         record.end = Counters { allocated: Some(level), ..Counters::default() };
///         diagnoser.observe(&record);
///     }
/// }
/// diagnoser.finish();
/// assert_eq!(diagnoser.diagnosis().findings[0].code.name(), "activations");
/// ```
#[derive(Clone, Debug)]
pub struct Diagnoser {
    policy: Policy,
    pub(super) facts: RunFacts,
    /// Allocated at the end of the last phase before training, and which it was.
    pub(super) before: Option<(u64, Phase)>,
    pub(super) model_change: Option<i64>,
    pub(super) create_change: Option<i64>,
    pub(super) input_change: Option<i64>,
    /// For each phase its first occurrence: the step and the change.
    pub(super) first_change: [Option<(u64, i64)>; Phase::ALL.len()],
    pub(super) first: Option<StepSummary>,
    pub(super) highest: Option<StepSummary>,
    pub(super) highest_before: Option<(u64, Phase)>,
    pub(super) phase_peaks: [Option<PhasePeak>; Phase::ALL.len()],
    pub(super) recent: Vec<StepSummary>,
    open: Option<StepSummary>,
    history: Vec<Level>,
    stride: u64,
    recent_levels: Vec<Level>,
    /// Finished steps.
    pub(super) steps: u64,
    pub(super) latest: Counters,
    pub(super) highest_device_used: Option<u64>,
    late: u64,
}

impl Diagnoser {
    /// An engine that has seen nothing yet.
    #[must_use]
    pub fn new(policy: Policy, facts: RunFacts) -> Self {
        Self {
            policy,
            facts,
            before: None,
            model_change: None,
            create_change: None,
            input_change: None,
            first_change: [None; Phase::ALL.len()],
            first: None,
            highest: None,
            highest_before: None,
            phase_peaks: [None; Phase::ALL.len()],
            recent: Vec::with_capacity(RECENT_STEPS),
            open: None,
            history: Vec::with_capacity(HISTORY),
            stride: 1,
            recent_levels: Vec::with_capacity(RECENT_LEVELS),
            steps: 0,
            latest: Counters::default(),
            highest_device_used: None,
            late: 0,
        }
    }

    /// Replaces the facts, which are often known only after the model is built.
    pub fn set_facts(&mut self, facts: RunFacts) {
        self.facts = facts;
    }

    /// Takes one finished phase.
    pub fn observe(&mut self, record: &PhaseRecord) {
        let Some(end) = record.end.allocated else { return };
        match record.step {
            None => self.observe_before(record, end),
            Some(step) => match &mut self.open {
                Some(open) if open.step == step => open.add(record),
                Some(open) if open.step > step => {
                    self.late += 1;
                    return;
                }
                _ => {
                    self.close_step(false);
                    self.open = StepSummary::begin(step, record);
                }
            },
        }
        self.latest = record.end.or(self.latest);
        self.highest_device_used = self.highest_device_used.max(record.end.device_used);
        self.note_peak(record, end);
    }

    fn observe_before(&mut self, record: &PhaseRecord, end: u64) {
        if self.steps > 0 || self.open.is_some() {
            // Not of a step, but not before training either: between steps.
            return;
        }
        let change = record.start.allocated.map(|start| difference(end, start));
        match record.phase {
            // Nothing is known to be allocated before the model, so its level is its size.
            Phase::Model => add(&mut self.model_change, change.or(i64::try_from(end).ok())),
            Phase::OptimizerCreate => add(&mut self.create_change, change),
            Phase::Input => add(&mut self.input_change, change),
            _ => {}
        }
        let peak = record.peak_allocated.unwrap_or(end).max(end);
        if self.highest_before.is_none_or(|(highest, _)| peak > highest) {
            self.highest_before = Some((peak, record.phase));
        }
        if record.depth == 0 {
            self.before = Some((end, record.phase));
        }
    }

    fn note_peak(&mut self, record: &PhaseRecord, end: u64) {
        let start = record.start.allocated.unwrap_or(end);
        let bytes = record.peak_allocated.unwrap_or(0).max(start).max(end);
        let slot = &mut self.phase_peaks[record.phase.index()];
        if slot.is_none_or(|peak| bytes > peak.bytes) {
            *slot = Some(PhasePeak { phase: record.phase, step: record.step, bytes });
        }
    }

    /// Closes the last step. A step that stops before the phase in which the steps before it ended,
    /// as of a job that died, counts for the peak but not for the level between steps.
    pub fn finish(&mut self) {
        self.close_step(true);
    }

    fn close_step(&mut self, last: bool) {
        let Some(step) = self.open.take() else { return };
        if self.highest.is_none_or(|highest| step.peak > highest.peak) {
            self.highest = Some(step);
        }
        let partial =
            last && self.recent.last().is_some_and(|usual| usual.last_phase != step.last_phase);
        if partial {
            return;
        }
        for phase in Phase::ALL {
            let slot = &mut self.first_change[phase.index()];
            if let (None, Some(change)) = (*slot, step.change(phase)) {
                *slot = Some((step.step, change));
            }
        }
        self.first.get_or_insert(step);
        push_bounded(&mut self.recent, step, RECENT_STEPS);
        self.note_level(&step);
        self.steps += 1;
    }

    fn note_level(&mut self, step: &StepSummary) {
        let level = Level {
            step: step.step,
            bytes: step.floor,
            input_elements: step.input_elements,
            forward: step.phase(Phase::Forward).map(|forward| (forward.start, forward.end)),
        };
        push_bounded(&mut self.recent_levels, level, RECENT_LEVELS);
        if !self.steps.is_multiple_of(self.stride) {
            return;
        }
        if self.history.len() == HISTORY {
            let mut keep = false;
            self.history.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
            if !self.steps.is_multiple_of(self.stride) {
                return;
            }
        }
        self.history.push(level);
    }

    /// The levels of the whole run, thinned, followed by those of the last steps, whole.
    pub(super) fn levels(&self) -> Vec<Level> {
        let recent_from = self.recent_levels.first().map_or(u64::MAX, |level| level.step);
        let older = self.history.iter().filter(|level| level.step < recent_from);
        older.chain(&self.recent_levels).copied().collect()
    }

    /// The levels of the whole run, thinned to equal distances.
    pub(super) fn history(&self) -> &[Level] {
        &self.history
    }

    /// Records that came after their step was closed, and were passed over.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.late
    }

    /// What can be said now. The step that is still open is left out, but for its peak.
    #[must_use]
    pub fn diagnosis(&self) -> Diagnosis {
        let profile = Profile::new(self);
        let mut diagnosis = Diagnosis {
            findings: Vec::new(),
            budget: profile.budget(),
            gaps: profile.gaps(),
            insufficient: Vec::new(),
        };
        for (code, rule) in causes::ALL {
            if !self.policy.is_off(code) {
                rule(&profile, &self.policy).file(code, &mut diagnosis);
            }
        }
        causes::order(&mut diagnosis.findings);
        diagnosis
    }

    /// What would be said if the step that is open were the last; the engine goes on as before.
    #[must_use]
    pub fn finished(&self) -> Diagnosis {
        let mut ended = self.clone();
        ended.finish();
        ended.diagnosis()
    }

    /// Steps until the device is full at the measured growth; `None` where nothing grows or the
    /// device's size is not known.
    #[must_use]
    pub fn steps_to_out_of_memory(&self) -> Option<u64> {
        causes::steps_left(&Profile::new(self))
    }

    /// The step that is not finished yet.
    pub(super) fn open(&self) -> Option<&StepSummary> {
        self.open.as_ref()
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

fn add(total: &mut Option<i64>, change: Option<i64>) {
    if let Some(change) = change {
        *total = Some(total.unwrap_or(0).saturating_add(change));
    }
}

fn push_bounded<T>(items: &mut Vec<T>, item: T, limit: usize) {
    if items.len() == limit {
        items.remove(0);
    }
    items.push(item);
}
