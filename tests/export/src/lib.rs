//! What the tests of the export share: real servers on free ports of this machine, pretended ones
//! that misbehave, and the program that trains.

mod client;
mod collector;
mod documented;
mod faulty;
mod jaeger;
mod made;
mod program;
mod serve;
mod server;
mod sink;

pub use client::Client;
pub use collector::Collector;
pub use documented::Documented;
pub use faulty::{Behaviour, Faulty};
pub use jaeger::{Jaeger, Span};
pub use made::Made;
pub use program::{Done, Program, example, python, train};
pub use serve::{Serve, cpu, peak_memory};
pub use server::{DOWN, free_port};
pub use sink::{Answer, Sink};
