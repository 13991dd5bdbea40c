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
//! Two lines a phase and device. On tmpfs, ext4 and xfs the file is mapped into memory, which costs
//! one or two microseconds a line. Elsewhere a full disk would kill a process that writes through a
//! mapping, so each line is written by a system call. Cutting the file short while the process runs
//! would kill it too: nobody should. A write that fails ends the ring with one message. The file
//! survives the process, not the machine.

mod reader;
mod slots;
mod store;
mod writer;

pub use reader::{OpenPhase, Ring, RingError, read};
pub use slots::{HEAD_SLOTS, OPEN_SLOTS, RING_BYTES, SLOT, TAIL_SLOTS};
pub(crate) use writer::RingWriter;
