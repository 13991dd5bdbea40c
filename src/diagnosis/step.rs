use super::{Counter, Edge, Measure};
use crate::counters::Counters;
use crate::phase::{Phase, PhaseRecord};

/// What one phase did in one step: all its occurrences together.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseInStep {
    /// Place among the step's records, from 0.
    pub(super) order: u32,
    /// Allocated at the start of the first occurrence; its end where that was not measured.
    pub(super) start: u64,
    /// Allocated at the end of the last occurrence.
    pub(super) end: u64,
    /// Sum of the changes of all occurrences; `None` where one's start was not measured.
    pub(super) change: Option<i64>,
    /// Largest change of one occurrence: of accumulated micro-batches only one is live at a time.
    pub(super) rise: Option<i64>,
    /// Highest allocated inside, where it is known, else at an edge.
    pub(super) peak: u64,
    /// Whether `peak` was measured inside rather than read at an edge.
    pub(super) peak_measured: bool,
}

impl PhaseInStep {
    fn new(order: u32, record: &PhaseRecord, end: u64) -> Self {
        let start = record.start.allocated;
        Self {
            order,
            start: start.unwrap_or(end),
            end,
            change: start.map(|start| difference(end, start)),
            rise: start.map(|start| difference(end, start)),
            peak: record.peak_allocated.max(start).unwrap_or(0).max(end),
            peak_measured: record.peak_allocated.is_some(),
        }
    }

    fn merge(&mut self, next: Self) {
        self.end = next.end;
        self.change = self.change.zip(next.change).map(|(sum, change)| sum.saturating_add(change));
        self.rise = self.rise.max(next.rise);
        self.peak_measured |= next.peak_measured;
        self.peak = self.peak.max(next.peak);
    }
}

/// One step, whatever the number of its phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSummary {
    pub(super) step: u64,
    phases: [Option<PhaseInStep>; Phase::ALL.len()],
    records: u32,
    /// Allocated at the start of its first phase; that phase's end where it was not measured.
    pub(super) start: u64,
    /// Allocated at the end of its last phase: the floor that is compared between steps.
    pub(super) floor: u64,
    /// Its last phase.
    pub(super) last_phase: Phase,
    /// All counters at its end.
    pub(super) end: Counters,
    /// Highest allocated, and the phase in which.
    pub(super) peak: u64,
    pub(super) peak_phase: Phase,
    pub(super) input_elements: Option<u64>,
}

impl StepSummary {
    /// The summary of a step's first record; `None` when allocated was not measured.
    pub(super) fn begin(step: u64, record: &PhaseRecord) -> Option<Self> {
        let end = record.end.allocated?;
        let start = record.start.allocated.unwrap_or(end);
        let mut summary = Self {
            step,
            phases: [None; Phase::ALL.len()],
            records: 0,
            start,
            floor: end,
            last_phase: record.phase,
            end: record.end,
            peak: 0,
            peak_phase: record.phase,
            input_elements: None,
        };
        summary.add(record);
        Some(summary)
    }

    /// Adds a record of the same step; one without a measurement is passed over.
    pub(super) fn add(&mut self, record: &PhaseRecord) {
        let Some(end) = record.end.allocated else { return };
        let next = PhaseInStep::new(self.records, record, end);
        self.records += 1;
        match &mut self.phases[record.phase.index()] {
            Some(phase) => phase.merge(next),
            slot => *slot = Some(next),
        }
        if next.peak > self.peak {
            self.peak = next.peak;
            self.peak_phase = record.phase;
        }
        self.input_elements = record.input_elements.or(self.input_elements);
        // A phase inside another ends before it: only the outer one's end is the step's level.
        if record.depth == 0 {
            self.floor = end;
            self.last_phase = record.phase;
            self.end = record.end;
        }
    }

    pub(super) fn phase(&self, phase: Phase) -> Option<&PhaseInStep> {
        self.phases[phase.index()].as_ref()
    }

    pub(super) fn change(&self, phase: Phase) -> Option<i64> {
        self.phase(phase).and_then(|phase| phase.change)
    }

    /// The number of this step at an edge of a phase, as evidence cites it.
    pub(super) fn measure(&self, phase: Phase, edge: Edge) -> Option<Measure> {
        let values = self.phase(phase)?;
        let bytes = match edge {
            Edge::Start => values.start,
            Edge::End => values.end,
            Edge::Peak => values.peak,
        };
        Some(Measure { step: Some(self.step), phase, edge, counter: Counter::Allocated, bytes })
    }

    /// The level at the step's end, as evidence cites it.
    pub(super) fn floor_measure(&self) -> Measure {
        Measure {
            step: Some(self.step),
            phase: self.last_phase,
            edge: Edge::End,
            counter: Counter::Allocated,
            bytes: self.floor,
        }
    }
}

/// `to - from`; memory sizes are far below the range of `i64`, beyond it the nearest end.
pub(super) fn difference(to: u64, from: u64) -> i64 {
    crate::phase::signed_difference(to, from).unwrap_or(if to > from { i64::MAX } else { i64::MIN })
}
