use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::diagnosis::RunFacts;
use crate::phase::{Phase, PhaseRecord};

/// Bytes of a line. A record of a CUDA device takes about 700.
pub const SLOT: usize = 1024;
/// Lines for the run.
pub(super) const RUN_SLOTS: usize = 2;
/// Phases that can be open at once; a further one is kept when it ends.
pub const OPEN_SLOTS: usize = 30;
/// The first phases, which are never overwritten.
pub const HEAD_SLOTS: usize = 256;
/// The last phases.
pub const TAIL_SLOTS: usize = 736;
/// The file's size: 1 MiB.
pub const RING_BYTES: usize = (RUN_SLOTS + OPEN_SLOTS + HEAD_SLOTS + TAIL_SLOTS) * SLOT;

/// The line of an open phase.
pub(super) fn open_slot(place: usize) -> usize {
    RUN_SLOTS + place
}

/// The line of record number `number`, counted from 0.
pub(super) fn record_slot(number: u64) -> usize {
    let first = RUN_SLOTS + OPEN_SLOTS;
    match usize::try_from(number) {
        Ok(number) if number < HEAD_SLOTS => first + number,
        _ => first + HEAD_SLOTS + ((number - HEAD_SLOTS as u64) % TAIL_SLOTS as u64) as usize,
    }
}

/// The format, so that a later one is told from this.
pub(super) const FORMAT: &str = "phasescope.ring/v1";

/// The run, in the first two lines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunLine {
    pub(super) format: String,
    /// The higher of the two lines counts.
    pub(super) version: u64,
    pub(super) run_id: String,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) pid: u32,
    pub(super) devices: Vec<String>,
    pub(super) facts: RunFacts,
    /// Whether the program has let go of its guard: it was not killed while it trained.
    pub(super) ended: bool,
}

/// A phase that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenLine {
    pub(super) step: Option<u64>,
    pub(super) phase: Phase,
    pub(super) name: Option<String>,
    pub(super) depth: u32,
    pub(super) device: usize,
    pub(super) start: Counters,
}

/// A phase that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordLine {
    /// Place among all records of the process.
    pub(super) number: u64,
    /// Place among all ends of phases: the order of the records.
    pub(super) sequence: u64,
    pub(super) device: usize,
    pub(super) record: PhaseRecord,
}

/// A line, or nothing for an object that is too long for one.
pub(super) fn encode(object: &impl Serialize) -> Option<[u8; SLOT]> {
    const TEXT: usize = 9;
    let mut line = [b' '; SLOT];
    let mut rest = &mut line[TEXT..SLOT - 1];
    serde_json::to_writer(&mut rest, object).ok()?;
    let end = SLOT - 1 - rest.len();
    let sum = format!("{:08x}", crc32fast::hash(&line[TEXT..end]));
    line[..8].copy_from_slice(sum.as_bytes());
    line[SLOT - 1] = b'\n';
    Some(line)
}

/// What stands in a line.
#[derive(Debug)]
pub(super) enum Line<T> {
    Blank,
    /// Written in part, or by someone else.
    Damaged,
    Object(T),
}

pub(super) fn decode<T: for<'de> Deserialize<'de>>(line: &[u8]) -> Line<T> {
    let Some((sum, text)) = line.split_at_checked(8) else { return Line::Damaged };
    if sum == BLANK {
        return Line::Blank;
    }
    let text = text.trim_ascii();
    let expected = std::str::from_utf8(sum).ok().and_then(|sum| u32::from_str_radix(sum, 16).ok());
    if expected != Some(crc32fast::hash(text)) {
        return Line::Damaged;
    }
    serde_json::from_slice(text).map_or(Line::Damaged, Line::Object)
}

/// Where the sum would stand, of a line without an object.
pub(super) const BLANK: &[u8; 8] = b"--------";
