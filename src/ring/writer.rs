use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::slots::{
    BLANK, FORMAT, OPEN_SLOTS, OpenLine, RING_BYTES, RUN_SLOTS, RecordLine, RunLine, SLOT, encode,
    open_slot, record_slot,
};
use super::store::Store;
use crate::counters::{Counters, DeviceName};
use crate::diagnosis::RunFacts;
use crate::phase::{Outcome, Phase, PhaseRecord, RunIdentity};

/// Files of one run, rank and process id in a folder; after so many restarts the ring is refused.
const MAX_FILES: u32 = 1000;
/// Characters of a message that is too long for a line.
const SHORT_MESSAGE: usize = 120;

/// Writes the ring file of this process.
#[derive(Debug)]
pub(crate) struct RingWriter {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` after a write has failed.
    store: Option<Store>,
    run: RunLine,
    /// The span of each line for open phases.
    open: [Option<u64>; OPEN_SLOTS],
    records: u64,
}

impl RingWriter {
    /// Makes a new file in a folder, named after run, rank and process; a number behind them tells it
    /// from the file of an earlier process, since in containers processes have the same id.
    pub(crate) fn create<'a>(
        folder: &Path,
        identity: &RunIdentity,
        devices: impl Iterator<Item = &'a DeviceName>,
    ) -> io::Result<Self> {
        let run_id: String = identity.run_id.chars().map(plain).collect();
        let pid = std::process::id();
        let name = format!("{run_id}-rank{}-{pid}", identity.rank);
        let (path, file) = new_file(folder, &name)?;
        let made = Self::fill(path.clone(), file, identity, devices);
        if made.is_err() {
            // A file that is no ring is of no use to anybody; that it stays is no further error.
            let _ = fs::remove_file(&path);
        }
        made
    }

    fn fill<'a>(
        path: PathBuf,
        file: File,
        identity: &RunIdentity,
        devices: impl Iterator<Item = &'a DeviceName>,
    ) -> io::Result<Self> {
        // Every block is written now: a disk that is full says so here, not in training.
        let mut blank = [b' '; SLOT];
        blank[..BLANK.len()].copy_from_slice(BLANK);
        blank[SLOT - 1] = b'\n';
        file.write_all_at(&blank.repeat(RING_BYTES / SLOT), 0)?;
        let run = RunLine {
            format: FORMAT.to_owned(),
            version: 0,
            run_id: identity.run_id.clone(),
            rank: identity.rank,
            world_size: identity.world_size,
            pid: std::process::id(),
            devices: devices.map(ToString::to_string).collect(),
            facts: RunFacts::default(),
            ended: false,
        };
        let state =
            State { store: Some(Store::of(file)), run, open: [None; OPEN_SLOTS], records: 0 };
        let ring = Self { path, state: Mutex::new(state) };
        ring.state().write_run()?;
        Ok(ring)
    }

    /// Nothing has been written and nothing will be: the file goes.
    #[cfg(feature = "otlp")]
    pub(crate) fn remove(&self) {
        self.state().store = None;
        let _ = fs::remove_file(&self.path);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A phase is entered for the first time. `start` are the first device's counters.
    pub(crate) fn open(
        &self,
        span: u64,
        (step, phase, name, depth): (Option<u64>, Phase, &str, u32),
        start: Counters,
    ) {
        let mut state = self.state();
        let Some(place) = state.open.iter().position(Option::is_none) else { return };
        state.open[place] = Some(span);
        let name = (name != phase.name()).then(|| name.to_owned());
        let mut line = OpenLine { step, phase, name, depth, device: 0, start };
        let slot = encode(&line).or_else(|| {
            line.name = None;
            encode(&line)
        });
        if let Some(slot) = slot {
            state.write(&slot, open_slot(place));
        }
    }

    /// A phase has ended: its records, the first device first.
    pub(crate) fn close<'a>(
        &self,
        span: u64,
        sequence: u64,
        records: impl Iterator<Item = &'a PhaseRecord>,
    ) {
        let mut state = self.state();
        for (device, record) in records.enumerate() {
            let number = state.records;
            state.records += 1;
            if let Some(slot) = record_line(number, sequence, device, record) {
                state.write(&slot, record_slot(number));
            }
        }
        // Last, so that a process that is killed in between shows the phase twice, not never.
        if let Some(place) = state.open.iter().position(|open| *open == Some(span)) {
            state.open[place] = None;
            state.write(BLANK, open_slot(place));
        }
    }

    pub(crate) fn set_facts(&self, facts: RunFacts) {
        let mut state = self.state();
        state.run.facts = facts;
        let _ = state.write_run();
    }

    /// The program lets go of its guard.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.run.ended = true;
        let _ = state.write_run();
    }
}

impl State {
    /// Writes at a line. The first failure is told, and the last: nothing is written from then on.
    fn write(&mut self, bytes: &[u8], line: usize) {
        let Some(store) = &mut self.store else { return };
        if let Err(error) = store.write(bytes, line * SLOT) {
            let told = format!("the ring file could not be written and ends here: {error}");
            crate::tell::line(&told);
            self.store = None;
        }
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.run.version += 1;
        let line = encode(&self.run)
            .ok_or_else(|| io::Error::other("expected a run id and device names below 1 kB"))?;
        self.write(&line, (self.run.version % RUN_SLOTS as u64) as usize);
        Ok(())
    }
}

/// A record's line; where it is too long, without what makes it so.
fn record_line(
    number: u64,
    sequence: u64,
    device: usize,
    record: &PhaseRecord,
) -> Option<[u8; SLOT]> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        number: u64,
        sequence: u64,
        device: usize,
        record: &'a PhaseRecord,
    }
    encode(&Borrowed { number, sequence, device, record }).or_else(|| {
        let mut record = record.clone();
        let short = |message: &str| message.chars().take(SHORT_MESSAGE).collect::<String>();
        record.name = record.name.map(|name| short(&name).into());
        record.outcome = match record.outcome {
            Outcome::Failed(message) => Outcome::Failed(short(&message)),
            Outcome::Panicked(Some(message)) => Outcome::Panicked(Some(short(&message))),
            other => other,
        };
        encode(&RecordLine { number, sequence, device, record })
    })
}

/// A file that was not there: `name.ring`, else `name-2.ring` and so on.
fn new_file(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let mut path = folder.join(format!("{name}.ring"));
    let mut next = 2;
    loop {
        match File::create_new(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && next <= MAX_FILES => {
                path = folder.join(format!("{name}-{next}.ring"));
                next += 1;
            }
            made => return made.map(|file| (path, file)),
        }
    }
}

/// A character of a run id, as a file's name may have it.
fn plain(character: char) -> char {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => character,
        _ => '_',
    }
}
