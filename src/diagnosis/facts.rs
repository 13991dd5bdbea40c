use serde::{Deserialize, Serialize};

/// What is known of a run besides its counters. Absent values stay absent: a rule that needs one
/// says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFacts {
    /// Bytes of the model's parameters as they are stored.
    pub parameter_bytes: Option<u64>,
    /// The device's size in bytes, where the counters do not tell.
    pub device_total: Option<u64>,
    /// Samples in one rank's batch.
    pub local_batch_size: Option<u64>,
}
