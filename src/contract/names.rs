//! The names of the contract that code uses. What they mean stands in `docs/fields.md`; a test holds
//! the two together.

/// Fields that a program sets on its spans.
pub(crate) const PHASE: &str = "phasescope.phase";
pub(crate) const STEP: &str = "phasescope.step";
pub(crate) const RUN_ID: &str = "phasescope.run_id";
pub(crate) const INPUT_ELEMENTS: &str = "phasescope.input_elements";
pub(crate) const OPTIMIZER_STEPPED: &str = "phasescope.optimizer_stepped";

/// Attributes that the layer sets.
pub(crate) const RANK: &str = "phasescope.rank";
pub(crate) const WORLD_SIZE: &str = "phasescope.world_size";
pub(crate) const SEQUENCE: &str = "phasescope.sequence";
pub(crate) const DEPTH: &str = "phasescope.depth";
pub(crate) const HOST_DURATION: &str = "phasescope.host_duration";
pub(crate) const PARAMETER_BYTES: &str = "phasescope.parameter_bytes";
pub(crate) const DEVICE_BYTES: &str = "phasescope.device_bytes";
pub(crate) const BATCH_SIZE: &str = "phasescope.batch_size";
pub(crate) const OOM_REQUESTED: &str = "phasescope.out_of_memory.requested";
pub(crate) const ERROR_TYPE: &str = "error.type";
pub(crate) const VERDICT_CODE: &str = "phasescope.verdict.code";
pub(crate) const VERDICT_SEVERITY: &str = "phasescope.verdict.severity";

/// The event of a changed verdict.
pub const VERDICT_CHANGED: &str = "phasescope.verdict_changed";
/// The attributes of a finding.
pub(crate) const FINDING_CODE: &str = "phasescope.finding.code";
pub(crate) const FINDING_SEVERITY: &str = "phasescope.finding.severity";
pub(crate) const FINDING_TITLE: &str = "phasescope.finding.title";
pub(crate) const FINDING_LABEL: &str = "phasescope.finding.label";
pub(crate) const FINDING_CONFIDENCE: &str = "phasescope.finding.confidence";
pub(crate) const FINDING_HELD: &str = "phasescope.finding.held";
pub(crate) const FINDING_EVIDENCE: &str = "phasescope.finding.evidence";
pub(crate) const FINDING_RESPONSES: &str = "phasescope.finding.responses";
pub(crate) const FINDING_REJECTED: &str = "phasescope.finding.rejected";

/// Values of `error.type`.
pub(crate) const ERROR: &str = "error";
pub(crate) const PANIC: &str = "panic";
pub(crate) const OUT_OF_MEMORY: &str = "out_of_memory";

/// Attributes of metrics that spans do not have under this name.
pub(crate) const DEVICE_NAME: &str = "phasescope.device.name";
pub(crate) const OUTCOME: &str = "phasescope.outcome";
pub(crate) const HW_ID: &str = "hw.id";

/// Metrics.
pub(crate) const MEMORY_ALLOCATED: &str = "phasescope.memory.allocated";
pub(crate) const MEMORY_RESERVED: &str = "phasescope.memory.reserved";
pub(crate) const MEMORY_PEAK: &str = "phasescope.memory.peak";
pub(crate) const MEMORY_DEVICE_USED: &str = "phasescope.memory.device_used";
pub(crate) const MEMORY_PROCESS_DEVICE_USED: &str = "phasescope.memory.process_device_used";
pub(crate) const PHASE_DURATION: &str = "phasescope.phase.duration";
pub(crate) const STEPS: &str = "phasescope.steps";
pub(crate) const FINDING_HELD_METRIC: &str = "phasescope.finding.held";
pub(crate) const SPANS: &str = "phasescope.spans";
pub(crate) const GPU_USAGE: &str = "hw.gpu.memory.usage";
pub(crate) const GPU_LIMIT: &str = "hw.gpu.memory.limit";
pub(crate) const PROCESS_MEMORY: &str = "process.memory.usage";

/// Resource attribute of traces: the instances of `phasescope serve` that they went through.
pub const COLLECTOR_PATH: &str = "phasescope.collector.path";
/// Resource attributes.
pub(crate) const SERVICE_NAME: &str = "service.name";
pub(crate) const SERVICE_INSTANCE_ID: &str = "service.instance.id";
pub(crate) const PROCESS_PID: &str = "process.pid";

/// Devices whose counters go to one span; with three, their attributes stay below the SDK's limit
/// of 128 a span. Further ones are in the diagnosis, the metrics and the report only.
pub(crate) const MAX_DEVICES: usize = 3;
