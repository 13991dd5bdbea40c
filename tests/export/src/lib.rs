//! What the tests of the export share: real servers on free ports of this machine, pretended ones
//! that misbehave, and the program that trains.

mod collector;
mod faulty;
mod jaeger;
mod program;
mod server;

pub use collector::Collector;
pub use faulty::{Behaviour, Faulty};
pub use jaeger::{Jaeger, Span};
pub use program::{Done, Program, example, train};
pub use server::DOWN;
