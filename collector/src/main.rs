//! The `phasescope` command: says from reports, spans and ring files, and from what many programs send, which training
//! phase takes the memory, why, and what to do.

mod args;
mod compare;
mod diagnose;
mod judge;
mod process;
mod render;
mod serve;
mod source;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// The answer of a command: what it prints and how it ends.
struct Answer {
    text: String,
    errors: Vec<String>,
    /// `--fail-on` was met.
    gate: bool,
}

fn main() -> ExitCode {
    let answer = match Args::parse().command {
        Command::Serve(args) => {
            let errors = serve::run(&args).err().into_iter().collect();
            Answer { text: String::new(), errors, gate: false }
        }
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Compare(args) => compare::run(&args),
    };
    if let Err(error) = anstream::stdout().lock().write_all(answer.text.as_bytes())
        && error.kind() != ErrorKind::BrokenPipe
    {
        // A reader that has seen enough closes the pipe; anything else is an error.
        let _ = writeln!(io::stderr(), "phasescope: {error}");
        return ExitCode::from(2);
    }
    for error in &answer.errors {
        let _ = writeln!(io::stderr(), "phasescope: {}", render::plain(error));
    }
    match (answer.errors.is_empty(), answer.gate) {
        (false, _) => ExitCode::from(2),
        (true, true) => ExitCode::from(1),
        (true, false) => ExitCode::SUCCESS,
    }
}
