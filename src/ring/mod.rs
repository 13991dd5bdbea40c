//! The ring file: the last phases of a process, for when it is killed.
//!
//! A process that is killed takes with it the spans that are open and those that wait for their
//! export. With [`Builder::ring_in`](crate::layer::Builder::ring_in) every phase is also written to a
//! small file when it begins and when it ends; what is written there stays when the process goes.
//! `phasescope diagnose FILE.ring` says which phase was open, at which counters, and what the engine
//! finds in the phases that are kept.
//!
//! # Format
//!
//! Text of a fixed size, so that `less` shows it too: lines of [`SLOT`] bytes, each a CRC-32 in
//! hexadecimal, a blank and a JSON object, filled up with blanks. First come two lines for the run
//! (written in turns), then [`OPEN_SLOTS`] for phases that are open, [`HEAD_SLOTS`] for the first
//! phases of the run (the first steps tell what the model, the optimizer and the workspaces took) and
//! [`TAIL_SLOTS`] for the last ones.
//!
//! # Cost and limits
//!
//! Two writes of a line a phase and device, to the page cache: some microseconds, no wait for a disk
//! unless the system throttles writers; `/dev/shm` has none. Writes, not a mapping: a mapped file that is cut
//! short, or whose disk is full, would kill the process it is to tell of. A write that fails ends the
//! ring with one message. The file survives the process, not the machine.

mod reader;
mod slots;
mod writer;

pub use reader::{OpenPhase, Ring, RingError, read};
pub use slots::{HEAD_SLOTS, OPEN_SLOTS, RING_BYTES, SLOT, TAIL_SLOTS};
pub(crate) use writer::RingWriter;
