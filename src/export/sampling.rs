use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

use super::counts::Counts;
use crate::contract;
use crate::phase::RecentSteps;

/// Which steps' spans are exported. Counters, metrics and diagnosis see every step all the same.
///
/// The first steps are, then every so-many-th, and the steps around a change of verdict. A span
/// inside a step goes with its step. Spans outside steps (an evaluation between them, say) are
/// counted by name: the first ones are exported, then every so-many-th.
///
/// # Examples
///
/// ```
/// use phasescope::export::Sampling;
///
/// let thorough = Sampling { first: 1000, every: 10, ..Sampling::default() };
/// assert_eq!(Sampling::default().every, 100);
/// assert_eq!(Sampling::all().every, 1);
/// # let _ = thorough;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// So many steps at the start. Default 100.
    pub first: u64,
    /// Then every so-many-th, counted from the first; 0 for none. Default 100, which is some hundred
    /// thousand steps in ten days of ten steps a second.
    pub every: u64,
    /// So many steps before and after a change of verdict, at most [`MAX_HELD_SPANS`] spans before
    /// it. Default 4.
    pub around_change: u64,
}

impl Sampling {
    /// Every step.
    #[must_use]
    pub fn all() -> Self {
        Self { every: 1, ..Self::default() }
    }

    /// Whether number `place`, counted from 0, is exported.
    fn keeps(self, place: u64) -> bool {
        place < self.first || (self.every > 0 && place.is_multiple_of(self.every))
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self { first: 100, every: 100, around_change: 4 }
    }
}

/// Spans of steps left out that are kept for a while, in case the verdict changes. Beyond it the
/// oldest go.
pub const MAX_HELD_SPANS: usize = 256;

/// Names of spans outside steps that are counted; a further name is not exported.
const MAX_NAMES: usize = 64;

/// Changes of verdict that are followed; a verdict that goes to and fro must not undo the sampling.
const MAX_CHANGES: u64 = 1000;

/// The key and value of the trace state by which a span's children know that it is in no step.
const STATE_KEY: &str = "phasescope";
const OUTSIDE: &str = "outside";

/// The decisions of one run.
#[derive(Debug)]
pub(crate) struct Plan {
    sampling: Sampling,
    counts: Arc<Counts>,
    state: Mutex<State>,
    changed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    changes: u64,
    /// Steps that are still to be exported because the verdict changed.
    after: u64,
    /// Of phases that say their step themselves: the phases of one step go together.
    decisions: RecentSteps<bool>,
    names: Vec<(Box<str>, u64)>,
}

impl Plan {
    pub(crate) fn new(sampling: Sampling, counts: Arc<Counts>) -> Self {
        Self { sampling, counts, state: Mutex::default(), changed: AtomicBool::new(false) }
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// The verdict has changed: what is held goes out, and so do the next steps.
    pub(crate) fn verdict_changed(&self) {
        let mut state = self.state();
        if state.changes == MAX_CHANGES {
            return;
        }
        state.changes += 1;
        state.after = self.sampling.around_change;
        drop(state);
        self.changed.store(true, Ordering::Release);
    }

    /// Whether the verdict has changed since the last time this was asked.
    pub(crate) fn take_change(&self) -> bool {
        self.changed.load(Ordering::Acquire) && self.changed.swap(false, Ordering::AcqRel)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins, whatever its number: numbers may begin again.
    fn step(&self, state: &mut State) -> bool {
        let keep = self.sampling.keeps(state.seen) || state.after > 0;
        state.seen += 1;
        state.after = state.after.saturating_sub(1);
        keep
    }

    /// A phase says that it belongs to a step.
    fn phase_of(&self, step: u64) -> bool {
        let mut state = self.state();
        state.decisions.get(step).unwrap_or_else(|| {
            let keep = self.step(&mut state);
            state.decisions.push(step, keep);
            keep
        })
    }

    fn outside(&self, name: &str) -> bool {
        let mut state = self.state();
        let known = state.names.iter().position(|(known, _)| **known == *name);
        let place = match known {
            Some(place) => place,
            None if state.names.len() == MAX_NAMES => return false,
            None => {
                state.names.push((name.into(), 0));
                state.names.len() - 1
            }
        };
        let count = &mut state.names[place].1;
        let place = *count;
        *count += 1;
        self.sampling.keeps(place)
    }
}

/// The sampler of a run.
#[derive(Clone, Debug)]
pub(crate) struct StepSampler(pub(crate) Arc<Plan>);

impl ShouldSample for StepSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        _trace_id: TraceId,
        name: &str,
        _kind: &SpanKind,
        attributes: &[KeyValue],
        _links: &[Link],
    ) -> SamplingResult {
        let parent = parent.map(|context| context.span().span_context().clone());
        let parent = parent.filter(SpanContext::is_valid);
        let state = parent.as_ref().map(|parent| parent.trace_state().clone()).unwrap_or_default();
        let in_step = parent.is_some() && state.get(STATE_KEY) != Some(OUTSIDE);
        let find = |key: &str| attributes.iter().find(|pair| pair.key.as_str() == key);
        let step = find(contract::STEP);
        let step = step.and_then(|pair| u64::try_from(contract::integer(&pair.value)?).ok());
        let unmarked = || state.delete(STATE_KEY).unwrap_or_default();
        let (keep, trace_state) = match step {
            Some(_) if find(contract::PHASE).is_none() => {
                (self.0.step(&mut self.0.state()), unmarked())
            }
            Some(step) if !in_step => (self.0.phase_of(step), unmarked()),
            _ if in_step => (parent.is_some_and(|parent| parent.is_sampled()), state),
            _ => {
                let keep = self.0.outside(name);
                (keep, state.insert(STATE_KEY, OUTSIDE).unwrap_or_default())
            }
        };
        // A span left out is recorded all the same: a change of verdict may ask for it.
        let decision = match (keep, step.is_some() || in_step) {
            (true, _) => SamplingDecision::RecordAndSample,
            (false, true) if self.0.sampling.around_change > 0 => SamplingDecision::RecordOnly,
            (false, _) => {
                self.0.counts.unsampled(1);
                SamplingDecision::Drop
            }
        };
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}
