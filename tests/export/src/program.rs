use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server::{built, skipped};

/// A program with an environment of its own: nothing of `OTEL_*` is inherited.
#[derive(Debug)]
pub struct Program {
    /// The command, for a test that does more than to wait for it.
    pub command: Command,
}

/// What became of a program.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its exit status; `None` when it was killed.
    pub status: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it told on standard error.
    pub err: String,
}

impl Done {
    /// The lines of phasescope on standard error.
    #[must_use]
    pub fn told(&self) -> Vec<&str> {
        self.err.lines().filter(|line| line.starts_with("phasescope: ")).collect()
    }
}

impl Program {
    fn new(path: PathBuf) -> Self {
        let mut command = Command::new(path);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("OTEL_") {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null());
        Self { command }
    }

    /// Adds options.
    #[must_use]
    pub fn args(mut self, options: &[&str]) -> Self {
        self.command.args(options);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sends to an endpoint as this service, by this protocol.
    #[must_use]
    pub fn sending(self, endpoint: &str, protocol: &str, service: &str) -> Self {
        self.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_SERVICE_NAME", service)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn run(mut self) -> Done {
        let output =
            self.command.output().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        Done {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The program of this package that pretends to train.
///
/// # Panics
///
/// When it is not there.
#[must_use]
pub fn train() -> Program {
    // target/<profile>/deps/<test>
    let mut path = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    path.pop();
    path.pop();
    Program::new(path.join("train"))
}

/// An example with libtorch, on the CPU; `make test` builds them before these tests.
///
/// # Panics
///
/// When it was not built.
#[must_use]
pub fn example(name: &str) -> Program {
    let path = built("release").join("examples").join(name);
    assert!(path.exists(), "expected {}: run `make test`", path.display());
    Program::new(path)
}

/// A program of `collector/python`, with the packages that `make python` has installed; `None` where
/// it has not, with a line that says so. Where servers are required that is a failure.
///
/// # Panics
///
/// As said above.
#[must_use]
pub fn python(name: &str) -> Option<Program> {
    let packages = built("python");
    if !packages.join("opentelemetry").exists() {
        skipped(&packages, "make python");
        return None;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../collector/python");
    let mut program = Program::new(PathBuf::from("python3"));
    program.command.arg("-B").arg(PathBuf::from(folder).join(name)).env("PYTHONPATH", packages);
    Some(program)
}
