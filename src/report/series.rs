use crate::counters::DeviceName;
use crate::diagnosis::Diagnosis;
use crate::phase::PhaseRecord;

/// The records and the diagnosis of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The device.
    pub device: DeviceName,
    /// Its phases in the order in which they ended; empty unless records are kept.
    pub records: Vec<PhaseRecord>,
    /// What the engine says now.
    pub diagnosis: Diagnosis,
}
