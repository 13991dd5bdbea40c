use std::collections::BTreeMap;

use phasescope::Counters;
use phasescope::contract::{Origin, PhaseSpan, StepSpan};
use phasescope::counters::DeviceName;
use phasescope::diagnosis::{Diagnoser, Finding, Judge, Policy, RunFacts, Verdict};
use phasescope::phase::{Outcome, Phase, PhaseRecord};

/// Phases that can still be put into their order when they come late: some thirty steps. Programs
/// send in order, but what stands between may let batches pass each other.
const HELD_PHASES: usize = 128;
/// Devices of a rank that are judged.
const MAX_DEVICES: usize = 8;

/// A phase's place: its order, and its span's id where two have the same.
type Key = (u64, [u8; 8]);

/// What became of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    New,
    /// It has come before, as when a client tries again.
    Repeated,
    /// Later ones have been judged already, or its process has been replaced.
    Late,
}

/// The engine's state of one rank: of its newest process, where it was started again.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) instance: Option<String>,
    /// The process before this one.
    replaced: Option<String>,
    pub(crate) world_size: Option<u32>,
    pub(crate) service: Option<String>,
    pub(crate) devices: Vec<Device>,
    held: BTreeMap<Key, Vec<(DeviceName, PhaseRecord)>>,
    /// The last phase that is no longer held.
    floor: Option<Key>,
    /// A phase has come out of order, so the engines of now must be asked anew.
    disordered: bool,
    pub(super) judge: Judge,
    /// The verdict that the spans sent on have told last.
    pub(super) announced: Option<Verdict>,
    /// The process judges itself, having seen every step, and says so on its spans.
    judges_itself: bool,
    facts: (u64, RunFacts),
    last_step: Option<u64>,
    /// Steps whose phases have come.
    pub(crate) steps: u64,
}

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: DeviceName,
    /// Has seen what is no longer held.
    base: Diagnoser,
    /// Has seen everything.
    pub(crate) now: Diagnoser,
    pub(crate) phases: BTreeMap<Phase, PhaseLevels>,
}

/// The counters of a phase at its last end, for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PhaseLevels {
    pub(crate) end: Counters,
    pub(crate) peak: Option<u64>,
    /// The highest of the run.
    pub(crate) highest_peak: Option<u64>,
}

impl Rank {
    pub(super) fn new(origin: Origin<'_>) -> Self {
        Self {
            instance: origin.instance.map(str::to_owned),
            replaced: None,
            world_size: origin.world_size,
            service: origin.service.map(str::to_owned),
            devices: Vec::new(),
            held: BTreeMap::new(),
            floor: None,
            disordered: false,
            judge: Judge::default(),
            announced: None,
            judges_itself: false,
            facts: Default::default(),
            last_step: None,
            steps: 0,
        }
    }

    /// Whether spans from there are this process's. A process that is new replaces the one before.
    pub(super) fn is_current(&mut self, origin: Origin<'_>) -> bool {
        if self.instance.as_deref() == origin.instance {
            return true;
        }
        if self.replaced.is_some() && self.replaced.as_deref() == origin.instance {
            return false;
        }
        let replaced = self.instance.take();
        *self = Self { replaced, ..Self::new(origin) };
        true
    }

    /// The device's size, as the run has said.
    pub(crate) fn device_size(&self) -> Option<u64> {
        self.facts.1.device_total
    }

    /// Takes a phase.
    pub(super) fn observe(
        &mut self,
        phase: PhaseSpan<'_>,
        id: [u8; 8],
        longest: usize,
    ) -> Observed {
        let key = (phase.order, id);
        if self.held.contains_key(&key) {
            return Observed::Repeated;
        }
        if self.floor.is_some_and(|floor| key <= floor) {
            return Observed::Late;
        }
        if phase.order >= self.facts.0 && phase.facts != self.facts.1 {
            let facts = phase.facts;
            self.devices.iter_mut().for_each(|device| {
                device.base.set_facts(facts);
                device.now.set_facts(facts);
            });
            self.facts.1 = facts;
        }
        self.facts.0 = self.facts.0.max(phase.order);
        let mut records = phase.records;
        records.iter_mut().for_each(|(_, record)| shorten(record, longest));
        let in_order = self.held.last_key_value().is_none_or(|(last, _)| key > *last);
        if in_order {
            self.note(&records);
        } else {
            self.disordered = true;
        }
        self.held.insert(key, records);
        while self.held.len() > HELD_PHASES {
            let Some((key, records)) = self.held.pop_first() else { break };
            for (name, record) in records {
                if let Some(device) = self.devices.iter_mut().find(|device| device.name == name) {
                    device.base.observe(&record);
                }
            }
            self.floor = Some(key);
        }
        Observed::New
    }

    /// The newest phase.
    fn note(&mut self, records: &[(DeviceName, PhaseRecord)]) {
        let step = records.iter().find_map(|(_, record)| record.step);
        if step.is_some() && step != self.last_step {
            self.steps += 1;
            self.last_step = step;
        }
        for (name, record) in records {
            let Some(device) = self.device(name) else { continue };
            device.now.observe(record);
            let levels = device.phases.entry(record.phase).or_default();
            levels.end = record.end;
            levels.peak = record.peak_allocated;
            levels.highest_peak = levels.highest_peak.max(record.peak_allocated);
        }
    }

    fn device(&mut self, name: &DeviceName) -> Option<&mut Device> {
        let place = self.devices.iter().position(|device| device.name == *name);
        if place.is_none() && self.devices.len() >= MAX_DEVICES {
            return None;
        }
        let place = place.unwrap_or_else(|| {
            let engine = Diagnoser::new(Policy::default(), self.facts.1);
            let (base, now) = (engine.clone(), engine);
            let phases = BTreeMap::new();
            self.devices.push(Device { name: name.clone(), base, now, phases });
            self.devices.len() - 1
        });
        self.devices.get_mut(place)
    }

    /// Has the engines see what came out of order in its order.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.disordered) {
            return;
        }
        let names: Vec<_> = self.held.values().flatten().map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| {
            self.device(name);
        });
        for device in &mut self.devices {
            device.now = device.base.clone();
            let records = self.held.values().flatten().filter(|(name, _)| *name == device.name);
            records.for_each(|(_, record)| device.now.observe(record));
        }
    }

    /// A step has ended: the verdict for its span, and the finding where the spans have not told it
    /// yet. Nothing where the process tells it itself. `changed` is told of a new verdict.
    pub(super) fn end_step(
        &mut self,
        step: StepSpan<'_>,
        changed: impl FnOnce(&Finding),
    ) -> Option<(Verdict, Option<&Finding>)> {
        self.settle();
        let new = self.judge.end_step(self.devices.iter().map(|device| &device.now));
        let finding = self.judge.finding();
        if let Some(finding) = finding.filter(|_| new) {
            changed(finding);
        }
        self.judges_itself |= step.has_verdict;
        if self.judges_itself {
            return None;
        }
        let verdict = self.judge.verdict();
        let untold = finding.filter(|_| verdict != self.announced);
        self.announced = verdict;
        verdict.map(|verdict| (verdict, untold))
    }
}

/// What the engine does not need is kept only while it is short.
fn shorten(record: &mut PhaseRecord, longest: usize) {
    if record.name.as_ref().is_some_and(|name| name.len() > longest) {
        record.name = None;
    }
    match &mut record.outcome {
        Outcome::Failed(message) if message.len() > longest => message.clear(),
        Outcome::Panicked(message) if message.as_ref().is_some_and(|m| m.len() > longest) => {
            *message = None;
        }
        _ => {}
    }
}
