use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::slots::{
    FORMAT, HEAD_SLOTS, Line, OPEN_SLOTS, OpenLine, RING_BYTES, RUN_SLOTS, RecordLine, RunLine,
    SLOT, TAIL_SLOTS, decode, open_slot,
};
use crate::counters::{Counters, DeviceName};
use crate::diagnosis::{Diagnoser, Policy, RunFacts};
use crate::phase::{Phase, PhaseRecord, RunIdentity};
use crate::report::Series;

/// What a ring file tells of a process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ring {
    /// The run and rank.
    pub identity: RunIdentity,
    /// The process.
    pub pid: u32,
    /// What was known of the run.
    pub facts: RunFacts,
    /// Whether the program let go of its guard; `false` for one that was killed, and for one that
    /// still trains.
    pub ended: bool,
    /// The phases that were open, in the order in which they began to stand in one another.
    pub open: Vec<OpenPhase>,
    /// Every device's kept phases and what the engine says of them.
    pub series: Vec<Series>,
    /// Records, one a phase and device, between the first and the last ones that were overwritten.
    pub overwritten: u64,
    /// Lines that were written in part.
    pub damaged: u64,
}

/// A phase that had begun and not ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenPhase {
    /// The step.
    pub step: Option<u64>,
    /// The phase.
    pub phase: Phase,
    /// The span's name where it says more than the phase.
    pub name: Option<String>,
    /// How many phases were open around it.
    pub depth: u32,
    /// The device of `start`: the first.
    pub device: DeviceName,
    /// The counters when it began.
    pub start: Counters,
}

/// Why a ring file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The file could not be read.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// The file is no ring.
    #[error("{file}: expected {expected}, found {found}")]
    Format {
        /// The file.
        file: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// Reads a ring file, of a process that is gone or of one that still trains.
///
/// # Errors
///
/// When the file cannot be read or is no ring. Lines that a process left half written are counted.
///
/// # Examples
///
/// ```
/// use phasescope::phase::RunIdentity;
/// use phasescope::phase;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let folder = tempfile::tempdir()?;
/// let identity = RunIdentity::new("nightly-42");
/// let (layer, guard) = phasescope::builder().identity(identity).ring_in(folder.path()).build();
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     let _open = phase!(forward).entered();
///     // Here the process is killed. What does its file say?
///     let ring = phasescope::ring::read(guard.ring_path().unwrap()).unwrap();
///     assert_eq!(ring.open[0].phase, phasescope::Phase::Forward);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path) -> Result<Ring, RingError> {
    let name = path.display().to_string();
    let failed =
        |error: std::io::Error| RingError::File { file: name.clone(), reason: error.to_string() };
    let wrong =
        |expected: String, found: String| RingError::Format { file: name.clone(), expected, found };
    let mut bytes = Vec::with_capacity(RING_BYTES);
    let most = RING_BYTES as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() != RING_BYTES {
        let found = match bytes.len() {
            size if size > RING_BYTES => "more".to_owned(),
            size => format!("{size} bytes"),
        };
        return Err(wrong(format!("a ring file of {RING_BYTES} bytes"), found));
    }
    let lines: Vec<&[u8]> = bytes.chunks_exact(SLOT).collect();
    let run = lines[..RUN_SLOTS].iter().filter_map(|line| match decode::<RunLine>(line) {
        Line::Object(run) => Some(run),
        _ => None,
    });
    let run = run.max_by_key(|run| run.version);
    let run = run.ok_or_else(|| wrong(format!("a line of {FORMAT}"), "none".to_owned()))?;
    if run.format != FORMAT {
        return Err(wrong(FORMAT.to_owned(), format!("\"{}\"", run.format)));
    }
    Ok(Ring::of(run, &lines))
}

impl Ring {
    fn of(run: RunLine, lines: &[&[u8]]) -> Self {
        let devices: Vec<_> = run.devices.iter().map(|name| DeviceName::new(name)).collect();
        let mut damaged = 0;
        let mut open: Vec<OpenPhase> = Vec::new();
        for line in &lines[open_slot(0)..open_slot(OPEN_SLOTS)] {
            match decode::<OpenLine>(line) {
                Line::Blank => {}
                Line::Damaged => damaged += 1,
                Line::Object(line) => open.extend(line.phase_on(&devices)),
            }
        }
        open.sort_by_key(|open| open.depth);
        let mut records: Vec<RecordLine> = Vec::new();
        for line in &lines[open_slot(OPEN_SLOTS)..] {
            match decode::<RecordLine>(line) {
                Line::Blank => {}
                Line::Damaged => damaged += 1,
                // Nobody but a broken writer has such numbers.
                Line::Object(line) if line.record.absurd().is_some() => damaged += 1,
                Line::Object(line) => records.push(line),
            }
        }
        let written = records.iter().map(|line| line.number.saturating_add(1)).max().unwrap_or(0);
        records.sort_by_key(|line| (line.sequence, line.device));
        let series = devices.iter().enumerate().map(|(place, device)| {
            let records = records.iter().filter(|line| line.device == place);
            series(device, records.map(|line| line.record.clone()).collect(), run.facts)
        });
        Self {
            identity: RunIdentity::new(run.run_id).with_rank(run.rank, run.world_size),
            pid: run.pid,
            facts: run.facts,
            ended: run.ended,
            open,
            series: series.collect(),
            overwritten: written.saturating_sub((HEAD_SLOTS + TAIL_SLOTS) as u64),
            damaged,
        }
    }
}

impl OpenLine {
    fn phase_on(self, devices: &[DeviceName]) -> Option<OpenPhase> {
        let Self { step, phase, name, depth, device, start } = self;
        Some(OpenPhase { step, phase, name, depth, device: devices.get(device)?.clone(), start })
    }
}

fn series(device: &DeviceName, records: Vec<PhaseRecord>, facts: RunFacts) -> Series {
    let mut diagnoser = Diagnoser::new(Policy::default(), facts);
    records.iter().for_each(|record| diagnoser.observe(record));
    diagnoser.finish();
    Series { device: device.clone(), records, diagnosis: diagnoser.diagnosis() }
}
