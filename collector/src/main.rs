//! The `phasescope` command.
fn main() {}
